//! Cluster API's own managers, as they run in a cluster: core, kubeadm bootstrap and kubeadm control plane, with their
//! webhooks and feature gates at default, only on loopback instead of in pods.
//!
//! One management API server with the managers serves many clusters. Each [`Workload`] is a cluster: a real API server
//! of its own that Cluster API connects to, and a [`StandIn`] for the hosts that no machine here can be.

mod manager;
pub mod objects;
mod stand_in;
mod until;
mod workload;

use tokio::sync::OnceCell;

use crate::certs::Authority;
use crate::control_plane::ControlPlane;
use crate::crds::{self, Group};
use crate::steps::step_async;

pub use manager::Manager;
pub use stand_in::{Provider, StandIn};
pub use until::{PATIENCE, until, until_one};
pub use workload::{Masters, Workload};

/// The management API server that the stories of one process share, with Cluster API's managers and the CRDs of Metal3
/// and its infrastructure provider.
///
/// # Panics
/// When it does not come up: no story of Cluster API can go on without it.
#[allow(clippy::expect_used, reason = "every story needs it, and a story may panic")]
pub async fn shared() -> &'static ControlPlane {
    static SHARED: OnceCell<(ClusterApi, ControlPlane)> = OnceCell::const_new();
    let started = SHARED.get_or_try_init(|| async {
        let management =
            step_async("starting the management API server", ControlPlane::start("management"))
                .await?;
        crds::install(&management.admin().await, &[Group::Metal3, Group::Capm3]).await?;
        anyhow::Ok((ClusterApi::start(&management).await?, management))
    });
    &started.await.expect("Cluster API's managers start").1
}

/// Installs Cluster API's CRDs without its managers: for stories that make Machines by hand. Nobody converts between
/// versions then but for the apiVersion. Those that are there already are left as they are.
///
/// # Errors
/// When the CRDs cannot be had, or the API server refuses them.
pub async fn install_crds(client: &kube::Client) -> anyhow::Result<()> {
    let sources = tokio::task::spawn_blocking(manager::sources).await??;
    for manager in manager::ALL {
        manager::install_crds(client, &sources, manager).await?;
    }
    Ok(())
}

/// The three managers on one management API server. They end when it is dropped.
#[derive(Debug)]
pub struct ClusterApi {
    managers: Vec<Manager>,
}

impl ClusterApi {
    /// Installs Cluster API's CRDs, starts its managers, and connects their webhooks.
    ///
    /// The CRDs of the infrastructure provider are the caller's: Cluster API looks them up when the first object
    /// refers to them.
    ///
    /// # Errors
    /// When a manager cannot be built or does not become ready; the message holds its last lines.
    pub async fn start(management: &ControlPlane) -> anyhow::Result<Self> {
        let sources = tokio::task::spawn_blocking(manager::sources).await??;
        let client = management.admin().await;
        let authority = Authority::new()?;
        // The managers look for every CRD of Cluster API when they start, so all come before the first manager.
        let crds = step_async("installing Cluster API's CRDs", async {
            let mut crds = Vec::new();
            for manager in manager::ALL {
                crds.push(manager::install_crds(&client, &sources, manager).await?);
            }
            Ok(crds)
        })
        .await?;
        let mut managers = Vec::new();
        for (what, crds) in manager::ALL.iter().zip(crds) {
            let name = format!("starting {}", what.program);
            let started = step_async(&name, async {
                let manager = Manager::start(management, what, &authority).await?;
                manager.connect(&client, &sources, &crds).await?;
                Ok(manager)
            });
            managers.push(started.await?);
        }
        Ok(Self { managers })
    }

    /// Their last log lines, for a failure that only they can explain.
    pub fn log_tails(&self) -> String {
        self.managers.iter().map(Manager::log_tail).collect::<Vec<_>>().join("\n")
    }
}

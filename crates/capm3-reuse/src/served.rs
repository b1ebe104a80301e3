//! Which versions of Cluster API's kinds the API server serves.

use std::fmt;

use api_types::ContractVersion;
use api_types::names::capi::{CONTROL_PLANE_GROUP, GROUP as CORE_GROUP};
use api_types::names::capm3::GROUP as INFRASTRUCTURE_GROUP;
use controller_kit::Kit;
use controller_kit::served::{self, Answer, best, has, required};
use kube::Client;

use crate::reservation::Owner;

const BEST_FIRST: &[ContractVersion] = &ContractVersion::BEST_FIRST;

/// What the API server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Clusters, Machines, their sets and deployments.
    pub core: ContractVersion,
    /// `Metal3Machines` and their templates.
    pub infrastructure: ContractVersion,
    /// Kubeadm control planes; not everybody has them.
    pub control_plane: Option<ContractVersion>,
    /// Whether there are `Metal3DataClaims`, `Metal3Datas` and their templates in the version of the `Metal3Machines`.
    pub data: bool,
}

impl Served {
    /// The version of a group's objects here.
    pub fn version_of(&self, group: &str) -> ContractVersion {
        match group {
            INFRASTRUCTURE_GROUP => self.infrastructure,
            CONTROL_PLANE_GROUP => self.control_plane.unwrap_or_default(),
            _ => self.core,
        }
    }

    /// Whether there is a watch on owners of this kind. The cache of a kind that is not served is empty for ever, and a read of it
    /// has no answer that says so.
    pub fn watches(&self, owner: &Owner) -> bool {
        match owner.kind.as_str() {
            "MachineDeployment" => true,
            "KubeadmControlPlane" => self.control_plane.is_some(),
            _ => false,
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (core, infrastructure) = (self.core.as_str(), self.infrastructure.as_str());
        let data = if self.data { "with" } else { "without" };
        write!(into, "{CORE_GROUP}/{core}, {INFRASTRUCTURE_GROUP}/{infrastructure} {data} data, ")?;
        match self.control_plane {
            Some(version) => write!(into, "{CONTROL_PLANE_GROUP}/{}", version.as_str()),
            None => write!(into, "no {CONTROL_PLANE_GROUP}"),
        }
    }
}

/// Asks until everything that is needed is served.
pub async fn wait(kit: &Kit) -> Served {
    served::wait(kit, || look_at(&kit.client)).await
}

/// Ends when something else is served.
pub async fn changes(kit: &Kit, before: Served) -> String {
    served::changes(before, || look_at(&kit.client)).await
}

async fn look_at(client: &Client) -> Result<Served, String> {
    look(|version| served::resources(client, version)).await
}

/// By what each version of a group has. None is asked about twice.
async fn look<F: Future<Output = Answer>>(ask: impl Fn(String) -> F) -> Result<Served, String> {
    let core = ["clusters", "machines", "machinesets", "machinedeployments"];
    let (core, _) = required(&ask, CORE_GROUP, BEST_FIRST, &core, "Cluster API").await?;
    let machines = ["metal3machines", "metal3machinetemplates"];
    let (infrastructure, beside) =
        required(&ask, INFRASTRUCTURE_GROUP, BEST_FIRST, &machines, "CAPM3's CRDs").await?;
    let control_plane =
        best(&ask, CONTROL_PLANE_GROUP, BEST_FIRST, &["kubeadmcontrolplanes"]).await?;
    Ok(Served {
        core,
        infrastructure,
        control_plane: control_plane.map(|(version, _)| version),
        data: has(&beside, &["metal3dataclaims", "metal3datas", "metal3datatemplates"]),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_is_served_is_said_in_words() {
        let (core, infrastructure) = (ContractVersion::V1Beta2, ContractVersion::V1Beta1);
        let served = |control_plane, data| Served { core, infrastructure, control_plane, data };
        for (served, wanted) in [
            (
                served(Some(core), true),
                "cluster.x-k8s.io/v1beta2, infrastructure.cluster.x-k8s.io/v1beta1 with data, \
                 controlplane.cluster.x-k8s.io/v1beta2",
            ),
            (
                served(None, false),
                "cluster.x-k8s.io/v1beta2, infrastructure.cluster.x-k8s.io/v1beta1 without data, \
                 no controlplane.cluster.x-k8s.io",
            ),
        ] {
            assert_eq!(served.to_string(), wanted);
        }
    }

    #[tokio::test]
    async fn each_version_is_asked_about_once_and_the_best_is_taken() {
        let core = "clusters machines machinesets machinedeployments";
        let machines = "metal3machines metal3machinetemplates";
        let data = &format!("{machines} metal3dataclaims metal3datas metal3datatemplates");
        let half = &format!("{machines} metal3dataclaims metal3datas");
        let (v1, v2) = (ContractVersion::V1Beta1, ContractVersion::V1Beta2);
        for (infrastructure, planes, wanted, asked) in [
            ([data, machines], ["kubeadmcontrolplanes", ""], (v2, Some(v2), true), 3),
            ([machines, data], ["", ""], (v2, None, false), 4),
            ([half, machines], ["", ""], (v2, None, false), 4),
            (["metal3dataclaims", data], ["", "kubeadmcontrolplanes"], (v1, Some(v1), true), 5),
        ] {
            let all = RefCell::new(Vec::new());
            let served = look(|version: String| {
                let list = match version.split_once('/').unwrap() {
                    (CORE_GROUP, "v1beta2") => core,
                    (INFRASTRUCTURE_GROUP, "v1beta2") => infrastructure[0],
                    (INFRASTRUCTURE_GROUP, _) => infrastructure[1],
                    (CONTROL_PLANE_GROUP, "v1beta2") => planes[0],
                    (CONTROL_PLANE_GROUP, _) => planes[1],
                    _ => "",
                };
                all.borrow_mut().push(version);
                std::future::ready(Ok(list.split_whitespace().map(str::to_owned).collect()))
            });
            let served = served.await.unwrap();
            assert_eq!((served.infrastructure, served.control_plane, served.data), wanted);
            assert_eq!(all.borrow().len(), asked, "{all:?}");
        }
        let nothing = look(|_| std::future::ready(Ok(Vec::new()))).await;
        assert!(
            nothing.unwrap_err().contains("no version of cluster.x-k8s.io has all of clusters")
        );
    }
}

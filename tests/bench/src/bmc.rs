//! Virtual Redfish BMCs. The protocol is that of the sushy-tools emulator; the machines behind it are ours
//! (`python/bmcs.py`), because a test has to decide how long a machine takes and whether it obeys.
//!
//! What this cannot prove: how the firmware of a particular vendor differs from the standard.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::cache::RunDir;
use crate::certs;
use crate::ironic::{self, Release};
use crate::process::{Service, free_port};

const PROGRAM: &str = include_str!("../python/bmcs.py");

/// How a machine behaves. The default obeys everything within 0.2 seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Behaviour {
    /// Seconds from an accepted request to the new state.
    pub delay: f64,
    /// Seconds that a power request takes to be answered.
    pub answer_after: f64,
    /// Reset types that are accepted and then not done: `GracefulShutdown` for a hung operating system.
    pub ignores: Vec<&'static str>,
    /// Reset types that are answered with an error.
    pub refuses: Vec<&'static str>,
    /// Everything about this machine, reads too, is answered with an error.
    pub unwell: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            delay: 0.2,
            answer_after: 0.0,
            ignores: Vec::new(),
            refuses: Vec::new(),
            unwell: false,
        }
    }
}

/// One thing that happened to a machine: either `request` or `state` is set.
#[derive(Clone, Debug, Deserialize)]
pub struct Happening {
    /// Seconds since the epoch.
    pub at: f64,
    /// The Redfish reset type that was asked for: `On`, `ForceOff`, `GracefulShutdown`, `ForceRestart`...
    pub request: Option<String>,
    /// What became of the request: `accepted`, `ignored`, `refused`.
    pub outcome: Option<String>,
    /// The power state that was reached: `On`, `Off` or `PoweringOff`.
    pub state: Option<String>,
}

/// What a machine is and what happened to it, oldest first.
#[derive(Clone, Debug, Deserialize)]
pub struct Seen {
    /// `On`, `Off`, or `PoweringOff`, in which the machine still runs.
    pub state: String,
    /// Requests and state changes in order.
    pub history: Vec<Happening>,
}

impl Seen {
    /// How often this reset type was asked for, whatever became of it.
    pub fn requests(&self, reset_type: &str) -> usize {
        self.count(|h| h.request.as_deref() == Some(reset_type))
    }

    /// How often the machine went on.
    pub fn turned_on(&self) -> usize {
        self.count(|h| h.state.as_deref() == Some("On"))
    }

    /// How often the machine went off.
    pub fn turned_off(&self) -> usize {
        self.count(|h| h.state.as_deref() == Some("Off"))
    }

    fn count(&self, wanted: impl Fn(&Happening) -> bool) -> usize {
        self.history.iter().filter(|h| wanted(h)).count()
    }
}

/// A machine that no other test of this process uses, switched off and well behaved.
///
/// # Errors
/// When the emulator does not start, or all its machines are taken.
pub async fn spare() -> anyhow::Result<Machine> {
    static RACK: OnceCell<Rack> = OnceCell::const_new();
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let rack = RACK.get_or_try_init(|| Rack::start(96)).await?;
    let machine = rack
        .machines
        .get(NEXT.fetch_add(1, Ordering::Relaxed))
        .context("all machines of the shared rack are taken: start a Rack of your own")?;
    Ok(machine.clone())
}

/// An emulator with its machines.
#[derive(Debug)]
pub struct Rack {
    /// Its machines, all off at the start.
    pub machines: Vec<Machine>,
    service: Mutex<Service>,
    _dir: RunDir,
}

impl Rack {
    /// Starts an emulator with this many machines.
    ///
    /// # Errors
    /// When it does not come up; the message holds its last lines.
    pub async fn start(count: usize) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Listed {
            machines: Vec<String>,
        }
        certs::install_provider();
        let environment = ironic::environment(Release::Current).await?;
        let dir = RunDir::new("bmcs")?;
        let program = dir.path().join("bmcs.py");
        std::fs::write(&program, PROGRAM)?;
        let port = free_port();
        let mut command = crate::python::of(&environment, "python");
        command.arg(program).arg(port.to_string()).arg(count.to_string());
        let mut service = Service::start("bmcs", command, dir.path())?;
        let http = http()?;
        let address = format!("http://127.0.0.1:{port}");
        let deadline = Instant::now() + Duration::from_secs(60);
        let listed: Listed = loop {
            if let Ok(answer) = http.get(format!("{address}/machines")).send().await {
                break answer.json().await?;
            }
            if !service.alive() || Instant::now() > deadline {
                bail!(
                    "the BMC emulator did not come up. The end of its log:\n{}",
                    service.log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let machines = listed.machines.into_iter().map(|id| Machine {
            address: address.clone(),
            id,
            http: http.clone(),
        });
        Ok(Self { machines: machines.collect(), service: Mutex::new(service), _dir: dir })
    }

    /// The HTTP proxy through which its BMCs have the addresses of [`Self::ip`].
    pub fn proxy(&self) -> Option<String> {
        self.machines.first().map(|it| it.address.clone())
    }

    /// The address of the BMC of a machine behind [`Self::proxy`], where the machine is `/redfish/v1/Systems/1`.
    pub fn ip(number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number)
    }

    /// All its BMCs accept connections and answer nothing, until [`Self::resume`].
    ///
    /// # Errors
    /// When the emulator has ended.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal("STOP")
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// When the emulator has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner).signal(signal)
    }
}

fn http() -> anyhow::Result<reqwest::Client> {
    let builder = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
    Ok(builder.timeout(Duration::from_secs(30)).build()?)
}

fn own_http() -> reqwest::Client {
    certs::install_provider();
    http().unwrap_or_default()
}

/// One machine with its BMC.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    address: String,
    id: String,
    /// Whoever reads of a machine that another process keeps asks it with a client of its own.
    #[serde(skip, default = "own_http")]
    http: reqwest::Client,
}

impl Machine {
    /// The BMC's address, `http://127.0.0.1:<port>`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The machine's path in Redfish.
    pub fn system_path(&self) -> String {
        format!("/redfish/v1/Systems/{}", self.id)
    }

    /// Where it is in Redfish.
    pub fn url(&self) -> String {
        format!("{}{}", self.address, self.system_path())
    }

    /// `On` or `Off`, as its BMC says.
    ///
    /// # Errors
    /// When the emulator does not answer.
    pub async fn state(&self) -> anyhow::Result<String> {
        Ok(self.seen().await?.state)
    }

    /// Its state, and all that happened to it.
    ///
    /// # Errors
    /// When the emulator does not answer.
    pub async fn seen(&self) -> anyhow::Result<Seen> {
        let url = format!("{}/machines/{}", self.address, self.id);
        Ok(self.http.get(url).send().await?.error_for_status()?.json().await?)
    }

    /// From now on it behaves like this.
    ///
    /// # Errors
    /// When the emulator does not answer.
    pub async fn behave(&self, behaviour: &Behaviour) -> anyhow::Result<()> {
        self.put("behaviour", behaviour).await
    }

    /// Somebody presses the button: `On` or `Off`, at once and past Ironic.
    ///
    /// # Errors
    /// When the emulator does not answer.
    pub async fn press(&self, state: &str) -> anyhow::Result<()> {
        self.put("power", &serde_json::json!({ "state": state })).await
    }

    async fn put(&self, what: &str, body: &impl Serialize) -> anyhow::Result<()> {
        let url = format!("{}/machines/{}/{what}", self.address, self.id);
        self.http.put(url).json(body).send().await?.error_for_status()?;
        Ok(())
    }
}

//! The five as processes, each under the account of its chart and with a lease, so that one that was killed is followed by
//! one that has to wait for it. One that could not keep its lease ends, as it should, and is started again, as the kubelet
//! would: beside many other tests an API server may be silent for longer than a short lease lasts.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bench::cache::{RunDir, run};
use bench::control_plane::ControlPlane;
use bench::process::{Service, answers, free_port};
use tokio::task::JoinHandle;

use crate::in_process::{account, kubeconfig, program};

/// What each is told beside what all are told. Where Ironic is, is added.
const TOLD: [(&str, &[(&str, &str)]); 5] = [
    ("bmo-reboot", &[("FERRITE_POLL_INTERVAL", "2s")]),
    ("capm3-reuse", &[]),
    ("clusterpool-inventory", &[]),
    ("host-discovery", &[("FERRITE_POLL_INTERVAL", "1s"), ("FERRITE_ADOPT_DRIVER", "true")]),
    ("remediation", &[]),
];

/// What a process says that ends because somebody else may lead.
const LOST: &str = "The lease ended";

/// All that run.
pub(super) struct Processes {
    folder: Arc<RunDir>,
    all: Arc<Mutex<BTreeMap<&'static str, Process>>>,
    kubelet: JoinHandle<()>,
}

struct Process {
    /// The account by which the API server knows it.
    user: String,
    environment: Vec<(&'static str, String)>,
    service: Service,
    killed: bool,
    /// Killed, and not to be started again yet.
    down: bool,
    /// How it ended when nobody had asked for it and its lease was not lost.
    fault: Option<String>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kubelet.abort();
        if std::thread::panicking() {
            eprintln!("{}", self.log_tails());
        }
    }
}

impl Processes {
    /// Starts all five for one namespace.
    pub(super) async fn start(plane: &ControlPlane, namespace: &str, ironic: &str) -> Self {
        Self::start_told(plane, namespace, ironic, &[]).await
    }

    /// The same; each is told this, too.
    pub(super) async fn start_told(
        plane: &ControlPlane,
        namespace: &str,
        ironic: &str,
        more: &[(&'static str, &str)],
    ) -> Self {
        let folder = Arc::new(RunDir::new("together").unwrap());
        let mut all = BTreeMap::new();
        // As the hooks of the charts do.
        let admin = plane.kubeconfig("admin", &["system:masters"]).unwrap();
        for (name, _) in TOLD {
            let mut extend = Command::new(program(name));
            run(extend.arg("extend-crd").env("KUBECONFIG", &admin)).unwrap();
        }
        for (name, told) in TOLD {
            let (_, user) = account(plane, name, &format!("{namespace}-{name}")).await;
            let of = user.split(':').nth(2).unwrap().to_owned();
            let told = told.iter().chain(more).map(|(key, value)| (*key, (*value).to_owned()));
            let environment: Vec<_> = told
                .chain([
                    ("KUBECONFIG", kubeconfig(plane, &user).await.display().to_string()),
                    ("FERRITE_NAMESPACES", namespace.to_owned()),
                    ("FERRITE_LEASE_NAMESPACE", of),
                    ("FERRITE_LEASE_DURATION", "6s".to_owned()),
                    ("FERRITE_RENEW_DEADLINE", "5s".to_owned()),
                    ("FERRITE_RETRY_PERIOD", "500ms".to_owned()),
                    ("FERRITE_LISTEN", format!("127.0.0.1:{}", free_port())),
                    ("IRONIC_ENDPOINT", ironic.to_owned()),
                    ("METAL3_AUTH_ROOT_DIR", "/nonexistent".to_owned()),
                ])
                .collect();
            let service = launch(name, &environment, &folder);
            let process =
                Process { user, environment, service, killed: false, down: false, fault: None };
            all.insert(name, process);
        }
        let all = Arc::new(Mutex::new(all));
        let kubelet = tokio::spawn(restart(Arc::clone(&all), Arc::clone(&folder)));
        let five = Self { folder, all, kubelet };
        for (name, _) in TOLD {
            five.ready(name).await;
        }
        five
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Process>> {
        self.all.lock().unwrap()
    }

    /// Ends one as a power failure would.
    pub(super) fn kill(&self, name: &str) {
        let mut all = self.all();
        let process = all.get_mut(name).unwrap();
        process.service.kill();
        (process.killed, process.down) = (true, true);
    }

    pub(super) async fn start_again(&self, name: &str) {
        {
            let mut all = self.all();
            let process = all.get_mut(name).unwrap();
            process.service = launch(name, &process.environment, &self.folder);
            process.down = false;
        }
        self.ready(name).await;
    }

    fn address(&self, name: &str) -> String {
        let all = self.all();
        let mut environment = all[name].environment.iter();
        let listens = environment.find(|(key, _)| *key == "FERRITE_LISTEN");
        format!("http://{}", listens.unwrap().1)
    }

    async fn ready(&self, name: &str) {
        let ready = format!("{}/readyz", self.address(name));
        let deadline = Instant::now() + Duration::from_secs(120);
        while !answers(&ready).await {
            assert!(Instant::now() < deadline, "{name} is not ready");
            self.none_has_ended();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) fn names() -> [&'static str; 5] {
        TOLD.map(|(name, _)| name)
    }

    /// The account of each.
    pub(super) fn users(&self) -> BTreeMap<&'static str, String> {
        self.all().iter().map(|(name, process)| (*name, process.user.clone())).collect()
    }

    /// Megabytes that each has in memory, by its own word.
    pub(super) async fn resident(&self) -> BTreeMap<&'static str, f64> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build();
        let http = http.unwrap();
        let mut all = BTreeMap::new();
        for name in Self::names() {
            self.ready(name).await;
            let answer = http.get(format!("{}/metrics", self.address(name))).send().await.unwrap();
            let text = answer.text().await.unwrap();
            let mut lines = text.lines();
            let line = lines.find_map(|it| it.strip_prefix("process_resident_memory_bytes "));
            let bytes: f64 = line.unwrap().trim().parse().unwrap();
            all.insert(name, bytes / 1e6);
        }
        all
    }

    /// None has ended but by a power failure, or because it could not keep its lease.
    pub(super) fn none_has_ended(&self) {
        let fault = self.all().values().find_map(|process| process.fault.clone());
        if let Some(fault) = fault {
            panic!("{fault}");
        }
    }

    /// The last lines of what each has logged.
    fn log_tails(&self) -> String {
        let all = self.all();
        let tail = |(name, process): (&&str, &Process)| {
            format!("{name}:\n{}\n", process.service.log_tail())
        };
        all.iter().map(tail).collect()
    }

    /// Each was killed once, and none has ended by itself.
    pub(super) fn all_run(&self) {
        for (name, process) in self.all().iter() {
            assert!(process.killed, "{name} was not killed");
        }
        self.none_has_ended();
    }
}

/// Starts what has lost its lease again.
async fn restart(all: Arc<Mutex<BTreeMap<&'static str, Process>>>, folder: Arc<RunDir>) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        for (name, process) in all.lock().unwrap().iter_mut() {
            if process.down || process.fault.is_some() || process.service.alive() {
                continue;
            }
            let tail = process.service.log_tail();
            if tail.lines().last().is_some_and(|line| line.contains(LOST)) {
                eprintln!("{name} could not keep its lease and is started again");
                process.service = launch(name, &process.environment, &folder);
            } else {
                process.fault = Some(format!("{name} ended:\n{tail}"));
            }
        }
    }
}

fn launch(name: &str, environment: &[(&'static str, String)], folder: &RunDir) -> Service {
    let mut command = Command::new(program(name));
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    Service::start(name, command, folder.path()).unwrap()
}

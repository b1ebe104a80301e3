//! The five as processes, each under the account of its chart and with a lease, so that one that was killed is followed by
//! one that has to wait for it.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use bench::cache::{RunDir, run};
use bench::control_plane::ControlPlane;
use bench::process::{Service, answers, free_port};

use crate::in_process::{account, kubeconfig, program};

/// What each is told beside what all are told. Where Ironic is, is added.
const TOLD: [(&str, &[(&str, &str)]); 5] = [
    ("bmo-reboot", &[("FERRITE_POLL_INTERVAL", "2s")]),
    ("capm3-reuse", &[]),
    ("clusterpool-inventory", &[]),
    ("host-discovery", &[("FERRITE_POLL_INTERVAL", "1s"), ("FERRITE_ADOPT_DRIVER", "true")]),
    ("remediation", &[]),
];

/// All that run.
pub(super) struct Processes {
    folder: RunDir,
    all: BTreeMap<&'static str, Process>,
}

struct Process {
    environment: Vec<(&'static str, String)>,
    service: Service,
    killed: bool,
}

impl Processes {
    /// Starts all five for one namespace.
    pub(super) async fn start(plane: &ControlPlane, namespace: &str, ironic: &str) -> Self {
        let folder = RunDir::new("together").unwrap();
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
            let told = told.iter().map(|(key, value)| (*key, (*value).to_owned()));
            let environment: Vec<_> = told
                .chain([
                    ("KUBECONFIG", kubeconfig(plane, &user).await.display().to_string()),
                    ("FERRITE_NAMESPACES", namespace.to_owned()),
                    ("FERRITE_LEASE_NAMESPACE", of),
                    ("FERRITE_LEASE_DURATION", "4s".to_owned()),
                    ("FERRITE_RENEW_DEADLINE", "3s".to_owned()),
                    ("FERRITE_RETRY_PERIOD", "500ms".to_owned()),
                    ("FERRITE_LISTEN", format!("127.0.0.1:{}", free_port())),
                    ("IRONIC_ENDPOINT", ironic.to_owned()),
                    ("METAL3_AUTH_ROOT_DIR", "/nonexistent".to_owned()),
                ])
                .collect();
            let service = launch(name, &environment, &folder);
            all.insert(name, Process { environment, service, killed: false });
        }
        let mut five = Self { folder, all };
        for (name, _) in TOLD {
            five.ready(name).await;
        }
        five
    }

    /// Ends one as a power failure would.
    pub(super) fn kill(&mut self, name: &str) {
        let process = self.all.get_mut(name).unwrap();
        assert!(process.service.alive(), "{name} ended:\n{}", process.service.log_tail());
        process.service.kill();
        process.killed = true;
    }

    pub(super) async fn start_again(&mut self, name: &str) {
        let process = self.all.get_mut(name).unwrap();
        process.service = launch(name, &process.environment, &self.folder);
        self.ready(name).await;
    }

    async fn ready(&mut self, name: &str) {
        let process = self.all.get_mut(name).unwrap();
        let listens = process.environment.iter().find(|(key, _)| *key == "FERRITE_LISTEN");
        let ready = format!("http://{}/readyz", listens.unwrap().1);
        let deadline = Instant::now() + Duration::from_secs(120);
        while !answers(&ready).await {
            let service = &mut process.service;
            assert!(service.alive(), "{name} ended:\n{}", service.log_tail());
            assert!(Instant::now() < deadline, "{name} is not ready:\n{}", service.log_tail());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) fn names() -> [&'static str; 5] {
        TOLD.map(|(name, _)| name)
    }

    pub(super) fn none_has_ended(&mut self) {
        for (name, process) in &mut self.all {
            assert!(process.service.alive(), "{name} ended:\n{}", process.service.log_tail());
        }
    }

    /// The last lines of what each has logged.
    pub(super) fn log_tails(&self) -> String {
        let tail = |(name, process): (&&str, &Process)| {
            format!("{name}:\n{}\n", process.service.log_tail())
        };
        self.all.iter().map(tail).collect()
    }

    /// Each was killed once, and none has ended by itself.
    pub(super) fn all_run(&mut self) {
        for (name, process) in &self.all {
            assert!(process.killed, "{name} was not killed");
        }
        self.none_has_ended();
    }
}

fn launch(name: &str, environment: &[(&'static str, String)], folder: &RunDir) -> Service {
    let mut command = Command::new(program(name));
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    Service::start(name, command, folder.path()).unwrap()
}

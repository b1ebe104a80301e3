//! The sample as it would be installed: a program of its own, under the account that its chart makes for it.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bench::audit::Audit;
use bench::chart;
use bench::control_plane::{ControlPlane, shared};
use bench::observer::{Observer, World};
use bench::process::{Service, free_port};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use sample::{GUEST, RESULT, ROLE, SEAT};
use serde_json::json;

use crate::in_process::program;

/// Starting on a busy machine takes a while; nothing that is promised is measured by this.
const PATIENCE: Duration = Duration::from_secs(30);

/// The chart installed in a namespace of its own, with rights in the one where the work is.
struct Installed {
    plane: &'static ControlPlane,
    own: String,
    work: String,
    kubeconfig: PathBuf,
}

impl Installed {
    async fn new() -> Self {
        let plane = shared().await;
        let own = plane.namespace("sample").await;
        let work = plane.namespace("sample-work").await;
        let values = json!({"watchNamespaces": [work]});
        chart::install_account(plane, "sample", "sample", &own, values).await.unwrap();
        let kubeconfig = chart::service_account_kubeconfig(plane, &own, "sample").await.unwrap();
        Self { plane, own, work, kubeconfig }
    }

    fn command(&self, port: u16, namespace: &str) -> Command {
        let mut command = Command::new(program("sample"));
        command
            .arg(format!("--listen=127.0.0.1:{port}"))
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--namespaces={namespace}"))
            .arg(format!("--lease-namespace={}", self.own));
        command
    }

    fn start(&self, port: u16, namespace: &str) -> Service {
        let command = self.command(port, namespace);
        Service::start(&format!("{}-{port}", self.own), command, self.plane.dir()).unwrap()
    }

    fn check(&self, namespace: &str) -> (bool, String) {
        let Output { status, stdout, stderr } =
            self.command(free_port(), namespace).arg("check").output().unwrap();
        let said = [stdout, stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
        (status.success(), said)
    }

    fn user(&self) -> String {
        format!("system:serviceaccount:{}:sample", self.own)
    }
}

async fn create(client: &Client, namespace: &str, role: &str, name: &str) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object = json!({"metadata": {"name": name, "labels": {ROLE: role}}});
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Waits until an endpoint says this.
async fn says(service: &Service, port: u16, path: &str, wanted: &str) {
    let http =
        reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(1)).build().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = http.get(format!("http://127.0.0.1:{port}{path}")).send().await;
        let text = match answer {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        if text.contains(wanted) {
            return;
        }
        let log = service.log_tail();
        assert!(Instant::now() < deadline, "{path} never says {wanted:?} but {text}:\n{log}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_its_charts_account_the_program_seats_guests_and_ends_within_a_second_of_sigterm() {
    let it = Installed::new().await;
    let admin = it.plane.admin().await;
    let audit = Audit::new(it.plane.audit_log(), admin.clone());
    let start = audit.mark().await.unwrap();
    let kinds = [ApiResource::erase::<ConfigMap>(&())];
    let observer = Observer::start(&admin, Some(&it.work), &kinds).await.unwrap();
    let port = free_port();
    let mut service = it.start(port, &it.work);
    says(&service, port, "/readyz", "ok").await;

    create(&admin, &it.work, SEAT, "s1").await;
    create(&admin, &it.work, SEAT, "s2").await;
    create(&admin, &it.work, GUEST, "g1").await;
    create(&admin, &it.work, GUEST, "g2").await;
    let seated = |world: &World| {
        world.values().filter(|it| it.annotations().contains_key(RESULT)).count() == 2
    };
    let reached = observer.reaches(seated, PATIENCE).await.unwrap();
    assert!(reached, "the guests are never seated:\n{}", service.log_tail());
    says(&service, port, "/metrics", "ferrite_sample_decisions_total{reason=\"Taken\"} 2").await;
    let counts = audit.since(start).await.unwrap();
    assert!(counts.of(&it.user(), "patch", "configmaps") >= 6, "{counts}");

    let (code, took) = tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        (service.stop(PATIENCE).unwrap(), start.elapsed())
    })
    .await
    .unwrap();
    println!("ended in {took:?}");
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(1), "ending took {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_its_role_does_not_give_is_refused_and_said() {
    let it = Installed::new().await;
    let elsewhere = it.plane.namespace("sample-elsewhere").await;
    let port = free_port();
    let service = it.start(port, &elsewhere);
    says(&service, port, "/readyz", "is forbidden").await;
    says(&service, port, "/readyz", "permission to list and watch").await;

    let client = chart::service_account_client(it.plane, &it.own, "sample").await.unwrap();
    let refused = |error: kube::Error| match error {
        kube::Error::Api(status) => assert!(status.is_forbidden(), "{status:?}"),
        other => panic!("{other}"),
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &it.work);
    maps.list(&ListParams::default()).await.unwrap();
    let new = ConfigMap::default();
    refused(maps.create(&PostParams::default(), &new).await.unwrap_err());
    let secrets: Api<Secret> = Api::namespaced(client, &it.work);
    refused(secrets.list(&ListParams::default()).await.unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_passes_under_the_charts_role_and_names_what_another_place_lacks() {
    let it = Installed::new().await;
    let (passed, said) = it.check(&it.work);
    assert!(passed, "{said}");
    let elsewhere = it.plane.namespace("sample-elsewhere").await;
    let (passed, said) = it.check(&elsewhere);
    assert!(!passed, "{said}");
    let line = said.lines().find(|line| line.contains("configmaps")).unwrap();
    assert!(line.starts_with("FAILED") && line.contains(&elsewhere), "{said}");
}

#[test]
fn its_own_mistakes_are_listed_with_the_common_ones() {
    let output = Command::new(program("sample"))
        .args(["--flaw=some", "--concurrency=none"])
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for flag in ["--flaw (FERRITE_FLAW)", "--concurrency ("] {
        assert_eq!(said.matches(flag).count(), 1, "{flag} in:\n{said}");
    }
}

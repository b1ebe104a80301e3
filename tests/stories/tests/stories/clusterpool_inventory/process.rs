//! The real program on its command line, on an API server with Hive's own CRDs.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::process::{Service, free_port};
use serde_json::{Value, json};

use crate::in_process::program;

fn run(plane: &ControlPlane, arguments: &[&str]) -> Output {
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    let mut command = Command::new(program("clusterpool-inventory"));
    command.args(arguments).arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

async fn says(port: u16, path: &str, wanted: &str) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let said = match client.get(format!("http://127.0.0.1:{port}{path}")).send().await {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        if said.contains(wanted) {
            return;
        }
        assert!(Instant::now() < deadline, "{path} never says {wanted:?} but {said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn with_hives_own_crds_the_process_waits_for_its_fields_and_extend_crd_adds_them_once() {
    let plane = ControlPlane::start("stock").await.unwrap();
    crds::install(&plane.admin().await, &[Group::Hive]).await.unwrap();
    let checked = run(&plane, &["check", "--leader-elect=false"]);
    assert_eq!(checked.status.code(), Some(1));
    for field in ["status.inventory", "status.clusterDeploymentRef.namespace"] {
        assert!(text(&checked).contains(field), "{field}: {}", text(&checked));
    }
    let port = free_port();
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    let mut command = Command::new(program("clusterpool-inventory"));
    command
        .args(["--leader-elect=false", &format!("--listen=127.0.0.1:{port}")])
        .arg(format!("--kubeconfig={}", kubeconfig.display()));
    let _service = Service::start("clusterpool-inventory", command, plane.dir()).unwrap();
    says(port, "/readyz?verbose", "clusterpool-inventory extend-crd").await;
    let inventory =
        "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/inventory";
    for (tool, at) in
        [("kustomize", "/patches/1/patch"), ("argocd", "/ignoreDifferences/1/jsonPointers")]
    {
        let printed = run(&plane, &["extend-crd", "--print", tool]);
        assert!(printed.status.success(), "{tool}: {}", text(&printed));
        let told: Value = serde_saphyr::from_str(&text(&printed)).unwrap();
        let of_pools = told.pointer(at).unwrap().to_string();
        assert!(of_pools.contains(inventory), "{tool}: {told:#}");
    }
    let shown = run(&plane, &["extend-crd", "--dry-run"]);
    assert!(text(&shown).contains("+ clusterpools.hive.openshift.io"), "{}", text(&shown));
    let extended = run(&plane, &["extend-crd"]);
    assert!(extended.status.success(), "{}", text(&extended));
    let again = run(&plane, &["extend-crd"]);
    assert!(!text(&again).contains("+ "), "{}", text(&again));
    says(port, "/readyz", "ok").await;
    says(port, "/metrics", "ferrite_clusterpool_inventory_entries").await;
    let checked = run(&plane, &["check", "--leader-elect=false", "--output=json"]);
    assert!(checked.status.success(), "{}", text(&checked));
    let found: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(
        [&found["controller"], &found["ok"]],
        [&json!("clusterpool-inventory"), &json!(true)]
    );
    assert!(found["checks"].as_array().unwrap().iter().all(|row| row["ok"] == true), "{found:#}");
    let wrong = run(&plane, &["--pools=some", "--provision-attempts=none"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong).contains("--pools") && text(&wrong).contains("--provision-attempts"));
}

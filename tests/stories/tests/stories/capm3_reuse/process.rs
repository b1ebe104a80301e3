//! The real program on its command line: what it says about itself, and about an API server that lacks something.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::process::{Service, free_port};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::ground::plane;
use crate::in_process::program;

fn run(plane: &ControlPlane, arguments: &[&str]) -> Output {
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    let mut command = Command::new(program("capm3-reuse"));
    command.args(arguments).arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// One answer of a probe.
async fn get(port: u16, path: &str) -> Option<String> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(format!("http://127.0.0.1:{port}{path}")).send().await.ok()?;
    answer.text().await.ok()
}

async fn says(port: u16, path: &str, wanted: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let said = get(port, path).await.unwrap_or_default();
        if said.contains(wanted) {
            return said;
        }
        assert!(Instant::now() < deadline, "{path} never says {wanted:?} but {said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn check_says_what_an_api_server_has_and_lacks_and_the_process_waits_for_it() {
    let whole = plane().await;
    let checked = run(whole, &["check", "--leader-elect=false"]);
    assert!(checked.status.success(), "{}", text(&checked));
    assert!(!text(&checked).contains("machinesets/scale"), "{}", text(&checked));
    let scaling = run(whole, &["check", "--leader-elect=false", "--scale-to-hosts"]);
    assert!(text(&scaling).contains("permission on machinesets/scale"), "{}", text(&scaling));
    assert_eq!(text(&run(whole, &["crds"])), "");
    let extended = run(whole, &["extend-crd", "--dry-run"]);
    assert!(text(&extended).contains("nothing to add"), "{}", text(&extended));
    assert!(text(&run(whole, &["--version"])).starts_with("capm3-reuse "));
    let wrong = run(whole, &["--strict-reuse=maybe", "--reservation-grace=soon"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong).contains("--strict-reuse") && text(&wrong).contains("--reservation-grace")
    );

    // Nothing is installed here yet.
    let bare = ControlPlane::start("bare").await.unwrap();
    let client = bare.admin().await;
    let checked = run(&bare, &["check", "--leader-elect=false"]);
    assert_eq!(checked.status.code(), Some(1));
    let told = text(&checked);
    assert!(told.contains("baremetalhosts.metal3.io is not installed"), "{told}");
    let port = free_port();
    let kubeconfig = bare.kubeconfig("admin", &["system:masters"]).unwrap();
    let mut command = Command::new(program("capm3-reuse"));
    command
        .args(["--leader-elect=false", &format!("--listen=127.0.0.1:{port}")])
        .arg(format!("--kubeconfig={}", kubeconfig.display()));
    let _service = Service::start("capm3-reuse", command, bare.dir()).unwrap();
    says(port, "/readyz", "metal3machines.infrastructure.cluster.x-k8s.io is not installed").await;

    crds::install(&client, &[Group::Metal3, Group::Capm3]).await.unwrap();
    // A CRD from before nodeReuse.
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "metal3machinetemplates.infrastructure.cluster.x-k8s.io";
    let crd = api.get(name).await.unwrap();
    let index = crd.spec.versions.iter().position(|it| it.name == "v1beta2").unwrap();
    let path = format!(
        "/spec/versions/{index}/schema/openAPIV3Schema/properties/spec/properties/nodeReuse"
    );
    let removal = serde_json::from_value(json!([{"op": "remove", "path": path}])).unwrap();
    api.patch(name, &PatchParams::default(), &Patch::Json::<()>(removal)).await.unwrap();
    says(port, "/readyz", "field spec.nodeReuse is missing").await;
    let extended = run(&bare, &["extend-crd"]);
    assert!(
        extended.status.success() && text(&extended).contains("nodeReuse"),
        "{}",
        text(&extended)
    );
    says(port, "/readyz", "clusters.cluster.x-k8s.io is not installed").await;
    bench::cluster_api::install_crds(&client).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let probe = reqwest::Client::builder().no_proxy().build().unwrap();
    while !probe
        .get(format!("http://127.0.0.1:{port}/readyz"))
        .send()
        .await
        .is_ok_and(|answer| answer.status().is_success())
    {
        let said = get(port, "/readyz").await;
        assert!(Instant::now() < deadline, "never ready: {said:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    says(port, "/metrics", "ferrite_capm3_reuse_hosts").await;
}

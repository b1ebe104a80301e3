//! What the program answers where a real API server or a reader is not as it expects.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::io::pipe;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bench::control_plane::{ControlPlane, shared};
use bench::crds::{self, Group};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

fn ferrite(kubeconfig: &Path, namespace: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ferrite"));
    command.env_clear().env("KUBECONFIG", kubeconfig);
    command.args(["--namespace", namespace]).args(words);
    command
}

/// The code and the last line of an `adopt` whose plan nobody reads.
async fn adopt(kubeconfig: &Path, namespace: &str, more: &'static str) -> (Option<i32>, String) {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let words = ["adopt", "h", "--credentials", "racks", more];
    let mut command = ferrite(kubeconfig, namespace, &words);
    command.args(["--address", "redfish+https://{bmcAddress}/redfish/v1/Systems/1"]);
    command.stdout(writer).stderr(Stdio::piped());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    (ended.status.code(), said.lines().last().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_nobody_reads_is_not_written_and_no_success() {
    let plane = shared().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("pipes").await);
    crds::install(&client, &[Group::Metal3]).await.unwrap();
    let secret = serde_json::from_value(json!({"metadata": {"name": "racks"}})).unwrap();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(client.clone(), &namespace);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let host: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "h", "annotations": {"ferrite.metal3.io/bmc-address": "192.0.2.7"}},
        "spec": {"online": true},
    }))
    .unwrap();
    let hosts = bench::bmo::api(&client, &namespace);
    hosts.create(&PostParams::default(), &host).await.unwrap();
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    for (more, code, wanted) in [
        ("--yes", 1, "Nothing was written: the output ended before the plan was shown."),
        ("--output=text", 2, "Nothing was written. Repeat the command with --yes"),
    ] {
        let (ended, said) = adopt(&kubeconfig, &namespace, more).await;
        assert_eq!(ended, Some(code), "{said}");
        assert!(said.starts_with(wanted), "{said}");
        assert!(hosts.get("h").await.unwrap().data["spec"].get("bmc").is_none());
    }
}

/// The context may be that of another cluster: there all would be well.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_without_any_of_the_kinds_is_no_place_where_nothing_waits() {
    let plane = ControlPlane::start("without-kinds").await.unwrap();
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    for words in [&["waiting", "-A"][..], &["waiting", "--older-than", "1m"], &["waiting", "-w"]] {
        let mut command = ferrite(&kubeconfig, "default", words);
        let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
        let Output { status, stdout, stderr } = ended.await.unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), stdout.len()), (Some(3), 0), "{words:?} {said}");
        assert!(said.contains("Check the context of the kubeconfig."), "{said}");
    }
}

/// As while Cluster API's pods do not run: its conversion webhook is asked, and is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_the_api_server_cannot_convert_leaves_the_others() {
    let plane = ControlPlane::start("unconverted").await.unwrap();
    let client = plane.admin().await;
    crds::install(&client, &[Group::Metal3]).await.unwrap();
    let any = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, is_stored: bool| json!({"name": name, "served": true, "storage": is_stored, "schema": any});
    let machines = json!({
        "metadata": {"name": "machines.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "Machine", "listKind": "MachineList", "plural": "machines", "singular": "machine"},
            "versions": [version("v1beta1", true), version("v1beta2", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"],
            }},
        },
    });
    crds::create(&client, &[serde_json::from_value(machines).unwrap()]).await.unwrap();
    let machine: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": {"name": "m"},
    }))
    .unwrap();
    let kind =
        ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Machine"));
    let all: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    all.create(&PostParams::default(), &machine).await.unwrap();
    bench::bmo::make_host(&client, "default", "h", "nobody", &json!({})).await.unwrap();
    let paused = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}});
    let hosts = bench::bmo::api(&client, "default");
    hosts.patch("h", &PatchParams::default(), &Patch::Merge(&paused)).await.unwrap();
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    for (words, code) in [(&["waiting"][..], 0), (&["waiting", "--older-than", "1m"], 4)] {
        let mut command = ferrite(&kubeconfig, "default", words);
        let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let (said, shown) = (String::from_utf8(ended.stderr), String::from_utf8(ended.stdout));
        let (said, shown) = (said.unwrap(), shown.unwrap());
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains("Machine") && said.contains("conversion webhook"), "{said}");
        assert_eq!(shown.contains("BareMetalHost h "), code == 0, "{shown}");
    }
}

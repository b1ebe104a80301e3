//! What the kubectl plugin writes, on a real API server. bmo-reboot and the machines are played: the story writes their status.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use bench::bmo;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::in_process::program;
use crate::plugin::{ask, ask_as_admin, plane, user};

const KEY: &str = "reboot.metal3.io/me";

/// A status as bmo-reboot leaves it with this reason, and with these keys held.
async fn play(client: &Client, namespace: &str, host: &str, reason: &str, held: &[&str]) {
    let since = "2026-01-01T00:00:00Z";
    let condition = |name: &str, reason: &str, message: &str| {
        json!({
            "type": name, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": since,
        })
    };
    let record = json!({
        "version": 1, "progress": {"reason": reason, "since": since}, "held": {"keys": held},
    });
    let status = json!({"status": {
        "poweredOn": held.is_empty(),
        "provisioning": {"state": "provisioned", "ID": "played"},
        "conditions": [
            condition("PowerManaged", "Managed", ""),
            condition("Rebooting", reason, ""),
            condition("RebootRecord", "Record", &record.to_string()),
        ],
    }});
    let hosts = bmo::api(client, namespace);
    hosts.patch_status(host, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

/// The annotations and the spec of a host.
async fn seen(client: &Client, namespace: &str, host: &str) -> (Value, Value) {
    let host = bmo::api(client, namespace).get(host).await.unwrap();
    (json!(host.metadata.annotations), host.data["spec"].clone())
}

#[tokio::test]
async fn a_hold_is_refused_set_proven_and_released() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("holds").await);
    let labels = json!({"ferrite.metal3.io/power": "managed"});
    bmo::make_host(&client, &namespace, "h", &namespace, &labels).await.unwrap();
    let hold = ["hold", "h", "--key", "me", "--hard", "--timeout", "60s"];
    let said = ask_as_admin(plane, &namespace, &hold).await;
    assert!(said.code == 1 && said.err.contains("is available, not installed"), "{}", said.err);
    assert!(seen(&client, &namespace, "h").await.0.get(KEY).is_none(), "nothing was written");
    play(&client, &namespace, "h", "Completed", &[]).await;
    let said =
        ask_as_admin(plane, &namespace, &["hold", "h", "--key", "a", "--timeout", "1s"]).await;
    assert!(said.code == 1 && said.err.contains("is not proven after"), "{}", said.err);
    let played = async {
        while seen(&client, &namespace, "h").await.0.get(KEY).is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        play(&client, &namespace, "h", "HeldOff", &[KEY]).await;
    };
    let (said, ()) = tokio::join!(ask_as_admin(plane, &namespace, &hold), played);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.starts_with("BareMetalHost h is held off. It took "), "{}", said.out);
    assert_eq!(seen(&client, &namespace, "h").await.0[KEY], json!("{\"mode\":\"hard\"}"));
    let said = ask_as_admin(plane, &namespace, &["release", "h", "--key", "mi"]).await;
    assert!(said.code == 3 && said.err.contains(KEY), "{}", said.err);
    let said = ask_as_admin(plane, &namespace, &["release", "h", "--key", "me"]).await;
    assert!(
        said.code == 0 && said.out.contains("still held by reboot.metal3.io/a"),
        "{}",
        said.out
    );
    let annotations = seen(&client, &namespace, "h").await.0;
    assert_eq!(annotations, json!({"reboot.metal3.io/a": ""}), "that of the other client stays");
    let nobody = plane.kubeconfig("holds-nothing", &[]).unwrap();
    let said = ask(&nobody, &namespace, &["hold", "h", "--key", "me"]).await;
    assert!(said.code == 4 && said.err.contains("get baremetalhosts.metal3.io"), "{}", said.err);
}

#[tokio::test]
async fn a_discovered_host_gets_the_bmc_that_its_machine_named_once() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("adopts").await);
    let hosts = bmo::api(&client, &namespace);
    for (name, told) in [("a", "192.0.2.7"), ("b", "192.0.2.7"), ("c", "192.0.2.8")] {
        let host = serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "annotations": {"ferrite.metal3.io/bmc-address": told}},
            "spec": {"online": true},
        }));
        hosts.create(&PostParams::default(), &host.unwrap()).await.unwrap();
    }
    let template = "redfish+https://{bmcAddress}/redfish/v1/Systems/1";
    let adopt = async |more: &[&str]| {
        let words = ["adopt", "--credentials", "racks", "--address", template];
        ask_as_admin(plane, &namespace, &[&words, more].concat()).await
    };
    let said = adopt(&["a", "--yes"]).await;
    assert!(said.code == 3 && said.err.contains("Secret racks does not exist"), "{}", said.err);
    let secret = serde_json::from_value(json!({"metadata": {"name": "racks"}})).unwrap();
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(client.clone(), &namespace);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let said = adopt(&["a", "b", "--yes"]).await;
    assert!(said.code == 1 && said.err.contains("would get the BMC of"), "{}", said.err);
    // Also alone: the machine of the other one may be the right one.
    let said = adopt(&["a", "--yes"]).await;
    assert!(said.code == 1 && said.err.contains("BareMetalHost b"), "{}", said.err);
    let names = async |told: &str| {
        let told = json!({"metadata": {"annotations": {"ferrite.metal3.io/bmc-address": told}}});
        hosts.patch("b", &PatchParams::default(), &Patch::Merge(&told)).await.unwrap();
    };
    names("192.0.2.9").await;
    for (words, code) in [(&["a", "c", "--dry-run"][..], 0), (&["a", "c"][..], 2)] {
        let said = adopt(words).await;
        assert!(said.code == code && said.out.contains("https://192.0.2.8/"), "{}", said.err);
        assert!(seen(&client, &namespace, "a").await.1.get("bmc").is_none(), "{words:?}");
    }
    let said = adopt(&["a", "c", "--yes"]).await;
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    let bmc = seen(&client, &namespace, "a").await.1["bmc"].clone();
    let address = "redfish+https://192.0.2.7/redfish/v1/Systems/1";
    assert_eq!((&bmc["address"], &bmc["credentialsName"]), (&json!(address), &json!("racks")));
    let said = adopt(&["a", "--yes"]).await;
    assert!(said.code == 1 && said.err.contains("has the BMC"), "{}", said.err);
    names("192.0.2.7").await;
    let said = adopt(&["b", "--yes"]).await;
    assert!(said.code == 1 && said.err.contains("BareMetalHost a"), "{}", said.err);
}

/// More than a pipe holds that nobody reads.
const LONG: usize = 100_000;

#[tokio::test]
async fn a_host_that_another_changed_after_the_plan_gets_no_bmc() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("meanwhile").await);
    let hosts = bmo::api(&client, &namespace);
    for (name, told) in [("a", "192.0.2.17"), ("b", "192.0.2.18")] {
        let host = serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name, "annotations": {"ferrite.metal3.io/bmc-address": told}},
            "spec": {"online": true},
        }));
        hosts.create(&PostParams::default(), &host.unwrap()).await.unwrap();
    }
    let rules = json!([
        {"apiGroups": ["metal3.io"], "resources": ["baremetalhosts"], "verbs": ["get", "list", "patch"]},
    ]);
    let kubeconfig = user(plane, &namespace, "adopts-meanwhile", &rules).await;
    // The plan is longer than the pipe: nothing is written until somebody reads it.
    let address = format!("redfish+https://{{bmcAddress}}/redfish/v1/Systems/{}", "1".repeat(LONG));
    let mut command = Command::new(program("kubectl-ferrite"));
    command.env_clear().arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.args(["--namespace", &namespace, "adopt", "a", "b", "--yes"]);
    command.args(["--credentials", "racks", "--address", &address]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let output = tokio::task::spawn_blocking(move || {
        output.read_exact(&mut [0_u8]).unwrap();
        output
    });
    let mut output = output.await.unwrap();
    let theirs = json!({"address": "ipmi://192.0.2.19", "credentialsName": "theirs"});
    let change = Patch::Merge(json!({"spec": {"bmc": theirs}}));
    hosts.patch("b", &PatchParams::default(), &change).await.unwrap();
    let said = tokio::task::spawn_blocking(move || {
        std::io::copy(&mut output, &mut std::io::sink()).unwrap();
        child.wait_with_output().unwrap()
    });
    let said = said.await.unwrap();
    let err = String::from_utf8(said.stderr).unwrap();
    let wanted = "BareMetalHost b changed meanwhile, and nothing was written to it. Repeat the command. 1 of 2 hosts have their BMC: leave them out.";
    assert_eq!((said.status.code(), err.lines().last()), (Some(1), Some(wanted)), "{err}");
    assert_eq!(seen(&client, &namespace, "b").await.1["bmc"]["address"], theirs["address"]);
    assert_eq!(seen(&client, &namespace, "a").await.1["bmc"]["credentialsName"], json!("racks"));
}

#[tokio::test]
async fn who_may_only_read_is_told_the_missing_right_by_each_write() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("reads").await);
    let labels = json!({"ferrite.metal3.io/power": "managed"});
    bmo::make_host(&client, &namespace, "h", &namespace, &labels).await.unwrap();
    play(&client, &namespace, "h", "Completed", &[]).await;
    let told = json!({"metadata": {"annotations": {
        "ferrite.metal3.io/bmc-address": "192.0.2.27", "reboot.metal3.io/held": "",
    }}});
    let hosts = bmo::api(&client, &namespace);
    hosts.patch("h", &PatchParams::default(), &Patch::Merge(&told)).await.unwrap();
    let discovered = serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "d", "annotations": {"ferrite.metal3.io/bmc-address": "192.0.2.28"}},
        "spec": {"online": true},
    }));
    hosts.create(&PostParams::default(), &discovered.unwrap()).await.unwrap();
    let rules = json!([
        {"apiGroups": ["metal3.io"], "resources": ["baremetalhosts"], "verbs": ["get", "list"]},
    ]);
    let kubeconfig = user(plane, &namespace, "reads-only", &rules).await;
    let template = "redfish+https://{bmcAddress}/redfish/v1/Systems/1";
    for words in [
        &["hold", "h", "--key", "me"][..],
        &["release", "h", "--key", "held"],
        &["adopt", "d", "--credentials", "racks", "--address", template, "--yes"],
    ] {
        let said = ask(&kubeconfig, &namespace, words).await;
        let last = said.err.lines().last().unwrap_or_default();
        let is_told = last.starts_with("The API server refuses the change of BareMetalHost ")
            && last.contains("\"reads-only\" cannot patch resource \"baremetalhosts\"");
        assert!(said.code == 1 && is_told, "{words:?}: {} {}", said.code, said.err);
    }
}

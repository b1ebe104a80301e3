//! `waiting` of the kubectl plugin while things change, and for one reason.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bench::bmo;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::in_process::program;
use crate::plugin::{ask, ask_as_admin, plane, user};

/// A call that goes on, and the lines that it prints.
struct Following {
    child: Child,
    lines: UnboundedReceiver<String>,
}

impl Following {
    fn start(kubeconfig: &Path, namespace: &str, words: &[&str]) -> Self {
        let mut command = Command::new(program("kubectl-ferrite"));
        command.env_clear().arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args(["--namespace", namespace, "waiting", "--watch"]).args(words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = unbounded_channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|it| tell.send(it))
        });
        Self { child, lines }
    }

    /// The words of the next line.
    async fn next(&mut self) -> Vec<String> {
        let line = tokio::time::timeout(Duration::from_secs(20), self.lines.recv()).await;
        let line = line.expect("a line is printed").expect("the call goes on");
        line.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn set_state(client: &Client, namespace: &str, state: &str) {
    let status = json!({"status": {"provisioning": {"state": state, "ID": "played"}}});
    let hosts = bmo::api(client, namespace);
    hosts.patch_status("h", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

#[tokio::test]
async fn what_changes_is_shown_once_and_for_the_wanted_reason() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("follows").await);
    bmo::make_host(&client, &namespace, "h", &namespace, &json!({})).await.unwrap();
    set_state(&client, &namespace, "inspecting").await;
    let said = ask_as_admin(plane, &namespace, &["waiting", "--reason", "Inspecting"]).await;
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{}", said.out);
    let said = ask_as_admin(plane, &namespace, &["waiting", "--reason", "NodeShard"]).await;
    assert_eq!((said.code, said.out.as_str()), (0, "Nothing waits.\n"));
    assert!(said.err.contains("The nearest reasons: NodeShared."), "{}", said.err);

    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    let mut all = Following::start(&kubeconfig, &namespace, &[]);
    let mut one = Following::start(&kubeconfig, &namespace, &["--reason", "provisioning"]);
    assert_eq!(all.next().await[..2], ["OBJECT", "REASON"]);
    assert_eq!(all.next().await[..3], ["BareMetalHost", "h", "inspecting"]);
    assert_eq!(one.next().await, ["Nothing", "waits."]);
    set_state(&client, &namespace, "preparing").await;
    assert_eq!(all.next().await[..3], ["BareMetalHost", "h", "preparing"]);
    set_state(&client, &namespace, "provisioning").await;
    assert_eq!(all.next().await[..3], ["BareMetalHost", "h", "provisioning"]);
    assert_eq!(one.next().await[..3], ["BareMetalHost", "h", "provisioning"]);
    // A write that changes nothing about what it waits for is no line.
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    bmo::api(&client, &namespace).patch("h", &PatchParams::default(), &label).await.unwrap();
    set_state(&client, &namespace, "provisioned").await;
    for shown in [&mut all, &mut one] {
        let line = shown.next().await.join(" ");
        assert_eq!(line, "BareMetalHost h provisioning It waits no longer.");
    }
}

#[tokio::test]
async fn who_may_not_watch_gets_the_list_and_the_missing_right() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("lists").await);
    bmo::make_host(&client, &namespace, "h", &namespace, &json!({})).await.unwrap();
    set_state(&client, &namespace, "inspecting").await;
    let rules =
        json!([{"apiGroups": ["metal3.io"], "resources": ["baremetalhosts"], "verbs": ["list"]}]);
    let kubeconfig = user(plane, &namespace, "lists-only", &rules).await;
    let said = ask(&kubeconfig, &namespace, &["waiting", "-w"]).await;
    assert!(said.out.contains("BareMetalHost h  inspecting"), "{}", said.out);
    let last = format!(
        "Changes cannot be followed: you lack the right to watch baremetalhosts.metal3.io in namespace {namespace}."
    );
    assert_eq!((said.code, said.err.lines().last()), (4, Some(last.as_str())), "{}", said.err);
}

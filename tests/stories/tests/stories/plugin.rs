//! The kubectl plugin as a person runs it: a program of its own, with the rights of its user.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bench::audit::Audit;
use bench::bmo;
use bench::cluster_api::objects::{MACHINE, METAL3_MACHINE, VERSION};
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::process::free_port;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::in_process::program;

/// What a call said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The answer as a program reads it.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{} {}", self.out, self.err))
    }

    /// Kind, name and reason of each link of the chain.
    pub(crate) fn chain(&self) -> Vec<(String, String, String)> {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let link = |it: &Value| {
            (text(&it["object"]["kind"]), text(&it["object"]["name"]), text(&it["reason"]))
        };
        self.json()["chain"].as_array().unwrap().iter().map(link).collect()
    }
}

/// Calls `kubectl ferrite` with a kubeconfig.
pub(crate) async fn ask(kubeconfig: &Path, namespace: &str, words: &[&str]) -> Said {
    let mut command = Command::new(program("kubectl-ferrite"));
    command.env_clear().arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.args(["--namespace", namespace]).args(words);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |it: Vec<u8>| String::from_utf8(it).unwrap();
    Said { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

/// The same as somebody who may read everything.
pub(crate) async fn ask_as_admin(plane: &ControlPlane, namespace: &str, words: &[&str]) -> Said {
    ask(&plane.kubeconfig("admin", &["system:masters"]).unwrap(), namespace, words).await
}

/// A kubeconfig of a user with these rights in a namespace. One of them is to list hosts: it shows when they count.
pub(crate) async fn user(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
    rules: &Value,
) -> PathBuf {
    let (client, group) = (plane.admin().await, "rbac.authorization.k8s.io");
    let role = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
    let allowed: Api<Role> = Api::namespaced(client.clone(), namespace);
    allowed.create(&PostParams::default(), &role).await.unwrap();
    let binding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }));
    let bound: Api<RoleBinding> = Api::namespaced(client, namespace);
    bound.create(&PostParams::default(), &binding.unwrap()).await.unwrap();
    let own = Client::try_from(plane.config(name, &[]).await.unwrap()).unwrap();
    while bmo::api(&own, namespace).list(&ListParams::default()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    plane.kubeconfig(name, &[]).unwrap()
}

/// An API server with stock kinds of Metal3 and Cluster API, without ours, without Hive's and without any controller.
pub(crate) async fn plane() -> &'static ControlPlane {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    PLANE
        .get_or_init(|| async {
            let plane = ControlPlane::start("plugin").await.unwrap();
            let client = plane.admin().await;
            crds::install(&client, &[Group::Metal3, Group::Capm3]).await.unwrap();
            bench::cluster_api::install_crds(&client).await.unwrap();
            plane
        })
        .await
}

/// A host that another program has begun to clear, and a Machine whose `Metal3Machine` has it.
async fn machine_with_host(client: &Client, namespace: &str) {
    bmo::make_host(client, namespace, "rack1-7", namespace, &json!({})).await.unwrap();
    let status = json!({"status": {
        "provisioning": {"state": "deprovisioning"},
        "operationHistory": {"deprovision": {"start": "2026-01-01T00:00:00Z", "end": null}},
    }});
    let hosts = bmo::api(client, namespace);
    let params = PatchParams::default();
    hosts.patch_status("rack1-7", &params, &Patch::Merge(&status)).await.unwrap();
    let spec = json!({
        "clusterName": "metal", "version": VERSION, "bootstrap": {"dataSecretName": "boot"},
        "infrastructureRef": METAL3_MACHINE.reference("worker-1"),
    });
    MACHINE.create(client, namespace, MACHINE.object("worker-1", &spec)).await.unwrap();
    let image = json!({"url": "http://i/i", "checksum": "http://i/c", "checksumType": "sha256", "diskFormat": "qcow2"});
    let mut metal = METAL3_MACHINE.object("worker-1", &json!({ "image": image }));
    metal["metadata"]["annotations"] =
        json!({"metal3.io/BareMetalHost": format!("{namespace}/rack1-7")});
    METAL3_MACHINE.create(client, namespace, metal).await.unwrap();
}

#[tokio::test]
async fn a_chain_is_told_on_stock_kinds_without_any_controller() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("chain").await);
    machine_with_host(&client, &namespace).await;
    let user = "asks-why";
    let kubeconfig = plane.kubeconfig(user, &["system:masters"]).unwrap();
    let audit = Audit::new(plane.audit_log(), client.clone());
    let mark = audit.mark().await.unwrap();
    let said = ask(&kubeconfig, &namespace, &["why", "machine/worker-1", "-o", "json"]).await;
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let names: Vec<String> =
        said.chain().into_iter().map(|(kind, name, _)| format!("{kind}/{name}")).collect();
    let wanted = ["Machine/worker-1", "Metal3Machine/worker-1", "BareMetalHost/rack1-7"];
    assert_eq!(names, wanted, "{}", said.out);
    let host = &said.json()["chain"][2];
    assert_eq!((&host["state"], &host["waits"]), (&json!("deprovisioning"), &json!(true)));
    assert_eq!(host["since"], "2026-01-01T00:00:00Z");
    let counts = audit.since(mark).await.unwrap();
    assert!((3..10).contains(&counts.requests(user)) && counts.writes(user, &[]) == 0, "{counts}");
    let said = ask(&kubeconfig, &namespace, &["host", "rack1-7"]).await;
    assert!(said.code == 0 && said.out.contains("deprovisioning"), "{}{}", said.out, said.err);
}

#[tokio::test]
async fn what_waits_is_listed_oldest_first_and_a_script_learns_of_what_waits_too_long() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("waits").await);
    machine_with_host(&client, &namespace).await;
    let said = ask_as_admin(plane, &namespace, &["waiting"]).await;
    let first = said.out.lines().nth(1).unwrap_or_default();
    assert!(first.starts_with("BareMetalHost rack1-7  deprovisioning "), "{}", said.out);
    assert_eq!(
        (said.code, said.err.as_str()),
        (0, ""),
        "kinds that are not installed are no trouble"
    );
    let said = ask_as_admin(plane, &namespace, &["waiting", "--older-than", "30m"]).await;
    assert_eq!(said.code, 1, "{}", said.out);
    let elsewhere = plane.namespace("rests").await;
    let said = ask_as_admin(plane, &elsewhere, &["waiting", "--older-than", "30m"]).await;
    assert_eq!((said.code, said.out.as_str()), (0, "Nothing waits.\n"));
    let said = ask_as_admin(plane, &elsewhere, &["waiting", "-A", "-o", "yaml"]).await;
    assert!(said.out.contains("rack1-7"), "{}", said.out);
}

#[tokio::test]
async fn a_mistake_of_who_asks_is_one_sentence_and_a_code_of_its_own() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("mistakes").await);
    machine_with_host(&client, &namespace).await;
    for (words, code, wanted) in [
        (["why", "bmh/rack1-8"], 3, "The nearest names: rack1-7."),
        (["why", "machine/other"], 3, "Machine other does not exist in namespace"),
        (["why", "clusterpool/p"], 3, "The kind ClusterPool is not installed."),
        (["why", "m3rem/worker-1"], 3, "Metal3Remediation worker-1 does not exist"),
        (["why", "pod/p"], 2, "is no KIND/NAME that this program explains"),
        (["why", "bmh/../x"], 2, "is no name that an object can have"),
    ] {
        let said = ask_as_admin(plane, &namespace, &words).await;
        assert_eq!(said.code, code, "{words:?}: {}{}", said.out, said.err);
        assert!(
            said.err.contains(wanted) && said.err.lines().count() == 1,
            "{words:?}: {}",
            said.err
        );
    }
    // Somebody without any right is told which one is missing.
    let nobody = plane.kubeconfig("has-no-rights", &[]).unwrap();
    let said = ask(&nobody, &namespace, &["why", "bmh/rack1-7"]).await;
    let wanted = format!(
        "You may not read BareMetalHost rack1-7. The missing right: get baremetalhosts.metal3.io in namespace {namespace}.\n"
    );
    assert_eq!((said.code, said.err), (4, wanted));
    let said = ask(&nobody, &namespace, &["waiting"]).await;
    assert!(said.code == 4 && said.err.contains("list machines.cluster.x-k8s.io"), "{}", said.err);
}

#[tokio::test]
async fn an_api_server_that_hangs_or_is_away_ends_in_a_sentence() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hung = listener.local_addr().unwrap().port();
    for (port, wanted) in [(hung, "did not answer within 10 seconds"), (free_port(), "No answer: ")]
    {
        let began = Instant::now();
        let said = ask(&kubeconfig_of(port), "default", &["why", "bmh/h"]).await;
        assert_eq!(said.code, 4, "{}", said.err);
        assert!(said.err.contains(wanted) && said.err.lines().count() == 1, "{}", said.err);
        assert!(began.elapsed() < Duration::from_secs(14), "{:?}", began.elapsed());
    }
}

/// A kubeconfig of an API server on this port of loopback.
fn kubeconfig_of(port: u16) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let path = std::env::temp_dir().join(format!("plugin-{port}.kubeconfig"));
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Hosts of a page and some more.
const FLEET: usize = 300;

#[tokio::test]
async fn what_waits_is_found_on_the_second_page_too() {
    let plane = plane().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("fleet").await);
    let name = |number: usize| format!("host-{number:03}");
    let make = async |number: usize| {
        bmo::make_host(&client, &namespace, &name(number), &namespace, &json!({})).await.unwrap();
    };
    stream::iter(0..FLEET).map(make).buffer_unordered(16).collect::<()>().await;
    let status = json!({"status": {"operationalStatus": "error", "errorMessage": "no power"}});
    let last = name(FLEET - 1);
    let hosts = bmo::api(&client, &namespace);
    hosts.patch_status(&last, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let said = ask_as_admin(plane, &namespace, &["waiting", "-o", "json"]).await;
    let items = &said.json()["items"];
    assert_eq!(items.as_array().unwrap().len(), 1, "{items:#}");
    assert_eq!(items[0]["object"]["name"], json!(last));
}

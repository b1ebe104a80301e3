//! What another client writes between a read and a write of the plugin is not lost. The write is held in front of a real API
//! server until the other one is done.

use std::time::Duration;

use bench::bmo;
use bench::control_plane::shared;
use bench::crds::{self, Group};
use bench::faults::{self, At, Fault, Handle, Plan};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{Written, set_bmc};
use crate::ask::{Asking, Failure};
use crate::settings::{Hold, Release};
use crate::{hold, holding};

const KEY: &str = "reboot.metal3.io/me";

/// A host, and the plugin whose first write to it is held.
struct Scene {
    hosts: Api<DynamicObject>,
    asking: Asking,
    plugin: Handle,
}

impl Scene {
    async fn new(annotations: &Value) -> Self {
        Self::with(annotations, Plan::one("plugin", At::Write(1), Fault::Hold)).await
    }

    /// The host has these annotations, and bmo-reboot manages its power.
    async fn with(annotations: &Value, plan: Plan) -> Self {
        static KINDS: OnceCell<()> = OnceCell::const_new();
        let plane = shared().await;
        let (client, namespace) = (plane.admin().await, plane.namespace("meanwhile").await);
        KINDS.get_or_init(async || crds::install(&client, &[Group::Metal3]).await.unwrap()).await;
        let labels = json!({"ferrite.metal3.io/power": "managed"});
        bmo::make_host(&client, &namespace, "h", "nobody", &labels).await.unwrap();
        let hosts = bmo::api(&client, &namespace);
        let managed = json!({
            "type": "PowerManaged", "status": "True", "reason": "Managed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"status": {
            "poweredOn": true, "provisioning": {"state": "provisioned"}, "conditions": [managed],
        }});
        let params = PatchParams::default();
        hosts.patch_status("h", &params, &Patch::Merge(&status)).await.unwrap();
        let annotations = json!({"metadata": {"annotations": annotations}});
        hosts.patch("h", &params, &Patch::Merge(&annotations)).await.unwrap();
        let mut config = plane.config("admin", &["system:masters"]).await.unwrap();
        config.default_namespace = namespace;
        let (client, plugin) = faults::client(config, plan).unwrap();
        Self { hosts, asking: Asking::of(client), plugin }
    }

    /// What becomes of a command before whose write another client changes the host.
    async fn meanwhile<T>(&self, change: Value, command: impl Future<Output = T>) -> T {
        let other = async {
            self.plugin.held().await;
            let change = Patch::Merge(&change);
            self.hosts.patch("h", &PatchParams::default(), &change).await.unwrap();
            self.plugin.release();
        };
        let both = async { tokio::join!(command, other).0 };
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("both end")
    }

    async fn hold(&self, change: Value) -> Failure {
        let timeout = Some(Duration::ZERO);
        let args = Hold { host: "h".to_owned(), key: "me".to_owned(), hard: false, timeout };
        self.meanwhile(change, Box::pin(hold::hold(&self.asking, &args))).await.unwrap_err()
    }

    async fn release(&self, change: Value) -> Result<Vec<String>, Failure> {
        let args = Release { host: "h".to_owned(), key: "me".to_owned() };
        self.meanwhile(change, Box::pin(hold::release(&self.asking, &args))).await
    }

    /// The annotations at the end, and how many writes met another one.
    async fn end(&self) -> (Value, usize) {
        let calls = self.plugin.calls();
        let conflicts = calls.iter().filter(|it| it.status.is_some_and(|it| it == 409)).count();
        (json!(self.hosts.get("h").await.unwrap().annotations()), conflicts)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_judged_again_by_what_another_wrote() {
    let scene = Scene::new(&json!({})).await;
    let paused = json!({"baremetalhost.metal3.io/paused": "them"});
    let failure = scene.hold(json!({"metadata": {"annotations": paused}})).await;
    assert!(failure.message().contains("Remove the annotation"), "{failure:?}");
    assert_eq!(scene.end().await, (paused, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_leaves_the_harder_request_that_another_wrote() {
    let scene = Scene::new(&json!({})).await;
    let request = json!({ KEY: holding::value(bmo_reboot::requests::Mode::Hard) });
    let failure = scene.hold(json!({"metadata": {"annotations": request}})).await;
    assert!(failure.message().contains("is not proven after"), "{failure:?}");
    assert_eq!(scene.end().await, (request, 1));
}

/// The annotation holds the host, whether the plugin can read it or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_host_cannot_be_read_is_waited_for_and_its_annotation_named() {
    for (fault, wanted) in [
        (At::Write(1), "If the annotation reboot.metal3.io/me is still there, remove it"),
        (At::Request(3), "The annotation reboot.metal3.io/me stays."),
    ] {
        let scene = Scene::with(&json!({}), Plan::one("plugin", fault, Fault::DropAnswer)).await;
        let timeout = Some(Duration::from_secs(2));
        let args = Hold { host: "h".to_owned(), key: "me".to_owned(), hard: false, timeout };
        let failure = Box::pin(hold::hold(&scene.asking, &args)).await.unwrap_err();
        assert!(failure.message().contains(wanted), "{failure:?}");
        assert_eq!(scene.end().await.0, json!({ KEY: "" }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_leaves_what_another_wrote() {
    let scene = Scene::new(&json!({ KEY: "" })).await;
    let other = json!({"reboot.metal3.io/them": ""});
    let left = scene.release(json!({"metadata": {"annotations": other}})).await;
    assert_eq!(left.unwrap(), ["reboot.metal3.io/them"]);
    assert_eq!(scene.end().await, (other, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_what_another_removed_finds_nothing() {
    let scene = Scene::new(&json!({ KEY: "" })).await;
    let left = scene.release(json!({"metadata": {"annotations": {KEY: null}}})).await;
    assert!(matches!(left, Err(Failure::NotFound(_))), "{left:?}");
}

/// Leases are judged by it: the machine of a user may be minutes ahead.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_tells_the_time() {
    let scene = Scene::with(&json!({}), Plan::none("plugin")).await;
    let told = scene.asking.clock().await.unwrap().unwrap();
    assert!(told.duration_since(Timestamp::now()).abs().as_secs() < 60, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_another_wrote_stays() {
    let scene = Scene::new(&json!({})).await;
    let theirs = json!({"address": "ipmi://192.0.2.9", "credentialsName": "theirs"});
    let write = async {
        let host = hold::read(&scene.asking, "h").await.unwrap();
        set_bmc(&scene.asking, &host, "ipmi://192.0.2.1", "ours").await
    };
    let written = scene.meanwhile(json!({"spec": {"bmc": theirs}}), Box::pin(write)).await;
    assert!(matches!(written, Ok(Written::Superseded)));
    let bmc = &scene.hosts.get("h").await.unwrap().data["spec"]["bmc"];
    assert_eq!((&bmc["address"], &bmc["credentialsName"]), (&theirs["address"], &json!("theirs")));
}

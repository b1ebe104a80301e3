//! Replicas follow hosts, where an annotation asks for it, and stay as they are where anything speaks against that.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bench::audit::Audit;
use bench::bmo;
use bench::chart;
use bench::cluster_api::objects::{
    Kind, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET, METAL3_MACHINE, METAL3_MACHINE_TEMPLATE,
    machine_deployment,
};
use bench::cluster_api::{Masters, PATIENCE, until, until_one};
use capm3_reuse::settings::Policy;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::ground::{plane, start};
use super::guard::Guard;
use super::rollouts::Stage;
use super::scene::{NAME, Scene, consumer};

const EVENT: Kind = Kind { api_version: "events.k8s.io/v1", kind: "Event" };
const ANNOTATION: &str = "ferrite.metal3.io/scale-to-hosts";
const SETTLE: Duration = Duration::from_secs(3);
/// Within this time replicas would have followed.
const SETTLED: Duration = Duration::from_secs(8);

/// The patch that asks for it.
pub(super) fn scale_to_hosts(asked: &str) -> Value {
    json!({"metadata": {"annotations": {ANNOTATION: asked}}})
}

fn policy() -> Policy {
    Policy { scale_to_hosts: true, scale_settle: SETTLE, ..Policy::default() }
}

async fn has_replicas(scene: (&kube::Client, &str), kind: Kind, name: &str, replicas: i64) {
    let api = kind.api(scene.0, scene.1);
    let what = format!("{} {name} with {replicas} replicas", kind.kind);
    until_one(&api, name, &what, |it| it.data["spec"]["replicas"] == replicas).await.unwrap();
}

async fn replicas(scene: &Scene, kind: Kind, name: &str) -> i64 {
    let it = kind.api(&scene.client, &scene.namespace).get(name).await.unwrap();
    it.data["spec"]["replicas"].as_i64().unwrap()
}

/// Machines are made for new hosts, an ill host is no reason to have fewer, and a host that is gone is one if that is allowed.
#[tokio::test]
async fn replicas_of_a_real_deployment_follow_its_hosts_with_one_write_each_time() {
    let stage = Stage::new("scaling", Masters::Given, 2, policy()).await;
    let (client, namespace) = (&stage.workload.management, stage.workload.namespace.as_str());
    let host = async |name: &str| {
        bmo::make_host(client, namespace, name, namespace, &json!({})).await.unwrap();
    };
    let asks = async |asked: &str| {
        stage.next_template(MACHINE_DEPLOYMENT, "workers", scale_to_hosts(asked)).await;
    };
    let wants = async |count: i64| {
        has_replicas((client, namespace), MACHINE_DEPLOYMENT, "workers", count).await;
    };
    stage.template("image-1", false).await;
    stage.workers(1, 0).await;
    let deployments = MACHINE_DEPLOYMENT.api(client, namespace);
    // It counts changes of what is asked for, and an annotation is none.
    let generation =
        async || deployments.get("workers").await.unwrap().metadata.generation.unwrap();
    let before = generation().await;
    asks("min=1,max=3").await;
    wants(2).await;
    stage.available(2, "image-1").await;
    // There is one more than there may be machines.
    host("h2").await;
    host("h3").await;
    wants(3).await;
    let first = stage.available(3, "image-1").await;

    // As a health check does: its host is marked, and its machine is replaced, on the host that was to spare.
    let (hosts, machines) = (bmo::api(client, namespace), MACHINE.api(client, namespace));
    let metal = METAL3_MACHINE.api(client, namespace);
    let sick = json!({"metadata": {"annotations": {"capi.metal3.io/unhealthy": ""}}});
    let replace = async |machine: &str, its: &str| {
        hosts.patch(its, &PatchParams::default(), &Patch::Merge(&sick)).await.unwrap();
        machines.delete(machine, &DeleteParams::default()).await.unwrap();
        let what = format!("host {its} free");
        until_one(&hosts, its, &what, |it| consumer(it).is_empty()).await.unwrap();
        let what = format!("{machine} gone");
        until(&metal, &watcher::Config::default(), &what, |all| !all.contains_key(machine))
            .await
            .unwrap();
    };
    let (machine, its) = first.iter().next().unwrap();
    replace(machine, its).await;
    let second = stage.available(3, "image-1").await;
    assert!(!second.values().any(|it| it == its), "{second:?}");

    // Now there is none to spare. The next machine waits, and is waited for as long as its host may come back.
    asks("min=1,max=9,down=true").await;
    let (machine, other) = second.iter().next().unwrap();
    replace(machine, other).await;
    tokio::time::sleep(SETTLED).await;
    wants(3).await;
    for gone in [its, other] {
        hosts.delete(gone, &DeleteParams::default()).await.unwrap();
    }
    wants(2).await;
    let last = stage.available(2, "image-1").await;
    let kept: BTreeSet<_> = second.keys().filter(|it| *it != machine).collect();
    assert_eq!(last.keys().collect::<BTreeSet<_>>(), kept, "the one that waited went");

    // The number stays where it is when nobody asks any more.
    stage
        .next_template(
            MACHINE_DEPLOYMENT,
            "workers",
            json!({"metadata": {"annotations": {ANNOTATION: null}}}),
        )
        .await;
    host("h4").await;
    tokio::time::sleep(SETTLED).await;
    wants(2).await;
    assert_eq!(generation().await - before, 3, "replicas changed three times");
}

/// Waits for an event about an object.
async fn tells(scene: &Scene, name: &str, reason: &str, words: &str) {
    let events = EVENT.api(&scene.client, &scene.namespace);
    let is = |it: &DynamicObject| {
        it.data["regarding"]["name"] == name
            && it.data["reason"] == reason
            && it.data["note"].as_str().is_some_and(|note| note.contains(words))
    };
    let what = format!("{reason} of {name}: {words}");
    until(&events, &watcher::Config::default(), &what, |all| all.values().any(&is)).await.unwrap();
}

/// A deployment of one machine with a rack of its own, and one host in it.
async fn in_rack(scene: &Scene, rack: &str) {
    let selector = json!({"hostSelector": {"matchLabels": {"rack": rack}}});
    scene.template(rack, false).await;
    let patch = json!({"spec": {"template": {"spec": selector}}});
    scene.patch(METAL3_MACHINE_TEMPLATE, rack, patch).await;
    scene.deployment(rack, rack, 1).await;
    for number in 0..2 {
        scene.host(&format!("{rack}-{number}"), json!({"rack": rack})).await;
    }
}

#[tokio::test]
async fn replicas_stay_where_anybody_else_sets_them_or_nobody_knows_what_is_asked_for() {
    let plane = plane().await;
    let scene = Scene::new(plane, "unscaled").await;
    let note = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let template =
        |name: &str| json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": name}}}}});
    let autoscaler = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    let topology = "topology.cluster.x-k8s.io/owned";
    // What speaks against it, what is told, and what ends that.
    let cases = [
        (
            "autoscaled",
            note(autoscaler, json!("5")),
            ("ScaledElsewhere", autoscaler),
            note(autoscaler, json!(null)),
        ),
        (
            "topology",
            json!({"metadata": {"labels": {topology: ""}}}),
            ("ScaledElsewhere", topology),
            json!({"metadata": {"labels": {topology: null}}}),
        ),
        (
            "misread",
            scale_to_hosts("min=3,max=2"),
            ("ScalingInvalid", "has min 3 above max 2. Lower min or raise max"),
            scale_to_hosts("min=1,max=9"),
        ),
        (
            "misspelt",
            template("nobody"),
            ("ScalingTemplateInvalid", "Metal3MachineTemplate nobody does not exist"),
            template("misspelt"),
        ),
        (
            "paused",
            note("cluster.x-k8s.io/paused", json!("")),
            ("ScalingHalted", "paused"),
            note("cluster.x-k8s.io/paused", json!(null)),
        ),
    ];
    for (name, against, ..) in &cases {
        in_rack(&scene, name).await;
        scene.patch(MACHINE_DEPLOYMENT, name, scale_to_hosts("min=1,max=9")).await;
        scene.patch(MACHINE_DEPLOYMENT, name, against.clone()).await;
    }
    // Two for one rack.
    in_rack(&scene, "shared").await;
    scene.deployment("second", "shared", 1).await;
    for name in ["shared", "second"] {
        scene.patch(MACHINE_DEPLOYMENT, name, scale_to_hosts("min=1,max=9")).await;
    }
    // A set of a deployment has its annotation, and its own set of nobody is served.
    scene.patch(MACHINE_SET, "paused", scale_to_hosts("min=1,max=9")).await;
    let (_running, _) = start(plane, &scene.namespace, policy()).await;
    for (name, _, (reason, words), _) in &cases {
        tells(&scene, name, reason, words).await;
    }
    tells(&scene, "shared", "HostsContested", "MachineDeployment second").await;
    tells(&scene, "second", "HostsContested", "MachineDeployment shared").await;
    tokio::time::sleep(SETTLED).await;
    let names = cases.iter().map(|it| it.0).chain(["shared", "second"]);
    for name in names {
        assert_eq!(replicas(&scene, MACHINE_DEPLOYMENT, name).await, 1, "{name}");
    }
    assert_eq!(replicas(&scene, MACHINE_SET, "paused").await, 1);

    let here = (&scene.client, scene.namespace.as_str());
    for (name, _, _, end) in cases {
        scene.patch(MACHINE_DEPLOYMENT, name, end).await;
        has_replicas(here, MACHINE_DEPLOYMENT, name, 2).await;
    }
    scene.patch(MACHINE_DEPLOYMENT, "second", note(ANNOTATION, json!(null))).await;
    has_replicas(here, MACHINE_DEPLOYMENT, "shared", 2).await;
    tells(&scene, "shared", "Scaled", "from 1 to 2 replicas").await;
    assert_eq!(replicas(&scene, MACHINE_DEPLOYMENT, "second").await, 1);
}

#[tokio::test]
async fn a_set_without_a_deployment_follows_hosts_and_an_old_version_scales_nothing() {
    let plane = plane().await;
    let scene = Scene::with_deployment(plane, "set", &["h1", "h2"], false).await;
    scene.delete(MACHINE_DEPLOYMENT, "md").await;
    let alone = json!({"metadata": {"ownerReferences": null}});
    scene.patch(MACHINE_SET, "md", alone).await;
    let sets = MACHINE_SET.api(&scene.client, &scene.namespace);
    let before = sets.get("md").await.unwrap().metadata.resource_version;
    scene.patch(MACHINE_SET, "md", scale_to_hosts("min=0,max=9")).await;
    let (_running, _) = start(plane, &scene.namespace, policy()).await;
    has_replicas((&scene.client, scene.namespace.as_str()), MACHINE_SET, "md", 2).await;
    // What the controller's own precondition rests on.
    let late = json!({"metadata": {"resourceVersion": before}, "spec": {"replicas": 7}});
    let late = sets.patch_scale("md", &PatchParams::default(), &Patch::Merge(late)).await;
    assert!(matches!(&late, Err(kube::Error::Api(it)) if it.code == 409), "{late:?}");
}

#[tokio::test]
async fn without_the_switch_nothing_follows_hosts_and_the_chart_gives_no_right_to_scale() {
    let folder = chart::dir("capm3-reuse");
    let rendered = |values: Value| {
        let objects = chart::render(&folder, "test", "test", &values).unwrap();
        let has = |text: &str| objects.iter().any(|it| it.to_string().contains(text));
        ["machinesets/scale", "--scale-to-hosts=true", ".scale-to-hosts\""].map(has)
    };
    assert_eq!(rendered(json!({})), [false; 3]);
    assert_eq!(rendered(json!({"scaleToHosts": {"enabled": true}})), [true; 3]);

    let plane = plane().await;
    let scene = Scene::with_deployment(plane, "unasked", &["h1", "h2"], false).await;
    scene.patch(MACHINE_DEPLOYMENT, "md", scale_to_hosts("min=2,max=9")).await;
    let audit = Audit::new(plane.audit_log(), scene.client.clone());
    let (_running, user) = start(plane, &scene.namespace, Policy::default()).await;
    let mark = audit.mark().await.unwrap();
    scene.machine("m1", "md", "t").await;
    scene.up("m1").await;
    tokio::time::sleep(SETTLED).await;
    assert_eq!(replicas(&scene, MACHINE_DEPLOYMENT, "md").await, 1);
    let counts = audit.since(mark).await.unwrap();
    assert_eq!(counts.of(&user, "create", "events"), 0, "{counts}");
}

#[tokio::test]
async fn an_annotation_that_cannot_be_read_is_refused_at_admission_with_what_to_change() {
    let plane = plane().await;
    let scene = Scene::with_deployment(plane, "admitted", &[], false).await;
    // It was there before the policy.
    scene.patch(MACHINE_DEPLOYMENT, "md", scale_to_hosts("often")).await;
    let values = json!({"scaleToHosts": {"enabled": true}, "capm3": {"account": ""}});
    let guard = Guard::install(plane, "capm3-reuse", &scene.namespace, values).await;
    let deployments = MACHINE_DEPLOYMENT.api(&scene.client, &scene.namespace);
    let made = async |kind: Kind, mut object: Value, asked: &str| {
        object["metadata"]["annotations"] = json!({ANNOTATION: asked});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        kind.api(&scene.client, &scene.namespace).create(&dry_run, &object).await
    };
    let new = || machine_deployment("new", NAME, 1, "t", "none");
    let deadline = Instant::now() + PATIENCE;
    while made(MACHINE_DEPLOYMENT, new(), "often").await.is_ok() {
        assert!(Instant::now() < deadline, "nothing is ever refused");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (asked, told) in [
        ("often", "Set it to min=<number>,max=<number>"),
        ("", "Set it to min="),
        ("min=1", "Set it to min="),
        ("min=1,max=2,up=true", "Set it to min="),
        ("min=1,max=2,down=yes", "Set it to min="),
        ("min=-1,max=2", "Set it to min="),
        ("min=1,min=2,max=2", "Set it to min="),
        ("min=3,max=2", "Lower min or raise max"),
    ] {
        let error = made(MACHINE_DEPLOYMENT, new(), asked).await.expect_err(asked).to_string();
        assert!(error.contains(told), "{asked}: {error}");
        assert!(!error.contains("resulted in error"), "{asked}: {error}");
    }
    for asked in ["min=1,max=2", "max=2,down=true,min=0", "min=0,max=0,down=false"] {
        made(MACHINE_DEPLOYMENT, new(), asked).await.expect(asked);
    }
    let changed = deployments
        .patch("md", &PatchParams::default(), &Patch::Merge(scale_to_hosts("seldom")))
        .await;
    assert!(changed.is_err(), "{changed:?}");
    // What stands there since before stops nobody, and neither does what a deployment hands on.
    scene.patch(MACHINE_DEPLOYMENT, "md", json!({"spec": {"replicas": 2}})).await;
    let set = MACHINE_SET.api(&scene.client, &scene.namespace).get("md").await.unwrap();
    let mut copy = MACHINE_SET.object("copy", &set.data["spec"]);
    copy["metadata"]["ownerReferences"] = json!(set.metadata.owner_references);
    made(MACHINE_SET, copy.clone(), "often").await.unwrap();
    copy["metadata"]["ownerReferences"] = json!(null);
    assert!(made(MACHINE_SET, copy, "often").await.is_err());
    guard.uninstall().await;
}

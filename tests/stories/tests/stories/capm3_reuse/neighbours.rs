//! What others do meanwhile: hosts that vanish and come again, clusters that are paused, templates that change, CAPM3's
//! own controllers and its own reservations.

use bench::audit::Audit;
use bench::bmo;
use bench::cluster_api::objects::{CLUSTER, Kind, METAL3_MACHINE, METAL3_MACHINE_TEMPLATE};
use bench::cluster_api::{PATIENCE, until_one};
use bench::faults::{At, Fault, Plan};
use bench::observer::{Invariant, Observer, World};
use capm3_reuse::settings::Policy;
use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::ground::{plane, start, start_disturbed};
use super::rules::machines;
use super::scene::{NAME, Scene, condition, consumer, host_of, state};

const CLAIM: Kind = Kind { api_version: METAL3_MACHINE.api_version, kind: "Metal3DataClaim" };
const DATA: Kind = Kind { api_version: METAL3_MACHINE.api_version, kind: "Metal3Data" };
const META_DATA: &str = "m1-metadata";
const NETWORK_DATA: &str = "m1-networkdata";

/// What CAPM3's own controllers do with the claim of machine `m1` when it is there. The machine may say that it waits for data before
/// that. Secrets are named after the machine, and one that is there stays as it is.
async fn render(scene: &Scene, name: &str) -> DynamicObject {
    let claims = CLAIM.api(&scene.client, &scene.namespace);
    let claim = until_one(&claims, "m1", "a claim of m1", |_| true).await.unwrap();
    let spec = json!({
        "index": 0, "claim": {"name": "m1"}, "template": {"name": "facts"},
        "metaData": {"name": META_DATA}, "networkData": {"name": NETWORK_DATA},
    });
    let data = scene.create(DATA, DATA.object(name, &spec)).await;
    let uid = data.uid().unwrap();
    for secret in [META_DATA, NETWORK_DATA] {
        if secrets(scene).get_opt(secret).await.unwrap().is_none() {
            rendered_secret(scene, secret, name, &uid).await;
        }
    }
    scene.patch_status(CLAIM, "m1", json!({"status": {"renderedData": {"name": name}}})).await;
    scene.patch_status(DATA, name, json!({"status": {"ready": true}})).await;
    claim
}

fn secrets(scene: &Scene) -> Api<Secret> {
    Api::namespaced(scene.client.clone(), &scene.namespace)
}

/// A secret that was rendered for a `Metal3Data`.
async fn rendered_secret(scene: &Scene, secret: &str, data: &str, uid: &str) {
    let owner = json!({
        "apiVersion": DATA.api_version, "kind": DATA.kind, "name": data, "uid": uid,
    });
    let metadata = json!({"name": secret, "ownerReferences": [owner]});
    let made = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    secrets(scene).create(&PostParams::default(), &made).await.unwrap();
}

/// The machine says that this is still being removed, and asks nobody meanwhile.
async fn says_what_goes_first(scene: &Scene, what: &str) -> DynamicObject {
    let told = format!("{what} is still being removed");
    scene
        .until("m1", &told, |it| {
            let ready = condition(it, "Ready").map(|it| it["message"].to_string());
            ready.is_some_and(|it| it.contains(&told))
        })
        .await
}

async fn remove_host(scene: &Scene, name: &str) {
    let api = bmo::api(&scene.client, &scene.namespace);
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_host_made_anew_under_the_name_of_one_that_is_lost_is_another_host() {
    let scene = Scene::with_deployment(plane().await, "anew", &["h1"], false).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    assert_eq!(scene.up("m1").await, "h1");
    remove_host(&scene, "h1").await;
    let lost = scene.says("m1", "HostLost").await;
    let told = condition(&lost, "Ready").unwrap()["message"].clone();
    assert!(told.as_str().unwrap().contains("delete the Machine"), "{told}");
    scene.hosts(&["h1"]).await;
    scene.machine("m2", "md", "t").await;
    assert_eq!(scene.up("m2").await, "h1");
    // The one that lost it goes without touching its successor.
    scene.remove("m1").await;
    assert_eq!(scene.consumer("h1").await, "Metal3Machine/m2");
    assert_eq!(state(&scene.get_host("h1").await), "provisioned");
}

#[tokio::test]
async fn a_machine_whose_host_vanishes_before_it_is_up_gets_another() {
    let scene = Scene::new(plane().await, "vanishes").await;
    scene.hosts(&["h1"]).await;
    scene.operator().keep(&scene.namespace, "h1");
    scene.template("t", false).await;
    scene.deployment("md", "t", 1).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    scene.host_is("h1", "claimed", |it| consumer(it) == "Metal3Machine/m1").await;
    scene.hosts(&["h2"]).await;
    remove_host(&scene, "h1").await;
    assert_eq!(scene.up("m1").await, "h2");
}

#[tokio::test]
async fn a_machine_takes_a_host_back_that_still_installs_it() {
    let scene = Scene::with_deployment(plane().await, "orphan", &["h1"], false).await;
    scene.operator().keep(&scene.namespace, "h1");
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    scene.says("m1", "Provisioning").await;
    scene.hosts(&["h2"]).await;
    scene.patch_host("h1", json!({"spec": {"consumerRef": null}})).await;
    scene.host_is("h1", "taken back", |it| consumer(it) == "Metal3Machine/m1").await;
    assert_eq!(scene.consumer("h2").await, "");
}

#[tokio::test]
async fn what_was_rendered_for_a_host_that_vanished_is_not_installed_on_the_next_one() {
    let scene = Scene::new(plane().await, "stale").await;
    scene.hosts(&["h1"]).await;
    scene.operator().keep(&scene.namespace, "h1");
    scene.template("t", false).await;
    scene.deployment("md", "t", 1).await;
    scene.data_template("facts").await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine_with("m1", "md", "t", json!({"dataTemplate": {"name": "facts"}})).await;
    scene.says("m1", "WaitingForData").await;
    render(&scene, "facts-0").await;
    let data = DATA.api(&scene.client, &scene.namespace);
    let before = data.get("facts-0").await.unwrap().uid().unwrap();
    let first = scene.says("m1", "Provisioning").await;
    assert_eq!(first.data["status"]["renderedData"]["name"], "facts-0");
    scene.hosts(&["h2"]).await;
    remove_host(&scene, "h1").await;
    let again = scene.says("m1", "WaitingForData").await;
    assert!(again.data["status"]["renderedData"].is_null(), "{}", again.data["status"]);
    // Nobody is asked anew while that is there, as CAPM3 would answer with it.
    scene.host_is("h2", "claimed", |it| consumer(it) == "Metal3Machine/m1").await;
    let claims = CLAIM.api(&scene.client, &scene.namespace);
    let waits = says_what_goes_first(&scene, "Metal3Data facts-0").await;
    assert_eq!(host_of(&waits), "h2");
    assert!(claims.get_opt("m1").await.unwrap().is_none());
    // Nor while its secrets are there, which CAPM3 would leave as they are.
    scene.delete(DATA, "facts-0").await;
    for secret in [META_DATA, NETWORK_DATA] {
        says_what_goes_first(&scene, &format!("Secret {secret}")).await;
        assert!(claims.get_opt("m1").await.unwrap().is_none());
        secrets(&scene).delete(secret, &DeleteParams::default()).await.unwrap();
    }
    // One that is there all the same when it is answered is not installed.
    until_one(&claims, "m1", "a claim of m1", |_| true).await.unwrap();
    rendered_secret(&scene, NETWORK_DATA, "facts-0", &before).await;
    render(&scene, "facts-1").await;
    says_what_goes_first(&scene, &format!("Secret {NETWORK_DATA}")).await;
    assert!(scene.get_host("h2").await.data["spec"]["image"].is_null());
    secrets(&scene).delete(NETWORK_DATA, &DeleteParams::default()).await.unwrap();
    let now = data.get("facts-1").await.unwrap().uid().unwrap();
    rendered_secret(&scene, NETWORK_DATA, "facts-1", &now).await;
    assert_eq!(scene.up("m1").await, "h2");
    let host = scene.get_host("h2").await;
    assert_eq!(host.data["spec"]["networkData"]["name"], NETWORK_DATA);
}

#[tokio::test]
async fn a_claim_that_was_made_anew_is_not_withdrawn_by_a_late_call_for_the_one_before() {
    let scene = Scene::new(plane().await, "late-call").await;
    scene.hosts(&["h1"]).await;
    scene.operator().keep(&scene.namespace, "h1");
    scene.template("t", false).await;
    scene.deployment("md", "t", 1).await;
    scene.data_template("facts").await;
    let (running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine_with("m1", "md", "t", json!({"dataTemplate": {"name": "facts"}})).await;
    scene.says("m1", "WaitingForData").await;
    let claims = CLAIM.api(&scene.client, &scene.namespace);
    let first = until_one(&claims, "m1", "a claim of m1", |_| true).await.unwrap();
    drop(running);
    remove_host(&scene, "h1").await;
    let plan = Plan::one("capm3-reuse", At::Write(1), Fault::Hold);
    let running = start_disturbed(plane().await, &scene.namespace, Policy::default(), plan).await;
    tokio::time::timeout(PATIENCE, running.handle.held()).await.expect("a call is held");
    scene.delete(CLAIM, "m1").await;
    let metadata = json!({"name": "m1", "ownerReferences": first.metadata.owner_references});
    let mut anew = CLAIM.object("m1", &first.data["spec"]);
    anew["metadata"] = metadata;
    let anew = scene.create(CLAIM, anew).await;
    let kinds = [METAL3_MACHINE.resource()];
    let observer = Observer::start(&scene.client, Some(&scene.namespace), &kinds).await.unwrap();
    running.handle.release();
    // It goes by what it reads then: by its own uid the later claim goes as well, as the host is lost.
    scene.gone(CLAIM, "m1").await;
    let calls = running.handle.calls();
    let withdrawals: Vec<_> = calls
        .iter()
        .filter(|it| it.method == Method::DELETE && it.path.ends_with("/metal3dataclaims/m1"))
        .map(|it| it.status.map(|it| it.as_u16()))
        .collect();
    assert_ne!(anew.uid(), first.uid());
    assert_eq!(withdrawals.first(), Some(&Some(409)), "{withdrawals:?}");
    assert!(withdrawals.len() > 1, "{withdrawals:?}");
    scene.hosts(&["h2"]).await;
    scene.host_is("h2", "claimed", |it| consumer(it) == "Metal3Machine/m1").await;
    // Somebody was faster: nothing was refused.
    let refused = |world: &World| {
        let is_refused =
            |it: &DynamicObject| condition(it, "Ready").is_some_and(|it| it["reason"] == "Refused");
        if machines(world).any(is_refused) { Err("it was refused".to_owned()) } else { Ok(()) }
    };
    let history = observer.history(&[]).await.unwrap();
    let said = history.check(&[Invariant::new("nothing is refused", refused)]);
    assert!(said.is_none(), "{}", history.timeline(None));
}

#[tokio::test]
async fn a_paused_cluster_stops_everything_at_every_step_and_nothing_is_stuck_afterwards() {
    let plane = plane().await;
    let scene = Scene::with_deployment(plane, "pause", &["h1"], true).await;
    let (_running, user) = start(plane, &scene.namespace, Policy::default()).await;
    let audit = Audit::new(plane.audit_log(), scene.client.clone());
    let pause = async |paused: bool| {
        scene.patch(CLUSTER, NAME, json!({"spec": {"paused": paused}})).await;
    };
    let paused = async |name: &str, status: &str| {
        let is =
            |it: &DynamicObject| condition(it, "Paused").is_some_and(|it| it["status"] == status);
        scene.until(name, "paused or not", is).await;
    };
    // Whatever is done by others meanwhile, nothing is written but that it is paused.
    let still = async |name: &str, disturb: Value| {
        paused(name, "True").await;
        audit.rest(&user, std::time::Duration::from_millis(200)).await.unwrap();
        let mark = audit.mark().await.unwrap();
        scene.patch_host("h1", disturb).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let counts = audit.since(mark).await.unwrap();
        assert_eq!(counts.writes(&user, &[]), 0, "{counts}");
    };
    let noted = |turn: &str| json!({"metadata": {"annotations": {"turn": turn}}});

    pause(true).await;
    scene.machine("m1", "md", "t").await;
    still("m1", noted("before the claim")).await;
    scene.operator().keep(&scene.namespace, "h1");
    pause(false).await;
    scene.host_is("h1", "claimed", |it| consumer(it) == "Metal3Machine/m1").await;
    pause(true).await;
    scene.operator().go_on(&scene.namespace, "h1").await.unwrap();
    scene.host_is("h1", "provisioned", |it| state(it) == "provisioned").await;
    still("m1", noted("provisioned")).await;
    pause(false).await;
    assert_eq!(scene.up("m1").await, "h1");

    pause(true).await;
    still("m1", noted("up")).await;
    scene.delete(METAL3_MACHINE, "m1").await;
    still("m1", noted("deleted")).await;
    scene.operator().keep(&scene.namespace, "h1");
    pause(false).await;
    scene.host_is("h1", "told to forget", |it| it.data["spec"]["image"].is_null()).await;
    paused("m1", "False").await;
    pause(true).await;
    scene.operator().go_on(&scene.namespace, "h1").await.unwrap();
    scene.host_is("h1", "cleared", |it| state(it) == "available").await;
    still("m1", noted("cleared")).await;
    assert_eq!(scene.consumer("h1").await, "Metal3Machine/m1");
    pause(false).await;
    scene.gone(METAL3_MACHINE, "m1").await;
    assert_eq!(scene.consumer("h1").await, "MachineDeployment/md");
}

#[tokio::test]
async fn the_template_has_the_last_word_about_wiping_disks_until_a_host_is_cleared() {
    let scene = Scene::new(plane().await, "wiping").await;
    scene.hosts(&["h1"]).await;
    scene.template("t", true).await;
    let wipe =
        |mode: &str| json!({"spec": {"template": {"spec": {"automatedCleaningMode": mode}}}});
    scene.patch(METAL3_MACHINE_TEMPLATE, "t", wipe("metadata")).await;
    scene.deployment("md", "t", 1).await;
    let (running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    scene.up("m1").await;
    let mode = |wanted: &'static str| {
        move |host: &kube::api::DynamicObject| host.data["spec"]["automatedCleaningMode"] == wanted
    };
    scene.host_is("h1", "wiped", mode("metadata")).await;
    scene.patch(METAL3_MACHINE_TEMPLATE, "t", wipe("disabled")).await;
    scene.host_is("h1", "not wiped", mode("disabled")).await;
    // Changed while nobody looks, and the machine deleted at once: the first write that clears the host tells it too.
    drop(running);
    scene.patch(METAL3_MACHINE_TEMPLATE, "t", wipe("metadata")).await;
    scene.operator().keep(&scene.namespace, "h1");
    scene.delete(METAL3_MACHINE, "m1").await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    let cleared =
        scene.host_is("h1", "told to forget", |it| it.data["spec"]["image"].is_null()).await;
    assert_eq!(cleared.data["spec"]["automatedCleaningMode"], "metadata");
    scene.operator().go_on(&scene.namespace, "h1").await.unwrap();
    scene.gone(METAL3_MACHINE, "m1").await;
}

#[tokio::test]
async fn a_reservation_of_capm3_is_for_its_owner_and_for_nobody_else() {
    let scene = Scene::new(plane().await, "capm3s").await;
    let kept =
        |owner: &str| json!({"infrastructure.cluster.x-k8s.io/node-reuse": format!("md-{owner}")});
    scene.host("of-a", kept("a")).await;
    scene.host("of-b", kept("b")).await;
    for (template, reuse) in [("on", true), ("off", false)] {
        scene.template(template, reuse).await;
    }
    for (deployment, template) in [("a", "on"), ("b", "on"), ("c", "on"), ("d", "off")] {
        scene.deployment(deployment, template, 1).await;
    }
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    for (deployment, template) in [("c", "on"), ("d", "off")] {
        scene.machine(&format!("m-{deployment}"), deployment, template).await;
        scene.says(&format!("m-{deployment}"), "NoHostAvailable").await;
    }
    for owner in ["b", "a"] {
        scene.machine(&format!("m-{owner}"), owner, "on").await;
        assert_eq!(scene.up(&format!("m-{owner}")).await, format!("of-{owner}"));
        let host = scene.get_host(&format!("of-{owner}")).await;
        assert!(!host.labels().contains_key("infrastructure.cluster.x-k8s.io/node-reuse"));
    }
}

#[tokio::test]
async fn names_too_long_for_a_provider_id_are_told_and_long_ones_are_served() {
    let scene = Scene::new(plane().await, "long").await;
    let long = |letter: &str| letter.repeat(253);
    scene.hosts(&[&long("h")]).await;
    scene.template("t", false).await;
    scene.deployment("md", "t", 1).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine(&long("m"), "md", "t").await;
    let told = scene.says(&long("m"), "NameTooLong").await;
    let message = condition(&told, "Ready").unwrap()["message"].clone();
    assert!(message.as_str().unwrap().contains("use shorter names"), "{message}");
    let fitting = "n".repeat(200);
    scene.machine(&fitting, "md", "t").await;
    assert_eq!(scene.up(&fitting).await, long("h"));
}

#[tokio::test]
async fn rendered_secrets_are_asked_for_awaited_installed_and_withdrawn() {
    let scene = Scene::with_deployment(plane().await, "rendered", &["h1"], false).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine_with("m1", "md", "t", json!({"dataTemplate": {"name": "facts"}})).await;
    // No host is taken for what nobody will render.
    scene.says("m1", "DataTemplateMissing").await;
    assert_eq!(scene.consumer("h1").await, "");
    scene.data_template("facts").await;
    scene.says("m1", "WaitingForData").await;
    let host = scene.host_is("h1", "claimed", |it| consumer(it) == "Metal3Machine/m1").await;
    assert!(
        host.data["spec"]["image"].is_null(),
        "nothing is installed before the secrets are there"
    );

    let claim = render(&scene, "facts-0").await;
    assert_eq!(claim.data["spec"]["template"]["name"], "facts");
    assert_eq!(scene.up("m1").await, "h1");
    let host = scene.get_host("h1").await;
    for (field, secret) in [("metaData", META_DATA), ("networkData", NETWORK_DATA)] {
        assert_eq!(host.data["spec"][field]["name"], secret);
    }
    scene.remove("m1").await;
    let host = scene.get_host("h1").await;
    assert!(host.data["spec"]["metaData"].is_null() && host.data["spec"]["networkData"].is_null());
    assert!(CLAIM.api(&scene.client, &scene.namespace).get_opt("m1").await.unwrap().is_none());
}

#[tokio::test]
async fn twenty_machines_with_ten_selectors_and_two_failure_domains_get_twenty_hosts_that_fit() {
    let scene = Scene::new(plane().await, "twenty").await;
    scene.template("t", false).await;
    scene.deployment("md", "t", 20).await;
    let domain = |n: usize| if n.is_multiple_of(2) { "east" } else { "west" };
    for n in 0..20 {
        let labels = json!({
            "rack": format!("r{}", n / 2),
            "infrastructure.cluster.x-k8s.io/failure-domain": domain(n),
        });
        scene.host(&format!("h{n:02}"), labels).await;
    }
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    for n in 0..20 {
        let more = json!({
            "hostSelector": {"matchLabels": {"rack": format!("r{}", n / 2)}},
            "failureDomain": domain(n),
        });
        scene.machine_with(&format!("m{n:02}"), "md", "t", more).await;
    }
    let mut taken = std::collections::BTreeSet::new();
    for n in 0..20 {
        let machine = format!("m{n:02}");
        let host = scene.up(&machine).await;
        let labels = scene.get_host(&host).await.labels().clone();
        assert_eq!(labels["rack"], format!("r{}", n / 2), "{machine} on {host}");
        let there = &labels["infrastructure.cluster.x-k8s.io/failure-domain"];
        assert_eq!(there, domain(n), "{machine} on {host}");
        assert!(taken.insert(host.clone()), "{host} has two machines");
        let seen = METAL3_MACHINE.api(&scene.client, &scene.namespace).get(&machine).await.unwrap();
        assert_eq!(host_of(&seen), host);
    }
}

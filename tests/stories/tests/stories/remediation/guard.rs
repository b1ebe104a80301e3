//! CAPM3 goes on where its kind is served here: the guard that comes with the release refuses what its remediation would
//! write, and nothing else.

use bench::cluster_api::objects::{Kind, MACHINE, METAL3_MACHINE};
use bench::control_plane::ControlPlane;
use remediation::settings::Policy;
use serde_json::{Value, json};

use super::ground::{planes, quick, start};
use super::scene::{Scene, UPSTREAM, history};
use crate::capm3_reuse::guard::{Capm3, Guard, HOST, Write, guarded};

const MARK: &str = "capi.metal3.io/unhealthy";

async fn plane() -> &'static ControlPlane {
    &planes().await.management
}

fn annotated(annotations: &Value) -> Write {
    Write::Part(json!({"metadata": {"annotations": annotations}}))
}

/// What CAPM3's remediation writes about request and machine `m` and the host `h`, which has a mark.
fn of_the_remediation() -> Vec<(Kind, &'static str, Write)> {
    let strategy = json!({"strategy": {"type": "Reboot", "retryLimit": 1}});
    vec![
        (UPSTREAM, "m", Write::Part(json!({"metadata": {"finalizers": ["example.com/x"]}}))),
        (UPSTREAM, "m", Write::Status(json!({"status": {"retryCount": 7}}))),
        (UPSTREAM, "m", Write::End),
        (UPSTREAM, "new", Write::New(UPSTREAM.object("new", &strategy))),
        (MACHINE, "m", annotated(&json!({"any": "thing"}))),
        (MACHINE, "m", Write::Status(json!({"status": {"phase": "Failed"}}))),
        (HOST, "h", annotated(&json!({"reboot.metal3.io/metal3-remediation-uid": "{}"}))),
        (HOST, "h", annotated(&json!({"capm3.metal3.io/unhealthy": "capm3/UnhealthyNode"}))),
        (HOST, "h", annotated(&json!({ MARK: "other" }))),
        (HOST, "h", annotated(&json!({ MARK: null }))),
    ]
}

/// A machine and its host, which a person has marked.
async fn scene(name: &str) -> (Scene, Capm3) {
    let scene = Scene::new(name).await;
    scene.machine("m", "h").await;
    scene.patch_host("h", json!({"metadata": {"annotations": {MARK: "by hand"}}})).await;
    let capm3 = Capm3::new(plane().await, &scene.namespace).await;
    (scene, capm3)
}

async fn guard(scene: &Scene, mut values: Value) -> Guard {
    values["settings"] = json!({"upstreamGroup": true});
    Guard::install(plane().await, "remediation", &scene.namespace, values).await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_capm3s_kind_is_served_here_a_request_is_carried_out_by_this_controller_and_not_by_capm3()
 {
    let (scene, capm3) = scene("guarded").await;
    let key = annotated(&json!({"reboot.metal3.io/metal3-remediation-uid": "{}"}));
    capm3.may(HOST, "h", &key).await;
    let guard = guard(&scene, json!({})).await;
    capm3.is_refused(HOST, "h", &key).await;
    let policy = Policy { upstream_group: true, ..quick() };
    let (_running, _) = start(plane().await, &scene.namespace, policy).await;
    let strategy = json!({"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100});
    scene.request_of(UPSTREAM, "m", strategy).await;
    for (kind, name, write) in of_the_remediation() {
        capm3.is_refused(kind, name, &write).await;
    }
    let done = |it: Option<&Value>| {
        let it = it.unwrap();
        it["status"]["phase"] == "Waiting" && it["metadata"]["finalizers"].is_null()
    };
    scene.until(UPSTREAM, "m", "recovered", done).await;
    assert_eq!(history(&scene.get_host("h").await)[0]["result"], "Recovered");
    // What CAPM3 does for machines is no matter of this guard.
    capm3.may(HOST, "h", &annotated(&json!({"any": "thing"}))).await;
    capm3.may(HOST, "h", &Write::Part(json!({"spec": {"userData": {"name": "any"}}}))).await;
    let provider = Write::Part(json!({"spec": {"providerID": "metal3://any"}}));
    capm3.may(METAL3_MACHINE, "m", &provider).await;
    guard.uninstall().await;
    for (kind, name, write) in of_the_remediation() {
        capm3.may(kind, name, &write).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_watch_filter_capm3_keeps_the_requests_of_others_and_still_touches_no_host_or_machine()
 {
    let (scene, capm3) = scene("filtered").await;
    scene.machine("n", "i").await;
    let strategy = json!({"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100});
    for (name, value) in [("m", "mine"), ("n", "capm3s")] {
        scene.request_of(UPSTREAM, name, strategy.clone()).await;
        let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": value}}});
        scene.patch(UPSTREAM, name, label).await;
    }
    let _guard = guard(&scene, json!({"watchFilter": "mine"})).await;
    let tried = Write::Status(json!({"status": {"retryCount": 7}}));
    capm3.is_refused(UPSTREAM, "m", &tried).await;
    capm3.may(UPSTREAM, "n", &tried).await;
    for host in ["h", "i"] {
        capm3.is_refused(HOST, host, &annotated(&json!({"reboot.metal3.io": ""}))).await;
    }
    for machine in ["m", "n"] {
        capm3.is_refused(MACHINE, machine, &annotated(&json!({"any": "thing"}))).await;
    }
}

#[test]
fn the_guard_comes_with_capm3s_kind_and_with_an_account_only() {
    let of = |served: bool, account: &str| {
        let values = json!({"settings": {"upstreamGroup": served}, "capm3": {"account": account}});
        guarded("remediation", &values)
    };
    assert!(guarded("remediation", &json!({})).is_empty(), "our own kind needs none");
    assert!(of(false, "metal:provider").is_empty());
    assert!(of(true, "").is_empty());
    let all = of(true, "metal:provider");
    assert_eq!(all.len(), 3, "requests, machines and hosts");
    assert!(all.iter().all(|it| it.contains("'system:serviceaccount:metal:provider'")));
}

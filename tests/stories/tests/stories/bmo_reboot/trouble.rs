//! What a BMC refuses, a watch that breaks, hosts that are only to be on or off.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use bench::bmc::Behaviour;
use bench::faults::{At, Fault, Plan};
use bmo_reboot::settings::Policy;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::{HARD, PATIENCE, PLAIN, Site, condition, keys, machine, quick, record, stamps};

const HOLD: &str = "reboot.metal3.io/somebody";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_bmc_refuses_is_this_hosts_failure_alone_and_is_over_when_it_obeys() {
    let site = Site::new("refuses").await;
    let (ironic, refusing, node) = machine("refuses").await;
    let (_, obeying, other) = machine("obeys").await;
    let refuses = Behaviour { refuses: vec!["ForceOff"], ..Behaviour::default() };
    refusing.behave(&refuses).await.unwrap();
    site.host("h", &node, json!({})).await;
    site.host("other", &other, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    for host in ["h", "other"] {
        site.annotate(host, json!({ PLAIN: HARD })).await;
    }
    let failed = |host: &Value| record(host).0 == "PowerFailed";
    let host = site.wait("h", "failed", failed).await;
    assert_eq!(host["status"]["errorType"], "power management error", "{host:#}");
    assert_eq!((keys(&host), &host["status"]["poweredOn"]), (vec![PLAIN.to_owned()], &json!(true)));
    assert!(stamps(&host).0.is_some(), "the request stays accepted: {host:#}");
    let served = site.cycled("other").await;
    assert!(served["status"]["errorType"].is_null(), "{served:#}");
    assert_eq!(obeying.seen().await.unwrap().turned_off(), 1);
    refusing.behave(&Behaviour::default()).await.unwrap();
    let host = site.cycled("h").await;
    assert!(host["status"]["errorType"].is_null(), "{host:#}");
    assert_eq!(host["status"]["errorMessage"], "");
    let seen = refusing.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_breaks_again_and_again_loses_no_request() {
    let site = Site::new("cut").await;
    let (ironic, machine, node) = machine("cut").await;
    site.host("h", &node, json!({})).await;
    let cut = |request| (At::Request(request), Fault::CutAnswer(Duration::from_millis(700)));
    let plan = (1..12).map(cut).fold(Plan::none("bmo-reboot"), |plan, (at, it)| plan.and(at, it));
    let running = site.start_disturbed(&ironic.endpoint, quick(), plan);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for round in 1..=2 {
        site.annotate("h", json!({ PLAIN: HARD })).await;
        site.cycled("h").await;
        let seen = machine.seen().await.unwrap();
        assert_eq!((seen.turned_off(), seen.turned_on()), (round, round + 1), "{seen:?}");
    }
    let watches =
        running.handle.calls().iter().filter(|it| it.path.ends_with("/baremetalhosts")).count();
    assert!(running.handle.fired() && watches > 2, "the watch was cut: {watches}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_available_host_is_only_kept_on_or_off_and_only_where_that_was_asked_for() {
    let site = Site::new("available").await;
    let (ironic, machine, node) = machine("available").await;
    let available = json!({
        "spec": { "online": false, "image": null },
        "metadata": { "annotations": { HOLD: HARD } },
        "status": { "provisioning": { "state": "available", "image": null } },
    });
    site.host("h", &node, available).await;
    let running = site.start(&ironic.endpoint, quick());
    let refused = |host: &Value| condition(host, "PowerManaged").0 == "NotProvisioned";
    site.wait("h", "left alone", refused).await;
    assert_eq!(machine.seen().await.unwrap().turned_off(), 0);
    drop(running);
    let _running = site.start(&ironic.endpoint, Policy { manage_available: true, ..quick() });
    let host = site.wait("h", "off", |host| host["status"]["poweredOn"] == false).await;
    assert_eq!(condition(&host, "PowerManaged").0, "OnlineOnly");
    site.patch("h", json!({ "spec": { "online": true } })).await;
    // A hold is for those who run something.
    let host = site.wait("h", "on", |host| host["status"]["poweredOn"] == true).await;
    assert_eq!((keys(&host), stamps(&host)), (vec![HOLD.to_owned()], (None, None)));
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

/// As the operator's webhook does of a host that a newer release of it finds wrong: it judges annotations, and no status.
async fn refuse(site: &Site) -> Api<ValidatingAdmissionPolicyBinding> {
    let name = &site.namespace;
    let asks = "has(oldObject.metadata.annotations) && 'reboot.metal3.io' in oldObject.metadata.annotations";
    let asks_on =
        "has(object.metadata.annotations) && 'reboot.metal3.io' in object.metadata.annotations";
    let pauses = "has(object.metadata.annotations) && 'baremetalhost.metal3.io/paused' in object.metadata.annotations";
    let policy = json!({
        "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["metal3.io"], "apiVersions": ["v1alpha1"],
                "operations": ["UPDATE"], "resources": ["baremetalhosts"],
            }] },
            "validations": [{ "expression": format!("(!({asks}) || ({asks_on})) && !({pauses})"), "message": "not now" }],
        },
    });
    let binding = json!({
        "metadata": { "name": name },
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": {
                "matchLabels": { "kubernetes.io/metadata.name": name },
            } },
        },
    });
    let (params, admin) = (PostParams::default(), &site.admin);
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
    policies.create(&params, &serde_json::from_value(policy).unwrap()).await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(admin.clone());
    bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
    let gone = Patch::Merge(json!({ "metadata": { "annotations": { PLAIN: null } } }));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let began = Instant::now();
    while site.api().patch("probe", &dry, &gone).await.is_ok() {
        assert!(began.elapsed() < PATIENCE, "nothing is refused");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bindings
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_comes_on_although_a_webhook_keeps_its_request_and_is_not_rebooted_again() {
    let site = Site::new("webhook").await;
    let (ironic, machine, node) = machine("webhook").await;
    site.host("probe", "00000000-0000-0000-0000-000000000000", json!({})).await;
    site.patch("probe", json!({ "metadata": { "annotations": { PLAIN: HARD } } })).await;
    site.host("h", &node, json!({})).await;
    let bindings = refuse(&site).await;
    let _running = site.start(&ironic.endpoint, quick());
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let over = |host: &Value| {
        record(host).0 == "Completed"
            && host["status"]["poweredOn"] == true
            && keys(host) == [PLAIN]
    };
    site.wait("h", "on, with its request", over).await;
    let began = Instant::now();
    let told = loop {
        let all = site.warned("Refused").await;
        if let Some(told) = all.into_iter().find(|(host, _)| host == "h") {
            break told;
        }
        assert!(began.elapsed() < PATIENCE, "nobody is told");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(told.1, 1, "once, however often it is tried: {told:?}");
    // Longer than a refused write waits.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
    bindings.delete(&site.namespace, &DeleteParams::default()).await.unwrap();
    site.wait("h", "without a request", |host| keys(host).is_empty()).await;
    site.annotate("h", json!({ PLAIN: HARD })).await;
    site.wait("h", "asked again", |host| record(host).0 != "Completed").await;
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (2, 3), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_that_a_webhook_refuses_is_told_on_the_host_and_comes_once_it_may() {
    let site = Site::new("webhook-pause").await;
    let (ironic, machine, node) = machine("webhook-pause").await;
    site.host("probe", "00000000-0000-0000-0000-000000000000", json!({})).await;
    site.patch("probe", json!({ "metadata": { "annotations": { PLAIN: HARD } } })).await;
    site.host("h", &node, json!({})).await;
    let bindings = refuse(&site).await;
    let _running = site.start(&ironic.endpoint, Policy { takeover: true, ..quick() });
    let refused = |host: &Value| condition(host, "PowerManaged").0 == "Refused";
    let host = site.wait("h", "told", refused).await;
    assert_eq!(super::takeover::paused(&host), None);
    // Longer than a refused write waits.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let later = site.api().get("h").await.unwrap().metadata.resource_version;
    assert_eq!(json!(later), host["metadata"]["resourceVersion"], "told once");
    bindings.delete(&site.namespace, &DeleteParams::default()).await.unwrap();
    site.wait("h", "taken over", |host| super::takeover::paused(host).is_some()).await;
    site.wait("h", "managed", |host| condition(host, "PowerManaged").0 == "Managed").await;
    assert_eq!(machine.seen().await.unwrap().turned_off(), 0);
}

/// The operator's webhook right after its node was cut: connections to it hang. It is asked about the removal of a request alone.
async fn hang(site: &Site, policy: &str, seconds: Option<u8>) -> (Api<DynamicObject>, TcpListener) {
    let kind = "ValidatingWebhookConfiguration";
    let version = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    // Nobody takes the connections that it is offered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let has = |object: &str| {
        format!(
            "(has({object}.metadata.annotations) && 'reboot.metal3.io' in {object}.metadata.annotations)"
        )
    };
    let removes = format!("{} && !{}", has("oldObject"), has("object"));
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": { "name": site.namespace },
        "webhooks": [{
            "name": "hosts.silent.example", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "url": url }, "failurePolicy": policy, "timeoutSeconds": seconds,
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": site.namespace } },
            "matchConditions": [{ "name": "removes", "expression": removes }],
            "rules": [{
                "apiGroups": ["metal3.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
                "resources": ["baremetalhosts"],
            }],
        }],
    });
    let webhooks: Api<DynamicObject> =
        Api::all_with(site.admin.clone(), &ApiResource::from_gvk(&version));
    let webhook = serde_json::from_value(webhook).unwrap();
    webhooks.create(&PostParams::default(), &webhook).await.unwrap();
    let gone = Patch::Merge(json!({ "metadata": { "annotations": { PLAIN: null } } }));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let began = Instant::now();
    let api = site.api();
    while tokio::time::timeout(Duration::from_secs(2), api.patch("probe", &dry, &gone))
        .await
        .is_ok()
    {
        assert!(began.elapsed() < PATIENCE, "nobody is asked");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    (webhooks, silent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_comes_on_although_a_webhook_that_hangs_keeps_its_request() {
    let site = Site::new("silent-webhook").await;
    let (ironic, machine, node) = machine("silent-webhook").await;
    site.host("probe", "00000000-0000-0000-0000-000000000000", json!({})).await;
    site.patch("probe", json!({ "metadata": { "annotations": { PLAIN: HARD } } })).await;
    site.host("h", &node, json!({})).await;
    let (webhooks, _silent) = hang(&site, "Fail", Some(30)).await;
    let _running = site.start(&ironic.endpoint, quick());
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let over = |host: &Value| {
        record(host).0 == "Completed"
            && host["status"]["poweredOn"] == true
            && keys(host) == [PLAIN]
    };
    // As long as one request is waited for, and some more.
    let on = site.wait("h", "on, with its request", over);
    tokio::time::timeout(Duration::from_secs(60), on).await.expect("it stays off");
    webhooks.delete(&site.namespace, &DeleteParams::default()).await.unwrap();
    site.wait("h", "without a request", |host| keys(host).is_empty()).await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

/// It has ten seconds, as nobody says otherwise. Whoever hangs up before has its write given up, each time.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_though_a_webhook_hangs_whose_failure_is_ignored() {
    let site = Site::new("ignored-webhook").await;
    let (ironic, machine, node) = machine("ignored-webhook").await;
    site.host("probe", "00000000-0000-0000-0000-000000000000", json!({})).await;
    site.patch("probe", json!({ "metadata": { "annotations": { PLAIN: HARD } } })).await;
    site.host("h", &node, json!({})).await;
    let (_webhooks, _silent) = hang(&site, "Ignore", None).await;
    let _running = site.start(&ironic.endpoint, quick());
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let gone = site.wait("h", "on, without its request", |host| {
        host["status"]["poweredOn"] == true && keys(host).is_empty()
    });
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("its request stays");
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

//! What cannot be carried out is refused with a condition that says what to change: no loop, no panic.

use std::time::{Duration, Instant};

use bench::cluster_api::objects::MACHINE;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use remediation::settings::Policy;
use serde_json::{Value, json};

use super::ground::{planes, quick, start};
use super::operator::silence;
use super::scene::{
    PATIENCE, REMEDIATION, Scene, UPSTREAM, condition, history, keys, reboot, succeeded,
};

/// The text of the condition of a request.
fn message(request: &Value) -> &str {
    request["status"]["conditions"][0]["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_makes_no_sense_says_what_to_change_and_begins_when_that_was_done() {
    let scene = Scene::new("senseless").await;
    let plane = &planes().await.management;
    let (_running, user) = start(plane, &scene.namespace, quick()).await;
    scene.machine("m", "h").await;
    scene.request("m", Value::Null).await;
    let refused = scene.says("m", "StrategyMissing").await;
    assert!(message(&refused).contains("set its type to reboot"), "{refused:#}");
    for (strategy, reason) in [
        (json!({"type": "replace"}), "StrategyUnknown"),
        (json!({"type": "reboot", "timeout": "90000h"}), "StrategyInvalid"),
    ] {
        scene.patch(REMEDIATION, "m", json!({"spec": {"strategy": null}})).await;
        scene.patch(REMEDIATION, "m", json!({"spec": {"strategy": strategy}})).await;
        let refused = scene.says("m", reason).await;
        assert_eq!(succeeded(&refused).0, "False");
    }
    // What the API server itself refuses.
    let api = REMEDIATION.api(&scene.client, &scene.namespace);
    for strategy in [
        json!({"type": "reboot", "retryLimit": -1}),
        json!({"type": "reboot", "timeout": "0s"}),
        json!({"type": "reboot", "timeout": "soon"}),
    ] {
        let object = REMEDIATION.object("other", &json!({ "strategy": strategy }));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let refused = api.create(&PostParams::default(), &object).await;
        assert!(refused.is_err(), "{strategy}");
    }
    let audit = bench::audit::Audit::new(plane.audit_log(), scene.client.clone());
    audit.rest(&user, Duration::from_secs(3)).await.unwrap();
    assert!(keys(&scene.get_host("h").await).is_empty());
    let good = json!({"spec": {"strategy": {"type": "reboot", "timeout": "300s"}}});
    scene.patch(REMEDIATION, "m", good).await;
    scene.says("m", "Recovered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_be_power_cycled_is_left_alone_until_it_can() {
    let scene = Scene::new("unfit").await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.machine("m", "h").await;
    scene.patch_host("h", json!({"spec": {"disablePowerOff": true}})).await;
    scene.request("m", reboot(0, "300s")).await;
    scene.says("m", "PowerOffDisabled").await;
    scene.patch_host("h", json!({"spec": {"disablePowerOff": false, "online": false}})).await;
    scene.says("m", "HostOffline").await;
    let none = json!({"metadata": {"annotations": {"metal3.io/BareMetalHost": null}}});
    let metal = bench::cluster_api::objects::METAL3_MACHINE;
    scene.patch(metal, "m", none).await;
    scene.says("m", "HostUnknown").await;
    let named = json!({"metadata": {"annotations": {"metal3.io/BareMetalHost": format!("{}/h", scene.namespace)}}});
    scene.patch(metal, "m", named).await;
    let skip = json!({"metadata": {"annotations": {"cluster.x-k8s.io/skip-remediation": ""}}});
    scene.patch(MACHINE, "m", skip).await;
    scene.says("m", "Skipped").await;
    assert!(history(&scene.get_host("h").await).is_empty(), "nothing was tried");
    scene.patch_host("h", json!({"spec": {"online": true}})).await;
    let may = json!({"metadata": {"annotations": {"cluster.x-k8s.io/skip-remediation": null}}});
    scene.patch(MACHINE, "m", may).await;
    scene.says("m", "Recovered").await;
}

/// The host's state, as the operator writes it.
async fn provisioning(scene: &Scene, host: &str, state: &str) {
    let status = Patch::Merge(json!({"status": {"provisioning": {"state": state}}}));
    let hosts = bench::bmo::api(&scene.client, &scene.namespace);
    hosts.patch_status(host, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_cleared_in_the_middle_of_a_try_is_let_go_until_something_runs_there_again()
{
    let scene = Scene::new("cleared").await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.machine("m", "h").await;
    scene.operator().stick("h");
    scene.request("m", reboot(1, "300s")).await;
    scene.host_is("h", "held", |host| !keys(host).is_empty()).await;
    provisioning(&scene, "h", "deprovisioning").await;
    let refused = scene.says("m", "HostNotProvisioned").await;
    assert!(message(&refused).contains("BareMetalHost h is not provisioned"), "{refused:#}");
    assert!(refused["metadata"]["finalizers"].is_null(), "{refused:#}");
    scene.is_clean("m", "h").await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!((tries.len(), &tries[0]["result"]), (1, &json!("HostNotProvisioned")), "{tries:?}");
    scene.operator().unstick("h");
    provisioning(&scene, "h", "provisioned").await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_installed_after_it_was_asked_for_is_not_cut_off_in_its_first_boot() {
    let scene = Scene::new("first-boot").await;
    let plane = &planes().await.management;
    let (_running, user) = start(plane, &scene.namespace, quick()).await;
    scene.machine("m", "h").await;
    provisioning(&scene, "h", "provisioning").await;
    // As of a health check that has waited for the node since the Machine was made.
    scene.request("m", reboot(1, "300s")).await;
    scene.says("m", "HostNotProvisioned").await;
    provisioning(&scene, "h", "provisioned").await;
    let waits = scene.says("m", "HostBooting").await;
    assert!(message(&waits).contains("its node is awaited"), "{waits:#}");
    assert!(waits["status"]["phase"].is_null(), "nothing has begun: {waits:#}");
    assert!(waits["status"]["since"].is_string(), "{waits:#}");
    let audit = bench::audit::Audit::new(plane.audit_log(), scene.client.clone());
    audit.rest(&user, Duration::from_secs(3)).await.unwrap();
    let host = scene.get_host("h").await;
    assert!(keys(&host).is_empty() && history(&host).is_empty(), "{host:#}");
    assert_eq!(host["status"]["poweredOn"], true);
    // Its node has come up, and the health check withdraws what it had asked for.
    scene.delete(REMEDIATION, "m").await;
    scene.gone(REMEDIATION, "m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_for_one_machine_come_to_rest_and_one_of_them_says_why_it_waits() {
    let scene = Scene::new("two-requests").await;
    let plane = &planes().await.management;
    let policy = Policy { upstream_group: true, ..quick() };
    let (_running, user) = start(plane, &scene.namespace, policy).await;
    scene.machine("m", "h").await;
    scene.patch_host("h", json!({"spec": {"disablePowerOff": true}})).await;
    let strategy = json!({"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100});
    scene.request_of(UPSTREAM, "m", strategy).await;
    let said = |it: &Value| condition(it, "ExternallyRemediated").1.to_owned();
    scene.until(MACHINE, "m", "refused", |it| said(it.unwrap()) == "PowerOffDisabled").await;
    // The health check was given a template of the other group.
    scene.request("m", json!({"type": "replace"})).await;
    scene.says("m", "StrategyUnknown").await;
    let audit = bench::audit::Audit::new(plane.audit_log(), scene.client.clone());
    audit.rest(&user, Duration::from_secs(3)).await.unwrap();
    let machine = serde_json::to_value(scene.get(MACHINE, "m").await).unwrap();
    assert_eq!(said(&machine), "PowerOffDisabled", "{machine:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_host_can_have_is_that_of_a_host_which_is_missing_and_its_try_is_undone() {
    let scene = Scene::new("misnamed").await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.machine("m", "h").await;
    scene.operator().stick("h");
    scene.request("m", reboot(1, "300s")).await;
    scene.host_is("h", "held", |host| !keys(host).is_empty()).await;
    let metal = bench::cluster_api::objects::METAL3_MACHINE;
    let named = |host: &str| {
        let name = format!("{}/{host}", scene.namespace);
        json!({"metadata": {"annotations": {"metal3.io/BareMetalHost": name}}})
    };
    // As of one that was copied with the blank behind it.
    scene.patch(metal, "m", named("h ")).await;
    scene.says("m", "HostMissing").await;
    scene.is_clean("m", "h").await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!((tries.len(), &tries[0]["result"]), (1, &json!("HostMissing")), "{tries:?}");
    scene.operator().unstick("h");
    scene.patch(metal, "m", named("h")).await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
}

/// Waits until there is a warning with this reason about an object of each of these kinds.
pub(super) async fn warned(scene: &Scene, reason: &str, kinds: &[&str]) {
    let events: Api<Event> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let is_about = |kind: &str| {
            all.iter().any(|it| {
                let about = it.regarding.as_ref().and_then(|it| it.kind.as_deref());
                it.reason.as_deref() == Some(reason)
                    && it.type_.as_deref() == Some("Warning")
                    && about == Some(kind)
            })
        };
        if kinds.iter().all(|kind| is_about(kind)) {
            return;
        }
        assert!(Instant::now() < deadline, "no warning {reason} about each of {kinds:?}: {all:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_capm3s_kind_is_refused_by_an_event_and_by_the_condition_of_its_machine() {
    let scene = Scene::new("refused-upstream").await;
    let policy = Policy { upstream_group: true, ..quick() };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    scene.machine("m", "h").await;
    scene.patch_host("h", json!({"spec": {"disablePowerOff": true}})).await;
    let strategy = json!({"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100});
    scene.request_of(UPSTREAM, "m", strategy).await;
    let said = |it: &Value| condition(it, "ExternallyRemediated").1.to_owned();
    let refused =
        scene.until(MACHINE, "m", "refused", |it| said(it.unwrap()) == "PowerOffDisabled").await;
    assert_eq!(condition(&refused, "ExternallyRemediated").0, "False");
    let all = refused["status"]["conditions"].as_array().unwrap();
    let told = all.iter().find(|it| it["type"] == "ExternallyRemediated").unwrap();
    let text = told["message"].as_str().unwrap_or_default();
    assert!(text.contains("set its spec.disablePowerOff to false"), "{told:#}");
    warned(&scene, "PowerOffDisabled", &["Machine", "BareMetalHost", "Metal3Remediation"]).await;
    let request = serde_json::to_value(scene.get(UPSTREAM, "m").await).unwrap();
    assert!(request["status"]["phase"].is_null(), "nothing has begun: {request:#}");
    assert!(request["metadata"]["finalizers"].is_null(), "{request:#}");
    assert!(history(&scene.get_host("h").await).is_empty(), "nothing was tried");
    scene.patch_host("h", json!({"spec": {"disablePowerOff": false}})).await;
    let done = |it: Option<&Value>| {
        let it = it.unwrap();
        it["status"]["phase"] == "Waiting" && it["metadata"]["finalizers"].is_null()
    };
    scene.until(UPSTREAM, "m", "recovered", done).await;
    scene.until(MACHINE, "m", "spoken of no more", |it| said(it.unwrap()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_machine_or_of_another_cluster_is_refused() {
    let scene = Scene::new("nobody").await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene
        .create(REMEDIATION, REMEDIATION.object("m", &json!({"strategy": reboot(0, "300s")})))
        .await;
    scene.says("m", "MachineMissing").await;
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "elsewhere"}}});
    scene.patch(REMEDIATION, "m", label).await;
    scene.machine("m", "h").await;
    scene.says("m", "MachineMismatch").await;
    // A person's request needs no owner: the name is the Machine's.
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": null}}});
    scene.patch(REMEDIATION, "m", label).await;
    scene.says("m", "Recovered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_machine_that_was_made_anew_under_its_name_touches_nothing() {
    let scene = Scene::new("made-anew").await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.machine("m", "h").await;
    let mut object = REMEDIATION.object("m", &json!({"strategy": reboot(0, "300s")}));
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": MACHINE.api_version, "kind": MACHINE.kind, "name": "m",
        "uid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    }]);
    scene.create(REMEDIATION, object).await;
    scene.says("m", "MachineMissing").await;
    let host = scene.get_host("h").await;
    assert!(keys(&host).is_empty() && history(&host).is_empty(), "{host:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_recovered_is_not_rebooted_again_when_its_status_is_lost_or_its_machine_made_anew()
{
    let scene = Scene::new("once-only").await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.machine("m", "h").await;
    scene.request("m", reboot(1, "300s")).await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
    let is_untouched = async || {
        let host = scene.get_host("h").await;
        assert!(keys(&host).is_empty() && history(&host).len() == 1, "{host:#}");
    };
    // As after a restore from a backup, which has no status.
    silence(&scene.workload, &scene.node_of("m")).await;
    scene.patch_status(REMEDIATION, "m", json!({"status": null})).await;
    let request = scene.says("m", "Recovered").await;
    assert!(message(&request).contains("says the host"), "{request:#}");
    is_untouched().await;
    // Another Machine under the same name is not the one that was asked about.
    let old = scene.get(MACHINE, "m").await;
    scene.delete(MACHINE, "m").await;
    scene.gone(MACHINE, "m").await;
    let mut again = MACHINE.object("m", &old.data["spec"]);
    again["metadata"]["labels"] = json!(old.metadata.labels);
    let again = scene.create(MACHINE, again).await;
    let node = json!({"status": {"nodeRef": {"name": scene.node_of("m")}}});
    scene.patch_status(MACHINE, "m", node).await;
    // By the time that a whole cycle of another one is over it would have been touched.
    scene.machine("later", "later").await;
    scene.request("later", reboot(1, "300s")).await;
    scene.says("later", "Recovered").await;
    is_untouched().await;
    let machine = scene.get(MACHINE, "m").await;
    assert_eq!((machine.uid(), machine.metadata.deletion_timestamp), (again.uid(), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_cluster_that_cannot_be_asked_does_not_stop_the_reboot() {
    let good = planes().await.workload.kubeconfig_text("admin", &["system:masters"]).unwrap();
    let garbage = ": : no kubeconfig".to_owned();
    let away = good.replace("https://127.0.0.1:", "https://127.0.0.2:1");
    let program = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
        clusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\n\
        contexts: [{name: c, context: {cluster: c, user: u}}]\n\
        users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}}}]\n"
        .to_owned();
    // The library ends the process where it meets such a token.
    let user = program.find("{exec").unwrap();
    let broken = format!("{}{{token: \"a\\n\"}}}}]\n", &program[..user]);
    let cases = [
        ("broken", broken, "a line break"),
        ("garbage", garbage, "cannot be read"),
        ("away", away, "does not answer"),
        ("program", program, "refused"),
    ];
    for (name, kubeconfig, why) in cases {
        let scene = Scene::new(&format!("workload-{name}")).await;
        let policy = Policy { fence: Duration::from_secs(3), ..quick() };
        let _running = start(&planes().await.management, &scene.namespace, policy).await;
        scene.kubeconfig(&kubeconfig).await;
        let host = format!("h-{name}");
        scene.machine(name, &host).await;
        scene.request(name, reboot(0, "300s")).await;
        // The condition says so, and the reboot goes on.
        let recovering = |it: Option<&Value>| it.unwrap()["status"]["step"] == "recover";
        scene.until(REMEDIATION, name, "on again", recovering).await;
        let tries = history(&scene.get_host(&host).await);
        assert!(tries[0]["fenced"].as_str().unwrap().contains(why), "{name}: {tries:?}");
        let told = |it: Option<&Value>| {
            let text = message(it.unwrap());
            text.contains("the node cannot be seen") && text.contains(why)
        };
        scene.until(REMEDIATION, name, "saying why the node is not seen", told).await;
        // It returns: the node is seen, and the rest as well.
        scene.kubeconfig(&good).await;
        scene.says(name, "Recovered").await;
        scene.is_clean(name, &host).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_machine_is_neither_tainted_nor_taken_for_recovery() {
    let scene = Scene::new("foreign").await;
    scene.machine("m", "h").await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(scene.workload.clone());
    let other = json!({"spec": {"providerID": "metal3://somebody/else"}});
    let node = scene.node_of("m");
    nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.request("m", reboot(0, "5s")).await;
    scene.says("m", "Exhausted").await;
    let tries = history(&scene.get_host("h").await);
    assert!(tries[0]["fenced"].as_str().unwrap().contains("another machine's"), "{tries:?}");
    assert!(!super::scene::is_tainted(&scene.node("m").await.unwrap()));
}

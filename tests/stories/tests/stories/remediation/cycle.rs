//! A node comes back, or its machine is handed over: the mission's sentences about a cycle.

use std::time::{Duration, Instant};

use bench::audit::Audit;
use bench::cluster_api::objects::MACHINE;
use bench::control_plane::ControlPlane;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use remediation::settings::{Fencing, Policy};
use serde_json::{Value, json};

use super::ground::{planes, quick, start};
use super::operator::silence;
use super::scene::{
    REMEDIATION, Scene, UPSTREAM, condition, history, is_tainted, keys, reboot, succeeded,
};

fn audit(plane: &ControlPlane, admin: kube::Client) -> Audit {
    Audit::new(plane.audit_log(), admin)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fell_silent_is_power_cycled_and_comes_back_in_at_most_twelve_writes() {
    let scene = Scene::new("recovery").await;
    let plane = &planes().await.management;
    scene.machine("m", "h").await;
    scene.operator().stick("h");
    let (_running, user) = start(plane, &scene.namespace, quick()).await;
    let audit = audit(plane, scene.client.clone());
    let mark = audit.mark().await.unwrap();
    scene.request("m", reboot(3, "300s")).await;
    let host = scene.host_is("h", "asked to be off", |host| !keys(host).is_empty()).await;
    let request = scene
        .until(REMEDIATION, "m", "running", |it| it.unwrap()["status"]["phase"] == "running")
        .await;
    let uid = request["metadata"]["uid"].as_str().unwrap();
    assert_eq!(keys(&host), [format!("reboot.metal3.io/metal3-remediation-{uid}")]);
    let value: Value =
        serde_json::from_str(host["metadata"]["annotations"][&keys(&host)[0]].as_str().unwrap())
            .unwrap();
    let machine = scene.get(MACHINE, "m").await;
    assert_eq!(value["mode"], "hard");
    assert_eq!(value["machine"], json!(machine.metadata.uid), "whom the request is for");
    assert_eq!(request["status"]["step"], "power off");
    assert!(request["status"]["lastRemediated"].is_string());
    assert!(!is_tainted(&scene.node("m").await.unwrap()), "the host is still on");
    // The machine goes off, and after its release it comes on.
    scene.operator().unstick("h");
    scene.patch_host("h", json!({"metadata": {"labels": {"nudge": "1"}}})).await;
    let request = scene.says("m", "Recovered").await;
    assert_eq!(succeeded(&request).0, "True");
    assert_eq!(request["status"]["phase"], "waiting");
    scene
        .until(REMEDIATION, "m", "without finalizer", |it| {
            it.unwrap()["metadata"]["finalizers"].is_null()
        })
        .await;
    scene.is_clean("m", "h").await;
    let host = scene.get_host("h").await;
    let tries = history(&host);
    assert_eq!(tries.len(), 1);
    assert_eq!(tries[0]["result"], "Recovered");
    assert_eq!(tries[0]["fenced"], "the node is out of service");
    assert_eq!(host["status"]["poweredOn"], true);
    let writes = audit.since(mark).await.unwrap();
    let here = writes.writes(&user, &["events"]);
    println!("writes to the management cluster for a recovery: {here}");
    // Two more go to the node.
    assert!(here <= 10, "{writes:?}");
    // At rest nothing is written.
    let rest = audit.rest(&user, Duration::from_secs(15)).await.unwrap();
    assert_eq!(rest.lists(&user), 0, "{rest:?}");
    scene.delete(REMEDIATION, "m").await;
    scene.gone(REMEDIATION, "m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_its_host_is_off_the_node_is_out_of_service_until_nothing_runs_there() {
    let scene = Scene::new("drain").await;
    scene.machine("m", "h").await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(scene.workload.clone(), "default");
    let pod = json!({
        "metadata": {"name": scene.namespace},
        "spec": {"nodeName": scene.node_of("m"), "containers": [{"name": "c", "image": "c"}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&kube::api::PostParams::default(), &pod).await.unwrap();
    let policy = Policy { fence: Duration::from_secs(60), ..quick() };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    scene.request("m", reboot(0, "300s")).await;
    let fencing = |it: Option<&Value>| it.unwrap()["status"]["step"] == "fence";
    scene.until(REMEDIATION, "m", "fencing", fencing).await;
    scene.tainted("m", true).await;
    let host = scene.get_host("h").await;
    assert_eq!((keys(&host).len(), &host["status"]["poweredOn"]), (1, &json!(false)));
    let now = kube::api::DeleteParams::default().grace_period(0);
    pods.delete(&scene.namespace, &now).await.unwrap();
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_gets_its_labels_and_annotations_back_once_it_has_registered_again() {
    let scene = Scene::new("restore").await;
    scene.machine("m", "h").await;
    let nodes: Api<Node> = Api::all(scene.workload.clone());
    let more = json!({"metadata": {"labels": {"rack": "7"}, "annotations": {"note": "kept"}}});
    let name = scene.node_of("m");
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    let before = nodes.get(&name).await.unwrap().metadata.uid;
    let policy = Policy { fencing: Fencing::Delete, ..quick() };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    scene.request("m", reboot(0, "300s")).await;
    scene.says("m", "Recovered").await;
    let node = nodes.get(&name).await.unwrap();
    assert_ne!(node.metadata.uid, before, "it was deleted");
    assert_eq!(node.metadata.labels.unwrap()["rack"], "7");
    assert_eq!(node.metadata.annotations.unwrap()["note"], "kept");
    scene
        .until(REMEDIATION, "m", "without finalizer", |it| {
            it.unwrap()["metadata"]["finalizers"].is_null()
        })
        .await;
    scene.is_clean("m", "h").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_tries_are_used_up_is_handed_to_its_owner_in_both_formats() {
    let scene = Scene::new("exhausted").await;
    scene.machine("m", "h").await;
    scene.operator().kill("h");
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.request("m", reboot(1, "2s")).await;
    let request = scene.says("m", "Exhausted").await;
    assert_eq!(request["status"]["phase"], "deleting machine");
    assert_eq!(request["status"]["retryCount"], 1, "the first try and one more");
    let machine = serde_json::to_value(scene.get(MACHINE, "m").await).unwrap();
    assert_eq!(condition(&machine, "OwnerRemediated"), ("False", "WaitingForRemediation"));
    // Without a health check nobody else says so, and owners look at both.
    assert_eq!(condition(&machine, "HealthCheckSucceeded"), ("False", "WaitingForRemediation"));
    let deprecated = machine["status"]["deprecated"]["v1beta1"]["conditions"].as_array().unwrap();
    let told = deprecated.iter().find(|it| it["type"] == "OwnerRemediated").unwrap();
    assert_eq!(told["status"], "False");
    assert!(machine["metadata"]["deletionTimestamp"].is_null(), "its owner's to delete");
    let host = scene.get_host("h").await;
    let annotations = &host["metadata"]["annotations"];
    assert_eq!(annotations["capi.metal3.io/unhealthy"], "capm3/UnhealthyNode");
    assert_eq!(annotations["capm3.metal3.io/unhealthy"], "capm3/UnhealthyNode");
    assert_eq!(host["spec"]["online"], false);
    let results: Vec<_> = history(&host).iter().map(|it| it["result"].clone()).collect();
    assert_eq!(results, ["NotRecovered", "Exhausted"]);
    scene
        .until(REMEDIATION, "m", "without finalizer", |it| {
            it.unwrap()["metadata"]["finalizers"].is_null()
        })
        .await;
    scene.is_clean("m", "h").await;
    // Called off: nobody answers any more for what the Machine says.
    scene.delete(REMEDIATION, "m").await;
    let says_no_more = |it: Option<&Value>| {
        let machine = it.unwrap();
        let kinds = ["HealthCheckSucceeded", "OwnerRemediated"];
        kinds.iter().all(|kind| condition(machine, kind).0.is_empty())
    };
    scene.until(MACHINE, "m", "no longer to be replaced", says_no_more).await;
}

/// A person calls the replacement off, which its owner has not begun. What the health check says is its own word.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_was_told_beside_a_health_check_is_told_no_more_when_the_request_is_gone() {
    let scene = Scene::new("called-off").await;
    scene.machine("m", "h").await;
    checked(&scene, "m", "False").await;
    scene.operator().kill("h");
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.request("m", reboot(0, "2s")).await;
    scene.says("m", "Exhausted").await;
    let machine = serde_json::to_value(scene.get(MACHINE, "m").await).unwrap();
    assert_eq!(condition(&machine, "OwnerRemediated").0, "False");
    scene.delete(REMEDIATION, "m").await;
    let called_off = |it: Option<&Value>| condition(it.unwrap(), "OwnerRemediated").0.is_empty();
    let machine = scene.until(MACHINE, "m", "no longer to be replaced", called_off).await;
    assert_eq!(condition(&machine, "HealthCheckSucceeded"), ("False", "UnhealthyNode"));
}

/// What the health check says of a machine.
async fn checked(scene: &Scene, machine: &str, status: &str) {
    let reason = if status == "True" { "NodeIsHealthy" } else { "UnhealthyNode" };
    let said = json!({
        "type": "HealthCheckSucceeded", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    scene.patch_status(MACHINE, machine, json!({"status": {"conditions": [said]}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_again_after_the_health_check_agreed_has_all_tries_anew() {
    let scene = Scene::new("agreed").await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.machine("m", "h").await;
    scene.request("m", reboot(0, "300s")).await;
    scene.says("m", "Recovered").await;
    // It agrees and leaves the request there, as it does while too many of its machines fail.
    checked(&scene, "m", "True").await;
    let forgotten = |it: Option<&Value>| {
        let status = &it.unwrap()["status"];
        status["step"].is_null() && status["retryCount"].as_i64().unwrap_or_default() == 0
    };
    scene.until(REMEDIATION, "m", "over", forgotten).await;
    silence(&scene.workload, &scene.node_of("m")).await;
    checked(&scene, "m", "False").await;
    let host = scene
        .host_is("h", "rebooted once more", |host| {
            let tries = history(host);
            tries.len() == 2 && tries[1]["result"].is_string()
        })
        .await;
    let tries = history(&host);
    let numbers: Vec<_> = tries.iter().map(|it| it["try"].clone()).collect();
    assert_eq!(numbers, [0, 0], "{tries:?}");
    assert_eq!(tries[1]["result"], "Recovered", "{tries:?}");
    let free = |it: Option<&Value>| it.unwrap()["metadata"]["finalizers"].is_null();
    scene.until(REMEDIATION, "m", "without finalizer", free).await;
    scene.is_clean("m", "h").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_nobody_owns_is_deleted_when_its_tries_are_used_up() {
    let scene = Scene::new("unowned").await;
    scene.machine_of("m", "h", false).await;
    scene.operator().kill("h");
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.request("m", reboot(0, "1s")).await;
    scene.gone(MACHINE, "m").await;
    let host = scene.get_host("h").await;
    assert_eq!(host["metadata"]["annotations"]["capi.metal3.io/unhealthy"], "capm3/UnhealthyNode");
    assert!(keys(&host).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_the_group_of_capm3_is_served_in_its_spelling() {
    let scene = Scene::new("upstream").await;
    scene.machine("m", "h").await;
    scene.machine("n", "stuck").await;
    let policy = Policy { upstream_group: true, power_off: Duration::from_secs(12), ..quick() };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    let strategy = json!({"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100});
    scene.request_of(UPSTREAM, "m", strategy).await;
    let done = |it: Option<&Value>| {
        let it = it.unwrap();
        it["status"]["phase"] == "Waiting" && it["metadata"]["finalizers"].is_null()
    };
    let request = scene.until(UPSTREAM, "m", "recovered", done).await;
    let standing =
        request["metadata"]["annotations"]["ferrite.metal3.io/remediation-standing"].as_str();
    assert!(standing.unwrap().contains("Recovered"), "{standing:?}");
    scene.is_clean("m", "h").await;
    // One whose host never goes off.
    scene.operator().stick("stuck");
    let strategy = json!({"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100});
    scene.request_of(UPSTREAM, "n", strategy).await;
    let handed = |it: Option<&Value>| it.unwrap()["status"]["phase"] == "Deleting machine";
    let request = scene.until(UPSTREAM, "n", "handed over", handed).await;
    assert_eq!(request["status"]["retryCount"], 1);
    let host = scene.get_host("stuck").await;
    let results: Vec<_> = history(&host).iter().map(|it| it["result"].clone()).collect();
    assert_eq!(results, ["PowerOffTimedOut", "Exhausted"]);
    assert!(keys(&host).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_machines_that_fail_at_once_have_their_keys_soon() {
    let scene = Scene::new("storm").await;
    let count = 500;
    let (client, namespace) = (scene.client.clone(), scene.namespace.clone());
    let names: Vec<String> = (0..count).map(|it| format!("m{it}")).collect();
    for some in names.chunks(20) {
        let made = some.iter().map(|name| scene.machine(name, name));
        futures_util::future::join_all(made).await;
    }
    for name in &names {
        scene.operator().stick(name);
    }
    let plane = &planes().await.management;
    // However long all of it takes here, no host is given up meanwhile for not being off.
    let policy = Policy { power_off: Duration::from_secs(3600), ..quick() };
    let (_running, user) = start(plane, &namespace, policy).await;
    // A first one shows that all lists are there.
    scene.request(&names[0], reboot(0, "300s")).await;
    scene.host_is(&names[0], "held", |host| !keys(host).is_empty()).await;
    let hosts = [bench::bmo::hosts()];
    let observer =
        bench::observer::Observer::start(&client, Some(&namespace), &hosts).await.unwrap();
    let begun = Instant::now();
    for some in names[1..].chunks(50) {
        let made = some.iter().map(|name| scene.request(name, reboot(0, "300s")));
        futures_util::future::join_all(made).await;
    }
    let made = begun.elapsed();
    let all_held = |world: &bench::observer::World| {
        let held = world.values().filter(|it| {
            let keys = it.metadata.annotations.iter().flatten();
            keys.map(|(key, _)| key).any(|key| key.starts_with("reboot.metal3.io/"))
        });
        held.count() == count
    };
    if !observer.reaches(all_held, Duration::from_secs(120)).await.unwrap() {
        let mut without = Vec::new();
        for name in &names {
            if keys(&scene.get_host(name).await).is_empty() {
                without.push(scene.get(REMEDIATION, name).await);
            }
        }
        panic!("{} hosts have no key, the first: {:#?}", without.len(), without[0]);
    }
    println!(
        "{count} requests were made within {made:?}; every host had its key {:?} after the first was made, user {user}",
        begun.elapsed()
    );
    // The key may have been the first of all writes: whoever is withdrawn now may have no finalizer yet.
    let withdrawn = names[400..].iter().map(|name| scene.delete(REMEDIATION, name));
    futures_util::future::join_all(withdrawn).await;
    let released = |world: &bench::observer::World| {
        world.values().all(|it| {
            let number = it.metadata.name.as_deref().unwrap_or_default().trim_start_matches('m');
            let held = it.metadata.annotations.iter().flatten();
            let held = held.map(|(key, _)| key).any(|key| key.starts_with("reboot.metal3.io/"));
            held == number.parse::<usize>().is_ok_and(|it| it < 400)
        })
    };
    let all_released = observer.reaches(released, Duration::from_secs(120)).await.unwrap();
    assert!(all_released, "a withdrawn request kept its host, or another one lost it");
    for name in &names[..400] {
        let protected = |it: Option<&Value>| !it.unwrap()["metadata"]["finalizers"].is_null();
        scene.until(REMEDIATION, name, "protected", protected).await;
    }
}

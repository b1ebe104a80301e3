//! The workload cluster's API server in trouble: the reboot goes on, and what comes back is used again.

use std::time::Duration;

use bench::audit::Audit;
use bench::cluster_api::objects::{CLUSTER, MACHINE};
use bench::control_plane::ControlPlane;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use remediation::settings::Policy;
use serde_json::{Value, json};

use super::ground::{planes, quick, start};
use super::operator::boot;
use super::scene::{CLUSTER_NAME, REMEDIATION, Scene, history, keys, reboot, succeeded};

fn impatient() -> Policy {
    Policy { fence: Duration::from_secs(3), ..quick() }
}

/// Waits until the host is on again; returns what was done about the node.
async fn on_again(scene: &Scene) -> String {
    let recovering = |it: Option<&Value>| it.is_some_and(|it| it["status"]["step"] == "recover");
    scene.until(REMEDIATION, "m", "on again", recovering).await;
    let tries = history(&scene.get_host("h").await);
    tries[0]["fenced"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_delays_the_reboot_only_and_a_renewed_one_is_used_at_once() {
    let workload = &planes().await.workload;
    let groups = ["system:masters"];
    let scene = Scene::new("expired").await;
    let _running = start(&planes().await.management, &scene.namespace, impatient()).await;
    scene.kubeconfig(&workload.expired_kubeconfig_text("late", &groups).unwrap()).await;
    scene.machine("m", "h").await;
    scene.request("m", reboot(0, "300s")).await;
    let fenced = on_again(&scene).await;
    assert!(fenced.contains("the node was left alone"), "{fenced}");
    assert!(fenced.contains("metal"), "which cluster: {fenced}");
    scene.kubeconfig(&workload.kubeconfig_text("renewed", &groups).unwrap()).await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_api_server_that_hangs_delays_the_reboot_only_and_is_used_when_it_answers_again()
{
    let own = ControlPlane::start("remediation-hangs").await.unwrap();
    let mut scene = Scene::new("hangs").await;
    scene.workload = own.admin().await;
    let _running = start(&planes().await.management, &scene.namespace, impatient()).await;
    scene.kubeconfig(&own.kubeconfig_text("slow", &["system:masters"]).unwrap()).await;
    scene.machine("m", "h").await;
    // The stand-in speaks to the other workload cluster: whether this kubelet starts is up to us.
    scene.operator().kill("h");
    own.freeze(true).unwrap();
    scene.request("m", reboot(0, "300s")).await;
    let fenced = on_again(&scene).await;
    assert!(fenced.contains("the node was left alone"), "{fenced}");
    own.freeze(false).unwrap();
    boot(&scene.workload, &scene.node_of("m")).await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
}

/// Its finalizer goes at a deadline. A node that is ready must not stay out of service for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_taint_that_outlived_its_request_goes_when_its_cluster_answers_again() {
    let own = ControlPlane::start("remediation-left").await.unwrap();
    let mut scene = Scene::new("left").await;
    scene.workload = own.admin().await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    leave_a_taint(&scene, &own).await;
    own.freeze(false).unwrap();
    scene.tainted("m", false).await;
    let clean = |host: &Value| history(host)[0]["left"].is_null();
    scene.host_is("h", "said to have nothing left", clean).await;
}

/// Nobody can ever look at the node again, and nobody has to.
#[tokio::test(flavor = "multi_thread")]
async fn a_taint_that_outlived_its_request_is_forgotten_when_its_cluster_is_deleted() {
    let own = ControlPlane::start("remediation-deleted").await.unwrap();
    let mut scene = Scene::new("deleted").await;
    scene.workload = own.admin().await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    leave_a_taint(&scene, &own).await;
    scene.delete(CLUSTER, CLUSTER_NAME).await;
    scene.gone(CLUSTER, CLUSTER_NAME).await;
    scene.patch_host("h", json!({"metadata": {"labels": {"nudge": "1"}}})).await;
    let clean = |host: &Value| {
        let tries = history(host);
        tries[0]["left"].is_null() && tries[0]["tainted"].is_null()
    };
    scene.host_is("h", "said to have nothing left", clean).await;
}

/// A request is withdrawn while its node is out of service and cannot be asked, and lets go.
async fn leave_a_taint(scene: &Scene, own: &ControlPlane) {
    scene.kubeconfig(&own.kubeconfig_text("left", &["system:masters"]).unwrap()).await;
    scene.machine("m", "h").await;
    scene.operator().kill("h");
    // It keeps the host off for a while.
    let pod = json!({
        "metadata": {"name": scene.namespace},
        "spec": {"nodeName": scene.node_of("m"), "containers": [{"name": "c", "image": "c"}]},
    });
    let pods: Api<Pod> = Api::namespaced(scene.workload.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    scene.request("m", reboot(0, "300s")).await;
    scene.tainted("m", true).await;
    own.freeze(true).unwrap();
    scene.delete(REMEDIATION, "m").await;
    scene.gone(REMEDIATION, "m").await;
    let left = |host: &Value| history(host)[0]["tainted"] == "metal";
    scene.host_is("h", "said to have a node out of service", left).await;
}

/// An outage of a workload cluster's API must not turn the machines that came back during it into machines that are replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_nobody_can_see_is_neither_cut_off_again_nor_given_up() {
    let own = ControlPlane::start("remediation-blind").await.unwrap();
    let mut scene = Scene::new("blind").await;
    scene.workload = own.admin().await;
    let _running = start(&planes().await.management, &scene.namespace, impatient()).await;
    scene.kubeconfig(&own.kubeconfig_text("blind", &["system:masters"]).unwrap()).await;
    scene.machine("m", "h").await;
    scene.operator().kill("h");
    own.freeze(true).unwrap();
    scene.request("m", reboot(0, "3s")).await;
    let request = scene.says("m", "NodeUnseen").await;
    assert_eq!(succeeded(&request).0, "Unknown");
    // Its time is over several times.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let host = scene.get_host("h").await;
    let tries = history(&host);
    assert_eq!((tries.len(), &tries[0]["result"]), (1, &Value::Null), "{tries:?}");
    assert!(keys(&host).is_empty() && host["spec"]["online"] == true, "{host}");
    let request = scene.says("m", "NodeUnseen").await;
    assert_eq!(request["status"]["step"], "recover");
    own.freeze(false).unwrap();
    boot(&scene.workload, &scene.node_of("m")).await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
}

/// Where etcd has lost its quorum no node can be seen before another member is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_node_nobody_can_see_keeps_the_others_no_longer_than_its_time() {
    const TIME: i64 = 8;
    let own = ControlPlane::start("remediation-quorum").await.unwrap();
    let mut scene = Scene::new("quorum").await;
    scene.workload = own.admin().await;
    scene.kubeconfig(&own.kubeconfig_text("quorum", &["system:masters"]).unwrap()).await;
    for name in ["cp-0", "cp-1"] {
        scene.machine(name, name).await;
        scene.operator().kill(name);
        let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}});
        scene.patch(MACHINE, name, label).await;
    }
    own.freeze(true).unwrap();
    for (name, time) in [("cp-0", TIME), ("cp-1", 300)] {
        scene.request(name, reboot(0, &format!("{time}s"))).await;
    }
    let _running = start(&planes().await.management, &scene.namespace, impatient()).await;
    scene.says("cp-1", "MemberInTry").await;
    let on = |it: Option<&Value>| it.is_some_and(|it| it["status"]["step"] == "recover");
    let unseen = scene.until(REMEDIATION, "cp-0", "on again", on).await;
    let asked_for = |host: &Value| !history(host).is_empty();
    let host = scene.host_is("cp-1", "asked to be off, for all that", asked_for).await;
    let moment = |text: &Value| text.as_str().unwrap().parse::<Timestamp>().unwrap();
    let waited = moment(&history(&host)[0]["asked"]) - moment(&unseen["status"]["since"]);
    assert!(waited.get_seconds() >= TIME, "cut off after {waited:?}");
    let first = scene.get_host("cp-0").await;
    let tries = history(&first);
    assert_eq!((tries.len(), &tries[0]["result"]), (1, &Value::Null), "{tries:?}");
    assert!(keys(&first).is_empty(), "{first}");
    scene.until(REMEDIATION, "cp-1", "on again", on).await;
    own.freeze(false).unwrap();
    for name in ["cp-0", "cp-1"] {
        boot(&scene.workload, &scene.node_of(name)).await;
    }
    for name in ["cp-0", "cp-1"] {
        scene.says(name, "Recovered").await;
        scene.is_clean(name, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_awaited_is_watched_and_where_that_is_refused_it_is_asked_for() {
    let workload = &planes().await.workload;
    let gets = async |user: &str, may_watch: bool| {
        let scene = Scene::new(user).await;
        let _running = start(&planes().await.management, &scene.namespace, impatient()).await;
        permit(&scene.workload, user, may_watch).await;
        scene.kubeconfig(&workload.kubeconfig_text(user, &[]).unwrap()).await;
        scene.machine("m", "h").await;
        scene.operator().kill("h");
        scene.request("m", reboot(0, "300s")).await;
        on_again(&scene).await;
        let audit = Audit::new(workload.audit_log(), scene.workload.clone());
        let start = audit.mark().await.unwrap();
        tokio::time::sleep(Duration::from_secs(12)).await;
        let counts = audit.since(start).await.unwrap();
        boot(&scene.workload, &scene.node_of("m")).await;
        scene.says("m", "Recovered").await;
        counts.of(user, "get", "nodes")
    };
    let (watched, asked) = tokio::join!(gets("watches", true), gets("asks", false));
    println!("within 12 s {watched} looks at a node that is watched, {asked} at one that is not");
    // One look as the watch begins, and perhaps the one after 15 seconds.
    assert!(watched <= 2 && asked >= 4, "{watched} and {asked}");
}

/// Gives a user of the workload cluster what a try needs there.
async fn permit(client: &kube::Client, user: &str, may_watch: bool) {
    let verbs: &[&str] = if may_watch { &["get", "patch", "watch"] } else { &["get", "patch"] };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": user},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let params = PostParams::default();
    roles.create(&params, &serde_json::from_value(role).unwrap()).await.unwrap();
    bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
}

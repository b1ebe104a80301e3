//! What is kept on a host: on the CRD of Metal3 as it is, and where somebody has written it that this release does not know.

use bench::control_plane;
use bench::crds::{Group, install, settled};
use bench::proxy::Proxy;
use serde_json::{Value, json};

use super::{HARD, PLAIN, Site, condition, kept, machine, quick, record};

fn hold() -> String {
    format!("{PLAIN}/held")
}

/// Nobody has extended the CRD: the record alone holds both stamps, across a restart, and the condition says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_and_its_cycle_work_on_the_stock_crd() {
    let plane = control_plane::shared().await;
    let admin = plane.admin().await;
    install(&admin, &[Group::Metal3]).await.unwrap();
    settled(&admin).await.unwrap();
    let site = Site::on(plane, "record").await;
    let (ironic, machine, node) = machine("record").await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    let running = site.start(&proxy.endpoint, quick());
    site.annotate("h", json!({ (hold()): HARD })).await;
    let host = site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    assert_eq!(host["status"]["poweredOn"], false, "{host:#}");
    assert_eq!(kept(&host)["held"]["keys"], json!([hold()]), "{host:#}");
    let pending = kept(&host)["pending"].clone();
    assert!(pending.is_string(), "{host:#}");
    let fields = |host: &Value| {
        let of = |name: &str| host["status"]["provisioning"][name].clone();
        (of("pendingRebootSince"), of("lastPoweredOn"))
    };
    assert_eq!(fields(&host), (Value::Null, Value::Null), "the CRD has no such fields");
    drop(running);

    let _running = site.start(&proxy.endpoint, quick());
    site.annotate("h", json!({ (hold()): null })).await;
    let done = |host: &Value| record(host).0 == "Completed" && host["status"]["poweredOn"] == true;
    let host = site.wait("h", "on again", done).await;
    assert_eq!(kept(&host)["pending"], pending, "no second cycle");
    assert!(kept(&host)["last"].as_str() > pending.as_str(), "{host:#}");
    assert!(kept(&host)["held"].is_null(), "{host:#}");
    assert_eq!(fields(&host), (Value::Null, Value::Null));
    let (reason, message) = condition(&host, "PowerManaged");
    assert!(reason == "Managed" && message.contains("RebootRecord"), "{message}");
    assert_eq!(proxy.powered(&node), ["power off", "power on"]);
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

/// A record of a later release, and one that a person has damaged: each stops its own host alone, is left as it is, and once it is
/// gone the host is served.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_stops_its_host_alone() {
    let site = Site::new("unreadable").await;
    let odd = [("later", r#"{"version":7,"held":{"keys":[]}}"#), ("damaged", "{\"version\":1,")];
    let proxy = Proxy::start(bench::ironic::shared().await).await.unwrap();
    let mut nodes = Vec::new();
    for (name, text) in odd.iter().copied().chain([("sound", "")]) {
        let (_, _, node) = machine(&format!("unreadable-{name}")).await;
        site.host(name, &node, json!({})).await;
        if !text.is_empty() {
            let condition = json!({
                "type": "RebootRecord", "status": "True", "reason": "Record", "message": text,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            site.status(name, json!({ "status": { "conditions": [condition] } })).await;
        }
        nodes.push(node);
    }
    let _running = site.start(&proxy.endpoint, quick());
    for name in ["later", "damaged", "sound"] {
        site.annotate(name, json!({ (hold()): HARD })).await;
    }
    site.wait("sound", "held off", |host| record(host).0 == "HeldOff").await;
    for ((name, text), node) in odd.iter().zip(&nodes) {
        let refused = |host: &Value| condition(host, "PowerManaged").0 == "RecordUnreadable";
        let host = site.wait(name, "refused", refused).await;
        assert_eq!(condition(&host, "RebootRecord").1, *text, "it is not ours to change");
        assert_eq!(host["status"]["poweredOn"], true);
        assert!(proxy.powered(node).is_empty(), "{name}");
        // As its message says.
        site.status(name, json!({ "status": { "conditions": [] } })).await;
        site.wait(name, "held off", |host| record(host).0 == "HeldOff").await;
    }
    let warned = site.warned("RecordUnreadable").await;
    assert_eq!(warned, [("damaged".to_owned(), 1), ("later".to_owned(), 1)]);
}

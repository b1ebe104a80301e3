//! What is labelled for another installation, or for none, is left alone by all five.

use api_types::names::capi::WATCH_FILTER;
use api_types::names::ferrite::{DISCOVERED_BY, POWER, POWER_MANAGED};
use bench::agent::Agent;
use bench::bmo;
use bench::cluster_api::objects::{Kind, METAL3_MACHINE};
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::ironic::Lent;
use serde_json::{Value, json};

use super::audited::requests;
use super::processes::Processes;
use crate::host_discovery::numbers;
use crate::played::{DISCOVERY, HOST, POOL, Played, REMEDIATION};
use crate::remediation::ground::install_own;

const OURS: &str = "ours";
/// Objects of others bear another filter, or none.
const OTHERS: [(&str, Option<&str>); 2] = [("theirs", Some("theirs")), ("nobodys", None)];
/// What each looks after.
const SERVED: [(&str, Kind); 5] = [
    ("bmo-reboot", HOST),
    ("capm3-reuse", METAL3_MACHINE),
    ("clusterpool-inventory", POOL),
    ("host-discovery", DISCOVERY),
    ("remediation", REMEDIATION),
];

/// One object of each kind, all of one name.
async fn make(at: &Played, name: &str, filter: Option<&str>) {
    let managed = json!({ (POWER): POWER_MANAGED });
    bmo::make_host(&at.client, &at.namespace, name, "nobody", &managed).await.unwrap();
    at.machine(name, None).await;
    at.request(name).await;
    let pool = json!({
        "platform": {
            "openstack": { "cloud": "here", "credentialsSecretRef": { "name": "cloud" } },
        },
        "baseDomain": "example.com",
        "imageSetRef": { "name": "none" },
        "size": 0,
        "pullSecretRef": { "name": "pull" },
        "installConfigSecretTemplateRef": { "name": "template" },
        "skipMachinePools": true,
        "inventory": { "ClusterDeploymentCustomizations": [{ "name": "none" }] },
    });
    at.create(POOL, POOL.object(name, &pool)).await;
    let template = json!({ "hardwareDetails": "hostname", "prefix": "rack-" });
    let discovery = json!({ "resourceNameTemplate": template });
    at.create(DISCOVERY, DISCOVERY.object(name, &discovery)).await;
    if let Some(filter) = filter {
        label(at, name, filter).await;
    }
}

async fn label(at: &Played, name: &str, filter: &str) {
    for (_, kind) in SERVED {
        let labels = json!({ "metadata": { "labels": { (WATCH_FILTER): filter } } });
        at.patch(kind, name, labels).await;
    }
}

/// Each of the five says in a condition what it makes of an object.
async fn is_served(at: &Played, name: &str) {
    for (controller, kind) in SERVED {
        let says =
            |it: &Value| it["status"]["conditions"].as_array().is_some_and(|it| !it.is_empty());
        at.until(kind, name, &format!("served by {controller}"), says).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_bears_another_watch_filter_or_none_is_left_alone_until_it_bears_ours() {
    let plane = ControlPlane::start("filters").await.unwrap();
    let client = plane.admin().await;
    crds::install(&client, &Group::ALL).await.unwrap();
    bench::cluster_api::install_crds(&client).await.unwrap();
    install_own(&client).await;
    let at = Played { client, namespace: plane.namespace("filters").await };
    let ironic = Lent::usual().await.unwrap();
    let told = [("FERRITE_WATCH_FILTER", OURS)];
    let five = Processes::start_told(&plane, &at.namespace, &ironic.endpoint, &told).await;
    crds::settled(&at.client).await.unwrap();
    at.cluster(&plane.kubeconfig_text("admin", &["system:masters"]).unwrap()).await;
    // Those of others come first: who serves them does it before the one that is waited for.
    for (name, filter) in OTHERS {
        make(&at, name, filter).await;
    }
    make(&at, OURS, Some(OURS)).await;
    is_served(&at, OURS).await;

    // A machine that every discovery would take is made a host by ours, and the host is for our installation, too.
    let mut agent = Agent::new(numbers());
    agent.hostname = "m1".to_owned();
    let (status, body) = agent.post(&ironic).await.unwrap();
    assert!(status.is_success(), "{status} {body}");
    let host = at.until(HOST, "rack-m1", "made", Value::is_object).await;
    let labels = &host["metadata"]["labels"];
    assert_eq!((&labels[DISCOVERED_BY], &labels[WATCH_FILTER]), (&json!(OURS), &json!(OURS)));

    for (controller, kind) in SERVED {
        let plural = kind.resource().plural;
        let all = requests(&plane.audit_log(), &five.users()[controller]);
        let to = |name: &str| {
            let writes = all.iter().filter(|it| it.is_write() && it.name == name);
            let of_kind =
                writes.filter(|it| it.right.resource.split('/').next() == Some(plural.as_str()));
            of_kind.map(|it| it.right.to_string()).collect::<Vec<_>>()
        };
        assert!(!to(OURS).is_empty(), "{controller} has not written to {plural}");
        for (name, _) in OTHERS {
            assert_eq!(to(name), Vec::<String>::new(), "{controller} serves {name}");
        }
    }

    // Nothing else kept them from being served.
    for (name, _) in OTHERS {
        label(&at, name, OURS).await;
        is_served(&at, name).await;
    }
    five.none_has_ended();
}

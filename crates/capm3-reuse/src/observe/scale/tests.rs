//! Which hosts count for whose replicas.

use api_types::capi::{MachineDeployment, MachineSet};
use api_types::capm3::{Metal3Machine, Metal3MachineTemplate};
use controller_kit::engine::ObjectKey;
use serde_json::{Value, json};

use super::*;
use crate::context::Caches;
use crate::context::tests::{VERSION, no_caches, nowhere, store};
use crate::decide::tests::{cached, consumer, host, kept_for, merge, owner, with};
use crate::settings::Policy;

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "ns".to_owned(), name: name.to_owned() }
}

/// A deployment or a set of machines whose template selects a rack, and what is said of it.
fn workers(name: &str, template: &str, more: &Value) -> Value {
    let infrastructure = json!({"kind": "Metal3MachineTemplate", "name": template,
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2"});
    let mut it = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": "7",
            "annotations": {names::ferrite::SCALE_TO_HOSTS: "min=1,max=9"},
        },
        "spec": {
            "clusterName": "c", "replicas": 3,
            "template": {"spec": {"infrastructureRef": infrastructure}},
        },
    });
    merge(&mut it, more);
    it
}

fn of<K: k8s_openapi::serde::de::DeserializeOwned>(it: Value) -> K {
    serde_json::from_value(it).unwrap()
}

fn in_rack(rack: &str, name: &str, state: &str, more: &Value) -> Arc<CachedHost> {
    let labels = json!({"metadata": {"labels": {"rack": rack}}});
    cached(&with(&with(&host(name, state), &labels), more))
}

/// A Machine and its `Metal3Machine`, which has the host of its name or had it.
fn machine(name: &str, metadata: &Value) -> (Machine, Metal3Machine) {
    let mut parent = json!({
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"clusterName": "c", "infrastructureRef": {"kind": "Metal3Machine", "name": name}},
    });
    merge(&mut parent["metadata"], metadata);
    let metal = json!({
        "metadata": {"name": name, "namespace": "ns",
            "annotations": {names::metal3::HOST: format!("ns/{name}")}},
        "status": {"initialization": {"provisioned": true}},
    });
    (of(parent), of(metal))
}

fn context(
    deployments: Vec<Value>,
    sets: Vec<Value>,
    hosts: &[Arc<CachedHost>],
    machines: Vec<(Machine, Metal3Machine)>,
) -> Context {
    let template = |rack: &str| -> Metal3MachineTemplate {
        let spec = json!({"hostSelector": {"matchLabels": {"rack": rack}}});
        let mut it = json!({"metadata": {"name": rack, "namespace": "ns"}});
        it["spec"] = json!({"nodeReuse": true, "template": {"spec": spec}});
        of(it)
    };
    let cluster = json!({"metadata": {"name": "c", "namespace": "ns"}});
    let (parents, metals) = machines.into_iter().unzip();
    let deployments: Vec<MachineDeployment> = deployments.into_iter().map(of).collect();
    let sets: Vec<MachineSet> = sets.into_iter().map(of).collect();
    let scaled = deployments.iter().map(|it| Key::Deployment(ObjectKey::of(it)));
    let scaled: Vec<Key> =
        scaled.chain(sets.iter().map(|it| Key::Set(ObjectKey::of(it)))).collect();
    let caches = Caches {
        hosts: store(hosts.iter().map(|it| (**it).clone()).collect(), ()),
        machines: store(metals, VERSION),
        templates: store(vec![template("a"), template("b")], VERSION),
        parents: store(parents, VERSION),
        clusters: store(vec![of(cluster)], VERSION),
        deployments: store(deployments, VERSION),
        sets: store(sets, VERSION),
        ..no_caches()
    };
    let mut context = nowhere(caches, None);
    context.policy.scale_to_hosts = true;
    context.looked_at.with(|all| all.extend(scaled));
    context
}

fn seen(context: &Context, key: &Key) -> Option<ScaledSeen> {
    let seen = scaled(context, key, &mut Memory::default())?;
    match seen.observed {
        Observed::Scaled(seen) => Some(*seen),
        other => panic!("{other:?}"),
    }
}

fn crowd() -> Vec<Arc<CachedHost>> {
    let none = &json!({});
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let noted = |key: &str| json!({"metadata": {"annotations": {key: ""}}});
    let other = Owner { name: "other".to_owned(), uid: "other-uid".to_owned(), ..owner() };
    vec![
        in_rack("a", "free", "available", none),
        in_rack("a", "kept", "deprovisioning", &kept_for(&owner())),
        // Those that may come back.
        in_rack("a", "sick", "available", &noted(names::capm3::UNHEALTHY)),
        in_rack("a", "paused", "available", &noted(names::metal3::PAUSED)),
        in_rack("a", "looked-at", "inspecting", none),
        // Those of its machines, whatever is the matter with them.
        in_rack("a", "m1", "provisioned", &consumer("m1", "m1-uid")),
        in_rack("a", "m2", "deprovisioning", &consumer("m2", "m2-uid")),
        in_rack("b", "m3", "provisioned", &with_both(&consumer("m3", "m3-uid"), &going)),
        // Those of nobody here.
        in_rack("b", "elsewhere", "available", none),
        in_rack("a", "going", "available", &going),
        in_rack("a", "unmanaged", "unmanaged", none),
        in_rack("a", "theirs", "available", &kept_for(&other)),
        in_rack("a", "x1", "provisioned", &consumer("x1", "x1-uid")),
        in_rack("a", "used", "available", &json!({"spec": {"image": {"url": "http://a/b"}}})),
    ]
}

fn with_both(one: &Value, other: &Value) -> Value {
    let mut both = one.clone();
    merge(&mut both, other);
    both
}

#[tokio::test]
async fn hosts_count_if_its_machines_have_them_or_would_take_them() {
    let labelled = |name: &str| json!({"labels": {names::capi::DEPLOYMENT_NAME: name}});
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let machines = || {
        let mut all: Vec<_> =
            ["m1", "m2", "m3", "lost"].map(|it| machine(it, &labelled("md"))).into();
        all.push(machine("gone", &with_both(&labelled("md"), &going)));
        all.push(machine("x1", &labelled("other")));
        all
    };
    let deployment = workers("md", "a", &json!({}));
    let context = context(vec![deployment.clone()], vec![], &crowd(), machines());
    let md = Key::Deployment(key("md"));
    let first = seen(&context, &md).unwrap();
    assert_eq!(first.hosts, Ok(Hosts { taken: 4, free: 2, unready: 3 }));
    assert_eq!((first.replicas, first.version.as_str(), first.contested), (3, "7", None));
    // A machine that may have only what is kept for it takes no other, ready or not: none of those holds replicas up.
    let mut strict = self::context(vec![deployment], vec![], &crowd(), machines());
    strict.policy = Policy { strict_reuse: true, ..strict.policy };
    let hosts = seen(&strict, &md).unwrap().hosts;
    assert_eq!(hosts, Ok(Hosts { taken: 4, free: 1, unready: 0 }));
}

#[tokio::test]
async fn a_set_that_no_deployment_owns_follows_hosts_and_one_of_a_deployment_does_not() {
    let owned = |kind: &str| {
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "md", "uid": "md-uid"},
        ]}})
    };
    let sets = vec![
        workers("own", "a", &owned("Cluster")),
        workers("md", "a", &owned("MachineDeployment")),
    ];
    // One of a deployment that has the name of the set.
    let of_deployment = machine("m1", &json!({"labels": {names::capi::DEPLOYMENT_NAME: "own"}}));
    let reference = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "own", "uid": "own-uid"});
    let of_set = machine("m2", &json!({"ownerReferences": [reference]}));
    let context = context(vec![], sets, &crowd(), vec![of_deployment, of_set]);
    let seen_of = |name: &str| seen(&context, &Key::Set(key(name)));
    assert!(seen_of("md").is_none());
    assert_eq!(seen_of("own").unwrap().hosts, Ok(Hosts { taken: 1, free: 1, unready: 3 }));
}

#[tokio::test]
async fn what_keeps_replicas_as_they_are_is_seen() {
    let note = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let asks = |text: &str| note(names::ferrite::SCALE_TO_HOSTS, text);
    let seen_with = |template: &str, more: &Value| {
        let context = context(vec![workers("md", template, more)], vec![], &crowd(), vec![]);
        seen(&context, &Key::Deployment(key("md"))).unwrap()
    };
    let plain = seen_with("a", &json!({}));
    assert!(!plain.is_halted && plain.scaled_by.is_none() && plain.bounds.is_ok());
    for more in [
        note(names::capi::PAUSED, ""),
        json!({"spec": {"paused": true}}),
        json!({"spec": {"clusterName": "nobody"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ] {
        assert!(seen_with("a", &more).is_halted, "{more}");
    }
    let in_topology = json!({"metadata": {"labels": {capi::TOPOLOGY_OWNED: ""}}});
    for (more, wanted) in [
        (note(capi::AUTOSCALER_MIN_SIZE, "1"), Some(capi::AUTOSCALER_MIN_SIZE)),
        (note(capi::AUTOSCALER_MAX_SIZE, "1"), Some(capi::AUTOSCALER_MAX_SIZE)),
        (note(capi::REPLICAS_MANAGED_BY, ""), Some(capi::REPLICAS_MANAGED_BY)),
        (note(capi::REPLICAS_MANAGED_BY, "false"), None),
        (in_topology, Some(capi::TOPOLOGY_OWNED)),
    ] {
        assert_eq!(seen_with("a", &more).scaled_by, wanted, "{more}");
    }
    assert!(seen_with("a", &asks("min=2")).bounds.is_err());
    let missing = seen_with("misspelt", &json!({})).hosts.unwrap_err();
    assert!(missing.contains("Metal3MachineTemplate misspelt does not exist"), "{missing}");
}

#[tokio::test]
async fn two_that_count_the_same_free_host_name_each_other() {
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let invalid = json!({"metadata": {"annotations": {names::ferrite::SCALE_TO_HOSTS: "max=1"}}});
    let contested = |template: &str, more: &Value| {
        let all = vec![workers("one", "a", &json!({})), workers("two", template, more)];
        let context = context(all, vec![], &crowd(), vec![]);
        let of = |name: &str| seen(&context, &Key::Deployment(key(name))).unwrap().contested;
        ["one", "two"].map(|it| of(it).map(|(host, other)| (host, other.name)))
    };
    let with = |other: &str| Some(("free".to_owned(), other.to_owned()));
    assert_eq!(contested("a", &json!({})), [with("two"), with("one")]);
    assert_eq!(contested("b", &json!({})), [None, None]);
    // Nobody who asks for nothing takes a host.
    for more in [going, invalid] {
        assert_eq!(contested("a", &more)[0], None, "{more}");
    }
}

//! When the version of a pool's spec changes, and what counts as the present one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use api_types::hive::ClusterPoolSpec;
use clusterpool_inventory::pool_version::{has_inventory, is_hives, pool_version};
use proptest::prelude::*;
use serde_json::{Value, json};

fn spec(value: Value) -> ClusterPoolSpec {
    serde_json::from_value(value).unwrap()
}

fn aws() -> Value {
    json!({
        "platform": {"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"}},
        "baseDomain": "test-domain",
        "imageSetRef": {"name": "test-image-set"},
        "size": 3,
    })
}

fn with(mut base: Value, key: &str, value: Value) -> Value {
    base[key] = value;
    base
}

fn own(value: Value) -> String {
    pool_version(&spec(value)).own
}

fn entries(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

fn object(names: &[&str]) -> Value {
    json!({"ClusterDeploymentCustomizations": entries(names)})
}

#[test]
fn another_specs_value_is_not_accepted() {
    let version = pool_version(&spec(aws()));
    let other = pool_version(&spec(with(aws(), "baseDomain", json!("other"))));
    assert!(version.accepts(&version.own) && !version.accepts(&other.own));
    assert!(!version.accepts(""));
}

#[test]
fn what_was_noted_of_hive_stands_for_the_spec_that_it_was_noted_with() {
    let tagged = |tag: &str| {
        let cloud = json!({"aws": {"userTags": {"a": tag}}});
        pool_version(&spec(with(aws(), "platform", cloud)))
    };
    let (mut version, mut other) = (tagged("b"), tagged("c"));
    let hives = "0123456789abcdef";
    assert!(is_hives(hives) && !version.accepts(hives));
    version.noted = Some(version.note(hives));
    other.noted.clone_from(&version.noted);
    assert!(version.accepts(hives) && !version.accepts("fedcba9876543210"));
    assert!(!other.accepts(hives) && other.accepts(&other.own));
    version.noted = Some(version.note(""));
    assert!(!version.accepts(hives) && !version.accepts("") && version.accepts(&version.own));
    for none in ["", "0123456789ABCDEF", "0123456789abcdef0", &version.own] {
        assert!(!is_hives(none), "{none}");
    }
}

#[test]
fn our_value_is_the_same_for_ever() {
    // A change here makes every cluster of every pool stale: it must be wanted.
    assert_eq!(own(aws()), "r1-a7d9a288ea3aa9dc");
    assert_eq!(own(with(aws(), "inventory", object(&["a"]))), "r1-9deb4263abc2a593");
}

#[test]
fn what_makes_a_cluster_what_it_is_changes_the_version() {
    let changes = [
        ("baseDomain", json!("other")),
        ("imageSetRef", json!({"name": "other"})),
        ("installConfigSecretTemplateRef", json!({"name": "template"})),
        ("customizationRef", json!({"name": "customization"})),
        ("platform", json!({"none": {}})),
        (
            "platform",
            json!({"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "2"}}),
        ),
        ("inventory", object(&["a"])),
    ];
    let mut seen = vec![own(aws())];
    for (key, value) in changes {
        let version = own(with(aws(), key, value));
        assert!(!seen.contains(&version), "{key}");
        seen.push(version);
    }
    assert_ne!(
        own(with(aws(), "platform", json!({}))),
        own(with(aws(), "platform", json!({"none": {}})))
    );
}

#[test]
fn what_does_not_make_a_cluster_leaves_the_version() {
    let changes = [
        ("size", json!(5)),
        ("maxSize", json!(5)),
        ("runningCount", json!(1)),
        ("labels", json!({"a": "b"})),
        ("pullSecretRef", json!({"name": "pull"})),
        ("installAttemptsLimit", json!(2)),
        ("skipMachinePools", json!(true)),
        ("aFieldOfALaterRelease", json!("x")),
    ];
    for (key, value) in changes {
        assert_eq!(own(with(aws(), key, value)), own(aws()), "{key}");
    }
}

#[test]
fn editing_an_inventory_leaves_the_version_and_having_one_does_not() {
    let of = |inventory| own(with(aws(), "inventory", inventory));
    let version = of(object(&["a"]));
    assert_ne!(version, own(aws()));
    let lower = json!({"clusterDeploymentCustomizations": entries(&["x"])});
    for other in [object(&["a", "b"]), object(&["c"]), entries(&["a"]), lower] {
        assert_eq!(of(other), version);
    }
    for none in [Value::Null, json!([]), json!({}), object(&[])] {
        assert_eq!(of(none.clone()), own(aws()), "{none}");
        assert!(!has_inventory(&spec(with(aws(), "inventory", none))));
    }
}

#[test]
fn fields_left_out_and_fields_with_their_zero_are_the_same() {
    let mut other = aws();
    other["platform"]["aws"]["userTags"] = json!({});
    other["platform"]["aws"]["privateLink"] = json!({"enabled": false});
    other["platform"]["aws"]["credentialsAssumeRole"] = Value::Null;
    other["platform"]["gcp"] = Value::Null;
    other["installConfigSecretTemplateRef"] = json!({"name": ""});
    assert_eq!(own(other), own(aws()));
}

fn any_platform() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The one half of it that lists what says nothing, the other half that leaves it out.
    #[test]
    fn another_serialisation_has_the_same_version(inside in any_platform(), shape in 0..4) {
        let pool = with(aws(), "platform", json!({"openstack": {"x": inside}}));
        let text = match shape {
            0 => serde_json::to_string_pretty(&pool).unwrap(),
            1 => serde_json::to_string(&spec(pool.clone())).unwrap(),
            2 => {
                let mut more = pool.clone();
                more["platform"]["openstack"]["empty"] = json!({"a": [], "b": {"c": null}});
                more.to_string()
            }
            _ => pool.to_string().replacen("{\"aws\"", "{ \"aws\"", 1),
        };
        prop_assert_eq!(own(serde_json::from_str(&text).unwrap()), own(pool));
    }

    #[test]
    fn no_spec_makes_it_panic(platform in any_platform()) {
        let pool = with(aws(), "platform", json!({"vsphere": platform, "nutanix": platform}));
        let _ = pool_version(&spec(pool));
    }
}

//! What holds for every list of operations.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use api_types::hive::InstallConfigPatch;
use clusterpool_inventory::patch::{Rules, Target, apply, install_config};
use clusterpool_inventory::yaml;
use proptest::prelude::*;
use serde_json::{Value, json};

fn template() -> Value {
    json!({
        "apiVersion": "v1",
        "metadata": {"name": "x"},
        "platform": {"none": {}},
        "a": {"b": [1, {"c": null}], "": "empty", "~": 0},
    })
}

fn pointer() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "a", "b", "0", "1", "2", "-", "-1", "01", "c", "", "~0", "~1", "~", "~2", "metadata",
        "name", "platform", "é",
    ]);
    let tokens = prop::collection::vec(token, 0..4);
    (tokens, any::<bool>()).prop_map(|(tokens, slash)| {
        let path = tokens.join("/");
        if slash { format!("/{path}") } else { path }
    })
}

fn operation() -> impl Strategy<Value = InstallConfigPatch> {
    let name =
        prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "no", ""]);
    let json =
        prop::sample::select(vec!["1", "1.0", "null", "{\"c\":[1]}", "[[]]", "{", "", "\"x\""]);
    (
        name,
        pointer(),
        prop::option::of(pointer()),
        prop::option::of(any::<String>()),
        prop::option::of(json),
    )
        .prop_map(|(op, path, from, value, json)| InstallConfigPatch {
            op: op.to_owned(),
            path,
            from,
            value,
            value_json: json.map(str::to_owned),
            ..Default::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_operations_panic_and_all_are_applied_or_none(
        operations in prop::collection::vec(operation(), 0..8),
        strict_pointers in any::<bool>(),
        lenient_replace in any::<bool>(),
    ) {
        let before = template();
        let rules = Rules { strict_pointers, lenient_replace };
        // One after the other, each on the result of the one before, ends the same: applied up to
        // the first that is refused, and then nothing is left of any.
        let mut step_by_step = Some(before.clone());
        for operation in &operations {
            step_by_step = step_by_step
                .and_then(|it| apply(&it, std::slice::from_ref(operation), rules).ok())
                .map(|(it, _)| it);
        }
        let together = apply(&before, &operations, rules).ok().map(|(it, _)| it);
        prop_assert_eq!(together, step_by_step);
        prop_assert_eq!(&before, &template());
    }

    #[test]
    fn what_can_be_installed_has_all_it_needs_and_reads_the_same_as_yaml(
        operations in prop::collection::vec(operation(), 0..4),
    ) {
        let target = Target { cluster: "name", base_domain: "example.com", platform: None };
        let made = install_config(&template(), target, &operations, Rules::default());
        if let Ok(made) = made {
            let value = yaml::read(&made.text).unwrap();
            prop_assert_eq!(&value["metadata"]["name"], &json!(made.name));
            prop_assert!(value["apiVersion"].is_string() && value["baseDomain"].is_string());
            prop_assert!(value["platform"].get("none").is_some());
        }
    }
}

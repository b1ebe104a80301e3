//! What a machine must say before it gets a host.

use super::*;

#[test]
fn an_image_needs_a_checksum_but_where_nothing_is_to_be_checked() {
    for (image, refused) in [
        (json!({"url": "http://a/b", "checksum": "c"}), false),
        (json!({"url": "http://a/b"}), true),
        (json!({"url": "http://a/b", "checksum": ""}), true),
        (json!({"url": "http://a/b", "diskFormat": "live-iso"}), false),
        (json!({"url": "http://a/b", "format": "live-iso"}), false),
        (json!({"url": "oci://a/b"}), false),
        (json!({"url": "oci://a/b", "checksum": "c"}), false),
        (json!({"url": "nowhere"}), true),
    ] {
        let mut seen = seen();
        seen.machine.spec.image = Some(serde_json::from_value(image.clone()).unwrap());
        let is_refused = decided(&seen).reason == Reason::ImageInvalid;
        assert_eq!(is_refused, refused, "{image}");
    }
    let mut seen = seen();
    seen.machine.spec.image = None;
    seen.machine.spec.custom_deploy =
        Some(serde_json::from_value(json!({"method": "mine"})).unwrap());
    assert_eq!(decided(&seen).reason, Reason::NoHostAvailable);
}

#[test]
fn a_host_is_looked_for_only_where_nothing_else_is_known_to_be_lacking() {
    assert!(looks_for_host(&seen()));
    let changes: [Change; 7] = [
        |it| it.machine.spec.image = None,
        |it| it.data = Data::Unserved,
        |it| it.parent = Parent::None,
        |it| it.cluster = None,
        |it| annotate(&mut it.machine, names::capi::PAUSED, ""),
        |it| it.machine.spec.provider_id = Some("metal3://ns/h/m".to_owned()),
        |it| *it = having(&with(&host("h", "available"), &consumer("m", "m-uid"))),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut seen = seen();
        change(&mut seen);
        assert!(!looks_for_host(&seen), "{number}");
    }
}

#[test]
fn secrets_of_another_namespace_are_refused() {
    let foreign = NamedRef { namespace: Some("other".to_owned()), ..NamedRef::default() };
    let mut seen = seen();
    seen.machine.spec.network_data = Some(foreign);
    let decision = decided(&seen);
    assert_eq!(decision.reason, Reason::ForeignNamespace);
    assert!(decision.message().contains("spec.networkData.namespace"), "{}", decision.message());
    let mut seen = self::seen();
    let template = ObjectRef { namespace: Some("other".to_owned()), ..ObjectRef::default() };
    seen.machine.spec.data_template = Some(template);
    assert_eq!(decided(&seen).reason, Reason::ForeignNamespace);
}

#[test]
fn secrets_that_a_machine_names_itself_are_looked_for_unless_others_are_rendered_in_their_place() {
    let named = |name: &str| Some(NamedRef { name: Some(name.to_owned()), ..NamedRef::default() });
    let mut seen = seen();
    let boot = ("userData", "boot".to_owned());
    assert_eq!(seen.own_secrets(), std::slice::from_ref(&boot));
    seen.machine.spec.meta_data = named("facts");
    seen.machine.spec.network_data = named("network");
    let (facts, network) =
        (("metaData", "facts".to_owned()), ("networkData", "network".to_owned()));
    let rendered = Data::Rendered {
        name: "facts-0".to_owned(),
        meta_data: Some("m-facts".to_owned()),
        network_data: None,
    };
    for (data, looked_for) in [
        (Data::NotWanted, vec![boot.clone(), facts, network.clone()]),
        (Data::NotAskedFor, vec![boot.clone()]),
        (Data::Awaited, vec![boot.clone()]),
        (rendered, vec![boot.clone(), network.clone()]),
    ] {
        seen.data = data;
        assert_eq!(seen.own_secrets(), looked_for, "{:?}", seen.data);
    }
    assert_eq!(seen.secrets(), [boot, ("metaData", "m-facts".to_owned()), network]);
    seen.missing = Some(("networkData", "network".to_owned()));
    let decision = decided(&seen);
    assert_eq!(decision.reason, Reason::SecretMissing);
    assert!(decision.message().contains("Secret network, which spec.networkData"));
    assert!(decision.again().is_some());
}

#[test]
fn an_image_beside_a_method_of_somebody_elses_is_written_as_well() {
    let installed = |image: &Value, method: Option<&str>| {
        let mut seen = seen();
        seen.machine.spec.image = serde_json::from_value(image.clone()).unwrap();
        seen.machine.spec.custom_deploy =
            method.map(|it| serde_json::from_value(json!({ "method": it })).unwrap());
        let fields = super::installed(&seen, &host("h", "available"));
        (fields.contains_key("customDeploy"), fields.contains_key("image"))
    };
    let image = json!({"url": "http://i/i", "checksum": "abc"});
    assert_eq!(installed(&image, Some("mine")), (true, true));
    assert_eq!(installed(&image, None), (false, true));
    assert_eq!(installed(&json!({"url": ""}), Some("mine")), (true, false));
    assert_eq!(installed(&Value::Null, Some("mine")), (true, false));
}

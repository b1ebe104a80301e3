//! The cases of patching an install config, one by one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::format_push_string,
    reason = "a test that cannot go on panics"
)]

use api_types::hive::InstallConfigPatch;
use clusterpool_inventory::patch::{Note, Refusal, Rules, Target, Why, apply, install_config};
use serde_json::{Value, json};

fn config() -> Value {
    json!({
        "apiVersion": "v1",
        "baseDomain": "example.com",
        "metadata": {"name": "generated"},
        "platform": {"openstack": {"cloud": "a", "externalNetwork": "public"}},
        "compute": [{"name": "worker", "replicas": 3}],
        "controlPlane": {"replicas": 3, "hyperthreading": null},
        "a/b": {"m~n": 1, "~1": 2},
    })
}

fn op(op: &str, path: &str) -> InstallConfigPatch {
    InstallConfigPatch { op: op.to_owned(), path: path.to_owned(), ..Default::default() }
}

fn value(op_name: &str, path: &str, text: &str) -> InstallConfigPatch {
    InstallConfigPatch { value: Some(text.to_owned()), ..op(op_name, path) }
}

fn raw(op_name: &str, path: &str, text: &str) -> InstallConfigPatch {
    InstallConfigPatch { value_json: Some(text.to_owned()), ..op(op_name, path) }
}

fn from(op_name: &str, source: &str, path: &str) -> InstallConfigPatch {
    InstallConfigPatch { from: Some(source.to_owned()), ..op(op_name, path) }
}

const STRICT: Rules = Rules { strict_pointers: true, lenient_replace: false };
const LENIENT: Rules = Rules { strict_pointers: false, lenient_replace: true };

fn done(patches: &[InstallConfigPatch], pointer: &str) -> Value {
    let (result, _) = apply(&config(), patches, Rules::default()).unwrap();
    result.pointer(pointer).cloned().unwrap_or_else(|| panic!("nothing at {pointer}"))
}

fn why_with(patches: &[InstallConfigPatch], rules: Rules) -> Why {
    match apply(&config(), patches, rules) {
        Err(Refusal::Operation { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn why(patch: InstallConfigPatch) -> Why {
    why_with(&[patch], Rules::default())
}

#[test]
fn a_path_without_a_slash_is_read_with_one_and_reported() {
    let patches = [value("replace", "metadata/name", "foo")];
    let (result, notes) = apply(&config(), &patches, Rules::default()).unwrap();
    assert_eq!(result["metadata"]["name"], "foo");
    assert_eq!(result.get("name"), None);
    assert_eq!(notes, [Note::SlashAdded { operation: 0, path: "metadata/name".to_owned() }]);
    assert!(notes[0].to_string().contains("\"/metadata/name\""));
}

#[test]
fn every_op_reads_a_path_without_a_slash() {
    assert_eq!(done(&[value("add", "metadata/name", "x")], "/metadata/name"), "x");
    done(&[value("test", "metadata/name", "generated")], "/metadata");
    let (result, _) = apply(&config(), &[op("remove", "metadata/name")], Rules::default()).unwrap();
    assert_eq!(result["metadata"], json!({}));
    assert_eq!(done(&[value("replace", "baseDomain", "b.org")], "/baseDomain"), "b.org");
    let moved = [from("copy", "metadata/name", "copied")];
    let (result, notes) = apply(&config(), &moved, Rules::default()).unwrap();
    assert_eq!(result["copied"], "generated");
    assert_eq!(notes.len(), 2);
}

#[test]
fn strict_pointers_refuse_a_path_without_a_slash_in_both_places() {
    for patch in [value("replace", "metadata/name", "x"), from("copy", "metadata/name", "/x")] {
        let why = why_with(&[patch], STRICT);
        assert_eq!(why, Why::NoSlash("metadata/name".to_owned()));
        assert!(why.to_string().contains("write \"/metadata/name\""));
    }
}

#[test]
fn replace_of_a_missing_key_is_refused_with_a_hint() {
    let why = why(value("replace", "/platform/openstack/apiFloatingIP", "192.0.2.1"));
    assert_eq!(why, Why::NothingThere(true));
    assert!(why.to_string().contains("use op add"));
}

#[test]
fn lenient_replace_adds_a_missing_key_and_says_which_patch_relied_on_it() {
    let path = "/platform/openstack/apiFloatingIP";
    let patches =
        [value("test", "/baseDomain", "example.com"), value("replace", path, "192.0.2.1")];
    let (result, notes) = apply(&config(), &patches, LENIENT).unwrap();
    assert_eq!(result.pointer(path).unwrap(), "192.0.2.1");
    assert_eq!(notes, [Note::ReplacedMissing { operation: 1, path: path.to_owned() }]);
}

#[test]
fn lenient_replace_reports_nothing_where_the_key_was_there() {
    let (_, notes) = apply(&config(), &[value("replace", "/baseDomain", "x")], LENIENT).unwrap();
    assert_eq!(notes, []);
}

#[test]
fn lenient_replace_neither_makes_parents_nor_stretches_lists() {
    for path in ["/none/leaf", "/compute/1", "/compute/-"] {
        let why = why_with(&[value("replace", path, "x")], LENIENT);
        assert_eq!(why, Why::NothingThere(false), "{path}");
    }
}

#[test]
fn a_missing_parent_is_refused() {
    for name in ["add", "replace"] {
        assert_eq!(why(value(name, "/none/leaf", "x")), Why::NothingThere(false));
    }
}

#[test]
fn removing_what_is_missing_is_refused() {
    assert_eq!(why(op("remove", "/none")), Why::NothingThere(false));
    assert_eq!(why(op("remove", "/compute/1")), Why::NothingThere(false));
    assert_eq!(why(op("remove", "/compute/-")), Why::NothingThere(false));
}

#[test]
fn a_failed_test_leaves_everything_as_it_was() {
    let before = config();
    let patches = [value("replace", "/baseDomain", "x"), value("test", "/metadata/name", "no")];
    let refused = apply(&before, &patches, Rules::default()).unwrap_err();
    assert!(matches!(&refused, Refusal::Operation { operation: 1, why: Why::TestFailed, .. }));
    assert_eq!(before, config());
    assert!(refused.to_string().starts_with("operation 1 (test \"/metadata/name\")"), "{refused}");
}

#[test]
fn a_number_is_not_its_text() {
    assert_eq!(why(value("test", "/controlPlane/replicas", "3")), Why::TestFailed);
}

#[test]
fn numbers_are_compared_by_value() {
    done(&[raw("test", "/controlPlane/replicas", "3.0")], "");
    done(&[raw("test", "/compute", r#"[{"replicas": 3.0e0, "name": "worker"}]"#)], "");
    assert_eq!(why(raw("test", "/controlPlane/replicas", "3.1")), Why::TestFailed);
    let big = [raw("add", "/n", "9007199254740993"), raw("test", "/n", "9007199254740992")];
    assert_eq!(why_with(&big, Rules::default()), Why::TestFailed);
}

#[test]
fn value_is_text_and_a_change_of_type_is_reported() {
    let patches = [value("replace", "/controlPlane/replicas", "5")];
    let (result, notes) = apply(&config(), &patches, Rules::default()).unwrap();
    assert_eq!(result["controlPlane"]["replicas"], "5");
    let path = "/controlPlane/replicas".to_owned();
    assert_eq!(notes, [Note::BecameText { operation: 0, path }]);
    let (result, notes) =
        apply(&config(), &[raw("replace", "/controlPlane/replicas", "5")], STRICT).unwrap();
    assert_eq!(result["controlPlane"]["replicas"], 5);
    assert_eq!(notes, []);
    // Whichever way it is written, and whatever it was.
    for (name, path, noted) in [
        ("add", "/controlPlane/replicas", true),
        ("add", "/compute", true),
        ("replace", "/compute", true),
        ("replace", "/metadata", true),
        ("add", "/baseDomain", false),
        ("add", "/new", false),
        ("add", "/compute/0", false),
    ] {
        let (_, notes) = apply(&config(), &[value(name, path, "5")], STRICT).unwrap();
        let note = Note::BecameText { operation: 0, path: path.to_owned() };
        assert_eq!(notes, Vec::from_iter(noted.then_some(note)), "{name} {path}");
    }
    let nothing = raw("replace", "/metadata/name", "null");
    let (_, notes) =
        apply(&config(), &[nothing, value("add", "/metadata/name", "x")], STRICT).unwrap();
    assert_eq!(notes, []);
}

#[test]
fn value_json_takes_precedence_unless_it_is_empty() {
    let both = InstallConfigPatch { value: Some("text".to_owned()), ..raw("add", "/x", "[1]") };
    assert_eq!(done(std::slice::from_ref(&both), "/x"), json!([1]));
    let empty = InstallConfigPatch { value_json: Some(String::new()), ..both };
    assert_eq!(done(&[empty], "/x"), "text");
}

#[test]
fn a_missing_value_is_refused_and_an_empty_one_is_not() {
    for name in ["add", "replace", "test"] {
        assert_eq!(why(op(name, "/baseDomain")), Why::NoValue);
    }
    assert_eq!(done(&[value("add", "/x", "")], "/x"), "");
    assert_eq!(done(&[raw("add", "/x", "null")], "/x"), Value::Null);
}

#[test]
fn value_json_that_is_not_json_is_refused() {
    assert!(matches!(why(raw("add", "/x", "{")), Why::ValueJson(_)));
    assert!(matches!(why(raw("add", "/x", "yes")), Why::ValueJson(_)));
}

#[test]
fn control_characters_in_a_value_are_kept() {
    assert_eq!(done(&[value("add", "/x", "\u{7}\u{7f}\n")], "/x"), "\u{7}\u{7f}\n");
}

#[test]
fn a_dash_appends_for_add_and_is_refused_for_replace() {
    assert_eq!(done(&[value("add", "/compute/-", "x")], "/compute/1"), "x");
    assert_eq!(done(&[value("add", "/compute/1", "x")], "/compute/1"), "x");
    assert_eq!(done(&[value("add", "/compute/0", "x")], "/compute/1/name"), "worker");
    assert_eq!(why(value("replace", "/compute/-", "x")), Why::NothingThere(false));
    assert_eq!(why(value("test", "/compute/-", "x")), Why::NothingThere(false));
}

#[test]
fn an_index_must_be_in_range_and_plain() {
    for index in ["2", "-1", "00", "01", "+0", "0x0", "1e0", " 0", "name"] {
        for name in ["add", "replace"] {
            let path = format!("/compute/{index}");
            assert_eq!(why(value(name, &path, "x")), Why::NothingThere(false), "{name} {path}");
        }
    }
}

#[test]
fn operations_on_the_whole_document_are_refused() {
    for name in ["add", "replace", "test"] {
        assert_eq!(why(raw(name, "", "{}")), Why::WholeDocument);
    }
    assert_eq!(why(op("remove", "")), Why::WholeDocument);
    for name in ["move", "copy"] {
        assert_eq!(why(from(name, "", "/x")), Why::WholeDocument);
        assert_eq!(why(from(name, "/metadata", "")), Why::WholeDocument);
    }
}

#[test]
fn a_slash_alone_is_the_key_without_a_name() {
    let (result, notes) = apply(&config(), &[value("add", "/", "x")], STRICT).unwrap();
    assert_eq!(result[""], "x");
    assert_eq!(notes, []);
}

#[test]
fn escapes_are_decoded_in_the_right_order() {
    assert_eq!(done(&[raw("replace", "/a~1b/m~0n", "7")], "/a~1b/m~0n"), 7);
    assert_eq!(done(&[raw("replace", "/a~1b/~01", "7")], "/a~1b/~01"), 7);
}

#[test]
fn an_unknown_escape_is_refused() {
    for path in ["/a~2b", "/a~", "~2"] {
        assert!(matches!(why(value("add", path, "x")), Why::Pointer(_)), "{path}");
    }
}

#[test]
fn copying_or_moving_what_is_missing_is_refused() {
    for name in ["copy", "move"] {
        assert_eq!(why(from(name, "/none", "/x")), Why::NothingFrom);
        assert_eq!(why(op(name, "/x")), Why::NoFrom);
    }
}

#[test]
fn moving_into_itself_is_refused_and_beside_itself_is_not() {
    assert_eq!(why(from("move", "/metadata", "/metadata/name")), Why::IntoItself);
    assert_eq!(done(&[from("move", "/metadata", "/metadatax")], "/metadatax/name"), "generated");
    assert_eq!(done(&[from("move", "/metadata", "/metadata")], "/metadata/name"), "generated");
}

#[test]
fn copy_leaves_the_source_and_move_does_not() {
    let copied = apply(&config(), &[from("copy", "/compute/0", "/x")], STRICT).unwrap().0;
    assert_eq!(copied["x"], copied["compute"][0]);
    let moved = apply(&config(), &[from("move", "/compute/0", "/x")], STRICT).unwrap().0;
    assert_eq!(moved["x"]["name"], "worker");
    assert_eq!(moved["compute"], json!([]));
}

#[test]
fn nothing_is_added_under_a_scalar_or_null() {
    assert_eq!(why(value("add", "/baseDomain/x", "y")), Why::NothingThere(false));
    assert_eq!(why(value("add", "/controlPlane/hyperthreading/x", "y")), Why::NothingThere(false));
}

#[test]
fn an_unknown_op_is_refused() {
    for name in ["", "Add", "merge"] {
        assert_eq!(why(value(name, "/x", "y")), Why::UnknownOp);
    }
}

#[test]
fn what_is_small_as_text_and_large_in_memory_is_refused() {
    let list = |count: usize| format!("[{}{{}}]", "{},".repeat(count));
    assert!(apply(&config(), &[raw("add", "/x", &list(1000))], Rules::default()).is_ok());
    assert_eq!(why(raw("add", "/x", &list(30_000))), Why::TooMuch);
    // Many small ones are as much as one.
    let many = vec![raw("add", "/x", &list(1000)); 30];
    assert_eq!(why_with(&many, Rules::default()), Why::TooMuch);
    assert_eq!(why(raw("add", "/x", &list(100_000))), Why::LongJson);
}

#[test]
fn a_patch_of_more_operations_than_anybody_writes_is_refused() {
    let tests = |count: usize| vec![value("test", "/metadata/name", "generated"); count];
    assert!(apply(&config(), &tests(1000), Rules::default()).is_ok());
    let refused = apply(&config(), &tests(1001), Rules::default()).unwrap_err();
    assert_eq!(refused.to_string(), "it has 1001 operations; keep to 1000");
}

#[test]
fn copies_of_copies_end_before_memory_does() {
    let mut patches = vec![raw("add", "/x", "{\"a\": \"0123456789\"}")];
    patches.extend((0..60).map(|it| from("copy", "/x", &format!("/x/c{it}"))));
    assert_eq!(why_with(&patches, Rules::default()), Why::TooMuch);
    let deep: Vec<_> = std::iter::once(raw("add", "/x", "{}"))
        .chain((0..200).map(|_| from("copy", "/x", "/x/y")))
        .collect();
    assert_eq!(why_with(&deep, Rules::default()), Why::TooMuch);
}

/// Of a pool on any platform.
const TARGET: Target<'_> =
    Target { cluster: "pool-abcde", base_domain: "example.org", platform: None };

fn made(patches: &[InstallConfigPatch]) -> Result<String, Refusal> {
    install_config(&config(), TARGET, patches, STRICT).map(|it| it.name)
}

#[test]
fn a_cluster_has_its_own_name_and_the_pools_domain_unless_they_are_patched() {
    let made = |patches: &[InstallConfigPatch]| {
        install_config(&config(), TARGET, patches, STRICT).unwrap()
    };
    let plain = made(&[]);
    let text: Value = serde_json::from_str(&plain.text).unwrap();
    assert_eq!(
        (&text["metadata"]["name"], &text["baseDomain"]),
        (&json!("pool-abcde"), &json!("example.org"))
    );
    assert_eq!(plain.name, "pool-abcde");
    assert_eq!(made(&[value("replace", "/metadata/name", "foo")]).name, "foo");
}

#[test]
fn a_template_without_metadata_gets_some() {
    for template in [json!({"metadata": null}), json!({})] {
        let mut template = template;
        template["apiVersion"] = json!("v1");
        template["platform"] = json!({"none": {}});
        let made = install_config(&template, TARGET, &[], STRICT).unwrap();
        assert_eq!(made.name, "pool-abcde");
    }
}

#[test]
fn what_an_installation_needs_must_be_kept() {
    let lost = [
        (op("remove", "/apiVersion"), "apiVersion"),
        (raw("replace", "/apiVersion", "1"), "apiVersion"),
        (op("remove", "/metadata"), "metadata.name"),
        (value("replace", "/metadata/name", ""), "metadata.name"),
        (raw("replace", "/metadata", "[]"), "metadata.name"),
        (op("remove", "/baseDomain"), "baseDomain"),
        (op("remove", "/platform"), "platform"),
        (raw("replace", "/platform", "{}"), "platform"),
        (value("replace", "/platform", "openstack"), "platform"),
    ];
    for (patch, field) in lost {
        assert_eq!(made(std::slice::from_ref(&patch)), Err(Refusal::Lacks(field)), "{patch:?}");
    }
    let other = raw("replace", "/platform", r#"{"vsphere": {}}"#);
    assert_eq!(made(&[other]), Err(Refusal::OtherPlatform("openstack".to_owned())));
    // It may never have been there.
    let told = Refusal::Lacks("platform").to_string();
    assert!(told.ends_with("keep it, or add it to the template"), "{told}");
}

#[test]
fn an_install_config_is_for_the_pools_own_platform() {
    let made = |platform: &str, patches: &[InstallConfigPatch]| {
        let target = Target { platform: Some(platform), ..TARGET };
        install_config(&config(), target, patches, STRICT).map(|it| it.name)
    };
    assert_eq!(made("openstack", &[]).as_deref(), Ok("pool-abcde"));
    let wrong = made("vsphere", &[]).unwrap_err();
    assert_eq!(wrong, Refusal::NotForPool("vsphere".to_owned()));
    let told = wrong.to_string();
    assert!(
        told.ends_with("platform.vsphere to the template, or correct spec.platform of the pool")
    );
    // A patch may make it so, and may spoil it.
    let vsphere = raw("replace", "/platform", r#"{"vsphere": {}}"#);
    assert_eq!(made("vsphere", std::slice::from_ref(&vsphere)).as_deref(), Ok("pool-abcde"));
    let spoilt = made("openstack", &[vsphere]);
    assert_eq!(spoilt, Err(Refusal::OtherPlatform("openstack".to_owned())));
    let nothing = raw("add", "/platform/vsphere", "null");
    assert!(made("vsphere", &[nothing]).is_err());
}

#[test]
fn what_does_not_fit_into_a_secret_is_refused() {
    assert_eq!(made(&[value("add", "/x", &"x".repeat(1_000_000))]), Err(Refusal::TooLarge));
}

#[test]
fn the_shapes_of_real_manifests_work() {
    let patches = [
        value("add", "/platform/openstack/apiFloatingIP", "192.0.2.10"),
        value("add", "/platform/openstack/ingressFloatingIP", "192.0.2.11"),
        value("replace", "/platform/openstack/externalNetwork", "net-2"),
        value("replace", "/metadata/name", "ocp-07"),
        value("replace", "/compute/0/name", "large"),
    ];
    let made = install_config(&config(), TARGET, &patches, STRICT).unwrap();
    assert_eq!((made.name.as_str(), made.notes.len()), ("ocp-07", 0));
}

//! Reading install configs as the installer does, and writing them so that it reads the same.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::format_push_string,
    reason = "a test that cannot go on panics"
)]

use clusterpool_inventory::yaml::{ReadError, read, write};
use proptest::prelude::*;
use serde_json::{Value, json};

fn one(text: &str) -> Value {
    read(&format!("k: {text}\n")).unwrap_or_else(|error| panic!("{text}: {error}"))["k"].clone()
}

fn refused(text: &str) -> String {
    read(text).expect_err(text).to_string()
}

#[test]
fn words_for_yes_and_no_are_booleans() {
    for word in ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"] {
        assert_eq!(one(word), true, "{word}");
    }
    for word in ["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"] {
        assert_eq!(one(word), false, "{word}");
    }
    for word in ["yES", "oN", "tRUE", "yess", "nope"] {
        assert_eq!(one(word), word);
    }
}

#[test]
fn quoted_and_block_scalars_are_text() {
    for text in ["'yes'", "\"yes\"", "!!str yes", "! yes", "|-\n  yes", ">-\n  yes"] {
        assert_eq!(one(text), "yes", "{text}");
    }
    assert_eq!(one("'010'"), "010");
    assert_eq!(one("\"\""), "");
}

#[test]
fn numbers_have_the_bases_of_yaml_1_1() {
    let table = [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("010", 8),
        ("-010", -8),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0x1f", -31),
        ("0b101", 5),
        ("1_000", 1000),
        ("0_10", 8),
        ("08", 8),
        ("1.0", 1),
        ("1e3", 1000),
        ("-9223372036854775808", i64::MIN),
    ];
    for (text, number) in table {
        assert_eq!(one(text), json!(number), "{text}");
    }
    assert_eq!(one("18446744073709551615"), json!(u64::MAX));
    assert_eq!(one("18446744073709551616"), json!(18_446_744_073_709_551_616.0));
    assert_eq!(one("1.5"), json!(1.5));
    assert_eq!(one(".5"), json!(0.5));
    assert_eq!(one("-1.5e-3"), json!(-0.0015));
}

#[test]
fn what_only_looks_like_a_number_is_text() {
    let words = [
        "1.2.3",
        "10.0.0.0/16",
        "192.0.2.1",
        "0x",
        "0b2",
        "0o8",
        "1e",
        "+",
        ".",
        "1-2",
        "4.16",
        "2001-12-14",
        "12:30:45",
        "1e999",
        "-+5",
        "--5",
        "fe80::1",
        "5GiB",
    ];
    for word in words {
        let expected = if word == "4.16" { json!(4.16) } else { json!(word) };
        assert_eq!(one(word), expected, "{word}");
    }
}

#[test]
fn nothing_is_null() {
    for text in ["", "~", "null", "Null", "NULL", "!!null null"] {
        assert_eq!(one(text), Value::Null, "{text:?}");
    }
    assert_eq!(one("nULL"), "nULL");
}

#[test]
fn keys_are_resolved_like_values_and_become_text() {
    let keys = read("y: 1\non: 2\n010: 3\n1.5: 4\n'no': 5\n0x10: 6\n").unwrap();
    assert_eq!(keys, json!({"true": 2, "8": 3, "1.5": 4, "no": 5, "16": 6}));
}

#[test]
fn of_a_key_that_stands_twice_the_last_one_counts() {
    assert_eq!(read("a: 1\na: 2\n").unwrap(), json!({"a": 2}));
}

#[test]
fn merge_keys_are_merged_and_what_stands_later_wins() {
    let text = "
base: &base {replicas: 3, name: worker}
more: &more {name: other, arch: arm64}
one:
  <<: *base
  name: mine
list:
  <<: [*base, *more]
inline:
  name: mine
  <<: {name: theirs, x: yes}
";
    let read = read(text).unwrap();
    assert_eq!(read["one"], json!({"replicas": 3, "name": "mine"}));
    assert_eq!(read["list"], json!({"replicas": 3, "name": "worker", "arch": "arm64"}));
    assert_eq!(read["inline"], json!({"name": "theirs", "x": true}));
}

#[test]
fn a_quoted_merge_key_is_a_key() {
    assert_eq!(read("'<<': {a: 1}\n").unwrap(), json!({"<<": {"a": 1}}));
    assert!(refused("<<: 5\n").contains("can only merge mappings"));
}

#[test]
fn aliases_stand_for_what_they_refer_to() {
    assert_eq!(read("a: &x [1, yes]\nb: *x\n").unwrap(), json!({"a": [1, true], "b": [1, true]}));
    assert!(refused("a: &x [*x]\n").contains("inside what it refers to"));
    assert!(matches!(read("a: *none\n"), Err(ReadError::Syntax(_))));
}

#[test]
fn aliases_of_aliases_end_before_memory_does() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        text += &format!("a{level}: &a{level} [{below}]\n");
    }
    assert!(refused(&text).contains("larger than an install config"));
}

#[test]
fn what_is_small_as_text_and_large_in_memory_is_refused() {
    let hosts = |count: usize| format!("hosts: [{}]", "{a: 1}, ".repeat(count));
    assert!(read(&hosts(4000)).is_ok());
    assert!(refused(&hosts(20_000)).contains("larger than an install config"));
    let list = |count: usize| format!("k: [{}]", "a, ".repeat(count));
    assert!(read(&list(50_000)).is_ok());
    assert!(refused(&list(250_000)).contains("larger than an install config"));
    // Each anchor keeps what it stands for beside the document, and each alias of a key is a text of its own.
    let text = "x".repeat(1 << 20);
    assert!(read(&format!("a: [&b {text}]")).is_ok());
    assert!(
        refused(&format!("a: &b [&c [&d [&e {text}]]]")).contains("larger than an install config")
    );
    let keys = |count: usize| {
        let maps = "{*b : 1}, ".repeat(count);
        format!("a: &b {}\nhosts: [{maps}]", "x".repeat(1000))
    };
    assert!(read(&keys(1000)).is_ok());
    assert!(refused(&keys(10_000)).contains("larger than an install config"));
}

#[test]
fn nesting_ends_before_the_stack_does() {
    let deep = |levels: usize| format!("k: {}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(read(&deep(90)).is_ok());
    assert!(refused(&deep(110)).contains("nested more than"));
    assert!(read(&deep(100_000)).is_err());
    let mut aliased = "k0: &k0 [x]\n".to_owned();
    for level in 1..200 {
        aliased += &format!("k{level}: &k{level} [*k{}]\n", level - 1);
    }
    assert!(refused(&aliased).contains("nested more than"));
}

#[test]
fn several_documents_are_refused() {
    assert_eq!(read("a: 1\n---\nb: 2\n"), Err(ReadError::SeveralDocuments));
    assert_eq!(read("---\na: 1\n...\n").unwrap(), json!({"a": 1}));
    // One without content is none.
    for text in ["a: 1\n---\n", "---\n---\na: 1\n", "a: 1\n---\n# no more\n---\n"] {
        assert_eq!(read(text).unwrap(), json!({"a": 1}), "{text}");
    }
}

#[test]
fn a_root_that_is_no_mapping_is_refused() {
    let table = [
        ("", "empty"),
        ("# nothing\n", "empty"),
        ("~", "empty"),
        ("- a\n", "a list"),
        ("text", "a single value"),
    ];
    for (text, what) in table {
        assert_eq!(refused(text), format!("it is not a mapping but {what}"));
    }
}

#[test]
fn text_that_is_not_yaml_is_refused_with_its_place() {
    let said = refused("a: 1\nb: [1\n");
    assert!(said.starts_with("it is not valid YAML: ") && said.contains("line"), "{said}");
    assert!(read("a: \u{0}\n").is_err());
}

#[test]
fn what_json_cannot_hold_is_refused_with_its_line() {
    for text in [".nan", ".inf", "-.INF"] {
        assert_eq!(
            refused(&format!("a: 1\nk: {text}\n")),
            format!("line 2: {text} is not a number that JSON can hold; quote it")
        );
    }
    assert!(refused("k: !!binary aGk=\n").contains("binary data"));
    // It may be a password, and what is told is for more eyes than the template.
    assert_eq!(refused("k: !!int secret\n"), "line 1: a value is not what its tag says");
    assert!(refused("k: !!omap [a: 1]\n").contains("!!omap has no place"));
    assert!(refused("[a]: 1\n").contains("a key must be text"));
    assert!(refused("~: 1\n").contains("must not be null"));
}

#[test]
fn an_unknown_tag_is_dropped() {
    assert_eq!(one("!mine text"), "text");
    assert_eq!(one("!mine {a: yes}"), json!({"a": true}));
}

#[test]
fn the_bom_and_windows_line_ends_do_no_harm() {
    assert_eq!(read("\u{feff}a: yes\r\nb: x\r\n").unwrap(), json!({"a": true, "b": "x"}));
}

#[test]
fn characters_beyond_the_bmp_stand_as_themselves() {
    assert_eq!(write(&json!("\u{1f600}")), "\"\u{1f600}\"");
}

#[test]
fn what_yaml_1_1_forbids_or_folds_is_escaped() {
    let text =
        "\u{0}\u{7}\u{1f}\u{7f}\u{80}\u{85}\u{9f}\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}\t\n\"\\";
    let written = write(&json!(text));
    assert!(written.is_ascii() && !written.chars().any(char::is_control), "{written}");
    assert!(written.contains("\\u007f") && written.contains("\\u0085"));
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), text);
}

#[test]
fn text_that_looks_like_something_else_stays_text() {
    for text in ["yes", "010", "null", "1e3", "<<", "2001-12-14"] {
        let written = write(&json!({"k": text, text: "v"}));
        assert_eq!(read(&written).unwrap(), json!({"k": text, text: "v"}));
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300).prop_map(|it: f64| Value::from(it + 0.5)),
        any::<String>().prop_map(Value::from),
        "[\\PC\\x00-\\x1f\\x7f-\\u{a0}\\u{2028}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= a.abs() * 1e-15
}

fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        // serde_json reads the last digit of a float as it likes.
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.is_f64() && near(a.as_f64().unwrap(), b.as_f64().unwrap())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, it)| b.get(key).is_some_and(|b| alike(it, b)))
        }
        _ => one == other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_as_the_same(value in any_value()) {
        let value = json!({ "k": value });
        let written = write(&value);
        prop_assert!(alike(&read(&written).unwrap(), &value), "{}", written);
        prop_assert!(alike(&serde_json::from_str(&written).unwrap(), &value), "{}", written);
    }

    #[test]
    fn no_text_makes_reading_panic(text in any::<String>()) {
        let _ = read(&text);
    }

    #[test]
    fn nothing_that_looks_like_yaml_makes_reading_panic(
        text in "([ \\n:\\-?\\[\\]{},&*a!<|>'\"%#~]|<<: |- |a: |&a |\\*a |!!int |---\\n|010|yes){0,30}",
    ) {
        if let Ok(value) = read(&text) {
            prop_assert!(!write(&value).is_empty());
        }
    }
}

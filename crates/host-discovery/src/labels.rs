//! Labels of new hosts: what an administrator fixed, and what the hardware says.

use api_types::name::is_name;
use controller_kit::config::is_label_value;

use crate::naming::digits_of;

/// Characters that the value of a label may have.
const LONGEST: usize = 63;

/// A text as the value of a label: a hyphen for each run of characters that cannot stand there.
/// None if nothing is left.
pub fn value_of(text: &str) -> Option<String> {
    let mut value = String::new();
    for c in text.chars() {
        if value.len() >= LONGEST {
            break;
        }
        if c.is_ascii_alphanumeric() || (matches!(c, '_' | '.' | '-') && !value.is_empty()) {
            value.push(c);
        } else if !value.is_empty() && !value.ends_with('-') {
            value.push('-');
        }
    }
    value.truncate(value.trim_end_matches(['_', '.', '-']).len());
    (!value.is_empty()).then_some(value)
}

/// The same where two texts must not have one value: one that is too long ends in eight digits of its hash.
pub fn distinct_value_of(text: &str) -> Option<String> {
    let value = value_of(text)?;
    if text.len() <= LONGEST {
        return Some(value);
    }
    let digits = digits_of(text);
    let kept = value.get(..LONGEST - "-".len() - digits.len()).unwrap_or(&value);
    Some(format!("{}-{digits}", kept.trim_end_matches(['_', '.', '-'])))
}

/// Whether a text can be the value of a label.
pub fn is_value(text: &str) -> bool {
    text.is_empty() || is_label_value(text)
}

/// Whether a text can be the key of a label.
pub fn is_key(text: &str) -> bool {
    let prefixed = text.split_once('/');
    let name = prefixed.map_or(text, |(_, name)| name);
    is_label_value(name) && prefixed.is_none_or(|(prefix, _)| is_name(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hardware_texts_become_values_that_a_person_recognises() {
        for (text, value) in [
            ("Dell Inc.", Some("Dell-Inc")),
            ("PowerEdge R640", Some("PowerEdge-R640")),
            (
                "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz",
                Some("Intel-R-Xeon-R-Gold-6230-CPU-2.10GHz"),
            ),
            ("x86_64", Some("x86_64")),
            ("52:54:00:aa:bb:01", Some("52-54-00-aa-bb-01")),
            ("  ..", None),
            ("超微", None),
            ("", None),
        ] {
            assert_eq!(value_of(text).as_deref(), value, "{text}");
        }
        assert_eq!(value_of(&"ab".repeat(40)), Some("ab".repeat(40)[..63].to_owned()));
    }

    #[test]
    fn two_names_of_one_beginning_have_two_values() {
        let name = |end: &str| format!("{}.{end}", "v".repeat(100));
        let [first, second] = ["1", "2"].map(|end| distinct_value_of(&name(end)).unwrap());
        assert_ne!(first, second);
        for value in [&first, &second] {
            assert!(value.len() == 63 && is_value(value), "{value}");
        }
        assert_eq!(distinct_value_of("racks").as_deref(), Some("racks"));
        assert_eq!(distinct_value_of(&"v".repeat(63)), Some("v".repeat(63)));
    }

    #[test]
    fn keys_that_the_api_server_refuses_are_refused() {
        for key in ["a", "example.com/A_b.c", "feature.node.kubernetes.io/x"] {
            assert!(is_key(key), "{key}");
        }
        for key in
            ["", "a/", "/a", "a/b/c", "-a", "a b", "Example.com/a", "a..b/c", &"a".repeat(64)]
        {
            assert!(!is_key(key), "{key}");
        }
        assert!(is_value(""));
        for value in ["-a", "a b", "ä", &"a".repeat(64)] {
            assert!(!is_value(value), "{value}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_hardware_says_is_a_value_or_nothing(text in "\\PC{0,90}|[a-z ._\\x00/-]{0,90}") {
            if let Some(value) = value_of(&text) {
                prop_assert!(is_value(&value), "{:?}", value);
            }
        }
    }
}

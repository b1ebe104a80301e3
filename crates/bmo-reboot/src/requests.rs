//! What the annotations ask for. Only keys and modes matter here: values are never repeated, they may be anything.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use api_types::names::metal3::{REBOOT, is_reboot_hold, is_reboot_request};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A number that tells such values apart.
pub fn number(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// How a host is to be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// By asking its operating system first.
    Soft,
    /// At once.
    Hard,
}

/// One annotation that asks for a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The annotation's key.
    pub key: String,
    /// What its value says.
    pub mode: Mode,
    /// The value's fingerprint when it says nothing that is understood; then it counts as soft.
    pub odd: Option<u64>,
}

impl Request {
    /// Whether it asks for the power to be cut. Hard goes before soft.
    pub fn is_hard(&self) -> bool {
        self.mode == Mode::Hard
    }
}

/// All annotations of a host that ask for a reboot, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests(Vec<Request>);

/// No request.
pub static NOTHING_ASKED: Requests = Requests(Vec::new());

impl Requests {
    /// Picks the requests out of a host's annotations; other keys are passed over.
    pub fn of<'a>(annotations: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let ours = annotations.filter(|(key, _)| is_reboot_request(key));
        let mut requests: Vec<Request> = ours
            .map(|(key, value)| {
                let mode = mode(value);
                let odd = mode.is_none().then(|| number(value));
                Request { key: key.to_owned(), mode: mode.unwrap_or(Mode::Soft), odd }
            })
            .collect();
        requests.sort_by(|a, b| a.key.cmp(&b.key));
        Self(requests)
    }

    /// Whether nobody asks for anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.0.iter()
    }

    /// Those that are not answered yet. `answered`: the mode of a plain request that is.
    #[must_use]
    pub fn without(mut self, answered: Option<Mode>) -> Self {
        self.0.retain(|request| request.key != REBOOT || Some(request.mode) != answered);
        self
    }

    /// Their keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|request| request.key.as_str())
    }

    /// Whether one of them asks for the power to be cut.
    pub fn any_hard(&self) -> bool {
        self.0.iter().any(Request::is_hard)
    }

    /// The mode of the plain request, the one without a key of its own.
    pub fn plain(&self) -> Option<Mode> {
        self.0.iter().find(|request| request.key == REBOOT).map(|request| request.mode)
    }

    /// The requests that hold the host off until their clients remove them.
    pub fn holds(&self) -> impl Iterator<Item = &str> {
        self.keys().filter(|key| is_reboot_hold(key))
    }

    /// A number that is another one where others hold the host, or its node is another one.
    pub fn holders_of(&self, node: &str) -> u64 {
        number((node, self.holds().collect::<Vec<_>>()))
    }

    /// Those whose value is not understood.
    pub fn odd(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().filter_map(|request| Some((request.key.as_str(), request.odd?)))
    }
}

/// The mode that a value asks for; nothing if it cannot be understood. Members other than `mode` do not matter.
fn mode(value: &str) -> Option<Mode> {
    let value = value.trim();
    if value.is_empty() {
        return Some(Mode::Soft);
    }
    // The design document itself writes single quotes.
    let quoted = |_| serde_json::from_str(&value.replace('\'', "\""));
    let Ok(Value::Object(members)) = serde_json::from_str(value).or_else(quoted) else {
        return None;
    };
    // Other implementations find the member in any case.
    let mode = members.iter().find(|(name, _)| name.eq_ignore_ascii_case("mode"));
    match mode.map(|(_, mode)| mode.as_str()) {
        None | Some(Some("soft" | "")) => Some(Mode::Soft),
        Some(Some("hard")) => Some(Mode::Hard),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(value: &str) -> Request {
        Requests::of([(REBOOT, value)].into_iter()).0[0].clone()
    }

    #[test]
    fn the_mode_is_soft_unless_the_value_says_hard() {
        for (value, mode) in [
            ("", Mode::Soft),
            ("{}", Mode::Soft),
            (r#"{"mode":"soft"}"#, Mode::Soft),
            (r#"{"mode":"hard"}"#, Mode::Hard),
            ("{'mode':'hard'}", Mode::Hard),
            (r#"{"MODE":"hard"}"#, Mode::Hard),
            (r#"{"mode":"hard","force":false}"#, Mode::Hard),
            (r#"{"mode":"hard","force":"yes","more":[1]}"#, Mode::Hard),
            (r#"{"force":true}"#, Mode::Soft),
        ] {
            let request = one(value);
            assert_eq!((request.mode, request.odd), (mode, None), "{value}");
        }
    }

    #[test]
    fn what_is_not_understood_is_soft_and_noted() {
        for value in [
            "0d3b2ad6-5ee2-4a3c-b8f0-3d3a3b6f1a55",
            "hard",
            "\"hard\"",
            r#"{"mode":"HARD"}"#,
            r#"{"mode":"medium"}"#,
            r#"{"mode":5}"#,
            "[]",
            "{'mode':'hard'",
            "\u{0}\u{1}\u{fffd}",
        ] {
            let request = one(value);
            assert_eq!(request.mode, Mode::Soft, "{value}");
            assert!(request.odd.is_some(), "{value}");
        }
    }

    #[test]
    fn keys_that_only_begin_alike_are_nobodys_request() {
        let keys = [
            "reboot.metal3.io-x",
            "xreboot.metal3.io",
            "reboot.metal3.iox/a",
            "a/reboot.metal3.io",
        ];
        assert!(Requests::of(keys.iter().map(|key| (*key, ""))).is_empty());
        let both = Requests::of([("reboot.metal3.io/a", ""), (REBOOT, "")].into_iter());
        assert_eq!(both.plain(), Some(Mode::Soft));
        assert_eq!(both.holds().collect::<Vec<_>>(), ["reboot.metal3.io/a"]);
    }

    proptest! {
        #[test]
        fn any_value_has_a_mode(value in ".*") {
            prop_assert!(matches!(one(&value).mode, Mode::Soft | Mode::Hard));
        }

        #[test]
        fn only_a_value_that_names_hard_is_hard(value in "[{}'\": ,a-z]{0,20}") {
            prop_assert!(one(&value).mode == Mode::Soft || value.contains("hard"));
        }
    }
}

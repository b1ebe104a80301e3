//! The part of `bmo-reboot`'s record on a host that is a contract between controllers.
//!
//! The record is JSON in the message of the condition [`CONDITION_REBOOT_RECORD`]. The bare metal operator keeps conditions of
//! others when it writes a host's status from its own types, where it drops fields that it does not know.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::condition::{Condition, find};
use crate::metal3::Provisioning;
use crate::names::ferrite::{CONDITION_REBOOT_RECORD, REASON_RECORD};

/// The version of the record that this release writes, and the only one that it reads.
pub const POWER_RECORD_VERSION: u32 = 1;

/// A longer text was not written by `bmo-reboot`, and is not parsed.
const LONGEST: usize = 64 * 1024;

/// What is kept on an object, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kept<T> {
    /// Nothing.
    #[default]
    Absent,
    /// This.
    Known(T),
    /// Something of which nothing may be concluded, and why.
    Unreadable(String),
}

impl<T> Kept<T> {
    /// What is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(kept) => Some(kept),
            _ => None,
        }
    }
}

/// What other controllers may read of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerRecord {
    /// Which meaning the other members have. Another version than [`POWER_RECORD_VERSION`] says nothing to this release.
    pub version: u32,
    /// A time before which the last reboot that was accepted was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Timestamp>,
    /// When the host was last switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// The holds for which the host was seen off and is held off now. Empty as soon as that is not certain any more.
    #[serde(default, skip_serializing_if = "KeySet::is_empty")]
    pub held: KeySet,
}

impl Default for PowerRecord {
    fn default() -> Self {
        Self { version: POWER_RECORD_VERSION, pending: None, last: None, held: KeySet::default() }
    }
}

impl PowerRecord {
    /// Reads the record of a host.
    pub fn of(conditions: &[Condition]) -> Kept<Self> {
        read(conditions)
    }

    /// Both stamps of a host: each the later one of the record's and of the field's, which a CRD, or an operator that does not
    /// know it, may have dropped.
    pub fn stamps(&self, fields: &Provisioning) -> (Option<Timestamp>, Option<Timestamp>) {
        let later = |kept: Option<Timestamp>, field: &Option<Time>| {
            kept.max(field.as_ref().map(|time| time.0))
        };
        (
            later(self.pending, &fields.pending_reboot_since),
            later(self.last, &fields.last_powered_on),
        )
    }
}

/// Reads the record of a host as this type. Members that the type does not have are ignored.
pub fn read<T: DeserializeOwned>(conditions: &[Condition]) -> Kept<T> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let Some(condition) = find(conditions, CONDITION_REBOOT_RECORD) else { return Kept::Absent };
    let text = condition.message.as_deref().unwrap_or_default();
    if condition.reason.as_deref() != Some(REASON_RECORD) {
        return Kept::Unreadable(format!("its reason is not {REASON_RECORD}"));
    }
    if text.len() > LONGEST {
        return Kept::Unreadable(format!("it has {} bytes", text.len()));
    }
    // A list could pass for the members in their order.
    if !text.starts_with('{') {
        return Kept::Unreadable("it is no JSON object".to_owned());
    }
    let version = match serde_json::from_str::<Head>(text) {
        Ok(Head { version }) => version,
        Err(error) => return Kept::Unreadable(explained(&error)),
    };
    if version != POWER_RECORD_VERSION {
        return Kept::Unreadable(format!("its version is {version}, not {POWER_RECORD_VERSION}"));
    }
    serde_json::from_str(text).map_or_else(|error| Kept::Unreadable(explained(&error)), Kept::Known)
}

/// Only the place: an error may repeat the whole text.
fn explained(error: &serde_json::Error) -> String {
    format!("it is damaged at column {}", error.column())
}

/// The condition that keeps a record.
pub fn condition(record: &impl Serialize, since: Timestamp, generation: i64) -> Condition {
    let text = serde_json::to_string(record).unwrap_or_default();
    let said = (true, REASON_RECORD, text.as_str());
    Condition::new(CONDITION_REBOOT_RECORD, said, since, Some(generation))
}

/// A set of annotation keys that fits into a condition: as many as fit by name, and a number for the whole set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeySet {
    /// The first ones in their order.
    #[serde(default)]
    pub keys: Vec<String>,
    /// What stands for those that are not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Rest>,
}

/// What stands for the keys of a set that are not named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rest {
    /// How many there are.
    pub count: usize,
    /// The first half of the SHA-256 of all keys of the set, one a line.
    pub hash: String,
}

/// So many bytes of JSON a set names its keys with.
const NAMED: usize = 8_000;

impl KeySet {
    /// The set of these keys.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all: Vec<&str> = keys.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        let mut length = 0;
        let fit = all.iter().take_while(|key| {
            length += key.len() + "\"\",".len();
            length <= NAMED
        });
        let fit = fit.count();
        let rest = (fit < all.len()).then(|| Rest { count: all.len() - fit, hash: hash(&all) });
        Self { keys: all[..fit].iter().map(|key| (*key).to_owned()).collect(), rest }
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.rest.is_none()
    }

    /// Whether this key is in the set by name. One that is not named may be in it all the same.
    pub fn names(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// Whether it is the set of exactly these keys.
    pub fn is<'a>(&self, all: impl IntoIterator<Item = &'a str>) -> bool {
        *self == Self::of(all)
    }

    /// Whether each of these keys is certainly in the set.
    pub fn covers(&self, keys: &[&str]) -> bool {
        keys.iter().all(|key| self.names(key)) || self.is(keys.iter().copied())
    }
}

fn hash(keys: &[&str]) -> String {
    let sum = Sha256::digest(keys.join("\n"));
    let half: [u8; 16] = std::array::from_fn(|byte| sum[byte]);
    format!("{:032x}", u128::from_be_bytes(half))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(message: &str) -> Kept<PowerRecord> {
        let written = condition(&PowerRecord::default(), Timestamp::UNIX_EPOCH, 1);
        PowerRecord::of(&[Condition { message: Some(message.to_owned()), ..written }])
    }

    fn many(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("reboot.metal3.io/client-{n:05}")).collect()
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let record = PowerRecord {
            pending: Some(Timestamp::from_second(1_800_000_000).unwrap()),
            held: KeySet::of(many(700).iter().map(String::as_str)),
            ..PowerRecord::default()
        };
        let written = condition(&record, Timestamp::UNIX_EPOCH, 3);
        assert!(written.is_true() && written.message.as_ref().unwrap().len() < 32_768);
        assert_eq!(PowerRecord::of(&[written]), Kept::Known(record));
        assert_eq!(PowerRecord::of(&[]), Kept::Absent);
    }

    #[test]
    fn a_stamp_is_the_later_one_of_record_and_field() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        for (kept, field, later) in [(None, None, None), (at(1), None, at(1)), (None, at(1), at(1))]
            .into_iter()
            .chain([(at(1), at(2), at(2)), (at(2), at(1), at(2))])
        {
            let record = PowerRecord { pending: kept, last: field, ..PowerRecord::default() };
            let fields = Provisioning {
                pending_reboot_since: field.map(Time),
                last_powered_on: kept.map(Time),
                ..Provisioning::default()
            };
            assert_eq!(record.stamps(&fields), (later, later));
        }
    }

    #[test]
    fn members_of_others_are_ignored() {
        let text =
            r#"{"version":1,"progress":{"reason":"New"},"held":{"keys":["a"],"x":1},"y":[]}"#;
        let Kept::Known(record) = kept(text) else { panic!("{text}") };
        assert!(record.held.names("a") && record.pending.is_none());
    }

    #[test]
    fn what_cannot_be_understood_is_never_guessed_at() {
        let long = format!(r#"{{"version":1,"x":"{}"}}"#, "x".repeat(100_000));
        for (text, why) in [
            ("", "no JSON object"),
            ("garbage", "no JSON object"),
            ("{}", "damaged"),
            ("[]", "no JSON object"),
            ("\u{0}\u{fffd}", "no JSON object"),
            (r#"{"version":"1"}"#, "damaged"),
            (r#"{"version":1,"pending":"yesterday"}"#, "damaged"),
            (r#"{"version":1,"held":["a"]}"#, "damaged"),
            (r#"{"version":1} {"version":1}"#, "damaged"),
            ("[1]", "no JSON object"),
            (r#"{"version":2,"held":{"keys":["a"]}}"#, "its version is 2"),
            (r#"{"version":0}"#, "its version is 0"),
            (long.as_str(), "100020 bytes"),
        ] {
            let Kept::Unreadable(told) = kept(text) else { panic!("{text:.40}") };
            assert!(told.contains(why) && told.len() < 60, "{text:.40}: {told}");
        }
        let other = Condition {
            reason: Some("Other".to_owned()),
            ..condition(&PowerRecord::default(), Timestamp::UNIX_EPOCH, 1)
        };
        assert!(matches!(PowerRecord::of(&[other]), Kept::Unreadable(_)));
    }

    #[test]
    fn a_set_names_as_many_keys_as_fit_and_knows_the_others_only_together() {
        let keys = many(700);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let set = KeySet::of(keys.iter().rev().copied());
        let text = serde_json::to_string(&set).unwrap();
        assert!(text.len() < 8_200, "{}", text.len());
        assert_eq!(set.keys.len() + set.rest.as_ref().unwrap().count, 700);
        assert!(set.names(keys[0]) && !set.names(keys[699]) && !set.names(""));
        assert!(set.is(keys.iter().copied()) && set.covers(&keys) && set.covers(&keys[..9]));
        assert!(!set.covers(&keys[690..]), "they are not named, and not all");
        let mut others = keys.clone();
        others[699] = "reboot.metal3.io/zzz";
        assert!(!set.is(others.iter().copied()) && !set.covers(&others), "as many, and another");
        let few = KeySet::of(["b", "a", "a"]);
        assert_eq!((few.keys.len(), few.rest.is_none()), (2, true));
        assert!(few.covers(&["b"]) && few.covers(&[]) && !few.covers(&["a", "c"]));
        assert!(KeySet::default().is_empty() && KeySet::default().covers(&[]));
    }
}

//! What must hold between any two versions of a host, whoever is stopped or held at his work meanwhile.
//!
//! In these stories the client marks what it does to a host, so whatever bears no new mark was done by us.

use bench::observer::{Invariant, World};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{PLAIN, kept, keys, merge, record, stamps};

/// An annotation that every change of metadata and spec by the client changes as well.
pub(crate) const MARK: &str = "tests/step";

/// What the client does, with its mark.
pub(crate) fn marked(mut patch: Value, step: &str) -> Value {
    merge(&mut patch, json!({ "metadata": { "annotations": { MARK: step } } }));
    patch
}

/// Whether a version may come after another one.
type Rule = fn(&Value, &Value) -> bool;

/// Of every host.
const ALWAYS: &[(&str, Rule)] = &[
    ("stamps are never equal", stamps_differ),
    ("a new stamp is later than the other one", a_new_stamp_is_the_later_one),
    ("stamps never go back, but with all of them", stamps_never_go_back),
    ("a request is stamped where somebody asks and no cycle is open", stamped_once),
    ("nothing is changed but the plain request", nothing_else_is_changed),
    ("nothing is written for its time alone", something_is_written),
    ("what is to be cut is never asked softly again", hard_stays_hard),
    ("what is said is so", what_is_said_is_so),
    ("no failure is shown", no_failure),
];

/// Of a machine that may be switched off.
const SWITCHED: &[(&str, Rule)] = &[
    ("the plain request goes when everybody can see the host off", plain_goes_at_off),
    ("power returns to a host that is shown off and that nobody holds", power_returns),
];

/// Of one that must stay on.
const STAYING_ON: &[(&str, Rule)] = &[
    ("it is never shown off", never_off),
    ("the plain request goes after the reset", plain_goes_after_the_reset),
    ("the stamp of a reset ends its cycle", stamped_after_the_reset),
];

pub(crate) fn invariants(stays_on: bool) -> Vec<Invariant> {
    let own = if stays_on { STAYING_ON } else { SWITCHED };
    ALWAYS.iter().chain(own).map(|&(name, rule)| each(name, rule)).collect()
}

/// A rule about every change of a host.
fn each(name: &'static str, rule: Rule) -> Invariant {
    Invariant::between(name, move |before: &World, after: &World| {
        for (key, new) in after {
            let Some(old) = before.get(key) else { continue };
            if old.metadata.resource_version == new.metadata.resource_version {
                continue;
            }
            let (old, new) = (bare(old), bare(new));
            if !rule(&old, &new) {
                return Err(format!("{old:#} became {new:#}"));
            }
        }
        Ok(())
    })
}

/// Without what the API server adds for itself.
fn bare(host: &DynamicObject) -> Value {
    let mut host = host.clone();
    let metadata = &mut host.metadata;
    (metadata.managed_fields, metadata.resource_version, metadata.generation) = (None, None, None);
    serde_json::to_value(host).unwrap()
}

fn shown_on(host: &Value) -> Option<bool> {
    host["status"]["poweredOn"].as_bool()
}

fn is_provisioned(host: &Value) -> bool {
    host["status"]["provisioning"]["state"] == "provisioned"
}

fn in_cycle(host: &Value) -> bool {
    let (pending, last) = stamps(host);
    pending.is_some() && pending > last
}

/// A stamp that was not there before.
fn new_stamp(old: Option<Timestamp>, new: Option<Timestamp>) -> Option<Timestamp> {
    new.filter(|_| new != old)
}

fn stamps_differ(_: &Value, new: &Value) -> bool {
    let (pending, last) = stamps(new);
    pending.is_none() || pending != last
}

fn a_new_stamp_is_the_later_one(old: &Value, new: &Value) -> bool {
    let (before, (pending, last)) = (stamps(old), stamps(new));
    let accepted = new_stamp(before.0, pending).is_none_or(|it| Some(it) > last);
    let ended = new_stamp(before.1, last).is_none_or(|it| Some(it) > pending);
    accepted && ended
}

/// Both go when the host was deprovisioned, and after the last request: they are what makes a clean-up that was stopped
/// begin anew.
fn stamps_never_go_back(old: &Value, new: &Value) -> bool {
    let (before, after) = (stamps(old), stamps(new));
    if after == (None, None) && before != after {
        return !is_provisioned(new) && keys(old).is_empty();
    }
    after.0 >= before.0 && after.1 >= before.1
}

fn stamped_once(old: &Value, new: &Value) -> bool {
    let asked = is_provisioned(old) && !keys(old).is_empty() && shown_on(new) == Some(true);
    new_stamp(stamps(old).0, stamps(new).0).is_none() || (asked && !in_cycle(old))
}

/// Holds least of all, nor their values. What was installed takes all requests with it.
fn nothing_else_is_changed(old: &Value, new: &Value) -> bool {
    let annotations =
        |host: &Value| host["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let (before, after) = (annotations(old), annotations(new));
    if before.get(MARK) != after.get(MARK) {
        return true;
    }
    let rest = |host: &Value| {
        let mut metadata = host["metadata"].clone();
        metadata["annotations"] = Value::Null;
        (metadata, host["spec"].clone())
    };
    let requests = keys(old);
    let may_go = |key: &String| key == PLAIN || (!is_provisioned(old) && requests.contains(key));
    rest(old) == rest(new)
        && before.keys().all(|key| after.contains_key(key) || may_go(key))
        && after.iter().all(|(key, value)| before.get(key) == Some(value))
}

/// The stamp of a power-on alone is worth a write: that proves that nobody holds the host just before it is switched on. It
/// may be the same when the call is repeated within its second.
fn something_is_written(old: &Value, new: &Value) -> bool {
    let timeless = |host: &Value| {
        let mut status = host["status"].clone();
        status["lastUpdated"] = Value::Null;
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = Value::Null;
            if condition["type"] == "RebootRecord" {
                let mut record = kept(host);
                record["progress"]["since"] = Value::Null;
                condition["message"] = record;
            }
        }
        (host["metadata"].clone(), host["spec"].clone(), status)
    };
    let repeats = ["PoweringOn", "NodeBusy", "IronicUnreachable"];
    let repeated = repeats.contains(&record(new).0.as_str()) && shown_on(new) == Some(false);
    repeated || timeless(old) != timeless(new)
}

/// Nobody may forget that the power is to be cut, who is started in the middle of it least of all.
fn hard_stays_hard(old: &Value, new: &Value) -> bool {
    let is_hard = |host: &Value| kept(host)["progress"]["hard"] == true;
    let same = in_cycle(old) && in_cycle(new) && stamps(old).0 == stamps(new).0;
    !same || !is_hard(old) || is_hard(new)
}

fn what_is_said_is_so(old: &Value, new: &Value) -> bool {
    let (reason, shown) = (record(new).0, shown_on(new));
    if reason == record(old).0 {
        return true;
    }
    match reason.as_str() {
        "HeldOff" => shown == Some(false) && keys(new).iter().any(|key| key != PLAIN),
        "PoweredOff" | "Offline" => shown == Some(false),
        "PoweringOn" => keys(new).is_empty() && !in_cycle(new),
        "Completed" => shown == Some(true) && !in_cycle(new),
        _ => true,
    }
}

fn no_failure(_: &Value, new: &Value) -> bool {
    new["status"]["errorType"].is_null()
}

fn plain_goes(old: &Value, new: &Value) -> bool {
    let has_plain = |host: &Value| keys(host).iter().any(|key| key == PLAIN);
    is_provisioned(old) && has_plain(old) && !has_plain(new)
}

fn plain_goes_at_off(old: &Value, new: &Value) -> bool {
    !plain_goes(old, new) || (shown_on(old) == Some(false) && old["spec"]["online"] == true)
}

/// The write insists on what was read, so nobody can have asked in between.
fn power_returns(old: &Value, new: &Value) -> bool {
    let off = shown_on(old) == Some(false) && shown_on(new) == Some(false);
    let free = keys(old).is_empty() && old["spec"]["online"] == true;
    new_stamp(stamps(old).1, stamps(new).1).is_none() || (off && free && is_provisioned(old))
}

fn never_off(_: &Value, new: &Value) -> bool {
    shown_on(new) != Some(false) && !["HeldOff", "PoweredOff"].contains(&record(new).0.as_str())
}

fn is_resetting(host: &Value) -> bool {
    in_cycle(host) && record(host).0 == "Restarting"
}

fn plain_goes_after_the_reset(old: &Value, new: &Value) -> bool {
    !plain_goes(old, new) || is_resetting(old)
}

fn stamped_after_the_reset(old: &Value, new: &Value) -> bool {
    let has_plain = keys(old).iter().any(|key| key == PLAIN);
    let ended = is_resetting(old) && !has_plain;
    new_stamp(stamps(old).1, stamps(new).1).is_none() || ended
}

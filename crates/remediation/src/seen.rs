//! Machine, host and node, as far as decisions depend on them: plain data.

use api_types::ContractVersion;
use api_types::capi;
use api_types::capm3::{Metal3Machine, is_of};
use api_types::condition::{Condition, find};
use api_types::metal3::{BareMetalHost, ErrorType, Kept, OperationalStatus, PowerRecord};
use api_types::names;
use api_types::names::capi::{
    CONDITION_EXTERNALLY_REMEDIATED, CONDITION_HEALTH_CHECK_SUCCEEDED, CONDITION_OWNER_REMEDIATED,
};
use api_types::names::ferrite::{
    CONDITION_POWER_MANAGED, CONDITION_REBOOTING, PAUSED_BY_BMO_REBOOT, REASON_IRONIC_UNREACHABLE,
    REASON_NODE_BUSY, REASON_NODE_NOT_FOUND, REASON_NODE_REGISTERING, REASON_POWER_FAILED,
    REASON_POWER_UNKNOWN,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::complaint;
use crate::history::History;
use crate::request::Request;

/// A Machine, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "so many independent facts")]
pub struct Machine {
    /// Name.
    pub name: String,
    /// Identity.
    pub uid: String,
    /// The cluster that it belongs to.
    pub cluster: String,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether somebody keeps it for now, although it may be being deleted: its host is still needed.
    pub kept: bool,
    /// Whether it is paused by its own annotation.
    pub paused: bool,
    /// Whether somebody forbade remediation.
    pub skipped: bool,
    /// Whether a controller owns it, which can replace it.
    pub owned: bool,
    /// Whether it is one of a control plane.
    pub control_plane: bool,
    /// Whether it is to have a `Metal3Machine`, be that there or not.
    pub metal: bool,
    /// Name of its node, once there is one.
    pub node: Option<String>,
    /// Identity that its node must have.
    pub provider_id: Option<String>,
    /// Whether its owner is told to replace it, in the format that it reads. What it has written in the other one itself, while it
    /// deletes the Machine, is its word.
    pub told: bool,
    /// Reason of the condition that says how the external remediation is, while that is `False`.
    pub external: Option<String>,
    /// Since when it is.
    pub external_since: Option<Timestamp>,
    /// What the health check says, where there is one.
    pub healthy: Option<bool>,
    /// Since when it says so.
    pub healthy_since: Option<Timestamp>,
    /// Whether it complains of something of the Machine itself, which is still so.
    pub ails: bool,
    /// Of which conditions of the node it complains beside readiness, and of which status: the node says whether that is so.
    pub complaints: Vec<(String, String)>,
    /// Since when a part of the Machine is not well, whether anybody complains of it or not.
    pub failing: Option<Timestamp>,
}

/// A host, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "so many independent facts")]
pub struct Host {
    /// Name.
    pub name: String,
    /// Whether the machine has it.
    pub ours: bool,
    /// Whether somebody asked everybody to leave it alone.
    pub paused: bool,
    /// Whether nobody maintains its power.
    pub unmanaged: Option<Unmanaged>,
    /// Whether an operating system of the machine runs on it.
    pub provisioned: bool,
    /// Whether it is to be on.
    pub online: bool,
    /// Whether it must never be switched off.
    pub power_off_disabled: bool,
    /// Whether our request is on it, by our own key or by the plain one.
    pub held: bool,
    /// Whether its status says that it is on.
    pub powered_on: bool,
    /// Whether whoever switches it has said since our request that our key keeps it off.
    pub confirmed: bool,
    /// Of what time the word is that our key holds it off, be it of this try or of one before.
    pub held_off_at: Option<Timestamp>,
    /// Whether a reboot was accepted since our request, and the host was not switched on after that.
    pub in_cycle: bool,
    /// Whether the plain key that was set beside ours was taken away: the operator of Metal3 does so when it has read, since then,
    /// that the host is off.
    pub read_off: bool,
    /// Whether the plain key may be set beside ours: nobody has set it, and `bmo-reboot`, which says itself what is off, is not
    /// there.
    pub has_room: bool,
    /// Whether whoever looks at its power has written its status since our request, and does not say that it cannot look.
    pub looked_at: bool,
    /// Keys by which others hold it off.
    pub holds: Vec<String>,
    /// The word of whoever switches it for why nobody can, where that lies in Ironic and not in the machine.
    pub unreachable: Option<&'static str>,
    /// Whether its firmware is being changed.
    pub servicing: bool,
    /// Whether it is marked as unhealthy under both names.
    pub marked: bool,
    /// Its last tries.
    pub history: History,
}

/// Why nobody maintains a host's power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unmanaged {
    /// It has no credentials of its management controller.
    NoCredentials,
    /// It is taken out of Ironic.
    Detached,
    /// It is being deleted.
    Deleting,
}

/// What is known of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeSeen {
    /// Nobody looked: nothing depended on it.
    NotAsked,
    /// The Machine never had one.
    NoName,
    /// The workload cluster cannot be asked, and why.
    NoAccess(String),
    /// There is none of that name.
    Gone,
    /// There is one.
    Here(Node),
}

/// A node, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Identity: another node of the same name has another one.
    pub uid: String,
    /// The identity that says it is another machine's, if it does.
    pub foreign: Option<String>,
    /// Whether it is being deleted, and something keeps it.
    pub deleting: bool,
    /// Whether its kubelet says that it is ready.
    pub ready: bool,
    /// Its other conditions.
    pub conditions: Vec<NodeCondition>,
    /// What its kubelet last said, or was said of it, as a fingerprint that changes with each word of it.
    pub kubelet: String,
    /// When it last said that it is ready, by its own clock.
    pub heard: Option<Timestamp>,
    /// Who set the out-of-service taint.
    pub taint: Taint,
    /// What still runs there or is attached; nothing where that must not be asked, and [`UNKNOWN`] where it could not be.
    pub busy: u32,
    /// Its labels and annotations.
    pub backup: crate::request::Backup,
}

/// A condition of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeCondition {
    /// Its type.
    pub kind: String,
    /// Its status.
    pub status: String,
    /// Since when it has that.
    pub since: Option<Timestamp>,
}

/// So much runs on a node whose pods or volumes could not be listed.
pub const UNKNOWN: u32 = u32::MAX;

/// Who set the out-of-service taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Taint {
    /// Nobody.
    None,
    /// This request, or one that is gone and cannot remove it any more.
    Ours,
    /// This request, whose mark is still there; somebody took the taint off.
    TakenOff,
    /// Somebody else, who will remove it.
    Foreign,
}

impl Taint {
    /// Whether something of it is on the node that nobody else takes away.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::TakenOff)
    }
}

impl Machine {
    /// Takes what matters from an object.
    pub fn of(machine: &capi::Machine) -> Self {
        let told = match machine.contract() {
            ContractVersion::V1Beta2 => machine.condition(CONDITION_OWNER_REMEDIATED),
            ContractVersion::V1Beta1 => machine.deprecated_condition(CONDITION_OWNER_REMEDIATED),
        };
        let external = machine.condition(CONDITION_EXTERNALLY_REMEDIATED);
        let external = external.filter(|it| it.is_false());
        let health = machine.condition(CONDITION_HEALTH_CHECK_SUCCEEDED);
        let complaint = health.filter(|it| it.is_false());
        let mut annotations = machine.annotations().keys();
        Self {
            name: machine.name_any(),
            uid: machine.uid().unwrap_or_default(),
            cluster: machine.spec.cluster_name.clone(),
            deleting: machine.metadata.deletion_timestamp.as_ref().map(|it| it.0),
            kept: annotations.any(|it| it.starts_with(names::capi::PRE_TERMINATE_HOOK)),
            paused: capi::is_paused(&machine.metadata),
            skipped: machine.annotation(names::capi::SKIP_REMEDIATION).is_some(),
            owned: machine
                .metadata
                .owner_references
                .iter()
                .flatten()
                .any(|it| it.controller == Some(true)),
            control_plane: machine.is_control_plane(),
            metal: Self::metal(machine).is_some(),
            node: machine.node_name().map(str::to_owned),
            provider_id: machine.spec.provider_id.clone().filter(|it| !it.is_empty()),
            told: told.is_some_and(Condition::is_false),
            external: external.map(|it| it.reason.clone().unwrap_or_default()),
            external_since: external.and_then(since),
            healthy: health.filter(|it| it.is_true() || it.is_false()).map(Condition::is_true),
            healthy_since: health.and_then(since),
            ails: complaint::is_of_machine(machine, complaint),
            complaints: complaint::of_node(complaint),
            failing: failing_since(machine),
        }
    }

    /// The `Metal3Machine` that a Machine refers to.
    pub fn metal(machine: &capi::Machine) -> Option<&str> {
        let reference = &machine.spec.infrastructure_ref;
        let is_metal = reference.kind.as_deref() == Some("Metal3Machine");
        reference.name.as_deref().filter(|_| is_metal)
    }
}

/// Since when a part of a Machine is not well, by the names that Cluster API gives to such conditions. Others that are `False`
/// may mean nothing bad, and how the node is is seen there.
fn failing_since(machine: &capi::Machine) -> Option<Timestamp> {
    let status = machine.status.as_ref()?;
    let all = match machine.contract() {
        ContractVersion::V1Beta2 => &status.conditions,
        ContractVersion::V1Beta1 => &status.v1beta2.as_ref()?.conditions,
    };
    let fails = |it: &&Condition| {
        it.is_false() && it.r#type.ends_with("Healthy") && it.r#type != "NodeHealthy"
    };
    all.iter().filter(fails).filter_map(since).min()
}

/// Since when a condition has its status.
fn since(condition: &Condition) -> Option<Timestamp> {
    condition.last_transition_time.as_ref().map(|it| it.0)
}

impl NodeCondition {
    /// Whether it says that something is wrong. Conditions of nodes are named after what is wrong, but for a few.
    pub fn is_trouble(&self) -> bool {
        const WELL: [&str; 3] = ["Ready", "Healthy", "EtcdIsVoter"];
        self.status == "True" && !WELL.iter().any(|it| self.kind.ends_with(it))
    }
}

impl Host {
    /// Takes what matters from an object, as seen from this request and this machine.
    pub fn of(host: &BareMetalHost, request: &Request, machine: Option<&Metal3Machine>) -> Self {
        use ErrorType::{ProvisionedRegistration, Registration};
        let key = request.key();
        let status = host.status.clone().unwrap_or_default();
        let history = History::of(host);
        let open = history.open(&request.uid);
        let asked = open.map(|it| it.asked);
        let plain_key = host.annotation(names::metal3::REBOOT);
        let is_plain = has_plain(host, &request.uid);
        let has_key = host.annotation(&key).is_some();
        // Whoever else asks for a reboot overwrites what ours said, and it is still to come.
        let shared =
            open.is_some_and(|it| it.plain && it.released.is_none()) && plain_key.is_some();
        // Beside it our own key alone keeps the host off: without that the operator takes the plain one for a reboot.
        let beside = open.is_some_and(|it| it.beside && it.released.is_none());
        let kept = PowerRecord::of(&status.conditions);
        // What this release cannot read proves nothing.
        let unreadable = matches!(kept, Kept::Unreadable(_));
        // Nobody goes on with the record of a host that `bmo-reboot` has let go.
        let is_let_go = is_let_go(&status.conditions);
        let record = kept.known().filter(|_| !is_let_go).cloned().unwrap_or_default();
        let (pending, last) = record.stamps(&status.provisioning);
        let word = word(&status.conditions);
        // Metal3's operator takes the plain key away also where Ironic cannot say whether the host is on. It says so itself.
        let manageable = find(&status.conditions, names::metal3::MANAGEABLE);
        let is_faulty = manageable.is_some_and(Condition::is_false);
        // An "off" that nobody can make sure of now is as old as the time when somebody could.
        let doubtful = word.is_some_and(is_blind)
            || unreadable
            || is_faulty
            || status.error_type.is_some()
            || status.operational_status == OperationalStatus::Error;
        let updated = status.last_updated.map(|it| it.0);
        let looked = updated.zip(asked).is_some_and(|(at, asked)| at > asked);
        // All tries of a request have the same key: what was said in the one before may be over. Its own stamp tells it from
        // a new word; our clock is another one.
        let is_new =
            open.is_some_and(|it| it.held_off_before.is_none() || it.held_off_before != updated);
        let held_off = record.held.names(&key);
        let unmanaged = if host.metadata.deletion_timestamp.is_some() {
            Some(Unmanaged::Deleting)
        } else if host.is_detached() {
            Some(Unmanaged::Detached)
        } else if !host.power_operations_supported() {
            Some(Unmanaged::NoCredentials)
        } else {
            None
        };
        Self {
            name: host.name_any(),
            ours: machine.is_some_and(|machine| is_of(host, machine)),
            paused: is_paused(host),
            unmanaged,
            provisioned: status.provisioning.state.is_provisioned(),
            online: host.spec.online,
            power_off_disabled: host.spec.disable_power_off == Some(true),
            held: has_key || (is_plain && !beside) || shared,
            powered_on: status.powered_on,
            confirmed: held_off && is_new,
            held_off_at: held_off.then_some(updated).flatten(),
            // One that somebody else had asked for before is old: the host may have been switched on by hand since.
            in_cycle: !unreadable
                && pending.is_some_and(|pending| {
                    asked.is_some_and(|asked| pending.as_second() >= asked.as_second())
                        && last.is_none_or(|last| pending > last)
                }),
            // That a host cannot be switched on is no reason to doubt that its power was read, where the operator tells the two apart.
            read_off: beside
                && has_key
                && plain_key.is_none()
                && !is_faulty
                && (manageable.is_some() || !doubtful),
            has_room: plain_key.is_none_or(|_| is_plain) && (is_let_go || kept == Kept::Absent),
            looked_at: looked && !doubtful,
            holds: host
                .annotations()
                .keys()
                .filter(|it| names::metal3::is_reboot_hold(it) && **it != key)
                .cloned()
                .collect(),
            // Whoever registers it with Ironic says that it cannot be reached: its BMC may be dead with its machine.
            unreachable: word.and_then(out_of_reach).filter(|_| {
                !matches!(status.error_type, Some(Registration | ProvisionedRegistration))
            }),
            servicing: status.operational_status == OperationalStatus::Servicing,
            marked: host.annotation(names::capm3::UNHEALTHY).is_some()
                && host.annotation(names::capm3::UNHEALTHY_DEPRECATED).is_some(),
            history,
        }
    }

    /// Whether the host is off, and was seen off after our request: nothing that ran on it then runs now. `settled` says that
    /// the time has passed in which whoever is at work looks at a host. A clock that is behind ours costs time and never
    /// lets an old "off" pass.
    pub fn is_fenced(&self, was_on: bool, settled: bool) -> bool {
        // Whoever switches it says so; or it was on when we asked or since, or it is off for a reboot that nobody has ended;
        // or the operator has read since that it is off; or it has been off, while we asked, for so long that its power was looked
        // at.
        let seen_since = self.confirmed
            || was_on
            || self.in_cycle
            || self.read_off
            || (settled && self.looked_at);
        self.held && !self.powered_on && seen_since
    }
}

/// Ironic is away, or does not know a host.
const OF_IRONIC: [&str; 3] =
    [REASON_IRONIC_UNREACHABLE, REASON_NODE_NOT_FOUND, REASON_NODE_REGISTERING];

/// Whether whoever switches a host says that it cannot see, or change, its power.
fn is_blind(reason: &str) -> bool {
    let of_machine = [REASON_POWER_UNKNOWN, REASON_NODE_BUSY, REASON_POWER_FAILED];
    OF_IRONIC.iter().chain(&of_machine).any(|it| *it == reason)
}

/// Whether `bmo-reboot` says that the power of a host is not its own, be it for now.
fn is_let_go(conditions: &[Condition]) -> bool {
    find(conditions, CONDITION_POWER_MANAGED).is_some_and(Condition::is_false)
}

/// The word of `bmo-reboot` for a host: how far its power is, or why that is not its own. What it said of a host before it let that go
/// may stand there for ever.
fn word(conditions: &[Condition]) -> Option<&str> {
    let kind = if is_let_go(conditions) { CONDITION_POWER_MANAGED } else { CONDITION_REBOOTING };
    find(conditions, kind)?.reason.as_deref()
}

/// The word for which nobody can switch a host, where that says nothing of the machine. A BMC that does not answer is often dead
/// with its machine, which is to be replaced then; and while Ironic tries to reach one, its node is busy again and again.
fn out_of_reach(word: &str) -> Option<&'static str> {
    OF_IRONIC.into_iter().find(|it| *it == word)
}

/// Whether somebody asked everybody to leave a host alone. The pause of `bmo-reboot` is about power alone.
pub fn is_paused(host: &BareMetalHost) -> bool {
    host.annotation(names::metal3::PAUSED).is_some_and(|by| by != PAUSED_BY_BMO_REBOOT)
}

/// Whether the plain key is on a host and says that it is the request's of this uid. Anybody may set that key.
pub fn has_plain(host: &BareMetalHost, uid: &str) -> bool {
    let value: Option<serde_json::Value> =
        host.annotation(names::metal3::REBOOT).and_then(|it| serde_json::from_str(it).ok());
    value.is_some_and(|it| it["remediation"] == uid)
}

#[cfg(test)]
mod tests {
    use api_types::metal3::{KeySet, power_record};
    use api_types::names::ferrite::{CONDITION_REBOOT_RECORD, REASON_RECORD};
    use serde_json::json;

    use super::*;
    use crate::decide::tests::{at, request};
    use crate::history::Entry;

    fn host(status: &serde_json::Value) -> Host {
        let history = History(vec![Entry::begin("uid", "m", 0, at(100))]);
        let object = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "h", "annotations": {
                names::ferrite::REMEDIATION_HISTORY: history.text(),
            }},
            "spec": {"online": true}, "status": status,
        });
        Host::of(&serde_json::from_value(object).unwrap(), &request(), None)
    }

    #[test]
    fn a_reboot_counts_only_when_it_was_accepted_after_the_request() {
        let cycle = |pending: i64, last: Option<i64>| {
            let last = last.map(|it| at(it).to_string());
            let pending = at(pending).to_string();
            host(&json!({"provisioning": {"pendingRebootSince": pending, "lastPoweredOn": last}}))
        };
        assert!(!cycle(99, None).in_cycle, "another client's, for an hour perhaps");
        assert!(cycle(100, None).in_cycle && cycle(101, Some(50)).in_cycle);
        assert!(!cycle(101, Some(102)).in_cycle, "it was switched on since");
        assert!(!host(&json!({})).in_cycle);
    }

    #[test]
    fn a_word_that_stood_there_before_the_key_of_a_try_does_not_prove_its_off() {
        let confirmed = |held: &str, updated: i64, before: Option<i64>| {
            let mut entry = Entry::begin("uid", "m", 1, at(100));
            entry.held_off_before = before.map(at);
            let mut host = BareMetalHost::default();
            let note =
                (names::ferrite::REMEDIATION_HISTORY.to_owned(), History(vec![entry]).text());
            host.metadata.annotations = Some([note].into());
            let record = PowerRecord { held: KeySet::of([held]), ..PowerRecord::default() };
            let condition = power_record::condition(&record, at(100), 1);
            let status = json!({"conditions": [condition], "lastUpdated": at(updated).to_string()});
            host.status = Some(serde_json::from_value(status).unwrap());
            Host::of(&host, &request(), None).confirmed
        };
        let ours = request().key();
        for updated in [98, 100, 101] {
            assert!(confirmed(&ours, updated, None), "whatever the other clock shows");
        }
        assert!(!confirmed(&ours, 90, Some(90)), "the try before had the same key");
        assert!(confirmed(&ours, 91, Some(90)), "it was said anew");
        assert!(!confirmed("reboot.metal3.io/a", 101, None));
        assert!(!confirmed(&format!("{ours}-longer"), 101, None), "a key that only begins so");
    }

    #[test]
    fn a_record_of_another_version_proves_no_fence() {
        let key = request().key();
        let seen = |version: u32| {
            let message = json!({
                "version": version, "pending": at(101).to_string(), "held": {"keys": [key]},
            });
            host(&json!({
                "lastUpdated": at(101).to_string(),
                "conditions": [{
                    "type": CONDITION_REBOOT_RECORD, "status": "True", "reason": REASON_RECORD,
                    "message": message.to_string(),
                }],
            }))
        };
        let known = seen(1);
        assert!(known.confirmed && known.in_cycle && known.looked_at);
        let unknown = seen(2);
        assert!(!unknown.confirmed && !unknown.in_cycle && !unknown.looked_at);
    }

    #[test]
    fn a_plain_reboot_that_somebody_else_asks_for_as_well_is_still_to_come() {
        let held = |plain: bool, value: &str, released: Option<Timestamp>| {
            let mut entry = Entry::begin("uid", "m", 0, at(100));
            (entry.plain, entry.released) = (plain, released);
            let mut host = BareMetalHost::default();
            let notes = [
                (names::ferrite::REMEDIATION_HISTORY.to_owned(), History(vec![entry]).text()),
                (names::metal3::REBOOT.to_owned(), value.to_owned()),
            ];
            host.metadata.annotations = Some(notes.into());
            Host::of(&host, &request(), None).held
        };
        assert!(held(true, "{\"remediation\":\"uid\"}", None));
        assert!(held(true, "", None), "overwritten");
        assert!(!held(true, "", Some(at(101))), "the next one is not ours");
        assert!(!held(false, "", None), "nor is one beside our own key");
    }

    #[test]
    fn the_power_was_read_when_the_plain_key_is_gone_from_beside_ours() {
        let of = |keys: &[(&str, &str)], released: Option<Timestamp>, status: serde_json::Value| {
            let mut entry = Entry::begin("uid", "m", 0, at(100));
            (entry.beside, entry.released) = (true, released);
            let mut host: BareMetalHost = serde_json::from_value(json!({
                "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
                "metadata": {"name": "h"}, "spec": {"online": true}, "status": status,
            }))
            .unwrap();
            let history = History(vec![entry]).text();
            let notes = [(names::ferrite::REMEDIATION_HISTORY, history.as_str())];
            let notes = notes.iter().chain(keys);
            host.metadata.annotations =
                Some(notes.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
            let host = Host::of(&host, &request(), None);
            (host.held, host.read_off)
        };
        let own = request().key();
        let ours = (own.as_str(), "{}");
        let plain = (names::metal3::REBOOT, "{\"remediation\":\"uid\"}");
        let other = (names::metal3::REBOOT, "");
        let off = json!({});
        assert_eq!(of(&[ours, plain], None, off.clone()), (true, false), "nobody has looked");
        assert_eq!(of(&[ours], None, off.clone()), (true, true));
        assert_eq!(of(&[ours, other], None, off.clone()), (true, false), "overwritten");
        assert_eq!(of(&[plain], None, off.clone()), (false, false), "it would be a reboot");
        assert_eq!(of(&[], None, off.clone()), (false, false), "it may be coming on");
        assert_eq!(of(&[plain], Some(at(101)), off), (true, false), "left over: it is let go");
        let failing = json!({"errorType": "power management error"});
        assert_eq!(of(&[ours], None, failing.clone()), (true, false), "whether it was read");
        let manageable = |status: &str| {
            let mut seen = failing.clone();
            seen["conditions"] = json!([{
                "type": "Manageable", "status": status, "reason": "r", "message": "",
                "lastTransitionTime": at(1).to_string(),
            }]);
            seen
        };
        assert_eq!(of(&[ours], None, manageable("True")), (true, true), "it does not come on");
        assert_eq!(of(&[ours], None, manageable("False")), (true, false), "Ironic cannot see it");
    }

    /// A BMC may be dead with its machine: that one is to be replaced.
    #[test]
    fn a_host_is_out_of_reach_where_that_lies_in_ironic_and_not_in_its_machine() {
        let reach = |kind: &str, status: &str, reason: &str| {
            let condition =
                json!({"type": kind, "status": status, "reason": reason, "message": ""});
            host(&json!({ "conditions": [condition] })).unreachable
        };
        for word in ["IronicUnreachable", "NodeNotFound", "NodeRegistering"] {
            assert_eq!(reach("Rebooting", "True", word), Some(word));
            assert_eq!(reach("PowerManaged", "False", word), Some(word));
        }
        for word in ["PowerUnknown", "PowerFailed", "NodeBusy", "HardPowerOff"] {
            assert_eq!(reach("Rebooting", "True", word), None, "{word}");
        }
        assert_eq!(reach("PowerManaged", "True", "NodeNotFound"), None);
    }

    /// Ironic lost its database, and the operator tries in vain to register a host whose BMC is dead.
    #[test]
    fn a_host_that_cannot_be_registered_with_ironic_is_no_reason_to_wait() {
        let reach = |word: &str, error: &str| {
            let condition = json!({"type": "PowerManaged", "status": "False", "reason": word});
            host(&json!({"errorType": error, "conditions": [condition]})).unreachable
        };
        for word in ["NodeNotFound", "NodeRegistering"] {
            assert_eq!(reach(word, "registration error"), None);
            assert_eq!(reach(word, "provisioned registration error"), None);
            assert_eq!(reach(word, "power management error"), Some(word));
        }
    }

    /// Its label was removed while Ironic was away, or its operator has it back.
    #[test]
    fn what_bmo_reboot_said_of_a_host_before_it_let_that_go_is_heeded_no_longer() {
        let own = request().key();
        let seen = |managed: &str, reason: &str, said: &str| {
            let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message});
            let held = json!({"keys": [own]});
            let record = json!({"version": 1, "pending": at(101).to_string(), "held": held});
            host(&json!({
                "lastUpdated": at(101).to_string(),
                "conditions": [
                    condition("PowerManaged", managed, reason, ""),
                    condition("Rebooting", "True", said, ""),
                    condition(CONDITION_REBOOT_RECORD, "True", REASON_RECORD, &record.to_string()),
                ],
            }))
        };
        let ours = seen("True", "Managed", "IronicUnreachable");
        assert!(ours.unreachable.is_some() && !ours.looked_at && !ours.has_room);
        assert!(ours.confirmed && ours.in_cycle);
        let let_go = seen("False", "NotSelected", "IronicUnreachable");
        assert!(let_go.unreachable.is_none() && let_go.looked_at && let_go.has_room);
        assert!(!let_go.confirmed && !let_go.in_cycle, "nobody goes on with that");
        let lost = seen("False", "NodeNotFound", "HeldOff");
        assert!(lost.unreachable == Some("NodeNotFound") && !lost.looked_at, "nobody can look");
    }

    #[test]
    fn a_host_is_held_off_by_every_key_that_is_not_ours() {
        let mut object = BareMetalHost::default();
        let others = ["reboot.metal3.io/maint", "reboot.metal3.io/metal3-remediation-other"];
        let own = request().key();
        let keys = [own.as_str(), names::metal3::REBOOT, "reboot.metal3.io.example/a"];
        let all = keys.into_iter().chain(others);
        object.metadata.annotations =
            Some(all.map(|key| (key.to_owned(), String::new())).collect());
        assert_eq!(Host::of(&object, &request(), None).holds, others);
    }

    #[test]
    fn there_is_room_beside_ours_where_nobody_else_says_what_is_off() {
        let room = |notes: &[(&str, &str)]| {
            let mut object = BareMetalHost::default();
            object.metadata.annotations =
                Some(notes.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
            Host::of(&object, &request(), None).has_room
        };
        assert!(room(&[]));
        assert!(room(&[(names::metal3::REBOOT, "{\"remediation\":\"uid\"}")]), "our own");
        assert!(!room(&[(names::metal3::REBOOT, "")]), "somebody's reboot");
        let record = json!({"version": 1}).to_string();
        let recorded = host(&json!({"conditions": [{
            "type": CONDITION_REBOOT_RECORD, "status": "True", "reason": REASON_RECORD,
            "message": record,
        }]}));
        assert!(!recorded.has_room, "bmo-reboot switches it");
    }

    #[test]
    fn a_status_counts_as_looked_at_only_when_it_was_written_after_the_request() {
        let looked_at = |second| host(&json!({"lastUpdated": at(second).to_string()})).looked_at;
        assert!(!looked_at(99) && !looked_at(100) && looked_at(101));
        assert!(!host(&json!({})).looked_at);
    }

    #[test]
    fn a_status_that_says_that_the_power_cannot_be_seen_does_not_count_as_looked_at() {
        let looked_at = |more: &serde_json::Value| {
            let mut status = json!({"lastUpdated": at(101).to_string()});
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            host(&status).looked_at
        };
        let rebooting = |reason: &str| {
            json!({"conditions": [{
                "type": "Rebooting", "status": "True", "reason": reason, "message": "",
            }]})
        };
        assert!(looked_at(&rebooting("PoweredOff")));
        assert!(!looked_at(&rebooting("PowerUnknown")));
        assert!(!looked_at(&rebooting("IronicUnreachable")));
        assert!(
            !looked_at(&rebooting("NodeRegistering")),
            "nobody looks while a node is registered"
        );
        assert!(!looked_at(&json!({"operationalStatus": "error"})));
        assert!(!looked_at(&json!({"errorType": "power management error"})));
    }

    #[test]
    fn a_condition_of_a_node_is_trouble_unless_its_name_says_that_all_is_well() {
        let trouble = |kind: &str, status: &str| {
            let (kind, status) = (kind.to_owned(), status.to_owned());
            NodeCondition { kind, status, since: None }.is_trouble()
        };
        assert!(trouble("ReadonlyFilesystem", "True") && trouble("DiskPressure", "True"));
        assert!(!trouble("DiskPressure", "False") && !trouble("NetworkUnavailable", "Unknown"));
        assert!(!trouble("StorageReady", "True") && !trouble("EtcdIsVoter", "True"));
    }

    #[test]
    fn a_machine_is_kept_while_somebody_has_something_to_do_before_its_host_goes() {
        let kept = |annotation: &str| {
            let machine = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                "metadata": {"name": "m", "annotations": {"a": "", annotation: ""}},
                "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}},
            });
            Machine::of(&serde_json::from_value(machine).unwrap()).kept
        };
        let hook = names::capi::PRE_TERMINATE_HOOK;
        assert!(kept(&format!("{hook}/kcp-cleanup")) && kept(hook));
        assert!(!kept("pre-drain.delete.hook.machine.cluster.x-k8s.io/a"));
    }

    /// A `MachineSet` says so before it deletes: overwritten, it would count one machine too few of those that it replaces.
    #[test]
    fn an_owner_is_told_in_the_format_that_it_reads_whatever_it_says_in_the_other() {
        let told = |version: &str, standard: &str, deprecated: &str| {
            let word = |status: &str| json!([{"type": "OwnerRemediated", "status": status}]);
            let status = match version {
                "v1beta2" => json!({
                    "conditions": word(standard),
                    "deprecated": {"v1beta1": {"conditions": word(deprecated)}},
                }),
                _ => json!({
                    "conditions": word(deprecated), "v1beta2": {"conditions": word(standard)},
                }),
            };
            let machine = json!({
                "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Machine",
                "metadata": {"name": "m"}, "status": status,
                "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}},
            });
            Machine::of(&serde_json::from_value(machine).unwrap()).told
        };
        assert!(told("v1beta2", "False", "True") && !told("v1beta2", "True", "False"));
        assert!(told("v1beta1", "True", "False") && !told("v1beta1", "False", "True"));
    }

    #[test]
    fn a_machine_fails_since_its_first_part_that_is_not_well() {
        let failing = |conditions: &[(&str, &str, i64)]| {
            let all = conditions.iter().map(|(kind, status, second)| {
                let since = at(*second).to_string();
                json!({"type": kind, "status": status, "lastTransitionTime": since})
            });
            let machine = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                "metadata": {"name": "m", "labels": {names::capi::CONTROL_PLANE: ""}},
                "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}},
                "status": {"conditions": all.collect::<Vec<_>>()},
            });
            let machine = Machine::of(&serde_json::from_value(machine).unwrap());
            assert!(machine.control_plane);
            machine.failing
        };
        let etcd = ("EtcdMemberHealthy", "False", 7);
        assert_eq!(failing(&[("EtcdPodHealthy", "False", 9), etcd]), Some(at(7)));
        assert_eq!(failing(&[("EtcdMemberHealthy", "True", 7)]), None);
        let of_node = ("NodeHealthy", "False", 7);
        assert_eq!(failing(&[of_node, ("Deleting", "False", 1), ("UpToDate", "False", 1)]), None);
    }
}

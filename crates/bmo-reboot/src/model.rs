//! What one pass knows and what it may write, as plain data: the page to read first.
//!
//! [`observe`](mod@crate::observe) reads an [`Observed`], [`decide`](mod@crate::decide) makes a [`Decision`] of it,
//! [`write`](mod@crate::write) carries out its [`Write`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api_types::condition::{Condition, find, put};
use api_types::metal3::{
    BareMetalHost, ErrorType, Kept, OperationalStatus, ProvisioningState, power_record,
};
use api_types::names::ferrite::{
    CONDITION_POWER_MANAGED, CONDITION_REBOOT_RECORD, CONDITION_REBOOTING, PAUSED_BY_BMO_REBOOT,
};
use api_types::names::metal3::PAUSED;
use controller_kit::engine::{self, ObjectKey, Reason as _};
use controller_kit::events::shorten;
use ironic::Power;
/// A change of power. A machine is reset where it must not be switched off.
pub use ironic::PowerTarget as Call;
use k8s_openapi::jiff::Timestamp;

use crate::reason::Reason;
use crate::record::{Managed, RebootProgress, Record};
use crate::requests::{Mode, Request, Requests};
use crate::settings::Policy;
use crate::text;

/// What is decided about a host.
pub type Decision = engine::Decision<Box<Write>, Reason>;

/// The one write of a pass: metadata first, then status, then the call. Each of the first two insists on the version that was
/// read or that the one before made, and the call comes only after both were accepted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Write {
    /// Annotations to set, or to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// What to write into the status.
    pub status: Change,
    /// What to ask of Ironic.
    pub call: Option<Call>,
    /// Whether nobody waits for the node after that.
    pub rests: bool,
    /// Whether the power is cut because a soft attempt did not suffice.
    pub escalates: bool,
}

impl Write {
    /// Whether nothing is to be written, nor asked of Ironic.
    pub fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.status.is_empty() && self.call.is_none()
    }
}

/// Changes of a host's status. What is empty stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Change {
    /// Whether the machine was seen switched on.
    pub powered_on: Option<bool>,
    /// A request is accepted.
    pub pending: Option<Timestamp>,
    /// The host is about to be switched on. Written even if it is what is there: the write is what proves that no
    /// request came in between.
    pub last: Option<Timestamp>,
    /// Both stamps go.
    pub clear_stamps: bool,
    /// How far a reboot has come.
    pub progress: Option<RebootProgress>,
    /// What people are told of that: the message of the condition `Rebooting`.
    pub told: String,
    /// Whether the host was seen provisioned while it could not be served.
    pub was_provisioned: Option<bool>,
    /// The plain request that is answered and could not be removed, or that there is none any more.
    pub answered: Option<Option<Mode>>,
    /// Whether the host's power is ours.
    pub managed: Option<Managed>,
    /// A failure of Ironic to change the power, or that it is over.
    pub trouble: Option<Option<Trouble>>,
}

impl Change {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The record after this change, where it is another one then. One that cannot be read is somebody else's.
    pub fn record(&self, host: &Host) -> Option<Record> {
        let known = match host.record() {
            Kept::Absent => Record::default(),
            Kept::Known(record) => record,
            Kept::Unreadable(_) => return None,
        };
        let stamps = if self.clear_stamps { (None, None) } else { (host.pending, host.last) };
        let stamps = (self.pending.or(stamps.0), self.last.or(stamps.1));
        let was_provisioned = self.was_provisioned.unwrap_or(known.was_provisioned);
        let progress = self.progress.clone().or_else(|| known.progress.clone());
        let answered = self.answered.unwrap_or(known.answered);
        let record = Record { answered, ..Record::new(stamps, was_provisioned, progress) };
        (record != known).then_some(record)
    }

    /// All conditions of the host after this change.
    pub fn conditions(&self, host: &Host, now: Timestamp) -> Vec<Condition> {
        let mut conditions = host.conditions.clone();
        let generation = host.generation;
        // A condition's time is that of its status; `Rebooting` brings its own.
        let since = |kind: &str, status: bool| {
            let known = find(&host.conditions, kind).filter(|known| known.is_true() == status);
            known.and_then(|known| known.last_transition_time.as_ref()).map_or(now, |time| time.0)
        };
        if let Some(record) = self.record(host) {
            let since = since(CONDITION_REBOOT_RECORD, true);
            put(&mut conditions, power_record::condition(&record, since, generation));
        }
        if let Some(progress) = &self.progress {
            put(&mut conditions, rebooting(progress, &self.told, generation));
        }
        if let Some(Managed { managed, reason, message }) = &self.managed {
            let since = since(CONDITION_POWER_MANAGED, *managed);
            let told = (*managed, reason.as_str(), message.as_str());
            let new = Condition::new(CONDITION_POWER_MANAGED, told, since, Some(generation));
            put(&mut conditions, new);
        }
        conditions
    }
}

/// How far a reboot has come, as people are told.
pub fn rebooting(progress: &RebootProgress, told: &str, generation: i64) -> Condition {
    let said = (progress.rebooting, progress.reason.as_str(), told);
    Condition::new(CONDITION_REBOOTING, said, progress.since, Some(generation))
}

/// What Ironic made of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is on its way.
    Accepted,
    /// Not now: the node is locked or engaged.
    Busy(String),
    /// Ironic is not there, has no worker or conductor left, or does not know us: not this host's failure.
    Unreachable(String),
    /// The driver cannot ask the operating system.
    Unsupported,
    /// No: Ironic will not do that to this machine.
    Refused(String),
    /// Nobody knows: it has to be read again before anything is repeated.
    Unknown,
    /// As many soft attempts are under way as may be. Ironic was not asked.
    NoRoom,
}

/// After a soft power-off a second reading must agree, this much later. So long after the first off Ironic is asked again for
/// those who hold the machine.
pub(crate) const OFF_CONFIRM_DELAY: Duration = Duration::from_secs(3);

/// What this process remembers of a host between two passes. All of it can be forgotten: it has to be waited for again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Of which host: another one of the same name has another identity.
    pub uid: String,
    /// Since when each reading has shown its machine off.
    pub off_since: Option<Instant>,
    /// The off of ours that Ironic has taken, until it shows anything else or the status of the host says for whom it is off.
    pub off_taken: Option<OffTaken>,
    /// Whether its node was not as its status says when it was last read: then a look at the status alone says nothing.
    pub differs: bool,
    /// Since when Ironic has not answered about its node.
    pub silent_since: Option<Instant>,
    /// How often it was asked for off in a row while nobody knew its power, and when last.
    pub blind_calls: (u32, Option<Instant>),
    /// Whether it is not to be ours, and its status has said so already.
    pub let_go: bool,
    /// What its status said of its power when it was last read, or written here: whoever changes that switches it, too.
    pub powered_on: Option<bool>,
}

/// An off of ours that Ironic has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffTaken {
    /// For which holds, and of which node.
    pub holders: u64,
    /// When the machine was first seen off after it.
    pub seen: Option<Instant>,
    /// Whether Ironic has taken another one for the same, long enough after that.
    pub again: bool,
}

/// What one pass knows. The default is that of a host that is left to others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The host; nothing when it does not exist, or is left to others.
    pub host: Option<Host>,
    /// Its node.
    pub node: NodeSeen,
    /// Whether another soft power-off may be under way now.
    pub soft_free: bool,
    /// How soon a node is looked at again whose next step is Ironic's. Nothing where the lists of nodes tell of that.
    pub pace: Option<Duration>,
}

/// A host, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "so many independent facts")]
pub struct Host {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Identity: another host of the same name has another one.
    pub uid: String,
    /// The version that all writes of this pass insist on.
    pub version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Whether it was handed to us.
    pub selected: bool,
    /// Whether the operator is to leave it alone, and who said so.
    pub paused: Pause,
    /// Whether it brings a status in an annotation that says it is installed, which the operator takes over once nobody
    /// pauses it. One that does not say so is none: the operator would install the host anew.
    pub brings_status: bool,
    /// Whether it is, or is to be, taken out of Ironic.
    pub detached: bool,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// How far installing it has come.
    pub state: ProvisioningState,
    /// Whether there are credentials of its management controller.
    pub credentials: bool,
    /// Whether it should be on.
    pub online: bool,
    /// Whether it must never be switched off.
    pub disable_power_off: bool,
    /// Whether something else is to be installed than is, or the operator changes its firmware: only the operator can do
    /// that.
    pub needs_operator: bool,
    /// Whether that is to clear what is installed, with nothing in its place. Nothing that was asked of that is waited for then.
    pub cleared: bool,
    /// Whether the operator has written down that it began to register the node, and not that it came to the end.
    pub registering: bool,
    /// Name or identity of its node.
    pub node: String,
    /// Another host that names the same node.
    pub shared_with: Option<String>,
    /// Who asks for what, and was not answered yet.
    pub requests: Requests,
    /// The plain request that is answered and could not be removed.
    pub answered: Option<Mode>,
    /// What its status says about power.
    pub powered_on: bool,
    /// Stamp of the last accepted request.
    pub pending: Option<Timestamp>,
    /// Stamp of the last time it was switched on.
    pub last: Option<Timestamp>,
    /// Whether a stamp stands in the record only, since the CRD or the operator drops the fields for them.
    pub only_record: bool,
    /// Whether the last change of that was somebody else's.
    pub other_writer: bool,
    /// What its status says about failures.
    pub failures: Failures,
    /// All its conditions, ours among them.
    pub conditions: Vec<Condition>,
}

/// Who asked the operator to leave a host alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pause {
    /// Nobody.
    No,
    /// We did, so that there is one writer of power.
    ByUs,
    /// Somebody else, and that is for us too.
    ByOthers,
}

/// The failures that a host's status shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failures {
    /// None.
    #[default]
    None,
    /// To change its power: so many in a row.
    OfPower(i64),
    /// Those of somebody else, beside which ours are not counted.
    OfOthers,
}

/// The last failure to change the power.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// How often in a row that was.
    pub count: i64,
    /// What happened.
    pub message: String,
}

/// So much of Ironic's last failure is read: it may repeat whatever a management controller answered. It is to fit into a
/// condition together with the keys that a reset has answered.
const LONGEST_ERROR: usize = 2_000;
/// So much of a time, which is kept in the record.
const LONGEST_TIME: usize = 100;

/// What is known about a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum NodeSeen {
    /// Ironic was not asked: nothing depends on it.
    #[default]
    NotAsked,
    /// Ironic has no such node.
    Missing,
    /// Ironic gave no answer.
    Unanswered {
        /// Whether that has been so for others too, and will be for a while.
        lasting: bool,
        /// Why, and what to do about it.
        problem: String,
    },
    /// As Ironic sees it.
    Seen(Node),
}

impl NodeSeen {
    /// The node, if it was seen.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Self::Seen(node) => Some(node),
            _ => None,
        }
    }
}

/// A node, as far as decisions depend on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its power.
    pub power: Power,
    /// What its power is being changed to. Ironic shows a soft power-off as off, and a reset as on.
    pub target: Option<Power>,
    /// Why Ironic would refuse a change of power now.
    pub engaged: Option<String>,
    /// What went wrong last. Ironic clears it when it takes a change of power.
    pub last_error: Option<String>,
    /// Whether Ironic refuses to switch it off.
    pub disable_power_off: bool,
    /// Its provision state, where the operator has not come to the end of making it known to Ironic.
    pub registration: Option<&'static str>,
    /// When Ironic last wrote something about it; read only where power must not be switched off.
    pub changed: Option<String>,
    /// Whether Ironic leaves the machine alone, and shows what it knew of its power before, or what came of a call.
    pub maintenance: bool,
    /// For how long every reading of this process has shown it off.
    pub off_for: Option<Duration>,
    /// What shows that the machine is off for all who hold the host now.
    pub off_proof: OffProof,
    /// For how long it is not asked for off again, where its power is not known and it was asked several times.
    pub spared: Option<Duration>,
}

/// What shows that a machine is off. What Ironic has stored does not: it is as old as Ironic's last look, and nobody knows how old
/// that is. Asked for off, it looks, and cuts the power of a machine that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OffProof {
    /// Nothing: this process has not asked for those who hold the host now, or Ironic has shown something else since.
    #[default]
    None,
    /// Ironic has taken an off, and shows a failure since.
    Failed,
    /// Ironic has taken an off. A management controller that shows off while its machine still shuts down has Ironic do nothing,
    /// so it is asked once more, after this time.
    Once(Duration),
    /// Ironic has taken two, and the machine was off all the time between them and after both.
    Twice,
}

/// Provision states of a node that is not registered yet: it was made, Ironic looks whether it reaches the management controller,
/// it does, Ironic takes in what is installed, or it could not.
const REGISTERING: [&str; 5] = ["enroll", "verifying", "manageable", "adopting", "adopt failed"];

impl Host {
    /// Takes what matters from an object.
    pub fn of(host: &BareMetalHost, policy: &Policy) -> Self {
        let meta = &host.metadata;
        let key = ObjectKey::of(host);
        let status = host.status.clone().unwrap_or_default();
        let provisioning = &status.provisioning;
        let node =
            if provisioning.id.is_empty() { registered_as(&key) } else { provisioning.id.clone() };
        // What was installed by other means the operator leaves where it is.
        let differs = |wanted: Option<&String>, installed: Option<&String>| {
            installed.is_some_and(|it| !it.is_empty() && wanted != Some(it))
        };
        let other_image = differs(
            host.spec.image.as_ref().map(|image| &image.url),
            provisioning.image.as_ref().map(|image| &image.url),
        ) || differs(
            host.spec.custom_deploy.as_ref().map(|deploy| &deploy.method),
            provisioning.custom_deploy.as_ref().map(|deploy| &deploy.method),
        );
        let wants_nothing = host.spec.image.is_none() && host.spec.custom_deploy.is_none();
        let (other, cleared) = match provisioning.state {
            ProvisioningState::Provisioned => (other_image, other_image && wants_nothing),
            // Who takes that back wants it looked at, and installed.
            ProvisioningState::ExternallyProvisioned => {
                let taken_back = host.spec.externally_provisioned != Some(true);
                (taken_back, taken_back)
            }
            _ => (false, false),
        };
        let record = Record::of(&status.conditions);
        let answered = record.known().and_then(|it| it.answered);
        let power = record.known().map(|it| it.power.clone()).unwrap_or_default();
        let (pending, last) = power.stamps(provisioning);
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            selected: policy.selects(host),
            paused: match host.annotation(PAUSED) {
                None => Pause::No,
                Some(PAUSED_BY_BMO_REBOOT) => Pause::ByUs,
                Some(_) => Pause::ByOthers,
            },
            brings_status: host.brought_state().is_some_and(|state| state.is_provisioned()),
            detached: host.is_detached(),
            deleting: meta.deletion_timestamp.is_some(),
            state: provisioning.state.clone(),
            credentials: host.power_operations_supported(),
            online: host.spec.online,
            disable_power_off: host.spec.disable_power_off.unwrap_or(false),
            // Where firmware failed, too: the operator tries again, or gives up where its spec is taken back.
            needs_operator: other
                || status.operational_status == OperationalStatus::Servicing
                || status.error_type == Some(ErrorType::Servicing),
            cleared,
            registering: status.operation_history.is_some_and(|it| it.is_registering()),
            node,
            shared_with: None,
            requests: Requests::of(host.reboot_requests()).without(answered),
            answered,
            powered_on: status.powered_on,
            pending,
            last,
            only_record: (pending.is_some() && provisioning.pending_reboot_since.is_none())
                || (last.is_some() && provisioning.last_powered_on.is_none()),
            other_writer: Managed::of(&status.conditions)
                .is_some_and(|it| it.reason == Reason::TwoWriters),
            failures: match status.error_type {
                Some(ErrorType::PowerManagement) => Failures::OfPower(status.error_count),
                Some(_) => Failures::OfOthers,
                // An error that the operator has not named is none of ours either.
                None if status.operational_status == OperationalStatus::Error => Failures::OfOthers,
                None => Failures::None,
            },
            conditions: status.conditions,
            key,
        }
    }

    /// What is kept of it.
    pub fn record(&self) -> Kept<Record> {
        Record::of(&self.conditions)
    }

    /// How far a reboot has come.
    pub fn progress(&self) -> Option<RebootProgress> {
        self.record().known().and_then(|record| record.progress.clone())
    }

    /// Whether we said that its power is ours.
    pub fn managed(&self) -> Option<Managed> {
        Managed::of(&self.conditions)
    }

    /// Whether a reboot was accepted and the host was not switched on since. Stamps are compared with each other only:
    /// clocks differ.
    pub fn in_cycle(&self) -> bool {
        // `None` is earlier than any stamp.
        self.pending > self.last
    }

    /// Whether its power is to be cut at once, and no pass has begun with that, nor seen it off. A soft attempt that is
    /// under way is no beginning.
    pub fn is_urgent(&self, policy: &Policy) -> bool {
        let progress = self.progress();
        let answered =
            |request: &Request| progress.as_ref().is_some_and(|it| it.has_served(&request.key));
        let hard = self.requests.iter().any(|it| it.is_hard() && !answered(it));
        let begun = progress.as_ref().is_some_and(|progress| {
            let cut = self.in_cycle() && progress.hard && progress.reason.is_phase();
            let off = matches!(progress.reason, Reason::Offline | Reason::PoweredOff);
            cut || (!self.powered_on && (off || progress.held_since().is_some()))
        });
        hard && !begun && self.needs_node(policy)
    }

    /// Whether it waits for a free place among the soft attempts, and nobody asks for more.
    pub fn waits_for_room(&self) -> bool {
        let waits = |it: &RebootProgress| {
            it.reason == Reason::RequestAccepted && !it.hard && it.soft.is_none()
        };
        self.progress().as_ref().is_some_and(waits) && !self.requests.any_hard()
    }

    /// Whether its operating system is asked to shut down. What was begun on a host that is not looked after since is still
    /// recorded; as many of these as may be at a time would keep all others from being asked, for good.
    pub fn has_soft_attempt(&self) -> bool {
        self.managed().is_some_and(|it| it.managed)
            && self.progress().is_some_and(|it| it.reason == Reason::SoftPowerOff)
    }

    /// Whether only its `spec.online` is ours, and not its requests.
    pub fn is_online_only(&self, policy: &Policy) -> bool {
        policy.manage_available && self.state.is_available()
    }

    /// Whether any decision about it depends on its node.
    pub fn needs_node(&self, policy: &Policy) -> bool {
        let managed = self.state.is_provisioned() || self.is_online_only(policy);
        let readable = || !matches!(self.record(), Kept::Unreadable(_));
        let ours = self.paused == Pause::ByUs || (self.selected && managed && readable());
        ours && self.paused != Pause::ByOthers && self.credentials
    }
}

/// The name under which the operator registers the node of a host.
pub fn registered_as(ObjectKey { namespace, name }: &ObjectKey) -> String {
    format!("{namespace}~{name}")
}

impl OffTaken {
    /// One that Ironic has taken after another one, or none.
    pub fn after(before: Option<Self>, holders: u64, asked: Instant) -> Self {
        let before = before.filter(|it| it.holders == holders);
        let seen = before.and_then(|it| it.seen);
        let again =
            seen.is_some_and(|seen| asked.saturating_duration_since(seen) >= OFF_CONFIRM_DELAY);
        Self { holders, seen, again }
    }
}

impl Node {
    /// Takes what matters from Ironic's answer.
    pub fn of(node: &ironic::Node) -> Self {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let target = set(&node.target_power_state).map(|target| match target.as_str() {
            "power on" | "rebooting" | "soft rebooting" => Power::On,
            _ => Power::Off,
        });
        let state = set(&node.provision_state).unwrap_or_default();
        let working = ["cleaning", "clean wait", "deploying", "servicing", "service wait"];
        let engaged = working.contains(&state.as_str()).then(|| text::working(&state));
        Self {
            target,
            engaged,
            last_error: set(&node.last_error).map(|error| shorten(&error, LONGEST_ERROR)),
            disable_power_off: node.disable_power_off.unwrap_or(false),
            registration: REGISTERING.into_iter().find(|it| *it == state),
            changed: set(&node.updated_at).map(|time| shorten(&time, LONGEST_TIME)),
            maintenance: node.maintenance.unwrap_or(false),
            ..Self::resting(node.power())
        }
    }

    /// Whether Ironic shows its machine off, and is not about to change that.
    pub fn shows_off(&self) -> bool {
        self.power == Power::Off && self.target.is_none()
    }

    /// Whether somebody must be in the middle of registering it. In the other states a node may stay where there is no operator.
    pub fn is_being_registered(&self) -> bool {
        matches!(self.registration, Some("verifying" | "adopting" | "adopt failed"))
    }

    /// One that shows this power and nothing else.
    pub fn resting(power: Power) -> Self {
        Self { power, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use api_types::metal3::CachedHost;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_operator_is_needed_where_it_would_clear_the_host() {
        let needed = |spec: serde_json::Value, installed: serde_json::Value| {
            let mut provisioning = json!({ "state": "provisioned", "ID": "" });
            provisioning.as_object_mut().unwrap().extend(installed.as_object().unwrap().clone());
            let host = json!({
                "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
                "metadata": { "name": "h" }, "spec": spec, "status": { "provisioning": provisioning },
            });
            let host: BareMetalHost = serde_json::from_value(host).unwrap();
            let host = Host::of(&host, &Policy::default());
            assert!(host.needs_operator || !host.cleared);
            (host.needs_operator, host.cleared)
        };
        let (one, two) =
            (json!({ "image": { "url": "one" } }), json!({ "image": { "url": "two" } }));
        let deploy = |method: &str| json!({ "customDeploy": { "method": method } });
        let (no, replaced, cleared) = ((false, false), (true, false), (true, true));
        assert_eq!(needed(two, one.clone()), replaced);
        assert_eq!(needed(deploy("b"), deploy("a")), replaced);
        assert_eq!(needed(one.clone(), deploy("a")), replaced);
        assert_eq!(needed(json!({}), one.clone()), cleared);
        assert_eq!(needed(json!({}), deploy("a")), cleared);
        assert_eq!(needed(one.clone(), one.clone()), no);
        assert_eq!(needed(deploy("a"), deploy("a")), no);
        assert_eq!(needed(one, json!({})), no, "installed by other means");
        let others = json!({ "state": "externally provisioned" });
        assert_eq!(needed(json!({ "externallyProvisioned": true }), others.clone()), no);
        assert_eq!(needed(json!({}), others), cleared, "and now to be installed after all");
    }

    #[test]
    fn the_operator_is_needed_while_it_changes_firmware_and_clears_nothing() {
        let needed = |word: &str, error: Option<&str>| {
            let host = json!({
                "metadata": { "name": "h" }, "spec": {},
                "status": {
                    "operationalStatus": word, "errorType": error,
                    "provisioning": { "state": "provisioned", "ID": "" },
                },
            });
            let host: BareMetalHost = serde_json::from_value(host).unwrap();
            let host = Host::of(&host, &Policy::default());
            assert!(!host.cleared, "{word}");
            host.needs_operator
        };
        assert!(needed("servicing", None));
        assert!(needed("error", Some("servicing error")), "it tries again, or gives up");
        assert!(!needed("OK", None) && !needed("error", None));
        assert!(!needed("error", Some("power management error")));
    }

    #[test]
    fn that_the_operator_registers_the_node_is_told_by_its_own_record() {
        let registering = |register: serde_json::Value| {
            let history = json!({ "register": register });
            let host =
                json!({ "metadata": { "name": "h" }, "status": { "operationHistory": history } });
            let host: CachedHost = serde_json::from_value(host).unwrap();
            Host::of(&host, &Policy::default()).registering
        };
        let (start, end) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
        assert!(registering(json!({ "start": start, "end": null })));
        assert!(!registering(json!({ "start": start, "end": end })) && !registering(json!({})));
    }

    #[test]
    fn only_a_status_that_says_that_the_host_is_installed_is_one_that_it_brings() {
        let brings = |status: Option<&str>| {
            let annotations = status.map(|it| json!({ "baremetalhost.metal3.io/status": it }));
            let host =
                json!({ "metadata": { "name": "h", "annotations": annotations }, "spec": {} });
            let host: CachedHost = serde_json::from_value(host).unwrap();
            Host::of(&host, &Policy::default()).brings_status
        };
        for state in ["provisioned", "externally provisioned"] {
            let status =
                json!({ "poweredOn": true, "provisioning": { "ID": "i", "state": state } });
            assert!(brings(Some(&status.to_string())), "{state}");
        }
        let others = ["", "null", "{}", "{", r#"{"provisioning":{"state":"available"}}"#];
        for status in others.map(Some).into_iter().chain([None]) {
            assert!(!brings(status), "{status:?}");
        }
    }

    #[test]
    fn how_far_a_node_is_registered_is_told_by_its_provision_state() {
        let read = |state: Option<&str>| {
            let node = json!({ "provision_state": state });
            let node: ironic::Node = serde_json::from_value(node).unwrap();
            Node::of(&node).registration
        };
        for state in ["enroll", "verifying", "manageable", "adopting", "adopt failed"] {
            assert_eq!(read(Some(state)), Some(state));
        }
        for state in [None, Some("active"), Some("available"), Some("cleaning"), Some("rescue")] {
            assert_eq!(read(state), None, "{state:?}");
        }
    }

    #[test]
    fn of_a_failure_without_end_a_beginning_is_read() {
        let read = |error: &str| {
            let node = json!({ "last_error": error });
            let node: ironic::Node = serde_json::from_value(node).unwrap();
            Node::of(&node).last_error.unwrap()
        };
        assert_eq!(read("it broke"), "it broke");
        let long = read(&"\u{e4}b".repeat(20_000));
        assert!(long.len() <= LONGEST_ERROR && long.ends_with("..."), "{}", long.len());
    }
}

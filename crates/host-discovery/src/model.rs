//! What the passes are about: what one sees, what it writes, and what it tells the next. The page to read first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::metal3::{
    BareMetalHostDiscovery, BareMetalHostDiscoveryStatus, DiscoveryCounts, ListedHost,
};
use api_types::names::{ferrite, metal3};
use controller_kit::engine::{Decision, Event, Next, Now, ObjectKey};
use ironic::Class;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::driver::{NodeDriver, drivers_of};
use crate::index::Index;
use crate::machine::{Machine, Shown};
use crate::naming::Named;
use crate::node_id::NodeId;
use crate::reason::{Pass, Reason, Sort};
use crate::refusals::{Cause, Refusal};
use crate::resource::Resource;
use crate::sighting::{Sighting, StatusRead};
use crate::waits::{IRONIC_RETRY, IRONIC_RETRY_MAX, READING_MAX};

/// What one pass is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// All machines: whose one is, and which of two gets a name, can only be decided about all of them together.
    All,
    /// A discovery: its status, and its approvals.
    Discovery(ObjectKey),
    /// A machine that is to be read.
    Machine(NodeId),
    /// A node on which it is to be written down that it had a host.
    Mark(Unmarked),
    /// A host that got a BMC: the driver of its node follows.
    Driver(ObjectKey),
}

/// Where a node that had a host is to be marked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unmarked {
    /// The node.
    pub node: NodeId,
    /// Its host.
    pub host: ObjectKey,
}

/// All that is looked at in one pass.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// Machines that are not settled, oldest first.
    pub machines: Vec<&'a Machine>,
    /// Every discovery.
    pub resources: &'a [Resource],
    /// Every node that Ironic shows.
    pub nodes: &'a dyn Shown,
    /// Every host.
    pub hosts: &'a Index,
    /// Machines whose host could not be made.
    pub refused: &'a BTreeMap<NodeId, Refusal>,
    /// Whether Ironic answers. While it does not, no host is made.
    pub answers: bool,
    /// How many hosts may be made now.
    pub allowance: u32,
    /// Whether every node of Ironic that is not a host is among the machines: only then is it known
    /// that one is not there.
    pub complete: bool,
}

/// What was decided about all machines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPlan {
    /// One for each machine, in their order.
    pub verdicts: Vec<Verdict>,
    /// Resources whose list of approvals changes.
    pub approvals: Vec<Approvals>,
    /// When to look again without being told.
    pub again: Option<Duration>,
    /// What is said of the watch on hosts while it does not tell of all of them: one cause, of which no machine has failed.
    pub behind: Option<String>,
}

impl HostPlan {
    /// How the pass ends in which this was decided.
    pub fn pass(&self, answers: bool) -> Pass {
        let waits = |it: &Verdict| it.reason == Reason::BmcAddressUncompared;
        if answers && self.verdicts.iter().any(waits) {
            return Pass::BmcsUncompared;
        }
        if answers { Pass::AllDecided } else { Pass::IronicAway }
    }

    /// The resources, by their places, that make hosts by it.
    pub fn makers(&self) -> BTreeSet<usize> {
        self.verdicts.iter().filter(|it| it.creates()).filter_map(|it| it.resource).collect()
    }

    /// Makes no hosts of these resources after all, and says why of each that would be made.
    pub fn hold_back(&mut self, of: &BTreeSet<usize>, reason: Reason, why: &str) {
        let is_of = |it: &Verdict| it.resource.is_some_and(|at| of.contains(&at));
        for verdict in self.verdicts.iter_mut().filter(|it| it.creates() && is_of(it)) {
            verdict.reason = reason;
            verdict.note = Some(why.to_owned());
        }
    }

    /// Makes none of these hosts while the watch on hosts is behind: any of them may exist.
    pub fn wait_for_hosts(&mut self, of: &BTreeSet<usize>, why: String) {
        self.hold_back(of, Reason::RateLimited, &why);
        self.behind = Some(why);
    }
}

/// What becomes of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// The machine.
    pub node: NodeId,
    /// The resource whose machine it is, by its place in the list.
    pub resource: Option<usize>,
    /// Why.
    pub reason: Reason,
    /// The name that its host gets or would get, and how it came to it.
    pub named: Option<Named>,
    /// The name that was taken of the two: the second where another machine has the first.
    pub name: Option<String>,
    /// The address of the BMC that its host gets or would get.
    pub bmc: Option<String>,
    /// Hosts that it is already, or that stand in its way.
    pub hosts: Vec<ObjectKey>,
    /// Only the machine itself says that its hosts are one: none of them is to be deleted before somebody looked at it.
    pub doubtful: bool,
    /// What went wrong: as Ironic or the API server says it, or why nothing can name the machine.
    pub note: Option<String>,
    /// The host that the node is to be marked with as one that had it: so that a person can delete the host.
    pub mark: Option<ObjectKey>,
    /// When to look at it again without being told.
    pub again: Option<Duration>,
}

/// Approvals of one resource of which some are settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Approvals {
    /// The resource, by its place in the list.
    pub resource: usize,
    /// Those that remain: the others are settled.
    pub keep: BTreeSet<NodeId>,
    /// Those that name no machine of this resource, as they can be shown.
    pub unknown: Vec<String>,
}

impl Verdict {
    /// Why, and nothing else yet.
    pub(crate) fn new(machine: &Machine, reason: Reason) -> Self {
        Self {
            node: machine.node,
            resource: None,
            reason,
            named: None,
            name: None,
            bmc: None,
            hosts: Vec::new(),
            doubtful: false,
            note: None,
            mark: None,
            again: None,
        }
    }

    /// Where it is counted. To come after another machine is short, unless that one's host can neither be made nor ruled out.
    pub fn sort(&self) -> Sort {
        let is_short = self.reason == Reason::AfterAnother && self.note.is_none();
        if is_short { Sort::Unlisted } else { self.reason.sort() }
    }

    /// Whether its host is made, in the namespace of its resource. That the name is there already is an answer, not an error: the
    /// host that has it goes into the index, and the machine is decided about again.
    pub fn creates(&self) -> bool {
        self.reason == Reason::Created
    }

    /// The same for another reason.
    pub(crate) fn because(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// Its host could not be made.
    pub fn fail(&mut self, cause: &Cause, text: &str) {
        self.reason = match cause {
            Cause::Refused(_) => Reason::HostRefused,
            Cause::Failed(_) | Cause::Unsaid | Cause::Unknown => Reason::HostFailed,
        };
        self.note = Some(text.to_owned());
    }
}

/// States in which nothing runs on a node, so that another driver disturbs nobody.
pub const AT_REST: [&str; 5] =
    ["enroll", "manageable", "available", "inspect failed", "clean failed"];

/// A host asks for the driver of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// The node.
    pub node: NodeId,
    /// The BMC's address.
    pub address: String,
}

impl Adoption {
    /// The driver of this host's node has to follow, if a discovery made the host. Its node is the one that the operator
    /// works with: where Ironic lost the one that the host was made for, it is another. A host that somebody paused is left
    /// alone until it is not; the pause of `bmo-reboot` is about power alone.
    pub fn of(host: &Sighting) -> Option<Self> {
        let node = host.status.as_ref().and_then(StatusRead::node);
        let node = node.or_else(|| host.annotation(ferrite::NODE_ID).and_then(NodeId::parse))?;
        host.labels().get(ferrite::DISCOVERED_BY)?;
        let address = host.bmc_address()?.to_owned();
        let leaves = host.metadata.deletion_timestamp.is_some();
        let pause = host.annotation(metal3::PAUSED);
        let paused = pause.is_some_and(|by| by != ferrite::PAUSED_BY_BMO_REBOOT);
        Some(Self { node, address }).filter(|_| !leaves && !paused)
    }
}

/// A node, and the driver that it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitting {
    /// What its host asks for.
    pub adoption: Adoption,
    /// Its driver now.
    pub driver: String,
    /// Its interfaces now, by their kinds.
    pub interfaces: BTreeMap<&'static str, String>,
    /// Whether it may be given others.
    pub adopts: bool,
    /// Its state.
    pub state: String,
    /// The drivers that are enabled in Ironic, where that matters.
    pub offered: Vec<String>,
    /// Whether the host, as it is now, still asks for it, where that matters: the watch told of it some time ago, and what was
    /// paused since is left alone.
    pub asks: bool,
}

impl Fitting {
    /// Drivers that can speak to the BMC, best first.
    pub fn wanted(&self) -> &'static [NodeDriver] {
        drivers_of(&self.adoption.address)
    }

    /// Whether the node has a driver for the BMC, with the interfaces that the operator would have given it.
    pub fn fits(&self) -> bool {
        let has = |(kind, name): (&str, &str)| {
            // The operator changes that one itself, for the volumes that a host asks for.
            kind == "raid" || self.interfaces.get(kind).is_some_and(|it| it == name)
        };
        self.wanted().iter().any(|it| it.driver == self.driver && it.interfaces().all(has))
    }

    /// Whether nothing runs on the node.
    pub fn is_at_rest(&self) -> bool {
        AT_REST.contains(&self.state.as_str())
    }

    /// The driver that it is to get.
    pub fn chosen(&self) -> Option<NodeDriver> {
        let is_enabled = |it: &&NodeDriver| self.offered.iter().any(|name| name == it.driver);
        self.wanted().iter().find(is_enabled).copied()
    }
}

/// What a process remembers of a key from one pass to the next: a write to Ironic waits. All of it can be forgotten.
pub type Memory = Option<Turn>;

/// Whether it is the turn of a write to Ironic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Since when it waits.
    pub since: Instant,
    /// Until when it is not tried again, and why: Ironic did not take it.
    pub refused: Option<(Instant, Pass)>,
}

impl Turn {
    /// Of a write that waits from now on, if it did not already.
    pub fn of(memory: &mut Memory) -> Self {
        *memory.get_or_insert_with(|| Self { since: Instant::now(), refused: None })
    }

    /// Nothing is done yet where Ironic did not take it a moment ago.
    pub fn left_alone(&self, now: Now) -> Option<Decision<Write, Pass>> {
        let (until, reason) = self.refused?;
        let wait = until.saturating_duration_since(now.moment);
        let next = Next::After(wait);
        (!wait.is_zero()).then(|| Decision { next, ..Decision::rest(reason) })
    }

    /// Another look where Ironic did not answer: as late as it has waited already.
    pub fn again(&self, now: Now) -> Decision<Write, Pass> {
        let waited = now.moment.saturating_duration_since(self.since);
        let next = Next::After(waited.clamp(IRONIC_RETRY, IRONIC_RETRY_MAX));
        Decision { next, ..Decision::rest(Pass::IronicBusy) }
    }
}

/// When Ironic was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// For new nodes.
    pub poll: Option<Timestamp>,
    /// For all.
    pub full: Option<Timestamp>,
}

/// What is known of Ironic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It was not asked yet.
    Unknown,
    /// It answers.
    Answers,
    /// It does not, or not to us.
    Silent {
        /// Why, as one word.
        class: &'static str,
        /// Why, and what to do about it.
        text: String,
        /// Since when these words are used.
        since: Instant,
    },
}

impl Reach {
    /// Ironic did not answer. Its words may differ from one attempt to the next and mean the same, so other words are
    /// only taken after some time.
    pub fn silent(&mut self, class: Class, text: String, at: Instant) {
        let class = match class {
            Class::Unauthorized => "AuthFailed",
            class => class.as_str(),
        };
        match self {
            Self::Silent { class: known, since, .. }
                if *known == class && at.duration_since(*since) < READING_MAX => {}
            _ => *self = Self::Silent { class, text, since: at },
        }
    }
}

/// Machines that stand in no list, because no resource has to do with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// Ironic discovered them, and no resource selects them.
    pub unselected: u32,
    /// They have no name, and nothing says that Ironic discovered them.
    pub undiscovered: u32,
    /// Somebody named them in Ironic or made them manageable, and they have no host.
    pub registered: u32,
}

impl Strays {
    /// Counts the strays of a decision, beside nodes that are settled as `registered` by somebody.
    pub fn of(plan: &HostPlan, registered: u32) -> Self {
        let with = |reason| {
            let count = plan.verdicts.iter().filter(|it| it.reason == reason).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Self {
            unselected: with(Reason::NotSelected),
            undiscovered: with(Reason::NotDiscovered),
            registered,
        }
    }
}

/// What is told of the machines of one resource, without the times since when they are listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// How many there are.
    pub counts: DiscoveryCounts,
    /// Machines that wait for a person or for room.
    pub pending: Vec<ListedHost>,
    /// Those of which nothing can be made.
    pub failures: Vec<ListedHost>,
    /// Those that another host stands in the way of.
    pub conflicts: Vec<ListedHost>,
    /// Those of whose hosts only the machine says that they are one.
    pub doubtful: BTreeSet<String>,
    /// Why some of them become no hosts though they should, as reason and message of `Ready`.
    pub trouble: Option<(&'static str, String)>,
    /// Machines that are no resource's; none before all were read.
    pub strays: Option<Strays>,
}

/// What the status of a discovery is to say, as far as that does not depend on what it says already.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPlan {
    /// What was decided upon.
    pub resource: Resource,
    /// Whether Ironic answers.
    pub reach: Reach,
    /// Machines, as far as they were read.
    pub report: Report,
    /// The version that Ironic offers.
    pub ironic_version: Option<String>,
    /// When Ironic was last asked.
    pub asked: Asked,
    /// Approvals that are settled.
    pub approvals: Option<Approvals>,
}

/// A discovery, and what its status is to say.
pub struct DiscoveryView {
    /// The object.
    pub object: Arc<BareMetalHostDiscovery>,
    /// What it is to say.
    pub status_plan: Arc<StatusPlan>,
}

/// One write.
#[derive(Debug)]
pub enum Write {
    /// Makes hosts, and tells everybody what was decided.
    Hosts(Box<HostPlan>),
    /// Takes settled approvals off a discovery.
    Approvals(Approvals),
    /// Writes the status of a discovery.
    Status(Box<BareMetalHostDiscoveryStatus>),
    /// Writes down on a node that it had a host.
    Mark,
    /// Gives a node this driver in place of that.
    Driver(NodeDriver, String),
}

/// One host to be made.
#[derive(Debug)]
pub struct Order {
    /// The resource whose machine it is.
    pub resource: Resource,
    /// The machine.
    pub machine: Machine,
    /// What was decided.
    pub verdict: Verdict,
    /// The host's name.
    pub name: String,
    /// When Ironic last showed the machine.
    pub seen: Option<Instant>,
    /// Whether there was room for the machine's hardware.
    pub has_details: bool,
}

/// What came of making a host.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// This host is there, and it is on its way to Ironic that its node had one. What is told of it.
    Created(ObjectKey, Box<(ObjectReference, Event)>),
    /// Somebody has the name: the host that has it is in the index now.
    Exists,
    /// It could not be made; what the API server said, or Ironic.
    Failed(Cause, String),
    /// The machine is no longer what was decided about.
    Stale,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A host of node 1 that a discovery made, with its BMC, and with this besides.
    fn discovered(pause: Option<&str>, address: &str, status: &Value) -> Sighting {
        let host = json!({
            "metadata": {
                "namespace": "metal", "name": "n1",
                "labels": {ferrite::DISCOVERED_BY: "racks"},
                "annotations": {ferrite::NODE_ID: NodeId::from(1).to_string()},
            },
            "spec": {"bmc": {"address": address}},
            "status": status,
        });
        let mut host: Sighting = serde_json::from_value(host).unwrap();
        let pause = pause.map(|by| (metal3::PAUSED.to_owned(), by.to_owned()));
        host.annotations_mut().extend(pause);
        host
    }

    fn of_node(id: &str) -> Value {
        json!({"provisioning": {"ID": id}})
    }

    #[test]
    fn the_driver_follows_on_the_node_that_the_operator_works_with() {
        let node_of =
            |id: &str| Adoption::of(&discovered(None, "192.0.2.1", &of_node(id))).map(|it| it.node);
        assert_eq!(node_of(""), Some(NodeId::from(1)));
        let other = NodeId::from(2);
        assert_eq!(node_of(&other.to_string()), Some(other));
    }

    #[test]
    fn the_node_of_a_host_that_somebody_paused_keeps_its_driver_until_it_is_not() {
        let adopts = |pause| Adoption::of(&discovered(pause, "192.0.2.1", &Value::Null)).is_some();
        let pauses = [None, Some(""), Some("metal3.io/capm3"), Some(ferrite::PAUSED_BY_BMO_REBOOT)];
        assert_eq!(pauses.map(adopts), [true, false, false, true]);
    }

    #[test]
    fn a_driver_that_waited_is_given_only_while_the_host_as_it_is_now_asks_for_it() {
        let asks =
            |pause, address, status: &Value| Adoption::of(&discovered(pause, address, status));
        let asked = asks(None, "192.0.2.1", &Value::Null);
        assert!(asked.is_some());
        assert_eq!(asks(None, "192.0.2.1", &Value::Null), asked);
        // Paused, or given another BMC, since the watch told of it.
        assert_ne!(asks(Some(""), "192.0.2.1", &Value::Null), asked);
        assert_ne!(asks(None, "192.0.2.2", &Value::Null), asked);
        let other = of_node(&NodeId::from(2).to_string());
        assert_ne!(asks(None, "192.0.2.1", &other), asked);
    }
}

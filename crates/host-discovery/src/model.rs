//! What the passes are about: what one sees, what it writes, and what it tells the next. The page to read first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery, BareMetalHostDiscoveryStatus};
use api_types::names::{ferrite, metal3};
use controller_kit::engine::{Decision, Next, Now, ObjectKey};
use k8s_openapi::jiff::Timestamp;

use crate::decision::{self, Approvals};
use crate::driver::drivers_of;
use crate::index::{HostKey, Index};
use crate::inventory::Ports;
use crate::node_id::NodeId;
use crate::nodes::{Nodes, Unmarked};
use crate::reason::Pass;
use crate::refusals::{Cause, Refusals};
use crate::report::Report;
use crate::resource::Resource;
use crate::seen::Observed;
use crate::status::{Reach, Troubles};

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
    Driver(HostKey),
}

/// The first time between two looks at a node that waits for something.
pub const FIRST_LOOK: Duration = Duration::from_secs(5);
/// The longest one.
pub const LONGEST_LOOK: Duration = Duration::from_secs(300);
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
    pub fn of(host: &BareMetalHost) -> Option<Self> {
        let status = host.status.as_ref();
        let node = status.and_then(|it| NodeId::parse(&it.provisioning.id));
        let node = node.or_else(|| host.annotation(ferrite::NODE_ID).and_then(NodeId::parse))?;
        host.label(ferrite::DISCOVERED_BY)?;
        let address = host.spec.bmc.as_ref().map(|bmc| bmc.address.clone())?;
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
    /// Its state.
    pub state: String,
    /// The drivers that are enabled in Ironic, where that matters.
    pub offered: Vec<String>,
    /// Whether the host, as it is now, still asks for it, where that matters: the watch told of it some time ago, and what was
    /// paused since is left alone.
    pub asks: bool,
}

impl Fitting {
    /// Whether the node has a driver for the BMC.
    pub fn fits(&self) -> bool {
        drivers_of(&self.adoption.address).contains(&self.driver.as_str())
    }

    /// Whether nothing runs on the node.
    pub fn is_at_rest(&self) -> bool {
        AT_REST.contains(&self.state.as_str())
    }

    /// The driver that it is to get.
    pub fn chosen(&self) -> Option<&'static str> {
        let wanted = drivers_of(&self.adoption.address);
        wanted.iter().copied().find(|name| self.offered.iter().any(|it| it == name))
    }
}

/// Whether it is the turn of a write to Ironic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Since when it waits.
    pub since: Instant,
    /// Until when it is not tried again, and why: Ironic did not take it.
    pub refused: Option<(Instant, Pass)>,
    /// Hosts are being made.
    pub making: bool,
}

impl Turn {
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
        let next = Next::After(waited.clamp(FIRST_LOOK, LONGEST_LOOK));
        Decision { next, ..Decision::rest(Pass::IronicBusy) }
    }
}

/// All that is looked at when it is decided about all machines.
pub struct Sight {
    /// The machines.
    pub nodes: Arc<Nodes>,
    /// Machines whose host could not be made.
    pub refusals: Arc<Refusals>,
    /// Every discovery.
    pub resources: Vec<Resource>,
    /// Name, version and generation of each.
    pub objects: Vec<Version>,
    /// Whether Ironic answers.
    pub reach: Reach,
    /// How many hosts may be made now.
    pub allowance: u32,
    /// Whether every node of Ironic that is not a host is among the machines.
    pub complete: bool,
    /// Whether every machine that the first list showed was read: before that, a status would tell less than the one that is
    /// there.
    pub caught_up: bool,
    /// When it was last seen that the watch tells of all hosts.
    pub watched: Option<Instant>,
    /// Whether Ironic may be asked about machines: it was not silent just now.
    pub may_read: bool,
    /// When Ironic was last asked for new nodes, and for all.
    pub asked: Asked,
}

/// When Ironic was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// For new nodes.
    pub poll: Option<Timestamp>,
    /// For all.
    pub full: Option<Timestamp>,
}

/// Which object was decided upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its name.
    pub key: ObjectKey,
    /// Its version.
    pub version: Option<String>,
    /// The generation of its spec.
    pub generation: Option<i64>,
}

impl Sight {
    /// As the rules look at it.
    pub fn observed<'a>(&'a self, hosts: &'a Index) -> Observed<'a> {
        Observed {
            machines: self.nodes.machines(),
            resources: &self.resources,
            hosts,
            refused: self.refusals.all(),
            answers: self.answers(),
            allowance: self.allowance,
            complete: self.complete,
        }
    }

    /// Whether Ironic answers.
    pub fn answers(&self) -> bool {
        self.reach == Reach::Answers
    }
}

/// What the status of a discovery is to say, as far as that does not depend on what it says already.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// What was decided upon.
    pub of: Version,
    /// An older discovery that nobody can read.
    pub behind: Option<String>,
    /// Whether Ironic answers.
    pub reach: Reach,
    /// What stands in its way.
    pub troubles: Troubles,
    /// Machines; none before all were read.
    pub report: Option<Report>,
    /// The version that Ironic offers.
    pub ironic_version: Option<String>,
    /// When Ironic was last asked.
    pub asked: Asked,
    /// Approvals that are settled.
    pub approvals: Option<Approvals>,
}

impl Outlook {
    /// Whether it is nothing new beside another: when Ironic was last asked is no reason to write.
    pub fn is_like(&self, other: &Self) -> bool {
        let timeless = Self { of: other.of.clone(), asked: other.asked, ..self.clone() };
        let same = timeless == *other && self.of.generation == other.of.generation;
        // Approvals are settled on the version that they stand on.
        same && self.approvals.is_none()
    }
}

/// A discovery, and what its status is to say.
pub struct Standing {
    /// The object.
    pub object: Arc<BareMetalHostDiscovery>,
    /// What it is to say.
    pub outlook: Arc<Outlook>,
    /// When its status was last written.
    pub written: Option<Instant>,
}

/// One write.
#[derive(Debug)]
pub enum Write {
    /// Makes hosts, and tells everybody what was decided.
    Hosts(Box<decision::Decision>),
    /// Takes settled approvals off a discovery.
    Approvals(Approvals),
    /// Writes the status of a discovery.
    Status(Box<BareMetalHostDiscoveryStatus>),
    /// Writes down on a node that it had a host.
    Mark,
    /// Gives a node this driver in place of that.
    Driver(String, String),
}

/// A machine that is to be read, and what is known of it already.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Its ports, where a list has shown them.
    pub listed: Option<Ports>,
    /// Whether a list has shown the node itself.
    pub known: bool,
    /// Whether it was read before, and is only looked at once more.
    pub once_more: bool,
}

/// What came of looking once more at machines. Nothing of it is taken notice of while hosts are made of those that it shows.
#[derive(Debug, Default)]
pub struct Looked {
    /// Nodes that Ironic showed, and when.
    pub shown: Vec<(Instant, Vec<ironic::Node>)>,
    /// Whether it answered at least once.
    pub answered: bool,
    /// That it did not, or not to us.
    pub silence: Option<ironic::Error>,
}

impl Looked {
    /// Ironic showed this node just now.
    pub fn one(node: ironic::Node) -> Self {
        Self { shown: vec![(Instant::now(), vec![node])], answered: true, silence: None }
    }
}

/// What came of making a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// This host is there, and it is on its way to Ironic that its node had one.
    Created(HostKey),
    /// Somebody has the name: the host that has it is in the index now.
    Exists,
    /// It could not be made; what the API server said.
    Failed(Cause, String),
    /// Ironic does not say what hardware it has; its words.
    Undescribed(String),
    /// The machine is no longer what was decided about.
    Stale,
}

impl Made {
    /// Why there is no host, and what is to be said of that.
    pub fn failure(&self) -> Option<(Cause, String)> {
        match self {
            Self::Failed(cause, text) => Some((cause.clone(), text.clone())),
            Self::Undescribed(text) => Some((Cause::Failed(None), text.clone())),
            Self::Created(_) | Self::Exists | Self::Stale => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use api_types::metal3::{BareMetalHostSpec, BareMetalHostStatus, Bmc, Provisioning};

    use super::*;

    /// A host of node 1 that a discovery made, with its BMC.
    fn discovered(pause: Option<&str>) -> BareMetalHost {
        let mut host = BareMetalHost::new("metal", "n1", BareMetalHostSpec::default());
        let label = (ferrite::DISCOVERED_BY.to_owned(), "racks".to_owned());
        host.metadata.labels = Some([label].into());
        let node = (ferrite::NODE_ID.to_owned(), NodeId::from(1).to_string());
        let pause = pause.map(|by| (metal3::PAUSED.to_owned(), by.to_owned()));
        host.metadata.annotations = Some(std::iter::once(node).chain(pause).collect());
        host.spec.bmc = Some(Bmc { address: "192.0.2.1".to_owned(), ..Bmc::default() });
        host
    }

    #[test]
    fn the_driver_follows_on_the_node_that_the_operator_works_with() {
        let node_of = |id: String| {
            let mut host = discovered(None);
            let provisioning = Provisioning { id, ..Provisioning::default() };
            host.status =
                Some(BareMetalHostStatus { provisioning, ..BareMetalHostStatus::default() });
            Adoption::of(&host).map(|it| it.node)
        };
        assert_eq!(node_of(String::new()), Some(NodeId::from(1)));
        let other = NodeId::from(2);
        assert_eq!(node_of(other.to_string()), Some(other));
    }

    #[test]
    fn the_node_of_a_host_that_somebody_paused_keeps_its_driver_until_it_is_not() {
        let adopts = |pause| Adoption::of(&discovered(pause)).is_some();
        let pauses = [None, Some(""), Some("metal3.io/capm3"), Some(ferrite::PAUSED_BY_BMO_REBOOT)];
        assert_eq!(pauses.map(adopts), [true, false, false, true]);
    }

    #[test]
    fn a_driver_that_waited_is_given_only_while_the_host_as_it_is_now_asks_for_it() {
        let asked = Adoption::of(&discovered(None));
        assert!(asked.is_some());
        assert_eq!(Adoption::of(&discovered(None)), asked);
        // Paused, or given another BMC, since the watch told of it.
        assert_ne!(Adoption::of(&discovered(Some(""))), asked);
        let mut moved = discovered(None);
        moved.spec.bmc = Some(Bmc { address: "192.0.2.2".to_owned(), ..Bmc::default() });
        assert_ne!(Adoption::of(&moved), asked);
        let mut other = discovered(None);
        let id = NodeId::from(2).to_string();
        let provisioning = Provisioning { id, ..Provisioning::default() };
        other.status = Some(BareMetalHostStatus { provisioning, ..BareMetalHostStatus::default() });
        assert_ne!(Adoption::of(&other), asked);
    }
}

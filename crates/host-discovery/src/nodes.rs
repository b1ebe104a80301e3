//! What is remembered of Ironic's nodes between two polls. No I/O.
//!
//! All of it can be forgotten: a new process lists the nodes and reads what it lacks. A node that is a host, or that
//! somebody registered, takes some bytes. One of which something may be made takes about a kilobyte beside its details,
//! and eight where it says as much as anybody listens to: only so many of those have a place, and so many bytes together,
//! since anybody on the provisioning network can make them.

mod track;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use controller_kit::engine::ObjectKey;
use ironic::{Class, Pager};

use crate::hardware::HardwareDetails;
use crate::index::Index;
use crate::inventory::{Facts, Port, abridged};
use crate::machine::{Machine, Reading, Shown};
use crate::model::{HostPlan, Unmarked};
use crate::node_id::NodeId;
use crate::reason::Reason;
use crate::waits::{HANGS_AFTER, IRONIC_RETRY_MAX, REST_MAX};

use track::{Settled, Track};

/// A list of nodes.
#[derive(Clone, Debug)]
pub struct NodeList {
    /// Whether it is one of all nodes, or of those that are newer than the newest one listed.
    pub all: bool,
    /// When it began.
    pub began: Instant,
    pub(crate) pages: Pager<ironic::Node>,
}

/// The state in which Ironic keeps what it discovered.
pub const ENROLL: &str = "enroll";
/// Where it is written down that a node had a host: in Ironic, on the node itself, so that it is there for every replica
/// and after every restart, and gone with the node.
pub const HAD_HOST: &str = "ferrite_had_host";
/// Bytes of hardware details that are kept for machines that wait. One whose details have no room is read again before its host
/// is made.
const MOST_DETAILS: usize = 32 << 20;
/// Bytes that are kept of what all machines say to be decided about. Ten thousand with forty-eight interfaces each have room.
const MOST_FACTS: usize = 16 << 20;
/// How much of that has to be free before another machine gets a place: how much it says is not known before it is read, and
/// all those for which there is no room would else be read at each list.
const ROOM: usize = 1 << 20;
/// Bytes of an error of Ironic's that are kept: part of it is the machine's own text, of many megabytes if it likes.
const LONGEST_ERROR: usize = 256;
/// After so many failures in a row Ironic's words are told, and no status waits for the reading any more.
const FAILURES: u32 = 3;

/// Every node that Ironic showed.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    /// Machines that may become hosts.
    waiting: HashMap<NodeId, Track>,
    settled: HashMap<NodeId, Settled>,
    /// Machines that are being read.
    reads: HashMap<NodeId, Read>,
    /// Nodes whose host went before a list showed them, and that host: kept until a list is complete.
    left: HashMap<NodeId, ObjectKey>,
    /// Nodes that are to be marked as ones that had a host.
    pub unmarked: BTreeSet<Unmarked>,
    most: usize,
    facts: usize,
    details: usize,
    round: u32,
    next: u64,
    left_out: usize,
    /// The same of the list before, until this one is complete.
    left_out_before: usize,
}

/// A machine is being read.
#[derive(Clone, Debug)]
pub struct Read {
    /// Since when.
    since: Instant,
    /// Its ports, where a list has shown them.
    pub ports: Option<Vec<Port>>,
    /// When Ironic last showed the node itself.
    pub seen: Option<Instant>,
}

/// What was read of one machine.
#[derive(Debug)]
pub enum Look {
    /// Ironic does not have it any more.
    Gone,
    /// What it says.
    Read {
        /// The node, where it was asked.
        node: Option<Box<ironic::Node>>,
        /// Its inventory.
        inventory: Reading,
        /// The inventory as it stands on a host.
        details: Option<HardwareDetails>,
        /// Its ports whose address identifies.
        ports: Vec<Port>,
    },
    /// Ironic did not say: the kind of its failure, and its words.
    Failed(Class, String),
}

impl Shown for Nodes {
    fn shows(&self, node: NodeId) -> bool {
        self.has(node)
    }
}

impl Nodes {
    /// None so far, and places for so many machines.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Machines that may become hosts, oldest first.
    pub fn machines(&self) -> Vec<&Machine> {
        let mut all: Vec<_> = self.waiting.values().collect();
        all.sort_unstable_by_key(|track| track.order);
        all.into_iter().map(|track| &track.machine).collect()
    }

    /// One of them.
    pub fn machine(&self, node: NodeId) -> Option<&Machine> {
        Some(&self.waiting.get(&node)?.machine)
    }

    /// How many nodes are hosts.
    pub fn known(&self) -> u32 {
        let known = self.settled.values().filter(|it| it.host.is_some()).count();
        u32::try_from(known).unwrap_or(u32::MAX)
    }

    /// How many nodes somebody registered that are nobody's host.
    pub fn registered(&self) -> u32 {
        let registered = self.settled.values().filter(|it| it.host.is_none()).count();
        u32::try_from(registered).unwrap_or(u32::MAX)
    }

    /// Whether Ironic showed this node and it has a place.
    pub fn has(&self, node: NodeId) -> bool {
        self.is_machine(node) || self.settled.contains_key(&node)
    }

    /// How many nodes there are that have a place.
    pub fn count(&self) -> usize {
        self.waiting.len() + self.settled.len()
    }

    /// How many nodes found no place, or no room for what they say: a list that broke off says nothing of those that it did
    /// not come to.
    pub fn left_out(&self) -> usize {
        self.left_out.max(self.left_out_before)
    }

    /// Whether those that found no place could find one now.
    pub fn has_room_again(&self) -> bool {
        let has_room = self.waiting.len() < self.most / 2 && self.facts < MOST_FACTS / 2;
        self.left_out() > 0 && has_room
    }

    /// Whether another machine finds no place.
    fn is_full(&self) -> bool {
        self.waiting.len() >= self.most || self.facts > MOST_FACTS - ROOM
    }

    /// A list of all nodes begins.
    pub fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.left_out_before = self.left_out();
        self.left_out = 0;
    }

    /// A list of all nodes is complete: those that it did not show are gone.
    pub fn end(&mut self) {
        let round = self.round;
        self.left_out_before = 0;
        self.left.clear();
        self.settled.retain(|_, it| it.round == round);
        let gone = self.waiting.values().filter(|track| track.round != round);
        let gone: Vec<NodeId> = gone.map(|track| track.machine.node).collect();
        for node in gone {
            self.forget(node);
        }
    }

    /// Takes a node as a list shows it, without its error. One that is a host that a discovery made, or was one, and does not bear
    /// the mark, or bears it no longer, is to be marked.
    pub fn note(&mut self, node: &ironic::Node, hosts: &Index, at: Instant) {
        let Some(id) = NodeId::parse(&node.uuid) else { return };
        let (marked, enrolled) = (is_marked(node), is_enrolled(node));
        let left = self.left.get(&id).filter(|_| !marked).cloned();
        let was_left = left.is_some();
        self.unmarked.extend(left.map(|host| Unmarked { node: id, host }));
        let round = self.round;
        if let Some(track) = self.waiting.get_mut(&id) {
            let changed = track.machine.is_changed(node);
            track.take(node);
            (track.round, track.seen) = (round, Some(at));
            if changed {
                track.look_at(track.look.map_or(at, |look| look.min(at)));
            }
            return;
        }
        let earlier = self.settled.remove(&id);
        let order = earlier.as_ref().map_or(self.next, |it| it.order);
        self.next = self.next.max(order + 1);
        let had_host = marked || was_left || earlier.as_ref().is_some_and(|it| it.had_host);
        let known = hosts.known(id, node.name.as_deref(), &[], None, |_| false);
        let registered = node.name.is_some() || !enrolled;
        // Another host may be this machine by an address, and which it has is not known before it is read.
        let before = earlier.as_ref().and_then(|it| it.host.as_ref());
        let contested = matches!(&known[..], [one]
            if before != Some(&one.host) && !hosts.rivals(&one.host).is_empty());
        // A host that was found by addresses is not found again without them.
        let earlier = earlier.and_then(|it| Some((it.host?, it.ours)));
        let still = earlier.filter(|(host, _)| known.is_empty() && hosts.has(host));
        let settled = match (&known[..], still) {
            ([one], _) => Some((Some(one.host.clone()), one.marks(id))),
            ([], Some((host, ours))) => Some((Some(host), ours)),
            ([], None) if registered => Some((None, false)),
            _ => None,
        };
        // Also one that was lost: after the next start nobody would know that the node had a host. One that is on its way
        // is written once more at most.
        let lacks_mark = !was_left && (!had_host || (node.extra.is_some() && !marked));
        if let Some((Some(host), true)) = &settled
            && lacks_mark
        {
            self.unmarked.insert(Unmarked { node: id, host: host.clone() });
        }
        if let Some((host, ours)) = settled.filter(|_| !contested) {
            self.settled.insert(id, Settled { order, round, host, ours, had_host });
            return;
        }
        if self.is_full() {
            self.left_out += 1;
            return;
        }
        let machine =
            Machine { name: node.name.clone(), enrolled, had_host, ..Machine::unread(id) };
        // What somebody registered is not read: only a new machine becomes a host.
        let look = (!registered || contested).then_some(at);
        let (since, seen) = (Some(at), Some(at));
        let track = Track {
            machine,
            order,
            since,
            round,
            seen,
            marked,
            look,
            contested,
            ..Track::default()
        };
        self.waiting.insert(id, track);
    }

    /// Takes nodes of which a list shows the identity alone. What they are, and whether somebody registered them, is not known
    /// before Ironic was asked for each.
    pub fn note_unread(&mut self, ids: &[String], at: Instant) {
        let round = self.round;
        for node in ids.iter().filter_map(|id| NodeId::parse(id)) {
            if let Some(settled) = self.settled.get_mut(&node) {
                settled.round = round;
            } else if let Some(track) = self.waiting.get_mut(&node) {
                track.round = round;
            } else if self.is_full() {
                self.left_out += 1;
            } else {
                self.waiting.insert(node, Track::unread(node, self.next, round, at));
                self.next += 1;
            }
        }
    }

    /// Machines that are to be read, so many at most, in the order in which their turn came; those that said nothing before
    /// come last: there may be thousands of them, and a new machine waits for none.
    pub fn due(&self, at: Instant, most: usize) -> Vec<NodeId> {
        let mut due: Vec<_> = self.free().filter(|track| track.is_due(at)).collect();
        due.sort_unstable_by_key(|track| (track.vain > 0, track.look, track.order));
        due.into_iter().map(|track| track.machine.node).take(most).collect()
    }

    /// Says for how long each machine is known.
    pub fn grow_older(&mut self, at: Instant) {
        for track in self.waiting.values_mut() {
            let known_for = track.since.map(|since| at.saturating_duration_since(since));
            track.machine.known_for = known_for.unwrap_or_default();
        }
    }

    /// Whether it will soon be known of a machine what it is; not of one that hangs, that Ironic could not inspect, or that it has
    /// failed for again and again.
    pub fn has_unread(&self, at: Instant) -> bool {
        let is_told = |it: &Track| it.vain >= FAILURES || it.machine.last_error.is_some();
        let is_soon = |it: &Track| match self.reads.get(&it.machine.node) {
            Some(read) => at.saturating_duration_since(read.since) < HANGS_AFTER,
            None => it.is_due(at),
        };
        self.waiting.values().any(|it| is_soon(it) && !is_told(it))
    }

    /// Those that are not being read.
    fn free(&self) -> impl Iterator<Item = &Track> {
        self.waiting.values().filter(|it| !self.reads.contains_key(&it.machine.node))
    }

    /// When the next one is to be read.
    pub fn next_look(&self) -> Option<Instant> {
        self.free().filter_map(|track| track.look).min()
    }

    /// Those that are being read.
    pub fn being_read(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.reads.keys().copied()
    }

    /// What is known already of a machine that is being read.
    pub fn reading(&self, node: NodeId) -> Option<Read> {
        self.reads.get(&node).cloned()
    }

    /// A machine is being read from now on, until [`Nodes::read`] is told what came of it. That it had no inventory before says
    /// nothing any more: Ironic may have one now, and fail to give it.
    pub fn reads(&mut self, node: NodeId, ports: Option<Vec<Port>>, at: Instant) {
        let Some(track) = self.waiting.get_mut(&node) else { return };
        self.reads.entry(node).or_insert(Read { since: at, ports, seen: track.seen });
        if track.machine.inventory == Reading::None {
            track.machine.inventory = Reading::Unread;
        }
    }

    /// Takes what was read of a machine.
    pub fn read(&mut self, node: NodeId, look: Look, at: Instant) {
        self.reads.remove(&node);
        let Some(track) = self.waiting.get_mut(&node) else { return };
        match look {
            Look::Gone => self.forget(node),
            Look::Failed(class, text) => {
                track.look_later(at, IRONIC_RETRY_MAX);
                // The same failure may be put in other words each time.
                let told = track.machine.unanswered.as_ref().map(|(told, _)| *told);
                if track.vain >= FAILURES && told != Some(class) {
                    track.machine.unanswered = Some((class, abridged(&text, LONGEST_ERROR)));
                }
            }
            Look::Read { node: shown, inventory, details, ports } => {
                let error = track.machine.last_error.clone();
                if let Some(shown) = shown {
                    track.take(&shown);
                    track.machine.last_error =
                        shown.last_error.as_deref().map(|it| abridged(it, LONGEST_ERROR));
                    track.seen = Some(at);
                }
                let machine = &mut track.machine;
                machine.unanswered = None;
                track.contested = false;
                self.facts -= machine.bytes();
                machine.inventory = inventory;
                machine.ports = ports;
                machine.ports.shrink_to_fit();
                self.facts += machine.bytes();
                if !machine.is_unread() || machine.last_error != error {
                    track.vain = 0;
                }
                track.look = None;
                self.details -= track.details_size();
                track.details = details;
                self.details += track.details_size();
                if self.facts > MOST_FACTS {
                    // Of a machine that is known by half something else would come.
                    self.left_out += 1;
                    self.forget(node);
                }
            }
        }
    }

    /// The details of a machine, if there is room for them.
    pub fn details(&self, node: NodeId) -> Option<&HardwareDetails> {
        self.waiting.get(&node)?.details.as_ref()
    }

    /// When Ironic last showed a machine.
    pub fn seen(&self, node: NodeId) -> Option<Instant> {
        self.waiting.get(&node)?.seen
    }

    /// Whether a node is among those that may become hosts.
    pub fn is_machine(&self, node: NodeId) -> bool {
        self.waiting.contains_key(&node)
    }

    /// Has a machine read anew.
    pub fn look_at(&mut self, node: NodeId, at: Instant) {
        if let Some(track) = self.waiting.get_mut(&node) {
            track.look_at(at);
        }
    }

    /// Settles what was decided: machines that are hosts or somebody else's need no more looks, incomplete ones get
    /// their next. One that Ironic could not inspect, say, most likely stays so: it is looked at less and less often.
    pub fn settle(&mut self, plan: &HostPlan, at: Instant) {
        for verdict in &plan.verdicts {
            let node = verdict.node;
            let Some(track) = self.waiting.get_mut(&node) else { continue };
            if self.details > MOST_DETAILS && !verdict.creates() {
                self.details -= track.details_size();
                track.details = None;
            }
            match verdict.reason {
                Reason::Known if track.contested => {}
                Reason::Known | Reason::Registered => {
                    let unmarked = verdict.mark.clone().map(|host| Unmarked { node, host });
                    self.unmarked.extend(unmarked);
                    let settled = Settled {
                        order: track.order,
                        round: track.round,
                        host: verdict.hosts.first().cloned(),
                        ours: verdict.mark.is_some(),
                        had_host: track.machine.had_host,
                    };
                    self.settled.insert(node, settled);
                    self.forget(node);
                }
                _ if track.look.is_some() || !track.machine.is_unread() => {}
                Reason::AwaitsInventory | Reason::AwaitsPorts => {
                    track.look_at(at + verdict.again.unwrap_or_default());
                }
                _ => track.look_later(at, REST_MAX),
            }
        }
    }

    /// Hosts went, or lost what they were known by: their nodes are machines again, which have to be read.
    pub fn unsettle(&mut self, gone: &HashSet<ObjectKey>, at: Instant) {
        if gone.is_empty() {
            return;
        }
        let is_gone = |it: &Settled| it.host.as_ref().is_some_and(|host| gone.contains(host));
        let freed: Vec<NodeId> =
            self.settled.iter().filter(|(_, it)| is_gone(it)).map(|(node, _)| *node).collect();
        for node in freed {
            let Some(settled) = self.settled.remove(&node) else { continue };
            // The mark may not have reached Ironic yet.
            let had_host = settled.had_host || settled.ours;
            let mut track = Track::unread(node, settled.order, settled.round, at);
            (track.machine.had_host, track.contested) = (had_host, true);
            self.waiting.insert(node, track);
        }
    }

    /// A host was made for this node, or went that was: the process that made it may have ended before it wrote that down. Of a
    /// node that no list has shown yet it is kept until one does.
    pub fn remember(&mut self, it: Unmarked) {
        match self.had_host(it.node).map(|had_host| std::mem::replace(had_host, true)) {
            Some(true) => {}
            Some(false) => drop(self.unmarked.insert(it)),
            None => {
                if self.left.len() >= self.most {
                    // Those that went long ago bear the mark by now.
                    self.left.clear();
                }
                self.left.insert(it.node, it.host);
            }
        }
    }

    fn had_host(&mut self, node: NodeId) -> Option<&mut bool> {
        if let Some(settled) = self.settled.get_mut(&node) {
            return Some(&mut settled.had_host);
        }
        Some(&mut self.waiting.get_mut(&node)?.machine.had_host)
    }

    /// Keeps a machine no longer.
    fn forget(&mut self, node: NodeId) {
        self.reads.remove(&node);
        if let Some(track) = self.waiting.remove(&node) {
            self.facts -= track.machine.bytes();
            self.details -= track.details_size();
        }
    }
}

impl Machine {
    /// Whether somebody did something with it since it was shown before.
    fn is_changed(&self, node: &ironic::Node) -> bool {
        self.name != node.name || self.enrolled != is_enrolled(node)
    }

    /// Bytes that what it says takes, beside those that every machine takes.
    fn bytes(&self) -> usize {
        self.inventory.facts().map_or(0, Facts::size) + size_of_val(&self.ports[..])
    }

    /// Whether nothing was read of which something can be made.
    fn is_unread(&self) -> bool {
        match self.inventory {
            Reading::Unread | Reading::None => true,
            Reading::TooLarge(_) => false,
            Reading::Facts(_) => self.ports.is_empty(),
        }
    }
}

impl Track {
    /// Takes over what a list or the node itself shows.
    fn take(&mut self, node: &ironic::Node) {
        let marked = is_marked(node);
        // An answer that leaves the place of the mark out does not say that it is off.
        let lost = node.extra.is_some() && self.lost_its_mark(marked);
        let machine = &mut self.machine;
        machine.had_host = marked || (machine.had_host && !lost);
        machine.enrolled = is_enrolled(node);
        machine.name.clone_from(&node.name);
    }
}

fn is_marked(node: &ironic::Node) -> bool {
    node.extra.as_ref().is_some_and(|extra| extra.contains_key(HAD_HOST))
}

fn is_enrolled(node: &ironic::Node) -> bool {
    node.provision_state.as_deref() == Some(ENROLL)
}

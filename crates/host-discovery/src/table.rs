//! What is known of all machines, from one decision about them to the next.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use controller_kit::backoff;
use controller_kit::engine::ObjectKey;
use controller_kit::engine::queue::spread;
use ironic::Class;
use k8s_openapi::jiff::Timestamp;

use crate::allowance::Allowance;
use crate::index::{Change, Index};
use crate::inventory::Port;
use crate::machine::Machine;
use crate::model::{Asked, Key, Made, Observed, Reach, Unmarked};
use crate::node_id::NodeId;
use crate::nodes::{Look, NodeList, Nodes};
use crate::refusals::{Cause, Refusals};
use crate::resource::Resource;
use crate::settings::Policy;
use crate::text;
use crate::waits::{FIRST_RETRY, IRONIC_RETRY, SHORTEST_WAIT};

/// So many failures in a row are silence; one alone is told to nobody, and asked again soon.
const MISSES: u32 = 3;
/// Machines that are read at a time, those that hang among them.
pub(crate) const MOST_READ: usize = 256;
/// So many nodes are marked by each pass about all machines while machines are read or hosts are made: a mark takes Ironic as
/// long as ten readings.
const MARKS_BESIDE_WORK: usize = 1;

/// What a process knows of all machines: all that is looked at when it is decided about them.
#[derive(Debug)]
pub struct Table {
    /// The machines.
    pub nodes: Nodes,
    /// Machines whose host could not be made.
    pub refusals: Refusals,
    /// Every discovery, when it was last looked at.
    pub resources: Vec<Resource>,
    /// Whether Ironic answers.
    pub reach: Reach,
    /// When Ironic was last asked for new nodes, and for all.
    pub asked: Asked,
    /// Whether every machine that the first list showed was read: before that, a status would tell less than the one that is
    /// there.
    pub caught_up: bool,
    /// How many hosts may be made now.
    may_make: u32,
    /// Whether every node of Ironic that is not a host is among the machines.
    complete: bool,
    /// The list of nodes that is under way.
    pub list: Option<NodeList>,
    /// The newest node that was listed.
    pub newest: Option<String>,
    /// After this port a list of ports goes on.
    pub last_port: Option<String>,
    /// Ports of nodes that are still to be read: the list does not show them again.
    pub found: HashMap<NodeId, Vec<Port>>,
    /// Hosts that went, or lost what they were known by, since all machines were last decided about.
    pub(crate) gone: HashSet<ObjectKey>,
    /// Whether hosts were made since.
    has_made: bool,
    /// Nodes that are being marked.
    pub marks: BTreeSet<Unmarked>,
    /// Failures in a row.
    misses: u32,
    allowance: Allowance,
    next_poll: Instant,
    next_full: Instant,
    /// When the last complete list of nodes began.
    listed: Option<Instant>,
    /// Approved nodes that Ironic had not shown when they were first seen, and since when.
    unshown: HashMap<NodeId, Instant>,
}

impl Default for Table {
    fn default() -> Self {
        Self::new(&Policy::default())
    }
}

impl Table {
    /// Nothing is known yet.
    pub fn new(policy: &Policy) -> Self {
        let now = Instant::now();
        Self {
            nodes: Nodes::new(policy.most_machines),
            refusals: Refusals::default(),
            resources: Vec::new(),
            reach: Reach::Unknown,
            asked: Asked::default(),
            caught_up: false,
            may_make: 0,
            complete: false,
            list: None,
            newest: None,
            last_port: None,
            found: HashMap::new(),
            gone: HashSet::new(),
            has_made: false,
            marks: BTreeSet::new(),
            misses: 0,
            allowance: Allowance::new(policy.create_rate, now),
            next_poll: now,
            next_full: now,
            listed: None,
            unshown: HashMap::new(),
        }
    }

    /// As the rules look at it.
    pub fn observed<'a>(&'a self, hosts: &'a Index) -> Observed<'a> {
        Observed {
            machines: self.nodes.machines(),
            resources: &self.resources,
            nodes: &self.nodes,
            hosts,
            refused: self.refusals.all(),
            answers: self.answers(),
            allowance: self.may_make,
            complete: self.complete,
        }
    }

    /// Whether Ironic answers.
    pub fn answers(&self) -> bool {
        self.reach == Reach::Answers
    }

    /// Whether Ironic is asked about machines now, which is not so between a failure and the next poll.
    pub fn may_read(&self) -> bool {
        self.answers() && self.misses == 0
    }

    /// Whether a list of all nodes is under way.
    pub fn lists_all(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.all)
    }

    /// Has Ironic list all nodes.
    pub fn list_all(&mut self) {
        let now = Instant::now();
        (self.next_full, self.next_poll) = (now, now);
    }

    /// How long there is nothing to do, if nothing happens.
    pub(crate) fn rest(&self) -> Duration {
        // Where there is no room, the next one that is read makes some.
        let reads = self.may_read() && self.nodes.being_read().len() < MOST_READ;
        let looks = self.nodes.next_look().filter(|_| reads);
        let tries = self.refusals.next().filter(|_| self.answers());
        let next = looks.into_iter().chain(tries).fold(self.next_poll, Instant::min);
        next.saturating_duration_since(Instant::now())
    }

    /// Takes notice that a host changed or went.
    pub fn host_changed(&mut self, change: Change) {
        let host = match change {
            Change::None | Change::More => return,
            Change::Less(host) => host,
            Change::Gone(known) => {
                let host = known.host.clone();
                if let Some(node) = known.made_for {
                    self.nodes.remember(Unmarked { node, host: known.host });
                }
                host
            }
        };
        // A process that stands by knows of no node that was this host.
        if self.nodes.count() > 0 {
            self.gone.insert(host);
        }
    }

    /// Takes what was read of a machine. Says whether no other is being read.
    pub fn read(&mut self, node: NodeId, look: Look) -> bool {
        if let Look::Failed(class, words) = &look {
            self.unanswered(node, *class, words);
        }
        self.nodes.read(node, look, Instant::now());
        self.nodes.being_read().len() == 0
    }

    /// Takes notice that Ironic did not say what a machine is.
    fn unanswered(&mut self, node: NodeId, class: Class, words: &str) {
        // The next poll tells soon whether that is so of all, before each machine is blamed for it. While polls fail, they have
        // times of their own.
        if matches!(class, Class::Unauthorized | Class::Unreachable) && self.may_read() {
            self.next_poll = self.next_poll.min(Instant::now() + FIRST_RETRY);
        }
        // No host is made of what it was before, and others have its place meanwhile.
        if self.nodes.machine(node).is_some_and(Machine::is_whole) {
            self.made(node, Made::Failed(Cause::Unsaid, text::unconfirmed(node, words)));
        }
    }

    /// Whether it is time to ask Ironic: for all nodes, and whether that was never done.
    pub(crate) fn next_list(&self) -> Option<(bool, bool)> {
        let now = Instant::now();
        let all = !self.answers() || now >= self.next_full || self.nodes.has_room_again();
        let is_first = self.reach == Reach::Unknown && self.list.is_none();
        (now >= self.next_poll).then_some((all, is_first))
    }

    /// Takes notice of what came of asking Ironic at that time.
    pub(crate) fn polled(&mut self, list: Option<&NodeList>, policy: &Policy, now: Instant) {
        self.misses = 0;
        // There are more pages.
        let Some(list) = list else {
            self.next_poll = now;
            return;
        };
        self.asked.poll = Some(Timestamp::now());
        if list.all {
            self.asked.full = self.asked.poll;
            self.listed = Some(list.began);
            self.next_full = now + spread(policy.full_sync_interval, backoff::random_unit());
        }
        self.next_poll = now + policy.poll_interval;
        self.reach = Reach::Answers;
    }

    /// The node after which the list was to go on is gone: so may be others.
    pub(crate) fn lists_anew(&mut self, now: Instant) {
        self.list = None;
        self.next_full = now;
        self.next_poll = now + SHORTEST_WAIT;
    }

    /// Takes notice that Ironic did not list its nodes. Says whether that may pass. That Ironic answers, only a list tells: while
    /// lists fail, other answers say nothing of new machines.
    pub(crate) fn unlisted(&mut self, error: &ironic::Error, interval: Duration) -> bool {
        let (now, was, class) = (Instant::now(), self.answers(), error.class());
        self.misses += 1;
        // A list that failed for a while goes on where it was: one of many pages would else never end. Of those that it showed
        // before a silence some may be gone.
        let may_pass = class.is_transient() && self.misses < MISSES;
        if !may_pass {
            self.list = None;
        }
        let passes = was && may_pass;
        let wait = if passes { FIRST_RETRY } else { IRONIC_RETRY };
        self.next_poll = now + spread(wait.min(interval), backoff::random_unit());
        if passes {
            tracing::debug!(error = %error, "Ironic did not answer this time");
            return true;
        }
        if was {
            tracing::warn!(error = %error, "Ironic does not answer");
        }
        self.reach.silent(class, error.to_string(), now);
        false
    }

    /// Takes notice of what came of making a host.
    pub fn made(&mut self, node: NodeId, made: Made) {
        let (now, unit) = (Instant::now(), backoff::random_unit());
        // Where Ironic did not say whether the machine is there, nobody was asked for a host.
        if !matches!(made, Made::Failed(Cause::Unsaid, _)) {
            self.allowance.spend(now);
        }
        match made {
            // Also if a person deletes it before the next pass.
            Made::Created(host, _) => {
                self.has_made = true;
                self.refusals.taken(node, &host, now);
                self.nodes.remember(Unmarked { node, host });
            }
            Made::Exists => self.refusals.made(node),
            Made::Failed(cause, text) => {
                // That Ironic failed is counted and logged where it was asked.
                let is_logged = cause == Cause::Unsaid;
                if self.refusals.failed(node, cause, &text, now, unit) && !is_logged {
                    tracing::warn!(error = text, "Could not make a host");
                }
            }
            Made::Stale => self.nodes.look_at(node, now),
        }
    }

    /// The nodes that are marked next. Thousands of machines that come at once wait for none of these.
    pub(crate) fn next_marks(&mut self) -> Vec<Unmarked> {
        let at_work = std::mem::take(&mut self.has_made) || self.nodes.has_unread(Instant::now());
        let unmarked = &mut self.nodes.unmarked;
        let most = if at_work { MARKS_BESIDE_WORK } else { unmarked.len() };
        let next: Vec<Unmarked> = (0..most).map_while(|_| unmarked.pop_first()).collect();
        self.marks.extend(next.iter().cloned());
        next
    }

    /// What was handed over and did not end. The engine forgets keys whose turn comes while this process may not act, and a
    /// machine that waits to be read for ever would become no host.
    pub fn handed_over(&self) -> impl Iterator<Item = Key> {
        let marks = self.marks.iter().cloned().map(Key::Mark);
        self.nodes.being_read().map(Key::Machine).chain(marks)
    }

    /// What is decided upon now, beside the machines.
    pub(crate) fn look_at(&mut self, resources: Vec<Resource>) {
        self.resources = resources;
        let now = Instant::now();
        self.nodes.grow_older(now);
        let (answers, reads) = (self.answers(), self.nodes.has_unread(now));
        self.caught_up |= answers && self.asked.full.is_some() && !reads;
        let lists = self.list.is_some();
        self.complete = self.caught_up && answers && !reads && !lists && self.has_shown_all();
        self.refusals.now(now, |node| self.nodes.is_machine(node));
        self.may_make = if answers { self.allowance.available(now) } else { 0 };
    }

    /// Whether a node that is not there is known not to be there: a person may approve a machine that Ironic has and we
    /// have not seen. Only a list of all nodes that began after the approval says that it names nobody.
    fn has_shown_all(&mut self) -> bool {
        let now = Instant::now();
        let approved = self.resources.iter().flat_map(|it| &it.approved).copied();
        let unshown: HashSet<NodeId> = approved.filter(|node| !self.nodes.has(*node)).collect();
        self.unshown.retain(|node, _| unshown.contains(node));
        for node in unshown {
            self.unshown.entry(node).or_insert(now);
        }
        let since = self.unshown.values().max();
        let shown = since.is_none_or(|since| self.listed.is_some_and(|listed| listed > *since));
        if !shown {
            self.next_full = now;
            self.next_poll = self.next_poll.min(now + SHORTEST_WAIT);
        }
        shown && self.nodes.left_out() == 0
    }
}

#[cfg(test)]
mod tests {
    use ironic::{Client, Error as Failure, NodeQuery, Settings};

    use super::*;

    /// Of the nodes that its first pages showed some may be gone after an outage, and would count as there.
    #[test]
    fn list_goes_on_after_a_failure_and_begins_anew_after_a_silence() {
        let none = |name: &str| name.ends_with("ROOT_DIR").then(|| "/nonexistent".to_owned());
        let settings = Settings::from_lookup(Some("http://ironic"), none).unwrap();
        let pages = Client::new(settings).unwrap().nodes(NodeQuery::default());
        let list = NodeList { all: true, began: Instant::now(), pages };
        let mut table = Table { reach: Reach::Answers, list: Some(list), ..Table::default() };
        let slow = Failure::too_slow("a page", Duration::ZERO);
        for failures in 1..=MISSES {
            let passes = table.unlisted(&slow, IRONIC_RETRY);
            assert_eq!([passes, table.lists_all()], [failures < MISSES; 2], "{failures}");
        }
    }

    #[test]
    fn nodes_are_marked_one_by_one_while_there_is_other_work_and_then_all() {
        let mut table = Table::new(&Policy::default());
        let host = ObjectKey::new("metal", "h");
        let unmarked = |node: u128| Unmarked { node: NodeId::from(node), host: host.clone() };
        table.nodes.unmarked = (0..100).map(unmarked).collect();
        table.has_made = true;
        assert_eq!(table.next_marks().len(), MARKS_BESIDE_WORK);
        assert_eq!(table.next_marks().len(), 100 - MARKS_BESIDE_WORK);
        assert!(table.next_marks().is_empty());
    }
}

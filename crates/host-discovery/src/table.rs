//! What is known of all machines, from one decision about them to the next. Only the pass about them changes it, at its
//! beginning, by what happened since.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use controller_kit::backoff;
use controller_kit::engine::queue::spread;
use controller_kit::engine::{Class as Urgency, Error};
use ironic::Class;
use k8s_openapi::jiff::Timestamp;

use crate::allowance::Allowance;
use crate::context::{Context, News};
use crate::index::{Change, Index};
use crate::model::{Asked, Job, Key, Made, Observed, Reach, Unmarked};
use crate::node_id::NodeId;
use crate::nodes::{Look, Nodes};
use crate::observe::{self, Places};
use crate::refusals::{Cause, Refusals};
use crate::resource::Resource;
use crate::text;
use crate::waits::{FIRST_RETRY, HANGS_AFTER, IRONIC_RETRY, READING_MAX, SHORTEST_WAIT};

/// The conditions of readiness: that Ironic answers, and that it lists its nodes. Where it does not list them another replica
/// would get none either: it does not lead instead, or the two would end each other for as long as that lasts.
pub const IRONIC: &str = "ironic";
const IRONIC_LISTS: &str = "ironic-lists";
/// So many failures in a row are silence; one alone is told to nobody, and asked again soon.
const MISSES: u32 = 3;
/// Machines that are read at a time, those that hang among them.
const MOST_READ: usize = 256;

/// What a process knows of all machines: all that is looked at when it is decided about them.
#[derive(Clone, Debug)]
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
    places: Places,
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

impl Table {
    /// Nothing is known yet.
    pub fn new(context: &Context) -> Self {
        let now = Instant::now();
        Self {
            nodes: Nodes::new(context.policy.most_machines),
            refusals: Refusals::default(),
            resources: Vec::new(),
            reach: Reach::Unknown,
            asked: Asked::default(),
            caught_up: false,
            may_make: 0,
            complete: false,
            places: Places::default(),
            misses: 0,
            allowance: Allowance::new(context.policy.create_rate, now),
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

    /// Has all in it that is to be decided upon: takes notice of what happened, asks Ironic what is new where it is time, and has
    /// machines read whose turn it is.
    pub async fn look(&mut self, context: &Context) -> Result<(), Error> {
        // What is older than a list is taken notice of before it.
        let has_made = self.take_notice(context);
        observe::learn_fields(context).await?;
        if Instant::now() >= self.next_poll {
            self.poll(context).await;
        }
        if self.may_read() {
            self.hand_out(context).await;
        }
        let at_work = has_made || self.nodes.has_unread(Instant::now());
        context.hand_marks_over(&mut self.nodes.unmarked, at_work);
        self.look_at_discoveries(context);
        context.lookout.enqueue_after(Key::All, Urgency::Urgent, self.rest());
        Ok(())
    }

    /// Whether Ironic is asked about machines now, which is not so between a failure and the next poll.
    pub fn may_read(&self) -> bool {
        self.answers() && self.misses == 0
    }

    /// Whether a list of all nodes is under way.
    pub fn lists_all(&self) -> bool {
        self.places.nodes.as_ref().is_some_and(|list| list.all)
    }

    /// How long there is nothing to do, if nothing happens.
    fn rest(&self) -> Duration {
        // Where there is no room, the next one that is read makes some.
        let reads = self.may_read() && self.nodes.being_read() < MOST_READ;
        let looks = self.nodes.next_look().filter(|_| reads);
        let tries = self.refusals.next().filter(|_| self.answers());
        let next = looks.into_iter().chain(tries).fold(self.next_poll, Instant::min);
        next.saturating_duration_since(Instant::now())
    }

    /// Takes notice of what happened since the last time. Tells whether hosts were made.
    fn take_notice(&mut self, context: &Context) -> bool {
        let mut news = context.inbox.with(std::mem::take);
        let mut gone = HashSet::new();
        // What was read meanwhile was not known when it was decided.
        news.sort_by_key(|it| !matches!(it, News::Decided(..)));
        let has_made = news.iter().any(|it| matches!(it, News::Made(_, Made::Created(..))));
        for it in news {
            match it {
                News::Host(Change::None | Change::More) => {}
                News::Host(Change::Less(host)) => drop(gone.insert(host)),
                News::Host(Change::Gone(known)) => {
                    gone.insert(known.host.clone());
                    if let Some(node) = known.made_for {
                        self.nodes.remember(Unmarked { node, host: known.host });
                    }
                }
                News::Read(node, look, at) => {
                    if let Look::Failed(class, words) = &look {
                        self.unanswered(node, *class, words);
                    }
                    self.nodes.read(node, look, at);
                }
                News::ListAll => {
                    let now = Instant::now();
                    (self.next_full, self.next_poll) = (now, now);
                }
                News::Made(node, made) => self.made(node, made),
                News::Decided(plan, at) => self.nodes.settle(&plan, at),
            }
        }
        self.nodes.unsettle(&gone, Instant::now());
        has_made
    }

    /// Takes notice that Ironic did not say what a machine is.
    fn unanswered(&mut self, node: NodeId, class: Class, words: &str) {
        // The next poll tells soon whether that is so of all, before each machine is blamed for it. While polls fail, they have
        // times of their own.
        if matches!(class, Class::Unauthorized | Class::Unreachable) && self.may_read() {
            self.next_poll = self.next_poll.min(Instant::now() + FIRST_RETRY);
        }
        // No host is made of what it was before, and others have its place meanwhile.
        if self.nodes.is_whole(node) {
            self.made(node, Made::Failed(Cause::Unsaid, text::unconfirmed(node, words)));
        }
    }

    /// Asks Ironic for what is new, or for all: one page.
    async fn poll(&mut self, context: &Context) {
        let now = Instant::now();
        let all = !self.answers() || now >= self.next_full || self.nodes.has_room_again();
        let asking = async {
            // The first time everything is looked at, for the best sentence about what is wrong.
            if self.reach == Reach::Unknown && self.places.nodes.is_none() {
                context.ironic.check().await?;
            }
            let page = observe::poll(context, &mut self.nodes, &mut self.places, all);
            observe::within(READING_MAX, "the list of nodes", page).await
        };
        let result = asking.await;
        let left_out = i64::try_from(self.nodes.left_out()).unwrap_or(i64::MAX);
        context.metrics.left_out.set(left_out);
        match result {
            // There are more pages.
            Ok(None) => (self.next_poll, self.misses) = (now, 0),
            Ok(Some(list)) => {
                context.metrics.polled(list.all, list.began.elapsed().as_secs_f64());
                self.asked.poll = Some(Timestamp::now());
                if list.all {
                    self.asked.full = self.asked.poll;
                    self.listed = Some(list.began);
                    let unit = backoff::random_unit();
                    self.next_full = now + spread(context.policy.full_sync_interval, unit);
                }
                self.next_poll = now + context.policy.poll_interval;
                (self.reach, self.misses) = (Reach::Answers, 0);
                told(context, None);
            }
            // The node after which the list was to go on is gone: so may be others.
            Err(error) if error.class() == Class::MarkerGone => {
                self.places.nodes = None;
                self.next_full = now;
                self.next_poll = now + SHORTEST_WAIT;
            }
            Err(error) => {
                // A list that failed for a while goes on where it was: one of many pages would else never end.
                if !error.class().is_transient() {
                    self.places.nodes = None;
                }
                let checked = observe::within(HANGS_AFTER, "Ironic", context.ironic.check()).await;
                let lacking = if checked.is_ok() { IRONIC_LISTS } else { IRONIC };
                self.failed(context, &error, lacking);
            }
        }
    }

    /// Takes notice that Ironic did not answer. That it answers, only a list tells: while lists fail, other answers say nothing
    /// of new machines.
    fn failed(&mut self, context: &Context, error: &ironic::Error, lacking: &'static str) {
        let unit = backoff::random_unit();
        let (interval, now) = (context.policy.poll_interval, Instant::now());
        let (was, class) = (self.answers(), error.class());
        self.misses += 1;
        let passes = was && class.is_transient() && self.misses < MISSES;
        let wait = if passes { FIRST_RETRY } else { IRONIC_RETRY };
        self.next_poll = now + spread(wait.min(interval), unit);
        context.metrics.ironic_failed(error);
        if passes {
            tracing::debug!(error = %error, "Ironic did not answer this time");
            return;
        }
        if was {
            tracing::warn!(error = %error, "Ironic does not answer");
        }
        self.reach.silent(class, error.to_string(), now);
        told(context, Some((error, lacking)));
    }

    /// Takes notice of what came of making a host.
    fn made(&mut self, node: NodeId, made: Made) {
        let (now, unit) = (Instant::now(), backoff::random_unit());
        // Where Ironic did not say whether the machine is there, nobody was asked for a host.
        if !matches!(made, Made::Failed(Cause::Unsaid, _)) {
            self.allowance.spend(now);
        }
        match made {
            // Also if a person deletes it before the next pass.
            Made::Created(host, _) => {
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

    /// Has machines read whose turn it is.
    async fn hand_out(&mut self, context: &Context) {
        let now = Instant::now();
        let due = self.nodes.due(now, usize::MAX);
        if due.is_empty() {
            return;
        }
        let nodes = &mut self.nodes;
        // Ports are shown once: before the last page of nodes nobody knows yet for which of them they are wanted.
        if self.places.nodes.is_none() {
            observe::list_ports(context, nodes, &mut self.places, &due).await;
        }
        let room = MOST_READ.saturating_sub(nodes.being_read());
        for node in due.into_iter().take(room) {
            let listed = self.places.found.remove(&node);
            if context.begins(node, Job { listed, seen: nodes.seen(node) }) {
                nodes.reads(node, now);
            } else {
                // It is just being looked at.
                nodes.look_at(node, now + FIRST_RETRY);
            }
        }
    }

    /// What is decided upon now, beside the machines.
    fn look_at_discoveries(&mut self, context: &Context) {
        self.resources = context.ours().iter().map(|it| Resource::read(it)).collect();
        for unread in context.discoveries.broken.all().iter().map(|it| &it.metadata) {
            if context.is_ours(unread) && unread.deletion_timestamp.is_none() {
                self.resources.iter_mut().for_each(|it| it.give_way(unread));
            }
        }
        let now = Instant::now();
        self.nodes.grow_older(now);
        let (answers, reads) = (self.answers(), self.nodes.has_unread(now));
        self.caught_up |= answers && self.asked.full.is_some() && !reads;
        let lists = self.places.nodes.is_some();
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

/// Shows whether Ironic answers, or else which condition of readiness is lacking.
pub fn told(context: &Context, failure: Option<(&ironic::Error, &'static str)>) {
    let readiness = &context.kit.readiness;
    context.metrics.ironic_reachable.set(failure.is_none().into());
    for it in [IRONIC, IRONIC_LISTS] {
        match failure {
            Some((error, lacking)) if lacking == it => readiness.not_ready(it, &error.to_string()),
            _ => readiness.ready(it),
        }
    }
}

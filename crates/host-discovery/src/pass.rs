//! One pass: ask, decide, write.

mod making;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::metal3::{BareMetalHostDiscovery, BareMetalHostDiscoveryStatus};
use controller_kit::watch::Broken;
use ironic::Class;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;

use crate::act;
use crate::allowance::Allowance;
use crate::controller::{Context, News, spread};
use crate::decide::decide;
use crate::decision::{Decision, Step, Verdict};
use crate::errand::Errand;
use crate::error::Error;
use crate::node_id::NodeId;
use crate::nodes::Nodes;
use crate::observe::{self, Places};
use crate::reason::Reason;
use crate::refusals::Refusals;
use crate::report::report;
use crate::resource::Resource;
use crate::seen::Observed;
use crate::status::{self, Reach, Strays, Troubles};

const CONDITION: &str = "ironic";
/// How soon an Ironic that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// So many failures in a row are silence; one alone is told to nobody, and asked again soon.
const MISSES: u32 = 3;
const MISSED: Duration = Duration::from_secs(1);
/// Machines that are read in one pass, so that hosts come of the first before the last is read.
const BATCH: usize = 256;
/// A machine that Ironic showed longer ago, two polls unless they are set otherwise, is looked at once more before it
/// becomes a host: it may have been registered or gone since.
const FRESH: Duration = Duration::from_secs(10);
/// The shortest wait for room under the rate: some hosts at once cost less than a pass for each.
const ROOM: Duration = Duration::from_millis(100);
/// A complete list that was not answered in full says nothing about what is gone: it is asked for again this soon.
const SURPRISED: Duration = Duration::from_millis(100);

/// What a process remembers from one pass to the next. All of it can be forgotten.
pub struct State {
    nodes: Nodes,
    places: Places,
    reach: Reach,
    /// Failures in a row of an Ironic that answered before.
    misses: u32,
    allowance: Allowance,
    /// When it is looked at, while nothing may be done, whether Ironic answers.
    next_check: Instant,
    next_poll: Instant,
    next_full: Instant,
    /// No machine is read before: Ironic was silent just now.
    next_read: Instant,
    last_poll: Option<Timestamp>,
    last_full: Option<Timestamp>,
    /// When the last complete list of nodes began.
    listed: Option<Instant>,
    /// When it was last seen that the watch tells of all hosts.
    watched: Option<Instant>,
    /// Approved nodes that Ironic had not shown when they were first seen, and since when.
    unshown: HashMap<NodeId, Instant>,
    /// Whether every machine that the first list showed was read: before that, a status would tell less than the one
    /// that is there.
    caught_up: bool,
    refusals: Refusals,
    written: HashMap<String, Written>,
    /// Of the resources that cannot be decoded.
    unread: Vec<ObjectMeta>,
}

/// A status that we wrote, until the watch shows it.
struct Written {
    on: Option<String>,
    object: Arc<BareMetalHostDiscovery>,
    at: Instant,
}

impl State {
    /// Nothing is known yet.
    pub fn new(context: &Context) -> Self {
        let now = Instant::now();
        context.kit.readiness.not_ready(CONDITION, "Ironic was not asked yet");
        Self {
            nodes: Nodes::new(context.policy.most_machines),
            places: Places::default(),
            reach: Reach::Unknown,
            misses: 0,
            allowance: Allowance::new(context.policy.create_rate, Timestamp::now()),
            next_check: now,
            next_poll: now,
            next_full: now,
            next_read: now,
            last_poll: None,
            last_full: None,
            listed: None,
            watched: None,
            unshown: HashMap::new(),
            caught_up: false,
            refusals: Refusals::default(),
            written: HashMap::new(),
            unread: Vec::new(),
        }
    }

    /// A process that may not act only looks whether it could, and remembers which nodes had a host.
    pub async fn stand_by(&mut self, context: &Context) {
        self.take_notice(context);
        if Instant::now() >= self.next_check {
            let result = context.ironic.check().await.map(drop);
            self.heard(context, result);
            self.next_check = Instant::now() + context.policy.poll_interval;
        }
        // What was learned is old by the time that it could be used.
        (self.next_poll, self.next_full) = (Instant::now(), Instant::now());
        self.places = Places::default();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    /// One pass. Gives how long to wait for the next, also where something of it failed: what the API server refuses of one
    /// resource must not hold up the machines of others.
    pub async fn pass(&mut self, context: &Context) -> (Duration, Result<(), Error>) {
        if Instant::now() >= self.next_poll {
            self.poll(context).await;
        }
        self.take_notice(context);
        if self.reach == Reach::Answers && Instant::now() >= self.next_read {
            let reads = !self.nodes.due(Instant::now(), 1).is_empty();
            let last = self.watched;
            // Meanwhile, so that the host which comes of it need not wait.
            let sees = async move { if reads { watched(context, last).await.ok() } else { last } };
            let read = observe::read(context, &mut self.nodes, &mut self.places, BATCH);
            let (read, sees) = tokio::join!(read, sees);
            self.watched = sees;
            self.told(context, read);
        }
        let (again, result) = self.decide_and_act(context).await;
        let now = Instant::now();
        let answers = self.reach == Reach::Answers;
        let looks = self.nodes.next_look().map(|look| look.max(self.next_read));
        let (looks, tries) = (looks.filter(|_| answers), self.refusals.next().filter(|_| answers));
        let next = [Some(self.next_poll), looks, tries].into_iter().flatten().min();
        let rest = next.map_or(AGAIN, |next| next.saturating_duration_since(now));
        (again.map_or(rest, |again| again.max(ROOM).min(rest)), result)
    }

    /// Takes notice of what watches and errands told.
    fn take_notice(&mut self, context: &Context) {
        let News { gone, left, marked } = context.take_news();
        for node in marked {
            self.nodes.marked(node);
        }
        for unmarked in left.into_iter().filter_map(|it| self.nodes.left(it)) {
            context.send(Errand::Mark(unmarked));
        }
        self.nodes.unsettle(&gone, Timestamp::now(), Instant::now());
    }

    /// Asks Ironic for what is new, or for all.
    async fn poll(&mut self, context: &Context) {
        let now = Instant::now();
        let first = self.reach != Reach::Answers;
        let all = first || now >= self.next_full || self.nodes.has_room_again();
        // The first time everything is looked at, for the best sentence about what is wrong.
        let unknown = self.reach == Reach::Unknown;
        let checked = if unknown { context.ironic.check().await.map(drop) } else { Ok(()) };
        let mut unmarked = Vec::new();
        let result = match checked {
            Ok(()) => {
                let (nodes, places) = (&mut self.nodes, &mut self.places);
                let list = observe::poll(context, nodes, places, all, &mut unmarked);
                let longest = context.policy.longest_list;
                let listed = tokio::time::timeout(longest, list).await;
                listed
                    .unwrap_or_else(|_| Err(ironic::Error::too_slow("the list of nodes", longest)))
            }
            Err(error) => Err(error),
        };
        context.metrics.left_out(self.nodes.left_out());
        for it in unmarked {
            context.send(Errand::Mark(it));
        }
        match result {
            Ok(began) => {
                context.metrics.polled(all, now.elapsed().as_secs_f64());
                self.last_poll = Some(Timestamp::now());
                if all {
                    self.last_full = self.last_poll;
                    self.listed = Some(began);
                    self.next_full = now + spread(context.policy.full_sync_interval);
                }
                self.next_poll = now + context.policy.poll_interval;
                self.heard(context, Ok(()));
            }
            // The node after which the list was to go on is gone: so may be others.
            Err(error) if error.class() == Class::MarkerGone => {
                self.next_full = now;
                self.next_poll = now + SURPRISED;
            }
            Err(error) => self.heard(context, Err(error)),
        }
    }

    /// Takes notice of what came of asking about machines: an Ironic that answers some of it is not silent.
    fn told(&mut self, context: &Context, read: observe::Read) {
        if read.answered {
            self.heard(context, Ok(()));
        }
        if let Some(error) = read.silence {
            self.heard(context, Err(error));
        }
    }

    /// Takes notice of whether Ironic answered.
    fn heard(&mut self, context: &Context, result: Result<(), ironic::Error>) {
        let readiness = &context.kit.readiness;
        match result {
            Ok(()) => {
                readiness.ready(CONDITION);
                context.metrics.ironic_answers(true);
                self.reach = Reach::Answers;
                self.misses = 0;
            }
            Err(error) => {
                context.metrics.ironic_failed(error.class());
                let text = error.to_string();
                self.misses += 1;
                let soon = spread(MISSED.min(context.policy.poll_interval));
                self.next_read = Instant::now() + soon;
                let was = self.reach == Reach::Answers;
                if was && error.class().is_transient() && self.misses < MISSES {
                    tracing::debug!(error = text, "Ironic did not answer this time");
                    self.next_poll = Instant::now() + soon;
                    return;
                }
                context.metrics.ironic_answers(false);
                readiness.not_ready(CONDITION, &text);
                if was {
                    tracing::warn!(error = text, "Ironic does not answer");
                }
                self.reach.silent(error.class(), text, Instant::now());
                let soon = AGAIN.min(context.policy.poll_interval);
                self.next_poll = Instant::now() + spread(soon);
            }
        }
    }

    async fn decide_and_act(&mut self, context: &Context) -> (Option<Duration>, Result<(), Error>) {
        let objects = self.latest(context);
        let mut resources: Vec<Resource> = objects.iter().map(|it| Resource::read(it)).collect();
        let unread = match self.unread(context).await {
            Ok(unread) => unread,
            Err(error) => return (None, Err(error)),
        };
        for resource in &mut resources {
            for older in &unread {
                resource.give_way(older);
            }
        }
        let answers = self.reach == Reach::Answers;
        let mut decision = self.decided(context, &resources);
        let mut result = self.hold_back(context, &mut decision).await;
        let may_make = answers && result.is_ok();
        if !may_make {
            context.set_making(false);
        }
        let made = may_make && self.make_all(context, &resources, &mut decision).await;
        // What was made changes what is to be said of the others.
        let mut again =
            if made { Some(Duration::ZERO) } else { decision.again.filter(|_| answers) };
        for unmarked in self.nodes.settle(&decision, Instant::now()) {
            context.send(Errand::Mark(unmarked));
        }
        // What was settled just now counts.
        let now = Timestamp::now();
        let statuses = self.statuses(context, &objects, &resources, &decision, now);
        if answers {
            for approvals in &decision.approvals {
                let settled =
                    act::settle_approvals(context, &objects[approvals.resource], approvals).await;
                match settled {
                    // The status is written on the next version.
                    Ok(()) | Err(Error::Superseded) => again = Some(Duration::ZERO),
                    Err(error) => result = Err(error),
                }
            }
        }
        for (object, status) in statuses {
            match self.write(context, &object, &status).await {
                Ok(None) | Err(Error::Superseded) => {}
                Ok(Some(wait)) => again = Some(again.map_or(wait, |it| it.min(wait))),
                Err(error) => result = Err(error),
            }
        }
        (again, result)
    }

    /// The metadata of the resources that cannot be decoded.
    async fn unread(&mut self, context: &Context) -> Result<Vec<ObjectMeta>, Error> {
        let broken = context.undecodable.all();
        self.unread.retain(|it| broken.iter().any(|broken| is_of(broken, it)));
        for it in &broken {
            if !self.unread.iter().any(|known| is_of(it, known)) {
                self.unread.extend(observe::metadata(context, &it.object).await?);
            }
        }
        let stays = |it: &&ObjectMeta| context.is_ours(it) && it.deletion_timestamp.is_none();
        Ok(self.unread.iter().filter(stays).cloned().collect())
    }

    /// Makes no hosts while the watch does not tell of all that there are, and says so of each that would be made.
    async fn hold_back(&mut self, context: &Context, decision: &mut Decision) -> Result<(), Error> {
        let creates = |it: &Verdict| matches!(it.step, Some(Step::Create { .. }));
        if !decision.verdicts.iter().any(creates) {
            return Ok(());
        }
        let seen = watched(context, self.watched).await;
        self.watched = seen.as_ref().ok().copied();
        if let Err(error) = &seen {
            for verdict in decision.verdicts.iter_mut().filter(|it| creates(it)) {
                verdict.reason = Reason::HostFailed;
                verdict.note = Some(error.to_string());
                verdict.step = None;
            }
        }
        seen.map(drop)
    }

    /// What is decided of all that is known by now.
    fn decided(&mut self, context: &Context, resources: &[Resource]) -> Decision {
        let at = Instant::now();
        let reads = self.nodes.has_unread(at);
        let answers = self.reach == Reach::Answers;
        if answers && self.last_full.is_some() && !reads {
            self.caught_up = true;
        }
        let now = Timestamp::now();
        let complete = self.caught_up && answers && !reads && self.has_shown_all(resources);
        let allowance = if answers { self.allowance.available(now) } else { 0 };
        let nodes = &self.nodes;
        self.refusals.now(at, |node| nodes.is_machine(node));
        let index = context.index();
        let seen = Observed {
            machines: self.nodes.machines(),
            resources,
            hosts: &index,
            refused: self.refusals.all(),
            answers,
            allowance,
            complete,
        };
        decide(&seen, &context.policy, now)
    }

    /// Whether a node that is not there is known not to be there: a person may approve a machine that Ironic has and we
    /// have not seen. Only a list of all nodes that began after the approval says that it names nobody.
    fn has_shown_all(&mut self, resources: &[Resource]) -> bool {
        let now = Instant::now();
        let approved = resources.iter().flat_map(|it| &it.approved).copied();
        let unshown: HashSet<NodeId> = approved.filter(|node| !self.nodes.has(*node)).collect();
        self.unshown.retain(|node, _| unshown.contains(node));
        for node in unshown {
            self.unshown.entry(node).or_insert(now);
        }
        let since = self.unshown.values().max();
        let shown = since.is_none_or(|since| self.listed.is_some_and(|listed| listed > *since));
        if !shown {
            self.next_full = now;
            self.next_poll = self.next_poll.min(now + SURPRISED);
        }
        shown && self.nodes.left_out() == 0
    }

    /// Every resource as the watch shows it, or as our own last write left it, if the watch is behind that.
    fn latest(&mut self, context: &Context) -> Vec<Arc<BareMetalHostDiscovery>> {
        let mut objects = context.resources();
        objects.sort_by_key(|it| (it.metadata.namespace.clone(), it.metadata.name.clone()));
        let uids: Vec<&str> = objects.iter().filter_map(|it| it.metadata.uid.as_deref()).collect();
        self.written.retain(|uid, _| uids.contains(&uid.as_str()));
        for object in &mut objects {
            let uid = object.metadata.uid.as_deref().unwrap_or_default();
            if let Some(written) = self.written.get(uid)
                && written.on == object.metadata.resource_version
            {
                *object = written.object.clone();
            }
        }
        objects
    }

    /// What every resource's status is to say.
    fn statuses(
        &self,
        context: &Context,
        objects: &[Arc<BareMetalHostDiscovery>],
        resources: &[Resource],
        decision: &Decision,
        now: Timestamp,
    ) -> Vec<(Arc<BareMetalHostDiscovery>, BareMetalHostDiscoveryStatus)> {
        let known = self.nodes.known();
        let version = context.ironic.offered().map(|it| it.to_string());
        let mut all = Vec::new();
        for (at, (object, resource)) in objects.iter().zip(resources).enumerate() {
            if resource.deleting {
                continue;
            }
            let before = object.status.clone().unwrap_or_default();
            let mut status = before.clone();
            if self.caught_up {
                let made = resource.made(&context.index());
                status = report(at, decision, self.nodes.machines(), known, made, &before, now);
            }
            let generation = object.metadata.generation;
            let mut troubles = Troubles::of(at, decision, self.nodes.left_out());
            troubles.strays = troubles.strays.filter(|_| self.caught_up);
            status::conditions(resource, generation, &self.reach, &troubles, &mut status, now);
            if self.reach == Reach::Answers && version.is_some() {
                status.ironic_version.clone_from(&version);
            }
            status.last_poll_time = self.last_poll.map(Time).or(status.last_poll_time);
            status.last_full_sync_time = self.last_full.map(Time).or(status.last_full_sync_time);
            all.push((object.clone(), status));
        }
        let counts: Vec<_> = all.iter().filter_map(|(_, status)| status.counts.clone()).collect();
        let strays = Strays::of(decision);
        context.metrics.show(known, strays, &counts);
        all
    }

    /// Writes a status that says something new. Gives how long to wait where that was done just now.
    async fn write(
        &mut self,
        context: &Context,
        object: &Arc<BareMetalHostDiscovery>,
        status: &BareMetalHostDiscoveryStatus,
    ) -> Result<Option<Duration>, Error> {
        let before = object.status.clone().unwrap_or_default();
        if status::same(&before, status) {
            return Ok(None);
        }
        let uid = object.metadata.uid.clone().unwrap_or_default();
        if let Some(written) = self.written.get(&uid) {
            let since = written.at.elapsed();
            let interval = context.policy.status_interval;
            if since < interval {
                return Ok(Some(interval.saturating_sub(since)));
            }
        }
        if !context.kit.may_act() {
            return Ok(None);
        }
        let patch = status::patch(object, status);
        let after = act::write_status(context, object, patch).await?;
        for note in status::notes(&before, status, |node| self.nodes.name(node)) {
            let object = object.object_ref(&());
            context.tell(object, note.warning, &note.reason, &note.about, note.text);
        }
        let written = Written {
            on: object.metadata.resource_version.clone(),
            object: Arc::new(after),
            at: Instant::now(),
        };
        self.written.insert(uid, written);
        Ok(None)
    }
}

/// When it was seen that the watch tells of all hosts: now, unless that is not long ago.
async fn watched(context: &Context, last: Option<Instant>) -> Result<Instant, Error> {
    if let Some(last) = last.filter(|last| last.elapsed() < FRESH) {
        return Ok(last);
    }
    observe::see_all_hosts(context).await?;
    Ok(Instant::now())
}

/// Whether these are the metadata of that object as it is now.
fn is_of(broken: &Broken, metadata: &ObjectMeta) -> bool {
    broken.object.uid == metadata.uid && broken.object.resource_version == metadata.resource_version
}

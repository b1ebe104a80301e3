//! How nodes are, for many who need to know: one loader, one poll.
//!
//! A reading tells of everything that had happened when it *began*. Whoever waits for something says so with [`Nodes::renew`]:
//! from then on only readings that begin later are for them. Few are served by a request each, many by one list for all, whose
//! readings stand for a look of theirs. The poll is the same list on a timer, and tells of every node that it shows, so that who
//! follows it need not remember how nodes were.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use controller_kit::engine::Class as Urgency;
use controller_kit::engine::links::ThingName;
use tokio::sync::Notify;

use crate::Result;
use crate::client::Client;
use crate::error::{Class, Error};
use crate::node::Node;
use crate::paging::{Detail, MAX_PAGE, NodeQuery};

/// So many may ask for themselves, however few nodes there are.
const FEW: usize = 8;
/// A request about one node costs Ironic as much as so many nodes of a list.
const LISTED_FOR_ONE: usize = 8;
/// A list that took Ironic t is not followed by another one for so many times t: others need Ironic, too.
const REST: u32 = 8;
/// Nor for this long.
const SHORTEST_REST: Duration = Duration::from_secs(2);
/// How soon an Ironic that did not answer is asked again.
const SILENT: Duration = Duration::from_secs(5);
/// How long somebody waits for a list at most.
const PATIENCE: Duration = Duration::from_secs(5);
/// A list that takes so many times as long as the last one is not waited for: it may hang, while Ironic answers about each node.
const LATE: u32 = 3;
/// How soon a node whose next step is Ironic's is looked at again, while few are waited for.
const PACE: Duration = Duration::from_millis(700);
/// How much later for each that is waited for.
const PACE_OF_EACH: Duration = Duration::from_millis(20);
/// The same where a list tells of many.
const LISTED_PACE: Duration = Duration::from_secs(20);
/// Who has waited for longer brings no list about, and nobody remembers who did not come back.
const YOUNG: Duration = Duration::from_secs(60);
/// Nodes of a page while somebody may be waiting for Ironic, which answers little else while it tells of one: a quarter of
/// a second for a thousand.
const SMALL_PAGE: u32 = 250;
/// How often it is looked whether somebody wants a list.
const GLANCE: Duration = Duration::from_millis(500);

/// What Ironic said of a node.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The node.
    pub node: Node,
    /// When it was asked for.
    pub began: Instant,
}

/// Who goes by the lists.
pub trait Follow {
    /// Whether this process acts. One that stands by only looks whether it could.
    fn acts(&self) -> bool;

    /// A list shows this node. Says whether the reading is kept for who looks at the node next.
    fn shown(&self, node: &Node) -> bool;

    /// A list is complete, and has shown the nodes of these identities and names.
    fn listed(&self, names: &HashSet<ThingName>);

    /// What came of asking Ironic, each time that the poll does.
    fn asked(&self, result: &Result<()>);
}

/// The loader; clones share it.
#[derive(Clone, Debug)]
pub struct Nodes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    fields: Detail,
    shared: Mutex<Shared>,
    /// A list has shown something, or is over.
    news: Notify,
    /// Somebody wants a list, or Ironic looked at.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct Shared {
    wants: HashMap<String, Want>,
    last: Listed,
    /// Since when a list is under way, and whether the last one was for many.
    listing: Option<Instant>,
    crowded: bool,
    /// Why nobody is answered, and whether somebody was not since that was looked at.
    silence: Option<String>,
    unanswered: bool,
}

/// What the last list was like.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    nodes: usize,
    /// How long Ironic worked for it.
    took: Duration,
    ended: Option<Instant>,
}

/// Somebody waits for how a node is.
#[derive(Debug)]
struct Want {
    since: Instant,
    renewed: Instant,
    /// Nothing that began before counts.
    not_before: Instant,
    /// Nothing at all counts while a call to the node is under way.
    calling: bool,
    reading: Option<Reading>,
    /// Nobody waits any more. What began before is still to be told from what did not.
    rests: bool,
}

impl Want {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            renewed: now,
            not_before: now,
            calling: false,
            reading: None,
            rests: false,
        }
    }

    /// From now on.
    fn renew(&mut self, now: Instant) {
        (self.not_before, self.renewed, self.reading) = (now, now, None);
    }

    fn counts(&self, began: Instant) -> bool {
        !self.calling && self.not_before < began
    }

    /// Whether somebody waits, and has not done so for long.
    fn waits(&self, now: Instant) -> bool {
        !self.rests && now.saturating_duration_since(self.since) < YOUNG
    }

    /// Whether a list would serve it.
    fn is_open(&self, now: Instant) -> bool {
        self.waits(now) && !self.calling && self.reading.is_none()
    }
}

impl Shared {
    /// Whether so many wait that one list is less work for Ironic than a request for each. Also the last of them are told by
    /// the lists, and whoever of them calls next: the others' calls end soon after.
    fn is_crowd(&mut self, now: Instant) -> bool {
        let open = self.wants.values().filter(|it| it.is_open(now)).count();
        let many = open > FEW && open * LISTED_FOR_ONE > self.last.nodes;
        self.crowded = many || (self.crowded && self.wants.values().any(|it| it.waits(now)));
        self.crowded && open > 0
    }

    /// When a list for many may begin.
    fn rested(&self) -> Option<Instant> {
        self.last.ended.map(|ended| ended + (self.last.took * REST).max(SHORTEST_REST))
    }

    /// How much longer a list is worth waiting for: nothing where none comes, or where one is late.
    fn list_in(&self, now: Instant, patience: Duration) -> Duration {
        let usual = (self.last.took * LATE).max(patience).min(PATIENCE);
        let usual = if self.last.ended.is_some() { usual } else { PATIENCE };
        match self.listing {
            Some(since) => usual.saturating_sub(now.saturating_duration_since(since)),
            None if self.rested().is_none_or(|rested| rested <= now) => usual,
            None => Duration::ZERO,
        }
    }

    /// How long the pages of a list are that begins now.
    fn next_page(&self) -> u32 {
        let rests = self.wants.values().all(|it| it.rests);
        // One that is just full is followed by an empty one.
        let one = usize::try_from(MAX_PAGE).is_ok_and(|full| self.last.nodes <= full);
        if rests && one { MAX_PAGE } else { SMALL_PAGE }
    }

    /// Somebody waits for a node.
    fn waits(&mut self, id: &str, now: Instant) -> &mut Want {
        let want = self.wants.entry(id.to_owned()).or_insert_with(|| Want::new(now));
        if std::mem::take(&mut want.rests) {
            want.since = now;
        }
        want
    }

    fn forget(&mut self, now: Instant) {
        self.wants.retain(|_, it| now.saturating_duration_since(it.renewed) < YOUNG);
    }
}

/// A call that changes a node is under way: what is read meanwhile says nothing.
#[derive(Debug)]
#[must_use]
pub struct Calling {
    nodes: Nodes,
    id: String,
}

impl Drop for Calling {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut shared = self.nodes.lock();
        let want =
            shared.wants.entry(std::mem::take(&mut self.id)).or_insert_with(|| Want::new(now));
        want.calling = false;
        want.renew(now);
    }
}

impl Nodes {
    /// Reads these fields of nodes.
    pub fn new(client: Client, fields: Detail) -> Self {
        let (shared, news, wanted) = (Mutex::default(), Notify::new(), Notify::new());
        Self(Arc::new(Inner { client, fields, shared, news, wanted }))
    }

    /// The client, for calls.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    fn patience(&self) -> Duration {
        self.0.client.settings().patience
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was read of the node says nothing any more. With `wanted` somebody needs to know how it is, from now on.
    pub fn renew(&self, id: &str, wanted: bool) {
        let (now, mut shared) = (Instant::now(), self.lock());
        if wanted {
            shared.waits(id, now).renew(now);
            if shared.is_crowd(now) {
                self.0.wanted.notify_one();
            }
        } else if let Some(want) = shared.wants.get_mut(id) {
            want.renew(now);
        }
    }

    /// Somebody waits for what Ironic does with the node.
    pub fn waits(&self, id: &str) {
        let now = Instant::now();
        self.lock().waits(id, now).renewed = now;
    }

    /// Nobody waits for the node any more.
    pub fn rests(&self, id: &str) {
        if let Some(want) = self.lock().wants.get_mut(id) {
            want.rests = true;
        }
    }

    /// A call that changes the node begins, and is over when this is dropped.
    pub fn calling(&self, id: &str) -> Calling {
        let now = Instant::now();
        let mut shared = self.lock();
        let want = shared.waits(id, now);
        want.calling = true;
        want.renew(now);
        Calling { nodes: self.clone(), id: id.to_owned() }
    }

    /// What a list has shown of a node since it is wanted. It stands for one look.
    pub fn ready(&self, id: &str) -> Option<Reading> {
        let mut shared = self.lock();
        let want = shared.wants.get_mut(id)?;
        let reading = want.reading.take()?;
        want.not_before = want.not_before.max(reading.began);
        Some(reading)
    }

    /// The same, waiting for a list that comes soon for many.
    pub async fn awaited(&self, id: &str) -> Option<Reading> {
        let began = Instant::now();
        loop {
            let news = self.0.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(reading) = self.ready(id) {
                return Some(reading);
            }
            let left = {
                let (mut shared, now) = (self.lock(), Instant::now());
                let open = shared.wants.get(id).is_some_and(|want| want.is_open(now));
                // No list comes from an Ironic that answers nobody.
                let comes = open && shared.silence.is_none() && shared.is_crowd(now);
                let list =
                    if comes { shared.list_in(now, self.patience()) } else { Duration::ZERO };
                list.min(PATIENCE.saturating_sub(began.elapsed()))
            };
            if left.is_zero() || tokio::time::timeout(left, news).await.is_err() {
                return self.ready(id);
            }
        }
    }

    /// Asks Ironic for a node, in so much detail or as the lists do.
    pub async fn read(
        &self,
        id: &str,
        detail: Option<Detail>,
        urgency: Urgency,
    ) -> Result<Reading> {
        let began = Instant::now();
        let detail = detail.unwrap_or(self.0.fields);
        let answer = self.0.client.node_at(id, detail, urgency).await;
        if answer.as_ref().is_err_and(is_silence) {
            self.unanswered();
        }
        // What a list has shown before this look says less.
        if let Some(want) = self.lock().wants.get_mut(id) {
            want.reading = want.reading.take().filter(|it| it.began > began);
            want.not_before = want.not_before.max(began);
            want.renewed = Instant::now();
        }
        answer.map(|node| Reading { node, began })
    }

    /// Ironic did not answer somebody: it is looked whether it answers anybody.
    pub fn unanswered(&self) {
        self.lock().unanswered = true;
        self.0.wanted.notify_one();
    }

    /// Why Ironic answers nobody now; nothing while it answers.
    pub fn silence(&self) -> Option<String> {
        self.lock().silence.clone()
    }

    /// When to look again at a node whose next step is Ironic's: later where many are waited for, or where it takes long.
    pub fn pace(&self, id: &str) -> Duration {
        let now = Instant::now();
        let mut shared = self.lock();
        let is_late = shared.listing.is_some() && shared.list_in(now, self.patience()).is_zero();
        if shared.is_crowd(now) && !is_late {
            return LISTED_PACE;
        }
        let all = shared.wants.values().filter(|it| !it.rests).count();
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        let age = shared.wants.get(id).map_or(Duration::ZERO, |want| want.since.elapsed());
        PACE.max(PACE_OF_EACH.saturating_mul(all)).max(age / 8).min(LISTED_PACE)
    }

    /// Polls for as long as the process lives.
    pub async fn follow(&self, interval: Duration, follower: &impl Follow) -> Infallible {
        let mut answers = false;
        loop {
            let acts = follower.acts();
            let result = self.ask(acts, answers, follower).await;
            answers = result.is_ok();
            follower.asked(&result);
            self.until_next(if answers { interval } else { SILENT }, acts, follower).await;
        }
    }

    /// Lists all nodes, once Ironic has answered at all.
    async fn ask(&self, acts: bool, answers: bool, follower: &impl Follow) -> Result<()> {
        let mut result = Ok(());
        if answers && acts {
            result = self.list(follower).await;
            if result.is_ok() {
                self.answered(&result);
                return result;
            }
        }
        // A list that fails says nothing about single nodes.
        let checked = self.0.client.check().await.map(drop);
        self.answered(&checked);
        checked?;
        if !answers && acts {
            result = self.list(follower).await;
        }
        result
    }

    fn answered(&self, result: &Result<()>) {
        let mut shared = self.lock();
        shared.silence = result.as_ref().err().map(ToString::to_string);
        shared.unanswered = false;
    }

    /// Waits until the next list is due, or sooner: for many, at the first moment in which this process acts, or where
    /// somebody was not answered.
    async fn until_next(&self, interval: Duration, acted: bool, follower: &impl Follow) {
        let began = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(GLANCE) => {}
                () = self.0.wanted.notified() => {}
            }
            let now = Instant::now();
            let (mut shared, waited) = (self.lock(), now.duration_since(began));
            shared.forget(now);
            let due = shared.silence.is_none() && shared.is_crowd(now);
            let soon = due && shared.rested().is_none_or(|rested| rested <= now);
            let doubt = shared.unanswered && waited >= SILENT;
            if (follower.acts() && (!acted || soon)) || doubt || waited >= interval {
                return;
            }
        }
    }

    async fn list(&self, follower: &impl Follow) -> Result<()> {
        let page = {
            let mut shared = self.lock();
            shared.listing = Some(Instant::now());
            shared.next_page()
        };
        let listed = self.pages(page, follower).await;
        let mut shared = self.lock();
        shared.listing = None;
        if let Ok(listed) = listed {
            shared.last = listed;
        } else {
            shared.last.ended = Some(Instant::now());
        }
        drop(shared);
        self.0.news.notify_waiters();
        listed.map(drop)
    }

    async fn pages(&self, page: u32, follower: &impl Follow) -> Result<Listed> {
        let query = NodeQuery { detail: self.0.fields, page, ..NodeQuery::default() };
        let mut pages = self.0.client.nodes(query);
        let mut listed = Listed::default();
        let mut names = HashSet::new();
        while !pages.is_done() {
            let nodes = pages.next().await?.unwrap_or_default();
            let Some(began) = pages.sent() else { continue };
            listed.took += began.elapsed();
            // Such a node is there. Who needs to know how it is asks for it alone, and is told what is wrong with it.
            names.extend(pages.unread().iter().filter_map(|uuid| ThingName::of(uuid)));
            for node in nodes {
                listed.nodes += 1;
                names.extend(ThingName::of(&node.uuid));
                names.extend(node.name.as_deref().and_then(ThingName::of));
                self.show(node, began, follower);
            }
            self.0.news.notify_waiters();
        }
        follower.listed(&names);
        listed.ended = Some(Instant::now());
        Ok(listed)
    }

    /// Tells of a node of a list. What it shows of one that was called since says nothing.
    fn show(&self, node: Node, began: Instant, follower: &impl Follow) {
        let names = [Some(node.uuid.clone()), node.name.clone()];
        let wanted = {
            let shared = self.lock();
            let id = names.iter().flatten().find(|id| shared.wants.contains_key(*id));
            if id.is_some_and(|id| !shared.wants[id].counts(began)) {
                return;
            }
            id.cloned()
        };
        if !follower.shown(&node) {
            return;
        }
        let mut shared = self.lock();
        // Whoever looks at a node that nobody has waited for names it by its identity.
        let id = wanted.unwrap_or_else(|| node.uuid.clone());
        let want = shared.wants.entry(id).or_insert_with(|| Want {
            not_before: began.checked_sub(Duration::from_nanos(1)).unwrap_or(began),
            rests: true,
            ..Want::new(Instant::now())
        });
        if want.counts(began) {
            want.reading = Some(Reading { node, began });
        }
    }
}

/// Whether an error says that Ironic does not answer, or not to us, and nothing about the node.
fn is_silence(error: &Error) -> bool {
    matches!(error.class(), Class::Unreachable | Class::Timeout | Class::Busy | Class::Unauthorized)
}

#[cfg(test)]
mod tests;

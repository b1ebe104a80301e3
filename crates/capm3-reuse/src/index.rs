//! Which host would do, found without looking at every host; and who waits for one.
//!
//! What is here is only a hint: it may be behind, and a claim is decided by its precondition. A host that one machine tries is
//! held back from the others until the pass of that machine ends. Otherwise a rush of a hundred machines for a hundred hosts has
//! some forty conflicts, each of which costs three writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api_types::metal3::{BareMetalHost, CachedHost};
use k8s_openapi::jiff::Timestamp;

use self::bag::{Bag, all_from, place};
use crate::host;
use crate::reservation::{self, Kept, Owner};
use crate::seen::{Choice, Unfit};
use crate::selector::{Labels, Selector};

mod bag;
mod kept;
mod queue;

/// What a machine wants.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Namespace of the machine, and so of the host.
    pub namespace: String,
    /// The machine.
    pub machine: String,
    /// Which hosts will do.
    pub selector: Selector,
    /// Where the host should stand, if there is a choice.
    pub failure_domain: Option<String>,
    /// For whom a kept host may be kept; nothing without nodeReuse.
    pub owner: Option<Owner>,
    /// A host that it just gave up, or is about to: what is here about that one may be behind.
    pub except: Option<String>,
    /// How long the host's name may be, if that is limited.
    pub name_bytes: Option<usize>,
    /// Since when: who came first is served first.
    pub since: Timestamp,
}

impl Wish {
    fn takes_name(&self, host: &str) -> bool {
        self.name_bytes.is_none_or(|most| host.len() <= most)
    }
}

/// For what a machine waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// A free host, or one that is kept for its owner.
    Any,
    /// A host that is kept for its owner and known to be on its way, for as long as it is its turn.
    Kept,
    /// A host that is kept for its owner, however long that takes.
    OnlyKept,
}

#[derive(Clone, Debug)]
struct Waiter {
    wish: Wish,
    wants: Wants,
}

/// Where a machine stands among those who wait: first come, first served.
type QueuePlace = (Timestamp, String);

/// What a host is to the machines of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Ready and nobody's.
    Free,
    /// Kept for an owner.
    Kept,
    /// A machine's.
    Claimed,
    /// Everything else: not ready, unhealthy, used by others.
    Excluded,
}

impl Class {
    const ALL: [Self; 4] = [Self::Free, Self::Kept, Self::Claimed, Self::Excluded];

    /// As the metrics call it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Kept => "reserved",
            Self::Claimed => "claimed",
            Self::Excluded => "excluded",
        }
    }
}

/// Under what a host is found. All that is kept stands first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// It is or will be kept, by the label of its owner.
    Kept(String),
    /// Nothing but a label keeps it.
    Labelled,
    /// A machine has it.
    Claimed(String),
}

struct Entry {
    host: Arc<CachedHost>,
    class: Class,
    /// Whether another installation looks after it.
    of_others: bool,
}

impl Entry {
    fn of(host: Arc<CachedHost>, watch_filter: Option<&str>) -> Self {
        let of_others = host::is_of_others(&host, watch_filter);
        let is_nobodys = host.spec.consumer_ref.is_none();
        let class = if host::consumer_machine(&host).is_some() {
            Class::Claimed
        } else if Kept::of(&host).is_some() {
            Class::Kept
        } else if is_nobodys && host::is_ready(&host) && !of_others {
            Class::Free
        } else {
            Class::Excluded
        };
        Self { host, class, of_others }
    }

    /// The machine that has it.
    fn machine(&self) -> Option<&str> {
        host::consumer_machine(&self.host)
    }

    /// For whom it is kept, or will be as soon as its machine has given it back.
    fn kept(&self) -> Option<Kept> {
        let pending = || self.machine().and(reservation::pending(&self.host)).flatten();
        Kept::of(&self.host).or_else(|| pending().map(Kept::For))
    }

    /// The label of the reservation that it counts for.
    fn label(&self) -> Option<String> {
        self.kept().map(|kept| kept.label())
    }

    fn marks(&self) -> impl Iterator<Item = Mark> {
        let is_labelled = self.class == Class::Kept && self.host.spec.consumer_ref.is_none();
        let machine = self.machine().map(|it| Mark::Claimed(it.to_owned()));
        let all = [self.label().map(Mark::Kept), is_labelled.then_some(Mark::Labelled), machine];
        all.into_iter().flatten()
    }

    /// Whether it could be claimed now by whom it is free or kept for.
    fn is_ready(&self) -> bool {
        !self.of_others && host::is_ready(&self.host)
    }
}

/// Hosts, and the machines that have to do with them.
#[derive(Default)]
pub struct Index {
    /// Cluster API's watch label, if hosts that have it with another value are not ours.
    watch_filter: Option<String>,
    namespaces: HashMap<String, Namespace>,
}

#[derive(Default)]
struct Namespace {
    entries: HashMap<Arc<str>, Entry>,
    free: Bag,
    /// Free hosts by label and value.
    free_with: HashMap<(String, String), Bag>,
    /// Hosts by what else they are found under. A machine has one, but for what others did.
    marked: BTreeSet<(Mark, Arc<str>)>,
    /// The machine that tries a host in its pass, or is called to try it in its next one.
    held: HashMap<Arc<str>, String>,
    /// Machines that wait. One that is called does not wait any more: it looks again, and waits anew if it finds nothing.
    waiters: BTreeMap<QueuePlace, Waiter>,
    since: HashMap<String, Timestamp>,
}

impl Index {
    /// One for an installation with this watch filter.
    pub fn filtered(watch_filter: Option<String>) -> Self {
        Self { watch_filter, ..Self::default() }
    }

    /// Takes note of what a host is now, or that it is gone. Returns the machines that this concerns, but for those that only
    /// name it.
    pub fn update(
        &mut self,
        namespace: &str,
        name: &str,
        host: Option<Arc<CachedHost>>,
    ) -> Vec<String> {
        let space = self.namespaces.entry(namespace.to_owned()).or_default();
        let before = space.remove(name);
        if let Some(host) = host {
            space.insert(name, Entry::of(host, self.watch_filter.as_deref()));
        }
        let after = space.entries.get(name);
        let machines = before.iter().chain(after).filter_map(Entry::machine);
        let mut concerned: BTreeSet<String> = machines.map(str::to_owned).collect();
        let (left, kept) = (before.as_ref().and_then(Entry::label), after.and_then(Entry::label));
        let was_coming = before.is_some_and(|it| host::is_on_its_way(&it.host));
        let starts = left != kept || !was_coming;
        // What was seen of it now counts, not what was expected of it.
        if !space.is_ready(name) {
            space.held.remove(name);
        }
        concerned.extend(space.offer(name));
        if let Some(label) = kept.as_ref().filter(|_| starts) {
            concerned.extend(space.call_next(label, Some(name)));
        }
        for label in left.into_iter().chain(kept).collect::<BTreeSet<_>>() {
            concerned.extend(space.let_down(&label));
        }
        concerned.into_iter().collect()
    }

    /// The hosts whose consumer reference names this machine.
    pub fn hosts_of(&self, namespace: &str, machine: &str) -> Vec<Arc<CachedHost>> {
        let Some(space) = self.namespaces.get(namespace) else { return Vec::new() };
        let names = space.marked(Mark::Claimed(machine.to_owned()));
        names.filter_map(|name| Some(space.entries.get(name)?.host.clone())).collect()
    }

    /// What there is for a machine, held back from others until [`Index::settle`]. `chance` says where to begin among
    /// free hosts.
    pub fn choose(&mut self, wish: &Wish, chance: u64) -> Choice {
        let Some(space) = self.namespaces.get_mut(&wish.namespace) else {
            return Choice::default();
        };
        let mut choice = space.choose_kept(wish);
        choice.free = space.pick_free(wish, chance);
        if choice.kept.is_none() && choice.free.is_none() {
            choice.labelled = space.labelled_for(wish);
        }
        for host in choice.kept.iter().chain(&choice.free) {
            let name = host.metadata.name.as_deref().unwrap_or_default();
            space.held.insert(name.into(), wish.machine.clone());
        }
        choice
    }

    /// A machine has got this host. Until a watch shows it so there is nothing of it here to try.
    pub fn took(&mut self, namespace: &str, host: &str) {
        let space = self.namespaces.get_mut(namespace);
        if let Some(space) = space.filter(|it| it.is_ready(host)) {
            space.remove(host);
        }
    }

    /// The pass of a machine has ended. Returns the machines that are called to what was held back for it, and those that have
    /// to look again because this one waits before them.
    pub fn settle(&mut self, namespace: &str, machine: &str) -> Vec<String> {
        self.namespaces.get_mut(namespace).map(|it| it.settle(machine)).unwrap_or_default()
    }

    /// Lets a machine wait, first come first served. True if there is something for it already, or not any more what it was
    /// to wait for: look again.
    pub fn wait(&mut self, wish: Wish, wants: Wants) -> bool {
        let space = self.namespaces.entry(wish.namespace.clone()).or_default();
        let (machine, since, waiter) = (wish.machine.clone(), wish.since, Waiter { wish, wants });
        let is_in_vain = wants == Wants::Kept && !space.has_its_turn(&waiter.wish);
        if is_in_vain || space.has_for(&waiter) {
            return true;
        }
        space.since.insert(machine.clone(), since);
        space.waiters.insert((since, machine), waiter);
        false
    }

    /// The machine does not wait any more.
    pub fn leave(&mut self, namespace: &str, machine: &str) {
        if let Some(space) = self.namespaces.get_mut(namespace) {
            space.leave(machine);
        }
    }

    /// The machine is gone. Returns those that are called to what was held back for it, and who is next at what it waited for.
    pub fn gone(&mut self, namespace: &str, machine: &str) -> Vec<String> {
        let Some(space) = self.namespaces.get_mut(namespace) else { return Vec::new() };
        let waited = space.leave(machine).filter(|it| it.wants == Wants::Kept);
        let mut called = space.settle(machine);
        let label = waited.and_then(|it| it.label());
        called.extend(label.and_then(|it| space.call_next(&it, None)));
        called
    }

    /// How many machines wait.
    pub fn waiters(&self) -> usize {
        self.namespaces.values().map(|space| space.waiters.len()).sum()
    }

    /// Hosts that are kept under a label, or all that are kept.
    pub fn kept(&self, namespace: &str, label: Option<&str>) -> Vec<String> {
        let Some(space) = self.namespaces.get(namespace) else { return Vec::new() };
        let Some(label) = label else {
            let all = space.marked.range(..(Mark::Labelled, Arc::<str>::from("")));
            return all.map(|(_, host)| host.to_string()).collect();
        };
        space.marked(Mark::Kept(label.to_owned())).map(ToString::to_string).collect()
    }

    /// How many hosts there are of each class.
    pub fn counts(&self) -> [(&'static str, usize); 4] {
        let all = || self.namespaces.values().flat_map(|space| space.entries.values());
        Class::ALL.map(|it| (it.as_str(), all().filter(|entry| entry.class == it).count()))
    }
}

impl Namespace {
    fn insert(&mut self, name: &str, entry: Entry) {
        let name: Arc<str> = name.into();
        self.marked.extend(entry.marks().map(|mark| (mark, name.clone())));
        if entry.class == Class::Free {
            self.free.insert(place(&name), entry.host.clone());
            for (key, value) in entry.host.metadata.labels.iter().flatten() {
                let bag = self.free_with.entry((key.clone(), value.clone())).or_default();
                bag.insert(place(&name), entry.host.clone());
            }
        }
        self.entries.insert(name, entry);
    }

    fn remove(&mut self, name: &str) -> Option<Entry> {
        let (name, entry) = self.entries.remove_entry(name)?;
        for mark in entry.marks() {
            self.marked.remove(&(mark, name.clone()));
        }
        if entry.class == Class::Free {
            self.free.remove(&place(&name));
            for (key, value) in entry.host.metadata.labels.iter().flatten() {
                let pair = (key.clone(), value.clone());
                if let Some(bag) = self.free_with.get_mut(&pair) {
                    bag.remove(&place(&name));
                    if bag.is_empty() {
                        self.free_with.remove(&pair);
                    }
                }
            }
        }
        Some(entry)
    }

    /// The hosts that are found under this.
    fn marked(&self, mark: Mark) -> impl Iterator<Item = &Arc<str>> {
        let from = (mark.clone(), Arc::<str>::from(""));
        self.marked.range(from..).take_while(move |(it, _)| *it == mark).map(|(_, name)| name)
    }

    fn is_held(&self, host: &str, by_others_than: &str) -> bool {
        self.held.get(host).is_some_and(|machine| machine != by_others_than)
    }

    fn leave(&mut self, machine: &str) -> Option<Waiter> {
        let since = self.since.remove(machine)?;
        self.waiters.remove(&(since, machine.to_owned()))
    }

    fn is_ready(&self, host: &str) -> bool {
        let is_offered = |it: &Entry| matches!(it.class, Class::Free | Class::Kept);
        self.entries.get(host).is_some_and(|it| is_offered(it) && it.is_ready())
    }

    /// A host that is free but for a label that keeps it.
    fn labelled_for(&self, wish: &Wish) -> Option<String> {
        let would_do = |name: &&Arc<str>| {
            let entry = self.entries.get(*name);
            entry.is_some_and(|it| {
                it.is_ready()
                    && wish.selector.matches(it.host.metadata.labels.as_ref())
                    && wish.takes_name(name)
            })
        };
        self.marked(Mark::Labelled).find(would_do).map(ToString::to_string)
    }

    fn pick_free(&self, wish: &Wish, chance: u64) -> Option<Arc<CachedHost>> {
        let equals = &wish.selector.equals;
        if let Some(domain) = &wish.failure_domain {
            let label = api_types::names::capm3::FAILURE_DOMAIN;
            let mut there = equals.clone();
            if there.insert(label.to_owned(), domain.clone()).is_none_or(|it| it == *domain)
                && let Some(found) = self.pick(&there, wish, chance)
            {
                return Some(found);
            }
        }
        self.pick(equals, wish, chance)
    }

    /// A free host with these labels, those of the selector among them, that the wish accepts, beginning anywhere.
    fn pick(&self, labels: &Labels, wish: &Wish, chance: u64) -> Option<Arc<CachedHost>> {
        let mut fewest = &self.free;
        // The label that all in there have: reading it of a host again is a long way through memory.
        let mut known = None;
        for (key, value) in labels {
            let having = self.free_with.get(&(key.clone(), value.clone()))?;
            if having.len() <= fewest.len() {
                (fewest, known) = (having, Some(key));
            }
        }
        let fits = |(name, host): &(&Arc<str>, &Arc<CachedHost>)| {
            let has = |(key, value): (&String, &String)| {
                known == Some(key) || host.label(key) == Some(value)
            };
            wish.takes_name(name)
                && labels.iter().all(has)
                && wish.selector.allows(|key| host.label(key))
                && wish.except.as_deref() != Some(name)
                && !self.is_held(name, &wish.machine)
        };
        all_from(fewest, chance).find(fits).map(|(_, host)| host.clone())
    }
}

fn stands_in(host: &BareMetalHost, wish: &Wish) -> bool {
    wish.failure_domain.is_some() && host::failure_domain(host) == wish.failure_domain.as_deref()
}

#[cfg(test)]
mod tests;

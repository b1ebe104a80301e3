//! Hosts that are kept for an owner: which are ready, which will be, and who may wait for one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use api_types::metal3::CachedHost;

use super::{Choice, Class, Namespace, Wants, Wish, stands_in};
use crate::host;
use crate::reservation::{self, Kept, Owner};

/// What a host that is or will be kept for its owner is to a machine.
enum Prospect {
    /// It is ready.
    Ready,
    /// It is healthy and will be ready.
    Coming,
    /// It is no good, and why.
    Unfit(&'static str),
}

impl Namespace {
    pub(super) fn look_at_kept(
        &self,
        owner: &Owner,
        wish: &Wish,
        now: Instant,
        choice: &mut Choice,
    ) {
        let mut best: Option<&Arc<CachedHost>> = None;
        for name in self.kept.get(&owner.label()).into_iter().flatten() {
            match self.prospect(name, owner, wish) {
                Some((host, Prospect::Ready)) => {
                    if self.is_held(name, &wish.machine, now) {
                        continue;
                    }
                    let better =
                        best.is_none_or(|it| !stands_in(it, wish) && stands_in(host, wish));
                    if better {
                        best = Some(host);
                    }
                }
                Some((_, Prospect::Coming)) => {
                    choice.on_its_way.get_or_insert_with(|| name.to_string());
                }
                Some((_, Prospect::Unfit(why))) => {
                    choice.unfit.get_or_insert_with(|| (name.to_string(), why));
                }
                None => {}
            }
        }
        choice.kept = best.cloned();
        choice.behind =
            choice.kept.is_none() && choice.on_its_way.is_some() && !self.has_its_turn(wish, now);
    }

    fn prospect(
        &self,
        name: &str,
        owner: &Owner,
        wish: &Wish,
    ) -> Option<(&Arc<CachedHost>, Prospect)> {
        let entry = self.entries.get(name)?;
        let host = &entry.host;
        let next = || reservation::pending(host).flatten().map(Kept::For);
        let kept = Kept::of(host).or_else(next)?;
        if !kept.is_for(owner) || wish.except.as_deref() == Some(name) {
            return None;
        }
        let is_ready = host::is_ready(host);
        let prospect = if !wish.selector.matches(host.metadata.labels.as_ref()) {
            Prospect::Unfit("does not match hostSelector")
        } else if !wish.takes_name(name) {
            Prospect::Unfit("its name is too long for a provider ID")
        } else if is_ready && matches!(entry.class, Class::Kept(_)) {
            Prospect::Ready
        } else if is_ready || host::is_on_its_way(host) {
            // One that is ready and not kept yet has nothing on it any more; its machine is just about to give it back.
            Prospect::Coming
        } else {
            let why = host::exclusion(host).map_or("is not going to be ready", |it| it.as_str());
            Prospect::Unfit(why)
        };
        Some((host, prospect))
    }

    /// Whether more hosts that would do are on their way than machines of the same owner wait before this one: a host can
    /// only become one machine's.
    pub(super) fn has_its_turn(&self, wish: &Wish, now: Instant) -> bool {
        let Some(owner) = &wish.owner else { return false };
        let kept = self.kept.get(&owner.label()).into_iter().flatten();
        let coming = kept.filter_map(|name| match self.prospect(name, owner, wish)? {
            (host, Prospect::Coming) => Some(host),
            _ => None,
        });
        let coming: Vec<&Arc<CachedHost>> = coming.collect();
        let served = self.served(now);
        let own = (wish.since, wish.machine.clone());
        let before = self.waiters.range(..own).filter(|((_, machine), waiter)| {
            let its = &waiter.wish;
            !served.contains(machine.as_str())
                && its.owner.as_ref().is_some_and(|it| is_same(it, owner))
                && coming.iter().any(|host| its.selector.matches(host.metadata.labels.as_ref()))
        });
        before.take(coming.len()).count() < coming.len()
    }

    /// Those who waited for a host that is kept under this label and are to wait for it no longer: none is left for them.
    pub(super) fn let_down(&self, label: &str, now: Instant) -> HashSet<String> {
        let served = self.served(now);
        let waited = self.waiters.values().filter(|waiter| {
            waiter.wants == Wants::Kept
                && waiter.wish.owner.as_ref().is_some_and(|owner| owner.label() == label)
                && !served.contains(waiter.wish.machine.as_str())
                && !self.has_its_turn(&waiter.wish, now)
        });
        waited.map(|it| it.wish.machine.clone()).collect()
    }

    /// The first who has its turn at a host that is on its way now and who does not wait for one yet: what it says of there
    /// being none is not so any more.
    pub(super) fn first_to_wait_for(&self, host: &str, now: Instant) -> Option<String> {
        let served = self.served(now);
        let next = self.waiters.values().find(|waiter| {
            let wish = &waiter.wish;
            let comes = |owner: &Owner| {
                matches!(self.prospect(host, owner, wish), Some((_, Prospect::Coming)))
            };
            waiter.wants != Wants::Kept
                && !served.contains(wish.machine.as_str())
                && wish.owner.as_ref().is_some_and(comes)
                && self.has_its_turn(wish, now)
        });
        next.map(|waiter| waiter.wish.machine.clone())
    }

    /// Those whom a waiter's own wait concerns: who is left without a host to wait for, and who is next where several are on
    /// their way.
    pub(super) fn displaced_by(&self, machine: &str, now: Instant) -> HashSet<String> {
        let since = self.since.get(machine);
        let waiter = since.and_then(|it| self.waiters.get(&(*it, machine.to_owned())));
        let Some((waiter, owner)) = waiter.and_then(|it| Some((it, it.wish.owner.as_ref()?)))
        else {
            return HashSet::new();
        };
        let mut concerned = self.let_down(&owner.label(), now);
        if waiter.wants == Wants::Kept {
            let hosts = self.kept.get(&owner.label()).into_iter().flatten();
            let next = hosts.filter_map(|host| self.first_to_wait_for(host, now));
            concerned.extend(next.take(1));
        }
        concerned
    }
}

/// Whether it is one owner: a reference and the cache may name another version of it.
fn is_same(one: &Owner, other: &Owner) -> bool {
    (one.group(), &one.kind, &one.name) == (other.group(), &other.kind, &other.name)
}

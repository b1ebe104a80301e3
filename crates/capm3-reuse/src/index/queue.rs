//! Who waits for a host, and whose turn it is.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use super::{Class, Namespace, Waiter, Wants};

impl Namespace {
    /// Whether a host that is ready is what a waiter waits for.
    fn accepts(&self, waiter: &Waiter, name: &str, now: Instant) -> bool {
        let Some(entry) = self.entries.get(name) else { return false };
        let Waiter { wish, wants } = waiter;
        let for_it = if entry.class == Class::Free {
            *wants == Wants::Any
        } else {
            let both = entry.kept().zip(wish.owner.as_ref());
            both.is_some_and(|(kept, owner)| kept.is_for(owner))
        };
        for_it
            // What is here about that one may be behind.
            && wish.except.as_deref() != Some(name)
            && wish.takes_name(name)
            && self.is_ready(name)
            && wish.selector.matches(entry.host.metadata.labels.as_ref())
            && !self.is_held(name, &wish.machine, now)
    }

    pub(super) fn first_for(&self, waiter: &Waiter, now: Instant) -> Option<Arc<str>> {
        let mut kept = self.kept_for(&waiter.wish);
        if let Some(name) = kept.find(|name| self.accepts(waiter, name, now)) {
            return Some(name.clone());
        }
        if waiter.wants != Wants::Any {
            return None;
        }
        self.pick(&waiter.wish.selector.equals, &waiter.wish, 0, now).map(|(name, _)| name)
    }

    /// Offers a host to the first who waits for one like it and was not offered another, of those behind a place in the
    /// queue.
    pub(super) fn offer(
        &mut self,
        name: &str,
        behind: Option<&(Timestamp, String)>,
        now: Instant,
    ) -> Option<String> {
        if self.waiters.is_empty()
            || !self.is_ready(name)
            || self.holds.get(name).is_some_and(|hold| hold.until > now)
        {
            return None;
        }
        let served = self.served(now);
        let mut waiters = self.waiters.iter().filter(|(key, _)| behind < Some(*key));
        let next = waiters.find(|((_, machine), waiter)| {
            !served.contains(machine.as_str()) && self.accepts(waiter, name, now)
        });
        let machine = next.map(|((_, machine), _)| machine.clone())?;
        self.hold(name.into(), &machine, true, now);
        Some(machine)
    }

    /// Machines that were offered a host and have not come for it yet.
    pub(super) fn served(&self, now: Instant) -> HashSet<&str> {
        let offers = self.holds.values().filter(|hold| hold.offered && hold.until > now);
        offers.map(|hold| hold.machine.as_str()).collect()
    }
}

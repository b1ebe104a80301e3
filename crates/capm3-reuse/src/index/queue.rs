//! Who waits for a host, and who is called when one is there.

use super::{Class, Namespace, QueuePlace, Waiter, Wants, Wish};
use crate::reservation::Owner;

impl Waiter {
    /// The label of the hosts that are kept for its owner.
    pub(super) fn label(&self) -> Option<String> {
        self.wish.owner.as_ref().map(Owner::label)
    }
}

impl Namespace {
    /// Whether a host that is ready is what a waiter waits for.
    fn accepts(&self, waiter: &Waiter, name: &str) -> bool {
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
            && !self.is_held(name, &wish.machine)
    }

    /// Whether anything is ready that a waiter waits for.
    pub(super) fn has_for(&self, waiter: &Waiter) -> bool {
        let Waiter { wish, wants } = waiter;
        self.kept_for(wish).any(|name| self.accepts(waiter, name))
            || (*wants == Wants::Any && self.pick(&wish.selector.equals, wish, 0).is_some())
    }

    /// Ends what is held back for a machine.
    pub(super) fn settle(&mut self, machine: &str) -> Vec<String> {
        let left: Vec<_> = self.held.extract_if(|_, it| it == machine).collect();
        let mut called: Vec<String> =
            left.iter().filter_map(|(host, _)| self.offer(host)).collect();
        let place = self.since.get(machine).map(|since| (*since, machine.to_owned()));
        let label = place.and_then(|it| self.waiters.get(&it)?.label());
        called.extend(label.into_iter().flat_map(|it| self.let_down(&it)));
        called
    }

    /// Calls the first who waits for a host like this one, which is held back for it.
    pub(super) fn offer(&mut self, name: &str) -> Option<String> {
        if !self.is_ready(name) || self.held.contains_key(name) {
            return None;
        }
        let first = self.waiters.iter().find(|(_, waiter)| self.accepts(waiter, name));
        let machine = self.call(first?.0.clone());
        self.held.insert(name.into(), machine.clone());
        Some(machine)
    }

    /// Calls the first of an owner who has something else to wait for, where a host of that owner is on its way to it: this one,
    /// or any. Or it says for minutes that no host is there.
    pub(super) fn call_next(&mut self, label: &str, host: Option<&str>) -> Option<String> {
        let comes = |wish: &Wish| host.is_none_or(|host| self.comes_for(host, wish));
        let is_next = |it: &Waiter| {
            it.wants != Wants::Kept && it.label().as_deref() == Some(label) && comes(&it.wish)
        };
        let next = self.waiters.iter().find(|(_, it)| is_next(it));
        let (place, _) = next.filter(|(_, it)| self.has_its_turn(&it.wish))?;
        let place = place.clone();
        Some(self.call(place))
    }

    /// Calls those of an owner who wait for a host that others get, the last first.
    pub(super) fn let_down(&mut self, label: &str) -> Vec<String> {
        let mut called = Vec::new();
        while let Some(place) = self.last_in_vain(label) {
            called.push(self.call(place));
        }
        called
    }

    /// The last who waits for a host that is on its way, if more machines wait than such hosts are.
    fn last_in_vain(&self, label: &str) -> Option<QueuePlace> {
        let waits = |it: &Waiter| it.wants == Wants::Kept && it.label().as_deref() == Some(label);
        let (place, last) = self.waiters.iter().rfind(|(_, it)| waits(it))?;
        (!self.has_its_turn(&last.wish)).then(|| place.clone())
    }

    fn call(&mut self, place: QueuePlace) -> String {
        self.waiters.remove(&place);
        self.since.remove(&place.1);
        place.1
    }
}

//! Hosts that are kept for an owner: which are ready, which will be, and who may wait for one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use api_types::metal3::CachedHost;

use super::{Choice, Class, Mark, Namespace, Waiter, Wants, Wish, stands_in};
use crate::host;
use crate::reservation::Owner;

/// What a host that is or will be kept for its owner is to a machine.
enum Prospect {
    /// It is ready.
    Ready,
    /// It is healthy and will be ready.
    Coming,
    /// It is no good, and why.
    Unfit(&'static str),
}

/// Whose turn it is at the hosts that are on their way for one wish.
struct Turn<'a> {
    wish: &'a Wish,
    coming: Vec<&'a Arc<CachedHost>>,
    /// How many of them no machine of the same owner would take that waits before who asks.
    left: usize,
}

impl<'a> Turn<'a> {
    fn of(space: &'a Namespace, wish: &'a Wish, before: impl Iterator<Item = &'a Wish>) -> Self {
        let coming = space.coming(wish);
        let mut turn = Self { wish, left: coming.len(), coming };
        for other in before {
            turn.count(other);
        }
        turn
    }

    fn count(&mut self, other: &Wish) {
        let selects =
            |host: &&Arc<CachedHost>| other.selector.matches(host.metadata.labels.as_ref());
        // What is coming has the labels that its own selector wants.
        let takes = || self.wish.selector == other.selector || self.coming.iter().any(selects);
        // A turn that is over does not come again.
        if self.is_its() && self.is_of_owner(other) && takes() {
            self.left -= 1;
        }
    }

    fn is_its(&self) -> bool {
        self.left > 0
    }

    /// Whether the same hosts would do for this one. The owner's uid counts: a host that is kept for an owner of that name
    /// which is gone is for nobody else.
    fn is_for(&self, wish: &Wish) -> bool {
        self.wish.owner == wish.owner
            && self.wish.selector == wish.selector
            && self.wish.except == wish.except
            && self.wish.name_bytes == wish.name_bytes
    }

    fn is_of_owner(&self, wish: &Wish) -> bool {
        let both = self.wish.owner.as_ref().zip(wish.owner.as_ref());
        both.is_some_and(|(one, other)| one.is_named_as(other))
    }
}

impl Namespace {
    /// Hosts that are or will be kept for the owner.
    pub(super) fn kept_for(&self, wish: &Wish) -> impl Iterator<Item = &Arc<str>> {
        wish.owner.iter().flat_map(|owner| self.marked(Mark::Kept(owner.label())))
    }

    /// What there is of those.
    pub(super) fn choose_kept(&self, wish: &Wish, now: Instant) -> Choice {
        let mut choice = Choice::default();
        let mut best: Option<&Arc<CachedHost>> = None;
        for name in self.kept_for(wish) {
            match self.prospect(name, wish) {
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
        choice
    }

    fn prospect(&self, name: &str, wish: &Wish) -> Option<(&Arc<CachedHost>, Prospect)> {
        let entry = self.entries.get(name)?;
        let host = &entry.host;
        if !entry.kept()?.is_for(wish.owner.as_ref()?) {
            return None;
        }
        let is_ready = entry.is_ready();
        let prospect = if !wish.selector.matches(host.metadata.labels.as_ref()) {
            Prospect::Unfit("does not match hostSelector")
        } else if entry.of_others {
            // That it names an owner of ours may be older than the label: who looks after it now decides about it.
            Prospect::Unfit("is another instance's by its label cluster.x-k8s.io/watch-filter")
        } else if !wish.takes_name(name) {
            Prospect::Unfit("its name is too long for a provider ID")
        } else if is_ready && entry.class == Class::Kept {
            // The cache may not show yet why that one was given up. One that is seen to have a passing trouble is waited for.
            if wish.except.as_deref() == Some(name) {
                return None;
            }
            Prospect::Ready
        } else if is_ready || host::is_on_its_way(host) {
            // One that is ready and not kept yet has nothing on it any more; its machine is just about to give it back, or that
            // is done in its place where the machine is gone.
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
        let served = self.served(now);
        let before = self.waiters.range(..(wish.since, wish.machine.clone()));
        let before = before.map(|(_, waiter)| &waiter.wish);
        Turn::of(self, wish, before.filter(|it| !served.contains(it.machine.as_str()))).is_its()
    }

    fn coming(&self, wish: &Wish) -> Vec<&Arc<CachedHost>> {
        let coming = self.kept_for(wish).filter_map(|name| match self.prospect(name, wish)? {
            (host, Prospect::Coming) => Some(host),
            _ => None,
        });
        coming.collect()
    }

    /// Those who wait and belong to owners with this label, the first first, each with whether it has its turn. Machines of
    /// one owner wish mostly alike, so what is on its way is not looked at for each of them.
    fn in_order<'a>(
        &'a self,
        label: &'a str,
        now: Instant,
    ) -> impl Iterator<Item = (&'a Waiter, bool)> {
        let served = self.served(now);
        let (mut before, mut turns) = (Vec::<&Wish>::new(), Vec::<Turn<'a>>::new());
        self.waiters.values().filter_map(move |waiter| {
            let wish = &waiter.wish;
            let is_of_it = wish.owner.as_ref().is_some_and(|owner| owner.label() == label);
            if !is_of_it || served.contains(wish.machine.as_str()) {
                return None;
            }
            let known = turns.iter().find(|it| it.is_for(wish)).map(Turn::is_its);
            let turn = known.unwrap_or_else(|| {
                let turn = Turn::of(self, wish, before.iter().copied());
                let is_its = turn.is_its();
                turns.push(turn);
                is_its
            });
            for it in &mut turns {
                it.count(wish);
            }
            before.push(wish);
            Some((waiter, turn))
        })
    }

    /// Those under a label who wait for what their turn does not say: who waits for a host that is on its way and others get,
    /// and the first who could wait for one that `comes` for it and does not.
    pub(super) fn misled(
        &self,
        label: &str,
        now: Instant,
        comes: impl Fn(&Wish) -> bool,
    ) -> HashSet<String> {
        let mut is_first = true;
        let misled = self.in_order(label, now).filter(|(waiter, has_turn)| {
            let waits = waiter.wants == Wants::Kept;
            let is_next = is_first && *has_turn && !waits && comes(&waiter.wish);
            is_first &= !is_next;
            is_next || (waits && !has_turn)
        });
        misled.map(|(waiter, _)| waiter.wish.machine.clone()).collect()
    }

    /// Whether this host is on its way to who has this wish.
    pub(super) fn comes_for(&self, host: &str, wish: &Wish) -> bool {
        matches!(self.prospect(host, wish), Some((_, Prospect::Coming)))
    }

    /// Those whom it concerns that a machine waits, or does no longer: who is left without a host to wait for, and who is next
    /// where several are on their way.
    pub(super) fn concerned_by(&self, waiter: &Waiter, now: Instant) -> HashSet<String> {
        let label = waiter.wish.owner.as_ref().map(Owner::label);
        let misled = label.map(|it| self.misled(&it, now, |_| waiter.wants == Wants::Kept));
        misled.unwrap_or_default()
    }
}

//! Hosts that are kept for an owner: which are ready, which will be, and who may wait for one.

use std::sync::Arc;

use api_types::metal3::CachedHost;

use super::{Choice, Class, Mark, Namespace, Unfit, Wish, stands_in};
use crate::host;

/// What a host that is or will be kept for its owner is to a machine.
enum Prospect {
    /// It is ready.
    Ready,
    /// It is healthy and will be ready.
    Coming,
    /// It is no good, and why.
    Unfit(Unfit),
}

impl Namespace {
    /// Hosts that are or will be kept for the owner.
    pub(super) fn kept_for(&self, wish: &Wish) -> impl Iterator<Item = &Arc<str>> {
        wish.owner.iter().flat_map(|owner| self.marked(Mark::Kept(owner.label())))
    }

    /// What there is of those.
    pub(super) fn choose_kept(&self, wish: &Wish) -> Choice {
        let mut choice = Choice::default();
        let mut best: Option<&Arc<CachedHost>> = None;
        for name in self.kept_for(wish) {
            match self.prospect(name, wish) {
                Some((host, Prospect::Ready)) => {
                    if self.is_held(name, &wish.machine) {
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
            choice.kept.is_none() && choice.on_its_way.is_some() && !self.has_its_turn(wish);
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
            Prospect::Unfit(Unfit::NotSelected)
        } else if entry.of_others {
            // That it names an owner of ours may be older than the label: who looks after it now decides about it.
            Prospect::Unfit(Unfit::OfOthers)
        } else if !wish.takes_name(name) {
            Prospect::Unfit(Unfit::LongName)
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
            Prospect::Unfit(host::exclusion(host).map_or(Unfit::NeverReady, Unfit::Excluded))
        };
        Some((host, prospect))
    }

    /// Whether more hosts that would do are on their way than machines of the same owner wait before this one: a host can
    /// only become one machine's.
    pub(super) fn has_its_turn(&self, wish: &Wish) -> bool {
        let coming = self.coming(wish);
        let takes_one = |other: &Wish| {
            let both = wish.owner.as_ref().zip(other.owner.as_ref());
            let selects =
                |host: &&Arc<CachedHost>| other.selector.matches(host.metadata.labels.as_ref());
            both.is_some_and(|(one, other)| one.is_named_as(other))
                // What is coming has the labels that its own selector wants.
                && (other.selector == wish.selector || coming.iter().any(selects))
        };
        let before = self.waiters.range(..(wish.since, wish.machine.clone()));
        let before = before.filter(|(_, waiter)| takes_one(&waiter.wish)).take(coming.len());
        before.count() < coming.len()
    }

    fn coming(&self, wish: &Wish) -> Vec<&Arc<CachedHost>> {
        let coming = self.kept_for(wish).filter_map(|name| match self.prospect(name, wish)? {
            (host, Prospect::Coming) => Some(host),
            _ => None,
        });
        coming.collect()
    }

    /// Whether this host is on its way to who has this wish.
    pub(super) fn comes_for(&self, host: &str, wish: &Wish) -> bool {
        matches!(self.prospect(host, wish), Some((_, Prospect::Coming)))
    }
}

//! Hosts that are kept for an owner: which are ready, which will be, and who may wait for one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use api_types::metal3::CachedHost;

use super::{Choice, Class, Mark, Namespace, Waiter, Wants, Wish, stands_in};
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

/// Whose turn it is at the hosts that are on their way for one wish.
struct Turn<'a> {
    wish: &'a Wish,
    coming: Vec<&'a Arc<CachedHost>>,
    /// How many machines of the same owner wait before who asks and would take one of them.
    before: usize,
}

impl<'a> Turn<'a> {
    fn of(
        space: &'a Namespace,
        wish: &'a Wish,
        owner: &Owner,
        before: impl Iterator<Item = &'a Wish>,
    ) -> Self {
        let mut turn = Self { wish, coming: space.coming(wish, owner), before: 0 };
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
            self.before += 1;
        }
    }

    fn is_its(&self) -> bool {
        self.before < self.coming.len()
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
    pub(super) fn look_at_kept(
        &self,
        owner: &Owner,
        wish: &Wish,
        now: Instant,
        choice: &mut Choice,
    ) {
        let mut best: Option<&Arc<CachedHost>> = None;
        for name in self.marked(Mark::Kept(owner.label())) {
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
        if !kept.is_for(owner) {
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
        } else if is_ready && matches!(entry.class, Class::Kept(_)) {
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
        let Some(owner) = &wish.owner else { return false };
        let served = self.served(now);
        let before = self.waiters.range(..(wish.since, wish.machine.clone()));
        let before = before.map(|(_, waiter)| &waiter.wish);
        Turn::of(self, wish, owner, before.filter(|it| !served.contains(it.machine.as_str())))
            .is_its()
    }

    fn coming(&self, wish: &Wish, owner: &Owner) -> Vec<&Arc<CachedHost>> {
        let coming = self.marked(Mark::Kept(owner.label())).filter_map(|name| {
            match self.prospect(name, owner, wish)? {
                (host, Prospect::Coming) => Some(host),
                _ => None,
            }
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
            let owner = wish.owner.as_ref().filter(|it| it.label() == label)?;
            if served.contains(wish.machine.as_str()) {
                return None;
            }
            let known = turns.iter().find(|it| it.is_for(wish)).map(Turn::is_its);
            let turn = known.unwrap_or_else(|| {
                let turn = Turn::of(self, wish, owner, before.iter().copied());
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

    /// Those who waited for a host that is kept under this label and are to wait for it no longer: none is left for them.
    pub(super) fn let_down(&self, label: &str, now: Instant) -> HashSet<String> {
        let late = self.in_order(label, now);
        let late = late.filter(|(waiter, turn)| waiter.wants == Wants::Kept && !turn);
        late.map(|(waiter, _)| waiter.wish.machine.clone()).collect()
    }

    /// The first who has its turn at a host that is on its way now and who does not wait for one yet: what it says of there
    /// being none is not so any more.
    pub(super) fn first_to_wait_for(&self, host: &str, now: Instant) -> Option<String> {
        let label = self.entries.get(host)?.class.label()?;
        let comes = |wish: &Wish| {
            let prospect = wish.owner.as_ref().and_then(|owner| self.prospect(host, owner, wish));
            matches!(prospect, Some((_, Prospect::Coming)))
        };
        self.first_in_turn(label, now, comes)
    }

    fn first_in_turn(
        &self,
        label: &str,
        now: Instant,
        comes: impl Fn(&Wish) -> bool,
    ) -> Option<String> {
        let mut all = self.in_order(label, now);
        let next = all.find(|(it, turn)| it.wants != Wants::Kept && *turn && comes(&it.wish));
        next.map(|(waiter, _)| waiter.wish.machine.clone())
    }

    /// Under what label the host is or will be kept that a machine waits for.
    pub(super) fn waits_for_kept(&self, machine: &str) -> Option<String> {
        let since = self.since.get(machine)?;
        let waiter = self.waiters.get(&(*since, machine.to_owned()))?;
        let owner = waiter.wish.owner.as_ref().filter(|_| waiter.wants == Wants::Kept)?;
        Some(owner.label())
    }

    /// The first who has its turn at a host that is kept under this label and who does not wait for one yet.
    pub(super) fn next_to_wait(&self, label: &str, now: Instant) -> Option<String> {
        self.first_in_turn(label, now, |_| true)
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
            concerned.extend(self.next_to_wait(&owner.label(), now));
        }
        concerned
    }
}

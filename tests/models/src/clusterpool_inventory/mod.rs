//! The lease protocol as the shipped `decide` plays it, in a small world of which every state is
//! visited: pools that share entries, replicas whose caches are of different age, stops between any two
//! writes, and a person who deletes clusters and pools, wants no cluster any more, edits an entry or takes one off a list.
//!
//! Hive is played by three steps: it begins to install a cluster that is not paused, it frees the
//! entry of a deleted one without looking whose it is, and it takes its finalizer off. What this
//! cannot show is anything about what it leaves out: claims, versions of a pool, failures, the parts of a cluster.
//!
//! Versions of objects are not counted: a replica remembers of each object whether it changed since it was
//! read, which is all that a precondition asks.

#![allow(clippy::panic, reason = "a model that cannot go on panics")]

mod land;

use std::hash::{DefaultHasher, Hash, Hasher};

use bench::model::{Bounds, Progress, Report, explore};
use stateright::{Model, Property};

pub use self::land::Size;
use self::land::{Cluster, Entry, Hive, Land, Pool, Read, Replica, State};
use crate::World;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Shrink(u8),
    DeletePool(u8),
    TakeOff(u8),
    Edit(u8),
    DeleteCluster(u8),
    Hive(u8),
    ReadEntries(u8, u8),
    ReadClusters(u8, u8),
    Decide(u8, u8),
    Write(u8),
    Crash(u8),
}

impl Model for Land {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            pools: vec![Pool::Wants; usize::from(self.size.pools)],
            entries: vec![Entry::default(); usize::from(self.size.entries)],
            clusters: vec![None; self.names.len()],
            replicas: vec![Replica::default(); usize::from(self.size.replicas)],
            disturbances: self.size.disturbances,
            stolen: false,
            leaked: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (pool, how) in (0..).zip(&state.pools) {
            if state.disturbances > 0 && !matches!(how, Pool::Deleting | Pool::Gone) {
                actions.push(Action::DeletePool(pool));
                if *how == Pool::Wants {
                    actions.push(Action::Shrink(pool));
                    // A list without entries is a mistake, and another matter.
                    actions.extend((self.size.entries > 1).then_some(Action::TakeOff(pool)));
                }
            }
        }
        if state.disturbances > 0 {
            actions.extend((0..self.size.entries).map(Action::Edit));
        }
        for (number, cluster) in (0..).zip(&state.clusters) {
            let Some(cluster) = cluster else { continue };
            if state.disturbances > 0 && !cluster.deleting {
                actions.push(Action::DeleteCluster(number));
            }
            let begins = cluster.hive == Hive::Away && !cluster.deleting && !cluster.unverified;
            if begins || cluster.hive != Hive::Away && cluster.deleting {
                actions.push(Action::Hive(number));
            }
        }
        for (index, replica) in (0..).zip(&state.replicas) {
            if replica.work.is_some() {
                actions.extend([Action::Write(index), Action::Crash(index)]);
            } else if replica.read.is_some() {
                let works = u8::try_from(self.work(state, index).len()).unwrap_or(u8::MAX);
                actions.extend((0..works.max(1)).map(|it| Action::Decide(index, it)));
            } else {
                for pool in 0..self.size.pools {
                    actions.extend([
                        Action::ReadEntries(index, pool),
                        Action::ReadClusters(index, pool),
                    ]);
                }
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let read = |state: &mut State, replica: u8, pool: u8, read: Read| {
            let how = state.pools[usize::from(pool)];
            state.replicas[usize::from(replica)] =
                Replica { read: Some((pool, how, read)), pool, ..Replica::default() };
        };
        match action {
            Action::Shrink(pool) => {
                state.pools[usize::from(pool)] = Pool::Shrunk;
                state.disturbances -= 1;
            }
            Action::DeletePool(pool) => {
                state.pools[usize::from(pool)] = Pool::Deleting;
                state.disturbances -= 1;
            }
            Action::TakeOff(pool) => {
                state.pools[usize::from(pool)] = Pool::Relisted;
                state.disturbances -= 1;
            }
            Action::Edit(entry) => {
                state.entry(None, entry, |it| it.edited += 1);
                state.disturbances -= 1;
            }
            Action::DeleteCluster(number) => {
                let number = usize::from(number);
                let after = state.clusters[number].map(|it| Cluster { deleting: true, ..it });
                state.cluster(None, number, after);
                state.disturbances -= 1;
            }
            Action::Hive(number) => {
                let number = usize::from(number);
                let cluster = state.clusters[number]?;
                let hive = match cluster.hive {
                    Hive::Away => Hive::AtIt,
                    Hive::AtIt => Hive::Done,
                    Hive::Done => Hive::Away,
                };
                if hive == Hive::Done {
                    state.entry(None, self.entry_of(number), |it| {
                        it.lease = None;
                        it.released += 1;
                    });
                }
                state.cluster(None, number, Some(Cluster { hive, ..cluster }));
            }
            Action::ReadEntries(replica, pool) => {
                read(&mut state, replica, pool, Read::Entries(before.entries.clone()));
            }
            Action::ReadClusters(replica, pool) => {
                read(&mut state, replica, pool, Read::Clusters(before.clusters.clone()));
            }
            Action::Decide(replica, index) => {
                let work = self.work(before, replica);
                let it = &mut state.replicas[usize::from(replica)];
                it.read = None;
                match work.into_iter().nth(usize::from(index)) {
                    Some(number) => it.work = Some(number),
                    None => *it = Replica::default(),
                }
            }
            Action::Write(index) => {
                let step = self.step(&before.replicas[usize::from(index)])?;
                let (goes_on, is_done) = state.request(self, index, &step);
                let it = &mut state.replicas[usize::from(index)];
                it.asked = goes_on && !is_done;
                it.done += usize::from(is_done);
                if !goes_on || self.step(it).is_none() {
                    *it = Replica::default();
                }
            }
            Action::Crash(replica) => state.replicas[usize::from(replica)] = Replica::default(),
        }
        // The replicas are alike: which of them is which does not matter.
        state.replicas.sort_by_cached_key(|it| {
            let mut hasher = DefaultHasher::new();
            it.hash(&mut hasher);
            hasher.finish()
        });
        (state != *before).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.entries.iter().all(|it| it.released <= self.size.releases)
    }

    fn format_action(&self, action: &Action) -> String {
        let name = |it: u8| &self.names[usize::from(it)];
        match action {
            Action::Shrink(pool) => format!("person     wants nothing of pool{pool}"),
            Action::DeletePool(pool) => format!("person     deletes pool{pool}"),
            Action::TakeOff(pool) => format!("person     takes e0 off the list of pool{pool}"),
            Action::Edit(entry) => format!("person     edits e{entry}"),
            Action::DeleteCluster(it) => format!("person     deletes {}", name(*it)),
            Action::Hive(it) => format!("hive       goes on with {}", name(*it)),
            Action::ReadEntries(it, pool) => format!("replica-{it}  reads entries for pool{pool}"),
            Action::ReadClusters(it, pool) => {
                format!("replica-{it}  reads clusters for pool{pool}")
            }
            Action::Decide(it, work) => format!("replica-{it}  decides, and begins {work}"),
            Action::Write(it) => format!("replica-{it}  requests"),
            Action::Crash(it) => format!("replica-{it}  is stopped and started"),
        }
    }

    fn format_step(&self, before: &State, action: Action) -> Option<String> {
        match action {
            Action::Decide(replica, index) => {
                let work = self.work(before, replica);
                let work = self.piece(*work.get(usize::from(index))?);
                Some(format!("{:?}: {:?}", work.reason, work.steps))
            }
            Action::Write(index) => {
                let step = &self.step(&before.replicas[usize::from(index)])?;
                let (goes_on, is_done) = before.clone().request(self, index, step);
                let came = match (goes_on, is_done) {
                    (true, true) => "done",
                    (true, false) => "asked, and may",
                    (false, _) => "refused",
                };
                Some(format!("{step:?}: {came}"))
            }
            _ => None,
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all: Vec<Property<Self>> = vec![
            Property::always(
                "an entry is in at most one live cluster",
                |world: &Self, state: &State| {
                    (0..world.size.entries).all(|entry| {
                        let live = |(number, it): (usize, &Option<Cluster>)| {
                            world.entry_of(number) == entry
                                && it.is_some_and(|it| {
                                    it.hive == Hive::AtIt || !it.unverified && !it.deleting
                                })
                        };
                        state.clusters.iter().enumerate().filter(|it| live(*it)).count() <= 1
                    })
                },
            ),
            Property::always("a live cluster has its lease", |world: &Self, state: &State| {
                state.clusters.iter().enumerate().all(|(number, it)| {
                    it.is_none_or(|it| {
                        let lease = state.entries[usize::from(world.entry_of(number))].lease;
                        it.unverified
                            || it.deleting
                            || lease.is_some_and(|it| usize::from(it.cluster) == number)
                    })
                })
            }),
            Property::always("a lease never changes hands", |_, state: &State| !state.stolen),
            Property::always("a leased entry is kept", |_, state: &State| {
                state.entries.iter().all(|it| it.kept || it.lease.is_none())
            }),
            Property::always(
                "a cluster that Hive was let at goes after its lease",
                |_, state: &State| !state.leaked,
            ),
            Property::sometimes(
                "as many clusters live as there is room for",
                |world: &Self, state: &State| {
                    let live = |it: &&Cluster| it.hive == Hive::AtIt && !it.deleting;
                    let count = state.clusters.iter().flatten().filter(live).count();
                    count == usize::from(world.size.pools.min(world.size.entries))
                },
            ),
        ];
        // Where nobody does anything, nothing is ever given back.
        if self.size.disturbances > 0 {
            all.push(Property::sometimes(
                "an entry goes from hand to hand",
                |world: &Self, state: &State| {
                    let (entry, last) = (state.entries[0], world.size.pools - 1);
                    entry.released > 0
                        && entry.lease.is_some_and(|it| it.pool == last)
                        && state.clusters.iter().enumerate().any(|(number, it)| {
                            world.pool_of(number) == last
                                && world.entry_of(number) == 0
                                && it.is_some_and(|it| it.hive == Hive::AtIt)
                        })
                },
            ));
            all.push(Property::sometimes(
                "a cluster is made from an edited entry",
                |_, state: &State| {
                    let new = |it: &Cluster| it.version > 0 && it.hive == Hive::AtIt;
                    state.clusters.iter().flatten().any(new)
                },
            ));
        }
        all
    }
}

/// Every lease is a living cluster's that was made from its entry as that is now, no entry is free that a pool waits for, and
/// nothing else is left: no finalizer on an entry that nobody lists. Where an entry was released as often as the world allows,
/// nobody knows what comes after.
fn in_order(world: &Land, state: &State) -> bool {
    if state.entries.iter().any(|it| it.released == world.size.releases) {
        return true;
    }
    let there: Vec<(usize, Cluster)> =
        state.clusters.iter().enumerate().filter_map(|(at, it)| Some((at, (*it)?))).collect();
    let settled = there.iter().all(|(number, it)| {
        let pool = state.pools[usize::from(world.pool_of(*number))];
        let entry = world.entry_of(*number);
        pool.is_wanting()
            && pool.lists(entry)
            && !it.deleting
            && !it.unverified
            && it.version == state.entries[usize::from(entry)].edited
    });
    let served = (0..).zip(&state.pools).all(|(pool, how)| {
        let clusters = there.iter().filter(|(it, _)| world.pool_of(*it) == pool).count();
        let is_free = |(entry, it): (u8, &Entry)| how.lists(entry) && it.lease.is_none();
        let waits = how.is_wanting() && (0..).zip(&state.entries).any(is_free);
        clusters == 1 && how.is_wanting() || clusters == 0 && !waits
    });
    let needed = (0..).zip(&state.entries).all(|(entry, it)| {
        !it.kept || it.lease.is_some() || state.pools.iter().any(|pool| pool.lists(entry))
    });
    let leased = state.entries.iter().filter(|it| it.lease.is_some()).count();
    settled
        && served
        && needed
        && leased == there.len()
        && state.pools.iter().all(|it| *it != Pool::Deleting)
}

/// A world of this size.
pub fn world(size: Size) -> World {
    let Size { replicas, pools, entries, releases, disturbances } = size;
    let name = format!(
        "{replicas} replicas, {pools} pools, {entries} entries, {releases} releases, {disturbances} disturbances"
    );
    let explored = move |bounds: Bounds| -> Report {
        let own = |action: &Action| {
            matches!(
                action,
                Action::Hive(_)
                    | Action::ReadEntries(..)
                    | Action::ReadClusters(..)
                    | Action::Decide(..)
                    | Action::Write(_)
            )
        };
        let name = "every lease ends in a cluster or is free again, and nothing is left";
        let progress = [Progress { name, goal: in_order, own }];
        explore(&Land::new(size), &progress, bounds)
    };
    World { name, explore: Box::new(explored) }
}

/// More than a test has time for.
pub fn large() -> Vec<World> {
    let one = Size { replicas: 2, pools: 2, entries: 1, releases: 2, disturbances: 1 };
    vec![world(one), world(Size { entries: 2, ..one })]
}

//! The land: what is there, what a replica sees of it, and what a request does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use clusterpool_inventory::decide::decide;
use clusterpool_inventory::decision::{Step, Work};
use clusterpool_inventory::naming::cluster_name;
use clusterpool_inventory::seen::{self, Listed, Observed};
use clusterpool_inventory::settings::Policy;
use k8s_openapi::jiff::Timestamp;

/// How large a world is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Processes that work at the same time.
    pub replicas: u8,
    /// Pools, each of which wants one cluster.
    pub pools: u8,
    /// Entries, all of which every pool lists at first.
    pub entries: u8,
    /// How often an entry may be released; what comes after is not followed.
    pub releases: u8,
    /// What a person may do in all.
    pub disturbances: u8,
}

#[derive(Clone)]
pub(crate) struct Land {
    pub(crate) size: Size,
    /// Names of the clusters that can ever be, by number.
    pub(crate) names: Vec<String>,
    pub(crate) book: Arc<Mutex<Book>>,
}

/// What was decided before: a state holds numbers instead of texts, and nothing is decided twice.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) decided: HashMap<Seen, Vec<usize>>,
    pub(crate) numbers: HashMap<Work, usize>,
    pub(crate) pieces: Vec<Arc<Work>>,
}

/// Everything that a decision can depend on.
pub(crate) type Seen = (u8, Pool, Vec<Pool>, Vec<Entry>, Vec<Option<Cluster>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pool {
    Wants,
    /// The same, and the first entry is not listed any more.
    Relisted,
    Shrunk,
    Deleting,
    Gone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) lease: Option<Lease>,
    pub(crate) kept: bool,
    /// How often it was released: part of the names that are made for it.
    pub(crate) released: u8,
    /// How often a person edited it: its version.
    pub(crate) edited: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) pool: u8,
    pub(crate) cluster: u8,
    pub(crate) announced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cluster {
    /// The version of its entry that it was made from.
    pub(crate) version: u8,
    pub(crate) deleting: bool,
    pub(crate) unverified: bool,
    pub(crate) hive: Hive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hive {
    Away,
    /// Something of the cluster runs somewhere.
    AtIt,
    /// Nothing runs any more, its finalizer is still there.
    Done,
}

/// Which of its caches a replica looked into first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Read {
    Entries(Vec<Entry>),
    Clusters(Vec<Option<Cluster>>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Replica {
    pub(crate) read: Option<(u8, Pool, Read)>,
    pub(crate) pool: u8,
    /// Its piece of work, and how many steps of it are done.
    pub(crate) work: Option<usize>,
    pub(crate) done: usize,
    /// Whether what the next step asks of the API server first was answered well.
    pub(crate) asked: bool,
    pub(crate) old_entries: u8,
    pub(crate) old_clusters: u32,
    pub(crate) old_pool: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) pools: Vec<Pool>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) clusters: Vec<Option<Cluster>>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) disturbances: u8,
    pub(crate) stolen: bool,
    /// Whether a cluster that Hive was let at went while it had its lease.
    pub(crate) leaked: bool,
}

pub(crate) fn text(number: u8) -> String {
    number.to_string()
}

pub(crate) fn pool_name(pool: u8) -> String {
    format!("pool{pool}")
}

pub(crate) fn entry_name(entry: u8) -> String {
    format!("e{entry}")
}

pub(crate) fn entry_number(name: &str) -> u8 {
    name[1..].parse().unwrap_or_else(|_| panic!("{name} is no entry"))
}

/// The version of an entry that was edited so often.
pub(crate) fn version(entry: u8, edited: u8) -> String {
    format!("{}v{edited}", entry_name(entry))
}

pub(crate) fn edited(version: &str) -> u8 {
    let number = version.split_once('v').and_then(|it| it.1.parse().ok());
    number.unwrap_or_else(|| panic!("{version} is no version"))
}

impl Pool {
    /// Whether it is to have a cluster.
    pub(crate) fn is_wanting(self) -> bool {
        matches!(self, Self::Wants | Self::Relisted)
    }

    /// Whether it is there to stay and lists the entry.
    pub(crate) fn lists(self, entry: u8) -> bool {
        match self {
            Self::Wants | Self::Shrunk => true,
            Self::Relisted => entry > 0,
            Self::Deleting | Self::Gone => false,
        }
    }
}

impl Land {
    pub(crate) fn new(size: Size) -> Self {
        let mut names = Vec::new();
        for pool in 0..size.pools {
            for entry in 0..size.entries {
                for released in 0..=size.releases {
                    for edited in 0..=size.disturbances {
                        let seed = [pool_name(pool), version(entry, edited), text(released)];
                        let seed: Vec<&str> = seed.iter().map(String::as_str).collect();
                        names.push(cluster_name(&pool_name(pool), &seed));
                    }
                }
            }
        }
        Self { size, names, book: Arc::default() }
    }

    pub(crate) fn per_pool(&self) -> usize {
        self.names.len() / usize::from(self.size.pools)
    }

    pub(crate) fn number(&self, cluster: &str) -> usize {
        let found = self.names.iter().position(|it| it == cluster);
        found.unwrap_or_else(|| panic!("{cluster} is none of the names"))
    }

    pub(crate) fn pool_of(&self, cluster: usize) -> u8 {
        u8::try_from(cluster / self.per_pool()).unwrap_or(0)
    }

    pub(crate) fn entry_of(&self, cluster: usize) -> u8 {
        let per_entry = self.per_pool() / usize::from(self.size.entries);
        u8::try_from(cluster % self.per_pool() / per_entry).unwrap_or(0)
    }

    pub(crate) fn seen(
        &self,
        state: &State,
        pool: u8,
        how: Pool,
        entries: &[Entry],
        clusters: &[Option<Cluster>],
    ) -> Observed {
        // One that is being deleted has its list still.
        let is_listed = |entry: &u8| how != Pool::Relisted || how.lists(*entry);
        let listed = (0..self.size.entries).filter(is_listed).map(entry_name).collect();
        let exists = |pool: u8| state.pools[usize::from(pool)] != Pool::Gone;
        let cluster = |(number, it): (usize, &Option<Cluster>)| {
            let it = (*it)?;
            Some(seen::Cluster {
                name: self.names[number].clone(),
                uid: "u".to_owned(),
                at: String::new(),
                created: Timestamp::UNIX_EPOCH,
                deleting: it.deleting,
                hangs: false,
                kept: true,
                kept_by_others: it.hive != Hive::Away,
                entry: Some(entry_name(self.entry_of(number))),
                entry_version: Some(version(self.entry_of(number), it.version)),
                pool_version: Some("v".to_owned()),
                claim: None,
                claim_uid: None,
                claimed: None,
                marked: false,
                protected: false,
                unverified: it.unverified,
                installed: it.hive == Hive::AtIt,
                stopped: None,
                not_begun: None,
                idle: false,
                slow: false,
                stuck: false,
                running: false,
                asked_to_run: None,
            })
        };
        let mut pool_version = seen::Pool::default().version;
        "v".clone_into(&mut pool_version.own);
        let numbered = || clusters.iter().enumerate();
        Observed {
            pool: seen::Pool {
                name: pool_name(pool),
                uid: pool_name(pool),
                deleting: matches!(how, Pool::Deleting | Pool::Gone),
                kept: how != Pool::Gone,
                listed: Listed::Entries(listed),
                size: usize::from(how.is_wanting()),
                version: pool_version,
                ..seen::Pool::default()
            },
            clusters: numbered()
                .filter(|(number, _)| self.pool_of(*number) == pool)
                .filter_map(cluster)
                .collect(),
            customizations: (0..)
                .zip(entries)
                .map(|(number, entry)| seen::Customization {
                    name: entry_name(number),
                    at: text(entry.released),
                    version: version(number, entry.edited),
                    retry: None,
                    deleting: false,
                    kept: entry.kept,
                    kept_by_hive: false,
                    failed_by_hive: false,
                    lease: entry.lease.map(|it| seen::Lease {
                        cluster: Some(self.names[usize::from(it.cluster)].clone()),
                        pool: Some(pool_name(it.pool)),
                        pool_exists: exists(it.pool),
                        releasing: it.announced,
                        whole: true,
                    }),
                    others: numbered()
                        .filter(|(it, _)| self.pool_of(*it) != pool && self.entry_of(*it) == number)
                        .filter_map(cluster)
                        .filter(seen::Cluster::is_live)
                        .map(|it| it.name)
                        .collect(),
                    listed_elsewhere: (0..self.size.pools)
                        .any(|it| it != pool && state.pools[usize::from(it)].lists(number)),
                    refused: None,
                    unread: false,
                })
                .collect(),
            ..Observed::default()
        }
    }

    /// The pieces of work that the replica finds, by number.
    pub(crate) fn work(&self, state: &State, replica: u8) -> Vec<usize> {
        let Some((pool, how, read)) = &state.replicas[usize::from(replica)].read else {
            return Vec::new();
        };
        let (entries, clusters) = match read {
            Read::Entries(entries) => (entries, &state.clusters),
            Read::Clusters(clusters) => (&state.entries, clusters),
        };
        let key = (*pool, *how, state.pools.clone(), entries.clone(), clusters.clone());
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = book.decided.get(&key) {
            return known.clone();
        }
        let seen = self.seen(state, *pool, *how, entries, clusters);
        let work = decide(&seen, &Policy::default(), Timestamp::UNIX_EPOCH).work;
        let numbers: Vec<usize> = work.into_iter().map(|it| book.number(it)).collect();
        book.decided.insert(key, numbers.clone());
        numbers
    }

    pub(crate) fn piece(&self, number: usize) -> Arc<Work> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.pieces[number].clone()
    }

    /// The next step of a replica.
    pub(crate) fn step(&self, replica: &Replica) -> Option<Step> {
        self.piece(replica.work?).steps.get(replica.done).cloned()
    }
}

impl Book {
    pub(crate) fn number(&mut self, work: Work) -> usize {
        let next = self.pieces.len();
        let number = *self.numbers.entry(work.clone()).or_insert(next);
        if number == next {
            self.pieces.push(Arc::new(work));
        }
        number
    }
}

impl State {
    pub(crate) fn entry(&mut self, by: Option<u8>, entry: u8, change: impl FnOnce(&mut Entry)) {
        change(&mut self.entries[usize::from(entry)]);
        for (number, replica) in (0..).zip(&mut self.replicas) {
            replica.old_entries |= 1 << entry;
            if Some(number) == by {
                replica.old_entries &= !(1 << entry);
            }
        }
        self.forget();
    }

    pub(crate) fn cluster(&mut self, by: Option<u8>, cluster: usize, after: Option<Cluster>) {
        self.clusters[cluster] = after;
        for (number, replica) in (0..).zip(&mut self.replicas) {
            replica.old_clusters |= 1 << cluster;
            if Some(number) == by {
                replica.old_clusters &= !(1 << cluster);
            }
        }
        self.forget();
    }

    /// A replica that has read nothing has nothing that is old.
    pub(crate) fn forget(&mut self) {
        for replica in &mut self.replicas {
            match replica.read {
                Some((_, _, Read::Entries(_))) => replica.old_clusters = 0,
                Some((_, _, Read::Clusters(_))) => replica.old_entries = 0,
                None if replica.work.is_none() => *replica = Replica::default(),
                None => {}
            }
        }
    }

    /// One request. Whether the piece of work goes on, and whether the step is done with it.
    pub(crate) fn request(&mut self, world: &Land, by: u8, step: &Step) -> (bool, bool) {
        let me = Replica { read: None, ..self.replicas[usize::from(by)].clone() };
        let is_old = |name: &str| me.old_entries & 1 << entry_number(name) != 0;
        let is_other = |name: &str| me.old_clusters & 1 << world.number(name) != 0;
        let lease = |state: &Self, name: &str| state.entries[usize::from(entry_number(name))].lease;
        let there = |state: &Self, name: &str| state.clusters[world.number(name)];
        match step {
            Step::LetPoolGo => {
                if me.old_pool {
                    return (false, true);
                }
                self.pools[usize::from(me.pool)] = Pool::Gone;
                for replica in &mut self.replicas {
                    replica.old_pool |= replica.pool == me.pool;
                }
                self.forget();
            }
            Step::KeepEntry(entry) | Step::FreeEntry(entry) => {
                if is_old(entry) {
                    return (false, true);
                }
                let keep = matches!(step, Step::KeepEntry(_));
                self.entry(Some(by), entry_number(entry), |it| it.kept = keep);
            }
            Step::Lease { entry, cluster, prove_living, .. } => {
                if *prove_living && !me.asked {
                    return (there(self, cluster).is_some_and(|it| !it.deleting), false);
                }
                if is_old(entry) {
                    return (false, true);
                }
                let cluster = u8::try_from(world.number(cluster)).unwrap_or(0);
                self.stolen |= lease(self, entry).is_some_and(|it| it.cluster != cluster);
                let lease = Lease { pool: me.pool, cluster, announced: false };
                self.entry(Some(by), entry_number(entry), |it| it.lease = Some(lease));
            }
            Step::Announce(entry) | Step::Retract(entry) => {
                if is_old(entry) {
                    return (false, true);
                }
                let announced = matches!(step, Step::Announce(_));
                self.entry(Some(by), entry_number(entry), |it| {
                    it.lease = it.lease.map(|it| Lease { announced, ..it });
                });
            }
            Step::Release { entry, cluster, prove_absent, .. } => {
                if *prove_absent && !me.asked {
                    let absent = cluster.as_deref().is_none_or(|it| there(self, it).is_none());
                    return (absent, false);
                }
                if is_old(entry) {
                    return (false, true);
                }
                self.entry(Some(by), entry_number(entry), |it| {
                    it.lease = None;
                    it.released += 1;
                });
            }
            Step::Create { cluster, entry, .. } => {
                let number = world.number(cluster);
                let version = entry.as_ref().map_or(0, |it| edited(&it.version));
                let new = Cluster { version, deleting: false, unverified: true, hive: Hive::Away };
                // One of that name is taken for ours, at the version that it has.
                let after = self.clusters[number].or(Some(new));
                if self.clusters[number].is_none() {
                    self.cluster(Some(by), number, after);
                } else {
                    self.replicas[usize::from(by)].old_clusters &= !(1 << number);
                }
            }
            Step::Verify { cluster, entry, .. } => {
                if !me.asked {
                    let number = world.number(cluster);
                    let holds = lease(self, entry)
                        .is_some_and(|it| usize::from(it.cluster) == number && !it.announced);
                    return (holds, false);
                }
                let (Some(it), false) = (there(self, cluster), is_other(cluster)) else {
                    return (false, true);
                };
                let after = Some(Cluster { unverified: false, ..it });
                self.cluster(Some(by), world.number(cluster), after);
            }
            Step::Delete(cluster) => {
                let (Some(it), false) = (there(self, cluster), is_other(cluster)) else {
                    return (false, true);
                };
                let after = Some(Cluster { deleting: true, ..it });
                self.cluster(Some(by), world.number(cluster), after);
            }
            Step::LetGo { cluster, entry, .. } => {
                if !me.asked {
                    let number = world.number(cluster);
                    let lease = entry.as_deref().and_then(|it| lease(self, it));
                    return (lease.is_none_or(|it| usize::from(it.cluster) != number), false);
                }
                let (Some(it), false) = (there(self, cluster), is_other(cluster)) else {
                    return (false, true);
                };
                let number = world.number(cluster);
                let held = entry.as_deref().and_then(|it| lease(self, it));
                let holds = held.is_some_and(|it| usize::from(it.cluster) == number);
                self.leaked |= holds && !it.unverified;
                self.cluster(Some(by), number, None);
            }
            other => panic!("no part of this world: {other:?}"),
        }
        (true, true)
    }
}

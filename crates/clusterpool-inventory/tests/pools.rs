//! What holds for every pool, however it came to be as it is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeSet;

use api_types::condition::find;
use api_types::hive::{ClusterPoolStatus, EntryState, LastFailure};
use clusterpool_inventory::decide::decide;
use clusterpool_inventory::decision::{Decision, Step};
use clusterpool_inventory::pool_version::PoolVersion;
use clusterpool_inventory::seen::{
    Claim, Cluster, Customization, Lease, Listed, Namespace, Observed, Pool,
};
use clusterpool_inventory::settings::Policy;
use controller_kit::engine::Reason as _;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

fn name(letter: &'static str) -> impl Strategy<Value = String> {
    (0..4).prop_map(move |it| format!("{letter}{it}"))
}

fn moment() -> impl Strategy<Value = Timestamp> {
    (0..5i64).prop_map(|it| Timestamp::from_second(it * 100).unwrap())
}

/// Of a claim, or of the one that had its name before.
fn uid() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["one", "two"]).prop_map(str::to_owned)
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let names = (
        name("c"),
        prop::option::of(name("e")),
        prop::option::of((name("k"), prop::option::of(moment()), prop::option::of(uid()))),
        moment(),
    );
    let flags = prop::array::uniform9(any::<bool>());
    let words = (
        prop::option::of(prop::sample::select(vec!["v", "w", ""])),
        prop::option::of(prop::sample::select(vec!["1", "2"])),
        prop::option::of(Just("no quota")),
        prop::option::of(any::<bool>()),
    );
    (names, flags, words).prop_map(|((name, entry, given, created), flags, words)| {
        let [deleting, kept, others, marked, protected, unverified, installed, stuck, running] =
            flags;
        let (claim, claimed, claim_uid) =
            given.map_or((None, None, None), |(claim, at, uid)| (Some(claim), at, uid));
        Cluster {
            uid: format!("u-{name}"),
            at: format!("at-{name}"),
            name,
            created,
            deleting,
            hangs: deleting && stuck,
            kept,
            kept_by_others: others,
            unverified: unverified && entry.is_some(),
            entry,
            entry_version: words.1.map(str::to_owned),
            pool_version: words.0.map(str::to_owned),
            claim,
            claim_uid,
            claimed,
            marked,
            protected,
            not_begun: None,
            idle: false,
            slow: false,
            installed,
            stopped: words.2.map(str::to_owned),
            stuck,
            running,
            asked_to_run: words.3,
        }
    })
}

fn customization() -> impl Strategy<Value = Customization> {
    let lease = prop::option::of(
        (
            prop::option::of(name("c")),
            prop::option::of(prop::sample::select(vec!["pool", "other"])),
            any::<(bool, bool, bool)>(),
        )
            .prop_map(|(cluster, pool, (pool_exists, releasing, whole))| Lease {
                cluster,
                pool: pool.map(str::to_owned),
                pool_exists,
                releasing,
                whole,
            }),
    );
    let others = prop::collection::vec(name("o"), 0..2);
    let version = (prop::sample::select(vec!["1", "2"]), prop::option::of(moment()));
    (name("e"), version, lease, others, any::<[bool; 5]>()).prop_map(
        |(
            name,
            (version, retry),
            lease,
            others,
            [deleting, kept, by_hive, listed_elsewhere, refused],
        )| {
            Customization {
                at: format!("at-{name}"),
                name,
                version: version.to_owned(),
                retry,
                deleting,
                kept,
                kept_by_hive: by_hive,
                failed_by_hive: by_hive,
                lease,
                others,
                listed_elsewhere,
                refused: refused.then(|| "bad".to_owned()),
                unread: false,
            }
        },
    )
}

fn entry() -> impl Strategy<Value = EntryState> {
    let version = prop::option::of(prop::sample::select(vec!["1", "2"]));
    (version, prop::option::of(0..4), prop::option::of(name("c"))).prop_map(
        |(version, attempts, failed)| EntryState {
            version: version.map(str::to_owned),
            attempts,
            last_failure: failed.map(|it| LastFailure {
                cluster_deployment: Some(it),
                reason: Some("ProvisionStopped".to_owned()),
                message: Some("no quota".to_owned()),
                ..LastFailure::default()
            }),
            ..EntryState::default()
        },
    )
}

fn claim() -> impl Strategy<Value = Claim> {
    (name("k"), uid(), moment(), any::<bool>(), prop::option::of(name("c"))).prop_map(
        |(name, uid, created, deleting, cluster)| Claim {
            at: format!("at-{name}"),
            name,
            uid,
            created,
            deleting,
            cluster,
            pending: None,
        },
    )
}

fn listed() -> impl Strategy<Value = Listed> {
    prop_oneof![
        1 => Just(Listed::Nothing),
        1 => Just(Listed::Empty),
        6 => prop::collection::btree_set(name("e"), 1..5)
            .prop_map(|it| Listed::Entries(it.into_iter().collect())),
    ]
}

fn pool() -> impl Strategy<Value = Pool> {
    let limits = (0..5usize, 0..3usize, prop::option::of(0..6usize), prop::option::of(0..4usize));
    let inventory = prop::collection::btree_map(name("e"), entry(), 0..4);
    (limits, listed(), inventory, any::<(bool, bool, bool, bool)>()).prop_map(
        |(
            (size, running, max_size, max_concurrent),
            listed,
            inventory,
            (kept, deleting, absent, hibernates),
        )| {
            Pool {
                name: "pool".to_owned(),
                uid: "uid".to_owned(),
                at: "at-pool".to_owned(),
                deleting,
                absent: absent && deleting,
                kept,
                listed,
                size,
                running,
                max_size,
                max_concurrent,
                hibernates,
                version: PoolVersion { own: "v".to_owned(), ..PoolVersion::default() },
                status: ClusterPoolStatus { inventory, ..ClusterPoolStatus::default() },
                ..Pool::default()
            }
        },
    )
}

fn observed() -> impl Strategy<Value = Observed> {
    let namespace = (name("c"), moment(), any::<(bool, bool, bool)>()).prop_map(
        |(name, created, (deleting, begun, vacated))| {
            let (uid, pool_uid, made_from) = (format!("u-{name}"), "uid".to_owned(), String::new());
            Namespace { uid, name, pool_uid, made_from, created, deleting, begun, vacated }
        },
    );
    (
        pool(),
        prop::collection::vec(cluster(), 0..5),
        prop::collection::vec(customization(), 0..5),
        prop::collection::vec(claim(), 0..4),
        prop::collection::vec(namespace, 0..3),
        (prop::bool::weighted(0.1), any::<bool>()),
    )
        .prop_map(
            |(pool, mut clusters, mut customizations, mut claims, mut namespaces, flags)| {
                let (missing, begun) = flags;
                let mut seen = BTreeSet::new();
                clusters.retain(|it| seen.insert(it.name.clone()));
                seen.clear();
                customizations.retain(|it| seen.insert(it.name.clone()));
                seen.clear();
                claims.retain(|it| seen.insert(it.name.clone()));
                seen.clear();
                namespaces.retain(|it| seen.insert(it.name.clone()));
                let missing = if missing { vec!["secret".to_owned()] } else { Vec::new() };
                let waits = |it: &Cluster| it.is_installing() && !it.unverified && !begun;
                for it in clusters.iter_mut().filter(|it| waits(it)) {
                    it.not_begun = Some(String::new());
                }
                Observed {
                    pool,
                    clusters,
                    customizations,
                    claims,
                    namespaces,
                    missing,
                    ..Observed::default()
                }
            },
        )
}

fn steps(decision: &Decision) -> impl Iterator<Item = &Step> {
    decision.work.iter().flat_map(|it| &it.steps)
}

fn decided(seen: &Observed) -> Decision {
    decide(seen, &Policy::default(), Timestamp::from_second(10_000).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// A claimed cluster is its user's until the claim is gone, and a protected one is nobody's.
    #[test]
    fn only_clusters_that_may_go_are_deleted(seen in observed()) {
        let decision = decided(&seen);
        let mut deleted = BTreeSet::new();
        for step in steps(&decision) {
            if let Step::Delete(cluster) = step {
                let it = seen.clusters.iter().find(|it| it.name == *cluster).unwrap();
                prop_assert!(it.claim.is_none() || it.marked);
                prop_assert!(!it.protected && !it.deleting);
                // Nobody asked for the end of a pool that is merely not there.
                let in_use = it.installed && !it.unverified && !it.marked;
                prop_assert!(!(seen.pool.absent && in_use));
                prop_assert!(deleted.insert(cluster.clone()));
            }
            // What another one of its name had is no claim's, unless it says so itself.
            if let Step::Assign { claim, cluster, .. } = step {
                let claim = seen.claims.iter().find(|it| it.name == *claim).unwrap();
                let it = seen.clusters.iter().find(|it| it.name == *cluster).unwrap();
                prop_assert!(claim.cluster.is_none());
                prop_assert!(it.claim.is_none() || it.was_given_to(claim));
                let is_its_own = it.claim_uid.as_ref().is_none_or(|uid| *uid == claim.uid);
                prop_assert!(it.claim.is_none() || is_its_own);
            }
            // What a claim gets in this pass does not go in this pass.
            if let Step::Claim { cluster, .. } = step {
                prop_assert!(!deleted.contains(cluster));
            }
        }
    }

    /// An entry is leased only where it is free or its state torn, by at most one piece of work, and not into the hands of a second live cluster. A lease
    /// that is damaged is written once more for the cluster that it names.
    #[test]
    fn only_what_nobody_has_is_leased(seen in observed()) {
        let mut leased = BTreeSet::new();
        for step in steps(&decided(&seen)) {
            if let Step::Lease { entry, cluster, prove_living } = step {
                let it = seen.customizations.iter().find(|it| it.name == *entry).unwrap();
                let is_whole = |it: &Lease| it.whole && it.pool.as_deref() == Some("pool");
                let repairs = |it: &Lease| it.cluster.as_ref() == Some(cluster) && !is_whole(it);
                let repairs = *prove_living && it.lease.as_ref().is_some_and(repairs);
                let is_free = it.lease.as_ref().is_none_or(|it| it.cluster.is_none());
                prop_assert!(is_free || repairs);
                prop_assert!(it.others.is_empty() && !it.deleting);
                prop_assert!(leased.insert(entry.clone()));
                let live = |it: &&Cluster| it.entry.as_ref() == Some(entry) && it.is_live();
                // Of several that have an entry already one gets its lease back; nobody new comes in.
                let is_back = |it: &Cluster| *prove_living && !it.deleting;
                let mut users = seen.clusters.iter().filter(live);
                prop_assert!(repairs || users.all(|it| it.name == *cluster || is_back(it)));
                // A new use of an entry wants it whole in this pool.
                if !prove_living {
                    prop_assert!(seen.pool.listed.names().contains(entry) && it.refused.is_none());
                    let before = seen.pool.status.inventory.get(entry);
                    let same = before.filter(|old| old.version.as_ref() == Some(&it.version));
                    prop_assert!(it.retry.is_some() || same.and_then(|old| old.attempts) != Some(0));
                    prop_assert!(!seen.pool.deleting && seen.missing.is_empty());
                }
            }
        }
    }

    /// A lease goes when its cluster waits for nothing else, or after the cluster was proven absent.
    #[test]
    fn only_leases_of_our_own_or_of_nobody_are_released(seen in observed()) {
        for work in decided(&seen).work {
            for step in &work.steps {
                let Step::Release { entry, cluster, prove_absent } = step else { continue };
                let it = seen.customizations.iter().find(|it| it.name == *entry).unwrap();
                let Some(lease) = &it.lease else {
                    // It only loses the word of Hive's own controller.
                    prop_assert!(it.failed_by_hive && cluster.is_none() && work.steps.len() == 1);
                    continue;
                };
                prop_assert!(lease.cluster == *cluster);
                let holder = seen.clusters.iter().find(|it| Some(&it.name) == cluster.as_ref());
                // A lease of our cluster is ours, whichever pool it names.
                let is_made = |it: &Cluster| it.entry.as_ref().map_or(it.kept, |it| it == entry);
                let theirs = lease.pool.as_deref() == Some("other") && lease.pool_exists;
                prop_assert!(!theirs || holder.is_some_and(is_made));
                match holder {
                    Some(holder) if holder.entry.as_ref() == Some(entry) && !prove_absent => {
                        prop_assert!(holder.deleting && !holder.kept_by_others);
                        let last = matches!(work.steps.last(), Some(Step::LetGo { .. }));
                        prop_assert!(last);
                    }
                    Some(_) => {}
                    None => prop_assert!(*prove_absent || cluster.is_none()),
                }
                if *prove_absent {
                    let announced = matches!(work.steps[0], Step::Announce { .. });
                    prop_assert!(lease.releasing || announced);
                }
            }
        }
    }

    #[test]
    fn both_limits_hold(seen in observed()) {
        let decision = decided(&seen);
        let has = |it: &Customization, ours: bool| {
            let lease = it.lease.as_ref()?;
            let cluster = lease.cluster.as_ref()?;
            let there = seen.clusters.iter().any(|it| it.name == *cluster);
            (ours == (lease.pool.as_deref() == Some("pool")) && !there).then_some(())
        };
        let halves = seen.customizations.iter().filter(|it| has(it, true).is_some()).count();
        let added = decision.work.iter().filter(|it| it.reason.as_str() == "Added").count();
        if let Some(most) = seen.pool.max_size {
            let all = seen.clusters.len() + added;
            prop_assert!(added == 0 || all <= most);
        }
        if let Some(most) = seen.pool.max_concurrent {
            let busy = |it: &&Cluster| it.deleting || it.is_installing();
            // One that Hive cannot take down takes no place.
            let hangs = usize::from(seen.clusters.iter().any(|it| it.hangs));
            let busy = seen.clusters.iter().filter(busy).count() - hangs;
            let began = decision.work.iter().filter(|it| match &it.steps[..] {
                // Urgent ones, and a pool that goes: these are not held up.
                [Step::Delete(cluster)] => {
                    let it = seen.clusters.iter().find(|it| it.name == *cluster);
                    !it.is_some_and(Cluster::is_installing)
                        && !["DoubleUse", "PoolDeleted", "EntryMissing"].contains(&it_reason(&decision, cluster))
                }
                _ => it.reason.as_str() == "Added",
            });
            let began = began.count();
            prop_assert!(began == 0 || busy + halves + began <= most, "{began} {busy} {halves}");
        }
    }

    /// Attempts fall by one for a cluster that failed and was not counted, and rise on a new version,
    /// a success or a person's wish.
    #[test]
    fn attempts_change_for_a_reason(seen in observed()) {
        let Some(status) = decided(&seen).status else { return Ok(()) };
        for (name, before) in &seen.pool.status.inventory {
            let (Some(after), Some(had)) = (status.inventory.get(name), before.attempts) else {
                continue;
            };
            let has = after.attempts.unwrap();
            let holder = seen.clusters.iter().find(|it| after.cluster() == Some(&it.name));
            if has < had && before.version == after.version {
                let counted = before.last_failure.as_ref().and_then(|it| it.cluster_deployment.as_deref());
                prop_assert!(has + 1 == had && counted != after.cluster() || holder.is_some_and(|it| it.installed));
            } else if has > had {
                let mut retried = seen.customizations.iter().filter(|it| it.retry.is_some());
                let renewed = before.version != after.version || retried.any(|it| it.name == *name);
                prop_assert!(renewed || holder.is_some_and(|it| it.installed));
            }
        }
    }

    /// Once it is stored, the same state says the same: nothing is counted twice or written again.
    #[test]
    fn a_stored_status_is_not_written_again(seen in observed()) {
        let mut seen = seen;
        if let Some(status) = decided(&seen).status {
            seen.pool.status = status;
        }
        let again = decided(&seen);
        prop_assert_eq!(again.status, None);
        let lasting = ["DoubleUse", "ClusterBroken"];
        let told = again.events.iter().all(|it| lasting.contains(&&*it.reason));
        prop_assert!(told, "{:?}", again.events);
    }

    /// A pool that is below its size says why, unless something is under way that ends by itself.
    #[test]
    fn a_pool_that_waits_says_why(seen in observed()) {
        let mut seen = seen;
        if let Some(status) = decided(&seen).status {
            seen.pool.status = status;
        }
        let ends = |it: &Cluster| {
            it.deleting && !it.hangs
                || it.is_installing() && !it.unverified && it.not_begun.is_none()
        };
        let of_use = |it: &&Cluster| {
            it.is_unclaimed() && it.installed && !it.is_broken() && !it.unverified
        };
        let is_short = seen.clusters.iter().filter(of_use).count() < seen.pool.size;
        let is_busy = !decided(&seen).work.is_empty() || seen.clusters.iter().any(ends);
        if is_short && !is_busy && !seen.pool.deleting {
            let told = find(&seen.pool.status.conditions, "CapacityAvailable").unwrap();
            prop_assert!(!told.is_true(), "{told:?}");
        }
    }

    /// Nothing of a pool that is being deleted goes before its clusters do.
    #[test]
    fn a_pool_goes_last(seen in observed()) {
        let decision = decided(&seen);
        if steps(&decision).any(|it| matches!(it, Step::LetPoolGo)) {
            prop_assert!(seen.pool.deleting && seen.clusters.is_empty() && decision.work.len() == 1);
        }
        for step in steps(&decision) {
            if let Step::FreeEntry(entry) = step {
                let it = seen.customizations.iter().find(|it| it.name == *entry).unwrap();
                let used = |it: &Cluster| it.entry.as_ref() == Some(entry) && it.is_live();
                prop_assert!(it.lease.is_none() && it.others.is_empty());
                prop_assert!(!seen.clusters.iter().any(used));
            }
        }
    }
}

fn it_reason<'a>(decision: &'a Decision, name: &str) -> &'a str {
    let found = decision
        .work
        .iter()
        .find(|it| matches!(&it.steps[..], [Step::Delete(cluster)] if cluster == name));
    found.map_or("", |it| it.reason.as_str())
}

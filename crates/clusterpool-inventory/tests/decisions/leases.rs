//! Leases: whose they are, and what becomes of them.

use clusterpool_inventory::decision::Step;
use clusterpool_inventory::reason::Reason;
use clusterpool_inventory::seen::{Claim, Cluster, Lease, Listed, Observed};

use crate::world::{
    claim, cluster, condition, decided, deleted, failed, full, half_made, installing, lease,
    leased, namespace, pool, reasons, status_of, stored,
};

#[test]
fn another_pools_entry_is_not_touched() {
    for others in [vec![], vec!["other-1".to_owned()]] {
        let mut seen = pool(1, &["a"]);
        let theirs = Lease { pool: Some("other".to_owned()), ..lease("other-1").unwrap() };
        seen.customizations[0].lease = Some(theirs);
        seen.customizations[0].others = others;
        assert_eq!(reasons(&seen), []);
        assert_eq!(status_of(&seen, "a"), "Unavailable");
    }
}

#[test]
fn an_entry_whose_lease_another_pools_cluster_lost_is_not_taken() {
    let mut seen = pool(1, &["a"]);
    seen.customizations[0].others = vec!["other-1".to_owned()];
    assert_eq!(leased(&seen), [""; 0]);
}

#[test]
fn a_lease_without_a_cluster_is_rolled_forward_under_the_same_name() {
    let mut seen = pool(1, &["a"]);
    seen.customizations[0].lease = lease("pool-x");
    let work = decided(&seen).work;
    let [piece] = &work[..] else { panic!("{work:?}") };
    assert_eq!(piece.reason, Reason::RolledForward);
    assert!(matches!(&piece.steps[..],
        [Step::Create { cluster, .. }, Step::Verify { .. }] if cluster == "pool-x"));
    assert_eq!(status_of(&seen, "a"), "Reserved");
}

#[test]
fn a_lease_without_a_cluster_that_nobody_wants_is_announced_then_released_with_its_namespace() {
    let mut seen = pool(0, &["a"]);
    seen.customizations[0].lease = lease("pool-x");
    seen.namespaces.push(half_made("pool-x"));
    let work = decided(&seen).work;
    let [piece] = &work[..] else { panic!("{work:?}") };
    assert!(matches!(
        &piece.steps[..],
        [
            Step::Announce { .. },
            Step::Release { prove_absent: true, .. },
            Step::RemoveNamespace { .. }
        ]
    ));
    seen.customizations[0].lease.as_mut().unwrap().releasing = true;
    assert!(matches!(
        &decided(&seen).work[0].steps[..],
        [Step::Release { prove_absent: true, .. }, Step::RemoveNamespace { .. }]
    ));
}

/// It would be announced and not released, again and again: the cluster is there.
#[test]
fn a_lease_whose_cluster_cannot_be_read_stays_and_keeps_its_place() {
    let mut seen = pool(1, &["a", "b"]);
    seen.customizations[0].lease = lease("ca");
    seen.unread = vec!["ca".to_owned()];
    seen.claims.push(Claim { cluster: Some("ca".to_owned()), ..claim("x", 1) });
    assert_eq!(reasons(&seen), [Reason::Added]);
    assert_eq!(leased(&seen), ["b"]);
    assert_eq!(status_of(&seen, "a"), "Reserved");
    seen.pool.max_size = Some(1);
    assert_eq!(reasons(&seen), []);
    assert_eq!(condition(&seen, "CapacityAvailable").reason, "MaxCapacity");
    (seen.pool.deleting, seen.customizations[1].kept) = (true, false);
    assert_eq!(reasons(&seen), []);
    // It is another pool's that is gone.
    let theirs =
        Lease { pool: Some("other".to_owned()), pool_exists: false, ..lease("ca").unwrap() };
    seen.customizations[0].lease = Some(theirs);
    seen.pool.deleting = false;
    assert_eq!(reasons(&seen), []);
}

#[test]
fn a_cluster_whose_entry_cannot_be_read_waits_with_its_lease() {
    let mut seen = full(1, &["a"]);
    (seen.clusters[0].deleting, seen.clusters[0].kept_by_others) = (true, false);
    assert_eq!(reasons(&seen), [Reason::Released]);
    seen.customizations[0].unread = true;
    seen.customizations[0].refused = Some("it cannot be read: spec: no; correct it".to_owned());
    assert_eq!(reasons(&seen), []);
    let told = condition(&seen, "InventoryValid").message;
    assert!(told.contains("it cannot be read"), "{told}");
}

#[test]
fn a_cluster_that_names_an_entry_which_cannot_be_goes_without_a_look_at_it() {
    let mut seen = pool(0, &["a"]);
    for (name, looked_at) in [("a", Some("a")), ("foo bar", None), ("a?", None)] {
        let cluster = cluster("c", Some(name), 1);
        seen.clusters = vec![Cluster { deleting: true, kept_by_others: false, ..cluster }];
        let work = decided(&seen).work;
        let [Step::LetGo { entry, .. }] = &work[0].steps[..] else { panic!("{work:?}") };
        assert_eq!(entry.as_deref(), looked_at);
    }
}

#[test]
fn a_lease_of_an_entry_that_was_edited_to_be_broken_is_given_up() {
    let mut seen = pool(1, &["a", "b"]);
    seen.customizations[0].lease = lease("pool-x");
    seen.customizations[0].refused = Some("no".to_owned());
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned, Reason::Added]);
}

#[test]
fn an_announcement_is_taken_back_when_the_cluster_is_there_and_it_is_not_verified_before() {
    let mut seen = full(1, &["a"]);
    seen.clusters[0].unverified = true;
    seen.customizations[0].lease.as_mut().unwrap().releasing = true;
    assert_eq!(reasons(&seen), [Reason::LeaseRepaired]);
    seen.customizations[0].lease.as_mut().unwrap().releasing = false;
    assert_eq!(reasons(&seen), [Reason::Verified]);
}

#[test]
fn a_lost_lease_is_taken_again_after_a_look_at_the_cluster() {
    let mut seen = full(1, &["a"]);
    for torn in [None, Some(Lease::default())] {
        seen.customizations[0].lease = torn;
        let work = decided(&seen).work;
        assert!(matches!(&work[0].steps[..], [Step::Lease { prove_living: true, .. }]), "{work:?}");
    }
}

#[test]
fn a_lease_that_is_damaged_in_part_is_written_again_after_a_look_at_the_cluster() {
    let mut seen = full(1, &["a"]);
    for (pool, pool_exists, whole) in [
        (Some("pool"), true, false),
        (None, false, false),
        // No other pool can have made the cluster that it names.
        (Some("other"), true, true),
        (Some("gone"), false, true),
    ] {
        let pool = pool.map(str::to_owned);
        let it = lease("ca").unwrap();
        seen.customizations[0].lease = Some(Lease { pool, pool_exists, whole, ..it });
        assert_eq!(decided(&seen).events, []);
        assert_eq!(status_of(&seen, "a"), "Reserved");
        let work = decided(&seen).work;
        let [piece] = &work[..] else { panic!("{work:?}") };
        assert_eq!(piece.reason, Reason::LeaseRepaired);
        assert!(matches!(&piece.steps[..],
            [Step::Lease { cluster, prove_living: true, .. }] if cluster == "ca"));
    }
    // What is on its way out gives it back; what lives in it as well may be whose it is.
    seen.clusters[0].deleting = true;
    assert_eq!(reasons(&seen), []);
    seen.clusters[0].deleting = false;
    seen.customizations[0].others.push("theirs".to_owned());
    assert_eq!(reasons(&seen), []);
    // Nor is Hive let at it by a lease that the API server would not show as the pool's.
    seen.clusters[0] = Cluster { unverified: true, ..installing("ca", Some("a"), 1) };
    assert_eq!(reasons(&seen), []);
}

/// The other pool gives its lease up as soon as it sees who lives in the entry.
#[test]
fn a_cluster_goes_for_another_pools_lease_only_if_that_ones_cluster_is_there() {
    let mut seen = full(1, &["a"]);
    let theirs = Lease { pool: Some("other".to_owned()), ..lease("other-1").unwrap() };
    seen.customizations[0].lease = Some(theirs);
    assert_eq!((deleted(&seen), decided(&seen).events), (Vec::new(), Vec::new()));
    seen.customizations[0].others.push("other-1".to_owned());
    assert_eq!(deleted(&seen), ["ca"]);
    seen.clusters[0].claim = Some("someone".to_owned());
    assert_eq!(deleted(&seen), [""; 0]);
    assert_eq!(decided(&seen).events[0].reason, "DoubleUse");
}

#[test]
fn a_lease_that_names_our_cluster_is_no_other_pools_whichever_it_names() {
    let mut seen = full(1, &["a"]);
    let named = Lease { pool: Some("other".to_owned()), ..lease("ca").unwrap() };
    seen.customizations[0].lease = Some(named);
    // Its user's, and it does not go; nor does one that nobody has.
    for claim in [Some("someone".to_owned()), None] {
        seen.clusters[0].claim = claim;
        assert_eq!(deleted(&seen), [""; 0]);
    }
    // What else lives in the entry goes, as with any lease.
    seen.clusters.push(cluster("second", Some("a"), 5));
    assert_eq!(deleted(&seen), ["second"]);
    // One that was made from another entry does not have it.
    seen.clusters.truncate(1);
    seen.clusters[0].entry = Some("b".to_owned());
    seen.pool.listed = Listed::Entries(["a", "b"].map(str::to_owned).to_vec());
    assert_eq!(reasons(&seen), []);
    assert_eq!(status_of(&seen, "a"), "Unavailable");
}

#[test]
fn a_lease_without_a_cluster_is_given_up_where_another_cluster_lives_in_the_entry() {
    for change in [
        (|_: &mut Observed| {}) as fn(&mut Observed),
        |it| it.clusters[0].claim = Some("someone".to_owned()),
        |it| it.clusters[0].deleting = true,
        |it| {
            it.clusters.clear();
            it.customizations[0].others.push("theirs".to_owned());
        },
    ] {
        let mut seen = full(2, &["a"]);
        seen.customizations[0].lease = lease("pool-x");
        change(&mut seen);
        assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
    }
}

/// The first piece of work gives a lease up once it is proven that its cluster is not there.
fn gives_up(seen: &Observed) {
    let work = decided(seen).work;
    assert!(
        matches!(
            &work[0].steps[..],
            [Step::Announce { .. }, Step::Release { prove_absent: true, .. }]
        ),
        "{work:?}"
    );
}

/// The entry `a` is free, and leased again.
fn free_again(seen: &mut Observed) {
    (seen.customizations[0].lease, seen.customizations[0].at) = (None, "9".to_owned());
    assert_eq!(leased(seen), ["a"]);
}

#[test]
fn a_lease_whose_clusters_namespace_cannot_be_had_is_given_up_for_another_name() {
    let mut seen = pool(1, &["a"]);
    seen.customizations[0].lease = lease("pool-x");
    seen.namespaces.push(half_made("pool-x"));
    assert_eq!(reasons(&seen), [Reason::RolledForward]);
    // It may be on its way out for ever.
    seen.namespaces[0].deleting = true;
    gives_up(&seen);
    seen.namespaces.clear();
    seen.taken.insert("pool-x".to_owned());
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
    free_again(&mut seen);
}

/// Parts that were made from something else are neither used nor renewed: the cluster is made anew under another name.
#[test]
fn a_half_made_cluster_of_something_else_is_given_up_for_another_name() {
    let changes: [fn(&mut Observed); 6] = [
        |it| it.customizations[0].version = "2-u".to_owned(),
        |it| it.pool.version.own = "w".to_owned(),
        |it| it.pool.makes_workers = true,
        |it| it.materials = "u/2".to_owned(),
        // By the release before, or by hand.
        |it| it.namespaces[0].made_from.clear(),
        // For a cluster without an entry.
        |it| it.namespaces[0] = namespace("pool-x"),
    ];
    let mut half = pool(1, &["a"]);
    half.customizations[0].lease = lease("pool-x");
    half.namespaces.push(half_made("pool-x"));
    assert_eq!(reasons(&half), [Reason::RolledForward]);
    for (number, change) in changes.into_iter().enumerate() {
        let mut seen = half.clone();
        change(&mut seen);
        let work = decided(&seen).work;
        let [piece] = &work[..] else { panic!("{number}: {work:?}") };
        assert!(
            matches!(&piece.steps[..], [
                Step::Announce { .. },
                Step::Release { prove_absent: true, .. },
                Step::RemoveNamespace(name),
            ] if name == "pool-x"),
            "{number}: {piece:?}"
        );
        // Nobody knows what it would be made from, and the lease keeps its place.
        seen.missing.push("the template".to_owned());
        assert_eq!(reasons(&seen), [], "{number}");
        seen.missing.clear();
        seen.namespaces.clear();
        free_again(&mut seen);
    }
}

#[test]
fn a_lease_whose_cluster_was_claimed_and_is_gone_is_given_up_for_another_name() {
    let mut seen = full(1, &["a"]);
    seen.clusters.clear();
    let given = Claim { cluster: Some("ca".to_owned()), ..claim("x", 1) };
    for claim in [given.clone(), Claim { deleting: true, ..given }] {
        seen.claims = vec![claim];
        assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
    }
    // Another one is not in its way.
    seen.claims[0].cluster = Some("cb".to_owned());
    assert_eq!(reasons(&seen), [Reason::RolledForward]);
}

/// A pool of one cluster, whose failure is stored.
fn counted() -> Observed {
    let mut seen = full(1, &["a"]);
    seen.clusters[0] = failed("ca", Some("a"));
    stored(&seen)
}

#[test]
fn a_lease_whose_cluster_failed_and_is_gone_is_given_up() {
    let mut seen = counted();
    // Somebody took all finalizers off it.
    seen.clusters.clear();
    gives_up(&seen);
    assert_eq!(leased(&seen), [""; 0]);
    free_again(&mut seen);
}

#[test]
fn a_failed_cluster_that_is_made_once_more_goes_before_hive_is_let_at_it() {
    let mut seen = counted();
    // By a process that stalled just before it created it.
    seen.clusters[0] = Cluster { unverified: true, ..installing("ca", Some("a"), 1) };
    for held in [lease("ca"), Some(Lease::default()), None] {
        seen.customizations[0].lease = held;
        assert_eq!(deleted(&seen), ["ca"]);
        assert_eq!(leased(&seen), [""; 0]);
        assert!(!reasons(&seen).contains(&Reason::Verified));
    }
    let stays = |seen: &Observed| deleted(seen).is_empty() && leased(seen) == ["a"];
    for change in [
        (|it: &mut Cluster| it.claim = Some("someone".to_owned())) as fn(&mut Cluster),
        |it| it.protected = true,
        |it| it.unverified = false,
        |it| it.installed = true,
    ] {
        let mut seen = seen.clone();
        change(&mut seen.clusters[0]);
        assert!(stays(&seen), "{:?}", seen.clusters[0]);
    }
    // Another one failed since: it is one try more, as long as there are any.
    let state = seen.pool.status.inventory.get_mut("a").unwrap();
    state.last_failure.as_mut().unwrap().cluster_deployment = Some("later".to_owned());
    assert!(stays(&seen));
    seen.pool.status.inventory.get_mut("a").unwrap().attempts = Some(0);
    assert_eq!(deleted(&seen), ["ca"]);
    // Made from what the entry is since it was edited.
    seen.customizations[0].version = "2-u".to_owned();
    seen.clusters[0].entry_version = Some("2-u".to_owned());
    assert!(stays(&seen));
}

#[test]
fn a_torn_lease_of_nothing_and_one_of_a_vanished_pool_are_released() {
    let mut seen = pool(0, &["a"]);
    seen.customizations[0].lease = Some(Lease::default());
    assert!(matches!(&decided(&seen).work[0].steps[..], [Step::Release { cluster: None, .. }]));
    let theirs =
        Lease { pool: Some("gone".to_owned()), pool_exists: false, ..lease("gone-1").unwrap() };
    seen.customizations[0].lease = Some(theirs);
    assert!(matches!(
        &decided(&seen).work[0].steps[..],
        [Step::Announce { .. }, Step::Release { .. }]
    ));
    seen.customizations[0].others.push("gone-1".to_owned());
    assert_eq!(reasons(&seen), []);
}

/// After a take-over it would stay for ever on an entry that nothing else is written on.
#[test]
fn the_word_of_hives_own_controller_that_an_entry_failed_goes_at_once() {
    let mut free = pool(0, &["a"]);
    free.customizations[0].failed_by_hive = true;
    assert!(matches!(&decided(&free).work[..], [piece]
        if matches!(&piece.steps[..], [Step::Release { cluster: None, prove_absent: false, .. }])));
    // A lease takes it along.
    free.pool.size = 1;
    assert_eq!(reasons(&free), [Reason::Added]);
    let mut used = full(1, &["a"]);
    used.customizations[0].failed_by_hive = true;
    assert!(matches!(&decided(&used).work[..], [piece]
        if matches!(&piece.steps[..], [Step::Retract(entry)] if entry == "a")));
    used.customizations[0].failed_by_hive = false;
    assert_eq!(reasons(&used), []);
}

#[test]
fn release_waits_until_our_finalizer_is_the_last_and_comes_before_it_goes() {
    let mut seen = full(0, &["a"]);
    seen.clusters[0].deleting = true;
    assert_eq!(reasons(&seen), []);
    seen.clusters[0].kept_by_others = false;
    // Whichever pool it names: nobody else would release it.
    for of in ["pool", "other"] {
        seen.customizations[0].lease.as_mut().unwrap().pool = Some(of.to_owned());
        let work = decided(&seen).work;
        assert!(matches!(&work[0].steps[..],
            [Step::Release { cluster: Some(c), prove_absent: false, .. }, Step::LetGo { .. }] if c == "ca"));
    }
}

#[test]
fn a_lease_that_is_another_clusters_is_not_released() {
    let mut seen = full(0, &["a"]);
    seen.clusters[0].deleting = true;
    seen.clusters[0].kept_by_others = false;
    for held in [
        None,
        lease("another"),
        Some(Lease { pool: Some("other".to_owned()), ..lease("another").unwrap() }),
    ] {
        seen.customizations[0].lease = held;
        let work = decided(&seen).work;
        assert!(matches!(&work[0].steps[..], [Step::LetGo { .. }]), "{work:?}");
    }
}

#[test]
fn of_two_clusters_in_one_entry_the_one_without_the_lease_goes_unless_it_is_claimed() {
    let mut seen = full(2, &["a"]);
    seen.clusters.push(cluster("second", Some("a"), 5));
    assert_eq!(deleted(&seen), ["second"]);
    seen.clusters[1].claim = Some("someone".to_owned());
    assert_eq!(deleted(&seen), [""; 0]);
    assert!(decided(&seen).events.iter().any(|it| it.reason == "DoubleUse"));
}

#[test]
fn of_two_clusters_in_one_entry_whose_lease_was_lost_the_oldest_gets_it_and_the_other_goes() {
    for lost in [None, Some(Lease::default())] {
        let mut seen = full(2, &["a"]);
        seen.clusters.push(cluster("second", Some("a"), 5));
        seen.customizations[0].lease = lost;
        assert_eq!(leased(&seen), ["a"]);
        assert_eq!(deleted(&seen), ["second"]);
        let told = condition(&seen, "InventoryValid");
        assert!(told.status == "False" && told.message.contains("two clusters: a"));
        // Another pool's cluster lives in it too: neither pool can tell who should go.
        seen.clusters.truncate(1);
        seen.customizations[0].others.push("theirs".to_owned());
        let decision = decided(&seen);
        assert!(decision.work.is_empty() && decision.events[0].reason == "DoubleUse");
        let told = condition(&seen, "InventoryValid");
        assert!(told.message.contains("two clusters: a"), "{told:?}");
    }
}

#[test]
fn who_lost_an_entry_to_another_pool_goes_on_with_the_next_one() {
    let mut seen = pool(2, &["a", "b", "c", "d"]);
    assert_eq!(leased(&seen), ["a", "b"]);
    let theirs = Lease { pool: Some("other".to_owned()), ..lease("other-1").unwrap() };
    seen.customizations[0].lease = Some(theirs);
    assert_eq!(leased(&seen), ["b", "c"]);
}

#[test]
fn a_name_that_a_cluster_of_another_entry_has_is_not_used_twice() {
    let mut seen = pool(1, &["a", "b"]);
    let name = |seen: &Observed| {
        decided(seen).work.into_iter().flat_map(|it| it.steps).find_map(|it| match it {
            Step::Create { cluster, .. } => Some(cluster),
            _ => None,
        })
    };
    let first = name(&seen).unwrap();
    let mut other = cluster(&first, Some("b"), 1);
    other.claim = Some("someone".to_owned());
    seen.clusters.push(other);
    seen.customizations[1].lease = lease(&first);
    let second = name(&seen).unwrap();
    assert_ne!(first, second);
}

#[test]
fn a_cluster_of_another_controller_gets_our_finalizer() {
    let mut seen = full(1, &["a"]);
    seen.clusters[0].kept = false;
    assert_eq!(reasons(&seen), [Reason::ClusterAdopted]);
}

#[test]
fn a_leased_entry_without_our_finalizer_gets_it_unless_it_is_being_deleted() {
    let mut seen = full(1, &["a"]);
    seen.customizations[0].kept = false;
    assert_eq!(reasons(&seen), [Reason::LeaseRepaired]);
    // The API server takes no new finalizer then.
    seen.customizations[0].deleting = true;
    assert!(!reasons(&seen).contains(&Reason::LeaseRepaired));
}

#[test]
fn the_finalizer_of_hives_own_controller_goes_from_what_is_in_use_and_from_what_is_to_go() {
    let mut seen = full(1, &["a"]);
    seen.customizations[0].kept_by_hive = true;
    let work = decided(&seen).work;
    assert!(matches!(&work[0].steps[..], [Step::KeepEntry { .. }]), "{work:?}");
    // Free, never used by us and on its way out: nobody else would let it go.
    let mut seen = pool(0, &["a"]);
    seen.customizations[0].kept_by_hive = true;
    seen.customizations[0].kept = false;
    assert_eq!(reasons(&seen), []);
    seen.customizations[0].deleting = true;
    assert_eq!(reasons(&seen), [Reason::EntryFreed]);
}

#[test]
fn what_was_announced_is_released_although_a_cluster_is_wanted_again() {
    let mut seen = pool(1, &["a"]);
    seen.customizations[0].lease = lease("pool-x");
    seen.customizations[0].lease.as_mut().unwrap().releasing = true;
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
}

#[test]
fn a_living_cluster_that_a_lease_names_keeps_the_entry_whoever_made_it() {
    for of in [Some("pool"), Some("gone"), None] {
        let mut seen = pool(1, &["a"]);
        let it = Lease { pool: of.map(str::to_owned), ..lease("foo").unwrap() };
        let pool_exists = of == Some("pool");
        seen.customizations[0].lease = Some(Lease { pool_exists, ..it });
        seen.customizations[0].others.push("foo".to_owned());
        assert_eq!(reasons(&seen), [], "{of:?}");
        assert_eq!(status_of(&seen, "a"), "Unavailable");
        // The pool's end does not wait for it.
        seen.pool.deleting = true;
        assert_eq!(reasons(&seen), [Reason::PoolGone], "{of:?}");
        let condition = condition(&seen, "DeletionPossible");
        assert_eq!(condition.status, "True", "{condition:?}");
    }
}

#[test]
fn a_pool_that_goes_leaves_leases_that_are_not_its_own() {
    let mut seen = pool(1, &["a"]);
    let nobodys = Lease { pool: None, pool_exists: false, ..lease("foo").unwrap() };
    seen.customizations[0].lease = Some(nobodys);
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
    seen.pool.deleting = true;
    assert_eq!(reasons(&seen), [Reason::PoolGone]);
    // In the name of no pool it is ended after that.
    (seen.pool.absent, seen.pool.kept, seen.pool.listed) = (true, false, Listed::Nothing);
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
    gives_up(&seen);
}

#[test]
fn a_lease_of_nothing_on_an_entry_that_nobody_lists_is_ended_where_a_finalizer_keeps_that() {
    let nobodys = Lease { pool: None, pool_exists: false, ..lease("foo").unwrap() };
    for held in [Lease::default(), nobodys] {
        let mut seen = pool(0, &["a", "b"]);
        seen.customizations[0].lease = Some(held);
        seen.pool.listed = Listed::Entries(vec!["b".to_owned()]);
        let ends = |seen: &Observed| reasons(seen) == [Reason::LeaseAbandoned];
        assert!(ends(&seen), "{:?}", decided(&seen).work);
        let changes: [fn(&mut Observed); 5] = [
            |it| it.customizations[0].kept = false,
            |it| it.customizations[0].listed_elsewhere = true,
            |it| it.customizations[0].others.push("theirs".to_owned()),
            // Nobody knows what it lists.
            |it| it.pool.listed = Listed::Empty,
            |it| it.pool.listed = Listed::Unreadable("no".to_owned()),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut seen = seen.clone();
            change(&mut seen);
            assert_eq!(reasons(&seen), [], "{number}");
        }
        (seen.customizations[0].kept, seen.customizations[0].deleting) = (false, true);
        seen.customizations[0].kept_by_hive = true;
        assert!(ends(&seen));
    }
    // Of a pool that is gone: who hears of that ends it.
    let mut seen = pool(0, &["a", "b"]);
    let theirs = Lease { pool: Some("gone".to_owned()), ..lease("gone-1").unwrap() };
    seen.customizations[0].lease = Some(Lease { pool_exists: false, ..theirs });
    seen.pool.listed = Listed::Entries(vec!["b".to_owned()]);
    assert_eq!(reasons(&seen), []);
}

#[test]
fn a_cluster_whose_reference_was_dropped_keeps_its_lease() {
    let mut seen = full(1, &["a"]);
    seen.clusters[0].entry = None;
    assert_eq!(reasons(&seen), []);
    assert_eq!(status_of(&seen, "a"), "Reserved");
    // Made by Hive's own controller, it is taken over with the entry that its lease names.
    seen.clusters[0].kept = false;
    assert_eq!(reasons(&seen), [Reason::ClusterAdopted]);
    assert_eq!(status_of(&seen, "a"), "Reserved");
    // By a lease that is not whole it has none.
    seen.customizations[0].lease.as_mut().unwrap().whole = false;
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
}

#[test]
fn what_a_lease_alone_knows_of_a_cluster_counts_until_the_cluster_is_gone() {
    let mut whole = full(1, &["a"]);
    whole.clusters[0].entry = None;
    // The lease goes before our finalizer does.
    let mut seen = whole.clone();
    seen.clusters[0].deleting = true;
    seen.clusters[0].kept_by_others = false;
    let work = decided(&seen).work;
    assert!(
        matches!(&work[0].steps[..], [
            Step::Release { entry, cluster: Some(c), prove_absent: false, .. },
            Step::LetGo { entry: Some(e), .. },
        ] if entry == "a" && c == "ca" && e == "a"),
        "{work:?}"
    );
    // A failure is counted first.
    seen.clusters[0] =
        Cluster { deleting: true, kept_by_others: false, kept: true, ..failed("ca", None) };
    assert_eq!(reasons(&seen), []);
    assert_eq!(reasons(&stored(&seen)), [Reason::Released]);
    // It goes with its entry, once that says so.
    let mut seen = stored(&whole);
    seen.pool.listed = Listed::Entries(vec!["b".to_owned()]);
    assert_eq!(deleted(&seen), [""; 0]);
    assert_eq!(deleted(&stored(&seen)), ["ca"]);
    // It is stale where the entry was edited.
    let mut seen = whole.clone();
    seen.customizations[0].version = "2-u".to_owned();
    assert_eq!(deleted(&stored(&seen)), ["ca"]);
    // Hive is let at it, and it gets its entry's parts again.
    let mut seen = whole;
    seen.clusters[0] =
        Cluster { entry_version: Some("1-u".to_owned()), kept: true, ..installing("ca", None, 1) };
    seen.clusters[0].idle = true;
    let work = decided(&seen).work;
    assert!(
        matches!(&work[0].steps[..], [Step::Restore { entry: Some(of), .. }] if of.name == "a"),
        "{work:?}"
    );
    seen.clusters[0].unverified = true;
    assert_eq!(reasons(&seen)[0], Reason::Verified);
}

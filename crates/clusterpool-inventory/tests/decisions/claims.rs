//! Claims: what they get, what they are told, and what waits for them.

use clusterpool_inventory::decision::Step;
use clusterpool_inventory::reason::Reason;
use clusterpool_inventory::seen::{Claim, Cluster, Customization, Listed, Observed};

use crate::world::{
    at, claim, cluster, condition, customization, decided, deleted, full, lease, pool, reasons,
};

#[test]
fn the_oldest_claim_gets_the_oldest_running_cluster_before_anything_slow() {
    let mut seen = full(3, &["a", "b", "c"]);
    seen.clusters[0].running = false;
    seen.claims = vec![claim("late", 2), claim("early", 1)];
    seen.customizations.push(customization("d"));
    seen.pool.listed = Listed::Entries(["a", "b", "c", "d"].map(str::to_owned).to_vec());
    let work = decided(&seen).work;
    assert!(matches!(&work[0].steps[..],
        [Step::Assign { claim, cluster, .. }, Step::Claim { .. }, Step::Confirm { .. }]
            if claim == "early" && cluster == "cb"));
    assert!(matches!(&work[1].steps[..],
        [Step::Assign { claim, cluster, .. }, Step::Claim { .. }, Step::Confirm { .. }]
            if claim == "late" && cluster == "cc"));
    assert_eq!(work[2].reason, Reason::Added);
    assert_eq!(work.len(), 3);
}

#[test]
fn half_an_assignment_is_completed_from_either_side() {
    let mut seen = full(0, &["a"]);
    seen.claims.push(Claim { cluster: Some("ca".to_owned()), ..claim("x", 1) });
    assert!(matches!(&decided(&seen).work[0].steps[..],
        [Step::Claim { claim, .. }, Step::Confirm { .. }] if claim == "x"));
    seen.claims[0].cluster = None;
    seen.clusters[0].claim = Some("x".to_owned());
    assert!(
        matches!(&decided(&seen).work[0].steps[..], [Step::Assign { cluster, .. }] if cluster == "ca")
    );
}

#[test]
fn a_claim_that_comes_again_under_its_name_does_not_get_what_the_one_before_gave_back() {
    let mut seen = full(0, &["a"]);
    (seen.clusters[0].claim, seen.clusters[0].marked) = (Some("x".to_owned()), true);
    seen.claims.push(claim("x", 1));
    seen.pool.max_concurrent = Some(0);
    assert_eq!(reasons(&seen), [Reason::NoClusters]);
}

/// The cluster that a claim gets.
fn given(seen: &Observed) -> Option<String> {
    let work = decided(seen).work;
    work.into_iter().flat_map(|it| it.steps).find_map(|it| match it {
        Step::Assign { cluster, .. } => Some(cluster),
        _ => None,
    })
}

/// Made again within a second, or while the clock that noted the time was ahead, it is younger than the gift all the same.
#[test]
fn a_claim_gets_no_cluster_of_the_claim_that_had_its_name_before() {
    let mut seen = full(1, &["a", "b"]);
    seen.clusters[0].claim = Some("x".to_owned());
    seen.clusters[0].claim_uid = Some("uid-first".to_owned());
    seen.clusters[0].claimed = Some(at(300));
    for second in [300, 6] {
        seen.claims = vec![claim("x", second)];
        assert_eq!(given(&seen).as_deref(), Some("cb"), "{second}");
        let told = condition(&seen, "CapacityAvailable").message;
        assert!(told.ends_with("have another cluster: ca"), "{told}");
    }
    // Its own it gets, whatever the times say.
    seen.clusters[0].claim_uid = Some("uid-x".to_owned());
    for second in [6, 301] {
        seen.claims = vec![claim("x", second)];
        assert_eq!(given(&seen).as_deref(), Some("ca"), "{second}");
    }
}

#[test]
fn a_claim_gets_no_cluster_that_was_claimed_before_the_claim_was_made() {
    let mut seen = full(1, &["a", "b"]);
    seen.clusters[0].claim = Some("x".to_owned());
    seen.clusters[0].claimed = Some(at(5));
    seen.claims.push(claim("x", 6));
    assert_eq!(given(&seen).as_deref(), Some("cb"));
    // Both times are whole seconds, and nobody noted the uid: it may be this one's.
    seen.claims[0].created = at(5);
    assert_eq!(given(&seen).as_deref(), Some("ca"));
    // What the claim says that it has it keeps, also where a backup brought it back as a new one.
    seen.claims[0] = Claim {
        cluster: Some("ca".to_owned()),
        pending: Some("ClusterClaimed".to_owned()),
        ..claim("x", 6)
    };
    assert!(!reasons(&seen).contains(&Reason::AssignmentConflict));
    assert_eq!(given(&seen), None);
}

#[test]
fn a_claim_that_names_no_pool_is_told_once_and_served_when_the_pool_comes() {
    let mut seen = full(0, &[]);
    seen.claims = vec![claim("x", 1), Claim { cluster: Some("gone".to_owned()), ..claim("y", 1) }];
    (seen.pool.deleting, seen.pool.kept) = (true, false);
    assert_eq!(reasons(&seen), [], "a pool that is there and goes");
    seen.pool.absent = true;
    assert_eq!(reasons(&seen), [Reason::NoPool]);
    seen.claims[0].pending = Some("NoPool".to_owned());
    assert_eq!(reasons(&seen), []);
    (seen.pool.deleting, seen.pool.absent, seen.pool.kept) = (false, false, true);
    assert_eq!(reasons(&seen), [Reason::NoClusters, Reason::Added]);
}

#[test]
fn a_claim_that_waits_for_a_pool_that_goes_is_told_once_and_does_not_keep_it() {
    let mut seen = full(1, &["a"]);
    seen.pool.deleting = true;
    seen.claims = vec![claim("x", 1), Claim { deleting: true, ..claim("y", 1) }];
    assert_eq!(reasons(&seen), [Reason::PoolDeleted; 2]);
    assert_eq!(deleted(&seen), ["ca"]);
    let told = |it: &Step| matches!(it, Step::Tell { claim, pending: Reason::PoolDeleted, .. } if claim == "x");
    assert!(decided(&seen).work.iter().flat_map(|it| &it.steps).any(told));
    seen.clusters[0].deleting = true;
    seen.claims[0].pending = Some("PoolDeleted".to_owned());
    assert_eq!(reasons(&seen), []);
    // It is there no longer than for its clusters, whether that was told or not.
    let mut seen = pool(0, &[]);
    seen.pool.deleting = true;
    seen.claims = vec![claim("x", 1)];
    assert_eq!(reasons(&seen), [Reason::PoolGone]);
    // Another one of its name serves the claim.
    seen.pool.deleting = false;
    seen.claims[0].pending = Some("PoolDeleted".to_owned());
    assert_eq!(reasons(&seen), [Reason::NoClusters, Reason::Added]);
}

#[test]
fn a_claim_on_a_cluster_that_it_cannot_have_is_taken_back() {
    for change in
        [(|it: &mut Cluster| it.claim = Some("another".to_owned())) as fn(&mut Cluster), |it| {
            it.deleting = true;
        }]
    {
        let mut seen = full(0, &["a"]);
        change(&mut seen.clusters[0]);
        seen.claims.push(Claim { cluster: Some("ca".to_owned()), ..claim("x", 1) });
        assert!(reasons(&seen).contains(&Reason::AssignmentConflict));
    }
}

#[test]
fn a_claim_without_a_cluster_is_told_once_and_another_cluster_is_made_for_it() {
    let mut seen = pool(0, &["a"]);
    seen.claims.push(claim("x", 1));
    assert_eq!(reasons(&seen), [Reason::NoClusters, Reason::Added]);
    seen.claims[0].pending = Some("NoClusters".to_owned());
    assert_eq!(reasons(&seen), [Reason::Added]);
}

#[test]
fn a_claim_that_is_served_wakes_no_other_cluster_and_new_ones_run_as_far_as_wanted() {
    let mut seen = full(1, &["a", "b"]);
    seen.pool.hibernates = true;
    for cluster in &mut seen.clusters {
        cluster.asked_to_run = Some(cluster.name == "ca");
    }
    seen.clusters[1].running = false;
    seen.claims.push(claim("x", 1));
    assert_eq!(reasons(&seen), [Reason::Claimed]);
    // Nobody can be served: the sleeping one is woken.
    seen.clusters[0].claim = Some("another".to_owned());
    assert!(reasons(&seen).contains(&Reason::Power));
    let mut seen = pool(3, &["a", "b", "c"]);
    seen.pool.hibernates = true;
    seen.pool.running = 1;
    let runs: Vec<Option<bool>> = decided(&seen)
        .work
        .into_iter()
        .flat_map(|it| it.steps)
        .filter_map(|it| match it {
            Step::Create { run, .. } => Some(run),
            _ => None,
        })
        .collect();
    assert_eq!(runs, [Some(true), Some(false), Some(false)]);
}

#[test]
fn a_claim_whose_cluster_is_gone_gets_no_other_one_behind_its_users_back() {
    let mut seen = full(0, &["a"]);
    seen.claims.push(Claim {
        cluster: Some("gone".to_owned()),
        pending: Some("ClusterClaimed".to_owned()),
        ..claim("x", 1)
    });
    assert!(!reasons(&seen).contains(&Reason::AssignmentConflict));
}

#[test]
fn a_claim_is_told_that_it_was_assigned_a_cluster_once() {
    let mut seen = full(0, &["a"]);
    seen.clusters[0].claim = Some("x".to_owned());
    seen.claims.push(Claim { cluster: Some("ca".to_owned()), ..claim("x", 1) });
    for (pending, told) in [
        (None, true),
        (Some("Initialized"), true),
        (Some("NoClusters"), true),
        (Some("PoolDeleted"), true),
        (Some("ClusterAssigned"), false),
        (Some("ClusterClaimed"), false),
    ] {
        seen.claims[0].pending = pending.map(str::to_owned);
        assert_eq!(reasons(&seen).contains(&Reason::ClusterAssigned), told, "{pending:?}");
    }
}

#[test]
fn a_stale_cluster_that_is_woken_for_a_claim_is_not_replaced_under_way() {
    let mut seen = full(1, &["a"]);
    seen.pool.hibernates = true;
    seen.pool.version.own = "w".to_owned();
    seen.clusters[0].running = false;
    seen.clusters[0].asked_to_run = Some(false);
    assert_eq!(deleted(&seen), ["ca"]);
    seen.claims.push(claim("x", 1));
    let work = decided(&seen).work;
    let wakes = |it: &Step| matches!(it, Step::Power { cluster, run: true, .. } if cluster == "ca");
    assert!(work.iter().flat_map(|it| &it.steps).any(wakes), "{work:?}");
    assert_eq!(deleted(&seen), [""; 0]);
    let told = condition(&seen, "AllClustersCurrent").message;
    assert!(told.ends_with("ca; claims wait for: ca"), "{told}");
    // The others that sleep are replaced.
    seen.clusters.push(Cluster { running: false, ..cluster("cb", Some("b"), 5) });
    seen.customizations.push(Customization { lease: lease("cb"), ..customization("b") });
    seen.pool.listed = Listed::Entries(["a", "b"].map(str::to_owned).to_vec());
    assert_eq!(deleted(&seen), ["cb"]);
}

//! Limits, claims, sleep, deleted pools and what is left over.

use std::time::Duration;

use clusterpool_inventory::decision::{Reason, Step};
use clusterpool_inventory::inventory::Listed;
use clusterpool_inventory::seen::{Claim, Cluster, Namespace};

use crate::world::{
    at, claim, cluster, customization, decided, deleted, full, installing, lease, leased, now,
    pool, reasons, stored,
};

#[test]
fn the_most_clusters_bound_what_is_added() {
    let mut seen = full(5, &["a", "b", "c"]);
    seen.clusters.truncate(2);
    seen.customizations[2].lease = None;
    seen.pool.max_size = Some(2);
    assert_eq!(reasons(&seen), []);
    assert_eq!(stored(&seen).pool.status.conditions["CapacityAvailable"].status, "False");
    seen.pool.max_size = Some(3);
    assert_eq!(leased(&seen), ["c"]);
}

#[test]
fn too_many_go_newest_installing_first_then_those_that_sleep() {
    let mut seen = full(0, &["a", "b", "c", "d"]);
    seen.clusters[1] = Cluster { running: false, ..cluster("cb", Some("b"), 1) };
    seen.clusters[2] = installing("cc", Some("c"), 2);
    seen.clusters[3] = installing("cd", Some("d"), 3);
    for (size, gone) in [(3, vec!["cd"]), (2, vec!["cd", "cc"]), (1, vec!["cd", "cc", "cb"])] {
        seen.pool.size = size;
        assert_eq!(deleted(&seen), gone);
    }
}

#[test]
fn what_is_missing_stops_new_clusters_and_nothing_else() {
    let mut seen = full(2, &["a", "b", "c"]);
    seen.missing.push("secret pull is missing".to_owned());
    seen.clusters.truncate(2);
    seen.clusters[0].stuck = true;
    seen.customizations[2].lease = lease("half");
    seen.claims.push(claim("x", 1));
    assert_eq!(reasons(&seen), [Reason::Claimed, Reason::ClusterBroken]);
    assert_eq!(stored(&seen).pool.status.conditions["MissingDependencies"].status, "True");
}

#[test]
fn the_oldest_claim_gets_the_oldest_running_cluster_before_anything_slow() {
    let mut seen = full(3, &["a", "b", "c"]);
    seen.clusters[0].running = false;
    seen.claims = vec![claim("late", 2), claim("early", 1)];
    seen.customizations.push(customization("d"));
    seen.pool.listed = Listed::Entries(["a", "b", "c", "d"].map(str::to_owned).to_vec());
    let work = decided(&seen).work;
    assert!(matches!(&work[0].steps[..],
        [Step::Assign { claim, cluster, .. }, Step::Claim { .. }] if claim == "early" && cluster == "cb"));
    assert!(matches!(&work[1].steps[..],
        [Step::Assign { claim, cluster, .. }, Step::Claim { .. }] if claim == "late" && cluster == "cc"));
    assert_eq!(work[2].reason, Reason::Added);
    assert_eq!(work.len(), 3);
}

#[test]
fn half_an_assignment_is_completed_from_either_side() {
    let mut seen = full(0, &["a"]);
    seen.claims.push(Claim { cluster: Some("ca".to_owned()), ..claim("x", 1) });
    assert!(
        matches!(&decided(&seen).work[0].steps[..], [Step::Claim { claim, .. }] if claim == "x")
    );
    seen.claims[0].cluster = None;
    seen.clusters[0].claim = Some("x".to_owned());
    assert!(
        matches!(&decided(&seen).work[0].steps[..], [Step::Assign { cluster, .. }] if cluster == "ca")
    );
}

#[test]
fn a_claim_on_a_cluster_that_it_cannot_have_is_taken_back() {
    for change in [
        (|it: &mut Cluster| it.claim = Some("another".to_owned())) as fn(&mut Cluster),
        |it| it.deleting = true,
        |it| it.name = "elsewhere".to_owned(),
    ] {
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
fn only_the_oldest_run_where_clusters_can_sleep() {
    let mut seen = full(3, &["a", "b", "c"]);
    assert_eq!(reasons(&seen), []);
    seen.pool.hibernates = true;
    seen.pool.running = 1;
    seen.clusters[2].asked_to_run = Some(false);
    let runs: Vec<(String, bool)> = decided(&seen)
        .work
        .into_iter()
        .flat_map(|it| it.steps)
        .map(|it| match it {
            Step::Power { cluster, run, .. } => (cluster, run),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(runs, [("ca".to_owned(), true), ("cb".to_owned(), false)]);
}

#[test]
fn a_protected_cluster_is_never_deleted() {
    let mut seen = full(0, &["a"]);
    seen.clusters[0].protected = true;
    assert_eq!(deleted(&seen), [""; 0]);
    seen.pool.deleting = true;
    assert_eq!(deleted(&seen), [""; 0]);
}

#[test]
fn a_deleted_pool_goes_after_its_clusters_leases_and_finalizers() {
    let mut seen = full(2, &["a", "b"]);
    seen.pool.deleting = true;
    seen.clusters[1].claim = Some("someone".to_owned());
    assert_eq!(deleted(&seen), ["ca"]);
    seen.clusters.remove(0);
    seen.customizations[0].lease = None;
    // The claimed cluster keeps the pool, its own lease and its entry's finalizer.
    assert_eq!(reasons(&seen), [Reason::EntryFreed]);
    seen.customizations[0].kept = false;
    assert_eq!(reasons(&seen), []);
    seen.clusters.clear();
    seen.customizations[1].lease = None;
    assert_eq!(reasons(&seen), [Reason::EntryFreed]);
    seen.customizations[1].listed_elsewhere = true;
    assert_eq!(reasons(&seen), [Reason::PoolGone]);
    // Seen without the pool: what was made for it in the meantime would still be cleared away.
    seen.pool.kept = false;
    assert_eq!(reasons(&seen), []);
    seen.customizations[0].lease = lease("late");
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
}

#[test]
fn a_deleted_pool_is_held_up_neither_by_a_running_count_nor_by_a_limit_of_none() {
    let mut seen = full(1, &["a"]);
    seen.pool.deleting = true;
    seen.pool.running = 7;
    seen.pool.max_concurrent = Some(0);
    assert_eq!(deleted(&seen), ["ca"]);
}

#[test]
fn a_finalizer_stays_on_an_entry_as_long_as_somebody_lists_or_uses_it() {
    let mut seen = pool(0, &["a"]);
    assert_eq!(reasons(&seen), []);
    seen.pool.listed = Listed::Entries(vec!["b".to_owned()]);
    assert_eq!(reasons(&seen), [Reason::EntryFreed]);
    seen.customizations[0].listed_elsewhere = true;
    assert_eq!(reasons(&seen), []);
    seen.customizations[0].deleting = true;
    assert_eq!(reasons(&seen), [Reason::EntryFreed]);
    seen.customizations[0].others.push("x".to_owned());
    assert_eq!(reasons(&seen), []);
}

#[test]
fn a_namespace_to_which_no_cluster_came_goes_after_a_while() {
    let mut seen = pool(0, &["a"]);
    let namespace =
        Namespace { name: "n".to_owned(), uid: "u".to_owned(), created: now(), deleting: false };
    seen.namespaces.push(namespace);
    assert_eq!(reasons(&seen), []);
    assert_eq!(decided(&seen).again, Some(Duration::from_secs(300)));
    seen.namespaces[0].created = at(999_000);
    assert_eq!(reasons(&seen), [Reason::LeftOver]);
    seen.clusters.push(cluster("n", Some("a"), 1));
    assert!(!reasons(&seen).contains(&Reason::LeftOver));
}

#[test]
fn a_name_listed_twice_is_one_entry() {
    let spec = serde_json::from_value(serde_json::json!({
        "inventory": {"ClusterDeploymentCustomizations": [{"name": "a"}, {"name": "a"}, {"name": ""}]}
    }));
    assert_eq!(Listed::of(&spec.unwrap()), Listed::Entries(vec!["a".to_owned()]));
}

#[test]
fn both_spellings_and_the_list_are_read_and_an_empty_one_is_told_from_none() {
    let of = |inventory| {
        let spec = serde_json::json!({ "inventory": inventory });
        Listed::of(&serde_json::from_value(spec).unwrap())
    };
    let a = Listed::Entries(vec!["a".to_owned()]);
    assert_eq!(of(serde_json::json!({"ClusterDeploymentCustomizations": [{"name": "a"}]})), a);
    assert_eq!(of(serde_json::json!({"clusterDeploymentCustomizations": [{"name": "a"}]})), a);
    assert_eq!(of(serde_json::json!([{"kind": "ClusterDeploymentCustomization", "name": "a"}])), a);
    assert_eq!(of(serde_json::json!([])), Listed::Empty);
    assert_eq!(of(serde_json::json!({})), Listed::Empty);
    assert_eq!(of(serde_json::json!(null)), Listed::Nothing);
}

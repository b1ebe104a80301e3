//! Limits, sleep, deleted pools and what is left over.

use std::time::Duration;

use api_types::hive::ClusterPoolSpec;
use clusterpool_inventory::decision::Step;
use clusterpool_inventory::reason::Reason;
use clusterpool_inventory::seen::{Cluster, Lease, Listed, Namespace, Observed};
use clusterpool_inventory::text::remarks;

use crate::world::{
    at, claim, cluster, condition, decided, deleted, full, half_made, installing, lease, leased,
    namespace, pool, reasons, status_of, stored,
};

#[test]
fn the_most_clusters_bound_what_is_added() {
    let mut seen = full(5, &["a", "b", "c"]);
    seen.clusters.truncate(2);
    seen.customizations[2].lease = None;
    seen.pool.max_size = Some(2);
    assert_eq!(reasons(&seen), []);
    assert_eq!(condition(&seen, "CapacityAvailable").status, "False");
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
    assert_eq!(condition(&seen, "MissingDependencies").status, "True");
}

#[test]
fn however_large_a_pool_is_one_pass_begins_so_many_clusters() {
    let seen = pool(usize::MAX >> 32, &[]);
    assert_eq!(decided(&seen).work.len(), 256);
}

fn room(seen: &Observed) -> String {
    condition(seen, "CapacityAvailable").message
}

#[test]
fn a_limit_that_holds_clusters_up_is_told_with_those_that_reach_it() {
    let mut seen = pool(2, &["a", "b"]);
    assert_eq!(room(&seen), "There is room");
    seen.pool.max_concurrent = Some(1);
    assert!(room(&seen).ends_with("at the same time"), "{}", room(&seen));
    seen.clusters.push(installing("ca", Some("a"), 1));
    seen.customizations[0].lease = lease("ca");
    assert!(
        room(&seen)
            .ends_with("allows no more to be installed or removed at the same time: beside ca")
    );
    seen.pool.max_concurrent = Some(0);
    assert!(room(&seen).contains("raise it"));
    // Where no entry is left it is not the limit.
    let mut seen = pool(5, &["a"]);
    seen.pool.max_concurrent = Some(1);
    assert_eq!(room(&seen), "There is room");
}

#[test]
fn a_limit_that_holds_removals_up_is_told_with_those_that_reach_it() {
    let mut seen = full(0, &["a", "b", "c"]);
    seen.pool.max_concurrent = Some(1);
    assert_eq!(deleted(&seen), ["ca"]);
    seen.clusters[0].deleting = true;
    assert_eq!(deleted(&seen), [""; 0]);
    assert!(room(&seen).ends_with("removed at the same time: beside ca"), "{}", room(&seen));
    // Also where the most clusters are there.
    seen.pool.max_size = Some(3);
    assert!(room(&seen).ends_with("removed at the same time: beside ca"), "{}", room(&seen));
    seen.pool.max_size = None;
    seen.clusters[1].deleting = true;
    seen.pool.size = 1;
    assert_eq!(room(&seen), "There is room");
}

#[test]
fn one_cluster_that_hive_cannot_take_down_takes_no_place_and_several_do() {
    let mut seen = full(3, &["a", "b", "c", "d"]);
    seen.pool.max_concurrent = Some(1);
    seen.clusters.truncate(2);
    for free in [2, 3] {
        seen.customizations[free].lease = None;
    }
    seen.clusters[0].deleting = true;
    assert_eq!(leased(&seen), [""; 0]);
    assert!(room(&seen).ends_with("beside ca"), "{}", room(&seen));
    seen.clusters[0].hangs = true;
    assert_eq!(leased(&seen), ["c"]);
    // Its entry is its own until it is gone.
    assert_eq!((status_of(&seen, "a").as_str(), reasons(&seen)), ("Reserved", vec![Reason::Added]));
    (seen.clusters[1].deleting, seen.clusters[1].hangs) = (true, true);
    assert_eq!(leased(&seen), [""; 0]);
    // The end of a pool is not held up by it either.
    seen.clusters[1] = cluster("cb", Some("b"), 1);
    seen.pool.deleting = true;
    assert_eq!(deleted(&seen), ["cb"]);
}

#[test]
fn a_name_whose_namespace_is_somebody_elses_is_not_tried_again() {
    let mut seen = pool(2, &[]);
    let first = created(&seen);
    seen.taken.insert(first[0].clone());
    let second = created(&seen);
    assert!(second.len() == 2 && !second.contains(&first[0]), "{first:?} {second:?}");
    // Nor is one of ours in which something stands that was made from something else.
    seen.namespaces.push(namespace("begun"));
    assert_eq!(created(&seen)[0], "begun");
    seen.namespaces[0].made_from.clear();
    assert!(!created(&seen).contains(&"begun".to_owned()));
    seen.namespaces[0] = namespace("begun");
    seen.taken.insert("begun".to_owned());
    assert!(!created(&seen).contains(&"begun".to_owned()));
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
            Step::Power { cluster, run } => (cluster, run),
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
fn a_protected_cluster_keeps_no_other_one_from_being_replaced_or_removed() {
    let mut seen = full(3, &["a", "b", "c"]);
    seen.clusters[0].protected = true;
    seen.pool.version.own = "w".to_owned();
    assert_eq!(deleted(&seen), ["cb"]);
    let told = condition(&seen, "AllClustersCurrent").message;
    assert!(told.ends_with("; an annotation protects from deletion: ca"), "{told}");
    seen.pool.version.own = "v".to_owned();
    seen.pool.size = 1;
    assert_eq!(deleted(&seen), ["cb", "cc"]);
}

#[test]
fn a_protected_cluster_that_is_to_go_is_named() {
    let mut seen = full(1, &["a", "b"]);
    seen.clusters[0].protected = true;
    assert_eq!(deleted(&seen), ["cb"]);
    assert_eq!(room(&seen), "There is room");
    seen.pool.size = 0;
    assert!(room(&seen).ends_with("is taken off: ca"), "{}", room(&seen));
    seen.pool.size = 2;
    seen.clusters[0].stopped = Some("later".to_owned());
    assert!(room(&seen).ends_with("is taken off: ca"), "{}", room(&seen));
}

#[test]
fn a_deleted_pool_says_which_clusters_it_waits_for_and_what_to_do() {
    let mut seen = full(0, &["a", "b", "c", "d"]);
    seen.pool.deleting = true;
    seen.clusters[0].claim = Some("someone".to_owned());
    seen.clusters[1].protected = true;
    (seen.clusters[2].deleting, seen.clusters[2].hangs) = (true, true);
    seen.clusters[3].deleting = true;
    let told = condition(&seen, "DeletionPossible").message;
    let [all, claimed, protected, hangs] = told.split("; ").collect::<Vec<_>>()[..] else {
        panic!("{told}");
    };
    assert_eq!(all, "Still there: ca, cb, cc, cd");
    assert!(claimed.starts_with("delete the claims") && claimed.ends_with(": ca"), "{claimed}");
    assert!(protected.contains("/protected-delete ") && protected.ends_with(": cb"), "{protected}");
    assert_eq!(hangs, "Hive cannot take down: cc");
    for cluster in &mut seen.clusters {
        *cluster = Cluster { deleting: true, ..crate::world::cluster(&cluster.name, None, 1) };
    }
    let told = condition(&seen, "DeletionPossible").message;
    assert_eq!(told, "Still there: ca, cb, cc, cd");
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
    // One that cannot be read is not gone.
    seen.unread = vec!["broken".to_owned()];
    assert_eq!(reasons(&seen), []);
    let told = condition(&seen, "DeletionPossible").message;
    assert_eq!(told, "Still there: broken; these cannot be read, so correct them: broken");
    seen.unread.clear();
    // Seen without the pool: what was made for it in the meantime would still be cleared away.
    seen.pool.kept = false;
    assert_eq!(reasons(&seen), []);
    seen.customizations[0].lease = lease("late");
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
    let condition = condition(&seen, "DeletionPossible");
    assert_eq!(condition.status, "False");
    assert!(condition.message.contains("still leased: a. "), "{condition:?}");
}

/// Somebody may refuse to have our finalizer taken off them, for which the pool waits.
#[test]
fn a_deleted_pool_names_the_customizations_that_it_waits_for() {
    let mut seen = pool(0, &["a"]);
    seen.pool.deleting = true;
    let told = |seen: &Observed| condition(seen, "DeletionPossible");
    assert_eq!(reasons(&seen), [Reason::EntryFreed]);
    let waits = told(&seen);
    assert_eq!((&*waits.status, &*waits.reason), ("False", "LeasesPendingRelease"));
    assert!(waits.message.contains("still to be freed: a. "), "{waits:?}");
    // A lease of nothing.
    seen.customizations[0].kept = false;
    seen.customizations[0].lease = Some(Lease { cluster: None, ..lease("").unwrap() });
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned]);
    assert_eq!(told(&seen).status, "False");
    seen.customizations[0].lease = None;
    assert_eq!((told(&seen).status.as_str(), reasons(&seen)), ("True", vec![Reason::PoolGone]));
}

/// Somebody may refuse their deletion, for which the pool waits.
#[test]
fn a_deleted_pool_names_the_namespaces_that_it_waits_for() {
    let mut seen = pool(0, &[]);
    seen.pool.deleting = true;
    seen.namespaces.push(namespace("n"));
    let told = |seen: &Observed| condition(seen, "DeletionPossible");
    assert_eq!(reasons(&seen), [Reason::LeftOver]);
    let waits = told(&seen);
    assert_eq!((&*waits.status, &*waits.reason), ("False", "NamespacesPendingDeletion"));
    assert!(waits.message.starts_with("No cluster is left, but these namespaces are: n. "));
    // One that goes is not waited for.
    seen.namespaces[0].deleting = true;
    assert_eq!((told(&seen).status.as_str(), reasons(&seen)), ("True", vec![Reason::PoolGone]));
}

#[test]
fn what_is_in_use_of_a_pool_that_is_not_there_stays() {
    let mut seen = full(2, &["a", "b"]);
    (seen.pool.deleting, seen.pool.absent, seen.pool.kept) = (true, true, false);
    seen.pool.listed = Listed::Nothing;
    for cluster in &mut seen.clusters {
        seen.namespaces.push(namespace(&cluster.name));
    }
    seen.namespaces.push(namespace("empty"));
    assert_eq!(reasons(&seen), []);
    assert_eq!(decided(&seen).again, Some(Duration::from_secs(300)));
    // Ours, and nobody can use it yet; in a namespace that we did not make it is somebody else's.
    seen.clusters[0].installed = false;
    assert_eq!(deleted(&seen), ["ca"]);
    seen.namespaces.remove(0);
    assert_eq!(deleted(&seen), [""; 0]);
    // Given back by its user.
    seen.clusters[1].claim = Some("someone".to_owned());
    seen.clusters[1].marked = true;
    assert_eq!(deleted(&seen), ["cb"]);
    // Another pool has its entry: that is not put right at the cost of a cluster.
    seen.clusters.truncate(1);
    seen.customizations[0].lease.as_mut().unwrap().pool = Some("other".to_owned());
    assert_eq!(deleted(&seen), [""; 0]);
}

/// As long as a status is to be stored the next pass follows at once.
#[test]
fn a_pool_that_is_gone_has_no_status_to_store() {
    let mut seen = full(2, &["a", "b"]);
    (seen.pool.deleting, seen.pool.absent, seen.pool.kept) = (true, true, false);
    seen.pool.listed = Listed::Nothing;
    let decision = decided(&seen);
    assert_eq!((decision.status, decision.again), (None, None));
    seen.pool.absent = false;
    assert!(decided(&seen).status.is_some());
}

fn created(seen: &Observed) -> Vec<String> {
    let work = decided(seen).work;
    let created = work.iter().filter_map(|it| it.creates());
    created.filter(|(_, entry)| entry.is_none()).map(|(cluster, _)| cluster.to_owned()).collect()
}

#[test]
fn a_namespace_that_waits_for_its_cluster_gets_it_before_another_one_is_made() {
    let mut seen = pool(2, &[]);
    seen.namespaces = vec![namespace("begun"), namespace("old"), namespace("of-another")];
    seen.namespaces[1].created = at(0);
    seen.namespaces[2].pool_uid = "before".to_owned();
    let created = created(&seen);
    assert_eq!(created[0], "begun");
    assert!(created.len() == 2 && created[1].starts_with("pool-"), "{created:?}");
    assert!(reasons(&seen).contains(&Reason::LeftOver));
}

#[test]
fn a_namespace_that_may_have_had_its_cluster_gets_no_other_one_of_its_name() {
    let mut seen = pool(1, &[]);
    seen.namespaces = vec![Namespace { begun: false, ..namespace("left") }];
    let created = created(&seen);
    assert!(created.len() == 1 && created[0].starts_with("pool-"), "{created:?}");
    assert_eq!(reasons(&seen), [Reason::Added]);
    assert_eq!(decided(&seen).again, Some(Duration::from_secs(300)));
    seen.namespaces[0].created = at(999_000);
    assert_eq!(reasons(&seen), [Reason::Added, Reason::LeftOver]);
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
    seen.namespaces.push(namespace("n"));
    assert_eq!(reasons(&seen), []);
    assert_eq!(decided(&seen).again, Some(Duration::from_secs(300)));
    seen.namespaces[0].created = at(999_000);
    assert_eq!(reasons(&seen), [Reason::LeftOver]);
    seen.clusters.push(cluster("n", Some("a"), 1));
    assert!(!reasons(&seen).contains(&Reason::LeftOver));
}

#[test]
fn a_namespace_whose_cluster_came_and_went_goes_at_once_unless_a_lease_wants_it() {
    let mut seen = pool(0, &["a"]);
    seen.namespaces.push(Namespace { vacated: true, ..namespace("n") });
    assert_eq!(reasons(&seen), [Reason::LeftOver]);
    // Whose finalizers were taken off by hand is made again under its name.
    seen.namespaces[0].made_from = half_made("n").made_from;
    (seen.pool.size, seen.customizations[0].lease) = (1, lease("n"));
    assert_eq!(reasons(&seen), [Reason::RolledForward]);
    let mut plain = pool(1, &[]);
    plain.namespaces.push(Namespace { vacated: true, ..namespace("n") });
    let created = created(&plain);
    assert!(created.len() == 1 && created[0].starts_with("pool-"), "{created:?}");
}

#[test]
fn a_name_listed_twice_is_one_entry() {
    let spec = serde_json::from_value(serde_json::json!({
        "inventory": {"ClusterDeploymentCustomizations": [{"name": "a"}, {"name": "a"}]},
        "installAttemptsLimit": 1,
    }));
    let spec = spec.unwrap();
    assert_eq!(Listed::of(&spec), Listed::Entries(vec!["a".to_owned()]));
    assert_eq!(remarks(&spec, Some("3")), ["a is listed more than once"]);
}

#[test]
fn what_is_no_number_of_attempts_is_told() {
    for wrong in ["many", "0", "-1", "", "99999999999"] {
        assert_eq!(remarks(&ClusterPoolSpec::default(), Some(wrong)).len(), 1, "{wrong}");
    }
    let mut seen = full(1, &["a"]);
    seen.pool.remarks.push("a is listed more than once".to_owned());
    let condition = condition(&seen, "InventoryValid");
    assert!(
        condition.status == "True" && condition.message.ends_with("; a is listed more than once")
    );
}

#[test]
fn what_is_no_inventory_is_told_and_changes_nothing() {
    let a = serde_json::json!({ "name": "a" });
    for (inventory, told) in [
        (serde_json::json!("foo"), "neither an object nor a list"),
        (serde_json::json!(["foo"]), "spec.inventory[0] names no customization"),
        (serde_json::json!([{ "name": 5 }]), "spec.inventory[0] names no customization"),
        (serde_json::json!([a, { "nme": "b" }]), "spec.inventory[1] names no customization"),
        (serde_json::json!([a, { "name": "" }]), "spec.inventory[1] names no customization"),
        (serde_json::json!([{ "kind": "Other", "name": "a" }]), "spec.inventory[0].kind"),
        (
            serde_json::json!({ "ClusterDeploymentCustomizations": { "name": "a" } }),
            "spec.inventory.ClusterDeploymentCustomizations is no list",
        ),
    ] {
        let spec: ClusterPoolSpec =
            serde_json::from_value(serde_json::json!({ "inventory": inventory })).unwrap();
        assert_eq!(serde_json::to_value(&spec).unwrap()["inventory"], inventory);
        let mut seen = stored(&full(2, &["a", "b"]));
        seen.pool.listed = Listed::of(&spec);
        seen.pool.size = 5;
        assert_eq!(reasons(&seen), [], "{inventory}");
        let condition = condition(&seen, "InventoryValid");
        assert!(condition.status == "False" && condition.message.contains(told), "{condition:?}");
        assert_eq!(status_of(&seen, "a"), "Reserved");
        // Claims are served, and the pool can be deleted.
        seen.claims.push(claim("x", 1));
        assert_eq!(reasons(&seen), [Reason::Claimed]);
        seen.pool.deleting = true;
        assert_eq!(deleted(&seen), ["ca", "cb"]);
    }
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

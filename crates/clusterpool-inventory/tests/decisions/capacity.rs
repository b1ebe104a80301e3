//! Why a pool does not get what it wants.

use clusterpool_inventory::seen::{Cluster, Listed, Observed};

use crate::world::{claim, cluster, condition, failed, full, installing, pool};

/// Status, reason and message of `CapacityAvailable`.
fn told(seen: &Observed) -> (String, String, String) {
    let it = condition(seen, "CapacityAvailable");
    (it.status, it.reason, it.message)
}

/// A pool of two without an inventory that lacks one cluster.
fn short() -> Observed {
    let mut seen = pool(2, &[]);
    seen.clusters.push(cluster("c1", None, 1));
    seen
}

/// A pool of two with two entries, of which the second one's cluster is as given.
fn with_second(second: Cluster) -> Observed {
    let mut seen = full(2, &["a", "b"]);
    seen.clusters[1] = second;
    seen
}

#[test]
fn short_pool_names_the_cause_and_the_way_out() {
    let causes: [(&str, &str, Observed); 12] = [
        ("MaxCapacity", "raise spec.maxSize", {
            let mut seen = short();
            seen.pool.max_size = Some(1);
            seen
        }),
        ("Empty", "list at least one customization", {
            let mut seen = short();
            seen.pool.listed = Listed::Empty;
            seen
        }),
        ("Unreadable", "it is a number", {
            let mut seen = short();
            seen.pool.listed = Listed::Unreadable("it is a number".to_owned());
            seen
        }),
        ("Missing", "create it", {
            let mut seen = short();
            seen.missing.push("Secret pull is not there; create it".to_owned());
            seen
        }),
        ("Refused", "exceeded quota", {
            let mut seen = short();
            seen.refused = Some("exceeded quota".to_owned());
            seen
        }),
        ("NotBegun", "delete those that stay so: cb (InstallImagesNotResolved)", {
            let mut seen = with_second(installing("cb", Some("b"), 1));
            seen.clusters[1].not_begun = Some("InstallImagesNotResolved".to_owned());
            seen
        }),
        ("MaxConcurrent", "raise it", {
            let mut seen = short();
            seen.pool.max_concurrent = Some(0);
            seen
        }),
        ("MaxConcurrent", "raise spec.maxConcurrent", {
            let mut seen = short();
            seen.pool.size = 3;
            seen.clusters.push(installing("c2", None, 2));
            seen.pool.max_concurrent = Some(1);
            seen
        }),
        ("NoFreeEntry", "list more", {
            let mut seen = full(3, &["a", "b"]);
            seen.claims.push(claim("x", 9));
            seen.clusters[0].running = false;
            seen.clusters[1].running = false;
            seen
        }),
        ("NoFreeEntry", "correct those that InventoryValid names", {
            let mut seen = pool(1, &["a"]);
            seen.customizations[0].refused = Some("no such path".to_owned());
            seen
        }),
        ("ProtectedClusters", "protected-delete is taken off: cb", {
            let protected = true;
            with_second(Cluster { protected, ..failed("cb", Some("b")) })
        }),
        ("UnownedClusters", "remove-cluster-from-pool=true", {
            let mut seen = full(1, &["a", "b"]);
            seen.clusters[0].claim = Some("gone".to_owned());
            seen
        }),
    ];
    for (reason, way_out, seen) in causes {
        let (status, told, message) = told(&seen);
        assert_eq!((&*status, &*told), ("False", reason), "{message}");
        assert!(message.contains(way_out), "{reason}: {message}");
    }
}

/// What lies behind the limit is more than the limit.
#[test]
fn several_causes_are_all_told_the_gravest_first() {
    let mut seen = with_second(installing("cb", Some("b"), 1));
    seen.pool.max_concurrent = Some(0);
    seen.clusters[1].not_begun = Some("no image".to_owned());
    let (_, reason, message) = told(&seen);
    assert_eq!(reason, "NotBegun");
    assert!(message.contains("stay so: cb (no image). With a spec.maxConcurrent"), "{message}");
}

#[test]
fn pool_that_fills_or_is_full_is_available() {
    let filling = with_second(installing("cb", Some("b"), 1));
    for seen in [full(2, &["a", "b"]), filling, short(), pool(0, &[])] {
        let available = ("True".to_owned(), "Available".to_owned(), "There is room".to_owned());
        assert_eq!(told(&seen), available);
    }
}

#[test]
fn cluster_of_a_claim_that_cannot_be_read_is_nobodys_to_give_back() {
    let mut seen = full(1, &["a", "b"]);
    seen.clusters[0].claim = Some("x".to_owned());
    assert_eq!(told(&seen).1, "UnownedClusters");
    seen.unread_claims = vec!["x".to_owned()];
    assert_eq!(told(&seen).1, "Available");
}

/// Nothing is refused where nothing is tried any more.
#[test]
fn refusal_is_told_while_there_is_work() {
    let mut seen = full(2, &["a", "b"]);
    seen.refused = Some("exceeded quota".to_owned());
    assert_eq!(told(&seen).0, "True");
}

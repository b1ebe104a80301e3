//! Entries that are edited, removed or run out.

use std::time::Duration;

use clusterpool_inventory::reason::Reason;
use clusterpool_inventory::seen::{Claim, Cluster, Listed, Observed};

use crate::world::{
    claim, condition, customization, decided, deleted, entry, failed, full, installing, reasons,
    status_of, stored,
};

#[test]
fn an_entry_that_is_listed_and_not_there_is_missing_also_while_a_cluster_uses_it() {
    let mut seen = full(1, &["a"]);
    seen.customizations[0].deleting = true;
    assert_eq!(status_of(&seen, "a"), "Reserved");
    let valid = |seen: &Observed| condition(seen, "InventoryValid");
    assert!(valid(&seen).message.ends_with("; deletion was asked for: a"), "{:?}", valid(&seen));
    let mut seen = stored(&seen);
    seen.customizations.clear();
    let missing = entry(&seen, "a");
    assert_eq!((missing.status.as_str(), missing.cluster()), ("Missing", Some("ca")));
    assert_eq!(valid(&seen).reason, "Invalid");
    assert_eq!(decided(&seen).events[0].reason, "EntryMissing");
    assert_eq!(deleted(&seen), [""; 0]);
    seen.pool.listed = Listed::Entries(vec!["b".to_owned()]);
    assert_eq!(status_of(&seen, "a"), "To Be Deleted");
}

/// As the controller's page shows them.
#[test]
fn one_pool_may_have_entries_of_all_eight_statuses() {
    let all = ["free", "used", "lent", "edited", "unlisted", "wrong", "failing", "absent"];
    let mut seen = full(8, &all);
    seen.pool.attempts = Some(1);
    seen.clusters[6] = failed("cfailing", Some("failing"));
    let mut seen = stored(&seen);
    seen.customizations.retain(|it| it.name != "absent");
    seen.clusters.retain(|it| ["cused", "cedited", "cunlisted"].contains(&it.name.as_str()));
    for cluster in &mut seen.clusters {
        cluster.claim = Some("theirs".to_owned());
    }
    for entry in &mut seen.customizations {
        match entry.name.as_str() {
            "lent" => entry.lease.as_mut().unwrap().pool = Some("other".to_owned()),
            "edited" => entry.version = "2-u".to_owned(),
            "wrong" => entry.refused = Some(r#"operation 0 (replace "/proxy"): there is nothing at this path; use op add for a new key"#.to_owned()),
            _ => {}
        }
        if ["free", "wrong", "failing"].contains(&entry.name.as_str()) {
            entry.lease = None;
        }
    }
    seen.pool.listed = Listed::Entries(
        all.iter().filter(|it| **it != "unlisted").map(|it| (*it).to_owned()).collect(),
    );
    let told = all.map(|it| status_of(&seen, it));
    assert_eq!(
        told,
        [
            "Available",
            "Reserved",
            "Unavailable",
            "To Be Updated",
            "To Be Deleted",
            "Broken by configuration",
            "Broken by cloud",
            "Missing",
        ]
    );
}

#[test]
fn fewer_entries_than_the_size_wants_are_told_as_such() {
    let valid = |seen: &Observed| {
        let it = condition(seen, "InventoryValid");
        (it.status, it.reason, it.message)
    };
    let mut seen = full(2, &["a", "b"]);
    assert_eq!(valid(&seen).0, "True");
    // Another pool has one of them.
    seen.clusters.pop();
    seen.customizations[1].lease.as_mut().unwrap().pool = Some("other".to_owned());
    let (status, reason, message) = valid(&seen);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "TooFewEntries"));
    assert!(message.starts_with("1 of 2 entries for a size of 2, which are too few"), "{message}");
    assert!(message.ends_with("; Unavailable: b"), "{message}");
    seen.pool.size = 1;
    assert_eq!(valid(&seen).0, "True");
    // One that is broken comes first.
    seen.pool.size = 3;
    seen.customizations.remove(1);
    assert_eq!(valid(&seen).1, "Invalid");
    // Neither a pool that goes nor one whose list was taken away wants any.
    seen.pool.deleting = true;
    assert!(!valid(&seen).2.contains("too few"));
    seen.pool.deleting = false;
    seen.pool.listed = Listed::Nothing;
    assert!(valid(&seen).2.starts_with("No entry is listed any more"), "{:?}", valid(&seen));
}

#[test]
fn a_pool_whose_entries_are_all_claimed_says_so_until_one_is_free_or_no_more_is_wanted() {
    let capacity = |seen: &Observed| {
        let it = condition(seen, "CapacityAvailable");
        (it.status, it.reason)
    };
    let mut seen = full(2, &["a", "b"]);
    assert_eq!(capacity(&seen).0, "True");
    seen.pool.size = 3;
    assert_eq!(capacity(&seen).1, "NoFreeEntry", "there are too few");
    seen.pool.size = 2;
    for (cluster, name) in seen.clusters.iter_mut().zip(["x", "y"]) {
        cluster.claim = Some(name.to_owned());
        seen.claims.push(Claim { cluster: Some(cluster.name.clone()), ..claim(name, 1) });
    }
    assert_eq!(capacity(&seen), ("False".to_owned(), "NoFreeEntry".to_owned()));
    seen.clusters[0].deleting = true;
    assert_eq!(capacity(&seen).0, "True", "its entry will be free");
    seen.clusters[0].hangs = true;
    assert_eq!(capacity(&seen).0, "False", "not soon");
    (seen.clusters[0].deleting, seen.clusters[0].hangs) = (false, false);
    seen.pool.size = 0;
    assert_eq!(capacity(&seen).0, "True", "no more is wanted");
    seen.pool.size = 1;
    assert_eq!(capacity(&seen).0, "False");
    seen.pool.listed = Listed::Nothing;
    assert_eq!(capacity(&seen).0, "True", "clusters need no entry");
}

#[test]
fn a_pool_that_is_short_names_the_clusters_whose_end_its_entries_wait_for() {
    let capacity = |seen: &Observed| condition(seen, "CapacityAvailable");
    let mut seen = full(2, &["a", "b"]);
    seen.clusters[1].deleting = true;
    let told = capacity(&seen);
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("True", "Available"));
    assert!(told.message.ends_with("as soon as they are gone: cb"), "{}", told.message);
    seen.clusters[1].hangs = true;
    let told = capacity(&seen);
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "NoFreeEntry"));
    assert!(told.message.ends_with("until they are gone: cb"), "{}", told.message);
    // A claim wants one, too.
    seen.pool.size = 1;
    assert_eq!(capacity(&seen).message, "There is room");
    seen.clusters[0].running = false;
    seen.claims.push(claim("x", 1));
    assert!(capacity(&seen).message.ends_with("until they are gone: cb"));
    // It waits for none of them where another entry is free, and names no more than one reads.
    seen.customizations.push(customization("c"));
    seen.pool.listed = Listed::Entries(["a", "b", "c"].map(str::to_owned).to_vec());
    assert_eq!(capacity(&seen).message, "There is room");
    let names: Vec<String> = (10..30).map(|it| format!("e{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut many = full(20, &names);
    many.clusters.iter_mut().for_each(|it| it.deleting = true);
    assert!(capacity(&many).message.ends_with("ce19 and more"), "{}", capacity(&many).message);
}

#[test]
fn a_removed_entrys_unclaimed_cluster_is_deleted_now_and_a_claimed_one_stays() {
    let mut seen = full(1, &["a", "b"]);
    seen.pool.listed = Listed::Entries(vec!["a".to_owned()]);
    assert_eq!(deleted(&seen), ["cb"]);
    assert_eq!(status_of(&seen, "b"), "To Be Deleted");
    seen.clusters[1].claim = Some("someone".to_owned());
    assert_eq!(deleted(&seen), [""; 0]);
    assert_eq!(status_of(&seen, "b"), "To Be Deleted");
    seen.clusters.truncate(1);
    seen.customizations[1].lease = None;
    assert_eq!(status_of(&seen, "b"), "absent");
}

#[test]
fn an_edited_entrys_cluster_is_replaced_and_a_claimed_one_stays() {
    let mut seen = full(1, &["a"]);
    seen.customizations[0].version = "2-u".to_owned();
    assert_eq!(deleted(&seen), ["ca"]);
    seen.clusters[0].claim = Some("someone".to_owned());
    seen.pool.size = 0;
    assert_eq!(deleted(&seen), [""; 0]);
    assert_eq!(status_of(&seen, "a"), "To Be Updated");
}

#[test]
fn an_entry_says_that_its_cluster_goes_before_that_goes() {
    let waits = |seen: &Observed| {
        assert_eq!(reasons(seen), []);
        assert_eq!(decided(seen).again, Some(Duration::ZERO));
        deleted(&stored(seen))
    };
    let mut seen = full(2, &["a", "b", "c"]);
    seen.clusters.truncate(2);
    seen.customizations[2].lease = None;
    let mut seen = stored(&seen);
    // Its place is its own meanwhile, and nobody else goes for it.
    seen.pool.max_concurrent = Some(1);
    seen.pool.listed = Listed::Entries(["a", "c"].map(str::to_owned).to_vec());
    for size in [1, 2] {
        seen.pool.size = size;
        assert_eq!(waits(&seen), ["cb"]);
    }
    // Nor is it begun with, if it was not yet.
    seen.clusters[1] = Cluster { unverified: true, ..installing("cb", Some("b"), 1) };
    seen.pool.max_concurrent = Some(0);
    assert_eq!(waits(&seen), ["cb"]);
    let mut seen = stored(&full(1, &["a"]));
    seen.customizations[0].version = "2-u".to_owned();
    assert_eq!(waits(&seen), ["ca"]);
}

#[test]
fn stale_clusters_are_replaced_one_by_one_also_where_no_entry_is_spare() {
    let mut seen = full(3, &["a", "b", "c"]);
    seen.pool.version.own = "w".to_owned();
    assert_eq!(deleted(&seen), ["ca"]);
    // A claimed one makes the pool lack a cluster that it has no entry for.
    seen.clusters[0].claim = Some("someone".to_owned());
    assert_eq!(deleted(&seen), ["cb"]);
    seen.clusters[1].deleting = true;
    assert_eq!(deleted(&seen), [""; 0]);
}

#[test]
fn a_stale_cluster_stays_as_long_as_no_other_can_be_made_in_its_place() {
    let mut seen = full(2, &["a", "b"]);
    seen.pool.version.own = "w".to_owned();
    seen.missing.push("ClusterImageSet next is not there".to_owned());
    assert_eq!(deleted(&seen), [""; 0]);
    seen.pool.size = 3;
    assert_eq!(deleted(&seen), [""; 0]);
    seen.missing.clear();
    assert_eq!(deleted(&seen), ["ca"]);
    // Its entry could not be used again, and no other one can.
    seen.customizations[0].refused = Some("no".to_owned());
    assert_eq!(deleted(&seen), ["cb"]);
    seen.customizations[1].deleting = true;
    assert_eq!(deleted(&seen), [""; 0]);
    seen.pool.size = 2;
    let told = |seen: &Observed| condition(seen, "AllClustersCurrent").message;
    let end = ": ca, cb; no other one can be made in the place of: ca, cb";
    assert!(told(&seen).ends_with(end), "{}", told(&seen));
    seen.pool.listed = Listed::Entries(["a", "b", "c"].map(str::to_owned).to_vec());
    seen.customizations.push(customization("c"));
    assert_eq!(deleted(&seen), ["ca"]);
    assert!(told(&seen).ends_with(": ca, cb"), "{}", told(&seen));
}

#[test]
fn an_entry_in_use_that_was_edited_to_be_broken_says_so() {
    let mut seen = full(1, &["a"]);
    seen.customizations[0].version = "2-u".to_owned();
    assert_eq!(deleted(&stored(&seen)), ["ca"]);
    seen.customizations[0].refused = Some("operation 0: nothing there".to_owned());
    let mut seen = stored(&seen);
    for claim in [None, Some("someone".to_owned())] {
        seen.clusters[0].claim = claim;
        assert_eq!(deleted(&seen), [""; 0]);
        assert_eq!(status_of(&seen, "a"), "To Be Updated");
        let said = condition(&seen, "InventoryValid");
        assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "Invalid"));
        let end = "; a: its patches cannot be applied: operation 0: nothing there";
        assert!(said.message.ends_with(end), "{said:?}");
    }
    seen.customizations[0].refused = None;
    assert_eq!(condition(&seen, "InventoryValid").status, "True");
}

/// A template that was edited, or a pool that Hive's own controller served, which adds what `replace` does not find.
#[test]
fn entries_in_use_that_could_not_be_used_again_are_told() {
    let names = ["a", "b", "c", "d", "e"];
    let mut seen = full(5, &names);
    let valid = |seen: &Observed| condition(seen, "InventoryValid");
    assert_eq!(valid(&seen).status, "True");
    seen.customizations[0].refused = Some("operation 1: nothing there".to_owned());
    assert_eq!(status_of(&seen, "a"), "Reserved");
    let told = valid(&seen);
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "Invalid"));
    let end = "; a: its patches cannot be applied: operation 1: nothing there";
    assert!(told.message.ends_with(end), "{told:?}");
    // Also one that another pool has, and not more reasons than one reads.
    seen.clusters.remove(1);
    seen.customizations[1].lease.as_mut().unwrap().pool = Some("other".to_owned());
    for entry in &mut seen.customizations {
        entry.refused = Some("no".to_owned());
    }
    let told = valid(&seen).message;
    assert!(told.contains("; b: its patches cannot be applied: no; c: "), "{told}");
    assert!(told.ends_with("; nor can those of: d, e"), "{told}");
}

#[test]
fn no_stale_cluster_goes_while_one_that_is_current_is_being_installed() {
    let mut seen = full(2, &["a", "b"]);
    seen.pool.version.own = "w".to_owned();
    seen.clusters[1] =
        Cluster { pool_version: Some("w".to_owned()), ..installing("cb", Some("b"), 1) };
    assert_eq!(deleted(&seen), [""; 0]);
    let told = condition(&seen, "AllClustersCurrent").message;
    assert!(told.ends_with(": ca; these have to be installed first: cb"), "{told}");
}

/// What is wrong in its entry, or in the image set of its pool, may be why it is never installed.
#[test]
fn a_stale_cluster_that_is_being_installed_is_replaced_first_and_holds_up_no_other() {
    let mut seen = full(3, &["a", "b", "c"]);
    seen.pool.max_concurrent = Some(1);
    seen.clusters[1] = installing("cb", Some("b"), 1);
    let changes: [fn(&mut Observed); 2] = [
        |it| it.pool.version.own = "w".to_owned(),
        |it| it.customizations[1].version = "2-u".to_owned(),
    ];
    for change in changes {
        let mut seen = seen.clone();
        change(&mut seen);
        assert_eq!(deleted(&stored(&seen)), ["cb"]);
        seen.clusters[1].unverified = true;
        assert!(!deleted(&stored(&seen)).contains(&"cb".to_owned()), "its lease comes first");
    }
    seen.pool.version.own = "w".to_owned();
    seen.clusters[1].protected = true;
    seen.pool.max_concurrent = None;
    assert_eq!(deleted(&seen), ["ca"]);
}

/// What was corrected in one entry is not held up by what another one needs.
#[test]
fn stale_clusters_that_are_not_installed_go_at_once_whatever_else_is_under_way() {
    let mut seen = full(4, &["a", "b", "c", "d"]);
    for (place, name) in [(0, "a"), (1, "b"), (2, "c")] {
        seen.clusters[place] = installing(&format!("c{name}"), Some(name), 1);
        seen.customizations[place].version = "2-u".to_owned();
    }
    seen.customizations[2].version = "1-u".to_owned();
    // Also where that leaves no place for another one until they are gone.
    seen.pool.max_concurrent = Some(1);
    let beside: [fn(&mut Cluster); 3] =
        [|_| {}, |it| it.deleting = true, |it| (it.deleting, it.hangs) = (true, true)];
    for beside in beside {
        let mut seen = seen.clone();
        beside(&mut seen.clusters[2]);
        assert_eq!(deleted(&stored(&seen)), ["ca", "cb"]);
        // One that is installed waits.
        seen.pool.version.own = "w".to_owned();
        seen.clusters[2].pool_version = Some("w".to_owned());
        assert_eq!(deleted(&stored(&seen)), ["ca", "cb"]);
    }
    // Nobody knows that these are stale.
    seen.clusters[0].pool_version = None;
    assert_eq!(deleted(&stored(&seen)), ["cb"]);
    // No other one can be made in its place, or it would keep that as others do.
    seen.customizations[1].refused = Some("no".to_owned());
    assert_eq!(deleted(&stored(&seen)), [""; 0]);
    seen.customizations[1].refused = None;
    for place in [2, 3] {
        (seen.clusters[place].deleting, seen.clusters[place].hangs) = (true, true);
    }
    assert_eq!(deleted(&stored(&seen)), [""; 0]);
    // Without a list no entry is needed.
    seen.pool.listed = Listed::Nothing;
    seen.pool.version.own = "w".to_owned();
    assert_eq!(deleted(&stored(&seen)), ["cb"]);
}

#[test]
fn one_cluster_that_hive_cannot_take_down_stops_no_replacement_and_several_only_that_without_a_place()
 {
    let told = |seen: &Observed| condition(seen, "AllClustersCurrent").message;
    let mut seen = full(3, &["a", "b", "c"]);
    seen.pool.version.own = "w".to_owned();
    seen.clusters[0].deleting = true;
    assert_eq!(deleted(&seen), [""; 0]);
    assert!(told(&seen).ends_with(": cb, cc; these have to be gone first: ca"), "{}", told(&seen));
    seen.clusters[0].hangs = true;
    assert_eq!(deleted(&seen), ["cb"]);
    assert!(told(&seen).ends_with(": cb, cc; Hive cannot take down: ca"), "{}", told(&seen));
    // The next one would take its entry with it, too.
    (seen.clusters[1].deleting, seen.clusters[1].hangs) = (true, true);
    assert_eq!(deleted(&seen), [""; 0]);
    seen.pool.size = 1;
    seen.pool.listed = Listed::Entries(["a", "b", "c", "d"].map(str::to_owned).to_vec());
    seen.customizations.push(customization("d"));
    assert_eq!(deleted(&seen), ["cc"]);
    seen.pool.max_size = Some(3);
    assert_eq!(deleted(&seen), [""; 0]);
}

#[test]
fn clusters_of_which_nobody_knows_what_they_are_made_from_are_told_as_such() {
    let mut seen = full(2, &["a", "b"]);
    seen.clusters[0].pool_version = None;
    let current = |seen: &Observed| condition(seen, "AllClustersCurrent");
    assert_eq!(current(&seen).status, "Unknown");
    assert_eq!(current(&seen).reason, "SomeClusterDeploymentsUnknown");
    seen.clusters[1].pool_version = Some("old".to_owned());
    assert_eq!(current(&seen).reason, "SomeClusterDeploymentsStale");
}

#[test]
fn deleting_the_inventory_replaces_the_clusters_gradually() {
    let mut seen = full(2, &["a", "b"]);
    seen.pool.listed = Listed::Nothing;
    seen.pool.version.own = "w".to_owned();
    assert_eq!(deleted(&seen), ["ca"]);
    assert_eq!(status_of(&seen, "b"), "To Be Deleted");
}

#[test]
fn an_empty_inventory_is_a_mistake_and_changes_nothing() {
    let mut seen = stored(&full(2, &["a", "b"]));
    seen.pool.listed = Listed::Empty;
    seen.pool.size = 5;
    seen.pool.version.own = "w".to_owned();
    assert_eq!(reasons(&seen), []);
    assert_eq!(condition(&seen, "InventoryValid").reason, "Empty");
    assert_eq!(status_of(&seen, "a"), "Reserved");
}

#[test]
fn a_broken_cluster_is_replaced_although_no_entry_is_free() {
    let mut seen = full(3, &["a", "b"]);
    seen.clusters[1] = failed("cb", Some("b"));
    assert_eq!(deleted(&stored(&seen)), ["cb"]);
}

#[test]
fn adding_removing_and_replacing_share_one_budget() {
    let mut seen = full(3, &["a", "b", "c", "d", "e"]);
    seen.pool.listed = Listed::Entries(["a", "c", "d", "e"].map(str::to_owned).to_vec());
    seen.clusters.truncate(3);
    for free in [3, 4] {
        seen.customizations[free].lease = None;
    }
    seen.clusters[0].claim = Some("x".to_owned());
    seen.clusters[0].marked = true;
    seen.clusters[2].stuck = true;
    let all = [
        Reason::ClaimGone,
        Reason::EntryRemoved,
        Reason::Added,
        Reason::Added,
        Reason::ClusterBroken,
    ];
    for most in 0..=5 {
        seen.pool.max_concurrent = Some(most);
        assert_eq!(reasons(&seen), all[..most]);
    }
}

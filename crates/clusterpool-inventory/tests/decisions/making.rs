//! New clusters, and how entries are told.

use api_types::condition::{Condition, put};
use api_types::hive::EntryState;
use clusterpool_inventory::decision::{Decision, Step};
use clusterpool_inventory::reason::Reason;
use clusterpool_inventory::seen::{Cluster, Lease, Listed, Observed};

use crate::world::{
    cluster, condition, customization, decided, deleted, full, lease, leased, pool, status_of,
    stored, stored_condition,
};

#[test]
fn a_new_pool_is_kept_before_anything_is_made_for_it() {
    let mut seen = pool(1, &["a"]);
    seen.pool.kept = false;
    assert_eq!(decided(&seen).work.len(), 1);
    assert!(matches!(&decided(&seen).work[0].steps[..], [Step::KeepPool]));
}

#[test]
fn what_clusters_of_hives_controller_were_made_from_is_noted_before_one_counts_as_stale() {
    let mut seen = full(2, &["a", "b"]);
    let values = ["00000000deadbeef", "0123456789abcdef"];
    for (cluster, value) in seen.clusters.iter_mut().zip(values) {
        cluster.pool_version = Some(value.to_owned());
        cluster.kept = false;
    }
    let noted = |seen: &Observed| {
        let work = decided(seen).work;
        let steps = work.into_iter().flat_map(|it| it.steps).collect::<Vec<_>>();
        match &steps[..] {
            [Step::NoteVersion(note)] => Some(note.clone()),
            _ => None,
        }
    };
    // The newest one is made from what the spec was last.
    assert_eq!(noted(&seen).as_deref(), Some("v/0123456789abcdef"));
    seen.pool.version.noted = noted(&seen);
    assert_eq!(deleted(&seen), ["ca"]);
    let stale = |seen: &Observed| condition(seen, "AllClustersCurrent").message;
    assert!(stale(&seen).ends_with(": ca"), "{}", stale(&seen));
    // It stands for that spec, and is not noted again for another one.
    seen.pool.version.own = "w".to_owned();
    assert!(stale(&seen).ends_with(": ca, cb"), "{}", stale(&seen));
    assert_eq!(noted(&seen), None);
    // Nor where we have made clusters: the spec may be another one since.
    seen.pool.version.noted = None;
    let mut ours = seen.clone();
    ours.clusters[0].pool_version = Some("v".to_owned());
    assert_eq!(noted(&ours), None);
    // Or where we have taken one over: what was noted then was lost.
    assert!(noted(&seen).is_some());
    seen.clusters[1].kept = true;
    assert_eq!(noted(&seen), None);
}

#[test]
fn a_hash_of_another_release_of_hive_makes_no_cluster_anew() {
    let mut seen = full(2, &["a", "b"]);
    for cluster in &mut seen.clusters {
        cluster.pool_version = Some("00000000deadbeef".to_owned());
        cluster.kept = false;
    }
    let work = decided(&seen).work;
    assert!(
        matches!(&work[0].steps[..],
            [Step::NoteVersion(note)] if note == "v/00000000deadbeef"),
        "{work:?}"
    );
    seen.pool.version.noted = Some("v/00000000deadbeef".to_owned());
    let is_current = |seen: &Observed| condition(seen, "AllClustersCurrent").status == "True";
    assert!(is_current(&seen) && deleted(&seen).is_empty());
    // It was begun before, under a spec that may have been another one.
    seen.pool.version.noted = None;
    seen.clusters[0].kept = true;
    assert!(!is_current(&seen));
    assert!(!matches!(&decided(&seen).work[0].steps[..], [Step::NoteVersion { .. }]));
}

/// The note on a pool that is taken over, and the pool when it is there.
fn taken_over(seen: &Observed) -> (String, Observed) {
    let decision = decided(seen);
    assert!(decision.status.is_none(), "what Hive said last is still to be read");
    let [Step::NoteVersion(note)] = &decision.work[0].steps[..] else {
        panic!("{:?}", decision.work)
    };
    let mut seen = seen.clone();
    seen.pool.version.noted = Some(note.clone());
    (note.clone(), stored(&seen))
}

fn of_hive(mut cluster: Cluster, value: &str) -> Cluster {
    cluster.pool_version = Some(value.to_owned());
    cluster.kept = false;
    cluster
}

const OLD: &str = "00000000deadbeef";
const NEW: &str = "0123456789abcdef";

#[test]
fn an_inventory_that_came_before_the_pool_was_ours_makes_hives_clusters_stale() {
    // They have no entry, so what they were made from was without an inventory.
    let mut seen = pool(2, &["a", "b"]);
    seen.clusters =
        vec![of_hive(cluster("c1", None, 1), OLD), of_hive(cluster("c2", None, 2), OLD)];
    let (note, later) = taken_over(&seen);
    assert_eq!(note, "v/");
    assert_eq!(stored_condition(&later, "AllClustersCurrent").status, "False");
    assert_eq!(deleted(&later), ["c1"]);
    // Hive had begun to replace them.
    let theirs = of_hive(cluster("ca", Some("a"), 3), NEW);
    seen.customizations[0].lease = lease("ca");
    seen.clusters.push(theirs);
    seen.pool.size = 3;
    let (note, later) = taken_over(&seen);
    assert_eq!(note, format!("v/{NEW}"));
    assert_eq!(deleted(&later), ["c1"]);
    // One that was taken away is as good as one that came.
    seen.pool.listed = Listed::Nothing;
    assert_eq!(taken_over(&seen).0, format!("v/{OLD}"));
    seen.clusters.retain(|it| it.entry.is_some());
    assert_eq!(taken_over(&seen).0, "v/");
}

#[test]
fn what_hive_itself_called_stale_is_not_taken_for_current() {
    let mut seen = full(3, &["a", "b", "c", "d"]);
    seen.customizations[3].lease = None;
    seen.clusters.pop();
    let values = [OLD, OLD, NEW];
    for (cluster, value) in seen.clusters.iter_mut().zip(values) {
        *cluster = of_hive(cluster.clone(), value);
    }
    let say = |seen: &mut Observed, status: &str, names: &str| {
        let condition = Condition {
            r#type: "AllClustersCurrent".to_owned(),
            status: status.to_owned(),
            reason: Some("SomeClusterDeploymentsStale".to_owned()),
            message: Some(format!("Some do not match the pool configuration: {names}")),
            ..Condition::default()
        };
        put(&mut seen.pool.status.conditions, condition);
    };
    // It had made one of the spec as it is now, and did not come to the others.
    say(&mut seen, "False", "ca, cb");
    assert_eq!(taken_over(&seen).0, format!("v/{NEW}"));
    // It had made none.
    say(&mut seen, "False", "ca, cc");
    let (note, later) = taken_over(&seen);
    assert_eq!(note, "v/");
    assert_eq!(stored_condition(&later, "AllClustersCurrent").status, "False");
    assert_eq!(deleted(&later), ["ca"]);
    // What it said is overwritten by then, and what was noted stays.
    assert!(!decided(&later).work.iter().any(|it| it.reason == Reason::PoolAdopted));
    seen.clusters[2].pool_version = Some(OLD.to_owned());
    say(&mut seen, "False", "ca, cb, cc");
    assert_eq!(taken_over(&seen).0, "v/");
    // Names are whole, and what it says of others is something else.
    say(&mut seen, "False", "ca-1, ccc");
    assert_eq!(taken_over(&seen).0, format!("v/{OLD}"));
    say(&mut seen, "Unknown", "ca, cb, cc");
    assert_eq!(taken_over(&seen).0, format!("v/{OLD}"));
    // Nor is it overwritten while there is no place for the note yet.
    seen.pool.kept = false;
    assert_eq!(decided(&seen).status, None);
}

#[test]
fn a_missing_cluster_is_made_from_the_first_entry_lease_first() {
    let mut seen = pool(1, &["a", "b"]);
    seen.customizations[0].kept = false;
    let work = decided(&seen).work;
    let [piece] = &work[..] else { panic!("{work:?}") };
    let [
        Step::KeepEntry { .. },
        Step::Lease { entry, cluster, prove_living: false },
        Step::Create { cluster: created, entry: Some(version), .. },
        Step::Verify { cluster: verified, .. },
    ] = &piece.steps[..]
    else {
        panic!("{piece:?}")
    };
    assert_eq!((entry.as_str(), version.version.as_str()), ("a", "1-u"));
    assert!(cluster == created && cluster == verified && cluster.starts_with("pool-"));
}

#[test]
fn one_state_gives_one_name_so_that_two_replicas_collide() {
    let seen = pool(2, &[]);
    assert_eq!(decided(&seen), decided(&seen));
    let mut later = pool(2, &["a"]);
    let before = decided(&later);
    later.customizations[0].at = "6".to_owned();
    assert_ne!(before.work, decided(&later).work);
}

#[test]
fn a_pool_without_an_inventory_makes_clusters_without_entries() {
    let work = decided(&pool(3, &[])).work;
    assert_eq!(work.len(), 3);
    for piece in work {
        assert!(matches!(&piece.steps[..], [Step::Create { entry: None, .. }]));
    }
}

#[test]
fn at_rest_nothing_is_written() {
    let seen = stored(&full(2, &["a", "b"]));
    assert_eq!(decided(&seen), Decision::default());
}

#[test]
fn a_broken_patch_is_seen_before_a_cluster_is_wanted_and_the_next_entry_is_used() {
    let mut seen = pool(0, &["a", "b"]);
    seen.customizations[0].refused = Some("operation 0".to_owned());
    assert_eq!(status_of(&seen, "a"), "Broken by configuration");
    seen.pool.size = 1;
    assert_eq!(leased(&seen), ["b"]);
    let events: Vec<_> = decided(&seen).events.into_iter().map(|it| it.reason).collect();
    assert_eq!(events, ["BrokenByConfiguration"]);
    assert!(decided(&stored(&seen)).events.is_empty());
}

#[test]
fn the_eight_statuses_are_told_from_what_is_there() {
    let mut seen = pool(0, &["free", "leased", "patch", "cloud", "missing", "taken", "edited"]);
    seen.pool.size = 3;
    seen.customizations.retain(|it| it.name != "missing");
    seen.customizations.push(customization("removed"));
    for it in &mut seen.customizations {
        match it.name.as_str() {
            "leased" | "edited" | "removed" => it.lease = lease(&format!("c-{}", it.name)),
            "patch" => it.refused = Some("no".to_owned()),
            "taken" => {
                it.lease = Some(Lease { pool: Some("other".to_owned()), ..lease("x").unwrap() });
            }
            _ => {}
        }
        if it.name == "edited" {
            it.version = "2-u".to_owned();
        }
    }
    for name in ["leased", "edited", "removed"] {
        seen.clusters.push(cluster(&format!("c-{name}"), Some(name), 1));
    }
    let gone =
        EntryState { version: Some("1-u".to_owned()), attempts: Some(0), ..EntryState::default() };
    seen.pool.status.inventory.insert("cloud".to_owned(), gone);
    let table = [
        ("free", "Available"),
        ("leased", "Reserved"),
        ("patch", "Broken by configuration"),
        ("cloud", "Broken by cloud"),
        ("missing", "Missing"),
        ("taken", "Unavailable"),
        ("edited", "To Be Updated"),
        ("removed", "To Be Deleted"),
    ];
    for (name, status) in table {
        assert_eq!(status_of(&seen, name), status, "{name}");
    }
}

#[test]
fn an_entry_that_is_being_deleted_is_missing_once_it_is_free_and_not_leased() {
    let mut seen = full(1, &["a"]);
    seen.customizations[0].deleting = true;
    assert_eq!(status_of(&seen, "a"), "Reserved");
    let mut seen = pool(1, &["a"]);
    seen.customizations[0].deleting = true;
    assert_eq!(status_of(&seen, "a"), "Missing");
    assert_eq!(leased(&seen), [""; 0]);
    let theirs = Lease { pool: Some("other".to_owned()), ..lease("x").unwrap() };
    seen.customizations[0].lease = Some(theirs);
    assert_eq!(status_of(&seen, "a"), "Unavailable");
}

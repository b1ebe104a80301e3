//! Failures, and how many attempts they leave.

use std::time::Duration;

use clusterpool_inventory::reason::Reason;
use clusterpool_inventory::seen::{Cluster, Listed, Observed, Refusal};
use clusterpool_inventory::text::remarks;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::world::{
    at, cluster, decided, deleted, entry, failed, full, installing, lease, leased, now, reasons,
    status_of, stored,
};

#[test]
fn a_failure_is_counted_and_stored_before_the_cluster_goes() {
    let mut seen = full(1, &["a"]);
    seen.clusters[0] = failed("ca", Some("a"));
    assert_eq!(deleted(&seen), [""; 0]);
    assert_eq!(decided(&seen).again, Some(Duration::ZERO));
    let counted = entry(&seen, "a");
    assert_eq!(counted.attempts, Some(2));
    assert_eq!(counted.last_failure.unwrap().cluster_deployment.as_deref(), Some("ca"));
    let seen = stored(&seen);
    assert_eq!(deleted(&seen), ["ca"]);
    assert_eq!(entry(&seen, "a").attempts, Some(2));
}

#[test]
fn what_is_told_of_a_failure_is_short_enough_to_be_stored_for_each_entry() {
    let long = "x".repeat(2_000_000);
    let mut seen = full(2, &["a", "b"]);
    seen.clusters[0] = Cluster { stopped: Some(long.clone()), ..failed("ca", Some("a")) };
    seen.clusters.truncate(1);
    (seen.customizations[1].lease, seen.customizations[1].refused) = (None, Some(long.clone()));
    seen.missing.push(long);
    let seen = stored(&seen);
    let status = &seen.pool.status;
    let is_short = |text: &Option<String>, most| text.as_ref().unwrap().len() <= most;
    let mut failures = status.inventory.values().map(|it| it.last_failure.as_ref().unwrap());
    assert!(failures.all(|it| is_short(&it.message, 1_000)));
    assert!(status.conditions.iter().all(|it| is_short(&it.message, 10_000)));
    assert_eq!(decided(&seen).status, None);
}

/// The API server would refuse the whole status, and no failed cluster would go before its failure is stored.
#[test]
fn failures_of_all_entries_of_a_large_pool_are_short_enough_to_be_stored_together() {
    let names: Vec<String> = (0..1_500).map(|it| format!("entry-{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut seen = full(1, &names);
    for (number, cluster) in seen.clusters.iter_mut().enumerate() {
        let why = format!("{number}: {}", "no quota ".repeat(200));
        *cluster =
            Cluster { stopped: Some(why), ..failed(&cluster.name, cluster.entry.as_deref()) };
    }
    // Half of them could not be used again either.
    for entry in seen.customizations.iter_mut().step_by(2) {
        (entry.lease, entry.refused) = (None, Some("nothing is at this path ".repeat(100)));
    }
    seen.clusters = seen.clusters.into_iter().skip(1).step_by(2).collect();
    let all = seen.pool.listed.clone();
    let is_short_and_told = |seen: &Observed| {
        let size = serde_json::to_string(&seen.pool.status).unwrap().len();
        let told = seen.pool.status.inventory.values().filter_map(|it| it.last_failure.as_ref());
        let messages: Vec<&str> = told.filter_map(|it| it.message.as_deref()).collect();
        assert!(size < 1 << 20 && messages.len() == names.len(), "{size} {}", messages.len());
        assert!(messages.iter().all(|it| it.contains("no quota") || it.contains("at this path")));
        assert_eq!(decided(seen).status, None);
    };
    let told = stored(&seen);
    is_short_and_told(&told);
    assert_eq!(deleted(&told).len(), names.len() / 2);
    // What was told while fewer were listed gives way.
    seen.pool.listed = Listed::Entries(names[..100].iter().map(|it| (*it).to_owned()).collect());
    let mut grown = stored(&seen);
    grown.pool.listed = all;
    is_short_and_told(&stored(&grown));
}

#[test]
fn a_failed_cluster_that_a_person_deletes_is_counted_before_it_goes() {
    let mut seen = full(1, &["a"]);
    seen.clusters[0] = Cluster { deleting: true, kept_by_others: false, ..failed("ca", Some("a")) };
    // Hive frees the entry of what it took down.
    for held in [lease("ca"), None] {
        seen.customizations[0].lease = held;
        assert_eq!(reasons(&seen), []);
        assert_eq!(entry(&seen, "a").attempts, Some(2));
        assert_eq!(reasons(&stored(&seen)), [Reason::Released]);
    }
}

#[test]
fn the_last_failure_breaks_the_entry_until_it_is_edited() {
    let mut seen = full(1, &["a", "b"]);
    seen.clusters.truncate(1);
    seen.customizations[1].lease = None;
    seen.pool.attempts = Some(1);
    seen.clusters[0] = failed("ca", Some("a"));
    let mut seen = stored(&seen);
    assert_eq!(entry(&seen, "a").attempts, Some(0));
    seen.clusters.clear();
    seen.customizations[0].lease = None;
    seen.customizations[0].at = "9".to_owned();
    let mut seen = stored(&seen);
    assert_eq!(status_of(&seen, "a"), "Broken by cloud");
    assert_eq!(leased(&seen), ["b"]);
    seen.customizations[0].version = "2-u".to_owned();
    assert_eq!(status_of(&seen, "a"), "Available");
    assert_eq!(entry(&seen, "a").attempts, Some(1));
    assert_eq!(entry(&seen, "a").last_failure, None);
}

/// Somebody repaired what the entry stands for, and has nothing to edit.
#[test]
fn a_person_may_ask_for_another_try_of_an_entry_without_an_edit() {
    let mut seen = full(1, &["a"]);
    seen.pool.attempts = Some(1);
    seen.clusters[0] = failed("ca", Some("a"));
    let (mut seen, now) = (stored(&seen), now().as_second());
    let known = seen.pool.status.inventory.get_mut("a").unwrap();
    known.last_failure.as_mut().unwrap().time = Some(Time(at(now - 10)));
    seen.customizations[0].retry = Some(at(now - 9));
    assert_eq!(entry(&seen, "a").attempts, Some(0), "what failed is still there");
    assert_eq!(deleted(&seen), ["ca"]);
    seen.clusters.clear();
    seen.customizations[0].lease = None;
    for (retry, status) in [
        (None, "Broken by cloud"),
        (Some(now - 11), "Broken by cloud"),
        // Each failure until then would be forgotten.
        (Some(now + 1), "Broken by cloud"),
        (Some(now - 9), "Available"),
    ] {
        seen.customizations[0].retry = retry.map(at);
        assert_eq!(status_of(&seen, "a"), status, "{retry:?}");
    }
    assert_eq!((entry(&seen, "a").attempts, entry(&seen, "a").last_failure), (Some(1), None));
    assert_eq!(leased(&seen), ["a"]);
    // Its next cluster may be there before that is stored, and is as current as it would be without.
    seen.customizations[0].lease = lease("ca2");
    for unverified in [true, false] {
        seen.clusters = vec![Cluster { unverified, ..installing("ca2", Some("a"), 1) }];
        assert_eq!(deleted(&seen), [""; 0]);
        let told = entry(&seen, "a");
        assert_eq!(
            (told.status.as_str(), told.attempts, told.last_failure),
            ("Reserved", Some(1), None)
        );
    }
    // It fails once more, which counts.
    seen.clusters = vec![failed("ca2", Some("a"))];
    assert_eq!(entry(&seen, "a").attempts, Some(0));
}

/// The retry annotation of an earlier failure is still there, as it is on an entry that nobody edits.
#[test]
fn a_failure_stays_counted_while_something_else_is_told_of_the_entry() {
    let mut seen = full(2, &["a"]);
    seen.pool.attempts = Some(1);
    seen.customizations[0].retry = Some(at(now().as_second() - 10));
    seen.clusters[0] = failed("ca", Some("a"));
    let mut broken = stored(&seen);
    broken.clusters.clear();
    broken.customizations[0].lease = None;
    broken = stored(&broken);
    let told = |seen: &Observed| {
        let it = entry(seen, "a");
        let failure = it.last_failure.unwrap();
        let words = (failure.reason.unwrap(), failure.cluster_deployment.unwrap());
        (it.status.as_str().to_owned(), it.attempts, words)
    };
    let of = |status: &str, attempts: i32, reason: &str| {
        (status.to_owned(), Some(attempts), (reason.to_owned(), "ca".to_owned()))
    };
    assert_eq!(told(&broken), of("Broken by cloud", 0, "ProvisionStopped"));
    // The template cannot be patched for a while.
    broken.customizations[0].refused = Some("nothing is at this path".to_owned());
    assert_eq!(told(&broken), of("Broken by configuration", 0, "BadPatch"));
    let mut corrected = stored(&broken);
    corrected.customizations[0].refused = None;
    assert_eq!(told(&corrected), of("Broken by cloud", 0, "ProvisionStopped"));
    assert_eq!(told(&stored(&corrected)), of("Broken by cloud", 0, "ProvisionStopped"));
    let events = decided(&corrected).events;
    let of_entry = events.iter().find(|it| it.reason == "BrokenByCloud").unwrap();
    assert!(of_entry.text.contains("Cluster ca could not be installed"), "{of_entry:?}");
    // Its next cluster is refused for a while.
    seen.pool.attempts = Some(2);
    let mut left = stored(&seen);
    left.clusters.clear();
    left.customizations[0].lease = None;
    let refusal = Refusal { version: "1-u".to_owned(), why: "exceeded quota".to_owned() };
    left.turned_down = [("a".to_owned(), refusal)].into();
    assert_eq!(told(&left), of("Available", 1, "Refused"));
    let mut made = stored(&left);
    made.turned_down.clear();
    assert_eq!(told(&made), of("Available", 1, "ProvisionStopped"));
    made.customizations[0].lease = lease("ca2");
    made.clusters.push(installing("ca2", Some("a"), 1));
    assert_eq!(told(&made), of("Reserved", 1, "ProvisionStopped"));
}

#[test]
fn a_person_may_ask_for_another_try_of_an_entry_whose_failure_is_stamped_with_a_time_to_come() {
    let mut seen = full(1, &["a"]);
    seen.pool.attempts = Some(1);
    seen.clusters[0] = failed("ca", Some("a"));
    let (mut seen, now) = (stored(&seen), now().as_second());
    let known = seen.pool.status.inventory.get_mut("a").unwrap();
    known.last_failure.as_mut().unwrap().time = Some(Time(at(now + 86_400)));
    seen.clusters.clear();
    seen.customizations[0].lease = None;
    assert_eq!(status_of(&seen, "a"), "Broken by cloud");
    seen.customizations[0].retry = Some(at(now));
    assert_eq!(status_of(&seen, "a"), "Available");
}

#[test]
fn an_entry_that_failed_is_used_after_those_that_did_not() {
    let mut seen = full(1, &["a", "b", "c"]);
    seen.clusters[0] = failed("ca", Some("a"));
    let mut seen = stored(&seen);
    seen.clusters.clear();
    for entry in &mut seen.customizations {
        entry.lease = None;
    }
    assert_eq!(status_of(&seen, "a"), "Available");
    for (size, order) in [(1, &["b"][..]), (2, &["b", "c"]), (3, &["b", "c", "a"])] {
        seen.pool.size = size;
        assert_eq!(leased(&seen), order);
    }
}

#[test]
fn of_entries_that_failed_the_one_with_the_most_attempts_left_is_used_first() {
    let mut seen = full(1, &["a", "b", "c", "d"]);
    seen.pool.attempts = Some(3);
    for (index, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        seen.clusters[index] = failed(&format!("c{name}"), Some(name));
    }
    let mut seen = stored(&seen);
    seen.clusters.clear();
    for entry in &mut seen.customizations {
        entry.lease = None;
    }
    seen.pool.status.inventory.get_mut("a").unwrap().attempts = Some(1);
    for (size, order) in [(1, &["b"][..]), (3, &["b", "c", "d"]), (4, &["b", "c", "d", "a"])] {
        seen.pool.size = size;
        assert_eq!(leased(&seen), order);
    }
}

#[test]
fn a_pool_whose_clusters_hive_never_gives_up_is_told_that_no_failure_will_be_counted() {
    let of = |more: Value| remarks(&serde_json::from_value(more).unwrap(), None);
    let listed = json!([{ "name": "a" }]);
    let told = of(json!({ "inventory": listed }));
    assert!(told.len() == 1 && told[0].starts_with("spec.installAttemptsLimit is not"), "{told:?}");
    let once = json!({ "hive.openshift.io/try-install-once": "true" });
    for spec in [
        json!({ "inventory": listed, "installAttemptsLimit": 1 }),
        json!({ "inventory": listed, "annotations": once }),
        json!({}),
    ] {
        assert_eq!(of(spec), [""; 0]);
    }
}

#[test]
fn more_attempts_than_the_status_can_hold_are_as_many_as_it_holds() {
    let mut seen = full(1, &["a"]);
    seen.pool.attempts = Some(u32::MAX);
    assert_eq!(entry(&seen, "a").attempts, Some(i32::MAX));
}

#[test]
fn a_success_gives_all_attempts_back() {
    let mut seen = full(1, &["a"]);
    seen.clusters[0] = failed("ca", Some("a"));
    let mut seen = stored(&seen);
    seen.clusters[0] = cluster("ca2", Some("a"), 1);
    seen.customizations[0].lease = lease("ca2");
    assert_eq!(entry(&seen, "a").attempts, Some(3));
}

#[test]
fn a_cluster_that_was_installed_once_costs_no_attempt() {
    let mut seen = full(1, &["a"]);
    seen.clusters[0].stopped = Some("later".to_owned());
    assert_eq!(entry(&seen, "a").attempts, Some(3));
    assert_eq!(deleted(&seen), ["ca"]);
}

#[test]
fn a_broken_cluster_that_goes_without_costing_an_attempt_is_told_as_long_as_it_goes() {
    let mut seen = stored(&full(1, &["a"]));
    seen.clusters[0].stopped = Some("later".to_owned());
    let told = |seen: &Observed| {
        let events = decided(seen).events.into_iter();
        events.map(|it| (it.reason.into_owned(), it.action)).collect::<Vec<_>>()
    };
    let one = [("ClusterBroken".to_owned(), "ca".to_owned())];
    assert_eq!(told(&seen), one);
    seen.clusters[0].deleting = true;
    assert_eq!(told(&seen), one);
    // Nobody takes a claimed one away.
    seen.clusters[0].deleting = false;
    seen.clusters[0].claim = Some("someone".to_owned());
    assert!(told(&seen).is_empty());
}

#[test]
fn each_failed_cluster_has_an_event_of_its_own_with_the_attempts_that_are_left_after_it() {
    let mut seen = full(1, &["a"]);
    for (name, left) in [("c1", "2 attempts"), ("c2", "1 attempts"), ("c3", "0 attempts")] {
        seen.clusters[0] = failed(name, Some("a"));
        seen.customizations[0].lease = lease(name);
        let events = decided(&seen).events;
        let found = events.iter().find(|it| it.reason == "ProvisionStopped").unwrap();
        assert_eq!(found.action, name);
        assert!(found.text.contains(left), "{}", found.text);
        seen = stored(&seen);
    }
}

//! What is told or made good where somebody else refused or took away what a cluster needs.

use clusterpool_inventory::decision::Step;
use clusterpool_inventory::reason::Reason;
use clusterpool_inventory::seen::{Claim, Observed, Refusal};

use crate::world::{
    at, claim, cluster, condition, decided, entry, full, installing, lease, leased, pool, reasons,
    status_of, stored,
};

/// A pool with a cluster that Hive does not begin to install.
fn idle() -> Observed {
    let mut seen = full(1, &["a"]);
    seen.clusters[0] = installing("ca", Some("a"), 1);
    seen.clusters[0].idle = true;
    seen
}

/// The clusters that are looked after.
fn restored(seen: &Observed) -> Vec<String> {
    let work = decided(seen).work;
    let steps = work.into_iter().flat_map(|it| it.steps);
    let all = steps.filter_map(|it| match it {
        Step::Restore { cluster, entry } => {
            assert_eq!(entry.unwrap().version, "1-u");
            Some(cluster)
        }
        _ => None,
    });
    all.collect()
}

#[test]
fn what_a_cluster_needs_is_made_again_where_hive_does_not_begin() {
    let mut seen = idle();
    assert_eq!(restored(&seen), ["ca"]);
    assert_eq!(reasons(&seen), [Reason::PartsChecked]);
    seen.clusters[0].idle = false;
    assert_eq!(reasons(&seen), []);
}

#[test]
fn nothing_is_made_again_from_what_a_cluster_was_not_made_from() {
    let changes: [fn(&mut Observed); 6] = [
        |it| it.customizations[0].version = "2-u".to_owned(),
        |it| it.customizations[0].refused = Some("no".to_owned()),
        |it| it.customizations.clear(),
        |it| it.pool.version.own = "w".to_owned(),
        |it| it.missing.push("the template".to_owned()),
        |it| it.pool.deleting = true,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut seen = idle();
        change(&mut seen);
        assert_eq!(restored(&seen), [""; 0], "{number}");
    }
}

#[test]
fn a_cluster_that_hive_does_not_begin_with_is_told_in_its_words() {
    let mut seen = idle();
    let told = |seen: &Observed| condition(seen, "CapacityAvailable").message;
    assert!(!told(&seen).contains("Hive"));
    let words = "InstallConfigValidationFailed: no platform".to_owned();
    seen.clusters[0].not_begun = Some(words);
    seen.clusters.push(installing("cb", None, 2));
    seen.clusters[1].not_begun = Some(String::new());
    let end = "stay so: ca (InstallConfigValidationFailed: no platform), cb";
    assert!(told(&seen).ends_with(end), "{}", told(&seen));
    // Looked after, it is told all the same, and told once.
    seen.clusters[0].idle = false;
    let mut seen = stored(&seen);
    assert!(told(&seen).ends_with(end) && decided(&seen).status.is_none());
    seen.clusters[0].not_begun = Some("x".repeat(100_000));
    assert!(told(&seen).len() < 2_000);
}

fn refusal(version: &str) -> Refusal {
    Refusal { version: version.to_owned(), why: "exceeded quota".to_owned() }
}

#[test]
fn who_refuses_a_cluster_is_told_on_its_entry_until_the_cluster_is_there() {
    let mut seen = pool(1, &["a"]);
    seen.customizations[0].lease = lease("ca");
    let refused = |seen: &Observed| {
        entry(seen, "a").last_failure.map(|it| (it.reason.unwrap(), it.message.unwrap()))
    };
    assert_eq!(refused(&seen), None);
    seen.turned_down.insert("a".to_owned(), refusal("1-u"));
    let told = Some(("Refused".to_owned(), "exceeded quota".to_owned()));
    assert_eq!(refused(&seen), told);
    assert_eq!(entry(&seen, "a").attempts, Some(3));
    let mut seen = stored(&seen);
    assert_eq!(decided(&seen).status, None, "it is told once");
    // Another process, which has not tried yet.
    seen.turned_down.clear();
    assert_eq!(refused(&seen), told);
    seen.clusters.push(installing("ca", Some("a"), 1));
    assert_eq!(refused(&seen), None);
}

#[test]
fn an_entry_whose_lease_is_refused_stays_available_and_says_why() {
    let mut seen = pool(1, &["a"]);
    seen.turned_down.insert("a".to_owned(), refusal("1-u"));
    assert_eq!(status_of(&seen, "a"), "Available");
    assert_eq!(entry(&seen, "a").last_failure.unwrap().reason.as_deref(), Some("Refused"));
    // It was said of the entry as it was.
    seen.customizations[0].version = "2-u".to_owned();
    assert_eq!(entry(&seen, "a").last_failure, None);
}

/// The refusal may be for what the entry alone says, such as its labels, which its copy carries.
#[test]
fn an_entry_whose_cluster_is_refused_gives_way_to_one_that_was_not_tried() {
    let mut seen = pool(1, &["a", "b"]);
    seen.customizations[0].lease = lease("pool-x");
    seen.turned_down.insert("a".to_owned(), refusal("1-u"));
    assert_eq!(reasons(&seen), [Reason::LeaseAbandoned, Reason::Added]);
    assert_eq!(leased(&seen), ["b"]);
    // Neither is better, so that what was begun goes on.
    seen.turned_down.insert("b".to_owned(), refusal("1-u"));
    assert_eq!(reasons(&seen), [Reason::RolledForward]);
    // Nor where it was said of the entry as it was.
    seen.turned_down = [("a".to_owned(), refusal("0-u"))].into();
    assert_eq!(reasons(&seen), [Reason::RolledForward]);
    seen.turned_down = [("a".to_owned(), refusal("1-u"))].into();
    seen.customizations[1].refused = Some("no".to_owned());
    assert_eq!(reasons(&seen), [Reason::RolledForward]);
}

#[test]
fn a_cluster_is_given_away_with_a_last_look_at_its_claim() {
    let mut seen = full(0, &["a"]);
    seen.claims.push(claim("x", 1));
    let confirms = |seen: &Observed| {
        let work = decided(seen).work;
        matches!(&work[0].steps.last(), Some(Step::Confirm { cluster, claim }) if claim == "x" && cluster == "ca")
    };
    assert!(confirms(&seen));
    seen.claims[0] = Claim { cluster: Some("ca".to_owned()), ..claim("x", 1) };
    assert!(confirms(&seen));
}

#[test]
fn a_cluster_of_a_claim_that_is_not_there_stays_and_is_told() {
    let mut seen = full(1, &["a", "b"]);
    seen.clusters[0].claim = Some("x".to_owned());
    let told = |seen: &Observed| {
        condition(seen, "CapacityAvailable").message.ends_with("have another cluster: ca")
    };
    assert!(told(&seen) && reasons(&seen).is_empty());
    seen.pool.max_size = Some(2);
    assert!(told(&seen));
    seen.claims.push(Claim { cluster: Some("ca".to_owned()), ..claim("x", 1) });
    assert!(!told(&seen));
    seen.claims[0].cluster = Some("another".to_owned());
    assert!(told(&seen));
    // Another one of its name, which came later.
    seen.clusters[0].claimed = Some(at(5));
    seen.claims[0] = claim("x", 6);
    assert!(told(&seen));
    seen.claims[0] = claim("x", 5);
    assert!(!told(&seen));
    (seen.clusters[0], seen.claims) = (cluster("ca", Some("a"), 1), Vec::new());
    assert!(!told(&seen));
}

//! The controller's own `decide` and index in a small world of which every state is visited.

use std::time::Duration;

use bench::model::Bounds;
use models::capm3_reuse::{alone, world};

/// What comes about only after a machine is gone: further off than a bounded look goes.
const LATE: [&str; 2] = [
    "a host comes back to a machine of its owner",
    "a host is kept and ready while a machine of another owner looks for one",
];

#[test]
fn every_rule_holds_in_every_state_of_a_small_world() {
    // One machine and one host, without and with a person who meddles.
    for (mischief, fewest) in [(0, 9_000), (1, 50_000)] {
        let world = world(&[0], 1, mischief);
        let report = (world.explore)(Bounds::default());
        println!("{}: {report}", world.name);
        assert!(report.passed(), "{report}");
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > fewest, "{report}");
    }
}

#[test]
fn no_rule_is_broken_near_the_beginning_of_a_larger_world() {
    // Two machines do not end in the time of a test: what is left unvisited is for the large worlds.
    for owner_of in [[0, 0], [0, 1]] {
        let world = world(&owner_of, 1, 0);
        let bounds = Bounds { time: Duration::from_secs(5), ..Bounds::default() };
        let report = (world.explore)(bounds);
        println!("{}: {report}", world.name);
        let broken: Vec<&str> = report.failures.iter().map(|it| it.rule.as_str()).collect();
        let unseen = |rule: &&&str| !rule.ends_with("(it never comes about)");
        assert_eq!(broken.iter().filter(unseen).count(), 0, "{report}");
    }
}

#[test]
fn every_rule_holds_in_every_state_where_machines_or_hosts_are_two() {
    let worlds = [
        // For one host: of one owner, which it is kept for, and of two, of which only one may have it then.
        alone(&[0, 0], 1, 0),
        alone(&[0, 1], 1, 0),
        // And where a machine could get two: two processes that choose at the same time, and a person who takes the first.
        world(&[0], 2, 0),
        alone(&[0], 2, 1),
    ];
    for world in worlds {
        let bounds = Bounds { time: Duration::from_secs(40), ..Bounds::default() };
        let report = (world.explore)(bounds);
        println!("{}: {report}", world.name);
        assert!(report.complete, "{}: {report}", world.name);
        assert!(report.passed(), "{}: {report}", world.name);
    }
}

#[test]
fn no_rule_is_broken_while_two_machines_come_to_two_hosts() {
    for owner_of in [[0, 0], [0, 1]] {
        let world = alone(&owner_of, 2, 0);
        let bounds = Bounds { states: 60_000, time: Duration::from_secs(3), ..Bounds::default() };
        let report = (world.explore)(bounds);
        println!("{}: {report}", world.name);
        let is_late = |rule: &str| LATE.iter().any(|late| rule.starts_with(*late));
        let broken = report.failures.iter().filter(|it| !is_late(&it.rule)).count();
        assert_eq!(broken, 0, "{}: {report}", world.name);
    }
}

//! The controller's own `decide` and index in a small world of which every state is visited.

use std::time::Duration;

use bench::model::Bounds;
use models::capm3_reuse::world;

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

//! The rules that ship, in a small world of which every state is visited: stops between any two writes, people who
//! withdraw, delete, take away and pause at any moment, a workload cluster that goes away, a second replica.

use std::time::Duration;

use bench::model::Bounds;

#[test]
fn the_rules_hold_and_nothing_is_left_in_every_state_of_a_small_world() {
    for world in models::remediation::small() {
        let bounds = Bounds { time: Duration::from_secs(60), ..Bounds::default() };
        let report = (world.explore)(bounds);
        println!("{}: {report}", world.name);
        assert!(report.failures.is_empty(), "{}: {report}", world.name);
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > 1_000, "{}: {report}", world.name);
    }
}

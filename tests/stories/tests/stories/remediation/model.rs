//! The rules that ship, in a small world of which every state is visited: stops between any two writes, people who
//! withdraw, delete, take away and pause at any moment, a workload cluster that goes away, a node that is deleted, and as
//! far as there is time a second replica.

use std::time::Duration;

use bench::model::{Bounds, Report};
use models::World;

fn look(world: &World, bounds: Bounds) -> Report {
    let report = (world.explore)(bounds);
    println!("{}: {report}", world.name);
    assert!(report.failures.is_empty(), "{}: {report}", world.name);
    // Fewer would mean that the world has lost a dimension.
    assert!(report.states > 1_000, "{}: {report}", world.name);
    report
}

#[test]
fn the_rules_hold_and_nothing_is_left_in_every_state_of_a_small_world() {
    for world in models::remediation::small() {
        let report = look(&world, Bounds::default());
        assert!(report.complete, "not every state was visited: {}: {report}", world.name);
    }
    for world in models::remediation::beside() {
        look(&world, Bounds { time: Duration::from_secs(60), ..Bounds::default() });
    }
}

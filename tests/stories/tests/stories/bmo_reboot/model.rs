//! The rules that ship, in a small world of which every state is visited: stops between any two steps, answers that are
//! lost, a machine that refuses, clients that come and go, a second replica.

use bench::model::Bounds;

#[test]
fn the_rules_hold_and_power_returns_in_every_state_of_a_small_world() {
    for world in models::bmo_reboot::small() {
        let report = (world.explore)(Bounds::default());
        println!("{}: {report}", world.name);
        assert!(report.failures.is_empty(), "{}: {report}", world.name);
        // What is not visited proves nothing.
        assert!(report.complete, "{}: {report}", world.name);
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > 5_000, "{}: {report}", world.name);
    }
}

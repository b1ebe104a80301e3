//! The rules that ship, in small worlds of which every state is visited.

use bench::model::Bounds;

#[test]
fn a_machine_has_one_host_and_none_is_forgotten_in_every_state_of_a_small_world() {
    for world in models::host_discovery::small() {
        let report = (world.explore)(Bounds::default());
        println!("{}: {report}", world.name);
        assert!(report.passed(), "{}: {report}", world.name);
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > 100, "{}: {report}", world.name);
    }
}

//! The lease protocol, as the controller's own `decide` plays it, in small worlds of which every state is visited.

use bench::model::Bounds;
use models::clusterpool_inventory::world;

#[test]
fn every_rule_holds_in_every_state_of_small_worlds() {
    // Two pools and two replicas that share an entry; one pool whose cluster or pool somebody deletes.
    for (pools, disturbances, fewest) in [(2, 0, 1_000), (1, 1, 1_000)] {
        let world = world(pools, 1, 1, disturbances);
        let report = (world.explore)(Bounds::default());
        println!("{}: {report}", world.name);
        assert!(report.passed(), "{report}");
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > fewest, "{report}");
    }
}

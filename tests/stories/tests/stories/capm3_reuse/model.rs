//! The controller's own `decide` and index in a small world of which every state is visited.

use bench::model::Bounds;
use models::capm3_reuse::world;

#[test]
fn every_rule_holds_in_every_state_of_a_small_world() {
    // One machine and one host, without and with a person who meddles; larger worlds take minutes.
    for (owner_of, hosts, mischief, fewest) in [
        (&[0][..], 1, 0, 100),
        (&[0][..], 1, 1, 100),
        (&[0][..], 2, 0, 100),
        (&[0, 0][..], 1, 0, 100),
    ] {
        let world = world(owner_of, hosts, mischief);
        let report = (world.explore)(Bounds::default());
        println!("{}: {report}", world.name);
        assert!(report.passed(), "{report}");
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > fewest, "{report}");
    }
}

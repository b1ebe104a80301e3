//! The controller's own `decide` and index in a small world of which every state is visited.

use bench::model::Bounds;
use models::capm3_reuse::world;

#[test]
fn every_rule_holds_in_every_state_of_a_small_world() {
    // Two machines of one owner for one host, two for two, and machines of two owners for one host.
    for (owner_of, hosts, mischief, fewest) in
        [(&[0, 0][..], 1, 1, 10_000), (&[0][..], 2, 1, 10_000), (&[0, 1][..], 1, 1, 10_000)]
    {
        let world = world(owner_of, hosts, mischief);
        let report = (world.explore)(Bounds::default());
        println!("{}: {report}", world.name);
        assert!(report.passed(), "{report}");
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > fewest, "{report}");
    }
}

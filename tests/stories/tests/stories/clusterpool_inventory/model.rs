//! The lease protocol, as the controller's own `decide` plays it, in small worlds of which every state is visited.

use bench::model::Bounds;
use models::clusterpool_inventory::{Size, world};

/// Two pools that share an entry, and two replicas.
const SHARED: Size = Size { replicas: 2, pools: 2, entries: 1, releases: 1, disturbances: 0 };

#[test]
fn every_rule_holds_in_every_state_of_small_worlds() {
    // Nobody disturbs; one pool whose cluster or pool somebody deletes, or whose entry somebody edits; two pools that have
    // their entry one after the other, with one process.
    let alone = Size { pools: 1, releases: 2, disturbances: 1, ..SHARED };
    let in_turn = Size { replicas: 1, releases: 2, disturbances: 1, ..SHARED };
    for (size, fewest) in [(SHARED, 1_000), (alone, 50_000), (in_turn, 1_000)] {
        let world = world(size);
        let report = (world.explore)(Bounds::default());
        println!("{}: {report}", world.name);
        assert!(report.passed(), "{report}");
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > fewest, "{report}");
    }
}

#[test]
fn an_entry_goes_from_pool_to_pool_and_no_rule_is_broken_near_the_beginning_of_larger_worlds() {
    // Not to their end: 20,000 states are followed for what is within reach, sixty times as many steps for the rules.
    let handed_on = Size { releases: 2, disturbances: 1, ..SHARED };
    let two_entries = Size { replicas: 1, entries: 2, ..handed_on };
    for size in [handed_on, two_entries] {
        let world = world(size);
        let report = (world.explore)(Bounds { states: 20_000, ..Bounds::default() });
        println!("{}: {report}", world.name);
        assert!(report.failures.is_empty(), "{report}");
        assert!(report.states > 2_000, "{report}");
    }
}

#[test]
fn no_rule_is_broken_near_the_beginning_where_two_processes_have_two_entries_to_choose_from() {
    let shared = Size { entries: 2, ..SHARED };
    let alone = Size { pools: 1, releases: 2, disturbances: 1, ..shared };
    for size in [shared, alone] {
        let world = world(size);
        let report = (world.explore)(Bounds { states: 20_000, ..Bounds::default() });
        println!("{}: {report}", world.name);
        // What lies beyond the bound may not come about before it.
        let broken =
            report.failures.iter().filter(|it| !it.rule.ends_with("(it never comes about)"));
        assert_eq!(broken.count(), 0, "{report}");
        assert!(report.states > 2_000, "{report}");
    }
}

//! The sample's own `decide` in a small world of which every state is visited: the right one keeps its rules, a wrong one
//! is found with the way to where it goes wrong.

use bench::model::{Bounds, Report};
use models::sample::world;
use sample::settings::Flaw;

fn explored(flaw: Flaw, guests: u8, seats: u8) -> Report {
    let world = world(flaw, guests, seats);
    let report = (world.explore)(Bounds::default());
    println!("{}: {report}", world.name);
    report
}

#[test]
fn the_right_sample_keeps_its_rules_in_every_state() {
    for (guests, seats) in [(2, 1), (2, 2)] {
        let report = explored(Flaw::None, guests, seats);
        assert!(report.passed(), "{report}");
        // Fewer would mean that the world has lost a dimension.
        assert!(report.states > 5_000, "{report}");
    }
}

#[test]
fn a_claim_without_precondition_is_found_with_the_way_there() {
    let text = explored(Flaw::ClaimWithoutPrecondition, 2, 1).to_string();
    assert!(text.contains("broken: a guest's seat is its own"), "{text}");
    let last = text.lines().find(|line| line.contains("holder g") && line.contains("writes"));
    assert!(last.is_some_and(|line| line.contains("replica-") && line.ends_with("done")), "{text}");
}

#[test]
fn what_is_known_to_the_process_only_is_found_with_the_way_there() {
    let text = explored(Flaw::ForgetsAfterCrash, 1, 2).to_string();
    assert!(text.contains("broken: a guest holds at most one seat"), "{text}");
    assert!(text.contains("writes"), "{text}");
}

/// The queue and the slots of the kit's engine, with a key that hangs beside others.
#[test]
fn no_key_of_the_engine_starves_is_doubled_or_lost() {
    let world = models::engine::world(2, 3);
    let report = (world.explore)(Bounds::default());
    println!("{}: {report}", world.name);
    assert!(report.passed(), "{report}");
    assert!(report.states > 5_000, "{report}");
}

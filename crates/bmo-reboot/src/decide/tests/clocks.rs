//! Stamps of a clock that was ahead: `lastPoweredOn` is what a client goes by that must know that its processes are gone.

use super::*;

/// A year after [`now`].
const YEAR: i64 = 1_000_000 + 365 * 86_400;

fn is_told(done: &Decided) -> bool {
    done.events.iter().any(|event| event.warning && event.reason == "StampsCorrected")
}

#[test]
fn a_cycle_after_one_under_a_clock_that_was_ahead_is_stamped_with_the_time() {
    for key in [PLAIN, HOLD] {
        let asked =
            Host { pending: Some(at(YEAR - 9)), last: Some(at(YEAR)), ..with(&[(key, HARD)]) };
        let done = decided(&asked, &node(Power::On));
        assert_eq!((done.status.pending, done.call), (Some(at(1_000_001)), Some(Call::Off)));
        assert!(done.status.clear_stamps && is_told(&done), "{done:?}");
        let begun = after(asked, &done);
        assert!(begun.in_cycle());
        // What others read is what is in the fields.
        assert_eq!(begun.record().known().unwrap().power.last, None);
        // The request goes: the machine comes on with a stamp of the time.
        let off = Host { powered_on: false, requests: with(&[]).requests, ..begun };
        let done = decided_at(at(1_000_030), &off, &node(Power::Off));
        assert_eq!((done.status.last, done.call), (Some(at(1_000_030)), Some(Call::On)));
        assert!(!done.status.clear_stamps && !after(off, &done).in_cycle());
    }
}

#[test]
fn a_cycle_that_a_clock_which_was_ahead_began_ends_with_a_stamp_of_the_time() {
    for last in [None, Some(at(900_000)), Some(at(YEAR - 9))] {
        let begun = Host {
            pending: Some(at(YEAR)),
            last,
            ..cycling(&[(PLAIN, HARD)], Reason::HardPowerOff, true, 9)
        };
        let done = decided(&begun, &node(Power::On));
        assert_eq!((done.reason, done.next, done.call), (Reason::StampsCorrected, Next::Now, None));
        assert!(done.status.clear_stamps && is_told(&done), "{done:?}");
        let corrected = after(begun, &done);
        assert_eq!((corrected.pending, corrected.last), (Some(at(1_000_000)), None));
        // The cycle goes on where it was.
        assert_eq!(corrected.progress().unwrap().reason, Reason::HardPowerOff);
        let off = Host { powered_on: false, ..corrected };
        let done = decided_at(at(1_000_030), &off, &node(Power::Off));
        assert_eq!((done.status.last, done.call), (Some(at(1_000_030)), Some(Call::On)));
    }
}

#[test]
fn a_power_on_without_a_request_does_not_repeat_the_stamps_of_a_clock_that_was_ahead() {
    let mut off =
        Host { pending: Some(at(YEAR - 9)), last: Some(at(YEAR)), powered_on: false, ..host() };
    progress(&mut off, Reason::Offline, false, 9);
    let done = decided(&off, &node(Power::Off));
    assert_eq!((done.status.last, done.call), (Some(at(1_000_000)), Some(Call::On)));
    assert!(done.status.clear_stamps && is_told(&done), "{done:?}");
    let on = after(off, &done);
    assert!(!on.in_cycle() && on.pending.is_none(), "nobody asked for a reboot");
}

#[test]
fn stamps_of_clocks_that_differ_by_less_than_a_minute_only_grow() {
    let asked = Host { last: Some(at(1_000_060)), ..with(&[(PLAIN, HARD)]) };
    let done = decided(&asked, &node(Power::On));
    assert_eq!(done.status.pending, Some(at(1_000_061)));
    assert!(!done.status.clear_stamps && !is_told(&done));
}

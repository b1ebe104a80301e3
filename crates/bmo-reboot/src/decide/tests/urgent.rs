//! Who goes first, and who can wait.

use super::*;
use crate::record::Soft;

fn off(host: Host) -> Host {
    Host { powered_on: false, ..host }
}

#[test]
fn a_hard_request_is_urgent_until_its_power_is_being_cut() {
    let hard = &[(PLAIN, HARD)][..];
    let served = |key: &str| {
        let (reason, since) = (Reason::HoldUnsupported, at(5));
        let mut host = with(&[(HOLD, HARD)]);
        put(
            &mut host,
            &RebootProgress { served: KeySet::of([key]), ..RebootProgress::new(reason, since) },
        );
        host
    };
    let mut failed_reset = with(hard);
    progress(&mut failed_reset, Reason::PowerFailed, true, 5);
    for (number, (host, urgent)) in [
        (with(hard), true),
        (with(&[(PLAIN, "")]), false),
        (with(&[(PLAIN, ""), (HOLD, HARD)]), true),
        // What its status says may be old.
        (off(with(hard)), true),
        (cycling(hard, Reason::RequestAccepted, false, 5), true),
        (cycling(hard, Reason::SoftPowerOff, false, 5), true),
        (cycling(hard, Reason::HardPowerOff, true, 5), false),
        (cycling(hard, Reason::PowerFailed, true, 5), false),
        (off(cycling(hard, Reason::HeldOff, true, 5)), false),
        // Somebody woke it.
        (cycling(hard, Reason::HeldOff, true, 5), true),
        // That was another request.
        (failed_reset, true),
        (served(HOLD), false),
        (served("reboot.metal3.io/b"), true),
        (Host { selected: false, ..with(hard) }, false),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(host.is_urgent(&Policy::default()), urgent, "{number}: {host:?}");
    }
}

#[test]
fn only_a_soft_request_that_has_not_begun_waits_for_room() {
    let soft = &[(PLAIN, "")][..];
    let mut begun = cycling(soft, Reason::RequestAccepted, false, 5);
    let told = begun.progress().unwrap();
    let attempt = Some(Soft { since: at(5), last: at(5) });
    put(&mut begun, &RebootProgress { soft: attempt, ..told });
    for (number, (host, waits)) in [
        (cycling(soft, Reason::RequestAccepted, false, 5), true),
        (cycling(&[(PLAIN, ""), (HOLD, HARD)], Reason::RequestAccepted, false, 5), false),
        (cycling(soft, Reason::RequestAccepted, true, 5), false),
        (cycling(soft, Reason::SoftPowerOff, false, 5), false),
        (with(soft), false),
        (begun, false),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(host.waits_for_room(), waits, "{number}: {host:?}");
    }
    // That is what a host without room writes.
    let asked = Observed { soft_free: false, ..observed(&with(soft), &node(Power::On)) };
    let done: Decided = decide(&asked, &Policy::default(), now()).into();
    let mut waiting = Host { pending: done.status.pending, ..with(soft) };
    write(&mut waiting, &done.status);
    assert!(waiting.waits_for_room() && matches!(done.next, Next::After(wait) if wait != PACE));
    // And is counted as one that waits.
    let later = Observed { soft_free: false, ..observed(&waiting, &NodeSeen::NotAsked) };
    assert_eq!(decide(&later, &Policy::default(), now()).reason, Reason::RequestAccepted);
}

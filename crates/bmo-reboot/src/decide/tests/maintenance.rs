//! What Ironic's word is worth while it does not look at a machine.

use super::*;

const OTHER: &str = "reboot.metal3.io/b";

/// The node is in maintenance, and shows its machine off since long ago.
fn unseen() -> NodeSeen {
    change(node(Power::Off), |node| (node.maintenance, node.off_proof) = (true, OffProof::None))
}

/// The maintenance is over, and Ironic shows what it did.
fn not_looked_at() -> NodeSeen {
    change(unseen(), |node| node.maintenance = false)
}

/// The same after Ironic has taken an off.
fn looked_at() -> NodeSeen {
    change(unseen(), |node| node.off_proof = OffProof::Twice)
}

fn holds(keys: &[&str]) -> Requests {
    Requests::of(keys.iter().map(|key| (*key, HARD)))
}

/// Out of use, as its status says, and then held.
fn parked(keys: &[&str]) -> Host {
    let mut host = Host { online: false, powered_on: false, ..host() };
    progress(&mut host, Reason::Offline, false, 500);
    Host { requests: holds(keys), ..host }
}

/// Held off before the maintenance.
fn held(keys: &[&str]) -> Host {
    let mut host = cycling(&[], Reason::HardPowerOff, true, 500);
    host.requests = holds(keys);
    let host = after(host.clone(), &decided(&host, &node(Power::Off)));
    assert_eq!(host.progress().map(|it| it.reason), Some(Reason::HeldOff));
    host
}

/// Held off in the middle of it, after Ironic was asked for that.
fn held_within(keys: &[&str]) -> Host {
    let host = held(keys);
    let host = after(host.clone(), &decided(&host, &looked_at()));
    assert!(host.progress().unwrap().was_asked_for(keys), "{:?}", host.progress());
    host
}

#[test]
fn a_hold_of_a_machine_in_maintenance_is_carried_out_and_not_believed() {
    for (mode, call) in [(HARD, Call::Off), ("", Call::SoftOff(seconds(60)))] {
        let mut host = parked(&[]);
        host.requests = Requests::of([(HOLD, mode)].into_iter());
        // Whoever set that hold does not find the host shown off.
        let done = decided(&host, &unseen());
        assert_eq!((done.status.powered_on, done.call, done.next), (Some(true), None, Next::Now));
        let host = after(host, &done);
        let off_since = |second| change(unseen(), |node| node.off_for = Some(since(second)));
        assert_eq!(decided(&host, &off_since(999_999)).next, Next::After(OFF_CONFIRM_DELAY));
        let done = decided(&host, &unseen());
        assert_eq!((done.call, done.status.is_empty()), (Some(call), true), "{mode:?}");
        let taken = (call, &Answer::Accepted);
        let settled = settle(&host, &unseen(), taken, &Policy::default(), now());
        assert!(settled.status.is_empty(), "{settled:?}");
        let on_its_way = change(heading(Power::Off, Power::Off), |node| node.maintenance = true);
        let waits = decided(&host, &on_its_way);
        assert!(waits.status.is_empty() && waits.call.is_none(), "{waits:?}");
        let done = decided(&host, &looked_at());
        assert_eq!(reason_written(&done), Some(Reason::HeldOff), "{mode:?}");
        assert_eq!((done.status.powered_on, done.call), (Some(false), None));
        // Also for the next process: one call, not one for each look.
        let host = after(host, &done);
        for seen in [unseen(), looked_at()] {
            let rest = decided(&host, &seen);
            assert!(rest.status.is_empty() && rest.call.is_none(), "{rest:?}");
            assert_eq!(rest.next, Next::OnChange);
        }
    }
}

#[test]
fn an_off_in_maintenance_that_failed_is_not_believed() {
    let host = cycling(&[(HOLD, HARD)], Reason::HardPowerOff, true, 2);
    let failed = change(failed(Power::Off), |node| node.maintenance = true);
    let done = decided(&host, &failed);
    assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::PowerFailed)));
    let mut host = after(host, &done);
    progress(&mut host, Reason::PowerFailed, true, 30);
    let done = decided(&host, &failed);
    assert_eq!((done.call, done.status.powered_on), (Some(Call::Off), None));
}

#[test]
fn a_power_on_that_may_be_on_its_way_is_waited_for_before_a_machine_in_maintenance_is_asked_for_off()
 {
    let mut host = Host { last: Some(at(999_999)), ..parked(&[HOLD]) };
    progress(&mut host, Reason::PoweringOn, false, 1);
    let off_since = |second| change(unseen(), |node| node.off_for = Some(since(second)));
    let done = decided(&host, &off_since(999_990));
    assert_eq!((done.status.powered_on, done.reason), (Some(true), Reason::PoweringOn));
    let host = after(host, &done);
    let done = decided(&host, &off_since(999_971));
    assert_eq!((done.call, done.next), (None, Next::After(OFF_CONFIRM_DELAY)));
    assert_eq!(decided(&host, &off_since(999_970)).call, Some(Call::Off));
}

#[test]
fn who_was_held_off_before_the_maintenance_is_told_that_nobody_sees_it_and_left_alone() {
    for keys in [&[HOLD][..], &[HOLD, OTHER][..]] {
        let host = held(keys);
        let done = decided(&host, &unseen());
        assert_eq!((done.call, done.status.powered_on, done.next), (None, None, Next::OnChange));
        assert!(done.events.iter().any(|it| it.warning && told_reason(it) == Reason::PowerUnknown));
        let told = done.status.progress.clone().unwrap();
        assert_eq!((told.reason, told.held_since()), (Reason::PowerUnknown, Some(at(1_000_000))));
        let words = &done.status.told;
        assert!(told.hard && words.contains("maintenance"), "{words}");
        let host = after(host, &done);
        let done = decided(&host, &unseen());
        assert!(done.status.is_empty() && done.events.is_empty(), "told once: {done:?}");
        // One that lets go is no news for the other.
        let fewer = Host { requests: holds(&keys[..1]), ..host.clone() };
        let done = decided(&fewer, &unseen());
        assert_eq!((done.call, done.status.powered_on), (None, None), "{done:?}");
        // Power returns to whom nobody holds.
        let free = Host { requests: Requests::default(), ..host };
        assert_eq!(decided(&free, &unseen()).call, Some(Call::On));
    }
}

#[test]
fn after_the_maintenance_the_machine_is_asked_for_off_before_that_is_believed() {
    let host = held(&[HOLD]);
    let host = after(host.clone(), &decided(&host, &unseen()));
    // Ironic has not looked at it yet.
    let done = decided(&host, &not_looked_at());
    assert_eq!((done.call, done.status.is_empty()), (Some(Call::Off), true));
    // An Ironic that is busy or silent has not looked, and for whom the host was held off before is told nothing else.
    let busy = (Call::Off, &Answer::Busy("locked".to_owned()));
    let busy = settle(&host, &not_looked_at(), busy, &Policy::default(), now());
    let silence = NodeSeen::Unanswered { lasting: true, problem: "no connection".to_owned() };
    let silent = decided(&host, &silence);
    assert!(busy.status.is_empty() && silent.status.is_empty(), "{busy:?} {silent:?}");
    let done = decided(&host, &node(Power::Off));
    assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::HeldOff)));
    // Whom it has looked at in the middle of it says so no more.
    let host = held_within(&[HOLD]);
    let done = decided(&host, &node(Power::Off));
    assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::HeldOff)));
    assert!(!done.status.told.contains("maintenance"), "{}", done.status.told);
}

#[test]
fn another_hold_in_the_middle_of_a_maintenance_has_ironic_look_again_and_one_that_goes_has_not() {
    let before = held(&[HOLD]);
    let before = after(before.clone(), &decided(&before, &unseen()));
    for host in [before, held_within(&[HOLD])] {
        let host = Host { requests: holds(&[HOLD, OTHER]), ..host };
        let done = decided(&host, &unseen());
        assert_eq!((done.status.powered_on, done.call), (Some(true), None), "not for the new one");
        let host = after(host, &done);
        assert_eq!(decided(&host, &unseen()).call, Some(Call::Off));
    }
    let host = Host { requests: holds(&[OTHER]), ..held_within(&[HOLD, OTHER]) };
    let done = decided(&host, &unseen());
    assert_eq!(
        (done.call, done.status.powered_on, reason_written(&done)),
        (None, None, Some(Reason::HeldOff))
    );
    let rest = decided(&after(host, &done), &unseen());
    assert!(rest.status.is_empty() && rest.call.is_none(), "{rest:?}");
}

#[test]
fn more_holds_than_a_condition_names_are_told_apart_in_maintenance() {
    let keys: Vec<String> = (0..700).map(|n| format!("reboot.metal3.io/{n:03}")).collect();
    let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let host = held_within(&keys);
    let rest = decided(&host, &unseen());
    assert!(rest.status.is_empty() && rest.call.is_none(), "{rest:?}");
    keys[699] = "reboot.metal3.io/zzz";
    let host = Host { requests: holds(&keys), ..host };
    assert_eq!(decided(&host, &unseen()).status.powered_on, Some(true), "as many, and another");
}

#[test]
fn a_held_machine_in_maintenance_that_is_not_asked_for_off_is_told_so() {
    let stays: Make = |host| host.disable_power_off = true;
    let goes: Make = |host| (host.deleting, host.online) = (true, false);
    let policy = Policy { takeover: true, ..Policy::default() };
    for (number, make) in [stays, goes].into_iter().enumerate() {
        let mut host = Host { paused: Pause::ByUs, ..held(&[HOLD]) };
        make(&mut host);
        let done = decided_by(&policy, &host, &unseen());
        let gone = done.reason == Reason::HandedBack;
        assert_eq!((done.call, gone), (None, host.deleting), "{number}: {done:?}");
        assert!(gone || reason_written(&done) == Some(Reason::PowerUnknown), "{number}: {done:?}");
    }
    let mut host = parked(&[HOLD]);
    (host.disable_power_off, host.online) = (true, true);
    let done = decided(&host, &unseen());
    assert_eq!((done.status.powered_on, done.call), (Some(true), None));
    let host = after(host, &done);
    let done = decided(&host, &unseen());
    assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::PowerUnknown)));
    let rest = decided(&after(host, &done), &unseen());
    assert!(rest.status.is_empty() && rest.events.is_empty(), "told once: {rest:?}");
}

#[test]
fn a_host_out_of_use_that_is_held_in_maintenance_goes_back_to_the_operator() {
    let policy = Policy { takeover: true, ..Policy::default() };
    let host = Host { online: false, ..held(&[HOLD]) };
    let host = after(host.clone(), &decided(&host, &unseen()));
    let wanted = Host { paused: Pause::ByUs, needs_operator: true, ..host };
    assert_eq!(decided_by(&policy, &wanted, &unseen()).reason, Reason::HandedBack);
}

#[test]
fn without_a_hold_maintenance_changes_nothing() {
    for host in [parked(&[]), Host { online: true, ..parked(&[]) }] {
        assert_eq!(decided(&host, &unseen()), decided(&host, &node(Power::Off)));
    }
    let on = change(node(Power::On), |node| node.maintenance = true);
    let asked = with(&[(HOLD, HARD)]);
    assert_eq!(decided(&asked, &on), decided(&asked, &node(Power::On)));
}

//! Machines that must not be switched off.

use super::*;

fn stays_on(keys: &[(&str, &str)]) -> Host {
    Host { disable_power_off: true, ..with(keys) }
}

/// After a reset that was asked for by these keys, which Ironic took.
fn reset_for(mut host: Host) -> Host {
    let begun = decided(&host, &node(Power::On));
    host.pending = begun.status.pending;
    host.conditions.push(begun.status.record.unwrap().condition(1));
    let call = (begun.call.unwrap(), &Answer::Accepted);
    let done = crate::settle::settle(&host, &node(Power::On), call, &Policy::default(), now());
    host.last = done.status.last;
    if done.annotations.contains_key(PLAIN) {
        host.requests = Requests::default();
    }
    host.conditions.pop();
    host.conditions.push(done.status.record.unwrap().condition(1));
    host
}

#[test]
fn a_hold_that_was_answered_by_a_reset_is_not_answered_again_because_online_is_false() {
    let by_node = change(node(Power::On), |node| node.disable_power_off = true);
    for (mut host, node) in
        [(stays_on(&[(HOLD, HARD)]), node(Power::On)), (with(&[(HOLD, HARD)]), by_node)]
    {
        host.disable_power_off = true;
        let mut host = reset_for(Host { online: false, ..host });
        host.disable_power_off = matches!(&node, NodeSeen::Seen(it) if !it.disable_power_off);
        for _ in 0..3 {
            let done = decided(&host, &node);
            assert_eq!((done.call, done.status.pending), (None, None), "{done:?}");
            if let Some(record) = done.status.record {
                host.conditions.pop();
                host.conditions.push(record.condition(1));
            }
        }
    }
}

#[test]
fn a_reset_that_failed_after_ironic_took_it_is_not_called_completed() {
    let mut host = reset_for(stays_on(&[(PLAIN, HARD)]));
    assert_eq!(host.record().unwrap().reason, Reason::PoweringOn);
    let done = decided(&host, &failed(Power::On));
    let record = done.status.record.clone().unwrap();
    assert_eq!((record.reason, done.call), (Reason::PowerFailed, None));
    assert!(done.status.trouble.unwrap().is_some());
    assert!(done.notes.iter().any(|note| note.warning && note.reason == Reason::PowerFailed));
    host.trouble.kind = Some(ErrorType::PowerManagement);
    host.conditions.pop();
    host.conditions.push(record.condition(1));
    let done = decided(&host, &failed(Power::On));
    assert!(done.status.is_empty() && done.call.is_none(), "told once, and reset once: {done:?}");
    host.requests = Requests::of([(PLAIN, HARD)].into_iter());
    assert_eq!(decided(&host, &failed(Power::On)).call, Some(Call::Reset), "asked again");
}

#[test]
fn thousands_of_holds_that_cannot_be_given_fit_into_a_condition_and_are_answered_once() {
    let keys: Vec<String> = (0..3_000).map(|n| format!("reboot.metal3.io/client-{n:05}")).collect();
    let asked: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "")).collect();
    let host = reset_for(stays_on(&asked));
    let record = host.record().unwrap();
    assert!(record.message.len() < 32_768, "{}", record.message.len());
    assert!(keys.iter().all(|key| record.has_served(key)));
    assert_eq!(decided(&host, &node(Power::On)).call, None);
    let new = Requests::of(asked.into_iter().chain([("reboot.metal3.io/a", "")]));
    let done = decided(&Host { requests: new, ..host }, &node(Power::On));
    assert!(done.status.pending.is_some(), "somebody else asks");
}

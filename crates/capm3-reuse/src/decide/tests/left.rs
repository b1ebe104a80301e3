//! A host that is still a machine's that is no more.

use super::*;
use crate::reservation::as_pending;

fn left(state: &str, verdict: Option<&Owner>) -> LeftSeen {
    let pending = as_pending(verdict, "ns");
    let notes =
        json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: pending}}});
    let host = with(&with(&host("h", state), &consumer("m", "m-uid")), &notes);
    LeftSeen { host, is_gone: true, of_others: false, paused: false }
}

fn told(seen: &LeftSeen) -> Decision {
    decide(&Observed::Left(Box::new(seen.clone())), &Policy::default(), now())
}

#[test]
fn a_host_whose_machine_is_gone_is_given_back_as_it_was_decided() {
    for (verdict, reason) in [(Some(owner()), Reason::Reserved), (None, Reason::Released)] {
        let decision = told(&left("available", verdict.as_ref()));
        assert_eq!((decision.reason, decision.news()), (reason, true));
        let [Write::Release { host, keep_for, uid, annotations }] = &decision.writes[..] else {
            panic!("{decision:?}")
        };
        assert_eq!((host.as_str(), keep_for, uid), ("h", &verdict, &None));
        assert_eq!(annotations[..], [names::ferrite::PENDING_RESERVATION.to_owned()]);
        assert!(decision.message().contains("Metal3Machine m, which is gone"));
    }
    let mut unwiped = left("available", None);
    unwiped.host.spec.automated_cleaning_mode = Some("disabled".to_owned());
    assert!(told(&unwiped).message().contains("its disks are not wiped"));
}

#[test]
fn a_host_whose_machine_is_gone_is_given_back_only_when_nothing_is_on_it() {
    for (state, reason) in [
        ("provisioned", Reason::Deprovisioning),
        ("deprovisioning", Reason::Deprovisioning),
        ("preparing", Reason::Deprovisioning),
        // It has lost its status, and its operator has not looked at it again.
        ("", Reason::Deprovisioning),
        ("registering", Reason::Deprovisioning),
        ("match profile", Reason::Deprovisioning),
        ("inspecting", Reason::Reserved),
        ("ready", Reason::Reserved),
    ] {
        let decision = told(&left(state, Some(&owner())));
        assert_eq!(decision.reason, reason, "{state}");
        assert_eq!(decision.writes.is_empty(), reason == Reason::Deprovisioning, "{state}");
    }
}

#[test]
fn nothing_is_given_back_in_place_of_a_machine_that_is_there_or_while_it_is_paused() {
    let at_rest = |seen: &LeftSeen| {
        let decision = told(seen);
        assert!(decision.writes.is_empty(), "{decision:?}");
        (decision.reason, decision.again().is_some())
    };
    let left = || left("available", Some(&owner()));
    assert_eq!(at_rest(&LeftSeen { is_gone: false, ..left() }), (Reason::Releasing, false));
    assert_eq!(at_rest(&LeftSeen { paused: true, ..left() }), (Reason::Paused, true));
    assert_eq!(at_rest(&LeftSeen { of_others: true, ..left() }), (Reason::NotOurs, false));
    for (patch, wanted) in [
        (json!({"metadata": {"annotations": {names::metal3::PAUSED: ""}}}), (Reason::Paused, true)),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            (Reason::Deprovisioning, false),
        ),
    ] {
        let seen = LeftSeen { host: with(&left().host, &patch), ..left() };
        assert_eq!(at_rest(&seen), wanted, "{patch}");
    }
}

/// Somebody took the finalizer away, and its image stays on: nobody else will ever say so.
#[test]
fn a_host_whose_machine_is_gone_without_a_verdict_is_told_and_not_written() {
    let image = json!({"spec": {"image": {"url": "http://a/b"}}});
    let undecided = with(&host("h", "provisioned"), &consumer("m", "m-uid"));
    // What stands beside an image was not written with it.
    let stale = left("provisioned", Some(&owner())).host;
    for host in [&undecided, &with(&undecided, &image), &with(&stale, &image)] {
        let seen = LeftSeen { host: host.clone(), is_gone: true, of_others: false, paused: false };
        let decision = told(&seen);
        assert_eq!((decision.reason, kinds(&decision)), (Reason::MachineMissing, vec![]));
        let [event] = &decision.events[..] else { panic!("{decision:?}") };
        assert!(event.warning && event.hourly.is_some(), "{event:?}");
        assert!(event.text.contains("Metal3Machine m, which does not exist"), "{event:?}");
        // It may be restored.
        assert_eq!(decision.again(), Some(RESYNC));
        let there = told(&LeftSeen { is_gone: false, ..seen });
        assert_eq!((there.reason, there.news()), (Reason::Releasing, false));
    }
}

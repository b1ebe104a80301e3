//! What is said of a request that cannot be carried out, and where.

use super::*;

fn unfit(external: Option<&str>) -> Observed {
    edit(fresh(), |seen| {
        seen.host.as_mut().unwrap().online = false;
        seen.machine.as_mut().unwrap().external = external.map(str::to_owned);
    })
}

fn complains(decision: &Decision) -> bool {
    decision.acts.iter().any(|it| matches!(it, Act::Complain(..)))
}

#[test]
fn a_machine_says_why_its_remediation_does_not_begin() {
    assert!(complains(&now(&unfit(Some("WaitingForRemediation")), 0)));
    assert!(!complains(&now(&unfit(Some("HostOffline")), 0)), "said already");
    assert!(!complains(&now(&unfit(None), 0)), "our own kind has a condition for it");
    let upstream = edit(unfit(None), |seen| {
        seen.request.group = Group::Upstream(api_types::ContractVersion::V1Beta2);
    });
    assert!(complains(&now(&upstream, 0)), "CAPM3's has none");
}

#[test]
fn a_machine_that_a_request_is_not_for_hears_nothing_of_it() {
    let other = edit(unfit(Some("WaitingForRemediation")), |seen| {
        seen.machine.as_mut().unwrap().cluster = "d".to_owned();
    });
    let decision = now(&other, 0);
    assert_eq!(decision.reason, Reason::MachineMismatch);
    assert!(!complains(&decision), "{decision:?}");
}

#[test]
fn the_complaint_is_taken_back_when_a_try_has_begun() {
    let complained = |external: &str| {
        let external = Some(external.to_owned());
        edit(asked(), |seen| seen.machine.as_mut().unwrap().external = external)
    };
    assert_eq!(now(&complained("HostOffline"), 5).acts, [Act::Await]);
    assert!(now(&complained("WaitingForRemediation"), 5).acts.is_empty());
}

#[test]
fn a_phase_never_goes_back_to_none() {
    let lost = edit(recovering(), |seen| {
        seen.host.as_mut().unwrap().ours = false;
        seen.request.finalizer = false;
    });
    let standing = said(&now(&lost, 30));
    assert_eq!((standing.phase.clone(), standing.step.clone()), (Some(Phase::Waiting), None));
    assert!(!standing.is_under_way() && !standing.has_succeeded());
}

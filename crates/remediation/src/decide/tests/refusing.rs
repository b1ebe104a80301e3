//! What is said of a request that cannot be carried out, and where.

use super::super::refused_at_first;
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
    type Spoil = fn(&mut Observed);
    let other = edit(unfit(Some("WaitingForRemediation")), |seen| {
        seen.machine.as_mut().unwrap().cluster = "d".to_owned();
    });
    let decision = now(&other, 0);
    assert_eq!(decision.reason, Reason::MachineMismatch);
    assert!(!complains(&decision), "{decision:?}");
    let spoilt: [Spoil; 2] = [
        |seen| {
            let missing = crate::request::Said::no(Reason::StrategyMissing, "missing");
            seen.request.strategy = Err(missing);
        },
        |seen| seen.cluster = ClusterSeen::Missing,
    ];
    for spoil in spoilt {
        let named_otherwise = edit(unfit(Some("WaitingForRemediation")), |seen| {
            spoil(seen);
            seen.request.name = "x".to_owned();
        });
        let decision = now(&named_otherwise, 0);
        assert!(matches!(decision.acts.as_slice(), [Act::Say(_)]), "{decision:?}");
    }
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

/// Of two requests for one Machine, of either group, what each says there; until neither has anything to say.
fn said_in_turn(mut both: [Observed; 2]) -> Vec<String> {
    let mut all = Vec::new();
    for turn in 0..12 {
        let seen = &mut both[turn % 2];
        seen.rival = true;
        for act in now(seen, 5).acts {
            let word = match act {
                Act::Say(standing) => {
                    both[turn % 2].request.standing = standing;
                    continue;
                }
                Act::Complain(reason, _) => reason.as_str(),
                Act::Await => "WaitingForRemediation",
                other => panic!("{other:?}"),
            };
            all.push(word.to_owned());
            for it in &mut both {
                it.machine.as_mut().unwrap().external = Some(word.to_owned());
            }
        }
    }
    all
}

#[test]
fn two_requests_for_one_machine_do_not_take_the_word_from_each_other() {
    let offline = edit(unfit(Some("WaitingForRemediation")), |seen| {
        seen.request.group = Group::Upstream(api_types::ContractVersion::V1Beta2);
    });
    let missing = edit(unfit(Some("WaitingForRemediation")), |seen| {
        let missing = crate::request::Said::no(Reason::StrategyMissing, "missing");
        seen.request.strategy = Err(missing);
    });
    assert_eq!(said_in_turn([offline.clone(), missing.clone()]), ["HostOffline"]);
    assert_eq!(said_in_turn([missing.clone(), offline]), ["StrategyMissing"]);
    let begun = edit(asked(), |seen| {
        seen.machine.as_mut().unwrap().external = Some("WaitingForRemediation".to_owned());
    });
    assert_eq!(said_in_turn([begun, missing.clone()]), ["StrategyMissing"], "one is under way");
    // Its own word each may correct.
    let told = edit(missing, |seen| {
        seen.rival = true;
        seen.request.standing = said(&now(seen, 0));
        seen.machine.as_mut().unwrap().external = Some("StrategyMissing".to_owned());
        seen.request.strategy = fresh().request.strategy;
    });
    let decision = now(&told, 5);
    assert!(decision.acts.contains(&Act::Complain(Reason::HostOffline, refusal(&decision))));
}

fn refusal(decision: &Decision) -> String {
    said(decision).said.unwrap().message
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

#[test]
fn a_request_that_cannot_be_carried_out_says_why_once() {
    type Spoil = fn(&mut Observed);
    let cases: [(Spoil, Reason); 11] = [
        (|seen| seen.host.as_mut().unwrap().provisioned = false, Reason::HostNotProvisioned),
        (|seen| seen.host.as_mut().unwrap().online = false, Reason::HostOffline),
        (|seen| seen.host.as_mut().unwrap().power_off_disabled = true, Reason::PowerOffDisabled),
        (|seen| seen.host.as_mut().unwrap().ours = false, Reason::HostNotClaimed),
        (
            |seen| seen.host.as_mut().unwrap().unmanaged = Some(Unmanaged::NoCredentials),
            Reason::HostUnmanaged,
        ),
        (|seen| seen.host = None, Reason::HostMissing),
        (|seen| seen.metal = None, Reason::HostUnknown),
        (|seen| seen.machine = None, Reason::MachineMissing),
        (|seen| seen.machine.as_mut().unwrap().cluster = "d".to_owned(), Reason::MachineMismatch),
        (|seen| seen.machine.as_mut().unwrap().skipped = true, Reason::Skipped),
        (|seen| seen.cluster = ClusterSeen::Missing, Reason::ClusterMissing),
    ];
    for (spoil, reason) in cases {
        let seen = edit(fresh(), spoil);
        let decision = now(&seen, 0);
        assert_eq!(decision.reason, reason);
        assert!(writes(&decision).is_empty() && decision.again.is_none(), "{decision:?}");
        let standing = said(&decision);
        assert_eq!(standing.said.as_ref().unwrap().reason, reason);
        let again = edit(seen, |seen| seen.request.standing = standing);
        assert!(now(&again, 1).acts.is_empty(), "said already");
        assert_eq!(again.request.standing.since, Some(at(0)), "people see since when");
    }
}

#[test]
fn a_request_whose_first_write_is_refused_says_so_once() {
    let told = |request: &Request| refused_at_first(request, "a webhook refuses it".to_owned());
    let Some(Act::Say(standing)) = told(&fresh().request) else { panic!("it says nothing") };
    let said = standing.said.clone().unwrap();
    assert_eq!((said.succeeded, said.reason), (None, Reason::Refused));
    assert_eq!((&standing.phase, &standing.step), (&None, &None), "no try has begun");
    let refused = edit(fresh(), |seen| seen.request.standing = standing);
    assert_eq!(told(&refused.request), None, "once");
    let next = now(&refused, 5);
    let next = now(&begun(refused, &next), 6);
    assert_eq!(super::said(&next).said.unwrap().reason, Reason::PowerOff, "{next:?}");
    assert_eq!(told(&asked().request), None, "it has a deadline, and says how far it is");
    let upstream = edit(fresh(), |seen| {
        seen.request.group = Group::Upstream(api_types::ContractVersion::V1Beta2);
    });
    assert_eq!(told(&upstream.request), None, "it would be taken for begun");
}

#[test]
fn a_request_says_why_it_is_refused_whatever_becomes_of_the_write_to_its_machine() {
    let decision = now(&unfit(Some("WaitingForRemediation")), 0);
    let [say, complain] = decision.acts.as_slice() else { panic!("{decision:?}") };
    assert!(matches!((say, complain), (Act::Say(_), Act::Complain(..))), "{decision:?}");
    let (say, complain) = (vec![say.clone()], vec![complain.clone()]);
    let parts: Vec<_> = decision.parts().into_iter().map(|it| (it.acts, it.notes.len())).collect();
    // What is said on the request is told then: the next pass takes it for said.
    assert_eq!(parts, [(say, 1), (complain, 0)]);
    let whole = now(&fresh(), 0);
    assert_eq!(whole.clone().parts(), [whole], "what cannot be told before all of it is done");
    assert!(now(&asked(), 5).parts().is_empty());
}

/// A host that was made anew under its name, or that another machine has by now; a `Metal3Machine` that is gone, or names no host.
#[test]
fn the_owner_of_a_machine_that_had_a_node_and_lost_its_host_to_others_is_told_in_time() {
    type Lose = fn(&mut Observed);
    let losses: [Lose; 3] = [
        |seen| seen.host.as_mut().unwrap().ours = false,
        |seen| {
            seen.metal.as_mut().unwrap().host = None;
            seen.host = None;
        },
        |seen| {
            seen.metal = None;
            seen.host = None;
        },
    ];
    for lose in losses {
        let lost = |change: Lose| {
            edit(fresh(), |seen| {
                lose(seen);
                change(seen);
                seen.request.standing = said(&now(seen, 0));
            })
        };
        let waits = now(&lost(|_| ()), 599);
        assert!(waits.acts.is_empty() && waits.again == Some(Duration::from_secs(1)), "{waits:?}");
        let told = now(&lost(|_| ()), 600);
        assert!(matches!(told.acts[0], Act::TellOwner(_)) && writes(&told).is_empty(), "{told:?}");
        assert_eq!(said(&told).phase, Some(Phase::DeletingMachine));
        // Objects that do not name each other yet wait; and nobody judges a machine that no health check calls unhealthy.
        let waiting: [Lose; 3] = [
            |seen| seen.machine.as_mut().unwrap().node = None,
            |seen| seen.machine.as_mut().unwrap().healthy = None,
            |seen| seen.machine.as_mut().unwrap().healthy = Some(true),
        ];
        for change in waiting {
            let decision = now(&lost(change), 6000);
            assert!(decision.acts.is_empty(), "{decision:?}");
        }
    }
    let of_another_provider = edit(fresh(), |seen| {
        (seen.metal, seen.host) = (None, None);
        seen.machine.as_mut().unwrap().metal = false;
        seen.request.standing = said(&now(seen, 0));
    });
    assert!(now(&of_another_provider, 6000).acts.is_empty(), "somebody asks for the wrong one");
}

/// A host that was scrapped: nobody can correct that.
#[test]
fn the_owner_of_a_machine_whose_host_is_gone_is_told_when_it_has_not_come_back_in_time() {
    let gone = edit(fresh(), |seen| {
        seen.host = None;
        seen.request.standing = said(&now(seen, 0));
    });
    let going = edit(fresh(), |seen| {
        seen.host.as_mut().unwrap().unmanaged = Some(Unmanaged::Deleting);
        seen.request.standing = said(&now(seen, 0));
    });
    for lost in [gone.clone(), going] {
        let waits = now(&lost, 599);
        assert!(waits.acts.is_empty() && waits.again == Some(Duration::from_secs(1)), "{waits:?}");
        let told = now(&lost, 600);
        assert!(matches!(told.acts[0], Act::TellOwner(_)), "{told:?}");
        assert_eq!(said(&told).phase, Some(Phase::DeletingMachine));
        let rests = edit(lost, |seen| {
            seen.request.standing = said(&told);
            seen.machine.as_mut().unwrap().told = true;
        });
        assert!(now(&rests, 601).acts.is_empty());
    }
    let patient = edit(gone.clone(), |seen| {
        seen.request.strategy = Ok(Strategy { retries: 0, timeout: Duration::from_secs(900) });
    });
    assert!(now(&patient, 899).acts.is_empty() && !now(&patient, 900).acts.is_empty());
    let by_hand = edit(gone.clone(), |seen| seen.machine.as_mut().unwrap().healthy = None);
    assert!(now(&by_hand, 6000).acts.is_empty(), "nobody says that the machine is unhealthy");
    let unowned = |control_plane: bool| {
        let seen = edit(gone.clone(), |seen| {
            let machine = seen.machine.as_mut().unwrap();
            (machine.owned, machine.control_plane) = (false, control_plane);
        });
        now(&seen, 600)
    };
    assert!(unowned(false).acts.contains(&Act::DeleteMachine));
    assert!(!unowned(true).acts.contains(&Act::DeleteMachine));
    assert_eq!(said(&unowned(true)).phase, Some(Phase::Failed));
}

//! A host that was installed only after somebody had asked for it.

use super::*;

/// Asked for at 0, while the host is being installed and the machine has no node.
fn installing() -> Observed {
    edit(fresh(), |seen| {
        seen.machine.as_mut().unwrap().node = None;
        seen.host.as_mut().unwrap().provisioned = false;
        seen.request.standing = said(&now(seen, 0));
    })
}

/// Installed at 100.
fn booting() -> Observed {
    edit(installing(), |seen| {
        seen.host.as_mut().unwrap().provisioned = true;
        seen.request.standing = said(&now(seen, 100));
    })
}

fn is_asked(decision: &Decision) -> bool {
    writes(decision).iter().any(|it| it.key == Some(true))
}

#[test]
fn a_host_that_is_installed_only_after_it_was_asked_for_has_one_full_time_to_boot() {
    let installed = edit(installing(), |seen| seen.host.as_mut().unwrap().provisioned = true);
    let first = now(&installed, 100);
    let [Act::Say(standing)] = first.acts.as_slice() else { panic!("{first:?}") };
    assert_eq!((first.reason, first.again), (Reason::HostBooting, Some(Duration::from_secs(600))));
    assert_eq!((&standing.phase, &standing.step, standing.since), (&None, &None, Some(at(100))));
    let message = &standing.said.as_ref().unwrap().message;
    assert!(message.contains(&format!("until {} its node is awaited", at(700))), "{message}");
    assert!(first.notes.iter().all(|it| !it.warning) && first.notes.len() == 1, "{first:?}");
    let waits = now(&booting(), 699);
    assert!(waits.acts.is_empty() && waits.again == Some(Duration::from_secs(1)), "{waits:?}");
    let begins = now(&booting(), 700);
    assert!(is_asked(&begins), "{begins:?}");
    // Where a node may take longer, it may do so here as well.
    let longer = edit(booting(), |seen| {
        seen.request.strategy = Ok(Strategy { retries: 1, timeout: Duration::from_secs(900) });
    });
    assert!(!is_asked(&now(&longer, 999)) && is_asked(&now(&longer, 1000)));
    let paused = edit(booting(), |seen| seen.resumed = Some(at(650)));
    assert!(!is_asked(&now(&paused, 700)), "nothing boots during a pause, as far as we know");
}

#[test]
fn what_has_come_up_when_its_first_boot_is_over_is_not_taken_away() {
    let named = edit(booting(), |seen| seen.machine.as_mut().unwrap().node = Some("n".to_owned()));
    assert!(!now(&named, 699).needs_node);
    let looks = now(&named, 700);
    assert!(looks.needs_node && looks.acts.is_empty(), "{looks:?}");
    let with = |node: NodeSeen| edit(named.clone(), |seen| seen.node = node);
    let ready = with(NodeSeen::Here(Node { ready: true, ..node() }));
    let ails = edit(ready.clone(), |seen| seen.machine.as_mut().unwrap().ails = true);
    let away = with(NodeSeen::NoAccess("away".to_owned()));
    for seen in [with(NodeSeen::Here(node())), with(NodeSeen::Gone), ails, away] {
        assert!(is_asked(&now(&seen, 700)), "{seen:?}");
    }
    let agreed = edit(named.clone(), |seen| seen.machine.as_mut().unwrap().healthy = Some(true));
    for seen in [ready.clone(), agreed] {
        let waits = now(&seen, 700);
        assert!(writes(&waits).is_empty() && waits.again.is_some(), "{waits:?}");
        let told = edit(seen, |seen| seen.request.standing = said(&waits));
        let rests = now(&told, 800);
        assert_eq!((rests.reason, rests.acts.len()), (Reason::NodeReady, 0), "once: {rests:?}");
    }
    for healthy in [None, Some(true), Some(false)] {
        let by_hand = edit(ready.clone(), |seen| {
            seen.request.owner = None;
            seen.machine.as_mut().unwrap().healthy = healthy;
        });
        assert!(is_asked(&now(&by_hand, 700)), "a person does not ask because a node is not ready");
    }
}

#[test]
fn a_host_that_is_installed_once_more_has_all_its_time_again() {
    let again = edit(booting(), |seen| {
        seen.host.as_mut().unwrap().provisioned = false;
        seen.request.standing = said(&now(seen, 400));
    });
    assert_eq!(again.request.standing.since, Some(at(400)));
    let installed = edit(again, |seen| seen.host.as_mut().unwrap().provisioned = true);
    let waits = now(&installed, 500);
    assert_eq!((waits.reason, said(&waits).since), (Reason::HostBooting, Some(at(500))));
}

#[test]
fn what_a_person_corrects_begins_at_once_where_the_machine_has_had_a_node() {
    let skipped = |name: Option<&str>| {
        edit(fresh(), |seen| {
            seen.machine.as_mut().unwrap().node = name.map(str::to_owned);
            seen.machine.as_mut().unwrap().skipped = true;
            seen.request.standing = said(&now(seen, 0));
            seen.machine.as_mut().unwrap().skipped = false;
            seen.node = NodeSeen::Here(node());
        })
    };
    assert!(is_asked(&now(&skipped(Some("n")), 100)));
    assert_eq!(now(&skipped(None), 100).reason, Reason::HostBooting, "it may never have been on");
}

/// Firmware work may take longer than a health check's patience, which asks in its middle.
#[test]
fn a_host_whose_firmware_was_changed_has_time_to_boot_before_it_is_cut_off() {
    for node in [Some("n"), None] {
        let servicing = edit(fresh(), |seen| {
            seen.machine.as_mut().unwrap().node = node.map(str::to_owned);
            seen.host.as_mut().unwrap().servicing = true;
            seen.request.standing = said(&now(seen, 0));
        });
        assert_eq!(
            now(&servicing, 5000),
            Decision {
                again: Some(Duration::from_secs(15)),
                ..Decision::rest(Reason::HostServicing)
            }
        );
        let boots = edit(servicing, |seen| {
            seen.host.as_mut().unwrap().servicing = false;
            seen.request.standing = said(&now(seen, 5000));
            seen.node = NodeSeen::Here(super::node());
        });
        assert_eq!(now(&boots, 5599).reason, Reason::HostBooting);
        assert!(is_asked(&now(&boots, 5600)), "{:?}", now(&boots, 5600));
    }
}

#[test]
fn a_host_that_was_tried_or_never_refused_is_not_taken_for_booting() {
    type Change = fn(&mut Observed);
    let changes: [Change; 4] = [
        |seen| seen.request.standing = Standing::default(),
        |seen| seen.request.standing.phase = Some(Phase::Running),
        |seen| seen.request.finalizer = true,
        |seen| {
            let tried = History(vec![Entry::begin("uid", "m", 0, at(0))]);
            let host = seen.host.as_mut().unwrap();
            host.history = tried.ended("uid", Reason::HostNotProvisioned, at(1));
        },
    ];
    for change in changes {
        let seen = edit(booting(), change);
        assert!(is_asked(&now(&seen, 101)), "{seen:?}");
    }
}

#[test]
fn a_machine_says_that_its_first_node_is_awaited() {
    let upstream = edit(installing(), |seen| {
        seen.request.group = Group::Upstream(api_types::ContractVersion::V1Beta2);
        seen.host.as_mut().unwrap().provisioned = true;
        seen.machine.as_mut().unwrap().external = Some("HostNotProvisioned".to_owned());
    });
    let first = now(&upstream, 100);
    let [Act::Say(standing), Act::Complain(Reason::HostBooting, text)] = first.acts.as_slice()
    else {
        panic!("{first:?}")
    };
    assert!(text.contains("its node is awaited"), "{text}");
    let cut = edit(upstream, |seen| seen.request.standing = standing.clone());
    assert!(matches!(now(&cut, 101).acts[..], [Act::Complain(..)]), "somebody else wrote first");
    let told = edit(cut, |seen| {
        seen.machine.as_mut().unwrap().external = Some("HostBooting".to_owned());
    });
    assert!(now(&told, 102).acts.is_empty(), "once");
}

//! What is waited for, or looked at, before a machine is cut off at all.

use super::*;

fn is_asked(decision: &Decision) -> bool {
    writes(decision).iter().any(|it| it.key == Some(true))
}

fn waiting_for(member: &str) -> Observed {
    edit(fresh(), |seen| {
        seen.machine.as_mut().unwrap().control_plane = true;
        seen.member = Some(Ahead::Trying(member.to_owned()));
    })
}

/// It was refused at 0, and what it was refused for is corrected.
fn corrected() -> Observed {
    edit(fresh(), |seen| {
        seen.machine.as_mut().unwrap().skipped = true;
        seen.request.standing = said(&now(seen, 0));
        seen.machine.as_mut().unwrap().skipped = false;
    })
}

fn seeing(seen: &Observed, node: Node) -> Observed {
    edit(seen.clone(), |seen| seen.node = NodeSeen::Here(node))
}

fn ready() -> Node {
    Node { ready: true, ..node() }
}

/// Its host may be off, and nobody can read the record that says so.
#[test]
fn a_member_of_a_control_plane_waits_for_one_that_cannot_be_read_and_names_it() {
    let seen = edit(waiting_for("cp-0"), |seen| {
        let (kind, name) = ("BareMetalHost".to_owned(), "h-0".to_owned());
        seen.member = Some(Ahead::Unread { kind, name });
    });
    let waits = now(&seen, 5);
    assert!(waits.reason == Reason::MemberInTry && !waits.sets_key(), "{waits:?}");
    assert!(said(&waits).said.unwrap().message.contains("BareMetalHost h-0"));
}

#[test]
fn a_member_of_a_control_plane_waits_while_another_one_is_power_cycled() {
    let first = now(&waiting_for("cp-0"), 5);
    let [Act::Say(standing)] = first.acts.as_slice() else { panic!("{first:?}") };
    assert_eq!(
        (first.reason, &standing.phase, &standing.step),
        (Reason::MemberInTry, &None, &None)
    );
    let words = standing.said.as_ref().unwrap();
    assert!(words.succeeded == Some(false) && words.message.contains("cp-0"), "{words:?}");
    assert_eq!(first.notes.len(), 1);
    let told = edit(waiting_for("cp-0"), |seen| seen.request.standing = said(&first));
    let waits = now(&told, 10);
    assert!(waits.acts.is_empty() && waits.notes.is_empty() && waits.again.is_some(), "{waits:?}");
    let turn = edit(told, |seen| seen.member = None);
    assert!(now(&turn, 15).needs_node, "it may have come back meanwhile");
    assert!(is_asked(&now(&seeing(&turn, node()), 15)));
}

#[test]
fn what_was_begun_on_a_member_of_a_control_plane_goes_on_beside_another_one() {
    for seen in [asked(), off(), released(), recovering()] {
        let beside =
            edit(seen.clone(), |seen| seen.member = Some(Ahead::Trying("cp-0".to_owned())));
        assert_eq!(now(&beside, 30), now(&seen, 30));
    }
    // A host that is off, or did not come on, keeps its turn.
    let late = edit(released(), |seen| seen.member = Some(Ahead::Trying("cp-0".to_owned())));
    for seen in [asked(), late] {
        assert!(is_asked(&now(&seen, 5000)), "{:?}", now(&seen, 5000));
    }
}

/// Two are in a try when the node of the first could not be seen, and is seen later.
#[test]
fn the_next_try_of_a_member_waits_for_its_turn() {
    assert!(is_asked(&now(&recovering(), 321)), "it is due: {:?}", now(&recovering(), 321));
    let beside = |seen| edit(seen, |it| it.member = Some(Ahead::Trying("cp-0".to_owned())));
    let waits = now(&beside(recovering()), 321);
    assert_eq!((waits.reason, writes(&waits).len()), (Reason::MemberInTry, 0), "{waits:?}");
    assert!(waits.again.is_some(), "{waits:?}");
    let told = said(&waits).said.unwrap();
    assert_eq!(told.reason, Reason::MemberInTry, "{told:?}");
    let turn = edit(recovering(), |seen| seen.request.standing = said(&waits));
    let asks = now(&turn, 322);
    assert_eq!(number(&asks), 1);
    // It has begun, and nothing is said of it yet.
    let begun = written(turn, &asks);
    assert_eq!(now(&beside(begun.clone()), 323), now(&begun, 323));
    let off = edit(begun, |seen| {
        seen.host.as_mut().unwrap().powered_on = false;
        seen.node = NodeSeen::Here(node());
    });
    assert!(now(&beside(off), 330).acts.contains(&Act::Taint), "nobody else's turn holds it up");
}

/// Recovered at 30 and still complained of, or failing anew: another try, or the end, is due.
fn due_again() -> Vec<Observed> {
    let recovered = edit(recovering(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.ended("uid", Reason::Recovered, at(30));
        seen.request.standing = Standing {
            step: Some(Step::Done),
            since: Some(at(30)),
            ..seen.request.standing.saying(Some(true), Reason::Recovered, "")
        };
        (seen.request.finalizer, seen.node) = (false, NodeSeen::Here(node()));
    });
    let agreed = edit(recovered.clone(), |seen| {
        (seen.request.standing.step, seen.request.standing.since) = (None, None);
    });
    let last = edit(recovered.clone(), |seen| seen.request.standing.retries = 1);
    vec![recovered, agreed, last]
}

#[test]
fn after_a_success_no_try_begins_beside_another_member_or_while_firmware_is_changed() {
    for seen in due_again() {
        assert!(!writes(&now(&seen, 400)).is_empty(), "it is due: {:?}", now(&seen, 400));
        let beside =
            edit(seen.clone(), |seen| seen.member = Some(Ahead::Trying("cp-0".to_owned())));
        let servicing = edit(seen, |seen| seen.host.as_mut().unwrap().servicing = true);
        for (seen, reason) in [(beside, Reason::MemberInTry), (servicing, Reason::HostServicing)] {
            let waits = now(&seen, 400);
            assert_eq!((waits.reason, writes(&waits).len()), (reason, 0), "{waits:?}");
            assert!(waits.again.is_some(), "{waits:?}");
            let well = edit(seen, |seen| seen.machine.as_mut().unwrap().healthy = Some(true));
            assert_eq!(now(&well, 400).reason, Reason::Recovered, "the health check agrees");
        }
    }
}

/// What keeps another try from beginning: another member, firmware work, or what a person has to correct.
type Block = fn(&mut Observed);
const IN_THE_WAY: [(Reason, Block); 3] = [
    (Reason::MemberInTry, |seen| seen.member = Some(Ahead::Trying("cp-0".to_owned()))),
    (Reason::HostServicing, |seen| seen.host.as_mut().unwrap().servicing = true),
    (Reason::HostOffline, |seen| seen.host.as_mut().unwrap().online = false),
];

#[test]
fn a_success_is_not_called_one_while_another_try_waits_and_the_request_says_for_what() {
    for due in due_again() {
        let begins = now(&due, 500);
        for (reason, block) in IN_THE_WAY {
            let seen = edit(due.clone(), block);
            let waits = now(&seen, 400);
            let [Act::Say(standing)] = waits.acts.as_slice() else { panic!("{waits:?}") };
            let word = standing.said.as_ref().unwrap();
            assert_eq!((waits.reason, word.reason, word.succeeded), (reason, reason, Some(false)));
            assert!(waits.again.is_some() && waits.notes.len() == 1, "{waits:?}");
            let told = edit(seen, |seen| seen.request.standing = standing.clone());
            let still = now(&told, 415);
            assert_eq!((still.acts.len(), still.notes.len()), (0, 0), "once: {still:?}");
            assert_eq!((still.reason, still.again), (reason, waits.again));
            let turn =
                edit(due.clone(), |seen| seen.request.standing = told.request.standing.clone());
            let next = now(&turn, 500);
            if reason != Reason::MemberInTry {
                // The host may be booting since that is over, and the try that was due follows.
                assert!(writes(&next).is_empty(), "{reason:?}: {next:?}");
                let boots = edit(turn, |seen| seen.request.standing = said(&next));
                assert!(now(&boots, 799).acts.is_empty(), "{reason:?}: {:?}", now(&boots, 799));
                let late = now(&boots, 800);
                assert_eq!(begins_or_says(&late), begins_or_says(&begins));
                assert_eq!(late.reason, begins.reason);
                continue;
            }
            assert_eq!(writes(&next), writes(&begins), "it is the try that was due");
            assert_eq!(begins_or_says(&next), begins_or_says(&begins));
        }
    }
}

/// Which try begins; or what is said where it is the end.
fn begins_or_says(decision: &Decision) -> (Option<u32>, Option<Said>) {
    if is_asked(decision) { (Some(number(decision)), None) } else { (None, said(decision).said) }
}

#[test]
fn a_machine_that_comes_back_while_another_try_waits_is_called_a_success_again() {
    for (reason, block) in IN_THE_WAY {
        let waits = edit(due_again().remove(0), |seen| {
            block(seen);
            seen.machine.as_mut().unwrap().external = Some("Other".to_owned());
            let decision = now(seen, 400);
            assert!(matches!(decision.acts[1], Act::Complain(it, _) if it == reason));
            seen.request.standing = said(&decision);
        });
        let ready = seeing(&waits, ready());
        let well = edit(waits, |seen| seen.machine.as_mut().unwrap().healthy = Some(true));
        for seen in [ready, well] {
            let decision = now(&seen, 500);
            let [Act::Say(standing), Act::Settled] = decision.acts.as_slice() else {
                panic!("{decision:?}")
            };
            let said = standing.said.as_ref().unwrap();
            assert_eq!((said.reason, said.succeeded), (Reason::Recovered, Some(true)));
            assert!(decision.reason == Reason::Recovered && standing.has_succeeded());
        }
    }
}

#[test]
fn a_machine_that_came_back_while_its_request_waited_is_not_cut_off() {
    let old = edit(fresh(), |seen| seen.machine.as_mut().unwrap().healthy_since = Some(at(0)));
    let turn = edit(waiting_for("cp-0"), |seen| {
        seen.request.standing = said(&now(seen, 0));
        seen.member = None;
    });
    for waited in [corrected(), turn, old.clone()] {
        let looks = now(&waited, 60);
        assert!(looks.needs_node && looks.acts.is_empty(), "{looks:?}");
        let rests = now(&seeing(&waited, ready()), 60);
        assert_eq!((rests.reason, rests.again), (Reason::NodeReady, Some(Duration::from_secs(60))));
        let told = edit(waited.clone(), |seen| seen.request.standing = said(&rests));
        let looks = now(&told, 120);
        assert!(looks.needs_node && looks.acts.is_empty(), "{looks:?}");
        assert!(now(&seeing(&told, ready()), 120).acts.is_empty());
        assert!(is_asked(&now(&seeing(&told, node()), 120)), "it fails anew");
        let ails = edit(seeing(&told, ready()), |seen| seen.machine.as_mut().unwrap().ails = true);
        assert!(is_asked(&now(&ails, 120)), "of that a ready node says nothing");
        for unseen in [NodeSeen::Gone, NodeSeen::NoAccess("away".to_owned())] {
            let unseen = edit(told.clone(), |seen| seen.node = unseen);
            assert!(is_asked(&now(&unseen, 120)), "the health check has seen it");
        }
        let agreed = edit(told, |seen| seen.machine.as_mut().unwrap().healthy = Some(true));
        assert_eq!(now(&agreed, 120).reason, Reason::NodeReady, "nobody complains");
    }
    assert!(is_asked(&now(&old, 59)), "who asks at once is believed");
    let by_hand = edit(corrected(), |seen| seen.request.owner = None);
    assert!(is_asked(&now(&by_hand, 60)), "a person wants it all the same");
}

/// Its host was let go while nobody could decode it, and it says what it said before.
#[test]
fn a_machine_whose_try_was_ended_on_its_host_is_looked_at_before_it_is_cut_off_again() {
    let ended = edit(asked(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.held = false;
        host.history = host.history.ended("uid", Reason::Withdrawn, at(720));
        seen.machine.as_mut().unwrap().healthy_since = Some(at(0));
    });
    assert!(now(&ended, 800).needs_node, "{:?}", now(&ended, 800));
    let back = seeing(&ended, Node { taint: Taint::Ours, ..ready() });
    assert_eq!(now(&back, 800).acts, [Act::Untaint, Act::RemoveFinalizer]);
    let free = edit(seeing(&ended, ready()), |seen| seen.request.finalizer = false);
    assert_eq!(now(&free, 801).reason, Reason::NodeReady);
    assert!(is_asked(&now(&seeing(&ended, node()), 800)));
}

#[test]
fn a_host_that_is_allowed_to_be_on_has_time_to_boot_before_it_is_cut_off() {
    let offline = edit(fresh(), |seen| {
        seen.host.as_mut().unwrap().online = false;
        seen.request.standing = said(&now(seen, 0));
    });
    assert_eq!(offline.request.standing.said.as_ref().unwrap().reason, Reason::HostOffline);
    let online = edit(offline, |seen| seen.host.as_mut().unwrap().online = true);
    let boots = now(&online, 100);
    assert_eq!((boots.reason, boots.again), (Reason::HostBooting, Some(Duration::from_secs(600))));
}

/// However long something is in the way of a step, no try fails for it, and the step has all its time after that.
fn is_waited_for(seen: &Observed, block: Block) -> (Reason, String) {
    let failed = now(seen, 5000);
    let late = edit(seen.clone(), block);
    let waits = now(&late, 5000);
    let [Act::Say(standing)] = waits.acts.as_slice() else { panic!("{waits:?}") };
    assert_eq!(standing.step, seen.request.standing.step);
    assert!(waits.again.is_some(), "{waits:?}");
    let told = edit(late, |seen| seen.request.standing = standing.clone());
    assert!(now(&told, 9000).acts.is_empty(), "once: {:?}", now(&told, 9000));
    let free = edit(seen.clone(), |seen| seen.request.standing = standing.clone());
    let noted = edit(free.clone(), |seen| {
        let anew = now(&free, 9000);
        let [Act::Host(write)] = anew.acts.as_slice() else { panic!("{anew:?}") };
        assert_eq!((write.key, write.mark), (None, false), "its time begins anew: {write:?}");
        seen.host.as_mut().unwrap().history = write.history.clone().unwrap();
    });
    let begins = now(&noted, 9000);
    assert!(writes(&begins).is_empty(), "once: {begins:?}");
    let next = edit(noted, |seen| seen.request.standing = said(&begins));
    assert!(now(&next, 9299).acts.is_empty(), "{:?}", now(&next, 9299));
    assert_eq!(now(&next, 9600).reason, failed.reason, "and ends");
    (waits.reason, standing.said.clone().unwrap().message)
}

#[test]
fn a_host_whose_firmware_is_being_changed_is_not_cut_off_and_no_try_fails_for_it() {
    let servicing: Block = |seen| seen.host.as_mut().unwrap().servicing = true;
    let waits = now(&edit(fresh(), servicing), 0);
    assert_eq!(waits.reason, Reason::HostServicing);
    assert!(writes(&waits).is_empty(), "{waits:?}");
    for seen in [asked(), released(), recovering(), last_try()] {
        assert_eq!(is_waited_for(&seen, servicing).0, Reason::HostServicing);
    }
}

const HELD: Block = |seen| {
    let keys = ["reboot.metal3.io/maint", "reboot.metal3.io/other"];
    seen.host.as_mut().unwrap().holds = keys.map(str::to_owned).to_vec();
};

/// Somebody maintains the machine for an hour. Its workloads are moved away, and nobody deletes it for being off.
#[test]
fn no_try_fails_while_another_client_holds_the_host_off_and_the_request_names_its_key() {
    for seen in [released(), recovering(), last_try()] {
        let (reason, message) = is_waited_for(&seen, HELD);
        assert_eq!(reason, Reason::HostHeld);
        assert!(message.contains("reboot.metal3.io/maint (+1 more)"), "{message}");
    }
    let begins = now(&edit(fresh(), HELD), 0);
    assert!(is_asked(&begins), "what ran on it is moved away: {begins:?}");
    let on = now(&edit(asked(), HELD), 600);
    assert_eq!(on.reason, Reason::PowerOffTimedOut, "no hold keeps a host on");
}

#[test]
fn a_machine_that_fails_after_its_success_is_not_given_up_while_its_host_is_held_off() {
    let last = due_again().remove(2);
    assert_eq!(now(&last, 400).reason, Reason::Exhausted);
    let waits = now(&edit(last.clone(), HELD), 400);
    assert_eq!((waits.reason, writes(&waits).len()), (Reason::HostHeld, 0), "{waits:?}");
    let free = edit(last, |seen| seen.request.standing = said(&waits));
    let begins = now(&free, 5000);
    assert!(writes(&begins).is_empty(), "it may be booting: {begins:?}");
    let next = edit(free, |seen| seen.request.standing = said(&begins));
    assert!(now(&next, 5299).acts.is_empty(), "{:?}", now(&next, 5299));
    assert_eq!(now(&next, 5300).reason, Reason::Exhausted);
}

/// It agreed, and firmware work came before it complained anew. Another member, or more firmware work, may come on top of that.
#[test]
fn another_failure_has_all_its_tries_after_the_boot_that_was_waited_for() {
    let agreed = due_again().remove(1);
    let limit = Ok(Strategy { retries: 0, timeout: Duration::from_secs(300) });
    let agreed = edit(agreed, |seen| seen.request.strategy = limit);
    let after = |seen: &Observed, second| {
        edit(seen.clone(), |it| it.request.standing = said(&now(seen, second)))
    };
    let servicing = IN_THE_WAY[1].1;
    let waited = edit(after(&edit(agreed, servicing), 400), |seen| {
        seen.host.as_mut().unwrap().servicing = false;
    });
    let boots = after(&waited, 500);
    let message = boots.request.standing.said.clone().unwrap().message;
    assert!(message.contains(&format!("until {} its node is awaited", at(800))), "{message}");
    let away = edit(boots.clone(), |seen| seen.node = NodeSeen::NoAccess("away".to_owned()));
    assert!(now(&away, 5000).acts.is_empty(), "silence is no verdict: {:?}", now(&away, 5000));
    let beside = edit(boots.clone(), |seen| seen.member = Some(Ahead::Trying("cp-0".to_owned())));
    let turn = edit(after(&beside, 800), |seen| seen.member = None);
    let more = edit(after(&edit(boots.clone(), servicing), 800), |seen| {
        seen.host.as_mut().unwrap().servicing = false;
    });
    let well = after(&seeing(&boots, ready()), 800);
    for seen in [boots, turn, after(&more, 900), well] {
        let next = now(&seeing(&seen, node()), 5000);
        assert_eq!(number(&next), 0, "{next:?}");
    }
}

const UNREACHABLE: Block = |seen| {
    seen.host.as_mut().unwrap().unreachable = Some("IronicUnreachable");
};

/// Ironic is away for longer than all tries of a request take.
#[test]
fn no_try_fails_while_ironic_is_away_and_none_is_given_up_for_it() {
    for seen in [asked(), released(), recovering(), last_try()] {
        let (reason, message) = is_waited_for(&seen, UNREACHABLE);
        assert_eq!(reason, Reason::HostUnreachable);
        assert!(message.contains("IronicUnreachable"), "{message}");
    }
    let again = edit(due_again().remove(2), UNREACHABLE);
    assert_eq!(now(&again, 400).reason, Reason::HostUnreachable);
    // One that shows off is held no longer for that.
    let unread = edit(edit(off(), UNREACHABLE), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.was_on = false);
        seen.node = NodeSeen::Here(node());
    });
    assert_eq!(writes(&now(&unread, 600))[0].key, Some(false));
}

/// Whoever switches hosts is away and says nothing, or its status is old.
#[test]
fn a_machine_that_runs_and_is_not_complained_of_is_not_given_up_after_its_last_try() {
    let last = |seen: Observed| {
        edit(seen, |seen| {
            seen.request.strategy = Ok(Strategy { retries: 0, timeout: Duration::from_secs(300) });
        })
    };
    let on = last(asked());
    assert!(now(&on, 600).needs_node);
    assert_eq!(now(&seeing(&on, node()), 600).reason, Reason::Exhausted);
    let ails = edit(seeing(&on, ready()), |seen| seen.machine.as_mut().unwrap().ails = true);
    assert_eq!(now(&ails, 600).reason, Reason::Exhausted);
    let off = last(released());
    assert_eq!(now(&seeing(&off, ready()), 610).reason, Reason::Exhausted, "it said that before");
    let back = Node { kubelet: "after".to_owned(), ..ready() };
    for (seen, second) in [(seeing(&on, ready()), 600), (seeing(&off, back), 610)] {
        let well = now(&seen, second);
        let [Act::Host(write), Act::Say(standing), Act::RemoveFinalizer] = well.acts.as_slice()
        else {
            panic!("{well:?}")
        };
        assert_eq!(write.key, seen.host.as_ref().unwrap().held.then_some(false));
        let history = write.history.as_ref().unwrap();
        assert!(history.last("uid").unwrap().has_recovered(), "{history:?}");
        assert!(standing.has_succeeded(), "{standing:?}");
        // A crash after the record has ended: nothing else is begun.
        let cut = now(&written(seen, &well), second + 1);
        assert!(writes(&cut).is_empty() && said(&cut).has_succeeded(), "{cut:?}");
    }
}

/// Its BMC is dead as well. A person has asked, or a health check that has not called it unhealthy since.
#[test]
fn a_machine_that_nobody_has_seen_fail_is_not_given_up_for_a_host_that_does_not_obey() {
    for (seen, second) in [(asked(), 600), (released(), 610)] {
        let last = edit(seen, |seen| {
            seen.request.strategy = Ok(Strategy { retries: 0, timeout: Duration::from_secs(300) });
            seen.node = NodeSeen::NoAccess("away".to_owned());
        });
        assert_eq!(now(&last, second).reason, Reason::Exhausted, "its health check has seen it");
        for healthy in [None, Some(true)] {
            let blind = edit(last.clone(), |seen| {
                seen.machine.as_mut().unwrap().healthy = healthy;
                seen.machine.as_mut().unwrap().healthy_since = Some(at(-5));
            });
            let waits = now(&blind, second);
            let [Act::Say(standing)] = waits.acts.as_slice() else { panic!("{waits:?}") };
            assert_eq!(
                (waits.reason, &standing.step),
                (Reason::NodeUnseen, &blind.request.standing.step)
            );
            let message = &standing.said.as_ref().unwrap().message;
            assert!(message.contains("in time, but the node cannot be seen: away"), "{message}");
            let told = edit(blind, |seen| seen.request.standing = standing.clone());
            let still = now(&told, 5000);
            assert!(still.acts.is_empty() && still.again.is_some(), "once: {still:?}");
            let seen = seeing(&told, node());
            assert_eq!(now(&seen, 5000).reason, Reason::Exhausted, "it is seen, and not ready");
            let back = Node { kubelet: "after".to_owned(), ..ready() };
            assert_eq!(now(&seeing(&told, back), 5000).reason, Reason::Recovered);
        }
    }
}

//! A host that we keep from the operator, and when it gets it back.

use super::*;

fn taken(host: Host) -> Host {
    Host { paused: Pause::ByUs, ..host }
}

fn policy() -> Policy {
    Policy { takeover: true, ..Policy::default() }
}

fn is_given_back(done: &Decided) -> bool {
    done.annotations == [(PAUSED.to_owned(), None)].into()
}

/// A node that the operator has come so far with.
fn registered(state: &'static str) -> NodeSeen {
    change(node(Power::On), |node| node.registration = Some(state))
}

#[test]
fn a_node_that_is_being_registered_is_not_taken_from_the_operator() {
    let mut host = with(&[(PLAIN, HARD)]);
    host = after(host.clone(), &decided_by(&policy(), &host, &NodeSeen::Missing));
    assert_eq!(host.managed().unwrap().reason, Reason::NodeNotFound);
    for state in ["enroll", "verifying", "manageable", "adopt failed", "adopting"] {
        let done = decided_by(&policy(), &host, &registered(state));
        assert_eq!((done.reason, done.annotations.len()), (Reason::NodeRegistering, 0), "{state}");
        assert_eq!((done.call, done.next), (None, Next::OnChange), "{state}: a list tells");
        let told = done.status.managed.clone().unwrap();
        assert!(!told.managed && told.message.contains(state), "{}", told.message);
        host = after(host, &done);
        let again = decided_by(&policy(), &host, &registered(state));
        assert!(again.status.is_empty() && again.events.is_empty(), "written once: {state}");
    }
    let done = decided_by(&policy(), &host, &node(Power::On));
    assert_eq!(done.reason, Reason::TakenOver);
}

#[test]
fn a_node_that_nobody_was_seen_registering_is_taken_over_as_it_is() {
    let asked = with(&[(PLAIN, HARD)]);
    for host in [asked.clone(), Host { conditions: Vec::new(), ..asked.clone() }] {
        for state in ["enroll", "manageable"] {
            let done = decided_by(&policy(), &host, &registered(state));
            assert_eq!(done.reason, Reason::TakenOver, "{state}");
        }
    }
    // And where nobody is paused, a node is what it is.
    let missing = after(asked.clone(), &decided(&asked, &NodeSeen::Missing));
    for state in ["manageable", "verifying"] {
        let done = decided(&missing, &registered(state));
        assert_eq!(done.call, Some(Call::Off), "{state}");
    }
}

#[test]
fn a_node_that_the_operator_says_it_is_registering_is_not_taken_from_it() {
    let asked = Host { registering: true, ..with(&[(PLAIN, HARD)]) };
    for host in [asked.clone(), Host { conditions: Vec::new(), ..asked.clone() }] {
        for state in ["enroll", "manageable"] {
            let done = decided_by(&policy(), &host, &registered(state));
            let told = (done.reason, done.annotations.len(), done.call);
            assert_eq!(told, (Reason::NodeRegistering, 0, None), "{state}");
            // One that was taken from it in the middle goes back.
            let done = decided_by(&policy(), &taken(host.clone()), &registered(state));
            assert!(is_given_back(&done), "{state}: {done:?}");
        }
        // Of a node that is registered the record is an old one.
        let done = decided_by(&policy(), &host, &node(Power::On));
        assert_eq!(done.reason, Reason::TakenOver);
        let kept = decided_by(&policy(), &taken(host), &node(Power::On));
        assert_eq!(kept.annotations.len(), 0, "{kept:?}");
    }
}

#[test]
fn a_host_whose_node_is_in_the_middle_of_being_registered_is_given_back() {
    let done = |state| decided_by(&policy(), &taken(host()), &registered(state));
    for it in ["verifying", "adopting", "adopt failed"] {
        assert!(is_given_back(&done(it)), "{it}");
    }
    for it in ["enroll", "manageable"] {
        assert_eq!(done(it).annotations.len(), 0, "it may be so for good: {it}");
    }
    let begun = change(heading(Power::On, Power::Off), |node| {
        node.registration = Some("verifying");
    });
    let cycling = taken(cycling(&[(PLAIN, HARD)], Reason::HardPowerOff, true, 2));
    assert_eq!(decided_by(&policy(), &cycling, &begun).annotations.len(), 0, "in a cycle");
}

#[test]
fn that_a_host_may_be_switched_off_after_all_the_operator_tells_ironic() {
    let stays_on = |seen| change(seen, |node: &mut Node| node.disable_power_off = true);
    let kept = taken(with(&[(HOLD, HARD)]));
    let before = |host: &Host| Host { disable_power_off: true, ..host.clone() };
    let seen = stays_on(node(Power::On));
    assert_eq!(decided_by(&policy(), &before(&kept), &seen).annotations.len(), 0);
    assert!(is_given_back(&decided_by(&policy(), &kept, &seen)));
    let begun = taken(cycling(&[(HOLD, HARD)], Reason::Restarting, true, 2));
    let resetting = stays_on(heading(Power::On, Power::On));
    assert_eq!(decided_by(&policy(), &begun, &resetting).annotations.len(), 0, "in a cycle");
    let free = Host { paused: Pause::No, ..kept };
    let done = decided_by(&policy(), &free, &seen);
    assert_eq!(done.annotations.len(), 0, "{done:?}");
    assert_eq!(decided_by(&policy(), &before(&free), &seen).reason, Reason::TakenOver);
    assert_eq!(decided_by(&policy(), &free, &node(Power::On)).reason, Reason::TakenOver);
}

#[test]
fn the_operator_has_the_power_of_a_host_on_which_it_has_work_to_do() {
    let stays_on = change(node(Power::On), |node| node.disable_power_off = true);
    let asked = with(&[(HOLD, HARD)]);
    let off = Host { powered_on: false, ..host() };
    let needed = |host: &Host| Host { needs_operator: true, ..host.clone() };
    for (host, seen) in [
        (needed(&asked), node(Power::On)),
        (needed(&off), node(Power::Off)),
        (asked.clone(), stays_on),
    ] {
        let done = decided_by(&policy(), &host, &seen);
        let told = (done.reason, done.call, done.next);
        assert_eq!(told, (Reason::OperatorAtWork, None, Next::OnChange));
        assert!(done.annotations.is_empty() && done.status.pending.is_none(), "{done:?}");
        let told = done.status.managed.clone().unwrap();
        assert!(!told.managed && told.message.contains("the operator has"), "{}", told.message);
        let again = decided_by(&policy(), &after(host.clone(), &done), &seen);
        assert!(again.status.is_empty() && again.events.is_empty(), "written once");
        // Where nobody is paused, nobody else is waited for.
        let alone = decided(&host, &seen);
        assert!(alone.call.is_some() || alone.status.pending.is_some(), "{alone:?}");
    }
    assert_eq!(decided_by(&policy(), &asked, &node(Power::On)).reason, Reason::TakenOver);
}

#[test]
fn a_machine_that_ironic_has_lost_says_so_at_rest_and_is_the_operators_until_it_is_found_or_asked_for()
 {
    let lost = node(Power::Unknown);
    // Where nobody else has its power, its own condition says so.
    let done = decided(&host(), &lost);
    assert_eq!((done.reason, done.call), (Reason::PowerUnknown, None));
    assert_eq!(reason_written(&done), Some(Reason::PowerUnknown));
    let told = after(host(), &done);
    assert_eq!(decided(&told, &lost), Decided::rest(Reason::PowerUnknown), "written once");
    assert_eq!(reason_written(&decided(&told, &node(Power::On))), Some(Reason::Completed));
    // The operator gives Ironic a password that was changed.
    let given_back = decided_by(&policy(), &taken(host()), &lost);
    assert!(is_given_back(&given_back) && given_back.call.is_none(), "{given_back:?}");
    let done = decided_by(&policy(), &host(), &lost);
    assert_eq!((done.reason, done.annotations.len()), (Reason::PowerUnknown, 0));
    let managed = done.status.managed.clone().unwrap();
    assert!(!managed.managed && managed.message.contains("credentials"), "{managed:?}");
    let free = after(host(), &done);
    assert_eq!(decided_by(&policy(), &free, &lost), Decided::rest(Reason::PowerUnknown));
    assert_eq!(decided_by(&policy(), &free, &node(Power::On)).reason, Reason::TakenOver);
    // Nobody who asks for off waits for that.
    let asked = Host { requests: with(&[(HOLD, HARD)]).requests, ..free };
    assert_eq!(decided_by(&policy(), &asked, &lost).reason, Reason::TakenOver);
    assert_eq!(decided_by(&policy(), &taken(asked), &lost).call, Some(Call::Off));
    let mut held = taken(cycling(&[(HOLD, HARD)], Reason::HeldOff, true, 9));
    held.powered_on = false;
    assert!(!is_given_back(&decided_by(&policy(), &held, &lost)));
    let withdrawn = taken(cycling(&[], Reason::HardPowerOff, true, 9));
    assert!(!is_given_back(&decided_by(&policy(), &withdrawn, &lost)));
}

#[test]
fn a_host_that_brings_its_status_gets_it_from_the_operator_and_one_that_does_not_stays_paused() {
    for policy in [policy(), Policy::default()] {
        let mut moved = Host { state: ProvisioningState::None, ..taken(host()) };
        moved.conditions.clear();
        let done = decided_by(&policy, &moved, &NodeSeen::Missing);
        let [note] = done.events.as_slice() else { panic!("{done:?}") };
        assert!(
            note.warning && note.hourly.is_some() && note.text.contains("no status"),
            "{note:?}"
        );
        let rest = Decided { events: Vec::new(), ..done };
        assert_eq!(rest, Decided::rest(Reason::NotLookedAt), "the operator would install it");
        let deleted = Host { deleting: true, ..moved.clone() };
        let done = decided_by(&policy, &deleted, &NodeSeen::Missing);
        assert_eq!(done, Decided::rest(Reason::NotLookedAt), "nobody needs it any more");
        moved.brings_status = true;
        let done = decided_by(&policy, &moved, &NodeSeen::Missing);
        assert!(is_given_back(&done) && done.status.is_empty(), "{done:?}");
        for paused in [Pause::No, Pause::ByOthers] {
            let done = decided_by(&policy, &Host { paused, ..moved.clone() }, &NodeSeen::Missing);
            assert_eq!(done, Decided::rest(Reason::NotLookedAt));
        }
    }
}

#[test]
fn a_host_whose_node_is_gone_goes_back_to_the_operator_who_has_to_register_it() {
    let wants: [Make; 5] = [
        |_| {},
        |host| host.deleting = true,
        |host| host.detached = true,
        |host| host.selected = false,
        |host| host.needs_operator = true,
    ];
    for (number, change) in wants.into_iter().enumerate() {
        for begun in [host(), cycling(&[(HOLD, HARD)], Reason::HardPowerOff, true, 9)] {
            let mut host = taken(begun);
            change(&mut host);
            for policy in [policy(), Policy::default()] {
                let done = decided_by(&policy, &host, &NodeSeen::Missing);
                assert!(is_given_back(&done), "{number}: {done:?}");
            }
            // And is not taken away again before there is a node.
            host.paused = Pause::No;
            let done = decided_by(&policy(), &host, &NodeSeen::Missing);
            assert_eq!(done.annotations.len(), 0, "{number}");
        }
    }
}

#[test]
fn a_host_without_credentials_is_not_kept_from_the_operator() {
    let mut host = taken(cycling(&[(HOLD, HARD)], Reason::HardPowerOff, true, 9));
    host.credentials = false;
    assert!(is_given_back(&decided_by(&policy(), &host, &NodeSeen::NotAsked)));
}

/// The operator would serve the request, and the record would have it served once more when the host is ours again.
#[test]
fn a_host_that_waits_for_a_free_soft_attempt_is_given_back_when_that_is_over() {
    let waiting = taken(cycling(&[(PLAIN, "")], Reason::RequestAccepted, false, 9));
    let left = Host { selected: false, ..waiting.clone() };
    let seen = Observed { soft_free: false, ..observed(&left, &NodeSeen::NotAsked) };
    let done: Decided = decide(&seen, &policy(), now()).into();
    assert!(!is_given_back(&done), "{done:?}");
    let gone = Host { selected: false, deleting: true, ..waiting };
    assert!(is_given_back(&decided_by(&policy(), &gone, &NodeSeen::NotAsked)));
}

#[test]
fn a_host_that_stays_off_in_an_open_cycle_can_be_deprovisioned() {
    let mut host = taken(cycling(&[], Reason::Offline, false, 9));
    (host.online, host.powered_on, host.needs_operator) = (false, false, true);
    assert!(is_given_back(&decided_by(&policy(), &host, &node(Power::Off))));
    // Not before everybody can see that it is off, and not when it is to come back.
    for (online, powered_on) in [(false, true), (true, false)] {
        (host.online, host.powered_on) = (online, powered_on);
        let done = decided_by(&policy(), &host, &node(Power::Off));
        assert_eq!(done.annotations.len(), 0, "{online} {powered_on}");
    }
}

#[test]
fn a_hold_does_not_keep_what_is_to_be_cleared_and_otherwise_is_named_by_who_waits_for_it() {
    let mut host = taken(cycling(&[(HOLD, HARD)], Reason::HeldOff, true, 9));
    host.powered_on = false;
    let unheld: [(Make, Policy); 3] = [
        (|host| host.selected = false, policy()),
        (|host| host.needs_operator = true, policy()),
        (|_| {}, Policy::default()),
    ];
    for (number, (change, policy)) in unheld.into_iter().enumerate() {
        let mut wanted = host.clone();
        change(&mut wanted);
        let done = decided_by(&policy, &wanted, &node(Power::Off));
        assert_eq!((done.annotations.len(), done.call), (0, None), "{number}");
        let told = done.status.managed.clone().unwrap();
        assert!(told.managed && told.message.contains(HOLD), "{number}: {}", told.message);
        let again = decided_by(&policy, &after(wanted.clone(), &done), &node(Power::Off));
        assert_eq!(again.status.managed, None, "written once: {number}");
        // It goes back as soon as the cycle has ended.
        let free = Host { requests: Requests::default(), last: Some(at(999_500)), ..wanted };
        assert!(is_given_back(&decided_by(&policy, &free, &node(Power::Off))), "{number}");
    }
    (host.needs_operator, host.cleared) = (true, true);
    assert!(is_given_back(&decided_by(&policy(), &host, &node(Power::Off))));
    // Not before everybody can see that it is off.
    assert!(!is_given_back(&decided_by(&policy(), &host, &node(Power::On))));
    host.powered_on = true;
    assert!(!is_given_back(&decided_by(&policy(), &host, &node(Power::Off))));
}

#[test]
fn another_image_waits_for_who_holds_a_host_that_is_to_stay_off() {
    let mut host = taken(cycling(&[(HOLD, HARD)], Reason::HeldOff, true, 9));
    (host.powered_on, host.online, host.needs_operator) = (false, false, true);
    for pending in [host.pending, None] {
        let held = Host { pending, ..host.clone() };
        let done = decided_by(&policy(), &held, &node(Power::Off));
        assert!(!is_given_back(&done), "{pending:?}: {}", done.reason.as_str());
        let free = Host { requests: Requests::default(), ..held };
        assert!(is_given_back(&decided_by(&policy(), &free, &node(Power::Off))), "{pending:?}");
    }
}

#[test]
fn a_host_that_is_deleted_is_not_kept_by_a_management_controller_that_is_lost() {
    let mut host = taken(cycling(&[(HOLD, HARD)], Reason::HardPowerOff, true, 9));
    host.deleting = true;
    assert!(is_given_back(&decided_by(&policy(), &host, &node(Power::Unknown))));
    assert_eq!(decided_by(&policy(), &host, &node(Power::On)).reason, Reason::HandedBack);
    let first = just_off();
    let mut soft = taken(cycling(&[(HOLD, "")], Reason::SoftPowerOff, false, 9));
    soft.deleting = true;
    let done = decided_by(&policy(), &soft, &first);
    assert_eq!((reason_written(&done), done.next), (None, Next::After(OFF_CONFIRM_DELAY)));
    // Off with a failure stays doubtful, and it is not asked for off once more.
    for (reason, hard) in [(Reason::SoftPowerOff, false), (Reason::HardPowerOff, true)] {
        let mut host = taken(cycling(&[(PLAIN, HARD)], reason, hard, 300));
        host.deleting = true;
        let done = decided_by(&policy(), &host, &failed(Power::Off));
        assert!(is_given_back(&done), "{reason:?}: {done:?}");
        host.deleting = false;
        assert!(!is_given_back(&decided_by(&policy(), &host, &failed(Power::Off))));
    }
}

#[test]
fn what_was_asked_of_a_host_goes_although_it_could_not_be_served_while_it_was_provisioned() {
    let cases: [(Reason, Make); 4] = [
        (Reason::Paused, |host| host.paused = Pause::ByOthers),
        (Reason::Detached, |host| host.detached = true),
        (Reason::NoCredentials, |host| host.credentials = false),
        (Reason::NodeShared, |host| host.shared_with = Some("n/other".to_owned())),
    ];
    for (reason, change) in cases {
        let mut host = with(&[(PLAIN, ""), (HOLD, "")]);
        host.conditions.clear();
        change(&mut host);
        // Looked at while it was provisioned, and once more before it can be served again.
        for state in [ProvisioningState::Provisioned, ProvisioningState::Available] {
            if state != ProvisioningState::Provisioned && reason == Reason::NoCredentials {
                break;
            }
            host.state = state;
            let done = decided(&host, &NodeSeen::NotAsked);
            if reason == Reason::NodeShared && host.state.is_available() {
                break;
            }
            assert_eq!((done.reason, done.annotations.len()), (reason, 0), "{reason:?}");
            write(&mut host, &done.status);
        }
        host.state = ProvisioningState::Available;
        (host.paused, host.detached, host.shared_with) = (Pause::No, false, None);
        let done = decided(&host, &NodeSeen::NotAsked);
        assert_eq!((done.reason, done.annotations.len()), (Reason::Deprovisioned, 2), "{reason:?}");
        write(&mut host, &done.status);
        // Once: what somebody asks for later is not ours to remove.
        assert_eq!(decided(&host, &NodeSeen::NotAsked).annotations.len(), 0, "{reason:?}");
    }
}

#[test]
fn what_was_asked_of_a_host_without_a_node_goes_also_where_available_hosts_are_managed() {
    let policy = Policy { manage_available: true, ..Policy::default() };
    let mut host = with(&[(HOLD, "")]);
    host.conditions.clear();
    let told = decided_by(&policy, &host, &NodeSeen::Missing).status;
    assert_eq!(told.managed.as_ref().unwrap().reason, Reason::NodeNotFound);
    write(&mut host, &told);
    host.state = ProvisioningState::Available;
    let done = decided_by(&policy, &host, &NodeSeen::Missing);
    assert_eq!(done.annotations, [(HOLD.to_owned(), None)].into());
}

#[test]
fn stamps_go_with_what_was_installed_although_the_credentials_went_first() {
    let mut host = cycling(&[(HOLD, "")], Reason::HeldOff, false, 9);
    (host.state, host.credentials) = (ProvisioningState::Available, false);
    let done = decided(&host, &NodeSeen::NotAsked);
    assert_eq!(done.annotations, [(HOLD.to_owned(), None)].into());
    assert!(done.status.clear_stamps);
}

#[test]
fn an_available_host_that_shares_its_node_keeps_what_is_asked_of_it() {
    let policy = Policy { manage_available: true, ..Policy::default() };
    let mut host = with(&[(HOLD, "")]);
    (host.state, host.shared_with) = (ProvisioningState::Available, Some("n/other".to_owned()));
    host.conditions.clear();
    let told = decided_by(&policy, &host, &node(Power::On)).status;
    write(&mut host, &told);
    let done = decided_by(&policy, &host, &node(Power::On));
    assert_eq!((done.reason, done.annotations.len()), (Reason::NodeShared, 0));
    assert!(done.status.is_empty());
}

/// It was held off before the operator was to be paused, and a webhook refuses the pause.
#[test]
fn who_holds_a_host_that_cannot_be_taken_over_is_not_told_any_longer_that_it_is_off() {
    let mut held = Host { powered_on: false, ..with(&[(HOLD, HARD)]) };
    let step = RebootProgress::new(Reason::HeldOff, at(999_990));
    put(&mut held, &RebootProgress { held: KeySet::of([HOLD]), ..step });
    let is_held = |host: &Host| host.progress().unwrap().is_held_for(&[HOLD]);
    assert_eq!(decided_by(&policy(), &held, &node(Power::Off)).reason, Reason::TakenOver);
    for (host, seen) in [(held, node(Power::Off)), (host(), node(Power::On))] {
        let refused = |host: &Host| -> Decided {
            not_taken_over(&observed(host, &seen), &policy(), now()).into()
        };
        let done = refused(&host);
        assert!(done.annotations.is_empty() && done.call.is_none(), "{done:?}");
        let told = after(host, &done);
        let managed = told.managed().unwrap();
        assert!(!managed.managed && managed.reason == Reason::Refused, "{managed:?}");
        assert!(told.progress().is_none() || !is_held(&told), "{:?}", told.progress());
        assert!(told.record().known().unwrap().was_provisioned, "what it asks for ends with it");
        assert!(refused(&told).status.is_empty(), "once: {:?}", refused(&told));
        assert_eq!(decided_by(&policy(), &told, &seen).reason, Reason::TakenOver, "and again");
    }
}

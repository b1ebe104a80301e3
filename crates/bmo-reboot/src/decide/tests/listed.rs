//! Which hosts a list of all nodes has looked at, and which have nothing to do. The decision on what it shows says so.

use super::*;

#[test]
fn a_host_is_at_rest_only_without_anything_to_do_and_anything_to_tell() {
    let rest = || -> Decision { Decision::rest(Reason::Managed) };
    let event = |hourly| Event { hourly, ..Event::new(true, "PowerManaged", "", "") };
    assert!(is_at_rest(&Decision { events: vec![event(Some(0))], ..rest() }));
    assert!(!is_at_rest(&Decision { events: vec![event(None)], ..rest() }));
    assert!(!is_at_rest(&Decision { next: Next::Now, ..rest() }));
}

/// What a list shows of a host: it tells by itself when Ironic has done something.
fn on_list(host: &Host, node: &NodeSeen) -> Decision {
    let policy = Policy { takeover: host.paused == Pause::ByUs, ..Policy::default() };
    decide(&Observed { pace: None, ..observed(host, node) }, &policy, now())
}

fn needs_look(host: &Host, node: &NodeSeen) -> bool {
    super::needs_look(&on_list(host, node))
}

fn shown(power: Power) -> NodeSeen {
    change(node(power), |node| node.off_for = None)
}

/// A host that is held off and says so.
fn held() -> Host {
    let mut host =
        Host { powered_on: false, ..cycling(&[(HOLD, HARD)], Reason::PoweredOff, true, 5) };
    let done = decided(&host, &node(Power::Off));
    write(&mut host, &done.status);
    host
}

#[test]
fn a_host_at_rest_is_left_alone_and_any_change_of_its_node_is_looked_at() {
    assert!(is_at_rest(&on_list(&host(), &shown(Power::On))));
    assert!(is_at_rest(&on_list(&held(), &shown(Power::Off))));
    for (number, (host, node)) in [
        (host(), shown(Power::Off)),
        (held(), shown(Power::On)),
        (held(), change(shown(Power::Off), |node| node.maintenance = true)),
        (held(), shown(Power::Unknown)),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(needs_look(&host, &node), "{number}");
    }
}

#[test]
fn a_node_that_vanishes_and_one_that_comes_back_are_looked_at() {
    let mut host = host();
    assert!(needs_look(&host, &NodeSeen::Missing));
    let gone = decided(&host, &NodeSeen::Missing);
    write(&mut host, &gone.status);
    assert!(!needs_look(&host, &NodeSeen::Missing), "it has said so");
    assert!(needs_look(&host, &shown(Power::On)));
}

#[test]
fn who_waits_for_ironic_is_not_woken_before_it_has_done_something() {
    let cut = cycling(&[(PLAIN, HARD)], Reason::HardPowerOff, true, 2);
    assert!(!needs_look(&cut, &heading(Power::On, Power::Off)));
    for node in [shown(Power::Off), failed(Power::On)] {
        assert!(needs_look(&cut, &node), "{node:?}");
    }
    let soft = cycling(&[(HOLD, "")], Reason::SoftPowerOff, false, 5);
    assert!(needs_look(&soft, &shown(Power::Off)), "a second reading is to follow");
}

#[test]
fn that_a_node_alone_still_says_that_its_machine_must_stay_on_is_looked_at() {
    let ours = Host { paused: Pause::ByUs, ..host() };
    let banned = change(shown(Power::On), |node| node.disable_power_off = true);
    assert!(needs_look(&ours, &banned), "its spec has allowed it");
    let both = Host { disable_power_off: true, ..ours };
    assert!(!needs_look(&both, &banned));
}

#[test]
fn a_list_tells_that_the_operator_has_done_with_a_node_what_it_had_to() {
    let policy = Policy { takeover: true, ..Policy::default() };
    let on_list = |host: &Host, node: &NodeSeen| -> Decision {
        decide(&Observed { pace: None, ..observed(host, node) }, &policy, now())
    };
    let registered = change(shown(Power::On), |node| node.registration = Some("verifying"));
    let banned = change(shown(Power::On), |node| node.disable_power_off = true);
    for unready in [registered, banned] {
        let told = after(host(), &on_list(&host(), &unready).into());
        assert!(is_at_rest(&on_list(&told, &unready)), "{unready:?}");
        let done = on_list(&told, &shown(Power::On));
        assert!(super::needs_look(&done) && done.reason == Reason::TakenOver, "{done:?}");
    }
}

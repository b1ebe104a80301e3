//! A status that nobody may write: a policy refuses it, or the webhook that judges it runs on the very machine that is off.

use super::*;

fn acts_without_words(decision: &Decision) -> Vec<&Act> {
    decision.acts.iter().filter(|it| !matches!(it, Act::Say(_))).collect()
}

fn is_let_go(decision: &Decision) -> bool {
    writes(decision).iter().any(|it| it.key == Some(false))
}

#[test]
fn a_host_is_tainted_and_let_go_in_time_although_no_word_of_it_can_be_said() {
    // Nothing was ever said of it, or no more than that its host is asked.
    let mute = edit(off(), |seen| seen.request.standing = Standing::default());
    let busy = |seen: &Observed, taint| {
        edit(seen.clone(), |it| it.node = NodeSeen::Here(Node { busy: 3, taint, ..node() }))
    };
    assert_eq!(now(&busy(&mute, Taint::None), 4).acts.len(), 1, "people read of a try first");
    for seen in [mute, off()] {
        let first = now(&busy(&seen, Taint::None), 5);
        assert_eq!(acts_without_words(&first), [&Act::Taint]);
        let away = edit(seen.clone(), |it| it.node = NodeSeen::NoAccess("away".to_owned()));
        for seen in [busy(&seen, Taint::Ours), away] {
            let waits = now(&seen, 719);
            assert!(acts_without_words(&waits).is_empty() && waits.again.is_some(), "{waits:?}");
            assert!(is_let_go(&now(&seen, 720)), "after both timeouts: {:?}", now(&seen, 720));
        }
        let idle = edit(seen, |it| it.node = NodeSeen::Here(node()));
        assert!(is_let_go(&now(&idle, 5)), "{:?}", now(&idle, 5));
    }
}

#[test]
fn nothing_is_judged_of_a_try_before_it_is_said_that_it_was_begun() {
    for seen in [asked(), released()] {
        let mute = edit(seen, |seen| {
            seen.request.standing = Standing::default();
            seen.request.strategy = Ok(Strategy { retries: 0, timeout: Duration::from_secs(300) });
            seen.node = NodeSeen::Here(node());
        });
        let first = now(&mute, 5000);
        let [Act::Say(standing)] = first.acts.as_slice() else { panic!("{first:?}") };
        assert_eq!(standing.phase, Some(Phase::Running));
        let told = edit(mute, |seen| seen.request.standing = standing.clone());
        assert_eq!(now(&told, 5000).reason, Reason::Exhausted);
    }
}

#[test]
fn a_host_that_was_off_late_has_all_the_time_for_its_node() {
    let late = edit(off(), |seen| {
        seen.request.standing.since = Some(at(5000));
        seen.node = NodeSeen::Here(Node { busy: 3, ..node() });
    });
    let first = now(&late, 5500);
    assert!(!is_let_go(&first), "something was in the way until 5000: {first:?}");
    let told = edit(late, |seen| seen.request.standing = said(&first));
    assert!(!is_let_go(&now(&told, 5619)) && is_let_go(&now(&told, 5620)));
}

#[test]
fn a_node_that_is_back_is_given_back_although_nobody_can_say_that_its_host_is_on() {
    let on = |kubelet: &str| {
        let kubelet = kubelet.to_owned();
        let node = Node { ready: true, kubelet, taint: Taint::Ours, ..node() };
        let seen = edit(released(), |seen| {
            seen.host.as_mut().unwrap().powered_on = true;
            seen.node = NodeSeen::Here(node);
        });
        now(&seen, 5000)
    };
    assert_eq!(acts_without_words(&on("after")), [&Act::Untaint]);
    assert!(acts_without_words(&on("before")).is_empty());
    let unasked = edit(released(), |seen| {
        seen.host.as_mut().unwrap().powered_on = true;
        seen.node = NodeSeen::NotAsked;
    });
    assert!(now(&unasked, 30).needs_node);
}

#[test]
fn no_finalizer_goes_ahead_of_the_word_that_it_rests_on() {
    let back = Node { ready: true, kubelet: "after".to_owned(), ..node() };
    let back = edit(recovering(), |seen| seen.node = NodeSeen::Here(back));
    let decision = now(&back, 30);
    let [.., Act::Say(_), Act::RemoveFinalizer] = decision.acts.as_slice() else {
        panic!("it would say for ever that its node is awaited: {decision:?}")
    };
}

/// The next try has begun, and nobody may say so: what stands there is that the node of the one before is awaited, or its success.
#[test]
fn by_the_word_of_the_try_before_no_try_is_judged_nor_another_begun() {
    let fails = edit(succeeded(), |seen| seen.node = NodeSeen::Here(node()));
    for (before, second) in [(recovering(), 320), (fails, 330)] {
        let mut seen = edit(before.clone(), |seen| seen.request.finalizer = true);
        seen = written(seen, &now(&before, second));
        seen.node = NodeSeen::Here(node());
        seen.host.as_mut().unwrap().powered_on = false;
        let off = now(&seen, second + 10);
        assert_eq!(acts_without_words(&off)[0], &Act::Taint, "{off:?}");
        assert!(is_let_go(&off));
        seen = written(seen, &off);
        for second in [second + 20, second + 5000] {
            let next = now(&seen, second);
            assert!(acts_without_words(&next).is_empty(), "{next:?}");
            assert!(said(&next).is_under_way() && said(&next).retries == 1, "{next:?}");
        }
    }
}

/// Of CAPM3's kind the status was taken, and the annotation refused that says the step: it is that of the try before.
#[test]
fn a_node_has_its_time_from_when_its_host_was_let_go_whatever_an_old_word_says() {
    let old = edit(recovering(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.released = Some(at(5000)));
    });
    assert_eq!(now(&old, 5299).reason, Reason::Recovering);
    assert_eq!(now(&old, 5300).reason, Reason::NotRecovered);
}

/// It was said that Ironic is away, or that the firmware is changed. That ended, and since then nobody may say anything.
#[test]
fn a_host_is_let_go_in_time_after_something_was_in_the_way_although_that_still_stands_there() {
    for reason in [Reason::HostUnreachable, Reason::HostServicing] {
        let hindered = edit(off(), |seen| {
            let message = String::new();
            seen.request.standing.said = Some(Said { succeeded: None, reason, message });
            seen.request.standing.since = Some(at(100));
            seen.node = NodeSeen::Here(Node { busy: 3, taint: Taint::Ours, ..node() });
        });
        let noted = now(&hindered, 5000);
        assert!(!is_let_go(&noted), "{noted:?}");
        let free = edit(hindered, |seen| {
            seen.host.as_mut().unwrap().history = writes(&noted)[0].history.clone().unwrap();
        });
        for second in [5000, 5719] {
            let waits = now(&free, second);
            assert!(acts_without_words(&waits).is_empty() && waits.again.is_some(), "{waits:?}");
        }
        assert!(is_let_go(&now(&free, 5720)), "{:?}", now(&free, 5720));
    }
}

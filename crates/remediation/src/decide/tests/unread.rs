//! A host that shows off when it is asked, and of whose power nobody writes down anything: an operator for which it is as it
//! should be does not.

use super::*;

/// Asked for at 0. What its status says is from before that.
fn unread() -> Observed {
    edit(off(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.was_on = false);
        seen.node = NodeSeen::Here(node());
    })
}

#[test]
fn a_host_that_shows_off_is_let_go_at_the_deadline_and_its_node_is_left_alone() {
    for fencing in [Fencing::Taint, Fencing::Delete, Fencing::None] {
        let policy = Policy { fencing, ..Policy::default() };
        let waits = decide(&unread(), &policy, at(599));
        assert!(waits.acts.is_empty(), "its power may still be read: {waits:?}");
        let decision = decide(&unread(), &policy, at(600));
        let [Act::Host(write)] = decision.acts.as_slice() else { panic!("{decision:?}") };
        assert_eq!((decision.reason, write.key), (Reason::PowerOn, Some(false)));
        let entry = write.history.as_ref().unwrap().open("uid").unwrap();
        assert_eq!((entry.off, entry.released), (None, Some(at(600))));
        assert_eq!(entry.kubelet.as_deref(), Some("before"));
        assert!(entry.fenced.as_ref().unwrap().contains("nobody read the host's power"));
        let [note] = decision.notes.as_slice() else { panic!("{decision:?}") };
        assert!(note.warning && note.text.contains("the host shows off"), "{note:?}");
    }
}

#[test]
fn the_plain_key_is_set_beside_ours_where_only_its_removal_tells_that_the_power_was_read() {
    let beside = |change: fn(&mut Host), policy: &Policy| {
        let seen = edit(fresh(), |seen| {
            let host = seen.host.as_mut().unwrap();
            host.powered_on = false;
            change(host);
        });
        let seen = edit(seen, |seen| seen.node = NodeSeen::Here(node()));
        let decision = decide(&seen, policy, at(0));
        let write = writes(&decision)[0].clone();
        assert_eq!(write.key, Some(true));
        write.history.unwrap().open("uid").unwrap().beside
    };
    let usual = Policy::default();
    assert!(beside(|_| {}, &usual));
    assert!(!beside(|host| host.powered_on = true, &usual), "its next off is news");
    assert!(!beside(|host| host.has_room = false, &usual), "somebody else's, or bmo-reboot's");
    let plain = Policy { plain: true, ..Policy::default() };
    assert!(!beside(|_| {}, &plain), "it is the key itself");
}

#[test]
fn a_host_whose_power_was_read_since_it_was_asked_is_fenced_at_once() {
    let read = edit(unread(), |seen| seen.host.as_mut().unwrap().read_off = true);
    let decision = now(&read, 3);
    assert!(decision.acts.contains(&Act::Taint), "{decision:?}");
    // Without our own key the operator would have taken the plain one for a reboot: both are set anew.
    let lost = edit(read, |seen| {
        let host = seen.host.as_mut().unwrap();
        (host.held, host.read_off) = (false, false);
        host.history = host.history.changed("uid", |it| it.beside = true);
    });
    let again = now(&lost, 4);
    let write = &writes(&again)[0];
    assert!(write.key == Some(true) && write.history.is_none(), "{again:?}");
    assert!(!again.acts.contains(&Act::Taint), "{again:?}");
}

#[test]
fn what_a_kubelet_says_of_a_host_that_nobody_looked_at_is_asked_before_it_may_come_back() {
    let unasked = edit(unread(), |seen| seen.node = NodeSeen::NotAsked);
    let looks = now(&unasked, 600);
    assert!(looks.needs_node && looks.acts.is_empty(), "{looks:?}");
    let nameless = edit(unasked, |seen| seen.machine.as_mut().unwrap().node = None);
    assert_eq!(writes(&now(&nameless, 600))[0].key, Some(false));
    let away = edit(unread(), |seen| seen.node = NodeSeen::NoAccess("away".to_owned()));
    assert_eq!(writes(&now(&away, 600))[0].key, Some(false), "nothing is waited for");
}

#[test]
fn a_host_that_nobody_looked_at_has_its_time_to_come_back_and_its_node_too() {
    let let_go = now(&unread(), 600);
    let free = edit(unread(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.held = false;
        host.history = writes(&let_go)[0].history.clone().unwrap();
    });
    let message = said(&now(&free, 606)).said.unwrap().message;
    assert!(message.contains("the host shows off (the node was left alone"), "{message}");
    assert_eq!(now(&free, 1200).reason, Reason::PowerOnTimedOut);
    let on = edit(free, |seen| seen.host.as_mut().unwrap().powered_on = true);
    let back = edit(on.clone(), |seen| {
        seen.request.standing = said(&now(&on, 1000));
        let after = Node { ready: true, kubelet: "after".to_owned(), ..node() };
        seen.node = NodeSeen::Here(after);
    });
    assert_eq!(now(&back, 1010).reason, Reason::Recovered);
}

#[test]
fn a_retry_of_a_host_that_did_not_come_back_ends_as_the_first_try_may() {
    let again = now(&released(), 610);
    assert_eq!(again.reason, Reason::PowerOnTimedOut);
    let begun = written(released(), &again);
    let second = edit(begun.clone(), |seen| seen.request.standing = said(&now(&begun, 611)));
    let let_go = now(&second, 1210);
    assert_eq!((let_go.reason, writes(&let_go)[0].key), (Reason::PowerOn, Some(false)));
    assert!(!writes(&let_go)[0].mark, "that it shows off is no reason to give it up: {let_go:?}");
}

#[test]
fn a_time_in_which_nobody_was_at_work_is_made_up_for_before_a_host_is_let_go_unread() {
    let missed = edit(unread(), |seen| seen.started = Some(at(700)));
    let noted = now(&missed, 701);
    assert_eq!(writes(&noted)[0].key, None, "{noted:?}");
    let next = edit(missed, |seen| {
        seen.host.as_mut().unwrap().history = writes(&noted)[0].history.clone().unwrap();
    });
    assert!(now(&next, 1299).acts.is_empty());
    assert_eq!(writes(&now(&next, 1300))[0].key, Some(false));
}

#[test]
fn a_word_that_was_there_before_the_key_is_remembered_with_the_try() {
    let word = Some(at(7));
    let begun = |held: bool| {
        let seen = edit(fresh(), |seen| {
            let host = seen.host.as_mut().unwrap();
            (host.held, host.held_off_at, host.powered_on) = (held, word, false);
        });
        writes(&now(&seen, 20))[0].history.clone().unwrap().open("uid").unwrap().held_off_before
    };
    assert_eq!(begun(false), word, "it is of the try before");
    // The next try was counted, and whoever switches the host wrote to it before it could be asked again.
    assert_eq!(begun(true), None, "our key was there when it was said");
}

#[test]
fn a_taint_of_ours_is_told_of_although_nobody_reads_the_power_any_more() {
    let tainted = edit(unread(), |seen| {
        seen.node = NodeSeen::Here(Node { taint: Taint::Ours, ..node() });
    });
    let text = &now(&tainted, 600).notes[0].text;
    assert!(text.contains("nobody has read") && !text.contains("left alone"), "{text}");
}

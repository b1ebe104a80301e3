//! How a try begins, and by the plain key.

use super::*;

fn plainly(seen: &Observed, second: i64) -> Decision {
    decide(seen, &Policy { plain: true, ..Policy::default() }, at(second))
}

/// What is written, in order.
fn order(decision: &Decision) -> Vec<&'static str> {
    let name = |act: &Act| match act {
        Act::AddFinalizer => "finalizer",
        Act::Host(write) if write.key == Some(true) => "key",
        Act::Host(_) => "host",
        Act::Say(_) => "status",
        _ => "other",
    };
    decision.acts.iter().map(name).collect()
}

#[test]
fn the_finalizer_comes_before_the_key_and_what_people_read_after_it() {
    let first = now(&fresh(), 0);
    assert_eq!(order(&first), ["finalizer", "key"]);
    assert_eq!(order(&now(&begun(fresh(), &first), 1)), ["status"]);
}

/// Its API server, and perhaps whoever switches its host, go off with it.
#[test]
fn before_the_only_member_of_a_control_plane_is_cut_off_people_are_told_once() {
    let alone = edit(fresh(), |seen| {
        seen.machine.as_mut().unwrap().control_plane = true;
        seen.only_member = true;
    });
    let first = now(&alone, 0);
    assert_eq!(order(&first), ["finalizer", "status"], "its host is not asked yet");
    let is_warned = |text: &str| text.contains("the cluster has no API while the host is off");
    let [note] = first.notes.as_slice() else { panic!("{first:?}") };
    assert!(note.warning && is_warned(&note.text), "{note:?}");
    let standing = said(&first);
    assert!(is_warned(&standing.said.as_ref().unwrap().message) && standing.step.is_none());
    assert_eq!(first.again, Some(Duration::ZERO));
    let with_finalizer = edit(alone.clone(), |seen| seen.request.finalizer = true);
    assert_eq!(order(&now(&with_finalizer, 0)), ["key"], "a word that is refused stops nothing");
    let told = edit(with_finalizer, |seen| seen.request.standing = standing);
    let second = now(&told, 0);
    assert_eq!((order(&second), second.notes.len()), (vec!["key"], 0), "once");
    let asked = edit(told, |seen| {
        let host = seen.host.as_mut().unwrap();
        (host.held, host.history) = (true, writes(&second)[0].history.clone().unwrap());
    });
    let third = now(&asked, 1);
    assert!(is_warned(&said(&third).said.unwrap().message), "it goes on saying so");
    assert!(third.notes.iter().all(|it| !it.warning), "{third:?}");
    let of_many = edit(alone, |seen| seen.only_member = false);
    assert_eq!(order(&now(&of_many, 0)), ["finalizer", "key"]);
}

#[test]
fn a_try_names_the_installation_that_it_belongs_to() {
    let policy = Policy { watch_filter: Some("a".to_owned()), ..Policy::default() };
    let labelled = edit(fresh(), |seen| seen.request.label = Some("a".to_owned()));
    let decision = decide(&labelled, &policy, at(0));
    let entry = writes(&decision)[0].history.as_ref().unwrap().open("uid").unwrap().clone();
    assert_eq!(entry.filter.as_deref(), Some("a"));
}

#[test]
fn what_follows_the_key_is_found_on_the_host_when_it_was_cut_off() {
    let cut = edit(asked(), |seen| {
        seen.request.finalizer = false;
        seen.request.standing = Standing::default();
    });
    let next = now(&cut, 1);
    assert_eq!(order(&next), ["finalizer", "status"]);
    // Somebody else's finalizer keeps a request that was withdrawn meanwhile.
    let withdrawn = edit(cut, |seen| seen.request.deleting = Some(at(1)));
    let next = now(&withdrawn, 1);
    assert_eq!(order(&next), ["host"]);
    assert!(matches!(&next.acts[0], Act::Host(write) if write.key == Some(false)));
}

fn by_plain_key(seen: Observed) -> Observed {
    edit(seen, |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.plain = true);
    })
}

#[test]
fn a_try_ends_in_the_way_in_which_it_began_although_the_setting_changed() {
    let held = edit(off(), |seen| seen.node = NodeSeen::Here(node()));
    let let_go = plainly(&held, 5);
    assert!(let_go.acts.contains(&Act::Taint), "{let_go:?}");
    assert_eq!(writes(&let_go)[0].key, Some(false), "nobody else takes our own key away");
    let taken = edit(by_plain_key(asked()), |seen| seen.host.as_mut().unwrap().held = false);
    let next = now(&taken, 5);
    assert_eq!((next.reason, order(&next)), (Reason::PowerOn, vec!["host"]));
    assert_eq!(writes(&next)[0].key, None, "it is not asked for twice");
}

#[test]
fn a_plain_reboot_waits_until_its_key_is_taken_and_leaves_the_node_alone() {
    assert!(plainly(&fresh(), 0).needs_node, "what its kubelet said until then is no news later");
    let first = plainly(&edit(fresh(), |seen| seen.node = NodeSeen::Here(node())), 0);
    let Some(Act::Host(asked_for)) = first.acts.get(1) else { panic!("{first:?}") };
    let entry = asked_for.history.as_ref().unwrap().open("uid").unwrap();
    assert_eq!(entry.kubelet.as_deref(), Some("before"));
    assert!(asked_for.key == Some(true) && entry.plain);
    // Off or not: as long as the key is there the reboot goes on.
    for seen in [by_plain_key(asked()), by_plain_key(off())] {
        let waits = plainly(&seen, 5);
        assert!(waits.acts.is_empty() && waits.again.is_some(), "{waits:?}");
    }
    let late = plainly(&by_plain_key(asked()), 600);
    assert!(late.notes.iter().any(|it| it.reason == Reason::PowerOffTimedOut), "{late:?}");
    let taken = edit(by_plain_key(off()), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.held = false;
        host.history = host.history.changed("uid", |it| it.kubelet = Some("before".to_owned()));
    });
    let next = plainly(&taken, 5);
    assert_eq!(order(&next), ["host"]);
    assert_eq!(next.reason, Reason::PowerOn);
    let Act::Host(write) = &next.acts[0] else { panic!("{next:?}") };
    let entry = write.history.as_ref().unwrap().open("uid").unwrap();
    assert_eq!((entry.released, write.key), (Some(at(5)), None));
    assert_eq!(entry.kubelet.as_deref(), Some("before"), "it is still known");
}

#[test]
fn an_off_is_news_where_the_host_was_seen_on_beside_our_key() {
    let unknown = |seen: Observed| {
        edit(seen, |seen| {
            let host = seen.host.as_mut().unwrap();
            host.history = host.history.changed("uid", |it| it.was_on = false);
        })
    };
    assert_eq!(now(&unknown(off()), 5).reason, Reason::PowerOff, "it may be from before our key");
    let on = now(&unknown(asked()), 5);
    assert_eq!((on.reason, order(&on)), (Reason::PowerOff, vec!["host"]));
    let write = writes(&on)[0];
    let history = write.history.clone().unwrap();
    assert!(write.key.is_none() && history.open("uid").unwrap().was_on, "{write:?}");
    let known =
        |seen: Observed| edit(seen, |seen| seen.host.as_mut().unwrap().history = history.clone());
    assert!(now(&known(asked()), 6).acts.is_empty(), "once");
    assert_eq!(now(&known(off()), 7).reason, Reason::Fencing);
    // What is read without our key says nothing about it, and the plain key holds nothing off.
    let taken = edit(unknown(asked()), |seen| seen.host.as_mut().unwrap().held = false);
    assert_eq!(order(&now(&taken, 5)), ["key"]);
    assert!(plainly(&by_plain_key(unknown(asked())), 5).acts.is_empty());
}

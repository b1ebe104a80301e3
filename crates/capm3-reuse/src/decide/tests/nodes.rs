//! The Node of a machine that is up: when it is looked for, which one it is, and what is told of it.

use super::*;
use crate::seen::NodeSeen;

const ID: &str = "metal3://ns/h/m";
const OLD: &str = "metal3://ns/h/m-before";

/// A machine that is up for so many seconds and has said so.
fn up(seconds: i64) -> MachineSeen {
    let installed = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let ours = with(&host("h", "provisioned"), &consumer("m", "m-uid"));
    let mut seen = having(&with(&ours, &installed));
    seen.machine.spec.provider_id = Some(ID.to_owned());
    let since = Timestamp::from_second(now().as_second() - seconds).unwrap().to_string();
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": since});
    let mut status = serde_json::to_value(&seen.machine.status).unwrap();
    status["initialization"] = json!({"provisioned": true});
    status["conditions"].as_array_mut().unwrap().push(ready);
    seen.machine.status = serde_json::from_value(status).unwrap();
    let first = decided(&seen);
    after(seen, &first)
}

/// The same when what is to be reported was.
fn after(mut seen: MachineSeen, decision: &Decision) -> MachineSeen {
    let mut status = serde_json::to_value(&seen.machine.status).unwrap();
    for step in &decision.writes {
        if let Write::Report(patch) = step {
            merge(&mut status, patch);
        }
    }
    seen.machine.status = serde_json::from_value(status).unwrap();
    seen
}

fn looked(seen: &MachineSeen, nodes: &[Node]) -> MachineSeen {
    MachineSeen { node: NodeSeen::Seen(nodes.to_vec()), ..seen.clone() }
}

fn node(name: &str, provider_id: &str, lives: bool) -> Node {
    Node {
        name: name.to_owned(),
        version: "3".to_owned(),
        provider_id: provider_id.to_owned(),
        lives,
    }
}

fn parent(seen: &mut MachineSeen) -> &mut Machine {
    match &mut seen.parent {
        Parent::Here(parent) => parent,
        other => panic!("{other:?}"),
    }
}

fn found(seen: &mut MachineSeen) {
    let status = json!({"nodeRef": {"name": "n"}});
    parent(seen).status = Some(serde_json::from_value(status).unwrap());
}

#[test]
fn a_node_is_looked_for_while_its_machine_is_up_and_has_none() {
    let seen = up(0);
    let it = seen.sought().unwrap();
    assert_eq!((it.host_uid, it.provider_id), ("h-uid", ID));
    let changes: [Change; 11] = [
        found,
        |it| parent(it).metadata.deletion_timestamp = Some(Time(now())),
        |it| it.parent = Parent::Gone("m".to_owned()),
        |it| it.machine.metadata.deletion_timestamp = Some(Time(now())),
        |it| it.machine.status = None,
        |it| it.machine.spec.provider_id = Some("cloud://m".to_owned()),
        |it| annotate(&mut it.machine, names::capi::PAUSED, ""),
        |it| annotate(&mut it.machine, names::ferrite::HOST_UID, "of one before"),
        |it| it.cluster.as_mut().unwrap().spec.paused = Some(true),
        |it| it.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(now())),
        |it| it.host = HostSeen::Here(Box::new(host("h", "provisioned"))),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        // Whatever was seen before is not acted on either.
        let mut seen = looked(&up(0), &[node("n", "", true)]);
        assert!(decided(&seen).named().is_some());
        change(&mut seen);
        assert!(seen.sought().is_none(), "{number}");
        assert_eq!(decided(&seen).named(), None, "{number}");
    }
}

#[test]
fn only_one_node_that_lives_and_says_no_id_gets_one() {
    let seen = up(0);
    let (silent, nameless) = (|name| node(name, "", false), |name| node(name, "", true));
    for (nodes, named, reason) in [
        (vec![], None, Reason::Provisioned),
        (vec![nameless("n")], Some("n"), Reason::Provisioned),
        (vec![node("n", ID, true)], None, Reason::Provisioned),
        (vec![nameless("n"), node("o", ID, false)], None, Reason::Provisioned),
        // What the machines that had this host before left behind.
        (vec![silent("n")], None, Reason::Provisioned),
        (vec![node("n", OLD, false)], None, Reason::Provisioned),
        (vec![silent("n"), node("o", OLD, false), nameless("p")], Some("p"), Reason::Provisioned),
        (vec![node("n", OLD, true)], None, Reason::NodeForeign),
        (vec![nameless("n"), nameless("o")], None, Reason::NodeAmbiguous),
        (vec![nameless("n"), node("o", OLD, true)], None, Reason::NodeAmbiguous),
    ] {
        let decision = decided(&looked(&seen, &nodes));
        let wanted = named.map(|name| node(name, ID, true));
        assert_eq!((decision.named(), decision.reason), (wanted, reason), "{nodes:?}");
    }
}

#[test]
fn what_is_told_of_a_node_is_told_once_and_stays_until_the_node_is_found() {
    let foreign = [node("n", OLD, true)];
    let mut seen = looked(&up(5000), &foreign);
    let first = decided(&seen);
    assert_eq!((kinds(&first), first.news()), (vec!["report"], true));
    assert!(first.message().contains(OLD) && first.message().contains(ID), "{}", first.message());
    seen = after(seen, &first);
    let ready = status::reported(&seen.machine, "Ready").unwrap();
    assert!(ready.is_true() && ready.reason.as_deref() == Some("NodeForeign"), "{ready:?}");
    for node in [
        NodeSeen::Unasked,
        NodeSeen::Unanswered("why".to_owned()),
        NodeSeen::Seen(Vec::new()),
        NodeSeen::Seen(foreign.to_vec()),
    ] {
        seen.node = node;
        let again = decided(&seen);
        assert_eq!((kinds(&again), again.news()), (vec![], false), "{:?}", seen.node);
    }
    for found in [looked(&seen, &[node("n", ID, true)]), {
        found(&mut seen);
        seen
    }] {
        let decision = decided(&found);
        assert_eq!((decision.reason, decision.news()), (Reason::Provisioned, false));
        assert_eq!(kinds(&decision), ["report"]);
    }
}

#[test]
fn a_machine_that_is_long_without_a_node_says_so_and_why() {
    let unanswered = |why: &str| NodeSeen::Unanswered(why.to_owned());
    let of = |seconds: i64, node: NodeSeen| {
        let seen = MachineSeen { node, ..up(seconds) };
        (decided(&seen), seen)
    };
    for (seconds, missing) in [(-3600, false), (1199, false), (1200, true)] {
        for node in [NodeSeen::Seen(Vec::new()), unanswered("why")] {
            let (decision, _) = of(seconds, node);
            assert_eq!(decision.reason == Reason::NodeMissing, missing, "{seconds}");
            assert_eq!(kinds(&decision).len(), usize::from(missing), "{seconds}");
        }
    }
    let (decision, mut seen) = of(1200, unanswered("no secret"));
    assert!(decision.message().contains("no secret"), "{}", decision.message());
    seen = after(seen, &decision);
    // The same in other words is no news; what the cluster answers is, and stays.
    seen.node = unanswered("other words");
    assert_eq!(kinds(&decided(&seen)), [""; 0]);
    let seen = looked(&seen, &[]);
    let decision = decided(&seen);
    assert!(decision.message().contains("metal3.io/uuid=h-uid"), "{}", decision.message());
    assert_eq!(kinds(&decision), ["report"]);
    let seen = MachineSeen { node: unanswered("no secret"), ..after(seen, &decision) };
    assert_eq!(kinds(&decided(&seen)), [""; 0]);
}

#[test]
fn a_node_is_looked_for_again_after_twenty_seconds_doubling_to_a_minute() {
    for (seconds, wanted) in [(-50, 20), (0, 20), (20, 20), (40, 40), (80, 60), (9999, 60)] {
        let decision = decided(&looked(&up(seconds), &[]));
        assert_eq!(decision.again(), Some(Duration::from_secs(wanted)), "{seconds}");
    }
    // While others look it comes for its turn no more often.
    let mut seen = up(9999);
    assert_eq!(seen.node, NodeSeen::Unasked);
    assert_eq!(decided(&seen).again(), Some(Duration::from_secs(60)));
    found(&mut seen);
    assert_eq!(decided(&seen).again(), None);
}

#[test]
fn a_machine_that_is_up_gets_its_provider_id_again_when_somebody_took_it_away() {
    let mut seen = up(0);
    assert_eq!(kinds(&decided(&seen)), [""; 0]);
    seen.machine.spec.provider_id = None;
    let decision = decided(&seen);
    assert!(
        matches!(&decision.writes[..], [Write::Identify { provider_id, .. }] if provider_id == ID)
    );
}

#[test]
fn a_machine_that_was_up_and_whose_host_loses_its_image_or_goes_is_not_up() {
    let ours = with(&host("h", "provisioned"), &consumer("m", "m-uid"));
    let going = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"image": {"url": "http://a/b"}},
    });
    for (host, told) in [(with(&ours, &going), "is being deleted"), (ours, "has no image")] {
        let mut seen = up(0);
        seen.host = HostSeen::Here(Box::new(host));
        let decision = decided(&seen);
        assert_eq!((decision.reason, kinds(&decision)), (Reason::HostLost, vec!["report"]));
        assert!(decision.news() && decision.message().contains(told), "{}", decision.message());
        let later = after(seen, &decision);
        assert_eq!(kinds(&decided(&later)), [""; 0]);
    }
}

#[test]
fn a_host_that_is_the_machines_again_is_told_or_the_last_word_would_be_that_it_is_lost() {
    let ours = with(&host("h", "provisioned"), &consumer("m", "m-uid"));
    let mut seen = up(0);
    seen.host = HostSeen::Here(Box::new(ours.clone()));
    let lost = decided(&seen);
    assert_eq!(lost.reason, Reason::HostLost);
    let mut seen = after(seen, &lost);
    let image = json!({"spec": {"image": {"url": "http://a/b"}}});
    seen.host = HostSeen::Here(Box::new(with(&ours, &image)));
    let back = decided(&seen);
    assert_eq!(
        (back.reason, kinds(&back), back.news()),
        (Reason::Provisioned, vec!["report"], true)
    );
    assert!(back.message().contains("this machine's again"), "{}", back.message());
    let rests = decided(&after(seen, &back));
    assert_eq!((kinds(&rests), rests.news()), (vec![], false));
}

#[test]
fn a_host_that_is_lost_is_told_apart_from_one_of_its_name_and_from_one_that_still_runs() {
    let installed = json!({"spec": {"image": {"url": "http://a/b"}}});
    let another = json!({"metadata": {"uid": "another"}});
    for (host, told) in [
        (host("h", "available"), "and is free"),
        (with(&host("h", "provisioned"), &installed), "still runs"),
        (with(&host("h", "available"), &another), "is another"),
        (with(&host("h", "available"), &consumer("other", "x")), "Metal3Machine other has it"),
    ] {
        let mut seen = up(0);
        seen.host = HostSeen::Here(Box::new(host));
        let decision = decided(&seen);
        assert_eq!(decision.reason, Reason::HostLost);
        assert!(decision.message().contains(told), "{}", decision.message());
    }
}

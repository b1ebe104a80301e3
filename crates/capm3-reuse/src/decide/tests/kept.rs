//! Until when a host is kept.

use super::*;
use crate::seen::OwnerSeen;

fn kept_seen(owner: Option<OwnerSeen>, since: Option<u64>) -> KeptSeen {
    let host = with(&host("h", "available"), &kept_for(&self::owner()));
    let kept = crate::reservation::Kept::of(&host).unwrap();
    let settled_for = since.map(Duration::from_secs);
    KeptSeen { host, kept, owner, settled_for }
}

#[test]
fn a_reservation_ends_for_these_reasons_and_for_no_other() {
    let settled = OwnerSeen { replicas: 2, machines: 2, ..OwnerSeen::default() };
    let needed = OwnerSeen { machines: 1, ..settled.clone() };
    let policy = Policy::default();
    let told = |seen: KeptSeen| {
        let decision = decide(&Observed::Kept(Box::new(seen)), &policy, now());
        (decision.reason, !decision.writes.is_empty())
    };
    assert_eq!(told(kept_seen(None, None)), (Reason::OwnerGone, true));
    for (change, wanted) in [
        (OwnerSeen { deleting: true, ..needed.clone() }, (Reason::OwnerDeleting, true)),
        (OwnerSeen { cluster_deleting: true, ..needed.clone() }, (Reason::ClusterDeleting, true)),
        (OwnerSeen { reuse_off: true, ..needed.clone() }, (Reason::ReuseOff, true)),
        (OwnerSeen { paused: true, deleting: true, ..needed.clone() }, (Reason::Paused, false)),
        (OwnerSeen { of_others: true, deleting: true, ..needed.clone() }, (Reason::NotOurs, false)),
        (
            OwnerSeen { unreadable: Some("why".to_owned()), of_others: true, ..settled.clone() },
            (Reason::OwnerUnreadable, false),
        ),
        (needed.clone(), (Reason::Kept, false)),
        (OwnerSeen { rolls_out: true, ..settled.clone() }, (Reason::Kept, false)),
        (OwnerSeen { waits: true, ..settled.clone() }, (Reason::Kept, false)),
        (settled.clone(), (Reason::NotNeeded, true)),
        // One is missing, and will be made from a template that selects other hosts.
        (OwnerSeen { wants_others: true, ..needed.clone() }, (Reason::NotNeeded, true)),
        (OwnerSeen { wants_others: true, waits: true, ..needed.clone() }, (Reason::Kept, false)),
    ] {
        assert_eq!(told(kept_seen(Some(change.clone()), Some(120))), wanted, "{change:?}");
    }
    assert_eq!(told(kept_seen(Some(settled.clone()), Some(119))), (Reason::Kept, false));
    assert_eq!(told(kept_seen(Some(settled.clone()), None)), (Reason::Kept, false));
    // A rollout that does not go on ends it as well, later.
    let rolling = OwnerSeen { rolls_out: true, ..settled };
    assert_eq!(told(kept_seen(Some(rolling.clone()), Some(1199))), (Reason::Kept, false));
    assert_eq!(told(kept_seen(Some(rolling), Some(1200))), (Reason::NotNeeded, true));
}

#[test]
fn a_reservation_whose_owner_cannot_be_read_says_so_once_an_hour() {
    let unreadable = Some("allow get on it".to_owned());
    let owner = OwnerSeen { is_unwatched: true, paused: true, unreadable, ..OwnerSeen::default() };
    let seen = kept_seen(Some(owner), Some(9_000));
    assert!(!is_settled(&seen, &Policy::default()));
    let decision = decide(&Observed::Kept(Box::new(seen)), &Policy::default(), now());
    assert_eq!((decision.reason, kinds(&decision)), (Reason::OwnerUnreadable, vec![]));
    assert!(decision.message().contains("allow get on it") && decision.again().is_some());
    assert!(decision.events[0].hourly.is_some() && decision.reason.is_warning());
}

#[test]
fn what_capm3_keeps_is_left_alone_unless_asked() {
    let mut seen = kept_seen(None, None);
    seen.kept = crate::reservation::Kept::ByLabel("md-md".to_owned());
    let asked = Policy { collect_capm3: true, ..Policy::default() };
    for (policy, reason) in [(Policy::default(), Reason::KeptByCapm3), (asked, Reason::OwnerGone)] {
        let decision = decide(&Observed::Kept(Box::new(seen.clone())), &policy, now());
        assert_eq!(decision.reason, reason);
    }
    // Whose host it is stands on the host itself, and what to do if nobody comes for it.
    let decision = decide(&Observed::Kept(Box::new(seen)), &Policy::default(), now());
    let [event] = &decision.events[..] else { panic!("{decision:?}") };
    assert!(!event.warning && event.hourly.is_some(), "{event:?}");
    assert!(event.text.contains(names::capm3::NODE_REUSE), "{event:?}");
}

/// With one of the two marks left, a host is kept from everybody for ever.
#[test]
fn a_host_whose_reservation_is_removed_as_its_event_says_is_free() {
    let label = json!({"metadata": {"labels": {names::capm3::NODE_REUSE: "md-md"}}});
    let cluster = json!({"spec": {"consumerRef": {
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "c", "namespace": "ns",
    }}});
    let unreadable = OwnerSeen { unreadable: Some("why".to_owned()), ..OwnerSeen::default() };
    for (marks, owner, reason) in [
        (vec![&label], None, Reason::KeptByCapm3),
        (vec![&label, &cluster], None, Reason::KeptByCapm3),
        (vec![&label, &kept_for(&self::owner())], Some(unreadable), Reason::OwnerUnreadable),
    ] {
        let kept_one = marks.iter().fold(host("h", "available"), |host, mark| with(&host, mark));
        let kept = crate::reservation::Kept::of(&kept_one).unwrap();
        let seen = KeptSeen { host: kept_one.clone(), kept, ..kept_seen(owner, None) };
        let decision = decide(&Observed::Kept(Box::new(seen)), &Policy::default(), now());
        assert_eq!(decision.reason, reason);
        let advice = decision.events[0].text.as_str();
        let mut freed = kept_one;
        if advice.contains(names::capm3::NODE_REUSE) {
            freed.metadata.labels = None;
        }
        if advice.contains("spec.consumerRef") {
            freed.spec.consumer_ref = None;
        }
        let mut index = crate::index::Index::default();
        index.update("ns", "h", Some(cached(&freed)));
        assert_eq!(index.counts()[0], ("free", 1), "{advice}");
    }
}

#[test]
fn a_label_alone_is_of_capm3_whatever_note_of_ours_is_left_beside_it() {
    // CAPM3 takes a host that we have kept, and keeps it for the next machine in its own way: it leaves our note where it is.
    let noted = json!({names::ferrite::RESERVED_HOST_UID: "h-uid"});
    for notes in [json!({}), noted] {
        let labels = json!({names::capm3::NODE_REUSE: "md-md"});
        let left = json!({"metadata": {"labels": labels, "annotations": notes}, "spec": {"consumerRef": null}});
        let host = with(&host("h", "available"), &left);
        let kept = crate::reservation::Kept::of(&host).unwrap();
        let seen = KeptSeen { host, kept, ..kept_seen(None, None) };
        let decision = decide(&Observed::Kept(Box::new(seen)), &Policy::default(), now());
        assert_eq!((decision.reason, decision.writes.is_empty()), (Reason::KeptByCapm3, true));
    }
}

#[test]
fn a_reservation_that_ends_with_the_disks_as_they_were_says_so_whyever_it_ends() {
    let settled = OwnerSeen::default();
    for owner in [
        None,
        Some(OwnerSeen { deleting: true, ..settled.clone() }),
        Some(OwnerSeen { cluster_deleting: true, ..settled.clone() }),
        Some(OwnerSeen { reuse_off: true, ..settled.clone() }),
        Some(settled),
    ] {
        for (mode, told) in [("disabled", true), ("metadata", false)] {
            let mut seen = kept_seen(owner.clone(), Some(600));
            seen.host = with(&seen.host, &json!({"spec": {"automatedCleaningMode": mode}}));
            let decision = decide(&Observed::Kept(Box::new(seen)), &Policy::default(), now());
            assert_eq!(kinds(&decision), ["free"]);
            let says = decision.message().contains("its disks are not wiped");
            assert_eq!((says, decision.news()), (told, true), "{}", decision.message());
        }
    }
}

fn born(host: &BareMetalHost, second: i64) -> BareMetalHost {
    let mut host = host.clone();
    host.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
    host
}

#[test]
fn a_reservation_that_came_with_its_owner_from_another_cluster_is_renewed_and_any_other_ends() {
    let later = Owner { uid: "later".to_owned(), ..owner() };
    let decision_in = |cluster: Option<i64>, host: i64, owner: i64, paused: bool| {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let came = OwnerSeen {
            later: Some((later.clone(), at(owner))),
            cluster_since: cluster.map(at),
            paused,
            ..OwnerSeen::default()
        };
        let mut seen = kept_seen(Some(came), None);
        seen.host = born(&seen.host, host);
        decide(&Observed::Kept(Box::new(seen)), &Policy::default(), now())
    };
    let decision =
        |host: i64, owner: i64, paused: bool| decision_in(Some(owner), host, owner, paused);
    // In a Cluster that was here long before, an owner was made anew; one of which nothing is known may have come.
    for (cluster, reason) in
        [(Some(90_000), Reason::OwnerGone), (Some(99_000), Reason::Kept), (None, Reason::Kept)]
    {
        assert_eq!(decision_in(cluster, 100_000, 100_030, false).reason, reason, "{cluster:?}");
    }
    // Whichever of the two was made first.
    for (host, owner) in [(10_000, 10_030), (10_030, 10_000), (90_000, 10_000)] {
        let renewed = decision(host, owner, false);
        let [Write::Release { keep_for, .. }] = &renewed.writes[..] else { panic!("{renewed:?}") };
        assert_eq!(keep_for.as_ref(), Some(&later));
        assert_eq!((renewed.reason, renewed.news()), (Reason::Kept, true));
    }
    // The host was here with the owner that is gone.
    let ended = decision(10_000, 90_000, false);
    assert_eq!((ended.reason, kinds(&ended)), (Reason::OwnerGone, vec!["free"]));
    for owner in [10_000, 90_000] {
        let waits = decision(10_000, owner, true);
        assert_eq!((waits.reason, kinds(&waits)), (Reason::Paused, vec![]));
    }
}

#[test]
fn a_host_that_was_not_moved_since_it_was_reserved_is_renewed_for_no_owner_that_was_made_anew() {
    let second = |second: i64| Timestamp::from_second(second).unwrap();
    let later = Owner { uid: "later".to_owned(), ..owner() };
    // All three are young: what the times say is no more than that.
    let came = OwnerSeen {
        later: Some((later, second(10_030))),
        cluster_since: Some(second(10_000)),
        ..OwnerSeen::default()
    };
    let reserved =
        |uid: &str| json!({"metadata": {"annotations": {names::ferrite::RESERVED_HOST_UID: uid}}});
    for (patch, born_at, reason, steps) in [
        (reserved("h-uid"), 10_000, Reason::OwnerGone, ["free"]),
        (reserved("uid-of-before"), 10_000, Reason::Kept, ["release"]),
        (json!({}), 10_000, Reason::Kept, ["release"]),
        // Moved once, and here for long when its owner was made anew.
        (reserved("uid-of-before"), 1_000, Reason::OwnerGone, ["free"]),
    ] {
        let mut seen = kept_seen(Some(came.clone()), None);
        seen.host = born(&with(&seen.host, &patch), born_at);
        let decision = decide(&Observed::Kept(Box::new(seen.clone())), &Policy::default(), now());
        assert_eq!((decision.reason, kinds(&decision)), (reason, steps.to_vec()), "{patch}");
        if let [Write::Release { uid, .. }] = &decision.writes[..] {
            assert_eq!(uid.as_deref(), Some("h-uid"), "the next move is known by it");
        }
        // While it is still cleared that is not forgotten.
        let clearing = json!({"status": {"provisioning": {"state": "deprovisioning"}}});
        seen.host = with(&seen.host, &clearing);
        let decision = decide(&Observed::Kept(Box::new(seen)), &Policy::default(), now());
        assert_eq!(decision.writes.is_empty(), reason == Reason::OwnerGone, "{patch}");
    }
}

#[test]
fn an_owner_that_nobody_watches_is_looked_at_again_and_any_other_only_when_it_is_time() {
    let needed = OwnerSeen { replicas: 2, machines: 1, ..OwnerSeen::default() };
    let settled = OwnerSeen { machines: 2, ..needed.clone() };
    let rolling = OwnerSeen { rolls_out: true, ..settled.clone() };
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    for (owner, watched, unwatched) in [
        (needed.clone(), None, minutes(5)),
        (OwnerSeen { paused: true, ..needed.clone() }, None, minutes(5)),
        (OwnerSeen { of_others: true, ..needed.clone() }, None, minutes(5)),
        (settled, minutes(2), minutes(2)),
        (rolling, minutes(20), minutes(5)),
        (OwnerSeen { deleting: true, ..needed }, None, None),
    ] {
        for (is_unwatched, wanted) in [(false, watched), (true, unwatched)] {
            let owner = OwnerSeen { is_unwatched, ..owner.clone() };
            let seen = Observed::Kept(Box::new(kept_seen(Some(owner.clone()), None)));
            assert_eq!(decide(&seen, &Policy::default(), now()).again(), wanted, "{owner:?}");
        }
    }
    // What CAPM3 keeps is decided without its owner.
    let owner = OwnerSeen { is_unwatched: true, ..OwnerSeen::default() };
    let mut seen = kept_seen(Some(owner), None);
    seen.kept = crate::reservation::Kept::ByLabel("cp-other".to_owned());
    let decision = decide(&Observed::Kept(Box::new(seen)), &Policy::default(), now());
    assert_eq!((decision.reason, decision.again()), (Reason::KeptByCapm3, None));
}

#[test]
fn a_kept_host_is_freed_only_when_nothing_is_on_it() {
    for (state, freed) in [
        ("available", true),
        ("ready", true),
        ("inspecting", true),
        ("externally provisioned", true),
        ("deprovisioning", false),
        ("provisioned", false),
        ("provisioning", false),
        ("preparing", false),
        ("a state to come", false),
        // Moved here, and its operator has not said yet what it is.
        ("", false),
    ] {
        let settled = OwnerSeen::default();
        for (owner, ago) in [(None, None), (Some(settled), Some(600))] {
            let mut seen = kept_seen(owner, ago);
            seen.host = with(&seen.host, &json!({"status": {"provisioning": {"state": state}}}));
            // Whoever is to come for it has no less time for that, however long it is cleared.
            let settled = is_settled(&seen, &Policy::default());
            assert_eq!(settled, ago.is_some() && freed, "{state}");
            let seen = Observed::Kept(Box::new(seen));
            let decision = decide(&seen, &Policy::default(), now());
            assert_eq!(!decision.writes.is_empty(), freed, "{state}");
            assert_eq!(decision.again(), None, "{state}");
        }
    }
}

//! The host that a machine is going to take: claimed, given up, taken after all; and what CAPM3 reads of that.

use super::*;

#[test]
fn an_intent_is_followed_by_a_claim_only_of_that_very_host_read_live() {
    let free = host("h", "available");
    let mut seen = intending(&free);
    assert_eq!(kinds(&decided(&seen)), ["claim", "report"]);
    seen.live = false;
    let closer = decided(&seen);
    // Soon, and not at once: a cache may be behind for minutes.
    assert_eq!(closer.writes.len(), 0);
    assert!(closer.again() > Some(Duration::ZERO) && closer.again() <= Some(YOUNG));
    seen.live = true;
    // The same name, another host.
    annotate(&mut seen.machine, names::ferrite::HOST_UID, "older");
    assert_eq!(kinds(&decided(&seen)), ["give up"]);
}

#[test]
fn an_intent_is_given_up_when_the_host_is_not_to_be_had_any_more() {
    let unfit = [
        consumer("other", "other-uid"),
        kept_for(&Owner { uid: "later".to_owned(), ..owner() }),
        json!({"metadata": {"annotations": {names::capm3::UNHEALTHY: ""}}}),
        json!({"metadata": {"annotations": {names::metal3::PAUSED: ""}}}),
        json!({"metadata": {"annotations": {names::metal3::DETACHED: ""}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"status": {"errorMessage": "broken"}}),
        json!({"status": {"operationalStatus": "error"}}),
        json!({"status": {"provisioning": {"state": "inspecting"}}}),
        json!({"spec": {"image": {"url": "http://somebody/else"}}}),
    ];
    for patch in unfit {
        let seen = intending(&with(&host("h", "available"), &patch));
        assert_eq!(kinds(&decided(&seen)), ["give up"], "{patch}");
    }
    let mut seen = intending(&host("h", "available"));
    seen.host = HostSeen::Gone("h".to_owned());
    assert_eq!(kinds(&decided(&seen)), ["give up"]);
}

#[test]
fn a_host_that_was_given_up_is_taken_after_all_or_passed_over_before_another_is_taken() {
    let given_up = |host: &BareMetalHost| {
        let mut seen = having(host);
        seen.machine.status = None;
        seen.machine.metadata.annotations = None;
        annotate(&mut seen.machine, names::ferrite::GIVES_UP_HOST, "h");
        seen.choice.free = Some(cached(&self::host("other", "available")));
        seen
    };
    let free = host("h", "available");
    assert_eq!(kinds(&decided(&given_up(&free))), ["intend", "claim", "report"]);
    // It looks claimable to another process and is none for us.
    let kept = with(&free, &kept_for(&owner()));
    let decision = decided(&given_up(&kept));
    assert_eq!(kinds(&decision), ["pass over", "intend", "claim", "report"]);
    assert_eq!(decision.writes[0], Write::PassOver { host: "h".to_owned(), insists: true });
    let taken = with(&free, &consumer("other", "x"));
    assert_eq!(kinds(&decided(&given_up(&taken))), ["intend", "claim", "report"]);
    // With no other to take it is forgotten, or it would be passed over again and again.
    let mut alone = given_up(&kept);
    alone.choice.free = None;
    assert_eq!(kinds(&decided(&alone)), ["pass over", "forget", "report"]);
    assert_eq!(decided(&alone).next, Next::Now, "and then it may be taken after all");
    // The claim of another process got through.
    let ours = with(&free, &consumer("m", "m-uid"));
    assert_eq!(kinds(&decided(&given_up(&ours))), ["name host"]);
}

#[test]
fn capm3_reads_which_host_a_machine_has_only_after_the_claim_and_without_a_write_for_that() {
    let wanted = Some(ObjectRef::default());
    for (template, data, steps) in [
        (None, Data::NotWanted, vec!["intend", "claim", "report"]),
        // Who renders secrets goes by it.
        (wanted, Data::NotAskedFor, vec!["intend", "claim", "name host", "report"]),
    ] {
        let mut seen = seen();
        seen.machine.spec.data_template = template;
        seen.data = data.clone();
        seen.choice.free = Some(cached(&host("h", "available")));
        let decision = decided(&seen);
        assert_eq!(kinds(&decision), steps);
        let Some(Write::Report(status)) = decision.writes.last() else { panic!("{decision:?}") };
        // The process ends after the claim, or after the report.
        for status in [None, Some(status.clone())] {
            let ours = with(&host("h", "available"), &consumer("m", "m-uid"));
            let mut claimed = intending(&ours);
            claimed.machine.spec.data_template.clone_from(&seen.machine.spec.data_template);
            claimed.data = data.clone();
            claimed.machine.status =
                status.as_ref().map(|it| serde_json::from_value(it.clone()).unwrap());
            if data == Data::NotAskedFor {
                assert_eq!(kinds(&decided(&claimed)), ["name host"]);
                claimed.machine.metadata.annotations = having(&ours).machine.metadata.annotations;
                let ask = if status.is_some() { vec!["ask"] } else { vec!["ask", "report"] };
                assert_eq!(kinds(&decided(&claimed)), ask);
                continue;
            }
            let image = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
            let up = with(&with(&host("h", "provisioned"), &consumer("m", "m-uid")), &image);
            claimed.host = HostSeen::Here(Box::new(up));
            let decision = decided(&claimed);
            assert_eq!(kinds(&decision), ["identify", "report"]);
            let Write::Identify { host, .. } = &decision.writes[0] else { panic!("{decision:?}") };
            assert_eq!(host, "h");
            // And an ID that somebody gave it is no reason to go without.
            claimed.machine.spec.provider_id = Some("metal3://ns/h/m".to_owned());
            assert_eq!(kinds(&decided(&claimed)), ["name host"]);
        }
    }
}

/// Its error or pause of a minute came before the claim: the disks of the host that is kept are worth that minute.
#[test]
fn a_machine_whose_kept_host_has_a_passing_trouble_takes_no_free_one() {
    let kept = with(&host("h", "available"), &kept_for(&owner()));
    let failed = |count: i64| json!({"status": {"errorMessage": "no power", "errorCount": count}});
    let pause = |by: &str| json!({"metadata": {"annotations": {names::metal3::PAUSED: by}}});
    let given_up = |host: &BareMetalHost, reuse: Reuse| {
        let mut seen = intending(host);
        seen.reuse = reuse;
        assert_eq!(kinds(&decided(&seen)), ["give up"]);
        seen.machine.metadata.annotations = None;
        annotate(&mut seen.machine, names::ferrite::GIVES_UP_HOST, "h");
        seen.choice.free = Some(cached(&self::host("free", "available")));
        seen
    };
    let takes = ["intend", "claim", "report"];
    for (trouble, reuse, steps) in [
        (failed(1), Reuse::On, &[][..]),
        (pause(names::ferrite::PAUSED_BY_BMO_REBOOT), Reuse::On, &[]),
        (failed(9), Reuse::On, &takes),
        (pause(""), Reuse::On, &takes),
        (failed(1), Reuse::Off, &takes),
        (consumer("other", "x"), Reuse::On, &takes),
    ] {
        // The cache does not show it yet.
        let mut seen = given_up(&with(&kept, &trouble), reuse.clone());
        let decision = decided(&seen);
        assert_eq!(kinds(&decision), steps, "{trouble} {reuse:?}");
        if !steps.is_empty() {
            continue;
        }
        assert!(decision.again() > Some(Duration::ZERO) && decision.again() <= Some(YOUNG));
        // And now it does.
        seen.choice.on_its_way = Some("h".to_owned());
        let decision = decided(&seen);
        assert_eq!(kinds(&decision)[..2], ["forget", "report"]);
        assert_eq!(decision.reason, Reason::WaitingForKeptHost);
        // Others wait before it.
        seen.choice.behind = true;
        assert_eq!(kinds(&decided(&seen)), takes);
    }
}

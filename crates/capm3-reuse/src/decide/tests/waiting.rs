//! What a machine says while it waits, and why it took the host that it took.

use super::leaving::reporting;
use super::*;
use crate::host::Exclusion;
use crate::machine::was_associated;
use crate::machine::{host_name_bytes, is_housed};
use crate::model::Claimed;
use crate::seen::Unfit;

fn told(decision: &Decision, kind: &str) -> (String, String) {
    let report = decision.writes.iter().find_map(|step| match step {
        Write::Report(status) => Some(status),
        _ => None,
    });
    report.map(|status| told_by(status, kind)).unwrap_or_default()
}

fn told_by(status: &Value, kind: &str) -> (String, String) {
    let found = status["conditions"].as_array();
    let found = found.and_then(|all| all.iter().find(|it| it["type"] == kind));
    let text = |field: &str| found.and_then(|it| it[field].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

fn reusing() -> MachineSeen {
    let mut seen = seen();
    seen.reuse = Reuse::On;
    seen
}

#[test]
fn a_host_that_names_the_machine_is_installed_only_when_all_that_it_needs_is_there() {
    let changes: [(Change, Reason); 3] = [
        (
            |it| {
                it.machine.spec.network_data = Some(NamedRef {
                    namespace: Some("kube-system".to_owned()),
                    ..NamedRef::default()
                });
            },
            Reason::ForeignNamespace,
        ),
        (
            |it| {
                it.data = Data::NotAskedFor;
                it.machine.spec.data_template =
                    Some(ObjectRef { namespace: Some("other".to_owned()), ..ObjectRef::default() });
            },
            Reason::ForeignNamespace,
        ),
        (|it| it.data = Data::Unserved, Reason::DataFailed),
    ];
    let ours = with(&host("h", "available"), &consumer("m", "m-uid"));
    assert_eq!(kinds(&decided(&having(&ours))), ["install", "report"]);
    for (change, reason) in changes.into_iter().chain(MISSING) {
        let mut seen = having(&ours);
        change(&mut seen);
        let decision = decided(&seen);
        assert_eq!((decision.reason, kinds(&decision)), (reason, vec!["report"]));
        assert_eq!(told(&decision, "Ready").0, "False", "{reason:?}");
        assert_eq!(told(&decision, CONDITION_ASSOCIATED).0, "True", "{reason:?}");
        // Once it was told, it is on its way whatever is changed.
        let image = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
        seen.host = HostSeen::Here(Box::new(with(&ours, &image)));
        assert_eq!(decided(&seen).reason, Reason::Provisioning);
    }
}

#[test]
fn what_is_empty_is_not_told_to_a_host_and_what_an_image_left_behind_there_goes() {
    let left = json!({"spec": {"image": {"url": "", "checksum": "old", "format": "raw"}}});
    let mut seen = seen();
    seen.machine.spec.custom_deploy = Some(serde_json::from_value(json!({"method": ""})).unwrap());
    let nameless = NamedRef { name: Some(String::new()), ..NamedRef::default() };
    seen.machine.spec.meta_data = Some(nameless);
    seen.choice.free = Some(cached(&with(&host("h", "available"), &left)));
    let decision = decided(&seen);
    let Write::Claim { install: Some(install), .. } = &decision.writes[1] else {
        panic!("{decision:?}")
    };
    let told = json!({
        "image": {"url": "http://a/b", "checksum": "c", "checksumType": null, "format": null},
        "userData": {"name": "boot", "namespace": "ns"},
        "online": true,
    });
    assert_eq!(Value::Object(install.clone()), told);
}

#[test]
fn nothing_is_claimed_for_a_data_template_that_nobody_can_render() {
    let mut seen = seen();
    seen.choice.free = Some(cached(&host("h", "available")));
    seen.data = Data::Unserved;
    let decision = decided(&seen);
    assert_eq!((decision.reason, kinds(&decision)), (Reason::DataFailed, vec!["report"]));
}

#[test]
fn a_data_template_is_looked_for_only_before_anybody_is_asked_for_what_it_renders() {
    let mut seen = seen();
    seen.data = Data::NotAskedFor;
    assert_eq!(seen.data_template(), None);
    for (name, wanted) in [(Some("facts".to_owned()), "facts"), (None, "")] {
        seen.machine.spec.data_template = Some(ObjectRef { name, ..ObjectRef::default() });
        for (data, is_looked_for) in [
            (Data::NotAskedFor, true),
            (Data::Awaited, false),
            (Data::Failed("why".to_owned()), false),
            (Data::Unserved, false),
        ] {
            seen.data = data;
            assert_eq!(seen.data_template(), is_looked_for.then_some(wanted), "{:?}", seen.data);
        }
    }
    seen.missing = Some(("dataTemplate", "facts".to_owned()));
    let decision = decided(&MachineSeen { data: Data::NotAskedFor, ..seen });
    assert_eq!(decision.reason, Reason::DataTemplateMissing);
    assert!(decision.message().contains("Metal3DataTemplate facts, which spec.dataTemplate names"));
    assert!(decision.again().is_some());
}

#[test]
fn why_a_free_host_was_taken_is_in_the_condition_and_an_event_and_stays_there() {
    let mut seen = reusing();
    seen.choice.free = Some(cached(&host("h", "available")));
    seen.choice.unfit = Some(("sick".to_owned(), Unfit::Excluded(Exclusion::Unhealthy)));
    let decision = decided(&seen);
    let why = "Host h; host sick is kept for MachineDeployment md but is marked as unhealthy";
    assert_eq!((decision.reason, decision.news()), (Reason::HostClaimed, true));
    assert_eq!(told(&decision, CONDITION_ASSOCIATED), ("True".to_owned(), why.to_owned()));
    assert_eq!(decision.message(), why);
    for (unfit, told) in
        [(Unfit::OfOthers, names::capi::WATCH_FILTER), (Unfit::NotSelected, "hostSelector")]
    {
        seen.choice.unfit = Some(("other".to_owned(), unfit));
        assert!(decided(&seen).message().contains(told), "{unfit:?}");
    }

    // The claim was superseded after the choice was written: why it chose so is not lost.
    let mut again = intending(&host("h", "available"));
    again.reuse = Reuse::On;
    let decision = decided(&again);
    assert!(
        decision.news() && decision.message().contains("none is kept for MachineDeployment md")
    );

    let image = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let ours = with(&with(&host("h", "provisioning"), &consumer("m", "m-uid")), &image);
    for said in [why, "Host h"] {
        let mut later = having(&ours);
        let conditions = &mut later.machine.status.as_mut().unwrap().conditions;
        conditions[0].message = Some(said.to_owned());
        assert_eq!(told(&decided(&later), CONDITION_ASSOCIATED).1, said);
        // That the annotation is edited makes it no other host.
        annotate(&mut later.machine, names::metal3::HOST, "ns/another");
        assert_eq!(kinds(&decided(&later)), ["name host"]);
        annotate(&mut later.machine, names::ferrite::HOST_UID, "another-uid");
        let decision = decided(&later);
        assert_eq!(kinds(&decision), ["report", "name host"]);
        let [Write::Report(status), _] = &decision.writes[..] else { panic!("{decision:?}") };
        let told = &status["conditions"][0];
        assert_eq!((&told["reason"], &told["message"]), (&json!("HostAdopted"), &json!("Host h")));
    }
    // Without reuse there is nothing to wonder about.
    seen.reuse = Reuse::Off;
    assert!(!decided(&seen).news());
}

/// The reason that its status gives for its host, or no status.
fn has_said(seen: &mut MachineSeen, said: Option<&str>) {
    match said {
        Some(said) => {
            let conditions = &mut seen.machine.status.as_mut().unwrap().conditions;
            conditions[0].reason = Some(said.to_owned());
        }
        None => seen.machine.status = None,
    }
}

#[test]
fn how_a_machine_came_to_its_host_is_said_as_it_was_said_first_and_not_made_up() {
    let image = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let ours = with(&with(&host("h", "provisioning"), &consumer("m", "m-uid")), &image);
    for (said, wanted) in [
        (Some("HostReused"), "HostReused"),
        (Some("HostClaimed"), "HostClaimed"),
        // CAPM3's word, and none: stopped between claim and report.
        (Some("AssociateBareMetalHostSuccess"), "HostAdopted"),
        (None, "HostAdopted"),
    ] {
        let mut seen = having(&ours);
        has_said(&mut seen, said);
        let decision = decided(&seen);
        let Some(Write::Report(status)) = decision.writes.last() else { panic!("{decision:?}") };
        let all = status["conditions"].as_array().unwrap();
        let found = all.iter().find(|it| it["type"] == CONDITION_ASSOCIATED).unwrap();
        assert_eq!((&found["reason"], &found["status"]), (&json!(wanted), &json!("True")));
    }
}

#[test]
fn a_claim_whose_report_was_superseded_is_reported_with_the_next_one_as_it_was() {
    let image = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let ours = with(&with(&host("h", "provisioning"), &consumer("m", "m-uid")), &image);
    let reported = |host: &str, said: Option<&str>| {
        let mut seen = having(&ours);
        has_said(&mut seen, said);
        seen.claimed = Some(Claimed {
            host: host.to_owned(),
            reason: Reason::HostReused,
            message: "Host h: why".to_owned(),
            is_news: false,
        });
        let decision = decided(&seen);
        let seen = reporting(seen, &decision);
        let said = status::reported(&seen.machine, CONDITION_ASSOCIATED).unwrap().clone();
        (said.reason.unwrap(), said.message.unwrap())
    };
    let as_it_was = ("HostReused".to_owned(), "Host h: why".to_owned());
    assert_eq!(reported("h", None), as_it_was);
    assert_eq!(reported("h", Some("HostAdopted")), as_it_was);
    assert_eq!(reported("another", None).0, "HostAdopted");
    assert_eq!(reported("h", Some("HostClaimed")).0, "HostClaimed");
}

#[test]
fn a_machine_waits_for_a_kept_host_only_in_its_turn_and_strictly_whenever_there_is_one() {
    let strict = Policy { strict_reuse: true, ..Policy::default() };
    let mut seen = reusing();
    seen.choice.free = Some(cached(&host("h", "available")));
    seen.choice.on_its_way = Some("late".to_owned());
    for (behind, policy, reason, wants) in [
        (false, Policy::default(), Reason::WaitingForKeptHost, Some(Wants::Kept)),
        (true, Policy::default(), Reason::HostClaimed, None),
        (false, strict.clone(), Reason::WaitingForKeptHost, Some(Wants::Kept)),
        (true, strict, Reason::WaitingForKeptHost, Some(Wants::OnlyKept)),
    ] {
        seen.choice.behind = behind;
        let decision = decided_by(&seen, &policy);
        assert_eq!((decision.reason, decision.wants()), (reason, wants));
    }
    seen.choice.behind = true;
    let claim = decided(&seen);
    assert!(claim.news() && claim.message().contains("host late"), "{}", claim.message());
    // Without a free one it says for what the others wait.
    seen.choice.free = None;
    let waits = decided(&seen);
    assert_eq!((waits.reason, waits.wants()), (Reason::NoHostAvailable, Some(Wants::Any)));
    assert!(waits.message().contains("other machines wait before this one"), "{}", waits.message());
}

#[test]
fn who_finds_no_host_says_which_labels_it_wants_and_which_label_is_in_its_way() {
    let mut seen = seen();
    let message = decided(&seen).message();
    assert!(message.contains("there is no hostSelector"), "{message}");
    let size = Requirement {
        key: "size".to_owned(),
        operator: "In".to_owned(),
        values: vec!["s".to_owned(), "m".to_owned()],
        ..Requirement::default()
    };
    seen.machine.spec.host_selector = Some(HostSelector {
        match_labels: [("rack".to_owned(), "a".to_owned())].into(),
        match_expressions: vec![size],
        ..HostSelector::default()
    });
    seen.choice.labelled = Some("h".to_owned());
    let message = decided(&seen).message();
    assert!(message.contains("hostSelector (rack=a, size In (s, m))"), "{message}");
    assert!(message.contains("host h would fit but is reserved by its label"), "{message}");
    assert!(message.contains(names::capm3::NODE_REUSE), "{message}");
}

fn refusal(seen: &MachineSeen, is_final: bool) -> ToldRefusal {
    ToldRefusal { generation: seen.machine.metadata.generation, is_final }
}

/// The first that a process sees of it.
fn first_refused(seen: &MachineSeen, why: &str) -> Option<Write> {
    refused(seen, refusal(seen, true), why, now())
}

#[test]
fn what_the_api_server_refuses_is_told_once_for_each_spec() {
    let mut seen = seen();
    seen.machine.metadata.generation = Some(1);
    let first = refusal(&seen, true);
    let Some(Write::Report(status)) = refused(&seen, first, "denied the request", now()) else {
        panic!()
    };
    seen.machine.status = Some(serde_json::from_value(status).unwrap());
    for kind in ["Ready", CONDITION_ASSOCIATED] {
        let said = status::reported(&seen.machine, kind).unwrap();
        assert_eq!((said.status.as_str(), said.reason.as_deref()), ("False", Some("Refused")));
        assert_eq!(said.message.as_deref(), Some("denied the request"));
    }
    // The same in other words would wake the machine again and again.
    seen.told = Some(first);
    assert_eq!(refused(&seen, first, "denied at 12:01", now()), None);
    seen.machine.metadata.generation = Some(2);
    let corrected = refusal(&seen, false);
    assert!(refused(&seen, corrected, "denied for another reason", now()).is_some());
    // What a webhook has against it is told after it was away, and not the other way round.
    seen.machine.metadata.generation = Some(3);
    for (why, is_final, is_told) in [
        ("failed calling webhook \"a.b\": refused (500)", false, true),
        ("failed calling webhook \"a.b\": no answer in time (500)", false, false),
        ("admission webhook \"a.b\" denied the request (403)", true, true),
        ("failed calling webhook \"a.b\": refused (500)", false, false),
    ] {
        let now_refused = refusal(&seen, is_final);
        let step = refused(&seen, now_refused, why, now());
        assert_eq!(step.is_some(), is_told, "{why}");
        seen.told = seen.told.max(Some(now_refused));
        let Some(Write::Report(status)) = step else { continue };
        seen.machine.status = Some(serde_json::from_value(status).unwrap());
    }
    // Whether it was seen to have its host stays as it is where it goes.
    let kept = with(&host("h", "deprovisioning"), &kept_for(&owner()));
    let leaves = leaving(having(&kept));
    let Some(Write::Report(status)) = first_refused(&leaves, "no") else { panic!() };
    assert_eq!(told_by(&status, CONDITION_ASSOCIATED).0, "True");
}

#[test]
fn a_machine_that_is_up_stays_ready_when_a_write_of_it_is_refused_and_one_that_is_not_is_not() {
    let image = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let ours = with(&with(&host("h", "provisioned"), &consumer("m", "m-uid")), &image);
    for (is_up, was_ready, leaves, wanted) in [
        (true, "True", false, "True"),
        // Its host is lost.
        (true, "False", false, "False"),
        (false, "False", false, "False"),
        (true, "True", true, "False"),
    ] {
        let mut seen = having(&ours);
        seen.machine.status = Some(
            serde_json::from_value(json!({
                "initialization": {"provisioned": is_up},
                "conditions": [{"type": "Ready", "status": was_ready, "reason": "before"}],
            }))
            .unwrap(),
        );
        let seen = if leaves { leaving(seen) } else { seen };
        let Some(Write::Report(status)) = first_refused(&seen, "denied") else { panic!() };
        let said = (wanted.to_owned(), "denied".to_owned());
        assert_eq!(told_by(&status, "Ready"), said, "{is_up} {was_ready} {leaves}");
    }
}

#[test]
fn a_host_whose_claim_is_refused_for_long_is_left_for_another_and_a_kept_one_only_for_a_kept_one() {
    let (free, other) = (host("h", "available"), host("other", "available"));
    let (kept, kept_other) = (with(&free, &kept_for(&owner())), with(&other, &kept_for(&owner())));
    for (named, is_free, is_kept, refused, first) in [
        (&free, true, false, "h", "give up"),
        (&free, false, true, "h", "give up"),
        (&free, false, false, "h", "claim"),
        (&free, true, true, "elsewhere", "claim"),
        (&kept, true, false, "h", "claim"),
        (&kept, true, true, "h", "give up"),
    ] {
        let mut seen = intending(named);
        seen.reuse = Reuse::On;
        seen.refused = Some(refused.to_owned());
        seen.choice.free = is_free.then(|| cached(&other));
        seen.choice.kept = is_kept.then(|| cached(&kept_other));
        assert_eq!(kinds(&decided(&seen))[0], first, "{refused} {is_free} {is_kept}");
    }
    // What it gave up is made safe first, and tried again if it is the only one.
    let mut seen = reusing();
    annotate(&mut seen.machine, names::ferrite::GIVES_UP_HOST, "h");
    seen.host = HostSeen::Here(Box::new(free));
    seen.refused = Some("h".to_owned());
    assert_eq!(kinds(&decided(&seen)), ["intend", "claim", "report"]);
    seen.choice.free = Some(cached(&other));
    let decision = decided(&seen);
    assert_eq!(kinds(&decision), ["pass over", "intend", "claim", "report"]);
    // Who refuses its claim for long may refuse every other write of it as well.
    assert_eq!(decision.writes[0], Write::PassOver { host: "h".to_owned(), insists: false });
}

#[test]
fn what_holds_up_a_host_that_is_to_be_installed_is_said() {
    let image = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let noted = |name: &str| json!({"metadata": {"annotations": {name: ""}}});
    for (trouble, reason, text) in [
        (json!({}), Reason::Provisioning, "The host is being installed"),
        (
            noted(names::metal3::PAUSED),
            Reason::Provisioning,
            "Host h is to be installed and is paused",
        ),
        (
            noted(names::metal3::DETACHED),
            Reason::Provisioning,
            "Host h is to be installed and is detached",
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            Reason::Provisioning,
            "Host h is to be installed and is being deleted",
        ),
        // That holds up nothing.
        (noted(names::capm3::UNHEALTHY), Reason::Provisioning, "The host is being installed"),
        (json!({"status": {"errorMessage": "no power"}}), Reason::HostFailed, "Host h: no power"),
    ] {
        let ours = with(&with(&host("h", "provisioning"), &consumer("m", "m-uid")), &image);
        let decision = decided(&having(&with(&ours, &trouble)));
        assert_eq!((decision.reason, decision.message().as_str()), (reason, text), "{trouble}");
    }
}

#[test]
fn that_a_machine_is_up_is_written_before_whether_its_disks_are_wiped_which_may_be_refused() {
    let spec = json!({"spec": {
        "image": {"url": "http://a/b"}, "online": true, "automatedCleaningMode": "disabled",
    }});
    let ours = with(&with(&host("h", "provisioned"), &consumer("m", "m-uid")), &spec);
    let mut seen = having(&ours);
    seen.cleaning = Some("metadata".to_owned());
    let decision = decided(&seen);
    assert_eq!(kinds(&decision), ["identify", "report"]);
    let mut up = reporting(seen, &decision);
    // Somebody took its identity away, or it has it.
    for (id, steps) in [("", vec!["identify"]), ("metal3://ns/h/m", vec!["install"])] {
        up.machine.spec.provider_id = Some(id.to_owned());
        assert_eq!(kinds(&decided(&up)), steps, "{id:?}");
    }
    // And that its host is lost is no less worth saying: with that refused it could not.
    let goes = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    up.host = HostSeen::Here(Box::new(with(&ours, &goes)));
    assert_eq!((decided(&up).reason, kinds(&decided(&up))), (Reason::HostLost, vec!["report"]));
}

#[test]
fn a_machine_whose_claim_is_refused_has_no_host_and_one_that_was_up_needs_no_other() {
    let mut seen = having(&host("h", "available"));
    assert!(is_housed(&seen.machine));
    seen.host = HostSeen::None;
    let Some(Write::Report(status)) = first_refused(&seen, "denied") else { panic!() };
    seen.machine.status = Some(serde_json::from_value(status).unwrap());
    assert!(!is_housed(&seen.machine));
    seen.machine.status = None;
    assert!(!is_housed(&seen.machine));
    seen.machine.spec.provider_id = Some("metal3://ns/h/m".to_owned());
    assert!(is_housed(&seen.machine));
    seen.machine.metadata.annotations = None;
    assert!(!is_housed(&seen.machine));
}

#[test]
fn a_host_that_somebody_else_wrote_on_a_machine_is_claimed_only_after_our_own_intent() {
    let changes: [(Change, &[&str]); 5] = [
        (|_| (), &["claim", "report"]),
        (|it| it.machine.metadata.finalizers = None, &["intend", "claim", "report"]),
        (
            |it| it.machine.metadata.finalizers = Some(vec!["others".to_owned()]),
            &["intend", "claim", "report"],
        ),
        (
            |it| {
                it.machine.metadata.annotations = None;
                annotate(&mut it.machine, names::metal3::HOST, "ns/h");
            },
            &["intend", "claim", "report"],
        ),
        // As earlier releases wrote it: for CAPM3 it has that host.
        (
            |it| {
                it.machine
                    .metadata
                    .annotations
                    .as_mut()
                    .unwrap()
                    .remove(names::ferrite::INTENDS_HOST);
                annotate(&mut it.machine, names::metal3::HOST, "ns/h");
            },
            &["intend", "claim", "report"],
        ),
    ];
    for (change, steps) in changes {
        let mut seen = intending(&host("h", "available"));
        change(&mut seen);
        let decision = decided(&seen);
        assert_eq!(kinds(&decision), steps);
        if let Some(Write::Intend { host, uid }) = decision.writes.first() {
            assert_eq!((host.as_str(), uid.as_str()), ("h", "h-uid"));
        }
    }
}

#[test]
fn what_is_kept_is_taken_or_waited_for_when_the_template_is_gone_and_a_free_host_if_nothing_is() {
    let strict = Policy { strict_reuse: true, ..Policy::default() };
    for policy in [Policy::default(), strict] {
        let mut seen = reusing();
        seen.reuse = Reuse::Unknown;
        seen.choice.free = Some(cached(&host("free", "available")));
        assert_eq!(decided_by(&seen, &policy).reason, Reason::HostClaimed);
        seen.choice.on_its_way = Some("late".to_owned());
        assert_eq!(decided_by(&seen, &policy).reason, Reason::WaitingForKeptHost);
        let kept = with(&host("kept", "available"), &kept_for(&owner()));
        seen.choice.kept = Some(cached(&kept));
        assert_eq!(decided_by(&seen, &policy).reason, Reason::HostReused);
    }
}

#[test]
fn a_name_that_is_too_long_is_told_only_where_no_other_host_does_and_others_are_waited_for() {
    let mut seen = seen();
    seen.machine.metadata.name = Some("m".repeat(253));
    let decision = decided(&seen);
    assert_eq!((decision.reason, decision.wants()), (Reason::NameTooLong, Some(Wants::Any)));
    assert!(decision.message().contains(" 246 bytes"), "{}", decision.message());
    assert!(decision.again().is_some() && decision.message().contains("use shorter names"));
    seen.choice.free = Some(cached(&host("short", "available")));
    assert_eq!(decided(&seen).reason, Reason::HostClaimed);
    // One that it was going to take is given up for another.
    let long = host(&"h".repeat(253), "available");
    let mut intends = intending(&long);
    intends.machine.metadata.name = Some("m".repeat(253));
    assert_eq!(kinds(&decided(&intends)), ["give up"]);
    let most = 512 - "metal3://ns//".len() - 253;
    assert_eq!(host_name_bytes(&intends.machine), Some(most));
    // With a short name any host's will do.
    intends.machine.metadata.name = Some("m".to_owned());
    assert_eq!(host_name_bytes(&intends.machine), None);
}

#[test]
fn a_machine_that_has_its_host_still_has_it_when_its_machine_or_cluster_is_missing() {
    type Change = fn(&mut MachineSeen);
    let changes: [(Change, Reason); 3] = [
        (|it| it.parent = Parent::None, Reason::WaitingForOwner),
        (|it| it.parent = Parent::Gone("m".to_owned()), Reason::MachineMissing),
        (|it| it.cluster = None, Reason::ClusterMissing),
    ];
    let ours = with(&host("h", "provisioned"), &consumer("m", "m-uid"));
    for (change, reason) in changes {
        let mut seen = having(&ours);
        change(&mut seen);
        let decision = decided(&seen);
        assert_eq!((decision.reason, kinds(&decision)), (reason, vec!["report"]));
        assert_eq!(told(&decision, CONDITION_ASSOCIATED).0, "True");
        assert_eq!(told(&decision, "Ready").0, "False");
    }
}

#[test]
fn a_machine_that_has_its_identity_gets_no_second_host_whatever_its_status_has_lost() {
    let free = Some(cached(&host("free", "available")));
    let told = |seen: &MachineSeen| (decided(seen).reason, kinds(&decided(seen)));
    let mut stopped = having(&host("h", "provisioned"));
    stopped.machine.spec.provider_id = Some("metal3://ns/h/m".to_owned());
    stopped.host = HostSeen::Gone("h".to_owned());
    stopped.choice.free = free.clone();
    let lost = decided(&stopped);
    assert_eq!((lost.reason, kinds(&lost)), (Reason::HostLost, vec!["report"]));
    // What it says of that is all that it is known by from then on.
    let Some(Write::Report(status)) = lost.writes.last() else { panic!("{lost:?}") };
    stopped.machine.status = Some(serde_json::from_value(status.clone()).unwrap());
    assert!(!was_associated(&stopped.machine));
    assert_eq!(told(&stopped), (Reason::HostLost, vec![]));
    // Brought here without its status, and the host is still to come.
    for named in [HostSeen::Gone("h".to_owned()), HostSeen::None] {
        let mut moved = having(&host("h", "provisioned"));
        moved.machine.spec.provider_id = Some("metal3://ns/h/m".to_owned());
        moved.machine.status = None;
        moved.host = named;
        moved.choice.free = free.clone();
        assert_eq!(told(&moved), (Reason::HostLost, vec!["report"]));
        // An empty one is none.
        moved.machine.spec.provider_id = Some(String::new());
        assert_ne!(decided(&moved).reason, Reason::HostLost);
    }
}

#[test]
fn a_refusal_that_only_the_older_conditions_say_is_told_once_for_each_spec() {
    let mut seen = seen();
    seen.machine.api_version = Some("infrastructure.cluster.x-k8s.io/v1beta1".to_owned());
    seen.machine.metadata.generation = Some(1);
    let Some(Write::Report(status)) = first_refused(&seen, "denied") else { panic!() };
    seen.machine.status = Some(serde_json::from_value(status).unwrap());
    seen.machine.status.as_mut().unwrap().v1beta2 = None;
    // This process has not told it yet.
    assert!(first_refused(&seen, "denied at 12:01").is_some());
    assert_eq!(first_refused(&seen, "denied"), None);
    seen.told = Some(refusal(&seen, true));
    assert_eq!(first_refused(&seen, "denied at 12:01"), None);
    // What was corrected may be refused for something else.
    seen.machine.metadata.generation = Some(2);
    assert!(first_refused(&seen, "denied for another reason").is_some());
}

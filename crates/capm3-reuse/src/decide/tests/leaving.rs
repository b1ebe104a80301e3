//! How a machine gives its host back.

use super::*;
use crate::reservation;
use crate::seen::Verdict;

#[test]
fn the_verdict_goes_with_the_write_that_clears_the_image() {
    let ours = with(
        &with(&host("h", "provisioned"), &consumer("m", "m-uid")),
        &json!({"spec": {
            "image": {"url": "x"}, "userData": {"name": "boot"}, "networkData": {"name": "its own"}, "online": true,
        }}),
    );
    for (verdict, wanted) in [
        (Verdict::For { owner: owner(), cleaning: None }, Some(owner())),
        (Verdict::Nobody("why".to_owned()), None),
    ] {
        let mut seen = leaving(having(&ours));
        seen.verdict = verdict;
        let decision = decided(&seen);
        let Write::Clear { fields, switch_off: true, verdict, uid, .. } = &decision.writes[0]
        else {
            panic!("{decision:?}")
        };
        assert_eq!(*verdict, wanted);
        // Which host it was decided about is known after a move.
        assert_eq!(uid.as_deref(), wanted.as_ref().map(|_| "h-uid"));
        // What the machine did not bring stays.
        assert_eq!(fields, &["image", "userData"]);
    }
}

#[test]
fn a_host_is_given_back_only_when_nothing_is_on_it_and_named_for_its_owner_while_it_is_cleared() {
    let pending = |verdict: Option<&Owner>| {
        json!({"metadata": {"annotations": {
            names::ferrite::PENDING_RESERVATION: reservation::as_pending(verdict, "ns"),
            "reboot.metal3.io/metal3-remediation-1": "",
            "reboot.metal3.io/admin": "",
        }}})
    };
    let at = |state: &str, verdict: Option<&Owner>| {
        let ours = with(&with(&host("h", state), &consumer("m", "m-uid")), &pending(verdict));
        decided(&leaving(having(&ours)))
    };
    for state in ["provisioned", "provisioning", "preparing", "deleting", "a state to come"] {
        assert_eq!(kinds(&at(state, Some(&owner()))), ["report"], "{state}");
    }
    assert_eq!(kinds(&at("deprovisioning", None)), ["report"]);
    assert_eq!(kinds(&at("deprovisioning", Some(&owner()))), ["release"]);
    for state in ["available", "ready", "inspecting", "registering"] {
        let decision = at(state, Some(&owner()));
        assert_eq!(kinds(&decision), ["release", "let go"], "{state}");
        let Write::Release { keep_for, annotations, .. } = &decision.writes[0] else { panic!() };
        assert_eq!(*keep_for, Some(owner()));
        // A person's hold on the host's power is not the machine's.
        let gone =
            ["ferrite.metal3.io/pending-reservation", "reboot.metal3.io/metal3-remediation-1"];
        assert_eq!(annotations, &gone);
    }
    let free = at("available", None);
    assert!(matches!(&free.writes[0], Write::Release { keep_for: None, .. }));
}

#[test]
fn a_pause_of_capm3_is_lifted_from_the_host_of_a_machine_that_stays_or_goes() {
    let by = names::capm3::PAUSED_BY_CAPM3;
    let pause = json!({"metadata": {"annotations": {names::metal3::PAUSED: by}}});
    let ours = with(&with(&host("h", "provisioned"), &consumer("m", "m-uid")), &pause);
    for seen in [having(&ours), leaving(having(&ours))] {
        assert_eq!(kinds(&decided(&seen)), ["unpause"]);
    }
}

#[test]
fn the_uid_beside_a_verdict_is_that_of_the_host_of_which_it_was_decided() {
    let noted = |verdict: Option<&Owner>| {
        json!({"metadata": {"annotations": {
            names::ferrite::PENDING_RESERVATION: reservation::as_pending(verdict, "ns"),
            names::ferrite::RESERVED_HOST_UID: "uid-of-before",
        }}})
    };
    let stale = json!({"metadata": {"annotations": {names::ferrite::RESERVED_HOST_UID: "old"}}});
    let nobody = Verdict::Nobody("why".to_owned());
    let for_owner = Verdict::For { owner: owner(), cleaning: None };
    // Brought here by a move, and decided here just now: what is written, and whether what stands there goes.
    for (state, patch, verdict, written, goes) in [
        ("available", noted(Some(&owner())), &for_owner, None, false),
        ("deprovisioning", noted(Some(&owner())), &for_owner, None, false),
        ("available", noted(None), &for_owner, None, true),
        ("available", stale.clone(), &for_owner, Some("h-uid"), false),
        ("available", stale, &nobody, None, true),
    ] {
        let ours = with(&with(&host("h", state), &consumer("m", "m-uid")), &patch);
        let mut seen = leaving(having(&ours));
        seen.verdict = verdict.clone();
        let decision = decided(&seen);
        let Write::Release { uid, annotations, .. } = &decision.writes[0] else {
            panic!("{decision:?}")
        };
        let is_taken = annotations.iter().any(|it| it == names::ferrite::RESERVED_HOST_UID);
        assert_eq!((uid.as_deref(), is_taken), (written, goes), "{state} {patch}");
    }
}

#[test]
fn a_host_that_does_not_say_in_what_state_it_is_is_given_back_only_if_nothing_was_ever_on_it() {
    let pending = json!({"metadata": {"annotations": {
        names::ferrite::PENDING_RESERVATION: reservation::as_pending(Some(&owner()), "ns"),
    }}});
    let told = json!({"spec": {"userData": {"name": "boot"}}});
    let (none, given_back) = (json!({}), vec!["release", "let go"]);
    // The state, whether the machine was up, and what else is on the host.
    for (state, was_up, more, steps) in [
        ("", false, &none, given_back.clone()),
        ("", false, &told, vec!["clear"]),
        ("", false, &pending, vec!["report"]),
        ("", true, &none, vec!["clear"]),
        ("", true, &pending, vec!["report"]),
        ("registering", false, &pending, given_back.clone()),
        ("registering", true, &pending, vec!["report"]),
        ("inspecting", true, &pending, given_back),
    ] {
        let ours = with(&with(&host("h", state), &consumer("m", "m-uid")), more);
        let mut seen = leaving(having(&ours));
        seen.machine.spec.provider_id = was_up.then(|| "metal3://ns/h/m".to_owned());
        seen.verdict = Verdict::For { owner: owner(), cleaning: None };
        let decision = decided(&seen);
        assert_eq!(kinds(&decision), steps, "{state:?} {was_up} {more}");
        if steps == ["report"] {
            assert!(decision.message().contains("is unknown"), "{}", decision.message());
        }
    }
}

#[test]
fn a_verdict_beside_an_image_or_one_that_cannot_be_read_is_decided_again() {
    let noted = |text: &str| json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: text}}});
    let other = Owner { name: "other".to_owned(), uid: "other".to_owned(), ..owner() };
    let foreign = reservation::as_pending(Some(&other), "ns");
    let image = json!({"spec": {"image": {"url": "x"}}});
    for (state, text, more) in [
        ("provisioned", foreign.as_str(), &image),
        ("provisioned", "none", &image),
        ("deprovisioning", "{garbage", &json!({})),
        ("available", "{garbage", &json!({})),
    ] {
        let ours = with(&with(&host("h", state), &consumer("m", "m-uid")), &noted(text));
        let mut seen = leaving(having(&with(&ours, more)));
        seen.verdict = Verdict::For { owner: owner(), cleaning: None };
        let decision = decided(&seen);
        let kept_for = decision.writes.iter().find_map(|step| match step {
            Write::Clear { verdict, .. } => verdict.clone(),
            Write::Release { keep_for, .. } => keep_for.clone(),
            _ => None,
        });
        assert_eq!(kept_for, Some(owner()), "{state} {text}");
        // Nor without an answer.
        seen.verdict = Verdict::Undecided(Reason::OwnerUnanswered, "why".to_owned());
        assert_eq!(decided(&seen).reason, Reason::OwnerUnanswered, "{state} {text}");
        seen.verdict = Verdict::Undecided(Reason::OwnerUnreadable, "why".to_owned());
        assert_eq!(decided(&seen).reason, Reason::OwnerUnreadable, "{state} {text}");
    }
}

#[test]
fn a_host_that_is_kept_for_nobody_and_not_wiped_says_so() {
    let at = |state: &str, mode: &str| {
        let none =
            json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: "none"}}});
        let ours = with(&with(&host("h", state), &consumer("m", "m-uid")), &none);
        let mode = json!({"spec": {"automatedCleaningMode": mode}});
        decided(&leaving(having(&with(&ours, &mode))))
    };
    let given_back = at("available", "disabled");
    assert!(given_back.message().contains("its disks are not wiped"), "{}", given_back.message());
    assert_eq!((given_back.reason, given_back.news()), (Reason::Released, true));
    assert!(!at("available", "metadata").message().contains("wiped"));
}

#[test]
fn a_machine_goes_when_its_host_is_another_s_or_gone_but_not_while_its_own_disks_are_cleared() {
    let kept = with(&host("h", "deprovisioning"), &kept_for(&owner()));
    assert_eq!(decided(&leaving(having(&kept))).reason, Reason::Deprovisioning);
    let kept = with(&host("h", "available"), &kept_for(&owner()));
    assert_eq!(kinds(&decided(&leaving(having(&kept)))), ["let go"]);
    let theirs = with(&host("h", "provisioned"), &consumer("other", "x"));
    assert_eq!(kinds(&decided(&leaving(having(&theirs)))), ["let go"]);
    let mut gone = leaving(having(&theirs));
    gone.host = HostSeen::Gone("h".to_owned());
    assert_eq!(kinds(&decided(&gone)), ["let go"]);
    // Deletion needs neither Machine nor Cluster.
    gone.parent = Parent::Gone("m".to_owned());
    gone.cluster = None;
    assert_eq!(kinds(&decided(&gone)), ["let go"]);
    let mut others = leaving(having(&theirs));
    others.machine.metadata.finalizers = Some(vec!["others".to_owned()]);
    assert_eq!(kinds(&decided(&others)), [""; 0]);
}

#[test]
fn a_machine_that_two_hosts_name_goes_when_both_are_given_back() {
    let pending = json!({"metadata": {"annotations": {
        names::ferrite::PENDING_RESERVATION: reservation::as_pending(Some(&owner()), "ns"),
    }}});
    let cleared = with(&with(&host("h", "available"), &consumer("m", "m-uid")), &pending);
    let theirs = with(&host("h", "provisioned"), &consumer("other", "x"));
    for (host, with_it, alone) in [
        (HostSeen::Here(Box::new(cleared)), vec!["release"], vec!["release", "let go"]),
        (HostSeen::Here(Box::new(theirs)), vec![], vec!["let go"]),
        (HostSeen::Gone("h".to_owned()), vec![], vec!["let go"]),
    ] {
        let mut seen = leaving(having(&self::host("h", "available")));
        seen.host = host;
        assert_eq!(kinds(&decided(&seen)), alone);
        seen.another = Some("two".to_owned());
        let decision = decided(&seen);
        assert_eq!((kinds(&decision), decision.again().is_some()), (with_it, true));
    }
}

#[test]
fn a_machine_that_was_never_seen_to_have_its_host_stops_a_claim_that_may_be_on_its_way_before_it_goes()
 {
    let mut seen = leaving(having(&host("h", "available")));
    seen.machine.status = None;
    // One that has been refused for long is not on its way any more, and who refuses this as well does not hold it.
    for (refused, insists) in [(None, true), (Some("other"), true), (Some("h"), false)] {
        seen.refused = refused.map(str::to_owned);
        let decision = decided(&seen);
        assert_eq!(kinds(&decision), ["pass over", "let go"]);
        assert_eq!(decision.writes[0], Write::PassOver { host: "h".to_owned(), insists });
    }
}

/// The machine with what a decision reports.
pub(super) fn reporting(mut seen: MachineSeen, decision: &Decision) -> MachineSeen {
    let report = decision.writes.iter().find_map(|step| match step {
        Write::Report(status) => Some(status.clone()),
        _ => None,
    });
    let mut status = serde_json::to_value(&seen.machine.status).unwrap();
    merge(&mut status, &report.unwrap());
    seen.machine.status = serde_json::from_value(status).unwrap();
    seen
}

fn ready(seen: &MachineSeen) -> (String, String) {
    let said = status::reported(&seen.machine, names::capi::CONDITION_READY).unwrap();
    (said.reason.clone().unwrap(), said.message.clone().unwrap())
}

#[test]
fn a_deletion_that_waits_says_so_once_and_what_holds_it_up_is_an_event() {
    let none = json!({"metadata": {"annotations": {
        names::ferrite::PENDING_RESERVATION: reservation::as_pending(None, "ns"),
    }}});
    let clearing = with(&with(&host("h", "deprovisioning"), &consumer("m", "m-uid")), &none);
    let seen = leaving(having(&clearing));
    let first = decided(&seen);
    assert_eq!((kinds(&first), first.news()), (vec!["report"], false));
    let mut later = reporting(seen, &first);
    assert_eq!(ready(&later), ("Deprovisioning".to_owned(), "Host h is being cleared".to_owned()));
    assert_eq!(kinds(&decided(&later)), [""; 0]);
    for (trouble, told) in [
        (json!({"status": {"errorMessage": "no power"}}), "reports an error: no power"),
        (json!({"metadata": {"annotations": {names::metal3::PAUSED: ""}}}), "is paused"),
        (json!({"metadata": {"annotations": {names::metal3::DETACHED: ""}}}), "is detached"),
        // That holds up nothing, and hides nothing that does.
        (
            json!({"metadata": {"annotations": {names::metal3::PAUSED: "", names::capm3::UNHEALTHY: ""}}}),
            "is paused",
        ),
    ] {
        later.host = HostSeen::Here(Box::new(with(&clearing, &trouble)));
        let decision = decided(&later);
        assert!(decision.news() && decision.message().ends_with(told), "{}", decision.message());
        later = reporting(later, &decision);
        let again = decided(&later);
        assert_eq!((kinds(&again), again.news()), (vec![], false));
    }
}

/// Each release beside `bmo-reboot` meets its pause: an event of it would come with every machine that goes.
#[test]
fn a_pause_of_bmo_reboot_on_a_host_that_is_cleared_is_no_event() {
    let none = json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: "none"}}});
    let clearing = with(&with(&host("h", "deprovisioning"), &consumer("m", "m-uid")), &none);
    let by = names::ferrite::PAUSED_BY_BMO_REBOOT;
    let pause = json!({"metadata": {"annotations": {names::metal3::PAUSED: by}}});
    let paused = with(&clearing, &pause);
    let decision = decided(&leaving(having(&paused)));
    assert_eq!((kinds(&decision), decision.news()), (vec!["report"], false));
    assert!(decision.message().ends_with("is paused"), "{}", decision.message());
    let failed = with(&paused, &json!({"status": {"errorMessage": "no power"}}));
    assert!(decided(&leaving(having(&failed))).news());
}

#[test]
fn a_host_that_is_only_switched_off_or_only_unhealthy_is_not_told_to_be_held_up() {
    let waiting = |state: &str, more: Value| {
        let none =
            json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: "none"}}});
        let ours = with(&with(&host("h", state), &consumer("m", "m-uid")), &none);
        decided(&leaving(having(&with(&ours, &more))))
    };
    let unhealthy = json!({"metadata": {"annotations": {names::capm3::UNHEALTHY: ""}}});
    let decision = waiting("deprovisioning", unhealthy);
    assert_eq!((decision.message().as_str(), decision.news()), ("Host h is being cleared", false));
    let decision = waiting("externally provisioned", json!({"status": {"poweredOn": true}}));
    assert!(decision.message().ends_with("switched off first"), "{}", decision.message());
    // Or never: then nobody would ever come to switch it off.
    let stays_on = json!({"spec": {"disablePowerOff": true}, "status": {"poweredOn": true}});
    let decision = waiting("externally provisioned", stays_on);
    assert_eq!(kinds(&decision), ["release", "let go"]);
}

#[test]
fn an_owner_that_cannot_be_read_holds_the_host_and_is_a_condition_and_a_warning() {
    let ours = with(&host("h", "provisioned"), &consumer("m", "m-uid"));
    let installed = with(&ours, &json!({"spec": {"image": {"url": "x"}}}));
    let cleared = with(&host("h", "available"), &consumer("m", "m-uid"));
    for host in [installed, ours, cleared] {
        let mut seen = leaving(having(&host));
        // It said so while it was up, which is another thing.
        let up = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "OwnerUnreadable"}]});
        seen.machine.status = Some(serde_json::from_value(up).unwrap());
        seen.verdict = Verdict::Undecided(Reason::OwnerUnreadable, "allow get on it".to_owned());
        let decision = decided(&seen);
        assert_eq!((decision.reason, kinds(&decision)), (Reason::OwnerUnreadable, vec!["report"]));
        assert!(decision.news() && decision.reason.is_warning());
        assert!(decision.again().is_some_and(|again| again <= Duration::from_secs(30)));
        let mut later = reporting(seen, &decision);
        let (reason, message) = ready(&later);
        assert!(reason == "OwnerUnreadable" && message.ends_with("allow get on it"), "{message}");
        assert_eq!((kinds(&decided(&later)), decided(&later).news()), (vec![], false));
        // And when it can be read it goes on.
        later.verdict = Verdict::For { owner: owner(), cleaning: None };
        assert_ne!(decided(&later).reason, Reason::OwnerUnreadable);
    }
}

#[test]
fn without_an_answer_nothing_is_decided_and_that_is_said_once_and_asked_again() {
    let ours = with(&host("h", "provisioned"), &consumer("m", "m-uid"));
    let installed = with(&ours, &json!({"spec": {"image": {"url": "x"}}}));
    let cleared = with(&host("h", "available"), &consumer("m", "m-uid"));
    for host in [installed, ours, cleared] {
        let mut seen = leaving(having(&host));
        seen.verdict = Verdict::Undecided(
            Reason::OwnerUnanswered,
            "could not get the owner: broken (500)".to_owned(),
        );
        let decision = decided(&seen);
        assert_eq!((decision.reason, kinds(&decision)), (Reason::OwnerUnanswered, vec!["report"]));
        assert!(decision.news() && decision.reason.is_warning());
        assert!(decision.again().is_some_and(|again| again <= Duration::from_secs(30)));
        let mut later = reporting(seen, &decision);
        let (reason, message) = ready(&later);
        assert!(reason == "OwnerUnanswered" && message.ends_with("broken (500)"), "{message}");
        // The same trouble in other words is no news.
        later.verdict =
            Verdict::Undecided(Reason::OwnerUnanswered, "read tcp :4711: broken".to_owned());
        let again = decided(&later);
        assert_eq!((kinds(&again), again.news(), again.again()), (vec![], false, decision.again()));
        // And with the answer it goes on.
        later.verdict = Verdict::For { owner: owner(), cleaning: None };
        assert_ne!(decided(&later).reason, Reason::OwnerUnanswered);
    }
    // A verdict that stands on the host needs no answer.
    let pending = reservation::as_pending(Some(&owner()), "ns");
    let stands =
        json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: pending}}});
    let clearing = with(&host("h", "deprovisioning"), &consumer("m", "m-uid"));
    let mut seen = leaving(having(&with(&clearing, &stands)));
    seen.verdict = Verdict::Undecided(Reason::OwnerUnanswered, "why".to_owned());
    assert_eq!(kinds(&decided(&seen)), ["release"]);
}

#[test]
fn a_machine_that_is_given_back_after_a_pause_is_paused_no_longer() {
    let paused =
        json!({"type": names::capi::CONDITION_PAUSED, "status": "True", "reason": "Paused"});
    let none = json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: "none"}}});
    let clearing = with(&with(&host("h", "deprovisioning"), &consumer("m", "m-uid")), &none);
    let mut seen = leaving(having(&clearing));
    let said = json!({"type": "Ready", "status": "False", "reason": "Deprovisioning", "message": "Host h is being cleared"});
    seen.machine.status =
        Some(serde_json::from_value(json!({"conditions": [paused.clone(), said]})).unwrap());
    let decision = decided(&seen);
    assert_eq!(kinds(&decision), ["report"]);
    let later = reporting(seen, &decision);
    let told = status::reported(&later.machine, names::capi::CONDITION_PAUSED).unwrap();
    assert_eq!(told.status, "False");
    assert_eq!(ready(&later).0, "Deprovisioning");
    assert_eq!(kinds(&decided(&later)), [""; 0]);
}

#[test]
fn whether_disks_are_wiped_is_said_by_the_template_that_keeps_the_host_and_told_where_it_hurts() {
    let kept = |cleaning: Option<&str>| Verdict::For {
        owner: owner(),
        cleaning: cleaning.map(str::to_owned),
    };
    let nobody = || Verdict::Nobody("why".to_owned());
    // What the deciding template says, what the machine's own does, what is on the host; what is written, whether that hurts.
    for (verdict, own, on_host, written, hurts) in [
        (kept(Some("disabled")), Some("metadata"), "metadata", Some("disabled"), false),
        (kept(Some("disabled")), None, "disabled", None, false),
        (kept(Some("metadata")), Some("disabled"), "disabled", Some("metadata"), true),
        (kept(None), Some("disabled"), "metadata", Some("disabled"), false),
        (kept(None), Some("metadata"), "disabled", Some("metadata"), true),
        // The template is gone: its last word stands on the host.
        (kept(None), None, "disabled", None, false),
        (kept(None), None, "metadata", None, true),
        (nobody(), Some("metadata"), "disabled", Some("metadata"), false),
        (nobody(), Some("disabled"), "disabled", None, true),
        (nobody(), None, "disabled", None, true),
    ] {
        let spec = json!({"spec": {"image": {"url": "x"}, "automatedCleaningMode": on_host}});
        let ours = with(&with(&host("h", "provisioned"), &consumer("m", "m-uid")), &spec);
        let mut seen = leaving(having(&ours));
        // What it was cloned with does not count.
        seen.machine.spec.automated_cleaning_mode = Some("metadata".to_owned());
        (seen.verdict, seen.cleaning) = (verdict.clone(), own.map(str::to_owned));
        let decision = decided(&seen);
        let Write::Clear { cleaning, .. } = &decision.writes[0] else { panic!("{decision:?}") };
        assert_eq!(cleaning.as_deref(), written, "{verdict:?} {own:?} {on_host}");
        assert_eq!(decision.message().contains("wiped"), hurts, "{}", decision.message());
        // Once it is decided nothing is written over it.
        let pending = reservation::as_pending(Some(&owner()), "ns");
        let stands =
            json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: pending}}});
        let cleared = with(&host("h", "deprovisioning"), &consumer("m", "m-uid"));
        seen.host = HostSeen::Here(Box::new(with(&cleared, &stands)));
        assert_eq!(kinds(&decided(&seen)), ["release"]);
    }
}

#[test]
fn of_facts_and_network_only_what_was_the_machine_s_is_taken_off_its_host() {
    let both = json!({"spec": {
        "image": {"url": "x"}, "metaData": {"name": "m-facts"}, "networkData": {"name": "host-s-own"},
    }});
    let ours = with(&with(&host("h", "provisioned"), &consumer("m", "m-uid")), &both);
    let named = |name: &str| Some(NamedRef { name: Some(name.to_owned()), ..NamedRef::default() });
    let cleared = |seen: MachineSeen| match decided(&leaving(seen)).writes.into_iter().next() {
        Some(Write::Clear { fields, .. }) => fields,
        other => panic!("{other:?}"),
    };
    let templated = || {
        let mut seen = having(&ours);
        seen.machine.spec.data_template = Some(ObjectRef::default());
        seen
    };
    // The template renders facts only.
    let mut rendered = templated();
    rendered.data = Data::Rendered {
        name: "facts-0".to_owned(),
        meta_data: Some("m-facts".to_owned()),
        network_data: None,
    };
    assert_eq!(cleared(rendered), ["image", "metaData"]);
    // They are gone by now; the status remembers.
    let mut remembered = templated();
    remembered.machine.status.as_mut().unwrap().meta_data = named("m-facts");
    assert_eq!(cleared(remembered), ["image", "metaData"]);
    let mut plain = having(&ours);
    plain.machine.spec.network_data = named("host-s-own");
    assert_eq!(cleared(plain), ["image", "networkData"]);
    assert_eq!(cleared(templated()), ["image"]);
}

#[test]
fn what_a_host_is_told_is_remembered_with_the_claim_or_with_the_image() {
    let in_use = |decision: &Decision| {
        let Some(Write::Report(status)) = decision.writes.last() else { panic!("{decision:?}") };
        ["userData", "metaData", "networkData", "renderedData"]
            .map(|field| status[field]["name"].as_str().unwrap_or_default().to_owned())
    };
    let mut claims = seen();
    claims.choice.free = Some(cached(&host("h", "available")));
    assert_eq!(in_use(&decided(&claims)), ["boot", "", "", ""]);
    let ours = with(&host("h", "available"), &consumer("m", "m-uid"));
    let mut installs = having(&ours);
    installs.machine.spec.data_template = Some(ObjectRef::default());
    installs.data = Data::Rendered {
        name: "facts-0".to_owned(),
        meta_data: Some("facts".to_owned()),
        network_data: None,
    };
    let decision = decided(&installs);
    assert_eq!(in_use(&decision), ["boot", "facts", "", "facts-0"]);
    // What was told stays remembered, whatever the spec says by then.
    let mut later = reporting(installs, &decision);
    later.machine.spec.network_data =
        Some(NamedRef { name: Some("edited".to_owned()), ..NamedRef::default() });
    later.machine.spec.meta_data = later.machine.spec.network_data.clone();
    later.data = Data::NotWanted;
    let image = json!({"spec": {"image": {"url": "http://a/b"}}, "status": {"errorMessage": "e"}});
    later.host = HostSeen::Here(Box::new(with(&ours, &image)));
    let told = in_use(&decided(&later));
    assert_eq!((told[0].as_str(), told[1].as_str()), ("", ""));
}

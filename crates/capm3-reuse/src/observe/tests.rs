//! Which host is a machine's, what is asked for, and for how long.

use serde_json::{Value, json};

use super::*;
use crate::context::tests::{no_caches, nowhere};
use crate::decide::tests::{annotate, cached, consumer, host, installed, seen, with};

#[test]
fn a_machine_has_the_host_that_names_it_whatever_its_annotation_says() {
    let mut machine = seen().machine;
    annotate(&mut machine, names::metal3::HOST, "ns/edited");
    let own = cached(&with(&host("own", "provisioning"), &consumer("m", "m-uid")));
    let edited = cached(&host("edited", "available"));
    let other = cached(&host("o", "available"));
    let here = |host: &Arc<CachedHost>| HostSeen::Here(Box::new((***host).clone()));
    let gone = || HostSeen::Gone("edited".to_owned());
    let shown = |seen: HostSeen| match seen {
        HostSeen::Here(host) => host.name_any(),
        HostSeen::Gone(name) => format!("no {name}"),
        HostSeen::None => String::new(),
    };
    for (named, own, wanted) in [
        (here(&edited), vec![other.clone(), own.clone()], "own"),
        (gone(), vec![own.clone()], "own"),
        (HostSeen::None, vec![own.clone()], "own"),
        // What once named it and is another's by now is not its own.
        (here(&edited), vec![other.clone()], "edited"),
        (here(&edited), vec![], "edited"),
        (gone(), vec![], "no edited"),
        (HostSeen::None, vec![], ""),
    ] {
        assert_eq!(shown(own_or_named(&machine, named, &own)), wanted);
    }
    // Of two that name it the other one is seen as well.
    let second = cached(&with(&host("second", ""), &consumer("m", "m-uid")));
    let all = [own.clone(), other.clone(), second];
    let own_one = || here(&own);
    for (seen, all, wanted) in [
        (own_one(), &all[..], Some("second")),
        (own_one(), &all[..2], None),
        (gone(), &all[..], Some("own")),
    ] {
        assert_eq!(another_host(&machine, &seen, all).as_deref(), wanted);
    }
    // Nothing is taken back on old news.
    assert!(needs_live(&MachineSeen { machine, host: own_one(), ..MachineSeen::default() }));
}

#[tokio::test]
async fn what_no_object_can_be_called_is_not_there_and_nobody_is_asked() {
    let context = nowhere(no_caches(), None);
    let scope = Scope { context: &context, namespace: "ns" };
    let secrets = scope.secrets();
    for name in ["", "a b", "../h", "h?watch=true"] {
        let seen = scope.live_named(Some(name)).await;
        assert!(matches!(seen, Ok(HostSeen::Gone(it)) if it == name), "{name}");
        let found = is_missing(name, secrets.get_metadata(name), "look for a secret").await;
        assert!(matches!(found, Ok(true)), "{name}");
    }
}

#[tokio::test]
async fn what_may_not_be_asked_for_is_not_missing_and_no_answer_is_an_error() {
    let status = |code: u16, reason: &str, details: Value| {
        let text = json!({"code": code, "reason": reason, "message": "why", "details": details});
        let status: kube::core::Status = serde_json::from_value(text).unwrap();
        Err(kube::Error::Api(Box::new(status)))
    };
    let named = json!({"name": "facts", "kind": "metal3datatemplates"});
    for (answer, wanted) in [
        (Ok(()), Some(false)),
        (status(404, "NotFound", named.clone()), Some(true)),
        // It says nothing of that object.
        (status(404, "", json!({})), None),
        (status(403, "Forbidden", named.clone()), Some(false)),
        (status(500, "InternalError", named), None),
    ] {
        let told = format!("{answer:?}");
        let found = is_missing("facts", std::future::ready(answer), "look for it").await;
        assert_eq!(found.ok(), wanted, "{told}");
    }
}

#[test]
fn whether_disks_are_wiped_is_the_template_s_word_and_nobody_s_when_that_is_gone() {
    let template = |mode: Option<&str>| -> Metal3MachineTemplate {
        let spec = json!({"automatedCleaningMode": mode});
        serde_json::from_value(json!({"spec": {"template": {"spec": spec}}})).unwrap()
    };
    let (wipes, silent) = (template(Some("metadata")), template(None));
    // What the template says, and what a host is told that was told nothing yet.
    let of = |cloned: bool, template: Option<&Metal3MachineTemplate>| {
        let mut seen = seen();
        seen.machine.spec.automated_cleaning_mode = Some("disabled".to_owned());
        if cloned {
            annotate(&mut seen.machine, names::capi::CLONED_FROM_NAME, "t");
        }
        seen.cleaning = cleaning_mode(&seen.machine, template);
        let told = installed(&seen, &host("h", "available"))["automatedCleaningMode"].clone();
        (seen.cleaning, told)
    };
    let said = |mode: &str| (Some(mode.to_owned()), json!(mode));
    assert_eq!(of(true, Some(&wipes)), said("metadata"));
    assert_eq!(of(true, Some(&silent)), said("disabled"));
    assert_eq!(of(false, None), said("disabled"));
    // Its own is still good for a host that was told nothing yet.
    assert_eq!(of(true, None), (None, json!("disabled")));
}

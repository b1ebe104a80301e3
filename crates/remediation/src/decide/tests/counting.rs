//! What is counted of a try, and what is not.

use prometheus::{Registry, TextEncoder};

use super::*;
use crate::metrics::Metrics;

/// What is exported after these passes.
fn counted(passes: &[(Observed, i64)]) -> String {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry).unwrap();
    for (seen, second) in passes {
        metrics.done(seen, &now(seen, *second), at(*second));
    }
    TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

#[test]
fn only_a_host_that_was_off_has_taken_a_time_to_be_off() {
    let taken = |seen: Observed, second: i64| {
        let text = counted(&[(seen, second)]);
        text.contains("ferrite_remediation_power_off_seconds_count 1\n")
    };
    assert!(taken(edit(off(), |seen| seen.node = NodeSeen::Here(node())), 5));
    let withdrawn = edit(asked(), |seen| seen.request.deleting = Some(at(1)));
    assert!(!taken(withdrawn, 2));
    let unread = edit(off(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.was_on = false);
        seen.node = NodeSeen::Here(node());
    });
    assert_eq!(writes(&now(&unread, 600))[0].key, Some(false));
    assert!(!taken(unread, 600), "nobody has seen it off");
    let given_up = edit(asked(), |seen| {
        seen.request.strategy = Ok(Strategy { retries: 0, timeout: Duration::from_secs(300) });
        seen.node = NodeSeen::Here(node());
    });
    assert!(!taken(given_up, 600));
}

#[test]
fn the_time_until_a_host_was_on_is_taken_once() {
    let on = edit(released(), |seen| seen.host.as_mut().unwrap().powered_on = true);
    let away = edit(recovering(), |seen| seen.node = NodeSeen::NoAccess("away".to_owned()));
    assert!(!now(&away, 30).acts.is_empty(), "it is said that the node cannot be seen");
    let text = counted(&[(on, 20), (away, 30)]);
    assert!(text.contains("ferrite_remediation_power_on_seconds_count 1\n"), "{text}");
}

#[test]
fn every_try_is_counted_and_the_last_one_too() {
    let tries = |text: &str, result: &str, count: u32| {
        let line = format!("ferrite_remediation_tries_total{{result=\"{result}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    };
    let text = counted(&[(recovering(), 320), (last_try(), 320)]);
    tries(&text, "NotRecovered", 1);
    tries(&text, "Exhausted", 1);
    let by_another = edit(fresh(), |seen| {
        let host = seen.host.as_mut().unwrap();
        let mut entry = Entry::begin("another", "m", 0, at(0));
        entry.machine_uid = Some("machine".to_owned());
        let history = History(vec![entry]);
        host.history = history.ended("another", Reason::Exhausted, at(1));
        (host.marked, host.online) = (true, false);
    });
    assert_eq!(now(&by_another, 2).reason, Reason::Exhausted);
    tries(&counted(&[(by_another, 2)]), "Exhausted", 0);
}

#[test]
fn the_write_that_ends_a_try_and_begins_the_next_is_what_it_is_told_and_counted_by() {
    for (begun, second, failed) in [
        (asked(), 600, Reason::PowerOffTimedOut),
        (released(), 610, Reason::PowerOnTimedOut),
        (recovering(), 320, Reason::NotRecovered),
    ] {
        let next = now(&begun, second);
        let [Act::Host(write)] = next.acts.as_slice() else { panic!("{next:?}") };
        let history = write.history.clone().unwrap();
        assert_eq!(history.0[0].result.as_deref(), Some(failed.as_str()));
        let [over] = next.notes.as_slice() else { panic!("{next:?}") };
        assert!(over.warning && over.reason == failed && over.text.starts_with("Try 1 of 2"));
        let text = counted(&[(begun, second)]);
        let word = failed.as_str();
        let line = format!("ferrite_remediation_tries_total{{result=\"{word}\"}} 1\n");
        assert!(text.contains(&line), "{text}");
    }
    assert!(now(&fresh(), 0).notes.iter().all(|it| !it.warning), "no try was before the first");
}

#[test]
fn what_is_told_of_a_try_belongs_to_it_and_to_no_other() {
    let of = |decision: &Decision| decision.events(0).remove(0).action;
    let first = now(&begun(fresh(), &now(&fresh(), 0)), 1);
    let over = now(&recovering(), 320);
    let begins = now(&written(recovering(), &over), 321);
    let all = [&first, &over, &begins].map(of);
    assert_eq!(all, ["Remediate0", "Remediate0", "Remediate1"]);
}

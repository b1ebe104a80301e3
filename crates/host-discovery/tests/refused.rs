//! Machines whose hosts could not be made.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::time::{Duration, Instant};

use controller_kit::engine::ObjectKey;
use host_discovery::decide::decide;
use host_discovery::index::Index;
use host_discovery::model::Observed;
use host_discovery::reason::{Reason, Sort};
use host_discovery::refusals::{Cause, Refusals};
use host_discovery::report::report;
use host_discovery::settings::Policy;
use host_discovery::text;
use serde_json::{Value, json};
use world::{among, machine, node, resource, twins};

/// Why the host of a machine could not be made.
type Why = fn(u8) -> Cause;

/// The API server does not want the host of a machine.
fn refused(number: u8) -> Cause {
    Cause::Refused(ObjectKey::new("metal", &format!("n{number}")))
}

/// Reasons for two machines of one name, the first of which could not be made a host, beside a third.
fn after_failure(cause: Cause, spec: &Value, allowance: u32) -> (Vec<Reason>, Option<String>) {
    let [first, second] = twins();
    let (machines, resources) = ([first, second, machine(3)], [resource("racks", spec)]);
    let mut refusals = Refusals::default();
    refusals.failed(node(1), cause, "metal/n1: no", Instant::now(), 0.0);
    let seen = Observed {
        nodes: &host_discovery::nodes::Nodes::default(),
        machines: machines.iter().collect(),
        resources: &resources,
        hosts: &Index::default(),
        refused: refusals.all(),
        answers: true,
        allowance,
        complete: true,
    };
    let mut found = decide(&seen, &Policy::default()).verdicts;
    assert!(!found[0].creates());
    (found.iter().map(|it| it.reason).collect(), found.remove(0).note)
}

#[test]
fn a_host_that_was_refused_is_listed_and_in_nobodys_way() {
    let (reasons, note) = after_failure(refused(1), &json!({"maxHosts": 1}), 1);
    assert_eq!(reasons, [Reason::HostRefused, Reason::Created, Reason::MaxHosts]);
    assert_eq!(note.as_deref(), Some("metal/n1: no"));
    assert_eq!(Reason::HostRefused.sort(), Sort::Failed);
    let (reasons, _) = after_failure(Cause::Failed(None), &json!({}), 9);
    assert_eq!(reasons, [Reason::HostFailed, Reason::Created, Reason::Created]);
    assert_eq!(Reason::HostFailed.sort(), Sort::Failed);
    assert_eq!(after_failure(refused(1), &json!({"dryRun": true}), 9).0[0], Reason::DryRun);
}

#[test]
fn what_was_refused_is_not_told_of_a_resource_that_has_all_the_hosts_that_it_may() {
    let full = json!({"maxHosts": 0});
    for cause in [refused(1), Cause::Failed(None)] {
        assert_eq!(after_failure(cause, &full, 9).0, [Reason::MaxHosts; 3]);
    }
    let (reasons, _) = after_failure(Cause::Unknown, &full, 9);
    assert_eq!(reasons, [Reason::HostFailed, Reason::AfterAnother, Reason::MaxHosts]);
}

#[test]
fn a_host_that_may_be_there_keeps_its_name_and_its_place() {
    let (reasons, _) = after_failure(Cause::Unknown, &json!({}), 9);
    assert_eq!(reasons, [Reason::HostFailed, Reason::AfterAnother, Reason::Created]);
    let (reasons, _) = after_failure(Cause::Unknown, &json!({"maxHosts": 1}), 9);
    assert_eq!(reasons, [Reason::HostFailed, Reason::AfterAnother, Reason::MaxHosts]);
}

/// It would hold its name in silence as long as the API server fails.
#[test]
fn machine_behind_a_host_that_may_be_there_is_listed_with_what_it_waits_for() {
    let [first, second] = twins();
    let machines = [first, second];
    let reported = |cause: Option<Cause>| {
        let mut refusals = Refusals::default();
        if let Some(cause) = cause {
            refusals.failed(node(1), cause, "metal/n1: no", Instant::now(), 0.0);
        }
        let seen = Observed {
            nodes: &host_discovery::nodes::Nodes::default(),
            machines: machines.iter().collect(),
            resources: &[resource("racks", &json!({}))],
            hosts: &Index::default(),
            refused: refusals.all(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        let plan = decide(&seen, &Policy::default());
        assert_eq!(plan.verdicts[1].reason, Reason::AfterAnother);
        report(0, &plan, among(&machines), 0, 0).pending
    };
    let entry = reported(Some(Cause::Unknown)).remove(0);
    let told = entry.reason.unwrap();
    assert!(told.contains("the host n1 of node") && told.contains(&node(1).to_string()), "{told}");
    // What ends in a moment is told to nobody.
    assert!(reported(None).is_empty());
}

/// Reasons for three machines, the first two of which could not be made hosts long ago.
fn after_old_failures(cause: Why, allowance: u32) -> Vec<Reason> {
    let machines = [machine(1), machine(2), machine(3)];
    let (mut refusals, at) = (Refusals::default(), Instant::now());
    for number in [1, 2] {
        refusals.failed(node(number), cause(number), "metal: no", at, 0.0);
    }
    refusals.now(at + Duration::from_secs(60), |_| true);
    let seen = Observed {
        nodes: &host_discovery::nodes::Nodes::default(),
        machines: machines.iter().collect(),
        resources: &[resource("racks", &json!({}))],
        hosts: &Index::default(),
        refused: refusals.all(),
        answers: true,
        allowance,
        complete: true,
    };
    let found = decide(&seen, &Policy::default()).verdicts;
    assert!(found.iter().zip(&machines).all(|(it, machine)| it.node == machine.node));
    found.iter().map(|it| it.reason).collect()
}

#[test]
fn what_could_not_be_made_is_tried_again_after_all_others() {
    let causes: [(Why, _); 3] = [
        (refused, Reason::HostRefused),
        (|_| Cause::Failed(None), Reason::HostFailed),
        (|_| Cause::Unknown, Reason::HostFailed),
    ];
    for (cause, told) in causes {
        let reasons = after_old_failures(cause, 1);
        assert_eq!(reasons, [told, told, Reason::Created]);
        let reasons = after_old_failures(cause, 2);
        assert_eq!(reasons, [Reason::Created, told, Reason::Created]);
        assert_eq!(after_old_failures(cause, 3), [Reason::Created; 3]);
    }
}

#[test]
fn what_was_refused_under_another_name_or_in_another_namespace_is_tried_at_once() {
    let after = |namespace, name| {
        let cause = Cause::Refused(ObjectKey::new(namespace, name));
        let mut refusals = Refusals::default();
        refusals.failed(node(1), cause, "no", Instant::now(), 0.0);
        let alone = machine(1);
        let seen = Observed {
            nodes: &host_discovery::nodes::Nodes::default(),
            machines: vec![&alone],
            resources: &[resource("racks", &json!({}))],
            hosts: &Index::default(),
            refused: refusals.all(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        decide(&seen, &Policy::default()).verdicts.remove(0).reason
    };
    assert_eq!(after("metal", "n1"), Reason::HostRefused);
    assert_eq!(after("a", "n1"), Reason::Created);
    assert_eq!(after("metal", "old-n1"), Reason::Created);
}

#[test]
fn a_machine_that_ironic_cannot_say_is_there_leaves_its_place_to_others() {
    let machines = [machine(1), machine(2)];
    let (mut refusals, at) = (Refusals::default(), Instant::now());
    let told = text::unconfirmed(node(1), "it failed");
    refusals.failed(node(1), Cause::Unsaid, &told, at, 0.0);
    for (seconds, told) in [(0, Reason::HostFailed), (60, Reason::MaxHosts)] {
        refusals.now(at + Duration::from_secs(seconds), |_| true);
        let seen = Observed {
            nodes: &host_discovery::nodes::Nodes::default(),
            machines: machines.iter().collect(),
            resources: &[resource("racks", &json!({"maxHosts": 1}))],
            hosts: &Index::default(),
            refused: refusals.all(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        let found = decide(&seen, &Policy::default()).verdicts;
        assert_eq!([found[0].reason, found[1].reason], [told, Reason::Created]);
    }
}

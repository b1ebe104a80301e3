//! What goes wrong around a cycle: an Ironic that is locked, busy, away, hangs or loses its answers, an API server that
//! fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::bmc::{Behaviour, Machine, Rack, Seen};
use bench::faults::Plan;
use bench::ironic::{Ironic, Options};
use bench::proxy::{Fault, Proxy, power_changes};
use bmo_reboot::settings::Policy;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{HARD, PATIENCE, PLAIN, Site, condition, keys, machine, quick, record, stamps, switch};

/// How long an Ironic that hangs is waited for here.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn locks_refusals_and_lost_answers_are_nobodys_failure() {
    let faults = [
        |node: &str| Fault::locked(node),
        |_: &str| Fault::busy(),
        |_: &str| {
            let why = "The node is at work for somebody else.".to_owned();
            Fault::Answer(reqwest::StatusCode::CONFLICT, why)
        },
        |_: &str| {
            let why = "No valid host was found. Reason: No conductor is left.".to_owned();
            Fault::Answer(reqwest::StatusCode::NOT_FOUND, why)
        },
        |_: &str| Fault::CutBefore,
        |_: &str| Fault::CutAfter,
        |_: &str| Fault::Delay(Duration::from_secs(2)),
        |_: &str| Fault::Hang,
    ];
    join_all(faults.into_iter().enumerate().map(|(number, fault)| survived(number, fault))).await;
}

/// One cycle whose first two power calls meet this fault.
async fn survived(number: usize, fault: fn(&str) -> Fault) {
    let site = Site::new("faults").await;
    let (ironic, machine, node) = machine(&format!("faults-{number}")).await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    let fault = fault(&node);
    proxy.fault(fault.clone(), 2, power_changes);
    let _running = if fault == Fault::Hang {
        site.start_impatient(&proxy.endpoint, SHORT)
    } else {
        site.start(&proxy.endpoint, quick())
    };
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let host = site.cycled("h").await;
    assert!(host["status"]["errorType"].is_null(), "{fault:?}: {host:#}");
    assert!(site.events("PowerFailed").await.is_empty(), "{fault:?}: not for a moment");
    let met = proxy.count(|request| request.fault.as_ref() == Some(&fault));
    assert_eq!(met, 2, "the fault was met twice");
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{fault:?}: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_minute_is_told_and_ends_in_one_cycle_soon_after_it_is_gone() {
    let site = Site::new("locked").await;
    let (ironic, machine, node) = machine("locked").await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    // Ironic tries for as long to get the lock.
    let locked = Fault::Later(Duration::from_secs(2), Box::new(Fault::locked(&node)));
    proxy.fault(locked, usize::MAX, power_changes);
    let running = site.start(&proxy.endpoint, quick());
    site.wait("h", "looked at", |host| condition(host, "PowerManaged").0 == "Managed").await;
    let written = || {
        let calls = running.handle.calls();
        calls.iter().filter(|it| it.write.is_some() && it.path.contains("baremetalhosts")).count()
    };
    let before = written();
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let host = site.wait("h", "told to be locked", |host| record(host).0 == "NodeBusy").await;
    let since = transition(&host);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let host = site.get("h").await;
    assert_eq!((record(&host).0.as_str(), keys(&host).len()), ("NodeBusy", 1), "{host:#}");
    assert_eq!(transition(&host), since, "since when it is locked can be seen: {host:#}");
    assert!(host["status"]["errorType"].is_null(), "nobody's failure: {host:#}");
    let asked = proxy.count(|request| request.fault.is_some());
    assert!((8..=30).contains(&asked), "asked again {asked} times within a minute");
    // That it was accepted, and that the node is locked.
    assert!(written() - before <= 2, "{:#?}", running.handle.calls());
    assert_eq!(site.events("NodeBusy").await.len(), 1, "told once");
    proxy.heal();
    let gone = Instant::now();
    site.wait("h", "switched off", |host| host["status"]["poweredOn"] == false).await;
    assert!(gone.elapsed() < Duration::from_secs(30), "after {:?}", gone.elapsed());
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

/// Since when the condition `Rebooting` says what it says.
fn transition(host: &Value) -> Value {
    let conditions = host["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|it| it["type"] == "Rebooting").unwrap();
    found["lastTransitionTime"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_that_is_away_changes_nothing_and_the_request_waits_for_it() {
    let site = Site::new("away").await;
    let ironic = Ironic::start(Options::default()).await.unwrap();
    let machine = bench::bmc::spare().await.unwrap();
    let node = ironic.enroll("away", &machine).await.unwrap();
    switch(&ironic, &node, "power on").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    // What was seen of the node lets the request begin without another look.
    site.wait("h", "looked at", |host| condition(host, "PowerManaged").0 == "Managed").await;
    ironic.kill();
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let host = site.wait("h", "waiting", |host| record(host).0 == "IronicUnreachable").await;
    assert_eq!((keys(&host).len(), &host["status"]["poweredOn"]), (1, &json!(true)));
    assert!(record(&host).1.contains("IRONIC_ENDPOINT"), "it says what to look at: {host:#}");
    // Longer than it takes until silence counts as lasting.
    tokio::time::sleep(Duration::from_secs(15)).await;
    ironic.restart().await.unwrap();
    site.cycled("h").await;
    assert_eq!(site.warned("IronicUnreachable").await, [("h".to_owned(), 1)], "told once");
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_that_hangs_in_the_middle_of_a_cycle_changes_nothing_until_it_answers_again() {
    let site = Site::new("hangs").await;
    let (ironic, machine, node) = machine("hangs").await;
    // Off only after Ironic was heard of last.
    machine.behave(&Behaviour { delay: 2.0, ..Behaviour::default() }).await.unwrap();
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    let asked = AtomicBool::new(false);
    proxy.fault(Fault::Hang, usize::MAX, move |method, path| {
        asked.fetch_or(power_changes(method, path), Ordering::SeqCst)
    });
    let _running = site.start_impatient(&proxy.endpoint, SHORT);
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let host = site.wait("h", "waiting", |host| record(host).0 == "IronicUnreachable").await;
    assert_eq!((keys(&host).len(), &host["status"]["poweredOn"]), (1, &json!(true)), "{host:#}");
    assert!(stamps(&host).0.is_some() && stamps(&host).1.is_none(), "{host:#}");
    assert!(host["status"]["errorType"].is_null(), "nobody's failure: {host:#}");
    assert_eq!(proxy.agreed(&node), ["power off"], "nothing else reached Ironic");
    proxy.heal();
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
    assert_eq!(seen.requests("GracefulShutdown"), 0, "hard was asked for");
}

/// An Ironic that can be killed, with a machine that runs, whose node it has.
async fn mortal(name: &str) -> (Ironic, Rack, String) {
    let ironic = Ironic::start(Options::default()).await.unwrap();
    let rack = Rack::start(1).await.unwrap();
    let node = ironic.enroll(name, &rack.machines[0]).await.unwrap();
    switch(&ironic, &node, "power on").await;
    (ironic, rack, node)
}

async fn until(machine: &Machine, wanted: &str, check: impl Fn(&Seen) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !check(&machine.seen().await.unwrap()) {
        assert!(Instant::now() < deadline, "the machine was never {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Ironic shows what it knew before the power-on, and does not look: here it never compares what it knows with the BMC.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_after_a_power_on_that_ended_with_ironic_is_carried_out_and_not_believed() {
    let site = Site::new("ended").await;
    let (ironic, rack, node) = mortal("ended").await;
    let machine = &rack.machines[0];
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    let (first, late) = (format!("{PLAIN}/first"), format!("{PLAIN}/late"));
    site.annotate("h", json!({ (first.as_str()): HARD })).await;
    site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    machine.behave(&Behaviour { delay: 2.0, ..Behaviour::default() }).await.unwrap();
    site.annotate("h", json!({ (first.as_str()): null })).await;
    until(machine, "asked to come on", |seen| seen.requests("On") == 2).await;
    ironic.kill();
    until(machine, "on", |seen| seen.state == "On").await;
    site.annotate("h", json!({ (late.as_str()): HARD })).await;
    ironic.restart().await.unwrap();
    let held = |host: &Value| {
        let (reason, message) = record(host);
        reason == "HeldOff" && message.contains("/late") && host["status"]["poweredOn"] == false
    };
    let host = site.wait("h", "held off again", held).await;
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.state, "Off", "{host:#}");
    assert_eq!((seen.turned_off(), seen.turned_on()), (2, 2), "{seen:?}");
    site.annotate("h", json!({ (late.as_str()): null })).await;
    site.cycled("h").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_attempt_goes_on_although_ironic_ends_in_the_middle_of_it() {
    let site = Site::new("goes-on").await;
    let (ironic, rack, node) = mortal("goes-on").await;
    let machine = &rack.machines[0];
    // Longer than Ironic needs to come back.
    machine.behave(&Behaviour { delay: 10.0, ..Behaviour::default() }).await.unwrap();
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, Policy::default());
    site.annotate("h", json!({ PLAIN: "" })).await;
    until(machine, "softly asked", |seen| seen.requests("GracefulShutdown") == 1).await;
    ironic.restart().await.unwrap();
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.requests("ForceOff"), 0, "the machine was shutting down: {seen:?}");
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_api_server_costs_no_request() {
    use bench::faults::{At, Fault};
    let site = Site::new("api-faults").await;
    let (ironic, machine, node) = machine("api-faults").await;
    site.host("h", &node, json!({})).await;
    let status = |code: u16| Fault::Fail(reqwest::StatusCode::from_u16(code).unwrap());
    let plan = Plan::none("bmo-reboot")
        .and(At::Write(1), status(500))
        .and(At::Write(2), status(409))
        .and(At::Write(4), status(429))
        .and(At::Write(5), Fault::DropAnswer)
        .and(At::Write(7), Fault::DropRequest);
    let _running = site.start_disturbed(&ironic.endpoint, quick(), plan);
    site.annotate("h", json!({ PLAIN: HARD })).await;
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_is_told_although_its_outcome_could_not_be_written() {
    use bench::faults::{At, Fault};
    let site = Site::new("told").await;
    let (ironic, machine, node) = machine("told").await;
    site.host("h", &node, json!({ "metadata": { "annotations": { PLAIN: "" } } })).await;
    // The first write accepts the request; the second one says that Ironic took the call, as it does of a single slice.
    let conflict = Fault::Fail(reqwest::StatusCode::CONFLICT);
    let plan = Plan::none("bmo-reboot").and(At::Write(2), conflict);
    let mut policy = quick();
    policy.soft_slice = policy.soft_timeout;
    let running = site.start_disturbed(&ironic.endpoint, policy, plan);
    site.cycled("h").await;
    assert!(running.handle.fired());
    let told = site.events("RequestAccepted").await;
    assert_eq!(told.len(), 1, "{told:?}");
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

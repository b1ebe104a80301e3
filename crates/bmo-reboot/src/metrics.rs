//! The controller's own metrics; the kit counts reconciles, requests and the rest. Names of objects are never labels.

use api_types::metal3::{BareMetalHostStatus, CachedHost, ErrorType};
use api_types::time::until;
use controller_kit::engine::Reason as _;
use controller_kit::engine::reasons::Kind;
use controller_kit::metrics::{SetWhenAsked, register};
use ironic::Power;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::Store;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, Result,
};

use crate::model::{Answer, Call, Host, NodeSeen, Write};
use crate::reason::Reason;
use crate::record::{Managed, RebootProgress, Record};

/// From a reset of an idle machine to a soft attempt that took its whole time.
const SECONDS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0];

const CALLS: [&str; 5] = ["on", "hard_off", "soft_off", "reset", "soft_reset"];
const ANSWERS: [&str; 7] =
    ["accepted", "busy", "unreachable", "unsupported", "refused", "unknown", "no_room"];

/// Counters and gauges of this controller; clones share them.
#[derive(Clone)]
pub struct Metrics {
    accepted: IntCounterVec,
    calls: IntCounterVec,
    to_off: Histogram,
    to_on: Histogram,
    escalations: IntCounter,
    ironic_errors: IntCounterVec,
    ironic_reachable: IntGauge,
}

impl Metrics {
    /// Registers them, with every series from the start; what hosts show is read from the store whenever somebody asks.
    pub fn new(registry: &Registry, hosts: Store<CachedHost>) -> Result<Self> {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let histogram = |name: &str, help: &str| {
            let opts = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
            register(registry, Histogram::with_opts(opts)?)
        };
        let escalations = IntCounter::new(
            "ferrite_bmo_reboot_soft_escalations_total",
            "Soft power-offs that did not suffice and were followed by a hard one",
        );
        let reachable = IntGauge::new(
            "ferrite_bmo_reboot_ironic_reachable",
            "1 while Ironic answers and takes our credentials",
        );
        let metrics = Self {
            accepted: counters(
                "ferrite_bmo_reboot_requests_accepted_total",
                "Accepted reboot requests by mode",
                &["mode"],
            )?,
            calls: counters(
                "ferrite_bmo_reboot_power_calls_total",
                "Power calls by target and Ironic's answer",
                &["target", "result"],
            )?,
            to_off: histogram(
                "ferrite_bmo_reboot_off_seconds",
                "Time from an accepted request until the host was seen off",
            )?,
            to_on: histogram(
                "ferrite_bmo_reboot_on_seconds",
                "Time from the power-on until the host was seen on",
            )?,
            escalations: register(registry, escalations?)?,
            ironic_errors: counters(
                "ferrite_bmo_reboot_ironic_errors_total",
                "Polls of Ironic that failed, by class",
                &["class"],
            )?,
            ironic_reachable: register(registry, reachable?)?,
        };
        for mode in ["soft", "hard"] {
            metrics.accepted.with_label_values(&[mode]);
        }
        for call in CALLS {
            for answer in ANSWERS {
                metrics.calls.with_label_values(&[call, answer]);
            }
        }
        for class in ironic::Class::ALL {
            metrics.ironic_errors.with_label_values(&[class.as_str()]);
        }
        let gauges = SHOWN.into_iter().map(|(name, help)| Gauge::new(name, help));
        let gauges = gauges.collect::<Result<Vec<_>>>()?;
        let set = move |gauges: &[Gauge]| {
            gauges.iter().zip(shown(&hosts)).for_each(|(gauge, value)| gauge.set(value));
        };
        registry.register(Box::new(SetWhenAsked { gauges, set }))?;
        Ok(metrics)
    }

    /// Counts what a write says of a host.
    pub fn written(&self, host: &Host, node: &NodeSeen, write: &Write) {
        let (change, now) = (&write.status, Timestamp::now());
        if change.pending.is_some() {
            let mode = if host.requests.any_hard() { "hard" } else { "soft" };
            self.accepted.with_label_values(&[mode]).inc();
        }
        if let (Some(false), true, Some(pending)) =
            (change.powered_on, host.in_cycle(), host.pending)
        {
            self.to_off.observe(until(pending, now).as_secs_f64());
        }
        // One that is only not certainly off any more was not seen on.
        let is_on = node.node().is_some_and(|node| node.power == Power::On);
        let seen_on = change.powered_on == Some(true) && is_on;
        let begun = host.progress().filter(|it| seen_on && it.reason == Reason::PoweringOn);
        if let Some(progress) = begun {
            self.to_on.observe(until(progress.since, now).as_secs_f64());
        }
        if write.escalates {
            self.escalations.inc();
        }
    }

    /// Counts a poll of Ironic.
    pub fn polled(&self, result: &ironic::Result<()>) {
        self.ironic_reachable.set(i64::from(result.is_ok()));
        if let Err(error) = result {
            self.ironic_errors.with_label_values(&[error.class().as_str()]).inc();
        }
    }

    /// Counts a call.
    pub fn called(&self, call: Call, answer: &Answer) {
        let call = CALLS[match call {
            Call::On => 0,
            Call::Off => 1,
            Call::SoftOff(_) => 2,
            Call::Reboot => 3,
            Call::SoftReboot(_) => 4,
        }];
        let answer = ANSWERS[match answer {
            Answer::Accepted => 0,
            Answer::Busy(_) => 1,
            Answer::Unreachable(_) => 2,
            Answer::Unsupported => 3,
            Answer::Refused(_) => 4,
            Answer::Unknown => 5,
            Answer::NoRoom => 6,
        }];
        self.calls.with_label_values(&[call, answer]).inc();
    }
}

/// What hosts of ours show, in the order in which [`shown`] counts it.
const SHOWN: [(&str, &str); 6] = [
    ("ferrite_bmo_reboot_hosts_held", "Hosts that keyed requests hold off"),
    ("ferrite_bmo_reboot_oldest_hold_seconds", "Age of the oldest hold, 0 without any"),
    (
        "ferrite_bmo_reboot_oldest_pending_seconds",
        "Age of the oldest accepted request whose host has not been off since, 0 without any",
    ),
    (
        "ferrite_bmo_reboot_hosts_unserved",
        "Hosts of which somebody asks a reboot, and that are handed over and not managed",
    ),
    (
        "ferrite_bmo_reboot_hosts_disputed",
        "Hosts whose power another program has changed since it was last changed here",
    ),
    (
        "ferrite_bmo_reboot_hosts_failing",
        "Hosts whose power Ironic could not change, from the failure until a try succeeds",
    ),
];

/// Whether Ironic could not change the power of a host, and no try has succeeded since. While the next one is under way the
/// record tells of that; the failure stands beside it, unless there is one of somebody else.
fn is_failing(status: &BareMetalHostStatus, progress: &RebootProgress) -> bool {
    progress.reason == Reason::PowerFailed || status.error_type == Some(ErrorType::PowerManagement)
}

/// Whether somebody asks a reboot of a host that is to be ours, and is not because something stands against it. No stamp tells of
/// such a request.
fn is_unserved(host: &CachedHost, managed: &Managed) -> bool {
    let stands_against = !managed.managed && managed.reason.about().kind != Kind::Rests;
    stands_against && host.reboot_requests().next().is_some()
}

/// Since when a request is accepted for which the machine was not seen off yet. A stamp may lie a little ahead.
fn pending_since(status: &BareMetalHostStatus, record: &Record) -> Option<Timestamp> {
    let (pending, last) = record.power.stamps(&status.provisioning);
    pending.filter(|pending| status.powered_on && last.is_none_or(|last| last < *pending))
}

/// Counts what the hosts of this store show.
fn shown(hosts: &Store<CachedHost>) -> [f64; SHOWN.len()] {
    let (mut held, mut unserved, mut disputed, mut failing) = (0, 0, 0, 0);
    let (mut oldest_hold, mut oldest_pending) = (0.0_f64, 0.0_f64);
    let now = Timestamp::now();
    for host in hosts.state() {
        let Some(status) = &host.status else { continue };
        let Some(managed) = Managed::of(&status.conditions) else { continue };
        unserved += u32::from(is_unserved(&host, &managed));
        disputed += u32::from(managed.reason == Reason::TwoWriters);
        // What was so when a host ceased to be ours is history.
        if !managed.managed {
            continue;
        }
        let record = Record::of(&status.conditions).known().cloned().unwrap_or_default();
        if let Some(since) = pending_since(status, &record) {
            oldest_pending = oldest_pending.max(until(since, now).as_secs_f64());
        }
        let Some(progress) = record.progress else { continue };
        if let Some(since) = progress.held_since() {
            held += 1;
            oldest_hold = oldest_hold.max(until(since, now).as_secs_f64());
        }
        failing += u32::from(is_failing(status, &progress));
    }
    let [held, unserved, disputed, failing] = [held, unserved, disputed, failing].map(f64::from);
    [held, oldest_hold, oldest_pending, unserved, disputed, failing]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api_types::metal3::BareMetalHost;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::runtime::{reflector, watcher};
    use serde_json::json;

    use super::*;
    use crate::model::Change;
    use crate::settings::Policy;

    /// A host with what its conditions and its status say.
    fn host(name: &str, managed: bool, reason: Reason, error: Option<&str>) -> CachedHost {
        let host = json!({
            "metadata": { "name": name, "namespace": "n" }, "spec": {},
            "status": { "errorType": error, "provisioning": { "state": "provisioned" } },
        });
        let mut host: BareMetalHost = serde_json::from_value(host).unwrap();
        let why = if managed { Reason::Managed } else { Reason::Paused };
        let managed = Managed { managed, reason: why, message: String::new() };
        let progress =
            RebootProgress { hard: true, ..RebootProgress::new(reason, Timestamp::UNIX_EPOCH) };
        let (managed, progress) = (Some(managed), Some(progress));
        let change = Change { progress, managed, ..Change::default() };
        let seen = Host::of(&host, &Policy::default());
        host.status.as_mut().unwrap().conditions = change.conditions(&seen, Timestamp::UNIX_EPOCH);
        host.into()
    }

    #[test]
    fn a_request_that_has_not_led_to_off_grows_old_while_its_host_is_ours() {
        let now = Timestamp::now();
        let ago = |seconds: u64| now - Duration::from_secs(seconds);
        let age = |managed, powered_on: bool, pending: u64, last: Option<u64>| {
            let (store, mut writer) = reflector::store::<CachedHost>();
            let registry = Registry::new();
            Metrics::new(&registry, store).unwrap();
            let mut host = BareMetalHost::clone(&host("h", managed, Reason::NodeBusy, None));
            let status = host.status.as_mut().unwrap();
            status.powered_on = powered_on;
            status.provisioning.pending_reboot_since = Some(Time(ago(pending)));
            status.provisioning.last_powered_on = last.map(|last| Time(ago(last)));
            writer.apply_watcher_event(&watcher::Event::Apply(host.into()));
            let all = registry.gather();
            let name = "ferrite_bmo_reboot_oldest_pending_seconds";
            let found = all.iter().find(|it| it.name() == name);
            found.unwrap().get_metric()[0].get_gauge().get_value()
        };
        let is_old = |age: f64| (900.0..1000.0).contains(&age);
        assert!(is_old(age(true, true, 900, None)) && is_old(age(true, true, 900, Some(950))));
        for (managed, powered_on, last) in [
            (false, true, None),
            (true, false, None),
            (true, true, Some(800)),
            (true, true, Some(900)),
        ] {
            let none = age(managed, powered_on, 900, last);
            assert!(none < 0.1, "{managed}, {powered_on}, {last:?}: {none}");
        }
    }

    #[test]
    fn a_request_of_a_host_that_is_handed_over_and_not_managed_is_counted_as_unserved() {
        let unserved = |why: Option<Reason>, key: &str| {
            let mut host = BareMetalHost::clone(&host("h", true, Reason::Completed, None));
            host.metadata.annotations = Some([(key.to_owned(), String::new())].into());
            if let Some(reason) = why {
                let managed = Managed { managed: false, reason, message: String::new() };
                let change = Change { managed: Some(managed), ..Change::default() };
                let seen = Host::of(&host, &Policy::default());
                let conditions = change.conditions(&seen, Timestamp::UNIX_EPOCH);
                host.status.as_mut().unwrap().conditions = conditions;
            }
            let (store, mut writer) = reflector::store::<CachedHost>();
            let registry = Registry::new();
            Metrics::new(&registry, store).unwrap();
            writer.apply_watcher_event(&watcher::Event::Apply(host.into()));
            let all = registry.gather();
            let found = all.iter().find(|it| it.name() == "ferrite_bmo_reboot_hosts_unserved");
            found.unwrap().get_metric()[0].get_gauge().get_value() > 0.5
        };
        for reason in [
            Reason::NodeNotFound,
            Reason::NodeShared,
            Reason::NodeRegistering,
            Reason::OperatorAtWork,
            Reason::PowerUnknown,
            Reason::Paused,
            Reason::NoCredentials,
        ] {
            assert!(unserved(Some(reason), "reboot.metal3.io/a"), "{reason:?}");
            assert!(!unserved(Some(reason), "example.org/a"), "{reason:?}: nobody asks");
        }
        for reason in [Reason::NotSelected, Reason::NotProvisioned, Reason::Deleting] {
            assert!(
                !unserved(Some(reason), "reboot.metal3.io/a"),
                "{reason:?}: by somebody's wish"
            );
        }
        assert!(!unserved(None, "reboot.metal3.io/a"), "it is ours");
    }

    #[test]
    fn a_host_fails_until_a_try_succeeds_and_only_while_it_is_ours() {
        let (store, mut writer) = reflector::store::<CachedHost>();
        let registry = Registry::new();
        Metrics::new(&registry, store).unwrap();
        let failing = || {
            let all = registry.gather();
            let found = all.iter().find(|it| it.name() == "ferrite_bmo_reboot_hosts_failing");
            found.unwrap().get_metric()[0].get_gauge().get_value()
        };
        let ours = Some("power management error");
        for (host, count) in [
            (host("well", true, Reason::HeldOff, None), 0.0),
            (host("failed", true, Reason::PowerFailed, ours), 1.0),
            (host("tries", true, Reason::HardPowerOff, ours), 2.0),
            (host("others", true, Reason::HardPowerOff, Some("registration error")), 2.0),
            (host("both", true, Reason::PowerFailed, Some("registration error")), 3.0),
            (host("paused", false, Reason::PowerFailed, ours), 3.0),
        ] {
            writer.apply_watcher_event(&watcher::Event::Apply(host));
            assert!((failing() - count).abs() < 0.1, "{}", failing());
        }
    }
}

//! What this controller counts. Names of hosts and keys are never labels.

use api_types::metal3::CachedHost;
use api_types::time::until;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::Store;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};

use crate::decision::{Answer, Call};
use crate::record::{Managed, Record};

/// From a reset of an idle machine to a soft attempt that took its whole time.
const SECONDS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0];

const CALLS: [&str; 5] = ["on", "hard_off", "soft_off", "reset", "soft_reset"];
const ANSWERS: [&str; 7] =
    ["accepted", "busy", "unreachable", "unsupported", "refused", "unknown", "no_room"];

/// Domain metrics; clones share them.
#[derive(Clone)]
pub struct Metrics {
    /// Accepted requests by mode.
    pub accepted: IntCounterVec,
    /// Power calls by target and Ironic's answer.
    pub calls: IntCounterVec,
    /// Seconds from an accepted request to off.
    pub to_off: Histogram,
    /// Seconds from the call to on.
    pub to_on: Histogram,
    /// Soft attempts that were followed by a hard one.
    pub escalations: IntCounter,
    /// Failures of Ironic by class.
    pub ironic_errors: IntCounterVec,
    /// Whether Ironic answers.
    pub ironic_reachable: IntGauge,
}

impl Metrics {
    /// Registers all metrics; what hosts show is read from the store whenever somebody asks.
    pub fn new(registry: &Registry, hosts: Store<CachedHost>) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            accepted: IntCounterVec::new(
                Opts::new(
                    "ferrite_bmo_reboot_requests_accepted_total",
                    "Accepted reboot requests by mode",
                ),
                &["mode"],
            )?,
            calls: IntCounterVec::new(
                Opts::new(
                    "ferrite_bmo_reboot_power_calls_total",
                    "Power calls by target and Ironic's answer",
                ),
                &["target", "result"],
            )?,
            to_off: Histogram::with_opts(
                HistogramOpts::new(
                    "ferrite_bmo_reboot_off_seconds",
                    "Time from an accepted request until the host was seen off",
                )
                .buckets(SECONDS.to_vec()),
            )?,
            to_on: Histogram::with_opts(
                HistogramOpts::new(
                    "ferrite_bmo_reboot_on_seconds",
                    "Time from the power-on until the host was seen on",
                )
                .buckets(SECONDS.to_vec()),
            )?,
            escalations: IntCounter::new(
                "ferrite_bmo_reboot_soft_escalations_total",
                "Soft power-offs that did not suffice and were followed by a hard one",
            )?,
            ironic_errors: IntCounterVec::new(
                Opts::new(
                    "ferrite_bmo_reboot_ironic_errors_total",
                    "Polls of Ironic that failed, by class",
                ),
                &["class"],
            )?,
            ironic_reachable: IntGauge::new(
                "ferrite_bmo_reboot_ironic_reachable",
                "1 while Ironic answers and takes our credentials",
            )?,
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
        registry.register(Box::new(metrics.accepted.clone()))?;
        registry.register(Box::new(metrics.calls.clone()))?;
        registry.register(Box::new(metrics.to_off.clone()))?;
        registry.register(Box::new(metrics.to_on.clone()))?;
        registry.register(Box::new(metrics.escalations.clone()))?;
        registry.register(Box::new(metrics.ironic_errors.clone()))?;
        registry.register(Box::new(metrics.ironic_reachable.clone()))?;
        registry.register(Box::new(Holds::new(hosts)?))?;
        Ok(metrics)
    }

    /// Counts a call.
    pub fn called(&self, call: Call, answer: &Answer) {
        let call = CALLS[match call {
            Call::On => 0,
            Call::HardOff => 1,
            Call::SoftOff(_) => 2,
            Call::Reset => 3,
            Call::SoftReset(_) => 4,
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

/// Seconds that passed; none if the clock went back.
pub fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    until(from, to).as_secs_f64()
}

/// Hosts that are held off, counted when somebody asks, so that deleted hosts vanish.
struct Holds {
    hosts: Store<CachedHost>,
    held: IntGauge,
    oldest: Gauge,
}

impl Holds {
    fn new(hosts: Store<CachedHost>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            hosts,
            held: IntGauge::new(
                "ferrite_bmo_reboot_hosts_held",
                "Hosts that keyed requests hold off",
            )?,
            oldest: Gauge::new(
                "ferrite_bmo_reboot_oldest_hold_seconds",
                "Age of the oldest hold, 0 without any",
            )?,
        })
    }
}

impl Collector for Holds {
    fn desc(&self) -> Vec<&Desc> {
        [self.held.desc(), self.oldest.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (mut held, mut oldest) = (0, 0.0_f64);
        let now = Timestamp::now();
        for host in self.hosts.state() {
            let Some(status) = &host.status else { continue };
            let Some(record) = Record::of(&status.conditions) else { continue };
            // What was held when a host ceased to be ours is history.
            let ours = Managed::of(&status.conditions).is_some_and(|managed| managed.managed);
            if let (Some(since), true) = (record.held_since(), ours) {
                held += 1;
                oldest = oldest.max(seconds(since, now));
            }
        }
        self.held.set(held);
        self.oldest.set(oldest);
        [self.held.collect(), self.oldest.collect()].concat()
    }
}

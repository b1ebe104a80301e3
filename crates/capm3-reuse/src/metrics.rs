//! The controller's own metrics; the kit counts reconciles, requests and the rest. Names of objects are never labels.

use std::sync::Arc;

use controller_kit::engine::{Reason as _, Shared};
use controller_kit::metrics::{SetWhenAsked, register};
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
};

use crate::index::Index;
use crate::reason::Reason;

const SECONDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 1800.0];
/// Reasons for which a reservation ends.
const DROPPED: [Reason; 5] = [
    Reason::OwnerGone,
    Reason::OwnerDeleting,
    Reason::ClusterDeleting,
    Reason::ReuseOff,
    Reason::NotNeeded,
];

/// Counters and gauges of this controller; the engine counts decisions and what waits. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    claims: IntCounterVec,
    conflicts: IntCounter,
    dropped: IntCounterVec,
    claim_seconds: Histogram,
}

impl Metrics {
    /// Registers them, with every series from the start: a rate over one that appears late misses its first step. What the index
    /// shows is read whenever somebody asks.
    pub fn new(registry: &Registry, index: Arc<Shared<Index>>) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, label: &str| {
            register(registry, IntCounterVec::new(Opts::new(name, help), &[label])?)
        };
        let seconds = HistogramOpts::new(
            "ferrite_capm3_reuse_claim_seconds",
            "Time from a machine's creation to the claim of its host",
        );
        let conflicts = IntCounter::new(
            "ferrite_capm3_reuse_conflicts_total",
            "Writes that were not made because somebody else wrote first",
        )?;
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(name, help), labels)
        };
        let gauges = vec![
            gauges("ferrite_capm3_reuse_hosts", "Hosts by class", &["class"])?,
            gauges("ferrite_capm3_reuse_waiters", "Machines that wait for a host", &[])?,
        ];
        let set = move |gauges: &[IntGaugeVec]| index.with(|index| show(index, gauges));
        registry.register(Box::new(SetWhenAsked { gauges, set }))?;
        let metrics = Self {
            claims: counters(
                "ferrite_capm3_reuse_claims_total",
                "Hosts that machines got: reused ones and free ones",
                "kind",
            )?,
            conflicts: register(registry, conflicts)?,
            dropped: counters(
                "ferrite_capm3_reuse_reservations_dropped_total",
                "Reservations that ended, by reason",
                "reason",
            )?,
            claim_seconds: register(
                registry,
                Histogram::with_opts(seconds.buckets(SECONDS.to_vec()))?,
            )?,
        };
        for kind in ["reused", "free"] {
            metrics.claims.with_label_values(&[kind]);
        }
        for reason in DROPPED {
            metrics.dropped.with_label_values(&[reason.as_str()]);
        }
        Ok(metrics)
    }

    /// A host was claimed, this long after its machine was made.
    pub(crate) fn claimed(&self, reused: bool, seconds: f64) {
        self.claims.with_label_values(&[if reused { "reused" } else { "free" }]).inc();
        self.claim_seconds.observe(seconds);
    }

    /// Somebody else wrote first.
    pub(crate) fn superseded(&self) {
        self.conflicts.inc();
    }

    /// A reservation ended.
    pub(crate) fn dropped(&self, reason: Reason) {
        self.dropped.with_label_values(&[reason.as_str()]).inc();
    }
}

/// How many hosts and waiters there are just now.
fn show(index: &Index, gauges: &[IntGaugeVec]) {
    let [hosts, waiters] = gauges else { return };
    let number = |it: usize| i64::try_from(it).unwrap_or(i64::MAX);
    for (class, count) in index.counts() {
        hosts.with_label_values(&[class]).set(number(count));
    }
    waiters.with_label_values::<&str>(&[]).set(number(index.waiters()));
}

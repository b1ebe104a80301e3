//! The controller's own metrics; the kit counts reconciles, requests and the rest. Names of objects are never labels.

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use crate::index::Counts;
use crate::reason::Reason;
use controller_kit::engine::Reason as _;
use controller_kit::metrics::register;

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
    hosts: IntGaugeVec,
    waiters: IntGauge,
    claim_seconds: Histogram,
}

impl Metrics {
    /// Registers them, with every series from the start: a rate over one that appears late misses its first step.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
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
        let hosts = Opts::new("ferrite_capm3_reuse_hosts", "Hosts by class");
        let waiters =
            IntGauge::new("ferrite_capm3_reuse_waiters", "Machines that wait for a host")?;
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
            hosts: register(registry, IntGaugeVec::new(hosts, &["class"])?)?,
            waiters: register(registry, waiters)?,
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
        metrics.shown(Counts::default(), 0);
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

    /// How many there are just now.
    pub(crate) fn shown(&self, hosts: Counts, waiters: usize) {
        let set = |class: &str, count: usize| {
            self.hosts.with_label_values(&[class]).set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        set("free", hosts.free);
        set("reserved", hosts.reserved);
        set("claimed", hosts.claimed);
        set("excluded", hosts.excluded);
        self.waiters.set(i64::try_from(waiters).unwrap_or(i64::MAX));
    }
}

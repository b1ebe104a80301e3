//! The controller's own metrics; the kit counts reconciles, requests and the rest.

use std::collections::HashMap;

use api_types::hive::EntryStatus;
use controller_kit::engine::{Reason as _, Shared};
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    register_histogram_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};

use crate::model::Key;
use crate::reason::Reason;
use crate::seen::Observed;

const SECONDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0];
const STATES: [&str; 6] = ["installing", "ready", "standby", "broken", "claimed", "deleting"];

/// Counters and gauges of this controller.
pub struct Metrics {
    work: IntCounterVec,
    conflicts: IntCounter,
    entries: IntGaugeVec,
    clusters: IntGaugeVec,
    waiting: IntGauge,
    lacking: IntGauge,
    rivals: IntGauge,
    claim_seconds: Histogram,
    pools: Shared<HashMap<Key, Counts>>,
}

/// What one pool adds to the gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    entries: [i64; 8],
    clusters: [i64; 6],
    waiting: i64,
    lacking: i64,
    rival: i64,
}

impl Metrics {
    /// Registers them, with every series from the start: a rate over one that appears late misses its first step.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let claim_seconds = HistogramOpts::new(
            "ferrite_clusterpool_inventory_claim_seconds",
            "Time from a claim's creation to its cluster",
        );
        let claim_seconds = claim_seconds.buckets(SECONDS.to_vec());
        let metrics = Self {
            work: register_int_counter_vec_with_registry!(
                "ferrite_clusterpool_inventory_work_total",
                "Pieces of work that were carried out, by their reason",
                &["reason"],
                registry
            )?,
            conflicts: register_int_counter_with_registry!(
                "ferrite_clusterpool_inventory_conflicts_total",
                "Pieces of work that ended because somebody else wrote first",
                registry
            )?,
            entries: register_int_gauge_vec_with_registry!(
                "ferrite_clusterpool_inventory_entries",
                "Entries of all pools by their status",
                &["status"],
                registry
            )?,
            clusters: register_int_gauge_vec_with_registry!(
                "ferrite_clusterpool_inventory_clusters",
                "Clusters of all pools by state",
                &["state"],
                registry
            )?,
            waiting: register_int_gauge_with_registry!(
                "ferrite_clusterpool_inventory_claims_waiting",
                "Claims without a cluster",
                registry
            )?,
            lacking: register_int_gauge_with_registry!(
                "ferrite_clusterpool_inventory_pools_lacking",
                "Pools that refer to something that is missing",
                registry
            )?,
            rivals: register_int_gauge_with_registry!(
                "ferrite_clusterpool_inventory_pools_contested",
                "Pools that Hive's own controller writes to as well, so that nothing is done",
                registry
            )?,
            claim_seconds: register_histogram_with_registry!(claim_seconds, registry)?,
            pools: Shared::default(),
        };
        for reason in Reason::ALL {
            metrics.work.with_label_values(&[reason.as_str()]);
        }
        metrics.show(&HashMap::new());
        Ok(metrics)
    }

    /// A piece of work was carried out.
    pub(crate) fn worked(&self, reason: Reason) {
        self.work.with_label_values(&[reason.as_str()]).inc();
    }

    /// Somebody else wrote first.
    pub(crate) fn superseded(&self) {
        self.conflicts.inc();
    }

    /// A claim got its cluster.
    pub(crate) fn claimed(&self, seconds: f64) {
        self.claim_seconds.observe(seconds.max(0.0));
    }

    /// A pool was looked at.
    pub(crate) fn seen(&self, key: &Key, seen: &Observed) {
        let mut counts = Counts::default();
        for entry in seen.pool.status.inventory.values() {
            let place = EntryStatus::KNOWN.iter().position(|it| *it == entry.status);
            if let Some(count) = place.and_then(|it| counts.entries.get_mut(it)) {
                *count += 1;
            }
        }
        for it in &seen.clusters {
            let place = if it.deleting {
                5
            } else if it.claim.is_some() {
                4
            } else if it.is_broken() {
                3
            } else if it.is_ready() {
                1
            } else if it.installed {
                2
            } else {
                0
            };
            counts.clusters[place] += 1;
        }
        counts.waiting = waiting(seen);
        counts.lacking = i64::from(!seen.missing.is_empty());
        counts.rival = i64::from(seen.pool.rival.is_some());
        self.put(key, Some(counts));
    }

    /// There is no such pool; claims may name it all the same.
    pub(crate) fn without_pool(&self, key: &Key, seen: &Observed) {
        let counts = Counts { waiting: waiting(seen), ..Counts::default() };
        self.put(key, (counts.waiting > 0).then_some(counts));
    }

    /// A pool is gone, or not ours any more.
    pub(crate) fn gone(&self, key: &Key) {
        self.put(key, None);
    }

    fn put(&self, key: &Key, counts: Option<Counts>) {
        self.pools.with(|pools| {
            let before = match counts {
                Some(counts) => pools.insert(key.clone(), counts),
                None => pools.remove(key),
            };
            if before != counts {
                self.show(pools);
            }
        });
    }

    fn show(&self, pools: &HashMap<Key, Counts>) {
        let sum = |of: fn(&Counts) -> i64| pools.values().map(of).sum::<i64>();
        for (place, status) in EntryStatus::KNOWN.iter().enumerate() {
            let all = pools.values().map(|it| it.entries[place]).sum();
            self.entries.with_label_values(&[status.as_str()]).set(all);
        }
        for (place, state) in STATES.iter().enumerate() {
            let all = pools.values().map(|it| it.clusters[place]).sum();
            self.clusters.with_label_values(&[*state]).set(all);
        }
        self.waiting.set(sum(|it| it.waiting));
        self.lacking.set(sum(|it| it.lacking));
        self.rivals.set(sum(|it| it.rival));
    }
}

fn waiting(seen: &Observed) -> i64 {
    let all = seen.claims.iter().filter(|it| !it.deleting && it.cluster.is_none());
    i64::try_from(all.count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::seen::Claim;

    #[test]
    fn a_claim_that_names_no_pool_is_counted_as_long_as_it_waits() {
        let metrics = Metrics::new(&Registry::new()).unwrap();
        let key = ("ns".to_owned(), "nowhere".to_owned());
        let claim = Claim {
            name: "x".to_owned(),
            at: "1".to_owned(),
            created: Timestamp::UNIX_EPOCH,
            deleting: false,
            cluster: None,
            pending: None,
        };
        let seen = Observed { claims: vec![claim], ..Observed::default() };
        metrics.without_pool(&key, &seen);
        assert_eq!(metrics.waiting.get(), 1);
        metrics.without_pool(&key, &Observed::default());
        assert_eq!(metrics.waiting.get(), 0);
    }

    #[test]
    fn every_reason_has_a_series_of_its_own_from_the_start() {
        let registry = Registry::new();
        Metrics::new(&registry).unwrap();
        let names: BTreeSet<&str> = Reason::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        let families = registry.gather();
        let work = families.iter().find(|it| it.name().ends_with("_work_total")).unwrap();
        assert_eq!(work.get_metric().len(), names.len());
    }
}

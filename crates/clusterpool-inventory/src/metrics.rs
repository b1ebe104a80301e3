//! The controller's own metrics; the kit counts reconciles, requests and the rest.

use std::collections::HashMap;
use std::sync::Arc;

use api_types::hive::EntryStatus;
use api_types::names::hive::CONDITION_CAPACITY_AVAILABLE;
use api_types::time::until;
use controller_kit::engine::{Reason as _, Shared};
use k8s_openapi::jiff::Timestamp;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, register_histogram_vec_with_registry,
    register_histogram_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};

use crate::model::Key;
use crate::reason::Reason;
use crate::seen::{Claim, Cluster, Condition, Observed};
use crate::text;

const SECONDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0];
const STATES: [&str; 6] = ["installing", "ready", "standby", "broken", "claimed", "deleting"];
/// What Hive's own controller of pools counts of each pool's clusters, with its meaning: one cluster may count in several.
const KINDS: [&str; 8] =
    ["assignable", "claimed", "deleting", "installing", "unclaimed", "standby", "stale", "broken"];
/// Labels of Hive's metrics.
const HIVES_LABELS: [&str; 2] = ["clusterpool_namespace", "clusterpool_name"];
/// Hive's own, or its dashboards would show something else.
const HIVES_SECONDS: [f64; 7] = [1.0, 30.0, 120.0, 600.0, 1800.0, 3000.0, 7200.0];

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
    pools: Arc<Shared<HashMap<Key, Counts>>>,
    hives: Option<Hives>,
}

/// Metrics under the names that Hive's own controller of pools gives them.
struct Hives {
    stale_deleted: IntCounterVec,
    claim_seconds: HistogramVec,
}

/// The gauges among them, in the order of [`KINDS`].
struct HivesGauges {
    pools: Arc<Shared<HashMap<Key, Counts>>>,
    kinds: Vec<GaugeVec>,
}

impl Collector for HivesGauges {
    fn desc(&self) -> Vec<&Desc> {
        self.kinds.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.kinds.iter().for_each(GaugeVec::reset);
        self.pools.with(|pools| {
            for ((namespace, pool), counts) in pools {
                for (gauge, count) in self.kinds.iter().zip(counts.kinds) {
                    gauge.with_label_values(&[namespace, pool]).set(as_float(count));
                }
            }
        });
        self.kinds.iter().flat_map(Collector::collect).collect()
    }
}

/// Gauges of each pool. They are made when they are asked for: a claim waits longer while nobody looks at its pool.
struct PerPool {
    pools: Arc<Shared<HashMap<Key, Counts>>>,
    oldest: GaugeVec,
    lacking: GaugeVec,
    clusters: GaugeVec,
}

impl PerPool {
    fn all(&self) -> [&GaugeVec; 3] {
        [&self.oldest, &self.lacking, &self.clusters]
    }
}

impl Collector for PerPool {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(|it| it.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let now = Timestamp::now();
        self.all().into_iter().for_each(GaugeVec::reset);
        // There is a series also where there is no pool.
        self.oldest.with_label_values(&["", ""]).set(0.0);
        self.lacking.with_label_values(&["", ""]).set(0.0);
        self.clusters.with_label_values(&["", "", KINDS[0]]).set(0.0);
        self.pools.with(|pools| {
            for ((namespace, pool), counts) in pools {
                let labels = [namespace.as_str(), pool.as_str()];
                self.lacking.with_label_values(&labels).set(as_float(counts.short));
                for (kind, count) in KINDS.iter().zip(counts.kinds) {
                    let labels = [namespace.as_str(), pool.as_str(), *kind];
                    self.clusters.with_label_values(&labels).set(as_float(count));
                }
                if let Some(since) = counts.waits_since {
                    let age = until(since, now).as_secs_f64();
                    self.oldest.with_label_values(&labels).set(age);
                }
            }
        });
        self.all().into_iter().flat_map(Collector::collect).collect()
    }
}

fn as_count(all: usize) -> i64 {
    i64::try_from(all).unwrap_or(i64::MAX)
}

fn as_float(count: i64) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

/// What one pool adds to the gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    entries: [i64; 8],
    clusters: [i64; 6],
    waiting: i64,
    waits_since: Option<Timestamp>,
    lacking: i64,
    short: i64,
    kinds: [i64; 8],
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
        let pools = Arc::<Shared<HashMap<Key, Counts>>>::default();
        let oldest = Opts::new(
            "ferrite_clusterpool_inventory_claims_oldest_seconds",
            "How long the first of a pool's claims without a cluster has waited",
        );
        let lacking = Opts::new(
            "ferrite_clusterpool_inventory_pool_lacking",
            "Clusters that a pool lacks of its size and does not get by itself",
        );
        let clusters = Opts::new(
            "ferrite_clusterpool_inventory_pool_clusters",
            "Clusters of a pool as Hive counts them, of which one may count in several states",
        );
        let labels = &["namespace", "pool"];
        let per_pool = PerPool {
            pools: pools.clone(),
            oldest: GaugeVec::new(oldest, labels)?,
            lacking: GaugeVec::new(lacking, labels)?,
            clusters: GaugeVec::new(clusters, &["namespace", "pool", "state"])?,
        };
        registry.register(Box::new(per_pool))?;
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
            pools,
            hives: None,
        };
        for reason in Reason::ALL {
            metrics.work.with_label_values(&[reason.as_str()]);
        }
        metrics.show(&HashMap::new());
        Ok(metrics)
    }

    /// Shows what Hive's own controller of pools shows of each of them under the same names, too.
    pub fn with_hives_names(mut self, registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |kind: &&str| {
            let name = format!("hive_clusterpool_clusterdeployments_{kind}");
            GaugeVec::new(Opts::new(name, format!("Clusters of a pool: {kind}")), &HIVES_LABELS)
        };
        let kinds = KINDS.iter().map(gauge).collect::<Result<_, _>>()?;
        registry.register(Box::new(HivesGauges { pools: self.pools.clone(), kinds }))?;
        let seconds = HistogramOpts::new(
            "hive_clusterclaim_assignment_delay_seconds",
            "Time from a claim's creation to its cluster",
        );
        let seconds = seconds.buckets(HIVES_SECONDS.to_vec());
        self.hives = Some(Hives {
            stale_deleted: register_int_counter_vec_with_registry!(
                "hive_clusterpool_stale_clusterdeployments_deleted",
                "Clusters that were deleted because the spec of their pool is another one",
                &HIVES_LABELS,
                registry
            )?,
            claim_seconds: register_histogram_vec_with_registry!(seconds, &HIVES_LABELS, registry)?,
        });
        Ok(self)
    }

    /// A piece of work was carried out for a pool.
    pub(crate) fn worked(&self, (namespace, pool): &Key, reason: Reason) {
        self.work.with_label_values(&[reason.as_str()]).inc();
        if let Some(hives) = self.hives.as_ref().filter(|_| reason == Reason::Stale) {
            hives.stale_deleted.with_label_values(&[namespace, pool]).inc();
        }
    }

    /// Somebody else wrote first.
    pub(crate) fn superseded(&self) {
        self.conflicts.inc();
    }

    /// A claim on a pool got its cluster.
    pub(crate) fn claimed(&self, (namespace, pool): &Key, seconds: f64) {
        self.claim_seconds.observe(seconds.max(0.0));
        if let Some(hives) = &self.hives {
            hives.claim_seconds.with_label_values(&[namespace, pool]).observe(seconds.max(0.0));
        }
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
        counts.wait(seen);
        counts.lacking = i64::from(!seen.missing.is_empty());
        counts.short = as_count(short(seen));
        counts.kinds = kinds(seen);
        counts.rival = i64::from(seen.pool.rival.is_some());
        self.put(key, Some(counts));
    }

    /// There is no such pool; claims may name it all the same.
    pub(crate) fn without_pool(&self, key: &Key, seen: &Observed) {
        let mut counts = Counts::default();
        counts.wait(seen);
        self.put(key, (counts.waiting > 0).then_some(counts));
    }

    /// A pool is gone, or not ours any more.
    pub(crate) fn gone(&self, key: &Key) {
        self.put(key, None);
        if let Some(hives) = &self.hives {
            let labels = [key.0.as_str(), key.1.as_str()];
            // Those of which nothing was counted have none.
            let _ = hives.stale_deleted.remove_label_values(&labels);
            let _ = hives.claim_seconds.remove_label_values(&labels);
        }
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

impl Counts {
    fn wait(&mut self, seen: &Observed) {
        let waits = || seen.claims.iter().filter(|it| it.waits());
        self.waiting = as_count(waits().count());
        self.waits_since = waits().map(|it: &Claim| it.created).min();
    }
}

/// How many clusters of the pool are of each of [`KINDS`].
fn kinds(seen: &Observed) -> [i64; 8] {
    let count =
        |is: &dyn Fn(&Cluster) -> bool| as_count(seen.clusters.iter().filter(|it| is(it)).count());
    let is_whole = |it: &Cluster| it.is_unclaimed() && !it.is_broken();
    let is_current = |it: &Cluster| {
        it.pool_version.as_deref().is_some_and(|version| seen.pool.version.accepts(version))
    };
    [
        count(&Cluster::is_ready),
        count(&|it| it.claim.is_some()),
        count(&|it| it.deleting),
        count(&Cluster::is_installing),
        count(&is_whole),
        count(&|it| is_whole(it) && it.installed && !it.is_ready()),
        count(&|it| it.is_unclaimed() && !is_current(it)),
        count(&|it| it.is_unclaimed() && it.is_broken()),
    ]
}

/// Clusters that the pool lacks of its size and does not get by itself, as its condition says. A limit that is reached may be
/// so only until what is under way has ended.
fn short(seen: &Observed) -> usize {
    let is_under_way = |it: &Cluster| {
        it.deleting && !it.hangs
            || it.is_installing() && !it.unverified && !seen.not_begun.contains_key(&it.name)
    };
    let under_way = || seen.clusters.iter().filter(|it| is_under_way(it));
    let is_limit = |it: &str| [text::MAX_CAPACITY, text::MAX_CONCURRENT].contains(&it);
    let waits = |it: &Condition| {
        it.status == "False" && !(is_limit(&it.reason) && under_way().next().is_some())
    };
    let told = seen.pool.status.conditions.get(CONDITION_CAPACITY_AVAILABLE);
    if seen.pool.deleting || !told.is_some_and(waits) {
        return 0;
    }
    let of_use =
        seen.clusters.iter().filter(|it| it.is_unclaimed() && it.installed && !it.is_broken());
    let installing = under_way().filter(|it| !it.deleting);
    seen.pool.size.saturating_sub(of_use.count() + installing.count())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prometheus::proto::LabelPair;

    use super::*;

    /// Values by namespace and pool.
    fn of_pools(registry: &Registry, end: &str) -> Vec<(String, f64)> {
        let families = registry.gather();
        let found = families.iter().find(|it| it.name().ends_with(end));
        let series = found.unwrap().get_metric().iter();
        let told = series.map(|it| {
            let labels: Vec<_> = it.get_label().iter().map(LabelPair::value).collect();
            (labels.join("/"), it.get_gauge().get_value())
        });
        told.collect()
    }

    #[test]
    fn pool_lacks_what_it_does_not_get_by_itself() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let key = ("ns".to_owned(), "pool".to_owned());
        let lacking = |seen: &Observed| {
            metrics.seen(&key, seen);
            of_pools(&registry, "_pool_lacking")[1].clone()
        };
        let named = |name: &str| Cluster { name: name.to_owned(), ..Cluster::default() };
        let installed = Cluster { installed: true, ..named("a") };
        let mut seen = Observed { clusters: vec![installed, named("b")], ..Observed::default() };
        seen.pool.size = 5;
        let mut say = |reason: &str| {
            let status = if reason == "Available" { "True" } else { "False" };
            let condition = Condition::new(status, reason, String::new());
            let conditions = &mut seen.pool.status.conditions;
            conditions.insert(CONDITION_CAPACITY_AVAILABLE.to_owned(), condition);
            seen.clone()
        };
        for (reason, lacks) in [("Available", 0.0), ("MaxConcurrent", 0.0), ("Refused", 3.0)] {
            assert_eq!(lacking(&say(reason)), ("ns/pool".to_owned(), lacks), "{reason}");
        }
        // The limit is not reached by what is under way.
        let mut stuck = say("MaxConcurrent");
        stuck.not_begun = [("b".to_owned(), String::new())].into();
        assert_eq!(lacking(&stuck), ("ns/pool".to_owned(), 4.0));
        stuck.pool.deleting = true;
        assert_eq!(lacking(&stuck), ("ns/pool".to_owned(), 0.0));
    }

    /// Hive's dashboards go on with the same meaning; a pool that is gone keeps no series.
    #[test]
    fn clusters_are_counted_as_hive_does_under_its_names() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap().with_hives_names(&registry).unwrap();
        let key = ("ns".to_owned(), "pool".to_owned());
        let of = |name: &str, version: &str| Cluster {
            name: name.to_owned(),
            pool_version: Some(version.to_owned()),
            ..Cluster::default()
        };
        let mut seen = Observed::default();
        seen.pool.version.own = "now".to_owned();
        seen.clusters = vec![
            of("installing", "now"),
            Cluster { installed: true, running: true, ..of("ready", "now") },
            Cluster { installed: true, ..of("asleep", "before") },
            Cluster { stopped: Some("no quota".to_owned()), ..of("broken", "now") },
            Cluster { claim: Some("x".to_owned()), ..of("claimed", "before") },
            Cluster { claim: Some("y".to_owned()), deleting: true, ..of("leaving", "now") },
        ];
        metrics.seen(&key, &seen);
        metrics.worked(&key, Reason::Stale);
        metrics.claimed(&key, 40.0);
        let hives = |end: &str| of_pools(&registry, end);
        let counted = KINDS.map(|kind| {
            let found = hives(&format!("hive_clusterpool_clusterdeployments_{kind}"));
            assert_eq!(found.len(), 1, "{kind}");
            // Labels are in the order of their names.
            assert_eq!(found[0].0, "pool/ns", "{kind}");
            found[0].1.to_string()
        });
        assert_eq!(counted, ["1", "2", "1", "1", "3", "1", "1", "1"]);
        let ours = of_pools(&registry, "_pool_clusters");
        assert_eq!(ours.len(), 1 + KINDS.len(), "{ours:?}");
        let series = || {
            let all = registry.gather();
            all.iter()
                .filter(|it| it.name().starts_with("hive_"))
                .map(|it| it.get_metric().len())
                .sum::<usize>()
        };
        assert_eq!(series(), 10);
        metrics.gone(&key);
        assert_eq!(series(), 0);
    }

    /// A sum over all pools says nothing of one claim where others come and go.
    #[test]
    fn the_first_claim_that_waits_is_told_for_each_pool() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let oldest = || of_pools(&registry, "_claims_oldest_seconds");
        let claim = |second: i64, served: bool| Claim {
            name: second.to_string(),
            at: "1".to_owned(),
            created: Timestamp::from_second(second).unwrap(),
            deleting: false,
            cluster: served.then(|| "c".to_owned()),
            pending: None,
        };
        let of = |claims: Vec<Claim>| Observed { claims, ..Observed::default() };
        let now = Timestamp::now().as_second();
        let key = |pool: &str| ("ns".to_owned(), pool.to_owned());
        let claims = vec![claim(1, true), claim(now - 60, false), claim(now - 7_200, false)];
        metrics.seen(&key("old"), &of(claims));
        metrics.seen(&key("new"), &of(vec![claim(now - 60, false)]));
        metrics.seen(&key("none"), &of(Vec::new()));
        let told = oldest();
        let names: Vec<&str> = told.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(names, ["/", "ns/new", "ns/old"]);
        assert!((60.0..90.0).contains(&told[1].1), "{told:?}");
        assert!((7_200.0..7_230.0).contains(&told[2].1), "{told:?}");
        metrics.gone(&key("old"));
        metrics.seen(&key("new"), &of(vec![claim(now - 60, true)]));
        assert_eq!(oldest(), [("/".to_owned(), 0.0)]);
    }

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

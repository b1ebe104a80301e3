//! The controller's own metrics; the kit counts reconciles, requests and the rest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api_types::condition::{Condition, find};
use api_types::hive::EntryStatus;
use api_types::names::hive::CONDITION_CAPACITY_AVAILABLE;
use api_types::time::until;
use controller_kit::engine::{Reason as _, Shared};
use controller_kit::metrics::{SetWhenAsked, register};
use k8s_openapi::jiff::Timestamp;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
    Result,
};

use crate::model::Key;
use crate::reason::{Notice, Reason};
use crate::seen::{Cluster, Observed, Pool};

const SECONDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0];
/// Hive's own, or its dashboards would show something else.
const HIVES_SECONDS: &[f64] = &[1.0, 30.0, 120.0, 600.0, 1800.0, 3000.0, 7200.0];
/// Labels of Hive's metrics.
const HIVES_LABELS: &[&str] = &["clusterpool_namespace", "clusterpool_name"];
/// A word, and which clusters it means.
type State = (&'static str, fn(&Cluster) -> bool);
/// The same of the clusters of a pool.
type Kind = (&'static str, fn(&Pool, &Cluster) -> bool);
/// The states of a cluster: it is in the first that fits.
const STATES: [State; 6] = [
    ("deleting", |it| it.deleting),
    ("claimed", |it| it.claim.is_some()),
    ("broken", Cluster::is_broken),
    ("ready", Cluster::is_ready),
    ("standby", |it| it.installed),
    ("installing", |_| true),
];
/// What Hive's own controller of pools counts of each pool's clusters, with its meaning: one cluster may count in several.
const KINDS: [Kind; 8] = [
    ("assignable", |_, it| it.is_ready()),
    ("claimed", |_, it| it.claim.is_some()),
    ("deleting", |_, it| it.deleting),
    ("installing", |_, it| it.is_installing()),
    ("unclaimed", |_, it| it.is_whole()),
    ("standby", |_, it| it.is_standby()),
    ("stale", |pool, it| {
        it.is_unclaimed() && !it.pool_version.as_deref().is_some_and(|it| pool.version.accepts(it))
    }),
    ("broken", |_, it| it.is_unclaimed() && it.is_broken()),
];

/// Labels of what is told of each pool.
const OF_POOL: &[&str] = &["namespace", "pool"];
/// Our gauges: name after the prefix, help and labels. Without the label `pool` one is a sum over all pools.
const GAUGES: [(&str, &str, &[&str]); 9] = [
    ("entries", "Entries of all pools by their status", &["status"]),
    ("clusters", "Clusters of all pools by state", &["state"]),
    ("claims_waiting", "Claims without a cluster", &[]),
    ("pools_lacking", "Pools that refer to something that is missing", &[]),
    (
        "pools_contested",
        "Pools that Hive's own controller writes to as well, so that nothing is done",
        &[],
    ),
    (OLDEST, "How long the first of a pool's claims without a cluster has waited", OF_POOL),
    ("pool_lacking", "Clusters that a pool lacks of its size and does not get by itself", OF_POOL),
    (
        "pool_entries_unfit",
        "Entries of a pool that are in use and could not be used again as they are",
        OF_POOL,
    ),
    (
        BY_KIND,
        "Clusters of a pool as Hive counts them, of which one may count in several states",
        &["namespace", "pool", "state"],
    ),
];
/// The gauge that time alone changes.
const OLDEST: &str = "claims_oldest_seconds";
/// The gauge whose values are those of Hive's gauges.
const BY_KIND: &str = "pool_clusters";

type Pools = Shared<HashMap<Key, Counts>>;

/// What one pool adds to the gauges.
#[derive(Debug, Default)]
struct Counts {
    /// By gauge and, where that has several values, by the value.
    all: BTreeMap<(&'static str, String), usize>,
    waits_since: Option<Timestamp>,
}

/// Sets our gauges: a pool that is gone vanishes, and a claim waits longer while nobody looks at its pool.
fn show(pools: &HashMap<Key, Counts>, gauges: &[GaugeVec]) {
    let now = Timestamp::now();
    for ((name, _, labels), gauge) in GAUGES.iter().zip(gauges) {
        gauge.reset();
        let series = |pool: &Key, value: &str| {
            let of = |label: &&str| match *label {
                "namespace" => pool.namespace.clone(),
                "pool" => pool.name.clone(),
                _ => value.to_owned(),
            };
            gauge.with_label_values(&labels.iter().map(of).collect::<Vec<_>>())
        };
        // There is a series also where there is no pool.
        let values = match *name {
            "entries" => EntryStatus::KNOWN.iter().map(EntryStatus::as_str).collect(),
            "clusters" => STATES.map(|(state, _)| state).to_vec(),
            _ => vec![KINDS[0].0],
        };
        for value in values {
            series(&Key::default(), value);
        }
        for (pool, counts) in pools {
            for ((_, value), count) in counts.all.iter().filter(|((of, _), _)| of == name) {
                series(pool, value).add(*count as f64);
            }
            if let Some(since) = counts.waits_since.filter(|_| *name == OLDEST) {
                series(pool, "").set(until(since, now).as_secs_f64());
            }
        }
    }
}

/// The same of Hive's gauges, each of which tells one value of ours.
fn show_as_hive(pools: &HashMap<Key, Counts>, gauges: &[GaugeVec]) {
    for ((kind, _), gauge) in KINDS.iter().zip(gauges) {
        gauge.reset();
        for (pool, counts) in pools {
            let count = counts.all.get(&(BY_KIND, (*kind).to_owned())).copied().unwrap_or(0);
            gauge.with_label_values(&[&pool.namespace, &pool.name]).set(count as f64);
        }
    }
}

/// Counters and gauges of this controller.
pub struct Metrics {
    work: IntCounterVec,
    conflicts: IntCounter,
    claim_seconds: Histogram,
    pools: Arc<Pools>,
    hives: Option<Hives>,
}

/// Metrics under the names that Hive's own controller of pools gives them, beside its gauges.
struct Hives {
    stale_deleted: IntCounterVec,
    claim_seconds: HistogramVec,
}

impl Metrics {
    /// Registers them, with every series from the start: a rate over one that appears late misses its first step.
    pub fn new(registry: &Registry) -> Result<Self> {
        let full = |end: &str| format!("ferrite_clusterpool_inventory_{end}");
        let work =
            Opts::new(full("work_total"), "Pieces of work that were carried out, by their reason");
        let conflicts = "Pieces of work that ended because somebody else wrote first";
        let seconds = "Time from a claim's creation to its cluster";
        let seconds = HistogramOpts::new(full("claim_seconds"), seconds).buckets(SECONDS.to_vec());
        let metrics = Self {
            work: register(registry, IntCounterVec::new(work, &["reason"])?)?,
            conflicts: register(registry, IntCounter::new(full("conflicts_total"), conflicts)?)?,
            claim_seconds: register(registry, Histogram::with_opts(seconds)?)?,
            pools: Arc::default(),
            hives: None,
        };
        let gauges = GAUGES.map(|(name, help, labels)| (Opts::new(full(name), help), labels));
        metrics.show_when_asked(registry, gauges, show)?;
        for reason in Reason::ALL {
            metrics.work.with_label_values(&[reason.as_str()]);
        }
        Ok(metrics)
    }

    /// Shows what Hive's own controller of pools shows of each of them under the same names, too.
    pub fn with_hives_names(mut self, registry: &Registry) -> Result<Self> {
        let labels = HIVES_LABELS;
        let gauges = KINDS.map(|(kind, _)| {
            let name = format!("hive_clusterpool_clusterdeployments_{kind}");
            (Opts::new(name, format!("Clusters of a pool: {kind}")), labels)
        });
        self.show_when_asked(registry, gauges, show_as_hive)?;
        let deleted = Opts::new(
            "hive_clusterpool_stale_clusterdeployments_deleted",
            "Clusters that were deleted because the spec of their pool is another one",
        );
        let seconds = HistogramOpts::new(
            "hive_clusterclaim_assignment_delay_seconds",
            "Time from a claim's creation to its cluster",
        );
        let seconds = seconds.buckets(HIVES_SECONDS.to_vec());
        self.hives = Some(Hives {
            stale_deleted: register(registry, IntCounterVec::new(deleted, labels)?)?,
            claim_seconds: register(registry, HistogramVec::new(seconds, labels)?)?,
        });
        Ok(self)
    }

    fn show_when_asked(
        &self,
        registry: &Registry,
        gauges: impl IntoIterator<Item = (Opts, &'static [&'static str])>,
        show: fn(&HashMap<Key, Counts>, &[GaugeVec]),
    ) -> Result<()> {
        let gauges = gauges.into_iter().map(|(opts, labels)| GaugeVec::new(opts, labels));
        let (gauges, pools) = (gauges.collect::<Result<_>>()?, self.pools.clone());
        let set = move |gauges: &[GaugeVec]| pools.with(|pools| show(pools, gauges));
        registry.register(Box::new(SetWhenAsked { gauges, set }))
    }

    /// A piece of work was carried out for a pool.
    pub(crate) fn worked(&self, pool: &Key, reason: Reason) {
        self.work.with_label_values(&[reason.as_str()]).inc();
        if let Some(hives) = self.hives.as_ref().filter(|_| reason == Reason::Stale) {
            hives.stale_deleted.with_label_values(&[&pool.namespace, &pool.name]).inc();
        }
    }

    /// Somebody else wrote first.
    pub(crate) fn superseded(&self) {
        self.conflicts.inc();
    }

    /// A claim on a pool got its cluster.
    pub(crate) fn claimed(&self, pool: &Key, seconds: f64) {
        self.claim_seconds.observe(seconds.max(0.0));
        if let Some(hives) = &self.hives {
            let labels = [&pool.namespace, &pool.name];
            hives.claim_seconds.with_label_values(&labels).observe(seconds.max(0.0));
        }
    }

    /// A pool was looked at, also one that does not exist and that claims name all the same.
    pub(crate) fn seen(&self, key: &Key, seen: &Observed) {
        let waits = || seen.claims.iter().filter(|it| it.waits());
        let waits_since = waits().map(|it| it.created).min();
        let mut counts = Counts { waits_since, ..Counts::default() };
        counts.add("claims_waiting", "", waits().count());
        let entries = &seen.pool.status.inventory;
        for status in EntryStatus::KNOWN {
            let all = entries.values().filter(|it| it.status == status).count();
            counts.add("entries", status.as_str(), all);
        }
        for cluster in &seen.clusters {
            let state = STATES.iter().find(|(_, is)| is(cluster));
            counts.add("clusters", state.map_or("", |(state, _)| state), 1);
        }
        for (kind, is) in KINDS {
            let all = seen.clusters.iter().filter(|it| is(&seen.pool, it)).count();
            counts.add(BY_KIND, kind, all);
        }
        counts.add("pools_lacking", "", usize::from(!seen.missing.is_empty()));
        counts.add("pool_lacking", "", short(seen));
        counts.add("pool_entries_unfit", "", unfit(seen));
        counts.add("pools_contested", "", usize::from(seen.pool.rival.is_some()));
        self.pools.with(|pools| drop(pools.insert(key.clone(), counts)));
    }

    /// A pool is gone, or not ours any more.
    pub(crate) fn gone(&self, key: &Key) {
        self.pools.with(|pools| drop(pools.remove(key)));
        if let Some(hives) = &self.hives {
            let labels = [key.namespace.as_str(), key.name.as_str()];
            // Those of which nothing was counted have none.
            let _ = hives.stale_deleted.remove_label_values(&labels);
            let _ = hives.claim_seconds.remove_label_values(&labels);
        }
    }
}

impl Counts {
    fn add(&mut self, gauge: &'static str, value: &str, count: usize) {
        *self.all.entry((gauge, value.to_owned())).or_default() += count;
    }
}

/// Clusters that the pool lacks of its size and does not get by itself, as its condition says, or as their installation shows. A limit
/// that is reached may be so only until what is under way has ended.
fn short(seen: &Observed) -> usize {
    let is_under_way = |it: &Cluster| {
        let is_coming = it.is_installing() && !it.unverified && it.not_begun.is_none() && !it.slow;
        it.deleting && !it.hangs || is_coming
    };
    let under_way = || seen.clusters.iter().filter(|it| is_under_way(it));
    // What is under way may lift them.
    let limits = [Notice::MaxCapacity, Notice::MaxConcurrent].map(|it| Some(it.as_str()));
    let waits = |it: &Condition| {
        it.is_false() && !(limits.contains(&it.reason.as_deref()) && under_way().next().is_some())
    };
    let told = find(&seen.pool.status.conditions, CONDITION_CAPACITY_AVAILABLE);
    // The condition calls it under way: it may be installed yet.
    let is_slow = seen.clusters.iter().any(|it| it.is_installing() && it.slow);
    if seen.pool.deleting || !(is_slow || told.is_some_and(waits)) {
        return 0;
    }
    let of_use = seen.clusters.iter().filter(|it| it.is_whole() && it.installed);
    let installing = under_way().filter(|it| !it.deleting);
    seen.pool.size.saturating_sub(of_use.count() + installing.count())
}

/// Listed entries whose patches cannot be applied and whose status does not say so, since they are in use.
fn unfit(seen: &Observed) -> usize {
    let (listed, entries) = (seen.pool.listed.names(), &seen.pool.status.inventory);
    let is_told = |name: &String| {
        entries.get(name).is_some_and(|it| it.status == EntryStatus::BrokenByConfiguration)
    };
    let refused = seen.customizations.iter().filter(|it| it.refused.is_some());
    refused.filter(|it| listed.contains(&it.name) && !is_told(&it.name)).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prometheus::proto::LabelPair;

    use super::*;
    use crate::index::key_in;
    use crate::seen::{Claim, Customization, Listed};
    use crate::status;
    use api_types::hive::EntryState;

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
        let key = key_in("ns", "pool");
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
            let said = (status, reason, String::new());
            let conditions = &mut seen.pool.status.conditions;
            let now = Timestamp::UNIX_EPOCH;
            status::say(conditions, CONDITION_CAPACITY_AVAILABLE, said, now, true);
            seen.clone()
        };
        for (reason, lacks) in [("Available", 0.0), ("MaxConcurrent", 0.0), ("Refused", 3.0)] {
            assert_eq!(lacking(&say(reason)), ("ns/pool".to_owned(), lacks), "{reason}");
        }
        // The limit is not reached by what is under way.
        let mut stuck = say("MaxConcurrent");
        stuck.clusters[1].not_begun = Some(String::new());
        assert_eq!(lacking(&stuck), ("ns/pool".to_owned(), 4.0));
        // Nor does one come that Hive has installed for hours, whatever the condition says.
        for reason in ["Available", "MaxConcurrent"] {
            let mut slow = say(reason);
            slow.clusters[1].slow = true;
            assert_eq!(lacking(&slow), ("ns/pool".to_owned(), 4.0), "{reason}");
        }
        stuck.pool.deleting = true;
        assert_eq!(lacking(&stuck), ("ns/pool".to_owned(), 0.0));
    }

    /// After a take-over each may be one, and the pool has none left once its claims have ended.
    #[test]
    fn entries_in_use_that_could_not_be_used_again_are_counted_for_each_pool() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let key = key_in("ns", "pool");
        let mut seen = Observed::default();
        let names = ["used", "updated", "broken", "fit"].map(str::to_owned);
        seen.pool.listed = Listed::Entries(names.to_vec());
        let customization = |name: &str| Customization {
            name: name.to_owned(),
            refused: (name != "fit").then(|| "no".to_owned()),
            ..Customization::default()
        };
        seen.customizations = names.iter().map(|it| customization(it)).collect();
        // It is not listed, so that nothing more is made from it.
        seen.customizations.push(customization("left"));
        for (name, status) in [
            ("used", EntryStatus::Reserved),
            ("updated", EntryStatus::ToBeUpdated),
            ("broken", EntryStatus::BrokenByConfiguration),
            ("fit", EntryStatus::Reserved),
        ] {
            let entry = EntryState { status, ..EntryState::default() };
            seen.pool.status.inventory.insert(name.to_owned(), entry);
        }
        metrics.seen(&key, &seen);
        let unfit = || of_pools(&registry, "_pool_entries_unfit");
        assert_eq!(unfit()[1..], [("ns/pool".to_owned(), 2.0)]);
        metrics.gone(&key);
        assert_eq!(unfit(), [("/".to_owned(), 0.0)]);
    }

    /// Hive's dashboards go on with the same meaning; a pool that is gone keeps no series.
    #[test]
    fn clusters_are_counted_as_hive_does_under_its_names() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap().with_hives_names(&registry).unwrap();
        let key = key_in("ns", "pool");
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
        let counted = KINDS.map(|(kind, _)| {
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
            uid: String::new(),
            at: "1".to_owned(),
            created: Timestamp::from_second(second).unwrap(),
            deleting: false,
            cluster: served.then(|| "c".to_owned()),
            pending: None,
        };
        let of = |claims: Vec<Claim>| Observed { claims, ..Observed::default() };
        let now = Timestamp::now().as_second();
        let key = |pool: &str| key_in("ns", pool);
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
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let waiting = || of_pools(&registry, "_claims_waiting");
        let key = key_in("ns", "nowhere");
        let claim = Claim::waiting();
        let seen = Observed { claims: vec![claim], ..Observed::default() };
        metrics.seen(&key, &seen);
        assert_eq!(waiting(), [(String::new(), 1.0)]);
        metrics.gone(&key);
        assert_eq!(waiting(), [(String::new(), 0.0)]);
    }

    #[test]
    fn each_count_of_a_pool_is_shown_by_a_gauge() {
        let metrics = Metrics::new(&Registry::new()).unwrap();
        let seen = Observed { clusters: vec![Cluster::default()], ..Observed::default() };
        metrics.seen(&key_in("ns", "pool"), &seen);
        let shown: BTreeSet<&str> = GAUGES.iter().map(|(name, ..)| *name).collect();
        let counted: BTreeSet<&str> = metrics
            .pools
            .with(|all| all.values().flat_map(|it| it.all.keys().map(|it| it.0)).collect());
        assert_eq!(shown.difference(&counted).collect::<Vec<_>>(), [&OLDEST]);
        assert!(counted.is_subset(&shown), "{counted:?}");
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

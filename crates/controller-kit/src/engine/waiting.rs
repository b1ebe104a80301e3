//! For what reason each key rests, and since when: a fact of the engine, so that no controller counts by hand, and what rests
//! in an error or a refusal counts as well. And how soon a look began that was
//! due, where that is promised.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};

use super::error::Failing;
use super::reasons::{About, Kind, Reason};
use crate::metrics::{self, SetWhenAsked};
use crate::shared::Shared;

/// Few, as each reason has them all: from what nobody feels to what a person was told of.
const SECONDS: [f64; 5] = [1.0, 10.0, 60.0, 600.0, 3600.0];
const RESULTS: [&str; 2] = ["kept", "late"];

/// The latest reason of each key, and what is counted of them; clones share it.
#[derive(Clone)]
pub(super) struct Waiting<K> {
    rests: Arc<Shared<BTreeMap<K, Rest>>>,
    waited: HistogramVec,
    promises: IntCounterVec,
    /// Decisions by their reason.
    pub(super) decisions: IntCounterVec,
    /// Events that were not told.
    pub(super) dropped: IntCounter,
}

/// Why a key rests, and since when this process has seen it so.
#[derive(Clone, Copy)]
struct Rest {
    word: &'static str,
    kind: Kind,
    since: Instant,
    /// Whether it began then: what was so before this process acted would be taken for a short wait.
    is_whole: bool,
}

impl<K: Ord> Waiting<K> {
    /// A pass has ended with a reason, after waiting so long for its turn, if that is known.
    pub(super) fn note(&self, key: K, about: &About, turn: Option<Duration>, now: Instant) {
        let is_new = self.put(key, about, turn.is_some(), now);
        if let (true, Some(turn), Some(promise)) = (is_new, turn, about.promise) {
            let result = RESULTS[usize::from(turn > promise)];
            self.promises.with_label_values(&[about.word, result]).inc();
        }
    }

    /// There is no such key any more since then; or nobody here knows what becomes of it.
    pub(super) fn forget(&self, key: &K, gone: Option<Instant>) {
        let rest = self.rests.lock().remove(key);
        if let Some(now) = gone {
            self.ended(rest, now);
        }
    }

    /// Says whether the reason is another one than before.
    fn put(&self, key: K, about: &About, is_whole: bool, now: Instant) -> bool {
        let About { word, kind, .. } = *about;
        let mut rests = self.rests.lock();
        let known = rests.get(&key).copied();
        if known.is_some_and(|it| it.word == word) {
            return false;
        }
        self.ended(known, now);
        // What needs nothing takes no room: most keys of most controllers.
        if kind == Kind::Rests {
            rests.remove(&key);
        } else {
            rests.insert(key, Rest { word, kind, since: now, is_whole });
        }
        true
    }

    fn ended(&self, rest: Option<Rest>, now: Instant) {
        if let Some(rest) = rest.filter(|it| it.is_whole) {
            let age = now.saturating_duration_since(rest.since);
            self.waited.with_label_values(&[rest.word]).observe(age.as_secs_f64());
        }
    }

    /// How many wait for each reason, for how many seconds the first of them, and how many wait longer than it should last.
    fn count(&self, now: Instant) -> BTreeMap<&'static str, (f64, f64, f64)> {
        let mut counts: BTreeMap<_, (f64, f64, f64)> = BTreeMap::new();
        for rest in self.rests.lock().values() {
            let age = now.saturating_duration_since(rest.since);
            let (count, oldest, overdue) = counts.entry(rest.word).or_default();
            *count += 1.0;
            *oldest = age.as_secs_f64().max(*oldest);
            *overdue += f64::from(matches!(rest.kind, Kind::EndsWithin(most) if age > most));
        }
        counts
    }
}

impl<K: Clone + Ord + Send + Sync + 'static> Waiting<K> {
    /// Registers `ferrite_<controller>_waiting`, `.._waiting_oldest_seconds`, `.._waiting_overdue`, `.._waited_seconds`,
    /// `.._promises_total`, `.._decisions_total` and `.._events_dropped_total`. Every series is there from the start: a rate over one that appears late misses
    /// its first step.
    pub(super) fn register<R: Reason>(
        controller: &str,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let prefix = format!("ferrite_{}", controller.replace('-', "_"));
        let named = |name: &str, help: &str| Opts::new(format!("{prefix}_{name}"), help);
        let gauges = [
            ("waiting", "Objects that wait, by reason"),
            ("waiting_oldest_seconds", "How long the first of them has waited, by reason"),
            ("waiting_overdue", "Those that wait longer than the reason should last"),
        ];
        let gauge = |(name, help)| GaugeVec::new(named(name, help), &["reason"]);
        let gauges = gauges.into_iter().map(gauge).collect::<Result<Vec<_>, _>>()?;
        let waited = named("waited_seconds", "How long waits took that have ended, by reason");
        let waited = HistogramOpts::from(waited).buckets(SECONDS.to_vec());
        let counters = |name: &str, help: &str, labels: &[&str]| {
            metrics::register(registry, IntCounterVec::new(named(name, help), labels)?)
        };
        let help = "Events that were not told because too many waited";
        let dropped = named("events_dropped_total", help);
        let help = "Reconciles that are promised soon, by what they decided, and whether they began in time";
        let waiting = Self {
            rests: Arc::default(),
            waited: metrics::register(registry, HistogramVec::new(waited, &["reason"])?)?,
            promises: counters("promises_total", help, &["reason", "result"])?,
            decisions: counters("decisions_total", "Decisions by their reason", &["reason"])?,
            dropped: metrics::register(registry, IntCounter::with_opts(dropped)?)?,
        };
        let all = || R::ALL.iter().map(|it| it.about());
        let waits = all().filter(|it| it.kind != Kind::Rests);
        let failing = Failing::ALL.iter().map(|it| it.about());
        let words: Vec<&str> = waits.chain(failing).map(|it| it.word).collect();
        for word in &words {
            waiting.waited.with_label_values(&[word]);
        }
        for about in all() {
            waiting.decisions.with_label_values(&[about.word]);
            let results = RESULTS.iter().filter(|_| about.promise.is_some());
            results.for_each(|it| drop(waiting.promises.with_label_values(&[about.word, it])));
        }
        let counted = waiting.clone();
        let set = move |gauges: &[GaugeVec]| {
            let counts = counted.count(Instant::now());
            for word in &words {
                let counts = counts.get(word).copied().unwrap_or_default();
                for (gauge, count) in gauges.iter().zip(<[f64; 3]>::from(counts)) {
                    gauge.with_label_values(&[word]).set(count);
                }
            }
        };
        registry.register(Box::new(SetWhenAsked { gauges, set }))?;
        Ok(waiting)
    }
}

#[cfg(test)]
mod tests;

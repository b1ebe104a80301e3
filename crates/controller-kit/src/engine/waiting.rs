//! For what reason each key rests, and since when: a fact of the engine, so that no controller counts by hand, and what rests
//! in an error or a refusal counts as well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{GaugeVec, Opts, Registry};

use super::error;
use super::reasons::{About, Kind, Reason};
use crate::metrics::SetWhenAsked;
use crate::shared::Shared;

/// Passes that fail longer than this wait for a person: what passes by itself has passed by then.
const FAILURE: Duration = Duration::from_secs(600);

/// The latest reason of each key; clones share it.
#[derive(Clone)]
pub(super) struct Waiting<K>(Arc<Shared<BTreeMap<K, Rest>>>);

/// Why a key rests, and since when this process has seen it so.
#[derive(Clone, Copy)]
struct Rest {
    word: &'static str,
    kind: Kind,
    since: Instant,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord> Waiting<K> {
    /// A pass has ended with a reason.
    pub(super) fn note(&self, key: K, about: &About, now: Instant) {
        self.put(key, about.word, about.kind, now);
    }

    /// A pass did not come to its end.
    pub(super) fn failed(&self, key: K, word: &'static str, now: Instant) {
        self.put(key, word, Kind::EndsWithin(FAILURE), now);
    }

    /// There is no such key any more.
    pub(super) fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }

    fn put(&self, key: K, word: &'static str, kind: Kind, now: Instant) {
        let mut rests = self.0.lock();
        // What needs nothing takes no room: most keys of most controllers.
        if kind == Kind::Rests {
            rests.remove(&key);
            return;
        }
        let rest = Rest { word, kind, since: now };
        let known = rests.entry(key).or_insert(rest);
        if known.word != word {
            *known = rest;
        }
    }

    /// How many wait for each reason, for how many seconds the first of them, and how many wait longer than it should last.
    fn count(&self, now: Instant) -> BTreeMap<&'static str, (f64, f64, f64)> {
        let mut counts: BTreeMap<_, (f64, f64, f64)> = BTreeMap::new();
        for rest in self.0.lock().values() {
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
    /// Registers `ferrite_<controller>_waiting`, `.._waiting_oldest_seconds` and `.._waiting_overdue`, each by reason.
    pub(super) fn register<R: Reason>(
        &self,
        controller: &str,
        registry: &Registry,
    ) -> Result<(), prometheus::Error> {
        let prefix = format!("ferrite_{}_waiting", controller.replace('-', "_"));
        let gauges = [
            ("", "Objects that wait, by reason"),
            ("_oldest_seconds", "How long the first of them has waited, by reason"),
            ("_overdue", "Those that wait longer than the reason should last"),
        ];
        let gauge =
            |(name, help)| GaugeVec::new(Opts::new(format!("{prefix}{name}"), help), &["reason"]);
        let gauges = gauges.into_iter().map(gauge).collect::<Result<Vec<_>, _>>()?;
        let waits = R::ALL.iter().map(|it| it.about()).filter(|it| it.kind != Kind::Rests);
        let words: Vec<&str> = waits.map(|it| it.word).chain(error::WORDS).collect();
        let waiting = self.clone();
        let set = move |gauges: &[GaugeVec]| {
            let counts = waiting.count(Instant::now());
            for word in &words {
                let counts = counts.get(word).copied().unwrap_or_default();
                for (gauge, count) in gauges.iter().zip(<[f64; 3]>::from(counts)) {
                    gauge.with_label_values(&[word]).set(count);
                }
            }
        };
        registry.register(Box::new(SetWhenAsked { gauges, set }))
    }
}

#[cfg(test)]
mod tests;

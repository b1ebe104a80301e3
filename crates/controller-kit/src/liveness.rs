//! Whether the loops of the process still turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::shared::Shared;

/// Loops that must keep turning, each with the time of its last turn.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<Shared<BTreeMap<&'static str, (Instant, Duration)>>>);

impl Liveness {
    /// The loop turned; it counts as stuck when it does not turn again within `patience`.
    pub fn beat(&self, name: &'static str, patience: Duration) {
        self.0.lock().insert(name, (Instant::now(), patience));
    }

    /// The loop ended as it should.
    pub fn done(&self, name: &'static str) {
        self.0.lock().remove(name);
    }

    /// The loops that are stuck, one line each.
    pub fn stuck(&self, now: Instant) -> Vec<String> {
        let loops = self.0.lock();
        let late = |(name, (beat, patience)): (&&str, &(Instant, Duration))| {
            let silent = now.saturating_duration_since(*beat);
            (silent > *patience)
                .then(|| format!("[-]{name} failed: stuck for {} s", silent.as_secs()))
        };
        loops.iter().filter_map(late).collect()
    }
}

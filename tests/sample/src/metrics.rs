//! The sample's own metrics; the kit counts reconciles, requests and the rest.

use prometheus::{IntCounterVec, Opts, Registry};

use crate::reason::Reason;

/// Counters of this controller; clones share them.
#[derive(Clone)]
pub struct Metrics {
    decisions: IntCounterVec,
}

impl Metrics {
    /// Registers them, with every series from the start: a rate over one that appears late misses its first step.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let about = Opts::new("ferrite_sample_decisions_total", "Decisions by their reason");
        let decisions = IntCounterVec::new(about, &["reason"])?;
        for reason in Reason::ALL {
            decisions.with_label_values(&[reason.as_str()]);
        }
        registry.register(Box::new(decisions.clone()))?;
        Ok(Self { decisions })
    }

    /// A decision was taken.
    pub(crate) fn decided(&self, reason: Reason) {
        self.decisions.with_label_values(&[reason.as_str()]).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_series_of_its_own_from_the_start() {
        let registry = Registry::new();
        Metrics::new(&registry).unwrap();
        let names: BTreeSet<&str> = Reason::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        assert_eq!(registry.gather()[0].get_metric().len(), names.len());
    }
}

//! Clusters that Hive does not begin to install.

use crate::decision::{Step, Version};
use crate::plan::{BEGUN, Plan};
use crate::reason::Reason;
use crate::seen::Cluster;
use crate::usage::Use;

/// Clusters that Hive does not begin to install: what they need is made again, if it is gone. Not from what the pool or
/// the entry became since, and not the workers, whom Hive does not wait for and a person may not want.
pub(super) fn look_after(plan: &mut Plan<'_>) {
    let seen = plan.seen;
    if seen.pool.deleting || !seen.missing.is_empty() {
        return;
    }
    let idle = seen.clusters.iter().filter(|it| {
        let name = it.name.as_str();
        it.idle && !plan.gone.contains(name) && plan.is_as_made(it)
    });
    let steps = idle.take(BEGUN).map(|it| {
        let entry = plan.uses.entry_of(it).zip(it.entry_version.clone());
        let entry = entry.map(|(name, version)| Version { name: name.to_owned(), version });
        Step::Restore { cluster: it.name.clone(), entry }
    });
    for step in steps.collect::<Vec<_>>() {
        plan.push(Reason::PartsChecked, [step]);
    }
}

impl<'a> Plan<'a> {
    /// Whether what a cluster was made from can be had as it was then.
    fn is_as_made(&self, cluster: &'a Cluster) -> bool {
        let is_same = |it: &Use<'_>| {
            it.is_held_by(cluster)
                && it.customization.is_some_and(|entry| {
                    cluster.entry_version.as_ref() == Some(&entry.version)
                        && entry.refused.is_none()
                })
        };
        self.staleness(cluster).is_none() && self.uses.by(cluster).is_none_or(is_same)
    }
}

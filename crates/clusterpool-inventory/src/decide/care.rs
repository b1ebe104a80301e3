//! Clusters that Hive does not begin to install.

use crate::decision::{Step, Version};
use crate::plan::{BEGUN, Plan};
use crate::reason::Reason;
use crate::seen::{Cluster, Observed, Part};
use crate::usage::Use;

/// Clusters that Hive does not begin to install: what they need is made again, if it is gone. Not from what the pool or
/// the entry became since, and not the workers, whom Hive does not wait for and a person may not want.
pub(super) fn look_after(plan: &mut Plan<'_>) {
    if plan.seen.pool.deleting {
        return;
    }
    let seen = plan.seen;
    if seen.idle.is_empty() || !seen.missing.is_empty() {
        return;
    }
    let idle = seen.clusters.iter().filter(|it| {
        let name = it.name.as_str();
        seen.idle.contains(name) && !plan.gone.contains(name) && plan.is_as_made(it)
    });
    let pieces: Vec<Vec<Step>> =
        idle.take(BEGUN).map(|it| restoration(it, plan.uses.entry_of(it), seen)).collect();
    for steps in pieces.into_iter().filter(|it| !it.is_empty()) {
        plan.push(Reason::PartsChecked, steps);
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

/// The steps that make anew what is gone of a cluster.
fn restoration(cluster: &Cluster, entry: Option<&str>, seen: &Observed) -> Vec<Step> {
    let entry = entry.zip(cluster.entry_version.clone());
    let entry = entry.map(|(name, version)| Version { name: name.to_owned(), version });
    let needed = seen.pool.parts.iter().copied();
    needed
        .filter(|it| !matches!(it, Part::Namespace | Part::MachinePool))
        .map(|part| {
            let (cluster, entry) = (cluster.name.clone(), entry.clone());
            Step::Make { cluster, part, entry }
        })
        .collect()
}

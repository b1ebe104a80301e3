//! A pool that Hive's own controller had before.

use std::collections::HashSet;

use api_types::condition::find;
use api_types::names::hive::CONDITION_ALL_CLUSTERS_CURRENT;

use crate::plan::Plan;
use crate::pool_version::is_hives;
use crate::seen::{Cluster, Listed};

impl<'a> Plan<'a> {
    /// What to note on a pool that is taken over from Hive's controller: its clusters are made from its spec as it is now,
    /// the last one at least. Not so those that cannot be, of which there may be no others: then it is noted that no value of
    /// theirs stands for the spec, or a later pass would take them for current. Once we have made clusters, or taken one over
    /// and lost the note since, the spec may be another one.
    pub(super) fn takeover(&self) -> Option<String> {
        let version = &self.seen.pool.version;
        let made = || {
            let all = self.seen.clusters.iter();
            all.filter_map(|it| Some((it, it.pool_version.as_deref()?)))
                .filter(|(_, value)| !value.is_empty())
        };
        let is_first = made().all(|(_, value)| is_hives(value))
            && !self.seen.clusters.iter().any(|it| it.kept);
        if version.noted.is_some() || !is_first {
            return None;
        }
        made().next()?;
        let stale = self.stale_for_hive();
        let may_be_current = |(it, value): &(&'a Cluster, &'a str)| {
            self.is_made_as_wanted(it) && !stale.contains(value)
        };
        let last = made().filter(may_be_current).map(|(it, value)| (it.created, value)).max();
        Some(version.note(last.map(|(_, value)| value).unwrap_or_default()))
    }

    /// Whether the cluster has an entry if the pool has an inventory, and none if it has none. Whether there is one counts in
    /// every version of a spec.
    fn is_made_as_wanted(&self, cluster: &'a Cluster) -> bool {
        match self.seen.pool.listed {
            Listed::Nothing => self.uses.entry_of(cluster).is_none(),
            Listed::Entries(_) | Listed::Unreadable(_) => self.uses.entry_of(cluster).is_some(),
            // For Hive it is an inventory, for us it is none.
            Listed::Empty => true,
        }
    }

    /// What those clusters carry of which Hive's own controller said last that they are made from another spec. Before a pool
    /// is taken over that is its word and not ours.
    fn stale_for_hive(&self) -> HashSet<&'a str> {
        let conditions = &self.seen.pool.status.conditions;
        let said = find(conditions, CONDITION_ALL_CLUSTERS_CURRENT).filter(|it| it.is_false());
        let message = said.and_then(|it| it.message.as_deref()).unwrap_or_default();
        let named: HashSet<&str> = message.split([' ', ',']).collect();
        let all = self.seen.clusters.iter().filter(|it| named.contains(it.name.as_str()));
        all.filter_map(|it| it.pool_version.as_deref()).collect()
    }
}

//! Who has a customization.
//!
//! A lease is one conditional write of the customization's status that already names cluster and
//! pool. Until that cluster is there, the lease is either completed under the same name or
//! released in two writes: the first announces it, and the second is made only when the API
//! server, asked after the announcement, does not know the cluster. A cluster begins paused, and
//! its pause ends only when the API server, asked after its creation, shows the lease without such
//! an announcement. Of two that are at it at the same time, at least one sees the other.
//!
//! The lease of a cluster that is there is released only when nobody else keeps that cluster any
//! more, and before our own finalizer goes.

use std::collections::HashMap;

use crate::seen::{Cluster, Customization};

/// Who has a customization, from one pool's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    /// Nobody.
    Free,
    /// A cluster of this pool that was made from it, or may have been.
    Ours(&'a Cluster),
    /// This pool, for a cluster that is not there.
    Half(&'a str),
    /// This pool, for a cluster that was made from something else.
    Mistaken(&'a str),
    /// Nobody can tell: in use, without a name.
    Torn,
    /// A pool that is gone, for a cluster that is gone as well as can be seen.
    Orphaned(&'a str),
    /// Another pool, or a cluster that is not this pool's.
    Others,
}

/// Reads a lease.
pub(crate) fn held<'a>(
    customization: &'a Customization,
    pool: &str,
    clusters: &HashMap<&str, &'a Cluster>,
) -> Held<'a> {
    let Some(lease) = &customization.lease else { return Held::Free };
    let Some(name) = lease.cluster.as_deref() else {
        let theirs = lease.pool_exists && lease.pool.as_deref().is_some_and(|it| it != pool);
        return if theirs { Held::Others } else { Held::Torn };
    };
    let cluster = clusters.get(name);
    // No other pool can have made it: whatever the lease says of a pool beside that is a mistake.
    let made = cluster.is_some_and(|it| is_made_from(it, &customization.name));
    let ours = made
        || match lease.pool.as_deref() {
            Some(holder) => holder == pool,
            None => cluster.is_some(),
        };
    // Whoever made it: it is there, and has the entry.
    let is_anothers = || customization.others.iter().any(|it| it == name);
    match cluster {
        _ if !ours => {
            let gone = !lease.pool_exists && !is_anothers();
            if gone { Held::Orphaned(name) } else { Held::Others }
        }
        None if is_anothers() => Held::Others,
        None => Held::Half(name),
        Some(cluster) if is_made_from(cluster, &customization.name) => Held::Ours(cluster),
        Some(_) => Held::Mistaken(name),
    }
}

/// Whether the cluster is in the entry, as far as can be told. Our finalizer is on none without an entry: where the
/// reference to that is gone, an old CRD dropped it, and the lease alone knows.
fn is_made_from(cluster: &Cluster, entry: &String) -> bool {
    cluster.entry.as_ref().map_or(cluster.kept, |it| it == entry)
}

impl Customization {
    /// Whether it says in full that it is in use by a cluster of this pool.
    pub(crate) fn is_whole(&self, pool: &str) -> bool {
        self.names_pool(pool) && self.lease.as_ref().is_some_and(|it| it.whole)
    }

    /// Whether its lease says that it is this pool's.
    pub(crate) fn names_pool(&self, pool: &str) -> bool {
        self.lease.as_ref().is_some_and(|it| it.pool.as_deref() == Some(pool))
    }

    /// Whether somebody announced to release it.
    pub fn is_announced(&self) -> bool {
        self.lease.as_ref().is_some_and(|it| it.releasing)
    }
}

//! Whether the caches have seen our own last writes of a pool. A pass over what it wrote itself would only be superseded,
//! or, where a cluster was just created, make another one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::index::Key;

/// A cache shows our own writes long before; this is for a watch that broke just then.
const PATIENCE: Duration = Duration::from_secs(2);

/// An object that was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// A pool.
    Pool(Key),
    /// A cluster.
    Cluster(Key),
    /// A customization.
    Customization(Key),
    /// A claim.
    Claim(Key),
    /// A cluster's namespace.
    Namespace(Key),
}

/// What a write left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// What was written.
    pub object: Object,
    /// The version after it.
    pub version: u64,
    /// Whether the object may be gone with it.
    pub may_go: bool,
}

#[derive(Default)]
struct Waits(HashMap<Object, (u64, bool, Instant)>);

/// Writes that the caches do not show yet, by pool.
#[derive(Default)]
pub struct Echo(Mutex<HashMap<Key, Waits>>);

impl Echo {
    /// Notes what was written for a pool.
    pub fn wrote(&self, pool: &Key, writes: Vec<Wrote>) {
        if writes.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = all.entry(pool.clone()).or_default();
        for it in writes {
            waits.0.insert(it.object, (it.version, it.may_go, now));
        }
    }

    /// Whether a cache is behind what was written for the pool. `version` tells what it shows of an object.
    pub fn is_behind(&self, pool: &Key, version: impl Fn(&Object) -> Option<u64>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waits) = all.get_mut(pool) else { return false };
        waits.0.retain(|object, (wrote, may_go, since)| {
            let shown = match version(object) {
                Some(version) => version >= *wrote,
                None => *may_go,
            };
            !shown && since.elapsed() < PATIENCE
        });
        let behind = !waits.0.is_empty();
        if !behind {
            all.remove(pool);
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn a_pool_waits_until_what_was_created_for_it_is_seen() {
        let echo = Echo::default();
        let object = Object::Cluster(key("c"));
        echo.wrote(&key("p"), vec![Wrote { object, version: 7, may_go: false }]);
        assert!(!echo.is_behind(&key("other"), |_| None));
        assert!(echo.is_behind(&key("p"), |_| None));
        assert!(echo.is_behind(&key("p"), |_| Some(6)));
        assert!(!echo.is_behind(&key("p"), |_| Some(7)));
        assert!(!echo.is_behind(&key("p"), |_| None), "it was seen once");
    }

    #[test]
    fn what_went_with_the_write_is_not_waited_for() {
        let echo = Echo::default();
        let object = Object::Cluster(key("c"));
        echo.wrote(&key("p"), vec![Wrote { object, version: 7, may_go: true }]);
        assert!(!echo.is_behind(&key("p"), |_| None));
    }
}

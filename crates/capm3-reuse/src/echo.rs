//! Whether a cache has seen our own last write. A pass on what it wrote over itself would only be superseded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A cache shows our own writes long before. Where the API server's data were put back to what they had been, never.
const PATIENCE: Duration = Duration::from_secs(10);

/// A machine, among objects of several kinds.
pub(crate) fn machine_key(namespace: &str, name: &str) -> String {
    format!("machine/{namespace}/{name}")
}

/// A host, among objects of several kinds.
pub(crate) fn host_key(namespace: &str, name: &str) -> String {
    format!("host/{namespace}/{name}")
}

/// Versions that our writes left, by object, until the cache shows them.
#[derive(Default)]
pub struct Echo(Mutex<HashMap<String, (u64, Instant)>>);

impl Echo {
    /// A write left this version. One that is no number is not waited for.
    pub fn wrote(&self, object: &str, version: Option<&str>) {
        if let Some(version) = version.and_then(|it| it.parse().ok()) {
            self.lock().insert(object.to_owned(), (version, Instant::now()));
        }
    }

    /// Whether this version of the object is older than what we wrote last.
    pub fn is_behind(&self, object: &str, version: Option<&str>) -> bool {
        self.is_behind_at(object, version, Instant::now())
    }

    fn is_behind_at(&self, object: &str, version: Option<&str>, now: Instant) -> bool {
        let mut all = self.lock();
        let Some((wrote, since)) = all.get(object) else { return false };
        let behind = version.and_then(|it| it.parse::<u64>().ok()).is_some_and(|it| it < *wrote)
            && now.saturating_duration_since(*since) < PATIENCE;
        if !behind {
            all.remove(object);
        }
        behind
    }

    /// The object is gone.
    pub fn forget(&self, object: &str) {
        self.lock().remove(object);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (u64, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_behind_until_our_own_write_is_seen() {
        let echo = Echo::default();
        echo.wrote("a", Some("7"));
        assert!(echo.is_behind("a", Some("6")));
        assert!(!echo.is_behind("b", Some("6")));
        assert!(!echo.is_behind("a", Some("7")));
        assert!(
            !echo.is_behind("a", Some("6")),
            "it was seen once, so what is older is a later object's"
        );
    }

    #[test]
    fn a_version_that_never_comes_is_not_waited_for_for_ever() {
        let echo = Echo::default();
        echo.wrote("a", Some("7"));
        let now = Instant::now();
        assert!(echo.is_behind_at("a", Some("6"), now));
        assert!(!echo.is_behind_at("a", Some("6"), now + PATIENCE));
    }
}

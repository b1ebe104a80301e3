//! Whether a cache has seen our own last write. A pass on what it wrote over itself would only be superseded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Versions that our writes left, by object, until the cache shows them.
#[derive(Default)]
pub struct Echo(Mutex<HashMap<String, u64>>);

impl Echo {
    /// A write left this version. One that is no number is not waited for.
    pub fn wrote(&self, object: &str, version: Option<&str>) {
        if let Some(version) = version.and_then(|it| it.parse().ok()) {
            self.lock().insert(object.to_owned(), version);
        }
    }

    /// Whether this version of the object is older than what we wrote last.
    pub fn is_behind(&self, object: &str, version: Option<&str>) -> bool {
        let mut all = self.lock();
        let Some(wrote) = all.get(object) else { return false };
        let behind = version.and_then(|it| it.parse::<u64>().ok()).is_some_and(|it| it < *wrote);
        if !behind {
            all.remove(object);
        }
        behind
    }

    /// The object is gone.
    pub fn forget(&self, object: &str) {
        self.lock().remove(object);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Echo;

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
}

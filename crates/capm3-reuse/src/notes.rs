//! What a process remembers of objects by their namespace and name. All of it can be forgotten: it saves work, or is waited
//! for or told once more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Namespace and name.
pub type Key = (String, String);

/// Something of each.
pub struct Notes<V>(Mutex<HashMap<Key, V>>);

impl<V> Default for Notes<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V> Notes<V> {
    /// All of them.
    pub fn lock(&self) -> MutexGuard<'_, HashMap<Key, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is remembered of it any more.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

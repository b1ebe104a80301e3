//! What several passes share: looked at and changed in one step each, so that no lock is held while anybody waits.

use std::sync::{Mutex, PoisonError};

/// One value for all passes of a process.
#[derive(Debug, Default)]
pub struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    /// Looks at it, or changes it.
    pub fn with<R>(&self, step: impl FnOnce(&mut T) -> R) -> R {
        step(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

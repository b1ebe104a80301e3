//! What several tasks share: looked at and changed in one step each, so that no lock is held while anybody waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One value for all passes of a process.
#[derive(Debug, Default)]
pub struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Looks at it, or changes it.
    pub fn with<R>(&self, step: impl FnOnce(&mut T) -> R) -> R {
        step(&mut self.lock())
    }

    /// The same in several lines of the kit's own. No value is left half changed by a panic, so none is given up for one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

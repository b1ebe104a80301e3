//! When an object that failed is looked at again. The library's error policy knows neither the
//! attempt nor the success, so both are kept here, per object.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How an error is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Only a change of the object or its settings can help.
    Invalid,
    /// Somebody else wrote first: look again.
    Conflict,
    /// Something vanished, or is not there yet: look again.
    NotFound,
    /// We were asked to slow down.
    Throttled,
    /// It may well work later.
    Transient,
    /// The pass did not end in time; counted apart from errors that were reported.
    Timeout,
}

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// When the object, or something it depends on, changes.
    OnChange,
    /// After this long.
    After(Duration),
}

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

impl Class {
    /// Conflicts and absences are the normal course of things and make no object look bad.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Throttled | Self::Transient | Self::Timeout)
    }
}

/// When to look again after `failures` counted failures in a row, this one included. `unit` is a
/// random number from 0 to 1, given by the caller so that this stays a plain function.
pub fn retry(class: Class, failures: u32, unit: f64) -> Retry {
    let unit = unit.clamp(0.0, 1.0);
    match class {
        Class::Invalid => Retry::OnChange,
        // Spread, or everybody who lost a race meets again in the next one.
        Class::Conflict | Class::NotFound => Retry::After(FIRST.mul_f64(0.5 + unit / 2.0)),
        Class::Throttled | Class::Transient | Class::Timeout => {
            let doublings = failures.saturating_sub(1).min(16);
            let full = FIRST.saturating_mul(1 << doublings).min(LONGEST);
            // Half is certain, half is chance: never at once, and never everybody together.
            Retry::After(full.mul_f64(0.5 + unit / 2.0).max(FIRST))
        }
    }
}

/// Counted failures in a row, by object. Only objects that fail take memory.
#[derive(Debug)]
pub struct Failures<K>(Mutex<HashMap<K, u32>>);

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Failures<K> {
    /// Notes a failure and says when to look again.
    pub fn failed(&self, key: K, class: Class, unit: f64) -> Retry {
        if !class.is_counted() {
            return retry(class, 0, unit);
        }
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key).or_default();
        *count = count.saturating_add(1);
        retry(class, *count, unit)
    }

    /// Forgets the object: it succeeded, or is gone.
    pub fn forget(&self, key: &K) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    /// Counted failures in a row of this object.
    pub fn count(&self, key: &K) -> u32 {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .copied()
            .unwrap_or(0)
    }
}

/// A random number from 0 to 1. The standard library seeds its hash tables at random, which is
/// random enough for spreading retries and naming processes.
pub fn random_unit() -> f64 {
    f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

/// A random number.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

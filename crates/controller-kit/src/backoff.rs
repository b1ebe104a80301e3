//! When a key that failed is looked at again.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash, Hasher as _};
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
    /// The same, but somebody waits for it: never longer than half a minute.
    Urgent,
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
const LONGEST_URGENT: Duration = Duration::from_secs(30);

impl Class {
    /// The same error where somebody waits: tried again soon whatever it was, since what refuses a write (a webhook, a
    /// schema, a right) is corrected elsewhere than on the object.
    #[must_use]
    pub fn urgent(self) -> Self {
        match self {
            Self::Transient | Self::Throttled | Self::Invalid => Self::Urgent,
            class => class,
        }
    }

    /// Conflicts and absences are the normal course of things and make no object look bad.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Throttled | Self::Transient | Self::Urgent | Self::Timeout)
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
        Class::Throttled | Class::Transient | Class::Urgent | Class::Timeout => {
            let doublings = failures.saturating_sub(1).min(16);
            let longest = if class == Class::Urgent { LONGEST_URGENT } else { LONGEST };
            let full = FIRST.saturating_mul(1 << doublings).min(longest);
            // Half is certain, half is chance: never at once, and never everybody together.
            Retry::After(full.mul_f64(0.5 + unit / 2.0).max(FIRST))
        }
    }
}

/// Counted failures in a row, by key. Only keys that fail take memory.
#[derive(Debug)]
pub struct Failures<K>(HashMap<K, u32>);

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Failures<K> {
    /// Notes a failure and says when to look again.
    pub fn failed(&mut self, key: K, class: Class, unit: f64) -> Retry {
        if !class.is_counted() {
            return retry(class, 0, unit);
        }
        let count = self.0.entry(key).or_default();
        *count = count.saturating_add(1);
        retry(class, *count, unit)
    }

    /// Forgets the key: it succeeded, or is gone.
    pub fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Counted failures in a row of this key.
    pub fn count(&self, key: &K) -> u32 {
        self.0.get(key).copied().unwrap_or(0)
    }
}

/// A random number from 0 to 1. The standard library seeds its hash tables at random, which is
/// random enough for spreading retries and naming processes.
pub fn random_unit() -> f64 {
    f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

/// A random number.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Class; 7] = [
        Class::Invalid,
        Class::Conflict,
        Class::NotFound,
        Class::Throttled,
        Class::Transient,
        Class::Urgent,
        Class::Timeout,
    ];

    #[test]
    fn a_conflict_is_not_counted_as_a_failure() {
        let mut failures = Failures::default();
        for class in [Class::Conflict, Class::NotFound, Class::Invalid] {
            failures.failed("a", class, 0.5);
        }
        assert_eq!(failures.count(&"a"), 0);
        failures.failed("a", Class::Transient, 0.5);
        failures.failed("a", Class::Conflict, 0.5);
        assert_eq!(failures.count(&"a"), 1);
    }

    #[test]
    fn success_starts_over() {
        let mut failures = Failures::default();
        let first = failures.failed("a", Class::Transient, 1.0);
        let second = failures.failed("a", Class::Transient, 1.0);
        assert_ne!(first, second);
        failures.forget(&"a");
        assert_eq!(failures.failed("a", Class::Transient, 1.0), first);
    }

    #[test]
    fn failures_double_from_a_second_to_five_minutes() {
        let seconds = |failures| match retry(Class::Transient, failures, 1.0) {
            Retry::After(delay) => delay.as_secs(),
            Retry::OnChange => 0,
        };
        assert_eq!([1, 2, 3, 9, 10, u32::MAX].map(seconds), [1, 2, 4, 256, 300, 300]);
    }

    #[test]
    fn what_somebody_waits_for_is_tried_every_half_minute() {
        assert_eq!(retry(Class::Urgent, 60, 1.0), Retry::After(Duration::from_secs(30)));
    }

    #[test]
    fn what_is_invalid_waits_for_a_change() {
        assert_eq!(retry(Class::Invalid, 3, 0.5), Retry::OnChange);
    }

    proptest! {
        #[test]
        fn every_retry_is_neither_at_once_nor_later_than_five_minutes(
            class in prop::sample::select(&ALL[1..]), failures: u32, unit in -1.0..2.0,
        ) {
            let Retry::After(delay) = retry(class, failures, unit) else { panic!("never again") };
            prop_assert!((Duration::from_millis(500)..=LONGEST).contains(&delay), "{delay:?}");
        }
    }
}

//! When a key that failed is looked at again.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

/// How an error is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Only a change of the object or its settings can help.
    Invalid,
    /// Somebody else wrote first, or something vanished or is not there yet: look again.
    Conflict,
    /// It may well work later, as where we were asked to slow down.
    Transient,
    /// The same, but somebody waits for it: never longer than half a minute.
    Urgent,
}

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
const LONGEST_URGENT: Duration = Duration::from_secs(30);
/// So many conflicts in a row are the normal course of things where many write at once. Whatever makes more of them does not go
/// away by looking again.
pub const USUAL_CONFLICTS: u32 = 8;

impl Class {
    /// The same error where somebody waits: tried again soon whatever it was, since what refuses a write (a webhook, a
    /// schema, a right) is corrected elsewhere than on the object.
    #[must_use]
    pub fn urgent(self) -> Self {
        match self {
            Self::Transient | Self::Invalid => Self::Urgent,
            class => class,
        }
    }
}

/// How long after `failures` counted failures in a row, this one included, a key is looked at again; `None`: when it, or
/// something it depends on, changes. `unit` is a random number from 0 to 1, given by the caller so that this stays a
/// plain function.
pub fn retry(class: Class, failures: u32, unit: f64) -> Option<Duration> {
    let half_by_chance = 0.5 + unit.clamp(0.0, 1.0) / 2.0;
    match class {
        Class::Invalid => None,
        // Spread, or everybody who lost a race meets again in the next one.
        Class::Conflict => {
            let doublings = failures.saturating_sub(USUAL_CONFLICTS).min(16);
            let full = FIRST.saturating_mul(1 << doublings).min(LONGEST_URGENT);
            Some(full.mul_f64(half_by_chance))
        }
        Class::Transient | Class::Urgent => {
            let doublings = failures.saturating_sub(1).min(16);
            let longest = if class == Class::Urgent { LONGEST_URGENT } else { LONGEST };
            let full = FIRST.saturating_mul(1 << doublings).min(longest);
            // Half is certain, half is chance: never at once, and never everybody together.
            Some(full.mul_f64(half_by_chance).max(FIRST))
        }
    }
}

/// Notes a failure of a key in their counts, and says after how long to look again. A key that succeeded or is gone is taken
/// out of the counts by the caller.
pub fn failed<K: Ord>(
    counts: &mut BTreeMap<K, u32>,
    key: K,
    class: Class,
    unit: f64,
) -> Option<Duration> {
    // It is not tried again.
    if class == Class::Invalid {
        return None;
    }
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(1);
    retry(class, *count, unit)
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

    const ALL: [Class; 4] = [Class::Invalid, Class::Conflict, Class::Transient, Class::Urgent];

    #[test]
    fn what_is_not_tried_again_is_not_counted() {
        let mut counts = BTreeMap::new();
        assert_eq!(failed(&mut counts, "a", Class::Invalid, 0.5), None);
        assert!(counts.is_empty());
    }

    #[test]
    fn conflicts_are_looked_at_within_a_second_until_they_are_too_many() {
        let mut counts = BTreeMap::new();
        let mut next = || failed(&mut counts, "a", Class::Conflict, 1.0).map(|it| it.as_secs());
        for _ in 0..USUAL_CONFLICTS {
            assert_eq!(next(), Some(1));
        }
        let later: Vec<_> = (0..6).filter_map(|_| next()).collect();
        assert_eq!(later, [2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn success_starts_over() {
        let mut counts = BTreeMap::new();
        let first = failed(&mut counts, "a", Class::Transient, 1.0);
        let second = failed(&mut counts, "a", Class::Transient, 1.0);
        assert_ne!(first, second);
        counts.remove("a");
        assert_eq!(failed(&mut counts, "a", Class::Transient, 1.0), first);
    }

    #[test]
    fn failures_double_from_a_second_to_five_minutes() {
        let seconds =
            |failures| retry(Class::Transient, failures, 1.0).map_or(0, |it| it.as_secs());
        assert_eq!([1, 2, 3, 9, 10, u32::MAX].map(seconds), [1, 2, 4, 256, 300, 300]);
    }

    #[test]
    fn what_somebody_waits_for_is_tried_every_half_minute() {
        assert_eq!(retry(Class::Urgent, 60, 1.0), Some(Duration::from_secs(30)));
    }

    #[test]
    fn what_is_invalid_waits_for_a_change() {
        assert_eq!(retry(Class::Invalid, 3, 0.5), None);
    }

    proptest! {
        #[test]
        fn every_retry_is_neither_at_once_nor_later_than_five_minutes(
            class in prop::sample::select(&ALL[1..]), failures: u32, unit in -1.0..2.0,
        ) {
            let Some(delay) = retry(class, failures, unit) else { panic!("never again") };
            prop_assert!((Duration::from_millis(500)..=LONGEST).contains(&delay), "{delay:?}");
        }
    }
}

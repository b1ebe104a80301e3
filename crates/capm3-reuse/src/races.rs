//! How soon to look again after somebody else wrote first.
//!
//! Once or twice that is the course of things and is over in a moment. Where it goes on, as with a watch that shows nothing
//! new, or a proxy that answers for the API server, every pass is a number of requests for nothing. What a watch shows wakes
//! the object whatever is said here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// At most so soon, the first time; twice as late each time after.
const FIRST: Duration = Duration::from_millis(50);
/// And no later than that.
const LAST: Duration = Duration::from_secs(5);
/// Who lost no race for so long begins anew.
const ROW: Duration = Duration::from_secs(30);

/// Who lost races lately: how many in a row, and when the last.
#[derive(Default)]
pub(crate) struct Races(Mutex<HashMap<String, (u32, Instant)>>);

impl Races {
    /// Somebody else wrote first, once more: how long to wait, at most.
    pub(crate) fn lost(&self, object: &str, now: Instant) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (_, last)| now.saturating_duration_since(*last) < ROW);
        let (times, last) = all.entry(object.to_owned()).or_insert((0, now));
        let pause = FIRST.saturating_mul(1 << (*times).min(16)).min(LAST);
        (*times, *last) = (times.saturating_add(1), now);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loses_race_after_race_waits_longer_and_longer_and_begins_anew_after_a_while() {
        let (races, start) = (Races::default(), Instant::now());
        let millis = |object: &str, now: Instant| races.lost(object, now).as_millis();
        let first: Vec<u128> = (0..4).map(|_| millis("a", start)).collect();
        assert_eq!(first, [50, 100, 200, 400]);
        assert_eq!(millis("b", start), 50, "another object's are its own");
        for _ in 0..40 {
            assert!(millis("a", start) <= 5_000);
        }
        assert_eq!(millis("a", start + ROW / 2), 5_000);
        assert_eq!(millis("a", start + ROW), 5_000, "since the last one");
        assert_eq!(millis("a", start + ROW * 3), 50);
    }
}

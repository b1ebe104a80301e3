//! What was told of a request beside its condition, so that it is told once: a write that somebody refuses, as no condition
//! that comes after it gets through, and another controller that works on the same.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The same is told again after this long.
const AGAIN: Duration = Duration::from_secs(3600);

/// What was last told of each request, by its uid, and when.
#[derive(Default)]
pub struct Told(Mutex<HashMap<String, (Instant, String)>>);

impl Told {
    fn all(&self) -> MutexGuard<'_, HashMap<String, (Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is to be told. Then it counts as told.
    pub fn is_news(&self, uid: &str, text: &str, now: Instant) -> bool {
        let mut all = self.all();
        let told = all.get(uid).filter(|(_, known)| known == text);
        if told.is_some_and(|(at, _)| now.saturating_duration_since(*at) < AGAIN) {
            return false;
        }
        all.insert(uid.to_owned(), (now, text.to_owned()));
        true
    }

    /// Whether nothing was told.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Forgets requests that are gone.
    pub fn keep(&self, known: &HashSet<String>) {
        self.all().retain(|uid, _| known.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_again_and_again_is_told_once_an_hour() {
        let (told, now) = (Told::default(), Instant::now());
        assert!(told.is_news("a", "forbidden", now));
        assert!(!told.is_news("a", "forbidden", now + AGAIN / 2));
        assert!(told.is_news("b", "forbidden", now), "another request");
        assert!(told.is_news("a", "too large", now), "something else");
        assert!(told.is_news("a", "too large", now + AGAIN));
        told.keep(&HashSet::new());
        assert!(told.is_empty());
    }
}

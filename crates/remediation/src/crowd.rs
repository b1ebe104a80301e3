//! How many requests are asking for their hosts just now. When hundreds of machines fail at once, the hosts come first: all
//! else that has to be written would only keep the API server from taking the next key.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// From so many on they are a crowd. Less is what a few machines that happen to fail together make.
const MANY: usize = 4;
/// How long what can wait is put off.
const LATER: Duration = Duration::from_millis(150);
/// How many times longer at most, where many are asking.
const MOST: u32 = 4;
/// A crowd that never ends must not keep anybody from going on.
pub const LONGEST: Duration = Duration::from_secs(5);

/// Counts those who are asking.
#[derive(Debug, Default)]
pub struct Crowd {
    asking: AtomicUsize,
    /// Requests, by their uids, that have asked in this crowd and whose further writes can wait, and since when they do.
    waiting: Mutex<HashMap<String, Instant>>,
}

/// One who is asking, until this is dropped.
pub struct Asking<'a>(&'a Crowd);

impl Crowd {
    /// One more is asking from now on.
    pub fn enter(&self) -> Asking<'_> {
        self.asking.fetch_add(1, Ordering::Relaxed);
        Asking(self)
    }

    /// Whether anybody is asking.
    pub fn is_here(&self) -> bool {
        self.asking.load(Ordering::Relaxed) > 0
    }

    /// A request has asked, and what else it has to write is put off.
    pub fn put_off(&self, uid: &str, now: Instant) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(uid.to_owned(), now);
    }

    /// Whether a request was put off a moment ago and others are still asking: its host tells of its own key, and nothing
    /// comes of that.
    pub fn holds_back(&self, uid: &str, now: Instant) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_here() {
            waiting.clear();
        }
        waiting.get(uid).is_some_and(|since| now.saturating_duration_since(*since) < LONGEST)
    }

    /// When to look again instead of writing what can wait. The more are asking, the longer they take, and each look meanwhile
    /// takes time from them.
    pub fn later(&self) -> Duration {
        let asking = self.asking.load(Ordering::Relaxed) / (2 * MANY);
        let longer = u32::try_from(asking).unwrap_or(MOST).min(MOST);
        (LATER * (1 + longer)).mul_f64(1.0 + controller_kit::backoff::random_unit())
    }

    /// Waits while anybody is asking, but not for ever.
    pub async fn passed(&self) {
        let begun = tokio::time::Instant::now();
        while self.is_here() && begun.elapsed() < LONGEST {
            tokio::time::sleep(LATER).await;
        }
    }
}

impl Asking<'_> {
    /// Whether so many others are asking that the key has to be the first write.
    pub fn is_crowded(&self) -> bool {
        self.0.asking.load(Ordering::Relaxed) > MANY
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_no_crowd_and_who_has_asked_does_not_count() {
        let crowd = Crowd::default();
        let mut all: Vec<_> = (0..MANY).map(|_| crowd.enter()).collect();
        assert!(all.iter().all(|it| !it.is_crowded()));
        all.push(crowd.enter());
        assert!(all[0].is_crowded());
        all.pop();
        assert!(!all[0].is_crowded() && crowd.is_here());
        all.clear();
        assert!(!crowd.is_here());
    }

    #[test]
    fn who_has_asked_is_held_back_while_others_ask_but_not_for_ever() {
        let (crowd, now) = (Crowd::default(), Instant::now());
        let other = crowd.enter();
        crowd.put_off("a", now);
        let soon = now + LONGEST / 2;
        assert!(crowd.holds_back("a", soon) && !crowd.holds_back("b", soon));
        assert!(!crowd.holds_back("a", now + LONGEST));
        drop(other);
        assert!(!crowd.holds_back("a", soon));
        let _next = crowd.enter();
        assert!(!crowd.holds_back("a", soon), "that was another crowd");
    }

    #[test]
    fn who_waits_for_many_looks_less_often() {
        let crowd = Crowd::default();
        let mut all = vec![crowd.enter()];
        assert!(crowd.later() <= LATER * 2);
        all.extend((0..10 * MANY).map(|_| crowd.enter()));
        assert!(crowd.later() >= LATER * (1 + MOST) && crowd.later() < LONGEST);
        drop(all);
    }
}

//! Times that do not count for anybody.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use api_types::time::whole;
use k8s_openapi::jiff::Timestamp;

use crate::metrics::seconds;
use crate::seen::Observed;

/// So much more time on the clock than really passed means that somebody has set it.
const CLOCK_WAS_SET: f64 = 30.0;

/// Pauses that this process saw, what was left out when the clock was set forward, and when it began to act.
#[derive(Default)]
pub struct Pauses(Mutex<Times>);

#[derive(Default)]
struct Times {
    /// Requests that were paused, and since when they are not any more.
    ended: HashMap<String, Option<Timestamp>>,
    /// When the clock was last looked at, and what it said.
    clock: Option<(Instant, Timestamp)>,
    /// When it was set.
    set: Option<Timestamp>,
    /// When the first pass began.
    started: Option<Timestamp>,
}

impl Pauses {
    fn all(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the clock. One that is set forward makes every deadline pass at once, for all machines of a night.
    pub fn look(&self, beat: Instant, clock: Timestamp) {
        let mut all = self.all();
        let last = all.clock;
        all.clock = Some((beat, clock));
        let Some((beat_before, before)) = last else { return };
        let passed = beat.saturating_duration_since(beat_before).as_secs_f64();
        if seconds(before, clock) - passed > CLOCK_WAS_SET {
            all.set = Some(whole(clock));
        }
        // Set back since: nothing would pass until then.
        all.set = all.set.map(|it| it.min(whole(clock)));
    }

    /// A pass begins. A process that waits for its lease has not begun to act.
    pub fn begin(&self, clock: Timestamp) {
        self.all().started.get_or_insert(whole(clock));
    }

    /// Notes in what was seen for whom which times do not count.
    pub fn mark(&self, seen: &mut Observed) {
        seen.resumed = self.ended(&seen.request.uid);
        seen.started = self.all().started;
    }

    /// Notes whether a request is paused. Gives the time when the pause ended, if that is news.
    pub fn note(&self, uid: &str, paused: bool, now: Timestamp) -> Option<Timestamp> {
        let mut all = self.all();
        if paused {
            all.ended.insert(uid.to_owned(), None);
            return None;
        }
        let it = all.ended.get_mut(uid).filter(|it| it.is_none())?;
        *it = Some(whole(now));
        *it
    }

    /// Until when times did not count for a request.
    fn ended(&self, uid: &str) -> Option<Timestamp> {
        let all = self.all();
        all.ended.get(uid).copied().flatten().max(all.set)
    }

    /// Whether there was no pause at all.
    pub fn is_empty(&self) -> bool {
        self.all().ended.is_empty()
    }

    /// Forgets requests that are gone.
    pub fn keep(&self, known: &HashSet<String>) {
        self.all().ended.retain(|uid, _| known.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decide::tests::fresh;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_clock_that_was_set_forward_takes_no_time_from_anybody() {
        let (pauses, beat) = (Pauses::default(), Instant::now());
        let after = |second| beat + Duration::from_secs(second);
        pauses.look(beat, at(1000));
        pauses.look(after(100), at(1110));
        assert_eq!(pauses.ended("uid"), None, "adjusted, not set");
        pauses.look(after(102), at(5000));
        assert_eq!(pauses.ended("uid"), Some(at(5000)));
        pauses.look(after(104), at(2000));
        assert_eq!(pauses.ended("uid"), Some(at(2000)), "set back: no time is still to come");
        pauses.note("uid", true, at(6000));
        assert_eq!(pauses.note("uid", false, at(7000)), Some(at(7000)));
        assert_eq!(pauses.ended("uid"), Some(at(7000)));
    }

    #[test]
    fn a_process_has_begun_with_its_first_pass() {
        let pauses = Pauses::default();
        let mut seen = fresh();
        pauses.mark(&mut seen);
        assert_eq!(seen.started, None);
        pauses.begin(at(1000));
        pauses.begin(at(2000));
        pauses.mark(&mut seen);
        assert_eq!((seen.started, seen.resumed), (Some(at(1000)), None));
    }
}

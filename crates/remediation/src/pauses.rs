//! Times that do not count for anybody.

use std::time::Instant;

use api_types::time::{until, whole};
use k8s_openapi::jiff::Timestamp;

/// So much more time on the clock than really passed means that somebody has set it.
const CLOCK_WAS_SET: f64 = 30.0;

/// What was left out when the clock was set forward, and when this process began to act.
#[derive(Default)]
pub struct Clock {
    /// When the clock was last looked at, and what it said.
    last: Option<(Instant, Timestamp)>,
    /// When it was set.
    set: Option<Timestamp>,
    /// When the first pass began.
    pub started: Option<Timestamp>,
}

/// What this process saw of the pauses of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    is_under_way: bool,
    /// When the last one ended.
    ended: Option<Timestamp>,
}

impl Clock {
    /// Looks at the clock. One that is set forward makes every deadline pass at once, for all machines of a night.
    pub fn look(&mut self, beat: Instant, clock: Timestamp) {
        // Where that was ahead then, it has begun by now.
        self.started = self.started.map(|it| it.min(whole(clock)));
        let last = self.last.replace((beat, clock));
        let Some((beat_before, before)) = last else { return };
        let passed = beat.saturating_duration_since(beat_before).as_secs_f64();
        if until(before, clock).as_secs_f64() - passed > CLOCK_WAS_SET {
            self.set = Some(whole(clock));
        }
        // Set back since: nothing would pass until then.
        self.set = self.set.map(|it| it.min(whole(clock)));
    }

    /// A pass begins. A process that waits for its lease has not begun to act.
    pub fn begin(&mut self, clock: Timestamp) {
        self.started.get_or_insert(whole(clock));
    }

    /// Until when times did not count for a request.
    pub fn resumed(&self, pause: Pause) -> Option<Timestamp> {
        pause.ended.max(self.set)
    }
}

impl Pause {
    /// Notes whether the request is paused.
    pub fn note(&mut self, paused: bool, now: Timestamp) {
        if self.is_under_way && !paused {
            self.ended = Some(whole(now));
        }
        self.is_under_way = paused;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_clock_that_was_set_forward_takes_no_time_from_anybody() {
        let (mut clock, beat, mut pause) = (Clock::default(), Instant::now(), Pause::default());
        let after = |second| beat + Duration::from_secs(second);
        clock.look(beat, at(1000));
        clock.look(after(100), at(1110));
        assert_eq!(clock.resumed(pause), None, "adjusted, not set");
        clock.look(after(102), at(5000));
        assert_eq!(clock.resumed(pause), Some(at(5000)));
        clock.look(after(104), at(2000));
        assert_eq!(clock.resumed(pause), Some(at(2000)), "set back: no time is still to come");
        pause.note(true, at(6000));
        assert_eq!(clock.resumed(pause), Some(at(2000)), "it is paused");
        pause.note(false, at(7000));
        pause.note(false, at(8000));
        assert_eq!(clock.resumed(pause), Some(at(7000)));
    }

    #[test]
    fn a_process_has_begun_with_its_first_pass() {
        let mut clock = Clock::default();
        assert_eq!(clock.started, None);
        clock.begin(at(1000));
        clock.begin(at(2000));
        assert_eq!((clock.started, clock.resumed(Pause::default())), (Some(at(1000)), None));
        clock.look(Instant::now(), at(900));
        assert_eq!(clock.started, Some(at(900)), "set back: it is not still to begin");
    }
}

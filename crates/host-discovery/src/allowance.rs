//! How many hosts may be made now.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Fills up at a rate and holds at most one second's worth, so that a flood after a quiet time is
/// no faster than one without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    rate: NonZeroU32,
    /// When it was empty, or will be.
    empty: Instant,
}

impl Allowance {
    /// A full one.
    pub fn new(rate: NonZeroU32, now: Instant) -> Self {
        Self { rate, empty: second_before(now) }
    }

    /// How many may be made now.
    pub fn available(&self, now: Instant) -> u32 {
        let filled = now.saturating_duration_since(self.empty.max(second_before(now)));
        u32::try_from((filled * self.rate.get()).as_secs()).unwrap_or(u32::MAX)
    }

    /// One was made, or was tried to be made: a refusal costs the API server as much.
    pub fn spend(&mut self, now: Instant) {
        let each = Duration::from_secs(1) / self.rate.get();
        self.empty = self.empty.max(second_before(now)) + each;
    }
}

fn second_before(now: Instant) -> Instant {
    now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_one_second_and_fills_up_at_its_rate() {
        let start = Instant::now();
        let mut allowance = Allowance::new(NonZeroU32::new(10).unwrap(), start);
        assert_eq!(allowance.available(start), 10);
        for left in (0..10).rev() {
            allowance.spend(start);
            assert_eq!(allowance.available(start), left);
        }
        let after = |millis| allowance.available(start + Duration::from_millis(millis));
        assert_eq!([99, 100, 500_000].map(after), [0, 1, 10]);
    }

    #[test]
    fn a_million_machines_a_day_become_hosts_no_faster_than_the_rate() {
        let start = Instant::now();
        let mut allowance = Allowance::new(NonZeroU32::new(2).unwrap(), start);
        let mut made = 0;
        for step in 0..10_000 {
            let now = start + Duration::from_millis(step * 86);
            while allowance.available(now) > 0 {
                allowance.spend(now);
                made += 1;
            }
        }
        assert_eq!(made, 2 * 860 + 1);
    }
}

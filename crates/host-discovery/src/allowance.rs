//! How many hosts may be made now.

use std::num::NonZeroU32;

use k8s_openapi::jiff::Timestamp;

/// Millionths of a host.
const WHOLE: u64 = 1_000_000;

/// Fills up at a rate and holds at most one second's worth, so that a flood after a quiet time is
/// no faster than one without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allowance {
    rate: NonZeroU32,
    saved: u64,
    at: Timestamp,
}

impl Allowance {
    /// A full one.
    pub fn new(rate: NonZeroU32, now: Timestamp) -> Self {
        Self { rate, saved: u64::from(rate.get()) * WHOLE, at: now }
    }

    /// How many may be made now. A clock that goes back adds nothing.
    pub fn available(&mut self, now: Timestamp) -> u32 {
        let micros = now.as_microsecond().saturating_sub(self.at.as_microsecond());
        let rate = u64::from(self.rate.get());
        let gained = u64::try_from(micros).unwrap_or_default().saturating_mul(rate);
        self.saved = self.saved.saturating_add(gained).min(rate * WHOLE);
        self.at = now;
        u32::try_from(self.saved / WHOLE).unwrap_or(u32::MAX)
    }

    /// So many were made, or were tried to be made: a refusal costs the API server as much.
    pub fn spend(&mut self, made: u32) {
        self.saved = self.saved.saturating_sub(u64::from(made) * WHOLE);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::ToSpan;

    use super::*;

    #[test]
    fn it_holds_one_second_and_fills_up_at_its_rate() {
        let start = Timestamp::UNIX_EPOCH;
        let mut allowance = Allowance::new(NonZeroU32::new(10).unwrap(), start);
        assert_eq!(allowance.available(start), 10);
        allowance.spend(10);
        assert_eq!(allowance.available(start), 0);
        assert_eq!(allowance.available(start + 99.milliseconds()), 0);
        assert_eq!(allowance.available(start + 100.milliseconds()), 1);
        assert_eq!(allowance.available(start + 500.seconds()), 10);
    }

    #[test]
    fn a_million_machines_a_day_become_hosts_no_faster_than_the_rate() {
        let start = Timestamp::UNIX_EPOCH;
        let mut allowance = Allowance::new(NonZeroU32::new(2).unwrap(), start);
        let mut made = 0;
        for step in 0..10_000_i64 {
            let now = allowance.available(start + (step * 86).milliseconds());
            allowance.spend(now);
            made += now;
        }
        assert_eq!(made, 2 * 860 + 1);
    }

    #[test]
    fn a_clock_that_goes_back_adds_nothing() {
        let start = Timestamp::UNIX_EPOCH + 100.seconds();
        let mut allowance = Allowance::new(NonZeroU32::MIN, start);
        allowance.spend(1);
        assert_eq!(allowance.available(start - 50.seconds()), 0);
        assert_eq!(allowance.available(start - 49.seconds()), 1);
    }
}

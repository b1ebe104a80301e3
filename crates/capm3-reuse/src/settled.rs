//! Since when the owner of a kept host needs no host more than it has.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use crate::notes::{Key, Notes};

/// Kept hosts whose owners are settled, by namespace and host.
#[derive(Default)]
pub struct Settled(Notes<Instant>);

impl Settled {
    /// When that began, by a clock that says `now` and may have been put forward or back since.
    pub fn since(&self, host: &Key, now: Timestamp) -> Option<Timestamp> {
        let began = self.0.lock().get(host).copied()?;
        now.checked_sub(began.elapsed()).ok()
    }

    /// It is so, if it was not already.
    pub fn begin(&self, host: &Key) {
        self.0.lock().entry(host.clone()).or_insert_with(Instant::now);
    }

    /// It is so no longer.
    pub fn end(&self, host: &Key) {
        self.0.forget(host);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_jumps_neither_ends_a_reservation_nor_keeps_it() {
        let (settled, host) = (Settled::default(), ("ns".to_owned(), "h".to_owned()));
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert_eq!(settled.since(&host, at(1_000)), None);
        settled.begin(&host);
        std::thread::sleep(Duration::from_millis(5));
        settled.begin(&host);
        for now in [at(1_000), at(4_000_000_000), at(0)] {
            let passed = now.duration_since(settled.since(&host, now).unwrap());
            assert!(passed.as_millis() >= 5 && passed.as_secs() < 60, "{passed:?}");
        }
        settled.end(&host);
        assert_eq!(settled.since(&host, at(1_000)), None);
    }
}

//! Times as objects hold them.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// The clocks of two processes differ by less. What lies further ahead was written by a clock that was wrong.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);

/// Whole seconds, like everything that is stored.
pub fn whole(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// How long it is from one moment to another; nothing where the other one comes first.
pub fn until(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

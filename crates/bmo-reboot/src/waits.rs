//! How long is waited until something is tried again, and the stamp of a power-on.

use std::time::Duration;

use api_types::time::{CLOCK_SKEW_MAX, until};
use k8s_openapi::jiff::Timestamp;

use crate::case::{Case, second_after};
use crate::model::Failures;
use crate::reason::Reason;

/// When to try again what Ironic does not take now.
pub(crate) const NODE_BUSY_RETRY: Duration = Duration::from_secs(3);
/// A stamp that is bumped into the future by more than this is the clock's fault and not waited for.
const STAMP_AHEAD_MAX: Duration = Duration::from_secs(3);

/// Whether a stamp was written by a clock that was ahead: until then it would say of every machine that it was started since.
pub(crate) fn is_ahead(case: &Case<'_>, stamp: Timestamp) -> bool {
    until(case.exact, stamp) > CLOCK_SKEW_MAX
}

/// How long a failure is still to be waited for. One of the future was written by a clock that is ahead of ours: nobody
/// knows how old it is, and waiting until then could take for ever.
pub(crate) fn still_waiting(case: &Case<'_>, off: bool) -> Option<Duration> {
    let failed = case.progress().filter(|progress| progress.reason == Reason::PowerFailed)?;
    if failed.since > case.exact {
        return None;
    }
    let delay = retry_delay(off, case.host.failures);
    delay.checked_sub(case.age(failed.since)).filter(|left| !left.is_zero())
}

/// Seconds after each failure in a row to switch off: never more than half a minute with the spread, since somebody waits.
const OFF_DELAYS: [u64; 5] = [3, 5, 10, 20, 23];
/// The same to switch on: twice as long each time, up to five minutes.
const ON_DELAYS: [u64; 8] = [3, 6, 12, 24, 48, 96, 192, 300];

/// How long to wait after these failures to switch off, or on.
pub(crate) fn retry_delay(off: bool, failures: Failures) -> Duration {
    let count = match failures {
        Failures::OfPower(count) => count.max(1),
        // Nobody knows how many: as after the fifth.
        Failures::OfOthers if !off => 5,
        Failures::OfOthers | Failures::None => 1,
    };
    let delays = if off { &OFF_DELAYS[..] } else { &ON_DELAYS };
    let nth = usize::try_from(count - 1).unwrap_or(usize::MAX);
    Duration::from_secs(delays[nth.min(delays.len() - 1)])
}

/// The stamp of a power-on now: later than the request that it answers, and never earlier than one before, unless that was written
/// by a wrong clock.
pub(crate) fn last_stamp(case: &Case<'_>) -> Timestamp {
    let right = |stamp: &Timestamp| !is_ahead(case, *stamp);
    let after = case.host.pending.filter(right).map_or(case.now, second_after);
    case.now.max(after).max(case.host.last.filter(right).unwrap_or(case.now))
}

/// How long that stamp still lies in the future, if that is to be waited for.
pub(crate) fn still_early(case: &Case<'_>) -> Option<Duration> {
    let early = until(case.exact, last_stamp(case));
    (early > Duration::ZERO && early <= STAMP_AHEAD_MAX).then_some(early)
}

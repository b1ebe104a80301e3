//! Hosts whose claim the API server refused to a machine: a webhook may have something against that one only.

use std::time::{Duration, Instant};

use crate::notes::{Key, Notes};

/// How long one and the same claim is tried before another host is better: so long that who refuses everything makes
/// few writes.
const LONG: Duration = Duration::from_secs(300);

/// The host that was refused last and since when, by namespace and machine.
#[derive(Default)]
pub struct Refusals(Notes<Refused>);

struct Refused {
    host: String,
    since: Instant,
}

impl Refusals {
    /// The claim of this host was refused, for the first time or again.
    pub fn note(&self, machine: Key, host: &str, now: Instant) {
        let mut all = self.0.lock();
        if all.get(&machine).is_none_or(|before| before.host != host) {
            all.insert(machine, Refused { host: host.to_owned(), since: now });
        }
    }

    /// The host whose claim is refused for long.
    pub fn of(&self, machine: &Key, now: Instant) -> Option<String> {
        let all = self.0.lock();
        let last = all.get(machine)?;
        (now.duration_since(last.since) >= LONG).then(|| last.host.clone())
    }

    /// The machine has a host, or is gone.
    pub fn forget(&self, machine: &Key) {
        self.0.forget(machine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_refused_for_long_by_the_time_since_its_own_first_refusal() {
        let (all, start) = (Refusals::default(), Instant::now());
        let machine = || ("ns".to_owned(), "m".to_owned());
        all.note(machine(), "a", start);
        all.note(machine(), "a", start + LONG / 2);
        assert_eq!(all.of(&machine(), start + LONG / 2), None);
        assert_eq!(all.of(&machine(), start + LONG).as_deref(), Some("a"));
        all.note(machine(), "b", start + LONG);
        assert_eq!(all.of(&machine(), start + LONG), None);
        assert_eq!(all.of(&machine(), start + LONG * 2).as_deref(), Some("b"));
        all.forget(&machine());
        assert_eq!(all.of(&machine(), start + LONG * 2), None);
    }
}

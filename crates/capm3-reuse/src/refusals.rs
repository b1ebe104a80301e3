//! What the API server refused to a machine: the claim of a host, as a webhook may have something against that one only, and
//! for which spec that was told, where conditions do not say it.

use std::time::{Duration, Instant};

use crate::notes::{Key, Notes};

/// How long one and the same claim is tried before another host is better: so long that who refuses everything makes
/// few writes.
const LONG: Duration = Duration::from_secs(300);

/// By namespace and machine.
#[derive(Default)]
pub struct Refusals {
    /// The host that was refused last and since when.
    hosts: Notes<Refused>,
    /// The generation of the machine for which a refusal was told last.
    told: Notes<i64>,
}

struct Refused {
    host: String,
    since: Instant,
}

impl Refusals {
    /// The claim of this host was refused, for the first time or again.
    pub fn note(&self, machine: Key, host: &str, now: Instant) {
        let mut all = self.hosts.lock();
        if all.get(&machine).is_none_or(|before| before.host != host) {
            all.insert(machine, Refused { host: host.to_owned(), since: now });
        }
    }

    /// The host whose claim is refused for long.
    pub fn of(&self, machine: &Key, now: Instant) -> Option<String> {
        let all = self.hosts.lock();
        let last = all.get(machine)?;
        (now.duration_since(last.since) >= LONG).then(|| last.host.clone())
    }

    /// A refusal was told for the machine as it is in this generation.
    pub fn tell(&self, machine: Key, generation: Option<i64>) {
        self.told.lock().extend(generation.map(|it| (machine, it)));
    }

    /// The generation for which a refusal was told last.
    pub fn told(&self, machine: &Key) -> Option<i64> {
        self.told.lock().get(machine).copied()
    }

    /// The machine has a host, or is gone.
    pub fn forget(&self, machine: &Key) {
        self.hosts.forget(machine);
        self.told.forget(machine);
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

    #[test]
    fn for_which_spec_a_refusal_was_told_is_known_until_the_machine_has_a_host_or_is_gone() {
        let (all, machine) = (Refusals::default(), ("ns".to_owned(), "m".to_owned()));
        all.tell(machine.clone(), None);
        assert_eq!(all.told(&machine), None);
        for generation in [1, 2] {
            all.tell(machine.clone(), Some(generation));
            assert_eq!(all.told(&machine), Some(generation));
        }
        all.forget(&machine);
        assert_eq!(all.told(&machine), None);
    }
}

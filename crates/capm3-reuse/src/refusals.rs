//! What the API server refused to a machine: a host, as a webhook may have something against that one only, and for which
//! spec that was told, where conditions do not say it.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::notes::{Key, Notes};

/// How long one and the same host is tried before another is better: so long that who refuses everything makes few writes,
/// and several times as long as any claim is on its way that an earlier pass sent.
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
    /// A write of this host goes out; since when it was refused before. That counts no more until there is an answer: a write
    /// without one may still be carried out.
    pub fn try_again(&self, machine: &Key, host: &str) -> Option<Instant> {
        let mut all = self.hosts.lock();
        all.get(machine).filter(|before| before.host == host)?;
        all.remove(machine).map(|before| before.since)
    }

    /// The write ended, and this is why if it failed.
    pub fn tried(
        &self,
        machine: &Key,
        host: &str,
        before: Option<Instant>,
        failure: Option<&Error>,
        now: Instant,
    ) {
        let since = match failure {
            Some(error) if error.is_refusal() => Some(before.unwrap_or(now)),
            Some(_) => None,
            None => before,
        };
        if let Some(since) = since {
            let refused = Refused { host: host.to_owned(), since };
            self.hosts.lock().insert(machine.clone(), refused);
        }
    }

    /// The host that is refused for long.
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
    use kube::core::Status;

    use super::*;

    fn failure(code: u16) -> Error {
        let status = Status::failure("why", "").with_code(code);
        Error::api("patch a BareMetalHost")(kube::Error::Api(Box::new(status)))
    }

    fn answer(all: &Refusals, machine: &Key, host: &str, failed: Option<u16>, now: Instant) {
        let before = all.try_again(machine, host);
        all.tried(machine, host, before, failed.map(failure).as_ref(), now);
    }

    #[test]
    fn a_host_is_refused_for_long_by_the_time_since_its_own_first_refusal() {
        let (all, start) = (Refusals::default(), Instant::now());
        let machine = ("ns".to_owned(), "m".to_owned());
        let refuse = |host: &str, now: Instant| answer(&all, &machine, host, Some(403), now);
        refuse("a", start);
        refuse("a", start + LONG / 2);
        assert_eq!(all.of(&machine, start + LONG / 2), None);
        assert_eq!(all.of(&machine, start + LONG).as_deref(), Some("a"));
        refuse("b", start + LONG);
        assert_eq!(all.of(&machine, start + LONG), None);
        assert_eq!(all.of(&machine, start + LONG * 2).as_deref(), Some("b"));
        all.forget(&machine);
        assert_eq!(all.of(&machine, start + LONG * 2), None);
    }

    #[test]
    fn a_host_is_refused_for_long_only_if_every_write_of_it_was_answered_meanwhile() {
        let machine = ("ns".to_owned(), "m".to_owned());
        for (host, failed, is_known) in [
            ("a", Some(403), true),
            ("a", None, true),
            ("a", Some(504), false),
            ("b", Some(504), true),
        ] {
            let (all, start) = (Refusals::default(), Instant::now());
            let known = || all.of(&machine, start + LONG).is_some();
            answer(&all, &machine, "a", Some(403), start);
            let before = all.try_again(&machine, host);
            // Nobody knows what became of it if the pass ends here.
            assert_eq!(known(), host == "b");
            all.tried(&machine, host, before, failed.map(failure).as_ref(), start + LONG / 2);
            assert_eq!(known(), is_known, "{host} {failed:?}");
            // From then on it is refused anew.
            answer(&all, &machine, "a", Some(403), start + LONG / 2);
            assert_eq!(known(), is_known, "{host} {failed:?}");
        }
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

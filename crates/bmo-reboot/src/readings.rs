//! What one list of all nodes says about a host, and when that is as good as asking about its node alone.
//!
//! A reading tells of everything that had happened when it *began*. So one that a list brought stands for a look of a pass if
//! it began after all that the pass rests on: the version of the host that is decided about was there, and no call of ours
//! was under way or has been made since. Neither "off" nor a power-on then rests on less than with a request for this node
//! alone. Only what shows nothing but its power stands for a look. A failure, work in progress, a node in maintenance, or a
//! machine that must stay on is read with all its details, by a request of its own.

use std::time::{Duration, Instant};

use ironic::Power;

use crate::index::{NodeKey, number};
use crate::seen::{Node, Registration, Target};

/// How old a list's reading may be for a pass. What others do to a machine is noticed by the poll, which is slower than that.
const FRESH: Duration = Duration::from_secs(20);
/// How long a hard request waits at most for a list that is made for a crowd of them.
const AWAITED: Duration = Duration::from_secs(5);

/// A reading of a host's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// When it began.
    pub(crate) began: Instant,
    pub(crate) power: Power,
    pub(crate) target: Option<Target>,
    /// Whether there was nothing else to know.
    pub(crate) plain: bool,
    /// How far the operator is with the node.
    pub(crate) registration: Registration,
    /// What the node is also called.
    pub(crate) also: Option<NodeKey>,
}

impl Reading {
    /// What a look of our own found.
    pub(crate) fn of(node: &Node, began: Instant, also: Option<NodeKey>) -> Self {
        let (power, target, plain) = (node.power, node.target, is_plain(node));
        Self { began, power, target, plain, registration: node.registration, also }
    }

    /// As a look at the node alone would have shown it.
    pub(crate) fn node(self) -> Node {
        Node {
            power: self.power,
            target: self.target,
            engaged: None,
            last_error: None,
            disable_power_off: false,
            registration: self.registration,
            changed: None,
            maintenance: false,
            off_since: None,
            off_taken: false,
        }
    }
}

/// Whether a node shows nothing but its power.
pub(crate) fn is_plain(node: &Node) -> bool {
    let calm = node.last_error.is_none() && node.engaged.is_none() && !node.maintenance;
    calm && !node.disable_power_off && !node.registration.is_under_way()
}

/// The latest reading of a host's node, and what it has to be later than.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    latest: Option<Reading>,
    /// Whether it came from a list, and no pass has rested on it yet.
    listed: bool,
    /// Since when no call of ours is under way; nothing while one is.
    quiet_since: Option<Instant>,
    /// When a pass last looked at the node.
    pub(crate) looked: Option<Instant>,
    /// The version of the host that the watch told of last, as a number, and when it did.
    version: Option<(u64, Instant)>,
    /// Since when a list is waited for.
    awaited_since: Option<Instant>,
}

impl Readings {
    /// Of a host for which nothing was done yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { quiet_since: Some(now), ..Self::default() }
    }

    /// The watch tells of a version of the host.
    pub(crate) fn host_seen(&mut self, version: &str, now: Instant) {
        let version = number(version);
        if self.version.is_none_or(|(known, _)| known != version) {
            self.version = Some((version, now));
        }
    }

    /// A pass begins. A host has one pass at a time, so a call that was cut off with the one before is not under way.
    pub(crate) fn pass_begins(&mut self, now: Instant) {
        self.quiet_since.get_or_insert(now);
    }

    /// Ironic is about to be asked for power: what was read before says nothing any more.
    pub(crate) fn call_begins(&mut self) {
        (self.latest, self.quiet_since, self.awaited_since) = (None, None, None);
    }

    /// Ironic has answered, or will not: what is read from now on counts.
    pub(crate) fn call_ended(&mut self, now: Instant) {
        (self.latest, self.quiet_since) = (None, Some(now));
    }

    /// A pass has rested on this reading, or got none.
    pub(crate) fn looked(&mut self, reading: Option<Reading>, now: Instant) {
        (self.latest, self.listed) = (reading, false);
        (self.looked, self.awaited_since) = (Some(now), None);
        self.quiet_since.get_or_insert(now);
    }

    /// Whether a list that read the node then tells of the time after our last call.
    pub(crate) fn counts(&self, began: Instant) -> bool {
        self.quiet_since.is_some_and(|quiet| quiet < began)
    }

    /// Whether a pass has looked at the node since then, or a call of ours was made or is under way: what was read before is no
    /// reason for another look.
    pub(crate) fn is_overtaken(&self, since: Instant) -> bool {
        let looked = self.looked.is_some_and(|looked| since <= looked);
        looked || self.quiet_since.is_none_or(|quiet| since <= quiet)
    }

    /// A list has shown the node.
    pub(crate) fn listed(&mut self, reading: Reading) {
        let later = self.looked.is_none_or(|looked| looked < reading.began);
        if self.counts(reading.began) && later {
            (self.latest, self.listed) = (Some(reading), true);
            self.awaited_since = None;
        }
    }

    /// What a list has shown, if it stands for a look of a pass over this version of the host.
    pub(crate) fn for_pass(&self, version: &str, now: Instant) -> Option<Reading> {
        let reading = self.latest.filter(|it| self.listed && it.plain)?;
        let (known, since) = self.version?;
        let later = known == number(version) && since < reading.began;
        (later && now.duration_since(reading.began) < FRESH).then_some(reading)
    }

    /// The latest reading, if it shows a machine that runs and of which nothing else is to be known, and is not older than
    /// this.
    pub(crate) fn running(&self, oldest: Duration, now: Instant) -> Option<Reading> {
        let rests = |it: &Reading| it.plain && it.power == Power::On && it.target.is_none();
        let recent = |it: &Reading| now.duration_since(it.began) <= oldest;
        self.latest.filter(|it| rests(it) && recent(it))
    }

    /// Whether the host still waits for a list, from now on at the latest: until there is any reading, but not for long.
    pub(crate) fn awaits(&mut self, now: Instant) -> bool {
        if self.latest.is_none() {
            self.awaited_since.get_or_insert(now);
        }
        self.is_awaited(now)
    }

    /// Whether it has begun to wait for a list and got none.
    pub(crate) fn is_awaited(&self, now: Instant) -> bool {
        self.awaited_since.is_some_and(|it| now.duration_since(it) < AWAITED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Instant {
        static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BEGAN.get_or_init(Instant::now) + Duration::from_secs(second)
    }

    fn reading(second: u64) -> Reading {
        Reading {
            began: at(second),
            power: Power::On,
            target: None,
            plain: true,
            registration: Registration::Done,
            also: NodeKey::of("rack-7"),
        }
    }

    /// A host that was looked at when version 7 was there, after a call.
    fn waiting() -> Readings {
        let mut known = Readings::new(at(1));
        known.host_seen("7", at(2));
        known.call_begins();
        known.call_ended(at(3));
        known
    }

    #[test]
    fn a_list_that_began_after_the_call_and_the_hosts_version_stands_for_a_look() {
        let mut known = waiting();
        known.listed(reading(4));
        assert_eq!(known.for_pass("7", at(5)), Some(reading(4)));
        assert_eq!(known.for_pass("7", at(4) + FRESH), None, "it is old by now");
        assert_eq!(known.for_pass("8", at(5)), None, "the host is another one than was known");
        known.host_seen("7", at(5));
        assert_eq!(known.for_pass("7", at(6)), Some(reading(4)), "told of twice");
        known.host_seen("8", at(5));
        assert_eq!(known.for_pass("8", at(6)), None, "the list began before somebody wrote");
        known.listed(reading(6));
        assert_eq!(known.for_pass("8", at(7)), Some(reading(6)));
    }

    #[test]
    fn a_list_that_began_before_the_answer_to_a_call_says_nothing() {
        let mut known = waiting();
        known.listed(reading(3));
        assert_eq!(known.for_pass("7", at(4)), None, "it began in the moment of the answer");
        known.listed(reading(4));
        known.call_begins();
        assert_eq!(known.for_pass("7", at(5)), None);
        assert_eq!(known.running(Duration::MAX, at(5)), None);
        known.listed(reading(5));
        assert_eq!(known.for_pass("7", at(6)), None, "the call is under way");
        known.call_ended(at(6));
        known.listed(reading(6));
        assert_eq!((known.for_pass("7", at(7)), known.running(Duration::MAX, at(7))), (None, None));
        known.listed(reading(7));
        assert!(known.for_pass("7", at(8)).is_some() && known.counts(at(7)));
    }

    #[test]
    fn what_a_list_has_shown_is_no_reason_for_a_look_once_a_pass_has_looked_or_called() {
        let mut known = waiting();
        assert!(!known.is_overtaken(at(4)));
        known.looked(None, at(5));
        assert!(
            known.is_overtaken(at(4)) && known.is_overtaken(at(5)) && !known.is_overtaken(at(6))
        );
        known.call_begins();
        assert!(known.is_overtaken(at(6)), "it is under way");
        known.call_ended(at(7));
        assert!(known.is_overtaken(at(6)) && !known.is_overtaken(at(8)));
    }

    #[test]
    fn a_call_that_was_cut_off_is_waited_for_until_the_next_pass_begins() {
        let mut known = waiting();
        known.call_begins();
        known.listed(reading(5));
        known.pass_begins(at(6));
        known.listed(reading(6));
        assert_eq!(known.for_pass("7", at(8)), None);
        known.listed(reading(7));
        assert_eq!(known.for_pass("7", at(8)), Some(reading(7)));
    }

    #[test]
    fn a_reading_stands_for_one_look() {
        let mut known = waiting();
        known.listed(reading(4));
        known.looked(known.for_pass("7", at(5)), at(5));
        assert_eq!(known.for_pass("7", at(6)), None, "the second look is another one");
        known.listed(reading(5));
        assert_eq!(known.for_pass("7", at(6)), None, "nor one of before the first look");
        known.listed(reading(6));
        assert!(known.for_pass("7", at(7)).is_some());
    }

    #[test]
    fn only_what_shows_nothing_but_its_power_stands_for_a_look() {
        let mut known = waiting();
        known.listed(Reading { plain: false, ..reading(4) });
        assert_eq!((known.for_pass("7", at(5)), known.running(Duration::MAX, at(5))), (None, None));
        let plain = reading(4).node();
        assert!(is_plain(&plain));
        for other in [
            Node { last_error: Some("it broke".to_owned()), ..plain.clone() },
            Node { engaged: Some("it is cleaning".to_owned()), ..plain.clone() },
            Node { disable_power_off: true, ..plain.clone() },
            Node { maintenance: true, ..plain.clone() },
            Node { registration: Registration::Verifying, ..plain.clone() },
        ] {
            assert!(!Reading::of(&other, at(4), None).plain, "{other:?}");
        }
        assert_eq!(Reading::of(&plain, at(4), NodeKey::of("rack-7")), reading(4));
        for registration in [Registration::Enrolled, Registration::Manageable] {
            let node = Node { registration, ..plain.clone() };
            let reading = Reading::of(&node, at(4), None);
            assert!(reading.plain && reading.node() == node);
        }
    }

    #[test]
    fn a_machine_is_known_to_run_by_the_latest_reading_for_a_while() {
        let (mut known, while_) = (waiting(), Duration::from_secs(90));
        assert_eq!(known.running(while_, at(5)), None);
        known.looked(Some(reading(4)), at(5));
        assert_eq!(known.running(while_, at(94)), Some(reading(4)), "of a look, too");
        assert_eq!(known.running(while_, at(95)), None);
        for other in [
            Reading { power: Power::Off, ..reading(6) },
            Reading { power: Power::Unknown, ..reading(6) },
            Reading { target: Some(Target::On), ..reading(6) },
        ] {
            let mut known = known.clone();
            known.listed(other);
            assert_eq!(known.running(while_, at(7)), None, "{other:?}");
        }
        known.looked(None, at(7));
        assert_eq!(known.running(while_, at(8)), None, "Ironic did not answer");
    }

    #[test]
    fn a_list_is_waited_for_until_it_tells_anything_but_not_for_long() {
        let mut known = waiting();
        assert!(!known.is_awaited(at(4)));
        assert!(known.awaits(at(4)) && known.is_awaited(at(4)) && known.awaits(at(8)));
        let late = at(4) + AWAITED;
        assert!(!known.awaits(late) && !known.is_awaited(late), "a look of its own is next");
        let mut told = known.clone();
        told.listed(Reading { plain: false, ..reading(5) });
        assert!(!told.awaits(at(6)) && !told.is_awaited(at(6)));
        let mut called = known.clone();
        called.call_begins();
        assert!(!called.is_awaited(at(6)), "it is served");
        known.looked(None, at(10));
        assert!(!known.is_awaited(at(11)) && known.awaits(at(11)), "anew");
        known.looked(Some(reading(11)), at(12));
        assert!(!known.awaits(at(13)), "it is known already");
        known.call_begins();
        assert!(!known.is_awaited(at(13)));
    }
}

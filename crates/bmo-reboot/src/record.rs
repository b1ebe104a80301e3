//! What is kept in a host's conditions: whether its power is ours, and how far a reboot has come.
//!
//! The condition `Rebooting` is our memory: it survives restarts and is read back by the next pass.

use api_types::condition::{Condition, find};
use api_types::names::ferrite::{CONDITION_POWER_MANAGED, CONDITION_REBOOTING};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::reason::Reason;
use crate::requests::{AND_MORE, all_named, told_apart};

/// How far a reboot, or a plain change of power, has come: the condition `Rebooting`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Whether a reboot is under way; a plain change of power to match `spec.online` is none.
    pub rebooting: bool,
    /// How far it is.
    pub reason: Reason,
    /// Since when it is that far.
    pub since: Timestamp,
    /// That it was decided to cut the power. It must not be forgotten when the next step has to wait, or a soft
    /// attempt could follow a hard one.
    pub hard: bool,
    /// For people, and for a few facts that only some reasons have.
    pub message: String,
}

/// First words of the message of a [`Record`] that is hard.
const HARD: &str = "Hard power-off";
/// Its last words, where the message tells of something else.
const CUT: &str = "; the power was cut";
/// Last words of the message of a record with a soft attempt behind it.
const SOFTLY: &str = "; first asked at ";
/// The same as an earlier release wrote it.
const SOFTLY_BEFORE: &str = "; softly since ";
const LAST: &str = ", last at ";
/// Before the holds of a host that is held off.
const HELD_BY: &str = "Held off by ";
/// After them, where Ironic was asked for off because the node is in maintenance.
const LOOKED: &str = "; the node is in maintenance, and Ironic was asked for it and looked";
/// Before the holds of a host that was off for them before the maintenance of its node.
const OUT_OF_SIGHT: &str =
    "Ironic does not look at a machine whose node is in maintenance; before that it was off for ";
/// In a message about a step towards off of a machine at which Ironic has not looked since.
const NOT_SEEN: &str = "; Ironic shows what it knew before the maintenance of the node";
/// Before the time since which a host is held off of which it is not known whether it is on.
const HELD: &str = "; held off since ";
const ON: &str = "The host is being switched on";
/// Last words of what is told of a power-on that was asked for while Ironic showed a failure.
const EARLIER: &str = "; Ironic still showed an earlier failure";
/// Last words of what is told of a host that was seen off so soon after a power-on that this may still come, or after one
/// that failed. Where it is not known whether what was asked for was a power-on, they are there too.
const OPEN: &str = "; whether a power-on of before may still come is not known";
const RESET: &str = "The machine is being reset";
const SOFT_RESET: &str = "The machine is being reset by its operating system";
const NOT_RESET: &str = "the machine was not reset, ask again";
const NOT_RESET_SOFTLY: &str =
    "the machine was not reset by its operating system, ask with mode hard";
/// Before the holds that a reset has answered, the last words of a message.
const ASKED: &str = "; asked for by ";
/// The API server takes 32 KiB for a message.
const LONGEST_LIST: usize = 30_000;
const AND_ALL_AFTER: &str = " and all after it";
const ASKED_AGAIN: &str = "was asked again";
const CHANGED: &str = "of a node that last changed at ";

/// A soft attempt, which may take several slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soft {
    /// When it began.
    pub since: Timestamp,
    /// When Ironic took its latest slice.
    pub last: Timestamp,
}

impl Record {
    /// Reads the condition, if it is there and ours.
    pub fn of(conditions: &[Condition]) -> Option<Self> {
        let condition = find(conditions, CONDITION_REBOOTING)?;
        let message = condition.message.clone().unwrap_or_default();
        Some(Self {
            rebooting: condition.is_true(),
            reason: Reason::parse(condition.reason.as_deref()?)?,
            since: condition.last_transition_time.as_ref()?.0,
            hard: message.starts_with(HARD) || message.ends_with(CUT),
            message,
        })
    }

    /// A message that remembers whether the power is to be cut.
    pub fn wording(hard: bool, rest: &str) -> String {
        if hard { format!("{HARD} {rest}") } else { format!("Power change {rest}") }
    }

    /// The same for a message that is not about a step towards off.
    pub fn telling(hard: bool, text: &str) -> String {
        if hard { format!("{text}{CUT}") } else { text.to_owned() }
    }

    /// A message that remembers the soft attempt.
    pub fn softly(message: &str, soft: Soft) -> String {
        let Soft { since, last } = soft;
        format!("{message}{SOFTLY}{since}{LAST}{last}")
    }

    /// The soft attempt that Ironic has taken, however long ago, and whatever is waited for since.
    pub fn soft(&self) -> Option<Soft> {
        let told = |words: &'static str| self.message.rsplit_once(words);
        let (_, times) = told(SOFTLY).or_else(|| told(SOFTLY_BEFORE))?;
        let (since, last) = times.split_once(LAST)?;
        let soft = Soft { since: since.parse().ok()?, last: last.parse().ok()? };
        (self.reason.is_phase() && !self.hard).then_some(soft)
    }

    /// A message that remembers since when a host is held off whose power is not known any more.
    pub fn lost_message(hard: bool, problem: &str, since: Timestamp) -> String {
        Self::telling(hard, &format!("{problem}{HELD}{since}"))
    }

    /// What is told of a host that is held off. `asked`: its node is in maintenance, and Ironic was asked for off.
    pub fn held_message(holds: &[&str], asked: bool) -> String {
        let told = format!("{HELD_BY}{}", all_named(holds.iter().copied()));
        if !asked {
            told
        } else if told.ends_with(AND_MORE) {
            // Those that are not named must not be others the next time.
            format!("{told}{LOOKED} ({})", told_apart(holds.iter().copied()))
        } else {
            format!("{told}{LOOKED}")
        }
    }

    /// Whether Ironic was asked for off for each of these because the node is in maintenance, and the host was off then.
    pub fn was_asked_for(&self, holds: &[&str]) -> bool {
        let same = || self.message == Self::telling(self.hard, &Self::held_message(holds, true));
        let asked = self.reason == Reason::HeldOff && self.message.contains(LOOKED);
        asked && (self.names(HELD_BY, holds) || same())
    }

    /// What those who hold a host are told whose machine is out of sight, up to the time.
    pub fn out_of_sight(holds: &[&str]) -> String {
        format!("{OUT_OF_SIGHT}{}", all_named(holds.iter().copied()))
    }

    /// A message that remembers that Ironic has not looked at the machine since the maintenance of its node began.
    pub fn not_seen(message: &str) -> String {
        format!("{message}{NOT_SEEN}")
    }

    /// Whether one of these is told.
    pub fn is_out_of_sight(&self) -> bool {
        [OUT_OF_SIGHT, NOT_SEEN].iter().any(|it| self.message.contains(it))
    }

    /// Whether the host was off for each of these when its machine was last seen, as far as they are named.
    pub fn was_held_for(&self, holds: &[&str]) -> bool {
        let words = match self.reason {
            Reason::HeldOff => HELD_BY,
            Reason::PowerUnknown => OUT_OF_SIGHT,
            _ => return false,
        };
        let same = || self.list(words) == Some(&all_named(holds.iter().copied()));
        self.names(words, holds) || (!self.message.contains(LOOKED) && same())
    }

    /// The holds that are named after these words.
    fn list(&self, words: &str) -> Option<&str> {
        self.message.split_once(words)?.1.split(';').next()
    }

    /// Whether each of these is named after these words.
    fn names(&self, words: &str, holds: &[&str]) -> bool {
        let named: Vec<&str> =
            self.list(words).map(|it| it.split(", ").collect()).unwrap_or_default();
        holds.iter().all(|hold| named.contains(hold))
    }

    /// Since when the host is held off: seen off, and nothing was done since. It may not be known now.
    pub fn held_since(&self) -> Option<Timestamp> {
        match self.reason {
            Reason::HeldOff => Some(self.since),
            Reason::PowerUnknown => {
                let (_, since) = self.message.rsplit_once(HELD)?;
                since.strip_suffix(CUT).unwrap_or(since).parse().ok()
            }
            _ => None,
        }
    }

    /// What is told of a power-on. `earlier`: Ironic shows a failure of before, which must not be taken for one of this
    /// power-on as long as it is not known whether Ironic took that.
    pub fn on_message(earlier: bool) -> String {
        if earlier { format!("{ON}{EARLIER}") } else { ON.to_owned() }
    }

    /// Whether the failure that Ironic shows may be older than the power-on that this tells of.
    pub fn may_have_failed_earlier(&self) -> bool {
        self.reason == Reason::PoweringOn && self.message.contains(EARLIER)
    }

    /// A message that remembers, where it is so, that nobody knows what became of a power-on before.
    pub fn seen_off_message(text: &str, open: bool) -> String {
        if open { format!("{text}{OPEN}") } else { text.to_owned() }
    }

    /// Whether nobody knew what became of a power-on before when this was written down.
    pub fn leaves_open(&self) -> bool {
        self.message.contains(OPEN)
    }

    /// A message that remembers that Ironic has taken a reset, and for which holds.
    pub fn reset_message(hard: bool, holds: &[&str]) -> String {
        let reset = if hard { RESET } else { SOFT_RESET };
        format!("{reset}{}", asked_by(holds))
    }

    /// What to tell about a reset that Ironic has taken, of which the end was not seen yet, should it fail.
    pub fn reset_failure(&self, problem: &str) -> Option<String> {
        let told = match self.parts() {
            (RESET, _) => NOT_RESET,
            (SOFT_RESET, _) => NOT_RESET_SOFTLY,
            _ => return None,
        };
        let taken = matches!(self.reason, Reason::PoweringOn | Reason::Restarting);
        taken.then(|| format!("{told}: {problem}"))
    }

    /// Whether the last that was tried was a soft reset, and it failed: another one would.
    pub fn failed_softly(&self) -> bool {
        self.reason == Reason::PowerFailed && self.message.contains(NOT_RESET_SOFTLY)
    }

    /// A message that remembers which holds were answered by a reset. `by`: whose word it is that the machine stays on.
    pub fn served_message(by: &str, holds: &[&str]) -> String {
        let told = format!(
            "The machine must not be switched off ({by}), so nobody can hold it off: it was reset"
        );
        format!("{told}{}", asked_by(holds))
    }

    /// The message, but with these holds.
    pub fn answering(&self, holds: &[&str]) -> String {
        format!("{}{}", self.parts().0, asked_by(holds))
    }

    /// What the message tells, and the holds that a reset has answered.
    fn parts(&self) -> (&str, Option<&str>) {
        let parts = self.message.rsplit_once(ASKED);
        parts.map_or((self.message.as_str(), None), |(told, list)| {
            // An earlier release wrote brackets.
            let inner = list.strip_prefix('[').and_then(|list| list.strip_suffix(']'));
            (told, Some(inner.unwrap_or(list)))
        })
    }

    /// Whether the reset that this record tells of, or its failure, was also for this key.
    pub fn has_served(&self, key: &str) -> bool {
        use Reason::{HoldUnsupported, PowerFailed, Restarting};
        let (_, list) = self.parts();
        // Keys are sorted.
        let is_in = |list: &str| match list.strip_suffix(AND_ALL_AFTER) {
            Some(named) => {
                let end = named.rsplit(", ").next();
                end.is_some_and(|end| end < key) || named.split(", ").any(|it| it == key)
            }
            None => list.split(", ").any(|it| it == key),
        };
        matches!(self.reason, HoldUnsupported | PowerFailed | Restarting) && list.is_some_and(is_in)
    }

    /// A message that remembers the node as it was before a reset was asked for.
    /// `again`: Ironic was too busy for the one before, or did not answer.
    pub fn restart_message(hard: bool, again: bool, changed: Option<&str>) -> String {
        let changed = changed.unwrap_or("no time");
        let asked = if again { ASKED_AGAIN } else { "was asked" };
        Self::wording(hard, &format!("by a reset {asked} {CHANGED}{changed}"))
    }

    /// Whether Ironic was too busy for the last that was to be asked of it, or did not answer. The next try is not written
    /// down ahead: it would be for as long as that lasts.
    pub fn waits_for_ironic(&self) -> bool {
        matches!(self.reason, Reason::NodeBusy | Reason::IronicUnreachable)
    }

    /// Whether this is a reset that is asked for again because of that.
    pub fn resets_again(&self) -> bool {
        self.reason == Reason::Restarting && self.message.contains(ASKED_AGAIN)
    }

    /// Whether the node is still as it was before the reset was asked for: then Ironic never took the request.
    pub fn is_untouched(&self, changed: Option<&str>) -> bool {
        let before = self.message.split_once(CHANGED).map(|(_, before)| before);
        before == Some(changed.unwrap_or("no time"))
    }

    /// As it stands in the object.
    pub fn condition(&self, generation: i64) -> Condition {
        condition(
            CONDITION_REBOOTING,
            self.rebooting,
            self.reason,
            &self.message,
            (self.since, generation),
        )
    }
}

/// Which holds a reset answers; nothing where there are none.
fn asked_by(holds: &[&str]) -> String {
    let mut list = String::new();
    for key in holds {
        if list.len() + key.len() > LONGEST_LIST {
            list.push_str(AND_ALL_AFTER);
            break;
        }
        list.push_str(if list.is_empty() { ASKED } else { ", " });
        list.push_str(key);
    }
    list
}

/// Whether the host's power is ours: the condition `PowerManaged`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Managed {
    /// Whether it is.
    pub managed: bool,
    /// Why (not).
    pub reason: Reason,
    /// What to do about it.
    pub message: String,
}

/// Last words of a message that remembers that something was installed on the host when it could not be served.
const SEEN: &str = "; what is asked of it ends when it is deprovisioned";
/// The same as an earlier release wrote it.
const SEEN_BEFORE: &str = "; it was seen provisioned";

impl Managed {
    /// A message that remembers whether the host was seen provisioned: what was asked of it then goes when it is
    /// deprovisioned, even if nobody looks at that moment.
    pub fn remembering(provisioned: bool, message: &str) -> String {
        if provisioned { format!("{message}{SEEN}") } else { message.to_owned() }
    }

    /// Whether the host was provisioned, and not deprovisioned under our eyes since.
    pub fn was_provisioned(&self) -> bool {
        let seen = [SEEN, SEEN_BEFORE].iter().any(|it| self.message.ends_with(*it));
        self.reason == Reason::Managed || seen
    }

    /// Reads the condition, if it is there and ours.
    pub fn of(conditions: &[Condition]) -> Option<Self> {
        let condition = find(conditions, CONDITION_POWER_MANAGED)?;
        Some(Self {
            managed: condition.is_true(),
            reason: Reason::parse(condition.reason.as_deref()?)?,
            message: condition.message.clone().unwrap_or_default(),
        })
    }

    /// As it stands in the object.
    pub fn condition(&self, since: Timestamp, generation: i64) -> Condition {
        condition(
            CONDITION_POWER_MANAGED,
            self.managed,
            self.reason,
            &self.message,
            (since, generation),
        )
    }
}

fn condition(
    kind: &str,
    status: bool,
    reason: Reason,
    message: &str,
    (since, generation): (Timestamp, i64),
) -> Condition {
    Condition {
        r#type: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.as_str().to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(since)),
        observed_generation: Some(generation),
        ..Condition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let since = Timestamp::from_second(1_800_000_000).unwrap();
        for hard in [false, true] {
            let message = Record::wording(hard, "waits: the node is locked");
            let record = Record { rebooting: true, reason: Reason::NodeBusy, since, hard, message };
            assert_eq!(Record::of(&[record.condition(3)]), Some(record));
        }
    }

    #[test]
    fn what_an_earlier_release_wrote_down_is_still_understood() {
        let since = Timestamp::from_second(1_800_000_000).unwrap();
        let record = |reason, message: String| Record {
            rebooting: true,
            reason,
            since,
            hard: false,
            message,
        };
        let told = format!("Power change{SOFTLY_BEFORE}{since}{LAST}{since}");
        let soft = record(Reason::SoftPowerOff, told).soft();
        assert_eq!(soft, Some(Soft { since, last: since }));
        let message = "it was reset; asked for by [reboot.metal3.io/a, reboot.metal3.io/b]";
        let served = record(Reason::HoldUnsupported, message.to_owned());
        assert!(served.has_served("reboot.metal3.io/a") && served.has_served("reboot.metal3.io/b"));
        let message = format!("the host is paused{SEEN_BEFORE}");
        let paused = Managed { managed: false, reason: Reason::Paused, message };
        assert!(paused.was_provisioned());
    }

    #[test]
    fn since_when_a_host_is_held_is_remembered_while_its_power_is_not_known() {
        let since = Timestamp::from_second(1_800_000_000).unwrap();
        for hard in [false, true] {
            let message = Record::lost_message(hard, "nobody knows", since);
            let (reason, now) = (Reason::PowerUnknown, Timestamp::UNIX_EPOCH);
            let record = Record { rebooting: true, reason, since: now, hard, message };
            assert_eq!(record.held_since(), Some(since));
            assert_eq!(Record::of(&[record.condition(1)]), Some(record));
        }
    }

    #[test]
    fn what_is_not_known_of_a_power_on_is_remembered() {
        let since = Timestamp::UNIX_EPOCH;
        for told in [false, true] {
            let message = Record::on_message(told);
            let reason = Reason::PoweringOn;
            let record = Record { rebooting: true, reason, since, hard: false, message };
            assert_eq!(record.may_have_failed_earlier(), told);
            assert_eq!(Record::of(&[record.condition(1)]), Some(record));
            for hard in [false, true] {
                let message = Record::telling(hard, &Record::seen_off_message("off", told));
                let reason = Reason::PoweredOff;
                let record = Record { rebooting: true, reason, since, hard, message };
                assert_eq!(record.leaves_open(), told);
                assert_eq!(Record::of(&[record.condition(1)]), Some(record));
            }
        }
    }

    #[test]
    fn the_keys_of_a_refused_hold_are_remembered_exactly() {
        let since = Timestamp::UNIX_EPOCH;
        let holds = ["reboot.metal3.io/ab", "reboot.metal3.io/c"];
        let message = Record::served_message("spec.disablePowerOff", &holds);
        let reason = Reason::HoldUnsupported;
        let record = Record { rebooting: false, reason, since, hard: false, message };
        assert!(
            record.has_served("reboot.metal3.io/ab") && record.has_served("reboot.metal3.io/c")
        );
        assert!(!record.has_served("reboot.metal3.io/a") && !record.has_served(""));
    }

    #[test]
    fn a_node_that_changed_since_is_told_from_one_that_did_not() {
        let since = Timestamp::UNIX_EPOCH;
        for before in [None, Some("2026-11-21T10:00:00+00:00")] {
            for hard in [false, true] {
                for again in [false, true] {
                    let message = Record::restart_message(hard, again, before);
                    let reason = Reason::Restarting;
                    let record = Record { rebooting: true, reason, since, hard, message };
                    assert!(record.is_untouched(before) && record.resets_again() == again);
                    assert!(!record.is_untouched(Some("2026-11-21T10:00:01+00:00")));
                    assert_eq!(Record::of(&[record.condition(1)]), Some(record));
                }
            }
        }
    }
}

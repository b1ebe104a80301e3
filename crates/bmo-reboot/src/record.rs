//! What is kept of a host in its status: the condition `RebootRecord`, which only programs read, and what `PowerManaged` says.
//!
//! The record survives restarts and is read back by the next pass. People are told by the conditions `Rebooting` and
//! `PowerManaged`, whose messages are made in [`text`](crate::text) and never read.

use api_types::condition::{Condition, find};
use api_types::metal3::power_record;
use api_types::metal3::{Kept, KeySet, PowerRecord};
use api_types::names::ferrite::CONDITION_POWER_MANAGED;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::requests::Mode;

/// The record of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// What other controllers read of it.
    #[serde(flatten)]
    pub power: PowerRecord,
    /// That something was installed on the host when it could not be served: what was asked of it then goes when it is
    /// deprovisioned, even if nobody looks at that moment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_provisioned: bool,
    /// How far a reboot, or a plain change of power, has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RebootProgress>,
    /// That the plain request of this mode was answered, and its annotation could not be removed. Another mode is another request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Mode>,
}

/// How far a reboot, or a plain change of power, has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebootProgress {
    /// Whether a reboot is under way; a plain change of power to match `spec.online` is none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebooting: bool,
    /// How far it is.
    pub reason: Reason,
    /// Since when it is that far.
    pub since: Timestamp,
    /// That it was decided to cut the power. It must not be forgotten when the next step has to wait, or a soft
    /// attempt could follow a hard one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard: bool,
    /// The soft attempt that Ironic has taken, however long ago, and whatever is waited for since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<Soft>,
    /// The holds for which the host is held off. On the object they stand in [`PowerRecord::held`].
    #[serde(skip)]
    pub held: KeySet,
    /// Where it matters who sees that the machine is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sight: Option<Sight>,
    /// What is not known of a power-on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
    /// The reset of a machine that must not be switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
    /// The holds that this reset answers, or its failure.
    #[serde(default, skip_serializing_if = "KeySet::is_empty")]
    pub served: KeySet,
}

/// A soft attempt, which may take several slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Soft {
    /// When it began.
    pub since: Timestamp,
    /// When Ironic took its latest slice.
    pub last: Timestamp,
}

/// What somebody sees, or saw, of a machine that is to be off.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sight {
    /// The node is in maintenance. Ironic was asked for off for all who hold the host, and looked.
    AskedOff,
    /// The host was held off, and nobody sees whether it still is.
    Lost {
        /// Since when it was held off.
        since: Timestamp,
        /// For whom, where the maintenance of its node is why nobody sees it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<KeySet>,
    },
}

/// What is not known of a power-on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Doubt {
    /// It was asked for while Ironic showed a failure, which must not be taken for one of this power-on as long as it is not
    /// known whether Ironic took that.
    EarlierFailure,
    /// The host was seen off so soon after it that it may still come, or it failed. The same where it is not known whether
    /// what was asked for was a power-on.
    Open,
}

/// How far the reset of a machine that must not be switched off has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reset {
    /// It is asked for.
    Asked {
        /// When Ironic last wrote something about the node before that. If it has written nothing since, it never took the
        /// request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changed: Option<String>,
    },
    /// Ironic has taken it.
    Taken {
        /// Whether it was a hard one.
        hard: bool,
    },
    /// It failed after Ironic had taken it.
    Failed {
        /// Whether it was a hard one.
        hard: bool,
    },
}

impl Record {
    /// Reads the record of a host.
    pub fn of(conditions: &[Condition]) -> Kept<Self> {
        let mut kept = power_record::read::<Self>(conditions);
        if let Kept::Known(Self { power, progress: Some(progress), .. }) = &mut kept
            && progress.reason == Reason::HeldOff
        {
            progress.held = power.held.clone();
        }
        kept
    }

    /// The record of these facts. `stamps` are those of the last accepted request and of the last power-on.
    pub fn new(
        (pending, last): (Option<Timestamp>, Option<Timestamp>),
        was_provisioned: bool,
        progress: Option<RebootProgress>,
    ) -> Self {
        // Whoever reads them goes by them: they are there only while they are true.
        let held = progress.as_ref().filter(|it| it.reason == Reason::HeldOff);
        let held = held.map(|it| it.held.clone()).unwrap_or_default();
        let power = PowerRecord { pending, last, held, ..PowerRecord::default() };
        Self { power, was_provisioned, progress, answered: None }
    }
}

impl RebootProgress {
    /// A step that begins then, of which no more is to be said.
    pub fn new(reason: Reason, since: Timestamp) -> Self {
        Self { reason, since, ..Self::default() }
    }

    /// Whether Ironic was asked for off for each of these because the node is in maintenance, and the host was off then.
    pub fn was_asked_for(&self, holds: &[&str]) -> bool {
        self.sight == Some(Sight::AskedOff) && self.held.covers(holds)
    }

    /// Whether this says that the host is held off for each of these.
    pub fn is_held_for(&self, holds: &[&str]) -> bool {
        self.reason == Reason::HeldOff && self.held.covers(holds)
    }

    /// Whether the host was off for each of these when its machine was last seen.
    pub fn was_held_for(&self, holds: &[&str]) -> bool {
        match &self.sight {
            Some(Sight::Lost { held, .. }) => held.as_ref().is_some_and(|it| it.covers(holds)),
            _ => self.is_held_for(holds),
        }
    }

    /// Since when the host is held off: seen off, and nothing was done since. It may not be known now.
    pub fn held_since(&self) -> Option<Timestamp> {
        match self.sight {
            Some(Sight::Lost { since, .. }) => Some(since),
            _ => (self.reason == Reason::HeldOff).then_some(self.since),
        }
    }

    /// Whether this reset, or its failure, was also for this key.
    pub fn has_served(&self, key: &str) -> bool {
        // Of more than can be named those count that come after all that are.
        let unnamed = self.served.rest.is_some()
            && self.served.keys.last().is_some_and(|last| last.as_str() < key);
        unnamed || self.served.names(key)
    }

    /// Whether Ironic was too busy for the last that was to be asked of it, or did not answer. The next try is not written
    /// down ahead: it would be for as long as that lasts.
    pub fn waits_for_ironic(&self) -> bool {
        matches!(self.reason, Reason::NodeBusy | Reason::IronicUnreachable)
    }

    /// Whether a change of power has failed that is tried again in any case. It may be the beginning of an outage of Ironic, and who
    /// waits has to read of that: else the machine is given up for it.
    pub fn has_merely_failed(&self) -> bool {
        self.reason == Reason::PowerFailed && self.reset.is_none()
    }

    /// Whether the node is still as it was before the reset was asked for: then Ironic never took the request.
    pub fn is_untouched(&self, now: Option<&str>) -> bool {
        matches!(&self.reset, Some(Reset::Asked { changed }) if changed.as_deref() == now)
    }
}

/// Whether the host's power is ours: the condition `PowerManaged`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Managed {
    /// Whether it is.
    pub managed: bool,
    /// Why (not).
    pub reason: Reason,
    /// What to do about it. Only compared with what is to be said now.
    pub message: String,
}

impl Managed {
    /// Reads the condition, if it is there and ours.
    pub fn of(conditions: &[Condition]) -> Option<Self> {
        let condition = find(conditions, CONDITION_POWER_MANAGED)?;
        Some(Self {
            managed: condition.is_true(),
            reason: Reason::parse(condition.reason.as_deref()?)?,
            message: condition.message.clone().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use controller_kit::engine::Reason as _;

    use super::*;

    fn read_back(progress: &RebootProgress) -> Option<RebootProgress> {
        let record = Record::new((None, None), false, Some(progress.clone()));
        let condition = power_record::condition(&record, Timestamp::UNIX_EPOCH, 1);
        assert!(condition.message.as_ref().unwrap().len() < 32_768);
        let Kept::Known(read) = Record::of(&[condition]) else { panic!("{progress:?}") };
        assert_eq!(read, record);
        read.progress
    }

    #[test]
    fn every_fact_is_read_back_as_it_was_written() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let keys = || KeySet::of(["reboot.metal3.io/a", "reboot.metal3.io/b"]);
        let sights = [
            Sight::AskedOff,
            Sight::Lost { since: at(1), held: None },
            Sight::Lost { since: at(1), held: Some(keys()) },
        ];
        let resets = [
            Reset::Asked { changed: None },
            Reset::Asked { changed: Some("2026-11-21T10:00:00+00:00".to_owned()) },
            Reset::Taken { hard: true },
            Reset::Failed { hard: false },
        ];
        let told = Reason::ALL.iter().copied().filter(|it| Reason::parse(it.as_str()).is_some());
        let mut all: Vec<RebootProgress> =
            told.map(|reason| RebootProgress::new(reason, at(0))).collect();
        let plain = RebootProgress::new(Reason::HeldOff, at(0));
        all.push(RebootProgress { rebooting: true, hard: true, held: keys(), ..plain.clone() });
        all.push(RebootProgress {
            soft: Some(Soft { since: at(2), last: at(3) }),
            ..plain.clone()
        });
        all.extend(sights.map(|it| RebootProgress { sight: Some(it), ..plain.clone() }));
        let doubts = [Doubt::EarlierFailure, Doubt::Open];
        all.extend(doubts.map(|it| RebootProgress { doubt: Some(it), ..plain.clone() }));
        all.extend(resets.map(|it| RebootProgress {
            reset: Some(it),
            served: keys(),
            ..plain.clone()
        }));
        for progress in all {
            assert_eq!(read_back(&progress).as_ref(), Some(&progress));
        }
    }

    #[test]
    fn only_who_is_held_off_now_is_told_so() {
        for (reason, proven) in [(Reason::HeldOff, true), (Reason::PowerUnknown, false)] {
            let held = KeySet::of(["reboot.metal3.io/a"]);
            let progress =
                RebootProgress { held, ..RebootProgress::new(reason, Timestamp::UNIX_EPOCH) };
            let record = Record::new((None, None), false, Some(progress));
            assert_eq!(record.power.held.names("reboot.metal3.io/a"), proven, "{reason:?}");
        }
    }

    #[test]
    fn a_record_of_an_unknown_reason_is_not_understood() {
        let record = Record::new(
            (None, None),
            true,
            Some(RebootProgress::new(Reason::Managed, Timestamp::now())),
        );
        let mut condition = power_record::condition(&record, Timestamp::UNIX_EPOCH, 1);
        condition.message = condition.message.map(|it| it.replace("Managed", "Unheard"));
        assert!(matches!(Record::of(&[condition]), Kept::Unreadable(_)));
    }

    #[test]
    fn more_holds_than_are_named_are_answered_by_their_order() {
        let keys: Vec<String> =
            (0..3_000).map(|n| format!("reboot.metal3.io/client-{n:05}")).collect();
        let served = KeySet::of(keys.iter().map(String::as_str));
        let since = Timestamp::UNIX_EPOCH;
        let progress =
            RebootProgress { served, ..RebootProgress::new(Reason::HoldUnsupported, since) };
        assert!(keys.iter().all(|key| progress.has_served(key)));
        assert!(!progress.has_served("reboot.metal3.io/a") && !progress.has_served(""));
        let served = KeySet::of(["reboot.metal3.io/ab", "reboot.metal3.io/c"]);
        let progress = RebootProgress { served, ..progress };
        for (key, is_one) in [("ab", true), ("c", true), ("a", false), ("d", false)] {
            assert_eq!(progress.has_served(&format!("reboot.metal3.io/{key}")), is_one, "{key}");
        }
    }

    #[test]
    fn a_node_that_changed_since_is_told_from_one_that_did_not() {
        for before in [None, Some("2026-11-21T10:00:00+00:00")] {
            let changed = before.map(str::to_owned);
            let reset = Some(Reset::Asked { changed });
            let since = Timestamp::UNIX_EPOCH;
            let progress =
                RebootProgress { reset, ..RebootProgress::new(Reason::Restarting, since) };
            assert!(progress.is_untouched(before));
            assert!(!progress.is_untouched(Some("2026-11-21T10:00:01+00:00")));
            let taken = RebootProgress { reset: Some(Reset::Taken { hard: true }), ..progress };
            assert!(!taken.is_untouched(before), "it was taken");
        }
    }
}

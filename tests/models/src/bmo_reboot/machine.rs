//! The machine as it is and as Ironic shows it, and what an off that Ironic has taken proves.

use std::time::Duration;

use bmo_reboot::model::OffProof;
use ironic::Power;

use super::{Holds, Stored, held, holds};

/// Why a machine that runs is shown off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hidden {
    /// It was started by its button, and Ironic has not looked since.
    Started,
    /// It is still shutting down, and its management controller says off already.
    Closing,
}

/// The machine, and what Ironic has stored of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Machine {
    pub(super) on: bool,
    /// Why Ironic shows it off although it runs.
    pub(super) hidden: Option<Hidden>,
    pub(super) target: Option<(Power, bool)>,
    pub(super) error: bool,
}

impl Machine {
    pub(super) fn shows_on(self) -> bool {
        self.on && self.hidden.is_none()
    }

    pub(super) fn is_closing(self) -> bool {
        self.hidden == Some(Hidden::Closing)
    }

    pub(super) fn shows_off(self) -> bool {
        !self.shows_on() && self.target.is_none()
    }
}

/// An off that Ironic has taken from a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Taken {
    pub(super) holds: Holds,
    /// Whether the machine was seen off after it, and whether that is long ago.
    pub(super) seen: (bool, bool),
    pub(super) again: bool,
}

/// Those of the first who are not among the others.
pub(super) fn is_more(holds: Holds, known: Holds) -> bool {
    holds.iter().zip(known).any(|(now, known)| *now && !known)
}

/// What the last off that Ironic has taken shows, by what the node shows now.
pub(super) fn proof(taken: &mut Option<Taken>, host: &Stored, machine: Machine) -> OffProof {
    let holds = holds(host.asks);
    let told = held(host) != [false; 2] && !is_more(holds, held(host));
    let Some(mut known) = taken.take().filter(|it| it.holds == holds && !told) else {
        return OffProof::None;
    };
    match machine.target {
        Some((Power::Off, _)) => known.seen = (false, false),
        None if machine.shows_on() => return OffProof::None,
        None if machine.error => return OffProof::Failed,
        // A shutdown ends before that is long ago.
        None => known.seen = (true, known.seen.0 && !machine.is_closing()),
        Some(_) => return OffProof::None,
    }
    *taken = Some(known);
    match known {
        Taken { again: true, .. } => OffProof::Twice,
        Taken { seen: (_, true), .. } => OffProof::Once(Duration::ZERO),
        _ => OffProof::Once(Duration::from_secs(3)),
    }
}

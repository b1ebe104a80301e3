//! What a replica reads, and what it remembers of the node between two passes.

use std::time::Duration;

use api_types::metal3::{KeySet, ProvisioningState};
use bmo_reboot::model::{Change, Failures, Host, Node, NodeSeen, Observed, OffProof, Pause};
use bmo_reboot::reason::Reason;
use bmo_reboot::record::{Managed, RebootProgress};
use bmo_reboot::requests::Requests;
use bmo_reboot::text;
use controller_kit::engine::ObjectKey;
use ironic::Power;
use k8s_openapi::jiff::Timestamp;

use super::machine::Machine;
use super::{AGES, KEYS, NOW, Stamps, Stored, Told};

/// What a list has shown of the node, if it stands for a look: it began after the host's version was there, and no pass has
/// rested on it. It is forgotten with every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Known(Option<Machine>);

impl Known {
    /// A list showed it. A failure is not read from lists.
    pub(super) fn listed(machine: Machine) -> Self {
        Self((!machine.error).then_some(machine))
    }

    /// What stands for a look.
    pub(super) fn for_pass(self) -> Option<Machine> {
        self.0
    }
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap_or_default()
}

fn view(stored: &Stored) -> Host {
    let asks = KEYS.iter().zip(stored.asks).filter(|(_, ask)| *ask > 0);
    let value = |ask| if ask == 2 { r#"{"mode":"hard"}"# } else { "" };
    let (pending, last) = match stored.stamps {
        Stamps::None => (None, None),
        Stamps::Accepted => (Some(at(-5_000)), Some(at(-9_000))),
        Stamps::Done => (Some(at(-9_000)), Some(at(-5_000))),
    };
    let progress = stored.told.map(|Told { rebooting, reason, hard, age, held }| {
        let step = RebootProgress::new(reason, at(-AGES[usize::from(age)]));
        let held = KEYS[1..].iter().zip(held).filter(|(_, held)| *held).map(|(key, _)| *key);
        RebootProgress { rebooting, hard, held: KeySet::of(held), ..step }
    });
    let managed = Managed { managed: true, reason: Reason::Managed, message: text::managed(false) };
    let written = Change { progress, managed: Some(managed), ..Change::default() };
    let mut host = Host {
        key: ObjectKey { namespace: "n".to_owned(), name: "h".to_owned() },
        uid: "u".to_owned(),
        version: String::new(),
        generation: 1,
        selected: true,
        paused: Pause::No,
        brings_status: false,
        detached: false,
        deleting: false,
        state: ProvisioningState::Provisioned,
        credentials: true,
        online: true,
        disable_power_off: false,
        needs_operator: false,
        cleared: false,
        registering: false,
        node: "node".to_owned(),
        shared_with: None,
        requests: Requests::of(asks.map(|(key, ask)| (*key, value(ask)))),
        powered_on: stored.powered_on,
        pending,
        last,
        failures: if stored.failed { Failures::OfPower(1) } else { Failures::None },
        answered: None,
        only_record: false,
        other_writer: false,
        conditions: Vec::new(),
    };
    host.conditions = written.conditions(&host, at(-9_000));
    host
}

/// Of what is Ironic's turn the lists tell.
pub(super) fn seen(
    stored: &Stored,
    machine: Machine,
    off_before: bool,
    off_proof: OffProof,
) -> Observed {
    let off = machine.shows_off();
    let node = NodeSeen::Seen(Node {
        power: if machine.shows_on() { Power::On } else { Power::Off },
        target: machine.target.map(|(target, _)| target),
        engaged: None,
        last_error: machine.error.then(|| "it broke".to_owned()),
        disable_power_off: false,
        registration: None,
        changed: None,
        maintenance: false,
        off_for: off.then(|| Duration::from_secs(if off_before { 100 } else { 0 })),
        off_proof,
        spared: None,
    });
    Observed { host: Some(view(stored)), node, soft_free: true, pace: None }
}

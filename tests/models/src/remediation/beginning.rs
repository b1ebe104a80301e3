//! What the world begins with.

use std::time::Duration;

use remediation::history::History;
use remediation::request::{Backup, Group, Owner, Request, Standing, Strategy};
use remediation::seen::{Host, Machine, Node, Taint};

use super::LIMIT;

/// What a node has of its administrator, and a successor does not.
pub(super) const LABELS: &str = r#"{"rack":"7"}"#;

pub(super) fn request() -> Request {
    Request {
        group: Group::Ours,
        namespace: "ns".to_owned(),
        name: "m".to_owned(),
        uid: "uid".to_owned(),
        version: String::new(),
        generation: 1,
        deleting: None,
        paused: false,
        finalizer: false,
        theirs: false,
        others: Vec::new(),
        transition: None,
        label: None,
        owner: Some(Owner { name: "m".to_owned(), uid: "m".to_owned() }),
        cluster: None,
        strategy: Ok(Strategy { retries: LIMIT, timeout: Duration::from_secs(300) }),
        standing: Standing::default(),
        backup: None,
    }
}

pub(super) fn machine() -> Machine {
    Machine {
        name: "m".to_owned(),
        uid: "machine".to_owned(),
        cluster: "c".to_owned(),
        deleting: None,
        kept: false,
        paused: false,
        skipped: false,
        owned: true,
        control_plane: false,
        metal: true,
        node: Some("n".to_owned()),
        provider_id: None,
        told: false,
        external: None,
        external_since: None,
        healthy: None,
        healthy_since: None,
        ails: false,
        complaints: Vec::new(),
        failing: None,
    }
}

/// `on` is what the status says.
pub(super) fn host(on: bool) -> Host {
    Host {
        name: "h".to_owned(),
        ours: true,
        paused: false,
        unmanaged: None,
        provisioned: true,
        online: true,
        power_off_disabled: false,
        held: false,
        powered_on: on,
        confirmed: false,
        held_off_at: None,
        read_off: false,
        has_room: false,
        in_cycle: false,
        looked_at: true,
        holds: Vec::new(),
        unreachable: None,
        servicing: false,
        marked: false,
        history: History::default(),
    }
}

pub(super) fn node() -> Node {
    Node {
        uid: "node".to_owned(),
        foreign: None,
        deleting: false,
        ready: false,
        conditions: Vec::new(),
        kubelet: "0".to_owned(),
        heard: None,
        taint: Taint::None,
        busy: 0,
        backup: Backup { labels: LABELS.to_owned(), annotations: "{}".to_owned() },
    }
}

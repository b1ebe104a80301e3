//! What `host` and `pool` show beside the chain. Pure.

use api_types::hive::{ClusterClaim, ClusterPool, EntryState};
use api_types::metal3::BareMetalHost;
use api_types::names::ferrite::{POWER, POWER_MANAGED};
use bmo_reboot::record::Record;
use bmo_reboot::requests::{Request, Requests};
use k8s_openapi::jiff::Timestamp;
use remediation::history::History;
use serde::Serialize;

use crate::holding::{Progress, progress};
use crate::links::who_has;
use crate::model::{Object, Seen};

/// A host, who has it, and who holds its power.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostReport {
    pub(crate) object: Object,
    /// The provisioning state.
    pub(crate) state: String,
    pub(crate) online: bool,
    pub(crate) powered_on: bool,
    /// Who has it, or for whom it is reserved.
    pub(crate) user: String,
    /// Whether its power is handed to `bmo-reboot`.
    pub(crate) handed_over: bool,
    pub(crate) holds: Vec<Hold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_powered_on: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pending_reboot_since: Option<Timestamp>,
    /// Remediation attempts, oldest first.
    pub(crate) attempts: Vec<Attempt>,
}

/// A request for a reboot.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hold {
    /// The annotation.
    pub(crate) key: String,
    /// Whether it asks for the power to be cut.
    pub(crate) hard: bool,
    /// Whether `bmo-reboot` proves that the host is held off for it.
    pub(crate) proven: bool,
}

/// A remediation attempt.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    pub(crate) machine: String,
    pub(crate) number: u32,
    pub(crate) asked: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) off: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) released: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
}

pub(crate) fn of_host(host: &BareMetalHost) -> HostReport {
    let status = host.status.clone().unwrap_or_default();
    let record = Record::of(&status.conditions);
    let power = record.known().map(|it| it.power.clone()).unwrap_or_default();
    let (pending, last) = power.stamps(&status.provisioning);
    let requests = Requests::of(host.reboot_requests());
    let hold = |it: &Request| Hold {
        key: it.key.clone(),
        hard: it.is_hard(),
        proven: progress(host, &it.key) == Progress::Proven,
    };
    let attempts = History::of(host).0.into_iter().map(|it| Attempt {
        machine: it.machine,
        number: it.number + 1,
        asked: it.asked,
        off: it.off,
        released: it.released,
        ended: it.ended,
        result: it.result,
    });
    HostReport {
        object: Object::of("BareMetalHost", &host.metadata),
        state: status.provisioning.state.as_str().to_owned(),
        online: host.spec.online,
        powered_on: status.powered_on,
        user: who_has(host),
        handed_over: host.label(POWER) == Some(POWER_MANAGED),
        holds: requests.iter().map(hold).collect(),
        last_powered_on: last,
        pending_reboot_since: pending,
        attempts: attempts.collect(),
    }
}

/// A pool, its entries and its claims.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolReport {
    pub(crate) object: Object,
    pub(crate) wanted_size: i32,
    pub(crate) size: i32,
    pub(crate) ready: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_size: Option<i32>,
    /// Claims of the pool; nothing where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claims: Option<usize>,
    /// Those that have no cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_claims: Option<usize>,
    pub(crate) entries: Vec<PoolEntry>,
}

/// An entry of an inventory.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolEntry {
    pub(crate) name: String,
    pub(crate) status: String,
    /// Attempts that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<String>,
}

pub(crate) fn of_pool(pool: &ClusterPool, seen: &Seen) -> PoolReport {
    let status = pool.status.clone().unwrap_or_default();
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let claims: Option<Vec<_>> = seen
        .claims
        .here()
        .map(|all| all.iter().filter(|it| it.spec.cluster_pool_name == name).collect());
    let is_waiting = |it: &&&ClusterClaim| it.spec.namespace.as_deref().unwrap_or("").is_empty();
    let entry = |(name, state): (String, EntryState)| PoolEntry {
        name,
        status: state.status.as_str().to_owned(),
        attempts: state.attempts,
        cluster: state.cluster_deployment_ref.and_then(|it| it.name),
        last_failure: state.last_failure.and_then(|it| it.reason),
    };
    PoolReport {
        object: Object::of("ClusterPool", &pool.metadata),
        wanted_size: pool.spec.size,
        size: status.size,
        ready: status.ready,
        max_size: pool.spec.max_size,
        claims: claims.as_ref().map(Vec::len),
        waiting_claims: claims.map(|all| all.iter().filter(is_waiting).count()),
        entries: status.inventory.into_iter().map(entry).collect(),
    }
}

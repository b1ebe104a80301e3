//! What a resource's status says about machines.

use api_types::metal3::{BareMetalHostDiscoveryStatus, DiscoveryCounts, ListedHost};
use controller_kit::engine::Reason as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::inventory::Facts;
use crate::machine::Machine;
use crate::model::{HostPlan, Report, Verdict};
use crate::node_id::NodeId;
use crate::reason::{self, Notice, Reason, Sort};
use crate::text::{self, ONLY_ITS_WORD};

/// Machines that one list holds; the counts say how many there are.
pub const LONGEST_LIST: usize = 100;

/// Addresses that are told of one machine.
const MOST_MACS: usize = 32;

/// Counts and lists of the resource at this place. Nothing is told of a machine that is gone; `known` is how
/// many nodes of Ironic are hosts and `made` how many of them this resource made.
pub fn report<'a>(
    at: usize,
    plan: &'a HostPlan,
    machine_of: impl Fn(NodeId) -> Option<&'a Machine>,
    known: u32,
    made: u32,
) -> Report {
    let all = plan.verdicts.iter().filter(|it| it.resource == Some(at));
    let all: Vec<_> = all.filter_map(|it| Some((it, machine_of(it.node)?))).collect();
    let with = |sort: Sort| all.iter().filter(|(it, _)| it.sort() == sort).copied().collect();
    let [pending, failures, conflicts]: [Vec<_>; 3] =
        [Sort::Pending, Sort::Failed, Sort::Conflicting].map(with);
    let doubtful = all.iter().filter(|(it, _)| it.doubtful);
    Report {
        counts: DiscoveryCounts {
            known: count(known),
            created: count(made),
            pending: count(pending.len()),
            failed: count(failures.len()),
            conflicting: count(conflicts.len()),
        },
        // A queue is read from its beginning. Failures are not: a node whose inspection failed may stay for ever, and a hundred
        // of those would hide what fails today.
        pending: listed(pending.into_iter()),
        failures: listed(failures.into_iter().rev()),
        conflicts: listed(conflicts.into_iter().rev()),
        doubtful: doubtful.map(|(it, _)| it.node.to_string()).collect(),
        ..Report::default()
    }
}

/// Why machines of the resource at this place become no hosts though they should, beside so many nodes that found no place:
/// reason and message of `Ready`. The first that applies.
pub fn trouble(at: usize, plan: &HostPlan, left_out: usize) -> Option<(&'static str, String)> {
    let with = |is_one: &dyn Fn(&Verdict) -> bool| {
        let all = plan.verdicts.iter().filter(|it| it.resource == Some(at) && is_one(it));
        let texts: Vec<&str> = all.filter_map(|it| it.note.as_deref()).collect();
        Some((texts.len(), *texts.iter().min()?))
    };
    let is_unseen = |it: &Verdict| plan.behind.is_some() && it.note == plan.behind;
    if let Some((count, one)) = with(&|it| it.reason == Reason::HostRefused) {
        return Some((Notice::HostsRefused.as_str(), text::hosts_refused(count, one)));
    }
    if let Some((count, one)) = with(&|it| it.reason == Reason::HostFailed || is_unseen(it)) {
        return Some((Notice::HostsFailed.as_str(), text::hosts_failed(count, one)));
    }
    if let Some((_, one)) = with(&|it| it.reason == Reason::BmcAddressUncompared) {
        return Some((Reason::BmcAddressUncompared.as_str(), one.to_owned()));
    }
    let text = || text::too_many_machines(left_out);
    (left_out > 0).then(|| (Notice::TooManyMachines.as_str(), text()))
}

/// The first of these machines, as they are listed.
fn listed<'a>(machines: impl Iterator<Item = (&'a Verdict, &'a Machine)>) -> Vec<ListedHost> {
    machines.take(LONGEST_LIST).map(|(verdict, machine)| entry(verdict, machine)).collect()
}

impl Report {
    /// As a status shows it. A machine that was listed before keeps its time, so that a status which says the same is the
    /// same and need not be written. What else the status has stays as it is.
    pub fn status(
        &self,
        before: &BareMetalHostDiscoveryStatus,
        now: Timestamp,
    ) -> BareMetalHostDiscoveryStatus {
        let timed = |list: &[ListedHost], listed: &[ListedHost]| {
            list.iter().map(|it| since(it.clone(), listed, now)).collect()
        };
        BareMetalHostDiscoveryStatus {
            counts: Some(self.counts.clone()),
            pending: timed(&self.pending, &before.pending),
            failures: timed(&self.failures, &before.failures),
            conflicts: timed(&self.conflicts, &before.conflicts),
            ..before.clone()
        }
    }
}

/// Since when a machine is listed for its reason.
fn since(entry: ListedHost, listed: &[ListedHost], now: Timestamp) -> ListedHost {
    let since = same_in(listed, &entry).and_then(|it| it.since.clone());
    ListedHost { since: since.or(Some(Time(now))), ..entry }
}

/// The entry of a list about the same machine and for the same reason.
pub(crate) fn same_in<'a>(list: &'a [ListedHost], entry: &ListedHost) -> Option<&'a ListedHost> {
    list.iter().find(|it| it.node_id == entry.node_id && word(it) == word(entry))
}

/// The reason for which a machine is listed, as one word.
pub fn word(entry: &ListedHost) -> &str {
    reason::word(entry.reason.as_deref().unwrap_or_default())
}

fn count(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

fn entry(verdict: &Verdict, machine: &Machine) -> ListedHost {
    let facts = machine.inventory.facts();
    let mut macs: Vec<_> = machine.ports.iter().map(|port| port.mac).collect();
    macs.sort_unstable();
    macs.truncate(MOST_MACS);
    let node_id = verdict.node.to_string();
    let reason = verdict.reason.as_str();
    // Also one that it cannot have now: the hosts in the way are named beside it.
    let wanted = verdict.named.as_ref().map(|it| &it.name);
    ListedHost {
        proposed_name: verdict.name.as_ref().or(wanted).cloned(),
        macs: macs.iter().map(ToString::to_string).collect(),
        bmc_address: facts.and_then(Facts::bmc_text),
        proposed_bmc: verdict.bmc.clone(),
        manufacturer: facts.and_then(|it| it.manufacturer.as_deref()).map(str::to_owned),
        product: facts.and_then(|it| it.product.as_deref()).map(str::to_owned),
        reason: Some(match told(verdict) {
            Some(text) => format!("{reason}: {text}"),
            None => reason.to_owned(),
        }),
        since: None,
        node_id,
    }
}

/// What stands behind the reason: the hosts in the way, and what is said of them, or Ironic's own words.
fn told(verdict: &Verdict) -> Option<String> {
    let hosts: Vec<_> = verdict.hosts.iter().map(ToString::to_string).collect();
    let hosts = (!hosts.is_empty()).then(|| hosts.join(", "));
    let doubt = verdict.doubtful.then(|| ONLY_ITS_WORD.to_owned());
    let all: Vec<String> = hosts.into_iter().chain(doubt).chain(verdict.note.clone()).collect();
    (!all.is_empty()).then(|| all.join(": "))
}

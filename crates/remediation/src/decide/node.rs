//! What is known of the node, and what people are told of it.

use k8s_openapi::jiff::Timestamp;

use super::{Case, GRACE};
use crate::history::{Entry, History};
use crate::seen::{Host, Machine, Node, NodeCondition, NodeSeen, Taint, UNKNOWN};
use crate::settings::Fencing;
use crate::text;

/// What stands for the word of a node that is not there: whatever says something later is another one.
const NOBODY: &str = "none";

/// Whether the node that is awaited is back; nothing before anybody looked.
pub(super) fn has_returned(case: &Case<'_>, machine: &Machine, since: Timestamp) -> Option<bool> {
    match &case.seen.node {
        NodeSeen::NotAsked if machine.node.is_some() => None,
        NodeSeen::Here(node) => Some(is_ready(node) && is_new(case, node, since)),
        NodeSeen::NoAccess(_) => Some(is_called_well(case, machine, since)),
        NodeSeen::NotAsked | NodeSeen::NoName | NodeSeen::Gone => Some(false),
    }
}

/// Whether the health check, which may see what we cannot, says that the node is back. Where it cannot look either, what it
/// said last stays: only what is later than the release of the host is about what came after that.
fn is_called_well(case: &Case<'_>, machine: &Machine, since: Timestamp) -> bool {
    let last = case.seen.last().filter(|it| it.has_recovered());
    let begun = case.entry().or(last).map_or(since, |it| it.released.unwrap_or(it.asked));
    machine.healthy == Some(true) && machine.healthy_since.is_none_or(|it| it >= begun)
}

/// Who says that the node is back, in words.
pub(super) fn returned(case: &Case<'_>) -> &'static str {
    match &case.seen.node {
        NodeSeen::NoAccess(_) => text::WELL_AGAIN,
        _ => text::READY_AGAIN,
    }
}

/// Whether the node is ready now; nothing before anybody looked. A health check that complains of more than readiness is believed.
pub(super) fn is_well(case: &Case<'_>, machine: &Machine) -> Option<bool> {
    match &case.seen.node {
        NodeSeen::NotAsked if machine.node.is_some() => None,
        NodeSeen::Here(node) => Some(is_ready(node) && !ails(case, machine, node)),
        _ => Some(false),
    }
}

/// Whether a node that was awaited since then has come up, although it may have said nothing new: its kubelet may do no more than
/// renew its lease. Nothing before anybody looked.
pub(super) fn has_come_up(case: &Case<'_>, machine: &Machine, since: Timestamp) -> Option<bool> {
    Some(is_well(case, machine)? && case.age(since) >= GRACE)
}

/// Whether the health check complains of something that a node that is ready may have, too. While a request is there it does
/// not write what it finds: what stands on the Machine may be over, and more may have come to it. So what it says counts
/// only while it is so, and what has lasted for as long as a node may take counts although nothing is said of it.
pub(super) fn ails(case: &Case<'_>, machine: &Machine, node: &Node) -> bool {
    let lasts = |since: Option<Timestamp>| since.is_some_and(|it| case.age(it) >= case.patience());
    let is_meant = |it: &NodeCondition| {
        let said = |(kind, status): &(String, String)| *kind == it.kind && *status == it.status;
        machine.complaints.iter().any(said) || (it.is_trouble() && lasts(it.since))
    };
    machine.healthy == Some(false)
        && (machine.ails || lasts(machine.failing) || node.conditions.iter().any(is_meant))
}

/// One that is being deleted is not what stays: its successor is awaited, which has to get its labels.
fn is_ready(node: &Node) -> bool {
    node.ready && node.foreign.is_none() && !node.deleting
}

/// Whether the node has said something after its host was on again.
fn is_new(case: &Case<'_>, node: &Node, since: Timestamp) -> bool {
    let after = |moment: Timestamp| node.heard.is_some_and(|heard| heard >= moment);
    let Some(entry) = case.entry() else {
        let last = case.seen.last();
        let cut_off = last.is_some_and(Entry::has_recovered);
        // Somebody took the record away, or it says that this was decided before.
        return cut_off || after(since);
    };
    match &entry.kubelet {
        // Off, no kubelet says anything: what it said before is no news.
        Some(known) => *known != node.kubelet,
        // Nobody could look while the host was off.
        None => after(entry.released.unwrap_or(since)),
    }
}

/// The record with what the node says at first sight, where nobody could look while its host was off: from then on a
/// change is news.
pub(super) fn first_sight(case: &Case<'_>, host: &Host) -> Option<History> {
    let NodeSeen::Here(node) = &case.seen.node else { return None };
    let unknown = node.foreign.is_none() && case.entry()?.kubelet.is_none();
    let known = |it: &mut Entry| it.kubelet = Some(node.kubelet.clone());
    unknown.then(|| host.history.changed(&case.request.uid, known))
}

/// What the kubelet said last, while the host is off.
pub(super) fn last_word(case: &Case<'_>) -> Option<String> {
    match &case.seen.node {
        NodeSeen::Here(node) => Some(node.kubelet.clone()),
        NodeSeen::NoAccess(_) => None,
        NodeSeen::Gone | NodeSeen::NoName | NodeSeen::NotAsked => Some(NOBODY.to_owned()),
    }
}

/// What keeps us from seeing the node, in words.
pub(super) fn trouble(case: &Case<'_>) -> Option<String> {
    match &case.seen.node {
        NodeSeen::NoAccess(why) => Some(text::unseen(why)),
        NodeSeen::Here(node) => {
            let foreign = node.foreign.as_deref().map(text::foreign);
            // Before the host is on that is what we wanted.
            let leaves = node.deleting && case.standing.awaits_node().is_some();
            foreign.or_else(|| leaves.then(|| text::LEAVING.to_owned()))
        }
        NodeSeen::NotAsked | NodeSeen::NoName | NodeSeen::Gone => None,
    }
}

/// The same after another sentence.
pub(super) fn but(case: &Case<'_>) -> String {
    trouble(case).map(|it| text::but(&it)).unwrap_or_default()
}

/// What was done about the node, in words. It may just be getting its taint.
pub(super) fn part(case: &Case<'_>, tainting: bool) -> String {
    let fencing = if case.is_plain() { Fencing::None } else { case.policy.fencing };
    match (&case.seen.node, fencing) {
        (_, Fencing::None) => text::LEFT_ALONE.to_owned(),
        (NodeSeen::NotAsked | NodeSeen::NoName, _) => text::NO_NODE.to_owned(),
        (NodeSeen::NoAccess(why), _) => text::left_alone(why),
        (NodeSeen::Gone, _) => text::NODE_DELETED.to_owned(),
        (NodeSeen::Here(node), _) if node.foreign.is_some() => {
            text::left_alone(text::ANOTHER_MACHINES)
        }
        (NodeSeen::Here(_), Fencing::Delete) => text::NODE_STAYS.to_owned(),
        (NodeSeen::Here(Node { taint: Taint::None | Taint::TakenOff, .. }), Fencing::Taint)
            if !tainting =>
        {
            text::left_alone(text::NOT_TAINTED)
        }
        (NodeSeen::Here(node), Fencing::Taint) if node.busy == UNKNOWN => {
            text::OUT_OF_SERVICE_UNLISTED.to_owned()
        }
        (NodeSeen::Here(node), Fencing::Taint) if node.busy > 0 => {
            text::out_of_service_with(node.busy)
        }
        (NodeSeen::Here(_), Fencing::Taint) => text::OUT_OF_SERVICE.to_owned(),
    }
}

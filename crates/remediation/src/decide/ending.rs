//! How a request ends: with success, with a machine that is handed to its owner, or because somebody ended it.

use std::time::Duration;

use api_types::remediation::{Phase, Step};
use controller_kit::engine::Reason as _;
use k8s_openapi::jiff::Timestamp;

use super::attempt::{POLL, again, fail, failure, poll};
use super::first_boot::boots_after;
use super::{Case, GRACE, hindrance, node, out_of_turn, say_why_not_again, wait};
use crate::decision::{Act, Decision, HostWrite};
use crate::history::{Entry, History};
use crate::leftover::TOLD_WITHIN;
use crate::model::ClusterSeen;
use crate::reason::Reason;
use crate::request::{Said, Standing};
use crate::seen::{Host, Machine, Node, NodeSeen, Unmanaged};
use crate::settings::Fencing;
use crate::text;

/// How soon the health check has written down what it withdrew a request for.
const WITHDRAWAL_NOTED: Duration = Duration::from_secs(5);

/// The request is being deleted: a host that is off is switched on first, then the rest is undone.
pub(super) fn withdrawn(case: &Case<'_>) -> Option<Decision> {
    case.request.deleting?;
    if !case.request.finalizer && !is_left(case) {
        let waits = case.standing.phase == Some(Phase::Waiting);
        let decision = if waits && case.seen.last().is_some_and(Entry::has_recovered) {
            stopped(case, Reason::Recovered, text::READY_AND_WITHDRAWN)
        } else {
            stopped(case, Reason::Withdrawn, text::WITHDRAWN)
        };
        return Some(Decision { reason: Reason::AtRest, ..decision });
    }
    // Who withdraws it is often the health check, which has seen the node ready before anybody looked from here.
    if let Some(host) = case.own_host().filter(|it| !it.held)
        && let Some(since) = case.standing.awaits_node()
        && let Some(machine) = case.machine().filter(|it| it.deleting.is_none())
    {
        match node::has_returned(case, machine, since) {
            None => return Some(Decision::look_at_node(Reason::Withdrawn)),
            Some(true) => return Some(undo(case, Reason::Recovered)),
            Some(false) => {}
        }
        // It withdraws the request first, and writes what it has seen to the Machine just after that.
        let open = host.history.open(&case.request.uid).is_some();
        let is_blind = open && matches!(case.seen.node, NodeSeen::NoAccess(_));
        let soon = case.left(case.request.deleting?, WITHDRAWAL_NOTED);
        if let Some(left) = soon.filter(|_| is_blind && machine.healthy == Some(false)) {
            return Some(Decision::rest(Reason::Withdrawn).again(left));
        }
    }
    Some(undo(case, Reason::Withdrawn))
}

/// A request that another installation looks after, or nobody, is left as it is.
pub(super) fn not_ours(case: &Case<'_>) -> Option<Decision> {
    let is_begun = case.seen.last().is_some_and(|it| it.filter == case.policy.watch_filter);
    let is_ours = case.policy.selects(case.request) || (is_begun && case.request.finalizer);
    (!is_ours).then(|| Decision::rest(Reason::AtRest))
}

/// Somebody took the label of this installation from a request. What was begun here nobody else would undo; anything else about
/// it is left to others.
pub(super) fn not_ours_any_more(case: &Case<'_>) -> Option<Decision> {
    if case.policy.selects(case.request) {
        return None;
    }
    let mut decision = undo(case, Reason::Withdrawn);
    if case.request.deleting.is_none() && decision.acts.last() == Some(&Act::RemoveFinalizer) {
        // Without the finalizer nobody looks at it here any more.
        let at = decision.acts.len() - 1;
        decision.acts.splice(at..at, stopped(case, Reason::Withdrawn, text::DISOWNED).acts);
    }
    Some(decision)
}

/// Nothing is done any more. A request that somebody else keeps there says so, and not how far it was when it was stopped.
fn stopped(case: &Case<'_>, reason: Reason, text: &str) -> Decision {
    let (standing, decision) = (case.standing, Decision::rest(reason));
    let is_refused = standing.said.as_ref().is_some_and(|it| it.reason.is_refusal());
    if !standing.is_under_way() && !is_refused {
        return decision;
    }
    // At `Failed` CAPM3 may have left it, which is no end.
    let open =
        matches!(standing.phase, Some(Phase::Running | Phase::Failed)) && !standing.is_over();
    let phase = if open { Some(Phase::Waiting) } else { standing.phase.clone() };
    let said = standing.saying(Some(reason == Reason::Recovered), reason, text);
    decision.act(Act::Say(Standing { phase, step: None, since: None, ..said }))
}

/// Handed over, or given up: nothing of ours stays.
pub(super) fn finished(case: &Case<'_>) -> Option<Decision> {
    if !case.standing.is_over() {
        return None;
    }
    if let Some(decision) = switched_off_later(case) {
        return Some(decision);
    }
    if case.request.finalizer {
        return Some(undo(case, Reason::Exhausted));
    }
    // An owner that does not replace its machine is what people have to see, and a machine that only they can replace.
    let reason = match case.machine().filter(|it| it.deleting.is_none()) {
        Some(machine) if machine.owned => Reason::Exhausted,
        Some(_) if case.standing.phase == Some(Phase::Failed) => Reason::Failed,
        _ => Reason::AtRest,
    };
    Some(tell_again(case).unwrap_or_else(|| Decision::rest(reason)))
}

/// The host of a control plane was left on, and by now its Machine is being deleted and nobody keeps it any more.
fn switched_off_later(case: &Case<'_>) -> Option<Decision> {
    let (host, machine) = (case.own_host()?, case.machine()?);
    let uid = &case.request.uid;
    let stays_on = host.history.last(uid).is_some_and(|it| it.stays_on);
    // Whoever took the mark away has repaired it.
    let may_go = host.online && !host.power_off_disabled;
    let is_due = machine.deleting.is_some() && !machine.kept && may_go && host.marked;
    if !stays_on || !is_due || !case.policy.switch_off {
        return None;
    }
    // Once: whoever clears the host may want it on for that.
    let history = Some(host.history.changed(uid, |it| it.stays_on = false));
    let write = HostWrite { offline: true, history, ..HostWrite::default() };
    let decision = Decision::rest(Reason::MachineGone).host(write);
    Some(decision.note(false, Reason::MachineGone, text::SWITCHED_OFF).again(Duration::ZERO))
}

/// Whether the host stays on for now. Others may depend on a member of a control plane that a health check calls unhealthy:
/// whether it can be spared is for its owner to say, who deletes the Machine, and keeps it until its member is out of etcd.
fn is_kept_on(machine: &Machine) -> bool {
    machine.control_plane && (machine.kept || machine.deleting.is_none())
}

/// The owner does not know of a machine that was handed to it. CAPM3 told it in a way that owners since Cluster API 1.11 do
/// not look at; and somebody may have wiped the condition.
fn tell_again(case: &Case<'_>) -> Option<Decision> {
    let (host, machine) = (case.own_host()?, case.machine()?);
    let handed_over = case.standing.phase == Some(Phase::DeletingMachine);
    let waits = machine.owned && machine.deleting.is_none() && machine.healthy == Some(false);
    if !handed_over || !waits || machine.told {
        return None;
    }
    let mark = marking(case, host, host.history.clone()).map(Act::Host);
    let tell = Act::TellOwner(text::ALL_FAILED.to_owned());
    Some(Decision::rest(Reason::Exhausted).also(mark).act(tell))
}

/// The host says that all tries were used up: what comes after that may have been cut off.
pub(super) fn go_on_handing_over(case: &Case<'_>) -> Option<Decision> {
    let host = case.own_host()?;
    let machine = case.machine()?;
    // An owner may take its time, and the health check ask again meanwhile: the host is off because we switched it off.
    let by_us = !host.online && host.marked && host.history.gave_up(&machine.uid).is_some();
    let exhausted = host.history.is_exhausted(&case.request.uid);
    let again = by_us && machine.healthy == Some(false) && machine.deleting.is_none();
    (exhausted || again).then(|| hand_over(case, host, Reason::Exhausted))
}

/// The Machine, or all of its Cluster, is going or gone.
pub(super) fn machine_gone(case: &Case<'_>) -> Option<Decision> {
    let missing = match (case.machine(), case.seen.cluster) {
        (None, _) => Some(Said::no(Reason::MachineMissing, gone(case))),
        (Some(_), ClusterSeen::Missing) => {
            Some(Said::no(Reason::ClusterMissing, text::CLUSTER_MISSING))
        }
        (Some(machine), ClusterSeen::Here { .. }) if machine.deleting.is_some() => None,
        _ => return None,
    };
    if case.request.finalizer || is_left(case) {
        let reason = missing.map_or(Reason::MachineGone, |it| it.reason);
        return Some(undo(case, reason));
    }
    let rest = || stopped(case, Reason::MachineGone, text::MACHINE_GOES);
    Some(missing.map_or_else(rest, |it| wait(case, it)))
}

/// Which Machine is not there. A later one of its name was not asked about.
fn gone(case: &Case<'_>) -> String {
    let name = case.request.machine();
    let owner = case.request.owner.as_ref().map(|it| it.uid.as_str());
    match owner.or_else(|| case.seen.last()?.machine_uid.as_deref()) {
        Some(uid) => text::machine_gone(name, uid),
        None => text::no_machine(name),
    }
}

/// The node was back. The health check withdraws the request when it agrees; where it does not, there is another try.
pub(super) fn succeeded(case: &Case<'_>) -> Option<Decision> {
    if !case.standing.has_succeeded() {
        return None;
    }
    let fails_anew = fails_anew(case);
    if is_left(case) || (case.request.finalizer && !fails_anew) {
        return Some(undo(case, Reason::Recovered));
    }
    let rest = Decision::rest(Reason::Recovered);
    let machine = case.machine()?;
    let host = case.own_host()?;
    // The health check said once that the machine is well, and left the request there: that is what it does while too many of
    // its machines fail.
    let agreed = case.standing.since.is_none() || fails_anew;
    match machine.healthy {
        Some(true) => return Some(agree(case)),
        Some(false) => {}
        None => return Some(well_again(case)),
    }
    let since = case.standing.since.unwrap_or(case.now);
    if let Some(left) = case.left(since, case.patience())
        && !agreed
    {
        return Some(rest.again(left));
    }
    // What the health check says may be old, or nobody's any more: a node that is ready is not taken away again, unless
    // it complains of something else.
    match &case.seen.node {
        NodeSeen::NotAsked if machine.node.is_some() => {
            Some(Decision::look_at_node(Reason::Recovered))
        }
        NodeSeen::Here(node)
            if node.ready && node.foreign.is_none() && !node::ails(case, machine, node) =>
        {
            Some(well_again(case).again(GRACE))
        }
        NodeSeen::NoAccess(_) if !agreed => Some(rest.again(POLL.1)),
        _ => Some(try_again(case, host, agreed || case.boots_anew())),
    }
}

/// Another try of a machine that fails again, with all of them where that is another failure; or why it cannot begin.
fn try_again(case: &Case<'_>, host: &Host, anew: bool) -> Decision {
    if let Some(refusal) = super::unfit(case) {
        return say_why_not_again(case, refusal).again(GRACE);
    }
    // Another failure has its first try, as that of a new request.
    let in_the_way = hindrance(host, &Step::Recover).filter(|_| !anew);
    match out_of_turn(case).or(in_the_way) {
        Some(said) => say_why_not_again(case, said).again(POLL.1),
        None if case.said().is_some_and(boots_after) => await_once_more(case, host, anew),
        None if anew => again(case, host, 0, Reason::StillUnhealthy),
        None => fail(case, host, Reason::StillUnhealthy),
    }
}

/// What was in the way is gone just now, and the node has its time once more. That another failure waits for it is known by its word.
fn await_once_more(case: &Case<'_>, host: &Host, anew: bool) -> Decision {
    let time = case.patience();
    let said = if anew {
        let until = case.now.checked_add(time).unwrap_or(case.now);
        Said::no(Reason::HostBooting, text::booting(&host.name, until))
    } else {
        Said { succeeded: None, reason: Reason::Recovering, message: text::awaiting("") }
    };
    let reason = said.reason;
    let wanted = Standing { since: Some(case.now), said: Some(said), ..case.standing.clone() };
    Decision::rest(reason).act(Act::Say(wanted)).again(time)
}

/// Whether the health check says since the success that the machine is unhealthy, and nobody can look at its node: it has
/// changed its mind, so that this is another failure.
fn fails_anew(case: &Case<'_>) -> bool {
    let Some(machine) = case.machine().filter(|it| it.healthy == Some(false)) else { return false };
    let later = case.standing.since.zip(machine.healthy_since);
    matches!(case.seen.node, NodeSeen::NoAccess(_))
        && later.is_some_and(|(since, said)| said > since)
        && case.own_host().is_some()
        && super::unfit(case).is_none()
}

/// The host says that the node was back, and the request does not, or not any more: whoever was to say it was cut off, its Cluster was
/// away, or somebody wiped its status. It never begins again of itself.
pub(super) fn success_on_host(case: &Case<'_>) -> Option<Decision> {
    let (standing, last) = (case.standing, case.seen.last()?);
    case.own_host()?;
    if standing.awaits_node().is_some() || !last.has_recovered() {
        return None;
    }
    let count = if standing.phase.is_none() { last.number } else { standing.retries };
    let wanted = Standing {
        phase: Some(Phase::Waiting),
        retries: count.min(case.strategy().retries),
        last: standing.last.or(Some(last.asked)),
        step: Some(Step::Done),
        since: Some(case.now),
        ..standing.saying(Some(true), Reason::Recovered, text::REMEMBERED)
    };
    Some(Decision::rest(Reason::Recovered).act(Act::Say(wanted)))
}

/// The health check agrees, so the failure is over. What it complains of from now on is another one, which has all its tries.
fn agree(case: &Case<'_>) -> Decision {
    success(case, Standing { retries: 0, step: None, since: None, ..case.standing.clone() })
}

/// Nothing is to be done about a machine that has recovered.
fn well_again(case: &Case<'_>) -> Decision {
    success(case, Standing { since: case.success_since(), ..case.standing.clone() })
}

/// A success that stands like this. It is called one again where it was waited for another try.
fn success(case: &Case<'_>, wanted: Standing) -> Decision {
    let decision = Decision::rest(Reason::Recovered);
    if case.said() == Some(Reason::Recovered) {
        return decision.also(case.say(wanted));
    }
    let is_said = case.machine().is_some_and(|it| it.external.is_some());
    let wanted = wanted.saying(Some(true), Reason::Recovered, text::READY_MEANWHILE);
    decision.act(Act::Say(wanted)).also(is_said.then_some(Act::Settled))
}

/// Whether anything of ours is on a host although no finalizer says so.
pub(super) fn is_left(case: &Case<'_>) -> bool {
    let open = |host: &Host| host.ours && host.history.open(&case.request.uid).is_some();
    case.seen.hosts().any(|(host, _)| host.held || open(host))
}

/// All tries have failed. The host is marked before the owner is told, or it would be taken for the next machine.
pub(super) fn hand_over(case: &Case<'_>, host: &Host, why: Reason) -> Decision {
    // A pass that comes after one that was cut off has not seen what that one saw.
    let failed = match why {
        Reason::Exhausted => host.history.last(&case.request.uid).and_then(|it| it.cause.clone()),
        why => Some(failure(case, why)),
    };
    // The operator's webhook lets nobody write that a host is to be off which must not be switched off.
    let switches_off = case.policy.switch_off && host.online && !host.power_off_disabled;
    let stays_on = switches_off && case.machine().is_some_and(is_kept_on);
    let history = given_up(case, host).changed(&case.request.uid, |it| {
        // Also where it was cut off before, and the record says it otherwise or not at all.
        (it.stays_on, it.cause) = (stays_on, failed.clone());
    });
    let mark = marking(case, host, history).map(Act::Host);
    let decision = Decision::rest(Reason::Exhausted).also(mark);
    let text = failed.map_or_else(
        || text::ALL_FAILED.to_owned(),
        |failed| text::last_failed(&case.which(), &failed),
    );
    let Some(machine) = case.machine() else { return decision };
    let is_off = switches_off && !stays_on;
    let off = is_off.then(|| HostWrite { offline: true, ..HostWrite::default() });
    give_up_machine(case, machine, decision, &text, off)
}

/// What a host is to say of a machine that is given up: its mark, and this record with the time at which the owner is told, where that
/// is to come. By that time the word is known for ours when the request is gone, also where whoever was to say it was cut off, and
/// somebody says it later.
fn marking(case: &Case<'_>, host: &Host, mut history: History) -> Option<HostWrite> {
    let uid = &case.request.uid;
    let told = history.last(uid).and_then(|it| it.told);
    let is_recent = told.is_some_and(|it| case.age(it) < TOLD_WITHIN / 2);
    if case.machine().is_some_and(|it| !it.told && it.deleting.is_none()) && !is_recent {
        history = history.changed(uid, |it| it.told = Some(case.now));
    }
    let history = Some(history).filter(|it| *it != host.history);
    let is_news = history.is_some() || host.held || !host.marked;
    is_news.then(|| HostWrite { mark: !host.marked, history, ..HostWrite::letting_go(host) })
}

/// The owner of a machine is told that it is given up, then its host is off, where it has one, and what becomes of the machine
/// is said. One that nobody owns is deleted, but for a member of a control plane: whether that can be spared nobody says then.
fn give_up_machine(
    case: &Case<'_>,
    machine: &Machine,
    mut decision: Decision,
    failed: &str,
    off: Option<HostWrite>,
) -> Decision {
    let stays = machine.deleting.is_none();
    if stays && !machine.told {
        decision = decision.act(Act::TellOwner(failed.to_owned()));
    }
    decision = decision.also(off.map(Act::Host));
    let may_delete = case.policy.delete_unowned && !machine.control_plane;
    let (phase, reason, what) = if machine.owned {
        (Phase::DeletingMachine, Reason::Exhausted, text::OWNER_REPLACES)
    } else if may_delete || !stays {
        (Phase::DeletingMachine, Reason::Exhausted, text::UNOWNED_GOES)
    } else {
        (Phase::Failed, Reason::Failed, text::UNOWNED_STAYS)
    };
    if stays && !machine.owned && may_delete {
        // Last: without its Machine nothing would lead to the host any more.
        decision = decision.act(Act::DeleteMachine);
    }
    let message = text::handed_over(failed, what);
    let wanted = Standing {
        phase: Some(phase),
        // The limit may have been lowered below the count.
        retries: case.standing.retries.min(case.strategy().retries),
        step: Some(Step::Done),
        since: Some(case.now),
        ..case.standing.saying(Some(false), reason, &*message)
    };
    decision.act(Act::Say(wanted)).note(true, Reason::Exhausted, message)
}

/// The host is gone, or going, or no longer the machine's: nobody corrects that, and a health check asks for a machine that can never
/// come back. Its owner is told in the end; there is no host to mark, and none that could become the next machine's.
pub(super) fn host_lost(case: &Case<'_>, refusal: &Said) -> Option<Decision> {
    let machine = case.machine().filter(|it| it.healthy == Some(false))?;
    let is_lost = match refusal.reason {
        Reason::HostMissing => true,
        Reason::HostUnmanaged => {
            case.host().is_some_and(|it| it.unmanaged == Some(Unmanaged::Deleting))
        }
        // Objects of a machine that never had a node may not name each other yet.
        Reason::HostNotClaimed => machine.node.is_some(),
        // Nor is a machine lost that is none of Metal3's: somebody asks for the wrong one.
        Reason::HostUnknown => machine.node.is_some() && machine.metal,
        _ => false,
    };
    if !is_lost {
        return None;
    }
    let said = case.standing.said.as_ref().filter(|it| it.reason == refusal.reason)?;
    let since = case.standing.since?;
    if let Some(left) = case.left(since, case.long()) {
        return Some(wait(case, refusal.clone()).again(left));
    }
    let decision = Decision::rest(Reason::Exhausted);
    Some(give_up_machine(case, machine, decision, &said.message, None))
}

/// The history of a host whose machine is given up.
fn given_up(case: &Case<'_>, host: &Host) -> History {
    let (uid, history) = (&case.request.uid, case.ended(host, Reason::Exhausted));
    if history.is_exhausted(uid) {
        return history;
    }
    // Somebody took the record away: what follows must not be forgotten again.
    let asked = case.standing.last.unwrap_or(case.now);
    let mut entry = Entry::begin(uid, case.request.machine(), case.standing.retries, asked);
    entry.machine_uid = case.machine().map(|it| it.uid.clone());
    history.with(entry).ended(uid, Reason::Exhausted, case.now)
}

/// Nothing of ours stays: key, taint, backup, and at last the finalizer. The node's part is bounded.
pub(super) fn undo(case: &Case<'_>, reason: Reason) -> Decision {
    // Of a host that is somebody else's by now only what is ours is taken. Our record on it is ended all the same: later on nobody
    // would know how.
    let held = case.seen.hosts().filter_map(|it| case.letting_go(it, reason));
    let mut decision = Decision::rest(reason).also(held.map(Act::Host));
    if !decision.acts.is_empty() {
        let text = match reason {
            Reason::Recovered => text::of_try(&case.which(), node::returned(case)),
            _ => text::UNDONE.to_owned(),
        };
        decision = decision.note(false, reason, text);
    }
    if !case.request.finalizer {
        return decision;
    }
    let begun = begun(case);
    if begun.is_none() && case.request.deleting.is_none() && !decision.acts.is_empty() {
        // First the host; when it was written, the rest is looked at again.
        return decision.again(Duration::ZERO);
    }
    if let Some(wait) = awaits_host(case) {
        return remember(case, decision, None).again(wait);
    }
    let since = begun.unwrap_or(case.now);
    let marks = give_back(case);
    match what_is_left(case, reason, since) {
        Left::Nothing => {}
        Left::Look => return Decision { needs_node: true, ..decision },
        Left::Wait(wait, since) => return undoing(remember(case, decision, since).again(wait)),
        Left::GivenUp(what) => decision = give_up(case, decision, &what),
    }
    // What is cut off after the record on the host was ended is told to nobody, and its kubelet writes to the node that is
    // back all the time. From a host that is held nothing is taken before it is let go.
    let is_free = !case.seen.hosts().any(|(host, _)| host.held);
    let at = if reason == Reason::Recovered && is_free { 0 } else { decision.acts.len() };
    decision.acts.splice(at..at, marks);
    if is_waited_for(case) {
        // First: the health check writes to the same Machine just now.
        decision.acts.insert(0, Act::Settled);
    }
    decision.act(Act::RemoveFinalizer)
}

/// What is undone of a machine that is well waits, and does not rest: a node that stays out of service for hours is overdue.
fn undoing(decision: Decision) -> Decision {
    // What this pass tells of the success counts as one.
    let is_wait = decision.reason == Reason::Recovered && decision.notes.is_empty();
    if is_wait { Decision { reason: Reason::Undoing, ..decision } } else { decision }
}

/// Whether a request that is withdrawn leaves a Machine that still says that it is waited for. What the Machine says since
/// then, or while another request has a try on its host, is about that other one.
fn is_waited_for(case: &Case<'_>) -> bool {
    let Some((deleting, machine)) = case.request.deleting.zip(case.machine()) else { return false };
    let uid = &case.request.uid;
    let of_another = |it: &Entry| it.ended.is_none() && it.remediation != *uid;
    let is_shared = case.own_host().is_some_and(|it| it.history.0.iter().any(of_another));
    let is_its = super::unfit(case).is_none_or(|it| it.reason != Reason::MachineMismatch);
    machine.external.is_some()
        && machine.external_since.is_none_or(|it| it < deleting)
        && machine.deleting.is_none()
        && is_its
        && !is_shared
}

/// What may be left on the node is said where it outlives the request.
fn give_up(case: &Case<'_>, mut decision: Decision, what: &str) -> Decision {
    let uid = &case.request.uid;
    // What a deleted node had goes with the request. A taint is looked for until it is gone.
    let tainted = case.seen.cluster_name().filter(|_| may_be_tainted(case));
    for (host, stray) in case.seen.hosts() {
        let has_ended = host.history.open(uid).is_none();
        // A host that was lost, and that somebody paused since: there the event is all that tells it.
        if has_ended && !host.paused && host.history.last(uid).is_some_and(|it| it.left.is_none()) {
            let history = Some(host.history.leaving(uid, what, tainted));
            decision = decision.host(HostWrite { stray, history, ..HostWrite::default() });
        }
    }
    decision.note(true, Reason::Undoing, text::not_undone(what))
}

/// Whether something of ours may be on the node that cannot be looked at now.
pub(super) fn is_owed(case: &Case<'_>) -> bool {
    let is_blind = matches!(case.seen.node, NodeSeen::NoAccess(_));
    is_blind && (case.request.backup.is_some() || may_be_tainted(case))
}

fn may_be_tainted(case: &Case<'_>) -> bool {
    let last = case.seen.last();
    let plain = last.map_or(case.policy.plain, |it| it.plain);
    // A record of an earlier release does not say it.
    let fences = case.policy.fencing != Fencing::None || last.is_some_and(|it| it.taints);
    fences && !plain && case.request.backup.is_none() && case.seen.node_name().is_some()
}

/// Since when the node is waited for, where that has begun: not before its host is on, which may take longer. It begins anew
/// when the request is withdrawn.
fn begun(case: &Case<'_>) -> Option<Timestamp> {
    let is_said = matches!(case.step(), Some(Step::Undo | Step::Done));
    let since = case.standing.since.filter(|_| is_said)?;
    Some(case.request.deleting.map_or(since, |it| it.max(since)))
}

/// What is waited for has a beginning that a restart does not forget, and does not go on saying how far the try was. While the
/// host is waited for, that of the node is still to come.
fn remember(case: &Case<'_>, decision: Decision, since: Option<Timestamp>) -> Decision {
    let standing = case.standing;
    let is_old = case.request.standing.is_under_way() && case.step() != Some(&Step::Undo);
    let is_known = matches!(case.step(), Some(Step::Undo | Step::Done)) && begun(case) == since;
    if is_known && !is_old {
        return decision;
    }
    let said = if is_old {
        standing.saying(None, Reason::Undoing, text::undoing(decision.reason.as_str()))
    } else {
        standing.clone()
    };
    decision.act(Act::Say(Standing { step: Some(Step::Undo), since, ..said }))
}

/// A node whose host is still off is not given back before the host is on, unless that takes too long. Only the end of a
/// request that is withdrawn waits for that.
fn awaits_host(case: &Case<'_>) -> Option<Duration> {
    let (withdrawn, host, machine) = (case.request.deleting?, case.own_host()?, case.machine()?);
    let comes_back = host.online && host.unmanaged.is_none();
    if !comes_back || host.powered_on || !host.provisioned || machine.deleting.is_some() {
        return None;
    }
    case.left(withdrawn, case.policy.power_on)
}

/// Whether a person keeps the host off, and the request stays: the node, or its successor, comes when the host may be on.
fn is_kept_off(case: &Case<'_>) -> bool {
    let stays = case.request.deleting.is_none() && !case.standing.is_over();
    stays
        && case.machine().is_some_and(|it| it.deleting.is_none())
        && case.own_host().is_some_and(|it| !it.online)
}

enum Left {
    Nothing,
    Look,
    /// So long, of a time that began then, or is still to begin.
    Wait(Duration, Option<Timestamp>),
    GivenUp(String),
}

/// Whether the node has to be looked at or waited for before nothing is left on it.
fn what_is_left(case: &Case<'_>, reason: Reason, since: Timestamp) -> Left {
    if case.seen.node_name().is_none() {
        return Left::Nothing;
    }
    let backup = case.request.backup.is_some();
    match &case.seen.node {
        NodeSeen::NotAsked => Left::Look,
        NodeSeen::NoAccess(_)
        | NodeSeen::Gone
        | NodeSeen::Here(Node { deleting: true, foreign: None, .. })
            if backup && is_kept_off(case) =>
        {
            Left::Wait(POLL.1, None)
        }
        // The machine is well and stays, and nobody waits for the request to go.
        NodeSeen::NoAccess(_)
            if reason == Reason::Recovered && case.request.deleting.is_none() && is_owed(case) =>
        {
            Left::Wait(POLL.1, Some(since))
        }
        NodeSeen::NoAccess(why) => match case.left(since, case.policy.fence) {
            Some(left) => Left::Wait(left.min(poll(case, since)), Some(since)),
            None if is_owed(case) => {
                let what = if backup { text::NO_LABELS } else { text::MAYBE_TAINTED };
                Left::GivenUp(text::because(what, why))
            }
            None => Left::Nothing,
        },
        // Its successor gets what it had, if it comes in time; a machine that goes has none.
        NodeSeen::Gone | NodeSeen::Here(Node { deleting: true, foreign: None, .. })
            if backup && case.machine().is_some_and(|it| it.deleting.is_none()) =>
        {
            match case.left(since, case.strategy().timeout) {
                Some(left) => Left::Wait(left.min(poll(case, since)), Some(since)),
                None => Left::GivenUp(text::NOT_BACK.to_owned()),
            }
        }
        NodeSeen::NoName | NodeSeen::Gone | NodeSeen::Here(_) => Left::Nothing,
    }
}

/// What takes our marks off the node that is there.
pub(super) fn give_back(case: &Case<'_>) -> Vec<Act> {
    let NodeSeen::Here(node) = &case.seen.node else { return Vec::new() };
    let mut acts = Vec::new();
    if node.taint.is_ours() {
        acts.push(Act::Untaint);
    }
    if let Some(backup) = &case.request.backup
        && node.foreign.is_none()
        && !node.deleting
    {
        acts.push(Act::Restore(backup.clone()));
    }
    acts
}

//! One try: off, the node, on, and the node again.

use std::time::Duration;

use api_types::remediation::Step;
use k8s_openapi::jiff::Timestamp;

use super::ending::{give_back, hand_over, is_owed};
use super::{Case, node, out_of_turn, say_of};
use crate::decision::{Act, Decision, HostWrite};
use crate::history::Entry;
use crate::reason::Reason;
use crate::request::{Said, Standing};
use crate::seen::{Host, NodeSeen, Taint};
use crate::settings::Fencing;
use crate::text;

/// How often the workload cluster is asked, at first and at last.
pub(super) const POLL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));
/// What is over before this needs no word: that a host is asked, or is being switched on.
const STEP_SAID_AFTER: Duration = Duration::from_secs(5);

/// The host was just asked, and people are told. Somebody took the finalizer away by force, and without it nobody would undo what
/// follows; or it is CAPM3's, whose controller goes no further without: it would set its own taint on the node, in a cluster where
/// nobody can refuse that. By now the record on the host says that CAPM3 had begun.
pub(super) fn after_the_key(case: &Case<'_>) -> Option<Decision> {
    let entry = case.entry()?;
    // A word that is refused keeps nothing waiting: the rules below say it with what they do.
    let is_new = case.step().is_none()
        && entry.released.is_none()
        && case.left_off(entry.asked, STEP_SAID_AFTER).is_some();
    let lacks_ours = !case.request.finalizer || case.request.theirs;
    if !lacks_ours && !is_new {
        return None;
    }
    let finalizer = lacks_ours.then_some(Act::AddFinalizer);
    let mut decision = Decision::rest(Reason::PowerOff).also(finalizer);
    if is_new {
        decision = begun(case, decision.act(Act::Say(asked(case, entry.asked))));
    }
    Some(decision.again(Duration::ZERO))
}

/// A pause ended in the middle of a try. That is remembered beside the times that begin anew then, or the next process would
/// take the pause for a time that ran out. So is the end of what was in the way of a step: nobody may write to the request any more,
/// and a host would be held off for as long as that says what was in the way.
pub(super) fn begin_times_anew(case: &Case<'_>) -> Option<Decision> {
    let (host, entry) = (case.own_host()?, case.entry()?);
    let is_new = |it: &Timestamp| *it <= case.now && *it > entry.asked;
    let paused = case.seen.resumed.filter(|it| is_new(it) && Some(*it) > entry.resumed);
    let ended = || {
        let since = case.standing.since.filter(|_| case.was_hindered())?;
        let is_noted = entry.resumed.is_some_and(|it| it > since || it == case.now);
        (!is_noted && case.in_the_way(case.step()?).is_none()).then_some(case.now)
    };
    Some(begins_anew(case, host, paused.or_else(ended)?))
}

/// The time ran out while nobody was at work, neither here nor, as far as anybody knows, on the host: what stopped this
/// controller may have stopped whoever switches hosts. That counts as a pause, once in a try: processes that end again and
/// again must not put off its end.
fn missed(case: &Case<'_>, host: &Host, since: Timestamp, time: Duration) -> Option<Decision> {
    let started = case.seen.started.filter(|it| *it <= case.now && *it > since)?;
    let is_noted = case.entry()?.resumed.is_some();
    (!is_noted && case.age(started) < time).then(|| begins_anew(case, host, started))
}

/// Times that were running begin anew at this moment.
fn begins_anew(case: &Case<'_>, host: &Host, at: Timestamp) -> Decision {
    let history = host.history.changed(&case.request.uid, |it| it.resumed = Some(at));
    Decision::rest(Reason::PowerOff).record(history).again(Duration::ZERO)
}

/// The host was back once: the node is awaited, whatever became of the record on the host.
pub(super) fn await_node(case: &Case<'_>) -> Option<Decision> {
    let host = case.own_host()?;
    let said_since = case.standing.awaits_node()?;
    if host.held {
        return None;
    }
    let timeout = case.strategy().timeout;
    let machine = case.machine()?;
    let Some(is_back) = node::has_returned(case, machine, said_since) else {
        return Some(Decision::look_at_node(Reason::Recovering));
    };
    // Of CAPM3's kind what says the step may be of the try before.
    let released = case.entry().and_then(|it| it.released);
    let said_since = released.map_or(said_since, |it| it.max(said_since));
    let is_over = case.left(said_since, timeout).is_none();
    let has_come_up = || node::has_come_up(case, machine, said_since) == Some(true);
    if is_back || (is_over && has_come_up()) {
        return Some(recovered(case, host, node::returned(case)));
    }
    if matches!(case.seen.node, NodeSeen::NoAccess(_)) {
        return Some(unseen(case, Step::Recover, said_since, &text::awaiting(&node::but(case))));
    }
    if let Some(said) = case.in_the_way(&Step::Recover) {
        return Some(hindered(case, Step::Recover, &said));
    }
    // Of a time in which nobody could look nothing is known: it begins with the first answer.
    let since = if is_unseen(case) { case.now } else { case.counted(&Step::Recover, said_since) };
    let Some(left) = case.left(since, timeout) else {
        return Some(fail(case, host, Reason::NotRecovered));
    };
    let mut decision = Decision::rest(Reason::Recovering).again(left.min(poll(case, since)));
    if let Some(history) = node::first_sight(case, host) {
        decision = decision.record(history);
    }
    let text = text::awaiting(&node::but(case));
    let wanted = case.at_step(Step::Recover, since, Reason::Recovering, &text);
    Some(decision.also(case.say(wanted)).also(labelled(case)))
}

/// How soon a node is looked at again that has been awaited since then. Of one that is watched every change is told.
pub(super) fn poll(case: &Case<'_>, since: Timestamp) -> Duration {
    if case.seen.is_watched {
        return POLL.1;
    }
    (case.age(since) / 8).clamp(POLL.0, POLL.1)
}

/// Whether people were told that nobody can look at the node.
fn is_unseen(case: &Case<'_>) -> bool {
    case.said() == Some(Reason::NodeUnseen)
}

/// Nobody can look at the node, which may have been back for long: silence is no verdict. A machine that is well would be cut
/// off once more, and at last be given up, because its cluster's API server is away.
fn unseen(case: &Case<'_>, step: Step, since: Timestamp, text: &str) -> Decision {
    let news = (!is_unseen(case)).then(|| case.at_step(step, since, Reason::NodeUnseen, text));
    Decision::rest(Reason::NodeUnseen).again(poll(case, since)).also(news.map(Act::Say))
}

/// Something is in the way of a step: why is said, since when, and whose key it is.
fn hindered(case: &Case<'_>, step: Step, said: &Said) -> Decision {
    let is_said = case.was_hindered() && case.step() == Some(&step);
    let since = case.standing.since.filter(|_| is_said).unwrap_or(case.now);
    let wanted = case.at_step(step, since, said.reason, &said.message);
    Decision::rest(said.reason).again(POLL.1).also(case.say(wanted))
}

/// The successor of a node that was deleted gets its labels as soon as it is there: what makes it ready may be placed by them.
fn labelled(case: &Case<'_>) -> Option<Act> {
    let NodeSeen::Here(node) = &case.seen.node else { return None };
    let backup = case.request.backup.as_ref()?;
    let stays = node.foreign.is_none() && !node.deleting;
    let lacks = stays && backup.is_lacked_by(&node.backup);
    lacks.then(|| Act::Restore(backup.clone()))
}

/// The node is ready: what was changed is undone first, and then it is said. What cannot be undone now is undone later,
/// and until then the finalizer stays.
fn recovered(case: &Case<'_>, host: &Host, text: &str) -> Decision {
    let ended = case.letting_go((host, false), Reason::Recovered).map(Act::Host);
    let is_told = case.machine().is_some_and(|it| it.external.is_some());
    let mut decision = Decision::rest(Reason::Recovered)
        .also(give_back(case))
        .also(ended)
        .also(is_told.then_some(Act::Settled))
        .also(case.say(case.at_step(Step::Done, case.now, Reason::Recovered, text)));
    if case.request.finalizer && !is_owed(case) {
        decision = decision.act(Act::RemoveFinalizer);
    }
    decision.note(false, Reason::Recovered, text::of_try(&case.which(), text))
}

/// A try that did not help: the next one, or the end.
pub(super) fn fail(case: &Case<'_>, host: &Host, reason: Reason) -> Decision {
    // Nothing is judged before people could read that it was begun: phases have an order.
    if let Some(entry) = case.entry().filter(|_| case.step().is_none()) {
        let said = Decision::rest(Reason::PowerOff).act(Act::Say(asked(case, entry.asked)));
        return begun(case, said).again(Duration::ZERO);
    }
    if let Some(said) = out_of_turn(case) {
        return say_of(case, case.standing.clone(), said, false).again(POLL.1);
    }
    let retries = case.standing.retries;
    if retries < case.strategy().retries {
        return again(case, host, retries + 1, reason);
    }
    match runs_on(case) {
        None => Decision::look_at_node(reason),
        // Whoever switches hosts may be away and not say so, and a machine that runs would be deleted for that.
        Some(true) => recovered(case, host, &text::runs(&failure(case, reason))),
        // Whether its node runs nobody knows: a machine that does would be deleted for that.
        Some(false) if is_blind(case) => {
            let step = case.step().cloned().unwrap_or(Step::PowerOff);
            let text = text::unjudged(&failure(case, reason), &node::but(case));
            unseen(case, step, case.standing.since.unwrap_or(case.now), &text)
        }
        Some(false) => hand_over(case, host, reason),
    }
}

/// Whether the node is seen ready at the end of a try that did not switch its host, and nobody complains of anything else:
/// nothing before anybody looked.
fn runs_on(case: &Case<'_>) -> Option<bool> {
    let (Some(machine), Some(entry)) = (case.machine(), case.entry()) else { return Some(false) };
    match entry.released {
        Some(at) => node::has_returned(case, machine, at),
        None => node::has_come_up(case, machine, entry.asked),
    }
}

/// Whether nobody can look at the node, and no health check calls it unhealthy, which has seen it. That a host does not obey says
/// that its BMC is dead, and not that nothing runs on it.
fn is_blind(case: &Case<'_>) -> bool {
    let is_called_ill = case.machine().is_some_and(|it| it.healthy == Some(false));
    matches!(case.seen.node, NodeSeen::NoAccess(_)) && !is_called_ill
}

/// Another try, after so many that count. Its number comes with its key: neither may stand alone, or a try would be given for
/// nothing, or one that never began be counted.
pub(super) fn again(case: &Case<'_>, host: &Host, retries: u32, reason: Reason) -> Decision {
    let failed = text::of_try(&case.which(), &failure(case, reason));
    begin(case, host, retries, reason).note(true, reason, failed)
}

pub(super) fn failure(case: &Case<'_>, reason: Reason) -> String {
    let text = match reason {
        Reason::PowerOffTimedOut => text::NOT_OFF,
        Reason::PowerOnTimedOut => text::NOT_ON,
        Reason::StillUnhealthy => text::STILL_UNHEALTHY,
        _ => return text::not_ready(&node::but(case)),
    };
    text.to_owned()
}

/// A try begins: our key with its record, in one write, and what leads to its node when the Machine is gone. An older one of ours has
/// ended for this reason. The finalizer comes first, so that what follows is undone whatever happens. What people read of it comes
/// after the keys of others.
fn begin(case: &Case<'_>, host: &Host, number: u32, reason: Reason) -> Decision {
    let (request, machine, plain) = (case.request, case.machine(), case.policy.plain);
    let cluster = machine.filter(|_| request.cluster.is_none());
    let entry = Entry {
        machine_uid: machine.map(|it| it.uid.clone()),
        node: machine.and_then(|it| it.node.clone()),
        cluster: cluster.map(|it| it.cluster.clone()),
        was_on: host.powered_on,
        // Where our key is there already, it was said of that.
        held_off_before: host.held_off_at.filter(|_| !host.held),
        adopted: case.seen.is_adopted(),
        filter: case.policy.watch_filter.clone(),
        plain,
        taints: !plain && case.policy.fencing == Fencing::Taint,
        // Beside a key that holds it off already the operator of Metal3 writes nothing of a host that is off.
        beside: !plain && !host.powered_on && host.has_room,
        // Where nobody holds the host off, its kubelet may be back before anybody looks.
        kubelet: match &case.seen.node {
            NodeSeen::Here(node) if plain => Some(node.kubelet.clone()),
            _ => None,
        },
        ..Entry::begin(&request.uid, request.machine(), number, case.now)
    };
    let history = Some(case.ended(host, reason).with(entry));
    Decision::rest(reason)
        .also(case.finalizer())
        .host(HostWrite { key: Some(true), history, ..HostWrite::default() })
        .again(STEP_SAID_AFTER)
}

/// No try is under way: one begins.
pub(super) fn ask(case: &Case<'_>) -> Option<Decision> {
    let host = case.own_host()?;
    if case.entry().is_some() {
        return None;
    }
    let named = case.machine().is_some_and(|it| it.node.is_some());
    if case.policy.plain && named && case.seen.node == NodeSeen::NotAsked {
        return Some(Decision::look_at_node(Reason::PowerOff));
    }
    if let Some(warning) = warn_of_only_member(case) {
        return Some(warning);
    }
    // A count of which the host knows nothing is nobody's: this is the last try then.
    let number = case.standing.retries.min(case.strategy().retries);
    Some(begin(case, host, number, Reason::PowerOff))
}

/// A control plane goes off with its only member. That is said before the first try, when somebody is there to say and to read it.
/// A word that is refused keeps nothing waiting: the finalizer, which comes before it, says that it was this request's turn.
fn warn_of_only_member(case: &Case<'_>) -> Option<Decision> {
    let is_new = !case.request.finalizer && case.standing.phase.is_none();
    if !case.seen.only_member || !is_new {
        return None;
    }
    let text = text::of_try(&case.which(), text::ONLY_MEMBER);
    let said = case.standing.saying(None, Reason::PowerOff, &*text);
    let decision = Decision::rest(Reason::PowerOff).also(case.finalizer()).act(Act::Say(said));
    Some(decision.note(true, Reason::PowerOff, text).again(Duration::ZERO))
}

/// It is told that a try has begun.
fn begun(case: &Case<'_>, decision: Decision) -> Decision {
    decision.note(false, Reason::PowerOff, text::of_try(&case.which(), awaited(case)))
}

/// What is waited for when a host was asked.
fn awaited(case: &Case<'_>) -> &'static str {
    let is_off = case.own_host().is_some_and(|it| !it.powered_on);
    let (was_on, plain) =
        case.entry().map_or((false, case.policy.plain), |it| (it.was_on, it.plain));
    if is_off && !was_on && !plain { text::OFF_ALREADY } else { text::TO_BE_OFF }
}

fn asked(case: &Case<'_>, since: Timestamp) -> Standing {
    let awaited = awaited(case);
    let text = if case.seen.only_member {
        text::off_with(awaited, text::ONLY_MEMBER)
    } else {
        awaited.to_owned()
    };
    let standing = case.at_step(Step::PowerOff, since, Reason::PowerOff, &text);
    Standing { last: Some(since), ..standing }
}

/// The plain key is gone: whoever switches the host took it away when that was off, or is doing so.
pub(super) fn plain_key_taken(case: &Case<'_>) -> Option<Decision> {
    let (host, entry) = (case.own_host()?, case.entry()?);
    if !entry.plain || host.held || entry.released.is_some() {
        return None;
    }
    Some(let_go(case, host, false).again(STEP_SAID_AFTER))
}

/// Asked, and not off yet, as far as that is known.
pub(super) fn await_off(case: &Case<'_>) -> Option<Decision> {
    let (host, entry) = (case.own_host()?, case.entry()?);
    if entry.released.is_some() || is_fenced(case, host, entry) {
        return None;
    }
    let in_the_way = case.in_the_way(&Step::PowerOff);
    let since = case.counted(&Step::PowerOff, entry.asked);
    let left = if host.powered_on {
        case.left(since, case.policy.power_off)
    } else {
        case.left_off(since, case.policy.power_off)
    };
    let left = left.or(in_the_way.as_ref().map(|_| POLL.1));
    let Some(left) = left else {
        let missed = missed(case, host, since, case.policy.power_off);
        // One that shows off may come back all the same: that nobody read its power since it was asked forbids to touch its node and
        // nothing else, and it would be off no more surely for being held any longer.
        let shows_off = !host.powered_on && !entry.plain;
        let fails = || fail(case, host, Reason::PowerOffTimedOut);
        let ends = || if shows_off { look_and_let_go(case, host) } else { fails() };
        return Some(missed.unwrap_or_else(ends));
    };
    let mut decision = Decision::rest(Reason::PowerOff).again(left);
    let complaint = case.machine().and_then(|it| Reason::parse(it.external.as_deref()?));
    if complaint.is_some_and(Reason::is_refusal) && !case.seen.rival {
        // What kept it from beginning was corrected. Another request's word would come back.
        decision = decision.act(Act::Await);
    }
    if !host.held {
        // Somebody took our key away. It was not for them to decide.
        decision = decision.host(HostWrite { key: Some(true), ..HostWrite::default() });
    }
    if host.held && host.powered_on && !entry.was_on && !entry.plain {
        // Off when we asked, by a status from before our key; on beside our key: the next "off" is news.
        let history = host.history.changed(&case.request.uid, |it| it.was_on = true);
        decision = decision.record(history);
    }
    if !host.powered_on
        && let Some(left) = case.left(entry.asked, case.policy.stale)
    {
        decision = decision.again(left);
    }
    if let Some(said) = in_the_way {
        let hindered = hindered(case, Step::PowerOff, &said);
        decision.acts.extend(hindered.acts);
        return Some(Decision { reason: hindered.reason, ..decision }.again(POLL.1));
    }
    // A retry has said so before it asked.
    let is_said = case.step() == Some(&Step::PowerOff) && case.standing.last.is_some();
    if !is_said || case.was_hindered() {
        let wanted = Standing { since: Some(since), ..asked(case, entry.asked) };
        decision = decision.also(case.say(wanted));
        if case.step().is_none() {
            decision = begun(case, decision);
        }
    }
    Some(decision)
}

fn is_fenced(case: &Case<'_>, host: &Host, entry: &Entry) -> bool {
    let settled = case.left(entry.asked, case.policy.stale).is_none();
    // By the plain key nobody holds it off.
    !entry.plain && host.is_fenced(entry.was_on, settled)
}

/// Off: what ran on the node is moved away before anything runs there again, as far as that can be done in time.
pub(super) fn fence(case: &Case<'_>) -> Option<Decision> {
    let (host, entry) = (case.own_host()?, case.entry()?);
    if entry.released.is_some() || !is_fenced(case, host, entry) {
        return None;
    }
    let fencing = case.policy.fencing;
    if fencing == Fencing::None || case.machine()?.node.is_none() {
        return None;
    }
    let rest = Decision::rest(Reason::Fencing);
    let act = match &case.seen.node {
        NodeSeen::NotAsked => return Some(Decision::look_at_node(Reason::Fencing)),
        NodeSeen::NoName | NodeSeen::Gone => return None,
        NodeSeen::NoAccess(_) => None,
        NodeSeen::Here(node) if node.foreign.is_some() => return None,
        NodeSeen::Here(node) => match fencing {
            Fencing::Delete if case.request.backup.is_none() => {
                Some(Act::BackUp(node.backup.clone()))
            }
            Fencing::Delete => Some(Act::DeleteNode),
            Fencing::Taint | Fencing::None => match node.taint {
                Taint::None | Taint::TakenOff => Some(Act::Taint),
                Taint::Ours | Taint::Foreign if node.busy == 0 => return None,
                Taint::Ours | Taint::Foreign => None,
            },
        },
    };
    let since = case.standing.since.filter(|_| case.step() == Some(&Step::Fence));
    // At first sight, or where that cannot be said, the host's record has the time after which it is let go.
    let (asked, fence) = (case.counted(&Step::PowerOff, entry.asked), case.policy.fence);
    let known = (asked, case.policy.power_off + fence);
    let (begun, most) = since.map_or(known, |it| (it, fence));
    let Some(left) = case.left_off(begun, most).map(|it| it.min(fence)) else {
        return missed(case, host, begun, most);
    };
    // An idle node that was just tainted needs no second look.
    let idle = matches!(&case.seen.node, NodeSeen::Here(node) if node.busy == 0);
    if idle && act == Some(Act::Taint) {
        let Decision { acts, notes, .. } = let_go(case, host, true);
        let decision = rest.act(Act::Taint).also(acts).again(STEP_SAID_AFTER);
        return Some(Decision { notes, ..decision });
    }
    // A node that is deleted may take its time: finalizers keep it.
    let wait = match act {
        None | Some(Act::DeleteNode) => left.min(POLL.0),
        Some(_) => Duration::ZERO,
    };
    let (reason, text) = match node::trouble(case) {
        None => (Reason::Fencing, text::FENCING.to_owned()),
        Some(trouble) => (Reason::NodeUnseen, text::off_but(&trouble)),
    };
    // It is told that the node cannot be seen, and not each word of why.
    let is_said = since.is_some() && case.said() == Some(reason);
    let said = (!is_said)
        .then(|| Act::Say(case.at_step(Step::Fence, since.unwrap_or(case.now), reason, &text)));
    Some(rest.again(wait).also(said).also(act))
}

/// Off, and the node's part is done or has taken its time: the host may be switched on.
pub(super) fn release(case: &Case<'_>) -> Option<Decision> {
    let (host, entry) = (case.own_host()?, case.entry()?);
    if entry.released.is_some() || !is_fenced(case, host, entry) {
        return None;
    }
    Some(look_and_let_go(case, host))
}

/// The host may be switched on, once its node was looked at: what its kubelet said until now is no news later.
fn look_and_let_go(case: &Case<'_>, host: &Host) -> Decision {
    if case.seen.node == NodeSeen::NotAsked && case.machine().is_some_and(|it| it.node.is_some()) {
        return Decision::look_at_node(Reason::PowerOn);
    }
    let_go(case, host, false).again(STEP_SAID_AFTER)
}

/// What people read of it is written by who finds the host still off a moment later.
fn let_go(case: &Case<'_>, host: &Host, tainting: bool) -> Decision {
    let now = case.now;
    let plain = case.is_plain();
    let is_off = if plain {
        !host.powered_on
    } else {
        case.entry().is_some_and(|it| is_fenced(case, host, it))
    };
    let unread = !plain && !is_off;
    let is_tainted = matches!(&case.seen.node, NodeSeen::Here(it) if it.taint == Taint::Ours);
    let fenced = match node::part(case, tainting) {
        part if !unread => part,
        part if is_tainted => text::unread_since(&part),
        _ => text::UNREAD.to_owned(),
    };
    let history = host.history.changed(&case.request.uid, |entry| {
        entry.off = is_off.then_some(now);
        entry.fenced = Some(fenced.clone());
        if !plain {
            entry.kubelet = node::last_word(case);
        }
        entry.released = Some(now);
    });
    let write = HostWrite { history: Some(history), ..HostWrite::letting_go(host) };
    let text = released(case, is_off, &fenced);
    let decision = Decision::rest(Reason::PowerOn).host(write);
    decision.note(unread, Reason::PowerOn, text::of_try(&case.which(), &text))
}

fn released(case: &Case<'_>, is_off: bool, fenced: &str) -> String {
    if case.is_plain() { text::accepted(fenced) } else { text::released(is_off, fenced) }
}

/// The host may come back, and is awaited.
pub(super) fn await_on(case: &Case<'_>) -> Option<Decision> {
    let (host, entry) = (case.own_host()?, case.entry()?);
    let at = entry.released?;
    if host.held {
        // Set by a process that did not know yet: the record counts.
        return Some(Decision::rest(Reason::PowerOn).host(HostWrite::letting_go(host)));
    }
    if host.powered_on {
        let Some(is_back) = node::has_returned(case, case.machine()?, at) else {
            return Some(Decision::look_at_node(Reason::Recovering));
        };
        let text = text::awaiting("");
        let wanted = case.at_step(Step::Recover, case.now, Reason::Recovering, &text);
        let decision = Decision::rest(Reason::Recovering).again(Duration::ZERO);
        // While that cannot be said, whoever refuses it may be what our taint keeps from the node.
        let marks = if is_back { give_back(case) } else { Vec::new() };
        return Some(decision.also(case.say(wanted)).also(marks));
    }
    if let Some(said) = case.in_the_way(&Step::PowerOn) {
        return Some(hindered(case, Step::PowerOn, &said));
    }
    let since = case.counted(&Step::PowerOn, at);
    let Some(left) = case.left(since, case.policy.power_on) else {
        let missed = missed(case, host, since, case.policy.power_on);
        return Some(missed.unwrap_or_else(|| fail(case, host, Reason::PowerOnTimedOut)));
    };
    let decision = Decision::rest(Reason::PowerOn).again(left);
    if case.step() == Some(&Step::PowerOn) && !case.was_hindered() {
        return Some(decision);
    }
    if let Some(soon) = case.left(at, STEP_SAID_AFTER).filter(|_| !case.was_hindered()) {
        return Some(decision.again(soon));
    }
    let fenced = entry.fenced.as_deref().unwrap_or(text::LEFT_ALONE);
    let text = released(case, entry.off.is_some(), fenced);
    Some(decision.also(case.say(case.at_step(Step::PowerOn, since, Reason::PowerOn, &text))))
}

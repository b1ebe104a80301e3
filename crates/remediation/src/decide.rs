//! The rules, in the order in which they apply; the first that has something to say decides. Pure: no client, no clock.
//!
//! A try is what the record on the host says: that it began, with our key in one write, that the host was let go, and that it
//! ended. The request says it to people after that, and alone knows since when the host was back. So a pass that was cut off
//! anywhere is gone on with by the next one. `first_boot` has what is waited for before a try, `attempt` the steps of one, `node`
//! what is known of the node meanwhile, `ending` how a request ends.

mod attempt;
mod ending;
mod first_boot;
mod node;

use std::time::Duration;

use api_types::remediation::{Phase, Step};
use api_types::time::{until, whole};
use controller_kit::engine::{Reason as _, Rule};
use controller_kit::rule_book;
use k8s_openapi::jiff::Timestamp;

use crate::decision::{Act, Decision, HostWrite};
use crate::history::{Entry, History};
use crate::model::{Ahead, ClusterSeen, Observed};
use crate::reason::Reason;
use crate::request::{Group, Request, Said, Standing, Strategy, TIMEOUT_DEFAULT};
use crate::seen::{Host, Machine, Unmanaged};
use crate::settings::Policy;
use crate::text;

/// The health check takes a moment to see that a node is ready, and who watches its lease as long to see that its kubelet is dead.
pub(crate) const GRACE: Duration = Duration::from_secs(60);
/// Clocks of two processes differ by less.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Decides about a request, or has nothing to say.
type Decide = fn(&Case<'_>) -> Option<Decision>;

const RULES: [Rule<Decide>; 23] = rule_book![
    ending::not_ours: "A request that another installation looks after is left alone before anything is said of it.",
    paused: "During a pause nothing is written, so nothing else decides before.",
    ending::not_ours_any_more: "Nobody else undoes what was begun here, so this comes before whatever would go on with it.",
    ending::withdrawn: "A request that is being deleted is undone, whatever else is wrong with it.",
    ending::finished: "What was handed over, or given up, stays so: nothing below begins it again.",
    ending::go_on_handing_over: "The host says that all tries failed: a hand-over that was cut off is ended before anything else is looked at.",
    ending::machine_gone: "Without its Machine there is nothing to power-cycle, and what was begun is undone.",
    ending::succeeded: "A node that was back, and fails anew, has all its tries again, before anything is refused.",
    ending::success_on_host: "The same where only the host still says so.",
    refused: "What a person has to correct stops a try. Not before the ends above: a request that turns wrong in the middle is undone all the same.",
    let_old_host_go: "The host that the Machine had before is let go before a try goes on with its new one.",
    first_boot::await_first_boot: "A host that may be booting for the first time is not cut off, so this comes before any try.",
    attempt::after_the_key: "Without the finalizer nobody would undo what the rules below do; and people read of a try before it goes on.",
    attempt::begin_times_anew: "The end of a pause, or of what was in the way, is written down before a time below runs out that ran during it.",
    attempt::await_node: "The host was back once: from then on its node decides, whatever became of the record on the host.",
    await_turn: "Firmware work, and another member of the control plane, are waited for before the key and after what was begun.",
    ready_meanwhile: "Before the first cut, and when its turn has come: whoever has waited may have come back by itself.",
    attempt::ask: "No try is under way: one begins.",
    attempt::plain_key_taken: "With the plain key its removal says that the host was off; the power that the host shows by now does not count.",
    attempt::await_off: "A node is touched only after its host is known to be off.",
    attempt::fence: "Off: what ran there is moved away before anything runs there again.",
    attempt::release: "The host may come on when that is done, or has taken its time.",
    attempt::await_on: "Nothing else is left to wait for than the host's being on.",
];

/// The rules in their order: what they are called, and why they stand where they stand.
pub fn rules() -> Vec<(&'static str, &'static str)> {
    RULES.iter().map(Rule::shown).collect()
}

/// Decides about a request.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    let (request, standing) = (&seen.request, standing(seen));
    let case = Case { seen, request, standing: &standing, policy, now: whole(now) };
    let decision = RULES.iter().find_map(|rule| (rule.decide)(&case));
    decision.unwrap_or_else(|| Decision::rest(Reason::AtRest))
}

/// What is said of a request, as far as the record on its host bears that out. Of a try that began there and of which nothing is said
/// yet, what stands on the request is about the one before.
fn standing(seen: &Observed) -> Standing {
    let said = seen.request.standing.clone();
    // After success tries are counted anew, and an end stays one.
    let last = seen.last().filter(|it| !it.has_recovered() && !said.is_over());
    let Some(last) = last else { return said };
    if last.ended.is_none() && (last.number != said.retries || said.has_succeeded()) {
        let (phase, begun) = (said.phase, Some(last.asked));
        return Standing { phase, retries: last.number, last: begun, ..Standing::default() };
    }
    // No status can say that there were fewer than there were.
    Standing { retries: said.retries.max(last.number), ..said }
}

/// Whether nothing was begun for a request, as far as it says itself. Its finalizer is the first that is written.
pub fn is_to_be_begun(request: &Request) -> bool {
    let standing = &request.standing;
    let is_begun = request.finalizer || standing.step.is_some();
    let is_done = standing.is_over() || standing.has_succeeded();
    request.deleting.is_none() && !is_begun && !is_done
}

/// A request under consideration.
pub(crate) struct Case<'a> {
    pub(crate) seen: &'a Observed,
    pub(crate) request: &'a Request,
    /// What is said of the try that is under way.
    pub(crate) standing: &'a Standing,
    pub(crate) policy: &'a Policy,
    /// In whole seconds.
    pub(crate) now: Timestamp,
}

impl<'a> Case<'a> {
    pub(crate) fn machine(&self) -> Option<&'a Machine> {
        self.seen.machine.as_ref()
    }

    pub(crate) fn host(&self) -> Option<&'a Host> {
        self.seen.host.as_ref()
    }

    /// The host, if the machine has it.
    pub(crate) fn own_host(&self) -> Option<&'a Host> {
        self.host().filter(|host| host.ours)
    }

    /// The try that is under way on the host.
    pub(crate) fn entry(&self) -> Option<&'a Entry> {
        self.host()?.history.open(&self.request.uid)
    }

    /// Whether the try that is under way was asked for by the plain key.
    pub(crate) fn is_plain(&self) -> bool {
        self.entry().is_some_and(|it| it.plain)
    }

    pub(crate) fn step(&self) -> Option<&'a Step> {
        self.standing.step.as_ref()
    }

    /// Whether people were told last that something is in the way of the step of a try.
    pub(crate) fn was_hindered(&self) -> bool {
        let reason = self.said().filter(|_| self.step().is_some());
        matches!(reason, Some(Reason::HostServicing | Reason::HostHeld | Reason::HostUnreachable))
    }

    /// What is in the way of a step of the try that is under way. A host that shows off is let go when its time is over, and nobody
    /// is blamed.
    pub(crate) fn in_the_way(&self, step: &Step) -> Option<Said> {
        let host = self.own_host()?;
        let may_fail = *step != Step::PowerOff || host.powered_on || self.is_plain();
        hindrance(host, step).filter(|_| may_fail)
    }

    /// Since when the time of a step counts that began then: anew, where something was in its way.
    pub(crate) fn counted(&self, step: &Step, begun: Timestamp) -> Timestamp {
        let said = self.standing.since.filter(|_| self.step() == Some(step));
        // Without a record nobody can note when that ended.
        let noted = || self.entry().map_or(Some(self.now), |it| it.resumed);
        let ended = self.was_hindered().then(noted).flatten();
        [said, ended].into_iter().flatten().fold(begun, Timestamp::max)
    }

    /// Why the condition says that it is how it is.
    pub(crate) fn said(&self) -> Option<Reason> {
        self.standing.said.as_ref().map(|it| it.reason)
    }

    /// Whether a machine that fails anew after its success may be booting.
    pub(crate) fn boots_anew(&self) -> bool {
        self.standing.has_succeeded() && self.said() == Some(Reason::HostBooting)
    }

    /// Since when a success stands that the health check has not agreed to.
    pub(crate) fn success_since(&self) -> Option<Timestamp> {
        self.standing.since.filter(|_| !self.boots_anew())
    }

    /// What to do. Where that is spoilt no try begins, and what was begun is undone in the usual time.
    pub(crate) fn strategy(&self) -> Strategy {
        self.request.strategy.as_ref().copied().unwrap_or_default()
    }

    /// How long something has to last before it counts although the health check says nothing of it.
    pub(crate) fn patience(&self) -> Duration {
        self.strategy().timeout.max(GRACE)
    }

    /// How long something is waited for that may come right by itself: a first boot, a host that is being restored. Not less than a
    /// health check waits for the first node of a machine, unless it is told otherwise, which is as long.
    pub(crate) fn long(&self) -> Duration {
        self.strategy().timeout.max(TIMEOUT_DEFAULT)
    }

    /// Time since a moment; none if that is in the future.
    pub(crate) fn age(&self, since: Timestamp) -> Duration {
        until(since, self.now)
    }

    /// What is left of a time that began then; nothing when it is over. Nobody was able to do anything during a pause. One
    /// that ends later than now was noted by a clock that was ahead, and counts for nothing.
    pub(crate) fn left(&self, since: Timestamp, time: Duration) -> Option<Duration> {
        let noted = self.entry().and_then(|it| it.resumed);
        let ended = [self.seen.resumed, noted].into_iter().flatten().filter(|it| *it <= self.now);
        let since = ended.max().map_or(since, |resumed| since.max(resumed));
        let left = time.saturating_sub(self.age(since));
        (!left.is_zero()).then_some(left)
    }

    /// The same of a time in which a host is held off. One that began in the future by more than clocks differ was noted by a clock
    /// that was ahead, and would hold the host off for as much: it counts from when this process began to act.
    pub(crate) fn left_off(&self, since: Timestamp, time: Duration) -> Option<Duration> {
        let is_ahead = until(self.now, since) > CLOCK_SKEW;
        let started = self.seen.started.filter(|it| *it <= self.now).unwrap_or(self.now);
        self.left(if is_ahead { started } else { since }, time)
    }

    /// Which try of how many, for people.
    pub(crate) fn which(&self) -> String {
        text::nth(self.standing.retries, self.strategy().retries)
    }

    /// Without the finalizer nobody would undo what follows.
    pub(crate) fn finalizer(&self) -> Option<Act> {
        (!self.request.finalizer).then_some(Act::AddFinalizer)
    }

    /// How far it is, unless that stands there already.
    pub(crate) fn say(&self, wanted: Standing) -> Option<Act> {
        (self.request.standing != wanted).then_some(Act::Say(wanted))
    }

    /// A standing at this step of a try.
    pub(crate) fn at_step(
        &self,
        step: Step,
        since: Timestamp,
        reason: Reason,
        text: &str,
    ) -> Standing {
        let is_on = matches!(step, Step::Recover | Step::Done);
        let phase = if is_on { Phase::Waiting } else { Phase::Running };
        let succeeded = (step == Step::Done).then_some(true);
        let said = self.standing.saying(succeeded, reason, text::of_try(&self.which(), text));
        let last = said.last.or_else(|| self.entry().map(|it| it.asked));
        Standing { phase: Some(phase), step: Some(step), since: Some(since), last, ..said }
    }

    /// What takes all of ours off a host, be it a stray one: our key, and the open record of a try, which has ended so. Nothing,
    /// where neither is there.
    fn letting_go(&self, (host, stray): (&Host, bool), reason: Reason) -> Option<HostWrite> {
        let open = host.history.open(&self.request.uid).is_some();
        let history = open.then(|| self.ended(host, reason));
        (host.held || open).then(|| HostWrite { stray, history, ..HostWrite::letting_go(host) })
    }

    /// The history of a host with this request's open try ended.
    pub(crate) fn ended(&self, host: &Host, result: Reason) -> History {
        host.history.ended(&self.request.uid, result, self.now)
    }
}

// May anything be done at all?

/// Nothing is written, not even that it is so.
fn paused(case: &Case<'_>) -> Option<Decision> {
    let seen = case.seen;
    let machine = seen.machine.as_ref().is_some_and(|it| it.paused);
    let metal = seen.metal.as_ref().is_some_and(|it| it.paused);
    // What was begun on a host is ended there, also where it was let go before the machine lost it.
    let open = |it: &Host| it.history.open(&case.request.uid).is_some();
    let host = seen.hosts().any(|(it, _)| it.paused && (it.ours || it.held || open(it)));
    let cluster = seen.cluster == ClusterSeen::Here { paused: true };
    (case.request.paused || machine || metal || host || cluster)
        .then(|| Decision::rest(Reason::Paused))
}

/// What somebody has to correct. What was begun is undone first.
fn refused(case: &Case<'_>) -> Option<Decision> {
    let refusal = unfit(case)?;
    if case.request.finalizer || ending::is_left(case) {
        return Some(ending::undo(case, refusal.reason));
    }
    Some(ending::host_lost(case, &refusal).unwrap_or_else(|| wait(case, refusal)))
}

/// The machine got another host while a try was under way on its old one: that one is let go before a try goes on with the
/// new one.
fn let_old_host_go(case: &Case<'_>) -> Option<Decision> {
    let (stray, reason) = (case.seen.stray.as_ref()?, Reason::HostNotClaimed);
    let decision = Decision::rest(reason).host(case.letting_go((stray, true), reason)?);
    Some(decision.note(false, reason, text::strayed(&stray.name)).again(Duration::ZERO))
}

/// The request has waited, for somebody or for us, or CAPM3 had begun with it, and its machine has come back meanwhile. The health check withdraws it when it
/// sees that; while too many of its machines fail it withdraws none, and a machine that runs would be cut off.
fn ready_meanwhile(case: &Case<'_>) -> Option<Decision> {
    const REASON: Reason = Reason::NodeReady;
    // A person wants a power cycle of a node that is ready as well.
    case.request.owner.as_ref()?;
    let machine = case.machine()?;
    let is_called_well = machine.healthy?;
    let was_told = case.said().is_some_and(Reason::is_refusal) || case.request.is_others_work();
    let is_old = machine.healthy_since.is_some_and(|it| case.age(it) >= GRACE);
    case.own_host()?;
    // Or somebody took the record away. One that has ended says more than a step: the request was not there, or not to be read.
    let is_begun = case.entry().is_some() || (case.step().is_some() && case.seen.last().is_none());
    if is_begun || !(was_told || is_old) {
        return None;
    }
    let is_ready = is_called_well
        || match node::is_well(case, machine) {
            None => return Some(Decision::look_at_node(REASON)),
            Some(ready) => ready,
        };
    if is_ready && case.request.finalizer && case.seen.last().is_some() {
        // What is left of a try that has ended on the host goes first: a node that is ready must not stay out of service.
        return Some(ending::undo(case, REASON));
    }
    is_ready.then(|| wait(case, Said::no(REASON, text::READY_MEANWHILE)).again(GRACE))
}

/// Why no try may begin now, be it the first one or another. Nobody else's turn matters to a member whose host is off already.
pub(crate) fn out_of_turn(case: &Case<'_>) -> Option<Said> {
    let host = case.own_host()?;
    let is_begun = case.entry().is_some();
    if host.servicing && !is_begun {
        return Some(Said::no(Reason::HostServicing, text::host(&host.name, text::SERVICING)));
    }
    let is_off = is_begun && case.standing.awaits_node().is_none();
    let member = case.seen.member.as_ref().filter(|_| !is_off)?;
    let text = match member {
        Ahead::Trying(machine) => text::member_first(machine),
        Ahead::Unread { kind, name } => text::member_unread(kind, name),
    };
    Some(Said::no(Reason::MemberInTry, text))
}

/// What keeps a host from being switched at this step, or on this step's way, and says nothing of the machine: no try fails for it.
/// It is waited for, and the step has all its time after that. What others hold off cannot come on, and is no less off for that.
pub(crate) fn hindrance(host: &Host, step: &Step) -> Option<Said> {
    let (reason, what) = if host.servicing {
        // It is on and off for that, and must not lose power meanwhile.
        (Reason::HostServicing, text::SERVICING.to_owned())
    } else if *step != Step::PowerOff && !host.holds.is_empty() {
        (Reason::HostHeld, text::held_by(&host.holds))
    } else if let Some(word) = host.unreachable {
        (Reason::HostUnreachable, text::out_of_reach(word))
    } else {
        return None;
    };
    Some(Said::no(reason, text::host(&host.name, &what)))
}

/// A machine whose firmware is being changed, and that loses power then, may never start again. What was begun before goes on: the
/// operator changes firmware while the host is held off.
///
/// External remediation goes past what a control plane's owner does to keep its quorum: a health check asks for all members that
/// fail, at once. Cut off together they would take etcd down, and with it whatever could let their hosts come back.
fn await_turn(case: &Case<'_>) -> Option<Decision> {
    Some(wait(case, out_of_turn(case)?).again(attempt::POLL.1))
}

/// Says why nothing is done, and since when. It is a warning where it does not pass without a person.
fn wait(case: &Case<'_>, said: Said) -> Decision {
    use Reason::{HostBooting, HostServicing, MemberInTry, NodeReady};
    let passes = [HostBooting, NodeReady, MemberInTry, HostServicing].contains(&said.reason);
    let since = case.standing.since.filter(|_| case.said() == Some(said.reason));
    // The phase stays: it never goes back to none.
    let wanted = Standing { step: None, since: since.or(Some(case.now)), ..case.standing.clone() };
    say_of(case, wanted, said, !passes)
}

/// The same of a request that has succeeded, and is to have another try: it is still known of it that it has, and since when.
pub(crate) fn say_why_not_again(case: &Case<'_>, said: Said) -> Decision {
    let (step, since) = (Some(Step::Done), case.success_since());
    say_of(case, Standing { step, since, ..case.standing.clone() }, said, false)
}

/// Says this of a request that stands like that, and once to people.
pub(crate) fn say_of(case: &Case<'_>, wanted: Standing, said: Said, warning: bool) -> Decision {
    let Said { reason, message, .. } = said.clone();
    let is_news = case.said() != Some(reason);
    let wanted = Standing { said: Some(said), ..wanted };
    // First, so that it is said there whatever becomes of the write to the Machine.
    let decision =
        Decision::rest(reason).also(case.say(wanted)).also(complaint(case, reason, &message));
    if is_news { decision.note(warning, reason, message) } else { decision }
}

/// What the Machine is to say of why nothing is done. Where the health check has said that the remediation is waited for, it is
/// said there for what. CAPM3's kind has no other place for it. A Machine that the request is not for is not spoken to: by its
/// name nobody would find the request that the word belongs to.
fn complaint(case: &Case<'_>, reason: Reason, message: &str) -> Option<Act> {
    let machine = case.machine()?;
    let is_asked = machine.external.is_some() || case.request.group != Group::Ours;
    let is_news = machine.external.as_deref() != Some(reason.as_str());
    let may = machine.name == case.request.name
        && machine.deleting.is_none()
        && reason != Reason::MachineMismatch
        && is_asked
        && is_news
        && !is_anothers(case, machine);
    may.then(|| Act::Complain(reason, message.to_owned()))
}

/// Whether what a Machine says may be the word of another request, which would write it again, and so without end. Two
/// requests are about one Machine where a health check was given a template of the other group.
fn is_anothers(case: &Case<'_>, machine: &Machine) -> bool {
    let word = machine.external.as_deref().and_then(Reason::parse);
    let refusal = word.filter(|it| it.is_refusal());
    case.seen.rival && refusal.is_some() && refusal != case.said()
}

/// What is said of a request of which nothing is said yet, when somebody refuses what it begins with. CAPM3's kind has no
/// condition, and what stands there tells whether CAPM3 had begun.
pub fn refused_at_first(request: &Request, message: String) -> Option<Act> {
    let standing = &request.standing;
    let is_new = standing.phase.is_none() && standing.said.is_none();
    if request.group != Group::Ours || !is_new || request.deleting.is_some() {
        return None;
    }
    Some(Act::Say(standing.saying(None, Reason::Refused, message)))
}

/// Why this request cannot be carried out as things are.
fn unfit(case: &Case<'_>) -> Option<Said> {
    if let Err(wrong) = &case.request.strategy {
        return Some(wrong.clone());
    }
    let (name, machine) = (&case.request.name, case.machine()?);
    if machine.name != *name {
        let text = text::named_otherwise(name, &machine.name);
        return Some(Said::no(Reason::MachineMismatch, text));
    }
    if let Some(cluster) = case.request.cluster.as_ref().filter(|it| **it != machine.cluster) {
        let text = text::of_another_cluster(cluster, &machine.cluster);
        return Some(Said::no(Reason::MachineMismatch, text));
    }
    if machine.skipped {
        return Some(Said::no(Reason::Skipped, text::SKIPPED));
    }
    let Some(metal) = &case.seen.metal else {
        return Some(Said::no(Reason::HostUnknown, text::NO_METAL));
    };
    let Some(named) = &metal.host else {
        return Some(Said::no(Reason::HostUnknown, text::NO_HOST));
    };
    let Some(host) = case.host() else {
        return Some(Said::no(Reason::HostMissing, text::host_missing(named)));
    };
    let is = |unmanaged| host.unmanaged == Some(unmanaged);
    let first = [
        (!host.ours, Reason::HostNotClaimed, text::NOT_CLAIMED),
        (is(Unmanaged::NoCredentials), Reason::HostUnmanaged, text::NO_CREDENTIALS),
        (is(Unmanaged::Detached), Reason::HostUnmanaged, text::DETACHED),
        (is(Unmanaged::Deleting), Reason::HostUnmanaged, text::DELETING),
        (!host.provisioned, Reason::HostNotProvisioned, text::NOT_PROVISIONED),
        (!host.online, Reason::HostOffline, text::OFFLINE),
        (host.power_off_disabled, Reason::PowerOffDisabled, text::POWER_OFF_DISABLED),
    ];
    let (_, reason, what) = first.into_iter().find(|(is_so, ..)| *is_so)?;
    Some(Said::no(reason, text::host(named, what)))
}

#[cfg(test)]
pub(crate) mod tests;

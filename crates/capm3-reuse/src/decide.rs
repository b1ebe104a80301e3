//! The rules, in the order in which they apply; the first that has something to say decides. Pure: no client, no clock.
//!
//! The refusals are here. `entry`: what must be there before anything is installed. `obtain`: how a machine comes to a host.
//! `serve`: what is done with the host that it has. `node`: what is done about its Node. `release`: a machine that goes.
//! `left`: a host whose machine is gone. `collect`: when a host is kept no longer.
//! `scale`: how many machines there are to be.

mod collect;
mod entry;
mod left;
mod node;
mod obtain;
mod release;
mod scale;
mod serve;

use std::time::Duration;

use api_types::capi::{Cluster, Machine};
use api_types::capm3::Metal3Machine;
use api_types::condition::Condition;
use api_types::names;
use api_types::names::capi::CONDITION_READY;
use api_types::names::capm3::CONDITION_ASSOCIATED;
use controller_kit::engine::{Event, Next, Reason as _, Rule};
use controller_kit::rule_book;
use k8s_openapi::jiff::Timestamp;

use crate::machine::was_up;
use crate::model::{
    Decision, KeptSeen, LeftSeen, MachineSeen, Observed, ScaledSeen, ToldRefusal, Write,
};
use crate::reason::Reason;
use crate::seen::Parent;
use crate::settings::Policy;
use crate::status::{self, Report, Said};
use crate::text;

/// Waits that end by themselves within this time of a machine's life are not worth a write.
const YOUNG: Duration = Duration::from_secs(5);
/// How soon to look again at what nobody tells, and for what nobody thought of.
const RESYNC: Duration = Duration::from_secs(300);
/// How soon to look again where a cache is behind what was read live.
const BEHIND: Duration = Duration::from_secs(1);
/// How soon to look again for what is likely to be there by then, and is not watched: secrets, data templates, an owner's answer.
const UNWATCHED_AGAIN: Duration = Duration::from_secs(10);

/// Decides about a machine, or has nothing to say.
type AboutMachine = fn(&Case<'_>) -> Option<Decision>;
/// The same about a kept host.
type AboutKept = fn(&KeptSeen, &Policy) -> Option<Decision>;
/// The same about a host that its machine left.
type AboutLeft = fn(&LeftSeen) -> Option<Decision>;
/// The same about replicas that follow hosts.
type AboutScaled = fn(&ScaledSeen) -> Option<Decision>;

/// About a machine that is being deleted: it is given nothing any more. What is left is that it goes.
const LEAVING: [Rule<AboutMachine>; 8] = rule_book![
    paused: "During a pause nothing is written but that it is so, so nothing else decides before.",
    release::is_let_go: "What holds it is not ours.",
    release::look_closer: "Nothing is taken back on old news.",
    serve::lift_pause: "Nothing comes of what is written on a host that its operator leaves alone.",
    release::give_back: "A host that names the machine is given back, whatever the machine says of it.",
    release::host_is_gone: "A host that is gone, or that was made later under its name, has nothing of the machine.",
    release::host_was_taken: "A machine that had this host has no claim of it under way.",
    release::claim_may_come: "What is left may be a claim that is still on its way.",
];

/// About any other machine.
const MACHINES: [Rule<AboutMachine>; 20] = rule_book![
    paused: "During a pause nothing is written but that it is so, so nothing else decides before.",
    unowned: "Machine and Cluster say what is wanted: without them nothing below can be told.",
    without_cluster: "The Cluster is named by the Machine.",
    serve::adopt: "A host that names the machine is its host, before any rule asks whether it needs one. First the machine names it, too, as far as anybody else goes by that.",
    serve::claim_after_move: "The uid in the claim comes before anything that insists on it.",
    serve::lift_pause: "Nothing comes of what is written on a host that its operator leaves alone.",
    serve::serve: "It has its host: nothing below may give it another.",
    serve::lost: "A machine that was up must not come up a second time, so this stands before all that looks for a host.",
    obtain::lacks: "No host is held by a machine that could not be installed.",
    obtain::selects_wrongly: "What a selector cannot say nobody can look for.",
    obtain::template_unreadable: "Whether it may have a host that is kept is said by its template.",
    obtain::look_closer: "Host first, machine second: only read in this order the version of the host proves that nobody changed their mind.",
    obtain::go_on: "A choice that is written down is followed, or given up, before there is another.",
    obtain::take_after_all: "The host that it gave up may do after all, and to claim it settles whatever claim of it is still on its way.",
    obtain::take_kept: "What its owner had before has the disks that are wanted.",
    obtain::await_kept: "One that will be ready is better than a free one, for as many as there are of them.",
    obtain::await_cache: "Until the cache shows the passing trouble of a reserved host, nothing says that the machine is to wait for it.",
    obtain::has_none_kept: "A strict machine gets no free host.",
    obtain::take_free: "Any host that will do.",
    obtain::names_too_long: "A machine with so long a name needs a host with a short one. What is left is that none is free.",
];

/// While any of these but the last has something to say no time counts: see [`is_settled`].
const KEPT: [Rule<AboutKept>; 9] = rule_book![
    collect::left_to_capm3: "What CAPM3 wrote is nobody's to judge here, unless the flag says so.",
    collect::owner_is_gone: "Without an owner there is nothing else to ask.",
    collect::owner_is_unreadable: "Of an owner that cannot be read nothing below is known. Until somebody helps it rests for ever, so it is told.",
    collect::not_ours: "Another installation decides about its owners.",
    collect::owner_is_paused: "Nothing ends during a pause.",
    collect::owner_was_moved: "An owner that was made later may have come along with the host, and keeps it then.",
    collect::owner_goes: "Who goes makes no machines any more, however many it lacks.",
    collect::is_needed: "A machine may come for it.",
    collect::awaits_end: "Nobody comes, for some time.",
];

const LEFT: [Rule<AboutLeft>; 5] = rule_book![
    left::not_ours: "Another installation gives it back.",
    left::is_paused: "Nothing is written during a pause.",
    left::has_machine: "The machine does it itself while it is there.",
    left::is_undecided: "Without a verdict nobody knows whether the host may be cleared, so it is told.",
    left::give_back: "What was decided when its image went is done in place of the machine.",
];

/// While any of these has something to say no number of replicas is wanted: see [`scales_to`].
const SCALED: [Rule<AboutScaled>; 5] = rule_book![
    scale::is_halted: "During a pause nothing is written, and what goes needs no machines.",
    scale::is_not_understood: "Nobody knows what is asked for.",
    scale::is_scaled_elsewhere: "Two programs that set one number undo each other's writes.",
    scale::has_no_template: "The template says which hosts count.",
    scale::is_contested: "Both would ask for machines that only one of them gets.",
];

/// All rules in their order, those about machines first: what they are called, and why they stand where they stand.
pub fn rules() -> Vec<(&'static str, &'static str)> {
    let machines = LEAVING.iter().chain(&MACHINES).map(Rule::shown);
    let hosts = KEPT.iter().map(Rule::shown).chain(LEFT.iter().map(Rule::shown));
    machines.chain(hosts).chain(SCALED.iter().map(Rule::shown)).collect()
}

/// Decides about a machine, a kept host, or one that its machine left.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    match seen {
        Observed::Machine(seen) => {
            let case = Case { seen, machine: &seen.machine, policy, now };
            let leaves = seen.machine.metadata.deletion_timestamp.is_some();
            let rules = if leaves { &LEAVING[..] } else { &MACHINES[..] };
            let decided = rules.iter().find_map(|rule| (rule.decide)(&case));
            seen_again(decided.unwrap_or_else(|| obtain::finds_none(&case)))
        }
        Observed::Kept(seen) => {
            let decided = KEPT.iter().find_map(|rule| (rule.decide)(seen, policy));
            collect::unwatched(seen, decided.unwrap_or_else(|| Decision::rest(Reason::Kept)))
        }
        Observed::Left(seen) => {
            let decided = LEFT.iter().find_map(|rule| (rule.decide)(seen));
            decided.unwrap_or_else(|| Decision::rest(Reason::NotOurs))
        }
        Observed::Scaled(seen) => {
            let decided = SCALED.iter().find_map(|rule| (rule.decide)(seen));
            decided.unwrap_or_else(|| scale::follows(seen, policy))
        }
    }
}

/// Whether a machine gets a host if there is one, but for what can only be looked for.
pub fn looks_for_host(seen: &MachineSeen) -> bool {
    let (Parent::Here(parent), Some(cluster)) = (&seen.parent, &seen.cluster) else { return false };
    let needs_none = seen.own_host().is_some() || was_up(&seen.machine) || seen.is_paused();
    !needs_none && entry::lack(seen, parent, cluster).is_none()
}

/// How many replicas there are to be, if not as many as now.
pub fn scales_to(seen: &ScaledSeen) -> Option<i32> {
    let is_free = SCALED.iter().all(|rule| (rule.decide)(seen).is_none());
    is_free.then(|| scale::target(seen))?
}

/// Whether the owner of a kept host is there and needs no host more than it has, and the host could go.
pub fn is_settled(seen: &KeptSeen, policy: &Policy) -> bool {
    let [before @ .., _] = &KEPT;
    before.iter().all(|rule| (rule.decide)(seen, policy).is_none())
}

/// A machine that was written is looked at once more, when the cache shows it so: its own write tells nobody.
fn seen_again(decision: Decision) -> Decision {
    let is_its = |write: &Write| {
        matches!(
            write,
            Write::Intend { .. }
                | Write::Name { .. }
                | Write::GiveUp { .. }
                | Write::Forget
                | Write::Identify { .. }
                | Write::Report(_)
        )
    };
    let is_written = decision.writes.iter().any(is_its);
    match decision.next {
        Next::OnChange if is_written => Decision { next: Next::Now, ..decision },
        _ => decision,
    }
}

/// A machine under consideration.
struct Case<'a> {
    seen: &'a MachineSeen,
    machine: &'a Metal3Machine,
    policy: &'a Policy,
    now: Timestamp,
}

impl<'a> Case<'a> {
    /// The machine's Machine and its Cluster; the rules before have seen to it that they are there.
    fn parents(&self) -> Option<(&'a Machine, &'a Cluster)> {
        Some((self.seen.parent.here()?, self.seen.cluster.as_ref()?))
    }
}

/// An event of a machine.
fn on_machine(reason: Reason, text: &str) -> Event {
    Event::new(reason.is_warning(), reason.as_str(), "Assign", text)
}

/// One write, and the event that tells of it.
fn step(write: Write, reason: Reason, event: Event) -> Decision {
    Decision { writes: vec![write], events: vec![event], ..Decision::rest(reason) }
}

/// What somebody has to see to on a host: it does not go away, so it is told once an hour.
fn complaint(reason: Reason, text: &str) -> Decision {
    let events = vec![Event { hourly: Some(0), ..on_host(reason, text) }];
    Decision { events, ..Decision::rest(reason) }
}

/// An event of a host.
fn on_host(reason: Reason, text: &str) -> Event {
    Event::new(reason.is_warning(), reason.as_str(), "Keep", text)
}

/// Nothing is written but that it is so.
fn paused(case: &Case<'_>) -> Option<Decision> {
    if !case.seen.is_paused() {
        return None;
    }
    let text = text::paused(case.machine.label(names::capi::WATCH_FILTER));
    let report = Report { paused: Some(Said::yes(Reason::Paused, &text)), ..Report::default() };
    Some(with_report(case.seen, case.now, Vec::new(), (Reason::Paused, &text), &report))
}

fn unowned(case: &Case<'_>) -> Option<Decision> {
    match &case.seen.parent {
        Parent::Here(_) => None,
        Parent::None => Some(told(case, Reason::WaitingForOwner, text::UNOWNED)),
        Parent::Gone(name) => {
            Some(told(case, Reason::MachineMissing, &text::machine_missing(name)))
        }
    }
}

fn without_cluster(case: &Case<'_>) -> Option<Decision> {
    let Parent::Here(parent) = &case.seen.parent else { return None };
    let is_missing = case.seen.cluster.is_none();
    let text = text::cluster_missing(&parent.spec.cluster_name);
    is_missing.then(|| told(case, Reason::ClusterMissing, &text))
}

/// Whether this is the reason that the machine's status gives for not being ready.
fn says(seen: &MachineSeen, reason: Reason) -> bool {
    status::reported(&seen.machine, CONDITION_READY)
        .is_some_and(|it| !it.is_true() && it.reason.as_deref() == Some(reason.as_str()))
}

/// A machine that waits for something that is no host, and says so.
fn told(case: &Case<'_>, reason: Reason, text: &str) -> Decision {
    let born = case.machine.metadata.creation_timestamp.as_ref();
    // A clock that is far behind the API server's makes no machine young.
    let age = born.map(|born| case.now.duration_since(born.0).unsigned_abs());
    // Each kind has a watch of its own, and the younger object's may be the faster one.
    let is_on_its_way = matches!(reason, Reason::MachineMissing | Reason::ClusterMissing);
    match age {
        Some(age) if age < YOUNG && (is_on_its_way || !reason.is_warning()) => {
            Decision { next: Next::After(YOUNG.saturating_sub(age)), ..Decision::rest(reason) }
        }
        _ => reported(case.seen, case.now, reason, text, |_| {}),
    }
}

/// What a machine says when the API server refused a write of it. That is said once for each spec: the text may be another
/// each time, and the report wakes the machine.
pub fn refused(
    seen: &MachineSeen,
    refusal: ToldRefusal,
    why: &str,
    now: Timestamp,
) -> Option<Write> {
    let machine = &seen.machine;
    let said = status::reported(machine, CONDITION_READY);
    let says_so = said.is_some_and(|it| it.reason.as_deref() == Some(Reason::Refused.as_str()));
    if says_so && seen.told >= Some(refusal) {
        return None;
    }
    let leaves = machine.metadata.deletion_timestamp.is_some();
    let was_ready = said.is_some_and(Condition::is_true);
    let decision = reported(seen, now, Reason::Refused, why, |report| {
        if leaves {
            // Whether it had a host decides how it goes.
            report.associated = None;
        } else if machine.is_provisioned() && was_ready {
            // What runs goes on running without that write.
            report.ready = Some(Said::yes(Reason::Refused, why));
        }
    });
    decision.writes.into_iter().next()
}

/// A machine whose conditions say for what it waits.
fn reported(
    seen: &MachineSeen,
    now: Timestamp,
    reason: Reason,
    text: &str,
    more: impl FnOnce(&mut Report),
) -> Decision {
    let mut report = Report {
        associated: seen.own_host().is_none().then(|| Said::no(reason, text)),
        ready: Some(Said::no(reason, text)),
        paused: Some(not_paused()),
        ..Report::default()
    };
    more(&mut report);
    with_report(seen, now, Vec::new(), (reason, text), &report)
}

fn not_paused() -> Said {
    Said::no(Reason::NotPaused, "")
}

/// Writes, and then the report if it differs from what is there.
fn with_report(
    seen: &MachineSeen,
    now: Timestamp,
    mut writes: Vec<Write>,
    (reason, text): (Reason, &str),
    report: &Report,
) -> Decision {
    writes.extend(status::patch(&seen.machine, report, now).map(Write::Report));
    let is_news = !writes.is_empty() && !is_known(seen, reason);
    let events = is_news.then(|| on_machine(reason, text)).into_iter().collect();
    Decision { writes, events, ..Decision::rest(reason) }
}

/// Whether the machine's conditions say so already, or it needs no event.
fn is_known(seen: &MachineSeen, reason: Reason) -> bool {
    let was = |kind: &str| {
        let before = status::reported(&seen.machine, kind);
        before.and_then(|it| it.reason.as_deref()) == Some(reason.as_str())
    };
    was(CONDITION_ASSOCIATED) || was(CONDITION_READY) || is_everyday(reason)
}

/// What happens to every machine is in its conditions; an event of it would only be one more write.
fn is_everyday(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::WaitingForOwner
            | Reason::WaitingForInfrastructure
            | Reason::WaitingForBootstrapData
            | Reason::HostClaimed
            | Reason::Provisioning
            | Reason::Provisioned
    )
}

/// Look again: what was read is too old for what is to be done. The cache wakes the machine as soon as it is not behind any
/// more; the time is for a watch that is broken, and must not be none, or a pass would follow the other until it is not.
fn look_closer(reason: Reason) -> Decision {
    Decision { next: Next::After(BEHIND), ..Decision::rest(reason) }
}

#[cfg(test)]
pub(crate) mod tests;

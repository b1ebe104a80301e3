//! How a machine that is being deleted gives its host back. Needs the machine and its host, nothing else.
//!
//! The image goes in one write with the verdict for whom the host will be kept, so that owner and template may vanish
//! afterwards. While the host is cleared its consumer becomes that owner; when nothing is on it any more, the machine goes.

use api_types::metal3::{BareMetalHost, ProvisioningState};
use api_types::names;
use api_types::reference::NamedRef;
use controller_kit::engine::Next;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::obtain::{named, pass_over, withdraw};
use super::{Case, UNWATCHED_AGAIN, not_paused, on_machine, says, step};
use crate::machine::{is_held, was_associated, was_up};
use crate::model::{Decision, MachineSeen, Write};
use crate::reason::Reason;
use crate::reservation::{self, Owner};
use crate::seen::Verdict;
use crate::status::{self, Report, Said};
use crate::{host, text};

/// Of all modes the one that keeps the disks.
const KEEPS_DISKS: &str = "disabled";

/// Nothing of ours holds it any more.
pub(super) fn is_let_go(case: &Case<'_>) -> Option<Decision> {
    (!is_held(case.machine)).then(|| Decision::rest(Reason::LetGo))
}

pub(super) fn look_closer(case: &Case<'_>) -> Option<Decision> {
    (!case.seen.live).then(|| super::look_closer(Reason::Releasing))
}

/// The host that it names is gone, or was made later under that name.
pub(super) fn host_is_gone(case: &Case<'_>) -> Option<Decision> {
    named(case).is_none().then(|| let_go(case.seen, Vec::new()))
}

/// The host was taken from it. If it is being cleared for that, the machine waits.
pub(super) fn host_was_taken(case: &Case<'_>) -> Option<Decision> {
    let host = case.seen.host.here().filter(|_| was_associated(case.machine))?;
    Some(match host.provisioning_state() {
        ProvisioningState::Deprovisioning => waits(case.seen, host, case.now),
        _ => let_go(case.seen, Vec::new()),
    })
}

/// It was never seen to have the host: a claim may still be on its way, and would succeed.
pub(super) fn claim_may_come(case: &Case<'_>) -> Option<Decision> {
    let host = case.seen.host.here()?;
    let first = reservation::looks_claimable(host).then(|| pass_over(case.seen, host));
    Some(let_go(case.seen, first.into_iter().collect()))
}

/// The host is still its own.
pub(super) fn give_back(case: &Case<'_>) -> Option<Decision> {
    let host = case.seen.own_host()?;
    let seen = case.seen;
    let name = host.name_any();
    let pending = reservation::pending(host);
    let verdict = match (&pending, &seen.verdict) {
        (Some(written), _) => written.clone(),
        (None, Verdict::For { owner, .. }) => Some(owner.clone()),
        (None, Verdict::Unasked | Verdict::Nobody(_)) => None,
        (None, Verdict::Undecided(reason, why)) => {
            return Some(undecided(case, host, *reason, why));
        }
    };
    let fields = ours(seen, host);
    let cleared = is_empty(host, was_up(case.machine));
    if pending.is_none() && (!fields.is_empty() || !cleared) {
        return Some(clear(case, host, fields, verdict));
    }
    // A verdict that was brought here by a move has the uid of before beside it.
    let uid = host.metadata.uid.clone().filter(|_| pending.is_none() && verdict.is_some());
    if cleared {
        let (reason, text) = given_back(host, None, verdict.as_ref());
        let events = vec![on_machine(reason, &text)];
        let decision = let_go(seen, vec![release(host, verdict, uid)]);
        return Some(Decision { reason, events, ..decision });
    }
    let is_clearing = *host.provisioning_state() == ProvisioningState::Deprovisioning;
    if let Some(owner) = verdict.as_ref().filter(|_| is_clearing) {
        let text = text::names_owner(&name, owner);
        let write = release(host, Some(owner.clone()), uid);
        return Some(step(write, Reason::Reserved, on_machine(Reason::Reserved, &text)));
    }
    Some(waits(seen, host, case.now))
}

/// The image goes, and it is written down for whom the host will be kept.
fn clear(
    case: &Case<'_>,
    host: &BareMetalHost,
    fields: Vec<&'static str>,
    verdict: Option<Owner>,
) -> Decision {
    let (seen, name) = (case.seen, host.name_any());
    let why = match &seen.verdict {
        Verdict::Nobody(why) => text::kept_for_nobody(why),
        _ => text::kept_for(verdict.as_ref()),
    };
    let switch_off = host.spec.online && host.spec.disable_power_off != Some(true);
    // Whether disks are wiped is read when the host is cleared, so the last word must be there by then: that of the
    // template that keeps the host, as the one that the machine was cloned from may be of another mind.
    let before = host.spec.automated_cleaning_mode.as_ref();
    let cleaning = match &seen.verdict {
        Verdict::For { cleaning: Some(mode), .. } => Some(mode),
        _ => seen.cleaning.as_ref(),
    };
    let mode = cleaning.or(before).map(String::as_str);
    let wiped = match &verdict {
        None => unwiped(mode),
        Some(_) if mode == Some(KEEPS_DISKS) => "",
        Some(_) => text::WIPED,
    };
    let text = text::clears(&name, &why, wiped);
    let cleaning = cleaning.filter(|mode| Some(*mode) != before).cloned();
    let uid = host.metadata.uid.clone().filter(|_| verdict.is_some());
    let clear = Write::Clear { host: name, fields, switch_off, cleaning, verdict, uid };
    step(clear, Reason::Releasing, on_machine(Reason::Releasing, &text))
}

/// It says so once, and again when that changes; what holds it up is an event, too.
fn waits(seen: &MachineSeen, host: &BareMetalHost, now: Timestamp) -> Decision {
    let held_up = host::held_up(host);
    let message = text::clearing(host, held_up);
    let ready = Said::no(Reason::Deprovisioning, &message);
    let writes: Vec<Write> = reported(seen, Some(ready), now).into_iter().collect();
    // bmo-reboot ends its own pause as soon as nobody has the host.
    let passes = host::is_paused_by_bmo_reboot(host);
    let is_trouble = held_up.is_some_and(|it| it != host::Exclusion::Paused || !passes);
    let is_news = is_trouble && !writes.is_empty();
    let events = is_news.then(|| on_machine(Reason::Deprovisioning, &message));
    let events = events.into_iter().collect();
    Decision { writes, events, ..Decision::rest(Reason::Deprovisioning) }
}

/// A verdict is for good, so without an answer there is none, and everything stays as it is. That is said once: the text of
/// an error may be another each time.
fn undecided(case: &Case<'_>, host: &BareMetalHost, reason: Reason, why: &str) -> Decision {
    let (message, is_news) = (text::unanswered(&host.name_any(), why), !says(case.seen, reason));
    let ready = is_news.then(|| Said::no(reason, &message));
    let writes = reported(case.seen, ready, case.now).into_iter().collect();
    let events = is_news.then(|| on_machine(reason, &message)).into_iter().collect();
    Decision { writes, events, next: Next::After(UNWATCHED_AGAIN), ..Decision::rest(reason) }
}

/// Why it is not ready, if that is to be said anew, and that it is paused no longer.
fn reported(seen: &MachineSeen, ready: Option<Said>, now: Timestamp) -> Option<Write> {
    let report = Report { ready, paused: Some(not_paused()), ..Report::default() };
    status::patch(&seen.machine, &report, now).map(Write::Report)
}

/// Nothing of the machine is left on this host, and it goes if there is no other.
fn let_go(seen: &MachineSeen, mut writes: Vec<Write>) -> Decision {
    if seen.another.is_some() {
        // That one is next: without its machine nobody would ever give it back.
        return Decision { writes, ..super::look_closer(Reason::Releasing) };
    }
    writes.extend(withdraw(seen));
    writes.push(Write::LetGo);
    Decision { writes, ..Decision::rest(Reason::LetGo) }
}

/// The host is kept for an owner from now on, or nobody's.
pub(super) fn release(host: &BareMetalHost, keep_for: Option<Owner>, uid: Option<String>) -> Write {
    let annotations = annotations(host, keep_for.is_some());
    Write::Release { host: host.name_any(), keep_for, uid, annotations }
}

/// What is told of a host that is given back, also in place of a machine that is gone.
pub(super) fn given_back(
    host: &BareMetalHost,
    gone: Option<&str>,
    verdict: Option<&Owner>,
) -> (Reason, String) {
    let (reason, wiped) = match verdict {
        Some(_) => (Reason::Reserved, ""),
        None => (Reason::Released, unwiped(host.spec.automated_cleaning_mode.as_deref())),
    };
    (reason, text::given_back(&host.name_any(), gone, verdict, wiped))
}

/// What is told of a host that is nobody's and whose disks still hold what was on them.
pub(super) fn unwiped(mode: Option<&str>) -> &'static str {
    if mode == Some(KEEPS_DISKS) { text::UNWIPED } else { "" }
}

/// Whether nothing of its machine is on a host any more. One that has lost its status, as after a restore, begins anew as if
/// nothing had ever been on it: before its operator has looked at it, that counts only where nothing was.
pub(super) fn is_empty(host: &BareMetalHost, was_up: bool) -> bool {
    match host.provisioning_state() {
        ProvisioningState::None => !was_up && reservation::pending(host).is_none(),
        ProvisioningState::Registering | ProvisioningState::MatchProfile => !was_up,
        _ => host::is_cleared(host),
    }
}

/// Fields of the host's spec that were written for the machine. Facts and a network configuration that somebody gave the
/// host itself stay: those of the machine are known by their names.
fn ours(seen: &MachineSeen, host: &BareMetalHost) -> Vec<&'static str> {
    let (host, spec, status) = (&host.spec, &seen.machine.spec, seen.machine.status.as_ref());
    let is_its = |field, on_host: &Option<Box<NamedRef>>, of_machine: &Option<NamedRef>| {
        let told = status.and_then(|it| status::reference(it, field));
        let own = of_machine.as_ref().and_then(|it| it.name.as_deref());
        let rendered = seen.data.rendered(field).map(String::as_str);
        let on_host = on_host.as_ref().and_then(|it| it.name.as_deref());
        on_host.is_some() && [own, rendered, told].contains(&on_host)
    };
    let all = [
        ("image", host.image.is_some()),
        ("customDeploy", host.custom_deploy.is_some()),
        ("userData", host.user_data.is_some()),
        ("metaData", is_its("metaData", &host.meta_data, &spec.meta_data)),
        ("networkData", is_its("networkData", &host.network_data, &spec.network_data)),
    ];
    all.iter().filter(|(_, is_its)| *is_its).map(|(field, _)| *field).collect()
}

/// Annotations on the host that are the machine's, and that of a reservation where there is none.
fn annotations(host: &BareMetalHost, is_kept: bool) -> Vec<String> {
    let ours = [
        names::ferrite::PENDING_RESERVATION,
        names::ferrite::PENDING_RESERVATION_OF,
        names::ferrite::PASSED_OVER_BY,
        names::capi::BLOCK_MOVE,
    ];
    let is_ours = |key: &&String| {
        ours.contains(&key.as_str())
            || (!is_kept && *key == names::ferrite::RESERVED_HOST_UID)
            || key.starts_with(names::metal3::REBOOT_FOR_REMEDIATION)
    };
    host.annotations().keys().filter(is_ours).cloned().collect()
}

//! The conditions of a resource, and what is told of a change of its status. Pure.

use api_types::metal3::{
    Approval, BareMetalHostDiscovery, BareMetalHostDiscoveryStatus, ListedHost,
};
use api_types::names::capi::CONDITION_READY;
use api_types::names::ferrite::CONDITION_IRONIC_REACHABLE;
use api_types::time::whole;
use controller_kit::engine::{self, Event, Reason as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::{Reach, Report};
use crate::reason::{Notice, Reason, advice};
use crate::report::{LONGEST_LIST, same_in, word};
use crate::resource::Resource;
use crate::text;

/// Characters of a condition's message.
const LONGEST_MESSAGE: usize = 1024;

/// Sets both conditions. Their times stay as they are while they say yes, or no.
pub fn conditions(
    resource: &Resource,
    reach: &Reach,
    report: &Report,
    status: &mut BareMetalHostDiscoveryStatus,
    now: Timestamp,
) {
    let known = status.conditions.iter().find(|it| it.type_ == CONDITION_IRONIC_REACHABLE);
    let reachable = match reach {
        Reach::Unknown => match known {
            Some(known) => (known.status.clone(), known.reason.clone(), known.message.clone()),
            None => say("Unknown", Notice::NotAsked.as_str(), text::IRONIC_NOT_ASKED),
        },
        Reach::Answers => say("True", Notice::Answers.as_str(), text::IRONIC_ANSWERS),
        Reach::Silent { class, text, .. } => say("False", class, text),
    };
    let is_reachable = reachable.0 == "True";
    put(status, CONDITION_IRONIC_REACHABLE, reachable, resource.generation, now);
    let ready = ready(resource, is_reachable, report, status);
    put(status, CONDITION_READY, ready, resource.generation, now);
}

type Said = (String, String, String);

fn say(status: &str, reason: &str, message: &str) -> Said {
    let message = message.chars().take(LONGEST_MESSAGE).collect();
    (status.to_owned(), reason.to_owned(), message)
}

fn no(reason: impl engine::Reason, message: &str) -> Said {
    say("False", reason.as_str(), message)
}

/// Whether machines become hosts, and if not, what to change. The first that applies.
fn ready(
    resource: &Resource,
    is_reachable: bool,
    report: &Report,
    status: &BareMetalHostDiscoveryStatus,
) -> Said {
    let counts = status.counts.clone().unwrap_or_default();
    let mistakes = resource.mistakes.join("; ");
    if !resource.makes_hosts() {
        return no(Reason::TemplateInvalid, &mistakes);
    }
    if !mistakes.is_empty() {
        return no(Notice::SpecInvalid, &text::left_out_of_spec(&mistakes));
    }
    if !is_reachable {
        return no(Notice::IronicNotReachable, text::SEE_IRONIC_REACHABLE);
    }
    if let Some(text) = &resource.behind {
        return no(Notice::OlderUndecodable, text);
    }
    if resource.spec.suspend {
        return no(Reason::Suspended, text::SUSPENDED);
    }
    if let Some((reason, text)) = &report.trouble {
        return say("False", reason, text);
    }
    let spec = &resource.spec;
    let most = spec.max_hosts.filter(|_| resource.is_full(counts.created));
    let (reason, text) = match (most, spec.approval) {
        _ if spec.dry_run => (Reason::DryRun.as_str(), text::DRY_RUN.to_owned()),
        (Some(most), _) => (Notice::MaxHostsReached.as_str(), text::max_hosts_reached(most)),
        (None, approval) => {
            let is_asked = approval == Approval::Manual;
            let text = if is_asked { text::DISCOVERING_APPROVED } else { text::DISCOVERING };
            (Notice::Discovering.as_str(), text.to_owned())
        }
    };
    let Some(strays) = report.strays else {
        // Nobody counted yet: what was said before stays. That what stood in the way is over only a count says.
        let known = status.conditions.iter().find(|it| it.type_ == CONDITION_READY);
        if let Some(known) = known.filter(|it| is_counted(&it.reason)) {
            return say("False", &known.reason, &known.message);
        }
        let known = known.filter(|it| it.reason == reason).map(|it| it.message.as_str());
        return say("True", reason, known.unwrap_or(&text));
    };
    let number = |it: i32| u32::try_from(it).unwrap_or_default();
    let others = text::others([
        number(counts.conflicting),
        number(counts.failed),
        number(counts.pending),
        strays.unselected,
        strays.undiscovered,
        strays.registered,
    ]);
    let erases = (resource.bmc.is_some() && resource.erases()).then(|| text::ERASES.to_owned());
    say(
        "True",
        reason,
        &std::iter::once(text).chain(erases).chain(others).collect::<Vec<_>>().join("; "),
    )
}

/// Whether a resource is not ready for this reason by what was counted.
fn is_counted(reason: &str) -> bool {
    [
        Notice::HostsRefused.as_str(),
        Notice::HostsFailed.as_str(),
        Notice::TooManyMachines.as_str(),
        Reason::BmcAddressUncompared.as_str(),
    ]
    .contains(&reason)
}

fn put(
    status: &mut BareMetalHostDiscoveryStatus,
    type_: &str,
    (value, reason, message): Said,
    generation: Option<i64>,
    now: Timestamp,
) {
    let known = status.conditions.iter_mut().find(|it| it.type_ == type_);
    let since = known.as_ref().filter(|it| it.status == value);
    let since = since.map(|it| it.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status: value,
        reason,
        message,
        observed_generation: generation,
        last_transition_time: since.unwrap_or(Time(whole(now))),
    };
    match known {
        Some(known) => *known = condition,
        None => status.conditions.push(condition),
    }
}

/// Whether two statuses say the same. When Ironic was last asked is no reason to write: it is as of the last change, and
/// that Ironic goes on answering, the condition says.
pub fn same(a: &BareMetalHostDiscoveryStatus, b: &BareMetalHostDiscoveryStatus) -> bool {
    let timeless = |status: &BareMetalHostDiscoveryStatus| BareMetalHostDiscoveryStatus {
        last_poll_time: None,
        last_full_sync_time: None,
        ..status.clone()
    };
    timeless(a) == timeless(b)
}

/// The merge patch that makes a status what it is to be. What became empty has to be said.
pub fn patch(object: &BareMetalHostDiscovery, status: &BareMetalHostDiscoveryStatus) -> Value {
    let mut value = json!(status);
    for field in ["pending", "failures", "conflicts"] {
        if value.get(field).is_none() {
            value[field] = Value::Null;
        }
    }
    json!({
        "metadata": { "resourceVersion": object.metadata.resource_version },
        "status": value,
    })
}

/// What a new status tells that the old one did not: machines that were listed for another reason or not at all, and
/// conditions that changed. The report says what no status does of these machines.
pub fn notes(
    before: &BareMetalHostDiscoveryStatus,
    after: &BareMetalHostDiscoveryStatus,
    report: &Report,
) -> Vec<Event> {
    let mut all = Vec::new();
    for condition in &after.conditions {
        let known = before.conditions.iter().find(|it| it.type_ == condition.type_);
        let was = known.map(|it| (&it.status, &it.reason));
        let fine = condition.status == "True";
        let first = known.is_none() && (fine || condition.status == "Unknown");
        if was == Some((&condition.status, &condition.reason)) || first {
            continue;
        }
        let warning = !fine && condition.reason != Reason::Suspended.as_str();
        let reason = condition.reason.clone();
        all.push(Event::new(warning, reason, &condition.type_, &condition.message));
    }
    let lists = [
        (false, &before.pending, &after.pending),
        (true, &before.failures, &after.failures),
        (true, &before.conflicts, &after.conflicts),
    ];
    let entries = lists
        .into_iter()
        .flat_map(|(warning, old, new)| newly_listed(old, new).map(move |entry| (warning, entry)));
    for (warning, entry) in entries {
        // What waits for its turn does not wait for a person.
        if word(entry) == Reason::RateLimited.as_str() {
            continue;
        }
        let is_doubtful = report.doubtful.contains(&entry.node_id);
        let to_do = advice(entry.reason.as_deref().unwrap_or_default());
        let text = text::listed(entry, to_do.filter(|_| !is_doubtful));
        all.push(Event::new(warning, word(entry).to_owned(), &entry.node_id, &text));
    }
    all
}

/// Machines that failed, or are held back by other hosts, and did not for this reason before.
pub fn newly_failed<'a>(
    before: &'a BareMetalHostDiscoveryStatus,
    after: &'a BareMetalHostDiscoveryStatus,
) -> impl Iterator<Item = &'a ListedHost> {
    let [was, is] = [before, after].map(|it| it.counts.clone().unwrap_or_default());
    // Anybody may have written the status of before.
    let failed = is.failed.saturating_sub(was.failed);
    let held = is.conflicting.saturating_sub(was.conflicting);
    let failures = newly_counted(&before.failures, &after.failures, failed);
    failures.chain(newly_counted(&before.conflicts, &after.conflicts, held))
}

/// What is new in a list, without those that only found a place: a full list had no room for what stands behind all that it
/// showed. `more` of them at least are new.
fn newly_counted<'a>(
    old: &'a [ListedHost],
    new: &'a [ListedHost],
    more: i32,
) -> impl Iterator<Item = &'a ListedHost> {
    let was_shown = |it: &ListedHost| old.iter().any(|old| old.node_id == it.node_id);
    let shown = new.iter().rposition(was_shown).map_or(0, |last| last + 1);
    let more = usize::try_from(more).unwrap_or_default().min(new.len());
    let reached = if old.len() < LONGEST_LIST { new.len() } else { shown.max(more) };
    newly_listed(old, &new[..reached])
}

fn newly_listed<'a>(
    old: &'a [ListedHost],
    new: &'a [ListedHost],
) -> impl Iterator<Item = &'a ListedHost> {
    new.iter().filter(move |entry| same_in(old, entry).is_none())
}

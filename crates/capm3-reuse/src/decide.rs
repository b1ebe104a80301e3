//! The rules, in the order in which they apply. Pure: no client, no clock.
//!
//! The refusals are here. `entry`: what must be there before anything is installed. `obtain`: how a machine comes to a host.
//! `serve`: what is done with the host that it has. `node`: what is done about its Node. `release`: a machine that goes.
//! `left`: a host whose machine is gone. `collect`: when a host is kept no longer.

mod collect;
mod entry;
mod left;
mod node;
mod obtain;
mod release;
mod serve;

use std::time::Duration;

use api_types::capi::{self, Cluster};
use api_types::names;
use api_types::names::capm3::CONDITION_ASSOCIATED;
use controller_kit::api_error::is_unasked;
use k8s_openapi::jiff::Timestamp;

use crate::decision::{Decision, Step};
use crate::machine::{was_associated, was_up};
use crate::reason::Reason;
use crate::seen::{HostSeen, MachineSeen, Observed, Parent};
use crate::settings::Policy;
use crate::status::{self, Report, Said};

/// Waits that end by themselves within this time of a machine's life are not worth a write.
const YOUNG: Duration = Duration::from_secs(5);
/// How soon to look again where a cache is behind what was read live.
const BEHIND: Duration = Duration::from_secs(1);

/// Decides about a machine, a kept host, or one that its machine left.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    match seen {
        Observed::Nothing => Decision::rest(Reason::NotOurs),
        Observed::Machine(seen) => about_machine(seen, policy, now),
        Observed::Kept(seen) => collect::about_kept(seen, policy, now),
        Observed::Left(seen) => left::about_left(seen),
    }
}

fn about_machine(seen: &MachineSeen, policy: &Policy, now: Timestamp) -> Decision {
    let machine = &seen.machine;
    if capi::is_paused(&machine.metadata) || seen.cluster.as_ref().is_some_and(Cluster::is_paused) {
        return paused(seen, now);
    }
    if machine.metadata.deletion_timestamp.is_some() {
        return release::about_leaving(seen, now);
    }
    let parent = match &seen.parent {
        Parent::Here(parent) => parent,
        Parent::None => {
            return told(seen, now, Reason::WaitingForOwner, "No Machine owns this Metal3Machine");
        }
        Parent::Missing(name) => {
            let text = format!("Machine {name} owns this Metal3Machine and is not there");
            return told(seen, now, Reason::MachineMissing, &text);
        }
    };
    let Some(cluster) = &seen.cluster else {
        let text = format!("Cluster {:?} is not there", parent.spec.cluster_name);
        return told(seen, now, Reason::ClusterMissing, &text);
    };
    match &seen.host {
        HostSeen::Here(host) if crate::host::is_of(host, machine) => {
            return serve::about_host(seen, parent, cluster, host, now);
        }
        // A machine that was up once must not come up a second time on another host.
        _ if was_up(machine) => return serve::about_loss(seen, now),
        HostSeen::Here(_) | HostSeen::Gone(_) if was_associated(machine) => {
            return serve::about_loss(seen, now);
        }
        _ => {}
    }
    obtain::about_homeless(seen, parent, cluster, policy, now)
}

/// Nothing is written but that it is so.
fn paused(seen: &MachineSeen, now: Timestamp) -> Decision {
    let text = "The Metal3Machine or its Cluster is paused";
    let report = Report { paused: Some(Said::yes(Reason::Paused, text)), ..Report::default() };
    let steps: Vec<Step> =
        status::patch(&seen.machine, &report, now).map(Step::Report).into_iter().collect();
    Decision {
        news: !steps.is_empty(),
        steps,
        message: text.to_owned(),
        ..Decision::rest(Reason::Paused)
    }
}

/// Whether this is the reason that the machine's status gives for whether it is up.
fn says(seen: &MachineSeen, reason: Reason) -> bool {
    status::reported(&seen.machine, names::capi::CONDITION_READY)
        .is_some_and(|it| it.reason.as_deref() == Some(reason.as_str()))
}

/// A machine that waits for something that is no host, and says so.
fn told(seen: &MachineSeen, now: Timestamp, reason: Reason, text: &str) -> Decision {
    let age = seen
        .machine
        .metadata
        .creation_timestamp
        .as_ref()
        // A clock that is far behind the API server's makes no machine young.
        .map(|born| now.duration_since(born.0).unsigned_abs());
    let decision = reported(seen, now, reason, text, |_| {});
    // Each kind has a watch of its own, and the younger object's may be the faster one.
    let is_on_its_way = matches!(reason, Reason::MachineMissing | Reason::ClusterMissing);
    match age {
        Some(age) if age < YOUNG && (is_on_its_way || !reason.is_warning()) => {
            Decision { again: Some(YOUNG.saturating_sub(age)), ..quiet(decision) }
        }
        _ => decision,
    }
}

/// What a machine says when the API server refused a write of it. That is said once for each spec: the text may be another
/// each time, and the report wakes the machine.
pub(crate) fn refused(seen: &MachineSeen, why: &str, now: Timestamp) -> Option<Step> {
    let machine = &seen.machine;
    let said = status::reported(machine, names::capi::CONDITION_READY);
    // A webhook that was away and is back may have something to say for itself.
    let is_back = |before: &str| is_unasked(before) && !is_unasked(why);
    let is_told = said.is_some_and(|it| {
        it.reason.as_deref() == Some(Reason::Refused.as_str())
            // The older list of conditions does not say for which spec.
            && it.observed_generation.or(seen.told) == machine.metadata.generation
            && !is_back(it.message.as_deref().unwrap_or_default())
    });
    if is_told {
        return None;
    }
    let leaves = machine.metadata.deletion_timestamp.is_some();
    let was_ready = said.is_some_and(api_types::condition::Condition::is_true);
    let decision = reported(seen, now, Reason::Refused, why, |report| {
        if leaves {
            // Whether it had a host decides how it goes.
            report.associated = None;
        } else if machine.is_provisioned() && was_ready {
            // What runs goes on running without that write.
            report.ready = Some(Said::yes(Reason::Refused, why));
        }
    });
    decision.steps.into_iter().next()
}

fn quiet(decision: Decision) -> Decision {
    Decision { steps: Vec::new(), news: false, ..decision }
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
        associated: (!has_host(seen)).then(|| Said::no(reason, text)),
        ready: Some(Said::no(reason, text)),
        paused: Some(not_paused()),
        ..Report::default()
    };
    more(&mut report);
    with_report(seen, now, Vec::new(), reason, text, &report)
}

/// Whether the machine has a host, whatever else is missing.
fn has_host(seen: &MachineSeen) -> bool {
    matches!(&seen.host, HostSeen::Here(host) if crate::host::is_of(host, &seen.machine))
}

fn not_paused() -> Said {
    Said::no(Reason::NotPaused, "")
}

/// Steps, and then the report if it differs from what is there.
fn with_report(
    seen: &MachineSeen,
    now: Timestamp,
    mut steps: Vec<Step>,
    reason: Reason,
    text: &str,
    report: &Report,
) -> Decision {
    let before = status::reported(&seen.machine, CONDITION_ASSOCIATED);
    let ready = status::reported(&seen.machine, names::capi::CONDITION_READY);
    let was = |condition: Option<&api_types::condition::Condition>| {
        condition.and_then(|it| it.reason.as_deref()) == Some(reason.as_str())
    };
    let known = was(before) || was(ready) || is_everyday(reason);
    steps.extend(status::patch(&seen.machine, report, now).map(Step::Report));
    Decision {
        news: !steps.is_empty() && !known,
        steps,
        message: text.to_owned(),
        ..Decision::rest(reason)
    }
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
    Decision { again: Some(BEHIND), ..Decision::rest(reason) }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
pub(crate) mod tests;

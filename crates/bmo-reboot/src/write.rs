//! All writes, each on the version that was decided upon, and the one call that may follow them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api_types::metal3::{CachedHost, ErrorType, Kept};
use api_types::time::{until, whole};
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::{Error, Next, Outcome, Reason as _, asked};
use ironic::{Class, Power, PowerTarget};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::case::second_after;
use crate::context::{Context, SOFT};
use crate::decision::{Answer, Call, Change, Decision, Note};
use crate::metrics::seconds;
use crate::model::{Host, Look, Memory, NodeSeen, OffTaken};
use crate::observe::compare;
use crate::reason::Reason;
use crate::requests::Request;
use crate::settle::settle;
use crate::text;

/// How long it stands that a power-on is wanted, from the moment in which that was proven until it is sent: somebody may hold
/// the host since. An off that was accepted is carried out whatever becomes of its request.
const ON_IS_PROVEN: Duration = Duration::from_millis(100);
const OFF_IS_PROVEN: Duration = Duration::from_secs(1);

/// Carries out a decision about a host and its node.
pub async fn write(
    context: &Context,
    Look { seen, pace }: &Look,
    decision: &Decision,
    memory: &mut Memory,
) -> Result<Outcome, Error> {
    let (Some(host), node) = (&seen.host, &seen.node) else { return Ok(Outcome::default()) };
    let api: Api<CachedHost> = Api::namespaced(context.kit.client.clone(), &host.namespace);
    let now = write_both(context, &api, Host::clone(host), decision).await?;
    measure(context, host, node, decision);
    let Some(call) = decision.call else {
        if decision.again.next(*pace) == Next::OnChange {
            context.nodes.rests(&host.node);
        }
        // Of a host that says by now what its node showed nothing more is read.
        compare(memory, &now, node);
        return Ok(Outcome { version: Some(now.version), ..Outcome::default() });
    };
    if decision.annotations.is_empty() && decision.status.is_empty() {
        // Nothing was to be written, so nothing proves that the host is still what was decided about.
        prove(&api, &now).await?;
    }
    if call == Call::On && !now.requests.is_empty() && !host.state.is_available() {
        return Err(Error::Superseded);
    }
    let (began, off) = (Instant::now(), matches!(call, Call::HardOff | Call::SoftOff(_)));
    let shown =
        matches!(node, NodeSeen::Seen(node) if node.power == Power::Off && node.target.is_none());
    if !(off && shown && now.requests.holds().next().is_some()) {
        // It was seen off before something changed.
        memory.off_since = None;
    }
    let taken = memory.off_taken.take().filter(|_| off);
    let answer = ask(context, &api, (host, &now), call).await?;
    context.metrics.called(call, &answer);
    let holders = now.requests.holders_of(&host.node);
    let accepted = off && answer == Answer::Accepted;
    memory.off_taken = if accepted { Some(OffTaken::after(taken, holders, began)) } else { taken };
    if matches!(node, NodeSeen::Seen(node) if node.power == Power::Unknown) {
        memory.blind_calls = (memory.blind_calls.0.saturating_add(1), Some(Instant::now()));
    }
    if matches!(call, Call::Reset | Call::SoftReset(_))
        && matches!(answer, Answer::Accepted | Answer::Unknown)
    {
        // The stamp of a reset is a whole second that has come, and before which Ironic had taken it.
        let now = Timestamp::now();
        tokio::time::sleep(until(now, second_after(whole(now)))).await;
    }
    tracing::info!(
        object.namespace = host.namespace,
        object.name = host.name,
        call = ?call,
        answer = ?answer,
        reason = decision.reason.as_str(),
        "Asked Ironic for a change of power"
    );
    let after = settle(&now, node, (call, &answer), &context.policy, Timestamp::now());
    let written = now.version.clone();
    match write_both(context, &api, now, &after).await {
        Ok(now) => Ok(Outcome {
            version: Some(now.version),
            events: after.notes.iter().map(Note::event).collect(),
            next: Some(after.again.next(context.nodes.pace(&host.node))),
            ..Outcome::default()
        }),
        // The call was made, whether or not what came of it could be written down: the next pass reads that.
        Err(error) => {
            tracing::debug!(object.name = host.name, %error, "Ironic's answer was not written down");
            Ok(Outcome { version: Some(written), next: Some(Next::Now), ..Outcome::default() })
        }
    }
}

/// Metadata first, then the status.
async fn write_both(
    context: &Context,
    api: &Api<CachedHost>,
    mut host: Host,
    decision: &Decision,
) -> Result<Host, Error> {
    if !decision.annotations.is_empty() {
        host = write_annotations(context, api, &host, &decision.annotations).await?;
    }
    if !decision.status.is_empty() {
        host = write_status(context, api, &host, &decision.status).await?;
    }
    Ok(host)
}

async fn write_annotations(
    context: &Context,
    api: &Api<CachedHost>,
    host: &Host,
    annotations: &BTreeMap<String, Option<String>>,
) -> Result<Host, Error> {
    let metadata = json!({ "resourceVersion": host.version, "annotations": annotations });
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    let params = PatchParams::default();
    let written = asked("change annotations", api.patch(&host.name, &params, &patch)).await?;
    Ok(context.view(&written))
}

async fn write_status(
    context: &Context,
    api: &Api<CachedHost>,
    host: &Host,
    change: &Change,
) -> Result<Host, Error> {
    let patch = Patch::Merge(status_patch(host, change, Timestamp::now()));
    let params = PatchParams::default();
    let written = asked("write the status", api.patch_status(&host.name, &params, &patch)).await?;
    let written = context.view(&written);
    // A CRD without conditions drops them without a word.
    let kept = change.record(host).is_none_or(|record| written.record() == Kept::Known(record));
    if kept { Ok(written) } else { Err(Error::Other(text::DROPPED.to_owned(), Retry::Urgent)) }
}

/// The merge patch. Conditions are a list, which a merge patch replaces as a whole; the version makes sure that it is
/// the one that was read.
fn status_patch(host: &Host, change: &Change, now: Timestamp) -> Value {
    let now = whole(now);
    let mut status = json!({ "lastUpdated": now.to_string() });
    if let Some(on) = change.powered_on {
        status["poweredOn"] = on.into();
    }
    let mut stamps = serde_json::Map::new();
    if change.clear_stamps {
        stamps.insert("pendingRebootSince".to_owned(), Value::Null);
        stamps.insert("lastPoweredOn".to_owned(), Value::Null);
    }
    if let Some(pending) = change.pending {
        stamps.insert("pendingRebootSince".to_owned(), pending.to_string().into());
    }
    if let Some(last) = change.last {
        stamps.insert("lastPoweredOn".to_owned(), last.to_string().into());
    }
    if !stamps.is_empty() {
        status["provisioning"] = stamps.into();
    }
    let conditions = change.conditions(host, now);
    if conditions != host.conditions {
        status["conditions"] = json!(conditions);
    }
    match &change.trouble {
        None => {}
        Some(None) => {
            status["operationalStatus"] = "OK".into();
            status["errorType"] = Value::Null;
            status["errorMessage"] = "".into();
            status["errorCount"] = 0.into();
        }
        Some(Some(trouble)) => {
            status["operationalStatus"] = "error".into();
            status["errorType"] = ErrorType::PowerManagement.as_str().into();
            status["errorMessage"] = trouble.message.clone().into();
            status["errorCount"] = trouble.count.into();
        }
    }
    json!({ "metadata": { "resourceVersion": host.version }, "status": status })
}

/// Insists on the version that was decided about.
async fn prove(api: &Api<CachedHost>, now: &Host) -> Result<(), Error> {
    let read = asked("read the host", api.get(&now.name)).await?;
    let version = read.metadata.resource_version.as_deref();
    if version == Some(now.version.as_str()) { Ok(()) } else { Err(Error::Superseded) }
}

/// Asks Ironic for a change of power, once, of the node of a `host`. That it is still wanted has just been proven for the
/// host as it is `now`.
async fn ask(
    context: &Context,
    api: &Api<CachedHost>,
    (host, now): (&Host, &Host),
    call: Call,
) -> Result<Answer, Error> {
    let (key, softly) = (host.key(), matches!(call, Call::SoftOff(_) | Call::SoftReset(_)));
    if softly && !context.softly.enter(&key, SOFT, context.policy.soft_attempts) {
        return Ok(Answer::NoRoom);
    }
    let target = match call {
        Call::HardOff => PowerTarget::Off,
        Call::SoftOff(time) => PowerTarget::SoftOff(time),
        Call::On => PowerTarget::On,
        Call::Reset => PowerTarget::Reboot,
        Call::SoftReset(time) => PowerTarget::SoftReboot(time),
    };
    let answer = send(context, api, (host, now), target).await.map(|sent| match sent {
        Ok(()) => Answer::Accepted,
        Err(error) => meaning(&error),
    });
    if softly && !matches!(answer, Ok(Answer::Accepted | Answer::Unknown)) {
        context.softly.update(&key, None);
    }
    if matches!(answer, Ok(Answer::Unreachable(_) | Answer::Unknown)) {
        context.nodes.unanswered();
    }
    answer
}

/// Sends it, as soon as there is a place for it. Others that hang may have had all places for long: whoever has asked meanwhile
/// is not to be told by nobody.
async fn send(
    context: &Context,
    api: &Api<CachedHost>,
    (host, now): (&Host, &Host),
    target: PowerTarget,
) -> Result<ironic::Result<()>, Error> {
    let patience = if target == PowerTarget::On { ON_IS_PROVEN } else { OFF_IS_PROVEN };
    let (mut answer, mut proven) = (Ok(()), Instant::now());
    // What is read until it is over says nothing of what comes of it.
    let _calling = context.nodes.calling(&host.node);
    for _ in 0..2 {
        let ready = context.nodes.client().ready_for_power(&host.node, target).await;
        if proven.elapsed() >= patience {
            prove(api, now).await?;
            proven = Instant::now();
        }
        if !context.kit.may_act() {
            return Err(Error::Superseded);
        }
        answer = match ready {
            Ok(ready) => ready.send().await,
            Err(error) => Err(error),
        };
        // Neither was acted upon, and what was wrong may be right by now.
        let outdated = |error: &ironic::Error| {
            matches!(error.class(), Class::TooOld | Class::Unauthorized) && !error.maybe_done()
        };
        if !answer.as_ref().is_err_and(outdated) {
            break;
        }
    }
    Ok(answer)
}

/// What an error of Ironic says about the host. Only a refusal is the host's own.
fn meaning(error: &ironic::Error) -> Answer {
    if error.maybe_done() {
        return Answer::Unknown;
    }
    // Whatever its words: a conflict is one with the moment, and the next pass reads what it is about.
    if error.status() == Some(409) {
        return Answer::Busy(error.text().to_owned());
    }
    by_class(error.class(), error.text(), error.to_string())
}

/// What a class of errors says. Ironic also knows no such node when no conductor is left for it; that it is really gone
/// is for the next pass to read.
fn by_class(class: Class, said: &str, told: String) -> Answer {
    match class {
        Class::Locked | Class::WrongState => Answer::Busy(said.to_owned()),
        Class::Unsupported => Answer::Unsupported,
        Class::Refused => Answer::Refused(said.to_owned()),
        _ => Answer::Unreachable(told),
    }
}

fn measure(context: &Context, host: &Host, node: &NodeSeen, decision: &Decision) {
    let (metrics, now) = (&context.metrics, Timestamp::now());
    let change = &decision.status;
    if change.pending.is_some() {
        metrics.accepted(host.requests.iter().any(Request::is_hard));
    }
    if let (Some(false), true, Some(pending)) = (change.powered_on, host.in_cycle(), host.pending) {
        metrics.off_after(seconds(pending, now));
    }
    // One that is only not certainly off any more was not seen on.
    let seen_on = matches!(node, NodeSeen::Seen(node) if node.power == Power::On);
    if let (Some(true), true, Some(progress)) = (change.powered_on, seen_on, host.progress())
        && progress.reason == Reason::PoweringOn
    {
        metrics.on_after(seconds(progress.since, now));
    }
    if decision.notes.iter().any(|note| note.reason == Reason::SoftPowerOffFailed) {
        metrics.escalated();
    }
}

#[cfg(test)]
mod tests;

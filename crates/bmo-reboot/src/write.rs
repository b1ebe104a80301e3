//! All writes, each on the version that was decided upon, and the one call that may follow them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api_types::metal3::{CachedHost, ErrorType, Kept};
use api_types::names::metal3::{PAUSED, REBOOT};
use api_types::time::{until, whole};
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::{Error, Next, Outcome, Reason as _, asked, sent};
use ironic::{Class, Power};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::case::second_after;
use crate::context::Context;
use crate::decide::not_taken_over;
use crate::model::{Answer, Call, Change, Host, Memory, Node, Observed, OffTaken, Write};
use crate::observe::compare;
use crate::reason::Reason;
use crate::settle::settle;
use crate::text;

/// Carries out what was decided about a host and its node.
pub async fn write(
    context: &Context,
    seen: &Observed,
    write: &Write,
    memory: &mut Memory,
) -> Result<Outcome, Error> {
    let (Some(host), node) = (&seen.host, &seen.node) else { return Ok(Outcome::default()) };
    let api: Api<CachedHost> = Api::namespaced(context.kit.client.clone(), &host.key.namespace);
    // Whatever becomes of a write whose answer is lost, it is not somebody else's.
    memory.powered_on = None;
    let now = write_both(context, &api, (seen, host.clone()), write).await?;
    memory.powered_on = Some(now.powered_on);
    context.metrics.written(host, node, write);
    let Some(call) = write.call else {
        if write.rests {
            context.nodes.rests(&host.node);
        }
        // Of a host that says by now what its node showed nothing more is read.
        compare(memory, &now, node);
        return Ok(Outcome { version: Some(now.version), ..Outcome::default() });
    };
    if write.annotations.is_empty() && write.status.is_empty() {
        // Nothing was to be written, so nothing proves that the host is still what was decided about.
        prove(&api, &now).await?;
    }
    if call == Call::On && !now.requests.is_empty() && !host.state.is_available() {
        return Err(Error::Superseded);
    }
    let began = Instant::now();
    let shown = node.node().is_some_and(Node::shows_off);
    if !(call.is_off() && shown && now.requests.holds().next().is_some()) {
        // It was seen off before something changed.
        memory.off_since = None;
    }
    let taken = memory.off_taken.take().filter(|_| call.is_off());
    let answer = ask(context, &api, (host, &now), call).await?;
    context.metrics.called(call, &answer);
    let holders = now.requests.holders_of(&host.node);
    let accepted = call.is_off() && answer == Answer::Accepted;
    memory.off_taken = if accepted { Some(OffTaken::after(taken, holders, began)) } else { taken };
    if node.node().is_some_and(|node| node.power == Power::Unknown) {
        memory.blind_calls = (memory.blind_calls.0.saturating_add(1), Some(Instant::now()));
    }
    if matches!(call, Call::Reboot | Call::SoftReboot(_))
        && matches!(answer, Answer::Accepted | Answer::Unknown)
    {
        // The stamp of a reset is a whole second that has come, and before which Ironic had taken it.
        let now = Timestamp::now();
        tokio::time::sleep(until(now, second_after(whole(now)))).await;
    }
    tracing::info!(
        object.namespace = host.key.namespace,
        object.name = host.key.name,
        call = ?call,
        answer = ?answer,
        reason = Reason::of_call(call).as_str(),
        "Asked Ironic for a change of power"
    );
    let (version, pace) = (now.version.clone(), Some(context.nodes.pace(&host.node)));
    let after = Observed { host: Some(now.clone()), node: node.clone(), soft_free: true, pace };
    let settled = settle(&after, (call, &answer), &context.policy, Timestamp::now());
    let written = match settled.writes.first() {
        Some(write) => write_both(context, &api, (&after, now), write).await.map(|it| it.version),
        None => Ok(now.version),
    };
    match written {
        Ok(version) => Ok(Outcome {
            version: Some(version),
            events: settled.events,
            next: Some(settled.next),
            ..Outcome::default()
        }),
        // The call was made, whether or not what came of it could be written down: the next pass reads that.
        Err(error) => {
            tracing::debug!(object.name = host.key.name, %error, "Ironic's answer was not written down");
            Ok(Outcome { version: Some(version), next: Some(Next::Now), ..Outcome::default() })
        }
    }
}

/// Metadata first, then the status, of a `host` as it is now, for which this was decided on what was `seen`.
async fn write_both(
    context: &Context,
    api: &Api<CachedHost>,
    (seen, mut host): (&Observed, Host),
    Write { annotations, status, .. }: &Write,
) -> Result<Host, Error> {
    let (params, mut status) = (PatchParams::default(), status.clone());
    if !annotations.is_empty() {
        let metadata = json!({ "resourceVersion": host.version, "annotations": annotations });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        match sent("change annotations", api.patch(&host.key.name, &params, &patch)).await {
            Ok(written) => host = context.view(&written),
            // Webhooks judge annotations, and no status. The machine must not stay off because its request cannot be removed, nor
            // must somebody who holds it wait for that. A removal of which nobody knows insists on the version of the status write,
            // too: only one of the two is made.
            Err(error) if error.may_last() && only_answers(&host, annotations) => {
                status.answered = Some(host.requests.plain());
            }
            Err(error) => {
                let takes_over = annotations.get(PAUSED).is_some_and(Option::is_some);
                if error.may_last() && takes_over {
                    tell_refused(context, api, seen).await?;
                }
                return Err(error);
            }
        }
    }
    if !status.is_empty() {
        let patch = Patch::Merge(status_patch(&host, &status, Timestamp::now()));
        let patched = api.patch_status(&host.key.name, &params, &patch);
        let written = sent("write the status", patched).await?;
        let written = context.view(&written);
        // A CRD without conditions drops them without a word.
        if status.record(&host).is_some_and(|record| written.record() != Kept::Known(record)) {
            return Err(Error::Other(text::DROPPED.to_owned(), Retry::Urgent));
        }
        host = written;
    }
    Ok(host)
}

/// Says on a host that it cannot be taken over: its conditions would go on as before, or there would be none.
async fn tell_refused(
    context: &Context,
    api: &Api<CachedHost>,
    seen: &Observed,
) -> Result<(), Error> {
    let told = not_taken_over(seen, &context.policy, Timestamp::now());
    let (Some(host), Some(write)) = (&seen.host, told.writes.first()) else { return Ok(()) };
    Box::pin(write_both(context, api, (seen, host.clone()), write)).await.map(drop)
}

/// Whether all that is changed beside the status is that the plain request goes, which the record can say as well. With what was
/// installed it goes before the record does.
fn only_answers(host: &Host, annotations: &BTreeMap<String, Option<String>>) -> bool {
    let goes = host.requests.plain().is_some() && annotations.keys().eq([REBOOT]);
    goes && host.state.is_provisioned()
}

/// The merge patch. Conditions are a list, which a merge patch replaces as a whole; the version makes sure that it is
/// the one that was read.
fn status_patch(host: &Host, change: &Change, now: Timestamp) -> Value {
    let now = whole(now);
    let mut status = json!({ "lastUpdated": now.to_string() });
    if let Some(on) = change.powered_on {
        status["poweredOn"] = on.into();
    }
    for (field, stamp) in [("pendingRebootSince", change.pending), ("lastPoweredOn", change.last)] {
        if change.clear_stamps || stamp.is_some() {
            status["provisioning"][field] = json!(stamp.map(|stamp| stamp.to_string()));
        }
    }
    let conditions = change.conditions(host, now);
    if conditions != host.conditions {
        status["conditions"] = json!(conditions);
    }
    if let Some(trouble) = &change.trouble {
        let kind = trouble.as_ref().map(|_| ErrorType::PowerManagement.as_str());
        let trouble = trouble.clone().unwrap_or_default();
        status["operationalStatus"] = if kind.is_some() { "error" } else { "OK" }.into();
        status["errorType"] = json!(kind);
        status["errorMessage"] = trouble.message.into();
        status["errorCount"] = trouble.count.into();
    }
    json!({ "metadata": { "resourceVersion": host.version }, "status": status })
}

/// Insists on the version that was decided about.
async fn prove(api: &Api<CachedHost>, now: &Host) -> Result<(), Error> {
    let read = asked("read the host", api.get(&now.key.name)).await?;
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
    if call.is_soft() {
        if !context.soft_free(&host.key) {
            return Ok(Answer::NoRoom);
        }
        context.softly.note(&host.key, true);
    }
    let answer = send(context, api, (host, now), call).await;
    if call.is_soft() && !matches!(answer, Ok(Answer::Accepted | Answer::Unknown)) {
        context.softly.note(&host.key, false);
    }
    if matches!(answer, Ok(Answer::Unreachable(_) | Answer::Unknown)) {
        context.nodes.unanswered();
    }
    answer
}

/// How long it stands that a change is wanted, from the moment in which that was proven until it is sent. Somebody may hold the
/// host since, against which a power-on must not be sent. An off that was accepted is carried out whatever becomes of its
/// request.
fn proof_lasts(call: Call) -> Duration {
    if call == Call::On { Duration::from_millis(100) } else { Duration::from_secs(1) }
}

/// Sends it, as soon as there is a place for it. Others that hang may have had all places for long: whoever has asked meanwhile
/// is not to be told by nobody.
async fn send(
    context: &Context,
    api: &Api<CachedHost>,
    (host, now): (&Host, &Host),
    call: Call,
) -> Result<Answer, Error> {
    let proven = Instant::now();
    // What is read until it is over says nothing of what comes of it.
    let _calling = context.nodes.calling(&host.node);
    let ready = context.nodes.client().ready_for_power(&host.node, call).await;
    if proven.elapsed() >= proof_lasts(call) {
        prove(api, now).await?;
    }
    if !context.kit.may_act() {
        return Err(Error::Superseded);
    }
    let sent = match ready {
        Ok(ready) => ready.send().await,
        Err(error) => Err(error),
    };
    Ok(sent.map_or_else(|error| meaning(&error), |()| Answer::Accepted))
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

#[cfg(test)]
mod tests;

//! All writes, each on the version of the object that was decided on, or that the act before it left.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_types::capi::Machine;
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::names;
use api_types::names::capi::{
    CONDITION_EXTERNALLY_REMEDIATED, CONDITION_HEALTH_CHECK_SUCCEEDED, CONDITION_OWNER_REMEDIATED,
    REASON_WAITING_FOR_REMEDIATION,
};
use api_types::names::capm3::{
    NODE_ANNOTATIONS_BACKUP, NODE_LABELS_BACKUP, NODE_SHUTDOWN, OUT_OF_SERVICE, UNHEALTHY,
    UNHEALTHY_DEPRECATED, UNHEALTHY_NODE,
};
use api_types::names::ferrite::REMEDIATION_FINALIZER;
use api_types::names::ferrite::{
    CONDITION_SUCCEEDED, OUT_OF_SERVICE_BY, REMEDIATION_HISTORY, REMEDIATION_STANDING,
};
use api_types::remediation::Phase;
use api_types::time::whole;
use controller_kit::api_error;
use controller_kit::engine::error::asked_within;
use controller_kit::engine::{Error, Event, Outcome, Reason as _, asked, written};
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::clusters::PATIENCE;
use crate::conditions::{self, Change};
use crate::context::Context;
use crate::decide::refused_at_first;
use crate::decision::{Act, Decision, HostWrite, action};
use crate::history::History;
use crate::model::{LeftBehind, Live, Observed, Place};
use crate::observe::node::{is_out_of_service, taints};
use crate::reason::Reason;
use crate::request::{Group, Request, Standing, key_of, writers};
use crate::seen::{NodeSeen, has_plain};
use crate::text;

/// Carries out what was decided about a request.
pub async fn acts(context: &Context, live: &Live, decision: &Decision) -> Result<Outcome, Error> {
    let version = |it: &Option<Arc<CachedHost>>| it.as_ref().and_then(|it| it.resource_version());
    let mut pass = Pass {
        context,
        live,
        version: None,
        host_versions: [version(&live.host), version(&live.stray)],
        machine: live.machine.clone(),
        node: live.place.as_ref().map(|it| it.object.clone()),
        contested: None,
    };
    let request = &live.seen.request;
    let mut unsaid = None;
    for act in &decision.acts {
        if !context.kit.may_act() {
            return Err(Error::Superseded);
        }
        // Without the finalizer nobody would say it later.
        if unsaid.is_some() && matches!(act, Act::RemoveFinalizer) {
            break;
        }
        let Err(error) = pass.act(act).await else { continue };
        if matches!(act, Act::Say(_)) && !matches!(error, Error::Superseded) {
            // The webhook that judges it may run on the very machine that is off.
            unsaid = Some(error);
            continue;
        }
        if matches!(act, Act::Settled) && request.deleting.is_some() && error.is_refusal() {
            // A condition of somebody else's object is not worth a request that never goes.
            tracing::warn!(object.namespace = request.namespace, object.name = request.name, %error, "The Machine keeps the condition that it waits for remediation");
            continue;
        }
        pass.failed(decision.reason, act, &error).await;
        return Err(error);
    }
    if let Some(error) = unsaid {
        return Ok(not_said(pass.version, error));
    }
    for note in &decision.notes {
        tracing::info!(
            object.namespace = request.namespace,
            object.name = request.name,
            reason = note.reason.as_str(),
            "{}",
            note.text
        );
    }
    context.metrics.done(&live.seen, decision, live.at);
    let mut events = decision.events(request.standing.retries);
    events.extend(pass.contested);
    Ok(Outcome { version: pass.version, events, ..Outcome::default() })
}

/// What comes of a pass whose word was not taken. What it is about is told with the word.
fn not_said(version: Option<String>, error: Error) -> Outcome {
    let refused = error.is_refusal().then(|| Event {
        hourly: Some(0),
        ..Event::new(true, Reason::Refused.as_str(), "Say", &text::not_said(&error))
    });
    let events = refused.into_iter().collect();
    Outcome { version, events, failed: Some(error), ..Outcome::default() }
}

/// Takes away what a request that is gone left: its key, with the end of the record of its try; or the taint on its node, if it is
/// there, and then the word of it. A crash in between has the node looked at once more.
pub async fn clear(context: &Context, left: &LeftBehind) -> Result<Outcome, Error> {
    let LeftBehind { host, uid, node, place } = left;
    let is_tainted = matches!(node, NodeSeen::Here(node) if node.taint.is_ours());
    if let Some(place) = place.as_ref().filter(|_| is_tainted) {
        place.patch(&Act::Untaint, &place.object, uid).await?;
    }
    let is_released = *node == NodeSeen::NotAsked;
    let patch = if is_released {
        orphan_patch(host, uid)
    } else {
        let history = Some(History::of(host).untainted(uid));
        host_patch(host, uid, "", &HostWrite { history, ..HostWrite::default() })
    };
    let what = "clear a BareMetalHost whose request is gone";
    patch_host(context, what, host, host.resource_version(), patch).await?;
    // Where it had let go of the host, all that was missing is the end of its record.
    let was_held = host.annotation(&key_of(uid)).is_some() || has_plain(host, uid);
    let told = match (is_released, is_tainted) {
        (true, _) if was_held => {
            context.metrics.released();
            Some((true, text::RELEASED))
        }
        (false, true) => Some((false, text::UNTAINTED_LATER)),
        _ => None,
    };
    let event = |(warning, text)| Event::new(warning, Reason::Withdrawn.as_str(), "Release", text);
    Ok(Outcome { events: told.map(event).into_iter().collect(), ..Outcome::default() })
}

/// Takes back what a Machine says of a request that is gone, in both formats.
pub async fn take_back(context: &Context, machine: &Machine) -> Result<Outcome, Error> {
    let said = context.left_on(machine);
    let gone: Vec<_> = said.iter().map(|it| (*it, None)).collect();
    let patch = Patch::Merge(conditions::patch(machine, &gone, now()));
    let (namespace, name) = (machine.namespace().unwrap_or_default(), machine.name_any());
    let (machines, what) = (context.machines(&namespace), "take back what the Machine says");
    written(what, machines.patch_status(&name, &PatchParams::default(), &patch)).await?;
    tracing::info!(
        object.namespace = namespace,
        object.name = name,
        conditions = said.join(", "),
        "Took back what a Machine said of a request that is gone"
    );
    Ok(Outcome::default())
}

/// The writes of one pass, and what they left.
struct Pass<'a> {
    context: &'a Context,
    live: &'a Live,
    /// The request's version after our last act on it.
    version: Option<String>,
    /// The versions of its host and of the stray one, and the Machine and the node, as they were read or as our last act on them left
    /// them.
    host_versions: [Option<String>; 2],
    machine: Option<Machine>,
    node: Option<Node>,
    /// That somebody else writes the status of a request of CAPM3's kind during its try as well.
    contested: Option<Event>,
}

impl<'a> Pass<'a> {
    fn request(&self) -> &'a Request {
        &self.live.seen.request
    }

    /// The request's version, as it was read or as our last act left it.
    fn version(&self) -> &str {
        self.version.as_deref().unwrap_or(&self.request().version)
    }

    /// Takes notice of an act that could not be carried out.
    async fn failed(&mut self, reason: Reason, act: &Act, error: &Error) {
        let (seen, context) = (&self.live.seen, self.context);
        if matches!(error, Error::Superseded) {
            context.metrics.superseded();
        }
        let on_node = matches!(act, Act::Taint | Act::Untaint | Act::Restore(_) | Act::DeleteNode);
        // A node that is back and from which our marks cannot be taken is back all the same: not to ask for it any more could
        // end in another power cycle. Not so once it is withdrawn, which has its deadline.
        let gives_back = seen.request.deleting.is_none()
            && matches!(reason, Reason::Recovered | Reason::Recovering)
            && matches!(act, Act::Untaint | Act::Restore(_));
        if on_node && !gives_back {
            self.note_workload(error);
        }
        if error.is_refusal()
            && let Some(said) = refused_at_first(&seen.request, text::refused(error))
            && let Err(error) = self.act(&said).await
        {
            tracing::debug!(object.namespace = seen.request.namespace, object.name = seen.request.name, %error, "Could not say so either");
        }
    }

    /// From now on the node counts as one that cannot be asked, which has a deadline. Its cluster has just answered: whether it still
    /// does, the next look tells.
    fn note_workload(&self, error: &Error) {
        let (what, why) = match error {
            Error::Api { what, source } => (what, api_error::explain(source)),
            Error::Silent(what) => (what, text::NO_ANSWER.to_owned()),
            Error::Superseded | Error::Other(..) => return,
        };
        let seen = &self.live.seen;
        if let Some((cluster, node)) = seen.workload().zip(seen.node_name()) {
            let why = text::not_let(&cluster.name, what, &why);
            self.context.workloads.refused(&cluster, node, &why);
        }
    }

    /// Makes one write.
    async fn act(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Act::AddFinalizer => {
                let mut all = self.request().others.clone();
                all.push(REMEDIATION_FINALIZER.to_owned());
                self.patch_request(json!({"metadata": {"finalizers": all}})).await.map(drop)
            }
            Act::RemoveFinalizer => {
                let mut metadata = json!({"finalizers": self.request().others});
                if self.request().backup.is_some() {
                    metadata["annotations"] =
                        json!({NODE_LABELS_BACKUP: null, NODE_ANNOTATIONS_BACKUP: null});
                }
                self.patch_request(json!({ "metadata": metadata })).await.map(drop)
            }
            Act::BackUp(backup) => {
                let annotations = json!({
                    NODE_LABELS_BACKUP: backup.labels,
                    NODE_ANNOTATIONS_BACKUP: backup.annotations,
                });
                let patch = json!({"metadata": {"annotations": annotations}});
                self.patch_request(patch).await.map(drop)
            }
            Act::Say(standing) => self.say(standing).await,
            Act::Host(write) => self.write_host(write).await,
            Act::TellOwner(text) => {
                let told = Some((REASON_WAITING_FOR_REMEDIATION, text.as_str()));
                let mut changes = vec![(CONDITION_OWNER_REMEDIATED, told)];
                // Owners replace a Machine only if its health check has failed, too. Where a person asked, or none is there,
                // nobody else says so.
                if self.live.seen.machine.as_ref().is_some_and(|it| it.healthy != Some(false)) {
                    changes.push((CONDITION_HEALTH_CHECK_SUCCEEDED, told));
                }
                self.patch_machine(&changes).await
            }
            Act::Settled => self.say_on_machine(None).await,
            Act::Await => {
                self.say_on_machine(Some((REASON_WAITING_FOR_REMEDIATION, text::AWAITED))).await
            }
            Act::Complain(reason, text) => self.say_on_machine(Some((reason.as_str(), text))).await,
            Act::DeleteMachine => self.delete_machine().await,
            Act::Taint => {
                self.patch_node(act).await?;
                // A pass that stalled before its taint may have written it after another process undid the request, and then
                // nobody else would take it away.
                if !self.stands().await {
                    self.patch_node(&Act::Untaint).await?;
                    return Err(Error::Superseded);
                }
                Ok(())
            }
            Act::Untaint | Act::Restore(_) => self.patch_node(act).await,
            Act::DeleteNode => {
                // What the node had goes with the request.
                if !self.stands().await {
                    return Err(Error::Superseded);
                }
                let (place, node) = self.place()?;
                place.delete(node).await
            }
        }
    }

    /// The cluster of the node, and the node.
    fn place(&self) -> Result<(&'a Place, &Node), Error> {
        self.live.place.as_ref().zip(self.node.as_ref()).ok_or(Error::Superseded)
    }

    fn machine(&self) -> Result<&Machine, Error> {
        self.machine.as_ref().ok_or(Error::Superseded)
    }

    async fn patch_node(&mut self, act: &Act) -> Result<(), Error> {
        let (place, node) = self.place()?;
        if let Some(written) = place.patch(act, node, &self.request().uid).await? {
            self.node = Some(written);
        }
        Ok(())
    }

    /// Whether nobody has withdrawn the request: no precondition reaches from it to a node in another cluster.
    async fn stands(&self) -> bool {
        let (api, name) = (self.requests(), &self.request().name);
        let now = asked("read the Metal3Remediation again", api.get_metadata(name)).await;
        now.is_ok_and(|it| {
            it.metadata.uid.as_ref() == Some(&self.request().uid)
                && it.metadata.deletion_timestamp.is_none()
        })
    }

    fn requests(&self) -> Api<DynamicObject> {
        let (client, request) = (self.context.kit.client.clone(), self.request());
        Api::namespaced_with(client, &request.namespace, &request.group.resource())
    }

    /// Patches the request, or its status, in the version that was read or that our last act left. Gives what it is then.
    async fn patch_request(&mut self, mut patch: Value) -> Result<ObjectMeta, Error> {
        patch["metadata"]["resourceVersion"] = json!(self.version());
        let (api, name, params) = (self.requests(), &self.request().name, PatchParams::default());
        let is_status = patch.get("status").is_some();
        let patch = Patch::Merge(patch);
        let metadata = if is_status {
            let request = api.patch_status(name, &params, &patch);
            written("patch the status of the Metal3Remediation", request).await?.metadata
        } else {
            let request = api.patch_metadata(name, &params, &patch);
            written("patch the Metal3Remediation", request).await?.metadata
        };
        self.version.clone_from(&metadata.resource_version);
        Ok(metadata)
    }

    async fn say(&mut self, standing: &Standing) -> Result<(), Error> {
        let phase = standing.phase.as_ref();
        let last = standing.last.map(|it| it.to_string());
        if self.request().group == Group::Ours {
            let status = json!({
                "phase": phase.map(Phase::as_str),
                "retryCount": standing.retries,
                "lastRemediated": last,
                "step": standing.step,
                "since": standing.since.map(|it| it.to_string()),
                "observedGeneration": self.request().generation,
                "conditions": condition(self.request(), standing),
            });
            return self.patch_request(json!({ "status": status })).await.map(drop);
        }
        // The status first: the annotation is what says that all of it was written.
        let old = &self.request().standing;
        let shown = |it: &Standing| (it.phase.clone(), it.retries, it.last);
        if shown(old) != shown(standing) {
            let status = json!({
                "phase": phase.map(Phase::as_upstream_str),
                "retryCount": (standing.retries > 0).then_some(standing.retries),
                "lastRemediated": last,
            });
            let written = self.patch_request(json!({ "status": status })).await?;
            let begun = self.live.seen.last().map(|it| it.asked);
            let writers = begun.and_then(|begun| writers(&written, begun));
            self.contested = writers.map(|it| contested(&it, old.retries));
        }
        let annotations = json!({REMEDIATION_STANDING: standing.rest()});
        self.patch_request(json!({"metadata": {"annotations": annotations}})).await.map(drop)
    }

    async fn write_host(&mut self, write: &HostWrite) -> Result<(), Error> {
        let host = if write.stray { &self.live.stray } else { &self.live.host };
        let Some(host) = host else { return Err(Error::Superseded) };
        let version = &mut self.host_versions[usize::from(write.stray)];
        let Observed { request, machine, .. } = &self.live.seen;
        let machine = machine.as_ref().map_or("", |it| &it.uid);
        let patch = host_patch(host, &request.uid, machine, write);
        let what = "patch the BareMetalHost";
        *version = patch_host(self.context, what, host, version.take(), patch).await?;
        Ok(())
    }

    /// What the Machine says of its external remediation.
    async fn say_on_machine(&mut self, change: Change<'_>) -> Result<(), Error> {
        self.patch_machine(&[(CONDITION_EXTERNALLY_REMEDIATED, change)]).await
    }

    async fn patch_machine(&mut self, changes: &[(&str, Change<'_>)]) -> Result<(), Error> {
        let machine = self.machine()?;
        let patch = Patch::Merge(conditions::patch(machine, changes, now()));
        let machines = self.context.machines(&self.request().namespace);
        let (name, params) = (machine.name_any(), PatchParams::default());
        let request = machines.patch_status(&name, &params, &patch);
        self.machine = Some(written("patch the status of the Machine", request).await?);
        Ok(())
    }

    async fn delete_machine(&self) -> Result<(), Error> {
        let machines = self.context.machines(&self.request().namespace);
        let (name, params) = (self.machine()?.name_any(), this_very(&self.machine()?.metadata));
        written("delete the Machine", machines.delete(&name, &params)).await.map(drop)
    }
}

impl Place {
    /// Makes what an act changes of a node, in the version that was read or that the act before left. Gives what it is then, if
    /// anything had to be written.
    async fn patch(&self, act: &Act, node: &Node, request: &str) -> Result<Option<Node>, Error> {
        let Some((what, mut patch)) = node_patch(act, node, request) else { return Ok(None) };
        patch["metadata"]["resourceVersion"] = json!(node.metadata.resource_version);
        let (name, params, patch) = (node.name_any(), PatchParams::default(), Patch::Merge(patch));
        written_there(what, self.api.patch(&name, &params, &patch)).await.map(Some)
    }

    /// Deletes this very node.
    async fn delete(&self, node: &Node) -> Result<(), Error> {
        let (name, params) = (node.name_any(), this_very(&node.metadata));
        written_there("delete the Node", self.api.delete(&name, &params)).await.map(drop)
    }
}

/// What an act changes of a node, and what that is called. For the request of this uid, which the taint says it is of.
fn node_patch(act: &Act, node: &Node, request: &str) -> Option<(&'static str, Value)> {
    let tainted = |taints: Vec<Taint>, by: Option<&str>| {
        let annotations = json!({ OUT_OF_SERVICE_BY: by });
        json!({"metadata": {"annotations": annotations}, "spec": {"taints": taints}})
    };
    let mut all = taints(node);
    match act {
        Act::Taint => {
            all.push(Taint {
                key: OUT_OF_SERVICE.to_owned(),
                value: Some(NODE_SHUTDOWN.to_owned()),
                effect: "NoExecute".to_owned(),
                time_added: Some(Time(now())),
            });
            Some(("taint the Node", tainted(all, Some(request))))
        }
        Act::Untaint => {
            all.retain(|it| !is_out_of_service(it));
            Some(("remove the taint of the Node", tainted(all, None)))
        }
        Act::Restore(backup) => {
            // What the node says itself stays.
            let labels = lacking(&backup.labels, node.metadata.labels.as_ref());
            let annotations = lacking(&backup.annotations, node.metadata.annotations.as_ref());
            let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
            let lacks = !labels.is_empty() || !annotations.is_empty();
            lacks.then_some(("give the Node back its labels", patch))
        }
        _ => None,
    }
}

/// What a text has that is not there.
fn lacking(text: &str, there: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    all.retain(|key, _| there.is_none_or(|it| !it.contains_key(key)));
    all
}

/// Deletes the object as it was read, and no other of its name.
fn this_very(metadata: &ObjectMeta) -> DeleteParams {
    let preconditions = Preconditions {
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
    };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Waits for a write to a Node, as long as for any answer of its cluster. Where the node changed, or is gone, it comes too late.
async fn written_there<T>(
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let answer = async { api_error::unless_superseded(request.await) };
    asked_within(PATIENCE, what, answer).await?.ok_or(Error::Superseded)
}

/// A fact that does not go away: several controllers write the status of a request.
fn contested(writers: &str, retries: u32) -> Event {
    let (reason, text) = (Reason::Contested.as_str(), text::contested(writers));
    Event { hourly: Some(0), ..Event::new(true, reason, &action(retries), &text) }
}

/// The one condition of a request. Its time moves only with its status.
fn condition(request: &Request, standing: &Standing) -> Value {
    let Some(said) = &standing.said else { return json!([]) };
    let status = match said.succeeded {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let known = request.transition.as_ref().filter(|(known, _)| known == status);
    let since = known.map_or_else(now, |(_, since)| *since);
    json!([{
        "type": CONDITION_SUCCEEDED,
        "status": status,
        "reason": said.reason.as_str(),
        "message": said.message,
        "lastTransitionTime": since.to_string(),
        "observedGeneration": request.generation,
    }])
}

/// Patches a host in the version that was read, or that our last act left; one that was not read has none to insist on. Gives the
/// version after that.
async fn patch_host(
    context: &Context,
    what: &'static str,
    host: &BareMetalHost,
    version: Option<String>,
    mut patch: Value,
) -> Result<Option<String>, Error> {
    patch["metadata"]["resourceVersion"] = json!(version.ok_or(Error::Superseded)?);
    let hosts = context.hosts(&host.namespace().unwrap_or_default());
    let (name, params, patch) = (host.name_any(), PatchParams::default(), Patch::Merge(patch));
    let request = hosts.patch_metadata(&name, &params, &patch);
    Ok(written(what, request).await?.resource_version())
}

/// What a write to a host changes for the request of this uid, about the Machine of that one.
fn host_patch(host: &BareMetalHost, uid: &str, machine: &str, write: &HostWrite) -> Value {
    let mut annotations = Map::new();
    if write.key == Some(false) {
        // Nobody else's.
        annotations.insert(key_of(uid), Value::Null);
        if has_plain(host, uid) {
            annotations.insert(names::metal3::REBOOT.to_owned(), Value::Null);
        }
    } else if write.key == Some(true) {
        let history = write.history.clone().unwrap_or_else(|| History::of(host));
        let entry = history.open(uid).cloned().unwrap_or_default();
        // Hard, since a node that hangs would not listen; and whom to ask about it.
        let mut value = json!({"mode": "hard", "machine": machine});
        // What an older try was held by would hold a plain one, too.
        let held = if entry.plain { Value::Null } else { json!(value.to_string()) };
        annotations.insert(key_of(uid), held);
        // One of another client is a reboot as well, and whose it is, only that client can tell by its value.
        let is_anothers = host.annotation(names::metal3::REBOOT).is_some() && !has_plain(host, uid);
        if (entry.plain || entry.beside) && !is_anothers {
            // Anybody may set that one: whose it is, it says itself.
            value["remediation"] = json!(uid);
            annotations.insert(names::metal3::REBOOT.to_owned(), json!(value.to_string()));
        }
    }
    if let Some(history) = &write.history {
        annotations.insert(REMEDIATION_HISTORY.to_owned(), json!(history.text()));
    }
    if write.mark {
        for key in [UNHEALTHY_DEPRECATED, UNHEALTHY] {
            // What a person wrote there stays.
            if host.annotation(key).is_none() {
                annotations.insert(key.to_owned(), json!(UNHEALTHY_NODE));
            }
        }
    }
    let mut patch = json!({});
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = annotations.into();
    }
    if write.offline {
        patch["spec"] = json!({"online": false});
    }
    patch
}

/// What a request that is gone leaves to be written: its keys go, and the record of its try ends.
fn orphan_patch(host: &BareMetalHost, uid: &str) -> Value {
    let history = Some(History::of(host).ended(uid, Reason::Withdrawn, now()));
    host_patch(host, uid, "", &HostWrite { key: Some(false), history, ..HostWrite::default() })
}

fn now() -> Timestamp {
    whole(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::tests::at;
    use crate::history::Entry;

    #[test]
    fn the_keys_of_a_try_are_set_as_its_record_says_also_when_they_are_set_anew() {
        let keys = |plain: bool, beside: bool, anew: bool| {
            let entry = Entry { plain, beside, ..Entry::begin("uid", "m", 0, at(0)) };
            let mut known = History(vec![Entry::begin("uid", "m", 0, at(0))]);
            let mut write = HostWrite { key: Some(true), ..HostWrite::default() };
            if anew {
                known.0[0] = entry;
            } else {
                write.history = Some(History(vec![entry]));
            }
            let mut host = BareMetalHost::default();
            host.metadata.annotations =
                Some([(REMEDIATION_HISTORY.to_owned(), known.text())].into());
            let patch = host_patch(&host, "uid", "machine", &write);
            let notes = &patch["metadata"]["annotations"];
            let is_set = |key: &str| notes.get(key).is_some_and(Value::is_string);
            (is_set("reboot.metal3.io/metal3-remediation-uid"), is_set(names::metal3::REBOOT))
        };
        for anew in [false, true] {
            assert_eq!(keys(false, false, anew), (true, false));
            assert_eq!(keys(false, true, anew), (true, true));
            assert_eq!(keys(true, false, anew), (false, true));
        }
    }

    #[test]
    fn the_plain_key_of_another_client_is_neither_overwritten_nor_removed() {
        let plain = Entry { plain: true, ..Entry::begin("uid", "m", 0, at(0)) };
        let history = History(vec![plain]);
        let of = |value: &str, key: bool| {
            let mut host = BareMetalHost::default();
            let notes = [
                (names::metal3::REBOOT.to_owned(), value.to_owned()),
                (REMEDIATION_HISTORY.to_owned(), history.text()),
            ];
            host.metadata.annotations = Some(notes.into());
            let write = HostWrite { key: Some(key), ..HostWrite::default() };
            let patch = host_patch(&host, "uid", "machine", &write);
            patch["metadata"]["annotations"].get(names::metal3::REBOOT).cloned()
        };
        for key in [true, false] {
            assert_eq!(of("", key), None);
            assert!(of(r#"{"remediation":"uid"}"#, key).is_some(), "our own");
        }
    }

    #[test]
    fn a_word_that_is_not_taken_fails_its_pass_and_is_told_where_somebody_refuses_it() {
        let told = |error: Error| {
            let outcome = not_said(Some("7".to_owned()), error);
            assert!(outcome.failed.is_some() && outcome.version.as_deref() == Some("7"));
            outcome.events.first().map(|it| (it.reason.to_string(), it.hourly))
        };
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403);
        let source = Box::new(kube::Error::Api(status.boxed()));
        let refused = Error::Api { what: "patch the status of the Metal3Remediation", source };
        assert_eq!(told(refused), Some(("Refused".to_owned(), Some(0))));
        assert_eq!(told(Error::Silent("patch")), None);
    }

    #[test]
    fn of_a_request_that_is_gone_either_key_goes_and_nobody_elses() {
        let keys = |plain: &str| {
            let mut host = BareMetalHost::default();
            let annotations = [(names::metal3::REBOOT.to_owned(), plain.to_owned())];
            host.metadata.annotations = Some(annotations.into());
            let patch = orphan_patch(&host, "uid");
            let all = patch["metadata"]["annotations"].as_object().unwrap();
            let gone = all.iter().filter(|(_, value)| value.is_null());
            let mut gone: Vec<String> = gone.map(|(key, _)| key.clone()).collect();
            gone.sort();
            gone
        };
        let own = "reboot.metal3.io/metal3-remediation-uid";
        assert_eq!(keys(r#"{"remediation":"uid"}"#), [names::metal3::REBOOT, own]);
        for other in [r#"{"remediation":"another"}"#, ""] {
            assert_eq!(keys(other), [own], "{other:?}");
        }
    }
}

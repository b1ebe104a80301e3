//! All writes, each on the version of the object that was decided on, or that the act before it left.

use std::collections::BTreeMap;

use api_types::capi::Machine;
use api_types::metal3::BareMetalHost;
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
use controller_kit::engine::Reason as _;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::conditions::{self, Change};
use crate::decision::{Act, HostWrite};
use crate::error::{Error, asked};
use crate::history::History;
use crate::observe::Live;
use crate::observe::clusters::PATIENCE;
use crate::observe::node::{self, Place};
use crate::request::{Backup, Group, Request, Standing, key_of, writers};
use crate::seen::has_plain;
use crate::served::Served;

/// The writes of one pass.
pub struct Pass {
    client: Client,
    served: Served,
    live: Live,
    /// The request's version, as it was read or as our last act left it.
    version: String,
    host_version: Option<String>,
    stray_version: Option<String>,
    writers: Option<String>,
}

impl Pass {
    /// The writes that follow from what was seen.
    pub fn new(client: Client, served: Served, live: Live) -> Self {
        let version = live.seen.request.version.clone();
        let of = |host: &Option<std::sync::Arc<BareMetalHost>>| {
            host.as_ref().and_then(|it| it.metadata.resource_version.clone())
        };
        let (host_version, stray_version) = (of(&live.host), of(&live.stray));
        Self { client, served, live, version, host_version, stray_version, writers: None }
    }

    /// Who wrote the status of a request of CAPM3's kind during its try, where that is somebody else as well.
    pub fn writers(&self) -> Option<&str> {
        self.writers.as_deref()
    }

    /// What was seen.
    pub fn live(&self) -> &Live {
        &self.live
    }

    fn request(&self) -> &Request {
        &self.live.seen.request
    }

    /// Makes one write.
    pub async fn act(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Act::AddFinalizer => {
                let mut all = self.request().others.clone();
                all.push(REMEDIATION_FINALIZER.to_owned());
                self.patch_request(json!({"metadata": {"finalizers": all}})).await
            }
            Act::RemoveFinalizer => {
                let mut metadata = json!({"finalizers": self.request().others});
                if self.request().backup.is_some() {
                    metadata["annotations"] =
                        json!({NODE_LABELS_BACKUP: null, NODE_ANNOTATIONS_BACKUP: null});
                }
                self.patch_request(json!({ "metadata": metadata })).await
            }
            Act::BackUp(backup) => {
                let annotations = json!({
                    NODE_LABELS_BACKUP: backup.labels,
                    NODE_ANNOTATIONS_BACKUP: backup.annotations,
                });
                self.patch_request(json!({"metadata": {"annotations": annotations}})).await
            }
            Act::Say(standing) => self.say(standing).await,
            Act::Host(write) => self.write_host(write).await,
            Act::TellOwner(text) => {
                let told = || Change::False(REASON_WAITING_FOR_REMEDIATION, text);
                let mut changes = vec![(CONDITION_OWNER_REMEDIATED, told())];
                // Owners replace a Machine only if its health check has failed, too. Where a person asked, or none is there,
                // nobody else says so.
                if self.live.seen.machine.as_ref().is_some_and(|it| it.healthy != Some(false)) {
                    changes.push((CONDITION_HEALTH_CHECK_SUCCEEDED, told()));
                }
                self.patch_machine(&changes).await
            }
            Act::Settled => {
                self.patch_machine(&[(CONDITION_EXTERNALLY_REMEDIATED, Change::Gone)]).await
            }
            Act::Await => {
                let text = "The host is asked to be switched off";
                let waits = Change::False(REASON_WAITING_FOR_REMEDIATION, text);
                self.patch_machine(&[(CONDITION_EXTERNALLY_REMEDIATED, waits)]).await
            }
            Act::Complain(reason, text) => {
                let why = Change::False(reason.as_str(), text);
                self.patch_machine(&[(CONDITION_EXTERNALLY_REMEDIATED, why)]).await
            }
            Act::DeleteMachine => self.delete_machine().await,
            Act::Taint => {
                let uid = self.request().uid.clone();
                let place = self.live.place.as_mut().ok_or(Error::Superseded)?;
                place.taint(&uid).await?;
                // A pass that stalled before its taint may have written it after another process undid the request, and then
                // nobody else would take it away.
                if !self.stands().await {
                    self.live.place.as_mut().ok_or(Error::Superseded)?.untaint().await?;
                    return Err(Error::Superseded);
                }
                Ok(())
            }
            Act::Untaint => self.live.place.as_mut().ok_or(Error::Superseded)?.untaint().await,
            Act::Restore(backup) => {
                self.live.place.as_mut().ok_or(Error::Superseded)?.restore(backup).await
            }
            Act::DeleteNode => {
                // What the node had goes with the request.
                if !self.stands().await {
                    return Err(Error::Superseded);
                }
                self.live.place.as_ref().ok_or(Error::Superseded)?.delete().await
            }
        }
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
        let request = self.request();
        let api_version = request.group.api_version();
        let (group, version) = api_version.split_once('/').unwrap_or_default();
        let kind = GroupVersionKind::gvk(group, version, "Metal3Remediation");
        let resource = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.client.clone(), &request.namespace, &resource)
    }

    async fn patch_request(&mut self, mut patch: Value) -> Result<(), Error> {
        patch["metadata"]["resourceVersion"] = json!(self.version);
        let (api, params) = (self.requests(), PatchParams::default());
        let name = self.request().name.clone();
        let patch = Patch::Merge(patch);
        let written = api.patch_metadata(&name, &params, &patch);
        let written = asked("patch the Metal3Remediation", written).await?;
        self.version = written.resource_version().unwrap_or_default();
        Ok(())
    }

    async fn patch_request_status(&mut self, status: Value) -> Result<(), Error> {
        let metadata = json!({"resourceVersion": self.version});
        let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
        let (api, params) = (self.requests(), PatchParams::default());
        let name = self.request().name.clone();
        let written = api.patch_status(&name, &params, &patch);
        let written = asked("patch the status of the Metal3Remediation", written).await?;
        self.version = written.resource_version().unwrap_or_default();
        if self.request().group != Group::Ours {
            let begun = self.live.seen.last().map(|it| it.asked);
            self.writers = begun.and_then(|begun| writers(&written.metadata, begun));
        }
        Ok(())
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
            return self.patch_request_status(status).await;
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
            self.patch_request_status(status).await?;
        }
        let annotations = json!({REMEDIATION_STANDING: standing.rest()});
        self.patch_request(json!({"metadata": {"annotations": annotations}})).await
    }

    async fn write_host(&mut self, write: &HostWrite) -> Result<(), Error> {
        let (host, version) = if write.stray {
            (&self.live.stray, &self.stray_version)
        } else {
            (&self.live.host, &self.host_version)
        };
        // A host that was not read has no version to insist on.
        let (Some(host), Some(version)) = (host, version) else { return Err(Error::Superseded) };
        let patch = Patch::Merge(host_patch(host, version, write, &self.live));
        let api: Api<BareMetalHost> =
            Api::namespaced(self.client.clone(), &self.request().namespace);
        let (name, params) = (host.name_any(), PatchParams::default());
        let written = api.patch_metadata(&name, &params, &patch);
        let written = asked("patch the BareMetalHost", written).await?;
        let left = written.resource_version();
        if write.stray {
            self.stray_version = left;
        } else {
            self.host_version = left;
        }
        Ok(())
    }

    fn machines(&self) -> Api<Machine> {
        let namespace = &self.request().namespace;
        Api::namespaced_with(self.client.clone(), namespace, &self.served.core)
    }

    async fn patch_machine(&mut self, changes: &[(&str, Change<'_>)]) -> Result<(), Error> {
        let machine = self.live.machine.as_ref().ok_or(Error::Superseded)?;
        let patch = Patch::Merge(conditions::patch(machine, changes, now()));
        let (api, params) = (self.machines(), PatchParams::default());
        let name = machine.name_any();
        let written = api.patch_status(&name, &params, &patch);
        self.live.machine = Some(asked("patch the status of the Machine", written).await?);
        Ok(())
    }

    async fn delete_machine(&self) -> Result<(), Error> {
        let machine = self.live.machine.as_ref().ok_or(Error::Superseded)?;
        let preconditions = Preconditions {
            uid: machine.metadata.uid.clone(),
            resource_version: machine.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let api = self.machines();
        asked("delete the Machine", api.delete(&machine.name_any(), &params)).await.map(drop)
    }
}

impl Place {
    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Patches the version that was read.
    async fn patch(&mut self, what: &'static str, mut patch: Value) -> Result<(), Error> {
        patch["metadata"]["resourceVersion"] = json!(self.object.metadata.resource_version);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let written = self.api.patch(self.name(), &params, &patch);
        let written = tokio::time::timeout(PATIENCE, written).await;
        self.object = taken(what, written)?;
        Ok(())
    }

    /// Sets the taint, and says in the same write whose it is.
    pub async fn taint(&mut self, request: &str) -> Result<(), Error> {
        let mut all = node::taints(&self.object);
        all.push(Taint {
            key: OUT_OF_SERVICE.to_owned(),
            value: Some(NODE_SHUTDOWN.to_owned()),
            effect: "NoExecute".to_owned(),
            time_added: Some(Time(now())),
        });
        let annotations = json!({ OUT_OF_SERVICE_BY: request });
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"taints": all}});
        self.patch("taint the Node", patch).await
    }

    /// Takes our taint away.
    pub async fn untaint(&mut self) -> Result<(), Error> {
        let mut all = node::taints(&self.object);
        all.retain(|it| !node::is_out_of_service(it));
        let annotations = json!({ OUT_OF_SERVICE_BY: null });
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"taints": all}});
        self.patch("remove the taint of the Node", patch).await
    }

    /// Gives the node what the one before had; what it says itself stays.
    pub async fn restore(&mut self, backup: &Backup) -> Result<(), Error> {
        let metadata = self.object.metadata.clone();
        let missing = |text: &str, own: Option<BTreeMap<String, String>>| {
            let mut all: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
            let own = own.unwrap_or_default();
            all.retain(|key, _| !own.contains_key(key));
            all
        };
        let labels = missing(&backup.labels, metadata.labels);
        let annotations = missing(&backup.annotations, metadata.annotations);
        if labels.is_empty() && annotations.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
        self.patch("give the Node back its labels", patch).await
    }

    /// Deletes this very node.
    pub async fn delete(&self) -> Result<(), Error> {
        let preconditions = Preconditions {
            uid: self.object.metadata.uid.clone(),
            resource_version: self.object.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let deleted = tokio::time::timeout(PATIENCE, self.api.delete(self.name(), &params)).await;
        taken("delete the Node", deleted).map(drop)
    }
}

fn taken<T>(
    what: &'static str,
    answer: Result<kube::Result<T>, tokio::time::error::Elapsed>,
) -> Result<T, Error> {
    let failed = |why: String, refused| Error::Workload { what, why, refused };
    match answer {
        Err(_) => Err(failed("no answer in time".to_owned(), false)),
        Ok(Ok(done)) => Ok(done),
        Ok(Err(kube::Error::Api(status)))
            if api_error::is_conflict(&status) || api_error::is_gone(&status) =>
        {
            Err(Error::Superseded)
        }
        Ok(Err(error)) => {
            let refused = matches!(error, kube::Error::Api(_));
            Err(failed(api_error::explain(&error), refused))
        }
    }
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

fn host_patch(host: &BareMetalHost, version: &str, write: &HostWrite, live: &Live) -> Value {
    let request = &live.seen.request;
    let mut annotations = Map::new();
    if write.key == Some(false) {
        annotations = without_keys(host, &request.uid);
    } else if write.key == Some(true) {
        let machine = live.seen.machine.as_ref().map(|it| it.uid.clone()).unwrap_or_default();
        // Hard, since a node that hangs would not listen; and whom to ask about it.
        let mut value = json!({"mode": "hard", "machine": machine});
        let mut key = request.key();
        if write.plain {
            // Anybody may set that one: whose it is, it says itself.
            value["remediation"] = json!(request.uid);
            // What an older try was held by would hold this one, too.
            annotations.insert(key.clone(), Value::Null);
            names::metal3::REBOOT.clone_into(&mut key);
        }
        annotations.insert(key, json!(value.to_string()));
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
    let mut patch = json!({"metadata": {"resourceVersion": version}});
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = annotations.into();
    }
    if write.offline {
        patch["spec"] = json!({"online": false});
    }
    patch
}

/// The keys of the request of this uid go, and nobody else's.
fn without_keys(host: &BareMetalHost, uid: &str) -> Map<String, Value> {
    let mut annotations = Map::new();
    annotations.insert(key_of(uid), Value::Null);
    if has_plain(host, uid) {
        annotations.insert(names::metal3::REBOOT.to_owned(), Value::Null);
    }
    annotations
}

/// Takes a key away whose request is gone, and ends its record.
pub async fn release_orphan(
    client: &Client,
    host: &BareMetalHost,
    uid: &str,
    history: &History,
) -> Result<(), Error> {
    let namespace = host.namespace().unwrap_or_default();
    let patch = Patch::Merge(orphan_patch(host, uid, history));
    let api: Api<BareMetalHost> = Api::namespaced(client.clone(), &namespace);
    let (name, params) = (host.name_any(), PatchParams::default());
    let written = api.patch_metadata(&name, &params, &patch);
    asked("release a BareMetalHost whose request is gone", written).await.map(drop)
}

/// Takes conditions of a Machine away, in both formats.
pub async fn take_back(
    client: &Client,
    served: Served,
    machine: &Machine,
    conditions: &[&str],
) -> Result<(), Error> {
    let gone: Vec<_> = conditions.iter().map(|it| (*it, Change::Gone)).collect();
    let patch = Patch::Merge(conditions::patch(machine, &gone, now()));
    let namespace = machine.namespace().unwrap_or_default();
    let api: Api<Machine> = Api::namespaced_with(client.clone(), &namespace, &served.core);
    let (name, params) = (machine.name_any(), PatchParams::default());
    let written = api.patch_status(&name, &params, &patch);
    asked("take back what the Machine says", written).await.map(drop)
}

fn orphan_patch(host: &BareMetalHost, uid: &str, history: &History) -> Value {
    let mut annotations = without_keys(host, uid);
    annotations.insert(REMEDIATION_HISTORY.to_owned(), json!(history.text()));
    let version = &host.metadata.resource_version;
    json!({"metadata": {"resourceVersion": version, "annotations": annotations}})
}

fn now() -> Timestamp {
    whole(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_request_that_is_gone_either_key_goes_and_nobody_elses() {
        let keys = |plain: &str| {
            let mut host = BareMetalHost::default();
            let annotations = [(names::metal3::REBOOT.to_owned(), plain.to_owned())];
            host.metadata.annotations = Some(annotations.into());
            let patch = orphan_patch(&host, "uid", &History::default());
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

//! All writes. Each insists on the version of the object that was observed, or that our last step left.

use std::collections::HashMap;
use std::time::Instant;

use api_types::capm3::{Metal3DataClaim, Metal3Machine};
use api_types::metal3::BareMetalHost;
use api_types::names;
use api_types::names::ferrite::RESERVED_HOST_UID;
use controller_kit::api_error::{is_conflict, is_gone, unless_superseded};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::decision::{Naming, Step};
use crate::error::Error;
use crate::host;
use crate::reservation;
use crate::seen::{HostSeen, MachineSeen, Parent};
use crate::served::Served;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Done,
    /// Somebody else wrote first, so it was not made. No failure: look again.
    Superseded,
}

/// The writes of one pass.
pub struct Pass {
    client: Client,
    served: Served,
    namespace: String,
    machine: Metal3Machine,
    cluster: String,
    /// When it has to be over.
    until: Instant,
    /// The machine's version, as observed or as our last step left it.
    pub(crate) machine_version: Option<String>,
    /// Whether a step of ours left it.
    pub(crate) machine_written: bool,
    /// The versions of hosts, as observed or as our last step left them.
    pub(crate) host_versions: HashMap<String, Option<String>>,
    /// The hosts of which a step of ours left it.
    pub(crate) hosts_written: Vec<String>,
}

impl Pass {
    /// The writes that follow from what was seen of a machine.
    pub fn of_machine(client: Client, served: Served, seen: &MachineSeen, until: Instant) -> Self {
        let mut host_versions = HashMap::new();
        let mut know = |host: &BareMetalHost| {
            host_versions.insert(host.name_any(), host.resource_version());
        };
        for chosen in seen.choice.kept.iter().chain(&seen.choice.free) {
            know(chosen);
        }
        // Read later than what was chosen from.
        if let HostSeen::Here(host) = &seen.host {
            know(host);
        }
        let cluster = match &seen.parent {
            Parent::Here(parent) => parent.spec.cluster_name.clone(),
            Parent::None | Parent::Missing(_) => String::new(),
        };
        Self {
            client,
            served,
            namespace: seen.machine.namespace().unwrap_or_default(),
            machine: seen.machine.clone(),
            cluster,
            until,
            machine_version: seen.machine.resource_version(),
            machine_written: false,
            host_versions,
            hosts_written: Vec::new(),
        }
    }

    /// The writes that follow from what was seen of a host.
    pub fn of_host(client: Client, served: Served, host: &BareMetalHost, until: Instant) -> Self {
        Self {
            client,
            served,
            namespace: host.namespace().unwrap_or_default(),
            machine: Metal3Machine::default(),
            cluster: String::new(),
            until,
            machine_version: None,
            machine_written: false,
            host_versions: [(host.name_any(), host.resource_version())].into(),
            hosts_written: Vec::new(),
        }
    }

    /// Carries out one step.
    pub async fn act(&mut self, step: &Step) -> Result<Outcome, Error> {
        // Who stood still for so long, as while a process is stopped, goes by what it read before that.
        if Instant::now() >= self.until {
            return Ok(Outcome::Superseded);
        }
        match step {
            Step::Intend { host, uid } => {
                let annotations = json!({
                    names::metal3::HOST: format!("{}/{host}", self.namespace),
                    names::ferrite::HOST_UID: uid,
                    names::ferrite::GIVES_UP_HOST: null,
                });
                let mut finalizers = self.machine.metadata.finalizers.clone().unwrap_or_default();
                if !finalizers.iter().any(|it| it == names::capm3::MACHINE_FINALIZER) {
                    finalizers.push(names::capm3::MACHINE_FINALIZER.to_owned());
                }
                let metadata = json!({ "annotations": annotations, "finalizers": finalizers });
                self.write_machine(json!({ "metadata": metadata })).await
            }
            Step::GiveUp { host } => {
                let annotations = json!({
                    names::metal3::HOST: null,
                    names::ferrite::GIVES_UP_HOST: host,
                });
                self.write_machine(json!({ "metadata": { "annotations": annotations } })).await
            }
            Step::Forget => {
                let annotations = json!({
                    names::ferrite::GIVES_UP_HOST: null,
                    names::ferrite::HOST_UID: null,
                });
                self.write_machine(json!({ "metadata": { "annotations": annotations } })).await
            }
            Step::Identify { provider_id, failure_domain } => {
                let mut spec = json!({ "providerID": provider_id });
                if let Some(domain) = failure_domain {
                    spec["failureDomain"] = json!(domain);
                }
                self.write_machine(json!({ "spec": spec })).await
            }
            Step::LetGo => {
                let all = self.machine.metadata.finalizers.iter().flatten();
                let others: Vec<&String> =
                    all.filter(|it| *it != names::capm3::MACHINE_FINALIZER).collect();
                self.write_machine(json!({ "metadata": { "finalizers": others } })).await
            }
            Step::Report(status) => self.write_status(status).await,
            Step::AskForData => self.ask_for_data().await,
            Step::WithdrawData => self.withdraw_data().await,
            Step::Claim { host, install } => {
                let version = self.served.infrastructure.as_str();
                let mut consumer = json!(host::consumer(&self.machine, version));
                // Whatever the reference before had and ours has not.
                for field in ["fieldPath", "resourceVersion"] {
                    consumer[field] = Value::Null;
                }
                let mut spec = install.as_ref().map(|it| it.fields.clone()).unwrap_or_default();
                spec.insert("consumerRef".to_owned(), consumer);
                let labels = json!({
                    names::capi::CLUSTER_NAME: self.cluster,
                    names::capm3::NODE_REUSE: null,
                });
                let metadata = json!({ "labels": labels, "annotations": without_notes() });
                self.write_host(host, metadata, Value::Object(spec)).await
            }
            Step::Install { host, install } => {
                self.write_host(host, json!({}), Value::Object(install.fields.clone())).await
            }
            Step::Unpause { host } => {
                let metadata = json!({ "annotations": { names::metal3::PAUSED: null } });
                self.write_host(host, metadata, json!({})).await
            }
            Step::PassOver { host, .. } => {
                // Different each time, or the version would not move.
                let by = format!(
                    "{}/{}",
                    self.machine.uid().unwrap_or_default(),
                    self.machine_version.as_deref().unwrap_or_default()
                );
                let metadata = json!({ "annotations": { names::ferrite::PASSED_OVER_BY: by } });
                self.write_host(host, metadata, json!({})).await
            }
            Step::Clear { host, fields, switch_off, cleaning, verdict, uid } => {
                let mut spec: Map<String, Value> =
                    fields.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
                if *switch_off {
                    spec.insert("online".to_owned(), json!(false));
                }
                if let Some(mode) = cleaning {
                    spec.insert("automatedCleaningMode".to_owned(), json!(mode));
                }
                let pending = reservation::as_pending(verdict.as_ref(), &self.namespace);
                let annotations = json!({
                    names::ferrite::PENDING_RESERVATION: pending,
                    RESERVED_HOST_UID: uid,
                });
                let metadata = json!({ "annotations": annotations });
                self.write_host(host, metadata, Value::Object(spec)).await
            }
            Step::Release { host, keep_for, uid, annotations } => {
                let gone = annotations.iter().map(|key| (key.clone(), Value::Null));
                let uid = uid.iter().map(|uid| (RESERVED_HOST_UID.to_owned(), json!(uid)));
                let annotations: Map<String, Value> = gone.chain(uid).collect();
                let labels = json!({
                    names::capi::CLUSTER_NAME: null,
                    names::capm3::NODE_REUSE: keep_for.as_ref().map(reservation::Owner::label),
                });
                let consumer = keep_for.as_ref().map(|owner| owner.reference(&self.namespace));
                let mut consumer = json!(consumer);
                if consumer.is_object() && consumer.get("uid").is_none() {
                    consumer["uid"] = Value::Null;
                }
                let metadata = json!({ "labels": labels, "annotations": annotations });
                self.write_host(host, metadata, json!({ "consumerRef": consumer })).await
            }
            Step::Free { host } => {
                self.write_host(host, of_free_host(), json!({ "consumerRef": null })).await
            }
        }
    }

    fn machines(&self) -> Api<Metal3Machine> {
        let version = &self.served.infrastructure;
        Api::namespaced_with(self.client.clone(), &self.namespace, version)
    }

    async fn write_machine(&mut self, mut patch: Value) -> Result<Outcome, Error> {
        patch["metadata"]["resourceVersion"] = json!(self.machine_version);
        let (name, params) = (self.machine.name_any(), PatchParams::default());
        let written = self.machines().patch_metadata(&name, &params, &Patch::Merge(patch)).await;
        let Some(written) =
            unless_superseded(written).map_err(Error::api("patch a Metal3Machine"))?
        else {
            return Ok(Outcome::Superseded);
        };
        self.machine_version = written.metadata.resource_version;
        self.machine_written = true;
        Ok(Outcome::Done)
    }

    async fn write_status(&mut self, status: &Value) -> Result<Outcome, Error> {
        let patch = json!({
            "metadata": { "resourceVersion": self.machine_version },
            "status": status,
        });
        let (name, params) = (self.machine.name_any(), PatchParams::default());
        let written = self.machines().patch_status(&name, &params, &Patch::Merge(patch)).await;
        let what = "patch the status of a Metal3Machine";
        let Some(written) = unless_superseded(written).map_err(Error::api(what))? else {
            return Ok(Outcome::Superseded);
        };
        self.machine_version = written.metadata.resource_version;
        self.machine_written = true;
        Ok(Outcome::Done)
    }

    async fn write_host(
        &mut self,
        name: &str,
        mut metadata: Value,
        spec: Value,
    ) -> Result<Outcome, Error> {
        // A host that was not observed has no version to insist on: nothing must be written to it.
        let Some(Some(version)) = self.host_versions.get(name) else {
            return Ok(Outcome::Superseded);
        };
        metadata["resourceVersion"] = json!(version);
        let patch = Patch::Merge(json!({ "metadata": metadata, "spec": spec }));
        let hosts: Api<BareMetalHost> = Api::namespaced(self.client.clone(), &self.namespace);
        let written = hosts.patch_metadata(name, &PatchParams::default(), &patch).await;
        let Some(written) =
            unless_superseded(written).map_err(Error::api("patch a BareMetalHost"))?
        else {
            return Ok(Outcome::Superseded);
        };
        self.host_versions.insert(name.to_owned(), written.metadata.resource_version);
        self.hosts_written.push(name.to_owned());
        Ok(Outcome::Done)
    }

    async fn ask_for_data(&self) -> Result<Outcome, Error> {
        let version = self.served.infrastructure.as_str();
        let api_version = format!("infrastructure.cluster.x-k8s.io/{version}");
        let template = self.machine.spec.data_template.as_ref().and_then(|it| it.name.clone());
        // Whoever sees the machine, by whatever filter, is to see its claim.
        let mut labels = json!({ names::capi::CLUSTER_NAME: self.cluster });
        if let Some(filter) = self.machine.label(names::capi::WATCH_FILTER) {
            labels[names::capi::WATCH_FILTER] = json!(filter);
        }
        let claim: Metal3DataClaim = serde_json::from_value(json!({
            "apiVersion": api_version,
            "kind": "Metal3DataClaim",
            "metadata": {
                "name": self.machine.name_any(),
                "namespace": self.namespace,
                "labels": labels,
                "ownerReferences": [self.machine.controller_owner_ref(&self.served.infrastructure)],
            },
            "spec": { "template": { "name": template, "namespace": self.namespace } },
        }))
        .map_err(kube::Error::SerdeError)
        .map_err(Error::api("make a Metal3DataClaim"))?;
        match self.claims().create(&PostParams::default(), &claim).await {
            Ok(_) => Ok(Outcome::Done),
            // No version is asked for, so it can only be the name.
            Err(kube::Error::Api(status)) if is_conflict(&status) => Ok(Outcome::Done),
            Err(error) => Err(Error::api("make a Metal3DataClaim")(error)),
        }
    }

    async fn withdraw_data(&self) -> Result<Outcome, Error> {
        let name = self.machine.name_any();
        match self.claims().delete(&name, &DeleteParams::default()).await {
            Ok(_) => Ok(Outcome::Done),
            Err(kube::Error::Api(status)) if is_gone(&status) => Ok(Outcome::Done),
            Err(error) => Err(Error::api("delete a Metal3DataClaim")(error)),
        }
    }

    fn claims(&self) -> Api<Metal3DataClaim> {
        let version = &self.served.infrastructure;
        Api::namespaced_with(self.client.clone(), &self.namespace, version)
    }
}

/// What is told of a reservation, or of a claim that was not made, is old where a host begins anew.
fn without_notes() -> Value {
    json!({
        names::ferrite::PASSED_OVER_BY: null,
        names::ferrite::PENDING_RESERVATION: null,
        RESERVED_HOST_UID: null,
    })
}

/// The metadata of a host that is kept for nobody any more.
fn of_free_host() -> Value {
    json!({ "labels": { names::capm3::NODE_REUSE: null }, "annotations": without_notes() })
}

/// Gives a Node of a workload cluster its provider ID. One that says another by now, and one made anew, has another version.
pub async fn name_node(nodes: &Api<Node>, naming: &Naming) -> Result<Outcome, Error> {
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": naming.version },
        "spec": { "providerID": naming.provider_id },
    }));
    let written = nodes.patch_metadata(&naming.node, &PatchParams::default(), &patch).await;
    let written =
        unless_superseded(written).map_err(Error::api("patch a Node of the workload cluster"))?;
    Ok(written.map_or(Outcome::Superseded, |_| Outcome::Done))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api_types::ContractVersion;

    use super::*;
    use crate::decide::tests::host;

    #[tokio::test]
    async fn a_pass_that_stood_still_for_longer_than_it_may_take_writes_nothing() {
        // Nobody would answer.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let version = ContractVersion::V1Beta2;
        let served =
            Served { core: version, infrastructure: version, control_plane: None, data: false };
        for (left, asks) in [(Duration::ZERO, false), (Duration::from_secs(60), true)] {
            let until = Instant::now() + left;
            let mut pass = Pass::of_host(client.clone(), served, &host("h", "available"), until);
            let outcome = pass.act(&Step::Free { host: "h".to_owned() }).await;
            assert_eq!(matches!(outcome, Ok(Outcome::Superseded)), !asks, "{outcome:?}");
        }
    }

    #[test]
    fn a_host_that_is_kept_no_longer_keeps_no_note_of_ours() {
        let metadata = of_free_host();
        assert!(metadata["labels"].get(names::capm3::NODE_REUSE).is_some_and(Value::is_null));
        for note in [
            names::ferrite::PASSED_OVER_BY,
            names::ferrite::PENDING_RESERVATION,
            names::ferrite::RESERVED_HOST_UID,
        ] {
            assert!(metadata["annotations"].get(note).is_some_and(Value::is_null), "{note}");
        }
    }
}

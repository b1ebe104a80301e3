//! Who has a customization: every write insists on the version that was decided on.

use api_types::condition::Condition;
use api_types::hive::{ClusterDeploymentCustomization, pools_finalizer};
use api_types::names;
use controller_kit::api_error::unless_superseded;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Outcome, Pass, Piece, finalizers, version_of};
use crate::echo::Object;
use crate::error::Error;
use crate::observe::cached;
use crate::status;

impl Pass<'_> {
    /// The customization at the version that was decided on, or as an earlier step left it.
    pub(super) fn entry_at(
        &self,
        name: &str,
        at: &str,
        piece: &Piece,
    ) -> Option<ClusterDeploymentCustomization> {
        if let Some(left) = piece.entries.get(name) {
            return Some(left.clone());
        }
        let key = (self.key.0.clone(), name.to_owned());
        let found = cached(&self.stores.customizations, &key)?;
        (version_of(&*found) == Some(at)).then(|| (*found).clone())
    }

    pub(super) async fn entry_finalizer(
        &self,
        name: &str,
        at: &str,
        keep: bool,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let Some(found) = self.entry_at(name, at, piece) else { return Ok(Outcome::Superseded) };
        let mut all = finalizers(&found.metadata, names::hive::LEASE_FINALIZER, keep);
        let hives = pools_finalizer(&self.key.1);
        all.retain(|it| *it != hives || it == names::hive::LEASE_FINALIZER);
        let patch = json!({
            "metadata": { "resourceVersion": found.metadata.resource_version, "finalizers": all },
        });
        let api = self.customizations(&self.key.0);
        let written = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.entry_written(name, written, !keep, piece)
    }

    pub(super) async fn reason(
        &self,
        name: &str,
        reason: &str,
        at: &str,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let Some(found) = self.entry_at(name, at, piece) else { return Ok(Outcome::Superseded) };
        let cluster = found.leased_by().map(str::to_owned);
        let Some(cluster) = cluster else { return Ok(Outcome::Superseded) };
        let message = match reason {
            names::hive::REASON_RELEASING => {
                format!("Cluster {cluster} is not there; about to be free again")
            }
            _ => self.in_use(&cluster),
        };
        self.entry_status(&found, "False", reason, &message, json!({}), piece).await
    }

    pub(super) fn in_use(&self, cluster: &str) -> String {
        format!("Currently in use by cluster deployment {cluster} of clusterpool {}", self.key.1)
    }

    /// Gives the customization to a cluster, or to nobody: condition and references in one write.
    pub(super) async fn lease(
        &self,
        name: &str,
        cluster: Option<&str>,
        reason: &str,
        at: &str,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let Some(found) = self.entry_at(name, at, piece) else { return Ok(Outcome::Superseded) };
        let Some(cluster) = cluster else {
            let references = json!({ "clusterDeploymentRef": null, "clusterPoolRef": null });
            return self.entry_status(&found, "True", reason, "Free", references, piece).await;
        };
        let references = json!({
            "clusterDeploymentRef": { "name": cluster, "namespace": cluster },
            "clusterPoolRef": { "name": self.key.1 },
        });
        let message = self.in_use(cluster);
        self.entry_status(&found, "False", reason, &message, references, piece).await
    }

    pub(super) async fn entry_status(
        &self,
        found: &ClusterDeploymentCustomization,
        available: &str,
        reason: &str,
        message: &str,
        mut status: Value,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let mut conditions: Vec<Condition> = found.status.clone().unwrap_or_default().conditions;
        let kind = names::hive::CONDITION_AVAILABLE;
        let now = Timestamp::now();
        status::say(&mut conditions, kind, available, reason, message, now, false);
        status["conditions"] = json!(conditions);
        let patch = json!({
            "metadata": { "resourceVersion": found.metadata.resource_version },
            "status": status,
        });
        let name = found.name_any();
        let api = self.customizations(&self.key.0);
        let written = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.entry_written(&name, written, false, piece)
    }

    pub(super) fn entry_written(
        &self,
        name: &str,
        written: Result<ClusterDeploymentCustomization, kube::Error>,
        may_go: bool,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let Some(written) =
            unless_superseded(written).map_err(Error::api("patch a customization"))?
        else {
            return Ok(Outcome::Superseded);
        };
        let key = (self.key.0.clone(), name.to_owned());
        piece.note(Object::Customization(key), version_of(&written), may_go);
        piece.entries.insert(name.to_owned(), written);
        Ok(Outcome::Done)
    }
}

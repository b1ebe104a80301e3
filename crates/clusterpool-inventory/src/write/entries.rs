//! Who has a customization: every write insists on the version that was decided on.

use api_types::condition::Condition;
use api_types::hive::{ClusterDeploymentCustomization, pools_finalizer};
use api_types::names;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::steps::{finalizers, is_at};
use super::{Pass, Piece, Stop, patch_status, written};
use crate::context::cached;
use crate::model::Object;
use crate::seen::Condition as Said;
use crate::{status, text};

impl Pass<'_> {
    /// The customizations of the pool's namespace.
    pub(super) fn entries(&self) -> Api<ClusterDeploymentCustomization> {
        self.api(&self.key.0)
    }

    /// The customization at the version that was decided on, or as an earlier step left it.
    pub(super) fn entry_at(
        &self,
        name: &str,
        at: &str,
        piece: &Piece,
    ) -> Result<ClusterDeploymentCustomization, Stop> {
        if let Some(left) = piece.entries.get(name) {
            return Ok(left.clone());
        }
        let key = (self.key.0.clone(), name.to_owned());
        let found = cached(&self.context.caches.customizations, &key);
        let found = found.filter(|it| is_at(&it.metadata, at)).ok_or(Stop::SUPERSEDED)?;
        Ok((*found).clone())
    }

    pub(super) async fn entry_finalizer(
        &self,
        name: &str,
        at: &str,
        keep: bool,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let found = self.entry_at(name, at, piece)?;
        let mut all = finalizers(&found.metadata, names::hive::LEASE_FINALIZER, keep);
        let hives = pools_finalizer(&self.key.1);
        all.retain(|it| *it != hives || it == names::hive::LEASE_FINALIZER);
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": found.metadata.resource_version, "finalizers": all },
        }));
        let (api, params) = (self.entries(), PatchParams::default());
        let left = written("patch a customization", api.patch(name, &params, &patch)).await?;
        self.entry_written(left, !keep, piece);
        Ok(())
    }

    /// Says of a lease that it stands, or is about to be released.
    pub(super) async fn reason(
        &self,
        name: &str,
        reason: &str,
        at: &str,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let found = self.entry_at(name, at, piece)?;
        let Some(cluster) = found.leased_by() else { return Err(Stop::SUPERSEDED) };
        let message = match reason {
            names::hive::REASON_RELEASING => text::releasing(cluster),
            _ => text::in_use(cluster, &self.key.1),
        };
        let said = Said::new("False", reason, message);
        self.entry_status(&found, &said, json!({}), piece).await
    }

    /// Gives the customization to a cluster, or to nobody: condition and references in one write.
    pub(super) async fn lease(
        &self,
        name: &str,
        cluster: Option<&str>,
        reason: &str,
        at: &str,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let found = self.entry_at(name, at, piece)?;
        let Some(cluster) = cluster else {
            let references = json!({ "clusterDeploymentRef": null, "clusterPoolRef": null });
            let said = Said::new("True", reason, text::FREE.to_owned());
            return self.entry_status(&found, &said, references, piece).await;
        };
        let references = json!({
            "clusterDeploymentRef": { "name": cluster, "namespace": cluster },
            "clusterPoolRef": { "name": self.key.1 },
        });
        let said = Said::new("False", reason, text::in_use(cluster, &self.key.1));
        self.entry_status(&found, &said, references, piece).await
    }

    async fn entry_status(
        &self,
        found: &ClusterDeploymentCustomization,
        said: &Said,
        mut status: Value,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let mut conditions: Vec<Condition> = found.status.clone().unwrap_or_default().conditions;
        // It would stay for ever as Hive's own controller left it, whatever becomes of the entry.
        conditions.retain(|it| it.r#type != names::hive::CONDITION_APPLY_SUCCEEDED);
        let kind = names::hive::CONDITION_AVAILABLE;
        status::say(&mut conditions, kind, said, Timestamp::now(), false);
        status["conditions"] = json!(conditions);
        let (name, at) = (found.name_any(), found.resource_version().unwrap_or_default());
        let what = "patch a customization";
        let left = patch_status(&self.entries(), &name, &at, &status, what).await?;
        self.entry_written(left, false, piece);
        Ok(())
    }

    fn entry_written(&self, left: ClusterDeploymentCustomization, may_go: bool, piece: &mut Piece) {
        let key = (self.key.0.clone(), left.name_any());
        piece.note(Object::Customization(key), left.resource_version(), may_go);
        piece.entries.insert(left.name_any(), left);
    }
}

//! Who has a customization: every write insists on the version that was decided on.

use api_types::condition::Condition;
use api_types::hive::ClusterDeploymentCustomization;
use api_types::names;
use controller_kit::engine::written;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::steps::{finalizers, is_at};
use super::{Pass, Piece, Stop, patch_status};
use crate::index::{hives_finalizer, key_in};
use crate::model::Object;
use crate::{status, text};

impl Piece<'_> {
    /// The customizations of the pool's namespace.
    pub(super) fn entry_api(&self) -> Api<ClusterDeploymentCustomization> {
        self.pass.api(&self.pass.key.namespace)
    }

    /// The customization at the version that was decided on, or as an earlier step left it.
    pub(super) fn entry(&self, name: &str) -> Result<ClusterDeploymentCustomization, Stop> {
        if let Some(left) = &self.entry {
            return Ok(left.clone());
        }
        let Pass { context, key, look } = self.pass;
        let at = look.seen.customizations.iter().find(|it| it.name == name).map(|it| &it.at);
        let found = context.caches.customizations.named(&key.namespace, name);
        let found = found.filter(|it| is_at(&it.metadata, at)).ok_or(Stop::SUPERSEDED)?;
        Ok((*found).clone())
    }

    pub(super) async fn entry_finalizer(&mut self, name: &str, keep: bool) -> Result<(), Stop> {
        let found = self.entry(name)?;
        let mut all = finalizers(&found.metadata, names::hive::LEASE_FINALIZER, keep);
        let hives = hives_finalizer(&self.pass.key.name);
        all.retain(|it| Some(it) != hives.as_ref());
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": found.metadata.resource_version, "finalizers": all },
        }));
        let (api, params) = (self.entry_api(), PatchParams::default());
        let left = written("patch a customization", api.patch(name, &params, &patch)).await?;
        self.entry_written(left, !keep);
        Ok(())
    }

    /// Says of a lease that it stands, or is about to be released.
    pub(super) async fn reason(&mut self, name: &str, reason: &str) -> Result<(), Stop> {
        let found = self.entry(name)?;
        let Some(cluster) = found.leased_by() else { return Err(Stop::SUPERSEDED) };
        let message = match reason {
            names::hive::REASON_RELEASING => text::releasing(cluster),
            _ => text::in_use(cluster, &self.pass.key.name),
        };
        self.entry_status(&found, ("False", reason, message), json!({})).await
    }

    /// Gives the customization to a cluster: condition and references in one write.
    pub(super) async fn lease(&mut self, name: &str, cluster: &str) -> Result<(), Stop> {
        let found = self.entry(name)?;
        let references = json!({
            "clusterDeploymentRef": { "name": cluster, "namespace": cluster },
            "clusterPoolRef": { "name": self.pass.key.name },
        });
        let message = text::in_use(cluster, &self.pass.key.name);
        let said = ("False", names::hive::REASON_IN_USE, message);
        self.entry_status(&found, said, references).await
    }

    /// Takes it away from the cluster that has it.
    pub(super) async fn release(
        &mut self,
        found: &ClusterDeploymentCustomization,
    ) -> Result<(), Stop> {
        let references = json!({ "clusterDeploymentRef": null, "clusterPoolRef": null });
        let said = ("True", names::hive::CONDITION_AVAILABLE, text::FREE.to_owned());
        self.entry_status(found, said, references).await
    }

    async fn entry_status(
        &mut self,
        found: &ClusterDeploymentCustomization,
        said: (&str, &str, String),
        mut status: Value,
    ) -> Result<(), Stop> {
        let mut conditions: Vec<Condition> = found.status.clone().unwrap_or_default().conditions;
        // It would stay for ever as Hive's own controller left it, whatever becomes of the entry.
        conditions.retain(|it| it.r#type != names::hive::CONDITION_APPLY_SUCCEEDED);
        let kind = names::hive::CONDITION_AVAILABLE;
        status::say(&mut conditions, kind, said, Timestamp::now(), false);
        status["conditions"] = json!(conditions);
        let (name, at) = (found.name_any(), found.resource_version().unwrap_or_default());
        let what = "patch a customization";
        let left = patch_status(&self.entry_api(), &name, &at, &status, what).await?;
        self.entry_written(left, false);
        Ok(())
    }

    fn entry_written(&mut self, left: ClusterDeploymentCustomization, may_go: bool) {
        let key = key_in(&self.pass.key.namespace, &left.name_any());
        self.note(Object::Customization(key), left.resource_version(), may_go);
        self.entry = Some(left);
    }
}

//! A new cluster, from its namespace to the end of its pause. What is there already is taken if it is this cluster's.

use api_types::hive::{ClusterDeployment, ClusterPool};
use api_types::names;
use controller_kit::api_error::is_gone;
use controller_kit::engine::{Error, found, sent};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::core::DynamicObject;
use kube::{Resource as _, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::steps::own;
use super::{Pass, Piece, Stop};
use crate::decision::Version;
use crate::index::{self, key_in};
use crate::make::NewCluster;
use crate::model::Object;
use crate::observe;
use crate::patch::{self, Target};
use crate::platform::Platform;
use crate::{make, text};

impl Pass<'_> {
    /// A cluster with what it is made from, if that is still what was decided on.
    pub(super) fn new_cluster<'c>(
        &'c self,
        name: &'c str,
        entry: Option<&'c Version>,
    ) -> Result<NewCluster<'c>, Stop> {
        let pool = self.look.pool.as_deref().ok_or(Stop::SUPERSEDED)?;
        let platform = Platform::of(&pool.spec).ok_or(Stop::SUPERSEDED)?;
        let template = self.look.materials.config.as_ref().ok_or(Stop::SUPERSEDED)?;
        let customization = |name: &str| {
            let all = &self.context.caches.customizations;
            all.named(&self.key.namespace, name).ok_or(Stop::SUPERSEDED)
        };
        let of_entry = entry.map(|it| customization(&it.name)).transpose()?;
        let version = of_entry.as_deref().map(observe::version);
        if version.as_ref() != entry.map(|it| &it.version) {
            return Err(Stop::SUPERSEDED);
        }
        let patches = of_entry.as_deref().map(|it| it.spec.install_config_patches.as_slice());
        let patches = patches.unwrap_or_default();
        let of_pool = make::name_in(pool.spec.customization_ref.as_ref());
        let of_pool = of_pool.map(customization).transpose()?;
        let customizations = of_entry.iter().chain(&of_pool).cloned().collect();
        let (target, rules) = (Target::of(&pool.spec, name), self.context.policy.rules);
        let made = patch::install_config(template, target, patches, rules);
        // With another name it was accepted, so another look would end here again.
        let config = made.map_err(|why| Stop::refused(text::not_patched(name, &why)))?;
        let materials = &self.look.materials;
        Ok(NewCluster { name, pool, platform, materials, entry, customizations, config })
    }

    /// Makes what a cluster needs in its namespace. What is there is made from the same, as the namespace says that comes
    /// first.
    pub(super) async fn make_parts(
        &self,
        cluster: &str,
        parts: impl IntoIterator<Item = make::Part>,
    ) -> Result<(), Stop> {
        for (kind, part) in parts {
            let client = self.client().clone();
            let api: Api<DynamicObject> = Api::namespaced_with(client, cluster, &kind);
            create(&api, &part, "make a part of a cluster").await?;
        }
        Ok(())
    }

    /// The cluster of this name that is there, if it is of this pool and entry.
    async fn left_cluster(
        &self,
        api: &Api<ClusterDeployment>,
        name: &str,
        entry: Option<&Version>,
    ) -> Result<ClusterDeployment, Stop> {
        let found = found("get a cluster", api.get(name)).await?.ok_or(Error::Superseded)?;
        let of = found.spec.cluster_pool_ref.as_ref().and_then(|it| it.customization_name());
        let same_entry = of == entry.map(|it| it.name.as_str());
        if index::pool_key(&found).as_ref() != Some(self.key) || !same_entry {
            return Err(Stop::refused(text::foreign(name)));
        }
        if found.metadata.deletion_timestamp.is_some() {
            return Err(Stop::NotYet);
        }
        Ok(found)
    }
}

impl Piece<'_> {
    async fn make_namespace(
        &mut self,
        pool: &ClusterPool,
        cluster: &str,
        entry: Option<&Version>,
    ) -> Result<(), Stop> {
        let api: Api<Namespace> = Api::all(self.pass.client().clone());
        let made_from = make::made_from(&self.pass.look.seen, entry.map(|it| it.version.as_str()));
        let object = make::namespace(pool, cluster, &made_from);
        if let Some(made) = create(&api, &object, "make a namespace").await? {
            // Whoever does not see it yet would begin another cluster beside it.
            let key = key_in("", cluster);
            self.note(Object::Namespace(key), made.resource_version(), false);
            return Ok(());
        }
        let found = found("get a namespace", api.get(cluster)).await?;
        let found = found.ok_or(Error::Superseded)?;
        if found.metadata.deletion_timestamp.is_some() {
            return Err(Stop::NotYet);
        }
        let annotations = found.annotations();
        if annotations.get(names::ferrite::POOL_OWNER) != Some(&make::owner(pool)) {
            return Err(Stop::name_lost(text::name_taken(cluster)));
        }
        // What is in it was made by a process that saw something else, or by an earlier release.
        if annotations.get(names::ferrite::MADE_FROM) != Some(&made_from) {
            return Err(Stop::name_lost(text::name_unusable(cluster)));
        }
        Ok(())
    }

    /// Makes a cluster: its namespace, what it needs there, and then itself. What is there is taken if it is this cluster's.
    pub(super) async fn create_cluster(
        &mut self,
        name: &str,
        entry: Option<&Version>,
        run: Option<bool>,
    ) -> Result<(), Stop> {
        let new = self.pass.new_cluster(name, entry)?;
        self.make_namespace(new.pool, name, entry).await?;
        self.pass.make_parts(name, new.parts().into_iter().chain(new.workers())).await?;
        let paused = entry.is_some() && self.pass.context.policy.verify_lease;
        let object = new.object(run, paused);
        let api = self.pass.api::<ClusterDeployment>(name);
        let made = create(&api, &object, "create a cluster").await?;
        let found = match made {
            Some(made) => {
                let entry = new.customizations.first().filter(|_| !new.config.notes.is_empty());
                self.notes = entry.map(|it| {
                    (it.object_ref(&()), text::adjusted(&self.pass.key.name, &new.config.notes))
                });
                made
            }
            None => self.pass.left_cluster(&api, name, entry).await?,
        };
        self.unpaused = found.annotation(names::ferrite::LEASE_UNVERIFIED).is_none();
        let version = found.resource_version().unwrap_or_default();
        self.note(Object::Cluster(own(name)), Some(version.clone()), false);
        self.cluster = Some(version);
        Ok(())
    }

    pub(super) async fn verify(&mut self, cluster: &str, entry: &str) -> Result<(), Stop> {
        if self.unpaused {
            return Ok(());
        }
        let api = self.entry_api();
        let live = found("get a customization", api.get(entry)).await?;
        let holds = live.is_some_and(|it| {
            it.leased_by() == Some(cluster)
                && index::leasing_pool(&it) == Some(self.pass.key.name.as_str())
                && !observe::is_releasing(&it)
        });
        if !holds {
            return Err(Stop::SUPERSEDED);
        }
        let annotations = json!({
            names::hive::RECONCILE_PAUSE: null,
            names::ferrite::LEASE_UNVERIFIED: null,
        });
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.patch_cluster(cluster, patch).await
    }
}

/// Creates an object; nothing if one of its name is there.
pub(super) async fn create<K>(
    api: &Api<K>,
    object: &Value,
    what: &'static str,
) -> Result<Option<K>, Stop>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object.clone())
        .map_err(|error| Error::Api { what, source: Box::new(kube::Error::SerdeError(error)) })?;
    let request = async {
        match api.create(&PostParams::default(), &object).await {
            Ok(made) => Ok(Ok(Some(made))),
            Err(error) if is_terminating(&error) => Ok(Err(Stop::NotYet)),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Ok(None)),
            // The namespace went in between.
            Err(kube::Error::Api(status)) if is_gone(&status) => Ok(Err(Stop::NotYet)),
            Err(error) => Err(error),
        }
    };
    sent(what, request).await?
}

/// Whether the namespace is on its way out.
fn is_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|it| &it.causes);
    status.code == 403 && causes.into_iter().any(|it| it.reason == "NamespaceTerminating")
}

//! A new cluster, from its namespace to the end of its pause. What is there already is taken if it is this cluster's.

use std::sync::Arc;

use api_types::hive::{ClusterDeployment, ClusterDeploymentCustomization, ClusterPool};
use api_types::names;
use controller_kit::api_error::is_gone;
use controller_kit::engine::{Error, found, sent};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::steps::own;
use super::{Pass, Piece, Stop};
use crate::decision::Version;
use crate::index::{self, key_in};
use crate::model::Object;
use crate::observe;
use crate::patch::{self, Target};
use crate::platform::Platform;
use crate::pool_version::pool_version;
use crate::seen::Part;
use crate::{make, text};

impl Pass<'_> {
    /// The customization that a cluster is made from, if it is still what was decided on.
    fn source(
        &self,
        entry: Option<&Version>,
    ) -> Result<Option<Arc<ClusterDeploymentCustomization>>, Stop> {
        let Some(entry) = entry else { return Ok(None) };
        let key = key_in(&self.key.namespace, &entry.name);
        let found = self
            .context
            .caches
            .customizations
            .get(&key)
            .filter(|it| observe::version(it) == entry.version);
        found.map(Some).ok_or(Stop::SUPERSEDED)
    }

    /// What the cluster is installed with; nothing where there is no template any more.
    fn install_config(
        &self,
        pool: &ClusterPool,
        cluster: &str,
        entry: Option<&ClusterDeploymentCustomization>,
    ) -> Result<Option<patch::InstallConfig>, Stop> {
        let Some(config) = self.look.materials.config.as_ref() else { return Ok(None) };
        let patches = entry.map(|it| it.spec.install_config_patches.as_slice()).unwrap_or_default();
        let (target, rules) = (Target::of(&pool.spec, cluster), self.context.policy.rules);
        let made = patch::install_config(config, target, patches, rules);
        // With another name it was accepted, so another look would end here again.
        made.map(Some).map_err(|why| Stop::refused(text::not_patched(cluster, &why)))
    }

    /// A part of a cluster beside its namespace, as it is made; nothing where what it is made from is gone.
    fn part(
        &self,
        pool: &ClusterPool,
        cluster: &str,
        part: Part,
        entry: Option<&Version>,
    ) -> Result<Option<Value>, Stop> {
        let Some(platform) = Platform::of(&pool.spec) else { return Ok(None) };
        let (source, materials) = (self.source(entry)?, &self.look.materials);
        let copy = |secret: &Option<make::Secret>| {
            let name = make::secret_name(cluster, part, platform.name);
            secret.as_ref().map(|secret| make::copy(pool, cluster, &name, secret))
        };
        let customization =
            |it: Arc<ClusterDeploymentCustomization>| make::customization(pool, cluster, &it);
        let config = || self.install_config(pool, cluster, source.as_deref());
        Ok(match part {
            Part::Namespace => None,
            Part::InstallConfig => {
                config()?.map(|it| make::install_config(pool, cluster, &it.text))
            }
            Part::PullSecret => copy(&materials.pull_secret),
            Part::Credentials => copy(&materials.credentials),
            Part::Certificates => copy(&materials.certificates),
            Part::Customization => source.map(customization),
            Part::PoolCustomization => {
                let name = make::name_in(pool.spec.customization_ref.as_ref()).unwrap_or_default();
                let key = key_in(&self.key.namespace, name);
                self.context.caches.customizations.get(&key).map(customization)
            }
            Part::MachinePool => {
                let config = config()?.and_then(|it| serde_json::from_str(&it.text).ok());
                let spec = platform.workers(cluster, &config.unwrap_or_default());
                spec.map(|it| make::machine_pool(pool, cluster, &it))
            }
        })
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
    /// Makes a part of a cluster. One that is there is made from the same, as the namespace says that comes first.
    pub(super) async fn make(
        &mut self,
        cluster: &str,
        part: Part,
        entry: Option<&Version>,
    ) -> Result<(), Stop> {
        let Some(pool) = self.pass.look.pool.as_deref() else { return Err(Stop::SUPERSEDED) };
        let hive = |kind| GroupVersionKind::gvk("hive.openshift.io", "v1", kind);
        let secret = GroupVersionKind::gvk("", "v1", "Secret");
        let (kind, what) = match part {
            Part::Namespace => return self.make_namespace(pool, cluster, entry).await,
            Part::InstallConfig => (secret, "make an install config"),
            Part::PullSecret | Part::Credentials | Part::Certificates => (secret, "copy a secret"),
            Part::Customization | Part::PoolCustomization => {
                (hive("ClusterDeploymentCustomization"), "copy a customization")
            }
            Part::MachinePool => (hive("MachinePool"), "make a machine pool"),
        };
        let object = self.pass.part(pool, cluster, part, entry)?.ok_or(Stop::SUPERSEDED)?;
        let (client, kind) = (self.pass.client().clone(), ApiResource::from_gvk(&kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client, cluster, &kind);
        create(&api, &object, what).await.map(drop)
    }

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

    pub(super) async fn create_cluster(
        &mut self,
        name: &str,
        entry: Option<&Version>,
        run: Option<bool>,
    ) -> Result<(), Stop> {
        let Some(pool) = self.pass.look.pool.as_deref() else { return Err(Stop::SUPERSEDED) };
        let Some(platform) = Platform::of(&pool.spec) else { return Err(Stop::SUPERSEDED) };
        let source = self.pass.source(entry)?;
        let config = self.pass.install_config(pool, name, source.as_deref())?;
        let wanted = make::Wanted {
            cluster: name,
            pool_version: &pool_version(&pool.spec).own,
            entry: entry.map(|it| (it.name.as_str(), it.version.as_str())),
            installed_name: config.as_ref().map(|it| it.name.as_str()),
            run,
            paused: entry.is_some() && self.pass.context.policy.verify_lease,
        };
        let object = make::cluster(pool, platform, &wanted);
        let api = self.pass.api::<ClusterDeployment>(name);
        let made = create(&api, &object, "create a cluster").await?;
        let found = match made {
            Some(made) => made,
            None => self.pass.left_cluster(&api, name, entry).await?,
        };
        self.unpaused = found.annotation(names::ferrite::LEASE_UNVERIFIED).is_none();
        let version = found.resource_version().unwrap_or_default();
        self.note(Object::Cluster(own(name)), Some(version.clone()), false);
        self.clusters.insert(name.to_owned(), version);
        Ok(())
    }

    pub(super) async fn verify(
        &mut self,
        cluster: &str,
        entry: &str,
        at: Option<&str>,
    ) -> Result<(), Stop> {
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
        self.patch_cluster(cluster, patch, at.unwrap_or_default()).await
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

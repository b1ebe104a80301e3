//! A new cluster, from its namespace to the end of its pause. What is there already is taken if it is this cluster's.

use std::sync::Arc;

use api_types::hive::{ClusterDeployment, ClusterDeploymentCustomization, ClusterPool};
use api_types::names;
use controller_kit::api_error::is_gone;
use controller_kit::engine::{Error, asked};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::steps::own;
use super::{Pass, Piece, Stop, decoded, found, written};
use crate::context::cached;
use crate::decision::Version;
use crate::make::Left;
use crate::model::Object;
use crate::observe;
use crate::platform::Platform;
use crate::pool_version::pool_version;
use crate::seen::Part;
use crate::{index, make, patch, text};

/// What becomes of something older that stands where something is to be made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Old {
    /// It is made anew, as long as no cluster uses it.
    Renewed,
    /// It stays: a cluster uses it.
    Kept,
}

impl Pass<'_> {
    /// The customization that a cluster is made from, if it is still what was decided on.
    fn source(
        &self,
        entry: Option<&Version>,
    ) -> Result<Option<Arc<ClusterDeploymentCustomization>>, Stop> {
        let Some(entry) = entry else { return Ok(None) };
        let key = (self.key.0.clone(), entry.name.clone());
        let found = cached(&self.context.caches.customizations, &key)
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
        let (spec, rules) = (&pool.spec, self.context.policy.rules);
        let platform = Platform::of(spec).and_then(|it| it.in_config());
        let domain = &spec.base_domain;
        let made = patch::install_config(config, cluster, domain, platform, patches, rules);
        // With another name it was accepted, so another look would end here again.
        made.map(Some).map_err(|why| Stop::refused(text::not_patched(cluster, &why)))
    }

    pub(super) async fn make(
        &self,
        cluster: &str,
        part: Part,
        entry: Option<&Version>,
        old: Old,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let Some(pool) = self.look.pool.as_deref() else { return Err(Stop::SUPERSEDED) };
        let Some(platform) = Platform::of(&pool.spec) else { return Err(Stop::SUPERSEDED) };
        let source = self.source(entry)?;
        let source = source.as_deref();
        let secrets: Api<Secret> = Api::namespaced(self.client().clone(), cluster);
        let copy = |secret: &Option<make::Secret>| {
            let name = make::secret_name(cluster, part, platform.name);
            secret.as_ref().map(|secret| make::copy(pool, cluster, &name, secret))
        };
        let object = match part {
            Part::Namespace => return self.make_namespace(pool, cluster, source, piece).await,
            Part::InstallConfig => {
                let Some(config) = self.install_config(pool, cluster, source)? else {
                    return Err(Stop::SUPERSEDED);
                };
                let made_from = make::made_from(pool, source, self.look.materials.config_hash);
                let secret = make::install_config(pool, cluster, &config.text, &made_from);
                return self.put(&secrets, cluster, &secret, old, "make an install config").await;
            }
            Part::Customization | Part::PoolCustomization => {
                let of_pool = match (part, &pool.spec.customization_ref) {
                    (Part::PoolCustomization, Some(reference)) => {
                        let name = reference.name.clone().unwrap_or_default();
                        cached(&self.context.caches.customizations, &(self.key.0.clone(), name))
                    }
                    _ => None,
                };
                let found = if part == Part::Customization { source } else { of_pool.as_deref() };
                let Some(found) = found else { return Err(Stop::SUPERSEDED) };
                let hash = self.look.materials.config_hash;
                let copy = make::customization(pool, cluster, found, hash);
                let api = self.customizations(cluster);
                return self.put(&api, cluster, &copy, old, "copy a customization").await;
            }
            Part::PullSecret => copy(&self.look.materials.pull_secret),
            Part::Credentials => copy(&self.look.materials.credentials),
            Part::Certificates => copy(&self.look.materials.certificates),
            Part::MachinePool => return self.make_workers(pool, platform, cluster, source).await,
        };
        let Some(object) = object else { return Err(Stop::SUPERSEDED) };
        self.put(&secrets, cluster, &object, old, "copy a secret").await
    }

    async fn make_workers(
        &self,
        pool: &ClusterPool,
        platform: Platform<'_>,
        cluster: &str,
        entry: Option<&ClusterDeploymentCustomization>,
    ) -> Result<(), Stop> {
        let config = self.install_config(pool, cluster, entry)?;
        let config = config.and_then(|it| serde_json::from_str(&it.text).ok());
        let Some(spec) = platform.workers(cluster, &config.unwrap_or_default()) else {
            return Ok(());
        };
        let api = self.workers(cluster);
        let made_from = make::made_from(pool, entry, self.look.materials.config_hash);
        let workers = make::machine_pool(pool, cluster, &spec, &made_from);
        for is_last in [false, true] {
            if create(&api, &workers, "make a machine pool").await?.is_some() {
                return Ok(());
            }
            if is_last {
                // Somebody else made it just now.
                break;
            }
            if self.clear_workers(pool, cluster, &made_from).await? == Workers::Stay {
                return Ok(());
            }
        }
        Err(Stop::SUPERSEDED)
    }

    fn workers(&self, cluster: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("hive.openshift.io", "v1", "MachinePool");
        let kind = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.client().clone(), cluster, &kind)
    }

    /// Takes the workers away that an earlier try for a cluster left, if they are made from something older: Hive lets
    /// nobody change where they run.
    async fn clear_workers(
        &self,
        pool: &ClusterPool,
        cluster: &str,
        made_from: &str,
    ) -> Result<Workers, Stop> {
        let (api, name) = (self.workers(cluster), make::workers_name(cluster));
        let left = found("get a machine pool", api.get_metadata(&name)).await?;
        let Some(left) = left else { return Ok(Workers::AreGone) };
        match make::left_workers(pool, left.annotations(), made_from) {
            Left::Stays => return Ok(Workers::Stay),
            Left::Newer => return Err(Stop::SUPERSEDED),
            Left::Goes => {}
        }
        if left.metadata.deletion_timestamp.is_some() {
            return Err(Stop::NotYet);
        }
        if self.has_cluster(cluster).await? {
            return Err(Stop::SUPERSEDED);
        }
        let preconditions = Preconditions {
            uid: left.metadata.uid,
            resource_version: left.metadata.resource_version,
        };
        let params = DeleteParams::default().preconditions(preconditions);
        let deleted = written("delete a machine pool", api.delete(&name, &params)).await?;
        deleted.left().map_or(Ok(Workers::AreGone), |_| Err(Stop::NotYet))
    }

    async fn make_namespace(
        &self,
        pool: &ClusterPool,
        cluster: &str,
        entry: Option<&ClusterDeploymentCustomization>,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let api: Api<Namespace> = Api::all(self.client().clone());
        let object = make::namespace(pool, cluster);
        if let Some(made) = create(&api, &object, "make a namespace").await? {
            // Whoever does not see it yet would begin another cluster beside it.
            let key = (String::new(), cluster.to_owned());
            piece.note(Object::Namespace(key), made.resource_version(), false);
            return Ok(());
        }
        let found = found("get a namespace", api.get(cluster)).await?;
        let found = found.ok_or(Error::Superseded)?;
        if found.metadata.deletion_timestamp.is_some() {
            return Err(Stop::NotYet);
        }
        // One without an owner that has the pool's label is what a controller of Hive left; the lease, which names it, says
        // whose. Pools of one name in two namespaces have one label.
        let labelled = found.labels().get(names::hive::POOL_NAME);
        let ours = match found.annotations().get(names::ferrite::POOL_OWNER) {
            Some(owner) => *owner == make::owner(pool),
            None => {
                labelled.is_some_and(|it| *it == make::label(&self.key.1))
                    && !self.is_anothers(cluster).await?
            }
        };
        if !ours {
            return Err(Stop::name_lost(cluster, text::name_taken(cluster)));
        }
        if !Platform::makes_workers(&pool.spec) {
            // They may have been wanted at first.
            let made_from = make::made_from(pool, entry, self.look.materials.config_hash);
            self.clear_workers(pool, cluster, &made_from).await?;
        }
        Ok(())
    }

    /// Whether there is such a cluster, and it is not this pool's.
    async fn is_anothers(&self, cluster: &str) -> Result<bool, Error> {
        let found = found("get a cluster", self.clusters(cluster).get(cluster)).await?;
        Ok(found.is_some_and(|it| index::pool_key(&it).as_ref() != Some(self.key)))
    }

    /// Makes an object, anew where one from something older stands, if that may be.
    async fn put<K>(
        &self,
        api: &Api<K>,
        cluster: &str,
        object: &Value,
        old: Old,
        what: &'static str,
    ) -> Result<(), Stop>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        if create(api, object, what).await?.is_some() || old == Old::Kept {
            return Ok(());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let found = found(what, api.get(name)).await?.ok_or(Error::Superseded)?;
        let new = object["metadata"]["annotations"][names::ferrite::MADE_FROM].as_str();
        let new = new.unwrap_or_default();
        let annotations = found.annotations();
        let old = annotations.get(names::ferrite::MADE_FROM).map_or("", String::as_str);
        if old == new {
            return Ok(());
        }
        if !make::is_newer(new, old) || self.has_cluster(cluster).await? {
            return Err(Stop::SUPERSEDED);
        }
        let found = json!(found);
        if !make::is_renewable(object, &found) {
            return Err(Stop::name_lost(cluster, text::name_unusable(cluster)));
        }
        let patch = Patch::Merge(make::renewal(object, &found));
        written(what, api.patch_metadata(name, &PatchParams::default(), &patch)).await?;
        Ok(())
    }

    pub(super) async fn create_cluster(
        &self,
        name: &str,
        entry: Option<&Version>,
        run: Option<bool>,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let Some(pool) = self.look.pool.as_deref() else { return Err(Stop::SUPERSEDED) };
        let Some(platform) = Platform::of(&pool.spec) else { return Err(Stop::SUPERSEDED) };
        let source = self.source(entry)?;
        let config = self.install_config(pool, name, source.as_deref())?;
        let wanted = make::Wanted {
            cluster: name,
            pool_version: &pool_version(&pool.spec).own,
            entry: entry.map(|it| (it.name.as_str(), it.version.as_str())),
            installed_name: config.as_ref().map(|it| it.name.as_str()),
            run,
            paused: entry.is_some() && self.context.policy.verify_lease,
        };
        let object = make::cluster(pool, platform, &wanted);
        let api = self.clusters(name);
        let made = create(&api, &object, "create a cluster").await?;
        let found = match made {
            Some(made) => made,
            None => self.left_cluster(&api, name, entry).await?,
        };
        piece.unpaused = found.annotation(names::ferrite::LEASE_UNVERIFIED).is_none();
        let version = found.resource_version().unwrap_or_default();
        piece.note(Object::Cluster(own(name)), Some(version.clone()), false);
        piece.clusters.insert(name.to_owned(), version);
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

    pub(super) async fn verify(
        &self,
        cluster: &str,
        entry: &str,
        at: Option<&str>,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        if piece.unpaused {
            return Ok(());
        }
        let api = self.customizations(&self.key.0);
        let live = found("get a customization", api.get(entry)).await?;
        let holds = live.is_some_and(|it| {
            it.leased_by() == Some(cluster)
                && index::leasing_pool(&it) == Some(self.key.1.as_str())
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
        self.cluster(cluster, patch, at.unwrap_or_default(), piece).await
    }
}

/// What became of the workers that an earlier try left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Workers {
    Stay,
    AreGone,
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
    let object: K = decoded(object, what)?;
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
    asked(what, request).await?
}

/// Whether the namespace is on its way out.
fn is_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|it| &it.causes);
    status.code == 403 && causes.into_iter().any(|it| it.reason == "NamespaceTerminating")
}

//! A new cluster, from its namespace to the end of its pause. What is there already is taken if it is this cluster's.

use std::sync::Arc;

use api_types::hive::{ClusterDeploymentCustomization, ClusterPool};
use api_types::names;
use controller_kit::api_error::{is_gone, unless_gone, unless_superseded};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Old, Outcome, Pass, Piece, decoded, is_terminating, version_of};
use crate::decision::Version;
use crate::echo::Object;
use crate::error::Error;
use crate::make::Left;
use crate::observe::{self, cached};
use crate::platform::Platform;
use crate::pool_version::pool_version;
use crate::seen::Part;
use crate::{index, make, patch};

impl Pass<'_> {
    /// The customization that a cluster is made from, if it is still what was decided on.
    pub(super) fn source(
        &self,
        entry: Option<&Version>,
    ) -> Result<Option<Arc<ClusterDeploymentCustomization>>, Outcome> {
        let Some(entry) = entry else { return Ok(None) };
        let key = (self.key.0.clone(), entry.name.clone());
        let found = cached(&self.stores.customizations, &key)
            .filter(|it| observe::version(it) == entry.version);
        found.map(Some).ok_or(Outcome::Superseded)
    }

    /// What the cluster is installed with; nothing where there is no template any more.
    pub(super) fn install_config(
        &self,
        pool: &ClusterPool,
        cluster: &str,
        entry: Option<&ClusterDeploymentCustomization>,
    ) -> Result<Option<patch::InstallConfig>, Error> {
        let Some(config) = self.materials.config.as_ref() else { return Ok(None) };
        let patches = entry.map(|it| it.spec.install_config_patches.as_slice()).unwrap_or_default();
        let (spec, rules) = (&pool.spec, self.policy.rules);
        let platform = Platform::of(spec).and_then(|it| it.in_config());
        let domain = &spec.base_domain;
        let made = patch::install_config(config, cluster, domain, platform, patches, rules);
        // With another name it was accepted, so another look would end here again.
        let refused = |why| Error::NotPatched { cluster: cluster.to_owned(), why };
        made.map(Some).map_err(refused)
    }

    pub(super) async fn make(
        &self,
        cluster: &str,
        part: Part,
        entry: Option<&Version>,
        old: Old,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let Some(pool) = self.pool else { return Ok(Outcome::Superseded) };
        let Some(platform) = Platform::of(&pool.spec) else { return Ok(Outcome::Superseded) };
        let source = match self.source(entry) {
            Ok(source) => source,
            Err(outcome) => return Ok(outcome),
        };
        let source = source.as_deref();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), cluster);
        let copy = |secret: &Option<make::Secret>| {
            let name = make::secret_name(cluster, part, platform.name);
            secret.as_ref().map(|secret| make::copy(pool, cluster, &name, secret))
        };
        let object = match part {
            Part::Namespace => return self.make_namespace(pool, cluster, source, piece).await,
            Part::InstallConfig => {
                let Some(config) = self.install_config(pool, cluster, source)? else {
                    return Ok(Outcome::Superseded);
                };
                let made_from = make::made_from(pool, source, self.materials.config_hash);
                let secret = make::install_config(pool, cluster, &config.text, &made_from);
                return self.put(&secrets, cluster, &secret, old, "make an install config").await;
            }
            Part::Customization | Part::PoolCustomization => {
                let of_pool = match (part, &pool.spec.customization_ref) {
                    (Part::PoolCustomization, Some(reference)) => {
                        let name = reference.name.clone().unwrap_or_default();
                        cached(&self.stores.customizations, &(self.key.0.clone(), name))
                    }
                    _ => None,
                };
                let found = if part == Part::Customization { source } else { of_pool.as_deref() };
                let Some(found) = found else { return Ok(Outcome::Superseded) };
                let hash = self.materials.config_hash;
                let copy = make::customization(pool, cluster, found, hash);
                let api = self.customizations(cluster);
                return self.put(&api, cluster, &copy, old, "copy a customization").await;
            }
            Part::PullSecret => copy(&self.materials.pull_secret),
            Part::Credentials => copy(&self.materials.credentials),
            Part::Certificates => copy(&self.materials.certificates),
            Part::MachinePool => return self.make_workers(pool, platform, cluster, source).await,
        };
        let Some(object) = object else { return Ok(Outcome::Superseded) };
        self.put(&secrets, cluster, &object, old, "copy a secret").await
    }

    pub(super) async fn make_workers(
        &self,
        pool: &ClusterPool,
        platform: Platform<'_>,
        cluster: &str,
        entry: Option<&ClusterDeploymentCustomization>,
    ) -> Result<Outcome, Error> {
        let config = self.install_config(pool, cluster, entry)?;
        let config = config.and_then(|it| serde_json::from_str(&it.text).ok());
        let Some(spec) = platform.workers(cluster, &config.unwrap_or_default()) else {
            return Ok(Outcome::Done);
        };
        let api = self.workers(cluster);
        let made_from = make::made_from(pool, entry, self.materials.config_hash);
        let workers = make::machine_pool(pool, cluster, &spec, &made_from);
        for is_last in [false, true] {
            match create(&api, &workers, "make a machine pool").await? {
                Made::New(_) => return Ok(Outcome::Done),
                Made::NotYet => return Ok(Outcome::NotYet),
                // Somebody else made it just now.
                Made::There if is_last => break,
                Made::There => {}
            }
            if let Some(outcome) = self.clear_workers(pool, cluster, &made_from).await? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Superseded)
    }

    fn workers(&self, cluster: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("hive.openshift.io", "v1", "MachinePool");
        let kind = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.client.clone(), cluster, &kind)
    }

    /// Takes the workers away that an earlier try for a cluster left, if they are made from something older: Hive lets
    /// nobody change where they run. What came of it, unless there are none any more.
    async fn clear_workers(
        &self,
        pool: &ClusterPool,
        cluster: &str,
        made_from: &str,
    ) -> Result<Option<Outcome>, Error> {
        let (api, name) = (self.workers(cluster), make::workers_name(cluster));
        let found = unless_gone(api.get_metadata(&name).await);
        let Some(found) = found.map_err(Error::api("get a machine pool"))? else { return Ok(None) };
        match make::left_workers(pool, found.annotations(), made_from) {
            Left::Stays => return Ok(Some(Outcome::Done)),
            Left::Newer => return Ok(Some(Outcome::Superseded)),
            Left::Goes => {}
        }
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(Some(Outcome::NotYet));
        }
        if self.live_cluster(&(cluster.to_owned(), cluster.to_owned())).await?.is_some() {
            return Ok(Some(Outcome::Superseded));
        }
        let preconditions = Preconditions {
            uid: found.metadata.uid,
            resource_version: found.metadata.resource_version,
        };
        let params = DeleteParams::default().preconditions(preconditions);
        let deleted = unless_superseded(api.delete(&name, &params).await);
        Ok(match deleted.map_err(Error::api("delete a machine pool"))? {
            None => Some(Outcome::Superseded),
            Some(deleted) => deleted.left().map(|_| Outcome::NotYet),
        })
    }

    pub(super) async fn make_namespace(
        &self,
        pool: &ClusterPool,
        cluster: &str,
        entry: Option<&ClusterDeploymentCustomization>,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let object = make::namespace(pool, cluster);
        match create(&api, &object, "make a namespace").await? {
            Made::New(made) => {
                // Whoever does not see it yet would begin another cluster beside it.
                let key = (String::new(), cluster.to_owned());
                piece.note(Object::Namespace(key), version_of(&made), false);
                Ok(Outcome::Done)
            }
            Made::NotYet => Ok(Outcome::NotYet),
            Made::There => {
                let found = unless_gone(api.get(cluster).await);
                let found = found.map_err(Error::api("get a namespace"))?;
                let Some(found) = found else { return Ok(Outcome::Superseded) };
                if found.metadata.deletion_timestamp.is_some() {
                    return Ok(Outcome::NotYet);
                }
                // One without an owner that has the pool's label is what a controller of Hive left; the lease, which
                // names it, says whose. Pools of one name in two namespaces have one label.
                let labelled = found.labels().get(names::hive::POOL_NAME);
                let ours = match found.annotations().get(names::ferrite::POOL_OWNER) {
                    Some(owner) => *owner == make::owner(pool),
                    None => {
                        labelled.is_some_and(|it| *it == make::label(&self.key.1))
                            && !self.is_anothers(cluster).await?
                    }
                };
                if !ours {
                    return Err(Error::Taken(cluster.to_owned()));
                }
                if Platform::makes_workers(&pool.spec) {
                    return Ok(Outcome::Done);
                }
                // They may have been wanted at first.
                let made_from = make::made_from(pool, entry, self.materials.config_hash);
                let left = self.clear_workers(pool, cluster, &made_from).await?;
                Ok(left.unwrap_or(Outcome::Done))
            }
        }
    }

    /// Whether there is such a cluster, and it is not this pool's.
    async fn is_anothers(&self, cluster: &str) -> Result<bool, Error> {
        let found = self.clusters(cluster).get(cluster).await;
        let found = unless_gone(found).map_err(Error::api("get a cluster"))?;
        Ok(found.is_some_and(|it| index::pool_key(&it).as_ref() != Some(self.key)))
    }

    /// Makes an object, anew where one from something older stands, if that may be.
    pub(super) async fn put<K>(
        &self,
        api: &Api<K>,
        cluster: &str,
        object: &Value,
        old: Old,
        what: &'static str,
    ) -> Result<Outcome, Error>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        match create(api, object, what).await? {
            Made::New(_) => return Ok(Outcome::Done),
            Made::NotYet => return Ok(Outcome::NotYet),
            Made::There if old == Old::Kept => return Ok(Outcome::Done),
            Made::There => {}
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let found = unless_gone(api.get(name).await).map_err(Error::api(what))?;
        let Some(found) = found else { return Ok(Outcome::Superseded) };
        let new = object["metadata"]["annotations"][names::ferrite::MADE_FROM].as_str();
        let new = new.unwrap_or_default();
        let annotations = found.annotations();
        let old = annotations.get(names::ferrite::MADE_FROM).map_or("", String::as_str);
        if old == new {
            return Ok(Outcome::Done);
        }
        if !make::is_newer(new, old)
            || self.live_cluster(&(cluster.to_owned(), cluster.to_owned())).await?.is_some()
        {
            return Ok(Outcome::Superseded);
        }
        let found = serde_json::to_value(&found).map_err(kube::Error::SerdeError);
        let found = found.map_err(Error::api(what))?;
        if !make::is_renewable(object, &found) {
            return Err(Error::Unusable(cluster.to_owned()));
        }
        let patch = make::renewal(object, &found);
        let written = api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        let written = unless_superseded(written).map_err(Error::api(what))?;
        Ok(if written.is_some() { Outcome::Done } else { Outcome::Superseded })
    }

    pub(super) async fn create_cluster(
        &self,
        name: &str,
        entry: Option<&Version>,
        run: Option<bool>,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let Some(pool) = self.pool else { return Ok(Outcome::Superseded) };
        let Some(platform) = Platform::of(&pool.spec) else { return Ok(Outcome::Superseded) };
        let source = match self.source(entry) {
            Ok(source) => source,
            Err(outcome) => return Ok(outcome),
        };
        let config = self.install_config(pool, name, source.as_deref())?;
        let wanted = make::Wanted {
            cluster: name,
            pool_version: &pool_version(&pool.spec).own,
            entry: entry.map(|it| (it.name.as_str(), it.version.as_str())),
            installed_name: config.as_ref().map(|it| it.name.as_str()),
            run,
            paused: entry.is_some() && self.policy.verify_lease,
        };
        let object = make::cluster(pool, platform, &wanted);
        let api = self.clusters(name);
        let found = match create(&api, &object, "create a cluster").await? {
            Made::New(made) => made,
            Made::NotYet => return Ok(Outcome::NotYet),
            Made::There => {
                let found = unless_gone(api.get(name).await);
                let found = found.map_err(Error::api("get a cluster"))?;
                let Some(found) = found else { return Ok(Outcome::Superseded) };
                let of = found.spec.cluster_pool_ref.as_ref();
                let same_entry =
                    of.and_then(|it| it.customization_name()) == entry.map(|it| it.name.as_str());
                if index::pool_key(&found).as_ref() != Some(self.key) || !same_entry {
                    return Err(Error::Foreign(name.to_owned()));
                }
                if found.metadata.deletion_timestamp.is_some() {
                    return Ok(Outcome::NotYet);
                }
                found
            }
        };
        piece.unpaused = found.annotation(names::ferrite::LEASE_UNVERIFIED).is_none();
        let version = found.resource_version().unwrap_or_default();
        let key = (name.to_owned(), name.to_owned());
        piece.note(Object::Cluster(key), Some(&version), false);
        piece.clusters.insert(name.to_owned(), version);
        Ok(Outcome::Done)
    }

    pub(super) async fn verify(
        &self,
        cluster: &str,
        entry: &str,
        at: Option<&str>,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        if piece.unpaused {
            return Ok(Outcome::Done);
        }
        let live = self.customizations(&self.key.0).get(entry).await;
        let live = unless_gone(live).map_err(Error::api("get a customization"))?;
        let holds = live.is_some_and(|it| {
            it.leased_by() == Some(cluster)
                && index::leasing_pool(&it) == Some(self.key.1.as_str())
                && !observe::is_releasing(&it)
        });
        if !holds {
            return Ok(Outcome::Superseded);
        }
        let annotations = json!({
            names::hive::RECONCILE_PAUSE: null,
            names::ferrite::LEASE_UNVERIFIED: null,
        });
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.cluster(cluster, patch, at.unwrap_or_default(), piece).await
    }
}

/// What came of a creation.
enum Made<K> {
    New(K),
    There,
    /// The namespace is on its way out.
    NotYet,
}

async fn create<K>(api: &Api<K>, object: &Value, what: &'static str) -> Result<Made<K>, Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = decoded(object, what)?;
    match api.create(&PostParams::default(), &object).await {
        Ok(made) => Ok(Made::New(made)),
        Err(error) if is_terminating(&error) => Ok(Made::NotYet),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Made::There),
        // The namespace went in between.
        Err(kube::Error::Api(status)) if is_gone(&status) => Ok(Made::NotYet),
        Err(error) => Err(Error::api(what)(error)),
    }
}

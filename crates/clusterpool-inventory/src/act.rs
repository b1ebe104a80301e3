//! All writes. Each insists on the version of the object that was decided on, or that an earlier step of the same piece
//! left.

mod build;
mod entries;

use std::collections::HashMap;

use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool,
};
use api_types::names;
use api_types::time::whole;
use controller_kit::api_error::{unless_gone, unless_superseded};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::access::Change;
use crate::decision::{Step, Work};
use crate::echo::{Object, Wrote};
use crate::error::Error;
use crate::index::{self, Key};
use crate::observe::{Materials, Stores, cached};
use crate::reason::Reason;
use crate::seen::Status;
use crate::settings::Policy;
use crate::status;

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Done,
    /// Somebody else wrote first, so it was not made. No failure: look again.
    Superseded,
    /// Something of before is still on its way out: look again later.
    NotYet,
}

/// What becomes of something older that stands where something is to be made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Old {
    /// It is made anew, as long as no cluster uses it.
    Renewed,
    /// It stays: a cluster uses it.
    Kept,
}

/// The writes of one pass.
pub struct Pass<'a> {
    /// Who writes.
    pub client: Client,
    /// What was decided on.
    pub stores: &'a Stores,
    /// Namespace and name of the pool.
    pub key: &'a Key,
    /// The pool; none if it is gone.
    pub pool: Option<&'a ClusterPool>,
    /// What its clusters are made of.
    pub materials: &'a Materials,
    /// How to do it.
    pub policy: &'a Policy,
}

/// What the steps of a piece of work left so far.
#[derive(Default)]
pub struct Piece {
    entries: HashMap<String, ClusterDeploymentCustomization>,
    clusters: HashMap<String, String>,
    unpaused: bool,
    /// Whether somebody else was faster to lease the entry, so that nothing was begun.
    pub outrun: bool,
    /// For the caches to show.
    pub wrote: Vec<Wrote>,
}

impl Piece {
    fn note(&mut self, object: Object, version: Option<&str>, may_go: bool) {
        if let Some(version) = version.and_then(|it| it.parse().ok()) {
            self.wrote.push(Wrote { object, version, may_go });
        }
    }
}

impl Pass<'_> {
    /// Carries out a piece of work up to the first step that is not made.
    pub async fn carry_out(&self, work: &Work, piece: &mut Piece) -> Result<Outcome, Error> {
        for step in &work.steps {
            match self.step(step, piece).await? {
                Outcome::Done => {}
                other => {
                    let begins = matches!(step, Step::KeepEntry { .. } | Step::Lease { .. });
                    piece.outrun = begins && work.leases().is_some();
                    return Ok(other);
                }
            }
        }
        Ok(Outcome::Done)
    }

    async fn step(&self, step: &Step, piece: &mut Piece) -> Result<Outcome, Error> {
        match step {
            Step::KeepPool { at } => self.pool_finalizer(at, true, piece).await,
            Step::NoteVersion { note, at } => {
                let annotations = json!({ names::ferrite::ADOPTED_VERSION: note });
                self.pool(json!({ "annotations": annotations }), at, false, piece).await
            }
            Step::LetPoolGo { at } => self.pool_finalizer(at, false, piece).await,
            Step::Assign { claim, cluster, at } => {
                self.claim(claim, json!({ "namespace": cluster }), at, piece).await
            }
            Step::Unassign { claim, at } => {
                self.claim(claim, json!({ "namespace": null }), at, piece).await
            }
            Step::Tell { claim, pending, at } => self.tell(claim, *pending, at, piece).await,
            Step::Claim { cluster, claim, since, at } => {
                let given = Time(given_at(Timestamp::now(), *since));
                let reference = json!({ "claimName": claim, "claimedTimestamp": given });
                let spec = json!({ "clusterPoolRef": reference, "powerState": "Running" });
                self.cluster(cluster, json!({ "spec": spec }), at, piece).await
            }
            Step::Confirm { claim, cluster, at } => self.confirm(claim, cluster, at, piece).await,
            Step::Power { cluster, run, at } => {
                let state = if *run { "Running" } else { "Hibernating" };
                let spec = json!({ "spec": { "powerState": state } });
                self.cluster(cluster, spec, at, piece).await
            }
            Step::KeepEntry { entry, at } => self.entry_finalizer(entry, at, true, piece).await,
            Step::FreeEntry { entry, at } => self.entry_finalizer(entry, at, false, piece).await,
            Step::Lease { entry, cluster, prove_living, at } => {
                if *prove_living && !self.is_living(cluster).await? {
                    return Ok(Outcome::Superseded);
                }
                self.lease(entry, Some(cluster), names::hive::REASON_IN_USE, at, piece).await
            }
            Step::Announce { entry, at } => {
                self.reason(entry, names::hive::REASON_RELEASING, at, piece).await
            }
            Step::Retract { entry, at } => {
                self.reason(entry, names::hive::REASON_IN_USE, at, piece).await
            }
            Step::Release { entry, cluster, prove_absent, at } => {
                let Some(found) = self.entry_at(entry, at, piece) else {
                    return Ok(Outcome::Superseded);
                };
                if found.leased_by() != cluster.as_deref() {
                    return Ok(Outcome::Superseded);
                }
                for place in index::named(&found).filter(|_| *prove_absent) {
                    if self.live_cluster(&place).await?.is_some() {
                        return Ok(Outcome::Superseded);
                    }
                }
                self.lease(entry, None, names::hive::CONDITION_AVAILABLE, at, piece).await
            }
            Step::Make { cluster, part, entry } => {
                self.make(cluster, *part, entry.as_ref(), Old::Renewed, piece).await
            }
            Step::Restore { cluster, part, entry } => {
                self.make(cluster, *part, entry.as_ref(), Old::Kept, piece).await
            }
            Step::Create { cluster, entry, run } => {
                self.create_cluster(cluster, entry.as_ref(), *run, piece).await
            }
            Step::Verify { cluster, entry, at } => {
                self.verify(cluster, entry, at.as_deref(), piece).await
            }
            Step::Adopt { cluster, at } => self.cluster_finalizer(cluster, at, true, piece).await,
            Step::Delete { cluster, uid, at } => self.delete(cluster, uid, at, piece).await,
            Step::LetGo { cluster, entry, at } => {
                if let Some(entry) = entry {
                    let live = self.customizations(&self.key.0).get(entry).await;
                    let live = unless_gone(live).map_err(Error::api("get a customization"))?;
                    // Whatever pool it names: no other one can have made this cluster.
                    if live.is_some_and(|it| it.leased_by() == Some(cluster)) {
                        return Ok(Outcome::Superseded);
                    }
                }
                self.cluster_finalizer(cluster, at, false, piece).await
            }
            Step::RemoveNamespace { name, uid } => self.remove_namespace(name, uid).await,
        }
    }

    /// Stores the pool's status, unless somebody wrote to the pool since.
    pub async fn store(&self, wanted: &Status, piece: &mut Piece) -> Result<Outcome, Error> {
        let Some(pool) = self.pool else { return Ok(Outcome::Done) };
        let patch = status::patch(pool.status.as_ref(), wanted, Timestamp::now());
        let version = pool.metadata.resource_version.clone();
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": patch });
        let pools: Api<ClusterPool> = Api::namespaced(self.client.clone(), &self.key.0);
        let params = PatchParams::default();
        let written = pools.patch_status(&self.key.1, &params, &Patch::Merge(patch)).await;
        let Some(written) =
            unless_superseded(written).map_err(Error::api("patch a pool's status"))?
        else {
            return Ok(Outcome::Superseded);
        };
        piece.note(Object::Pool(self.key.clone()), version_of(&written), false);
        Ok(Outcome::Done)
    }

    /// Lets a pool's administrators into a cluster's namespace, or out of it.
    pub async fn bind(&self, cluster: &str, change: &Change) -> Result<Outcome, Error> {
        let api: Api<RoleBinding> = Api::namespaced(self.client.clone(), cluster);
        let written = match change {
            Change::Create(object) => {
                let object = decoded(object, "bind administrators")?;
                api.create(&PostParams::default(), &object).await
            }
            Change::Patch(patch) => {
                let (name, params) = (names::hive::POOL_ADMIN_BINDING, PatchParams::default());
                api.patch(name, &params, &Patch::Merge(patch)).await
            }
        };
        let written = match written {
            Err(error) if is_terminating(&error) => return Ok(Outcome::NotYet),
            other => unless_superseded(other).map_err(Error::api("bind administrators"))?,
        };
        Ok(if written.is_some() { Outcome::Done } else { Outcome::Superseded })
    }

    async fn pool_finalizer(
        &self,
        at: &str,
        keep: bool,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let Some(pool) = self.pool else { return Ok(Outcome::Superseded) };
        let all = finalizers(&pool.metadata, names::hive::POOL_FINALIZER, keep);
        self.pool(json!({ "finalizers": all }), at, !keep, piece).await
    }

    /// Patches the pool's metadata at the version that was decided on.
    async fn pool(
        &self,
        mut metadata: Value,
        at: &str,
        may_go: bool,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        metadata["resourceVersion"] = json!(at);
        let patch = json!({ "metadata": metadata });
        let pools: Api<ClusterPool> = Api::namespaced(self.client.clone(), &self.key.0);
        let params = PatchParams::default();
        let written = pools.patch_metadata(&self.key.1, &params, &Patch::Merge(patch)).await;
        let Some(written) = unless_superseded(written).map_err(Error::api("patch a pool"))? else {
            return Ok(Outcome::Superseded);
        };
        piece.note(Object::Pool(self.key.clone()), version_of(&written), may_go);
        Ok(Outcome::Done)
    }

    async fn claim(
        &self,
        name: &str,
        spec: Value,
        at: &str,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let patch = json!({ "metadata": { "resourceVersion": at }, "spec": spec });
        let claims: Api<ClusterClaim> = Api::namespaced(self.client.clone(), &self.key.0);
        let params = PatchParams::default();
        let written = claims.patch_metadata(name, &params, &Patch::Merge(patch)).await;
        let Some(written) = unless_superseded(written).map_err(Error::api("patch a claim"))? else {
            return Ok(Outcome::Superseded);
        };
        let key = (self.key.0.clone(), name.to_owned());
        piece.note(Object::Claim(key), version_of(&written), false);
        Ok(Outcome::Done)
    }

    /// Marks a cluster whose claim went while it was given to it: Hive marks what is of a claim with its finalizer only, and
    /// sees no cluster of a claim before that names it.
    async fn confirm(
        &self,
        claim: &str,
        cluster: &str,
        at: &str,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let claims: Api<ClusterClaim> = Api::namespaced(self.client.clone(), &self.key.0);
        let live = claims.get_metadata(claim).await;
        let live = unless_gone(live).map_err(Error::api("get a claim"))?;
        if live.is_some_and(|it| it.metadata.deletion_timestamp.is_none()) {
            return Ok(Outcome::Done);
        }
        let annotations = json!({ names::hive::REMOVE_FROM_POOL: "true" });
        let mark = json!({ "metadata": { "annotations": annotations } });
        self.cluster(cluster, mark, at, piece).await
    }

    async fn tell(
        &self,
        name: &str,
        reason: Reason,
        at: &str,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let key = (self.key.0.clone(), name.to_owned());
        let Some(claim) =
            cached(&self.stores.claims, &key).filter(|it| version_of(&**it) == Some(at))
        else {
            return Ok(Outcome::Superseded);
        };
        let mut conditions = claim.status.clone().unwrap_or_default().conditions;
        let message = match reason {
            Reason::NoClusters => {
                "No cluster of the pool is free and runs; one is given as soon as it does"
                    .to_owned()
            }
            Reason::NoPool => format!(
                "There is no ClusterPool {} in this namespace; create it, or make the claim anew for one that is there",
                self.key.1
            ),
            Reason::PoolDeleted => format!(
                "ClusterPool {} is being deleted and gives no cluster any more; make the claim anew for another pool",
                self.key.1
            ),
            _ => "A cluster was assigned, and is prepared for the claim".to_owned(),
        };
        let kind = names::hive::CONDITION_PENDING;
        status::say(
            &mut conditions,
            kind,
            "True",
            reason.as_str(),
            &message,
            Timestamp::now(),
            true,
        );
        let patch = json!({
            "metadata": { "resourceVersion": at },
            "status": { "conditions": conditions },
        });
        let claims: Api<ClusterClaim> = Api::namespaced(self.client.clone(), &self.key.0);
        let written =
            claims.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        let Some(written) =
            unless_superseded(written).map_err(Error::api("patch a claim's status"))?
        else {
            return Ok(Outcome::Superseded);
        };
        piece.note(Object::Claim(key), version_of(&written), false);
        Ok(Outcome::Done)
    }

    fn clusters(&self, namespace: &str) -> Api<ClusterDeployment> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn customizations(&self, namespace: &str) -> Api<ClusterDeploymentCustomization> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Metadata of a cluster as the API server has it now; also of one that cannot be decoded.
    async fn live_cluster(
        &self,
        (namespace, name): &Key,
    ) -> Result<Option<kube::core::PartialObjectMeta<ClusterDeployment>>, Error> {
        let live = self.clusters(namespace).get_metadata(name).await;
        unless_gone(live).map_err(Error::api("get a cluster"))
    }

    async fn is_living(&self, name: &str) -> Result<bool, Error> {
        let live = self.live_cluster(&(name.to_owned(), name.to_owned())).await?;
        Ok(live.is_some_and(|it| it.metadata.deletion_timestamp.is_none()))
    }

    /// Patches a cluster at the version that was decided on, or that an earlier step left.
    async fn cluster(
        &self,
        name: &str,
        mut patch: Value,
        at: &str,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let at = piece.clusters.get(name).map_or(at, String::as_str);
        patch["metadata"]["resourceVersion"] = json!(at);
        let lets_go = patch["metadata"]["finalizers"].is_array();
        let (api, params) = (self.clusters(name), PatchParams::default());
        let written = api.patch_metadata(name, &params, &Patch::Merge(patch)).await;
        let Some(written) = unless_superseded(written).map_err(Error::api("patch a cluster"))?
        else {
            return Ok(Outcome::Superseded);
        };
        let version = written.metadata.resource_version.clone().unwrap_or_default();
        let key = (name.to_owned(), name.to_owned());
        piece.note(Object::Cluster(key), Some(&version), lets_go);
        piece.clusters.insert(name.to_owned(), version);
        Ok(Outcome::Done)
    }

    async fn cluster_finalizer(
        &self,
        name: &str,
        at: &str,
        keep: bool,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let key = (name.to_owned(), name.to_owned());
        let found = cached(&self.stores.clusters, &key).filter(|it| version_of(&**it) == Some(at));
        let Some(found) = found else { return Ok(Outcome::Superseded) };
        let all = finalizers(&found.metadata, names::hive::INVENTORY_FINALIZER, keep);
        if !keep && !all.is_empty() {
            return Ok(Outcome::Superseded);
        }
        self.cluster(name, json!({ "metadata": { "finalizers": all } }), at, piece).await
    }

    async fn delete(
        &self,
        name: &str,
        uid: &str,
        at: &str,
        piece: &mut Piece,
    ) -> Result<Outcome, Error> {
        let preconditions =
            Preconditions { uid: Some(uid.to_owned()), resource_version: Some(at.to_owned()) };
        let params = DeleteParams::default().preconditions(preconditions);
        let deleted = self.clusters(name).delete(name, &params).await;
        let Some(deleted) = unless_superseded(deleted).map_err(Error::api("delete a cluster"))?
        else {
            return Ok(Outcome::Superseded);
        };
        // One that is still there carries a newer version.
        if let Some(left) = deleted.left() {
            let key = (name.to_owned(), name.to_owned());
            piece.note(Object::Cluster(key), version_of(&left), true);
        }
        Ok(Outcome::Done)
    }

    async fn remove_namespace(&self, name: &str, uid: &str) -> Result<Outcome, Error> {
        // Whoever made the cluster that lives there: its namespace would take it along.
        let one = ListParams::default().limit(1);
        let live = self.clusters(name).list_metadata(&one).await;
        if !live.map_err(Error::api("list the clusters of a namespace"))?.items.is_empty() {
            return Ok(Outcome::Superseded);
        }
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let api: Api<Namespace> = Api::all(self.client.clone());
        let deleted = api.delete(name, &params).await;
        let deleted = unless_superseded(deleted).map_err(Error::api("delete a namespace"))?;
        Ok(if deleted.is_some() { Outcome::Done } else { Outcome::Superseded })
    }
}

fn decoded<K: DeserializeOwned>(object: &Value, what: &'static str) -> Result<K, Error> {
    serde_json::from_value(object.clone())
        .map_err(kube::Error::SerdeError)
        .map_err(Error::api(what))
}

/// When a cluster is given to a claim that was created then. That is the API server's time, and our clock may be behind it.
fn given_at(now: Timestamp, created: Timestamp) -> Timestamp {
    whole(now).max(created)
}

fn is_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|it| &it.causes);
    status.code == 403 && causes.into_iter().any(|it| it.reason == "NamespaceTerminating")
}

fn version_of(object: &impl Resource) -> Option<&str> {
    object.meta().resource_version.as_deref()
}

fn finalizers(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    ours: &str,
    keep: bool,
) -> Vec<String> {
    let all = metadata.finalizers.iter().flatten().filter(|it| *it != ours).cloned();
    all.chain(keep.then(|| ours.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_given_to_no_claim_before_that_was_made() {
        let at = |millisecond| Timestamp::from_millisecond(millisecond).unwrap();
        assert_eq!(given_at(at(5_900), at(5_000)), at(5_000));
        assert_eq!(given_at(at(7_100), at(5_000)), at(7_000));
        // A clock that is behind.
        assert_eq!(given_at(at(4_990), at(5_000)), at(5_000));
    }
}

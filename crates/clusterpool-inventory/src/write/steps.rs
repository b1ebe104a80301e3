//! The steps of a piece of work.

use api_types::hive::{ClusterClaim, ClusterDeployment, ClusterPool};
use api_types::names;
use api_types::time::whole;
use controller_kit::engine::{Error, asked};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::{Pass, Piece, Stop, found, patch, patch_status, written};
use crate::context::cached;
use crate::decision::{Step, Work};
use crate::index;
use crate::model::{Key, Object};
use crate::reason::Reason;
use crate::{status, text};

impl Pass<'_> {
    /// Carries out a piece of work up to the first step that is not made.
    pub(super) async fn carry_out(&self, work: &Work, piece: &mut Piece) -> Result<(), Stop> {
        for step in &work.steps {
            self.step(step, piece).await?;
        }
        Ok(())
    }

    async fn step(&self, step: &Step, piece: &mut Piece) -> Result<(), Stop> {
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
                    return Err(Stop::SUPERSEDED);
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
                let found = self.entry_at(entry, at, piece)?;
                if found.leased_by() != cluster.as_deref() {
                    return Err(Stop::SUPERSEDED);
                }
                for place in index::named(&found).filter(|_| *prove_absent) {
                    if self.live_cluster(&place).await?.is_some() {
                        return Err(Stop::SUPERSEDED);
                    }
                }
                self.lease(entry, None, names::hive::CONDITION_AVAILABLE, at, piece).await
            }
            Step::Make { cluster, part, entry } => {
                self.make(cluster, *part, entry.as_ref(), piece).await
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
                    let api = self.entries();
                    let live = found("get a customization", api.get(entry)).await?;
                    // Whatever pool it names: no other one can have made this cluster.
                    if live.is_some_and(|it| it.leased_by() == Some(cluster)) {
                        return Err(Stop::SUPERSEDED);
                    }
                }
                self.cluster_finalizer(cluster, at, false, piece).await
            }
            Step::RemoveNamespace { name, uid } => self.remove_namespace(name, uid).await,
        }
    }

    async fn pool_finalizer(&self, at: &str, keep: bool, piece: &mut Piece) -> Result<(), Stop> {
        let Some(pool) = &self.look.pool else { return Err(Stop::SUPERSEDED) };
        let all = finalizers(&pool.metadata, names::hive::POOL_FINALIZER, keep);
        self.pool(json!({ "finalizers": all }), at, !keep, piece).await
    }

    /// Patches the pool's metadata at the version that was decided on.
    async fn pool(
        &self,
        metadata: Value,
        at: &str,
        may_go: bool,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let change = json!({ "metadata": metadata });
        let pools = self.api::<ClusterPool>(&self.key.0);
        let version = patch(&pools, &self.key.1, at, change, "patch a pool").await?;
        if may_go {
            piece.note(Object::Pool(self.key.clone()), version, true);
        } else {
            piece.pool = version;
        }
        Ok(())
    }

    fn claims(&self) -> Api<ClusterClaim> {
        self.api(&self.key.0)
    }

    async fn claim(
        &self,
        name: &str,
        spec: Value,
        at: &str,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let change = json!({ "spec": spec });
        let version = patch(&self.claims(), name, at, change, "patch a claim").await?;
        let key = (self.key.0.clone(), name.to_owned());
        piece.note(Object::Claim(key), version, false);
        Ok(())
    }

    /// Marks a cluster whose claim went while it was given to it: Hive marks what is of a claim with its finalizer only, and
    /// sees no cluster of a claim before that names it.
    async fn confirm(
        &self,
        claim: &str,
        cluster: &str,
        at: &str,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let live = found("get a claim", self.claims().get_metadata(claim)).await?;
        if live.is_some_and(|it| it.metadata.deletion_timestamp.is_none()) {
            return Ok(());
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
    ) -> Result<(), Stop> {
        let key = (self.key.0.clone(), name.to_owned());
        let claim = cached(&self.context.caches.claims, &key);
        let Some(claim) = claim.filter(|it| is_at(&it.metadata, at)) else {
            return Err(Stop::SUPERSEDED);
        };
        let mut conditions = claim.status.clone().unwrap_or_default().conditions;
        let said = text::pending(reason, &self.key.1);
        status::say(&mut conditions, names::hive::CONDITION_PENDING, &said, Timestamp::now(), true);
        let (status, what) = (json!({ "conditions": conditions }), "patch a claim's status");
        let written = patch_status(&self.claims(), name, at, &status, what).await?;
        piece.note(Object::Claim(key), written.metadata.resource_version, false);
        Ok(())
    }

    /// Metadata of a cluster as the API server has it now; also of one that cannot be decoded.
    async fn live_cluster(
        &self,
        (namespace, name): &Key,
    ) -> Result<Option<PartialObjectMeta<ClusterDeployment>>, Error> {
        let clusters = self.api::<ClusterDeployment>(namespace);
        found("get a cluster", clusters.get_metadata(name)).await
    }

    async fn is_living(&self, name: &str) -> Result<bool, Error> {
        let live = self.live_cluster(&own(name)).await?;
        Ok(live.is_some_and(|it| it.metadata.deletion_timestamp.is_none()))
    }

    /// Patches a cluster at the version that was decided on, or that an earlier step left.
    pub(super) async fn cluster(
        &self,
        name: &str,
        change: Value,
        at: &str,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let at = piece.clusters.get(name).map_or(at, String::as_str);
        let lets_go = change["metadata"]["finalizers"].is_array();
        let clusters = self.api::<ClusterDeployment>(name);
        let version = patch(&clusters, name, at, change, "patch a cluster").await?;
        piece.clusters.insert(name.to_owned(), version.clone().unwrap_or_default());
        piece.note(Object::Cluster(own(name)), version, lets_go);
        Ok(())
    }

    async fn cluster_finalizer(
        &self,
        name: &str,
        at: &str,
        keep: bool,
        piece: &mut Piece,
    ) -> Result<(), Stop> {
        let cluster = cached(&self.context.caches.clusters, &own(name));
        let Some(cluster) = cluster.filter(|it| is_at(&it.metadata, at)) else {
            return Err(Stop::SUPERSEDED);
        };
        let all = finalizers(&cluster.metadata, names::hive::INVENTORY_FINALIZER, keep);
        if !keep && !all.is_empty() {
            return Err(Stop::SUPERSEDED);
        }
        self.cluster(name, json!({ "metadata": { "finalizers": all } }), at, piece).await
    }

    async fn delete(&self, name: &str, uid: &str, at: &str, piece: &mut Piece) -> Result<(), Stop> {
        let preconditions =
            Preconditions { uid: Some(uid.to_owned()), resource_version: Some(at.to_owned()) };
        let params = DeleteParams::default().preconditions(preconditions);
        let clusters = self.api::<ClusterDeployment>(name);
        let deleted = written("delete a cluster", clusters.delete(name, &params)).await?;
        // One that is still there carries a newer version.
        if let Some(left) = deleted.left() {
            piece.note(Object::Cluster(own(name)), left.metadata.resource_version, true);
        }
        Ok(())
    }

    async fn remove_namespace(&self, name: &str, uid: &str) -> Result<(), Stop> {
        // Whoever made the cluster that lives there: its namespace would take it along.
        let (clusters, one) = (self.api::<ClusterDeployment>(name), ListParams::default().limit(1));
        let live = asked("list the clusters of a namespace", clusters.list_metadata(&one)).await?;
        if !live.items.is_empty() {
            return Err(Stop::SUPERSEDED);
        }
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let api: Api<Namespace> = Api::all(self.client().clone());
        written("delete a namespace", api.delete(name, &params)).await?;
        Ok(())
    }
}

/// Where the cluster of a pool stands: in the namespace of its name.
pub(super) fn own(cluster: &str) -> Key {
    (cluster.to_owned(), cluster.to_owned())
}

/// When a cluster is given to a claim that was created then. That is the API server's time, and our clock may be behind it.
fn given_at(now: Timestamp, created: Timestamp) -> Timestamp {
    whole(now).max(created)
}

/// Whether an object is at the version that was decided on.
pub(super) fn is_at(metadata: &ObjectMeta, version: &str) -> bool {
    metadata.resource_version.as_deref() == Some(version)
}

pub(super) fn finalizers(metadata: &ObjectMeta, ours: &str, keep: bool) -> Vec<String> {
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

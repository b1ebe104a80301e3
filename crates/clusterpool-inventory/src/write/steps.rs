//! The steps of a piece of work.

use api_types::hive::{ClusterClaim, ClusterDeployment, ClusterPool};
use api_types::names;
use api_types::time::whole;
use controller_kit::engine::{Error, Reason as _, asked, found, written};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::{Piece, Stop, patch, patch_status};
use crate::decision::{Step, Work};
use crate::index::{self, key_in};
use crate::model::{Key, Object};
use crate::reason::Reason;
use crate::{status, text};

impl Piece<'_> {
    /// Carries out a piece of work up to the first step that is not made.
    pub(super) async fn carry_out(&mut self, work: &Work) -> Result<(), Stop> {
        for step in &work.steps {
            self.step(step).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::KeepPool { at } => self.pool_finalizer(at, true).await,
            Step::NoteVersion { note, at } => {
                let annotations = json!({ names::ferrite::ADOPTED_VERSION: note });
                self.patch_pool(json!({ "annotations": annotations }), at, false).await
            }
            Step::LetPoolGo { at } => self.pool_finalizer(at, false).await,
            Step::Assign { claim, cluster, at } => {
                self.patch_claim(claim, json!({ "namespace": cluster }), at).await
            }
            Step::Unassign { claim, at } => {
                self.patch_claim(claim, json!({ "namespace": null }), at).await
            }
            Step::Tell { claim, pending, at } => self.tell(claim, *pending, at).await,
            Step::Claim { cluster, claim, uid, since, at } => {
                let given = given_at(Timestamp::now(), *since);
                self.patch_cluster(cluster, given_to((claim, uid), given), at).await
            }
            Step::Confirm { claim, uid, cluster, at } => {
                self.confirm((claim, uid), cluster, at).await
            }
            Step::Power { cluster, run, at } => {
                let state = if *run { "Running" } else { "Hibernating" };
                let spec = json!({ "spec": { "powerState": state } });
                self.patch_cluster(cluster, spec, at).await
            }
            Step::KeepEntry { entry, at } => self.entry_finalizer(entry, at, true).await,
            Step::FreeEntry { entry, at } => self.entry_finalizer(entry, at, false).await,
            Step::Lease { entry, cluster, prove_living, at } => {
                if *prove_living && !self.is_living(cluster).await? {
                    return Err(Stop::SUPERSEDED);
                }
                self.lease(entry, cluster, at).await
            }
            Step::Announce { entry, at } => {
                self.reason(entry, names::hive::REASON_RELEASING, at).await
            }
            Step::Retract { entry, at } => self.reason(entry, names::hive::REASON_IN_USE, at).await,
            Step::Release { entry, cluster, prove_absent, at } => {
                let found = self.entry_at(entry, at)?;
                if found.leased_by() != cluster.as_deref() {
                    return Err(Stop::SUPERSEDED);
                }
                for place in index::named(&found).into_iter().filter(|_| *prove_absent) {
                    if self.live_cluster(&place).await?.is_some() {
                        return Err(Stop::SUPERSEDED);
                    }
                }
                self.release(&found).await
            }
            Step::Restore { cluster, entry } => {
                let new = self.pass.new_cluster(cluster, entry.as_ref())?;
                // Hive does not wait for workers, and a person may not want them.
                self.pass.make_parts(cluster, new.parts()).await
            }
            Step::Create { cluster, entry, run } => {
                self.create_cluster(cluster, entry.as_ref(), *run).await
            }
            Step::Verify { cluster, entry, at } => self.verify(cluster, entry, at.as_deref()).await,
            Step::Adopt { cluster, at } => self.cluster_finalizer(cluster, at, true).await,
            Step::Delete { cluster, uid, at } => self.delete(cluster, uid, at).await,
            Step::LetGo { cluster, entry, at } => {
                if let Some(entry) = entry {
                    let api = self.entry_api();
                    let live = found("get a customization", api.get(entry)).await?;
                    // Whatever pool it names: no other one can have made this cluster.
                    if live.is_some_and(|it| it.leased_by() == Some(cluster)) {
                        return Err(Stop::SUPERSEDED);
                    }
                }
                self.cluster_finalizer(cluster, at, false).await
            }
            Step::RemoveNamespace { name, uid } => self.remove_namespace(name, uid).await,
        }
    }

    async fn pool_finalizer(&mut self, at: &str, keep: bool) -> Result<(), Stop> {
        let Some(pool) = &self.pass.look.pool else { return Err(Stop::SUPERSEDED) };
        let all = finalizers(&pool.metadata, names::hive::POOL_FINALIZER, keep);
        self.patch_pool(json!({ "finalizers": all }), at, !keep).await
    }

    /// Patches the pool's metadata at the version that was decided on.
    async fn patch_pool(&mut self, metadata: Value, at: &str, may_go: bool) -> Result<(), Stop> {
        let change = json!({ "metadata": metadata });
        let pools = self.pass.api::<ClusterPool>(&self.pass.key.namespace);
        let version = patch(&pools, &self.pass.key.name, at, change, "patch a pool").await?;
        if may_go {
            self.note(Object::Pool(self.pass.key.clone()), version, true);
        } else {
            self.pool = version;
        }
        Ok(())
    }

    fn claim_api(&self) -> Api<ClusterClaim> {
        self.pass.api(&self.pass.key.namespace)
    }

    async fn patch_claim(&mut self, name: &str, spec: Value, at: &str) -> Result<(), Stop> {
        let change = json!({ "spec": spec });
        let version = patch(&self.claim_api(), name, at, change, "patch a claim").await?;
        let key = key_in(&self.pass.key.namespace, name);
        self.note(Object::Claim(key), version, false);
        Ok(())
    }

    /// Marks a cluster whose claim went while it was given to it: Hive marks what is of a claim with its finalizer only, and
    /// sees no cluster of a claim before that names it.
    async fn confirm(
        &mut self,
        (claim, uid): (&str, &str),
        cluster: &str,
        at: &str,
    ) -> Result<(), Stop> {
        let live = found("get a claim", self.claim_api().get_metadata(claim)).await?;
        if live.is_some_and(|it| is_still_there(&it.metadata, uid)) {
            return Ok(());
        }
        let annotations = json!({ names::hive::REMOVE_FROM_POOL: "true" });
        let mark = json!({ "metadata": { "annotations": annotations } });
        self.patch_cluster(cluster, mark, at).await
    }

    async fn tell(&mut self, name: &str, reason: Reason, at: &str) -> Result<(), Stop> {
        let key = key_in(&self.pass.key.namespace, name);
        let claim = self.pass.context.caches.claims.get(&key);
        let Some(claim) = claim.filter(|it| is_at(&it.metadata, at)) else {
            return Err(Stop::SUPERSEDED);
        };
        let mut conditions = claim.status.clone().unwrap_or_default().conditions;
        let said = ("True", reason.as_str(), text::pending(reason, &self.pass.key.name));
        status::say(&mut conditions, names::hive::CONDITION_PENDING, said, Timestamp::now(), true);
        let (status, what) = (json!({ "conditions": conditions }), "patch a claim's status");
        let written = patch_status(&self.claim_api(), name, at, &status, what).await?;
        self.note(Object::Claim(key), written.metadata.resource_version, false);
        Ok(())
    }

    /// Metadata of a cluster as the API server has it now; also of one that cannot be decoded.
    async fn live_cluster(
        &self,
        key: &Key,
    ) -> Result<Option<PartialObjectMeta<ClusterDeployment>>, Error> {
        let clusters = self.pass.api::<ClusterDeployment>(&key.namespace);
        found("get a cluster", clusters.get_metadata(&key.name)).await
    }

    async fn is_living(&self, name: &str) -> Result<bool, Error> {
        let live = self.live_cluster(&own(name)).await?;
        Ok(live.is_some_and(|it| it.metadata.deletion_timestamp.is_none()))
    }

    /// Patches a cluster at the version that was decided on, or that an earlier step left.
    pub(super) async fn patch_cluster(
        &mut self,
        name: &str,
        change: Value,
        at: &str,
    ) -> Result<(), Stop> {
        let at = self.clusters.get(name).map_or(at, String::as_str);
        let lets_go = change["metadata"]["finalizers"].is_array();
        let clusters = self.pass.api::<ClusterDeployment>(name);
        let version = patch(&clusters, name, at, change, "patch a cluster").await?;
        self.clusters.insert(name.to_owned(), version.clone().unwrap_or_default());
        self.note(Object::Cluster(own(name)), version, lets_go);
        Ok(())
    }

    async fn cluster_finalizer(&mut self, name: &str, at: &str, keep: bool) -> Result<(), Stop> {
        let cluster = self.pass.context.caches.clusters.get(&own(name));
        let Some(cluster) = cluster.filter(|it| is_at(&it.metadata, at)) else {
            return Err(Stop::SUPERSEDED);
        };
        let all = finalizers(&cluster.metadata, names::hive::INVENTORY_FINALIZER, keep);
        if !keep && !all.is_empty() {
            return Err(Stop::SUPERSEDED);
        }
        self.patch_cluster(name, json!({ "metadata": { "finalizers": all } }), at).await
    }

    async fn delete(&mut self, name: &str, uid: &str, at: &str) -> Result<(), Stop> {
        let preconditions =
            Preconditions { uid: Some(uid.to_owned()), resource_version: Some(at.to_owned()) };
        let params = DeleteParams::default().preconditions(preconditions);
        let clusters = self.pass.api::<ClusterDeployment>(name);
        let deleted = written("delete a cluster", clusters.delete(name, &params)).await?;
        // One that is still there carries a newer version.
        if let Some(left) = deleted.left() {
            self.note(Object::Cluster(own(name)), left.metadata.resource_version, true);
        }
        Ok(())
    }

    async fn remove_namespace(&self, name: &str, uid: &str) -> Result<(), Stop> {
        // Whoever made the cluster that lives there: its namespace would take it along.
        let (clusters, one) =
            (self.pass.api::<ClusterDeployment>(name), ListParams::default().limit(1));
        let live = asked("list the clusters of a namespace", clusters.list_metadata(&one)).await?;
        if !live.items.is_empty() {
            return Err(Stop::SUPERSEDED);
        }
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let api: Api<Namespace> = Api::all(self.pass.client().clone());
        written("delete a namespace", api.delete(name, &params)).await?;
        Ok(())
    }
}

/// Where the cluster of a pool stands: in the namespace of its name.
pub(super) fn own(cluster: &str) -> Key {
    key_in(cluster, cluster)
}

/// When a cluster is given to a claim that was created then. That is the API server's time, and our clock may be behind it.
fn given_at(now: Timestamp, created: Timestamp) -> Timestamp {
    whole(now).max(created)
}

/// The change that gives a cluster to a claim. One write carries the uid as well: without it a claim that is made again under
/// this name may get the cluster, which the first one's user may still use.
fn given_to((claim, uid): (&str, &str), given: Timestamp) -> Value {
    let reference = json!({ "claimName": claim, "claimedTimestamp": Time(given) });
    json!({
        "metadata": { "annotations": { names::ferrite::CLAIM_UID: uid } },
        "spec": { "clusterPoolRef": reference, "powerState": "Running" },
    })
}

/// Whether this is the object of this uid, and nobody asked for its deletion.
fn is_still_there(live: &ObjectMeta, uid: &str) -> bool {
    live.deletion_timestamp.is_none() && live.uid.as_deref() == Some(uid)
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

    #[test]
    fn a_cluster_is_given_with_the_uid_of_its_claim_in_the_same_write() {
        let change = given_to(("x", "one"), Timestamp::UNIX_EPOCH);
        assert_eq!(change["metadata"]["annotations"][names::ferrite::CLAIM_UID], "one");
        assert_eq!(change["spec"]["clusterPoolRef"]["claimName"], "x");
    }

    #[test]
    fn a_claim_that_was_made_again_is_not_the_one_that_got_the_cluster() {
        let mut live = ObjectMeta { uid: Some("one".to_owned()), ..ObjectMeta::default() };
        assert!(is_still_there(&live, "one") && !is_still_there(&live, "two"));
        live.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(!is_still_there(&live, "one"));
    }
}

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
use crate::seen::Claim;
use crate::{status, text};

impl<'a> Piece<'a> {
    /// Carries out a piece of work up to the first step that is not made.
    pub(super) async fn carry_out(&mut self, work: &Work) -> Result<(), Stop> {
        for step in &work.steps {
            self.step(step).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::KeepPool => self.pool_finalizer(true).await,
            Step::NoteVersion(note) => {
                let annotations = json!({ names::ferrite::ADOPTED_VERSION: note });
                self.patch_pool(json!({ "annotations": annotations }), false).await
            }
            Step::LetPoolGo => self.pool_finalizer(false).await,
            Step::Assign { claim, cluster } => {
                self.patch_claim(claim, json!({ "namespace": cluster })).await
            }
            Step::Unassign(claim) => self.patch_claim(claim, json!({ "namespace": null })).await,
            Step::Tell { claim, pending } => self.tell(claim, *pending).await,
            Step::Claim { cluster, claim } => {
                let claim = self.claim(claim)?;
                let given = given_at(Timestamp::now(), claim.created);
                self.patch_cluster(cluster, given_to((&claim.name, &claim.uid), given)).await
            }
            Step::Confirm { cluster, claim } => self.confirm(cluster, claim).await,
            Step::Power { cluster, run } => {
                let state = if *run { "Running" } else { "Hibernating" };
                self.patch_cluster(cluster, json!({ "spec": { "powerState": state } })).await
            }
            Step::KeepEntry(entry) => self.entry_finalizer(entry, true).await,
            Step::FreeEntry(entry) => self.entry_finalizer(entry, false).await,
            Step::Lease { entry, cluster, prove_living } => {
                if *prove_living && !self.is_living(cluster).await? {
                    return Err(Stop::SUPERSEDED);
                }
                self.lease(entry, cluster).await
            }
            Step::Announce(entry) => self.reason(entry, names::hive::REASON_RELEASING).await,
            Step::Retract(entry) => self.reason(entry, names::hive::REASON_IN_USE).await,
            Step::Release { entry, cluster, prove_absent } => {
                let found = self.entry(entry)?;
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
            Step::Verify { cluster, entry } => self.verify(cluster, entry).await,
            Step::Adopt(cluster) => self.cluster_finalizer(cluster, true).await,
            Step::Delete(cluster) => self.delete(cluster).await,
            Step::LetGo { cluster, entry } => {
                if let Some(entry) = entry {
                    let api = self.entry_api();
                    let live = found("get a customization", api.get(entry)).await?;
                    // Whatever pool it names: no other one can have made this cluster.
                    if live.is_some_and(|it| it.leased_by() == Some(cluster)) {
                        return Err(Stop::SUPERSEDED);
                    }
                }
                self.cluster_finalizer(cluster, false).await
            }
            Step::RemoveNamespace(name) => self.remove_namespace(name).await,
        }
    }

    async fn pool_finalizer(&mut self, keep: bool) -> Result<(), Stop> {
        let Some(pool) = &self.pass.look.pool else { return Err(Stop::SUPERSEDED) };
        let all = finalizers(&pool.metadata, names::hive::POOL_FINALIZER, keep);
        self.patch_pool(json!({ "finalizers": all }), !keep).await
    }

    /// Patches the pool's metadata at the version that was decided on.
    async fn patch_pool(&mut self, metadata: Value, may_go: bool) -> Result<(), Stop> {
        let (change, at) = (json!({ "metadata": metadata }), &self.pass.look.seen.pool.at);
        let pools = self.pass.api::<ClusterPool>(&self.pass.key.namespace);
        let version = patch(&pools, &self.pass.key.name, at, change, "patch a pool").await?;
        if may_go {
            self.note(Object::Pool(self.pass.key.clone()), version, true);
        } else {
            self.pool = version;
        }
        Ok(())
    }

    /// A claim as it was decided on.
    fn claim(&self, name: &str) -> Result<&'a Claim, Stop> {
        self.pass.look.seen.claim(name).ok_or(Stop::SUPERSEDED)
    }

    fn claim_api(&self) -> Api<ClusterClaim> {
        self.pass.api(&self.pass.key.namespace)
    }

    async fn patch_claim(&mut self, name: &str, spec: Value) -> Result<(), Stop> {
        let (change, at) = (json!({ "spec": spec }), &self.claim(name)?.at);
        let version = patch(&self.claim_api(), name, at, change, "patch a claim").await?;
        let key = key_in(&self.pass.key.namespace, name);
        self.note(Object::Claim(key), version, false);
        Ok(())
    }

    /// Marks a cluster whose claim went while it was given to it: Hive marks what is of a claim with its finalizer only, and
    /// sees no cluster of a claim before that names it.
    async fn confirm(&mut self, cluster: &str, claim: &str) -> Result<(), Stop> {
        let live = found("get a claim", self.claim_api().get_metadata(claim)).await?;
        let uid = &self.claim(claim)?.uid;
        if live.is_some_and(|it| is_still_there(&it.metadata, uid)) {
            return Ok(());
        }
        let annotations = json!({ names::hive::REMOVE_FROM_POOL: "true" });
        let mark = json!({ "metadata": { "annotations": annotations } });
        self.patch_cluster(cluster, mark).await
    }

    async fn tell(&mut self, name: &str, reason: Reason) -> Result<(), Stop> {
        let (key, at) = (key_in(&self.pass.key.namespace, name), &self.claim(name)?.at);
        let claim = self.pass.context.caches.claims.get(&key);
        let claim = claim.filter(|it| is_at(&it.metadata, Some(at))).ok_or(Stop::SUPERSEDED)?;
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
    pub(super) async fn patch_cluster(&mut self, name: &str, change: Value) -> Result<(), Stop> {
        let seen = self.pass.look.seen.cluster(name).map(|it| &it.at);
        let at = self.cluster.as_ref().or(seen).ok_or(Stop::SUPERSEDED)?;
        let lets_go = change["metadata"]["finalizers"].is_array();
        let clusters = self.pass.api::<ClusterDeployment>(name);
        let version = patch(&clusters, name, at, change, "patch a cluster").await?;
        self.cluster.clone_from(&version);
        self.note(Object::Cluster(own(name)), version, lets_go);
        Ok(())
    }

    async fn cluster_finalizer(&mut self, name: &str, keep: bool) -> Result<(), Stop> {
        let at = self.pass.look.seen.cluster(name).map(|it| &it.at);
        let cluster = self.pass.context.caches.clusters.get(&own(name));
        let cluster = cluster.filter(|it| is_at(&it.metadata, at)).ok_or(Stop::SUPERSEDED)?;
        let all = finalizers(&cluster.metadata, names::hive::INVENTORY_FINALIZER, keep);
        if !keep && !all.is_empty() {
            return Err(Stop::SUPERSEDED);
        }
        self.patch_cluster(name, json!({ "metadata": { "finalizers": all } })).await
    }

    async fn delete(&mut self, name: &str) -> Result<(), Stop> {
        let seen = self.pass.look.seen.cluster(name).ok_or(Stop::SUPERSEDED)?;
        let (uid, resource_version) = (Some(seen.uid.clone()), Some(seen.at.clone()));
        let preconditions = Preconditions { uid, resource_version };
        let params = DeleteParams::default().preconditions(preconditions);
        let clusters = self.pass.api::<ClusterDeployment>(name);
        let deleted = written("delete a cluster", clusters.delete(name, &params)).await?;
        // One that is still there carries a newer version.
        if let Some(left) = deleted.left() {
            self.note(Object::Cluster(own(name)), left.metadata.resource_version, true);
        }
        Ok(())
    }

    async fn remove_namespace(&self, name: &str) -> Result<(), Stop> {
        let mut namespaces = self.pass.look.seen.namespaces.iter();
        let seen = namespaces.find(|it| it.name == name).ok_or(Stop::SUPERSEDED)?;
        // Whoever made the cluster that lives there: its namespace would take it along.
        let (clusters, one) =
            (self.pass.api::<ClusterDeployment>(name), ListParams::default().limit(1));
        let live = asked("list the clusters of a namespace", clusters.list_metadata(&one)).await?;
        if !live.items.is_empty() {
            return Err(Stop::SUPERSEDED);
        }
        let preconditions = Preconditions { uid: Some(seen.uid.clone()), resource_version: None };
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
pub(super) fn is_at(metadata: &ObjectMeta, version: Option<&String>) -> bool {
    version.is_some() && metadata.resource_version.as_ref() == version
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

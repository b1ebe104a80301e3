//! Objects as the decision sees them.

use std::time::Duration;

use api_types::condition::{self, Condition};
use api_types::hive::{ClusterClaim, ClusterDeployment, ClusterPool, ClusterPoolSpec};
use api_types::names;
use api_types::time::until;
use controller_kit::config::duration;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt as _};

use super::snapshot::Known;
use crate::index::has_finalizer;
use crate::platform::Platform;
use crate::pool_version::{PoolVersion, pool_version};
use crate::seen::{Claim, Cluster, Listed, Pool};
use crate::settings::allowed_attempts;
use crate::text;

/// Reason of a cluster's condition `Provisioned` when Hive fails to take it down.
const DEPROVISION_FAILED: &str = "DeprovisionFailed";
/// Condition of a cluster: Hive cannot even begin to.
const DEPROVISION_LAUNCH_ERROR: &str = "DeprovisionLaunchError";
/// For how long Hive may be taking a cluster down. It ends a try after an hour and begins another one, without end, and says
/// on the cluster only of credentials on AWS that it fails: what outlives some tries is not waited for.
const LONGEST_REMOVAL: Duration = Duration::from_secs(3 * 60 * 60);
/// Condition of a cluster: whether Hive has all that it wants before it begins.
const REQUIREMENTS_MET: &str = "RequirementsMet";
/// Conditions of a cluster with which Hive does not begin either.
const IN_THE_WAY: [&str; 4] =
    ["InstallImagesNotResolved", "AuthenticationFailure", "DNSNotReady", "InstallLaunchError"];

pub(super) fn created(object: &impl Resource) -> Timestamp {
    let born = object.meta().creation_timestamp.as_ref();
    born.map_or(Timestamp::UNIX_EPOCH, |born| born.0)
}

fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn is_yes(value: &str) -> bool {
    ["true", "t", "1"].iter().any(|it| value.eq_ignore_ascii_case(it))
}

pub(super) fn view(pool: &ClusterPool, known: &Known<'_>) -> Pool {
    let spec = &pool.spec;
    let hibernates = Platform::of(spec).is_some_and(|it| it.hibernates());
    let size = count(spec.size);
    let attempts = pool.annotation(names::ferrite::PROVISION_ATTEMPTS);
    Pool {
        namespace: pool.namespace().unwrap_or_default(),
        name: pool.name_any(),
        uid: pool.uid().unwrap_or_default(),
        at: pool.resource_version().unwrap_or_default(),
        deleting: pool.metadata.deletion_timestamp.is_some(),
        absent: false,
        kept: has_finalizer(pool, names::hive::POOL_FINALIZER),
        listed: Listed::of(spec),
        size,
        running: if hibernates { spec.running_count.map_or(0, count) } else { size },
        max_size: spec.max_size.map(count),
        max_concurrent: spec.max_concurrent.map(count),
        hibernates,
        version: PoolVersion {
            noted: pool.annotation(names::ferrite::ADOPTED_VERSION).map(str::to_owned),
            ..pool_version(spec)
        },
        attempts: attempts.and_then(allowed_attempts),
        remarks: text::remarks(spec, attempts),
        makes_workers: Platform::makes_workers(spec),
        status: pool.status.clone().unwrap_or_default(),
        rival: known.rival.clone(),
    }
}

/// A cluster; and when it will not have resumed or gone in time, which changes without its being written. `left` is how long
/// it may still resume, if it does.
pub(super) fn cluster(
    it: &ClusterDeployment,
    pool: &Pool,
    left: Option<Duration>,
    now: Timestamp,
) -> (Cluster, Option<Duration>) {
    let conditions = it.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let state = it.status.as_ref().and_then(|it| it.power_state.as_deref()).unwrap_or_default();
    let installed = it.spec.installed == Some(true);
    let wanted = it.spec.power_state.as_deref();
    let stopped = condition::find(conditions, names::hive::CONDITION_PROVISION_STOPPED);
    let removal = removal_left(it, now);
    let hangs = removal.is_some_and(|left| left.is_zero() || cannot_go(conditions));
    let installation = installation_left(it, now);
    let reference = it.spec.cluster_pool_ref.as_ref();
    let noted = |key: &str| it.annotation(key).map(str::to_owned);
    let marks = [names::hive::REMOVE_FROM_POOL, names::hive::REMOVE_CLAIMED_FROM_POOL];
    let is_yes = |key: &str| it.annotation(key).is_some_and(is_yes);
    let entry = reference.and_then(|it| it.customization_name()).map(str::to_owned);
    let cluster = Cluster {
        name: it.name_any(),
        uid: it.uid().unwrap_or_default(),
        at: it.resource_version().unwrap_or_default(),
        created: created(it),
        deleting: it.metadata.deletion_timestamp.is_some(),
        hangs,
        kept: has_finalizer(it, names::hive::INVENTORY_FINALIZER),
        kept_by_others: it.finalizers().iter().any(|it| it != names::hive::INVENTORY_FINALIZER),
        entry_version: noted(names::ferrite::CUSTOMIZATION_VERSION),
        pool_version: noted(names::hive::POOL_SPEC_HASH),
        claim: reference.and_then(|it| it.claim_name.clone()).filter(|it| !it.is_empty()),
        claim_uid: noted(names::ferrite::CLAIM_UID),
        claimed: reference.and_then(|it| it.claimed_timestamp.as_ref()).map(|it| it.0),
        marked: marks.into_iter().any(is_yes),
        protected: is_yes(names::hive::PROTECTED_DELETE),
        // Without an entry there is no lease to verify, and a pool that waits for that would say that all is well.
        unverified: entry.is_some() && it.annotation(names::ferrite::LEASE_UNVERIFIED).is_some(),
        entry,
        not_begun: None,
        idle: false,
        slow: installation.is_some_and(|left| left.is_zero()),
        installed,
        stopped: stopped.filter(|it| it.is_true()).map(|it| {
            let words = words(it);
            if words.is_empty() { "provisioning stopped".to_owned() } else { words }
        }),
        stuck: left.is_some_and(|it| it.is_zero()),
        running: state == "Running" || installed && !pool.hibernates,
        asked_to_run: match wanted {
            Some("Running") => Some(true),
            Some("Hibernating") => Some(false),
            _ => None,
        },
    };
    let late = [left, removal.filter(|_| !hangs), installation].into_iter().flatten();
    (cluster, late.filter(|it| !it.is_zero()).min())
}

/// Since when Hive has been resuming the cluster, if it does.
pub(super) fn resuming_since(it: &ClusterDeployment) -> Option<Timestamp> {
    let status = it.status.as_ref()?;
    let state = status.power_state.as_deref().unwrap_or_default();
    condition::find(&status.conditions, names::hive::CONDITION_HIBERNATING)
        .filter(|it| it.reason.as_deref() == Some(names::hive::REASON_RESUMING))
        .filter(|_| it.spec.installed == Some(true))
        .filter(|_| it.spec.power_state.as_deref() == Some("Running"))
        .filter(|_| !["Running", "Hibernating"].contains(&state))
        .and_then(|it| it.last_transition_time.as_ref())
        .map(|it| it.0)
}

/// What a condition says.
fn words(it: &Condition) -> String {
    let words = [it.reason.as_deref(), it.message.as_deref()];
    let words: Vec<&str> = words.into_iter().flatten().filter(|it| !it.is_empty()).collect();
    words.join(": ")
}

/// Why Hive does not begin to install the cluster, as far as it says that.
pub(super) fn hives_words(it: &ClusterDeployment) -> String {
    let conditions = it.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let unmet = condition::find(conditions, REQUIREMENTS_MET).filter(|it| it.is_false());
    let others = IN_THE_WAY.iter().filter_map(|it| condition::find(conditions, it));
    let mut all = unmet.into_iter().chain(others.filter(|it| it.is_true()));
    all.next().map(words).unwrap_or_default()
}

/// Whether Hive has begun to install the cluster: it has all that it needs for that.
pub(super) fn has_begun(it: &ClusterDeployment) -> bool {
    it.status.as_ref().is_some_and(|it| {
        it.install_started_timestamp.is_some() || it.other.contains_key("provisionRef")
    })
}

/// For how long Hive may still be taking the cluster down, if it is deleted. That ends without the cluster's being written.
fn removal_left(it: &ClusterDeployment, now: Timestamp) -> Option<Duration> {
    let since = it.metadata.deletion_timestamp.as_ref()?;
    Some(LONGEST_REMOVAL.saturating_sub(until(since.0, now)))
}

/// For how long Hive may still be installing the cluster, if it is to be. As long as for a removal: unless the pool limits its tries
/// it begins another one without end, and says on the cluster of none that it was in vain.
fn installation_left(it: &ClusterDeployment, now: Timestamp) -> Option<Duration> {
    let is_to_be = it.spec.installed != Some(true) && it.metadata.deletion_timestamp.is_none();
    is_to_be.then(|| LONGEST_REMOVAL.saturating_sub(until(created(it), now)))
}

/// Whether Hive says that it cannot take the cluster down.
fn cannot_go(conditions: &[Condition]) -> bool {
    let is_failed = |it: &Condition| it.reason.as_deref() == Some(DEPROVISION_FAILED);
    condition::find(conditions, names::hive::CONDITION_PROVISIONED).is_some_and(is_failed)
        || condition::find(conditions, DEPROVISION_LAUNCH_ERROR).is_some_and(Condition::is_true)
}

pub(super) fn claim(it: &ClusterClaim) -> Claim {
    let conditions = it.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    Claim {
        name: it.name_any(),
        uid: it.uid().unwrap_or_default(),
        at: it.resource_version().unwrap_or_default(),
        created: created(it),
        deleting: it.metadata.deletion_timestamp.is_some(),
        cluster: it.spec.namespace.clone().filter(|it| !it.is_empty()),
        pending: condition::find(conditions, names::hive::CONDITION_PENDING)
            .and_then(|it| it.reason.clone()),
    }
}

/// How long a cluster may take to resume. None at all, also where Hive's types would read zero, means any time.
pub(super) fn resume_timeout(spec: &ClusterPoolSpec) -> Option<Duration> {
    let text = spec.hibernation_config.as_ref()?.resume_timeout.as_deref()?;
    duration(text).filter(|it| !it.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_that_hive_fails_to_take_down_is_told_from_one_that_it_takes_down() {
        let of = |kind: &str, status: &str, reason: &str| {
            let all = json!([{ "type": kind, "status": status, "reason": reason }]);
            let all: Vec<Condition> = serde_json::from_value(all).unwrap();
            cannot_go(&all)
        };
        assert!(of("Provisioned", "False", "DeprovisionFailed"));
        assert!(of("DeprovisionLaunchError", "True", "AuthenticationFailed"));
        assert!(!of("Provisioned", "False", "Deprovisioning"));
        assert!(!of("DeprovisionLaunchError", "False", "Cleared"));
    }

    #[test]
    fn hive_has_the_time_of_some_tries_to_take_a_cluster_down() {
        let left = |deleted: Option<&str>, now: i64| {
            let metadata = json!({ "name": "c", "deletionTimestamp": deleted });
            let it = json!({ "metadata": metadata, "spec": {} });
            let it: ClusterDeployment = serde_json::from_value(it).unwrap();
            removal_left(&it, Timestamp::from_second(now).unwrap()).map(|it| it.as_secs())
        };
        let deleted = Some("1970-01-01T00:00:00Z");
        assert_eq!((left(deleted, 0), left(deleted, 10_799)), (Some(10_800), Some(1)));
        assert_eq!((left(deleted, 10_800), left(deleted, 99_999)), (Some(0), Some(0)));
        assert_eq!(left(None, 99_999), None);
    }

    #[test]
    fn a_cluster_that_hive_installs_for_hours_is_slow_and_looked_at_when_it_turns_so() {
        let seen = |installed: bool, now: i64| {
            let it = json!({
                "metadata": { "name": "c", "creationTimestamp": "1970-01-01T00:00:00Z" },
                "spec": { "installed": installed },
            });
            let it: ClusterDeployment = serde_json::from_value(it).unwrap();
            let now = Timestamp::from_second(now).unwrap();
            let (cluster, late) = cluster(&it, &Pool::default(), None, now);
            (cluster.slow, late.map(|it| it.as_secs()))
        };
        assert_eq!(seen(false, 10_799), (false, Some(1)));
        assert_eq!(seen(false, 10_800), (true, None));
        assert_eq!(seen(true, 10_800), (false, None));
    }

    #[test]
    fn hive_says_why_it_does_not_begin() {
        let of = |all: &[(&str, &str, &str)]| {
            let all: Vec<_> = all
                .iter()
                .map(|(kind, status, why)| {
                    json!({ "type": kind, "status": status, "reason": why, "message": "no" })
                })
                .collect();
            let it = json!({ "metadata": {}, "spec": {}, "status": { "conditions": all } });
            hives_words(&serde_json::from_value(it).unwrap())
        };
        let unmet = ("RequirementsMet", "False", "InstallConfigValidationFailed");
        let unresolved = ("InstallImagesNotResolved", "True", "JobFailed");
        assert_eq!(of(&[unresolved, unmet]), "InstallConfigValidationFailed: no");
        assert_eq!(of(&[("RequirementsMet", "True", "Met"), unresolved]), "JobFailed: no");
        assert_eq!(of(&[("RequirementsMet", "Unknown", "Initialized")]), "");
    }

    #[test]
    fn a_cluster_says_when_and_to_which_claim_it_was_given_where_somebody_noted_that() {
        let of = |at: Option<&str>, uid: Option<&str>| {
            let reference = json!({ "claimName": "x", "claimedTimestamp": at });
            let annotations = uid.map(|it| json!({ names::ferrite::CLAIM_UID: it }));
            let it = json!({
                "metadata": { "name": "c", "annotations": annotations },
                "spec": { "clusterPoolRef": reference },
            });
            let it: ClusterDeployment = serde_json::from_value(it).unwrap();
            let seen = cluster(&it, &Pool::default(), None, Timestamp::UNIX_EPOCH).0;
            (seen.claimed, seen.claim_uid)
        };
        let noted = of(Some("1970-01-01T00:00:05Z"), Some("one"));
        assert_eq!(noted, (Timestamp::from_second(5).ok(), Some("one".to_owned())));
        assert_eq!(of(None, None), (None, None));
    }

    #[test]
    fn a_cluster_is_begun_with_once_there_was_a_try_to_install_it() {
        let of = |status: serde_json::Value| {
            let cluster = json!({ "metadata": { "name": "c" }, "spec": {}, "status": status });
            has_begun(&serde_json::from_value(cluster).unwrap())
        };
        assert!(of(json!({ "provisionRef": { "name": "p" } })));
        assert!(of(json!({ "installStartedTimestamp": "2026-01-01T00:00:00Z" })));
        assert!(!of(json!({ "conditions": [] })) && !of(json!(null)));
    }

    #[test]
    fn a_resume_timeout_of_none_or_beyond_any_use_makes_no_cluster_late() {
        let of = |text: &str| {
            let spec = json!({ "hibernationConfig": { "resumeTimeout": text } });
            resume_timeout(&serde_json::from_value(spec).unwrap())
        };
        assert_eq!(of("20m"), Some(Duration::from_secs(1200)));
        for text in ["0s", "0", "-5m", "", "soon", "99999999999999999999h"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}

//! What a customization says of itself.

use api_types::condition;
use api_types::hive::ClusterDeploymentCustomization;
use api_types::names;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::index::leasing_pool;
use crate::seen::Lease;

/// Its lease, if it is not free.
pub(super) fn lease(
    it: &ClusterDeploymentCustomization,
    pool_exists: impl Fn(&str) -> bool,
) -> Option<Lease> {
    let cluster = it.leased_by().map(str::to_owned);
    let is_one = cluster.is_some() || it.is_marked_in_use();
    let pool = leasing_pool(it).map(str::to_owned);
    let whole = it.is_marked_in_use() && pool.is_some();
    let pool_exists = pool.as_deref().is_some_and(pool_exists);
    is_one.then(|| Lease { cluster, pool, pool_exists, releasing: is_releasing(it), whole })
}

/// Generation and uid: a status that is written does not change it, another object of the name does.
pub fn version(it: &ClusterDeploymentCustomization) -> String {
    let generation = it.metadata.generation.unwrap_or_default();
    format!("{generation}-{}", it.metadata.uid.as_deref().unwrap_or_default())
}

/// Since when a person wants its failures to be forgotten, or what is said of that and is no time.
pub(super) fn retry(it: &ClusterDeploymentCustomization) -> Option<Result<Timestamp, &str>> {
    let said = it.annotations().get(names::ferrite::RETRY)?;
    Some(said.parse().map_err(|_| said.as_str()))
}

/// Whether somebody said that he is about to release it.
pub fn is_releasing(it: &ClusterDeploymentCustomization) -> bool {
    it.status
        .as_ref()
        .and_then(|it| condition::find(&it.conditions, names::hive::CONDITION_AVAILABLE))
        .is_some_and(|it| it.reason.as_deref() == Some(names::hive::REASON_RELEASING))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_try_is_wanted_since_the_time_that_the_annotation_says() {
        let of = |value: Option<&str>| {
            let annotations = json!({ "ferrite.metal3.io/retry": value });
            let metadata = json!({ "name": "a", "annotations": value.map(|_| annotations) });
            let it = json!({ "metadata": metadata, "spec": {} });
            let it = serde_json::from_value(it).unwrap();
            retry(&it).map(|it| it.map(Timestamp::as_second).map_err(str::to_owned))
        };
        // As `date -u +%FT%TZ` and `date -Is` write it.
        assert_eq!(of(Some("1970-01-01T00:01:00Z")), Some(Ok(60)));
        assert_eq!(of(Some("1970-01-01T01:01:00+01:00")), Some(Ok(60)));
        for wrong in ["now", ""] {
            assert_eq!(of(Some(wrong)), Some(Err(wrong.to_owned())));
        }
        assert_eq!(of(None), None);
    }

    #[test]
    fn a_lease_is_whole_where_it_says_in_use_and_names_its_pool() {
        let is_whole = |available: &str, pool: Option<&str>| {
            let it: ClusterDeploymentCustomization = serde_json::from_value(json!({
                "metadata": { "name": "a" },
                "spec": {},
                "status": {
                    "clusterDeploymentRef": { "name": "c" },
                    "clusterPoolRef": pool.map(|it| json!({ "name": it })),
                    "conditions": [{ "type": "Available", "status": available }],
                },
            }))
            .unwrap();
            lease(&it, |_| true).unwrap().whole
        };
        assert!(is_whole("False", Some("pool")));
        assert!(!is_whole("True", Some("pool")) && !is_whole("False", None));
    }
}

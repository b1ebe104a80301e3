//! A pool as the API server itself tells it, asked right before something is done for it.

use api_types::hive::ClusterPool;
use api_types::names;
use controller_kit::api_error::unless_gone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::Api;

use crate::error::Error;
use crate::index::Key;

/// The pool as the API server knows it now: which one it is, what is wanted of it, and when a controller of Hive last wrote
/// to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Its uid; none if it is gone.
    pub uid: Option<String>,
    /// Its generation: what it wants.
    pub generation: Option<i64>,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// When Hive's own controller of pools wrote last.
    pub rival: Option<Timestamp>,
}

impl Live {
    fn of(found: ObjectMeta) -> Self {
        let managers = found.managed_fields.iter().flatten();
        let rival = managers
            .filter(|it| it.manager.as_deref() == Some(names::hive::POOL_CONTROLLER))
            .filter_map(|it| it.time.as_ref().map(|time| time.0))
            .max();
        Self {
            uid: found.uid,
            generation: found.generation,
            deleting: found.deletion_timestamp.is_some(),
            rival,
        }
    }

    /// Whether it is the pool that was decided about and wants what that wanted: a cache may be far behind.
    pub fn is_as_seen(&self, pool: Option<&ClusterPool>) -> bool {
        let seen = pool.map(|it| &it.metadata);
        self.uid.as_ref() == seen.and_then(|it| it.uid.as_ref())
            && self.generation == seen.and_then(|it| it.generation)
            && self.deleting == seen.is_some_and(|it| it.deletion_timestamp.is_some())
    }
}

/// Asks for a pool.
pub async fn live_pool(client: &Client, key: &Key) -> Result<Live, Error> {
    // What is nobody's is let go in the name of no pool.
    if key.1.is_empty() {
        return Ok(Live::default());
    }
    let api: Api<ClusterPool> = Api::namespaced(client.clone(), &key.0);
    let found = unless_gone(api.get_metadata(&key.1).await);
    let found = found.map_err(Error::api("get a ClusterPool"))?;
    Ok(found.map(|it| Live::of(it.metadata)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api_types::hive::ClusterPoolSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_done_for_a_pool_that_is_another_one_by_now_or_wants_something_else() {
        let of = |changed: &[(&str, serde_json::Value)]| -> ObjectMeta {
            let mut it =
                json!({ "name": "pool", "uid": "u", "generation": 3, "resourceVersion": "7" });
            for (field, value) in changed {
                it[*field] = value.clone();
            }
            serde_json::from_value(it).unwrap()
        };
        let mut pool = ClusterPool::new("ns", "pool", ClusterPoolSpec::default());
        pool.metadata = of(&[]);
        let is_as_seen = |changed: &[_]| Live::of(of(changed)).is_as_seen(Some(&pool));
        assert!(is_as_seen(&[]) && Live::default().is_as_seen(None));
        // A status, or a finalizer.
        assert!(is_as_seen(&[("resourceVersion", json!("8"))]));
        assert!(!is_as_seen(&[("generation", json!(4))]));
        assert!(!is_as_seen(&[("uid", json!("v"))]));
        assert!(!is_as_seen(&[("deletionTimestamp", json!("2026-01-01T00:00:00Z"))]));
        assert!(!Live::default().is_as_seen(Some(&pool)) && !Live::of(of(&[])).is_as_seen(None));
    }
}

//! Who administrates a pool administrates its clusters: by the pool's namespace and name, so that a pool of the same name
//! in another namespace gives no rights here.

use std::collections::BTreeMap;

use api_types::names::hive as names;
use k8s_openapi::api::rbac::v1::{RoleBinding, Subject};
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Whether a binding makes somebody an administrator of the pools of its namespace.
pub fn is_admins(binding: &RoleBinding) -> bool {
    binding.role_ref.kind == "ClusterRole" && binding.role_ref.name == names::POOL_ADMIN_ROLE
}

/// The subjects of all these bindings, each once. A service account without a namespace is of the binding's.
pub fn subjects<'a>(bindings: impl Iterator<Item = &'a RoleBinding>) -> Vec<Subject> {
    let mut all = BTreeMap::new();
    for binding in bindings {
        for subject in binding.subjects.iter().flatten() {
            let mut subject = subject.clone();
            if subject.kind == "ServiceAccount" && subject.namespace.is_none() {
                subject.namespace = binding.namespace();
            }
            let key = (subject.kind.clone(), subject.namespace.clone(), subject.name.clone());
            all.entry(key).or_insert(subject);
        }
    }
    all.into_values().collect()
}

/// What to do about the binding in a cluster's namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Make it.
    Create(Value),
    /// Give it these subjects.
    Patch(Value),
}

/// The change that is due, if one is.
pub fn change(wanted: &[Subject], found: Option<&RoleBinding>) -> Option<Change> {
    match found {
        None if wanted.is_empty() => None,
        None => Some(Change::Create(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": { "name": names::POOL_ADMIN_BINDING },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": names::POOL_ADMIN_ROLE,
            },
            "subjects": wanted,
        }))),
        // As it was written; else the order may be somebody else's.
        Some(found)
            if found.subjects.as_deref().unwrap_or_default() == wanted
                || subjects(std::iter::once(found)) == wanted =>
        {
            None
        }
        Some(found) => Some(Change::Patch(json!({
            "metadata": { "resourceVersion": found.resource_version() },
            "subjects": wanted,
        }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(namespace: &str, names: &[&str]) -> RoleBinding {
        let subjects: Vec<Value> = names
            .iter()
            .map(
                |it| json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": it }),
            )
            .collect();
        serde_json::from_value(json!({
            "metadata": { "name": "b", "namespace": namespace, "resourceVersion": "5" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "hive-cluster-pool-admin",
            },
            "subjects": subjects,
        }))
        .unwrap()
    }

    #[test]
    fn everybody_is_bound_once_and_who_is_bound_already_stays() {
        let all = subjects([binding("a", &["y", "x"]), binding("a", &["x"])].iter());
        let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["x", "y"]);
        assert!(matches!(change(&all, None), Some(Change::Create(_))));
        assert_eq!(change(&all, Some(&binding("c", &["x", "y"]))), None);
        assert!(matches!(change(&all, Some(&binding("c", &["x"]))), Some(Change::Patch(_))));
        assert_eq!(change(&[], None), None);
    }
}

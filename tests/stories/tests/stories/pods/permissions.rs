//! Each rule of each role is needed, and `check` in the cluster names the one that is missing.

use bench::cache;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::{Cluster, NAMESPACE};

impl Cluster {
    /// Takes one rule after the other from the roles of a controller: gives how many its check missed by name.
    pub(super) async fn each_missing_rule_is_named(&self, controller: &str) -> usize {
        let of_cluster: Api<ClusterRole> = Api::all(self.client.clone());
        let name = format!("{NAMESPACE}:{controller}");
        let rules = of_cluster.get(&name).await.unwrap().rules.unwrap();
        for missing in 0..rules.len() {
            let patch = Patch::Merge(json!({"rules": without(&rules, missing)}));
            of_cluster.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            self.is_named(controller, &rules[missing]).await;
        }
        let patch = Patch::Merge(json!({"rules": rules}));
        of_cluster.patch(&name, &PatchParams::default(), &patch).await.unwrap();

        let of_lease: Api<Role> = Api::namespaced(self.client.clone(), NAMESPACE);
        let name = format!("{controller}-lease");
        let all = of_lease.get(&name).await.unwrap().rules.unwrap();
        // Events are allowed here, too, for a controller that is bound to other namespaces: this one is not.
        let leases = |rule: &PolicyRule| rule.resources.iter().flatten().any(|it| it == "leases");
        let mut named = rules.len();
        for (missing, rule) in all.iter().enumerate().filter(|(_, rule)| leases(rule)) {
            let patch = Patch::Merge(json!({"rules": without(&all, missing)}));
            of_lease.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            self.is_named(controller, rule).await;
            named += 1;
        }
        let patch = Patch::Merge(json!({"rules": all}));
        of_lease.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        named
    }

    /// The check fails, and one of its lines has a resource of this rule.
    async fn is_named(&self, controller: &str, rule: &PolicyRule) {
        let mut helm = self.helm("test", controller);
        let passed = tokio::task::spawn_blocking(move || cache::run(&mut helm)).await.unwrap();
        assert!(passed.is_err(), "{controller} misses nothing without {rule:?}");
        // A failed check is left for its reader.
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let uid = pods.get(&format!("{controller}-check")).await.unwrap().metadata.uid.unwrap();
        let log = self.node.pod_logs(&uid);
        let named = rule.resources.iter().flatten().any(|resource| {
            let subject = format!("permission on {resource}");
            log.lines().any(|line| line.contains("FAILED") && line.contains(&subject))
        });
        assert!(named, "{controller} does not name {rule:?}:\n{log}");
    }
}

fn without(rules: &[PolicyRule], missing: usize) -> Vec<&PolicyRule> {
    rules.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, rule)| rule).collect()
}

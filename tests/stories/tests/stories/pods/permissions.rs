//! Each rule of each role is needed, and `check` names the one that is missing.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bench::{cache, chart};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::{Cluster, NAMESPACE, OF_IRONIC};
use crate::bmo_reboot::PATIENCE;

impl Cluster {
    /// Takes one rule after the other from the roles of a controller: gives how many its check missed by name. The
    /// check runs as a program under the account of the pod, because a pod for each takes minutes.
    pub(super) async fn each_missing_rule_is_named(
        &self,
        controller: &str,
        program: PathBuf,
    ) -> usize {
        let kubeconfig =
            chart::service_account_kubeconfig(&self.plane, NAMESPACE, controller).await.unwrap();
        let check = || {
            let mut check = Command::new(&program);
            check.arg("check").env("KUBECONFIG", &kubeconfig);
            check.env("FERRITE_LEASE_NAMESPACE", NAMESPACE);
            if OF_IRONIC.contains(&controller) {
                check.env("IRONIC_ENDPOINT", &self.ironic.endpoint);
            }
            check
        };
        let of_cluster: Api<ClusterRole> = Api::all(self.client.clone());
        let name = format!("{NAMESPACE}:{controller}");
        let rules = of_cluster.get(&name).await.unwrap().rules.unwrap();
        let mut named = 0;
        for missing in (0..rules.len()).filter(|rule| !is_covered(&rules, *rule)) {
            let patch = Patch::Merge(json!({"rules": without(&rules, missing)}));
            of_cluster.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            is_named(check, &rules[missing]).await;
            if named == 0 {
                self.is_named_in_the_cluster(controller, &rules[missing]).await;
            }
            named += 1;
        }
        let patch = Patch::Merge(json!({"rules": rules}));
        of_cluster.patch(&name, &PatchParams::default(), &patch).await.unwrap();

        let of_lease: Api<Role> = Api::namespaced(self.client.clone(), NAMESPACE);
        let name = format!("{controller}-lease");
        let all = of_lease.get(&name).await.unwrap().rules.unwrap();
        // Events are allowed here, too, for a controller that is bound to other namespaces: this one is not.
        let leases = |rule: &PolicyRule| rule.resources.iter().flatten().any(|it| it == "leases");
        for (missing, rule) in all.iter().enumerate().filter(|(_, rule)| leases(rule)) {
            let patch = Patch::Merge(json!({"rules": without(&all, missing)}));
            of_lease.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            is_named(check, rule).await;
            named += 1;
        }
        let patch = Patch::Merge(json!({"rules": all}));
        of_lease.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        named
    }

    /// The same, seen by somebody who types `helm test`.
    async fn is_named_in_the_cluster(&self, controller: &str, rule: &PolicyRule) {
        let helm = self.helm("test", controller);
        let passed = tokio::task::spawn_blocking(move || cache::run(&helm)).await.unwrap();
        assert!(passed.is_err(), "{controller} misses nothing without {rule:?}");
        // A failed check is left for its reader.
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let uid = pods.get(&format!("{controller}-check")).await.unwrap().metadata.uid.unwrap();
        let log = self.node.pod_logs(&uid);
        assert!(names(&log, rule), "{controller} does not name {rule:?}:\n{log}");
    }
}

/// The check fails, and one of its lines has a resource of this rule, once the API server goes by the new role.
async fn is_named(check: impl Fn() -> Command, rule: &PolicyRule) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut check = check();
        let output = tokio::task::spawn_blocking(move || check.output()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        if !output.status.success() && names(&text, rule) {
            return;
        }
        assert!(Instant::now() < deadline, "nothing is missed without {rule:?}:\n{text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn names(text: &str, rule: &PolicyRule) -> bool {
    rule.resources.iter().flatten().any(|resource| {
        let subject = format!("permission on {resource}");
        text.lines().any(|line| line.contains("FAILED") && line.contains(&subject))
    })
}

fn without(rules: &[PolicyRule], missing: usize) -> Vec<&PolicyRule> {
    rules.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, rule)| rule).collect()
}

/// Whether another rule allows the same and more. The two stand in one role only where all namespaces are watched.
fn is_covered(rules: &[PolicyRule], one: usize) -> bool {
    let has = |all: Option<&[String]>, part: Option<&[String]>| {
        let all = all.unwrap_or_default();
        part.unwrap_or_default().iter().all(|it| all.contains(it))
    };
    let rule = &rules[one];
    rules.iter().enumerate().any(|(index, other)| {
        index != one
            && other.resource_names.is_none()
            && has(other.api_groups.as_deref(), rule.api_groups.as_deref())
            && has(other.resources.as_deref(), rule.resources.as_deref())
            && rule.verbs.iter().all(|verb| other.verbs.contains(verb))
    })
}

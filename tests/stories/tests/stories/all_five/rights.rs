//! Each right of each role is used: compared with what the API server saw the controllers ask for in a day of life.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bench::control_plane::ControlPlane;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject,
};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::audited::{Right, requests};
use super::processes::Processes;

/// What is asked for last may still be on its way when the day is over.
const PATIENCE: Duration = Duration::from_secs(60);
const ALL: &str = "";
const CAPM3: &str = "infrastructure.cluster.x-k8s.io";
const CAPI: &str = "cluster.x-k8s.io";
const METAL3: &str = "metal3.io";
const HIVE: &str = "hive.openshift.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Rights that a day may pass without.
struct Rare {
    /// Empty for all.
    controller: &'static str,
    verbs: &'static [&'static str],
    group: &'static str,
    resource: &'static str,
    /// The file of the crates that needs them, and words of the line that does.
    file: &'static str,
    words: &'static str,
}

const fn rare(
    controller: &'static str,
    verbs: &'static [&'static str],
    (group, resource): (&'static str, &'static str),
    file: &'static str,
    words: &'static str,
) -> Rare {
    Rare { controller, verbs, group, resource, file, words }
}

const RARE: [Rare; 27] = [
    // An event that comes again within minutes.
    rare(
        ALL,
        &["patch"],
        ("events.k8s.io", "events"),
        "controller-kit/src/events.rs",
        "api.patch(&named(name, one.at)",
    ),
    // Pools have warnings only, and a day need not have what they warn of.
    rare(
        "clusterpool-inventory",
        &["create"],
        ("events.k8s.io", "events"),
        "controller-kit/src/events.rs",
        "api.create(&PostParams::default(), &written)",
    ),
    // The command `check`, which looks once.
    rare(
        ALL,
        &["get"],
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        "controller-kit/src/crd.rs",
        "api(client).get(name)",
    ),
    // A lease of which the watch does not tell, or that somebody else wrote.
    rare(
        ALL,
        &["get"],
        ("coordination.k8s.io", "leases"),
        "controller-kit/src/lease.rs",
        "self.api.get(name)",
    ),
    // A machine of a deployment or a control plane: its host may be kept for it. The machines of the day have no owner.
    rare(
        "capm3-reuse",
        &["get"],
        (CAPM3, "metal3machinetemplates"),
        "capm3-reuse/src/observe/owner.rs",
        "get a Metal3MachineTemplate",
    ),
    rare(
        "capm3-reuse",
        &["get"],
        (CAPI, "machinedeployments"),
        "capm3-reuse/src/served.rs",
        "\"MachineDeployment\" => true",
    ),
    rare(
        "capm3-reuse",
        &["get"],
        ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes"),
        "capm3-reuse/src/served.rs",
        "\"KubeadmControlPlane\" => self.control_plane.is_some()",
    ),
    // A cluster that the cache does not have.
    rare(
        "capm3-reuse",
        &["get"],
        (CAPI, "clusters"),
        "capm3-reuse/src/observe/cluster.rs",
        "get a Cluster",
    ),
    // A node without a provider ID.
    rare(
        "capm3-reuse",
        &["get"],
        (CAPM3, "metal3clusters"),
        "capm3-reuse/src/observe/node.rs",
        "self.untyped(names::capm3::GROUP, \"Metal3Cluster\")",
    ),
    // A machine with a template of data.
    rare(
        "capm3-reuse",
        &["get"],
        (CAPM3, "metal3datatemplates"),
        "capm3-reuse/src/observe.rs",
        "look for a Metal3DataTemplate",
    ),
    rare(
        "capm3-reuse",
        &["create"],
        (CAPM3, "metal3dataclaims"),
        "capm3-reuse/src/write.rs",
        "claims.create(",
    ),
    // One that CAPM3 made before.
    rare(
        "capm3-reuse",
        &["patch"],
        (CAPM3, "metal3dataclaims"),
        "capm3-reuse/src/write.rs",
        "claims.patch_metadata(",
    ),
    rare(
        "capm3-reuse",
        &["delete"],
        (CAPM3, "metal3dataclaims"),
        "capm3-reuse/src/write.rs",
        "claims.delete(",
    ),
    // With `--upstream-group`.
    rare(
        "remediation",
        &["get", "list", "watch", "patch"],
        (CAPM3, "metal3remediations"),
        "remediation/src/controller.rs",
        "Watched<UpstreamRemediation>",
    ),
    rare(
        "remediation",
        &["patch"],
        (CAPM3, "metal3remediations/status"),
        "remediation/src/controller.rs",
        "Watched<UpstreamRemediation>",
    ),
    // A machine that does not come back: its owner is told, and without one it is deleted.
    rare(
        "remediation",
        &["patch"],
        (CAPI, "machines/status"),
        "remediation/src/write.rs",
        "patch the status of the Machine",
    ),
    rare(
        "remediation",
        &["delete"],
        (CAPI, "machines"),
        "remediation/src/write.rs",
        "delete the Machine",
    ),
    // A request without a key, which is taken off its host.
    rare(
        "bmo-reboot",
        &["patch"],
        (METAL3, "baremetalhosts"),
        "bmo-reboot/src/write.rs",
        "change annotations",
    ),
    // An approval.
    rare(
        "host-discovery",
        &["patch"],
        (METAL3, "baremetalhostdiscoveries"),
        "host-discovery/src/write.rs",
        "settle approvals",
    ),
    // The command `check`, too.
    rare(
        "clusterpool-inventory",
        &["get"],
        (HIVE, "hiveconfigs"),
        "clusterpool-inventory/src/needs.rs",
        "api.get(\"hive\")",
    ),
    // A claim.
    rare(
        "clusterpool-inventory",
        &["get"],
        (HIVE, "clusterclaims"),
        "clusterpool-inventory/src/write/steps.rs",
        "get a claim",
    ),
    rare(
        "clusterpool-inventory",
        &["patch"],
        (HIVE, "clusterclaims"),
        "clusterpool-inventory/src/write/steps.rs",
        "\"patch a claim\"",
    ),
    rare(
        "clusterpool-inventory",
        &["patch"],
        (HIVE, "clusterclaims/status"),
        "clusterpool-inventory/src/write/steps.rs",
        "patch a claim's status",
    ),
    // A cluster or its namespace that is there already, as after a stop.
    rare(
        "clusterpool-inventory",
        &["get"],
        (HIVE, "clusterdeployments"),
        "clusterpool-inventory/src/write/steps.rs",
        "get a cluster",
    ),
    rare(
        "clusterpool-inventory",
        &["get"],
        ("", "namespaces"),
        "clusterpool-inventory/src/write/build.rs",
        "get a namespace",
    ),
    // Workers; the pool of the day skips them.
    rare(
        "clusterpool-inventory",
        &["create"],
        (HIVE, "machinepools"),
        "clusterpool-inventory/src/make.rs",
        "(HIVE, \"MachinePool\")",
    ),
    // An administrator of a pool. `bind` is no request: the API server wants it of whoever writes such a binding.
    rare(
        "clusterpool-inventory",
        &["create", "patch"],
        (RBAC, "rolebindings"),
        "clusterpool-inventory/src/write.rs",
        "bind administrators",
    ),
];

/// What is asked about in no request.
const NOT_ASKED_FOR: [Named; 1] = [("clusterpool-inventory", "bind", RBAC, "clusterroles")];

/// Whose, the verb, the group and the resource.
type Named = (&'static str, &'static str, &'static str, &'static str);

fn is_among(all: &[Named], controller: &str, right: &Right) -> bool {
    let is = |(whose, verb, group, resource): &Named| {
        *whose == controller && *right == Right::new(verb, group, resource)
    };
    all.iter().any(is)
}

impl Rare {
    fn is(&self, controller: &str, right: &Right) -> bool {
        (self.controller == ALL || self.controller == controller)
            && self.verbs.contains(&right.verb.as_str())
            && self.group == right.group
            && self.resource == right.resource
    }
}

fn may_be_missed(controller: &str, right: &Right) -> bool {
    RARE.iter().any(|it| it.is(controller, right)) || is_among(&NOT_ASKED_FOR, controller, right)
}

#[test]
fn what_a_day_may_pass_without_is_asked_for_in_the_program() {
    let crates = bench::checkout().join("crates");
    for Rare { file, words, resource, .. } in &RARE {
        let text = std::fs::read_to_string(crates.join(file)).unwrap();
        assert!(text.contains(words), "{file} does not ask for {resource} by {words:?} any more");
    }
}

#[test]
fn every_crd_that_is_needed_may_be_watched_and_the_hook_may_change_only_those_with_a_field() {
    let all = [
        ("bmo-reboot", bmo_reboot::settings::RULES, bmo_reboot::settings::needed()),
        ("capm3-reuse", capm3_reuse::settings::RULES, capm3_reuse::settings::needed()),
        (
            "clusterpool-inventory",
            clusterpool_inventory::settings::RULES,
            clusterpool_inventory::settings::needed(),
        ),
        ("host-discovery", host_discovery::settings::RULES, host_discovery::settings::needed()),
        ("remediation", remediation::settings::RULES, remediation::settings::needed()),
    ];
    for (controller, rules, needed) in all {
        let rules: Value = serde_json::from_str(rules).unwrap();
        let names =
            |of: &Value| -> BTreeSet<String> { serde_json::from_value(of.clone()).unwrap() };
        let of_crds = |rule: &&Value| rule["resources"][0] == "customresourcedefinitions";
        let watched = rules["cluster"].as_array().unwrap().iter().find(of_crds).unwrap();
        let crds = |field: bool| {
            let those = needed.iter().filter(|it| !field || it.field.is_some());
            those.map(|it| it.crd.to_owned()).collect::<BTreeSet<String>>()
        };
        assert_eq!(watched["verbs"], json!(["get", "list", "watch"]), "{controller}");
        assert_eq!(names(&watched["resourceNames"]), crds(false), "{controller}");
        assert_eq!(names(&rules["extendCrd"]), crds(true), "{controller}");
    }
}

fn rights(rules: Option<Vec<PolicyRule>>) -> impl Iterator<Item = Right> {
    rules.into_iter().flatten().flat_map(|rule| {
        let (groups, resources) = (rule.api_groups.unwrap_or_default(), rule.resources);
        let resources = resources.unwrap_or_default();
        let mut all = Vec::new();
        for verb in &rule.verbs {
            for group in &groups {
                all.extend(resources.iter().map(|it| Right::new(verb, group, it)));
            }
        }
        all
    })
}

/// All that the roles allow which the chart binds to this account.
async fn granted(plane: &ControlPlane, user: &str) -> BTreeSet<Right> {
    let client = plane.admin().await;
    let mut parts = user.split(':').skip(2);
    let (namespace, account) = (parts.next(), parts.next());
    let of_user = |subjects: Option<&Vec<Subject>>| {
        let is = |it: &Subject| {
            it.namespace.as_deref() == namespace && Some(it.name.as_str()) == account
        };
        subjects.into_iter().flatten().any(is)
    };
    let mut all = BTreeSet::new();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let roles: Api<ClusterRole> = Api::all(client.clone());
    for binding in bindings.list(&ListParams::default()).await.unwrap() {
        if of_user(binding.subjects.as_ref()) {
            all.extend(rights(roles.get(&binding.role_ref.name).await.unwrap().rules));
        }
    }
    let bindings: Api<RoleBinding> = Api::all(client.clone());
    for binding in bindings.list(&ListParams::default()).await.unwrap() {
        if of_user(binding.subjects.as_ref()) {
            let roles: Api<Role> = Api::namespaced(client.clone(), &binding.namespace().unwrap());
            all.extend(rights(roles.get(&binding.role_ref.name).await.unwrap().rules));
        }
    }
    all
}

/// Each right was used in the day, or is one that a day may pass without; and none of those is one that the role lacks.
pub(super) async fn are_all_used(plane: &ControlPlane, five: &Processes) {
    let deadline = Instant::now() + PATIENCE;
    for (controller, user) in five.users() {
        let granted = granted(plane, &user).await;
        assert!(granted.len() > 5, "{controller}: {granted:?}");
        let known = |it: &&Rare| it.controller == controller || it.controller == ALL;
        for it in RARE.iter().filter(known) {
            let lacks = |verb: &&&str| !granted.contains(&Right::new(verb, it.group, it.resource));
            let lacking: Vec<&&str> = it.verbs.iter().filter(lacks).collect();
            assert!(lacking.is_empty(), "{controller} may not {lacking:?} {}", it.resource);
        }
        loop {
            let log = plane.audit_log();
            let mut used: BTreeSet<Right> =
                requests(&log, &user).into_iter().map(|it| it.right).collect();
            // An API server that cannot begin a watch with all objects is asked for them page by page.
            let watched = used.iter().filter(|it| it.verb == "watch");
            let listed: Vec<_> =
                watched.map(|it| Right::new("list", &it.group, &it.resource)).collect();
            used.extend(listed);
            let unused = granted.difference(&used).filter(|it| !may_be_missed(controller, it));
            let unused: Vec<String> = unused.map(ToString::to_string).collect();
            if unused.is_empty() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{controller} may do what it never did: {}; take it out of its chart, or name what needs it",
                unused.join(", ")
            );
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

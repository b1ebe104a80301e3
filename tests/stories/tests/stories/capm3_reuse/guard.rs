//! CAPM3 goes on beside this controller: the guard that comes with the release refuses what CAPM3's account would write
//! where this controller decides, and nothing else.

use std::time::{Duration, Instant};

use bench::chart;
use bench::cluster_api::objects::{Kind, METAL3_MACHINE, METAL3_MACHINE_TEMPLATE};
use bench::control_plane::ControlPlane;
pub(crate) use bench::objects::HOST;
use capm3_reuse::settings::Policy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::ground::{plane, start};
use super::scene::Scene;

/// CAPM3's account as its release makes it, and the chart's default.
pub(super) const CAPM3: &str = "system:serviceaccount:capm3-system:capm3-manager";
/// The API server knows a new policy after a moment.
const PATIENCE: Duration = Duration::from_secs(60);
const POLICY: Kind =
    Kind { api_version: "admissionregistration.k8s.io/v1", kind: "ValidatingAdmissionPolicy" };
const BINDING: Kind = Kind { kind: "ValidatingAdmissionPolicyBinding", ..POLICY };
const CLAIM: Kind = Kind { kind: "Metal3DataClaim", ..METAL3_MACHINE };
const DATA: Kind = Kind { kind: "Metal3Data", ..METAL3_MACHINE };

/// What somebody writes: a part of an object, of its status, all of a new one, or its end.
pub(crate) enum Write {
    Part(Value),
    Status(Value),
    New(Value),
    End,
}

/// CAPM3 in one namespace: its account, with more rights there than its release gives it.
pub(crate) struct Capm3 {
    client: Client,
    namespace: String,
}

impl Capm3 {
    pub(crate) async fn new(plane: &ControlPlane, namespace: &str) -> Self {
        let rights: Role = serde_json::from_value(json!({
            "metadata": {"name": "capm3-manager"},
            "rules": [{
                "apiGroups": ["metal3.io", "infrastructure.cluster.x-k8s.io", "cluster.x-k8s.io"],
                "resources": ["*"],
                "verbs": ["*"],
            }],
        }))
        .unwrap();
        let given: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "capm3-manager"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "capm3-manager"},
            "subjects": [{"kind": "ServiceAccount", "name": "capm3-manager", "namespace": "capm3-system"}],
        }))
        .unwrap();
        let (admin, params) = (plane.admin().await, PostParams::default());
        let roles: Api<Role> = Api::namespaced(admin.clone(), namespace);
        roles.create(&params, &rights).await.unwrap();
        let bindings: Api<RoleBinding> = Api::namespaced(admin, namespace);
        bindings.create(&params, &given).await.unwrap();
        let config = plane.config(CAPM3, &["system:serviceaccounts"]).await.unwrap();
        Self { client: Client::try_from(config).unwrap(), namespace: namespace.to_owned() }
    }

    /// The API server's answer to a write of which nothing is kept.
    async fn tries(&self, kind: Kind, name: &str, write: &Write) -> Result<(), kube::Error> {
        let api = kind.api(&self.client, &self.namespace);
        let patch = PatchParams { dry_run: true, ..PatchParams::default() };
        match write {
            Write::Part(it) => api.patch(name, &patch, &Patch::Merge(it)).await.map(drop),
            Write::Status(it) => api.patch_status(name, &patch, &Patch::Merge(it)).await.map(drop),
            Write::New(it) => {
                let object: DynamicObject = serde_json::from_value(it.clone()).unwrap();
                let post = PostParams { dry_run: true, ..PostParams::default() };
                api.create(&post, &object).await.map(drop)
            }
            Write::End => {
                let delete = DeleteParams { dry_run: true, ..DeleteParams::default() };
                api.delete(name, &delete).await.map(drop)
            }
        }
    }

    /// Waits until the guard, and nobody else, refuses this.
    pub(crate) async fn is_refused(&self, kind: Kind, name: &str, write: &Write) {
        // A policy that cannot be evaluated refuses in other words.
        let by_it = |answer: &Result<(), kube::Error>| {
            matches!(answer, Err(kube::Error::Api(status))
                if status.is_forbidden() && status.message.contains("denied request: "))
        };
        self.until(kind, name, write, "refused", by_it).await;
    }

    /// Waits until this is taken.
    pub(crate) async fn may(&self, kind: Kind, name: &str, write: &Write) {
        self.until(kind, name, write, "taken", Result::is_ok).await;
    }

    async fn until(
        &self,
        kind: Kind,
        name: &str,
        write: &Write,
        wanted: &str,
        holds: impl Fn(&Result<(), kube::Error>) -> bool,
    ) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.tries(kind, name, write).await;
            if holds(&answer) {
                return;
            }
            let what = match write {
                Write::Part(it) | Write::Status(it) | Write::New(it) => it.to_string(),
                Write::End => "deletion".to_owned(),
            };
            let kind = kind.kind;
            assert!(Instant::now() < deadline, "{kind} {name}: {what} is not {wanted}: {answer:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The guard that a release for one namespace installs.
pub(crate) struct Guard {
    client: Client,
    objects: Vec<(Kind, String)>,
}

impl Guard {
    pub(crate) async fn install(
        plane: &ControlPlane,
        controller: &str,
        namespace: &str,
        mut values: Value,
    ) -> Self {
        // Other stories take place on the same API server.
        values["watchNamespaces"] = json!([namespace]);
        let folder = chart::dir(controller);
        let objects = chart::render(&folder, namespace, namespace, &values).unwrap();
        let guard = Self::of(plane, objects).await;
        assert!(!guard.objects.is_empty(), "the chart of {controller} has no guard");
        guard
    }

    /// The policies and their bindings among these objects.
    async fn of(plane: &ControlPlane, objects: Vec<Value>) -> Self {
        let mut guard = Self { client: plane.admin().await, objects: Vec::new() };
        for object in objects {
            let Some(kind) = [POLICY, BINDING].into_iter().find(|it| object["kind"] == it.kind)
            else {
                continue;
            };
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let made = guard.api(kind).create(&PostParams::default(), &object).await.unwrap();
            guard.objects.push((kind, made.metadata.name.unwrap()));
        }
        guard
    }

    /// One of somebody else's, by which what is written to a host of a namespace must keep a rule.
    pub(crate) async fn of_hosts(
        plane: &ControlPlane,
        namespace: &str,
        expression: &str,
        message: &str,
    ) -> Self {
        let name = format!("{namespace}.hosts");
        let rule = json!({
            "apiGroups": ["metal3.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["baremetalhosts"],
        });
        let policy = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{ "expression": expression, "reason": "Forbidden", "message": message }],
        });
        let here = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        let binding = json!({
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": here},
        });
        Self::of(plane, vec![POLICY.object(&name, &policy), BINDING.object(&name, &binding)]).await
    }

    /// What is left of the guard when the release is uninstalled.
    pub(crate) async fn uninstall(self) {
        for (kind, name) in &self.objects {
            self.api(*kind).delete(name, &DeleteParams::default()).await.unwrap();
        }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &kind.resource())
    }
}

/// A policy of somebody else's, by which nobody may give a host of this scene, `h1` among them, to a machine.
pub(super) async fn without_claims(scene: &Scene) -> Guard {
    let expression = "object.spec.?consumerRef.?kind.orValue('') != 'Metal3Machine'";
    let message = "no host is given away for now";
    let guard = Guard::of_hosts(plane().await, &scene.namespace, expression, message).await;
    // Any account may try whether the API server knows it yet.
    let anybody = Capm3::new(plane().await, &scene.namespace).await;
    anybody.is_refused(HOST, "h1", &consumer()).await;
    guard
}

/// Whose writes the policies of a chart are about, with these values.
pub(crate) fn guarded(controller: &str, values: &Value) -> Vec<String> {
    let objects = chart::render(&chart::dir(controller), "test", "test", values).unwrap();
    let policies = objects.iter().filter(|it| it["kind"] == POLICY.kind);
    policies.map(|it| it["spec"]["matchConditions"][0]["expression"].to_string()).collect()
}

fn annotated(annotations: &Value) -> Write {
    Write::Part(json!({"metadata": {"annotations": annotations}}))
}

fn labelled(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

fn consumer() -> Write {
    let other = json!({"apiVersion": METAL3_MACHINE.api_version, "kind": METAL3_MACHINE.kind, "name": "other"});
    Write::Part(json!({"spec": {"consumerRef": other}}))
}

fn claim(name: &str, namespace: &str) -> Value {
    CLAIM.object(name, &json!({"template": {"name": "facts", "namespace": namespace}}))
}

/// What CAPM3's controller of `Metal3Machines` writes about machine `m1`, host `h1` and a claim.
fn of_the_machine_controller(namespace: &str) -> Vec<(Kind, &'static str, Write)> {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"});
    let label = json!({"cluster.x-k8s.io/cluster-name": "other"});
    vec![
        (HOST, "h1", consumer()),
        (HOST, "h1", Write::Part(json!({"spec": {"userData": {"name": "other"}}}))),
        (HOST, "h1", Write::Part(labelled(&label))),
        (HOST, "h1", Write::Part(json!({"metadata": {"ownerReferences": [owner]}}))),
        (HOST, "h1", annotated(&json!({"reboot.metal3.io": "", "other": "as well"}))),
        (METAL3_MACHINE, "m1", Write::Part(json!({"spec": {"providerID": "metal3://other"}}))),
        (METAL3_MACHINE, "m1", Write::Part(json!({"spec": {"failureDomain": "other"}}))),
        (METAL3_MACHINE, "m1", Write::Part(json!({"metadata": {"finalizers": ["example.com/x"]}}))),
        (METAL3_MACHINE, "m1", annotated(&json!({"metal3.io/BareMetalHost": "other/other"}))),
        (
            METAL3_MACHINE,
            "m1",
            Write::Status(json!({"status": {"initialization": {"provisioned": false}}})),
        ),
        (CLAIM, "new", Write::New(claim("new", namespace))),
        (CLAIM, "kept", Write::End),
    ]
}

/// A machine that wants a host, one host, and a claim.
async fn scene(name: &str) -> (Scene, Capm3) {
    let scene = Scene::with_deployment(plane().await, name, &["h1"], false).await;
    scene.machine("m1", "md", "t").await;
    scene.create(CLAIM, claim("kept", &scene.namespace)).await;
    let capm3 = Capm3::new(plane().await, &scene.namespace).await;
    (scene, capm3)
}

async fn guard(scene: &Scene, values: Value) -> Guard {
    Guard::install(plane().await, "capm3-reuse", &scene.namespace, values).await
}

#[tokio::test]
async fn while_the_release_is_there_a_machine_gets_its_host_from_this_controller_and_none_from_capm3()
 {
    let (scene, capm3) = scene("guarded").await;
    capm3.may(HOST, "h1", &consumer()).await;
    let guard = guard(&scene, json!({})).await;
    for (kind, name, write) in of_the_machine_controller(&scene.namespace) {
        capm3.is_refused(kind, name, &write).await;
    }
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    assert_eq!(scene.up("m1").await, "h1");
    for (kind, name, write) in of_the_machine_controller(&scene.namespace) {
        capm3.is_refused(kind, name, &write).await;
    }
    // Whoever is not CAPM3 is not asked: a person writes what CAPM3 must not.
    scene.patch(METAL3_MACHINE, "m1", json!({"metadata": {"annotations": {"by": "hand"}}})).await;
    scene.patch_host("h1", labelled(&json!({"by": "hand"}))).await;
    guard.uninstall().await;
    for (kind, name, write) in of_the_machine_controller(&scene.namespace) {
        capm3.may(kind, name, &write).await;
    }
}

#[tokio::test]
async fn the_rest_of_capm3_goes_on_beside_this_controller() {
    let (scene, capm3) = scene("beside").await;
    let space = &scene.namespace;
    let data = |name: &str| {
        let template = json!({"name": "facts", "namespace": space});
        let claim = json!({"name": "kept", "namespace": space});
        DATA.object(name, &json!({"index": 0, "claim": claim, "template": template}))
    };
    scene.create(DATA, data("facts-0")).await;
    let _guard = guard(&scene, json!({})).await;
    for (kind, name, write) in of_the_machine_controller(space) {
        capm3.is_refused(kind, name, &write).await;
    }
    let finalizers = || Write::Part(json!({"metadata": {"finalizers": ["example.com/x"]}}));
    let rendered = json!({"status": {"renderedData": {"name": "facts-0", "namespace": space}}});
    let secret = json!({"spec": {"metaData": {"name": "m1-metadata", "namespace": space}}});
    let mode = json!({"spec": {"automatedCleaningMode": "disabled"}});
    let key = "reboot.metal3.io/metal3-remediation-uid";
    let unhealthy = json!({"capm3.metal3.io/unhealthy": "x", "capi.metal3.io/unhealthy": "x"});
    let moved = json!({
        "baremetalhost.metal3.io/paused": "metal3.io/capm3", "baremetalhost.metal3.io/status": "{}",
        "clusterctl.cluster.x-k8s.io/block-move": "",
    });
    for (kind, name, write) in [
        // The controllers of data templates and of data.
        (CLAIM, "kept", finalizers()),
        (CLAIM, "kept", Write::Status(rendered)),
        (DATA, "facts-1", Write::New(data("facts-1"))),
        (DATA, "facts-0", Write::Part(secret)),
        (DATA, "facts-0", Write::Status(json!({"status": {"ready": true}}))),
        (DATA, "facts-0", finalizers()),
        (DATA, "facts-0", Write::End),
        // That of templates, and what touches each object to have it stored anew.
        (METAL3_MACHINE, "m1", Write::Part(mode)),
        (METAL3_MACHINE, "m1", Write::Part(json!({}))),
        (METAL3_MACHINE_TEMPLATE, "t", annotated(&json!({"any": "thing"}))),
        // That of remediation.
        (HOST, "h1", annotated(&json!({ key: "{}" }))),
        (HOST, "h1", annotated(&unhealthy)),
        // A Cluster that is paused is made ready to be moved.
        (HOST, "h1", annotated(&moved)),
    ] {
        capm3.may(kind, name, &write).await;
    }
}

#[tokio::test]
async fn capm3_goes_on_in_other_namespaces_and_with_what_has_another_watch_filter() {
    let (elsewhere, capm3_elsewhere) = scene("elsewhere").await;
    let (scene, capm3) = scene("filtered").await;
    let filter = |value: &str| labelled(&json!({"cluster.x-k8s.io/watch-filter": value}));
    let claim_of = |value: &str| {
        let mut new = claim("new", &scene.namespace);
        new["metadata"]["labels"] = filter(value)["metadata"]["labels"].clone();
        Write::New(new)
    };
    scene.hosts(&["h2"]).await;
    scene.machine("m2", "md", "t").await;
    for (suffix, value) in [("1", "mine"), ("2", "capm3s")] {
        scene.patch_host(&format!("h{suffix}"), filter(value)).await;
        scene.patch(METAL3_MACHINE, &format!("m{suffix}"), filter(value)).await;
    }
    let _guard = guard(&scene, json!({"watchFilter": "mine"})).await;
    let provider = || Write::Part(json!({"spec": {"providerID": "metal3://other"}}));
    capm3.is_refused(HOST, "h1", &consumer()).await;
    capm3.is_refused(METAL3_MACHINE, "m1", &provider()).await;
    capm3.is_refused(CLAIM, "new", &claim_of("mine")).await;
    capm3.may(HOST, "h2", &consumer()).await;
    capm3.may(METAL3_MACHINE, "m2", &provider()).await;
    capm3.may(CLAIM, "new", &claim_of("capm3s")).await;
    elsewhere.patch_host("h1", filter("mine")).await;
    elsewhere.patch(METAL3_MACHINE, "m1", filter("mine")).await;
    for (kind, name, write) in of_the_machine_controller(&elsewhere.namespace) {
        capm3_elsewhere.may(kind, name, &write).await;
    }
}

#[test]
fn the_guard_is_about_the_account_that_is_named_and_is_not_there_without_one() {
    let of = |account: &str| guarded("capm3-reuse", &json!({"capm3": {"account": account}}));
    assert_eq!(guarded("capm3-reuse", &json!({})), of("capm3-system:capm3-manager"));
    let others = of("metal:provider");
    assert_eq!(others.len(), 3, "hosts, machines and claims");
    assert!(others.iter().all(|it| it.contains("'system:serviceaccount:metal:provider'")));
    assert!(of("").is_empty());
}

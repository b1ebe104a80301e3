//! A controller's chart: what it makes is valid, what is unsafe it refuses, and what it permits is all that the
//! controller may do. The sample's chart stands for all, because the library makes every object of every chart.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod alerts;
mod uninstall;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::cache::RunDir;
use bench::chart;
use bench::control_plane::shared;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn render(values: &Value) -> anyhow::Result<Vec<Value>> {
    chart::render(&chart::dir("sample"), "test", "test", values)
}

/// Every optional object switched on.
fn everything() -> Value {
    json!({
        "replicaCount": 2,
        "watchFilter": "mine",
        "crds": {"enabled": true},
        "priorityClassName": "system-cluster-critical",
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        }],
        "podAnnotations": {"one": "1"},
        "podLabels": {"two": "2"},
        "extraArgs": ["--some=thing"],
        "extraEnv": [{"name": "SOME", "value": "thing"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "serviceAccount": {"annotations": {"three": "3"}},
        "rbac": {"aggregateClusterRoles": true},
        "podDisruptionBudget": {"enabled": true},
        "serviceMonitor": {
            "enabled": true,
            "relabelings": [{"action": "labeldrop", "regex": "pod"}],
            "metricRelabelings": [{"action": "labeldrop", "regex": "pod"}],
        },
        "prometheusRule": {"enabled": true},
        "grafanaDashboard": {"enabled": true},
        "networkPolicy": {"enabled": true, "from": [{"namespaceSelector": {}}]},
    })
}

/// A copy of the sample's chart that uses what the sample itself has no need of.
fn with_all_files(dir: &Path) -> PathBuf {
    let copied = Command::new("cp").arg("-rL").arg(chart::dir("sample")).arg(dir).status().unwrap();
    assert!(copied.success());
    let copy = dir.join("chart");
    let write = |name: &str, text: &str| {
        let path = copy.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        "files/rules.json",
        &json!({
            "namespaced": [{"why": "w", "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
            "cluster": [
                {"why": "w", "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
                {
                    "why": "w", "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
                    "resourceNames": ["samples.example.com"], "verbs": ["get", "list", "watch"],
                },
            ],
            "extendCrd": ["samples.example.com"],
            "aggregated": [{
                "name": "health",
                "labels": {"example.com/aggregate-to-manager": "true"},
                "rules": [{"why": "w", "apiGroups": ["example.com"], "resources": ["samples"], "verbs": ["get"]}],
            }],
        })
        .to_string(),
    );
    write(
        "files/alerts.yaml",
        "- alert: SampleStuck\n  expr: max(ferrite_sample_stuck{$(selector)}) > 0\n  for: 5m\n  labels:\n    severity: warning\n",
    );
    write("files/dashboard.json", r#"{"title": "Sample"}"#);
    write(
        "files/crds/samples.yaml",
        &json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "samples.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Sample", "plural": "samples"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        })
        .to_string(),
    );
    let mut schema: Value =
        serde_json::from_str(&std::fs::read_to_string(copy.join("values.schema.json")).unwrap())
            .unwrap();
    schema["properties"]["settings"]["properties"] = json!({
        "pollInterval": {"type": "string"},
        "strictReuse": {"type": "boolean"},
        "createRate": {"type": "number"},
        "hosts": {"type": "array"},
        "unset": {"type": ["string", "null"]},
    });
    write("values.schema.json", &schema.to_string());
    copy
}

/// Without the kinds of the Prometheus operator: they have no place on this API server.
fn known(objects: Vec<Value>) -> Vec<Value> {
    objects
        .into_iter()
        .filter(|object| object["apiVersion"] != "monitoring.coreos.com/v1")
        .collect()
}

/// The pods that the chart starts: of the Deployment, of the hook's Job, of the test.
fn pods(objects: &[Value]) -> Vec<Value> {
    let mut pods = Vec::new();
    for object in objects {
        let spec = match object["kind"].as_str() {
            Some("Deployment" | "Job") => &object["spec"]["template"]["spec"],
            Some("Pod") => &object["spec"],
            _ => continue,
        };
        let name = format!("pod-{}", pods.len());
        pods.push(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec,
        }));
    }
    pods
}

fn args(objects: &[Value]) -> Vec<String> {
    let deployment = chart::find(objects, "Deployment").unwrap();
    serde_json::from_value(deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone())
        .unwrap()
}

fn refused<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.is_forbidden())
}

#[tokio::test]
async fn the_api_server_takes_every_object_of_the_chart() {
    let plane = shared().await;
    let client = plane.admin().await;
    let namespace = plane.namespace("chart").await;
    let folder = RunDir::new("chart").unwrap();
    let full = with_all_files(folder.path());
    for (chart, values) in [
        (chart::dir("sample"), json!({})),
        (chart::dir("sample"), json!({"leaderElection": {"enabled": false}})),
        (full, everything()),
    ] {
        let objects = known(chart::render(&chart, "test", &namespace, &values).unwrap());
        chart::dry_run(&client, &objects, &namespace).await.unwrap();
    }
}

#[tokio::test]
async fn the_dry_run_refuses_a_field_that_does_not_exist() {
    let plane = shared().await;
    let namespace = plane.namespace("chart").await;
    let mut objects = chart::render(&chart::dir("sample"), "test", &namespace, &json!({})).unwrap();
    for object in &mut objects {
        if object["kind"] == "Deployment" {
            object["spec"]["template"]["spec"]["dnsPolicyy"] = json!("Default");
        }
    }
    let error = chart::dry_run(&plane.admin().await, &objects, &namespace).await.unwrap_err();
    assert!(format!("{error:#}").contains("dnsPolicyy"), "{error:#}");
}

#[test]
fn a_typo_in_the_values_is_refused() {
    for values in [
        json!({"replicaCuont": 2}),
        json!({"image": {"tagg": "1"}}),
        json!({"settings": {"noSuchFlag": 1}}),
        json!({"log": {"format": "xml"}}),
        json!({"leaderElection": {"leaseDuration": "15"}}),
        json!({"concurrency": 0}),
        json!({"imagePullSecrets": [{"nam": "pull"}]}),
        json!({"resources": {"limit": {"memory": "1Gi"}}}),
        json!({"strategy": {"typ": "Recreate"}}),
        json!({"podSecurityContext": {"runAsuser": 1}}),
        json!({"securityContext": {"capabilities": {"dropp": ["ALL"]}}}),
    ] {
        let error = render(&values).expect_err(&values.to_string()).to_string();
        assert!(error.contains("schema"), "{values}: {error}");
    }
}

#[test]
fn the_common_values_of_a_chart_are_those_of_the_library() {
    let chart = chart::dir("sample");
    let there = std::fs::read_to_string(chart.join("values.schema.json")).unwrap();
    let there: Value = serde_json::from_str(&there).unwrap();
    assert!(
        there == chart::schema(&chart).unwrap(),
        "values.schema.json of the sample's chart is not up to date: bench::chart::write_schema writes it"
    );
}

#[test]
fn an_image_without_a_registry_is_refused() {
    let digest = format!("sha256:{}", "0".repeat(64));
    for values in [
        json!({"image": {"repository": ""}}),
        json!({"image": {"repository": "", "tag": "1.0.0"}}),
        json!({"image": {"repository": "", "digest": digest}}),
    ] {
        let error = render(&values).expect_err(&values.to_string()).to_string();
        let wanted = "image.repository is empty: set it to the registry and the name of your image, such as registry.example.org/sample.";
        assert!(error.contains(wanted), "{error}");
    }
    let named = json!({"image": {"repository": "registry.example.org/sample", "tag": "1.0.0"}});
    for pod in pods(&render(&named).unwrap()) {
        let image = &pod["spec"]["containers"][0]["image"];
        assert_eq!(image, "registry.example.org/sample:1.0.0");
    }
}

#[test]
fn two_writers_are_refused() {
    for values in [
        json!({"replicaCount": 2, "leaderElection": {"enabled": false}}),
        json!({"leaderElection": {"enabled": false}, "strategy": {"type": "RollingUpdate"}}),
    ] {
        let error = render(&values).expect_err(&values.to_string()).to_string();
        assert!(error.contains("Switch leader election on"), "{error}");
    }
    let alone = render(&json!({"leaderElection": {"enabled": false}})).unwrap();
    assert_eq!(chart::find(&alone, "Deployment").unwrap()["spec"]["strategy"]["type"], "Recreate");
    let led = render(&json!({"replicaCount": 2})).unwrap();
    assert_eq!(
        chart::find(&led, "Deployment").unwrap()["spec"]["strategy"]["rollingUpdate"]["maxSurge"],
        1
    );
}

#[test]
fn the_hook_waits_for_no_volume_of_the_controller() {
    let folder = RunDir::new("chart").unwrap();
    let full = with_all_files(folder.path());
    let objects = chart::render(&full, "test", "ns", &everything()).unwrap();
    let mounts = |pod: &Value| {
        let container = &pod["spec"]["containers"][0];
        let mounts = [&pod["spec"]["volumes"], &container["volumeMounts"]];
        let counts = mounts.map(|it| it.as_array().map_or(0, Vec::len));
        (container["name"].as_str().unwrap().to_owned(), counts)
    };
    let all: BTreeMap<String, [usize; 2]> = pods(&objects).iter().map(mounts).collect();
    let expected = [("check", [1, 1]), ("extend-crd", [0, 0]), ("sample", [1, 1])];
    assert_eq!(all, expected.map(|(name, counts)| (name.to_owned(), counts)).into());
}

#[test]
fn who_looks_for_the_metrics_needs_their_service() {
    for who in ["serviceMonitor", "prometheusRule"] {
        let values = json!({ who: {"enabled": true}, "metrics": {"enabled": false} });
        let error = render(&values).expect_err(who).to_string();
        assert!(error.contains(&format!("{who}.enabled needs metrics.enabled")), "{error}");
    }
}

#[test]
fn probes_and_metrics_are_served_where_the_values_say() {
    let listens = |values: &Value| {
        let objects = render(values).unwrap();
        let deployment = chart::find(&objects, "Deployment").unwrap();
        let all = deployment["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        let found = all.as_array().unwrap().iter().find(|it| it["name"] == "FERRITE_LISTEN");
        found.unwrap()["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(listens(&json!({})), "0.0.0.0:8080");
    assert_eq!(listens(&json!({"metrics": {"address": "[::]", "port": 9090}})), "[::]:9090");
}

#[tokio::test]
async fn its_pods_pass_the_restricted_pod_security_standard() {
    let client = shared().await.admin().await;
    let namespace = "chart-restricted";
    let restricted: Namespace = serde_json::from_value(json!({"metadata": {
        "name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }}))
    .unwrap();
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &restricted)
        .await
        .unwrap();
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };

    let folder = RunDir::new("chart").unwrap();
    let full = with_all_files(folder.path());
    let pods = pods(&chart::render(&full, "test", namespace, &json!({})).unwrap());
    assert_eq!(pods.len(), 3, "controller, hook, test");
    for pod in pods {
        let good: Pod = serde_json::from_value(pod.clone()).unwrap();
        api.create(&dry_run, &good).await.unwrap();
        // The check itself can fail: each of these is one step away from the standard.
        for (pointer, weakened) in [
            ("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
            ("/spec/containers/0/securityContext/capabilities", json!({})),
            ("/spec/securityContext/runAsNonRoot", json!(false)),
            ("/spec/securityContext/seccompProfile/type", json!("Unconfined")),
        ] {
            let mut bad = pod.clone();
            *bad.pointer_mut(pointer).unwrap() = weakened;
            let bad: Pod = serde_json::from_value(bad).unwrap();
            let error = api.create(&dry_run, &bad).await.unwrap_err().to_string();
            assert!(error.contains("violates PodSecurity"), "{pointer}: {error}");
        }
    }
}

#[test]
fn its_own_kinds_are_added_to_the_clusters_roles_where_the_values_say_so() {
    let folder = RunDir::new("chart").unwrap();
    let full = with_all_files(folder.path());
    let roles = |values: &Value| {
        let objects = chart::render(&full, "test", "test", values).unwrap();
        let rules_of = |name: &str| {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
            let role = objects.iter().find(|it| it["metadata"]["labels"][&label] == "true");
            role.map(|it| it["rules"].clone())
        };
        ["view", "edit"].map(rules_of)
    };
    assert_eq!(roles(&json!({})), [None, None]);
    let may = |verbs: &[&str]| {
        Some(json!([{"apiGroups": ["example.com"], "resources": ["samples"], "verbs": verbs}]))
    };
    let wanted = [
        may(&["get", "list", "watch"]),
        may(&["create", "update", "patch", "delete", "deletecollection"]),
    ];
    assert_eq!(roles(&json!({"rbac": {"aggregateClusterRoles": true}})), wanted);
}

/// `OpenShift` refuses a pod that names a user, a group or a volumes' group of its own.
#[test]
fn its_pods_run_as_whatever_user_the_cluster_sets() {
    let secrets = json!({
        "endpoint": "https://ironic:6385", "credentialsSecret": "a", "caSecret": "b", "clientCertSecret": "c",
    });
    let values = json!({"ironic": secrets});
    let objects = chart::render(&chart::dir("bmo-reboot"), "test", "test", &values).unwrap();
    let mut volumes = 0;
    for pod in pods(&objects) {
        let spec = &pod["spec"];
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        for context in [&spec["securityContext"], &spec["containers"][0]["securityContext"]] {
            for fixed in ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"] {
                assert!(context.get(fixed).is_none(), "{fixed} in {context}");
            }
        }
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            assert_eq!(volume["secret"]["defaultMode"], 0o444, "{volume}");
            volumes += 1;
        }
    }
    assert_eq!(volumes, 6, "three secrets, of the controller and of its check");
}

async fn account(namespace: &str, values: &Value) -> Client {
    let plane = shared().await;
    let objects = chart::render(&chart::dir("sample"), namespace, namespace, values).unwrap();
    chart::install_permissions(&plane.admin().await, &objects, namespace).await.unwrap();
    let name = chart::find(&objects, "ServiceAccount").unwrap()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    chart::service_account_client(plane, namespace, &name).await.unwrap()
}

#[tokio::test]
async fn the_controller_may_do_what_its_rules_say_and_nothing_else() {
    let namespace = shared().await.namespace("chart").await;
    let client = account(&namespace, &json!({})).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    maps.list(&ListParams::default()).await.unwrap();
    Api::<ConfigMap>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let map = serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap();
    assert!(refused(maps.create(&PostParams::default(), &map).await), "the rules have no `create`");
    let secrets: Api<Secret> = Api::namespaced(client, &namespace);
    assert!(refused(secrets.list(&ListParams::default()).await), "the rules have no secrets");
}

#[tokio::test]
async fn only_the_watched_namespaces_are_open_to_it() {
    let plane = shared().await;
    let own = plane.namespace("chart").await;
    let watched = plane.namespace("chart").await;
    let client = account(&own, &json!({"watchNamespaces": [watched]})).await;
    let maps = |namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
    maps(&watched).list(&ListParams::default()).await.unwrap();
    assert!(refused(maps(&own).list(&ListParams::default()).await));
    assert!(refused(Api::<ConfigMap>::all(client.clone()).list(&ListParams::default()).await));
}

#[tokio::test]
async fn its_own_lease_is_the_only_one_it_may_take() {
    let namespace = shared().await.namespace("chart").await;
    let client = account(&namespace, &json!({})).await;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(client, &namespace);
    let mut lease: k8s_openapi::api::coordination::v1::Lease =
        serde_json::from_value(json!({"metadata": {"name": "ferrite-sample"}})).unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": "me"}}));
    leases.patch("ferrite-sample", &PatchParams::default(), &patch).await.unwrap();
    lease.metadata.name = Some("other".to_owned());
    leases.create(&PostParams::default(), &lease).await.unwrap();
    assert!(refused(leases.patch("other", &PatchParams::default(), &patch).await));
}

#[tokio::test]
async fn crds_are_changed_by_the_hook_and_only_watched_by_the_controller() {
    let plane = shared().await;
    let namespace = plane.namespace("chart").await;
    let folder = RunDir::new("chart").unwrap();
    let full = with_all_files(folder.path());
    let objects = chart::render(&full, "test", &namespace, &json!({})).unwrap();
    chart::install_permissions(&plane.admin().await, &objects, &namespace).await.unwrap();
    let crds = async |account| {
        let client = chart::service_account_client(plane, &namespace, account).await.unwrap();
        Api::<CustomResourceDefinition>::all(client)
    };
    let one = ListParams::default().fields("metadata.name=samples.example.com");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    // The API server asks for the permission first, so whether the CRD exists does not matter.
    let may_patch = async |crds: &Api<CustomResourceDefinition>, name| {
        !refused(crds.patch(name, &PatchParams::default(), &patch).await)
    };
    let controller = crds("test-sample").await;
    controller.list(&one).await.unwrap();
    assert!(refused(controller.list(&ListParams::default()).await));
    assert!(!may_patch(&controller, "samples.example.com").await);
    let hook = crds("test-sample-extend-crd").await;
    assert!(may_patch(&hook, "samples.example.com").await);
    assert!(!may_patch(&hook, "others.example.com").await);
}

#[tokio::test]
async fn a_deployment_that_keeps_fields_watches_and_changes_those_crds_alone() {
    let plane = shared().await;
    let namespace = plane.namespace("chart").await;
    let folder = RunDir::new("chart").unwrap();
    let full = with_all_files(folder.path());
    let values = json!({"extendCrd": {"mode": "keep"}});
    let objects = chart::render(&full, "test", &namespace, &values).unwrap();
    assert!(
        !objects
            .iter()
            .any(|it| it["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade")
    );
    let deployments: Vec<&Value> = objects.iter().filter(|it| it["kind"] == "Deployment").collect();
    let keeper = deployments.iter().find(|it| it["metadata"]["name"] == "test-sample-extend-crd");
    let pod = &keeper.unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["args"], json!(["extend-crd", "--keep"]));
    chart::install_permissions(&plane.admin().await, &objects, &namespace).await.unwrap();
    let client = chart::service_account_client(plane, &namespace, "test-sample-extend-crd").await;
    let crds = Api::<CustomResourceDefinition>::all(client.unwrap());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    for (name, allowed) in [("samples.example.com", true), ("others.example.com", false)] {
        let one = ListParams::default().fields(&format!("metadata.name={name}"));
        assert_eq!(!refused(crds.list(&one).await), allowed, "{name}");
        assert_eq!(
            !refused(crds.patch(name, &PatchParams::default(), &patch).await),
            allowed,
            "{name}"
        );
    }
    let none = json!({"extendCrd": {"mode": "external"}});
    let objects = chart::render(&full, "test", &namespace, &none).unwrap();
    assert!(!objects.iter().any(|it| it.to_string().contains("extend-crd")));
}

#[test]
fn a_package_is_the_same_chart_as_the_checkout() {
    let home = RunDir::new("chart").unwrap();
    let packed = chart::helm(home.path())
        .unwrap()
        .arg("package")
        .arg(chart::dir("sample"))
        .arg("--destination")
        .arg(home.path())
        .output()
        .unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let package = home.path().join("sample-0.1.0.tgz");
    let of_package = chart::render(&package, "test", "test", &everything()).unwrap();
    assert_eq!(of_package, render(&everything()).unwrap());
}

/// Flux and Windows take no links from git.
#[test]
fn a_chart_without_its_link_finds_the_library_by_its_path() {
    let home = RunDir::new("chart").unwrap();
    let charts = home.path().join("charts");
    std::fs::create_dir(&charts).unwrap();
    let top = chart::dir("bmo-reboot");
    for name in ["bmo-reboot", "ferrite-library"] {
        let from = top.parent().unwrap().join(name);
        assert!(Command::new("cp").arg("-r").arg(from).arg(&charts).status().unwrap().success());
    }
    let linked = charts.join("bmo-reboot");
    std::fs::remove_dir_all(linked.join("charts")).unwrap();
    let values = json!({"ironic": {"endpoint": "https://ironic.example.org"}});
    let without = chart::render(&linked, "test", "test", &values).unwrap_err();
    assert!(format!("{without:#}").contains("helm dependency build"), "{without:#}");
    let mut helm = chart::helm(home.path()).unwrap();
    let built = helm.args(["dependency", "build"]).arg(&linked).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let built = chart::render(&linked, "test", "test", &values).unwrap();
    assert_eq!(built, chart::render(&top, "test", "test", &values).unwrap());
}

#[test]
fn settings_become_flags_as_they_are_written() {
    let folder = RunDir::new("chart").unwrap();
    let values = json!({"concurrency": 8, "settings": {
        "pollInterval": "5s", "strictReuse": false, "createRate": 2_000_000, "hosts": ["a", "b"], "unset": null,
    }});
    let args =
        args(&chart::render(&with_all_files(folder.path()), "test", "test", &values).unwrap());
    for flag in [
        "--concurrency=8",
        "--poll-interval=5s",
        "--strict-reuse=false",
        "--create-rate=2000000",
        "--hosts=a,b",
    ] {
        assert!(args.iter().any(|arg| arg == flag), "{flag} is not in {args:?}");
    }
    assert!(!args.iter().any(|arg| arg.starts_with("--unset")), "{args:?}");
}

#[test]
fn replicas_spread_over_nodes_unless_somebody_says_how() {
    let spread = |values: &Value| {
        let objects = render(values).unwrap();
        let deployment = chart::find(&objects, "Deployment").unwrap();
        let pod = &deployment["spec"]["template"];
        let selected =
            pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"].clone();
        for (label, value) in selected.as_object().into_iter().flatten() {
            assert_eq!(pod["metadata"]["labels"][label], *value, "{label}");
        }
        pod["spec"]["topologySpreadConstraints"][0]["topologyKey"].clone()
    };
    assert_eq!(spread(&json!({})), Value::Null);
    assert_eq!(spread(&json!({"replicaCount": 2})), "kubernetes.io/hostname");
    let zones = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let values = json!({"replicaCount": 2, "topologySpreadConstraints": [zones]});
    assert_eq!(spread(&values), "zone");
}

#[test]
fn the_rights_of_the_hook_go_also_when_it_fails_and_its_job_stays_for_its_log() {
    let folder = RunDir::new("chart").unwrap();
    let full = with_all_files(folder.path());
    let objects = chart::render(&full, "test", "test", &json!({})).unwrap();
    let policy = |it: &Value| {
        let annotations = &it["metadata"]["annotations"];
        let is_hook = annotations["helm.sh/hook"] == "pre-install,pre-upgrade";
        let policy = annotations["helm.sh/hook-delete-policy"].as_str().unwrap_or_default();
        let kind = it["kind"].as_str().unwrap_or_default().to_owned();
        is_hook.then(|| (kind, policy.contains("hook-failed")))
    };
    let found: BTreeMap<String, bool> = objects.iter().filter_map(policy).collect();
    let rights = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"].map(|kind| (kind, true));
    let wanted = rights.into_iter().chain([("Job", false)]);
    assert_eq!(found, wanted.map(|(kind, goes)| (kind.to_owned(), goes)).collect());
}

#[test]
fn the_dashboard_of_all_controllers_can_be_left_out() {
    let folder = RunDir::new("chart").unwrap();
    let full = with_all_files(folder.path());
    let dashboards = |values: &Value| {
        let objects = chart::render(&full, "test", "test", values).unwrap();
        let data = chart::find(&objects, "ConfigMap").unwrap()["data"].clone();
        data.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let both = json!({"grafanaDashboard": {"enabled": true}});
    assert_eq!(dashboards(&both), ["ferrite.json", "sample.json"]);
    let own = json!({"grafanaDashboard": {"enabled": true, "common": false}});
    assert_eq!(dashboards(&own), ["sample.json"]);
}

#[test]
fn the_dashboard_is_chosen_by_controller() {
    let objects = render(&json!({"grafanaDashboard": {"enabled": true}})).unwrap();
    let text =
        chart::find(&objects, "ConfigMap").unwrap()["data"]["ferrite.json"].as_str().unwrap();
    let dashboard: Value = serde_json::from_str(text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|variable| variable["name"] == "controller"));
    assert_eq!(dashboard["panels"].as_array().unwrap().len(), 5);
}

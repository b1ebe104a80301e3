//! What the kit promises about the objects, CRDs and permissions that a controller finds, seen on a process of a
//! controller that does nothing but copy a number.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bench::audit::Audit;
use bench::control_plane::{ControlPlane, shared};
use bench::process::{Service, free_port};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const PATIENCE: Duration = Duration::from_secs(30);
const CRD: &str = "trials.kit.example.org";
const LEASE: &str = "ferrite-trial";

/// The example of the kit of this name, which `cargo test` builds with the others.
pub(crate) fn example(name: &str) -> PathBuf {
    // Tests are in <target>/<profile>/deps, examples beside that folder.
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    let program = profile.join("examples").join(name);
    let built = "run `cargo build -p controller-kit --examples` first";
    assert!(program.exists(), "{} is not there: {built}", program.display());
    program
}

/// Runs a command of the trial to its end: the exit code, and all that it said.
fn ended(kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(example("trial"))
        .args(arguments)
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .env_clear()
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// A CRD with a bit of everything that must come out of an extension as it went in, and without the field.
fn description() -> Value {
    let schema = |note: &str| {
        json!({"openAPIV3Schema": {
            "type": "object",
            "description": "Tells\n\tof “odd”   spaces, <tags> & quotes \"'.",
            "required": ["spec"],
            "properties": {
                // Looser than the type that reads it.
                "spec": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "ratio": {"type": "number", "minimum": 0.1, "maximum": 1e21, "default": 0.5},
                        "port": {"x-kubernetes-int-or-string": true},
                        "mode": {"type": "string", "enum": ["a", "b", ""], "default": "a"},
                        "names": {
                            "type": "array",
                            "items": {"type": "string", "maxLength": 63, "pattern": "^[a-z]*$"},
                            "x-kubernetes-list-type": "set",
                            "maxItems": 10,
                        },
                    },
                    "x-kubernetes-validations": [{"rule": "self.ratio < 2.0", "message": "too much"}],
                },
                "status": {
                    "type": "object",
                    "properties": {"note": {"type": "string", "description": note}},
                },
            },
        }})
    };
    let version = |name: &str, storage: bool| {
        json!({
            "name": name,
            "served": true,
            "storage": storage,
            "deprecated": !storage,
            "schema": schema(name),
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
            ],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": CRD,
            "labels": {"clusterctl.cluster.x-k8s.io": ""},
            "annotations": {"example.org/owner": "somebody else"},
        },
        "spec": {
            "group": "kit.example.org",
            "scope": "Namespaced",
            "names": {
                "kind": "Trial",
                "plural": "trials",
                "singular": "trial",
                "listKind": "TrialList",
                "shortNames": ["tr"],
                "categories": ["all"],
            },
            "versions": [version("v1beta1", false), version("v1", true)],
        },
    })
}

fn crds(client: kube::Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client, &ApiResource::from_gvk(&kind))
}

fn trials(client: kube::Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kit.example.org", "v1", "Trial");
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind))
}

/// What became of the CRD as it was extended, in the order in which it was done.
struct Extension {
    plane: &'static ControlPlane,
    stock: Value,
    dry_run: (Option<i32>, String),
    after_dry_run: Value,
    first: (Option<i32>, String),
    extended: Value,
    second: (Option<i32>, String),
    at_last: Value,
}

/// The stories share one CRD, so the story of its extension comes before all others.
async fn extension() -> &'static Extension {
    static DONE: OnceCell<Extension> = OnceCell::const_new();
    DONE.get_or_init(|| async {
        let plane = shared().await;
        let api = crds(plane.admin().await);
        let crd = serde_json::from_value(description()).unwrap();
        api.create(&PostParams::default(), &crd).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        let stock = loop {
            let crd = serde_json::to_value(api.get(CRD).await.unwrap()).unwrap();
            let conditions = crd["status"]["conditions"].as_array();
            let is = |it: &Value| it["type"] == "Established" && it["status"] == "True";
            if conditions.is_some_and(|all| all.iter().any(is)) {
                break crd;
            }
            assert!(Instant::now() < deadline, "the CRD is not served: {crd}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let kubeconfig = plane.kubeconfig("trial-hook", &["system:masters"]).unwrap();
        let now = async || serde_json::to_value(api.get(CRD).await.unwrap()).unwrap();
        let dry_run = ended(&kubeconfig, &["extend-crd", "--dry-run"]);
        let after_dry_run = now().await;
        let first = ended(&kubeconfig, &["extend-crd"]);
        let extended = now().await;
        let second = ended(&kubeconfig, &["extend-crd"]);
        let at_last = now().await;
        Extension { plane, stock, dry_run, after_dry_run, first, extended, second, at_last }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn extend_crd_adds_the_field_once_and_keeps_everything_else_as_it_is() {
    let seen = extension().await;
    let (code, shown) = &seen.dry_run;
    assert_eq!(*code, Some(0), "{shown}");
    let place = "/spec/versions/1/schema/openAPIV3Schema/properties/status/properties/served";
    let difference = shown.lines().collect::<Vec<_>>();
    assert_eq!(difference.len(), 1, "{shown}");
    assert!(difference[0].starts_with(&format!("+ {CRD} {place}: ")), "{shown}");
    assert_eq!(seen.after_dry_run, seen.stock, "a dry run changes nothing");

    assert_eq!(&seen.first, &seen.dry_run, "what is done is what was shown");
    let mut rest = seen.extended.clone();
    let added = rest.pointer(place).cloned();
    assert_eq!(added.map(|field| field["type"].clone()), Some(json!("integer")));
    let parent = rest.pointer_mut(place.trim_end_matches("/served")).unwrap();
    parent.as_object_mut().unwrap().remove("served");
    let mut stock = seen.stock.clone();
    for crd in [&mut rest, &mut stock] {
        // What the API server keeps about any change.
        for field in ["generation", "managedFields", "resourceVersion"] {
            crd["metadata"].as_object_mut().unwrap().remove(field);
        }
    }
    assert_eq!(rest.to_string(), stock.to_string());

    assert_eq!(seen.second, (Some(0), format!("CRD {CRD}: nothing to add\n")));
    assert_eq!(seen.at_last, seen.extended, "the second time nothing is written");
}

struct Trial {
    user: String,
    port: u16,
    service: Service,
}

impl Trial {
    fn start(plane: &ControlPlane, user: &str, namespaces: &[&str]) -> Self {
        let groups: &[&str] = if user.ends_with("-master") { &["system:masters"] } else { &[] };
        let kubeconfig = plane.kubeconfig(user, groups).unwrap();
        let port = free_port();
        let mut command = Command::new(example("trial"));
        command
            .arg(format!("--listen=127.0.0.1:{port}"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--namespaces={}", namespaces.join(",")))
            .arg(format!("--lease-namespace={}", namespaces[0]));
        let service = Service::start(user, command, plane.dir()).unwrap();
        Self { user: user.to_owned(), port, service }
    }

    async fn metrics(&self) -> String {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("http://127.0.0.1:{}/metrics", self.port);
        match http.get(url).send().await {
            Ok(answer) => answer.text().await.unwrap(),
            Err(_) => String::new(),
        }
    }

    /// Waits until a line of the metrics is there.
    async fn shows(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.metrics().await;
            if metrics.lines().any(|it| it == line) {
                return;
            }
            let log = self.service.log_tail();
            assert!(Instant::now() < deadline, "{} never shows {line}:\n{log}", self.user);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn serves(&self, api: &Api<DynamicObject>, name: &str, number: u32) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = api.get(name).await.unwrap();
            if object.data["status"]["served"] == json!(number) {
                return;
            }
            let log = self.service.log_tail();
            assert!(Instant::now() < deadline, "{name} is never served {number}:\n{log}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Lines of the log that hold all of these.
    fn log_lines(&self, words: &[&str]) -> usize {
        let log = std::fs::read_to_string(self.service.log()).unwrap();
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

async fn create(api: &Api<DynamicObject>, name: &str, spec: Value) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kit.example.org", "v1", "Trial"));
    let object = DynamicObject::new(name, &kind).data(json!({ "spec": spec }));
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn set(api: &Api<DynamicObject>, name: &str, number: Value) {
    let patch = Patch::Merge(json!({"spec": {"number": number}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_cannot_be_decoded_are_reported_the_others_are_served_and_repaired_ones_too() {
    let plane = extension().await.plane;
    let namespace = plane.namespace("kit-decode").await;
    let api = trials(plane.admin().await, &namespace);
    create(&api, "good", json!({"number": 1})).await;
    create(&api, "bad", json!({"number": "many"})).await;
    let trial = Trial::start(plane, &format!("{namespace}-master"), &[&namespace]);
    trial.serves(&api, "good", 1).await;
    trial.shows("ferrite_undecodable_objects{kind=\"Trial\"} 1").await;
    let told = |name: &str| trial.log_lines(&["cannot be decoded", name, "spec.number"]);
    assert_eq!(told(&format!("{namespace}/bad")), 1);

    // What breaks while it is watched does not stop the watch either.
    create(&api, "later", json!({"number": 2})).await;
    trial.serves(&api, "later", 2).await;
    set(&api, "later", json!(-2)).await;
    trial.shows("ferrite_undecodable_objects{kind=\"Trial\"} 2").await;
    assert_eq!(told(&format!("{namespace}/later")), 1);
    set(&api, "good", json!(3)).await;
    trial.serves(&api, "good", 3).await;

    set(&api, "bad", json!(4)).await;
    trial.serves(&api, "bad", 4).await;
    trial.shows("ferrite_undecodable_objects{kind=\"Trial\"} 1").await;
    api.delete("later", &kube::api::DeleteParams::default()).await.unwrap();
    trial.shows("ferrite_undecodable_objects{kind=\"Trial\"} 0").await;
    assert_eq!(trial.log_lines(&["cannot be decoded"]), 2, "each broken version is told once");
}

/// Rights by name: to see the CRD, to see and serve trials, to hold the lease.
const ALL: [&str; 4] = ["crds", "trials", "trials/status", "leases"];

fn granting(right: &str) -> Value {
    let (groups, resources, verbs) = match right {
        "crds" => {
            return json!({"apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"], "resourceNames": [CRD],
                "verbs": ["get", "list", "watch"]});
        }
        "trials" => (vec!["kit.example.org"], vec![right], vec!["get", "list", "watch"]),
        "trials/status" => (vec!["kit.example.org"], vec![right], vec!["patch"]),
        "leases" => (
            vec!["coordination.k8s.io", "events.k8s.io"],
            vec!["leases", "events"],
            vec!["get", "list", "watch", "create", "patch"],
        ),
        other => panic!("{other} is no right"),
    };
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

async fn make(plane: &ControlPlane, kind: &str, namespace: Option<&str>, name: &str, data: Value) {
    let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
    let kind = ApiResource::from_gvk(&kind);
    let client = plane.admin().await;
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    };
    let object = DynamicObject::new(name, &kind).data(data);
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Gives a user these rights, those to namespaced kinds in these namespaces.
async fn permit(plane: &ControlPlane, user: &str, namespaces: &[&str], rights: &[&str]) {
    let (cluster, local): (Vec<&str>, Vec<&str>) =
        rights.iter().partition(|right| **right == "crds");
    let mut places = vec![(None, &cluster)];
    places.extend(namespaces.iter().map(|namespace| (Some(*namespace), &local)));
    for (namespace, rights) in places {
        let role = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let granted: Vec<Value> = rights.iter().map(|right| granting(right)).collect();
        make(plane, role, namespace, user, json!({ "rules": granted })).await;
        let binding = json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        make(plane, &format!("{role}Binding"), namespace, user, binding).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_namespaces_are_served_together_and_the_others_are_not_looked_at() {
    let plane = extension().await.plane;
    let (one, two) = (plane.namespace("kit-one").await, plane.namespace("kit-two").await);
    let other = plane.namespace("kit-other").await;
    let user = format!("{one}-trial");
    permit(plane, &user, &[&one, &two], &ALL).await;
    let apis = [&one, &two, &other].map(|namespace| async move {
        let api = trials(plane.admin().await, namespace);
        create(&api, "early", json!({"number": 1})).await;
        api
    });
    let [first, second, stranger] = apis;
    let (first, second, stranger) = (first.await, second.await, stranger.await);
    let audit = Audit::new(plane.audit_log(), plane.admin().await);
    let start = audit.mark().await.unwrap();
    let trial = Trial::start(plane, &user, &[&one, &two]);
    for api in [&first, &second] {
        trial.serves(api, "early", 1).await;
        // The same name in both is two objects.
        set(api, "early", json!(2)).await;
        trial.serves(api, "early", 2).await;
        create(api, "late", json!({"number": 3})).await;
        trial.serves(api, "late", 3).await;
    }
    first.delete("early", &kube::api::DeleteParams::default()).await.unwrap();
    set(&second, "early", json!(4)).await;
    trial.serves(&second, "early", 4).await;
    let ignored = stranger.get("early").await.unwrap();
    assert!(ignored.data["status"].is_null(), "{:?}", ignored.data);
    let counts = audit.since(start).await.unwrap();
    let of = |verb: &str| counts.of(&user, verb, "trials");
    assert_eq!((of("list"), of("watch")), (0, 2), "one watch per namespace: {counts}");
    assert_eq!(counts.writes(&user, &["leases", "trials/status"]), 0, "{counts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_process_within_a_second_also_while_a_pass_hangs() {
    let plane = extension().await.plane;
    let namespace = plane.namespace("kit-stuck").await;
    let api = trials(plane.admin().await, &namespace);
    create(&api, "stuck", json!({"number": 1, "hangs": true})).await;
    let mut trial = Trial::start(plane, &format!("{namespace}-master"), &[&namespace]);
    trial.shows("controller_runtime_active_workers{controller=\"trial\"} 1").await;
    // One pass that hangs holds up no other.
    create(&api, "free", json!({"number": 2})).await;
    trial.serves(&api, "free", 2).await;
    let stopping = tokio::task::spawn_blocking(move || {
        let asked = Instant::now();
        let code = trial.service.stop(PATIENCE).unwrap();
        (code, asked.elapsed())
    });
    let (code, took) = stopping.await.unwrap();
    println!("ended in {took:?}");
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(1), "it took {took:?}");
    let leases: Api<Lease> = Api::namespaced(plane.admin().await, &namespace);
    let holder = leases.get(LEASE).await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.unwrap_or_default(), "", "the lease is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_names_each_permission_that_is_missing_and_where() {
    let plane = extension().await.plane;
    let namespace = plane.namespace("kit-check").await;
    let places = [format!("--namespaces={namespace}"), format!("--lease-namespace={namespace}")];
    let check = |user: &str| {
        let kubeconfig = plane.kubeconfig(user, &[]).unwrap();
        ended(&kubeconfig, &["check", &places[0], &places[1]])
    };
    let may = format!("{namespace}-may");
    permit(plane, &may, &[&namespace], &ALL).await;
    let (code, table) = check(&may);
    assert_eq!(code, Some(0), "{table}");
    assert!(
        table.lines().count() > 4 && table.lines().all(|row| row.starts_with("ok ")),
        "{table}"
    );

    let missing = [
        ("crds", vec!["customresourcedefinitions.apiextensions.k8s.io", "get", "list", "watch"]),
        ("trials", vec!["trials.kit.example.org", "get", "list", "watch", &namespace]),
        ("trials/status", vec!["trials/status.kit.example.org", "patch", &namespace]),
        ("leases", vec!["leases.coordination.k8s.io", "create", &namespace]),
    ];
    for (number, (right, words)) in missing.into_iter().enumerate() {
        let user = format!("{namespace}-lacks-{number}");
        let rest: Vec<&str> = ALL.into_iter().filter(|it| *it != right).collect();
        permit(plane, &user, &[&namespace], &rest).await;
        let (code, table) = check(&user);
        assert_eq!(code, Some(1), "{right}: {table}");
        let named =
            |row: &str| row.starts_with("FAILED") && words.iter().all(|word| row.contains(word));
        assert!(table.lines().any(named), "{right} with {words:?} in:\n{table}");
        assert!(table.contains("add it to the role of this account"), "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_hangs_or_is_not_there_is_one_message_and_an_end() {
    let plane = shared().await;
    let good = plane.kubeconfig_text("trial-lost", &["system:masters"]).unwrap();
    // The kernel takes connections for a listener that nobody looks at: a server that hangs before its first word.
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = format!("https://{}", hanging.local_addr().unwrap());
    let gone = format!("https://127.0.0.1:{}", free_port());
    let mut waiting = Vec::new();
    for (what, url) in [("hangs", hangs), ("gone", gone)] {
        let path = plane.dir().join(format!("trial-{what}.kubeconfig"));
        std::fs::write(&path, good.replace(&plane.url, &url)).unwrap();
        for command in ["check", "extend-crd"] {
            let path = path.clone();
            waiting.push(tokio::task::spawn_blocking(move || {
                let began = Instant::now();
                (what, command, ended(&path, &[command]), began.elapsed())
            }));
        }
    }
    for ending in waiting {
        let (what, command, (code, said), took) = ending.await.unwrap();
        println!("{command} with a server that {what}, after {took:?}: {said}");
        assert_eq!(code, Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(took < Duration::from_secs(15), "{command}: {took:?}");
        assert!(said.contains("the API server does not answer: "), "{said}");
        let why = if what == "gone" { "Connection refused" } else { "no connection in time" };
        assert!(said.contains(why), "{said}");
    }
}

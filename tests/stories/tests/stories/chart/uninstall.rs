//! Each chart is installed as its README says it, has worked, and is uninstalled: what stays then is what the page names. No
//! kubelet runs here. The hook's program and the controller run as processes under the accounts that helm made for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bench::cache::{RunDir, run};
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::process::{Service, free_port};
use bench::{chart, cluster_api};
use futures_util::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::{Discovery, verbs};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::in_process::program;
use crate::pods::{CONTROLLERS, OF_IRONIC};

const NAMESPACE: &str = "ferrite-system";
const PAGE: &str = include_str!("../../../../../docs/ops/uninstall.md");
/// For failures only.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the API server makes, and removes, by itself.
const ITS_OWN: [&str; 2] = ["Event", "APIService"];

struct Cluster {
    plane: ControlPlane,
    client: Client,
    admin: PathBuf,
    home: RunDir,
}

impl Cluster {
    async fn start() -> Self {
        let plane = ControlPlane::start("uninstall").await.unwrap();
        let client = plane.admin().await;
        crds::install(&client, &Group::ALL).await.unwrap();
        cluster_api::install_crds(&client).await.unwrap();
        crds::settled(&client).await.unwrap();
        let admin = plane.kubeconfig("admin", &["system:masters"]).unwrap();
        Self { plane, client, admin, home: RunDir::new("helm").unwrap() }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn helm(&self, words: &[&str]) {
        let mut helm = chart::helm(self.home.path()).unwrap();
        helm.args(words).args(["--namespace", NAMESPACE, "--timeout", "120s"]);
        helm.arg("--kubeconfig").arg(&self.admin);
        tokio::task::spawn_blocking(move || run(&helm)).await.unwrap().unwrap();
    }

    /// A program under an account of the chart.
    async fn program(&self, controller: &str, account: &str) -> Command {
        let kubeconfig = chart::service_account_kubeconfig(&self.plane, NAMESPACE, account);
        let mut command = Command::new(program(controller));
        command.env("KUBECONFIG", kubeconfig.await.unwrap());
        command
    }

    /// Installs a controller, lets it work until it has its lease, and uninstalls it.
    async fn comes_and_goes(&self, controller: &str) {
        let folder = chart::dir(controller);
        let image = format!("image.repository=registry.example.org/{controller}");
        let folder = folder.to_str().unwrap();
        let mut install = vec!["upgrade", "--install", controller, folder, "--create-namespace"];
        install.extend(["--set", &image]);
        if OF_IRONIC.contains(&controller) {
            install.extend(["--set", "ironic.endpoint=https://ironic.example.org:6385/"]);
        }
        self.helm(&install).await;
        self.helm(&["test", controller]).await;
        self.works(controller).await;
        self.helm(&["uninstall", controller]).await;
    }

    async fn works(&self, controller: &str) {
        let mut command = self.program(controller, controller).await;
        // It leads without an Ironic, too.
        command.env("IRONIC_ENDPOINT", "http://127.0.0.1:9").env("METAL3_AUTH_ROOT_DIR", "/none");
        command.env("FERRITE_LISTEN", format!("127.0.0.1:{}", free_port()));
        command.env("FERRITE_LEASE_NAMESPACE", NAMESPACE).env("FERRITE_LEASE_DURATION", "3s");
        command.env("FERRITE_RENEW_DEADLINE", "2s").env("FERRITE_RETRY_PERIOD", "200ms");
        let mut service = Service::start(controller, command, self.plane.dir()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let name = format!("ferrite-{controller}");
        while self.api::<Lease>().get_opt(&name).await.unwrap().is_none() {
            let in_time = service.alive() && Instant::now() < deadline;
            assert!(in_time, "{controller} takes no lease:\n{}", service.log_tail());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::task::spawn_blocking(move || service.stop(PATIENCE)).await.unwrap().unwrap();
    }

    /// Plays the kubelet for as long as it is polled: the program of a hook's Job is run to its end, and what `helm test`
    /// starts succeeds.
    async fn play_kubelet(&self) {
        let params = PatchParams::default();
        loop {
            for job in self.api::<Job>().list(&ListParams::default()).await.unwrap() {
                if job.status.as_ref().is_some_and(|it| it.completion_time.is_some()) {
                    continue;
                }
                self.run_job(&job).await;
                let now = Timestamp::now().to_string();
                let is = |kind| json!({"type": kind, "status": "True", "lastTransitionTime": now});
                let status = json!({"status": {
                    "startTime": now, "completionTime": now, "succeeded": 1,
                    "conditions": [is("SuccessCriteriaMet"), is("Complete")],
                }});
                let done = Patch::Merge(&status);
                self.api::<Job>().patch_status(&job.name_any(), &params, &done).await.unwrap();
            }
            for pod in self.api::<Pod>().list(&ListParams::default()).await.unwrap() {
                let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
                self.api::<Pod>().patch_status(&pod.name_any(), &params, &done).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn run_job(&self, job: &Job) {
        let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        let account = pod.service_account_name.as_deref().unwrap();
        let mut command = self.program(&job.labels()["app.kubernetes.io/name"], account).await;
        command.args(pod.containers[0].args.as_ref().unwrap());
        tokio::task::spawn_blocking(move || run(&command)).await.unwrap().unwrap();
    }

    /// All objects, as `<plural>/<name>`.
    async fn objects(&self) -> Result<BTreeSet<String>, kube::Error> {
        let mut found = BTreeSet::new();
        for group in Discovery::new(self.client.clone()).run().await?.groups() {
            for (kind, capabilities) in group.recommended_resources() {
                if ITS_OWN.contains(&&*kind.kind) || !capabilities.supports_operation(verbs::LIST) {
                    continue;
                }
                let api = Api::<DynamicObject>::all_with(self.client.clone(), &kind);
                let objects = api.list_metadata(&ListParams::default()).await?;
                found.extend(objects.iter().map(|it| format!("{}/{}", kind.plural, it.name_any())));
            }
        }
        Ok(found)
    }

    /// What a release can have changed of each CRD.
    async fn crds(&self) -> BTreeMap<String, Value> {
        let all = Api::<CustomResourceDefinition>::all(self.client.clone());
        let all = all.list(&ListParams::default()).await.unwrap();
        all.iter().map(|it| (it.name_any(), serde_json::to_value(&it.spec).unwrap())).collect()
    }
}

/// What the page has its reader delete, as [`Cluster::objects`] names it.
fn named() -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for line in PAGE.lines().filter(|it| it.starts_with("kubectl ")) {
        let Some((_, what)) = line.split_once(" delete ") else { continue };
        let what = what.split(" #").next().unwrap();
        for controller in CONTROLLERS {
            let what = what.replace("<full name>", controller).replace("<controller>", controller);
            let mut kind = "";
            for word in what.split_whitespace().filter(|it| !it.starts_with("--")) {
                let (of, name) = word.split_once('/').unwrap_or((kind, word));
                match of {
                    "" => kind = word,
                    "crd" => _ = named.insert(format!("customresourcedefinitions/{name}")),
                    _ => _ = named.insert(format!("{of}s/{name}")),
                }
            }
        }
    }
    named
}

/// CRDs of others to which the charts' hooks add fields.
fn extended() -> BTreeSet<String> {
    let rules = |it: &str| std::fs::read_to_string(chart::dir(it).join("files/rules.json"));
    let rules = CONTROLLERS.map(|it| serde_json::from_str::<Value>(&rules(it).unwrap()).unwrap());
    let names = rules.iter().flat_map(|it| it["extendCrd"].as_array().unwrap());
    names.map(|it| it.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_of_a_release_that_was_uninstalled_is_what_the_page_names() {
    let cluster = Cluster::start().await;
    let (before, crds) = (cluster.objects().await.unwrap(), cluster.crds().await);
    let all = join_all(CONTROLLERS.map(|it| cluster.comes_and_goes(it)));
    tokio::select! {
        () = cluster.play_kubelet() => {}
        _ = all => {}
    }

    let after = cluster.crds().await;
    let changed = crds.iter().filter(|(name, spec)| after.get(*name) != Some(spec));
    let changed: BTreeSet<_> = changed.map(|(name, _)| name.clone()).collect();
    // Of some CRDs the bench has all fields already.
    let is_named = !changed.is_empty() && changed.is_subset(&extended());
    assert!(is_named, "other projects' CRDs that were changed: {changed:?}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A kind that was just added is refused for a moment.
        let after = cluster.objects().await;
        let stays = after.map(|it| it.difference(&before).cloned().collect::<BTreeSet<_>>());
        if stays.as_ref().is_ok_and(|it| *it == named()) {
            break;
        }
        assert!(Instant::now() < deadline, "{stays:?} stays, and the page names {:?}", named());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

//! One manager: its CRDs, its process, its webhooks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};

use crate::certs::Authority;
use crate::control_plane::ControlPlane;
use crate::go;
use crate::process::{Service, free_port};

/// What tells the three managers apart.
#[derive(Debug)]
pub(super) struct Kind {
    /// The program that the bench builds.
    pub(super) program: &'static str,
    /// Its folder in Cluster API's module.
    folder: &'static str,
    /// Whether other managers find its kinds by a contract, which is written on its CRDs as labels.
    contract: bool,
}

/// In the order in which they are started.
pub(super) const ALL: &[Kind] = &[
    Kind { program: "capi-core", folder: "core", contract: false },
    Kind { program: "capi-bootstrap", folder: "bootstrap/kubeadm", contract: true },
    Kind { program: "capi-kcp", folder: "controlplane/kubeadm", contract: true },
];

/// Cluster API's module: its CRDs and webhook manifests are in the same folders as its programs.
pub(super) fn sources() -> anyhow::Result<PathBuf> {
    go::module_dir("cluster-api", "sigs.k8s.io/cluster-api")
}

/// Installs the CRDs of one manager and waits until they are served. Returns their names.
///
/// The files lack what upstream's kustomization adds: the contract labels, and the conversion webhook, which cannot be
/// set before somebody answers there.
pub(super) async fn install_crds(
    client: &kube::Client,
    sources: &Path,
    manager: &Kind,
) -> anyhow::Result<Vec<String>> {
    let folder = sources.join(manager.folder).join("config/crd/bases");
    let api = dynamic::<CustomResourceDefinition>(client);
    let mut names = Vec::new();
    for file in
        std::fs::read_dir(&folder).with_context(|| format!("no CRDs in {}", folder.display()))?
    {
        let path = file?.path();
        let text = std::fs::read_to_string(&path)?;
        let mut crd: DynamicObject = serde_saphyr::from_str(&text)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if manager.contract {
            let labels = crd.metadata.labels.get_or_insert_default();
            for version in ["v1beta1", "v1beta2"] {
                labels.insert(format!("cluster.x-k8s.io/{version}"), version.to_owned());
            }
        }
        match api.create(&PostParams::default(), &crd).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => drop(
                created.with_context(|| format!("the API server refuses {}", path.display()))?,
            ),
        }
        names.extend(crd.metadata.name);
    }
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in &names {
        let established = await_condition(crds.clone(), name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(60), established)
            .await
            .with_context(|| format!("{name} is not served a minute after it was made"))??;
    }
    Ok(names)
}

/// A running manager.
#[derive(Debug)]
pub struct Manager {
    kind: &'static Kind,
    service: Service,
    webhooks: String,
    ca: String,
}

impl Manager {
    /// Starts it and waits until its caches are filled and its webhooks answer.
    pub(super) async fn start(
        management: &ControlPlane,
        kind: &'static Kind,
        authority: &Authority,
    ) -> anyhow::Result<Self> {
        let program = tokio::task::spawn_blocking(|| go::program(kind.program)).await??;
        let dir = management.dir().join(kind.program);
        std::fs::create_dir_all(&dir)?;
        authority.server()?.write(&dir, "tls")?;
        let (webhook, health) = (free_port(), free_port());
        let mut command = Command::new(program);
        command
            .arg(format!(
                "--kubeconfig={}",
                management.kubeconfig("admin", &["system:masters"])?.display()
            ))
            .arg(format!("--webhook-port={webhook}"))
            .arg(format!("--webhook-cert-dir={}", dir.display()))
            .arg(format!("--health-addr=127.0.0.1:{health}"))
            .arg(format!("--diagnostics-address=127.0.0.1:{}", free_port()))
            .args(["--insecure-diagnostics", "--leader-elect=false"]);
        let service = Service::start(kind.program, command, &dir)?;
        let mut manager = Self {
            kind,
            service,
            webhooks: format!("https://127.0.0.1:{webhook}"),
            ca: authority.pem(),
        };
        manager.wait_ready(&format!("http://127.0.0.1:{health}/readyz")).await?;
        Ok(manager)
    }

    async fn wait_ready(&mut self, probe: &str) -> anyhow::Result<()> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if http.get(probe).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if !self.service.alive() || Instant::now() > deadline {
                bail!("{} did not become ready:\n{}", self.kind.program, self.service.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Tells the API server where its webhooks are: admission from upstream's manifests, and conversion of its CRDs.
    pub(super) async fn connect(
        &self,
        client: &kube::Client,
        sources: &Path,
        crds: &[String],
    ) -> anyhow::Result<()> {
        let path = sources.join(self.kind.folder).join("config/webhook/manifests.yaml");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(&path)?)
            .with_context(|| format!("cannot read {}", path.display()))?;
        for document in documents {
            self.connect_admission(client, document).await?;
        }
        let conversion = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": self.client_config("/convert"),
            "conversionReviewVersions": ["v1", "v1beta1"],
        }}}});
        let api = dynamic::<CustomResourceDefinition>(client);
        for crd in crds {
            api.patch(crd, &PatchParams::default(), &Patch::Merge(&conversion)).await?;
        }
        Ok(())
    }

    async fn connect_admission(
        &self,
        client: &kube::Client,
        mut document: Value,
    ) -> anyhow::Result<()> {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        // Upstream's three files use the same two names.
        document["metadata"]["name"] =
            json!(format!("{}-{}", self.kind.program, kind.to_lowercase()));
        for webhook in document["webhooks"].as_array_mut().into_iter().flatten() {
            let Some(path) = webhook["clientConfig"]["service"]["path"].as_str().map(str::to_owned)
            else {
                bail!("a webhook of {} has no path: {webhook}", self.kind.program);
            };
            webhook["clientConfig"] = self.client_config(&path);
        }
        let object: DynamicObject = serde_json::from_value(document)?;
        let api = match kind.as_str() {
            "MutatingWebhookConfiguration" => dynamic::<MutatingWebhookConfiguration>(client),
            "ValidatingWebhookConfiguration" => dynamic::<ValidatingWebhookConfiguration>(client),
            other => bail!(
                "{} has a {other} among its webhooks: teach it to the bench",
                self.kind.program
            ),
        };
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    fn client_config(&self, path: &str) -> Value {
        // Byte strings are base64 in Kubernetes' JSON.
        let ca = k8s_openapi::ByteString(self.ca.as_bytes().to_vec());
        json!({"url": format!("{}{path}", self.webhooks), "caBundle": ca})
    }

    pub(super) fn log_tail(&self) -> String {
        format!("--- {}\n{}", self.kind.program, self.service.log_tail())
    }
}

/// Typed objects would lose what the types do not know yet.
fn dynamic<K: kube::Resource<DynamicType = ()>>(client: &kube::Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

//! A real kube-apiserver on a real etcd, on loopback, with RBAC and an audit log.

mod crowd;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::OnceCell;

use crate::cache::RunDir;
use crate::certs::{self, Authority, Identity};
use crate::go;
use crate::process::{Service, free_port};

/// Everything is logged once it is answered, bodies left out: who, which verb, which object, which code.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// Nobody makes the default accounts of namespaces here, and mirror pods are made by hand.
const ALONE: [&str; 2] =
    ["--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"];

/// One etcd serves all API servers of this process, each under its own prefix.
#[derive(Debug)]
struct Etcd {
    // Order matters: the program ends before its folder goes.
    _service: Service,
    _dir: RunDir,
    url: String,
}

static ETCD: OnceCell<Etcd> = OnceCell::const_new();

/// Go tidies up its memory when it has grown by so many percent. Several servers share two processors here, and memory is
/// not what they lack: the stories take a sixth less time than with Go's own.
const SPARE_MEMORY: u32 = 400;
const GOS_OWN: u32 = 100;

async fn etcd() -> anyhow::Result<&'static Etcd> {
    ETCD.get_or_try_init(|| async {
        let program = in_background(|| go::program("etcd")).await?;
        let dir = RunDir::new("etcd")?;
        let url = format!("http://127.0.0.1:{}", free_port());
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut command = Command::new(program);
        command
            .env("GOGC", SPARE_MEMORY.to_string())
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            // Nothing here outlives the run, so nothing has to reach the disk.
            .args([
                "--unsafe-no-fsync",
                "--quota-backend-bytes",
                "8589934592",
                "--log-level",
                "warn",
            ]);
        let service = Service::start("etcd", command, dir.path())?;
        Ok(Etcd { _service: service, _dir: dir, url })
    })
    .await
}

/// The API server that the tests of one process share.
///
/// # Panics
/// When it does not come up: no test can go on without it.
#[allow(clippy::expect_used, reason = "every test needs it, and a test may panic")]
pub async fn shared() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED
        .get_or_try_init(|| ControlPlane::start("shared"))
        .await
        .expect("the API server of the bench starts")
}

/// One API server.
#[derive(Debug)]
pub struct ControlPlane {
    /// `https://127.0.0.1:<port>`.
    pub url: String,
    authority: Authority,
    admin: Identity,
    namespaces: AtomicU32,
    managers: Mutex<Vec<Service>>,
    server: Mutex<Service>,
    /// By how many percent its memory grows before it tidies up.
    growth: u32,
    /// Under which it keeps everything in etcd.
    prefix: String,
    dir: RunDir,
}

impl ControlPlane {
    /// Starts an API server and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be built or does not become ready; the message holds its last lines.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        Self::launch(name, &ALONE, SPARE_MEMORY).await
    }

    /// The same with as much memory as Go takes by itself: for one so large that fivefold is more than the machine has.
    ///
    /// # Errors
    /// Those of [`ControlPlane::start`].
    pub async fn start_with_gos_own_limits(name: &str) -> anyhow::Result<Self> {
        Self::launch(name, &ALONE, GOS_OWN).await
    }

    /// The same without a feature of Kubernetes that can be switched off.
    ///
    /// # Errors
    /// Those of [`ControlPlane::start`].
    pub async fn start_without(feature: &str, name: &str) -> anyhow::Result<Self> {
        let gate = format!("--feature-gates={feature}=false");
        Self::launch(name, &[&ALONE[..], &[&gate]].concat(), SPARE_MEMORY).await
    }

    /// The sum of all series of one of the API server's own metrics.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let asked = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.admin().await.request_text(asked).await?;
        Ok(crate::prometheus::sum(&text, name))
    }

    /// What the API server has in memory that is used, in bytes, by the growth after which it tidies up.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn live_bytes(&self) -> anyhow::Result<f64> {
        let next = self.metric("go_memstats_next_gc_bytes").await?;
        Ok(next / (1.0 + f64::from(self.growth) / 100.0))
    }

    /// Starts an API server that a kubelet may join, with the controllers that turn a chart into pods: Deployments and
    /// Jobs, their accounts with tokens, the scheduler.
    ///
    /// # Errors
    /// Those of [`ControlPlane::start`].
    pub async fn start_for_pods(name: &str) -> anyhow::Result<Self> {
        let plane = Self::launch(name, &["--authorization-mode=Node,RBAC"], SPARE_MEMORY).await?;
        plane
            .start_controllers(&[
                "deployment-controller",
                "replicaset-controller",
                "job-controller",
                "serviceaccount-controller",
                "root-ca-certificate-publisher-controller",
                "garbage-collector-controller",
                "namespace-controller",
                "node-lifecycle-controller",
            ])
            .await?;
        let program = in_background(|| go::program("kube-scheduler")).await?;
        let mut command = Command::new(program);
        command
            .arg(format!("--kubeconfig={}", plane.dir.path().join("admin.kubeconfig").display()))
            .arg(format!("--secure-port={}", free_port()))
            .args(["--bind-address=127.0.0.1", "--leader-elect=false"]);
        plane.keep(Service::start("kube-scheduler", command, plane.dir.path())?);
        Ok(plane)
    }

    async fn launch(name: &str, flags: &[&str], growth: u32) -> anyhow::Result<Self> {
        static PREFIX: AtomicU32 = AtomicU32::new(0);
        certs::install_provider();
        let etcd = etcd().await?;
        let program = in_background(|| go::program("kube-apiserver")).await?;
        let dir = RunDir::new(name)?;
        let authority = Authority::new()?;
        let file = |name: &str, content: &str| -> anyhow::Result<PathBuf> {
            let path = dir.path().join(name);
            std::fs::write(&path, content)?;
            Ok(path)
        };
        let ca = file("ca.crt", &authority.pem())?;
        let (crt, key) = authority.server()?.write(dir.path(), "server")?;
        let (public, private) = certs::signing_key()?;
        let public = file("sa.pub", &public)?;
        let private = file("sa.key", &private)?;
        let policy = file("audit-policy.yaml", AUDIT_POLICY)?;
        let port = free_port();
        let prefix = format!("/{name}-{}", PREFIX.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(program);
        command.env("GOGC", growth.to_string());
        let mut flag = |name: &str, value: &Path| {
            let mut argument = std::ffi::OsString::from(format!("--{name}="));
            argument.push(value);
            command.arg(argument);
        };
        flag("tls-cert-file", &crt);
        flag("tls-private-key-file", &key);
        flag("client-ca-file", &ca);
        flag("cert-dir", dir.path());
        flag("service-account-key-file", &public);
        flag("service-account-signing-key-file", &private);
        flag("audit-policy-file", &policy);
        flag("audit-log-path", &dir.path().join("audit.log"));
        command
            .arg(format!("--etcd-servers={}", etcd.url))
            .arg(format!("--etcd-prefix={prefix}"))
            .arg(format!("--secure-port={port}"))
            .args([
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.0.0.0/24",
                // A write is answered after it is in the log, so that counts are exact.
                "--audit-log-mode=blocking",
                // No rotation: who counts must not lose the beginning.
                "--audit-log-maxsize=100000",
                "--profiling=false",
            ])
            .args(flags);
        let service = Service::start("kube-apiserver", command, dir.path())?;
        let admin = authority.client("admin", &["system:masters"])?;
        let plane = Self {
            url: format!("https://127.0.0.1:{port}"),
            authority,
            admin,
            namespaces: AtomicU32::new(0),
            managers: Mutex::new(Vec::new()),
            server: Mutex::new(service),
            growth,
            prefix,
            dir,
        };
        plane.wait_ready().await?;
        Ok(plane)
    }

    async fn wait_ready(&self) -> anyhow::Result<()> {
        let client = kube::Client::try_from(self.config("admin", &["system:masters"]).await?)?;
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let asked = http::Request::get("/readyz").body(Vec::new())?;
            if tokio::time::timeout(Duration::from_secs(2), client.request_text(asked))
                .await
                .is_ok_and(|a| a.is_ok())
            {
                // The namespace `default` is made a moment after readiness; events are written there.
                if Api::<Namespace>::all(client.clone()).get_opt("default").await?.is_some() {
                    return Ok(());
                }
            }
            let (alive, log) = {
                let mut server =
                    self.server.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                (server.alive(), server.log_tail())
            };
            if !alive || Instant::now() > deadline {
                bail!("kube-apiserver did not become ready:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A client that may do everything. Made anew for each caller, because a client belongs to the runtime it was made
    /// on, and every test has one of its own.
    ///
    /// # Panics
    /// When the bench's own certificates cannot be read.
    #[allow(clippy::expect_used, reason = "what it reads was written by this module")]
    pub async fn admin(&self) -> kube::Client {
        let config = self
            .config("admin", &["system:masters"])
            .await
            .expect("the bench's own kubeconfig is valid");
        long_lived(config).expect("the bench's own certificates are valid")
    }

    /// Client configuration of any user: the API server sees this name and these groups.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub async fn config(&self, user: &str, groups: &[&str]) -> anyhow::Result<kube::Config> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig_text(user, groups)?)?;
        Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// A kubeconfig for a user, as text.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn kubeconfig_text(&self, user: &str, groups: &[&str]) -> anyhow::Result<String> {
        let identity = if user == "admin" {
            self.admin.clone()
        } else {
            self.authority.client(user, groups)?
        };
        Ok(self.render_for(&identity))
    }

    /// The kubeconfig of a user whose certificate has expired, as text.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn expired_kubeconfig_text(&self, user: &str, groups: &[&str]) -> anyhow::Result<String> {
        Ok(self.render_for(&self.authority.expired_client(user, groups)?))
    }

    fn render_for(&self, identity: &Identity) -> String {
        self.render(&serde_json::json!({
            "client-certificate-data": base64(&identity.certificate),
            "client-key-data": base64(&identity.key),
        }))
    }

    /// A kubeconfig file for a user.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        self.write_kubeconfig(user, &self.kubeconfig_text(user, groups)?)
    }

    /// A kubeconfig file for whoever owns a token, as a pod has it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_for_token(&self, name: &str, token: &str) -> anyhow::Result<PathBuf> {
        self.write_kubeconfig(name, &self.render(&serde_json::json!({ "token": token })))
    }

    fn write_kubeconfig(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let name: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = self.dir.path().join(format!("{name}.kubeconfig"));
        // Written beside and renamed: whoever else reads it meanwhile reads it whole.
        let new = self.dir.path().join(format!("{name}.{:?}.new", std::thread::current().id()));
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn render(&self, user: &serde_json::Value) -> String {
        // JSON is YAML, and nothing has to be quoted by hand.
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": {
                "server": self.url,
                "certificate-authority-data": base64(&self.authority.pem()),
            }}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "user"}}],
            "current-context": "bench",
        })
        .to_string()
    }

    /// Starts the parts of kube-controller-manager that are named (`garbage-collector-controller`,
    /// `namespace-controller`, …), as admin.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub async fn start_controllers(&self, controllers: &[&str]) -> anyhow::Result<()> {
        let program = in_background(|| go::program("kube-controller-manager")).await?;
        let kubeconfig = self.kubeconfig("admin", &["system:masters"])?;
        let mut command = Command::new(program);
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--controllers={}", controllers.join(",")))
            .arg(format!("--cert-dir={}", self.dir.path().display()))
            // What pods are given to know the API server by.
            .arg(format!("--root-ca-file={}", self.dir.path().join("ca.crt").display()))
            .arg(format!("--secure-port={}", free_port()))
            .args(["--bind-address=127.0.0.1", "--leader-elect=false"]);
        let service = Service::start("kube-controller-manager", command, self.dir.path())?;
        self.keep(service);
        Ok(())
    }

    fn keep(&self, service: Service) {
        self.managers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(service);
    }

    /// A fresh namespace, named after the test that wants it.
    ///
    /// # Panics
    /// When the API server refuses it.
    #[allow(clippy::expect_used, reason = "a test that has no namespace cannot go on")]
    pub async fn namespace(&self, prefix: &str) -> String {
        let name = format!("{prefix}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let namespace: Namespace =
            serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))
                .expect("a namespace is valid");
        let api: Api<Namespace> = Api::all(self.admin().await);
        api.create(&PostParams::default(), &namespace)
            .await
            .expect("the API server takes a namespace");
        name
    }

    /// Stops answering (`true`) or goes on (`false`): an API server that hangs, as opposed to one that is gone.
    ///
    /// # Errors
    /// When the API server has ended.
    pub fn freeze(&self, frozen: bool) -> anyhow::Result<()> {
        let mut server = self.server.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        server.signal(if frozen { "STOP" } else { "CONT" })
    }

    /// JSON lines, one per answered request.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    /// The folder of its files and logs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The certificate authority that it trusts.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }
}

/// A client that lets go of a connection long before the API server does.
///
/// Both sides of kube's own client close what was idle for 90 seconds: a test that waits that long writes into a
/// connection that is being closed, and has no second look to repair it as a controller has.
fn long_lived(config: kube::Config) -> anyhow::Result<kube::Client> {
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(config.rustls_https_connector()?);
    let service = tower::ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(tower::BoxError::from)
        .service(connections);
    Ok(kube::Client::new(service, config.default_namespace))
}

fn base64(text: &str) -> String {
    // The one encoder that is in the house already: Kubernetes' byte strings are base64 in JSON.
    let bytes = k8s_openapi::ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// Building a program takes minutes the first time: not on a thread that serves others.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

//! A real Ironic: API and conductor in one process, on sqlite, without a message bus.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::jiff::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::bmc::Machine;
use crate::cache::{self, RunDir};
use crate::certs::{self, Authority};
use crate::process::{Service, free_port};
use crate::{python, steps};

mod crowd;
mod lent;
mod settings;

pub use lent::Lent;
pub use settings::Options;
use settings::{prepare, scheme, settings};

const PROGRAM: &str = include_str!("../python/start_ironic.py");

/// The version that the bench itself speaks: the oldest one that every release here has.
const API_VERSION: &str = "1.81";

/// Generous: a busy machine with two cores starts several programs at once.
const PATIENCE: Duration = Duration::from_secs(120);

/// The releases that the tests run against, all from the Python package index.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Release {
    /// 39.0.0, what most stories use.
    Current,
    /// 24.1.5, the first series that enrolls unknown machines by itself. Its API goes up to 1.90.
    FirstWithDiscovery,
    /// 21.3.0, whose API ends exactly at the oldest version that is accepted, 1.81. It knows no inspection by agents.
    Oldest,
}

impl Release {
    /// The release's number.
    pub fn number(self) -> &'static str {
        match self {
            Self::Current => "39.0.0",
            Self::FirstWithDiscovery => "24.1.5",
            Self::Oldest => "21.3.0",
        }
    }

    /// Every package of its environment with its version. What pip would choose today may not start tomorrow.
    fn pins(self) -> &'static str {
        match self {
            Self::Current => include_str!("../python/ironic-39.0.0.txt"),
            Self::FirstWithDiscovery => include_str!("../python/ironic-24.1.5.txt"),
            Self::Oldest => include_str!("../python/ironic-21.3.0.txt"),
        }
    }
}

/// The Python environment of a release: made once, about a minute. `bin/python` in it runs the BMC emulator too when
/// the release is the current one.
///
/// # Errors
/// When Python is missing, or a package cannot be had.
pub async fn environment(release: Release) -> anyhow::Result<PathBuf> {
    tokio::task::spawn_blocking(move || {
        let pins = release.pins();
        let settings = settings(&Options::default(), Path::new("@"), 0);
        let recipe = format!("{pins}{settings}");
        cache::entry(&format!("ironic-{}", release.number()), &recipe, |dir| {
            let what = format!("install Ironic {}", release.number());
            steps::step(&what, || install(release, dir))
        })
    })
    .await?
}

fn install(release: Release, dir: &Path) -> anyhow::Result<()> {
    let pins = dir.join("pins.txt");
    std::fs::write(&pins, release.pins())?;
    python::environment(dir, &["-r", &pins.to_string_lossy()])?;
    // Every start begins with a copy of this database: making the tables anew costs more than starting Ironic.
    let scratch = dir.join("scratch");
    let options = Options { release, ..Options::default() };
    prepare(&scratch, &options, 0)?;
    cache::run(
        python::of(dir, "ironic-dbsync")
            .arg("--config-file")
            .arg(scratch.join("ironic.conf"))
            .arg("create_schema"),
    )?;
    std::fs::rename(scratch.join("ironic.sqlite"), dir.join("empty.sqlite"))?;
    std::fs::remove_dir_all(&scratch)?;
    Ok(())
}

/// The Ironic that the tests of one process share: current release, no login, no TLS.
///
/// # Panics
/// When it does not come up: no test that asks for it can go on without it.
pub async fn shared() -> &'static Ironic {
    of(Release::Current).await
}

/// [`shared`], of another release.
///
/// # Panics
/// When it does not come up: no test that asks for it can go on without it.
#[allow(clippy::expect_used, reason = "the test needs it, and a test may panic")]
pub async fn of(release: Release) -> &'static Ironic {
    static SHARED: [OnceCell<Ironic>; 3] = [const { OnceCell::const_new() }; 3];
    SHARED[release as usize]
        .get_or_try_init(|| Ironic::start(Options { release, ..Options::default() }))
        .await
        .expect("the Ironic of the bench starts")
}

/// The one that tests share behind TLS with the login `admin`, `right`.
///
/// # Panics
/// When it does not come up.
#[allow(clippy::expect_used, reason = "the test needs it, and a test may panic")]
pub async fn secured() -> &'static Ironic {
    static SECURED: OnceCell<Ironic> = OnceCell::const_new();
    let login = Some(("admin".to_owned(), "right".to_owned()));
    SECURED
        .get_or_try_init(|| Ironic::start(Options { login, tls: true, ..Options::default() }))
        .await
        .expect("the Ironic of the bench starts")
}

/// A running Ironic. Its database and log go when it is dropped.
#[derive(Debug)]
pub struct Ironic {
    /// `http(s)://127.0.0.1:<port>`, the same after a restart.
    pub endpoint: String,
    /// What it was started with.
    pub options: Options,
    /// The authority to trust, PEM, when it serves HTTPS.
    pub authority: Option<String>,
    http: reqwest::Client,
    port: u16,
    environment: PathBuf,
    service: Mutex<Service>,
    dir: RunDir,
}

impl Ironic {
    /// Starts one on an empty database and waits until it can work.
    ///
    /// # Errors
    /// When it cannot be installed or does not come up; the message holds its last lines.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        certs::install_provider();
        let environment = environment(options.release).await?;
        let dir = RunDir::new("ironic")?;
        let port = free_port();
        prepare(dir.path(), &options, port)?;
        std::fs::copy(environment.join("empty.sqlite"), dir.path().join("ironic.sqlite"))?;
        let (mut authority, mut http) = (None, client().build()?);
        if options.tls {
            let (signer, trusting) = certify(dir.path())?;
            (authority, http) = (Some(signer), trusting);
        }
        if let Some((name, password)) = &options.login {
            std::fs::write(dir.path().join("users"), user_line(&environment, name, password)?)?;
        }
        let service = launch(&environment, dir.path(), &options)?;
        let ironic = Self {
            endpoint: format!("{}://127.0.0.1:{port}", scheme(&options)),
            options,
            authority,
            http,
            port,
            environment,
            service: Mutex::new(service),
            dir,
        };
        ironic.ready(Timestamp::UNIX_EPOCH).await?;
        Ok(ironic)
    }

    /// Starts it again on the same port and database, set up in another way: an upgrade, or the way back.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn reconfigure(&mut self, change: impl FnOnce(&mut Options)) -> anyhow::Result<()> {
        change(&mut self.options);
        prepare(self.dir.path(), &self.options, self.port)?;
        self.restart().await
    }

    /// Starts it again with a certificate of another authority, which [`Self::authority`] names from then on.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn renew_authority(&mut self) -> anyhow::Result<()> {
        let (authority, http) = certify(self.dir.path())?;
        self.authority = Some(authority);
        self.http = http;
        self.restart().await
    }

    /// Changes the password of its login. It asks for the new one at once.
    ///
    /// # Errors
    /// When the file cannot be written, or it has no login.
    pub fn change_password(&mut self, password: &str) -> anyhow::Result<()> {
        let (name, known) = self.options.login.as_mut().context("this Ironic lets everybody in")?;
        std::fs::write(
            self.dir.path().join("users"),
            user_line(&self.environment, name, password)?,
        )?;
        password.clone_into(known);
        Ok(())
    }

    /// A client that trusts it. It brings no login.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// The group of its processes.
    pub fn group(&self) -> u32 {
        self.service().group()
    }

    /// Where its output is.
    pub fn log(&self) -> PathBuf {
        self.service().log().to_owned()
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        self.service().log_tail()
    }

    /// Ends it as a power failure would. The database stays.
    pub fn kill(&self) {
        self.service().kill();
    }

    /// Asks it to end. It finishes what it is doing, for some seconds at most.
    ///
    /// # Errors
    /// When it had to be killed.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.service().stop(Duration::from_secs(30)).map(drop)
    }

    /// Starts it again after [`Self::kill`] or [`Self::stop`] (or kills it first), on the same port and database.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&self) -> anyhow::Result<()> {
        self.kill();
        let before = Timestamp::now();
        *self.service() = launch(&self.environment, self.dir.path(), &self.options)?;
        self.ready(before).await
    }

    /// Starts it again without anything that it knew, as after the loss of its database.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart_empty(&self) -> anyhow::Result<()> {
        self.kill();
        let database = self.dir.path().join("ironic.sqlite");
        std::fs::copy(self.environment.join("empty.sqlite"), &database)?;
        // What was under way would be undone in the new one.
        let under_way = self.dir.path().join("ironic.sqlite-journal");
        if under_way.exists() {
            std::fs::remove_file(under_way)?;
        }
        self.restart().await
    }

    fn service(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an API that answers and a conductor that has registered since `after`: the record of one that was
    /// killed still looks alive.
    async fn ready(&self, after: Timestamp) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // In the first version that has conductors, since it may have been told to speak like an old release.
            let path = "/v1/conductors?detail=true";
            let answer = self.call_version(Method::GET, path, None, "1.49").await;
            if let Ok((StatusCode::OK, body)) = &answer
                && body["conductors"]
                    .as_array()
                    .is_some_and(|conductors| conductors.iter().any(|c| registered_since(c, after)))
            {
                return Ok(());
            }
            if !self.service().alive() || Instant::now() > deadline {
                bail!(
                    "Ironic {} did not come up (last answer: {answer:?}). The end of its log:\n{}",
                    self.options.release.number(),
                    self.log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// One request with the right login: status and body, `null` where there is none.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        self.call_version(method, path, body, API_VERSION).await
    }

    /// [`Self::call`] in another version of the API.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn call_version(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: &str,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.endpoint))
            .header("Accept", "application/json")
            .header("X-OpenStack-Ironic-API-Version", version);
        if let Some((name, password)) = &self.options.login {
            request = request.basic_auth(name, Some(password));
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok((status, body))
    }

    /// One node as the API shows it.
    ///
    /// # Errors
    /// When there is no such node.
    pub async fn node(&self, node: &str) -> anyhow::Result<Value> {
        let (status, body) = self.call(Method::GET, &format!("/v1/nodes/{node}"), None).await?;
        if status != StatusCode::OK {
            bail!("node {node}: {status} {body}");
        }
        Ok(body)
    }

    /// Looks at a node until it is as wanted.
    ///
    /// # Errors
    /// When it never is; the message says what it was last.
    pub async fn wait(
        &self,
        node: &str,
        wanted: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(60);
        loop {
            let seen = self.node(node).await?;
            if check(&seen) {
                return Ok(seen);
            }
            if Instant::now() > deadline {
                bail!(
                    "node {node} was never {wanted}: power {} target {} provision {} last error {}",
                    seen["power_state"],
                    seen["target_power_state"],
                    seen["provision_state"],
                    seen["last_error"]
                );
            }
            // Each question costs Ironic tens of milliseconds of a processor that all its users share.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(600));
        }
    }

    /// Asks for a power state: `power on`, `power off`, `soft power off`, `rebooting`, `soft rebooting`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn power(
        &self,
        node: &str,
        target: &str,
        timeout: Option<u32>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut body = json!({ "target": target });
        if let Some(timeout) = timeout {
            body["timeout"] = timeout.into();
        }
        self.call(Method::PUT, &format!("/v1/nodes/{node}/states/power"), Some(&body)).await
    }

    /// Makes a node for a machine's BMC and waits until its power can be controlled. Returns the node's UUID.
    ///
    /// # Errors
    /// When Ironic refuses the node, or cannot talk to the BMC.
    pub async fn enroll(&self, name: &str, machine: &Machine) -> anyhow::Result<String> {
        let body = json!({
            "name": name,
            "driver": "redfish",
            "boot_interface": "redfish-virtual-media",
            "driver_info": {
                "redfish_address": machine.address(),
                "redfish_system_id": machine.system_path(),
                "redfish_username": "admin",
                "redfish_password": "secret",
                "redfish_verify_ca": false,
            },
        });
        self.manage(&body).await
    }

    /// Makes a node with the fake driver, whose power changes at once or after [`Options::fake_delay`]. Until its first
    /// change nobody knows its power state, and it is null. It stays `enroll`: there is no BMC to be proven.
    ///
    /// # Errors
    /// When Ironic refuses the node.
    pub async fn enroll_fake(&self, name: &str) -> anyhow::Result<String> {
        self.register(&json!({ "name": name, "driver": "fake-hardware" })).await
    }

    /// Makes Ironic forget a node, whatever it is used for.
    ///
    /// # Errors
    /// When Ironic refuses it, or works on the node for longer than a minute.
    pub async fn forget(&self, node: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            // One that is in use goes only while it is in maintenance.
            self.call(Method::PUT, &format!("/v1/nodes/{node}/maintenance"), None).await?;
            let (status, body) =
                self.call(Method::DELETE, &format!("/v1/nodes/{node}"), None).await?;
            if status.is_success() {
                return Ok(());
            }
            let is_busy = matches!(status, StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE);
            if !is_busy || Instant::now() > deadline {
                bail!("node {node} stays: {status} {body}");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn register(&self, node: &Value) -> anyhow::Result<String> {
        let (status, body) = self.call(Method::POST, "/v1/nodes", Some(node)).await?;
        let uuid = body["uuid"].as_str();
        uuid.map(str::to_owned).with_context(|| format!("Ironic refused the node: {status} {body}"))
    }

    async fn manage(&self, node: &Value) -> anyhow::Result<String> {
        let uuid = self.register(node).await?;
        let (status, body) = self
            .call(
                Method::PUT,
                &format!("/v1/nodes/{uuid}/states/provision"),
                Some(&json!({ "target": "manage" })),
            )
            .await?;
        if status != StatusCode::ACCEPTED {
            bail!("node {uuid} cannot be managed: {status} {body}");
        }
        let node = self
            .wait(&uuid, "manageable", |node| {
                node["reservation"].is_null()
                    && (node["provision_state"] == "manageable" || node["last_error"].is_string())
            })
            .await?;
        if node["provision_state"] != "manageable" {
            bail!("node {uuid} cannot be managed: {}", node["last_error"]);
        }
        Ok(uuid)
    }
}

fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        // Tests share this client but have a runtime each; an idle connection would die with the one that made it.
        .pool_max_idle_per_host(0)
        .timeout(Duration::from_secs(60))
}

/// Writes a certificate of a new authority. Returns the authority, PEM, and a client that trusts it alone.
fn certify(dir: &Path) -> anyhow::Result<(String, reqwest::Client)> {
    let signer = Authority::new()?;
    signer.server()?.write(dir, "server")?;
    let trusted = reqwest::Certificate::from_pem(signer.pem().as_bytes())?;
    Ok((signer.pem(), client().tls_certs_only([trusted]).build()?))
}

fn launch(environment: &Path, dir: &Path, options: &Options) -> anyhow::Result<Service> {
    let program = dir.join("start_ironic.py");
    std::fs::write(&program, PROGRAM)?;
    let mut command = python::of(environment, "python");
    command.arg(program).arg("--config-file").arg(dir.join("ironic.conf"));
    if let Some(proxy) = &options.bmc_proxy {
        command.env("http_proxy", proxy).env("no_proxy", "127.0.0.1");
    }
    Service::start("ironic", command, dir)
}

fn registered_since(conductor: &Value, after: Timestamp) -> bool {
    let since = |field: &str| {
        conductor[field]
            .as_str()
            .and_then(|time| time.parse::<Timestamp>().ok())
            // The database may keep whole seconds only.
            .is_some_and(|time| time.as_second() >= after.as_second())
    };
    conductor["alive"] == true && (since("updated_at") || since("created_at"))
}

/// A line of a password file. Ironic takes bcrypt only; its own environment has it.
fn user_line(environment: &Path, name: &str, password: &str) -> anyhow::Result<String> {
    let hash = cache::run(
        python::of(environment, "python")
            .args([
                "-c",
                "import bcrypt, sys; print(bcrypt.hashpw(sys.argv[1].encode(), bcrypt.gensalt(4)).decode())",
                password,
            ]),
    )?;
    Ok(format!("{name}:{hash}"))
}

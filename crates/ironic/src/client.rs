//! One request to Ironic, from the free connection to the last byte of the answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use controller_kit::engine::Class as Urgency;
use controller_kit::engine::lanes::{Lane, Lanes};
use controller_kit::engine::slots::Limits;
use reqwest::header::ACCEPT;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Result;
use crate::error::{Class, Error};
use crate::files::{Material, cause};
use crate::settings::{CALLS, Settings};
use crate::version::Version;

/// Calls to nodes that do not, at the same time.
const SLOW_CALLS: usize = 12;
/// A connection whose answer was read needs a moment until it can be used again; a call in that moment gets a new one.
const SPARE_CONNECTIONS: usize = 2;
/// Calls about no single node: a list, and a look whether Ironic answers.
const OTHER_CALLS: usize = 2;
/// Most connections to one Ironic, with [`CALLS`] calls at the same time. It resets those that exceed some 25, and others speak
/// to it too.
pub const CONNECTIONS: usize = connections(CALLS);

const fn connections(calls: usize) -> usize {
    calls + SLOW_CALLS + OTHER_CALLS + SPARE_CONNECTIONS
}

/// Largest answer that is read: a full page of detailed nodes has less than a fifth of it.
pub(crate) const MAX_ANSWER: usize = 16 << 20;
/// Largest error that is read. What is longer is no message for people.
const MAX_ERROR: usize = 256 << 10;
/// How often the files are looked at.
const LOOK_AT_FILES: Duration = Duration::from_secs(1);
const VERSION_HEADER: &str = "x-openstack-ironic-api-version";
const MAX_VERSION_HEADER: &str = "x-openstack-ironic-api-maximum-version";

/// A client of one Ironic. Clones share connections, limits and the negotiated version.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    /// The slots for calls to nodes.
    lanes: Lanes<String>,
    connected: Mutex<Connected>,
    spoken: Mutex<Option<Spoken>>,
    /// When and how agreeing on a version failed last. Held by who agrees for all.
    silence: tokio::sync::Mutex<Option<(Instant, Error)>>,
}

#[derive(Debug)]
struct Connected {
    http: reqwest::Client,
    material: Material,
    /// What the files held when they could not be used: reported once, not every second.
    unusable: Option<Material>,
    looked: Instant,
}

/// What was agreed upon with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spoken {
    version: Version,
    offered: Version,
}

/// A request, as far as it does not depend on the version.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Below `v1/`.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    /// Fields to be asked for; those that the version lacks are left out.
    pub(crate) fields: &'static [&'static str],
    pub(crate) body: Option<Value>,
    pub(crate) max_answer: usize,
    /// The node that it is about: it has one call at a time, and holds up no other one. A call about none, as a list of all, waits
    /// for no slot: whoever makes such calls makes one after the other.
    pub(crate) node: Option<String>,
    pub(crate) urgency: Urgency,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        // Whoever changes something has waited for a look already.
        let reads = method == Method::GET;
        Self {
            urgency: if reads { Urgency::Background } else { Urgency::Normal },
            method,
            path: path.into(),
            query: Vec::new(),
            fields: &[],
            body: None,
            max_answer: MAX_ANSWER,
            node: None,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// About this node.
    pub(crate) fn of_node(mut self, id: &str) -> Self {
        self.node = Some(id.to_owned());
        self
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn reads(&self) -> bool {
        self.method == Method::GET
    }

    pub(crate) fn url(&self, endpoint: &Url, version: Version) -> Url {
        let mut url = endpoint.clone();
        url.set_path(&format!("{}v1/{}", endpoint.path(), self.path));
        let known = self.fields.iter().filter(|field| version.has_field(field));
        let mut fields: Vec<_> = known.copied().collect();
        // Without its identity an object cannot be followed up, nor a list continued.
        if !self.fields.is_empty() && !fields.contains(&"uuid") {
            fields.push("uuid");
        }
        if !self.query.is_empty() || !fields.is_empty() {
            let mut pairs = url.query_pairs_mut();
            pairs.extend_pairs(&self.query);
            if !fields.is_empty() {
                pairs.append_pair("fields", &fields.join(","));
            }
        }
        url
    }
}

/// A request that is sent as soon as it is told to: it has its slot among those under way, and the version is agreed upon.
#[derive(Debug)]
#[must_use]
pub struct Ready<'a> {
    client: &'a Client,
    call: Call,
    version: Version,
    lane: Option<Lane<String>>,
}

impl Ready<'_> {
    /// Sends it, once: another try would wait for another slot. Who tries later does so in the version of then, with the files
    /// of then.
    pub async fn send(self) -> Result<()> {
        let Self { client, call, version, lane } = self;
        client.once_in(lane, &call, Some(version)).await.map(drop)
    }
}

struct Answer {
    body: Vec<u8>,
    offered: Option<Version>,
    /// When the request was sent, after it had waited for its slot.
    sent: Instant,
}

impl Client {
    /// A client for the settings. It reads the files, but does not connect yet.
    pub fn new(settings: Settings) -> Result<Self> {
        let material = Material::read(&settings, &Material::default())?;
        let http = material.connect(&settings, connections(settings.calls))?;
        let (regular, patience) = (settings.calls, settings.patience);
        Ok(Self {
            inner: Arc::new(Inner {
                settings,
                lanes: Lanes::new(Limits { regular, slow: SLOW_CALLS, patience }),
                connected: Mutex::new(Connected {
                    http,
                    material,
                    unusable: None,
                    looked: Instant::now(),
                }),
                spoken: Mutex::new(None),
                silence: tokio::sync::Mutex::new(None),
            }),
        })
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The version that is spoken with the server; asks it if that is not known yet.
    pub async fn version(&self) -> Result<Version> {
        let spoken = || lock(&self.inner.spoken).map(|it| it.version);
        let asked = Instant::now();
        if let Some(version) = spoken() {
            return Ok(version);
        }
        // One asks for all who wait: Ironic resets connections beyond so many.
        let mut silence = self.inner.silence.lock().await;
        if let Some(version) = spoken() {
            return Ok(version);
        }
        if let Some((since, error)) = &*silence
            && *since >= asked
        {
            return Err(error.clone());
        }
        let answer = self.ping().await;
        *silence = answer.as_ref().err().map(|error| (Instant::now(), error.clone()));
        answer
    }

    /// The highest version that the server offered when it was last asked.
    pub fn offered(&self) -> Option<Version> {
        lock(&self.inner.spoken).map(|spoken| spoken.offered)
    }

    /// Asks the server anew which versions it offers. Needs no credentials.
    pub async fn ping(&self) -> Result<Version> {
        let call = Call::get("");
        // Whoever asks for a node must not be told that it is gone, only because the address is
        // another service's.
        let answer = self.once(&call, None).await.map_err(|error| match error.class() {
            Class::NotFound | Class::Refused => not_ironic().of("GET", "/v1/"),
            _ => error,
        })?;
        let named = |error: Error| error.of("GET", "/v1/");
        let (min, max) = offer(&answer).map_err(named)?;
        let version = Version::choose(min, max).map_err(|error| {
            *lock(&self.inner.spoken) = None;
            named(error)
        })?;
        self.agree(Spoken { version, offered: max });
        Ok(version)
    }

    fn agree(&self, new: Spoken) {
        let old = lock(&self.inner.spoken).replace(new);
        if old != Some(new) {
            tracing::info!(version = %new.version, offered = %new.offered, "speaking to Ironic");
        }
    }

    /// Sends a request whose answer is of no interest.
    pub(crate) async fn send(&self, call: Call) -> Result<()> {
        self.call(&call).await.map(drop)
    }

    /// Waits until a request can be sent at once.
    pub(crate) async fn ready(&self, call: Call) -> Result<Ready<'_>> {
        let version = self.version().await?;
        let lane = self.lane(&call).await;
        Ok(Ready { client: self, call, version, lane })
    }

    async fn lane(&self, call: &Call) -> Option<Lane<String>> {
        let (node, lanes) = (call.node.as_ref()?, &self.inner.lanes);
        // What is read of one node stands in Ironic's database, whatever its machine does.
        Some(if call.reads() {
            lanes.enter_alike(node, call.urgency).await
        } else {
            lanes.enter(node, call.urgency).await
        })
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        self.read_by(call, |body| serde_json::from_slice(body)).await.map(|(read, _)| read)
    }

    /// The same, read in this way, and when it was sent.
    pub(crate) async fn read_by<T>(
        &self,
        call: Call,
        read: fn(&[u8]) -> serde_json::Result<T>,
    ) -> Result<(T, Instant)> {
        let Answer { body, sent, .. } = self.call(&call).await?;
        let read = read(&body).map_err(|error| {
            let text = format!("the answer has not the expected form: {error}");
            Error::invalid(text)
                .of(call.method.as_str(), &format!("/v1/{}", call.path))
                .perhaps_done(!call.reads())
        });
        Ok((read?, sent))
    }

    async fn call(&self, call: &Call) -> Result<Answer> {
        let version = self.version().await?;
        let error = match self.once(call, Some(version)).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        // Neither of these was acted upon, so both can be repeated. Once: what follows from files or
        // versions that change all the time is for the caller to bear.
        match error.class() {
            Class::TooOld => match self.version().await? {
                same if same == version => Err(error.at(version)),
                now => self.once(call, Some(now)).await,
            },
            Class::Unauthorized if self.look_at_files(true) => self.once(call, Some(version)).await,
            _ => Err(error),
        }
    }

    /// A server that was upgraded or rolled back says so in every answer.
    fn follow_offer(&self, offered: Option<Version>) {
        let Some(offered) = offered else { return };
        let mut spoken = lock(&self.inner.spoken);
        if spoken.is_some_and(|s| s.offered != offered) {
            *spoken = None;
        }
    }

    async fn once(&self, call: &Call, version: Option<Version>) -> Result<Answer> {
        self.once_in(self.lane(call).await, call, version).await
    }

    async fn once_in(
        &self,
        lane: Option<Lane<String>>,
        call: &Call,
        version: Option<Version>,
    ) -> Result<Answer> {
        let path = format!("/v1/{}", call.path);
        let started = Instant::now();
        let is_answer = |it: &Result<Answer>| {
            it.as_ref().err().is_none_or(|error| error.class() != Class::Timeout)
        };
        let exchange = self.exchange(call, version);
        let result = match lane {
            Some(lane) => {
                lane.run(exchange, is_answer).await.unwrap_or_else(|_| Err(given_up(call)))
            }
            None => exchange.await,
        };
        let millis = started.elapsed().as_millis();
        let method = call.method.as_str();
        match result {
            Ok(answer) => {
                tracing::debug!(method, path, millis, bytes = answer.body.len(), "Ironic answered");
                self.follow_offer(answer.offered);
                Ok(answer)
            }
            Err(error) => {
                let class = error.class();
                tracing::debug!(method, path, millis, class = class.as_str(), "Ironic failed");
                if version.is_some() && matches!(class, Class::Unreachable | Class::TooOld) {
                    // It may come back as another release, or has.
                    *lock(&self.inner.spoken) = None;
                }
                Err(error.of(method, &path))
            }
        }
    }

    async fn exchange(&self, call: &Call, version: Option<Version>) -> Result<Answer> {
        let (inner, sent) = (&*self.inner, Instant::now());
        self.look_at_files(false);
        let url = call.url(&inner.settings.endpoint, version.unwrap_or(Version::OLDEST));
        let mut secret = None;
        let request = {
            let connected = lock(&inner.connected);
            let mut request = connected.http.request(call.method.clone(), url);
            if let Some((username, password)) = connected.material.credentials() {
                secret = Some(password.to_owned());
                request = request.basic_auth(username, Some(password));
            }
            request.header(ACCEPT, "application/json")
        };
        let request = match version {
            Some(version) => request.header(VERSION_HEADER, version.to_string()),
            None => request,
        };
        let request = match &call.body {
            Some(body) => request.json(body),
            None => request,
        };

        let broken = |error: reqwest::Error| transport(&error, call.reads(), &inner.settings);
        let mut response = request.send().await.map_err(broken)?;
        let status = response.status();
        let offered = response
            .headers()
            .get(MAX_VERSION_HEADER)
            .and_then(|value| Version::parse(value.to_str().ok()?));
        let most = if status.is_success() { call.max_answer } else { MAX_ERROR };
        let announced = response.content_length().unwrap_or(0);
        let mut body = Vec::new();
        let mut complete = announced <= most as u64;
        while complete && let Some(chunk) = response.chunk().await.map_err(broken)? {
            complete = body.len() + chunk.len() <= most;
            if complete {
                body.extend_from_slice(&chunk);
            }
        }
        drop(response);
        // Lets the connection go back before another call takes this slot.
        tokio::task::yield_now().await;
        if !status.is_success() {
            return Err(Error::of_answer(status.as_u16(), &body).without(secret.as_deref()));
        }
        if !complete {
            let text = format!("the answer is larger than {most} bytes, which is refused");
            return Err(Error::new(Class::TooLarge, text).perhaps_done(!call.reads()));
        }
        Ok(Answer { body, offered, sent })
    }

    /// Takes over rotated files. Says whether something changed.
    ///
    /// The files are small and local, so reading them does not hold up the other tasks.
    fn look_at_files(&self, now: bool) -> bool {
        let settings = &self.inner.settings;
        let mut connected = lock(&self.inner.connected);
        if !now && connected.looked.elapsed() < LOOK_AT_FILES {
            return false;
        }
        connected.looked = Instant::now();
        let material = match Material::read(settings, &connected.material) {
            Ok(material) => material,
            Err(error) => {
                tracing::warn!(%error, "keeping the earlier credentials and certificates");
                return false;
            }
        };
        if material == connected.material || connected.unusable.as_ref() == Some(&material) {
            return false;
        }
        if material.needs_new_connections(&connected.material) {
            match material.connect(settings, connections(settings.calls)) {
                Ok(http) => connected.http = http,
                Err(error) => {
                    tracing::warn!(%error, "keeping the earlier credentials and certificates");
                    connected.unusable = Some(material);
                    return false;
                }
            }
        }
        tracing::info!("took over changed credentials or certificates for Ironic");
        connected.material = material;
        connected.unusable = None;
        true
    }
}

/// A panic elsewhere leaves nothing half-done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call that others needed the slot of.
fn given_up(call: &Call) -> Error {
    let text = "no answer in time, and too many other nodes do not answer";
    Error::new(Class::Timeout, text).perhaps_done(!call.reads())
}

/// A request that got no complete answer.
fn transport(error: &reqwest::Error, reads: bool, settings: &Settings) -> Error {
    let maybe_done = !reads && !error.is_connect() && !error.is_builder();
    let error = if error.is_timeout() {
        let text = if error.is_connect() {
            "no connection in time".to_owned()
        } else {
            format!("no complete answer within {:?}", settings.timeout)
        };
        Error::new(Class::Timeout, text)
    } else {
        let why = cause(error);
        // An authority that was made anew under its old name gives the second of these.
        let hint = if why.contains("UnknownIssuer") || why.contains("BadSignature") {
            "; set IRONIC_CACERT_FILE to the certificate of the authority that signed it"
        } else {
            ""
        };
        let what = if error.is_connect() { "no connection" } else { "the connection broke" };
        Error::new(Class::Unreachable, format!("{what}: {why}{hint}"))
    };
    error.perhaps_done(maybe_done)
}

/// What the root of the API says about its versions.
fn offer(answer: &Answer) -> Result<(Version, Version)> {
    #[derive(Deserialize)]
    struct Root {
        version: Range,
    }
    #[derive(Deserialize)]
    struct Range {
        #[serde(default)]
        min_version: String,
        version: String,
    }
    let read = serde_json::from_slice::<Root>(&answer.body).ok().and_then(|root| {
        let max = Version::parse(&root.version.version)?;
        Some((Version::parse(&root.version.min_version).unwrap_or(Version(1)), max))
    });
    read.ok_or_else(not_ironic)
}

fn not_ironic() -> Error {
    let text = "this is not the Ironic API: check IRONIC_ENDPOINT";
    Error::invalid(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_the_version_lacks_are_not_asked_for() {
        let mut call = Call::get("nodes");
        call.fields = &["uuid", "disable_power_off", "health"];
        let root = Url::parse("http://h/").unwrap();
        let ask = |minor| call.url(&root, Version(minor)).to_string();
        assert_eq!(ask(94), "http://h/v1/nodes?fields=uuid");
        assert_eq!(ask(95), "http://h/v1/nodes?fields=uuid%2Cdisable_power_off");
        assert!(ask(109).ends_with("health"));
    }

    #[test]
    fn the_identity_is_always_asked_for() {
        let root = Url::parse("http://h/").unwrap();
        let mut call = Call::get("nodes");
        for (fields, query) in [
            (&[][..], None),
            (&["disable_power_off"][..], Some("fields=uuid")),
            (&["name"][..], Some("fields=name%2Cuuid")),
            (&["uuid", "name"][..], Some("fields=uuid%2Cname")),
        ] {
            call.fields = fields;
            assert_eq!(call.url(&root, Version(81)).query(), query);
        }
    }

    #[test]
    fn a_path_in_the_endpoint_is_kept() {
        let root = Url::parse("https://h/baremetal/").unwrap();
        let url = Call::get("nodes").url(&root, Version(81));
        assert_eq!(url.as_str(), "https://h/baremetal/v1/nodes");
    }

    #[test]
    fn the_offer_is_read_from_the_root_and_nothing_else() {
        let read = |body: &str| {
            let (body, sent) = (body.as_bytes().to_vec(), Instant::now());
            offer(&Answer { body, offered: None, sent })
        };
        let root = r#"{"id": "v1", "version": {"min_version": "1.1", "version": "1.115"}}"#;
        assert_eq!(read(root).unwrap(), (Version(1), Version(115)));
        for other in ["<html>", "{}", r#"{"version": {"version": "2.0"}}"#] {
            assert_eq!(read(other).unwrap_err().class(), Class::Invalid, "{other}");
        }
    }
}

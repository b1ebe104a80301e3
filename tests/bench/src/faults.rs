//! Disturbs one client on purpose: a layer in front of the whole kube client that numbers requests
//! and, at a chosen one, fails it, delays it, loses it, loses its answer or the rest of it, holds it or
//! lets the process "crash".
//!
//! The layer is the outermost one, so it counts what the controller asked for; the retries that
//! kube does by itself for 429, 503 and 504 stay below it.
//!
//! It also keeps a journal of the calls with the resourceVersion that the server answered, which is
//! how an [`Observer`](crate::observer::Observer) knows who wrote what: field managers cannot tell,
//! because two replicas share one and its time stands still within a second.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::Bytes;
use kube::client::{Body, ClientBuilder, DynBody};
use tokio::sync::watch;
use tower::{BoxError, Layer, Service};

/// Which request a fault waits for; both counts begin at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// The n-th request of any kind.
    Request(u32),
    /// The n-th write, see [`is_write`].
    Write(u32),
    /// The n-th write that makes an object.
    Creation(u32),
}

/// What happens at the chosen request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server is not asked; the answer is this status.
    Fail(StatusCode),
    /// The request is sent this much later.
    Delay(Duration),
    /// The connection breaks before the request is sent.
    DropRequest,
    /// The server does what was asked, but its answer is lost.
    DropAnswer,
    /// The answer begins and breaks off after this long: a watch whose server or network went away.
    CutAnswer(Duration),
    /// The process stops before the request is sent: nothing of it is ever answered again.
    CrashBefore,
    /// The process stops when the server has done what was asked and before it learns of it.
    CrashAfter,
    /// The request waits, unsent, for [`Handle::release`]; everything else goes on.
    Hold,
}

/// An actor's name and the faults that await it.
#[derive(Clone, Debug)]
pub struct Plan {
    actor: String,
    faults: Vec<(At, Fault)>,
}

impl Plan {
    /// No fault: the client is only counted and its writes are recorded under this name.
    pub fn none(actor: impl Into<String>) -> Self {
        Self { actor: actor.into(), faults: Vec::new() }
    }

    /// One fault.
    pub fn one(actor: impl Into<String>, at: At, fault: Fault) -> Self {
        Self { actor: actor.into(), faults: vec![(at, fault)] }
    }

    /// One more fault. The first that names a request counts.
    #[must_use]
    pub fn and(mut self, at: At, fault: Fault) -> Self {
        self.faults.push((at, fault));
        self
    }

    /// Whether any fault is planned.
    pub fn is_disturbing(&self) -> bool {
        !self.faults.is_empty()
    }

    fn fault(&self, request: u32, write: Option<u32>, creation: Option<u32>) -> Option<Fault> {
        self.faults
            .iter()
            .find(|(at, _)| match at {
                At::Request(n) => *n == request,
                At::Write(n) => Some(*n) == write,
                At::Creation(n) => Some(*n) == creation,
            })
            .map(|(_, fault)| *fault)
    }
}

/// One request as the client made it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who asked.
    pub actor: String,
    /// Its number among the actor's requests.
    pub request: u32,
    /// Its number among the actor's writes, if it is one.
    pub write: Option<u32>,
    /// The HTTP method.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// What the server answered; none if it was not asked or has not answered.
    pub status: Option<StatusCode>,
    /// The resourceVersion of the object that the server answered to a write.
    pub version: Option<u64>,
    /// When the client asked.
    pub at: Instant,
}

#[derive(Default)]
struct Journal {
    requests: u32,
    writes: u32,
    creations: u32,
    calls: BTreeMap<u32, Call>,
    /// The end of the path that is read next and held.
    to_hold: Option<String>,
}

struct Shared {
    plan: Plan,
    journal: Mutex<Journal>,
    crashed: watch::Sender<bool>,
    held: watch::Sender<bool>,
    released: watch::Sender<bool>,
    answered: watch::Sender<bool>,
    fired: watch::Sender<bool>,
}

impl Shared {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, request: &Request<Body>) -> (u32, Option<Fault>) {
        let mut journal = self.journal();
        journal.requests += 1;
        let number = journal.requests;
        let path = request.uri().path().to_owned();
        let write = is_write(request.method(), &path).then(|| {
            journal.writes += 1;
            journal.writes
        });
        let creation = (write.is_some() && request.method() == Method::POST).then(|| {
            journal.creations += 1;
            journal.creations
        });
        let is_read = *request.method() == Method::GET;
        let held = journal.to_hold.take_if(|it| is_read && path.ends_with(it.as_str()));
        let call = Call {
            actor: self.plan.actor.clone(),
            request: number,
            write,
            method: request.method().clone(),
            path,
            status: None,
            version: None,
            at: Instant::now(),
        };
        journal.calls.insert(number, call);
        let planned = self.plan.fault(number, write, creation);
        (number, held.map_or(planned, |_| Some(Fault::Hold)))
    }

    fn end(&self, number: u32, status: StatusCode, version: Option<u64>) {
        if let Some(call) = self.journal().calls.get_mut(&number) {
            call.status = Some(status);
            call.version = version;
        }
    }

    fn is_write(&self, number: u32) -> bool {
        let journal = self.journal();
        journal.calls.get(&number).is_some_and(|call| call.write.is_some())
    }

    /// The crashed process asks for nothing more and hears nothing more.
    async fn crash(&self) -> ! {
        self.crashed.send_replace(true);
        std::future::pending().await
    }
}

/// What the bench sees of a client and can do to it.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// The actor's name.
    pub fn actor(&self) -> &str {
        &self.shared.plan.actor
    }

    /// Requests so far.
    pub fn requests(&self) -> u32 {
        self.shared.journal().requests
    }

    /// Writes so far, those that the server refused included.
    pub fn writes(&self) -> u32 {
        self.shared.journal().writes
    }

    /// Every request so far, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.journal().calls.values().cloned().collect()
    }

    /// Whether a fault of the plan has struck.
    pub fn fired(&self) -> bool {
        *self.shared.fired.borrow()
    }

    /// Waits for the crash; never returns if none is planned or its request is never made.
    pub async fn crashed(&self) {
        wait_for(&self.shared.crashed).await;
    }

    /// Holds the next read of a path that ends so, as by [`Fault::Hold`].
    pub fn hold_read(&self, path: &str) {
        self.shared.journal().to_hold = Some(path.to_owned());
    }

    /// Waits until a request is held.
    pub async fn held(&self) {
        wait_for(&self.shared.held).await;
    }

    /// Waits until the server has answered a held request, or its process has given it up: a pass has a deadline.
    pub async fn answered(&self) {
        wait_for(&self.shared.answered).await;
    }

    /// Lets held requests go, now and from now on.
    pub fn release(&self) {
        self.shared.released.send_replace(true);
    }
}

async fn wait_for(flag: &watch::Sender<bool>) {
    let mut seen = flag.subscribe();
    // The sender lives as long as the handle, so this ends only when the flag is up.
    let _ = seen.wait_for(|up| *up).await;
}

/// A client that behaves as planned, and the handle to watch it by.
///
/// # Errors
///
/// If the configuration cannot be made into a client, for instance for want of a TLS provider.
pub fn client(config: kube::Config, plan: Plan) -> anyhow::Result<(kube::Client, Handle)> {
    let shared = Arc::new(Shared {
        plan,
        journal: Mutex::default(),
        crashed: watch::Sender::new(false),
        held: watch::Sender::new(false),
        released: watch::Sender::new(false),
        answered: watch::Sender::new(false),
        fired: watch::Sender::new(false),
    });
    let layer = FaultLayer { shared: Arc::clone(&shared) };
    let client = ClientBuilder::try_from(config)
        .context("make a client: the bench's configuration was refused")?
        .with_layer(&layer)
        .build();
    Ok((client, Handle { shared }))
}

/// Whether a request counts as a write. Questions asked by POST (access reviews), leases and events
/// do not: the first change nothing, the others come by the clock and would move every number.
pub fn is_write(method: &Method, path: &str) -> bool {
    let changes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method);
    let group = path.strip_prefix("/apis/").unwrap_or_default();
    let asks = group.starts_with("authorization.k8s.io/")
        || group.starts_with("authentication.k8s.io/")
        || group.starts_with("coordination.k8s.io/")
        || group.starts_with("events.k8s.io/");
    changes && !asks
}

struct FaultLayer {
    shared: Arc<Shared>,
}

impl<S> Layer<S> for FaultLayer {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Faulty { inner, shared: Arc::clone(&self.shared) }
    }
}

struct Faulty<S> {
    inner: S,
    shared: Arc<Shared>,
}

type Answer = Response<Box<DynBody>>;
type Answering = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

impl<S> Service<Request<Body>> for Faulty<S>
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let shared = Arc::clone(&self.shared);
        if *shared.crashed.borrow() {
            return Box::pin(std::future::pending());
        }
        let (number, fault) = shared.begin(&request);
        // Nothing is sent before this is first polled.
        let answer = self.inner.call(request);
        Box::pin(disturbed(shared, number, fault, answer))
    }
}

/// A held request, until it is answered or nobody waits for its answer any more.
struct Held(Arc<Shared>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.answered.send_replace(true);
    }
}

async fn disturbed(
    shared: Arc<Shared>,
    number: u32,
    fault: Option<Fault>,
    answer: impl Future<Output = Result<Answer, BoxError>> + Send,
) -> Result<Answer, BoxError> {
    if fault.is_some() {
        shared.fired.send_replace(true);
    }
    let mut held = None;
    match fault {
        Some(Fault::Fail(status)) => return refusal(status),
        Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
        Some(Fault::DropRequest) => return Err("the connection broke before the request".into()),
        Some(Fault::CrashBefore) => shared.crash().await,
        Some(Fault::Hold) => {
            held = Some(Held(Arc::clone(&shared)));
            shared.held.send_replace(true);
            wait_for(&shared.released).await;
        }
        Some(Fault::DropAnswer | Fault::CutAnswer(_) | Fault::CrashAfter) | None => {}
    }
    if *shared.crashed.borrow() {
        std::future::pending::<()>().await;
    }
    let answer = recorded(&shared, number, answer.await?).await?;
    match fault {
        Some(Fault::Hold) => {
            drop(held);
            Ok(answer)
        }
        Some(Fault::DropAnswer) => Err("the connection broke before the answer".into()),
        Some(Fault::CutAnswer(time)) => Ok(answer.map(|body| cut(body, time))),
        Some(Fault::CrashAfter) => shared.crash().await,
        _ => Ok(answer),
    }
}

/// Reads the answer to a write whole, to know the version that it made; reads and watches stay streams.
async fn recorded(shared: &Shared, number: u32, answer: Answer) -> Result<Answer, BoxError> {
    let status = answer.status();
    if !shared.is_write(number) {
        shared.end(number, status, None);
        return Ok(answer);
    }
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let version = if status.is_success() { version_of(&bytes) } else { None };
    shared.end(number, status, version);
    Ok(Response::from_parts(head, whole(bytes)))
}

/// The body up to this time, and then an error in place of its rest.
fn cut(body: Box<DynBody>, time: Duration) -> Box<DynBody> {
    let start = (BodyStream::new(body), Some(Box::pin(tokio::time::sleep(time))));
    let frames = futures_util::stream::unfold(start, async |(mut frames, end)| {
        let mut end = end?;
        tokio::select! {
            frame = frames.next() => Some((frame?, (frames, Some(end)))),
            () = &mut end => {
                let broken: BoxError = "the connection broke in the middle of the answer".into();
                Some((Err(broken), (frames, None)))
            }
        }
    });
    Box::new(StreamBody::new(Box::pin(frames)))
}

fn version_of(body: &[u8]) -> Option<u64> {
    let object: serde_json::Value = serde_json::from_slice(body).ok()?;
    object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

fn whole(bytes: Bytes) -> Box<DynBody> {
    Box::new(Full::new(bytes).map_err(|never| match never {}))
}

fn refusal(status: StatusCode) -> Result<Answer, BoxError> {
    let body = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason(status),
        "message": format!("the bench answered {status} on purpose"),
        "code": status.as_u16(),
    });
    let answer = Response::builder()
        .status(status)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(whole(Bytes::from(serde_json::to_vec(&body)?)))?;
    Ok(answer)
}

/// The reason by which clients tell refusals apart, as the API server words it.
fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::GONE => "Expired",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "Unknown",
    }
}

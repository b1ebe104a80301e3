//! A proxy in front of Ironic that writes down every request and can make the network, or the caller, fail.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::ironic::Ironic;

/// What is done to a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fault {
    /// It is forwarded this much later.
    Delay(Duration),
    /// This is done to it, so much later.
    Later(Duration, Box<Fault>),
    /// It is neither forwarded nor answered.
    Hang,
    /// The connection breaks before Ironic sees it.
    CutBefore,
    /// Ironic does it, and the answer is lost.
    CutAfter,
    /// It is answered with this status and reason in Ironic's own form, and not forwarded.
    Answer(StatusCode, String),
    /// It is answered with this status and a page for people, as a web server in front does, and not forwarded.
    Page(StatusCode),
}

impl Fault {
    /// The answer to a change of a node that Ironic is at work on.
    pub fn locked(node: &str) -> Self {
        Self::Answer(
            StatusCode::CONFLICT,
            format!(
                "Node {node} is locked by host bench, please retry after the current operation is completed."
            ),
        )
    }

    /// The answer when all of Ironic's workers are busy.
    pub fn busy() -> Self {
        Self::Answer(
            StatusCode::SERVICE_UNAVAILABLE,
            "Requested action cannot be performed due to lack of free conductor workers."
                .to_owned(),
        )
    }
}

/// When the caller of a request crashes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// Before Ironic sees the request.
    Before,
    /// After Ironic has done it, before the answer arrives.
    After,
}

/// A request that went through.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its method.
    pub method: Method,
    /// Its path, with the query.
    pub path: String,
    /// The status that the caller got, `None` while it got none.
    pub status: Option<StatusCode>,
    /// The status that Ironic gave, `None` where it was not asked or has not answered.
    pub upstream: Option<StatusCode>,
    /// Its body, empty while it was not forwarded.
    pub body: Bytes,
    /// Size of the answer's body.
    pub response_bytes: usize,
    /// When it arrived.
    pub at: Instant,
    /// How long until it was answered.
    pub took: Option<Duration>,
    /// What was done to it.
    pub fault: Option<Fault>,
}

impl Recorded {
    /// The power that Ironic is asked for, if it is asked for any.
    pub fn target(&self) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        body["target"]
            .as_str()
            .filter(|_| power_changes(&self.method, &self.path))
            .map(ToOwned::to_owned)
    }
}

type Matches = Box<dyn Fn(&Method, &str) -> bool + Send + Sync>;
type Crash = Box<dyn FnOnce() + Send>;

enum Effect {
    Fault(Fault),
    Crash(Moment, Option<Crash>),
    Hold(Option<Waiting>),
}

/// A request that is held, as the proxy sees it.
struct Waiting {
    arrived: oneshot::Sender<()>,
    released: oneshot::Receiver<()>,
}

/// A request that waits in front of Ironic until this is released or dropped.
pub struct Held {
    arrived: oneshot::Receiver<()>,
    released: oneshot::Sender<()>,
}

impl Held {
    /// Waits until the request is there.
    ///
    /// # Errors
    /// When it has not come within this time, or cannot come any more.
    pub async fn arrives(&mut self, within: Duration) -> anyhow::Result<()> {
        let arrived = tokio::time::timeout(within, &mut self.arrived).await;
        arrived
            .context("the request to be held was never made")?
            .context("nothing is held any more")
    }

    /// Lets it go on to Ironic.
    pub fn release(self) {
        // Its caller may have given it up.
        let _ = self.released.send(());
    }
}

struct Rule {
    matches: Matches,
    /// So many matching requests are let through first.
    spare: usize,
    /// So many are hit after those.
    left: usize,
    effect: Effect,
}

#[derive(Default)]
struct Book {
    requests: Vec<Recorded>,
    rules: Vec<Rule>,
}

struct Shared {
    book: Mutex<Book>,
    connections: AtomicUsize,
    most_connections: AtomicUsize,
    http: reqwest::Client,
    upstream: String,
    own: String,
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running proxy. It ends when it is dropped, and with it every request that still hangs.
pub struct Proxy {
    /// `http://127.0.0.1:<port>`.
    pub endpoint: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("endpoint", &self.endpoint)
            .field("upstream", &self.shared.upstream)
            .finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Starts one. The caller speaks plain HTTP to it, whatever Ironic speaks; a login passes through.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(ironic: &Ironic) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let own = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            book: Mutex::default(),
            connections: AtomicUsize::new(0),
            most_connections: AtomicUsize::new(0),
            http: ironic.http().clone(),
            upstream: ironic.endpoint.clone(),
            own: own.clone(),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { endpoint: own, shared, task })
    }

    /// Does this to the next `times` requests that match. Rules are tried in the order in which they were given.
    pub fn fault(
        &self,
        fault: Fault,
        times: usize,
        matches: impl Fn(&Method, &str) -> bool + Send + Sync + 'static,
    ) {
        self.add(Rule {
            matches: Box::new(matches),
            spare: 0,
            left: times,
            effect: Effect::Fault(fault),
        });
    }

    /// Calls `crash` at the `n`-th request from now on that matches (the first is 1) and breaks its connection: the
    /// caller does not live to see the answer.
    pub fn crash(
        &self,
        n: usize,
        moment: Moment,
        matches: impl Fn(&Method, &str) -> bool + Send + Sync + 'static,
        crash: impl FnOnce() + Send + 'static,
    ) {
        self.add(Rule {
            matches: Box::new(matches),
            spare: n.saturating_sub(1),
            left: 1,
            effect: Effect::Crash(moment, Some(Box::new(crash))),
        });
    }

    /// Holds the next request that matches.
    pub fn hold(&self, matches: impl Fn(&Method, &str) -> bool + Send + Sync + 'static) -> Held {
        let (tell, arrived) = oneshot::channel();
        let (let_go, released) = oneshot::channel();
        self.add(Rule {
            matches: Box::new(matches),
            spare: 0,
            left: 1,
            effect: Effect::Hold(Some(Waiting { arrived: tell, released })),
        });
        Held { arrived, released: let_go }
    }

    /// Forgets all rules, so that the network is well again. Requests that hang go on hanging.
    pub fn heal(&self) {
        self.shared.book().rules.clear();
    }

    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.book().requests.clone()
    }

    /// The first request of a kind, without a copy of all others.
    pub fn first(&self, wanted: impl Fn(&Recorded) -> bool) -> Option<Recorded> {
        self.shared.book().requests.iter().find(|r| wanted(r)).cloned()
    }

    /// How many requests so far match.
    pub fn count(&self, wanted: impl Fn(&Recorded) -> bool) -> usize {
        let book = self.shared.book();
        book.requests.iter().filter(|r| wanted(r)).count()
    }

    /// The power states that Ironic agreed to bring this node to, in order, repetitions left out.
    pub fn powered(&self, node: &str) -> Vec<String> {
        let mut targets = self.agreed(node);
        targets.dedup();
        targets
    }

    /// What Ironic agreed to do to this node's power, in order. What it was asked by somebody who died before the answer
    /// counts too: it may have agreed.
    pub fn agreed(&self, node: &str) -> Vec<String> {
        let path = format!("/v1/nodes/{node}/states/power");
        let book = self.shared.book();
        let agreed = book.requests.iter().filter(|r| {
            r.method == Method::PUT
                && r.path == path
                && r.upstream.map_or(r.fault.is_none(), |status| status.is_success())
        });
        let targets = agreed.filter_map(Recorded::target);
        targets.collect()
    }

    /// The most connections that were open at the same time.
    pub fn most_connections(&self) -> usize {
        self.shared.most_connections.load(Ordering::SeqCst)
    }

    fn add(&self, rule: Rule) {
        self.shared.book().rules.push(rule);
    }
}

/// Everything but reading.
pub fn writes(method: &Method, _path: &str) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Requests for a power change, of whichever node.
pub fn power_changes(method: &Method, path: &str) -> bool {
    *method == Method::PUT && path.ends_with("/states/power")
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Ends with this task, and takes all connections with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let shared = shared.clone();
                let open = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                shared.most_connections.fetch_max(open, Ordering::SeqCst);
                connections.spawn(async move {
                    let served = shared.clone();
                    let service = service_fn(move |request| serve(served.clone(), request));
                    // An error here is a cut connection, ours or the caller's.
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                    shared.connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// What was decided about one request.
enum Verdict {
    Forward,
    Fault(Fault),
    Crash(Moment, Option<Crash>),
    Hold(Waiting),
}

/// Notes the request and finds the rule for it. Every rule counts the requests that match it, also those that another
/// rule hits.
fn judge(book: &mut Book, method: &Method, path: &str) -> (usize, Verdict) {
    let mut verdict = Verdict::Forward;
    for rule in &mut book.rules {
        if rule.left == 0 || !(rule.matches)(method, path) {
            continue;
        }
        if rule.spare > 0 {
            rule.spare -= 1;
        } else if matches!(verdict, Verdict::Forward) {
            rule.left -= 1;
            verdict = match &mut rule.effect {
                Effect::Fault(fault) => Verdict::Fault(fault.clone()),
                Effect::Crash(moment, crash) => Verdict::Crash(*moment, crash.take()),
                Effect::Hold(waiting) => waiting.take().map_or(Verdict::Forward, Verdict::Hold),
            };
        }
    }
    book.requests.push(Recorded {
        method: method.clone(),
        path: path.to_owned(),
        status: None,
        upstream: None,
        body: Bytes::new(),
        response_bytes: 0,
        at: Instant::now(),
        took: None,
        fault: match &verdict {
            Verdict::Fault(fault) => Some(fault.clone()),
            Verdict::Forward | Verdict::Crash(..) | Verdict::Hold(_) => None,
        },
    });
    (book.requests.len() - 1, verdict)
}

async fn serve(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let path = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let (number, verdict) = judge(&mut shared.book(), request.method(), &path);
    let answer = obey(&shared, number, &path, verdict, request).await?;
    let mut book = shared.book();
    let record = &mut book.requests[number];
    record.status = Some(answer.status());
    record.response_bytes = answer.body().len();
    record.took = Some(record.at.elapsed());
    drop(book);
    Ok(answer.map(Full::new))
}

/// An error breaks the connection without an answer.
async fn obey(
    shared: &Shared,
    number: usize,
    path: &str,
    verdict: Verdict,
    request: Request<Incoming>,
) -> anyhow::Result<Response<Bytes>> {
    let forward = |request| forward(shared, number, path, request);
    match verdict {
        Verdict::Forward => forward(request).await,
        Verdict::Fault(Fault::Delay(delay)) => {
            tokio::time::sleep(delay).await;
            forward(request).await
        }
        Verdict::Fault(Fault::Later(delay, fault)) => {
            tokio::time::sleep(delay).await;
            Box::pin(obey(shared, number, path, Verdict::Fault(*fault), request)).await
        }
        Verdict::Fault(Fault::Hang) => std::future::pending().await,
        Verdict::Fault(Fault::CutBefore) => bail!("cut before"),
        Verdict::Fault(Fault::CutAfter) => {
            forward(request).await?;
            bail!("cut after")
        }
        Verdict::Fault(Fault::Answer(status, reason)) => refusal(status, &reason),
        Verdict::Fault(Fault::Page(status)) => page(status),
        Verdict::Crash(moment, crash) => {
            if moment == Moment::After {
                forward(request).await?;
            }
            if let Some(crash) = crash {
                crash();
            }
            bail!("the caller crashed")
        }
        Verdict::Hold(Waiting { arrived, released }) => {
            let _ = arrived.send(());
            // Dropped is released.
            let _ = released.await;
            forward(request).await
        }
    }
}

/// A refusal as Ironic words it: JSON with a string that is JSON again.
fn refusal(status: StatusCode, reason: &str) -> anyhow::Result<Response<Bytes>> {
    let inner = serde_json::json!({
        "faultcode": if status.is_server_error() { "Server" } else { "Client" },
        "faultstring": reason,
        "debuginfo": null,
    });
    let outer = serde_json::json!({ "error_message": inner.to_string() });
    Ok(Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(Bytes::from(outer.to_string()))?)
}

fn page(status: StatusCode) -> anyhow::Result<Response<Bytes>> {
    let text = format!(
        "<html>\r\n<head><title>{status}</title></head>\r\n<body><h1>{status}</h1></body>\r\n</html>\r\n"
    );
    Ok(Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "text/html")
        .body(Bytes::from(text))?)
}

async fn forward(
    shared: &Shared,
    number: usize,
    path: &str,
    request: Request<Incoming>,
) -> anyhow::Result<Response<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    shared.book().requests[number].body = body.clone();
    let mut headers = head.headers;
    for hop in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(hop);
    }
    let answer = shared
        .http
        .request(head.method, format!("{}{path}", shared.upstream))
        .headers(headers)
        .body(body)
        .send()
        .await
        .with_context(|| anyhow!("Ironic does not answer"))?;
    shared.book().requests[number].upstream = Some(answer.status());
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
            response = response.header(name, value);
        }
    }
    let body = answer.bytes().await?;
    // Ironic's links (the next page above all) are absolute: they must lead through here again.
    let body = match std::str::from_utf8(&body) {
        Ok(text) if text.contains(&shared.upstream) => {
            Bytes::from(text.replace(&shared.upstream, &shared.own))
        }
        _ => body,
    };
    Ok(response.body(body)?)
}

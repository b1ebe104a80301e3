//! Metrics under the names that controller-runtime made known, so that ready-made dashboards work.
//!
//! There is no `workqueue_*`: the engine counts what waits by its reason, and how late a look begins where that is promised.

use std::task::{Context, Poll};

use axum::http::{Request, Response};
use futures_util::future::BoxFuture;
use kube::client::{Body, DynBody};
use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use tower::BoxError;

use crate::connection::Connections;

const SECONDS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0];

/// The process' metrics; clones share them. A controller registers its own in [`Metrics::registry`].
#[derive(Clone)]
pub struct Metrics {
    /// Everything that `/metrics` shows.
    pub registry: Registry,
    pub(crate) reconciles: IntCounterVec,
    pub(crate) errors: IntCounter,
    pub(crate) timeouts: IntCounter,
    pub(crate) seconds: Histogram,
    pub(crate) active: IntGauge,
    pub(crate) most_active: IntGauge,
    pub(crate) master: IntGaugeVec,
    pub(crate) undecodable: IntGaugeVec,
    ready: IntGauge,
    requests: IntCounterVec,
}

impl Metrics {
    /// Metrics of one process, with all series of `controller` present from the start: a rate over
    /// a series that appears late misses its first step.
    pub fn new(controller: &str) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let own = |name: &str, help: &str| {
            let name = format!("controller_runtime_{name}");
            Opts::new(name, help).const_label("controller", controller)
        };
        let counters =
            |opts: Opts, labels: &[&str]| register(&registry, IntCounterVec::new(opts, labels)?);
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        let counter = |opts: Opts| register(&registry, IntCounter::with_opts(opts)?);
        let gauge = |opts: Opts| register(&registry, IntGauge::with_opts(opts)?);
        let seconds = HistogramOpts::from(own("reconcile_time_seconds", "Time of a reconcile"));
        let timeouts = "Reconciles that were given up at their deadline";
        let leads = "1 while this process holds the lease";
        let undecodable = "Objects that are left out because they cannot be decoded";
        let ready = "1 while `/readyz` says that this process is ready";
        let requests = "Requests to the API server by answer; code is <error> when there was none";
        let requests = Opts::new("rest_client_requests_total", requests);
        let most_active = own("max_concurrent_reconciles", "Most reconciles at the same time");
        let metrics = Self {
            reconciles: counters(own("reconcile_total", "Reconciles by result"), &["result"])?,
            errors: counter(own("reconcile_errors_total", "Reconciles that failed"))?,
            timeouts: counter(own("reconcile_timeouts_total", timeouts))?,
            seconds: register(&registry, Histogram::with_opts(seconds.buckets(SECONDS.to_vec()))?)?,
            active: gauge(own("active_workers", "Reconciles under way"))?,
            most_active: gauge(most_active)?,
            master: gauges("leader_election_master_status", leads, &["name"])?,
            undecodable: gauges("ferrite_undecodable_objects", undecodable, &["kind"])?,
            ready: gauge(Opts::new("ferrite_ready", ready))?,
            requests: counters(requests, &["code", "method"])?,
            registry: registry.clone(),
        };
        for result in ["success", "requeue_after", "error"] {
            metrics.reconciles.with_label_values(&[result]);
        }
        let help = "Always 1; the labels say what was built";
        let build = gauges("ferrite_build_info", help, &["version", "revision"])?;
        let revision = option_env!("FERRITE_REVISION").unwrap_or("unknown");
        build.with_label_values(&[env!("CARGO_PKG_VERSION"), revision]).set(1);
        registry.register(Box::new(ProcessCollector::for_self()))?;
        Ok(metrics)
    }

    /// All metrics as Prometheus reads them, of a process that is ready or not.
    pub fn render(&self, is_ready: bool) -> Result<Vec<u8>, prometheus::Error> {
        self.ready.set(i64::from(is_ready));
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }

    /// Metrics that do not show before something happens, as they have no series until then: for the reference.
    pub fn described(&self) -> Vec<Desc> {
        let all = [self.master.desc(), self.undecodable.desc(), self.requests.desc()];
        all.into_iter().flatten().cloned().collect()
    }
}

/// Registers a metric and gives it back, to be counted with.
///
/// # Errors
/// When the registry has one of its name.
pub fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Gauges that are set when somebody asks, so that what is gone vanishes from them.
pub struct SetWhenAsked<C, F> {
    /// The gauges.
    pub gauges: Vec<C>,
    /// Sets them.
    pub set: F,
}

impl<C: Collector, F: Fn(&[C]) + Send + Sync> Collector for SetWhenAsked<C, F> {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.set)(&self.gauges);
        self.gauges.iter().flat_map(Collector::collect).collect()
    }
}

/// Counts the requests that go through a client.
impl tower::Layer<Connections> for Metrics {
    type Service = Counted;

    fn layer(&self, inner: Connections) -> Counted {
        Counted { inner, requests: self.requests.clone() }
    }
}

/// A client's service whose requests are counted.
pub struct Counted {
    inner: Connections,
    requests: IntCounterVec,
}

impl tower::Service<Request<Body>> for Counted {
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        let requests = self.requests.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map(Response::status);
            let code = code.as_ref().map_or("<error>", |code| code.as_str());
            requests.with_label_values(&[code, method.as_str()]).inc();
            answer
        })
    }
}

//! Probes and metrics. Nothing here asks the API server: one that hangs must not hang a probe.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use crate::readiness::Readiness;

/// Loops that must keep turning, each with the time of its last turn.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<Mutex<BTreeMap<&'static str, (Instant, Duration)>>>);

impl Liveness {
    /// The loop turned; it counts as stuck when it does not turn again within `patience`.
    pub fn beat(&self, name: &'static str, patience: Duration) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, (Instant::now(), patience));
    }

    /// The loop ended as it should.
    pub fn done(&self, name: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// The loops that are stuck, one line each.
    pub fn stuck(&self, now: Instant) -> Vec<String> {
        let loops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let late = |(name, (beat, patience)): (&&str, &(Instant, Duration))| {
            let silent = now.saturating_duration_since(*beat);
            (silent > *patience)
                .then(|| format!("[-]{name} failed: stuck for {} s", silent.as_secs()))
        };
        loops.iter().filter_map(late).collect()
    }
}

/// What the endpoints show.
#[derive(Clone)]
pub struct Shown {
    /// `/livez` and `/healthz`.
    pub liveness: Liveness,
    /// `/readyz`.
    pub readiness: Readiness,
    /// `/metrics`.
    pub metrics: Metrics,
}

/// Takes the address before anything else starts, so that a port in use is the first thing said.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("Cannot listen on {address}: {error}; choose another address with --listen (FERRITE_LISTEN)"))
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, shown: Shown) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(shown);
    axum::serve(listener, router).await
}

async fn live(State(shown): State<Shown>) -> (StatusCode, String) {
    let stuck = shown.liveness.stuck(Instant::now());
    if stuck.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, stuck.join("\n") + "\n")
    }
}

async fn ready(State(shown): State<Shown>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let verbose = query.is_some_and(|query| {
        query.split('&').any(|word| word == "verbose" || word.starts_with("verbose="))
    });
    let mut text = shown.readiness.describe(verbose);
    if shown.readiness.is_ready() {
        text.push_str("ok\n");
        (StatusCode::OK, text)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

async fn metrics(State(shown): State<Shown>) -> axum::response::Response {
    match shown.metrics.render(shown.readiness.is_ready()) {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

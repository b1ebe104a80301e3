//! Probes and metrics. Nothing here asks the API server: one that hangs must not hang a probe.

use std::net::SocketAddr;
use std::time::Instant;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::kit::Kit;

/// Takes the address before anything else starts, so that a port in use is the first thing said.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("Cannot listen on {address}: {error}; choose another address with --listen (FERRITE_LISTEN)"))
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, kit: Kit) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(kit);
    axum::serve(listener, router).await
}

async fn live(State(kit): State<Kit>) -> (StatusCode, String) {
    let stuck = kit.liveness.stuck(Instant::now());
    if stuck.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, stuck.join("\n") + "\n")
    }
}

async fn ready(State(kit): State<Kit>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let verbose = query.is_some_and(|query| {
        query.split('&').any(|word| word == "verbose" || word.starts_with("verbose="))
    });
    let mut text = kit.readiness.describe(verbose);
    if kit.readiness.is_ready() {
        text.push_str("ok\n");
        (StatusCode::OK, text)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

async fn metrics(State(kit): State<Kit>) -> axum::response::Response {
    if kit.config.leader_elect {
        let leads = kit.metrics.master.with_label_values(&[&kit.config.lease_name]);
        leads.set(i64::from(kit.leadership.is_held()));
    }
    match kit.metrics.render(kit.readiness.is_ready()) {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

//! What the API server itself takes: bare requests, as many at a time as are asked for. A controller's speed is told as
//! a share of this, measured in the same run, because machines differ and drift.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::{Deserialize, Serialize};

/// One measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Rate {
    /// What was done: `POST` or `PATCH`.
    pub verb: String,
    /// Size of one object in bytes.
    pub bytes: usize,
    /// Requests under way at a time.
    pub concurrency: usize,
    /// Requests answered.
    pub requests: u64,
    /// Answers per second.
    pub per_second: f64,
    /// Time that half of the requests took at most, in milliseconds.
    pub p50_ms: f64,
    /// Time that 99 of 100 requests took at most, in milliseconds.
    pub p99_ms: f64,
}

/// Makes `requests` new `ConfigMap`s of about `bytes` in a namespace, `concurrency` at a time.
///
/// # Errors
/// When the API server refuses one: a rate with refusals in it would say nothing.
pub async fn posts(
    client: &kube::Client,
    namespace: &str,
    bytes: usize,
    concurrency: usize,
    requests: u64,
) -> anyhow::Result<Rate> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let prefix = format!("load-{concurrency}");
    measure("POST", bytes, concurrency, requests, move |n| {
        let api = api.clone();
        let object = object(&format!("{prefix}-{n}"), bytes, 0);
        async move { api.create(&PostParams::default(), &object).await.map(drop) }
    })
    .await
}

/// Patches the `ConfigMap`s that [`posts`] made with the same concurrency, one after the other.
///
/// # Errors
/// When the API server refuses one.
pub async fn patches(
    client: &kube::Client,
    namespace: &str,
    bytes: usize,
    concurrency: usize,
    requests: u64,
) -> anyhow::Result<Rate> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let prefix = format!("load-{concurrency}");
    measure("PATCH", bytes, concurrency, requests, move |n| {
        let api = api.clone();
        let name = format!("{prefix}-{n}");
        async move {
            let patch = serde_json::json!({"metadata": {"annotations": {"ferrite.test/turn": n.to_string()}}});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        }
    })
    .await
}

fn object(name: &str, bytes: usize, turn: u64) -> ConfigMap {
    ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        data: Some(
            [("filling".to_owned(), "x".repeat(bytes)), ("turn".to_owned(), turn.to_string())]
                .into(),
        ),
        ..Default::default()
    }
}

async fn measure<F>(
    verb: &'static str,
    bytes: usize,
    concurrency: usize,
    requests: u64,
    request: impl Fn(u64) -> F + Clone + Send + Sync + 'static,
) -> anyhow::Result<Rate>
where
    F: Future<Output = Result<(), kube::Error>> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let workers: Vec<_> = (0..concurrency)
        .map(|_| {
            let (next, request) = (next.clone(), request.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= requests {
                        return Ok::<_, kube::Error>(took);
                    }
                    let sent = Instant::now();
                    request(n).await?;
                    took.push(sent.elapsed());
                }
            })
        })
        .collect();
    let mut took = Vec::new();
    for worker in workers {
        took.extend(
            worker.await?.with_context(|| format!("the API server refused a bare {verb}"))?,
        );
    }
    let elapsed = started.elapsed();
    took.sort_unstable();
    Ok(Rate {
        verb: verb.to_owned(),
        bytes,
        concurrency,
        requests,
        per_second: requests as f64 / elapsed.as_secs_f64(),
        p50_ms: millis(quantile(&took, 50)),
        p99_ms: millis(quantile(&took, 99)),
    })
}

/// The time that `percent` of the requests stayed within; the list is sorted.
pub fn quantile(took: &[Duration], percent: usize) -> Duration {
    let rank = (took.len() * percent).div_ceil(100).saturating_sub(1);
    took.get(rank).copied().unwrap_or_default()
}

/// In milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_ranks_of_the_sorted_times() {
        let took: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(quantile(&took, 50), Duration::from_millis(100));
        assert_eq!(quantile(&took, 99), Duration::from_millis(198));
        assert_eq!(quantile(&took[..1], 99), Duration::from_millis(1));
        assert_eq!(quantile(&[], 99), Duration::ZERO);
    }
}

//! `cargo xtask bench`: what the API server takes by itself, as the measure of everything else in the same run.

use std::path::Path;

use anyhow::Context;
use bench::control_plane::ControlPlane;
use bench::load::{self, Rate};
use bench::steps::{step, step_async};

/// A small custom object, and a BareMetalHost with its hardware details.
const SIZES: &[usize] = &[2_500, 15_000];
const CONCURRENCIES: &[usize] = &[1, 8, 32];
const REQUESTS: u64 = 1_000;

/// Measures, prints a table, and writes the figures as JSON where asked to.
///
/// # Errors
/// When the bench cannot be started or the API server refuses a request.
pub(crate) fn run(json: Option<&Path>) -> anyhow::Result<()> {
    step("the programs", || {
        bench::go::program("etcd")?;
        bench::go::program("kube-apiserver").map(drop)
    })?;
    let rates = tokio::runtime::Runtime::new()?.block_on(measure())?;
    println!(
        "{:<6} {:>8} {:>12} {:>12} {:>9} {:>9}",
        "verb", "bytes", "concurrency", "per second", "p50 ms", "p99 ms"
    );
    for rate in &rates {
        println!(
            "{:<6} {:>8} {:>12} {:>12.0} {:>9.1} {:>9.1}",
            rate.verb, rate.bytes, rate.concurrency, rate.per_second, rate.p50_ms, rate.p99_ms
        );
    }
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "api_server": rates }))?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

async fn measure() -> anyhow::Result<Vec<Rate>> {
    let plane = step_async("an API server of its own", ControlPlane::start("load")).await?;
    let client = plane.admin().await;
    let mut rates = Vec::new();
    for &bytes in SIZES {
        let namespace = plane.namespace("load").await;
        for &concurrency in CONCURRENCIES {
            let what =
                format!("{REQUESTS} POST and PATCH of {bytes} bytes, {concurrency} at a time");
            step_async(&what, async {
                rates.push(load::posts(&client, &namespace, bytes, concurrency, REQUESTS).await?);
                rates.push(load::patches(&client, &namespace, bytes, concurrency, REQUESTS).await?);
                Ok(())
            })
            .await?;
        }
    }
    Ok(rates)
}

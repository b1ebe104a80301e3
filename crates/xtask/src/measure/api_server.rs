//! What the API server takes when nobody thinks about the answers.

use bench::load;
use bench::steps::step_async;

use super::Ground;
use super::row::Report;

/// A small custom object, and a BareMetalHost with its hardware details.
const SIZES: &[usize] = &[2_500, 15_000];
const CONCURRENCIES: &[usize] = &[1, 8, 32];
const REQUESTS: u64 = 1_000;

/// Bare POST and PATCH requests of several sizes, several at a time.
pub(super) async fn measure(ground: &Ground, report: &mut Report) -> anyhow::Result<()> {
    let client = &ground.admin;
    for &bytes in SIZES {
        let namespace = ground.plane.namespace("load").await;
        for &concurrency in CONCURRENCIES {
            let what =
                format!("{REQUESTS} POST and PATCH of {bytes} bytes, {concurrency} at a time");
            step_async(&what, async {
                let made = load::posts(client, &namespace, bytes, concurrency, REQUESTS).await?;
                report.api_server.push(made);
                let patched = load::patches(client, &namespace, bytes, concurrency, REQUESTS);
                report.api_server.push(patched.await?);
                report.save()
            })
            .await?;
        }
    }
    Ok(())
}

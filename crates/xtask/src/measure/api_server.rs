//! What the API server takes when nobody thinks about the answers.

use bench::load::{self, Rate};
use bench::steps::step_async;

use super::Ground;

/// A small custom object, and a BareMetalHost with its hardware details.
const SIZES: &[usize] = &[2_500, 15_000];
const CONCURRENCIES: &[usize] = &[1, 8, 32];
const REQUESTS: u64 = 1_000;

/// Bare POST and PATCH requests of several sizes, several at a time.
pub(super) async fn measure(ground: &Ground) -> anyhow::Result<Vec<Rate>> {
    let client = &ground.admin;
    let mut rates = Vec::new();
    for &bytes in SIZES {
        let namespace = ground.plane.namespace("load").await;
        for &concurrency in CONCURRENCIES {
            let what =
                format!("{REQUESTS} POST and PATCH of {bytes} bytes, {concurrency} at a time");
            step_async(&what, async {
                rates.push(load::posts(client, &namespace, bytes, concurrency, REQUESTS).await?);
                rates.push(load::patches(client, &namespace, bytes, concurrency, REQUESTS).await?);
                Ok(())
            })
            .await?;
        }
    }
    Ok(rates)
}

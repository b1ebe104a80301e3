//! How little the smallest controller takes, as far as a test can say so without a clock and without minutes of
//! compiling: what it allocates. `cargo xtask bench` builds it as it is shipped and holds its size, its whole memory and
//! its time to readiness to their limits.

use bench::control_plane::shared;
use bench::controller::{Account, Running};

use crate::kit_trial::example;

/// What the program allocates, which is the same however it was compiled: the rest of its memory is its own text.
const LIMIT_KILOBYTES: u64 = 6_000;

#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_controller_allocates_less_than_its_limit() {
    let plane = shared().await;
    let namespace = plane.namespace("small").await;
    let account = Account::of_admin(plane, &namespace).unwrap();
    let program = example("minimal");
    let told = vec![("FERRITE_NAMESPACES", namespace.clone())];
    let running = Running::start(&namespace, &program, &account, &told).await.unwrap();
    let taken = running.kilobytes("RssAnon").unwrap();
    println!("{taken} kB allocated");
    assert!(taken > 0 && taken < LIMIT_KILOBYTES, "{taken} kB, at most {LIMIT_KILOBYTES}");
}

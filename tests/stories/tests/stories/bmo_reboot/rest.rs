//! What a cycle and a rest cost.

use std::time::{Duration, Instant};

use bench::proxy::{Proxy, writes};
use serde_json::json;

use super::{HARD, PLAIN, Site, machine, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_is_five_writes_to_the_host_and_two_calls_and_rest_is_one_list_of_ironic_a_poll() {
    let site = Site::new("costs").await;
    let (ironic, _, node) = machine("costs").await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    let mut policy = quick();
    policy.poll_interval = Duration::from_secs(2);
    // A call that takes as long as a slice is written down.
    policy.soft_slice = Duration::from_secs(30);
    policy.soft_timeout = policy.soft_slice * 3;
    let running = site.start(&proxy.endpoint, policy);
    site.wait("h", "looked at", |host| !super::condition(host, "PowerManaged").0.is_empty()).await;
    let to_hosts = || {
        let calls = running.handle.calls();
        calls.iter().filter(|it| it.write.is_some() && it.path.contains("baremetalhosts")).count()
    };
    let to_ironic = || proxy.count(|it| writes(&it.method, &it.path));
    for mode in [HARD, ""] {
        let before = (to_hosts(), to_ironic());
        site.annotate("h", json!({ PLAIN: mode })).await;
        site.cycled("h").await;
        assert_eq!(to_hosts() - before.0, 5, "{mode:?}: {:#?}", running.handle.calls());
        assert_eq!(to_ironic() - before.1, 2, "{mode:?}: {:#?}", proxy.requests());
    }

    let lists = || proxy.count(|it| it.path.starts_with("/v1/nodes?"));
    let polled = async |more: usize| {
        let (wanted, deadline) = (lists() + more, Instant::now() + super::PATIENCE);
        while lists() < wanted {
            assert!(Instant::now() < deadline, "no poll");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    polled(1).await;
    let (kubernetes, ironics, polls) = (running.handle.requests(), proxy.requests().len(), lists());
    polled(3).await;
    assert_eq!(running.handle.requests(), kubernetes, "{:#?}", running.handle.calls());
    let polls = lists() - polls;
    assert!(proxy.requests().len() - ironics <= polls, "{:#?}", proxy.requests());
}

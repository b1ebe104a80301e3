//! What the watches of one kind make of their lists.

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::*;
use crate::config::{Settings, defaults};
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// A watch for each of these namespaces. Nothing is asked of anybody.
fn feed(namespaces: &[&str]) -> Feed<Pod> {
    let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let client = Client::try_from(nowhere).unwrap();
    let settings = Settings { controller: "some", leader_elect: false, ..defaults() };
    let metrics = Metrics::new("some").unwrap();
    let kit = Kit::new(settings, client.clone(), metrics, Shutdown::default());
    let of = |name: &&str| (Some((*name).to_owned()), Api::namespaced(client.clone(), name));
    begin(&kit, namespaces.iter().map(of).collect(), &watcher::Config::default(), ()).0
}

fn pod(namespace: &str, name: &str) -> Guarded<Pod> {
    let spec = if name == "broken" { json!(5) } else { json!({ "containers": [] }) };
    let metadata = json!({ "namespace": namespace, "name": name, "resourceVersion": "1" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

#[tokio::test]
async fn what_a_new_list_of_a_namespace_does_not_show_is_gone_and_nothing_of_another() {
    let mut feed = feed(&["a", "b"]);
    let mut list = |index: usize, namespace: &str, names: &[&str]| -> Vec<String> {
        let shown = names.iter().map(|name| watcher::Event::InitApply(pod(namespace, name)));
        let events = std::iter::once(watcher::Event::Init).chain(shown);
        let events = events.chain([watcher::Event::InitDone]);
        let changed = events.flat_map(|event| feed.apply(index, Ok(event)));
        changed.map(|it| it.name_any()).collect()
    };
    assert_eq!(list(0, "a", &["x", "broken"]), ["x"]);
    assert_eq!(list(1, "b", &["x", "y", "broken"]), ["x", "y"]);
    assert_eq!(list(0, "a", &["x", "broken"]), [""; 0], "it shows what is known");
    assert_eq!(list(0, "a", &[]), ["x"]);
    assert_eq!(list(1, "b", &["y", "broken"]), ["x"]);
    let left = feed.store.state();
    assert_eq!(left.iter().map(|it| it.name_any()).collect::<Vec<_>>(), ["y"]);
    let broken = feed.undecodable.all();
    let broken = broken.iter().map(|it| it.metadata.namespace.as_deref());
    assert_eq!(broken.collect::<Vec<_>>(), [Some("b")]);
}

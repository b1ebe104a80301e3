//! How many requests an answer takes, of a real API server that has the older contracts alone.

use bench::bmo;
use bench::control_plane::shared;
use bench::crds::{self, Group};
use bench::faults::{self, Plan};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::*;

const OLDER: ContractVersion = ContractVersion::V1Beta1;

/// Machines of any shape, and CAPM3's kinds.
async fn install(client: &kube::Client) {
    let any = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let machines = json!({
        "metadata": {"name": "machines.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "Machine", "listKind": "MachineList", "plural": "machines", "singular": "machine"},
            "versions": [{"name": OLDER.as_str(), "served": true, "storage": true, "schema": any}],
        },
    });
    let mut kinds = crds::described(Group::Capm3).unwrap();
    for version in kinds.iter_mut().flat_map(|it| &mut it.spec.versions) {
        (version.served, version.storage) =
            (version.name == OLDER.as_str(), version.name == OLDER.as_str());
    }
    kinds.push(serde_json::from_value(machines).unwrap());
    crds::create(client, &kinds).await.unwrap();
    crds::install(client, &[Group::Metal3]).await.unwrap();
}

async fn make(client: &kube::Client, namespace: &str, resource: &ApiResource, more: &Value) {
    let mut object = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": "m", "labels": {"cluster.x-k8s.io/deployment-name": "md"}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_waits_for_a_host_takes_fewer_than_ten_requests() {
    let plane = shared().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("older").await);
    install(&client).await;
    let unhealthy = json!({"type": "HealthCheckSucceeded", "status": "False"});
    let image = json!({"url": "http://i/i", "checksum": "http://i/c"});
    for (resource, more) in [
        (
            ApiResource::erase::<Machine>(&OLDER),
            json!({
                "spec": {"infrastructureRef": {"kind": "Metal3Machine", "name": "m"}},
                "status": {"conditions": [unhealthy]},
            }),
        ),
        (ApiResource::erase::<Metal3Machine>(&OLDER), json!({"spec": {"image": image}})),
        (ApiResource::erase::<UpstreamRemediation>(&OLDER), json!({})),
    ] {
        make(&client, &namespace, &resource, &more).await;
    }
    bmo::make_host(&client, &namespace, "h", "nobody", &json!({})).await.unwrap();
    let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment", "name": "md"});
    let pending = json!({"ferrite.metal3.io/pending-reservation": owner.to_string()});
    let change = Patch::Merge(json!({"metadata": {"annotations": pending}}));
    bmo::api(&client, &namespace).patch("h", &PatchParams::default(), &change).await.unwrap();
    let config = plane.config("admin", &["system:masters"]).await.unwrap();
    let admin = client;
    let (client, plugin) = faults::client(config, Plan::none("plugin")).unwrap();
    let asking = Asking::of(client);
    let seen = observe(&asking, Kind::Machine, &namespace, "m").await.unwrap();
    assert!(seen.request.here().is_some() && seen.host.here().is_some(), "{seen:#?}");
    assert_eq!(plugin.requests(), 8, "{:#?}", plugin.calls());
    // Beyond the first page it is found by its metadata.
    for name in ["a", "g", "z"] {
        bmo::make_host(&admin, &namespace, name, "nobody", &json!({})).await.unwrap();
    }
    let before = plugin.requests();
    let pages = Pages { hosts: 2, sketches: 2, ..PAGES };
    let machine = (namespace.as_str(), "m");
    let seen = read(&asking, Kind::Machine, machine, pages).await.unwrap();
    assert_eq!(
        seen.host.here().map(kube::ResourceExt::name_any).as_deref(),
        Some("h"),
        "{seen:#?}"
    );
    assert_eq!(plugin.requests() - before, 9, "{:#?}", plugin.calls());
    let gives_back =
        json!({"metadata": {"annotations": {"ferrite.metal3.io/pending-reservation": null}}});
    bmo::api(&admin, &namespace)
        .patch("h", &PatchParams::default(), &Patch::Merge(gives_back))
        .await
        .unwrap();
    let seen = read(&asking, Kind::Machine, machine, pages).await.unwrap();
    assert_eq!((seen.beyond, seen.is_searched), (2, true), "{seen:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claims_of_a_pool_are_counted_on_all_pages() {
    let plane = shared().await;
    let (client, namespace) = (plane.admin().await, plane.namespace("claims").await);
    crds::install(&client, &[Group::Hive]).await.unwrap();
    let pool = json!({"baseDomain": "x", "imageSetRef": {"name": "x"}, "platform": {}, "size": 0});
    make(&client, &namespace, &ApiResource::erase::<ClusterPool>(&()), &json!({"spec": pool}))
        .await;
    for number in 0..5 {
        let pool = if number == 1 { "other" } else { "m" };
        let name = format!("claim-{number}");
        let claim = json!({"metadata": {"name": name}, "spec": {"clusterPoolName": pool}});
        make(&client, &namespace, &ApiResource::erase::<ClusterClaim>(&()), &claim).await;
    }
    let config = plane.config("admin", &["system:masters"]).await.unwrap();
    let (client, plugin) = faults::client(config, Plan::none("plugin")).unwrap();
    let pages = Pages { claims: 2, ..PAGES };
    let (asking, pool) = (Asking::of(client), (namespace.as_str(), "m"));
    let seen = read(&asking, Kind::ClusterPool, pool, pages).await.unwrap();
    assert_eq!(seen.claims.here().map(Vec::len), Some(4), "{seen:#?}");
    assert_eq!(plugin.requests(), 4, "{:#?}", plugin.calls());
}

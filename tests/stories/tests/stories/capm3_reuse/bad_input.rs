//! What is wrong is told with what to change, and the neighbours are served.

use std::time::{Duration, Instant};

use bench::bmo;
use bench::cluster_api::PATIENCE;
use bench::cluster_api::objects::{Kind, METAL3_MACHINE};
use capm3_reuse::settings::Policy;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::ground::{plane, start};
use super::scene::{Scene, condition, consumer, host_of, state};

const WEBHOOKS: Kind =
    Kind { api_version: "admissionregistration.k8s.io/v1", kind: "ValidatingWebhookConfiguration" };

#[tokio::test]
async fn each_mistake_has_a_condition_that_says_what_to_change_and_a_neighbour_comes_up() {
    let scene = Scene::with_deployment(plane().await, "wrong", &["h1", "h2"], false).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    let wrong = [
        (
            "selector",
            json!({"hostSelector": {"matchExpressions": [{"key": "rack", "operator": "Near", "values": ["a"]}]}}),
            "SelectorInvalid",
            "use In, NotIn, Exists or DoesNotExist",
        ),
        (
            "image",
            json!({"image": {"url": "http://127.0.0.1/i"}}),
            "ImageInvalid",
            "spec.image.checksum is missing",
        ),
        (
            "secret",
            json!({"networkData": {"name": "n", "namespace": "kube-system"}}),
            "ForeignNamespace",
            "spec.networkData.namespace",
        ),
        (
            "data",
            json!({"dataTemplate": {"name": "misspelt"}}),
            "DataTemplateMissing",
            "Metal3DataTemplate misspelt, which spec.dataTemplate names",
        ),
    ];
    for (name, more, _, _) in &wrong {
        scene.machine_with(name, "md", "t", more.clone()).await;
    }
    scene.machine("right", "md", "t").await;
    for (name, _, reason, told) in &wrong {
        let machine = scene.says(name, reason).await;
        let message = condition(&machine, "Ready").unwrap()["message"].clone();
        assert!(message.as_str().unwrap().contains(told), "{message}");
    }
    let host = scene.up("right").await;
    // Corrected, it is served like the others.
    let patch = json!({"spec": {"networkData": null}});
    scene.patch(METAL3_MACHINE, "secret", patch).await;
    assert_ne!(scene.up("secret").await, host);
}

#[tokio::test]
async fn a_host_annotation_that_names_an_absent_or_foreign_host_is_replaced_by_a_choice() {
    let scene = Scene::with_deployment(plane().await, "named", &["h1"], false).await;
    let (running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    assert_eq!(scene.up("m1").await, "h1");
    drop(running);
    scene.hosts(&["h2", "h3"]).await;
    let machines = METAL3_MACHINE.api(&scene.client, &scene.namespace);
    for (name, named) in [("absent", "nowhere"), ("foreign", "h1")] {
        scene.machine(name, "md", "t").await;
        let value = format!("{}/{named}", scene.namespace);
        let patch = json!({"metadata": {"annotations": {"metal3.io/BareMetalHost": value}}});
        machines.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    let mut hosts = [scene.up("absent").await, scene.up("foreign").await];
    hosts.sort();
    assert_eq!(hosts, ["h2", "h3"]);
    assert_eq!(scene.consumer("h1").await, "Metal3Machine/m1");
}

#[tokio::test]
async fn a_host_annotation_that_is_edited_neither_gives_a_machine_a_second_host_nor_leaks_its_first()
 {
    let scene = Scene::with_deployment(plane().await, "edited", &["h1"], false).await;
    let (running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    assert_eq!(scene.up("m1").await, "h1");
    scene.hosts(&["h2"]).await;
    let edit = json!({"metadata": {"annotations": {"metal3.io/BareMetalHost": format!("{}/h2", scene.namespace)}}});
    scene.patch(METAL3_MACHINE, "m1", edit.clone()).await;
    scene.until("m1", "names its host again", |it| host_of(it) == "h1").await;
    assert_eq!(scene.consumer("h2").await, "");
    // Edited while nobody looks, and deleted at once: its own host is given back.
    drop(running);
    scene.patch(METAL3_MACHINE, "m1", edit).await;
    scene.delete(METAL3_MACHINE, "m1").await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.gone(METAL3_MACHINE, "m1").await;
    let freed = scene.get_host("h1").await;
    assert_eq!((consumer(&freed), state(&freed)), (String::new(), "available"));
    assert!(freed.data["spec"]["image"].is_null());
}

#[tokio::test]
async fn a_host_that_lost_its_status_is_given_back_only_after_its_operator_has_looked_at_it() {
    let scene = Scene::with_deployment(plane().await, "restored", &["h"], false).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m", "md", "t").await;
    assert_eq!(scene.up("m").await, "h");
    // As after a restore from a backup: the image still runs, and the operator registers the host anew.
    scene.operator().keep(&scene.namespace, "h");
    scene.patch_host_status("h", json!({"status": null})).await;
    scene.delete(METAL3_MACHINE, "m").await;
    scene.host_is("h", "told to forget", |it| it.data["spec"]["image"].is_null()).await;
    let in_state = |state: &str| {
        json!({"status": {
            "errorCount": 0,
            "errorMessage": "",
            "operationalStatus": "OK",
            "poweredOn": true,
            "provisioning": {"ID": "", "state": state},
        }})
    };
    for (number, state) in ["", "registering", "deprovisioning"].into_iter().enumerate() {
        scene.patch_host_status("h", in_state(state)).await;
        // By the time that another machine is up it would have been given back.
        let beside = format!("beside-{number}");
        scene.host(&beside, json!({})).await;
        scene.machine(&beside, "md", "t").await;
        assert_eq!(scene.up(&beside).await, beside);
        assert_eq!(scene.consumer("h").await, "Metal3Machine/m", "{state:?}");
    }
    scene.operator().go_on(&scene.namespace, "h").await.unwrap();
    scene.gone(METAL3_MACHINE, "m").await;
    assert_eq!(scene.consumer("h").await, "");
}

#[tokio::test]
async fn a_webhook_of_hosts_that_is_not_there_is_told_on_the_machine_and_the_claim_is_made_without_it()
 {
    let scene = Scene::with_deployment(plane().await, "unasked", &["h1"], false).await;
    let name = format!("{}.unasked", scene.namespace);
    let rule = json!({
        "apiGroups": ["metal3.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
        "resources": ["baremetalhosts"],
    });
    let webhook = json!({
        "apiVersion": WEBHOOKS.api_version,
        "kind": WEBHOOKS.kind,
        "metadata": {"name": name},
        "webhooks": [{
            "name": "hosts.unasked.example",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}},
            "rules": [rule],
            "sideEffects": "None",
        }],
    });
    let webhook: DynamicObject = serde_json::from_value(webhook).unwrap();
    let webhooks: Api<DynamicObject> = Api::all_with(scene.client.clone(), &WEBHOOKS.resource());
    webhooks.create(&PostParams::default(), &webhook).await.unwrap();
    // The API server knows of it after a moment.
    let (hosts, deadline) = (bmo::api(&scene.client, &scene.namespace), Instant::now() + PATIENCE);
    let tries = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"tried": ""}}}));
    while hosts.patch("h1", &tries, &patch).await.is_ok() {
        assert!(Instant::now() < deadline, "the webhook is never asked");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    let told = scene.says("m1", "Refused").await;
    for kind in ["Ready", "AssociateBareMetalHost"] {
        let message = condition(&told, kind).unwrap()["message"].clone();
        assert!(message.as_str().unwrap().contains("failed calling webhook"), "{message}");
    }
    assert_eq!(scene.consumer("h1").await, "");
    webhooks.delete(&name, &DeleteParams::default()).await.unwrap();
    assert_eq!(scene.up("m1").await, "h1");
}

#[tokio::test]
async fn a_name_that_no_host_can_have_holds_up_neither_a_machine_nor_its_deletion() {
    let scene = Scene::with_deployment(plane().await, "unnamed", &["h1"], false).await;
    for name in ["stays", "goes"] {
        scene.machine(name, "md", "t").await;
        // As CAPM3 leaves a machine, and somebody's slip.
        let slip = json!({"metadata": {
            "annotations": {"metal3.io/BareMetalHost": "ns/no such?host"},
            "finalizers": ["metal3machine.infrastructure.cluster.x-k8s.io"],
        }});
        scene.patch(METAL3_MACHINE, name, slip).await;
    }
    scene.delete(METAL3_MACHINE, "goes").await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.gone(METAL3_MACHINE, "goes").await;
    assert_eq!(scene.up("stays").await, "h1");
}

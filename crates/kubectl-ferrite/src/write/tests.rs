//! What another client writes between a read and a write of the plugin is not lost. The API server is played: it refuses a write
//! with the version of an older object, and takes any without a version, as the real one does.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

use super::{Written, set_bmc};
use crate::ask::{Asking, Failure};
use crate::settings::{Hold, Release};
use crate::{hold, holding};

const KEY: &str = "reboot.metal3.io/me";

/// A host, and what another client writes as soon as it is read.
struct Server {
    host: Value,
    meanwhile: Option<Value>,
    /// What is refused for want of a right.
    forbidden: Option<Method>,
    conflicts: usize,
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

impl Server {
    fn write(&mut self, patch: &Value) {
        let version: u64 =
            self.host["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        merge(&mut self.host, patch);
        self.host["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }

    fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, Value) {
        let failure = |code: u16, reason: &str, message: &str| {
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                "reason": reason, "message": message,
            });
            (code, status)
        };
        if self.forbidden.as_ref() == Some(method) {
            return failure(403, "Forbidden", "User \"u\" cannot patch");
        }
        if *method == Method::GET {
            let read = self.host.clone();
            if let Some(change) = self.meanwhile.take() {
                self.write(&change);
            }
            return (200, read);
        }
        let patch: Value = serde_json::from_slice(body).unwrap();
        let version = &patch["metadata"]["resourceVersion"];
        if !version.is_null() && *version != self.host["metadata"]["resourceVersion"] {
            self.conflicts += 1;
            return failure(409, "Conflict", "the object has been modified");
        }
        self.write(&patch);
        (200, self.host.clone())
    }
}

/// A host that bmo-reboot manages, with these annotations.
#[allow(clippy::needless_pass_by_value, reason = "each is made where it is used")]
fn server(annotations: Value, meanwhile: Value) -> Arc<Mutex<Server>> {
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {
            "name": "h", "namespace": "rack", "resourceVersion": "7", "annotations": annotations,
            "labels": {"ferrite.metal3.io/power": "managed"},
        },
        "spec": {"online": true},
        "status": {
            "poweredOn": true, "provisioning": {"state": "provisioned", "ID": "x"},
            "conditions": [{"type": "PowerManaged", "status": "True", "reason": "Managed", "message": ""}],
        },
    });
    let meanwhile = Some(meanwhile).filter(|it| !it.is_null());
    Arc::new(Mutex::new(Server { host, meanwhile, forbidden: None, conflicts: 0 }))
}

fn asking(server: &Arc<Mutex<Server>>) -> Asking {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (code, answer) = server.lock().unwrap().answer(&head.method, &body);
            let response =
                Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, kube::Error>(response.unwrap())
        }
    });
    Asking::of(Client::new(service, "rack"))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// What became of a hold whose proof is not waited for, with the annotations and the number of conflicts after it.
fn held(server: &Arc<Mutex<Server>>) -> (Failure, Value, usize) {
    let timeout = Some(std::time::Duration::ZERO);
    let args = Hold { host: "h".to_owned(), key: "me".to_owned(), hard: false, timeout };
    let failure = block_on(async { hold::hold(&asking(server), &args).await }).unwrap_err();
    let server = server.lock().unwrap();
    (failure, server.host["metadata"]["annotations"].clone(), server.conflicts)
}

fn released(server: &Arc<Mutex<Server>>) -> Result<Vec<String>, Failure> {
    let args = Release { host: "h".to_owned(), key: "me".to_owned() };
    block_on(async { hold::release(&asking(server), &args).await })
}

#[test]
fn a_hold_is_judged_again_by_what_another_wrote() {
    let paused = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": "them"}}});
    let (failure, annotations, conflicts) = held(&server(json!({}), paused));
    assert!(failure.message().contains("Remove the annotation"), "{failure:?}");
    assert_eq!(annotations, json!({"baremetalhost.metal3.io/paused": "them"}));
    assert_eq!(conflicts, 1);
}

#[test]
fn a_hold_leaves_the_harder_request_that_another_wrote() {
    let hard = holding::value(bmo_reboot::requests::Mode::Hard);
    let request = json!({"metadata": {"annotations": {KEY: hard}}});
    let (failure, annotations, conflicts) = held(&server(json!({}), request));
    assert!(failure.message().contains("is not proven after"), "{failure:?}");
    assert_eq!((annotations, conflicts), (json!({ KEY: hard }), 1));
}

#[test]
fn a_release_leaves_what_another_wrote() {
    let other = json!({"metadata": {"annotations": {"reboot.metal3.io/them": ""}}});
    let server = server(json!({ KEY: "" }), other);
    assert_eq!(released(&server).unwrap(), ["reboot.metal3.io/them"]);
    let server = server.lock().unwrap();
    assert_eq!(server.host["metadata"]["annotations"], json!({"reboot.metal3.io/them": ""}));
    assert_eq!(server.conflicts, 1);
}

#[test]
fn a_release_of_what_another_removed_finds_nothing() {
    let server = server(json!({ KEY: "" }), json!({"metadata": {"annotations": {KEY: null}}}));
    assert!(matches!(released(&server), Err(Failure::NotFound(_))));
}

#[test]
fn a_bmc_that_another_wrote_stays() {
    let theirs = json!({"address": "ipmi://192.0.2.9", "credentialsName": "theirs"});
    let server = server(json!({}), json!({"spec": {"bmc": theirs}}));
    let written = block_on(async {
        let asking = asking(&server);
        let host = hold::read(&asking, "h").await.unwrap();
        set_bmc(&asking, &host, "ipmi://192.0.2.1", "ours").await
    });
    assert!(matches!(written, Ok(Written::Superseded)));
    assert_eq!(server.lock().unwrap().host["spec"]["bmc"], theirs);
}

#[test]
fn a_write_without_the_right_is_refused_in_one_sentence() {
    let server = server(json!({ KEY: "" }), Value::Null);
    server.lock().unwrap().forbidden = Some(Method::PATCH);
    let failure = released(&server).unwrap_err();
    let wanted =
        "The API server refuses the change of BareMetalHost h: User \"u\" cannot patch (403).";
    assert_eq!(failure, Failure::No(wanted.to_owned()));
}

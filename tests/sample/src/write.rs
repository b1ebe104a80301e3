//! All writes, each with its precondition.

use controller_kit::engine::{Error, Outcome, sent};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::model::Write;
use crate::{GIVES_UP, HOLDER, INTENT, PASSED, RESULT, SINCE};

/// Makes one write.
pub async fn write(api: &Api<ConfigMap>, write: &Write) -> Result<Outcome, Error> {
    let (name, metadata) = match write {
        Write::Intend { guest, seat, finalizers, at } => {
            let metadata = json!({
                "resourceVersion": at,
                "finalizers": finalizers,
                "annotations": {INTENT: seat, GIVES_UP: Value::Null},
            });
            (guest, metadata)
        }
        Write::Claim { seat, uid, at } => {
            let mut metadata = json!({"annotations": {HOLDER: uid}});
            if let Some(at) = at {
                metadata["resourceVersion"] = json!(at);
            }
            (seat, metadata)
        }
        Write::Record { guest, seat, since, at } => {
            let annotations = json!({
                INTENT: seat,
                GIVES_UP: Value::Null,
                RESULT: seat,
                SINCE: since.to_string(),
            });
            (guest, json!({"resourceVersion": at, "annotations": annotations}))
        }
        Write::GiveUp { guest, seat, at } => {
            let annotations = json!({INTENT: Value::Null, GIVES_UP: seat});
            (guest, json!({"resourceVersion": at, "annotations": annotations}))
        }
        Write::PassOver { seat, by, at } => {
            let annotations = json!({PASSED: by});
            (seat, json!({"resourceVersion": at, "annotations": annotations}))
        }
        Write::Release { seat, at } => {
            let annotations = json!({HOLDER: Value::Null});
            (seat, json!({"resourceVersion": at, "annotations": annotations}))
        }
        Write::LetGo { guest, finalizers, at } => {
            (guest, json!({"resourceVersion": at, "finalizers": finalizers}))
        }
    };
    let patch = Patch::Merge(json!({"metadata": metadata}));
    sent("patch a ConfigMap", api.patch(name, &PatchParams::default(), &patch)).await?;
    Ok(Outcome::default())
}

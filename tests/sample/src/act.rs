//! All writes, each with its precondition.

use controller_kit::api_error::unless_superseded;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::decision::Step;
use crate::error::Error;
use crate::{GIVES_UP, HOLDER, INTENT, PASSED, RESULT, SINCE};

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Done,
    /// Somebody else wrote first, so it was not made. No failure: look again.
    Superseded,
}

/// Carries out one step.
pub async fn act(api: &Api<ConfigMap>, step: &Step) -> Result<Outcome, Error> {
    let (name, metadata) = match step {
        Step::Intend { guest, seat, finalizers, at } => {
            let metadata = json!({
                "resourceVersion": at,
                "finalizers": finalizers,
                "annotations": {INTENT: seat, GIVES_UP: Value::Null},
            });
            (guest, metadata)
        }
        Step::Claim { seat, uid, at } => {
            let mut metadata = json!({"annotations": {HOLDER: uid}});
            if let Some(at) = at {
                metadata["resourceVersion"] = json!(at);
            }
            (seat, metadata)
        }
        Step::Record { guest, seat, since, at } => {
            let annotations = json!({
                INTENT: seat,
                GIVES_UP: Value::Null,
                RESULT: seat,
                SINCE: since.to_string(),
            });
            (guest, json!({"resourceVersion": at, "annotations": annotations}))
        }
        Step::GiveUp { guest, seat, at } => {
            let annotations = json!({INTENT: Value::Null, GIVES_UP: seat});
            (guest, json!({"resourceVersion": at, "annotations": annotations}))
        }
        Step::PassOver { seat, by, at } => {
            let annotations = json!({PASSED: by});
            (seat, json!({"resourceVersion": at, "annotations": annotations}))
        }
        Step::Release { seat, at } => {
            let annotations = json!({HOLDER: Value::Null});
            (seat, json!({"resourceVersion": at, "annotations": annotations}))
        }
        Step::LetGo { guest, finalizers, at } => {
            (guest, json!({"resourceVersion": at, "finalizers": finalizers}))
        }
    };
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let written = api.patch(name, &PatchParams::default(), &patch).await;
    let written = unless_superseded(written).map_err(Error::api("patch a ConfigMap"))?;
    Ok(written.map_or(Outcome::Superseded, |_| Outcome::Done))
}

//! What a tool that applies CRDs from git needs to be told, so that our fields stay.

use std::fmt::Write as _;

use kube::Client;
use serde_json::{Value, json};

use super::{Needed, api, names, place};
use crate::api_error;
use crate::config::GitOps;

/// What `tool` is to be told about the CRDs that are installed, as YAML.
pub async fn print(client: &Client, needed: &[Needed], tool: GitOps) -> Result<String, String> {
    let fields = || needed.iter().filter(|needed| needed.field.is_some());
    let mut text = String::from(match tool {
        GitOps::Kustomize => "patches:\n",
        GitOps::Argocd => "ignoreDifferences:\n",
    });
    for name in names(fields()) {
        let crd = api(client)
            .get(name)
            .await
            .map_err(|error| format!("CRD {name}: {}", api_error::explain(&error)))?;
        let operations = patch_of(&crd.data, fields().filter(|needed| needed.crd == name))?;
        match tool {
            GitOps::Kustomize => kustomize(&mut text, name, &operations),
            GitOps::Argocd => argocd(&mut text, name, &operations),
        }
    }
    if tool == GitOps::Argocd {
        // Without it Argo CD shows no difference, and takes the fields away at the next sync all the same.
        text.push_str("syncPolicy:\n  syncOptions:\n    - RespectIgnoreDifferences=true\n");
    }
    Ok(text)
}

/// JSON patch operations that make our fields of a CRD, whether or not it has them: git may have a CRD without them.
pub fn patch_of<'a>(
    crd: &Value,
    needed: impl Iterator<Item = &'a Needed>,
) -> Result<Vec<Value>, String> {
    let mut operations = Vec::new();
    for needed in needed {
        let Some(field) = &needed.field else { continue };
        let Some(place) = place(crd, needed)? else { continue };
        let version = json!({ "op": "test", "path": place.version_name(), "value": place.version });
        if !operations.contains(&version) {
            operations.push(version);
        }
        operations.push(if crd.pointer(&place.properties()).is_some() {
            json!({ "op": "add", "path": place.of(field), "value": field.schema })
        } else {
            json!({ "op": "add", "path": place.properties(), "value": { field.property: field.schema } })
        });
    }
    Ok(operations)
}

fn kustomize(text: &mut String, name: &str, operations: &[Value]) {
    let _ = write!(
        text,
        "  - target:\n      kind: CustomResourceDefinition\n      name: {name}\n    patch: |-\n"
    );
    for operation in operations {
        let _ = writeln!(text, "      - {operation}");
    }
}

fn argocd(text: &mut String, name: &str, operations: &[Value]) {
    let _ = write!(
        text,
        "  - group: apiextensions.k8s.io\n    kind: CustomResourceDefinition\n    name: {name}\n    jsonPointers:\n"
    );
    for operation in operations.iter().filter(|it| it["op"] == "add") {
        let _ = writeln!(text, "      - {}", operation["path"].as_str().unwrap_or_default());
    }
}

//! What a tool that applies CRDs from git needs to be told, so that our fields stay.

use std::fmt::Write as _;

use kube::Client;
use serde_json::Value;

use super::{Needed, fields, place, read};
use crate::config::GitOps;

/// What `tool` is to be told about the CRDs that are installed, as YAML.
pub async fn print(client: &Client, needed: &[Needed], tool: GitOps) -> Result<String, String> {
    let mut text = String::from(match tool {
        GitOps::Kustomize => "patches:\n",
        GitOps::Argocd => "ignoreDifferences:\n",
    });
    for (name, needed) in fields(needed) {
        let operations = patch_of(&read(client, name).await?.data, needed.into_iter())?;
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
        let Some(place) = place(crd, needed)? else { continue };
        if !operations.contains(&place.version) {
            operations.push(place.version.clone());
        }
        operations.push(place.addition());
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

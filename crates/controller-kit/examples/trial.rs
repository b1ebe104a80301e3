//! A controller for trying the kit's promises on: it copies a number from `spec` to `status`, or hangs when told to.
//!
//! It needs a field that its CRD may lack, and its type is stricter than its CRD, so that objects exist that it cannot
//! decode.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use controller_kit::backoff::Class;
use controller_kit::config::{Command, Mistakes, Settings, parse};
use controller_kit::crd::{Field, Needed};
use controller_kit::run::{self, Needs};
use controller_kit::{Kit, watch};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Client, CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

const RULES: &str = r#"{
  "namespaced": [
    {"why": "to see what is wanted", "apiGroups": ["kit.example.org"], "resources": ["trials"], "verbs": ["get", "list", "watch"]},
    {"why": "to say what was served", "apiGroups": ["kit.example.org"], "resources": ["trials/status"], "verbs": ["patch"]}
  ],
  "cluster": [
    {"why": "to see whether the field is there", "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
     "resourceNames": ["trials.kit.example.org"], "verbs": ["get", "list", "watch"]}
  ]
}"#;

#[derive(Clone, CustomResource, Debug, Deserialize, Serialize)]
#[kube(
    group = "kit.example.org",
    version = "v1",
    kind = "Trial",
    namespaced,
    status = "TrialStatus",
    schema = "disabled"
)]
struct TrialSpec {
    number: u32,
    #[serde(default)]
    hangs: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct TrialStatus {
    served: Option<u32>,
}

/// Copies a number from spec to status
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Option<Command>,
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    let mut mistakes = Mistakes::default();
    let config = cli.settings.check("trial", &mut mistakes);
    let served = Field {
        path: &["status"],
        property: "served",
        schema: json!({"type": "integer", "description": "The number that was served."}),
        replace: false,
        optional: false,
    };
    let needed = Needed { crd: "trials.kit.example.org", versions: &["v1"], field: Some(served) };
    let needs = Needs { fields: vec![needed], rules: RULES, ..Needs::default() };
    run::main(cli.command, config, mistakes, needs, work)
}

async fn work(kit: Kit) -> Result<(), String> {
    let trials = watch::namespaced::<Trial>(&kit, &watcher::Config::default());
    let controller =
        Controller::for_stream(trials.changes, trials.store).reconcile_all_on(kit.allowed());
    let client = Arc::new(kit.client.clone());
    run::drive(&kit, controller, client, Duration::from_secs(60), reconcile, |_| Class::Transient)
        .await;
    Ok(())
}

async fn reconcile(trial: Arc<Trial>, client: Arc<Client>) -> Result<Action, kube::Error> {
    if trial.spec.hangs {
        return std::future::pending().await;
    }
    if trial.status.as_ref().and_then(|status| status.served) != Some(trial.spec.number) {
        let namespace = trial.namespace().unwrap_or_default();
        let api: Api<Trial> = Api::namespaced((*client).clone(), &namespace);
        let served = Patch::Merge(json!({"status": {"served": trial.spec.number}}));
        api.patch_status(&trial.name_any(), &PatchParams::default(), &served).await?;
    }
    Ok(Action::await_change())
}

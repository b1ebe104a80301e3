//! A controller for trying the kit's promises on: it copies a number from `spec` to `status`, or hangs when told to.
//!
//! It needs a field that its CRD may lack, and its type is stricter than its CRD, so that objects exist that it cannot
//! decode.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use controller_kit::config::{Command, Settings, parse};
use controller_kit::crd::{Field, Needed};
use controller_kit::engine::{
    self, Class, Controller, Decision, Error, Lookout, Now, ObjectKey, Outcome, asked,
};
use controller_kit::run::{self, Needs};
use controller_kit::{Kit, reasons, watch};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Client, CustomResource};
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
    let (cli, mut mistakes) = parse::<Cli>();
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

reasons! {
    /// Why a decision was taken.
    pub enum Reason {
        Served: Kind::Rests, "The number stands in the status.";
        Serving: Kind::Rests, "The number is written to the status.";
    }
}

async fn work(kit: Kit) -> Result<(), String> {
    let watched = watch::namespaced::<Trial>(&kit, &watcher::Config::default());
    let lookout = Lookout::default();
    let watching = watch::feed(watched.changes, |changed| {
        lookout.enqueue(ObjectKey::of(changed), Class::Normal);
    });
    let trials = Trials { client: kit.client.clone(), store: watched.store };
    engine::run(&kit, &trials, &lookout, watching, Duration::from_secs(60)).await
}

struct Trials {
    client: Client,
    store: Store<Trial>,
}

/// The number that is to stand in the status.
#[derive(Debug)]
struct Serve(u32);

impl Controller for Trials {
    type Key = ObjectKey;
    type Observed = Trial;
    type Write = Serve;
    type Memory = ();
    type Reason = Reason;

    fn keys(&self) -> Vec<ObjectKey> {
        self.store.state().iter().map(|it| ObjectKey::of(&**it)).collect()
    }

    fn object(&self, key: &ObjectKey) -> ObjectReference {
        key.reference::<Trial>(&())
    }

    async fn observe(&self, key: &ObjectKey, (): &mut ()) -> Result<Option<Trial>, Error> {
        match self.store.get(&key.in_store()) {
            Some(trial) if trial.spec.hangs => std::future::pending().await,
            trial => Ok(trial.map(|it| (*it).clone())),
        }
    }

    fn decide(&self, trial: &Trial, _: Now) -> Decision<Serve, Reason> {
        let number = trial.spec.number;
        if trial.status.as_ref().and_then(|status| status.served) == Some(number) {
            return Decision::rest(Reason::Served);
        }
        Decision::write(Reason::Serving, Serve(number))
    }

    async fn write(
        &self,
        key: &ObjectKey,
        _: &Trial,
        Serve(number): Serve,
        (): &mut (),
    ) -> Result<Outcome, Error> {
        let api: Api<Trial> = Api::namespaced(self.client.clone(), &key.namespace);
        let patch = Patch::Merge(json!({"status": {"served": number}}));
        let params = PatchParams::default();
        let written =
            asked("write the status", api.patch_status(&key.name, &params, &patch)).await?;
        Ok(Outcome { version: written.metadata.resource_version, ..Outcome::default() })
    }
}

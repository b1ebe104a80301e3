//! The smallest controller: watches every `ConfigMap` and does nothing. For measuring what the kit itself costs.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use controller_kit::config::{Command, Settings, parse};
use controller_kit::engine::{
    self, Class, Controller, Decision, Error, Lookout, Now, ObjectKey, Outcome,
};
use controller_kit::run::{self, Needs};
use controller_kit::{Kit, reasons, watch};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;

reasons! {
    /// Why a decision was taken.
    pub enum Reason {
        Seen: Kind::Rests, "The object is there.";
    }
}

/// Watches every `ConfigMap` and does nothing
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
    let config = cli.settings.check("minimal", &mut mistakes);
    run::main(cli.command, config, mistakes, Needs::default(), work)
}

async fn work(kit: Kit) -> Result<(), String> {
    let maps = watch::namespaced::<ConfigMap>(&kit, &watcher::Config::default());
    let lookout = Lookout::default();
    let watching = watch::feed(maps.changes, |changed| {
        lookout.enqueue(ObjectKey::of(changed), Class::Normal);
    });
    engine::run(&kit, &Maps(maps.store), &lookout, watching, Duration::from_secs(60)).await
}

struct Maps(Store<ConfigMap>);

impl Controller for Maps {
    type Key = ObjectKey;
    type Observed = ();
    /// There is none.
    type Write = std::convert::Infallible;
    type Memory = ();
    type Reason = Reason;

    fn keys(&self) -> Vec<ObjectKey> {
        self.0.state().iter().map(|it| ObjectKey::of(&**it)).collect()
    }

    fn object(&self, key: &ObjectKey) -> ObjectReference {
        key.reference::<ConfigMap>(&())
    }

    async fn observe(&self, key: &ObjectKey, (): &mut ()) -> Result<Option<()>, Error> {
        Ok(self.0.get(&key.in_store()).map(|_| ()))
    }

    fn decide(&self, (): &(), _: Now) -> Decision<Self::Write, Reason> {
        Decision::rest(Reason::Seen)
    }

    async fn write(
        &self,
        _: &ObjectKey,
        (): &(),
        it: Self::Write,
        (): &mut (),
    ) -> Result<Outcome, Error> {
        match it {}
    }
}

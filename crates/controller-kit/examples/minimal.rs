//! The smallest controller: watches every `ConfigMap` and does nothing. For measuring what the kit itself costs.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use controller_kit::backoff::Class;
use controller_kit::config::{Command, Mistakes, Settings, parse};
use controller_kit::run::{self, Needs};
use controller_kit::{Kit, watch};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};

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
    let cli: Cli = parse();
    let mut mistakes = Mistakes::default();
    let config = cli.settings.check("minimal", &mut mistakes);
    run::main(cli.command, config, mistakes, Needs::default(), work)
}

async fn work(kit: Kit) -> Result<(), String> {
    let maps = watch::namespaced::<ConfigMap>(&kit, &watcher::Config::default());
    let controller =
        Controller::for_stream(maps.changes, maps.store).reconcile_all_on(kit.allowed());
    let nothing =
        |_: Arc<ConfigMap>, _: Arc<()>| async { Ok::<_, Infallible>(Action::await_change()) };
    run::drive(&kit, controller, Arc::new(()), Duration::from_secs(60), nothing, |_| {
        Class::Transient
    })
    .await;
    Ok(())
}

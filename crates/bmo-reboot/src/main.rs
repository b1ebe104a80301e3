//! Start-up of `bmo-reboot`.

use std::process::ExitCode;

use bmo_reboot::{config, controller};
use clap::Parser;
use controller_kit::config::{Command, Mistakes, Settings};
use controller_kit::run;

/// Switches hosts off and on: spec.online and reboot requests of many clients, through Ironic
#[derive(Parser)]
#[command(name = config::NAME, version)]
struct Cli {
    #[command(flatten)]
    options: config::Options,
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Option<Command>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut mistakes = Mistakes::default();
    let config = cli.settings.check(config::NAME, &mut mistakes);
    let policy = cli.options.check(&config, &mut mistakes);
    let ironic = cli.options.ironic(cli.command.as_ref(), &mut mistakes);
    let needs = config::needs(ironic.clone());
    run::main(cli.command, config, mistakes, needs, async move |kit| match ironic {
        Some(ironic) => controller::work(kit, policy, ironic).await,
        None => Err("Ironic is not configured".to_owned()),
    })
}

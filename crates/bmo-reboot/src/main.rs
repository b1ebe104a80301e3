//! Starts `bmo-reboot`; what it does is said in the library.

use std::process::ExitCode;

use bmo_reboot::controller;
use bmo_reboot::settings::{self, Cli};
use controller_kit::config::parse;
use controller_kit::run;

fn main() -> ExitCode {
    let (cli, mut mistakes) = parse::<Cli>();
    let config = cli.common.check(settings::NAME, &mut mistakes);
    let policy = cli.own.check(&config);
    let ironic = cli.ironic.settings(cli.command.as_ref(), &mut mistakes);
    let ironic = ironic.map(|it| ironic::Settings { calls: policy.power_calls, ..it });
    let needs = settings::needs(ironic.clone());
    run::main(cli.command, config, mistakes, needs, async move |kit| match ironic {
        Some(ironic) => controller::run(kit, policy, ironic).await,
        None => Err("Ironic is not configured: set IRONIC_ENDPOINT".to_owned()),
    })
}

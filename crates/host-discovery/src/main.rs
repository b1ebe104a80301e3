//! Starts `host-discovery`; what it does is said in the library.

use std::process::ExitCode;

use controller_kit::config::parse;
use controller_kit::run;
use host_discovery::controller;
use host_discovery::settings::{self, Cli};

fn main() -> ExitCode {
    let (cli, mut mistakes) = parse::<Cli>();
    let config = cli.common.check(settings::NAME, &mut mistakes);
    cli.own.check(&mut mistakes);
    let ironic = cli.ironic.settings(cli.command.as_ref(), &mut mistakes);
    let needs = settings::needs(ironic.clone());
    run::main(cli.command, config, mistakes, needs, async move |kit| match ironic {
        Some(ironic) => Box::pin(controller::run(kit, cli.own, ironic)).await,
        None => Err("Ironic is not configured: set IRONIC_ENDPOINT".to_owned()),
    })
}

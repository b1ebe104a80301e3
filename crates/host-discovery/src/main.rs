//! Starts `host-discovery`; what it does is said in the library.

use std::process::ExitCode;

use controller_kit::config::{Mistakes, parse};
use controller_kit::run;
use host_discovery::controller;
use host_discovery::settings::{self, Cli};

fn main() -> ExitCode {
    let cli: Cli = parse();
    let mut mistakes = Mistakes::default();
    let config = cli.common.check(settings::NAME, &mut mistakes);
    let policy = cli.own.check(&mut mistakes);
    let ironic = cli.own.ironic(cli.command.as_ref(), &mut mistakes);
    let needs = settings::needs(ironic.clone());
    run::main(cli.command, config, mistakes, needs, async move |kit| match ironic {
        Some(ironic) => Box::pin(controller::run(kit, policy, ironic)).await,
        None => Err("Ironic is not configured: set IRONIC_ENDPOINT".to_owned()),
    })
}

//! Starts `capm3-reuse`; what it does is said in the library.

use std::process::ExitCode;

use capm3_reuse::controller;
use capm3_reuse::settings::{self, Cli};
use controller_kit::config::parse;
use controller_kit::run;

fn main() -> ExitCode {
    let (cli, mut mistakes) = parse::<Cli>();
    let config = cli.common.check(settings::NAME, &mut mistakes);
    let policy = cli.own;
    let needs = settings::needs(config.watch_filter.as_deref(), &policy);
    run::main(cli.command, config, mistakes, needs, |kit| controller::run(kit, policy))
}

//! Starts `remediation`; what it does is said in the library.

use std::process::ExitCode;

use controller_kit::config::parse;
use controller_kit::run;
use remediation::controller;
use remediation::settings::{self, Cli};

fn main() -> ExitCode {
    let (cli, mut mistakes) = parse::<Cli>();
    let config = cli.common.check(settings::NAME, &mut mistakes);
    let policy = cli.own.check(&config, &mut mistakes);
    let needs = settings::needs(&policy);
    run::main(cli.command, config, mistakes, needs, |kit| controller::run(kit, policy))
}

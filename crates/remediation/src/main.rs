//! Starts remediation. What it does is said in the library.

use std::process::ExitCode;

use controller_kit::config::{Mistakes, parse};
use controller_kit::run::{self, Needs};
use remediation::config::{CRDS, Cli, NAME, RULES, checks, needed};
use remediation::controller;

fn main() -> ExitCode {
    let cli: Cli = parse();
    let mut mistakes = Mistakes::default();
    let config = cli.common.check(NAME, &mut mistakes);
    let policy = cli.own.check(&mut mistakes);
    let needs = Needs { crds: CRDS, fields: needed(), rules: RULES, checks: checks(&policy) };
    run::main(cli.command, config, mistakes, needs, |kit| controller::run(kit, policy))
}

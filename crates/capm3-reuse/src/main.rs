//! Starts capm3-reuse. What it does is said in the library.

use std::process::ExitCode;

use capm3_reuse::config::{Cli, RULES, needed};
use capm3_reuse::controller;
use controller_kit::config::{Mistakes, parse};
use controller_kit::run::{self, Needs};

fn main() -> ExitCode {
    let cli: Cli = parse();
    let mut mistakes = Mistakes::default();
    let config = cli.common.check("capm3-reuse", &mut mistakes);
    let policy = cli.own.check(&mut mistakes);
    let needs = Needs { fields: needed(), rules: RULES, ..Needs::default() };
    run::main(cli.command, config, mistakes, needs, |kit| controller::run(kit, policy))
}

//! Starts `capm3-reuse`; what it does is said in the library.

use std::process::ExitCode;

use capm3_reuse::config::{self, Cli};
use capm3_reuse::controller;
use controller_kit::config::{Mistakes, parse};
use controller_kit::run;

fn main() -> ExitCode {
    let cli: Cli = parse();
    let mut mistakes = Mistakes::default();
    let config = cli.common.check(config::NAME, &mut mistakes);
    let policy = cli.own.check(&mut mistakes);
    run::main(cli.command, config, mistakes, config::needs(), |kit| controller::run(kit, policy))
}

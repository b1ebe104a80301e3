//! Starts `clusterpool-inventory`; what it does is said in the library.

use std::process::ExitCode;

use clusterpool_inventory::config::{self, Cli};
use clusterpool_inventory::controller;
use controller_kit::config::{Mistakes, parse};
use controller_kit::run;

fn main() -> ExitCode {
    let cli: Cli = parse();
    let mut mistakes = Mistakes::default();
    let config = cli.common.check(config::NAME, &mut mistakes);
    let policy = cli.own.check(&mut mistakes);
    run::main(cli.command, config, mistakes, config::needs(), |kit| controller::run(kit, policy))
}

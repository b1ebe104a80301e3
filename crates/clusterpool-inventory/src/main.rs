//! Starts `clusterpool-inventory`; what it does is said in the library.

use std::process::ExitCode;

use clusterpool_inventory::controller;
use clusterpool_inventory::needs::needs;
use clusterpool_inventory::settings::{self, Cli};
use controller_kit::config::{Mistakes, parse};
use controller_kit::run;

fn main() -> ExitCode {
    let cli: Cli = parse();
    let mut mistakes = Mistakes::default();
    let config = cli.common.check(settings::NAME, &mut mistakes);
    let policy = cli.own.check(&mut mistakes);
    run::main(cli.command, config, mistakes, needs(), |kit| controller::run(kit, policy))
}

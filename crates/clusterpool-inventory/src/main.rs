//! Starts `clusterpool-inventory`; what it does is said in the library.

use std::process::ExitCode;

use clusterpool_inventory::controller;
use clusterpool_inventory::needs::needs;
use clusterpool_inventory::settings::{self, Cli};
use controller_kit::config::parse;
use controller_kit::run;

fn main() -> ExitCode {
    let (cli, mut mistakes) = parse::<Cli>();
    let config = cli.common.check(settings::NAME, &mut mistakes);
    run::main(cli.command, config, mistakes, needs(), |kit| controller::run(kit, cli.own))
}

//! Starts the sample controller. What it does is said in the library.

use std::process::ExitCode;

use controller_kit::config::parse;
use controller_kit::run::{self, Needs};
use sample::controller;
use sample::settings::{Cli, RULES};

fn main() -> ExitCode {
    let (cli, mut mistakes) = parse::<Cli>();
    let config = cli.common.check("sample", &mut mistakes);
    let needs = Needs { rules: RULES, ..Needs::default() };
    run::main(cli.command, config, mistakes, needs, |kit| controller::run(kit, cli.own))
}

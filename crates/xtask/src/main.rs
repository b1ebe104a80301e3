//! The project's own commands: `cargo xtask --help`.

mod check_upstream;
mod demo;
mod lint;
mod measure;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands.")]
struct Args {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs the checks of `lint` and then all tests; with a name, only the tests whose name contains it.
    Test {
        /// Part of a test's name.
        name: Option<String>,
    },
    /// Starts the bench with two virtual servers and leaves it running to play with.
    Demo {
        /// Ends it.
        #[arg(long)]
        down: bool,
        /// What `demo` leaves running behind its own back; not for people.
        #[arg(long, hide = true)]
        serve: bool,
    },
    /// Measures what the API server takes by itself, and prints a table.
    Bench {
        /// Writes the figures to this file as well.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Formatting, clippy, links in the documentation, the house's rules, licences where cargo-deny is installed.
    Lint,
    /// Holds the house to its own rules: file sizes, which module may do what, where names live.
    Tidy,
    /// Compares what the bench says of the foreign CRDs with real CRD files.
    CheckUpstream {
        /// A folder of CRDs as YAML files.
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Task::Test { name } => test::run(name.as_deref()),
        Task::Demo { down: true, .. } => demo::down(),
        Task::Demo { serve: true, .. } => demo::serve(),
        Task::Demo { .. } => demo::up(),
        Task::Bench { json } => measure::run(json.as_deref()),
        Task::Lint => lint::run(),
        Task::Tidy => tidy::run(),
        Task::CheckUpstream { folder } => check_upstream::run(&folder),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The checkout.
fn root() -> &'static Path {
    bench::checkout()
}

/// A cargo command in the checkout.
fn cargo() -> std::process::Command {
    let mut cargo =
        std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    // The variables that describe xtask to itself would make the inner cargo compile build scripts anew.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_MANIFEST_")
            || text == "CARGO_BIN_NAME"
        {
            cargo.env_remove(&name);
        }
    }
    cargo
}

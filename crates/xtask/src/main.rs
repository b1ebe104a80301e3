//! The project's own commands: `cargo xtask --help`.

#![allow(clippy::disallowed_methods, reason = "the demo asks for what its own API server serves")]

mod chart_readme;
mod check_upstream;
mod circles;
mod controllers;
mod demo;
mod generate;
mod image;
mod links;
mod lint;
mod measure;
mod model;
mod plugin;
mod reasons;
mod reference;
#[cfg(test)]
mod release_tests;
mod shared_values;
mod site;
mod test;
mod tidy;
mod values;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::programs::cargo;
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
    /// Starts the controllers on a local control plane with virtual servers, shows what they do, and leaves it running.
    Demo {
        /// Only this part of the tour.
        #[arg(long)]
        chapter: Option<demo::Chapter>,
        /// Watches the tour with a Prometheus, which is built the first time, and draws each chart's dashboard into this
        /// folder.
        #[arg(long, value_name = "FOLDER", conflicts_with = "down")]
        pictures: Option<PathBuf>,
        /// Ends it.
        #[arg(long)]
        down: bool,
        /// What `demo` leaves running behind its own back; not for people.
        #[arg(long, hide = true)]
        serve: bool,
    },
    /// Measures what the API server takes by itself and what the controllers reach on it, with what they cost.
    ///
    /// Builds static release programs first, which takes minutes the first time.
    Bench(measure::Options),
    /// Explores the worlds of a controller's model that are too large for a test.
    Model {
        /// Which model: the controller's name.
        name: String,
        /// Only worlds whose name contains this.
        #[arg(long, default_value = "")]
        world: String,
        /// Different states, at most.
        #[arg(long, default_value = "20000000")]
        states: usize,
        /// Steps from the beginning, at most.
        #[arg(long, default_value = "10000")]
        depth: usize,
        /// Seconds for each world, at most.
        #[arg(long, default_value = "1800")]
        seconds: u64,
    },
    /// Makes CRDs, manifests, the values' schemas, charts' READMEs, the reference and the pages of reasons anew from what they
    /// are made from.
    Crdgen,
    /// Builds the site of the documentation with mdBook into the target folder, and follows each of its links.
    Docs,
    /// Makes the images of the controllers, or of one, without a container engine: archives of an OCI layout.
    Image {
        /// The controller's name.
        controller: Option<String>,
    },
    /// Makes a release of the kubectl plugin: this machine's archive, and the Krew manifest of all archives in the folder.
    Plugin(plugin::PluginRelease),
    /// Formatting, clippy, links in the documentation, the house's rules, generated files, workflows, licences where cargo-deny
    /// is installed.
    Lint,
    /// Holds the house to its own rules: file sizes, which module may do what, where names live, lengths of pages, subjects of
    /// commits.
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
        Task::Demo { chapter, pictures, .. } => demo::up(chapter, pictures.as_deref()),
        Task::Bench(options) => measure::run(&options),
        Task::Model { name, world, states, depth, seconds } => {
            let time = std::time::Duration::from_secs(seconds);
            model::run(&name, &world, bench::model::Bounds { states, depth, time })
        }
        Task::Crdgen => generate::run(),
        Task::Docs => site::run(),
        Task::Image { controller } => image::run(controller.as_deref()),
        Task::Plugin(release) => plugin::run(&release),
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

/// All files below a folder whose names end so, in a stable order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() {
                if name == ".github" || name != "target" && !name.to_string_lossy().starts_with('.')
                {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

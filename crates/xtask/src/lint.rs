//! What has to hold of the text before anything is run.

use std::process::Command;

use anyhow::bail;
use bench::cache;
use bench::steps::step;

use crate::{cargo, generate, links, tidy};

/// Runs every check and stops at the first that fails.
///
/// # Errors
/// When a check fails; its output has been shown by then.
pub(crate) fn run() -> anyhow::Result<()> {
    step("formatting", || show(cargo().args(["fmt", "--all", "--check"])))?;
    step("the house's rules", tidy::run)?;
    step("links of the pages", links::run)?;
    step("clippy", || {
        show(cargo().args([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("links in the code's documentation", || {
        show(cargo().env("RUSTDOCFLAGS", "-D warnings").args([
            "doc",
            "--quiet",
            "--workspace",
            "--no-deps",
            "--locked",
        ]))
    })?;
    // Needs helm, which is being built meanwhile where it was not there.
    step("generated files", generate::check)?;
    // The workflow always has it; here it is used where somebody installed it.
    let installed =
        cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if installed {
        step("licences and sources", || {
            show(cargo().args(["deny", "--offline", "check", "bans", "licenses", "sources"]))
        })?;
    }
    Ok(())
}

/// Runs a command with its output where the reader sees it.
fn show(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status()?;
    if !status.success() {
        bail!("`{}` failed", cache::shown(command));
    }
    Ok(())
}

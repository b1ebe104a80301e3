//! What has to hold of the text before anything is run.

use anyhow::ensure;
use bench::steps::step;
use bench::{cache, programs};

use crate::{generate, links, tidy};

/// Runs every check and stops at the first that fails.
///
/// # Errors
/// When a check fails; its output has been shown by then.
pub(crate) fn run() -> anyhow::Result<()> {
    step("formatting", || cargo("fmt --all --check"))?;
    step("the house's rules", tidy::run)?;
    step("links of the pages", links::run)?;
    step("clippy", || cargo("clippy --quiet --workspace --all-targets --locked -- -D warnings"))?;
    step("links in the code's documentation", || {
        cargo("doc --quiet --workspace --no-deps --locked")
    })?;
    // Needs helm, which is being built meanwhile where it was not there.
    step("generated files", generate::check)?;
    // The workflow always has it; here it is used where somebody installed it.
    let mut deny = programs::cargo();
    if deny.args(["deny", "--version"]).output().is_ok_and(|it| it.status.success()) {
        step("licences and sources", || cargo("deny --offline check bans licenses sources"))?;
    }
    Ok(())
}

/// Runs a command of cargo with its output where the reader sees it.
fn cargo(words: &str) -> anyhow::Result<()> {
    let mut command = programs::cargo();
    let status = command.args(words.split(' ')).env("RUSTDOCFLAGS", "-D warnings").status()?;
    ensure!(status.success(), "`{}` failed", cache::shown(&command));
    Ok(())
}

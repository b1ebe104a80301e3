//! What has to hold of the text before anything is run.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use bench::steps::step;
use bench::{cache, go, programs, python};

use crate::{generate, links, root, tidy};

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
    step("workflows", || workflows(&root().join(".github")))?;
    // The workflow always has it; here it is used where somebody installed it.
    let mut deny = programs::cargo();
    if deny.args(["deny", "--version"]).output().is_ok_and(|it| it.status.success()) {
        step("licences and sources", || cargo("deny --offline check bans licenses sources"))?;
    }
    Ok(())
}

/// Whether GitHub understands the workflows, and whether one gives away more than it has to. Neither tool asks anybody.
fn workflows(folder: &Path) -> anyhow::Result<()> {
    let mut actionlint = Command::new(go::program("actionlint")?);
    // With what is installed on one machine only, the outcome would be another on each.
    actionlint
        .args(["-shellcheck=", "-pyflakes="])
        .args(crate::files(&folder.join("workflows"), "yml"));
    cache::run(&actionlint)?;
    let pinned = root().join("tests/bench/python/lint/requirements.txt");
    let zizmor = cache::entry("zizmor", &fs::read_to_string(&pinned)?, |dir| {
        python::environment(dir, &["--requirement", &pinned.to_string_lossy()])
    })?;
    let mut zizmor = python::of(&zizmor, "zizmor");
    cache::run(zizmor.args(["--offline", "--quiet"]).arg(folder))?;
    Ok(())
}

/// Runs a command of cargo with its output where the reader sees it.
fn cargo(words: &str) -> anyhow::Result<()> {
    let mut command = programs::cargo();
    let status = command.args(words.split(' ')).env("RUSTDOCFLAGS", "-D warnings").status()?;
    ensure!(status.success(), "`{}` failed", cache::shown(&command));
    Ok(())
}

#[cfg(test)]
mod tests {
    use bench::cache::RunDir;

    use super::*;

    #[test]
    fn a_workflow_that_is_wrong_or_runs_what_a_stranger_may_change_is_refused() {
        let home = RunDir::new("workflows").unwrap();
        let folder = home.path().join(".github");
        fs::create_dir_all(folder.join("workflows")).unwrap();
        let refusal = |step: &str| {
            let text = format!(
                "on: push\npermissions: {{}}\njobs:\n  one:\n    runs-on: ubuntu-24.04\n    steps:\n      - {step}\n"
            );
            fs::write(folder.join("workflows/one.yml"), text).unwrap();
            workflows(&folder).err().map(|error| format!("{error:#}")).unwrap_or_default()
        };
        assert_eq!(refusal("run: echo"), "");
        assert!(refusal("rum: echo").contains("syntax-check"));
        assert!(refusal("uses: some/body@v1").contains("unpinned-uses"));
    }
}

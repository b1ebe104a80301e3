//! The project's own programs, as an image has them: one static file each.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cache;

/// A cargo command in the checkout.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::checkout());
    // The variables that describe this program to itself would make the inner cargo compile build scripts anew.
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

/// How programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// What is published and measured.
    Release,
    /// As static and as small, built in a fraction of the time: what the tests run as pods.
    Pods,
    /// The kubectl plugin: as small as it gets.
    Plugin,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Pods => "pods",
            Self::Plugin => "plugin",
        }
    }
}

/// Builds programs; `what` are cargo's words for them. Gives the folder where they are.
///
/// # Errors
/// When one does not compile.
pub fn build(profile: Profile, what: &[&str]) -> anyhow::Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = cargo();
    // With a target named, the flag is not for build scripts and procedural macros, which cannot be static.
    cargo
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        // Set by the runner of the tests, and part of what cargo looks at.
        .env_remove("RUSTC_BOOTSTRAP")
        .args(["build", "--quiet", "--locked", "--profile", profile.name(), "--target", &target])
        .args(what);
    if !cargo.status()?.success() {
        bail!("`{}` failed", cache::shown(&cargo));
    }
    Ok(target_folder()?.join(target).join(profile.name()))
}

/// Cargo's target folder, in which this program is, too.
///
/// # Errors
/// When this program is not in one.
pub fn target_folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let tagged = |folder: &&Path| folder.join("CACHEDIR.TAG").is_file();
    let found = own.ancestors().skip(1).find(tagged);
    Ok(found.context("this program is not in cargo's target folder")?.to_owned())
}

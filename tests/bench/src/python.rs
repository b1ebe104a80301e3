//! Python environments: Ironic and the Redfish emulators come from the Python package index.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::cache;

/// Makes a virtual environment at `dir` with `packages` (names or `-r file` pairs, as pip takes them).
///
/// # Errors
/// When Python or its venv module is missing and cannot be installed, or a package cannot be had.
pub fn environment(dir: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let python = interpreter();
    let make = |python: &Path| cache::run(Command::new(python).args(["-m", "venv"]).arg(dir));
    if make(python).is_err() {
        install(&["python3", "python3-venv"])?;
        make(Path::new("/usr/bin/python3"))?;
    }
    cache::run(
        of(dir, "python")
            .args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"])
            .args(packages),
    )?;
    Ok(())
}

/// Debian's own Python first: the one on the PATH may be somebody's project environment.
fn interpreter() -> &'static Path {
    let python = Path::new("/usr/bin/python3");
    if python.exists() { python } else { Path::new("python3") }
}

/// A program of an environment. What it keeps for the next time it keeps beside ours.
pub fn of(environment: &Path, program: &str) -> Command {
    let mut command = Command::new(environment.join("bin").join(program));
    command.env("XDG_CACHE_HOME", cache::root().join("python"));
    command
}

/// Python without any packages.
pub fn command() -> Command {
    Command::new(interpreter())
}

/// Installs Debian packages where that is allowed, and names the command where it is not.
///
/// # Errors
/// Always, when this user may not install packages.
pub fn install(packages: &[&str]) -> anyhow::Result<()> {
    let names = packages.join(" ");
    let id = Command::new("id").arg("-u").output();
    let root = id.is_ok_and(|output| output.stdout.starts_with(b"0\n"));
    if !root {
        bail!(
            "Debian packages are missing. Type `sudo apt-get install -y {names}` and run this again"
        );
    }
    cache::run(Command::new("apt-get").args(["update", "-qq"]))?;
    cache::run(
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(packages),
    )?;
    Ok(())
}

//! What is built or downloaded once. Everything lives below one folder, keyed by what it is made from.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use crate::process;

/// `$XDG_CACHE_HOME/ferrite`, else `~/.cache/ferrite`.
pub fn root() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .unwrap_or_else(std::env::temp_dir);
    base.join("ferrite")
}

/// The folder `<name>-<hash of recipe>`, built by `build` unless it is there already.
///
/// The folder is made at its final path, because a Python environment cannot be moved; a marker that is written last
/// says that it is whole. Two processes that want the same entry wait for each other.
///
/// # Errors
/// Those of `build`, and those of the file system.
pub fn entry(
    name: &str,
    recipe: &str,
    build: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let hash = format!("{:x}", Sha256::digest(recipe));
    let dir = root().join(format!("{name}-{}", &hash[..12]));
    let complete = dir.join(".complete");
    if complete.exists() {
        return Ok(dir);
    }
    let locks = root().join("locks");
    fs::create_dir_all(&locks).with_context(|| {
        format!("cannot create {}: make it writable, or set XDG_CACHE_HOME", locks.display())
    })?;
    let lock = File::create(locks.join(format!("{}-{}", name.replace('/', "-"), &hash[..12])))?;
    lock.lock()?;
    if complete.exists() {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    build(&dir)?;
    File::create(complete)?;
    Ok(dir)
}

/// A folder for what one run leaves behind (databases, logs). It goes when the value is dropped; those of processes
/// that were killed are removed by the next one.
#[derive(Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// Makes a new folder for this process.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        sweep();
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = runs().join(format!("{}-{count}-{name}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn runs() -> PathBuf {
    root().join("run")
}

/// Removes the folders of processes that have ended.
pub fn sweep() {
    for folder in fs::read_dir(runs()).into_iter().flatten().flatten() {
        let name = folder.file_name();
        let pid = name.to_string_lossy();
        let pid = pid.split('-').next().unwrap_or_default();
        // One that has ended and that nobody waited for is as good as gone.
        let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
        if stat.is_ok_and(|stat| !stat.contains(") Z ")) {
            continue;
        }
        // What it started ends a moment later, and may write until then.
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir_all(folder.path()).is_err()
            && folder.path().exists()
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs a command to its end. A failure says which command it was, with the last lines that it printed, and where the
/// cause is one that the reader can do something about, what to do.
///
/// # Errors
/// When the command cannot be started or does not succeed.
pub fn run(command: &std::process::Command) -> anyhow::Result<String> {
    let shown = shown(command);
    let run = || {
        let (child, _held) = process::tied(command, Stdio::piped(), Stdio::piped())?;
        child.wait_with_output()
    };
    let output = run().with_context(|| format!("cannot start `{shown}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let all = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = all.lines().collect();
    let last = lines[lines.len().saturating_sub(15)..].join("\n    ");
    bail!("`{shown}` failed ({}){}\n    {last}", output.status, advice(&all));
}

/// The command as it would be typed, without its environment.
pub fn shown(command: &std::process::Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// One sentence for the failures that are not the project's fault.
fn advice(output: &str) -> &'static str {
    let seen = |words: &[&str]| words.iter().any(|word| output.contains(word));
    if seen(&["No space left on device", "no space left on device"]) {
        ": the disk is full. Free some gigabytes, or point XDG_CACHE_HOME at a bigger disk, and run it again"
    } else if seen(&[
        "dial tcp",
        "no such host",
        "Temporary failure in name resolution",
        "Connection refused",
        "Failed to establish a new connection",
        "Could not resolve",
        "i/o timeout",
        "ReadTimeoutError",
    ]) {
        ": a package registry cannot be reached. Check the network (and GOPROXY, PIP_INDEX_URL) and run it again; what was fetched is kept"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_says_what_to_do_about_a_full_disk() {
        let failed = run(std::process::Command::new("sh")
            .args(["-c", "echo write: no space left on device >&2; exit 1"]))
        .unwrap_err()
        .to_string();
        assert!(failed.contains("the disk is full. Free"), "{failed}");
    }

    #[test]
    fn the_folder_of_a_process_that_has_ended_goes_also_while_its_children_still_write() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        // Not waited for yet: a zombie, as everything is whose parent is busy.
        let dir = runs().join(format!("{}-0-ended", ended.id()));
        fs::create_dir_all(&dir).unwrap();
        let kept = runs().join(format!("{}-0-living", std::process::id()));
        fs::create_dir_all(&kept).unwrap();
        let script =
            format!("i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo > {}/$i; done", dir.display());
        let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while dir.exists() && Instant::now() < deadline {
            sweep();
        }
        assert!(!dir.exists());
        assert!(kept.exists());
        fs::remove_dir_all(kept).unwrap();
        child.wait().unwrap();
        ended.wait().unwrap();
    }

    #[test]
    fn an_unreachable_registry_is_named_as_such() {
        let failed = run(std::process::Command::new("sh")
            .args(["-c", "echo 'dial tcp: lookup proxy: no such host' >&2; exit 1"]))
        .unwrap_err()
        .to_string();
        assert!(failed.contains("a package registry cannot be reached"), "{failed}");
    }

    #[test]
    fn an_ordinary_failure_shows_the_last_lines_and_no_advice() {
        let failed =
            run(std::process::Command::new("sh").args(["-c", "echo syntax error; exit 3"]))
                .unwrap_err()
                .to_string();
        assert!(failed.contains("syntax error"), "{failed}");
        assert!(!failed.contains("run it again"), "{failed}");
    }
}

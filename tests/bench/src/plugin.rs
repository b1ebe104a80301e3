//! A release of the kubectl plugin: an archive for each platform, and the manifest by which Krew installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cache;
use crate::image::{Tar, architecture};

/// The program, and how the names of its archives and tags begin.
pub const PROGRAM: &str = "kubectl-ferrite";

/// Writes the archive of this machine's platform. The same program makes the same bytes.
///
/// # Errors
/// When the program cannot be read, or the archive not be written.
pub fn archive(program: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let mut tar = Tar::default();
    tar.add(PROGRAM, 0o755, b'0', &fs::read(program)?);
    tar.add("LICENSE", 0o644, b'0', &fs::read(crate::checkout().join("LICENSE"))?);
    let name = format!("{PROGRAM}_{}_{}.tar", std::env::consts::OS, architecture());
    let unpacked = folder.join(name);
    fs::write(&unpacked, tar.end())?;
    // Without -n the archive holds the time of this call, and its checksum changes with it.
    cache::run(Command::new("gzip").args(["-n", "-f"]).arg(&unpacked))?;
    Ok(unpacked.with_extension("tar.gz"))
}

/// Writes the Krew manifest of all archives in the folder. `source` is the address of the repository that has the release.
///
/// # Errors
/// When an archive cannot be read, or the manifest not be written.
pub fn manifest(version: &str, source: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let mut platforms = Vec::new();
    for entry in fs::read_dir(folder)? {
        let archive = entry?.path();
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        if let Some((os, arch)) = platform(&name) {
            platforms.push(json!({
                "selector": {"matchLabels": {"os": os, "arch": arch}},
                "uri": format!("{source}/releases/download/{PROGRAM}-v{version}/{name}"),
                "sha256": format!("{:x}", Sha256::digest(fs::read(&archive)?)),
                "bin": PROGRAM,
            }));
        }
    }
    // A folder has no order of its own, and the manifest must not change with it.
    platforms.sort_by_key(Value::to_string);
    let manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "ferrite"},
        "spec": {
            "version": format!("v{version}"),
            "homepage": source,
            "shortDescription": "Say why bare-metal hosts and clusters wait",
            "description": "Says why a Machine, a BareMetalHost, a ClusterPool or what belongs to them waits, \
                since when, and what to do. It has the rights of its user, and also explains clusters without Ferrite's controllers.",
            "platforms": platforms,
        },
    });
    let file = folder.join("ferrite.yaml");
    fs::write(&file, serde_saphyr::to_string(&manifest)?)?;
    Ok(file)
}

/// `(linux, amd64)` of `kubectl-ferrite_linux_amd64.tar.gz`.
fn platform(archive: &str) -> Option<(&str, &str)> {
    archive.strip_prefix(PROGRAM)?.strip_prefix('_')?.strip_suffix(".tar.gz")?.split_once('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_holds_neither_its_name_nor_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let archive = archive(&program, folder.path()).unwrap();
        // The flags and the seconds of gzip's header.
        assert_eq!(fs::read(archive).unwrap()[3..8], [0; 5]);
    }
}

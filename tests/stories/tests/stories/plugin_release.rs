//! A release of the kubectl plugin, installed by Krew.

use std::fs;
use std::path::Path;
use std::process::Command;

use bench::cache::{RunDir, run};
use bench::{go, plugin};

use crate::in_process::program;

const SOURCE: &str = "https://example.org/ferrite";

#[test]
fn krew_installs_the_plugin_of_this_machine_from_manifest_and_archive() {
    let folder = RunDir::new("krew").unwrap();
    let out = folder.path();
    // As the release gathers them: the archives of both architectures lie in one folder.
    for arch in ["amd64", "arm64"] {
        fs::write(out.join(format!("kubectl-ferrite_linux_{arch}.tar.gz")), arch).unwrap();
    }
    let archive = plugin::archive(&program("kubectl-ferrite"), out).unwrap();
    let manifest = plugin::manifest("1.2.3", SOURCE, out).unwrap();
    let text = fs::read_to_string(&manifest).unwrap();
    for arch in ["amd64", "arm64"] {
        let name = format!("kubectl-ferrite_linux_{arch}.tar.gz");
        let uri = format!("{SOURCE}/releases/download/kubectl-ferrite-v1.2.3/{name}");
        assert!(text.contains(&uri), "{text}");
    }

    let validate = go::program("validate-krew-manifest").unwrap();
    run(Command::new(validate).args(["--skip-install", "--manifest"]).arg(&manifest)).unwrap();
    let root = out.join("krew");
    install(&root, &manifest, &archive).unwrap();

    let installed = root.join("bin/kubectl-ferrite");
    let said = run(Command::new(&installed).arg("--version")).unwrap();
    assert!(said.starts_with("kubectl-ferrite "), "{said}");
    let said = run(Command::new(&installed).args(["completion", "bash"])).unwrap();
    assert!(said.contains("complete -F"), "{said}");
    assert!(root.join("store/ferrite/v1.2.3/LICENSE").is_file());

    // Krew compares the checksum of the manifest.
    let other = out.join("kubectl-ferrite_linux_other.tar.gz");
    fs::write(&other, "not what the manifest names").unwrap();
    let refused = install(&out.join("refused"), &manifest, &other).unwrap_err().to_string();
    assert!(refused.contains("checksum"), "{refused}");
}

/// Installs what the manifest says from a file instead of its address.
fn install(root: &Path, manifest: &Path, archive: &Path) -> anyhow::Result<String> {
    let mut krew = Command::new(go::program("krew")?);
    krew.env("KREW_ROOT", root).env("KREW_NO_UPGRADE_CHECK", "1");
    krew.arg("install").arg("--manifest").arg(manifest).arg("--archive").arg(archive);
    run(&krew)
}

//! `cargo xtask plugin`: what a release of the kubectl plugin consists of.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use bench::plugin::{PROGRAM, archive, manifest};
use bench::programs::{self, Profile};
use bench::steps::step;
use clap::Args;

/// Bytes of the program: people download it.
const PROGRAM_MAX_BYTES: u64 = 8_000_000;

#[derive(Args)]
pub(crate) struct PluginRelease {
    /// Version of the release: that of the workspace.
    #[arg(long)]
    version: String,
    /// Address of the repository that has the release.
    #[arg(long, value_name = "URL")]
    source: String,
    /// Folder of the archives and the manifest.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

/// Builds the plugin, writes its archive and the manifest, and says how large they are.
///
/// # Errors
/// When the version is another, or the plugin does not compile or is too large.
pub(crate) fn run(release: &PluginRelease) -> anyhow::Result<()> {
    let PluginRelease { version, source, out } = release;
    let own = env!("CARGO_PKG_VERSION");
    ensure!(
        version == own,
        "The workspace has version {own}, not {version}. Set it in Cargo.toml."
    );
    let programs = step("a static build of the plugin (minutes)", || {
        programs::build(Profile::Plugin, &["--package", PROGRAM])
    })?;
    let program = programs.join(PROGRAM);
    check_size(&program)?;
    fs::create_dir_all(out)?;
    for file in [program.clone(), archive(&program, out)?, manifest(version, source, out)?] {
        println!("{:>9} bytes  {}", fs::metadata(&file)?.len(), file.display());
    }
    Ok(())
}

fn check_size(program: &Path) -> anyhow::Result<()> {
    let bytes = fs::metadata(program)?.len();
    ensure!(
        bytes <= PROGRAM_MAX_BYTES,
        "{} has {bytes} bytes, {PROGRAM_MAX_BYTES} at most. Remove a dependency, or what it uses of one.",
        program.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_over_its_limit_is_refused_with_its_size() {
        let folder = bench::cache::RunDir::new("plugin-size").unwrap();
        let program = folder.path().join(PROGRAM);
        fs::File::create(&program).unwrap().set_len(PROGRAM_MAX_BYTES).unwrap();
        check_size(&program).unwrap();
        fs::File::create(&program).unwrap().set_len(PROGRAM_MAX_BYTES + 1).unwrap();
        let refused = check_size(&program).unwrap_err().to_string();
        assert!(refused.contains("has 8000001 bytes, 8000000 at most."), "{refused}");
    }
}

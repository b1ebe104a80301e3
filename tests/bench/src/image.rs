//! OCI images, written without a container engine: one layer on an empty base, as an archive that `ctr images import`,
//! `podman load` and `skopeo copy oci-archive:` take. The same input makes the same bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::programs::{self, Profile};

/// Nobody in particular: no account of any machine has this number.
const USER: &str = "65532:65532";

/// Debian's public authorities, for services that have a certificate of one of them.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Bytes of a controller's image, before compression: what is promised of all of them.
pub const LARGEST: usize = 15_000_000;

/// One file of an image.
#[derive(Debug)]
struct Entry {
    /// Without a leading slash.
    path: &'static str,
    mode: u32,
    content: Vec<u8>,
}

/// What an image is made of.
#[derive(Debug)]
pub struct Image {
    reference: String,
    entrypoint: &'static str,
    port: Option<u16>,
    labels: BTreeMap<&'static str, String>,
    entries: Vec<Entry>,
    program: PathBuf,
}

/// An image that has been written.
#[derive(Debug)]
pub struct Written {
    /// By this name the charts and the kubelet know it.
    pub reference: String,
    /// Of the manifest: what `image.digest` of a chart takes.
    pub digest: String,
    /// What a registry keeps of it: layer, configuration and manifest.
    pub bytes: usize,
    /// The archive.
    pub archive: PathBuf,
    /// What was put into it.
    pub program: PathBuf,
}

impl Image {
    /// The image of a controller, the same as `deploy/Dockerfile` makes, around a static program.
    ///
    /// # Errors
    /// When the program cannot be read, or needs libraries that an empty base does not have.
    pub fn of_controller(
        controller: &str,
        program: &Path,
        version: &str,
        revision: &str,
    ) -> anyhow::Result<Self> {
        let content = std::fs::read(program)
            .with_context(|| format!("cannot read {}: build it first", program.display()))?;
        ensure!(
            !has_interpreter(&content),
            "{} is linked to the libraries of this machine: an empty base has none",
            program.display()
        );
        let mut entries = vec![Entry { path: "controller", mode: 0o755, content }];
        if let Ok(content) = std::fs::read(AUTHORITIES) {
            let path = AUTHORITIES.trim_start_matches('/');
            entries.push(Entry { path, mode: 0o644, content });
        }
        let labels = [
            ("title", format!("ferrite/{controller}")),
            ("description", "A Kubernetes controller for bare-metal hosts".to_owned()),
            ("licenses", "Apache-2.0".to_owned()),
            ("version", version.to_owned()),
            ("revision", revision.to_owned()),
        ];
        Ok(Self {
            reference: format!("{}:{version}", repository(controller)),
            entrypoint: "/controller",
            port: Some(8080),
            labels: labels.into_iter().map(|(name, value)| (label(name), value)).collect(),
            entries,
            program: program.to_owned(),
        })
    }

    /// What holds the namespaces of a pod open: it sleeps for ever. 129 bytes by hand instead of a download.
    pub(crate) fn pause(reference: &str) -> Self {
        Self {
            reference: reference.to_owned(),
            entrypoint: "/pause",
            port: None,
            labels: BTreeMap::new(),
            entries: vec![Entry { path: "pause", mode: 0o755, content: sleeper() }],
            program: PathBuf::new(),
        }
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, archive: &Path) -> anyhow::Result<Written> {
        let mut layer = Tar::default();
        let mut folders = Vec::new();
        for entry in &self.entries {
            for folder in Path::new(entry.path).ancestors().skip(1) {
                folders.extend(folder.to_str().filter(|folder| !folder.is_empty()));
            }
        }
        folders.sort_unstable();
        folders.dedup();
        for folder in folders {
            layer.add(&format!("{folder}/"), 0o755, b'5', &[]);
        }
        for entry in &self.entries {
            layer.add(entry.path, entry.mode, b'0', &entry.content);
        }
        let layer = layer.end();
        let ports = self.port.map(|port| json!({format!("{port}/tcp"): {}}));
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "User": USER,
                "Entrypoint": [self.entrypoint],
                "ExposedPorts": ports.unwrap_or_else(|| json!({})),
                "Labels": self.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
            "annotations": self.labels,
        });
        let manifest = manifest.to_string().into_bytes();
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        let tag = self.reference.rsplit(':').next().unwrap_or_default();
        entry["annotations"] = json!({
            "io.containerd.image.name": self.reference,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();

        let mut tar = Tar::default();
        tar.add("oci-layout", 0o644, b'0', br#"{"imageLayoutVersion":"1.0.0"}"#);
        tar.add("index.json", 0o644, b'0', index.as_bytes());
        for blob in [&manifest, &config, &layer] {
            let name = digest(blob).replace(':', "/");
            tar.add(&format!("blobs/{name}"), 0o644, b'0', blob);
        }
        File::create(archive)
            .and_then(|mut file| file.write_all(&tar.end()))
            .with_context(|| format!("cannot write {}", archive.display()))?;
        Ok(Written {
            reference: self.reference.clone(),
            digest: digest(&manifest),
            bytes: manifest.len() + config.len() + layer.len(),
            archive: archive.to_owned(),
            program: self.program.clone(),
        })
    }
}

/// The architecture of this machine, as images and Krew name it.
pub(crate) fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// `image.repository` for an image that is made here. No registry has this name, so it is the same on every machine and
/// a node that has no such image pulls nobody else's.
pub fn repository(controller: &str) -> String {
    format!("localhost/ferrite/{controller}")
}

/// Builds controllers and writes their images to `images/` beside the programs.
///
/// # Errors
/// When one does not compile or cannot be written.
pub fn build(profile: Profile, controllers: &[&str]) -> anyhow::Result<Vec<Written>> {
    let words: Vec<&str> = controllers.iter().flat_map(|name| ["--package", *name]).collect();
    let programs = programs::build(profile, &[words.as_slice(), &["--bins"]].concat())?;
    let images = programs.join("images");
    std::fs::create_dir_all(&images)?;
    // What the program itself is told of its origin, too.
    let revision = std::env::var("FERRITE_REVISION").unwrap_or_else(|_| "unknown".to_owned());
    let write = |controller: &&str| {
        let program = programs.join(controller);
        let version = env!("CARGO_PKG_VERSION");
        let image = Image::of_controller(controller, &program, version, &revision)?;
        let written = image.write(&images.join(format!("{controller}.tar")))?;
        ensure!(
            written.bytes < LARGEST,
            "the image of {controller} has {} bytes, and {LARGEST} are promised to be the most",
            written.bytes
        );
        Ok(written)
    };
    controllers.iter().map(write).collect()
}

fn label(name: &str) -> &'static str {
    match name {
        "title" => "org.opencontainers.image.title",
        "description" => "org.opencontainers.image.description",
        "licenses" => "org.opencontainers.image.licenses",
        "version" => "org.opencontainers.image.version",
        _ => "org.opencontainers.image.revision",
    }
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(content))
}

fn descriptor(kind: &str, content: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(content), "size": content.len()})
}

/// Whether a program asks for a dynamic linker: a program header of type `PT_INTERP`.
fn has_interpreter(program: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| -> usize {
        let slice = program.get(at..at + bytes).unwrap_or_default();
        slice.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|index| number(start + index * size, 4) == 3)
}

/// The smallest ELF program for x86-64 that waits for a signal, again and again.
fn sleeper() -> Vec<u8> {
    const BASE: u64 = 0x0040_0000;
    // mov eax, 34 (pause); syscall; jmp back
    const CODE: [u8; 9] = [0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut put = |value: u64, bytes: usize| elf.extend(&value.to_le_bytes()[..bytes]);
    // An executable for x86-64, version 1; its first instruction stands behind both headers.
    for (value, bytes) in [(2, 2), (62, 2), (1, 4), (BASE + 120, 8), (64, 8), (0, 8), (0, 4)] {
        put(value, bytes);
    }
    // Size of this header; size and number of program headers; no sections.
    for value in [64, 56, 1, 0, 0, 0] {
        put(value, 2);
    }
    // One segment, to be loaded, readable and executable: the whole file.
    put(1, 4);
    put(5, 4);
    for value in [0, BASE, BASE, 129, 129, 0x1000] {
        put(value, 8);
    }
    elf.extend(CODE);
    elf
}

/// The tape archive of POSIX, as far as images and the plugin need it.
#[derive(Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    pub(crate) fn add(&mut self, path: &str, mode: u32, kind: u8, content: &[u8]) {
        let mut header = [0_u8; 512];
        let mut put =
            |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, path);
        put(100, &format!("{mode:07o}"));
        // Owner and group: root, who alone may change what runs.
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", content.len()));
        // No time: the same content makes the same image.
        put(136, "00000000000");
        put(148, "        ");
        put(257, "ustar\x0000");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(header);
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tar_reads_what_was_written_and_it_is_the_same_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let image = Image::pause("example.org/pause:1");
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let written = image.write(&one).unwrap();
        assert_eq!(written.digest, image.write(&two).unwrap().digest);
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
        let mut tar = Command::new("tar");
        crate::cache::run(tar.arg("-xf").arg(&one).arg("-C").arg(dir.path())).unwrap();
        let index = std::fs::read(dir.path().join("index.json")).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        assert_eq!(index["manifests"][0]["digest"], written.digest);
        let blob = |descriptor: &Value| {
            let name = descriptor["digest"].as_str().unwrap().replace(':', "/");
            dir.path().join("blobs").join(name)
        };
        let manifest = std::fs::read(blob(&index["manifests"][0])).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let mut tar = Command::new("tar");
        let layer = blob(&manifest["layers"][0]);
        crate::cache::run(tar.arg("-xf").arg(layer).arg("-C").arg(dir.path())).unwrap();
        assert_eq!(std::fs::read(dir.path().join("pause")).unwrap(), sleeper());
    }

    #[test]
    fn a_program_that_needs_libraries_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let refused = Image::of_controller("sample", &own, "1.0.0", "none").unwrap_err();
        assert!(refused.to_string().contains("libraries"), "{refused}");
        let fixed = dir.path().join("static");
        std::fs::write(&fixed, sleeper()).unwrap();
        Image::of_controller("sample", &fixed, "1.0.0", "none").unwrap();
    }
}

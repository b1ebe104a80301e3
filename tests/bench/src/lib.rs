//! Real neighbours for the tests: how they are built, started, disturbed and counted.

#![allow(clippy::disallowed_methods, reason = "the bench asks for what its own API server serves")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub mod agent;
pub mod audit;
pub mod bmc;
pub mod bmo;
pub mod cache;
pub mod certs;
pub mod chart;
pub mod cluster_api;
pub mod control_plane;
pub mod controller;
pub mod crds;
pub mod faults;
pub mod go;
pub mod hive;
pub mod image;
pub mod ironic;
pub mod kubelet;
pub mod load;
pub mod model;
pub mod node;
pub mod objects;
pub mod observer;
pub mod plugin;
pub mod power;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod proxy;
pub mod python;
pub mod registrar;
pub mod skip;
pub mod steps;
pub mod sweep;
mod timeline;

/// The checkout that this runs in. Asked for when it runs: a program that was compiled in one checkout and found
/// up to date in another must not look into the first.
///
/// # Panics
/// When neither cargo nor the current folder leads to a checkout.
pub fn checkout() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let start = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let start = start.or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        let found = start.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
        assert!(found.is_some(), "Run this inside the checkout: {} is not", start.display());
        found.unwrap_or(&start).to_owned()
    })
}

//! Real neighbours for the tests: how they are built, started, disturbed and counted.
pub mod audit;
pub mod cache;
pub mod certs;
pub mod chart;
pub mod cluster_api;
pub mod control_plane;
pub mod crds;
pub mod faults;
pub mod go;
pub mod model;
pub mod observer;
pub mod process;
pub mod python;
pub mod steps;
pub mod sweep;
mod timeline;

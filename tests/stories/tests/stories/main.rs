//! What must be seen working, one file per story. One binary, so that all stories share one control plane.

mod chart;
mod cluster_api;
mod control_plane;
mod crds;
mod ironic;
mod kit;
mod model;
mod sweeps;

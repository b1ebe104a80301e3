//! What must be seen working, one file per story. One binary, so that all stories share one control plane.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a story that cannot go on fails, in its own functions too"
)]
#![allow(clippy::disallowed_methods, reason = "a story asks for what its own API server serves")]

// Tests begin in the order of their names: first the one that takes longest.
mod all_five;
mod bmo_reboot;
mod capm3_reuse;
mod chart;
mod cluster_api;
mod clusterpool_inventory;
mod control_plane;
mod crd_fields;
mod crds;
mod faults;
mod host_discovery;
mod in_process;
mod ironic;
mod ironic_client;
mod ironic_power;
mod ironic_trust;
mod kit;
mod kit_trial;
mod model;
mod operator;
mod played;
mod plugin;
mod plugin_doctor;
mod plugin_follow;
mod plugin_release;
mod plugin_writes;
mod pods;
mod remediation;
mod sample;
mod smallness;
mod sweeps;
mod watching;

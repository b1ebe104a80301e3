//! The right host for every machine, and the same host again.

mod ground;
mod scene;

mod claims;
mod keeping;
mod model;
mod process;
mod rollouts;
mod sweeps;
mod waiting;

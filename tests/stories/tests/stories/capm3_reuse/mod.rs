//! The right host for every machine, and the same host again.

pub(crate) mod ground;
mod scene;

mod bad_input;
mod capm3;
mod claims;
pub(crate) mod guard;
mod keeping;
mod meanwhile;
mod model;
mod neighbours;
mod nodes;
mod process;
mod rollouts;
mod rules;
mod scaling;
mod shapes;
mod sweeps;
mod waiting;

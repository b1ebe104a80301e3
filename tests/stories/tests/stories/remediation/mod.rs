//! `remediation` on real API servers: the management cluster and a workload cluster whose Node it fences and awaits.

mod abort;
mod bad_input;
mod by_hand;
mod courses;
mod cycle;
pub(crate) mod ground;
mod guard;
mod model;
mod neighbours;
pub(crate) mod operator;
mod rules;
mod scene;
mod several;
mod stale;
mod stock;
mod sweeps;
mod workload;

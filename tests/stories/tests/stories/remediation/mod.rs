//! `remediation` on real API servers: the management cluster and a workload cluster whose Node it fences and awaits.

mod abort;
mod bad_input;
mod by_hand;
mod cycle;
mod ground;
mod model;
mod neighbours;
mod operator;
mod scene;
mod sweeps;
mod workload;

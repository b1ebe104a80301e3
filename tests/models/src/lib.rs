//! A small world for each controller, in which its very `decide` is explored: the tests visit the small ones,
//! `cargo xtask model` the large ones.

pub mod bmo_reboot;
pub mod capm3_reuse;
pub mod clusterpool_inventory;
pub mod engine;
pub mod host_discovery;
pub mod remediation;
pub mod sample;

use bench::model::{Bounds, Report};

/// A world that can be explored.
pub struct World {
    /// What is in it.
    pub name: String,
    /// Visits every state up to the bounds.
    pub explore: Box<dyn Fn(Bounds) -> Report>,
}

/// Makes the worlds of a controller.
pub type Worlds = fn() -> Vec<World>;

/// All models by name: one line for each controller.
pub const ALL: &[(&str, Worlds)] = &[
    ("bmo-reboot", bmo_reboot::large),
    ("capm3-reuse", capm3_reuse::large),
    ("clusterpool-inventory", clusterpool_inventory::large),
    ("engine", engine::large),
    ("host-discovery", host_discovery::large),
    ("remediation", remediation::large),
    ("sample", sample::large),
    // To see what a counterexample looks like.
    ("sample-flawed", sample::flawed),
];

//! A small world for each controller, in which its very `decide` is explored: the tests visit the small ones,
//! `cargo xtask model` the large ones.

pub mod bmo_reboot;
pub mod capm3_reuse;
pub mod sample;

use bench::model::{Bounds, Report};

/// A world that can be explored.
pub struct World {
    /// What is in it.
    pub name: String,
    /// Visits every state up to the bounds.
    pub explore: Box<dyn Fn(Bounds) -> Report>,
}

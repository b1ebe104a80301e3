//! Labels, annotations, finalizers and condition types, each once, with who writes and reads it.
//!
//! A controller that needs such a name takes it from here; a literal elsewhere is a mistake.

pub mod capi;
pub mod capm3;
pub mod ferrite;
pub mod hive;
pub mod metal3;

//! Labels, annotations, finalizers and condition types, each once, with who writes and reads it.
//!
//! A controller that needs such a name takes it from here; a literal elsewhere is a mistake.

/// What `kubectl apply` keeps of an object: all that was applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub mod capi;
pub mod capm3;
pub mod ferrite;
pub mod hive;
pub mod metal3;

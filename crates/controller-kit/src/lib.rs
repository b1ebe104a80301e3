//! What the five controllers share: start-up, probes, metrics, lease, watches. No domain word.
//!
//! Functions and small structs. A controller writes its own `main`, its own reconcile function and
//! its own Policy; this crate starts it ([`run::main`]), feeds it ([`watch`]), drives it
//! ([`run::drive`]) and stops it in order.
//!
//! At rest a controller built on it writes nothing but its lease (one patch each retry period), lists
//! nothing, and holds one watch per kind and namespace, one per CRD it needs, and one on its lease.

pub mod api_error;
pub mod backoff;
mod bounded;
pub mod check;
pub mod config;
pub mod crd;
pub mod events;
mod guarded;
pub mod http;
pub mod kit;
pub mod kubeconfig;
pub mod lease;
pub mod metrics;
pub mod readiness;
pub mod run;
pub mod shutdown;
pub mod telemetry;
pub mod watch;

pub use kit::Kit;

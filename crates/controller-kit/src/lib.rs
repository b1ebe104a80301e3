//! What the five controllers share: start-up, probes, metrics, lease, watches. No domain word.
//!
//! A controller writes its own `main`, its own settings and its own rule book, an [`engine::Controller`]; this crate starts it
//! ([`run::main`]), feeds it ([`watch`]), drives it ([`engine::run`]) and stops it in order.
//!
//! The way of a controller, which all five go:
//!
//! * `main` reads the command line and hands `settings::needs` and `controller::run` to [`run::main`].
//! * `controller::run` begins its watches: [`watch::namespaced`] for what `--namespaces` limits, [`watch::everywhere`] for the
//!   rest. A change wakes the keys that it concerns ([`engine::Lookout`]).
//! * [`engine::run`] gives each key its passes: `observe`, `decide`, `write`. It looks at everything again when
//!   [`Kit::may_act`] becomes true, so a pass that may not act writes nothing and need not remember that. It tells the owners of objects that cannot be decoded.
//! * A pass may be dropped at any `await`: by its deadline, or with the process. Whatever is to be told or written once is
//!   marked as done after it was done, or handed to somebody who goes on.
//! * An object is gone only if the API server says so of that object: [`api_error::unless_gone`].
//!
//! At rest a controller built on it writes nothing but its lease (one patch each retry period), lists
//! nothing, and holds one watch per kind and namespace, one per CRD it needs, and one on its lease.

pub mod api_error;
pub mod backoff;
mod bounded;
pub mod cache;
pub mod check;
pub mod config;
pub mod connection;
pub mod crd;
pub mod engine;
pub mod events;
mod guarded;
mod http;
pub mod kit;
pub mod kubeconfig;
pub mod leadership;
pub mod lease;
pub mod liveness;
pub mod metrics;
pub mod readiness;
pub mod run;
pub mod served;
mod shared;
pub mod shutdown;
pub mod telemetry;
pub mod unread;
pub mod watch;

pub use kit::Kit;

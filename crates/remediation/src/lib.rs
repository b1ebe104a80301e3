//! Power-cycles the host of an unhealthy machine, and hands the machine to its owner when that does not help.
//!
//! It is the controller of `Metal3Remediation`, which a `MachineHealthCheck` makes from a template, in the group
//! `remediation.metal3.io` and, with `--upstream-group`, in CAPM3's.
//!
//! * Watches: `Metal3Remediation`, `BareMetalHost`, `Metal3Machine`, `Machine`, `Cluster`.
//! * Reads live: all that a write depends on, before it, but for request and host of a first try: its first two writes insist on
//!   the versions that were decided on. The Node in the workload cluster, through the secret
//!   `<cluster>-kubeconfig`, only while something depends on it.
//! * Writes: on a `Metal3Remediation` the finalizer, the status, the backup of a Node; on a `BareMetalHost` its own key
//!   `reboot.metal3.io/metal3-remediation-<uid>`, the record of the last tries, and when all tries have failed the marks of
//!   an unhealthy host and `online: false`; on a `Machine` the conditions `OwnerRemediated`, `ExternallyRemediated` and, where
//!   no health check says so, `HealthCheckSucceeded`, and one without owner is deleted; on a Node the out-of-service taint, or
//!   its deletion and the labels of its successor.
//! * Never: acts on a host that is not the machine's, but for taking its own key off it; removes anybody's mark of an
//!   unhealthy host; takes a host for off that was not seen off after its request; writes anything for a request that is paused.
//!
//! A try: the finalizer, then key and record on the host in one write; the host is off; the node is fenced, in bounded
//! time; the key goes; the host is on; the node is ready again. Whatever ends a request, the key goes, and the node is
//! given back before the finalizer goes.

pub mod changes;
pub mod clusters;
pub mod complaint;
pub mod conditions;
pub mod context;
pub mod controller;
pub mod decide;
pub mod decision;
pub mod history;
pub mod leftover;
pub mod metrics;
pub mod model;
pub mod observe;
pub mod pauses;
pub mod reason;
pub mod request;
pub mod seen;
pub mod served;
pub mod settings;
pub mod text;
pub mod tries;
pub mod turns;
pub mod watched;
pub mod write;

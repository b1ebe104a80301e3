//! Pools of clusters whose names, addresses and hosts exist once.
//!
//! It is the controller of `ClusterPool`, with and without an inventory. One controller of that kind only: where this
//! runs, Hive's own `clusterpool` controller is switched off, and Hive's others install, hibernate and deprovision what is
//! created here.
//!
//! * Watches: `ClusterPool`, `ClusterDeploymentCustomization` and `ClusterClaim` in the namespaces of its pools,
//!   `ClusterDeployment` everywhere, the namespaces of clusters, role bindings.
//! * Reads live: the pool before anything is done for it; a lease before its cluster may be installed and before the last
//!   finalizer goes off a cluster; the cluster before a lease is given up or restored; the claim once it has its cluster;
//!   secrets and image set by name.
//! * Writes: a new cluster with its namespace, secrets, machine pool and copies of customizations; claim, power and finalizer of a
//!   cluster; who has a customization, and the finalizer on it; which cluster a claim gets; a pool's finalizer,
//!   status, and a note of what Hive made its clusters from; bindings of a pool's administrators in the namespaces of its clusters; events. Every write of something that
//!   others write too insists on the version that it was decided on.
//! * Never: leases a customization that somebody has; lets Hive install a cluster whose lease was not verified; releases a
//!   lease while its cluster may exist; deletes a claimed cluster that is not marked; looks at pools of another namespace
//!   when it speaks of customizations, whatever their names.
//!
//! Where to begin to read, in the order of one pass over a pool:
//!
//! 1. [`model`] has what a pass sees, writes and remembers; [`controller`] gives the passes to the engine.
//! 2. [`changes`] and [`index`] tell which pools a changed object concerns.
//! 3. [`observe`] reads a pool into the plain data of [`seen`].
//! 4. [`mod@decide`] has the rules in their order. `usage` tells them who has which entry, and each adds to `plan`.
//! 5. [`decision`] is what comes of that: steps, status, events. [`write`](mod@write) carries it out.
//!
//! The rest serves these: [`patch`] and [`yaml`] make install configs, [`make`] and [`platform`] the objects of
//! a cluster, [`pool_version`] and [`naming`] tell versions and names, `status`, [`text`] and [`reason`] are what people read.

pub mod access;
pub mod changes;
pub mod context;
pub mod controller;
pub mod decide;
pub mod decision;
pub mod index;
pub mod make;
pub mod metrics;
pub mod model;
pub mod naming;
pub mod needs;
pub mod observe;
pub mod patch;
mod plan;
pub mod platform;
pub mod pool_version;
pub mod reason;
pub mod seen;
pub mod settings;
mod status;
pub mod text;
mod usage;
pub mod write;
pub mod yaml;

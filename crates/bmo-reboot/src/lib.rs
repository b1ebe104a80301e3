//! Switches hosts off and on: the one writer of power for the hosts that were handed to it.
//!
//! `spec.online` and the reboot requests of many clients (`reboot.metal3.io` and `reboot.metal3.io/<key>`) are carried
//! out in one place, through Ironic. After a request was accepted exactly one power cycle follows; while anybody holds
//! the host, its power does not come back; and `poweredOn: false` is a fence that can be relied on.
//!
//! * Watches: `BareMetalHost`s, all of them; acts on those that `--host-selector` selects. The CRD of hosts, for
//!   the fields that its `extend-crd` adds. Ironic's list of nodes, polled.
//! * Reads live: the host and its node, in every pass. Of many at once the nodes are read by one list; the host is then the
//!   one in the cache, which the list is later than, and is written on that version or not at all. A host that its node
//!   would leave at rest is not looked at: the lists tell of each node that is not as its host says.
//! * Writes: of a host's status `poweredOn`, the stamps `pendingRebootSince` and `lastPoweredOn`, the conditions
//!   `Rebooting`, `PowerManaged` and `RebootRecord`, a power management error, and `lastUpdated`; of its annotations it removes the
//!   plain request when it was carried out, all requests when the host was deprovisioned, and with `--takeover` it sets
//!   and lifts the operator's pause with a value of its own. Events. The power state in Ironic.
//! * Never: removes somebody's hold from a provisioned host, changes any other field, acts on what a cache says without a
//!   write that proves it, switches a host on without a write that proves that nobody holds it, or takes silence for off.

mod case;
pub mod context;
pub mod controller;
pub mod decide;
mod draft;
pub mod metrics;
pub mod model;
pub mod observe;
mod power_off;
pub mod reason;
pub mod record;
pub mod requests;
pub mod settings;
pub mod settle;
pub mod text;
mod waits;
pub mod write;

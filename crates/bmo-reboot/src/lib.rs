//! Switches hosts off and on: the one writer of power for the hosts that were handed to it.
//!
//! `spec.online` and the reboot requests of many clients (`reboot.metal3.io` and `reboot.metal3.io/<key>`) are carried
//! out in one place, through Ironic. After a request was accepted exactly one power cycle follows; while anybody holds
//! the host, its power does not come back; and `poweredOn: false` is a fence that can be relied on.
//!
//! * Watches: `BareMetalHost`s, all of them; acts on those that `--host-selector` selects. The CRD of hosts, for
//!   the fields that its `extend-crd` adds. Ironic's list of nodes, polled.
//! * Reads live: the host and its node, in every pass, with two exceptions: the first step for a hard request rests on the
//!   last reading of the node, and of a crowd the nodes are read by lists. The host is then the one in the cache, and is
//!   written on that version or not at all.
//! * Writes: of a host's status `poweredOn`, the stamps `pendingRebootSince` and `lastPoweredOn`, the conditions
//!   `Rebooting`, `PowerManaged` and `RebootRecord`, a power management error, and `lastUpdated`; of its annotations it removes the
//!   plain request when it was carried out, all requests when the host was deprovisioned, and with `--takeover` it sets
//!   and lifts the operator's pause with a value of its own. Events. The power state in Ironic.
//! * Never: removes somebody's hold from a provisioned host, changes any other field, acts on what a cache says without a
//!   write that proves it, switches a host on without a write that proves that nobody holds it, or takes silence for off.

pub mod act;
mod case;
pub mod config;
pub mod controller;
pub mod decide;
pub mod decision;
mod draft;
pub mod error;
pub mod first_step;
pub mod index;
pub mod limits;
mod memory;
pub mod metrics;
pub mod observe;
pub mod poll;
mod power_off;
mod readings;
pub mod reason;
pub mod record;
pub mod requests;
pub mod seen;
pub mod settle;
pub mod text;

//! Which of the machines that Ironic discovered become hosts, and under what name.
//!
//! So far these are the parts without I/O: what is read of an inventory ([`inventory`],
//! [`hardware`]), of a host ([`index`]) and of a resource ([`resource`], [`selector`],
//! [`labels`]), how a host is called ([`naming`]), what is decided ([`decide`]) and what comes of
//! it: the host ([`host`]) and the resource's status ([`report`]).
//!
//! The contract that they are made for:
//!
//! * It watches `BareMetalHostDiscovery` and, of all namespaces, `BareMetalHost`; it asks Ironic
//!   for nodes, ports and inventories.
//! * It creates `BareMetalHost`s in the namespace of the resource, and writes the status and the
//!   approval annotation of the resource.
//! * It never changes or deletes a host, never makes a second host of a machine, and never makes
//!   one of a machine that somebody registered.
//! * It trusts nothing that comes out of an inventory: anybody on the provisioning network can
//!   post one.

pub mod allowance;
pub mod config;
pub mod decide;
pub mod hardware;
pub mod host;
pub mod index;
pub mod inventory;
pub mod labels;
pub mod mac;
pub mod machine;
pub mod naming;
pub mod node_id;
pub mod report;
pub mod resource;
pub mod selector;

pub use mac::Mac;
pub use node_id::NodeId;

//! Which of the machines that Ironic discovered become hosts, and under what name.
//!
//! People rack servers and switch them on; Ironic discovers them; each becomes a `BareMetalHost`, as a
//! `BareMetalHostDiscovery` says.
//!
//! * Watches: `BareMetalHostDiscovery`s where `--namespaces` says; the `BareMetalHost`s of all namespaces, of which only
//!   what identifies a machine is kept. Ironic's list of nodes, polled.
//! * Reads live: of nodes that nobody registered, the ports and the inventory, each once. Before hosts are made, how many
//!   there are, whether their discoveries are as they were decided upon, and once the CRD of the hosts; before one is made,
//!   the host of its machine's other name. Before a node's driver is changed, its host once more.
//! * Writes: new `BareMetalHost`s in the namespace of their resource; the resource's status and its annotation of
//!   approvals. In Ironic a mark on each node that had a host, and a node's driver and interfaces: before a host with a BMC is
//!   made, and with `--adopt-driver` when one gets a BMC. Events.
//! * Never: reads a secret, speaks to a BMC, changes or deletes a host, makes a second host of a machine, or makes one of a
//!   machine that somebody registered.
//! * Trusts nothing that comes out of an inventory: anybody on the provisioning network can post one.

pub mod adopt;
pub mod allowance;
pub mod bmc;
pub mod context;
pub mod controller;
pub mod decide;
pub mod discovery;
pub mod driver;
pub mod hardware;
pub mod host;
pub mod index;
pub mod inventory;
pub mod ip;
pub mod labels;
pub mod look;
pub mod mac;
pub mod machine;
pub mod making;
pub mod metrics;
pub mod model;
pub mod naming;
pub mod node_id;
pub mod nodes;
pub mod observe;
pub mod reason;
pub mod refusals;
pub mod report;
pub mod resource;
pub mod selector;
pub mod settings;
pub mod sighting;
pub mod status;
pub mod table;
pub mod text;
pub mod waits;
pub mod write;

pub use mac::Mac;
pub use node_id::NodeId;

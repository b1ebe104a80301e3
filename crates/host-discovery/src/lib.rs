//! Which of the machines that Ironic discovered become hosts, and under what name.

pub mod mac;
pub mod naming;
pub mod node_id;

pub use mac::Mac;
pub use node_id::NodeId;

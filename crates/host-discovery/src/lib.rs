//! Which of the machines that Ironic discovered become hosts, and under what name.

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
pub mod resource;
pub mod selector;

pub use mac::Mac;
pub use node_id::NodeId;

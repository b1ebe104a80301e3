//! Pools of clusters whose names, addresses and hosts exist once.
//!
//! A pool lists customizations; each of its clusters leases one of them, and no customization is
//! ever in two live clusters. So far this crate holds what is pure: reading and patching install
//! configs ([`yaml`], [`patch`]), the version of a pool's spec ([`pool_version`]), the life of an
//! entry ([`inventory`]), who has it ([`lease`]), and the rules about a whole pool ([`mod@decide`]):
//! from what was seen ([`observe`]) to what is to be written ([`decision`]).

pub mod decide;
pub mod decision;
pub mod inventory;
pub mod lease;
pub mod naming;
pub mod observe;
pub mod patch;
mod plan;
pub mod pool_version;
mod status;
pub mod yaml;

pub use plan::Policy;

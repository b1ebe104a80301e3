//! Kinds, fields and names that the controllers read and write. No I/O.
//!
//! * Foreign kinds ([`metal3`], [`capm3`], [`capi`], [`hive`]) are partial types: see [`foreign`].
//! * Own kinds ([`metal3::BareMetalHostDiscovery`], [`remediation`]) are whole, and their CRDs are
//!   made from them: see [`own_crds`].
//! * What foreign CRDs lack for us is data: see [`extensions`].
//! * Every label, annotation, finalizer and condition type stands once, in [`names`].
//! * So does what several controllers ask of an object, a name or a time: [`capi::is_watched`], [`capm3::is_of`],
//!   [`condition`], [`name`], [`time`].

pub mod capi;
pub mod capm3;
pub mod condition;
mod crds;
mod extension;
pub mod foreign;
pub mod hive;
pub mod metal3;
pub mod name;
pub mod names;
pub mod reference;
pub mod remediation;
pub mod time;

pub use crds::own_crds;
pub use extension::{CrdExtension, extensions};
pub use foreign::{ContractVersion, Unknown};

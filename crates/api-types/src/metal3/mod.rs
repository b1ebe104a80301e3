//! Kinds of `metal3.io`: the host, which the bare metal operator defines, and our discovery.

mod cached;
mod discovery;
mod host;
pub mod power_record;
mod state;

pub use cached::CachedHost;
pub use discovery::{
    Approval, BareMetalHostDiscovery, BareMetalHostDiscoverySpec, BareMetalHostDiscoveryStatus,
    BootMode, CleaningMode, DiscoveredBmc, DiscoveryCounts, HardwareDetail, HardwareLabel,
    HostDefaults, HostSelector, ListedHost, ResourceNameTemplate,
};
pub use host::{
    BareMetalHost, BareMetalHostKind, BareMetalHostSpec, BareMetalHostStatus, Bmc, CustomDeploy,
    Hardware, Image, Nic, Operation, OperationHistory, Provisioning,
};
pub use power_record::{Kept, KeySet, PowerRecord};
pub use state::{ErrorType, OperationalStatus, ProvisioningState};

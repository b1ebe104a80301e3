//! Kinds of Hive.

mod customization;
mod deployment;
mod inventory;
mod pool;

pub use customization::{
    ClusterDeploymentCustomization, ClusterDeploymentCustomizationKind, CustomizationSpec,
    CustomizationStatus, InstallConfigPatch, pools_finalizer,
};
pub use deployment::{
    ClusterClaim, ClusterClaimKind, ClusterClaimSpec, ClusterClaimStatus, ClusterDeployment,
    ClusterDeploymentKind, ClusterDeploymentSpec, ClusterDeploymentStatus, ClusterPoolRef,
    Provisioning,
};
pub(crate) use inventory::LISTS;
pub use inventory::{EntryStatus, Inventory, InventoryEntry, InventoryObject, Unreadable};
pub use pool::{
    ClaimLifetime, ClusterPool, ClusterPoolKind, ClusterPoolSpec, ClusterPoolStatus, EntryState,
    HibernationConfig, LastFailure,
};

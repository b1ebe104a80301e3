//! Kinds of Metal3's Cluster API provider, in both contract versions.

mod data;
mod machine;
mod remediation;

pub use data::{
    Metal3Data, Metal3DataClaim, Metal3DataClaimKind, Metal3DataClaimSpec, Metal3DataClaimStatus,
    Metal3DataKind, Metal3DataSpec, Metal3DataStatus,
};
pub use machine::{
    HostSelector, Initialization, MachineImage, Metal3Machine, Metal3MachineKind,
    Metal3MachineSpec, Metal3MachineStatus, Metal3MachineTemplate, Metal3MachineTemplateKind,
    Metal3MachineTemplateResource, Metal3MachineTemplateSpec, Metal3MachineTemplateStatus,
    Requirement, consumer_machine, is_elsewhere, is_of,
};
pub use remediation::{
    UpstreamRemediation, UpstreamRemediationKind, UpstreamRemediationSpec,
    UpstreamRemediationStatus, UpstreamStrategy,
};

//! Our own kinds of the group `remediation.metal3.io`.

mod resources;
mod words;

pub use resources::{
    Metal3Remediation, Metal3RemediationSpec, Metal3RemediationStatus, Metal3RemediationTemplate,
    Metal3RemediationTemplateSpec, RemediationStrategy, RemediationTemplateResource,
    TemplateMetadata,
};
pub use words::{Phase, Step, StrategyType};

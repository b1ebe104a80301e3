//! The CRDs that we ship.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::metal3::BareMetalHostDiscovery;
use crate::remediation::{Metal3Remediation, Metal3RemediationTemplate};

/// Our CRDs, each beside the one controller whose chart ships it.
pub fn own_crds() -> Vec<(&'static str, CustomResourceDefinition)> {
    vec![
        ("host-discovery", BareMetalHostDiscovery::crd()),
        ("remediation", Metal3Remediation::crd()),
        ("remediation", Metal3RemediationTemplate::crd()),
    ]
}

//! A host as it is watched: only what says which machine it is.
//!
//! What else a host has may have any shape: one of which a field that nobody here looks at has another shape than in the
//! operator's present release would else lose its addresses, and its machine would be made a host a second time.

use std::collections::BTreeMap;

use api_types::metal3::BareMetalHost;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Deserializer};

use crate::node_id::NodeId;

/// A host of which nothing else was read.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = BareMetalHost)]
pub struct Sighting {
    /// What is read of it.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    pub(crate) spec: Option<SpecRead>,
    pub(crate) status: Option<StatusRead>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataRead {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SpecRead {
    #[serde(rename = "bootMACAddress")]
    boot_mac_address: Option<String>,
    bmc: Option<BmcRead>,
}

#[derive(Clone, Debug, Deserialize)]
struct BmcRead {
    address: Option<String>,
}

/// A status, also one that waits in an annotation.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct StatusRead {
    provisioning: Option<ProvisioningRead>,
    pub(crate) hardware: Option<HardwareRead>,
}

#[derive(Clone, Debug, Deserialize)]
struct ProvisioningRead {
    #[serde(rename = "ID")]
    id: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct HardwareRead {
    pub(crate) nics: Option<Vec<NicRead>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NicRead {
    pub(crate) mac: Option<String>,
}

fn metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let read = MetadataRead::deserialize(from)?;
    let created = read.creation_timestamp.and_then(|text| text.parse().ok());
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        uid: read.uid,
        resource_version: read.resource_version,
        creation_timestamp: created.map(Time),
        deletion_timestamp: read.deletion_timestamp,
        labels: read.labels,
        annotations: read.annotations,
        ..ObjectMeta::default()
    })
}

impl Sighting {
    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations().get(key).map(String::as_str)
    }

    /// The address of the interface that it boots from.
    pub fn boot_mac_address(&self) -> Option<&str> {
        self.spec.as_ref()?.boot_mac_address.as_deref()
    }

    /// The address of its BMC.
    pub fn bmc_address(&self) -> Option<&str> {
        self.spec.as_ref()?.bmc.as_ref()?.address.as_deref()
    }
}

impl StatusRead {
    /// The node that the operator works with.
    pub(crate) fn node(&self) -> Option<NodeId> {
        NodeId::parse(self.provisioning.as_ref()?.id.as_deref()?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_is_known_by_its_addresses_whatever_shape_its_other_fields_have() {
        let odd = json!({
            "metadata": {
                "namespace": "metal", "name": "n1", "creationTimestamp": "yesterday",
                "finalizers": "none", "managedFields": [{"time": "9999-12-31T23:59:59Z"}],
            },
            "spec": {
                "bootMACAddress": "52:54:00:00:00:01",
                "bmc": {"address": "192.0.2.1", "credentialsName": ["s"]},
                "online": "yes",
                "image": 7,
            },
            "status": {
                "errorCount": "many",
                "conditions": {},
                "lastUpdated": "yesterday",
                "provisioning": {"ID": NodeId::from(7).to_string(), "state": 1},
                "hardware": {"nics": [{"mac": "52:54:00:00:00:02", "ip": 4}, {}], "cpu": []},
            },
        });
        assert!(serde_json::from_value::<BareMetalHost>(odd.clone()).is_err());
        let host: Sighting = serde_json::from_value(odd).unwrap();
        assert_eq!(host.bmc_address(), Some("192.0.2.1"));
        assert_eq!(host.boot_mac_address(), Some("52:54:00:00:00:01"));
        let status = host.status.unwrap();
        let nics = status.hardware.as_ref().and_then(|it| it.nics.as_deref()).unwrap();
        assert_eq!(nics[0].mac.as_deref(), Some("52:54:00:00:00:02"));
        assert_eq!(status.node(), Some(NodeId::from(7)));
        let bare = json!({"metadata": {"name": "n1"}, "spec": null, "status": {"hardware": null}});
        assert!(serde_json::from_value::<Sighting>(bare).is_ok());
    }
}

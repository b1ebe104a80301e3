//! A host as it is watched: only what says which machine it is.
//!
//! What else a host has may have any shape: one of which a field that nobody here looks at has another shape than in the
//! operator's present release would else lose its addresses, and its machine would be made a host a second time.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api_types::metal3::{
    BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, Bmc, Hardware, Nic, Provisioning,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

/// A host of which nothing else was read.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Read")]
pub struct Sighting(pub BareMetalHost);

#[derive(Deserialize)]
struct Read {
    metadata: ReadMetadata,
    spec: Option<ReadSpec>,
    status: Option<StatusRead>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
struct ReadSpec {
    #[serde(rename = "bootMACAddress")]
    boot_mac_address: Option<String>,
    bmc: Option<ReadBmc>,
}

#[derive(Deserialize)]
struct ReadBmc {
    address: Option<String>,
}

/// A status, also one that waits in an annotation.
#[derive(Default, Deserialize)]
pub(crate) struct StatusRead {
    pub(crate) provisioning: Option<ProvisioningRead>,
    pub(crate) hardware: Option<HardwareRead>,
}

#[derive(Deserialize)]
pub(crate) struct ProvisioningRead {
    #[serde(rename = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct HardwareRead {
    pub(crate) nics: Option<Vec<NicRead>>,
}

#[derive(Deserialize)]
pub(crate) struct NicRead {
    pub(crate) mac: Option<String>,
}

impl From<Read> for Sighting {
    fn from(read: Read) -> Self {
        let metadata = read.metadata;
        let ReadSpec { boot_mac_address, bmc } = read.spec.unwrap_or_default();
        let StatusRead { provisioning, hardware } = read.status.unwrap_or_default();
        let bmc = bmc.and_then(|bmc| bmc.address);
        let nics = hardware.and_then(|hardware| hardware.nics).unwrap_or_default();
        let nics = nics.into_iter().map(|nic| Nic { mac: nic.mac, ..Nic::default() }).collect();
        let id = provisioning.and_then(|it| it.id).unwrap_or_default();
        let created = metadata.creation_timestamp.and_then(|text| text.parse().ok());
        Self(BareMetalHost {
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                creation_timestamp: created.map(Time),
                deletion_timestamp: metadata.deletion_timestamp,
                labels: metadata.labels,
                annotations: metadata.annotations,
                ..ObjectMeta::default()
            },
            spec: BareMetalHostSpec {
                boot_mac_address,
                bmc: bmc.map(|address| Bmc { address, ..Bmc::default() }),
                ..BareMetalHostSpec::default()
            },
            status: Some(BareMetalHostStatus {
                provisioning: Provisioning { id, ..Provisioning::default() },
                hardware: Some(Box::new(Hardware { nics, ..Hardware::default() })),
                ..BareMetalHostStatus::default()
            }),
            ..BareMetalHost::default()
        })
    }
}

impl Resource for Sighting {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        BareMetalHost::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        BareMetalHost::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        BareMetalHost::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        BareMetalHost::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
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
                "provisioning": {"ID": "x", "state": 1},
                "hardware": {"nics": [{"mac": "52:54:00:00:00:02", "ip": 4}, {}], "cpu": []},
            },
        });
        assert!(serde_json::from_value::<BareMetalHost>(odd.clone()).is_err());
        let Sighting(host) = serde_json::from_value(odd).unwrap();
        let macs: Vec<&str> = host.mac_addresses().collect();
        assert_eq!(macs, ["52:54:00:00:00:01", "52:54:00:00:00:02"]);
        assert_eq!(host.spec.bmc.unwrap().address, "192.0.2.1");
        assert_eq!(host.status.unwrap().provisioning.id, "x");
        let bare = json!({"metadata": {"name": "n1"}, "spec": null, "status": {"hardware": null}});
        assert!(serde_json::from_value::<Sighting>(bare).is_ok());
    }
}

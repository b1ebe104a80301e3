//! Where a pool's clusters are installed, and what follows from it.

use api_types::hive::ClusterPoolSpec;
use serde_json::{Map, Value, json};

/// Platforms on which a cluster can be switched off and on. On the others every cluster runs.
const HIBERNATE: [&str; 4] = ["aws", "azure", "gcp", "ibmcloud"];
/// Workers of a new cluster.
const WORKERS: u32 = 3;

/// The platform of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Platform<'a> {
    /// Its name in the spec.
    pub name: &'a str,
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> Platform<'a> {
    /// Reads it; a spec without one says nothing.
    pub fn of(spec: &'a ClusterPoolSpec) -> Option<Self> {
        let (name, fields) = spec.platform.iter().find(|(_, fields)| !fields.is_null())?;
        Some(Self { name, fields: fields.as_object() })
    }

    /// Whether its clusters can hibernate.
    pub fn hibernates(&self) -> bool {
        HIBERNATE.contains(&self.name)
    }

    /// A field as text.
    pub fn text(&self, field: &str) -> Option<&'a str> {
        self.fields?.get(field)?.as_str().filter(|it| !it.is_empty())
    }

    fn secret(&self, fields: &[&'static str]) -> Option<(&'static str, &'a str)> {
        fields.iter().find_map(|field| {
            let name = self.fields?.get(*field)?.get("name")?.as_str();
            Some((*field, name.filter(|it| !it.is_empty())?))
        })
    }

    /// The field with the credentials and the secret that it names.
    pub fn credentials(&self) -> Option<(&'static str, &'a str)> {
        self.secret(&["credentialsSecretRef", "libvirtSSHPrivateKeySecretRef"])
    }

    /// The field with the certificates and the secret that it names.
    pub fn certificates(&self) -> Option<(&'static str, &'a str)> {
        self.secret(&["certificatesSecretRef"])
    }

    /// The same for one cluster, whose secrets are copies under these names.
    pub fn for_cluster(&self, credentials: &str, certificates: &str) -> Value {
        let mut fields = self.fields.cloned().unwrap_or_default();
        for (secret, name) in
            [(self.credentials(), credentials), (self.certificates(), certificates)]
        {
            if let Some((field, _)) = secret {
                fields.insert(field.to_owned(), json!({ "name": name }));
            }
        }
        json!({ self.name: fields })
    }

    /// The workers of a cluster as a machine pool describes them, where one is made on this platform. What the install
    /// config says of them counts; sizes are those that an installer would choose.
    pub fn workers(&self, cluster: &str, config: &Value) -> Option<Value> {
        let said = config.pointer(&format!("/compute/0/platform/{}", self.name));
        let said = |field: &str| said.and_then(|it| it.get(field)).cloned();
        let or = |field: &str, default: Value| said(field).unwrap_or(default);
        let platform = match self.name {
            "aws" => json!({
                "type": or("type", json!("m6a.xlarge")),
                "rootVolume": or("rootVolume", json!({ "size": 120, "type": "gp3" })),
            }),
            "azure" => json!({
                "type": or("type", json!("Standard_D4s_v3")),
                "osDisk": or("osDisk", json!({ "diskSizeGB": 128 })),
            }),
            "gcp" => json!({ "type": or("type", json!("n1-standard-4")) }),
            "openstack" => json!({ "flavor": or("type", json!("m1.xlarge")) }),
            "vsphere" => json!({
                "cpus": or("cpus", json!(4)),
                "coresPerSocket": or("coresPerSocket", json!(2)),
                "memoryMB": or("memoryMB", json!(16384)),
                "osDisk": or("osDisk", json!({ "diskSizeGB": 120 })),
            }),
            _ => return None,
        };
        let replicas = config.pointer("/compute/0/replicas").and_then(Value::as_u64);
        Some(json!({
            "clusterDeploymentRef": { "name": cluster },
            "name": "worker",
            "replicas": replicas.unwrap_or(WORKERS.into()),
            "platform": { self.name: platform },
        }))
    }

    /// Whether a machine pool is made on this platform.
    pub fn has_workers(&self) -> bool {
        self.workers("", &Value::Null).is_some()
    }

    /// An install config where the pool names no template; or what has to be done because there can be none.
    pub fn install_config(&self, credentials: &[(String, String)]) -> Result<Value, String> {
        let secret = |key: &str| {
            credentials.iter().find(|(name, _)| name == key).map(|(_, text)| text.trim().to_owned())
        };
        let section = match self.name {
            "aws" => json!({ "region": self.text("region") }),
            "azure" => json!({
                "region": self.text("region"),
                "baseDomainResourceGroupName": self.text("baseDomainResourceGroupName"),
                "cloudName": self.text("cloudName"),
            }),
            "gcp" => {
                let account = secret("osServiceAccount.json").unwrap_or_default();
                let account: Value = serde_json::from_str(&account).unwrap_or_default();
                json!({ "region": self.text("region"), "projectID": account["project_id"] })
            }
            "openstack" => json!({ "cloud": self.text("cloud") }),
            "vsphere" => json!({
                "vCenter": self.text("vCenter"),
                "datacenter": self.text("datacenter"),
                "defaultDatastore": self.text("defaultDatastore"),
                "folder": self.text("folder"),
                "cluster": self.text("cluster"),
                "network": self.text("network"),
                "username": secret("username"),
                "password": secret("password"),
            }),
            "none" => json!({}),
            name => {
                return Err(format!(
                    "platform {name} needs an install config of its own: name a secret with it in \
                     spec.installConfigSecretTemplateRef"
                ));
            }
        };
        let section: Map<String, Value> = section
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let platform = if self.name == "none" && section.is_empty() {
            json!({ "none": {} })
        } else {
            json!({ self.name: section })
        };
        Ok(json!({
            "apiVersion": "v1",
            "metadata": {},
            "controlPlane": { "name": "master", "replicas": 3 },
            "compute": [{ "name": "worker", "replicas": WORKERS }],
            "networking": {
                "networkType": "OVNKubernetes",
                "serviceNetwork": ["172.30.0.0/16"],
                "clusterNetwork": [{ "cidr": "10.128.0.0/14", "hostPrefix": 23 }],
                "machineNetwork": [{ "cidr": "10.0.0.0/16" }],
            },
            "platform": platform,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(platform: &Value) -> ClusterPoolSpec {
        serde_json::from_value(json!({ "platform": platform })).unwrap()
    }

    #[test]
    fn a_clusters_platform_names_the_copies_of_the_secrets() {
        let spec = spec(&json!({ "openstack": {
            "cloud": "c", "credentialsSecretRef": { "name": "creds" },
            "certificatesSecretRef": { "name": "" },
        }}));
        let platform = Platform::of(&spec).unwrap();
        assert_eq!(platform.credentials(), Some(("credentialsSecretRef", "creds")));
        assert_eq!(platform.certificates(), None);
        let own = platform.for_cluster("a-creds", "a-certs");
        assert_eq!(own["openstack"]["credentialsSecretRef"]["name"], "a-creds");
        assert_eq!(own["openstack"]["cloud"], "c");
        assert!(!platform.hibernates() && platform.has_workers());
    }

    #[test]
    fn workers_are_as_the_install_config_wants_them() {
        let spec = spec(&json!({ "openstack": {} }));
        let config = json!({ "compute": [
            { "replicas": 0, "platform": { "openstack": { "type": "big" } } },
        ]});
        let workers = Platform::of(&spec).unwrap().workers("c", &config).unwrap();
        assert_eq!(workers["platform"]["openstack"]["flavor"], "big");
        assert_eq!(workers["replicas"], 0);
    }

    #[test]
    fn a_platform_that_cannot_be_guessed_wants_a_template() {
        let bare = spec(&json!({ "baremetal": {} }));
        let told = Platform::of(&bare).unwrap().install_config(&[]).unwrap_err();
        assert!(told.contains("spec.installConfigSecretTemplateRef"), "{told}");
        let vsphere = spec(&json!({ "vsphere": { "vCenter": "v" } }));
        let secret = [("username".to_owned(), "u\n".to_owned())];
        let config = Platform::of(&vsphere).unwrap().install_config(&secret).unwrap();
        assert_eq!(config["platform"]["vsphere"], json!({ "vCenter": "v", "username": "u" }));
    }
}

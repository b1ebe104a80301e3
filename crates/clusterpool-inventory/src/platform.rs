//! Where a pool's clusters are installed, and what follows from it.

use api_types::hive::ClusterPoolSpec;
use serde_json::{Map, Value, json};

/// Platforms on which a cluster can be switched off and on. On the others every cluster runs.
const HIBERNATE: [&str; 4] = ["aws", "azure", "gcp", "ibmcloud"];
/// Those with whose clusters Hive does not begin, unless the install config is for them.
const CHECKED: [&str; 5] = ["aws", "azure", "gcp", "nutanix", "vsphere"];
/// Workers of a new cluster.
const WORKERS: u32 = 3;
/// The field of vSphere that says all in the installer's own words, in place of Hive's older fields.
const INFRASTRUCTURE: &str = "infrastructure";
const VCENTERS: &str = "vcenters";

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

    /// The platform that the install config has to name. On the others Hive leaves that to the installer.
    pub fn in_config(&self) -> Option<&'a str> {
        Some(self.name).filter(|it| CHECKED.contains(it))
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

    /// Fields that have to name a secret and do not: without it Hive's installer does not even start.
    pub fn unnamed(&self) -> Vec<&'static str> {
        let needed: &[&'static str] = match self.name {
            "azure" | "openstack" => &["credentialsSecretRef"],
            "vsphere" => &["credentialsSecretRef", "certificatesSecretRef"],
            _ => &[],
        };
        needed.iter().copied().filter(|it| self.secret(&[*it]).is_none()).collect()
    }

    /// Why Hive takes no cluster of a pool on this platform, if so.
    pub fn unserved(&self) -> Option<&'static str> {
        (self.name == "ibmcloud").then_some(
            "Hive demands manifests for each cluster on IBM Cloud, for which a pool has no field; use another platform",
        )
    }

    /// What the secret with the certificates has to hold.
    pub fn certificates_key(&self) -> Option<&'static str> {
        (self.name == "vsphere").then_some(".cacert")
    }

    /// The same for one cluster, whose secrets are copies under these names.
    pub fn for_cluster(&self, credentials: &str, certificates: &str) -> Value {
        let mut fields = self.fields.cloned().unwrap_or_default();
        // Whoever claims a cluster may read it.
        if let Some(Value::Object(said)) = fields.get_mut(INFRASTRUCTURE) {
            blank(said);
            let all = said.get_mut(VCENTERS).and_then(Value::as_array_mut);
            all.into_iter().flatten().filter_map(Value::as_object_mut).for_each(blank);
        }
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
    /// config says of them counts; sizes are those that an installer would choose, on vSphere
    /// Hive's.
    pub fn workers(&self, cluster: &str, config: &Value) -> Option<Value> {
        let said = config.pointer(&format!("/compute/0/platform/{}", self.name));
        let said = |field: &str| said.and_then(|it| it.get(field)).filter(|it| says(it));
        let or = |field: &str, default: Value| said(field).cloned().unwrap_or(default);
        // A machine pool has to have fields that an installer can do without.
        let with = |field: &str, mut default: Value| {
            let said = said(field).and_then(Value::as_object).into_iter().flatten();
            for (name, value) in said.filter(|(_, value)| says(value)) {
                default[name.as_str()] = value.clone();
            }
            default
        };
        let platform = match self.name {
            "aws" => json!({
                "type": or("type", json!("m6a.xlarge")),
                "rootVolume": with("rootVolume", json!({ "size": 120, "type": "gp3" })),
            }),
            "azure" => json!({
                "type": or("type", json!("Standard_D4s_v3")),
                "osDisk": with("osDisk", json!({ "diskSizeGB": 128 })),
            }),
            "gcp" => json!({ "type": or("type", json!("n1-standard-4")) }),
            "openstack" => json!({ "flavor": or("type", json!("m1.xlarge")) }),
            "vsphere" => json!({
                "cpus": or("cpus", json!(2)),
                "coresPerSocket": or("coresPerSocket", json!(1)),
                "memoryMB": or("memoryMB", json!(8192)),
                "osDisk": with("osDisk", json!({ "diskSizeGB": 120 })),
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

    /// Whether clusters of this spec get a machine pool.
    pub fn makes_workers(spec: &ClusterPoolSpec) -> bool {
        spec.skip_machine_pools != Some(true)
            && Platform::of(spec).is_some_and(|it| it.workers("", &Value::Null).is_some())
    }

    /// An install config where the pool names no template; or what has to be done because there can be none.
    pub fn install_config(&self, credentials: &[(String, String)]) -> Result<Value, String> {
        let secret = |key: &str| {
            credentials.iter().find(|(name, _)| name == key).map(|(_, text)| text.trim().to_owned())
        };
        let copied: &[&str] = match self.name {
            "aws" | "gcp" => &["region"],
            "azure" => &["region", "baseDomainResourceGroupName", "cloudName"],
            "openstack" => &["cloud"],
            "vsphere" => {
                &["vCenter", "datacenter", "defaultDatastore", "folder", "cluster", "network"]
            }
            "none" => &[],
            name => {
                return Err(format!(
                    "platform {name} needs an install config of its own: name a secret with it in \
                     spec.installConfigSecretTemplateRef"
                ));
            }
        };
        let said = |field: &&str| Some(((*field).to_owned(), json!(self.text(field)?)));
        let mut section: Map<String, Value> = copied.iter().filter_map(said).collect();
        let infrastructure = self.fields.and_then(|it| it.get(INFRASTRUCTURE)?.as_object());
        match (self.name, infrastructure) {
            ("gcp", _) => {
                let account = secret("osServiceAccount.json").unwrap_or_default();
                let account: Value = serde_json::from_str(&account).unwrap_or_default();
                let project = Some(&account["project_id"]).filter(|it| !it.is_null());
                section.extend(project.map(|it| ("projectID".to_owned(), it.clone())));
            }
            ("vsphere", None) => {
                let said =
                    ["username", "password"].map(|it| Some((it.to_owned(), json!(secret(it)?))));
                section.extend(said.into_iter().flatten());
            }
            ("vsphere", Some(said)) => {
                section.clone_from(said);
                let (user, password) = (secret("username"), secret("password"));
                fill_credentials(&mut section, user.as_ref(), password.as_ref())?;
            }
            _ => {}
        }
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
            "platform": { self.name: section },
        }))
    }
}

/// Whether a field of an install config says anything. Zero and nothing are what an installer fills in, and Hive refuses a
/// machine pool with them.
fn says(value: &Value) -> bool {
    !(value.is_null() || *value == json!("") || *value == json!(0))
}

/// Puts the credentials of the secret where the section of vSphere leaves them open.
fn fill_credentials(
    section: &mut Map<String, Value>,
    user: Option<&String>,
    password: Option<&String>,
) -> Result<(), String> {
    match section.get_mut(VCENTERS).and_then(Value::as_array_mut) {
        Some(all) if !all.is_empty() => {
            for vcenter in all.iter_mut().filter_map(Value::as_object_mut) {
                fill(vcenter, "user", user)?;
                fill(vcenter, "password", password)?;
            }
            Ok(())
        }
        _ => {
            fill(section, "username", user)?;
            fill(section, "password", password)
        }
    }
}

/// Puts a credential where none is said.
fn fill(place: &mut Map<String, Value>, field: &str, text: Option<&String>) -> Result<(), String> {
    if place.get(field).and_then(Value::as_str).is_some_and(|it| !it.is_empty()) {
        return Ok(());
    }
    let text = text.ok_or_else(|| {
        format!(
            "platform vsphere has a vCenter without {field}: add username and password to the secret of \
             credentialsSecretRef, or name a secret with an install config in spec.installConfigSecretTemplateRef"
        )
    })?;
    place.insert(field.to_owned(), json!(text));
    Ok(())
}

/// Leaves a required password there, and nothing in it.
fn blank(place: &mut Map<String, Value>) {
    if let Some(password) = place.get_mut("password") {
        *password = json!("");
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
        assert!(!platform.hibernates() && Platform::makes_workers(&spec));
    }

    #[test]
    fn a_secret_that_no_cluster_can_do_without_is_to_be_named() {
        let unnamed = |platform| Platform::of(&spec(&platform)).unwrap().unnamed();
        assert_eq!(
            unnamed(json!({ "openstack": { "credentialsSecretRef": { "name": "" } } })),
            ["credentialsSecretRef"]
        );
        let vsphere = json!({ "vsphere": { "credentialsSecretRef": { "name": "a" } } });
        assert_eq!(unnamed(vsphere), ["certificatesSecretRef"]);
        // A role may stand in for it, or the machine's own account.
        assert!(unnamed(json!({ "aws": { "region": "here" } })).is_empty());
    }

    #[test]
    fn a_platform_on_which_hive_takes_no_cluster_of_a_pool_is_refused() {
        let unserved =
            |name: &str| Platform::of(&spec(&json!({ name: {} }))).unwrap().unserved().is_some();
        assert!(unserved("ibmcloud") && !unserved("aws") && !unserved("none"));
    }

    #[test]
    fn an_install_config_is_asked_for_the_platform_where_hive_asks_for_it() {
        let of = |name: &str| {
            let spec = spec(&json!({ name: {} }));
            Platform::of(&spec).unwrap().in_config().map(str::to_owned)
        };
        assert_eq!(of("vsphere").as_deref(), Some("vsphere"));
        // An agent's install config is for bare metal, or for none.
        assert!(["agentBareMetal", "baremetal", "none"].into_iter().all(|it| of(it).is_none()));
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
    fn what_the_install_config_leaves_open_of_workers_is_what_a_machine_pool_has_to_have() {
        let of = |name: &str, said: Value| {
            let spec = spec(&json!({ name: {} }));
            let config = json!({ "compute": [{ "platform": { name: said } }] });
            let workers = Platform::of(&spec).unwrap().workers("c", &config).unwrap();
            workers["platform"][name].clone()
        };
        let volume = |said| of("aws", json!({ "rootVolume": said }))["rootVolume"].clone();
        assert_eq!(volume(json!({ "size": 200 })), json!({ "size": 200, "type": "gp3" }));
        let fast = json!({ "size": null, "type": "io1", "iops": 4000 });
        assert_eq!(volume(fast), json!({ "size": 120, "type": "io1", "iops": 4000 }));
        assert_eq!(volume(Value::Null), json!({ "size": 120, "type": "gp3" }));
        assert_eq!(volume(json!({ "size": 0, "type": "" })), json!({ "size": 120, "type": "gp3" }));
        assert_eq!(of("gcp", json!({ "type": "" })), json!({ "type": "n1-standard-4" }));
        let disk = of("azure", json!({ "osDisk": { "diskType": "Premium_LRS" }, "type": null }));
        let whole = json!({ "diskSizeGB": 128, "diskType": "Premium_LRS" });
        assert_eq!(disk, json!({ "osDisk": whole, "type": "Standard_D4s_v3" }));
        // As Hive's own controller has them: a pool that is taken over costs no more than before.
        let vsphere = of("vsphere", json!({ "cpus": null, "osDisk": { "diskSizeGB": 60 } }));
        let size = json!({ "cpus": 2, "coresPerSocket": 1, "memoryMB": 8192 });
        assert_eq!(vsphere, {
            let mut whole = size;
            whole["osDisk"] = json!({ "diskSizeGB": 60 });
            whole
        });
    }

    #[test]
    fn a_pool_that_skips_machine_pools_gets_none_nor_one_whose_platform_has_none() {
        let makes = |platform: Value, skip: Option<bool>| {
            let spec = ClusterPoolSpec { skip_machine_pools: skip, ..spec(&platform) };
            Platform::makes_workers(&spec)
        };
        assert!(makes(json!({ "aws": {} }), None) && makes(json!({ "aws": {} }), Some(false)));
        assert!(!makes(json!({ "aws": {} }), Some(true)) && !makes(json!({ "none": {} }), None));
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
    #[test]
    fn vsphere_in_the_installers_own_words_gets_the_credentials_that_it_leaves_open() {
        let infrastructure = json!({
            "vcenters": [
                { "server": "one", "user": "", "password": "", "datacenters": ["d"] },
                { "server": "two", "user": "own", "password": "own", "datacenters": ["d"] },
            ],
            "failureDomains": [{ "name": "f" }],
        });
        let spec = spec(&json!({ "vsphere": {
            "credentialsSecretRef": { "name": "creds" }, "infrastructure": infrastructure,
        }}));
        let platform = Platform::of(&spec).unwrap();
        let secret = ["username", "password"].map(|it| (it.to_owned(), it.to_owned()));
        let section = platform.install_config(&secret).unwrap()["platform"]["vsphere"].clone();
        let said = |server: usize| {
            let it = &section["vcenters"][server];
            (it["user"].as_str().unwrap(), it["password"].as_str().unwrap())
        };
        assert_eq!((said(0), said(1)), (("username", "password"), ("own", "own")));
        assert!(section.get("username").is_none() && section["failureDomains"][0]["name"] == "f");
        let told = platform.install_config(&secret[..1]).unwrap_err();
        assert!(told.contains("without password"), "{told}");
        // Who may read a cluster must not read the password of its vCenter.
        let own = platform.for_cluster("a-creds", "a-certs");
        assert_eq!(own["vsphere"]["infrastructure"]["vcenters"][1]["password"], "");
        assert_eq!(own["vsphere"]["infrastructure"]["vcenters"][1]["user"], "own");
    }

    #[test]
    fn an_infrastructure_without_vcenters_gets_its_credentials_at_its_root() {
        let spec = spec(&json!({ "vsphere": { "infrastructure": { "vCenter": "v" } } }));
        let platform = Platform::of(&spec).unwrap();
        let secret = ["username", "password"].map(|it| (it.to_owned(), it.to_owned()));
        let section = platform.install_config(&secret).unwrap()["platform"]["vsphere"].clone();
        assert_eq!(
            section,
            json!({ "vCenter": "v", "username": "username", "password": "password" })
        );
    }
}

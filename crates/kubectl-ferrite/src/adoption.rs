//! Which BMC a discovered host would get, from the address that its machine named. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api_types::metal3::{BareMetalHost, DiscoveredBmc};
use api_types::names::ferrite::BMC_ADDRESS;
use controller_kit::engine::ObjectKey;
use host_discovery::bmc::BmcPolicy;
use host_discovery::driver::{host_part, ip_of};
use host_discovery::inventory::Facts;
use host_discovery::sighting::Sighting;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::text;

/// What is written to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Adoption {
    pub(crate) host: String,
    pub(crate) address: String,
    pub(crate) credentials_name: String,
    /// Whether the operator erases the disks.
    pub(crate) erases_disks: bool,
}

/// How addresses are made.
pub(crate) struct Template {
    policy: BmcPolicy,
    credentials: String,
}

impl Template {
    /// Reads it as host-discovery reads that of a discovery.
    ///
    /// # Errors
    /// When it makes no address that the operator can read.
    pub(crate) fn read(template: &str, credentials: &str) -> Result<Self, String> {
        let given = DiscoveredBmc {
            address_template: template.to_owned(),
            credentials_name: credentials.to_owned(),
            subnets: Vec::new(),
            disable_certificate_verification: false,
        };
        let policy = BmcPolicy::read(&given, &mut Vec::new());
        if !policy.is_valid() {
            return Err(text::no_template(template));
        }
        Ok(Self { policy, credentials: credentials.to_owned() })
    }

    fn adoption(&self, host: &BareMetalHost) -> Result<Adoption, String> {
        let name = host.name_any();
        let bmc = host.spec.bmc.as_ref();
        if let Some(bmc) =
            bmc.filter(|it| !it.address.is_empty() || !it.credentials_name.is_empty())
        {
            return Err(text::has_bmc(&name, &bmc.address));
        }
        if host.metadata.deletion_timestamp.is_some() {
            return Err(text::adopts_deleted(&name));
        }
        let bmc = named(host.annotation(BMC_ADDRESS)).collect();
        let facts = Facts { bmc, ..Facts::default() };
        let Some(proposed) = self.policy.proposed(&facts) else {
            return Err(text::no_bmc_address(&name, BMC_ADDRESS));
        };
        Ok(Adoption {
            host: name,
            address: proposed.address,
            credentials_name: self.credentials.clone(),
            erases_disks: host.spec.automated_cleaning_mode.as_deref() != Some("disabled"),
        })
    }

    /// What is written to these hosts, of which `others` may have or name the same BMC. The hosts themselves may be among them.
    ///
    /// # Errors
    /// With a sentence for each host that cannot get a BMC.
    pub(crate) fn plan(
        &self,
        hosts: &[BareMetalHost],
        others: &[HostBmcs],
    ) -> Result<Vec<Adoption>, Vec<String>> {
        let (mut plan, mut mistakes) = (Vec::new(), Vec::new());
        let own: Vec<HostBmcs> = hosts
            .iter()
            .map(|it| (ObjectKey::of(it), named(it.annotation(BMC_ADDRESS)).collect()))
            .collect();
        let mut holders: BTreeMap<IpAddr, BTreeSet<&ObjectKey>> = BTreeMap::new();
        for (host, bmcs) in own.iter().chain(others) {
            for ip in bmcs {
                holders.entry(*ip).or_default().insert(host);
            }
        }
        for (host, (key, bmcs)) in hosts.iter().zip(&own) {
            match self.adoption(host) {
                Ok(adoption) => {
                    let mut sharing = bmcs.iter().filter_map(|ip| holders.get(ip)).flatten();
                    if let Some(other) = sharing.find(|it| **it != key) {
                        mistakes.push(text::same_address(key, other, &adoption.address));
                    }
                    plan.push(adoption);
                }
                Err(why) => mistakes.push(why),
            }
        }
        if mistakes.is_empty() { Ok(plan) } else { Err(mistakes) }
    }
}

/// A host, and the addresses at which its BMC is, or was when its machine was discovered.
pub(crate) type HostBmcs = (ObjectKey, BTreeSet<IpAddr>);

/// Those of a host that may be in the way of others.
pub(crate) fn bmcs_of(host: &Sighting) -> HostBmcs {
    let has = host.bmc_address().and_then(ip_of);
    (ObjectKey::of(host), has.into_iter().chain(named(host.annotation(BMC_ADDRESS))).collect())
}

/// Whether the BMC of a host cannot be compared: its address has a name, and its machine named no IP address.
pub(crate) fn is_unseen(host: &Sighting) -> bool {
    let is_name = |it: &str| host_part(it).parse::<IpAddr>().is_err();
    let address = host.bmc_address().filter(|it| !it.is_empty());
    address.is_some_and(is_name) && bmcs_of(host).1.is_empty()
}

/// The addresses that a machine named. One address has many spellings.
fn named(told: Option<&str>) -> impl Iterator<Item = IpAddr> {
    let told = told.unwrap_or_default().split(',');
    told.filter_map(|it| it.trim().parse::<IpAddr>().ok()).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEMPLATE: &str = "redfish-virtualmedia+https://{bmcAddress}/redfish/v1/Systems/1";

    #[allow(clippy::needless_pass_by_value, reason = "each is made where it is used")]
    fn host(name: &str, told: &str, spec: serde_json::Value) -> BareMetalHost {
        let annotations = json!({ "ferrite.metal3.io/bmc-address": told });
        let metadata = json!({ "name": name, "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn template() -> Template {
        Template::read(TEMPLATE, "racks").unwrap()
    }

    #[test]
    fn a_host_gets_the_address_that_its_machine_named_ipv4_first() {
        let online = || json!({"online": true});
        let keeps = json!({"online": true, "automatedCleaningMode": "disabled"});
        let hosts = [host("a", "2001:db8::1,192.0.2.7", online()), host("b", "2001:db8::2", keeps)];
        let plan = template().plan(&hosts, &[]).unwrap();
        let address = |ip: &str| format!("redfish-virtualmedia+https://{ip}/redfish/v1/Systems/1");
        assert_eq!((&plan[0].address, plan[0].erases_disks), (&address("192.0.2.7"), true));
        assert_eq!((&plan[1].address, plan[1].erases_disks), (&address("[2001:db8::2]"), false));
        assert_eq!(plan[0].credentials_name, "racks");
    }

    #[test]
    fn no_host_gets_a_bmc_if_one_of_them_cannot() {
        let hosts = [
            host("a", "192.0.2.1", json!({})),
            host("b", "", json!({})),
            host("c", "192.0.2.3", json!({"bmc": {"address": "ipmi://x", "credentialsName": "y"}})),
            host("d", "not an address", json!({})),
        ];
        let said = template().plan(&hosts, &[]).unwrap_err();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[1].contains("has the BMC ipmi://x"), "{said:?}");
    }

    /// A host of this namespace, as it is listed.
    fn listed(namespace: &str, name: &str, told: &str, address: &str) -> HostBmcs {
        bmcs_of(&sighting(namespace, name, told, address))
    }

    fn sighting(namespace: &str, name: &str, told: &str, address: &str) -> Sighting {
        let annotations = json!({ "ferrite.metal3.io/bmc-address": told });
        let host = json!({
            "metadata": { "namespace": namespace, "name": name, "annotations": annotations },
            "spec": { "bmc": { "address": address, "credentialsName": "x" }, "online": "odd" },
        });
        serde_json::from_value(host).unwrap()
    }

    #[test]
    fn a_bmc_under_a_name_is_told_as_not_compared() {
        for (told, address, unseen) in [
            ("", "redfish://BMC7.example.org./redfish/v1/Systems/1", true),
            ("", "bmc7.example.org", true),
            ("192.0.2.7", "redfish://bmc7.example.org/redfish/v1/Systems/1", false),
            ("", "redfish://192.0.2.7/redfish/v1/Systems/1", false),
            ("", "redfish://[::1]:8000/redfish/v1/Systems/1", false),
            ("", "", false),
        ] {
            let host = sighting("", "a", told, address);
            assert_eq!(is_unseen(&host), unseen, "{told} {address}");
        }
    }

    #[test]
    fn one_address_is_of_one_host() {
        let hosts = ["a", "b"].map(|name| host(name, "192.0.2.1", json!({})));
        assert!(template().plan(&hosts, &[]).unwrap_err()[0].contains("192.0.2.1"));
        let other = |address: &str| vec![listed("", "z", "", address)];
        let one = &hosts[..1];
        assert!(
            template().plan(one, &other("ipmi://192.0.2.1:623")).is_err(),
            "spoken to otherwise"
        );
        assert!(template().plan(one, &other("ipmi://192.0.2.11")).is_ok());
        assert!(template().plan(one, &[listed("", "a", "192.0.2.1", "")]).is_ok(), "itself");
    }

    #[test]
    fn an_address_is_compared_in_all_namespaces_and_spellings_and_with_what_machines_named() {
        let one = [host("a", "192.0.2.1,2001:db8::a", json!({}))];
        for (other, is_shared) in [
            (listed("elsewhere", "z", "", "ipmi://192.0.2.1"), true),
            // Another host of its name.
            (listed("elsewhere", "a", "192.0.2.1", ""), true),
            (listed("", "z", "192.0.2.9,192.0.2.1", ""), true),
            (listed("", "z", "2001:DB8:0::000a", "ipmi://192.0.2.9"), true),
            (listed("", "z", "", "redfish://[2001:0db8:0:0::a]:8443/redfish/v1"), true),
            (listed("", "z", "::ffff:192.0.2.1", ""), true),
            (listed("", "z", "192.0.2.9", "redfish://[2001:db8::b]/redfish/v1"), false),
        ] {
            let plan = template().plan(&one, std::slice::from_ref(&other));
            assert_eq!(plan.is_err(), is_shared, "{other:?}");
        }
        let said = template().plan(&one, &[listed("elsewhere", "z", "192.0.2.1", "")]);
        assert!(said.unwrap_err()[0].contains("BareMetalHost elsewhere/z"));
    }

    #[test]
    fn a_template_makes_an_address_that_the_operator_can_read() {
        for template in ["https://192.0.2.1", "nothing://{bmcAddress}", "ipmi://{bmcAddress}.x", ""]
        {
            assert!(Template::read(template, "s").is_err(), "{template}");
        }
        assert!(Template::read("ipmi://{bmcAddress}:623", "s").is_ok());
    }
}

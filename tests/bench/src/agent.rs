//! What a freshly booted machine tells Ironic: the agent's hardware report.
//!
//! This stands in for the deployment ramdisk, which needs a machine to boot. It cannot prove that a real agent on real
//! hardware reports the same; the shape of the report is what Ironic's own hooks and its inventory reader accept.

use anyhow::Context;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::ironic::Ironic;

/// A booted machine. [`Agent::new`] gives a plain one; the fields make it peculiar.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Makes addresses and serial numbers differ between machines.
    pub index: u32,
    /// What the machine calls itself.
    pub hostname: String,
    /// The serial number of the chassis, `None` where the firmware has none.
    pub serial: Option<String>,
    /// What its maker calls it.
    pub product: String,
    /// How many network ports it has. The first has the cable and the address.
    pub nics: u8,
    /// The address of its BMC.
    pub bmc_address: Option<String>,
    /// Whether it booted from the network, so that it knows by which port.
    pub pxe: bool,
    /// What went wrong while the agent looked around.
    pub error: Option<String>,
}

impl Agent {
    /// A plain rack server: two ports, a BMC, booted from the network.
    pub fn new(index: u32) -> Self {
        Self {
            index,
            hostname: format!("machine-{index}.rack.example"),
            serial: Some(format!("FRT{index:06}")),
            product: "Anvil 2".to_owned(),
            nics: 2,
            bmc_address: Some(address(index, 30)),
            pxe: true,
            error: None,
        }
    }

    /// The hardware address of a port, counted from 0. Locally administered, so nobody's.
    pub fn mac(&self, nic: u8) -> String {
        let [_, a, b, c] = self.index.to_be_bytes();
        format!("06:fe:{a:02x}:{b:02x}:{c:02x}:{nic:02x}")
    }

    /// The address of its first port.
    pub fn address(&self) -> String {
        address(self.index, 20)
    }

    /// All that tells it from other machines, in an order of its own.
    pub fn words(&self) -> Vec<String> {
        let macs = (0..self.nics).chain([u8::MAX]).map(|nic| self.mac(nic));
        let named = [Some(self.hostname.clone()), self.serial.clone(), self.bmc_address.clone()];
        let disk = [format!("QD{:08}", self.index), format!("0x5000c500{:08x}", self.index)];
        let own = named.into_iter().map(Option::unwrap_or_default);
        macs.chain(own).chain(disk).chain([self.address(), self.product.clone()]).collect()
    }

    /// The body that is posted.
    pub fn report(&self) -> Value {
        let interfaces: Vec<Value> = (0..self.nics).map(|nic| self.interface(nic)).collect();
        let boot_interface = self.pxe.then(|| self.mac(0));
        let disk = json!({
            "name": "/dev/sda",
            "model": "Granite 480",
            "vendor": "Quarry",
            "serial": format!("QD{:08}", self.index),
            "size": 480_103_981_056_u64,
            "rotational": false,
            "hctl": "0:0:0:0",
            "by_path": "/dev/disk/by-path/pci-0000:01:00.0-ata-1",
            "wwn": format!("0x5000c500{:08x}", self.index),
            "wwn_with_extension": format!("0x5000c500{:08x}", self.index),
            "wwn_vendor_extension": null,
            "logical_sectors": 512,
            "physical_sectors": 4096,
            "tran": "sata",
        });
        json!({
            "inventory": {
                "hostname": self.hostname,
                "interfaces": interfaces,
                "disks": [disk],
                "cpu": {
                    "model_name": "Slate 16-core",
                    "architecture": "x86_64",
                    "frequency": "2400.0",
                    "count": 32,
                    "socket_count": 2,
                    "flags": ["aes", "avx2"],
                },
                "memory": { "total": 67_108_864_000_u64, "physical_mb": 65536 },
                "system_vendor": {
                    "manufacturer": "Ferrous Works",
                    "product_name": self.product,
                    "serial_number": self.serial,
                    "firmware": {
                        "vendor": "Ferrous Works",
                        "version": "1.4.2",
                        "build_date": "02/01/2024",
                    },
                },
                "boot": { "current_boot_mode": "uefi", "pxe_interface": boot_interface },
                "bmc_address": self.bmc_address,
                "bmc_v6address": "::/0",
                "bmc_mac": self.mac(u8::MAX),
            },
            "root_disk": disk,
            "boot_interface": boot_interface,
            "configuration": {
                "collectors": ["default"],
                "managers": [{ "name": "generic_hardware_manager", "version": "1.2" }],
            },
            "error": self.error,
        })
    }

    fn interface(&self, nic: u8) -> Value {
        let first = nic == 0;
        json!({
            "name": format!("ens{}", nic + 1),
            "mac_address": self.mac(nic),
            "ipv4_address": first.then(|| self.address()),
            "ipv6_address": null,
            "has_carrier": first,
            "speed_mbps": first.then_some(10_000),
            "vendor": "0x1af4",
            "product": "0x1041",
            "driver": "virtio_net",
            "pci_address": format!("0000:02:00.{nic}"),
            "client_id": null,
            "biosdevname": null,
            "lldp": [],
        })
    }

    /// Posts the report, as the machine does when its agent has started. The answer is `{"uuid": <the node>}`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, ironic: &Ironic) -> anyhow::Result<(StatusCode, Value)> {
        // In the newest versions the answer is a whole node, in this one its UUID, and every release has it.
        ironic
            .call_version(Method::POST, "/v1/continue_inspection", Some(&self.report()), "1.1")
            .await
    }

    /// Posts a report to an Ironic that another process keeps. Returns the node.
    ///
    /// # Errors
    /// When there is no answer, or it is a refusal.
    pub async fn post_to(endpoint: &str, report: &Value) -> anyhow::Result<String> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let url = format!("{endpoint}/v1/continue_inspection");
        let body: Value = http.post(url).json(report).send().await?.json().await?;
        let node = body["uuid"].as_str();
        Ok(node.with_context(|| format!("Ironic refused the report: {body}"))?.to_owned())
    }
}

/// One address per machine and network, `10.<network>.x.y`.
fn address(index: u32, network: u8) -> String {
    // Two agents never share one: a BMC that two machines name is nobody's.
    let [_, more, high, low] = index.to_be_bytes();
    format!("10.{}.{high}.{low}", network.wrapping_add(more))
}

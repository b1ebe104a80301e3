//! A large installation: available hosts with all that an inspection writes about them, in one namespace.

use bench::bmo::{self, CREDENTIALS, host, well};
use bench::objects;
use bench::steps::step_async;
use serde_json::{Value, json};

use super::{Ground, each};

/// Where they are.
pub(super) const NAMESPACE: &str = "fleet";
/// Racks that they stand in; each host has the label `rack`.
pub(super) const RACKS: u32 = 10;

/// Network interfaces of a large server.
pub(super) const NICS: u32 = 48;

/// Makes them, once.
pub(super) async fn fleet(ground: &Ground) -> anyhow::Result<()> {
    let make = async || {
        let kilobytes = hardware(0, NICS).to_string().len() / 1000;
        let what = format!("{} hosts with {kilobytes} KB of hardware each", ground.hosts);
        step_async(&what, async {
            objects::namespace(&ground.admin, NAMESPACE).await?;
            let host = async |n: u32| {
                let host = host(&format!("host-{n}"), &in_rack(n), &json!({}));
                bmo::create(&ground.admin, NAMESPACE, host, &status(n, NICS)).await
            };
            each(0..ground.hosts, host).await
        })
        .await
    };
    ground.fleet.get_or_try_init(make).await.map(drop)
}

/// The label of the rack in which a host stands.
pub(super) fn in_rack(number: u32) -> Value {
    json!({ "rack": format!("r{}", number % RACKS) })
}

/// What every host of a namespace is entered with. Who claims or switches hosts may look for it.
pub(super) async fn credentials(ground: &Ground, namespace: &str) -> anyhow::Result<()> {
    let data = json!({ "username": "admin", "password": "secret" });
    objects::secret(&ground.admin, namespace, CREDENTIALS, &data).await
}

/// The node that a host is in Ironic.
pub(super) fn node(number: u32) -> String {
    format!("00000000-0000-0000-0000-{number:012}")
}

/// An available host as its operator writes it.
pub(super) fn status(number: u32, nics: u32) -> Value {
    let mut status = well(false, &json!({ "state": "available", "ID": node(number) }));
    status["hardware"] = hardware(number, nics);
    status
}

/// What an inspection finds in a server with so many network interfaces, and three disks for each four of them.
fn hardware(number: u32, nics: u32) -> Value {
    let disks = nics * 3 / 4;
    let flags: Vec<String> = (0..120).map(|flag| format!("flag_{flag}")).collect();
    let nics: Vec<Value> = (0..nics)
        .map(|nic| {
            json!({
                "name": format!("enp{nic}s0f0"), "model": "0x8086 0x1592", "speedGbps": 25, "vlanId": 0,
                "mac": format!("02:00:{:02x}:{:02x}:{:02x}:{nic:02x}", number >> 16 & 255, number >> 8 & 255, number & 255),
                "ip": format!("198.51.100.{nic}"), "pxe": nic == 0,
            })
        })
        .collect();
    let disks: Vec<Value> = (0..disks)
        .map(|disk| {
            json!({
                "name": format!("/dev/disk/by-path/pci-0000:3b:00.0-nvme-{disk}"), "type": "NVME",
                "sizeBytes": 3_840_755_982_336_u64, "vendor": "Example", "model": "Example NVMe 3840 GB",
                "serialNumber": format!("S{number:08}{disk:04}"), "wwn": format!("eui.{number:016x}{disk:016x}"),
                "alternateNames": [format!("/dev/nvme{disk}n1")],
            })
        })
        .collect();
    json!({
        "systemVendor": { "manufacturer": "Example", "productName": "Server", "serialNumber": format!("N{number:08}") },
        "firmware": { "bios": { "date": "01/02/2026", "vendor": "Example", "version": "1.2.3" } },
        "hostname": format!("host-{number}"), "ramMebibytes": 786_432,
        "cpu": { "arch": "x86_64", "model": "Example CPU", "clockMegahertz": 2100, "count": 128, "flags": flags },
        "nics": nics, "storage": disks,
    })
}

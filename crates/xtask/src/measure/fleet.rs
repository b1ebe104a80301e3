//! A large installation: available hosts with all that an inspection writes about them, in one namespace.

use anyhow::Context;
use bench::bmo;
use bench::steps::step_async;
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{AT_ONCE, Ground};

/// Where they are.
pub(super) const NAMESPACE: &str = "fleet";
/// Racks that they stand in; each host has the label `rack`.
pub(super) const RACKS: u32 = 10;
/// The secret of their BMCs.
pub(super) const CREDENTIALS: &str = "bmc";

/// Network interfaces of a large server.
pub(super) const NICS: u32 = 48;

/// Makes them, once.
pub(super) async fn fleet(ground: &Ground) -> anyhow::Result<()> {
    let make = async || {
        let what = format!("{} hosts with {} KB of hardware each", ground.hosts, details() / 1000);
        step_async(&what, async {
            namespace(ground, NAMESPACE).await?;
            let host = async |n: u32| {
                let labels = json!({ "rack": format!("r{}", n % RACKS) });
                host(ground, NAMESPACE, &format!("host-{n}"), &labels, json!({}), status(n, NICS))
                    .await
            };
            stream::iter(0..ground.hosts).map(host).buffer_unordered(AT_ONCE).try_collect().await
        })
        .await
    };
    ground.fleet.get_or_try_init(make).await.map(drop)
}

/// A namespace of this very name, if it is not there.
pub(super) async fn namespace(ground: &Ground, name: &str) -> anyhow::Result<()> {
    let object = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    let api: kube::Api<Namespace> = kube::Api::all(ground.admin.clone());
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        made => made.map(drop).context("a namespace is refused"),
    }
}

/// What every host of a namespace is entered with. Who claims or switches hosts may look for it.
pub(super) async fn credentials(ground: &Ground, namespace: &str) -> anyhow::Result<()> {
    let secret = json!({
        "metadata": { "name": CREDENTIALS },
        "stringData": { "username": "admin", "password": "secret" },
    });
    let secrets: kube::Api<Secret> = kube::Api::namespaced(ground.admin.clone(), namespace);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    Ok(())
}

/// One host, with its status where it has one.
pub(super) async fn host(
    ground: &Ground,
    namespace: &str,
    name: &str,
    labels: &Value,
    spec: Value,
    status: Value,
) -> anyhow::Result<()> {
    let api = bmo::api(&ground.admin, namespace);
    let mut object = json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": { "name": name, "labels": labels },
        "spec": { "online": false, "bmc": {
            "address": "redfish-virtualmedia+http://127.0.0.1/redfish/v1/Systems/1",
            "credentialsName": CREDENTIALS,
        } },
    });
    if let (Some(all), Some(more)) = (object["spec"].as_object_mut(), spec.as_object()) {
        all.extend(more.clone());
    }
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    if status.is_null() {
        return Ok(());
    }
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The node that a host is in Ironic.
pub(super) fn node(number: u32) -> String {
    format!("00000000-0000-0000-0000-{number:012}")
}

/// An available host as its operator writes it.
pub(super) fn status(number: u32, nics: u32) -> Value {
    json!({
        "poweredOn": false, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
        "provisioningFailCount": 0,
        "provisioning": { "state": "available", "ID": node(number) },
        "hardware": hardware(number, nics),
    })
}

/// What an inspection finds in a server with so many network interfaces, and three disks for each four of them.
fn hardware(number: u32, nics: u32) -> Value {
    let disks = nics * 3 / 4;
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
        "cpu": { "arch": "x86_64", "model": "Example CPU", "clockMegahertz": 2100, "count": 128, "flags": flags() },
        "nics": nics, "storage": disks,
    })
}

fn flags() -> Vec<String> {
    (0..120).map(|flag| format!("flag_{flag}")).collect()
}

/// How large the hardware of one host is.
fn details() -> usize {
    hardware(0, NICS).to_string().len()
}

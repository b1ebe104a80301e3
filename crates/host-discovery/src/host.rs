//! The host that is made for a machine.

use std::collections::BTreeMap;

use api_types::metal3::{BareMetalHost, BareMetalHostSpec, BootMode, HardwareLabel};
use api_types::names::capi::WATCH_FILTER;
use api_types::names::{ferrite, metal3};
use serde::Serialize;
use serde_json::json;

use crate::hardware::HardwareDetails;
use crate::inventory::Facts;
use crate::labels;
use crate::node_id::NodeId;
use crate::resource::Resource;

/// The value of the inspection annotation that keeps the operator from inspecting the machine
/// again. Without it the operator's webhook refuses hardware details on a new host.
const NO_INSPECTION: &str = "disabled";

/// Makes the host: what the operator needs in order to have it as discovered, with its hardware
/// and its identifier in Ironic, without looking at the machine again.
pub fn new_host(
    resource: &Resource,
    name: &str,
    node: NodeId,
    facts: &Facts,
    details: &HardwareDetails,
) -> BareMetalHost {
    let defaults = resource.spec.host_defaults.clone().unwrap_or_default();
    // How the machine was started when it told about itself.
    let booted = facts.uefi.map(|uefi| if uefi { BootMode::Uefi } else { BootMode::Legacy });
    let spec = BareMetalHostSpec {
        // The machine runs: it has just told about itself.
        online: defaults.online.unwrap_or(true),
        boot_mac_address: facts.boot_mac.map(|mac| mac.to_string()),
        boot_mode: defaults.boot_mode.or(booted).and_then(word),
        automated_cleaning_mode: defaults.automated_cleaning_mode.and_then(word),
        // The operator learns it by the inspection, which is not to be.
        architecture: facts.architecture.as_deref().filter(|it| is_word(it)).map(str::to_owned),
        description: defaults.description,
        bmc: resource.bmc_of(facts),
        ..BareMetalHostSpec::default()
    };
    let mut host = BareMetalHost::new(&resource.namespace, name, spec);
    host.metadata.labels = Some(host_labels(resource, facts));
    host.metadata.annotations = Some(annotations(node, facts, &details.text));
    host
}

/// The annotations that the operator takes over. Both hold the hardware: the first is the one that
/// skips inspection, the second the only one that can hold the identifier, by which the operator
/// finds the node and, when the host is deleted, removes it.
///
/// The operator's webhook refuses a host with a field in them that it does not know, so there is none
/// that came to its schema late: what is absent is zero.
fn annotations(node: NodeId, facts: &Facts, details: &str) -> BTreeMap<String, String> {
    let status = format!(
        r#"{{"errorCount":0,"errorMessage":"","operationalStatus":"discovered","poweredOn":true,"provisioning":{{"ID":"{node}","state":"unmanaged"}},"hardware":{details}}}"#
    );
    let pairs = [
        (metal3::INSPECT, NO_INSPECTION.to_owned()),
        (metal3::HARDWARE_DETAILS, details.to_owned()),
        (metal3::STATUS, status),
        (ferrite::NODE_ID, node.to_string()),
    ];
    let bmc = facts.bmc_text().map(|addresses| (ferrite::BMC_ADDRESS, addresses));
    pairs.into_iter().chain(bmc).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The machine's word never overrides the administrator's, and neither overrides ours.
fn host_labels(resource: &Resource, facts: &Facts) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (key, label) in &resource.spec.labels_from_hardware {
        let value = hardware_value(*label, facts).and_then(|text| labels::value_of(&text));
        if let Some(value) = value {
            all.insert(key.clone(), value);
        }
    }
    // Who looks after the resource looks after its hosts, unless the administrator gives them to others.
    if let Some(filter) = &resource.watch_filter {
        all.insert(WATCH_FILTER.to_owned(), filter.clone());
    }
    all.extend(resource.spec.labels.clone());
    all.insert(ferrite::DISCOVERED_BY.to_owned(), resource.label());
    all
}

fn hardware_value(label: HardwareLabel, facts: &Facts) -> Option<String> {
    let text = match label {
        HardwareLabel::Manufacturer => &facts.manufacturer,
        HardwareLabel::Product => &facts.product,
        HardwareLabel::Architecture => &facts.architecture,
        HardwareLabel::SerialNumber => &facts.serial_number,
        HardwareLabel::CpuModel => &facts.cpu_model,
        HardwareLabel::BootMac => return facts.boot_mac.map(|mac| mac.to_string()),
    };
    text.as_deref().map(str::to_owned)
}

/// A value as the API spells it.
fn word(value: impl Serialize) -> Option<String> {
    json!(value).as_str().map(str::to_owned)
}

fn is_word(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

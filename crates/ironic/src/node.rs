//! Ironic's objects, as far as anybody here looks at them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Result;
use crate::error::Error;

/// A node. Which fields are filled depends on which were asked for; a field that Ironic left out
/// and one that it set to null look the same.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Node {
    /// Identity.
    pub uuid: String,
    /// Name, unique; machines that nobody registered have none.
    pub name: Option<String>,
    /// Driver.
    pub driver: Option<String>,
    /// What works for it below the driver, as Ironic names it in [`Node::interface`].
    pub bios_interface: Option<String>,
    /// The same for the way it boots.
    pub boot_interface: Option<String>,
    /// The same for its firmware.
    pub firmware_interface: Option<String>,
    /// The same for its BMC.
    pub management_interface: Option<String>,
    /// The same for its power.
    pub power_interface: Option<String>,
    /// The same for its RAID controllers.
    pub raid_interface: Option<String>,
    /// The same for what only its vendor has.
    pub vendor_interface: Option<String>,
    /// Power state as Ironic last heard of it. Prefer [`Node::power`].
    pub power_state: Option<String>,
    /// Set while a power change is under way. Soft targets show up as the plain ones.
    pub target_power_state: Option<String>,
    /// State of the node's life.
    pub provision_state: Option<String>,
    /// What went wrong last. It stays for a long time: only one that is newer than a request says
    /// something about the request.
    pub last_error: Option<String>,
    /// Who holds the lock.
    pub reservation: Option<String>,
    /// Whether Ironic leaves the node alone.
    pub maintenance: Option<bool>,
    /// Whether it must not be switched off.
    pub disable_power_off: Option<bool>,
    /// Anything.
    pub extra: Option<Map<String, Value>>,
    /// Class for scheduling.
    pub resource_class: Option<String>,
    /// When it was changed. Only in details.
    pub updated_at: Option<String>,
}

/// The power state of a node, as Ironic last heard of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Power {
    /// On.
    On,
    /// Off.
    Off,
    /// Never read, not readable now, or a word that is not known here. It is not off.
    #[default]
    Unknown,
}

impl Node {
    /// What works for it below the driver, by the kind: `boot` for `boot_interface`.
    pub fn interface(&self, kind: &str) -> Option<&str> {
        let interface = match kind {
            "bios" => &self.bios_interface,
            "boot" => &self.boot_interface,
            "firmware" => &self.firmware_interface,
            "management" => &self.management_interface,
            "power" => &self.power_interface,
            "raid" => &self.raid_interface,
            "vendor" => &self.vendor_interface,
            _ => return None,
        };
        interface.as_deref()
    }

    /// The power state.
    pub fn power(&self) -> Power {
        match self.power_state.as_deref() {
            Some("power on") => Power::On,
            Some("power off") => Power::Off,
            _ => Power::Unknown,
        }
    }
}

/// A network port of a node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Port {
    /// Identity.
    pub uuid: String,
    /// MAC address.
    pub address: String,
    /// The node.
    pub node_uuid: Option<String>,
    /// Whether the node boots by it.
    pub pxe_enabled: Option<bool>,
}

/// A driver that some conductor offers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Driver {
    /// Name.
    pub name: String,
    /// Conductors that offer it.
    pub hosts: Vec<String>,
}

/// What a node's power can be asked to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PowerTarget {
    /// On.
    On,
    /// Off, without asking the operating system.
    Off,
    /// Off, by asking the operating system. If it does not obey within the time, the attempt
    /// fails; if it obeys later, Ironic switches the machine on again.
    SoftOff(Duration),
    /// Off and on.
    Reboot,
    /// Off, by asking the operating system, and on.
    SoftReboot(Duration),
}

impl PowerTarget {
    /// Ironic's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "power on",
            Self::Off => "power off",
            Self::SoftOff(_) => "soft power off",
            Self::Reboot => "rebooting",
            Self::SoftReboot(_) => "soft rebooting",
        }
    }

    /// Whether the machine is to be off after it.
    pub fn is_off(self) -> bool {
        matches!(self, Self::Off | Self::SoftOff(_))
    }

    /// Whether the operating system is asked first.
    pub fn is_soft(self) -> bool {
        matches!(self, Self::SoftOff(_) | Self::SoftReboot(_))
    }

    /// Whether the machine is cut off at once.
    pub(crate) fn is_hard(self) -> bool {
        matches!(self, Self::Off | Self::Reboot)
    }

    pub(crate) fn body(self) -> Value {
        let mut body = serde_json::json!({ "target": self.as_str() });
        if let Self::SoftOff(timeout) | Self::SoftReboot(timeout) = self {
            // Ironic refuses less than a second.
            body["timeout"] = timeout.as_secs().max(1).into();
        }
        body
    }
}

/// One step of a JSON patch. The path starts with a slash. Ironic knows no `test`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOp {
    /// Sets a value.
    Add {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
    /// Sets a value that is there.
    Replace {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
}

/// Whether a node can have this identity or name.
pub fn is_node_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    !id.is_empty() && id.len() <= 255 && !matches!(id, "." | "..") && id.chars().all(allowed)
}

/// The path of a node. What is no identity or name never gets into a path: it comes from objects
/// that people can edit, and `..` would ask for something else.
pub(crate) fn node_path(id: &str, below: &str) -> Result<String> {
    if !is_node_id(id) {
        let text = format!("{id:?} is no identity and no name of a node");
        return Err(Error::invalid(text));
    }
    Ok(format!("nodes/{id}{below}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_namespace_are_names() {
        assert_eq!(node_path("ns~a.b_c-1", "/ports").unwrap(), "nodes/ns~a.b_c-1/ports");
        assert!(is_node_id("6ba7b810-9dad-11d1-80b4-00c04fd430c8"));
        for id in ["", ".", "..", "a/b", "a?b", "a%2e", "a b", "ä"] {
            assert!(!is_node_id(id) && node_path(id, "").is_err(), "{id:?}");
        }
    }

    #[test]
    fn power_that_is_not_known_is_not_off() {
        for (text, power) in [
            (r#"{"power_state": "power on"}"#, Power::On),
            (r#"{"power_state": "power off"}"#, Power::Off),
            (r#"{"power_state": null}"#, Power::Unknown),
            (r#"{"power_state": "error"}"#, Power::Unknown),
            ("{}", Power::Unknown),
        ] {
            let node: Node = serde_json::from_str(text).unwrap();
            assert_eq!(node.power(), power, "{text}");
        }
        let node: Node = serde_json::from_str(r#"{"power_state": "error"}"#).unwrap();
        assert_eq!(node.power_state.as_deref(), Some("error"));
    }

    #[test]
    fn only_soft_targets_carry_a_timeout_of_at_least_a_second() {
        let soft = PowerTarget::SoftOff(Duration::from_millis(10)).body();
        assert_eq!(soft, serde_json::json!({"target": "soft power off", "timeout": 1}));
        let hard = PowerTarget::Off.body();
        assert_eq!(hard, serde_json::json!({"target": "power off"}));
    }

    #[test]
    fn a_patch_is_written_as_json_patch() {
        let ops = [
            PatchOp::Add { path: "/extra/a".into(), value: 1.into() },
            PatchOp::Replace { path: "/name".into(), value: "n".into() },
        ];
        assert_eq!(
            serde_json::to_value(ops).unwrap(),
            serde_json::json!([
                {"op": "add", "path": "/extra/a", "value": 1},
                {"op": "replace", "path": "/name", "value": "n"}
            ])
        );
    }
}

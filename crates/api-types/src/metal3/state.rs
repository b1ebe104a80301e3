//! Words of a host's status. The operator may learn new ones: an unknown word is kept, so that it
//! can neither stop a watch nor be taken for a known one.

use serde::{Deserialize, Serialize};

/// How far installing a host has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ProvisioningState {
    /// Not looked at yet.
    #[default]
    None,
    /// Without credentials.
    Unmanaged,
    /// Being made known to Ironic.
    Registering,
    /// Deprecated: being given a hardware profile.
    MatchProfile,
    /// Being configured before use.
    Preparing,
    /// Free: the former word for `Available`.
    Ready,
    /// Free.
    Available,
    /// Being installed.
    Provisioning,
    /// Installed.
    Provisioned,
    /// Installed by somebody else.
    ExternallyProvisioned,
    /// Being cleared.
    Deprovisioning,
    /// Hardware is being looked at.
    Inspecting,
    /// Being switched off, for good.
    PoweringOffBeforeDelete,
    /// Being removed.
    Deleting,
    /// A state that this version does not know.
    Other(String),
}

impl ProvisioningState {
    /// The word in the object.
    pub fn as_str(&self) -> &str {
        match self {
            Self::None => "",
            Self::Unmanaged => "unmanaged",
            Self::Registering => "registering",
            Self::MatchProfile => "match profile",
            Self::Preparing => "preparing",
            Self::Ready => "ready",
            Self::Available => "available",
            Self::Provisioning => "provisioning",
            Self::Provisioned => "provisioned",
            Self::ExternallyProvisioned => "externally provisioned",
            Self::Deprovisioning => "deprovisioning",
            Self::Inspecting => "inspecting",
            Self::PoweringOffBeforeDelete => "powering off before delete",
            Self::Deleting => "deleting",
            Self::Other(word) => word,
        }
    }

    /// Whether the host is installed and waits for somebody to use it: `ready` or `available`.
    pub fn is_available(&self) -> bool {
        matches!(self, Self::Ready | Self::Available)
    }

    /// Whether an operating system of a consumer runs on it, whoever installed it.
    pub fn is_provisioned(&self) -> bool {
        matches!(self, Self::Provisioned | Self::ExternallyProvisioned)
    }
}

impl From<String> for ProvisioningState {
    fn from(word: String) -> Self {
        match word.as_str() {
            "" => Self::None,
            "unmanaged" => Self::Unmanaged,
            "registering" => Self::Registering,
            "match profile" => Self::MatchProfile,
            "preparing" => Self::Preparing,
            "ready" => Self::Ready,
            "available" => Self::Available,
            "provisioning" => Self::Provisioning,
            "provisioned" => Self::Provisioned,
            "externally provisioned" => Self::ExternallyProvisioned,
            "deprovisioning" => Self::Deprovisioning,
            "inspecting" => Self::Inspecting,
            "powering off before delete" => Self::PoweringOffBeforeDelete,
            "deleting" => Self::Deleting,
            _ => Self::Other(word),
        }
    }
}

impl From<ProvisioningState> for String {
    fn from(state: ProvisioningState) -> Self {
        match state {
            ProvisioningState::Other(word) => word,
            known => known.as_str().to_owned(),
        }
    }
}

/// Roughly how a host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum OperationalStatus {
    /// Not looked at yet.
    #[default]
    None,
    /// Nothing to complain about.
    Ok,
    /// Found, but nobody has given credentials.
    Discovered,
    /// An operation failed.
    Error,
    /// Waits until others are done.
    Delayed,
    /// Taken out of Ironic.
    Detached,
    /// Firmware is being changed.
    Servicing,
    /// A word that this version does not know.
    Other(String),
}

impl OperationalStatus {
    /// The word in the object.
    pub fn as_str(&self) -> &str {
        match self {
            Self::None => "",
            Self::Ok => "OK",
            Self::Discovered => "discovered",
            Self::Error => "error",
            Self::Delayed => "delayed",
            Self::Detached => "detached",
            Self::Servicing => "servicing",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for OperationalStatus {
    fn from(word: String) -> Self {
        match word.as_str() {
            "" => Self::None,
            "OK" => Self::Ok,
            "discovered" => Self::Discovered,
            "error" => Self::Error,
            "delayed" => Self::Delayed,
            "detached" => Self::Detached,
            "servicing" => Self::Servicing,
            _ => Self::Other(word),
        }
    }
}

impl From<OperationalStatus> for String {
    fn from(status: OperationalStatus) -> Self {
        status.as_str().to_owned()
    }
}

/// What kind of operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ErrorType {
    /// Registering a provisioned host again.
    ProvisionedRegistration,
    /// Making the host known to Ironic.
    Registration,
    /// Looking at the hardware.
    Inspection,
    /// Configuring before use.
    Preparation,
    /// Installing or clearing.
    Provisioning,
    /// Switching on or off: the only type that `bmo-reboot` sets or clears.
    PowerManagement,
    /// Changing firmware.
    Servicing,
    /// A word that this version does not know.
    Other(String),
}

impl ErrorType {
    /// The word in the object.
    pub fn as_str(&self) -> &str {
        match self {
            Self::ProvisionedRegistration => "provisioned registration error",
            Self::Registration => "registration error",
            Self::Inspection => "inspection error",
            Self::Preparation => "preparation error",
            Self::Provisioning => "provisioning error",
            Self::PowerManagement => "power management error",
            Self::Servicing => "servicing error",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for ErrorType {
    fn from(word: String) -> Self {
        match word.as_str() {
            "provisioned registration error" => Self::ProvisionedRegistration,
            "registration error" => Self::Registration,
            "inspection error" => Self::Inspection,
            "preparation error" => Self::Preparation,
            "provisioning error" => Self::Provisioning,
            "power management error" => Self::PowerManagement,
            "servicing error" => Self::Servicing,
            _ => Self::Other(word),
        }
    }
}

impl From<ErrorType> for String {
    fn from(kind: ErrorType) -> Self {
        kind.as_str().to_owned()
    }
}

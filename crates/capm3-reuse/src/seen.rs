//! Facts of which what a pass sees is made.

use std::sync::Arc;

use api_types::capi::{Cluster, Machine};
use api_types::metal3::{BareMetalHost, CachedHost};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;

use crate::host::Exclusion;
use crate::reason::Reason;
use crate::reservation::Owner;

/// An object that another one names.
#[derive(Clone, Debug, Default)]
pub enum Named<T> {
    /// None is named.
    #[default]
    None,
    /// The one of this name is not there.
    Gone(String),
    /// The object.
    Here(Box<T>),
}

/// The Machine that owns a `Metal3Machine`.
pub type Parent = Named<Machine>;
/// The host that a machine names, or that names the machine.
pub type HostSeen = Named<BareMetalHost>;

impl<T: Resource> Named<T> {
    /// What was found under this name.
    pub fn of(name: &str, found: Option<T>) -> Self {
        found.map_or_else(|| Self::Gone(name.to_owned()), |it| Self::Here(Box::new(it)))
    }

    /// The object, if it is there.
    pub fn here(&self) -> Option<&T> {
        match self {
            Self::Here(it) => Some(it),
            Self::None | Self::Gone(_) => None,
        }
    }

    /// Its name, if any is named.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Gone(name) => Some(name.clone()),
            Self::Here(it) => it.meta().name.clone(),
        }
    }
}

/// Whether the template asks for reuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// It does not, or none is named.
    #[default]
    Off,
    /// The template is gone. What is kept for the owner was kept because a template asked for it.
    Unknown,
    /// It does.
    On,
    /// It cannot be decoded.
    Unreadable(String),
}

/// Secrets that CAPM3 renders from a data template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// No data template is named.
    #[default]
    NotWanted,
    /// Nobody asked for them yet.
    NotAskedFor,
    /// They are being made.
    Awaited,
    /// What was rendered before, for a host that the machine lost, has to be gone first; what that is, and what it waits for.
    Withdrawn(String),
    /// They could not be made, and why.
    Failed(String),
    /// They are there.
    Rendered {
        /// The `Metal3Data` that says so.
        name: String,
        /// Secret with facts about the machine.
        meta_data: Option<String>,
        /// Secret with the machine's network configuration.
        network_data: Option<String>,
    },
    /// The API server has no such kinds.
    Unserved,
}

impl Data {
    /// The secret that was rendered for this field of a host.
    pub fn rendered(&self, field: &str) -> Option<&String> {
        let Self::Rendered { meta_data, network_data, .. } = self else { return None };
        match field {
            "metaData" => meta_data.as_ref(),
            "networkData" => network_data.as_ref(),
            _ => None,
        }
    }
}

/// Whose Node is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// Where it is.
    pub cluster: &'a Cluster,
    /// Uid of the host that it runs on.
    pub host_uid: &'a str,
    /// What it has to say.
    pub provider_id: &'a str,
}

/// The Node of a machine, as far as anybody looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeSeen {
    /// Nobody did, or others are looking just now.
    #[default]
    Unasked,
    /// It cannot be told, and why.
    Unanswered(String),
    /// The Nodes that say that they run on its host.
    Seen(Vec<Node>),
}

/// A Node of a workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its provider ID; empty if it says none.
    pub provider_id: String,
    /// Whether its kubelet is heard and it is not being deleted.
    pub lives: bool,
}

/// For whom a freed host is to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody asked yet.
    #[default]
    Unasked,
    /// For nobody, and why.
    Nobody(String),
    /// For this owner.
    For {
        /// The owner.
        owner: Owner,
        /// Whether disks are wiped before, if the template says so that asks for reuse.
        cleaning: Option<String>,
    },
    /// It cannot be read, and what to change, or nobody answered, and why; that is asked again until it is known.
    Undecided(Reason, String),
}

/// An owner of machines.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and all combinations exist"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerSeen {
    /// Whether another installation looks after it.
    pub of_others: bool,
    /// Whether nobody is told when it changes, as its kind is not watched or no cache shows it as it was read.
    pub is_unwatched: bool,
    /// What to change before anything can be said of it, if it cannot be read.
    pub unreadable: Option<String>,
    /// The owner of that kind and name if it has another uid than the reservation, and when it was made.
    pub later: Option<(Owner, Timestamp)>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether its Cluster or itself is paused.
    pub paused: bool,
    /// Whether its Cluster is being deleted.
    pub cluster_deleting: bool,
    /// When its Cluster was made, if that is known.
    pub cluster_since: Option<Timestamp>,
    /// How many machines it is to have.
    pub replicas: i32,
    /// Machines that are not being deleted.
    pub machines: usize,
    /// Whether one of them has no host and would take this one.
    pub waits: bool,
    /// Whether those that are still to be made would not take it: its template selects other hosts.
    pub wants_others: bool,
    /// Whether machines of an older template are known to be still replaced.
    pub rolls_out: bool,
    /// Whether its template is there and asks for no reuse.
    pub reuse_off: bool,
}

/// Hosts that the machines of one template have or may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// They have these, whatever is the matter with them, or had them and have no other.
    pub taken: i32,
    /// The next machines would take these, or wait for them.
    pub free: i32,
    /// They would take these as well, but for what may pass: an error, a pause, an inspection.
    pub unready: i32,
}

/// What a rule wants of the label with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    OneOf,
    NoneOf,
    Has,
    Lacks,
    Above,
    Below,
}

/// What there is for a machine.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// A host kept for its owner that is ready.
    pub kept: Option<Arc<CachedHost>>,
    /// A healthy host kept for its owner that will be ready.
    pub on_its_way: Option<String>,
    /// Whether as many machines of its owner wait before it as such hosts are on their way.
    pub behind: bool,
    /// A host kept for its owner that is no good, and why.
    pub unfit: Option<(String, Unfit)>,
    /// A free host that is ready.
    pub free: Option<Arc<CachedHost>>,
    /// A host that would be free but for CAPM3's label, which keeps it; only where there is no other.
    pub labelled: Option<String>,
}

/// Why a host that is kept for its owner is no good for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Its selector wants others.
    NotSelected,
    /// Another installation looks after it.
    OfOthers,
    /// With its name the provider ID is too long.
    LongName,
    /// It is not newly claimed.
    Excluded(Exclusion),
    /// It will not be ready.
    NeverReady,
}

//! What one pass knows. [`observe`](crate::observe) fills it in, [`decide`](crate::decide) goes by it.

use std::collections::BTreeSet;
use std::time::Duration;

use api_types::capi::{self, Cluster, Machine};
use api_types::capm3::Metal3Machine;
use api_types::metal3::BareMetalHost;
use k8s_openapi::jiff::Timestamp;

use crate::claims::Claimed;
use crate::host;
use crate::index::Choice;
use crate::machine::{is_same, up};
use crate::reservation::{Kept, Owner};

/// How soon to look for a Node again, at first and at last.
const SOON: Duration = Duration::from_secs(20);
const LATE: Duration = Duration::from_secs(60);

/// What one pass knows.
#[derive(Clone, Debug)]
pub enum Observed {
    /// It is gone, or belongs to another installation.
    Nothing,
    /// A machine.
    Machine(Box<MachineSeen>),
    /// A host that is kept for somebody.
    Kept(Box<KeptSeen>),
    /// A host that was to be given back, and whose machine may be gone.
    Left(Box<LeftSeen>),
}

/// A machine and what has to do with it.
#[derive(Clone, Debug, Default)]
pub struct MachineSeen {
    /// The machine.
    pub machine: Metal3Machine,
    /// Its Machine.
    pub parent: Parent,
    /// Its Cluster.
    pub cluster: Option<Cluster>,
    /// Who owns its Machine, if that is somebody that hosts are kept for.
    pub owner: Option<Owner>,
    /// Whether the template that it was cloned from asks for reuse.
    pub reuse: Reuse,
    /// The host that it names, gives up, or that names it.
    pub host: HostSeen,
    /// Whether another installation looks after that host, by the host's label.
    pub host_of_others: bool,
    /// Another host that names it as well, for a machine that is being deleted.
    pub another: Option<String>,
    /// Whether machine and host were read live, the host first. What must not be done on old news is done only then.
    pub live: bool,
    /// What there is for it.
    pub choice: Choice,
    /// A host whose claim the API server refused to it for so long that another is better.
    pub refused: Option<String>,
    /// The generation of it for which this process told last what the API server refused to it.
    pub told: Option<i64>,
    /// The claim of its host, if that could not be reported yet.
    pub claimed: Option<Claimed>,
    /// Whether the secret with its first-boot configuration is there; not looked for where nothing hangs on it.
    pub bootstrap_secret: Option<bool>,
    /// A secret of its own that is not there: the field of its spec, and the name.
    pub missing_secret: Option<(&'static str, String)>,
    /// The data template that it names, if that is not there; not looked for once somebody was asked for rendered secrets.
    pub missing_template: Option<String>,
    /// Its rendered secrets.
    pub data: Data,
    /// Whether disks are wiped, as the template says that it was cloned from, or itself where that says nothing. Nothing if
    /// that template is gone: its last word stands on the host.
    pub cleaning: Option<String>,
    /// For whom its host is to be kept, as owner and template say now; for a machine that is being deleted.
    pub verdict: Verdict,
    /// Its Node, if that is looked for.
    pub node: NodeSeen,
}

impl MachineSeen {
    /// The owner whose hosts this machine may have.
    pub fn keeps_for(&self) -> Option<&Owner> {
        self.owner.as_ref().filter(|_| matches!(self.reuse, Reuse::On | Reuse::Unknown))
    }

    /// Secrets that the machine itself names and that nothing rendered takes the place of. As long as something may still be
    /// rendered that is not known.
    pub fn own_secrets(&self) -> Vec<(&'static str, String)> {
        let rendered = match &self.data {
            Data::NotWanted => [false; 2],
            Data::Rendered { meta_data, network_data, .. } => {
                [meta_data.is_some(), network_data.is_some()]
            }
            Data::NotAskedFor | Data::Awaited | Data::Failed(_) | Data::Unserved => [true; 2],
        };
        let spec = &self.machine.spec;
        let named = [("metaData", &spec.meta_data), ("networkData", &spec.network_data)];
        let own = named.into_iter().zip(rendered).filter(|(_, rendered)| !rendered);
        own.filter_map(|((field, it), _)| Some((field, it.as_ref()?.name.clone()?)))
            .filter(|(_, name)| !name.is_empty())
            .collect()
    }

    /// The data template that has to be there before anybody is asked for rendered secrets.
    pub fn data_template(&self) -> Option<&str> {
        let template = self.machine.spec.data_template.as_ref()?;
        (self.data == Data::NotAskedFor).then(|| template.name.as_deref().unwrap_or_default())
    }

    /// Whose Node is to be looked for: that of a machine that is up and for which Cluster API has not found one.
    pub fn sought(&self) -> Option<Sought<'_>> {
        let machine = &self.machine;
        let (Parent::Here(parent), Some(cluster)) = (&self.parent, &self.cluster) else {
            return None;
        };
        let HostSeen::Here(host) = &self.host else { return None };
        let goes = [&machine.metadata, &parent.metadata, &cluster.metadata]
            .iter()
            .any(|it| it.deletion_timestamp.is_some());
        let is_paused = capi::is_paused(&machine.metadata) || cluster.is_paused();
        let has_host = host::is_of(host, machine) && is_same(machine, host);
        let is_found = parent.node_name().is_some();
        if goes || is_paused || !has_host || !machine.is_provisioned() || is_found {
            return None;
        }
        // Another form of ID is a cloud provider's.
        let id = machine.spec.provider_id.as_deref().filter(|it| it.starts_with("metal3://"));
        let host_uid = host.metadata.uid.as_deref().filter(|it| !it.is_empty());
        Some(Sought { cluster, host_uid: host_uid?, provider_id: id? })
    }
}

/// The Machine behind a `Metal3Machine`.
#[derive(Clone, Debug, Default)]
pub enum Parent {
    /// No Machine owns it.
    #[default]
    None,
    /// A Machine owns it and is not there.
    Missing(String),
    /// The Machine.
    Here(Box<Machine>),
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

/// The host that a machine names.
#[derive(Clone, Debug, Default)]
pub enum HostSeen {
    /// It names none and none names it.
    #[default]
    None,
    /// It names one that is not there.
    Gone(String),
    /// The host.
    Here(Box<BareMetalHost>),
}

impl HostSeen {
    /// Its name, if any is named.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Gone(name) => Some(name.clone()),
            Self::Here(host) => host.metadata.name.clone(),
        }
    }
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

/// How soon to look for the Node of a machine again: less often the longer it has been up.
pub fn pace(machine: &Metal3Machine, now: Timestamp) -> Duration {
    up(machine, now).clamp(SOON, LATE)
}

/// The Node of a machine, as far as anybody looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeSeen {
    /// Nobody did.
    #[default]
    Unasked,
    /// Others are looking just now, or nobody does for a while; after this time it may be its turn.
    Later(Duration),
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
    Nobody(&'static str),
    /// For this owner.
    For {
        /// The owner.
        owner: Owner,
        /// Whether disks are wiped before, if the template says so that asks for reuse.
        cleaning: Option<String>,
    },
    /// It cannot be said, and what to change; the host is kept for nobody.
    Unreadable(String),
    /// Nobody answered, and why; that is asked again until somebody does.
    Unanswered(String),
}

/// A kept host and what has to do with it.
#[derive(Clone, Debug)]
pub struct KeptSeen {
    /// The host.
    pub host: BareMetalHost,
    /// For whom it is kept.
    pub kept: Kept,
    /// Its owner; nothing if there is none of that name.
    pub owner: Option<OwnerSeen>,
    /// Since when its owner needs no host more than it has.
    pub settled_since: Option<Timestamp>,
}

/// A host that was to be given back. Everything is as it was read live, the host first.
#[derive(Clone, Debug)]
pub struct LeftSeen {
    /// The host.
    pub host: BareMetalHost,
    /// Whether no machine has it: the one that it names is gone.
    pub is_gone: bool,
    /// Whether another installation looks after it.
    pub of_others: bool,
    /// Whether its Cluster is paused.
    pub paused: bool,
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
    /// Whether nobody is told when it changes, as its kind is not watched.
    pub is_unwatched: bool,
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
    /// Those among them that have no host and would take this one.
    pub without_host: BTreeSet<String>,
    /// Whether those that are still to be made would not take it: its template selects other hosts.
    pub wants_others: bool,
    /// Whether machines of an older template are known to be still replaced.
    pub rolls_out: bool,
    /// Whether its template asks for reuse; nothing if that cannot be said.
    pub reuse: Option<bool>,
}

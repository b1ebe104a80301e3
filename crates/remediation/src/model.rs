//! What the passes are about: what one sees, what it writes, and what it tells the next. The page to read first.

use std::sync::Arc;
use std::time::Duration;

use api_types::capi;
use api_types::metal3::CachedHost;
use controller_kit::engine::ObjectKey;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::DynamicObject;

use crate::decision::Decision;
use crate::history::Entry;
use crate::pauses::Pause;
use crate::request::{Group, Request};
use crate::seen::{Host, Machine, NodeSeen};
use crate::watched::NodeWatch;

/// What one pass is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A request to remediate.
    Request(RequestKey),
    /// A host: a request that is gone may hold it off.
    Host(ObjectKey),
    /// A Machine: it may say something of a request that is gone.
    Machine(ObjectKey),
}

/// A request of either group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    /// Its group.
    pub group: Group,
    /// Its namespace and name.
    pub object: ObjectKey,
}

impl RequestKey {
    /// For events.
    pub fn reference(&self, uid: Option<String>) -> ObjectReference {
        let of_kind = self.object.reference::<DynamicObject>(&self.group.resource());
        ObjectReference { uid, ..of_kind }
    }
}

/// What this process remembers of a request between two passes. All of it can be forgotten.
#[derive(Debug, Default, PartialEq)]
pub struct Memory {
    /// Of which request: another one of the same name has another identity.
    pub uid: String,
    /// What was seen of its pauses.
    pub pause: Pause,
    /// A watch on its node, while that is awaited.
    pub watch: Option<NodeWatch>,
    /// Somebody else wrote first: the caches are behind, and another pass on them would come too late as well.
    pub behind: bool,
}

impl Memory {
    /// Forgets what it knows of another request.
    pub fn about(&mut self, uid: &str) {
        if self.uid != uid {
            *self = Self { uid: uid.to_owned(), ..Self::default() };
        }
    }
}

/// What a pass sees.
pub enum Seen {
    /// A request, with all that it depends on.
    Request(Box<Live>),
    /// A host that has something of a request that is gone.
    Left(Box<LeftBehind>),
    /// A Machine that says something of a request which is gone.
    Leftover(Box<capi::Machine>),
    /// Nothing can be said, or is to be done, about what a request left before so much time has passed.
    TooEarly(Duration),
}

/// A request and all that it depends on, with what its writes insist on.
pub struct Live {
    /// What decisions are made of.
    pub seen: Observed,
    /// The Machine, whose conditions are written as whole lists.
    pub machine: Option<capi::Machine>,
    /// The host's version and annotations.
    pub host: Option<Arc<CachedHost>>,
    /// The same of another host with our key.
    pub stray: Option<Arc<CachedHost>>,
    /// The node.
    pub place: Option<Place>,
    /// When all of it was read. What else is read depends on what is decided then.
    pub at: Timestamp,
}

/// A Node of a workload cluster, with what writes to it need.
pub struct Place {
    /// The cluster.
    pub api: Api<Node>,
    /// As it was read.
    pub object: Node,
}

/// What a request that is gone left: its try is under way on a host, or its taint may be on the node.
pub struct LeftBehind {
    /// The host, whose record says so.
    pub host: Arc<CachedHost>,
    /// The request's uid.
    pub uid: String,
    /// What its node is like now. Nobody asks for it before the host is let go.
    pub node: NodeSeen,
    /// The node.
    pub place: Option<Place>,
}

/// What a pass writes.
#[derive(Debug)]
pub enum Write {
    /// What was decided about a request.
    Acts(Box<Decision>),
    /// What was seen to be left of a request that is gone is taken away.
    Clear,
}

/// What is decided upon.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observed {
    /// The request.
    pub request: Request,
    /// Whether a request of the other group is about the same Machine, which may speak on it as well.
    pub rival: bool,
    /// The Machine.
    pub machine: Option<Machine>,
    /// Its Cluster.
    pub cluster: ClusterSeen,
    /// Why another member of the same control plane goes first.
    pub member: Option<Ahead>,
    /// Whether its control plane has no other member, as far as Machines were read.
    pub only_member: bool,
    /// Its `Metal3Machine`.
    pub metal: Option<Metal>,
    /// The host that the `Metal3Machine` names.
    pub host: Option<Host>,
    /// Another host that has our key: the machine had it before.
    pub stray: Option<Host>,
    /// The node.
    pub node: NodeSeen,
    /// Whether a change of the node is told of.
    pub is_watched: bool,
    /// When a pause ended, if this process saw one: nobody could do anything before.
    pub resumed: Option<Timestamp>,
    /// When this process began to act.
    pub started: Option<Timestamp>,
}

/// Why another member of a control plane goes first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ahead {
    /// This Machine is being tried, or is about to be.
    Trying(String),
    /// An object of it cannot be decoded, so that nobody knows whether it is.
    Unread {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
}

/// What is known of the Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterSeen {
    /// It is there.
    Here {
        /// Whether nothing of it may be touched.
        paused: bool,
    },
    /// It is not there.
    Missing,
}

/// A `Metal3Machine`, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metal {
    /// Whether it is paused by its own annotation.
    pub paused: bool,
    /// The host that it names.
    pub host: Option<String>,
}

impl Observed {
    /// The hosts that may have something of ours, and whether each is the stray one.
    pub fn hosts(&self) -> impl Iterator<Item = (&Host, bool)> {
        self.host.iter().map(|it| (it, false)).chain(self.stray.iter().map(|it| (it, true)))
    }

    /// What stands of this request on a host, whether its try has ended or not.
    pub fn last(&self) -> Option<&Entry> {
        self.hosts().find_map(|(it, _)| it.history.last(&self.request.uid))
    }

    /// Name of the node. When the Machine is gone, the host remembers it.
    pub fn node_name(&self) -> Option<&str> {
        match &self.machine {
            Some(machine) => machine.node.as_deref(),
            None => self.last().and_then(|it| it.node.as_deref()),
        }
    }

    /// The cluster whose node it is. When the Machine is gone, the request's label says so, or the host remembers it.
    pub fn cluster_name(&self) -> Option<&str> {
        let machine = self.machine.as_ref().map(|it| it.cluster.as_str());
        let labelled = machine.or(self.request.cluster.as_deref());
        labelled.or_else(|| self.last().and_then(|it| it.cluster.as_deref()))
    }

    /// The same, as its client is found.
    pub fn workload(&self) -> Option<ObjectKey> {
        Some(ObjectKey::new(&self.request.namespace, self.cluster_name()?))
    }

    /// Whether CAPM3 began with the request: then an out-of-service taint that names nobody is the request's.
    pub fn is_adopted(&self) -> bool {
        self.last().map_or_else(|| self.request.is_others_work(), |it| it.adopted)
    }
}

//! Which hosts name which node, so that two hosts with one node are found without looking at all hosts.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher as _};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Namespace and name of a host.
pub type Name = (String, String);

/// A UUID or a name of a node in eight bytes: ten thousand texts would be larger than all that is remembered of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(NonZeroU64);

impl NodeKey {
    /// None where there is no name.
    pub fn of(node: &str) -> Option<Self> {
        (!node.is_empty()).then(|| Self(NonZeroU64::new(number(node)).unwrap_or(NonZeroU64::MIN)))
    }
}

/// A number that tells such values apart.
pub fn number(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Hosts by node. Hosts that are managed by somebody else count too: they switch the same machine.
#[derive(Default)]
pub struct Index(Mutex<Inner>);

/// Names stand here once each: an index of ten thousand hosts is to be small beside the hosts.
#[derive(Default)]
struct Inner {
    nodes: HashMap<Arc<Name>, Known>,
    hosts: BTreeSet<(NodeKey, Arc<Name>)>,
    /// The name before all others.
    first: Arc<Name>,
}

/// What is known of a host's node.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    /// What the host calls it.
    named: NodeKey,
    /// What else Ironic calls it, by UUID and by name: whoever names it so names the same one.
    also: [Option<NodeKey>; 2],
}

impl Known {
    fn names(self) -> impl Iterator<Item = NodeKey> {
        std::iter::once(self.named).chain(self.also.into_iter().flatten())
    }

    fn has(self, name: NodeKey) -> bool {
        self.names().any(|it| it == name)
    }
}

impl Inner {
    /// The hosts that stand under a name of a node.
    fn under(&self, node: NodeKey) -> impl Iterator<Item = &Arc<Name>> {
        let begin = (node, self.first.clone());
        self.hosts.range(begin..).take_while(move |(it, _)| *it == node).map(|(_, host)| host)
    }

    /// Enters a host under all names of its node, and under no other. Gives the hosts whose neighbours changed by that.
    fn place(&mut self, host: &Arc<Name>, now: Known) -> Vec<Name> {
        let before = self.nodes.insert(host.clone(), now);
        let mut others = Vec::new();
        for gone in before.into_iter().flat_map(Known::names).filter(|it| !now.has(*it)) {
            others.extend(self.leave(host, gone));
        }
        for new in now.names().filter(|it| before.is_none_or(|before| !before.has(*it))) {
            others.extend(self.under(new).map(|it| Name::clone(it)));
            self.hosts.insert((new, host.clone()));
        }
        others
    }

    /// Takes a host out from under a name of its node. Gives those that still stand there.
    fn leave(&mut self, host: &Arc<Name>, node: NodeKey) -> Vec<Name> {
        self.hosts.remove(&(node, host.clone()));
        self.under(node).map(|it| Name::clone(it)).collect()
    }
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes notice of a host that appeared, changed or went. Gives the hosts whose neighbours changed by that.
    pub fn update(&self, host: &Name, node: Option<&str>) -> Vec<Name> {
        let mut inner = self.lock();
        let (node, known) = (node.and_then(NodeKey::of), inner.nodes.get_key_value(host));
        if known.map(|(_, known)| known.named) == node {
            return Vec::new();
        }
        let name = known.map_or_else(|| Arc::new(host.clone()), |(name, _)| name.clone());
        if let Some(named) = node {
            return inner.place(&name, Known { named, also: [None; 2] });
        }
        let before = inner.nodes.remove(host);
        before.into_iter().flat_map(Known::names).flat_map(|it| inner.leave(&name, it)).collect()
    }

    /// Takes notice of what Ironic calls the node that a host names so. Gives the hosts whose neighbours changed by that.
    pub fn learn(&self, host: &Name, node: &str, names: &[NodeKey]) -> Vec<Name> {
        let mut inner = self.lock();
        // A host that has gone meanwhile is not entered again.
        let Some((name, known)) = inner.nodes.get_key_value(host) else { return Vec::new() };
        let Some(own) = NodeKey::of(node) else { return Vec::new() };
        let mut others = names.iter().copied().filter(|it| *it != own);
        let now = Known { named: own, also: [others.next(), others.next()] };
        if *known == now {
            return Vec::new();
        }
        let name = name.clone();
        inner.place(&name, now)
    }

    /// Another host with this node, whichever of its names either of them gives.
    pub fn other(&self, host: &Name, node: &str) -> Option<Name> {
        let inner = self.lock();
        let also = inner.nodes.get(host).into_iter().flat_map(|known| known.also).flatten();
        let names = NodeKey::of(node).into_iter().chain(also);
        let there = names.flat_map(|name| inner.under(name));
        // Always the same one, as its name is told.
        there.filter(|it| ***it != *host).min().map(|it| Name::clone(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        ("n".to_owned(), text.to_owned())
    }

    #[test]
    fn hosts_with_one_node_know_of_each_other_until_one_goes() {
        let index = Index::default();
        let (a, b) = (name("a"), name("b"));
        assert!(index.update(&a, Some("1")).is_empty());
        assert_eq!(index.update(&b, Some("1")), vec![a.clone()]);
        assert_eq!(index.other(&a, "1"), Some(b.clone()));
        assert_eq!(index.update(&b, Some("2")), vec![a.clone()]);
        assert_eq!(index.other(&a, "1"), None);
        index.update(&b, Some("1"));
        assert_eq!(index.update(&b, None), vec![a.clone()]);
        assert_eq!(index.other(&a, "1"), None);
        assert!(index.update(&a, Some("1")).is_empty(), "nothing changed");
    }

    #[test]
    fn hosts_that_name_one_node_differently_know_of_each_other_once_either_was_read() {
        let index = Index::default();
        let (a, b, ironics) =
            (name("a"), name("b"), ["u", "rack-7"].map(|it| NodeKey::of(it).unwrap()));
        index.update(&a, Some("rack-7"));
        index.update(&b, Some("u"));
        assert_eq!((index.other(&a, "rack-7"), index.other(&b, "u")), (None, None));
        assert_eq!(index.learn(&b, "u", &ironics), vec![a.clone()], "it is looked at");
        assert_eq!(index.other(&b, "u"), Some(a.clone()));
        assert_eq!(index.other(&a, "rack-7"), Some(b.clone()), "before it was read itself");
        assert!(index.learn(&b, "u", &ironics).is_empty(), "nothing changed");
        assert_eq!(index.learn(&a, "rack-7", &ironics), vec![b.clone()]);
        // One that appears later is known at once, and one that is corrected is not any more.
        let c = name("c");
        assert_eq!(index.update(&c, Some("rack-7")), vec![a.clone(), b.clone()]);
        let mut left = index.update(&a, Some("elsewhere"));
        left.sort();
        left.dedup();
        assert_eq!(left, vec![b.clone(), c.clone()]);
        assert_eq!(index.other(&a, "elsewhere"), None);
        assert_eq!(index.update(&c, None), vec![b.clone()]);
        assert_eq!(index.other(&b, "u"), None);
        // A node that is gone has no names.
        index.update(&c, Some("rack-7"));
        assert_eq!(index.learn(&b, "u", &[]), vec![c.clone()]);
        assert_eq!(index.other(&b, "u"), None);
        // A host that was corrected already, but whose change was not heard of yet.
        assert_eq!(index.learn(&c, "u", &ironics), vec![b.clone()]);
        assert_eq!(index.other(&c, "u"), Some(b));
        assert!(
            index.learn(&name("gone"), "u", &ironics).is_empty(),
            "who is not there learns nothing"
        );
    }
}

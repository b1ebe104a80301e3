//! Which hosts name which node, so that two hosts with one node are found without looking at all hosts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Namespace and name of a host.
pub type Name = (String, String);

/// Hosts by node. Hosts that are managed by somebody else count too: they switch the same machine.
#[derive(Default)]
pub struct Index(Mutex<Inner>);

/// Names and nodes stand here once each: an index of ten thousand hosts is to be small beside the hosts.
#[derive(Default)]
struct Inner {
    nodes: HashMap<Arc<Name>, Arc<str>>,
    /// Nearly always one.
    hosts: HashMap<Arc<str>, Vec<Arc<Name>>>,
}

impl Index {
    /// Takes notice of a host that appeared, changed or went. Gives the hosts whose neighbours changed by that.
    pub fn update(&self, host: &Name, node: Option<&str>) -> Vec<Name> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.nodes.get(host).map(AsRef::as_ref) == node {
            return Vec::new();
        }
        let mut others = Vec::new();
        if let Some(known) = inner.nodes.remove(host)
            && let Some(left) = inner.hosts.get_mut(&known)
        {
            left.retain(|it| **it != *host);
            others.extend(left.iter().map(|it| Name::clone(it)));
            if left.is_empty() {
                inner.hosts.remove(&known);
            }
        }
        if let Some(node) = node {
            let (host, node) = (Arc::new(host.clone()), Arc::<str>::from(node));
            inner.nodes.insert(host.clone(), node.clone());
            let there = inner.hosts.entry(node).or_insert_with(|| Vec::with_capacity(1));
            others.extend(there.iter().map(|it| Name::clone(it)));
            there.push(host);
        }
        others
    }

    /// Another host with this node.
    pub fn other(&self, host: &Name, node: &str) -> Option<Name> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = inner.hosts.get(node)?.iter().filter(|it| ***it != *host);
        // Always the same one, as its name is told.
        others.min().map(|it| Name::clone(it))
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
}

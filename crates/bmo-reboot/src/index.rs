//! Which hosts name which node, so that two hosts with one node are found without looking at all hosts.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

/// Namespace and name of a host.
pub type Name = (String, String);

/// Hosts by node. Hosts that are managed by somebody else count too: they switch the same machine.
#[derive(Default)]
pub struct Index(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    nodes: HashMap<Name, String>,
    hosts: HashMap<String, BTreeSet<Name>>,
}

impl Index {
    /// Takes notice of a host that appeared, changed or went. Gives the hosts whose neighbours changed by that.
    pub fn update(&self, host: &Name, node: Option<&str>) -> Vec<Name> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = inner.nodes.get(host).cloned();
        if known.as_deref() == node {
            return Vec::new();
        }
        let mut others = Vec::new();
        if let Some(known) = inner.nodes.remove(host)
            && let Some(left) = inner.hosts.get_mut(&known)
        {
            left.remove(host);
            others.extend(left.iter().cloned());
            if left.is_empty() {
                inner.hosts.remove(&known);
            }
        }
        if let Some(node) = node {
            inner.nodes.insert(host.clone(), node.to_owned());
            let there = inner.hosts.entry(node.to_owned()).or_default();
            others.extend(there.iter().cloned());
            there.insert(host.clone());
        }
        others
    }

    /// Another host with this node.
    pub fn other(&self, host: &Name, node: &str) -> Option<Name> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.hosts.get(node)?.iter().find(|it| *it != host).cloned()
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

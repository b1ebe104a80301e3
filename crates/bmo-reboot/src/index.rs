//! Which hosts name which node, so that two hosts with one node are found without looking at all hosts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Namespace and name of a host.
pub type Name = (String, String);

/// Hosts by node. Hosts that are managed by somebody else count too: they switch the same machine.
#[derive(Default)]
pub struct Index(Mutex<Inner>);

/// Names and nodes stand here once each: an index of ten thousand hosts is to be small beside the hosts.
#[derive(Default)]
struct Inner {
    nodes: HashMap<Arc<Name>, Known>,
    /// Nearly always one.
    hosts: HashMap<Arc<str>, Vec<Arc<Name>>>,
}

/// What is known of a host's node.
struct Known {
    /// What the host calls it.
    named: Arc<str>,
    /// What else Ironic calls it: whoever names it so names the same one.
    also: Vec<Arc<str>>,
}

impl Known {
    fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.named).chain(&self.also)
    }

    fn has(&self, name: &str) -> bool {
        self.names().any(|it| **it == *name)
    }
}

impl Inner {
    /// Enters a host under all names of its node, and under no other. Gives the hosts whose neighbours changed by that.
    fn place(&mut self, host: Arc<Name>, now: Known) -> Vec<Name> {
        let before = self.nodes.remove(&*host);
        let mut others = Vec::new();
        if let Some(before) = &before {
            for gone in before.names().filter(|it| !now.has(it)) {
                others.extend(self.leave(&host, gone));
            }
        }
        for new in now.names() {
            if before.as_ref().is_some_and(|before| before.has(new)) {
                continue;
            }
            let there = self.hosts.entry(new.clone()).or_insert_with(|| Vec::with_capacity(1));
            others.extend(there.iter().map(|it| Name::clone(it)));
            there.push(host.clone());
        }
        self.nodes.insert(host, now);
        others
    }

    /// Takes a host out from under a name of its node. Gives those that still stand there.
    fn leave(&mut self, host: &Name, node: &str) -> Vec<Name> {
        let Some(there) = self.hosts.get_mut(node) else { return Vec::new() };
        there.retain(|it| **it != *host);
        let others: Vec<Name> = there.iter().map(|it| Name::clone(it)).collect();
        if others.is_empty() {
            self.hosts.remove(node);
        }
        others
    }
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes notice of a host that appeared, changed or went. Gives the hosts whose neighbours changed by that.
    pub fn update(&self, host: &Name, node: Option<&str>) -> Vec<Name> {
        let mut inner = self.lock();
        if inner.nodes.get(host).map(|known| &*known.named) == node {
            return Vec::new();
        }
        if let Some(node) = node {
            let now = Known { named: Arc::from(node), also: Vec::new() };
            return inner.place(Arc::new(host.clone()), now);
        }
        let Some(before) = inner.nodes.remove(host) else { return Vec::new() };
        before.names().flat_map(|name| inner.leave(host, name)).collect()
    }

    /// Takes notice of what Ironic calls the node that a host names so. Gives the hosts whose neighbours changed by that.
    pub fn learn(&self, host: &Name, node: &str, names: &[String]) -> Vec<Name> {
        let mut inner = self.lock();
        // A host that has gone meanwhile is not entered again.
        let Some((name, known)) = inner.nodes.get_key_value(host) else { return Vec::new() };
        let others = names.iter().map(String::as_str).filter(|it| !it.is_empty() && *it != node);
        let also: Vec<Arc<str>> = others.map(Arc::from).collect();
        if *known.named == *node && known.also == also {
            return Vec::new();
        }
        let name = name.clone();
        inner.place(name, Known { named: Arc::from(node), also })
    }

    /// Another host with this node, whichever of its names either of them gives.
    pub fn other(&self, host: &Name, node: &str) -> Option<Name> {
        let inner = self.lock();
        let also = inner.nodes.get(host).into_iter().flat_map(|known| &known.also);
        let names = std::iter::once(node).chain(also.map(AsRef::as_ref));
        let there = names.filter_map(|name| inner.hosts.get(name)).flatten();
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
        let (a, b, ironics) = (name("a"), name("b"), ["u".to_owned(), "rack-7".to_owned()]);
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

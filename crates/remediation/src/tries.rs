//! Which hosts have the key or the record of which request: a machine may have another host by now, or be gone. Pure.

use std::collections::{BTreeMap, HashMap};

use api_types::metal3::BareMetalHost;
use api_types::names::metal3::REBOOT_FOR_REMEDIATION;
use controller_kit::engine::ObjectKey;

use crate::history::{Entry, History};

/// Hosts by the uid of the request that they know of, and how they do.
#[derive(Default)]
pub struct Tries {
    marks: BTreeMap<(String, ObjectKey), Mark>,
    /// The same the other way round: a change of one host must not cost a look at all.
    hosts: HashMap<ObjectKey, Known>,
}

/// What a host knows of.
struct Known {
    requests: Vec<String>,
    /// Whether its node may still have our taint.
    tainted: bool,
}

/// What a host has of a request; what counts more is greater. With neither it is the record of a try that has ended.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    /// The key. Without an open record it is that of another client who calls itself so, or of CAPM3.
    has_key: bool,
    /// The record of a try that has not ended.
    is_open: bool,
}

impl Tries {
    /// Takes notice of a host that appeared, changed or went. The tries of an installation with another watch filter are
    /// its own: whether their requests are there may not be seen from here.
    pub fn update(&mut self, key: &ObjectKey, host: Option<&BareMetalHost>, filter: Option<&str>) {
        let others = |it: &Entry| {
            filter.is_some() && it.filter.as_deref().is_some_and(|it| Some(it) != filter)
        };
        let mut marks: BTreeMap<String, Mark> = BTreeMap::new();
        let mut tries = host.map(History::of).unwrap_or_default();
        tries.0.retain(|it| !others(it));
        let tainted = tries.tainted().is_some();
        for entry in tries.0 {
            let is_open = entry.ended.is_none();
            marks.insert(entry.remediation, Mark { is_open, ..Mark::default() });
        }
        for (annotation, _) in host.into_iter().flat_map(BareMetalHost::reboot_requests) {
            if let Some(uid) = annotation.strip_prefix(REBOOT_FOR_REMEDIATION) {
                marks.entry(uid.to_owned()).or_default().has_key = true;
            }
        }
        for uid in self.hosts.remove(key).into_iter().flat_map(|it| it.requests) {
            self.marks.remove(&(uid, key.clone()));
        }
        if marks.is_empty() {
            return;
        }
        let requests = marks.keys().cloned().collect();
        self.hosts.insert(key.clone(), Known { requests, tainted });
        self.marks.extend(marks.into_iter().map(|(uid, mark)| ((uid, key.clone()), mark)));
    }

    /// The hosts that know of a request.
    fn of<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = (&'a ObjectKey, Mark)> {
        let all = self.marks.range((uid.to_owned(), ObjectKey::default())..);
        let its = all.take_while(move |((it, _), _)| it == uid);
        its.map(|((_, host), mark)| (host, *mark))
    }

    /// A host other than this one that has a request's key; where this one knows nothing of it, one with its record will do.
    pub fn other(&self, uid: &str, namespace: &str, host: Option<&str>) -> Option<String> {
        let is_this = |it: &ObjectKey| Some(it.name.as_str()) == host;
        let here = || self.of(uid).filter(|(it, _)| it.namespace == namespace);
        let is_known = here().any(|(it, _)| is_this(it));
        let others = here().filter(|(it, mark)| !is_this(it) && (mark.has_key || !is_known));
        others.max_by_key(|(_, mark)| *mark).map(|(it, _)| it.name.clone())
    }

    /// The requests that have a try under way on a host.
    pub fn under_way_on(&self, host: &ObjectKey) -> Vec<String> {
        let is_open = |uid: &&String| self.of(uid).any(|(it, mark)| it == host && mark.is_open);
        let all = self.hosts.get(host).into_iter().flat_map(|it| &it.requests);
        all.filter(is_open).cloned().collect()
    }

    /// The hosts on which a request has a try under way.
    pub fn hosts_of(&self, uid: &str) -> Vec<ObjectKey> {
        self.of(uid).filter(|(_, mark)| mark.is_open).map(|(it, _)| it.clone()).collect()
    }

    /// Whether the node of a host may still have our taint.
    pub fn is_tainted(&self, host: &ObjectKey) -> bool {
        self.hosts.get(host).is_some_and(|it| it.tainted)
    }

    /// All hosts with a try under way, or with something left on their nodes.
    pub fn hosts(&self) -> Vec<ObjectKey> {
        let is_open = |it: &&ObjectKey| self.is_tainted(it) || !self.under_way_on(it).is_empty();
        self.hosts.keys().filter(is_open).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use api_types::names::ferrite::REMEDIATION_HISTORY;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::reason::Reason;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    fn with(entry: Entry) -> BareMetalHost {
        let mut host = BareMetalHost::default();
        let texts = [(REMEDIATION_HISTORY.to_owned(), History(vec![entry]).text())];
        host.metadata.annotations = Some(texts.into());
        host
    }

    fn begun() -> Entry {
        Entry::begin("uid", "m", 0, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_host_whose_node_may_be_tainted_is_looked_at_until_it_is_not() {
        let mut tries = Tries::default();
        let mut entry = Entry::begin("uid", "m", 0, Timestamp::UNIX_EPOCH);
        (entry.ended, entry.node) = (Some(Timestamp::UNIX_EPOCH), Some("n".to_owned()));
        let ended = History(vec![entry]);
        let host = |history: &History| {
            let mut host = BareMetalHost::default();
            let texts = [(REMEDIATION_HISTORY.to_owned(), history.text())];
            host.metadata.annotations = Some(texts.into());
            host
        };
        let left = ended.leaving("uid", "a taint", Some("c"));
        tries.update(&key("h"), Some(&host(&left)), None);
        assert_eq!(tries.hosts(), [key("h")]);
        let beside = left.with(Entry::begin("next", "m", 0, Timestamp::UNIX_EPOCH));
        assert!(
            left.tainted().is_some() && beside.tainted().is_none(),
            "that try has to do with it"
        );
        let gone = left.untainted("uid");
        assert!(gone.last("uid").unwrap().left.is_none());
        tries.update(&key("h"), Some(&host(&gone)), None);
        assert!(tries.hosts().is_empty());
        let labels = ended.leaving("uid", "labels", None);
        tries.update(&key("h"), Some(&host(&labels)), None);
        assert!(tries.hosts().is_empty(), "nobody has them any more");
    }

    #[test]
    fn the_tries_of_an_installation_with_another_watch_filter_are_left_to_it() {
        let looks_after = |own: Option<&str>, its: Option<&str>| {
            let entry = Entry { filter: its.map(str::to_owned), ..begun() };
            let mut tries = Tries::default();
            tries.update(&key("h"), Some(&with(entry)), own);
            !tries.hosts().is_empty()
        };
        assert!(!looks_after(Some("a"), Some("b")));
        assert!(looks_after(Some("a"), Some("a")));
        assert!(looks_after(Some("a"), None), "it may have been ours before we had a filter");
        assert!(looks_after(None, Some("b")), "who has no filter looks after all");
    }

    #[test]
    fn where_the_machines_host_knows_nothing_of_a_request_another_one_may() {
        let recovered = || {
            let history = History(vec![begun()]);
            with(history.ended("uid", Reason::Recovered, Timestamp::UNIX_EPOCH).0.remove(0))
        };
        let mut tries = Tries::default();
        tries.update(&key("old"), Some(&recovered()), None);
        let other = |tries: &Tries, host| tries.other("uid", "ns", host);
        assert_eq!(other(&tries, None).as_deref(), Some("old"));
        assert_eq!(other(&tries, Some("new")).as_deref(), Some("old"));
        tries.update(&key("new"), Some(&recovered()), None);
        assert_eq!(other(&tries, Some("new")), None, "it knows more");
    }

    #[test]
    fn a_try_under_way_is_found_by_its_host_and_by_its_request_until_it_ends() {
        let (mut tries, uid) = (Tries::default(), "uid".to_owned());
        tries.update(&key("h"), Some(&with(begun())), None);
        assert_eq!(
            (tries.under_way_on(&key("h")), tries.hosts_of("uid")),
            (vec![uid], vec![key("h")])
        );
        let ended = Entry { ended: Some(Timestamp::UNIX_EPOCH), ..begun() };
        tries.update(&key("h"), Some(&with(ended)), None);
        assert!(tries.under_way_on(&key("h")).is_empty() && tries.hosts_of("uid").is_empty());
        let mut foreign = BareMetalHost::default();
        let held = (format!("{REBOOT_FOR_REMEDIATION}uid"), String::new());
        foreign.metadata.annotations = Some([held].into());
        tries.update(&key("h"), Some(&foreign), None);
        assert!(tries.hosts_of("uid").is_empty(), "a key without a record is not ours");
        tries.update(&key("h"), None, None);
        assert!(tries.hosts.is_empty() && tries.marks.is_empty());
    }
}

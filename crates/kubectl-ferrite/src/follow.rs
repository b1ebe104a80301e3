//! `waiting --watch`: what waits is shown once, then each change of it. Each kind has a watch of its own, which begins with a list
//! and begins again where the API server ends it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{SelectAll, StreamExt as _};
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};

use crate::ask::{Asking, Failure, right};
use crate::model::{Kind, Link, Object};
use crate::terminal::tell;
use crate::text;
use crate::waiting::{Read, Wanted};

/// Objects of one page of the lists with which watches begin. Each is decoded whole, which takes ten times its size.
const FOLLOWED_PAGE: u32 = 100;

/// What has changed of one object.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Change {
    /// What it waits for now, and did not before.
    pub(crate) items: Vec<Link>,
    /// What it waited for, and waits for no longer.
    pub(crate) ended: Vec<Link>,
}

/// What waits, by object.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<Object, Vec<Link>>);

impl Known {
    pub(crate) fn of(links: Vec<Link>) -> Self {
        let mut known = Self::default();
        for link in links {
            known.0.entry(link.object.clone()).or_default().push(link);
        }
        known
    }

    /// Notes what an object waits for now; nothing where that is what was known.
    pub(crate) fn note(&mut self, object: &Object, now: &[Link]) -> Option<Change> {
        let before = if now.is_empty() {
            self.0.remove(object)
        } else {
            self.0.insert(object.clone(), now.to_vec())
        };
        let before = before.unwrap_or_default();
        let is_known = |it: &&Link| {
            let facts = (&it.part, &it.state, &it.reason);
            before.iter().any(|old| (&old.part, &old.state, &old.reason) == facts)
        };
        let items = now.iter().filter(|it| !is_known(it)).cloned().collect();
        // Another reason of the same thing is news of it, and no end.
        let has_ended = |it: &&Link| now.iter().all(|new| place(new) != place(it));
        let ended = before.iter().filter(has_ended).cloned().collect();
        Some(Change { items, ended }).filter(|it| *it != Change::default())
    }
}

/// What of an object waits: a discovery has machines, each of which waits for itself.
fn place(link: &Link) -> &str {
    let is_machine =
        link.object.kind == Kind::Discovery.as_str() && link.part.starts_with("status.");
    if is_machine { &link.state } else { "" }
}

/// A kind that is followed.
struct Followed<'a> {
    read: Read,
    wanted: Wanted<'a>,
    known: Known,
    /// The objects of the list that is being read.
    listed: BTreeSet<Object>,
}

impl Followed<'_> {
    fn changes(&mut self, event: &Event<DynamicObject>) -> Vec<Change> {
        let kind = &self.read.resource.kind;
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.insert(Object::of(kind, &object.metadata));
                // What cannot be decoded was said of the list.
                self.applied(object).ok().flatten().into_iter().collect()
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let gone: Vec<Object> =
                    self.known.0.keys().filter(|it| !listed.contains(it)).cloned().collect();
                gone.iter().filter_map(|it| self.known.note(it, &[])).collect()
            }
            Event::Apply(object) => match self.applied(object) {
                Ok(change) => change.into_iter().collect(),
                Err(why) => {
                    let object = Object::of(&self.read.resource.kind, &object.metadata);
                    tell(&text::unreadable(&object, &why.to_string()));
                    Vec::new()
                }
            },
            Event::Delete(object) => {
                let object = Object::of(kind, &object.metadata);
                self.known.note(&object, &[]).into_iter().collect()
            }
        }
    }

    fn applied(&mut self, object: &DynamicObject) -> serde_json::Result<Option<Change>> {
        let links = (self.read.links)(&serde_json::to_string(object)?)?;
        let object = Object::of(&self.read.resource.kind, &object.metadata);
        Ok(self.known.note(&object, &self.wanted.of(links)))
    }
}

/// Gives each change to `show`, until there is a failure.
///
/// # Errors
/// When a right is missing, or a change cannot be shown.
pub(crate) async fn follow(
    asking: &Asking,
    wanted: Wanted<'_>,
    kinds: Vec<Read>,
    mut show: impl FnMut(&Change) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut followed: Vec<Followed<'_>> = Vec::new();
    let mut streams = SelectAll::new();
    for (index, mut read) in kinds.into_iter().enumerate() {
        let api = asking.api(&read.resource, wanted.namespace);
        let config = watcher::Config::default().page_size(FOLLOWED_PAGE);
        let events = watch(api, config).default_backoff();
        streams.push(events.map(move |event| (index, event)).boxed());
        let known = Known::of(std::mem::take(&mut read.found));
        followed.push(Followed { read, wanted, known, listed: BTreeSet::new() });
    }
    let mut is_interrupted = false;
    while let Some((index, event)) = streams.next().await {
        match event {
            Ok(event) => {
                is_interrupted = false;
                for change in followed[index].changes(&event) {
                    show(&change)?;
                }
            }
            Err(error) => {
                let resource = &followed[index].read.resource;
                if let Some(verb) = forbidden_verb(&error) {
                    let right = right::<DynamicObject>(verb, resource, wanted.namespace);
                    return Err(Failure::Unanswered(text::not_followed(&right)));
                }
                // The watch begins again by itself: one sentence is enough until one does.
                if !is_expired(&error) && !std::mem::replace(&mut is_interrupted, true) {
                    tell(&text::interrupted(&resource.kind));
                }
            }
        }
    }
    Ok(())
}

fn forbidden_verb(error: &watcher::Error) -> Option<&'static str> {
    let is_forbidden =
        |it: &kube::Error| matches!(it, kube::Error::Api(status) if status.code == 403);
    match error {
        watcher::Error::InitialListFailed(why) if is_forbidden(why) => Some("list"),
        watcher::Error::WatchStartFailed(why) if is_forbidden(why) => Some("watch"),
        watcher::Error::WatchError(status) if status.code == 403 => Some("watch"),
        _ => None,
    }
}

/// Whether the API server has only forgotten from where to go on.
fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(kind: &str, name: &str, state: &str, reason: &str) -> Link {
        let object = Object::new(kind, "rack", name);
        let link = Link::field(&object, "status.pending", state).waiting("");
        Link { reason: Some(reason.to_owned()), ..link }
    }

    /// The reasons that began and those that ended.
    fn reasons(change: Option<Change>) -> Option<(Vec<String>, Vec<String>)> {
        let words = |links: Vec<Link>| links.into_iter().filter_map(|it| it.reason).collect();
        change.map(|it| (words(it.items), words(it.ended)))
    }

    #[allow(clippy::unnecessary_wraps, reason = "it is compared with an option")]
    fn words(items: &[&str], ended: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
        let all = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect();
        Some((all(items), all(ended)))
    }

    #[test]
    fn only_what_changed_is_told() {
        let object = Object::new("Machine", "rack", "a");
        let link = |reason: &str| link("Machine", "a", "False", reason);
        let mut known = Known::of(vec![link("A")]);
        let later = link("A")
            .saying("another message")
            .since(Some(k8s_openapi::jiff::Timestamp::default()));
        assert_eq!(known.note(&object, &[later]), None, "the reason is the same");
        assert_eq!(reasons(known.note(&object, &[link("B")])), words(&["B"], &[]));
        assert_eq!(reasons(known.note(&object, &[])), words(&[], &["B"]));
        assert_eq!(known.note(&object, &[]), None, "it waits no longer as before");
        assert_eq!(reasons(known.note(&object, &[link("B")])), words(&["B"], &[]), "again");
    }

    #[test]
    fn each_machine_of_a_discovery_ends_by_itself() {
        let object = Object::new("BareMetalHostDiscovery", "rack", "d");
        let link = |node: &str, reason: &str| link("BareMetalHostDiscovery", "d", node, reason);
        let mut known = Known::of(vec![link("n1", "A"), link("n2", "B")]);
        let failed = Link { part: "status.failures".to_owned(), ..link("n2", "C") };
        assert_eq!(reasons(known.note(&object, &[failed])), words(&["C"], &["A"]));
    }

    #[test]
    fn what_is_in_no_list_has_ended() {
        let resource = kube::api::ApiResource::erase::<api_types::metal3::BareMetalHost>(&());
        let host = |name: &str, paused: bool| {
            let mut object = DynamicObject::new(name, &resource).within("rack");
            let annotations =
                paused.then(|| [("baremetalhost.metal3.io/paused".to_owned(), String::new())]);
            object.metadata.annotations = annotations.map(Into::into);
            object.data = serde_json::json!({
                "spec": {"online": true},
                "status": {"provisioning": {"state": "available", "ID": ""}},
            });
            object
        };
        let links = |raw: &str| Ok(crate::links::of_host(&serde_json::from_str(raw)?, None));
        let known = Known::of(["a", "b"].map(|it| link("BareMetalHost", it, "", "A")).into());
        let read = Read { resource: resource.clone(), links, found: Vec::new() };
        let wanted = Wanted { namespace: None, reason: None };
        let mut followed = Followed { read, wanted, known, listed: BTreeSet::new() };
        assert!(followed.changes(&Event::Init).is_empty());
        let change = followed.changes(&Event::InitApply(host("a", true)));
        assert_eq!(change[0].items[0].state, "paused");
        let ended = followed.changes(&Event::InitDone);
        assert_eq!((ended.len(), ended[0].ended[0].object.name.as_str()), (1, "b"));
        let ended = followed.changes(&Event::Apply(host("a", false)));
        assert_eq!((ended[0].items.len(), ended[0].ended.len()), (0, 1));
        assert_eq!(followed.changes(&Event::Delete(host("a", true))), Vec::new());
    }
}

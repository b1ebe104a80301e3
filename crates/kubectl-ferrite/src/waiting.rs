//! Everything that waits, page by page. Of a page only what waits is kept: ten thousand hosts fit into little memory.

use std::time::Duration;

use api_types::ContractVersion;
use api_types::capi::Machine;
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::hive::{ClusterClaim, ClusterDeploymentCustomization, ClusterPool};
use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery, CachedHost};
use api_types::time::until;
use futures_util::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::ask::{Answer, Asking, Failure, right};
use crate::model::{Kind, Link, OwnRequest, name_of};
use crate::observe::{of_ours, of_upstream};
use crate::{links, text};

/// Objects of one page.
const PAGE: u32 = 250;

/// A kind whose list was answered.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// The version that is served.
    pub(crate) resource: ApiResource,
    pub(crate) links: Links,
    /// What waits of it.
    pub(crate) found: Vec<Link>,
}

/// What waits, and what could not be read.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) unread: Vec<String>,
    pub(crate) read: Vec<Read>,
}

/// One page, of which each object is decoded alone: one that cannot be decoded leaves the others.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

type Entry = ClusterDeploymentCustomization;
pub(crate) type Links = fn(&str) -> serde_json::Result<Vec<Link>>;

/// What the user wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// One namespace; without it all.
    pub(crate) namespace: Option<&'a str>,
    /// Only what waits for this reason.
    pub(crate) reason: Option<&'a str>,
}

impl Wanted<'_> {
    /// What waits for the wanted reason: the first link of an object. Each machine of a discovery waits for itself.
    pub(crate) fn of(self, links: Vec<Link>) -> Vec<Link> {
        let is_wanted = |it: &Link| {
            let word = it.reason.as_deref().unwrap_or(&it.state);
            it.waits && self.reason.is_none_or(|reason| word.eq_ignore_ascii_case(reason))
        };
        let mut links: Vec<Link> = links.into_iter().filter(is_wanted).collect();
        if links.first().is_some_and(|it| it.object.kind != Kind::Discovery.as_str()) {
            links.truncate(1);
        }
        links
    }
}

/// A kind whose objects may wait.
struct Listed {
    /// Best first.
    versions: Vec<ApiResource>,
    links: Links,
}

fn listed<K: Resource>(versions: &[K::DynamicType], links: Links) -> Listed {
    Listed { versions: versions.iter().map(ApiResource::erase::<K>).collect(), links }
}

fn kinds() -> [Listed; 9] {
    let contracts = &ContractVersion::BEST_FIRST;
    [
        listed::<CachedHost>(&[()], of_host),
        listed::<Machine>(contracts, |raw| Ok(links::of_machine(&of(raw)?))),
        listed::<Metal3Machine>(contracts, |raw| Ok(links::of_metal(&of(raw)?))),
        listed::<OwnRequest>(&[()], |raw| Ok(links::of_request(&of_ours(of(raw)?)))),
        listed::<UpstreamRemediation>(contracts, |raw| {
            Ok(links::of_request(&of_upstream(of(raw)?)))
        }),
        listed::<ClusterPool>(&[()], |raw| Ok(links::of_pool(&of(raw)?))),
        listed::<ClusterClaim>(&[()], |raw| Ok(links::of_claim(&of(raw)?))),
        listed::<Entry>(&[()], |raw| Ok(links::of_customization(&of(raw)?))),
        listed::<BareMetalHostDiscovery>(&[()], |raw| Ok(links::of_discovery(&of(raw)?))),
    ]
}

/// Lists all kinds, side by side.
///
/// # Errors
/// When the API server does not answer.
pub(crate) async fn waiting(asking: &Asking, wanted: Wanted<'_>) -> Result<Waiting, Failure> {
    let mut found = Waiting::default();
    for list in join_all(kinds().map(|kind| list(asking, wanted, kind))).await {
        let list = list?;
        found.unread.extend(list.unread);
        found.read.extend(list.read);
    }
    Ok(found)
}

/// Lists a kind in the first of its versions that the API server has.
async fn list(asking: &Asking, wanted: Wanted<'_>, kind: Listed) -> Result<Waiting, Failure> {
    for version in kind.versions {
        let list = List::new(asking, wanted, version, kind.links);
        if let Some(found) = list.read().await? {
            return Ok(found);
        }
    }
    Ok(Waiting::default())
}

impl Waiting {
    /// All that waits, oldest first.
    pub(crate) fn links(&self) -> Vec<Link> {
        let mut links: Vec<Link> = self.read.iter().flat_map(|it| it.found.clone()).collect();
        // What has no time is last.
        links.sort_by_key(|it| (it.since.is_none(), it.since, it.object.clone()));
        links
    }
}

fn of<'a, T: Deserialize<'a>>(raw: &'a str) -> serde_json::Result<T> {
    serde_json::from_str(raw)
}

/// A host without its hardware. What a cached host lacks is read where it waits: its history says since when, and its
/// finalizers what keeps it.
fn of_host(raw: &str) -> serde_json::Result<Vec<Link>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Rest {
        metadata: Finalizers,
        status: Option<History>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Finalizers {
        finalizers: Option<Vec<String>>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct History {
        #[serde(rename = "operationHistory")]
        history: Value,
    }
    let host: CachedHost = of(raw)?;
    let links = links::of_host(&host, None);
    if !links.iter().any(|it| it.waits) {
        return Ok(links);
    }
    let Rest { metadata, status } = of(raw)?;
    let mut host = BareMetalHost::clone(&host);
    host.metadata.finalizers = metadata.finalizers;
    let began = links::began(host.provisioning_state(), &status.unwrap_or_default().history);
    let mut links = links::of_host(&host, began);
    for link in links.iter_mut().filter(|it| it.since.is_none()) {
        link.since = began;
    }
    Ok(links)
}

/// The links of each object of a page.
type Decoded = Vec<Result<Vec<Link>, Undecodable>>;
type Decoding = JoinHandle<serde_json::Result<Decoded>>;

/// Decodes a page. The token of the next page is sent as soon as it is known.
fn decode(page: &str, links: Links, next: oneshot::Sender<String>) -> serde_json::Result<Decoded> {
    let page: Page<'_> = of(page)?;
    match page.metadata.next.filter(|it| !it.is_empty()) {
        Some(token) => _ = next.send(token),
        None => drop(next),
    }
    let object = |raw: &&RawValue| {
        links(raw.get()).map_err(|why| Undecodable { name: name_in(raw), why: why.to_string() })
    };
    Ok(page.items.iter().map(object).collect())
}

/// An object that cannot be decoded.
#[derive(Debug)]
struct Undecodable {
    name: String,
    why: String,
}

/// The name of an object of which nothing else is known.
fn name_in(object: &RawValue) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named {
        metadata: Names,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Names {
        namespace: String,
        name: String,
    }
    let Named { metadata } = of(object.get()).unwrap_or_default();
    format!("{}/{}", metadata.namespace, metadata.name)
}

struct List<'a> {
    asking: &'a Asking,
    wanted: Wanted<'a>,
    undecodable: Vec<Undecodable>,
    read: Read,
}

impl<'a> List<'a> {
    fn new(asking: &'a Asking, wanted: Wanted<'a>, resource: ApiResource, links: Links) -> Self {
        let read = Read { resource, links, found: Vec::new() };
        Self { asking, wanted, undecodable: Vec::new(), read }
    }

    /// The objects that wait. Nothing where the API server does not have this version.
    ///
    /// The API server takes longer to send a page than it takes to decode it: each comes while the one before it is decoded.
    /// With more than these two at a time the memory would grow.
    async fn read(mut self) -> Result<Option<Waiting>, Failure> {
        type K = DynamicObject;
        let namespace = self.wanted.namespace;
        let mut params = ListParams::default().limit(PAGE);
        let mut before: Option<Decoding> = None;
        loop {
            let page = self.asking.text::<K>(&self.read.resource, namespace, &params).await?;
            if let Some(before) = before.take() {
                self.keep(before).await?;
            }
            let page = match page {
                Answer::Here(page) => page,
                Answer::Gone | Answer::Unserved => return Ok(None),
                Answer::Forbidden => {
                    let right = right::<K>("list", &self.read.resource, namespace);
                    return Ok(Some(self.unread(text::not_listed(&right))));
                }
                Answer::Unreadable(why) => {
                    let why = text::undecodable(&self.kind(), &why);
                    return Ok(Some(self.unread(why)));
                }
            };
            let (links, (tell, next)) = (self.read.links, oneshot::channel());
            let decoding = spawn_blocking(move || decode(&page, links, tell));
            if let Ok(token) = next.await {
                params = params.continue_token(&token);
                before = Some(decoding);
            } else if let Some(why) = self.keep(decoding).await? {
                return Ok(Some(self.unread(why)));
            } else {
                return Ok(Some(Waiting { unread: self.undecoded(), read: vec![self.read] }));
            }
        }
    }

    /// Keeps what waits of a page; says why, if the page is no list.
    async fn keep(&mut self, page: Decoding) -> Result<Option<String>, Failure> {
        let page = page.await.map_err(|error| Failure::Unanswered(error.to_string()))?;
        let objects = match page {
            Ok(objects) => objects,
            Err(why) => return Ok(Some(text::undecodable(&self.kind(), &why.to_string()))),
        };
        for object in objects {
            match object {
                Ok(links) => self.read.found.extend(self.wanted.of(links)),
                Err(object) => self.undecodable.push(object),
            }
        }
        Ok(None)
    }

    fn kind(&self) -> String {
        name_of::<DynamicObject>(&self.read.resource)
    }

    /// The objects that cannot be decoded, in one line: of a kind whose shape has changed it may be all.
    fn undecoded(&self) -> Vec<String> {
        let line = |it: &Undecodable| {
            text::undecoded(&self.kind(), &it.name, self.undecodable.len() - 1, &it.why)
        };
        self.undecodable.first().map(line).into_iter().collect()
    }

    fn unread(self, why: String) -> Waiting {
        let mut unread = self.undecoded();
        unread.push(why);
        Waiting { unread, read: Vec::new() }
    }
}

/// How many have no time.
pub(crate) fn untimed(links: &[Link]) -> usize {
    links.iter().filter(|it| it.since.is_none()).count()
}

/// Keeps what waits longer than this. What has no time is never overdue.
pub(crate) fn older(links: &mut Vec<Link>, than: Duration, now: Timestamp) {
    links.retain(|it| it.since.is_some_and(|since| until(since, now) > than));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_that_is_being_deleted_names_what_keeps_it() {
        let host = json!({
            "metadata": {
                "name": "h", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"],
            },
            "status": {"provisioning": {"state": "available", "ID": ""}},
        });
        assert_eq!(of_host(&host.to_string()).unwrap()[0].message, "Kept by a/b.");
    }

    #[test]
    fn an_object_that_cannot_be_decoded_is_named_and_leaves_the_others() {
        let host = |name: &str, online: Value| {
            json!({
                "metadata": {"namespace": "rack", "name": name}, "spec": {"online": online},
                "status": {"provisioning": {"state": "inspecting", "ID": ""}},
            })
        };
        let items = [host("a", json!("yes")), host("b", json!(true)), host("c", json!([]))];
        let page = json!({"metadata": {"continue": "next"}, "items": items}).to_string();
        let (tell, mut next) = oneshot::channel();
        let decoded = decode(&page, of_host, tell).unwrap();
        assert_eq!(next.try_recv().as_deref(), Ok("next"));
        assert_eq!(decoded[1].as_ref().unwrap()[0].state, "inspecting");
        let names = decoded.iter().filter_map(|it| Some(it.as_ref().err()?.name.as_str()));
        assert_eq!(names.collect::<Vec<_>>(), ["rack/a", "rack/c"]);
        let said = text::undecoded("BareMetalHost", "rack/a", 1, "why");
        assert_eq!(said, "Not shown: BareMetalHost rack/a (+1 more) cannot be decoded: why.");
    }
}

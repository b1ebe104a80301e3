//! Everything that waits, page by page. Of a page only what waits is kept: ten thousand hosts fit into little memory.

use std::time::Duration;

use api_types::ContractVersion;
use api_types::capi::Machine;
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::hive::{ClusterClaim, ClusterDeploymentCustomization, ClusterPool};
use api_types::metal3::{BareMetalHostDiscovery, CachedHost};
use api_types::time::until;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

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
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    items: Vec<Box<RawValue>>,
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

/// Lists all kinds.
///
/// # Errors
/// When the API server does not answer.
pub(crate) async fn waiting(asking: &Asking, wanted: Wanted<'_>) -> Result<Waiting, Failure> {
    let mut lists = Lists { asking, wanted, found: Waiting::default() };
    for kind in kinds() {
        for version in &kind.versions {
            if lists.add(version, kind.links).await? {
                break;
            }
        }
    }
    Ok(lists.found)
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

/// A host without its hardware. Its history is read only where it says since when.
fn of_host(raw: &str) -> serde_json::Result<Vec<Link>> {
    #[derive(Default, Deserialize)]
    struct Host {
        #[serde(default)]
        status: Option<Status>,
    }
    #[derive(Default, Deserialize)]
    struct Status {
        #[serde(rename = "operationHistory", default)]
        history: Value,
    }
    let host: CachedHost = of(raw)?;
    let mut links = links::of_host(&host, None);
    for link in links.iter_mut().filter(|it| it.since.is_none()) {
        let history = of::<Host>(raw)?.status.unwrap_or_default().history;
        link.since = links::began(host.provisioning_state(), &history);
    }
    Ok(links)
}

struct Lists<'a> {
    asking: &'a Asking,
    wanted: Wanted<'a>,
    found: Waiting,
}

impl Lists<'_> {
    /// Adds the objects that wait. False where the API server does not have this version.
    async fn add(&mut self, version: &ApiResource, links: Links) -> Result<bool, Failure> {
        type K = DynamicObject;
        let namespace = self.wanted.namespace;
        let mut params = ListParams::default().limit(PAGE);
        let mut found = Vec::new();
        loop {
            let page = self.asking.page::<K, Page>(version, namespace, &params).await?;
            let page = match page {
                Answer::Here(page) => page,
                Answer::Gone | Answer::Unserved => return Ok(false),
                Answer::Forbidden => {
                    let right = right::<K>("list", version, namespace);
                    self.found.unread.push(text::not_listed(&right));
                    return Ok(true);
                }
                Answer::Unreadable(why) => {
                    let kind = name_of::<K>(version);
                    self.found.unread.push(text::undecodable(&kind, &why));
                    return Ok(true);
                }
            };
            for item in &page.items {
                match links(item.get()) {
                    Ok(links) => found.extend(self.wanted.of(links)),
                    Err(error) => {
                        let kind = name_of::<K>(version);
                        self.found.unread.push(text::undecodable(&kind, &error.to_string()));
                    }
                }
            }
            let Some(next) = page.metadata.next.filter(|it| !it.is_empty()) else {
                self.found.read.push(Read { resource: version.clone(), links, found });
                return Ok(true);
            };
            params = params.continue_token(&next);
        }
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

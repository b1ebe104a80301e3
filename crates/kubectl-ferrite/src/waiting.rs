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
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::ask::{Answer, Asking, Failure, right};
use crate::model::{Link, OwnRequest, name_of};
use crate::observe::{of_ours, of_upstream};
use crate::{links, text};

/// Objects of one page.
const PAGE: u32 = 250;

/// What waits, and what could not be read.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) links: Vec<Link>,
    pub(crate) unread: Vec<String>,
    /// Whether any list was answered.
    pub(crate) is_read: bool,
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
type Links = fn(&str) -> serde_json::Result<Vec<Link>>;

/// Lists all kinds.
///
/// # Errors
/// When the API server does not answer.
pub(crate) async fn waiting(asking: &Asking, namespace: Option<&str>) -> Result<Waiting, Failure> {
    let mut lists = Lists { asking, namespace, found: Waiting::default() };
    let contracts = &ContractVersion::BEST_FIRST;
    lists.add::<CachedHost>(&[()], of_host).await?;
    lists.add::<Machine>(contracts, |raw| Ok(first(links::of_machine(&of(raw)?)))).await?;
    lists.add::<Metal3Machine>(contracts, |raw| Ok(first(links::of_metal(&of(raw)?)))).await?;
    lists.add::<OwnRequest>(&[()], |raw| Ok(first(links::of_request(&of_ours(of(raw)?))))).await?;
    lists
        .add::<UpstreamRemediation>(contracts, |raw| {
            Ok(first(links::of_request(&of_upstream(of(raw)?))))
        })
        .await?;
    lists.add::<ClusterPool>(&[()], |raw| Ok(first(links::of_pool(&of(raw)?)))).await?;
    lists.add::<ClusterClaim>(&[()], |raw| Ok(first(links::of_claim(&of(raw)?)))).await?;
    lists.add::<Entry>(&[()], |raw| Ok(first(links::of_customization(&of(raw)?)))).await?;
    // Each machine of a discovery waits for itself.
    lists.add::<BareMetalHostDiscovery>(&[()], |raw| Ok(links::of_discovery(&of(raw)?))).await?;
    let mut found = lists.found;
    // What has no time is last.
    found.links.sort_by_key(|it| (it.since.is_none(), it.since, it.object.clone()));
    Ok(found)
}

fn of<'a, T: Deserialize<'a>>(raw: &'a str) -> serde_json::Result<T> {
    serde_json::from_str(raw)
}

fn first(links: Vec<Link>) -> Vec<Link> {
    links.into_iter().find(|it| it.waits).into_iter().collect()
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
    let mut links = first(links::of_host(&host, None));
    for link in links.iter_mut().filter(|it| it.since.is_none()) {
        let history = of::<Host>(raw)?.status.unwrap_or_default().history;
        link.since = links::began(host.provisioning_state(), &history);
    }
    Ok(links)
}

struct Lists<'a> {
    asking: &'a Asking,
    namespace: Option<&'a str>,
    found: Waiting,
}

impl Lists<'_> {
    /// The objects of a kind that wait, in the first version that the API server has. A kind that is not installed has none.
    async fn add<K: Resource>(
        &mut self,
        versions: &[K::DynamicType],
        links: Links,
    ) -> Result<(), Failure> {
        for version in versions {
            if self.add_version::<K>(version, links).await? {
                break;
            }
        }
        Ok(())
    }

    async fn add_version<K: Resource>(
        &mut self,
        version: &K::DynamicType,
        links: Links,
    ) -> Result<bool, Failure> {
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = self.asking.page::<K, Page>(version, self.namespace, &params).await?;
            let page = match page {
                Answer::Here(page) => page,
                Answer::Gone | Answer::Unserved => return Ok(false),
                Answer::Forbidden => {
                    let right = right::<K>("list", version, self.namespace);
                    self.found.unread.push(text::not_listed(&right));
                    return Ok(true);
                }
                Answer::Unreadable(why) => {
                    let kind = name_of::<K>(version);
                    self.found.unread.push(text::undecodable(&kind, &why));
                    return Ok(true);
                }
            };
            self.found.is_read = true;
            for item in &page.items {
                match links(item.get()) {
                    Ok(links) => self.found.links.extend(links.into_iter().filter(|it| it.waits)),
                    Err(error) => {
                        let kind = name_of::<K>(version);
                        self.found.unread.push(text::undecodable(&kind, &error.to_string()));
                    }
                }
            }
            match page.metadata.next.filter(|it| !it.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => return Ok(true),
            }
        }
    }
}

/// Keeps what waits longer than this.
pub(crate) fn older(links: &mut Vec<Link>, than: Duration, now: Timestamp) {
    links.retain(|it| it.since.is_some_and(|since| until(since, now) > than));
}

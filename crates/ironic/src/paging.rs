//! Lists, page by page.
//!
//! Ironic names the next page itself, but that link drops most filters and carries an address that
//! need not be reachable from here. So only the presence of the link is used; the request is our
//! own: the same again, after the last object seen.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::time::Instant;

use controller_kit::engine::Class as Urgency;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::client::{Call, Client};
use crate::error::{Class, Error};
use crate::node::{Node, Port, node_path};

/// The largest page that Ironic gives by default. It silently cuts larger wishes.
pub const MAX_PAGE: u32 = 1000;

/// How much is wanted of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The few fields that Ironic chooses.
    #[default]
    Basic,
    /// Everything: seven to ten times the bytes.
    Full,
    /// These fields. The identity is always added; fields that this Ironic lacks are left out and
    /// stay empty. Times are not to be had this way.
    Fields(&'static [&'static str]),
}

/// Which nodes are wanted. Filters that are `None` do not filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeQuery {
    /// How much of each.
    pub detail: Detail,
    /// Only those in this state.
    pub provision_state: Option<String>,
    /// Only those with this driver.
    pub driver: Option<String>,
    /// Only those of this class.
    pub resource_class: Option<String>,
    /// Only those in maintenance, or only the others.
    pub maintenance: Option<bool>,
    /// Only those made after this one (an identity).
    pub after: Option<String>,
    /// Size of a page; 0 is the largest.
    pub page: u32,
}

/// Which ports are wanted. Filters that are `None` do not filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortQuery {
    /// How much of each.
    pub detail: Detail,
    /// Only those of this node (identity or name).
    pub node: Option<String>,
    /// Only the one with this MAC address.
    pub address: Option<String>,
    /// Only those made after this one (an identity).
    pub after: Option<String>,
    /// Size of a page; 0 is the largest.
    pub page: u32,
}

/// Reads a list page by page, oldest object first.
#[derive(Debug)]
pub struct Pager<T> {
    client: Client,
    path: String,
    filters: Vec<(&'static str, String)>,
    fields: &'static [&'static str],
    page: u32,
    marker: Option<String>,
    /// All markers so far.
    been: HashSet<String>,
    done: bool,
    sent: Option<Instant>,
    node: Option<String>,
    item: PhantomData<fn() -> T>,
}

/// An object that a list can be continued after.
trait Listed: DeserializeOwned {
    fn uuid(&self) -> &str;
}

impl Listed for Node {
    fn uuid(&self) -> &str {
        &self.uuid
    }
}

impl Listed for Port {
    fn uuid(&self) -> &str {
        &self.uuid
    }
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(alias = "nodes", alias = "ports")]
    items: Vec<T>,
    #[serde(default)]
    next: Option<String>,
}

impl Client {
    /// The nodes that match, of those that the settings are about.
    pub fn nodes(&self, query: NodeQuery) -> Pager<Node> {
        let mut filters = Vec::new();
        add(&mut filters, "provision_state", query.provision_state);
        add(&mut filters, "driver", query.driver);
        add(&mut filters, "resource_class", query.resource_class);
        add(&mut filters, "conductor_group", self.settings().conductor_group.clone());
        let maintenance = query.maintenance.map(|value| value.to_string());
        add(&mut filters, "maintenance", maintenance);
        Pager::new(self, "nodes".to_owned(), filters, query.detail, query.page, query.after)
    }

    /// The ports that match.
    pub fn ports(&self, query: PortQuery) -> Result<Pager<Port>> {
        // By this filter Ironic also finds the ports of a node given by name, and says so if there
        // is no such node. By the path below the node it does neither.
        if let Some(node) = &query.node {
            node_path(node, "")?;
        }
        let mut filters = Vec::new();
        add(&mut filters, "node", query.node.clone());
        add(&mut filters, "address", query.address);
        let all =
            Pager::new(self, "ports".to_owned(), filters, query.detail, query.page, query.after);
        Ok(Pager { node: query.node, ..all })
    }
}

fn add(filters: &mut Vec<(&'static str, String)>, name: &'static str, value: Option<String>) {
    if let Some(value) = value {
        filters.push((name, value));
    }
}

impl<T> Pager<T> {
    fn new(
        client: &Client,
        path: String,
        mut filters: Vec<(&'static str, String)>,
        detail: Detail,
        page: u32,
        marker: Option<String>,
    ) -> Self {
        let fields = match detail {
            Detail::Fields(fields) => fields,
            Detail::Full => {
                filters.push(("detail", "true".to_owned()));
                &[]
            }
            Detail::Basic => &[],
        };
        Self {
            client: client.clone(),
            path,
            filters,
            fields,
            page: if page == 0 { MAX_PAGE } else { page.min(MAX_PAGE) },
            been: marker.iter().cloned().collect(),
            marker,
            done: false,
            sent: None,
            node: None,
            item: PhantomData,
        }
    }

    /// The identity of the last object seen: a later query with it as `after` gives what is new.
    pub fn last_seen(&self) -> Option<&str> {
        self.marker.as_deref()
    }

    /// When the last page was asked for, if any was read: it tells of what had happened then.
    pub fn sent(&self) -> Option<Instant> {
        self.sent
    }

    /// Whether the server said that nothing follows; a list that was not begun may have more.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Begins the list again, where the object to go on after is gone.
    pub fn restart(&mut self) {
        (self.marker, self.done) = (None, false);
        self.been.clear();
    }

    /// Goes on in pages of half the size. Says whether there are any.
    pub fn halve(&mut self) -> bool {
        let is_smaller = self.page > 1;
        self.page = (self.page / 2).max(1);
        is_smaller
    }

    pub(crate) fn call(&self) -> Call {
        // A machine waits for what is of one node.
        let urgency = Urgency::Normal;
        let mut call = Call { urgency, node: self.node.clone(), ..Call::get(self.path.clone()) };
        call.query.clone_from(&self.filters);
        call.query.push(("limit", self.page.to_string()));
        add(&mut call.query, "marker", self.marker.clone());
        call.fields = self.fields;
        call
    }
}

#[expect(private_bounds, reason = "only nodes and ports are listed")]
impl<T: Listed> Pager<T> {
    /// The next page, or `None` after the last one. It may be empty.
    ///
    /// [`Class::MarkerGone`] means that the object to go on after was deleted meanwhile: begin
    /// anew.
    pub async fn next(&mut self) -> Result<Option<Vec<T>>> {
        if self.done {
            return Ok(None);
        }
        let answer = self.client.read_sent::<Page<T>>(self.call()).await;
        let (page, sent) = answer.map_err(|error| match (error.class(), &self.marker) {
            (Class::NotFound, Some(_)) => error.reclassify(Class::MarkerGone),
            _ => error,
        })?;
        self.sent = Some(sent);
        self.advance(&page)?;
        Ok(Some(page.items))
    }

    /// Everything, if it is not more than `most` objects.
    pub async fn collect(mut self, most: usize) -> Result<Vec<T>> {
        let mut all = Vec::new();
        while let Some(page) = self.next().await? {
            all.extend(page);
            if all.len() > most {
                let text = format!("the list has more than {most} objects, which is refused");
                return Err(Error::new(Class::TooLarge, text).of("GET", &self.path));
            }
        }
        Ok(all)
    }

    /// Where to go on. A server whose pages are smaller than asked for still says that there are
    /// more, so the number of objects says nothing.
    fn advance(&mut self, page: &Page<T>) -> Result<()> {
        let last = page.items.last().map(Listed::uuid);
        self.done = page.next.is_none() || last.is_none();
        let Some(last) = last else { return Ok(()) };
        if last.is_empty() || !self.been.insert(last.to_owned()) {
            self.done = true;
            let text = "the list does not go on after the last object seen";
            return Err(Error::invalid(text).of("GET", &self.path));
        }
        self.marker = Some(last.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::Url;

    use super::*;
    use crate::settings::Settings;
    use crate::version::Version;

    fn client() -> Client {
        let none = |_: &str| Some("/nonexistent".to_owned());
        let settings = Settings::from_lookup(Some("http://h"), |name| {
            (name == "METAL3_AUTH_ROOT_DIR").then(|| none(name)).flatten()
        });
        Client::new(settings.unwrap()).unwrap()
    }

    fn asked(pager: &Pager<Node>) -> Vec<(String, String)> {
        let url = pager.call().url(&Url::parse("http://h/").unwrap(), Version::NEWEST);
        url.query_pairs().into_owned().collect()
    }

    fn page(uuids: &[&str], more: bool) -> Page<Node> {
        let text = serde_json::json!({
            "nodes": uuids.iter().map(|u| serde_json::json!({"uuid": u})).collect::<Vec<_>>(),
            "next": more.then_some("http://elsewhere/v1/nodes?marker=x"),
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn every_page_has_the_filters_of_the_first() {
        let mut pager = client().nodes(NodeQuery {
            detail: Detail::Fields(&["uuid", "name"]),
            provision_state: Some("enroll".to_owned()),
            maintenance: Some(false),
            page: 2,
            ..NodeQuery::default()
        });
        let mut first = asked(&pager);
        pager.advance(&page(&["a", "b"], true)).unwrap();
        assert!(!pager.done);
        let second = asked(&pager);
        let marker = ("marker".to_owned(), "b".to_owned());
        assert!(second.contains(&marker), "{second:?}");
        first.push(marker);
        first.sort();
        let mut second = second;
        second.sort();
        assert_eq!(first, second);
        assert!(first.contains(&("provision_state".to_owned(), "enroll".to_owned())));
    }

    #[test]
    fn a_page_that_the_server_cut_is_not_the_last_one() {
        let mut pager = client().nodes(NodeQuery::default());
        pager.advance(&page(&["a"], true)).unwrap();
        assert!(!pager.done);
        pager.advance(&page(&["b"], false)).unwrap();
        assert!(pager.done);
        assert_eq!(pager.last_seen(), Some("b"));
    }

    #[test]
    fn an_empty_page_ends_the_list_and_keeps_the_place() {
        let mut pager =
            client().nodes(NodeQuery { after: Some("z".to_owned()), ..NodeQuery::default() });
        pager.advance(&page(&[], true)).unwrap();
        assert!(pager.done);
        assert_eq!(pager.last_seen(), Some("z"));
    }

    #[test]
    fn a_list_that_turns_in_circles_is_left() {
        for (way, back) in [(&["a"][..], "a"), (&["a", "b", "c"], "a")] {
            let mut pager = client().nodes(NodeQuery::default());
            for marker in way {
                pager.advance(&page(&[marker], true)).unwrap();
            }
            let error = pager.advance(&page(&[back], true)).unwrap_err();
            assert_eq!(error.class(), Class::Invalid);
            assert!(pager.done);
        }
    }

    proptest! {
        #[test]
        fn no_filter_can_add_another_parameter(value in ".*") {
            let pager = client().nodes(NodeQuery {
                driver: Some(value.clone()),
                ..NodeQuery::default()
            });
            let asked = asked(&pager);
            prop_assert_eq!(asked.len(), 2);
            prop_assert_eq!(&asked[0], &("driver".to_owned(), value));
        }
    }
}

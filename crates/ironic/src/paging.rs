//! Lists, page by page.
//!
//! Ironic names the next page itself, but that link drops most filters and carries an address that
//! need not be reachable from here. So only the presence of the link is used; the request is our
//! own: the same again, after the last object seen.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Once;
use std::time::Instant;

use controller_kit::engine::Class as Urgency;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::client::{Call, Client};
use crate::error::{Class, Error};
use crate::node::{Node, Port, is_node_id, node_path};
use crate::{Result, lenient};

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
    /// Only those of this class.
    pub resource_class: Option<String>,
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
    /// Only those made after this one (an identity).
    pub after: Option<String>,
    /// Size of a page; 0 is the largest.
    pub page: u32,
}

/// Reads a list page by page, oldest object first.
#[derive(Clone, Debug)]
pub struct Pager<T> {
    client: Client,
    path: String,
    filters: Vec<(&'static str, String)>,
    fields: &'static [&'static str],
    page: u32,
    marker: Option<String>,
    /// All markers so far.
    been: HashSet<String>,
    unread: Vec<String>,
    done: bool,
    sent: Option<Instant>,
    node: Option<String>,
    item: PhantomData<fn() -> T>,
}

/// An object that a list can be continued after.
trait Listed: DeserializeOwned {
    /// Whether one that cannot be read is left out of its page. A port is not: its node would be taken for another machine.
    const IS_LEFT_OUT: bool;

    fn uuid(&self) -> &str;
}

impl Listed for Node {
    const IS_LEFT_OUT: bool = true;

    fn uuid(&self) -> &str {
        &self.uuid
    }
}

impl Listed for Port {
    const IS_LEFT_OUT: bool = false;

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
    /// Identities of entries that cannot be read.
    #[serde(skip)]
    unread: Vec<String>,
    /// The last identity of a page that was read entry by entry.
    #[serde(skip)]
    last: Option<String>,
}

/// All that is looked for in an entry that cannot be read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OddEntry {
    #[serde(deserialize_with = "lenient::read")]
    uuid: Option<String>,
}

impl<T: Listed> Page<T> {
    /// Reads a page, and entry by entry only where that fails: one odd entry costs the others nothing.
    fn read(body: &[u8]) -> serde_json::Result<Self> {
        let whole = serde_json::from_slice::<Self>(body);
        let is_odd = |page: &Self| page.items.iter().any(|it| it.uuid().is_empty());
        if !T::IS_LEFT_OUT || whole.as_ref().is_ok_and(|page| !is_odd(page)) {
            return whole;
        }
        let Ok(raw) = serde_json::from_slice::<Page<&RawValue>>(body) else { return whole };
        let mut page = Self { items: Vec::new(), next: raw.next, unread: Vec::new(), last: None };
        for entry in raw.items {
            let item = serde_json::from_str::<T>(entry.get());
            let why = item.as_ref().err().map(ToString::to_string).unwrap_or_default();
            if let Some(item) = item.ok().filter(|it| !it.uuid().is_empty()) {
                page.last = Some(item.uuid().to_owned());
                page.items.push(item);
            } else if let Some(uuid) = identity(entry) {
                tracing::debug!(uuid, why, "Ironic lists an object that cannot be read");
                page.last = Some(uuid.clone());
                page.unread.push(uuid);
            } else {
                // At each list it would be said again.
                static TOLD: Once = Once::new();
                TOLD.call_once(|| {
                    tracing::warn!(why, "Passes over an object that Ironic lists without identity");
                });
            }
        }
        // Nobody knows where the list goes on.
        if page.last.is_none() && page.next.is_some() {
            return whole.and_then(|_| Err(serde::de::Error::missing_field("uuid")));
        }
        Ok(page)
    }

    /// The identity after which the list goes on.
    fn last(&self) -> Option<&str> {
        self.last.as_deref().or_else(|| self.items.last().map(Listed::uuid))
    }
}

fn identity(entry: &RawValue) -> Option<String> {
    let odd = serde_json::from_str::<OddEntry>(entry.get()).ok()?;
    odd.uuid.filter(|it| is_node_id(it))
}

impl Client {
    /// The nodes that match, of those that the settings are about.
    pub fn nodes(&self, query: NodeQuery) -> Pager<Node> {
        let mut filters = Vec::new();
        add(&mut filters, "resource_class", query.resource_class);
        add(&mut filters, "conductor_group", self.settings().conductor_group.clone());
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
            unread: Vec::new(),
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

    /// Nodes of the last page of which only the identity can be read. Those without are passed over.
    pub fn unread(&self) -> &[String] {
        &self.unread
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
        let answer = self.client.read_by(self.call(), Page::<T>::read).await;
        let (mut page, sent) = answer.map_err(|error| match (error.class(), &self.marker) {
            (Class::NotFound, Some(_)) => error.reclassify(Class::MarkerGone),
            _ => error,
        })?;
        self.sent = Some(sent);
        self.advance(&page)?;
        self.unread = std::mem::take(&mut page.unread);
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
        let last = page.last();
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
        Page::read(text.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn one_node_that_cannot_be_read_costs_the_others_nothing() {
        let read = |odd: &str| {
            let body =
                format!(r#"{{"nodes": [{{"uuid": "a"}}, {odd}, {{"uuid": "c"}}], "next": "x"}}"#);
            let page = Page::<Node>::read(body.as_bytes()).unwrap();
            let read: Vec<String> = page.items.iter().map(|it| it.uuid.clone()).collect();
            assert_eq!((read.join(""), page.last()), ("ac".to_owned(), Some("c")), "{odd}");
            page.unread
        };
        for odd in [r#""name": 5"#, r#""extra": []"#, r#""last_error": "\ud800""#] {
            assert_eq!(read(&format!(r#"{{"uuid": "b", {odd}}}"#)), ["b"], "{odd}");
        }
        for nameless in [r#"{"uuid": null}"#, r#"{"uuid": "../b", "name": 5}"#, "{}", "7", "[]"] {
            assert!(read(nameless).is_empty(), "{nameless}");
        }
    }

    #[test]
    fn a_list_goes_on_after_a_node_that_cannot_be_read_and_never_ends_at_one_without_identity() {
        let read = |nodes: &str| {
            Page::<Node>::read(format!(r#"{{"nodes": [{nodes}], "next": "x"}}"#).as_bytes())
        };
        let last = |nodes: &str| read(nodes).unwrap().last().map(str::to_owned);
        assert_eq!(last(r#"{"uuid": "a"}, {"uuid": "b", "name": 5}"#).as_deref(), Some("b"));
        assert_eq!(last(r#"{"uuid": "a"}, {"uuid": null}"#).as_deref(), Some("a"));
        for nodes in [r#"{"uuid": null}"#, "{}"] {
            assert!(read(nodes).is_err(), "{nodes}");
        }
    }

    /// A machine of which one port is missing may be a host that nobody finds by the others.
    #[test]
    fn ports_are_read_together_or_not_at_all() {
        let body = br#"{"ports": [{"uuid": "a", "address": "52:54:00:00:00:01"}, {"uuid": "b", "address": 5}]}"#;
        assert!(Page::<Port>::read(body).is_err());
    }

    #[test]
    fn every_page_has_the_filters_of_the_first() {
        let mut pager = client().nodes(NodeQuery {
            detail: Detail::Fields(&["uuid", "name"]),
            resource_class: Some("large".to_owned()),
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
        assert!(first.contains(&("resource_class".to_owned(), "large".to_owned())));
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
                resource_class: Some(value.clone()),
                ..NodeQuery::default()
            });
            let asked = asked(&pager);
            prop_assert_eq!(asked.len(), 2);
            prop_assert_eq!(&asked[0], &("resource_class".to_owned(), value));
        }
    }
}

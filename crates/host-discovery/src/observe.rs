//! All reads but those that prove a write in `write`: the questions to Ironic, and those to the API server that come before a
//! host, or before the driver of its node is changed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery};
use controller_kit::api_error::unless_gone;
use controller_kit::engine::{self, Class as Urgency, ObjectKey, asked};
use futures_util::future::try_join_all;
use ironic::{Class, Client, Detail, Error, Inventory, NodeQuery, Pager, PortQuery};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::context::Context;
use crate::hardware::{HardwareDetails, LateFields};
use crate::inventory::{Facts, MOST_PORTS, Port, bmc, has_all};
use crate::machine::Reading;
use crate::model::Order;
use crate::node_id::NodeId;
use crate::nodes::{Look, NodeList, Read};
use crate::reason::Pass;
use crate::settings::HOSTS;
use crate::sighting::Sighting;
use crate::text;
use crate::waits::{HANGS_AFTER, MAKING_MAX, READING_MAX, SEEN_MAX_AGE, SHORTEST_WAIT};

/// Bytes of an inventory that are read. Real ones have four to a hundred thousand.
pub const MOST_INVENTORY: usize = 1 << 20;
/// More machines than these are not asked for one by one: their ports are listed at once, or the nodes themselves.
pub const MANY: usize = 32;
/// How often one answer is asked for in a row.
const ATTEMPTS: u32 = 3;

/// Lists are without errors: part of an error is what a machine posted, and some of them would fill every answer.
const LISTED: Detail = Detail::Fields(&["uuid", "name", "provision_state", "extra"]);
const FIELDS: Detail = Detail::Fields(&["uuid", "name", "provision_state", "last_error", "extra"]);
const PORT_FIELDS: Detail = Detail::Fields(&["uuid", "address", "node_uuid", "pxe_enabled"]);

/// Reads the next page of a list of all nodes, or of those that are new, and gives the list at its end. What a page shows is
/// decided about before the next one comes: a list may have many pages, and Ironic may be slow.
pub async fn poll(context: &Context, all: bool) -> Result<Option<NodeList>, Error> {
    let mut list = context.table.with(|table| match &mut table.list {
        Some(list) if list.all || !all => list.clone(),
        place => {
            if all {
                table.nodes.begin();
            }
            let after = table.newest.clone().filter(|_| !all);
            let query = NodeQuery { detail: LISTED, after, ..NodeQuery::default() };
            let pages = context.ironic.nodes(query);
            place.insert(NodeList { all, began: Instant::now(), pages }).clone()
        }
    });
    let page = next_page(&mut list.pages).await?.unwrap_or_default();
    let at = Instant::now();
    context.table.with(|table| {
        let nodes = &mut table.nodes;
        context.index.with(|index| page.iter().for_each(|node| nodes.note(node, index, at)));
        nodes.note_unread(list.pages.unread(), at);
        if !list.pages.is_done() {
            table.list = Some(list);
            return Ok(None);
        }
        if list.all {
            nodes.end();
        }
        table.newest = list.pages.last_seen().map(str::to_owned);
        table.list = None;
        Ok(Some(list))
    })
}

/// The next page: asked for again where Ironic may answer the next time, since a list of many pages would else never
/// end while every tenth answer fails; and a smaller one where it is larger than anybody reads.
async fn next_page(list: &mut Pager<ironic::Node>) -> Result<Option<Vec<ironic::Node>>, Error> {
    let mut attempts = 0;
    loop {
        match list.next().await {
            Err(error) if error.class() == Class::TooLarge && list.halve() => {}
            Err(error) if is_worth_another(&error, &mut attempts).await => {}
            answer => return answer,
        }
    }
}

/// What Ironic says, if it does so in this time.
pub async fn within<T>(
    limit: Duration,
    what: &str,
    asking: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answer = tokio::time::timeout(limit, asking).await;
    answer.unwrap_or_else(|_| Err(Error::too_slow(what, limit)))
}

/// Whether something is asked for once more, after a pause. What took its whole time is not: it would only take it again.
async fn is_worth_another(error: &Error, attempts: &mut u32) -> bool {
    *attempts += 1;
    let class = error.class();
    let again = class.is_transient() && class != Class::Timeout && *attempts < ATTEMPTS;
    if again {
        tokio::time::sleep(SHORTEST_WAIT).await;
    }
    again
}

/// Reads a machine, and tells what came of it; nothing where nobody wants that any more.
pub async fn machine(context: &Context, id: NodeId) -> Option<Pass> {
    let read = context.table.with(|table| table.nodes.reading(id))?;
    let looking = look(&context.ironic, id, read, context.late_fields());
    let (look, pass) = match within(READING_MAX, "the machine", looking).await {
        Ok(look) => (look, Pass::MachineRead),
        Err(error) if error.class() == Class::NotFound => (Look::Gone, Pass::MachineRead),
        Err(error) => {
            context.metrics.ironic_failed(&error);
            tracing::debug!(node.id = %id, error = %error, "Could not read a machine");
            (Look::Failed(error.class(), error.to_string()), Pass::MachineUnread)
        }
    };
    context.ended(id, look);
    Some(pass)
}

/// Lists ports where many machines are to be read. Without that each machine is asked for its own.
pub async fn list_ports(context: &Context, due: &[NodeId]) {
    let lacks_many = context.table.with(|table| {
        let (nodes, found) = (&table.nodes, &mut table.found);
        found.retain(|node, _| nodes.is_machine(*node));
        let unlisted = due.iter().filter(|node| !found.contains_key(node)).count();
        unlisted > MANY && unlisted * 20 > nodes.count()
    });
    if !lacks_many {
        return;
    }
    let list = list_new_ports(context, due);
    if let Err(error) = within(HANGS_AFTER, "the list of ports", list).await {
        context.metrics.ironic_failed(&error);
        tracing::debug!(error = %error, "Could not list the ports");
    }
}

/// The ports of these nodes, from one list of all that are new. What was listed before an error stays listed.
async fn list_new_ports(context: &Context, due: &[NodeId]) -> Result<(), Error> {
    let wanted: HashSet<&NodeId> = due.iter().collect();
    let mut attempts = 0;
    let after = context.table.with(|table| table.last_port.clone());
    let query = PortQuery { detail: PORT_FIELDS, after, ..PortQuery::default() };
    let mut pages = context.ironic.ports(query)?;
    loop {
        match pages.next().await {
            Ok(Some(page)) => {
                attempts = 0;
                let ports = page.iter().filter_map(|port| {
                    let node = NodeId::parse(port.node_uuid.as_deref()?);
                    Some((node.filter(|node| wanted.contains(node))?, Port::read(port)))
                });
                context.table.with(|table| {
                    for (node, port) in ports {
                        let found = table.found.entry(node).or_default();
                        // So many as anybody looks at.
                        if found.len() < MOST_PORTS {
                            found.extend(port);
                        }
                    }
                    table.last_port = pages.last_seen().map(str::to_owned);
                });
            }
            Ok(None) => return Ok(()),
            // A port after which the list was to go on was deleted.
            Err(error) if error.class() == Class::MarkerGone => {
                context.table.with(|table| {
                    table.last_port = None;
                    table.found.clear();
                });
                pages.restart();
            }
            Err(error) if is_worth_another(&error, &mut attempts).await => {}
            Err(error) => return Err(error),
        }
    }
}

/// An answer, asked for again where it may come the next time.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut attempts = 0;
    loop {
        match ask().await {
            Err(error) if is_worth_another(&error, &mut attempts).await => {}
            answer => return answer,
        }
    }
}

/// One machine: its ports, and its inventory, which Ironic writes last. The node itself only where that says something new: also
/// where Ironic showed it some time ago, so that it is decided about before that is too old for a host.
async fn look(ironic: &Client, id: NodeId, read: Read, late: LateFields) -> Result<Look, Error> {
    let text = id.to_string();
    let mut ports = match read.ports {
        Some(listed) => listed,
        None => patiently(|| ports_of(ironic, &text)).await?,
    };
    let (mut told, has_all_ports) = read_inventory(ironic, &text, &ports, late).await?;
    if !has_all_ports {
        ports = patiently(|| ports_of(ironic, &text)).await?;
        (told, _) = read_inventory(ironic, &text, &ports, late).await?;
    }
    let (inventory, details) = told;
    let is_known = read.seen.is_some_and(|seen| seen.elapsed() < SEEN_MAX_AGE / 2);
    // An error may say why there is no inventory, or no port.
    let says_all = is_known && inventory != Reading::None && !ports.is_empty();
    let node = if says_all { None } else { Some(Box::new(patiently(|| node(ironic, id)).await?)) };
    Ok(Look::Read { node, inventory, details, ports })
}

/// What the inventory says of a machine with these ports, and whether those are all.
async fn read_inventory(
    ironic: &Client,
    id: &str,
    ports: &[Port],
    late: LateFields,
) -> Result<((Reading, Option<HardwareDetails>), bool), Error> {
    match patiently(|| ironic.inventory(id, MOST_INVENTORY)).await {
        Ok(inventory) => Ok((told(&inventory, ports, late), has_all(&inventory, ports))),
        Err(error) => Ok(((no_inventory(error)?, None), true)),
    }
}

/// What an answer without an inventory says of the machine. One that is no inventory says nothing: a proxy may have given it in
/// Ironic's place, and the machine keeps what it told before.
fn no_inventory(error: Error) -> Result<Reading, Error> {
    match error.class() {
        Class::NotFound => Ok(Reading::None),
        Class::TooLarge => Ok(Reading::TooLarge(Vec::new())),
        _ => Err(error),
    }
}

/// So many ports as anybody looks at, and one more where there are more.
async fn ports_of(ironic: &Client, node: &str) -> Result<Vec<Port>, Error> {
    let query =
        PortQuery { detail: PORT_FIELDS, node: Some(node.to_owned()), ..PortQuery::default() };
    let mut pages = ironic.ports(query)?;
    let mut ports = Vec::new();
    while ports.len() <= MOST_PORTS
        && let Some(page) = pages.next().await?
    {
        ports.extend(page.iter().filter_map(Port::read));
    }
    ports.truncate(MOST_PORTS + 1);
    Ok(ports)
}

/// The node as it is now.
async fn node(ironic: &Client, id: NodeId) -> Result<ironic::Node, Error> {
    let id = id.to_string();
    match ironic.node_at(&id, FIELDS, Urgency::Normal).await {
        // So long is only an error that a machine posted.
        Err(error) if error.class() == Class::TooLarge => {
            let mut node = ironic.node(&id, LISTED).await?;
            node.last_error = Some(text::ERROR_TOO_LONG.to_owned());
            Ok(node)
        }
        answer => answer,
    }
}

/// What an inventory says of a machine with these ports, and how it stands on a host.
fn told(
    inventory: &Inventory,
    ports: &[Port],
    late: LateFields,
) -> (Reading, Option<HardwareDetails>) {
    match Facts::read(inventory, ports) {
        Some(facts) => {
            (Reading::Facts(Box::new(facts)), Some(HardwareDetails::read(inventory, late)))
        }
        // It may be a host by an address that was left out. A stranger who names its management controller must not get that.
        None => (Reading::TooLarge(bmc(inventory)), None),
    }
}

/// A host as it is now; none if it is gone. Read by a list, since a list is what the role allows.
pub async fn host(context: &Context, host: &ObjectKey) -> Result<Option<Sighting>, engine::Error> {
    let api: Api<Sighting> = Api::namespaced(context.kit.client.clone(), &host.namespace);
    let it = ListParams::default().fields(&format!("metadata.name={}", host.name));
    let found = asked("read a host", api.list(&it)).await?;
    Ok(found.items.into_iter().next())
}

/// The metadata of a discovery; none if it is gone. Read by a list, since a list is what the role allows.
async fn metadata(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<ObjectMeta>, engine::Error> {
    let client = context.kit.client.clone();
    let api: Api<BareMetalHostDiscovery> = Api::namespaced(client, namespace);
    let it = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = asked("read the metadata of a discovery", api.list_metadata(&it)).await?;
    Ok(found.items.into_iter().next().map(|it| it.metadata))
}

/// Which discoveries of these hosts, by their places, are no longer as they were when it was decided. A watch that hangs or fails says
/// nothing of itself: who suspends a discovery, withdraws an approval or deletes it would go on getting hosts.
pub async fn changed(
    context: &Context,
    orders: &[Order],
) -> Result<BTreeSet<usize>, engine::Error> {
    let makers = orders.iter().filter_map(|it| Some((it.verdict.resource?, &it.resource)));
    let looks = makers.collect::<BTreeMap<_, _>>().into_iter().map(async |(at, resource)| {
        let now = metadata(context, &resource.namespace, &resource.name).await?;
        Ok((!now.is_some_and(|it| resource.is_still(&it))).then_some(at))
    });
    Ok(try_join_all(looks).await?.into_iter().flatten().collect())
}

/// Waits until the watch tells of all hosts. A watch that hangs or fails says nothing of itself, and what a person made meanwhile
/// would be made a second time.
pub async fn watched(context: &Context) -> Result<(), String> {
    let api: Api<BareMetalHost> = Api::all(context.kit.client.clone());
    let one = ListParams::default().limit(1);
    let count = || async {
        let page = asked("count the hosts", api.list_metadata(&one)).await;
        let page = page.map_err(|error| error.to_string())?;
        let rest = page.metadata.remaining_item_count.unwrap_or_default();
        Ok(page.items.len().saturating_add(usize::try_from(rest).unwrap_or_default()))
    };
    caught_up(|| context.index.with(|index| index.len()), count).await
}

/// Waits until as many are seen as there were at one moment since this began: that the watch is no older than that is all that
/// is to be known. Some of those that were counted may be deleted by the time that the number is here, so they are counted anew.
/// Those that somebody makes meanwhile are not waited for: while hosts come in hundreds the watch is always behind some.
async fn caught_up<F>(seen: impl Fn() -> usize, count: impl Fn() -> F) -> Result<(), String>
where
    F: Future<Output = Result<usize, String>>,
{
    let began = Instant::now();
    let mut there = usize::MAX;
    loop {
        there = there.min(count().await?);
        let known = seen();
        if known >= there {
            return Ok(());
        }
        if began.elapsed() > MAKING_MAX {
            return Err(text::behind(known, there));
        }
        tokio::time::sleep(SHORTEST_WAIT).await;
    }
}

/// Learns once what the installed operator can read of a host's hardware, by its CRD: the two are of one release. Another one
/// is seen by the next process.
pub async fn learn_fields(context: &Context) -> Result<(), engine::Error> {
    if context.late_fields.get().is_some() {
        return Ok(());
    }
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let client = context.kit.client.clone();
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    let crd =
        asked("read the CRD of the hosts", async { unless_gone(api.get(HOSTS).await) }).await?;
    let known = LateFields::of(crd.as_ref().map_or(&Value::Null, |crd| &crd.data));
    let _ = context.late_fields.set(known);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;
    use crate::mac::Mac;

    #[test]
    fn a_machine_with_too_many_addresses_keeps_the_bmc_that_it_names() {
        let nic = |number: usize| json!({ "name": format!("e{number}"), "mac_address": format!("52:54:00:00:{:02x}:{:02x}", number / 256, number % 256) });
        let read = |nics: usize, ports: usize| {
            let interfaces: Vec<Value> = (0..nics).map(nic).collect();
            let machine = json!({ "bmc_address": "192.0.2.7", "interfaces": interfaces });
            let inventory = serde_json::from_value(json!({ "inventory": machine })).unwrap();
            let port = Port { mac: Mac::parse("52:54:00:00:00:00").unwrap(), pxe: true };
            told(&inventory, &vec![port; ports], LateFields::default())
        };
        let bmc = Reading::TooLarge(vec!["192.0.2.7".parse().unwrap()]);
        assert!(read(1, MOST_PORTS).0.facts().is_some());
        // Of the second one Ironic has too many ports.
        assert_eq!(read(2000, 1), (bmc.clone(), None));
        assert_eq!(read(1, MOST_PORTS + 1), (bmc, None));
    }

    /// A proxy may give it in place of an inventory that names a BMC.
    #[test]
    fn what_is_no_inventory_is_an_error_and_says_nothing_of_the_machine() {
        let error = serde_json::from_str::<Value>("junk").unwrap_err();
        let junk = Error::invalid(error.to_string());
        assert_eq!(no_inventory(junk).unwrap_err().class(), Class::Invalid);
    }

    #[tokio::test]
    async fn hosts_that_others_make_while_all_are_counted_are_not_waited_for() {
        let there = Cell::new(10);
        let count = || {
            let counted = there.get();
            there.set(counted + 5);
            async move { Ok(counted) }
        };
        // The watch tells of each some hosts later.
        caught_up(|| there.get() - 8, count).await.unwrap();
        assert_eq!(there.get(), 20, "counted twice");
    }

    #[tokio::test]
    async fn a_host_that_is_deleted_while_all_are_counted_is_not_waited_for() {
        let counts = Cell::new(0);
        let count = || {
            counts.set(counts.get() + 1);
            let there = if counts.get() == 1 { 3 } else { 2 };
            async move { Ok(there) }
        };
        caught_up(|| 2, count).await.unwrap();
        assert_eq!(counts.get(), 2);
        let behind = caught_up(|| 2, || async { Ok(3) }).await.unwrap_err();
        assert!(behind.contains("2 hosts of 3"), "{behind}");
    }
}

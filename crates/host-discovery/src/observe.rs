//! All questions to Ironic.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use ironic::{Class, Client, Detail, Error, NodeQuery, Pager, PortQuery};
use k8s_openapi::jiff::Timestamp;

use crate::controller::Context;
use crate::hardware::HardwareDetails;
use crate::inventory::{Facts, Port};
use crate::machine::Reading;
use crate::node_id::NodeId;
use crate::nodes::{Look, Nodes, Unmarked};

/// Bytes of an inventory that are read. Real ones have four to a hundred thousand.
pub const MOST_INVENTORY: usize = 1 << 20;
/// Ports of one node that are read.
const MOST_PORTS: usize = 256;
/// Inventories that are asked for at the same time. The client has its own limit for connections.
const AT_ONCE: usize = 8;
/// With more machines to read, their ports are listed at once.
const MANY: usize = 32;
/// How long one pass reads before it makes hosts of what it has.
const READING: Duration = Duration::from_secs(10);
/// How often a list is begun again whose place was lost, because a node was deleted meanwhile.
const BEGINNINGS: u32 = 3;
/// How often one answer is asked for in a row, and how long after each failure.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

const FIELDS: Detail = Detail::Fields(&["uuid", "name", "provision_state", "last_error", "extra"]);
const PORT_FIELDS: Detail = Detail::Fields(&["uuid", "address", "node_uuid", "pxe_enabled"]);

/// Where lists of Ironic's go on.
#[derive(Debug, Default)]
pub struct Places {
    /// After this node.
    nodes: Option<String>,
    /// After this port.
    ports: Option<String>,
}

/// Asks for all nodes, or for those that are newer than the last one seen. Tells which are to be marked.
pub async fn poll(
    context: &Context,
    nodes: &mut Nodes,
    places: &mut Places,
    all: bool,
) -> Result<Vec<Unmarked>, Error> {
    if all {
        return list_all(context, nodes, places).await;
    }
    let query = NodeQuery { detail: FIELDS, after: places.nodes.clone(), ..NodeQuery::default() };
    let mut pages = context.ironic.nodes(query);
    let mut unmarked = Vec::new();
    while let Some(page) = page(&mut pages).await? {
        note(context, nodes, &page, &mut unmarked);
    }
    places.nodes = pages.last_seen().map(str::to_owned);
    Ok(unmarked)
}

/// The next page, asked for again where Ironic may answer the next time: a list of many pages would else never end while
/// every tenth answer fails.
async fn page(pages: &mut Pager<ironic::Node>) -> Result<Option<Vec<ironic::Node>>, Error> {
    let mut attempts = 1;
    loop {
        match pages.next().await {
            Err(error) if error.class().is_transient() && attempts < ATTEMPTS => {
                attempts += 1;
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

async fn list_all(
    context: &Context,
    nodes: &mut Nodes,
    places: &mut Places,
) -> Result<Vec<Unmarked>, Error> {
    let mut beginnings = 0;
    'anew: loop {
        let mut pages = context.ironic.nodes(NodeQuery { detail: FIELDS, ..NodeQuery::default() });
        let mut unmarked = Vec::new();
        nodes.begin();
        loop {
            match page(&mut pages).await {
                Ok(Some(page)) => note(context, nodes, &page, &mut unmarked),
                Ok(None) => break,
                Err(error) if error.class() == Class::MarkerGone && beginnings < BEGINNINGS => {
                    beginnings += 1;
                    continue 'anew;
                }
                Err(error) => return Err(error),
            }
        }
        nodes.end();
        places.nodes = pages.last_seen().map(str::to_owned);
        return Ok(unmarked);
    }
}

fn note(context: &Context, nodes: &mut Nodes, page: &[ironic::Node], unmarked: &mut Vec<Unmarked>) {
    let index = context.index();
    let (now, at) = (Timestamp::now(), Instant::now());
    unmarked.extend(page.iter().filter_map(|node| nodes.note(node, &index, now, at)));
}

/// Reads machines whose turn it is, `most` of them, as far as the time allows. The error is Ironic's silence; what was
/// read before it counts.
pub async fn read(
    context: &Context,
    nodes: &mut Nodes,
    places: &mut Places,
    most: usize,
) -> Result<(), Error> {
    let due = nodes.due(Instant::now(), most);
    if due.is_empty() {
        return Ok(());
    }
    let ports = if due.len() > MANY && due.len() * 20 > nodes.len() {
        list_ports(&context.ironic, places, &due).await?
    } else {
        HashMap::new()
    };
    let ironic = &context.ironic;
    let jobs = due.into_iter().map(|node| {
        let (listed, known) = (ports.get(&node), nodes.seen(node).is_some());
        async move { (node, look(ironic, node, listed, known).await) }
    });
    // What the jobs borrow is not what their answers change.
    let jobs: Vec<_> = jobs.collect();
    let mut answers = stream::iter(jobs).buffer_unordered(AT_ONCE);
    let deadline = tokio::time::Instant::now() + READING;
    while let Ok(Some((node, answer))) = tokio::time::timeout_at(deadline, answers.next()).await {
        let at = Instant::now();
        match answer {
            Ok(look) => nodes.read(node, look, at),
            Err(error) => {
                let class = error.class();
                context.metrics.ironic_errors.with_label_values(&[class.as_str()]).inc();
                nodes.read(node, Look::Failed, at);
                if matches!(class, Class::Unreachable | Class::Timeout | Class::Unauthorized) {
                    return Err(error);
                }
                tracing::debug!(node.id = %node, error = %error, "Could not read a machine");
            }
        }
    }
    Ok(())
}

/// The ports of these nodes, from one list of all that are new.
async fn list_ports(
    ironic: &Client,
    places: &mut Places,
    due: &[NodeId],
) -> Result<HashMap<NodeId, Vec<ironic::Port>>, Error> {
    let mut found: HashMap<NodeId, Vec<ironic::Port>> = HashMap::new();
    let wanted: std::collections::HashSet<&NodeId> = due.iter().collect();
    for _ in 0..=BEGINNINGS {
        let query =
            PortQuery { detail: PORT_FIELDS, after: places.ports.take(), ..PortQuery::default() };
        let mut pages = ironic.ports(query)?;
        loop {
            match pages.next().await {
                Ok(Some(page)) => {
                    for port in page {
                        let node = port.node_uuid.as_deref().and_then(NodeId::parse);
                        if let Some(node) = node.filter(|node| wanted.contains(node)) {
                            let ports = found.entry(node).or_default();
                            if ports.len() < MOST_PORTS {
                                ports.push(port);
                            }
                        }
                    }
                }
                Ok(None) => {
                    places.ports = pages.last_seen().map(str::to_owned);
                    return Ok(found);
                }
                Err(error) if error.class() == Class::MarkerGone => break,
                Err(error) => return Err(error),
            }
        }
        found.clear();
    }
    Ok(found)
}

/// An answer, asked for again where it may come the next time.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut attempts = 1;
    loop {
        match ask().await {
            Err(error)
                if matches!(error.class(), Class::Busy | Class::Server) && attempts < ATTEMPTS =>
            {
                attempts += 1;
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// One machine: its inventory, which Ironic writes last, and then its ports. The node itself only where that says
/// something new.
async fn look(
    ironic: &Client,
    id: NodeId,
    listed: Option<&Vec<ironic::Port>>,
    known: bool,
) -> Result<Look, Error> {
    let text = id.to_string();
    let inventory = match patiently(|| ironic.inventory(&text, MOST_INVENTORY)).await {
        Ok(inventory) => Ok(Some(inventory)),
        Err(error) => match error.class() {
            Class::NotFound => Ok(None),
            Class::TooLarge => Err(Reading::TooLarge),
            Class::Invalid => Err(Reading::Unreadable),
            _ => return Err(error),
        },
    };
    let mut node = None;
    if matches!(inventory, Ok(None)) || !known {
        match patiently(|| ironic.node(&text, FIELDS)).await {
            Ok(read) => node = Some(Box::new(read)),
            Err(error) if error.class() == Class::NotFound => return Ok(Look::Gone),
            Err(error) => return Err(error),
        }
    }
    let waits = matches!(inventory, Ok(None))
        && node.as_ref().is_some_and(|node| node.last_error.is_none());
    let mut inventory = inventory;
    let ports = match listed {
        _ if waits => Vec::new(),
        Some(listed) => listed.clone(),
        None => match patiently(|| ports_of(ironic, &text)).await {
            Ok(ports) => ports,
            Err(error) if error.class() == Class::NotFound => return Ok(Look::Gone),
            // So many interfaces no machine has.
            Err(error) if error.class() == Class::TooLarge => {
                inventory = Err(Reading::TooLarge);
                Vec::new()
            }
            Err(error) => return Err(error),
        },
    };
    let usable: Vec<Port> = ports.iter().filter_map(Port::read).collect();
    let strange_ports = u32::try_from(ports.len() - usable.len()).unwrap_or(u32::MAX);
    let (inventory, details) = match inventory {
        Ok(None) => (Reading::None, None),
        Err(reading) => (reading, None),
        Ok(Some(inventory)) => {
            let facts = Facts::read(&inventory, &usable);
            let details = HardwareDetails::read(&inventory).encoded();
            (Reading::Facts(Box::new(facts)), Some(details))
        }
    };
    Ok(Look::Read { node, inventory, details, ports: usable, strange_ports })
}

async fn ports_of(ironic: &Client, node: &str) -> Result<Vec<ironic::Port>, Error> {
    let query =
        PortQuery { detail: PORT_FIELDS, node: Some(node.to_owned()), ..PortQuery::default() };
    ironic.ports(query)?.collect(MOST_PORTS).await
}

/// The node as it is now; none if it is gone.
pub async fn node(ironic: &Client, id: NodeId) -> Result<Option<ironic::Node>, Error> {
    match ironic.node(&id.to_string(), FIELDS).await {
        Ok(node) => Ok(Some(node)),
        Err(error) if error.class() == Class::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The hardware of a machine whose details had no room.
pub async fn details(ironic: &Client, id: NodeId) -> Result<crate::hardware::Encoded, Error> {
    let inventory = ironic.inventory(&id.to_string(), MOST_INVENTORY).await?;
    Ok(HardwareDetails::read(&inventory).encoded())
}

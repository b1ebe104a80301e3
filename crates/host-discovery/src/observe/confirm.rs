//! One more look at machines that Ironic showed long ago.

use std::time::Instant;

use ironic::Class;

use super::{next_page, nodes_after};
use crate::context::Context;
use crate::model::Looked;
use crate::node_id::NodeId;
use crate::nodes::Nodes;

/// Nodes that are listed at once: the first hosts wait for the first page.
const PAGE: u32 = 200;

/// Looks once more at many machines that Ironic showed long ago, by a list of all that are not older. Tells of each as soon as
/// Ironic has shown it, if it is as it was; no more are asked for when it is late.
pub async fn confirm(
    context: &Context,
    nodes: &Nodes,
    old: &[NodeId],
    until: Instant,
    mut unchanged: impl FnMut(NodeId),
) -> Looked {
    let mut looked = Looked::default();
    let Some(oldest) = old.first() else { return looked };
    let ironic = &context.ironic;
    let before = nodes.before(*oldest).map(|node| node.to_string());
    let mut list = nodes_after(ironic, before, PAGE);
    let mut is_lost = false;
    while Instant::now() < until {
        match next_page(&mut list).await {
            Ok(Some(page)) => {
                // What lies between is not asked for: there may be thousands of hosts. Once a place was lost, all is.
                let end = page.last().and_then(|node| NodeId::parse(&node.uuid));
                page.iter().filter_map(|node| nodes.unchanged(node)).for_each(&mut unchanged);
                looked.shown.push((Instant::now(), page));
                if let Some(reached) = end.filter(|it| !is_lost && nodes.has(*it)) {
                    let Some(next) = nodes.first_after(old, reached) else { break };
                    if let Some(before) = nodes.before(next).filter(|it| *it != reached) {
                        list = nodes_after(ironic, Some(before.to_string()), PAGE);
                    }
                }
            }
            Ok(None) => break,
            Err(error) if error.class() == Class::MarkerGone => {
                is_lost = true;
                list.restart();
            }
            Err(error) => {
                looked.silence = Some(error);
                break;
            }
        }
    }
    looked
}

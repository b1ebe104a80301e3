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

/// Looks once more at many machines that Ironic showed long ago, by a list from the oldest to the newest of them. Tells of each as
/// soon as Ironic has shown it, if it is as it was; no more are asked for when it is late.
pub async fn confirm(
    context: &Context,
    nodes: &Nodes,
    old: &[NodeId],
    until: Instant,
    mut unchanged: impl FnMut(NodeId),
) -> Looked {
    let mut looked = Looked::default();
    let (Some(oldest), Some(newest)) = (old.first(), old.last()) else { return looked };
    let before = nodes.before(*oldest).map(|node| node.to_string());
    let mut list = nodes_after(&context.ironic, before, PAGE);
    while Instant::now() < until {
        match next_page(&mut list).await {
            Ok(Some(page)) => {
                let is_end = page.iter().any(|it| NodeId::parse(&it.uuid) == Some(*newest));
                page.iter().filter_map(|node| nodes.unchanged(node)).for_each(&mut unchanged);
                looked.shown.push((Instant::now(), page));
                if is_end {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) if error.class() == Class::MarkerGone => list.restart(),
            Err(error) => {
                looked.silence = Some(error);
                break;
            }
        }
    }
    looked
}

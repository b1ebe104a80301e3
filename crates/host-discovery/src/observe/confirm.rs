//! One more look at machines that Ironic showed long ago.

use std::collections::{BTreeMap, HashSet};
use std::future::ready;
use std::pin::pin;
use std::time::Instant;

use futures_util::{Stream, StreamExt as _, stream};
use ironic::Class;

use super::{AT_ONCE, BEGINNINGS, List, MANY, Read, count, is_silence, node, note};
use crate::controller::Context;
use crate::node_id::NodeId;
use crate::nodes::{Look, Nodes};
use crate::refusals::Refusal;

/// Machines that are asked for one by one before they become hosts, in one pass.
const MOST_CONFIRMED: usize = 256;

/// Nodes that are listed at once: the first hosts wait for the first page.
const PAGE: u32 = 200;

/// What came of it. Nothing of it is taken notice of while hosts are made of the machines that it shows.
#[derive(Debug, Default)]
pub struct Looked {
    read: Read,
    shown: Vec<(Instant, Vec<ironic::Node>)>,
    gone: Vec<(Instant, NodeId)>,
}

impl Looked {
    /// Takes notice of what was seen.
    pub fn note(self, context: &Context, nodes: &mut Nodes) -> Read {
        for (at, page) in &self.shown {
            note(context, nodes, page, *at, &mut Vec::new());
        }
        for (at, node) in self.gone {
            nodes.read(node, Look::Gone, at);
        }
        self.read
    }

    /// Ironic shows these nodes. Tells which of them are as they were.
    fn show(&mut self, nodes: &Nodes, page: Vec<ironic::Node>, unchanged: &mut impl FnMut(NodeId)) {
        page.iter().filter_map(|node| nodes.unchanged(node)).for_each(unchanged);
        self.read.answered = true;
        self.shown.push((Instant::now(), page));
    }
}

/// Looks once more at machines that Ironic showed long ago: at many by a list of all that are not older. Tells of each as
/// soon as Ironic has shown it, if it is as it was.
///
/// What was answered before something was not counts: the rest is asked about the next time, as is all that was not asked
/// about `until` then, so that hosts come of what was shown, however slow Ironic is. What was `refused` is asked about last.
pub async fn confirm(
    context: &Context,
    nodes: &Nodes,
    mut old: Vec<NodeId>,
    refused: &BTreeMap<NodeId, Refusal>,
    until: Instant,
    mut unchanged: impl FnMut(NodeId),
) -> Looked {
    let ironic = &context.ironic;
    let mut looked = Looked::default();
    if let Some(oldest) = old.first().filter(|_| old.len() > MANY) {
        let before = nodes.before(*oldest).map(|node| node.to_string());
        let mut list = List::in_pages(ironic, before, PAGE);
        let mut beginnings = 0;
        loop {
            match list.page().await {
                Ok(Some(page)) => {
                    // What lies between is not asked for: there may be thousands of hosts. Once a place was lost, all is.
                    let end = page.last().and_then(|node| NodeId::parse(&node.uuid));
                    looked.show(nodes, page, &mut unchanged);
                    if Instant::now() >= until {
                        return looked;
                    }
                    if let Some(reached) = end.filter(|it| beginnings == 0 && nodes.has(*it)) {
                        let Some(next) = nodes.first_after(&old, reached) else { break };
                        if let Some(before) = nodes.before(next).filter(|it| *it != reached) {
                            list = List::in_pages(ironic, Some(before.to_string()), PAGE);
                        }
                    }
                }
                Ok(None) => {
                    looked.read.answered = true;
                    break;
                }
                Err(error) if error.class() == Class::MarkerGone && beginnings < BEGINNINGS => {
                    beginnings += 1;
                    list = List::in_pages(ironic, None, PAGE);
                }
                Err(error) => {
                    looked.read.silence = Some(error);
                    return looked;
                }
            }
        }
        let shown = looked.shown.iter().flat_map(|(_, page)| page);
        let shown: HashSet<NodeId> = shown.filter_map(|it| NodeId::parse(&it.uuid)).collect();
        old.retain(|node| !shown.contains(node));
    }
    old.sort_by_key(|node| refused.contains_key(node));
    let jobs = old.into_iter().take(MOST_CONFIRMED);
    let jobs: Vec<_> = jobs.map(|id| async move { (id, node(ironic, id).await) }).collect();
    let mut answers = pin!(begun(jobs, until));
    let mut unanswered = 0;
    while let Some((id, answer)) = answers.next().await {
        match answer {
            Ok(Some(node)) => looked.show(nodes, vec![node], &mut unchanged),
            Ok(None) => {
                looked.read.answered = true;
                looked.gone.push((Instant::now(), id));
            }
            // One node that Ironic fails for must not hold up those after it. What took its whole time did not, and an
            // Ironic that answers nothing is not asked for all of them.
            Err(error) => {
                let read = &mut looked.read;
                unanswered += 1;
                read.unconfirmed.push((id, error.to_string()));
                let ends =
                    error.class() == Class::Timeout || (unanswered >= AT_ONCE && !read.answered);
                if is_silence(&error) {
                    read.silence = Some(error);
                } else {
                    count(context, &error);
                    tracing::debug!(node.id = %id, error = %error, "Could not look at a machine");
                }
                if ends {
                    return looked;
                }
            }
        }
    }
    looked
}

/// What comes of these jobs, some at a time, in the order in which they end. None begins when time is over, and what has begun
/// is waited for.
fn begun<J: Future>(jobs: Vec<J>, until: Instant) -> impl Stream<Item = J::Output> {
    let in_time =
        move |job: J| async move { if Instant::now() < until { Some(job.await) } else { None } };
    let jobs = jobs.into_iter().map(in_time);
    stream::iter(jobs).buffer_unordered(AT_ONCE).filter_map(ready)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn no_machine_is_asked_about_any_more_when_time_is_over_and_answers_under_way_count() {
        let asked = Cell::new(0);
        let slow = || async {
            asked.set(asked.get() + 1);
            tokio::time::sleep(Duration::from_millis(600)).await;
        };
        let all = || (0..3 * AT_ONCE).map(|_| slow()).collect::<Vec<_>>();
        let soon = Instant::now() + Duration::from_millis(300);
        let answers = begun(all(), soon).count().await;
        assert_eq!((asked.get(), answers), (AT_ONCE, AT_ONCE));
        assert_eq!(begun(all(), Instant::now()).count().await, 0);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(begun(all(), later).count().await, 3 * AT_ONCE);
    }
}

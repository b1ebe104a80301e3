//! One list of all nodes for all hosts. It decides nothing: it only says which hosts are to be looked at.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::convert::Infallible;
use std::hash::{Hash, Hasher as _};
use std::time::Duration;

use ironic::{Detail, Error, MAX_PAGE, NodeQuery, Power};
use tokio::time::Instant;

use crate::controller::Context;
use crate::observe::{Node, Target};

const CONDITION: &str = "ironic";
/// How soon an Ironic that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often all nodes are looked at while many hosts wait for a change.
const CROWDED: Duration = Duration::from_secs(2);
/// So many times as long as a list takes Ironic it is left alone before the next one.
const LEISURE: u32 = 4;
/// How long a list waits for hard requests before it goes on with its next page.
const COURTESY: Duration = Duration::from_secs(5);
/// Nodes of a page while somebody may be waiting for Ironic, which answers little else while it tells of one: a quarter of
/// a second for a thousand.
const SMALL_PAGE: u32 = 250;
/// How often it is looked whether many hosts wait.
const GLANCE: Duration = Duration::from_millis(500);
const FIELDS: Detail =
    Detail::Fields(&["uuid", "name", "power_state", "target_power_state", "last_error"]);

/// A UUID or a name of a node in eight bytes: ten thousand texts would be larger than all that is remembered of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeKey(u64);

impl NodeKey {
    /// None where there is no name.
    pub fn of(node: &str) -> Option<Self> {
        (!node.is_empty()).then(|| Self(number(node)))
    }
}

fn number(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// How each node was last listed, by its UUID and by its name.
pub type Nodes = HashMap<NodeKey, Digest>;

/// What a change of a node is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    power: Power,
    target: Option<Target>,
    error: u64,
}

impl Digest {
    /// Of a node as it was read.
    pub fn new(power: Power, target: Option<Target>, error: Option<&str>) -> Self {
        Self { power, target, error: number(error) }
    }

    /// Whether the power is like this, and is not being changed.
    pub fn rests_at(&self, power: Power) -> bool {
        self.power == power && self.target.is_none()
    }
}

/// Polls for as long as the process lives. A process that may not act only looks whether it could.
pub async fn poll(context: &Context) -> Infallible {
    let readiness = &context.kit.readiness;
    readiness.not_ready(CONDITION, "Ironic was not asked yet");
    let mut checked = false;
    let mut last = Listed::default();
    loop {
        let acts = context.kit.may_act();
        let page = page(context.watching(), last.nodes);
        last.took = Duration::ZERO;
        let mut result = if checked { Ok(()) } else { check(context).await };
        if result.is_ok() && acts {
            result = look(context, page, &mut last).await;
        } else if checked {
            result = check(context).await;
        }
        context.ironic.breaker.note(None, result.as_ref().err());
        context.metrics.ironic_reachable.set(i64::from(result.is_ok()));
        match &result {
            Ok(()) => readiness.ready(CONDITION),
            Err(error) => {
                context.metrics.ironic_errors.with_label_values(&[error.class().as_str()]).inc();
                readiness.not_ready(CONDITION, &error.to_string());
            }
        }
        checked = result.is_ok();
        let interval = if checked { context.policy.poll_interval } else { AGAIN };
        wait(context, interval, last.took).await;
    }
}

/// What a list was like.
#[derive(Default)]
struct Listed {
    /// How long Ironic worked for it.
    took: Duration,
    nodes: usize,
}

/// How many nodes to ask for at once. At rest one page is to be all (one that is just full is followed by an empty one); a list of many pages is under way for so
/// long that hard requests will meet it.
fn page(watching: usize, nodes: usize) -> u32 {
    let one_is_enough = usize::try_from(MAX_PAGE).is_ok_and(|full| nodes <= full);
    if watching == 0 && one_is_enough { MAX_PAGE } else { SMALL_PAGE }
}

/// Waits for the next list, which comes sooner while many hosts wait for Ironic, but takes no time from hard requests.
async fn wait(context: &Context, interval: Duration, took: Duration) {
    let start = Instant::now();
    let soon = CROWDED.max(took * LEISURE).min(interval);
    loop {
        tokio::time::sleep(GLANCE).await;
        let hurry = context.is_crowded() && !context.ironic.urgent.are_many();
        let due = if hurry { soon } else { interval };
        if start.elapsed() >= due {
            return;
        }
    }
}

async fn check(context: &Context) -> Result<(), Error> {
    context.ironic.client.check().await.map(drop)
}

async fn look(context: &Context, page: u32, listed: &mut Listed) -> Result<(), Error> {
    let query = NodeQuery { detail: FIELDS, page, ..NodeQuery::default() };
    let mut pages = context.ironic.client.nodes(query);
    let mut nodes = Nodes::with_capacity(listed.nodes * 2);
    listed.nodes = 0;
    // Once all is read, those whom the list concerns wait for nobody.
    while !pages.is_done() {
        context.ironic.urgent.make_way(COURTESY).await;
        let began = Instant::now();
        let page = pages.next().await;
        listed.took += began.elapsed();
        let page = page?.unwrap_or_default();
        listed.nodes += page.len();
        for node in page {
            let Node { power, target, last_error, .. } = Node::of(&node);
            let digest = Digest::new(power, target, last_error.as_deref());
            let keys = [Some(node.uuid.as_str()), node.name.as_deref()];
            nodes.extend(keys.into_iter().flatten().filter_map(NodeKey::of).map(|it| (it, digest)));
        }
    }
    for host in context.changed(&nodes) {
        context.look_at(&host);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_tells_of_all_at_rest_and_small_ones_let_hard_requests_pass() {
        assert_eq!(page(0, 999), 1000);
        assert_eq!(page(0, 1000), 1000, "what follows a page that is just full is empty");
        assert_eq!(page(0, 1001), SMALL_PAGE);
        assert_eq!(page(1, 10), SMALL_PAGE);
    }
}

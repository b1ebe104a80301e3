//! One list of all nodes for all hosts. It decides nothing: it says which hosts are to be looked at, and what it has shown of
//! their nodes may stand for that look.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use ironic::{Error, MAX_PAGE, NodeQuery, Power};

use crate::controller::Context;
use crate::index::{Name, NodeKey, number};
use crate::observe::FIELDS;
use crate::readings::{Reading, is_plain};
use crate::seen::{Node, Registration, Target};

const CONDITION: &str = "ironic";
/// How soon an Ironic that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often all nodes are looked at while many hosts wait for a change.
const CROWDED: Duration = Duration::from_secs(2);
/// After a list that took Ironic t, it is left alone for this many times t.
const LEISURE: u32 = 4;
/// The same while hard requests come in: those that were made are told of soon enough that nobody asks about them alone.
const STORMY: Duration = Duration::from_secs(12);
/// How rarely that may be.
const STORMY_AT_LEAST: Duration = Duration::from_secs(18);
/// After a list that took Ironic t, it is left alone for this many times t while hard requests come in.
const RESPECT: u32 = 20;
/// How long a list that nobody waits for waits for hard requests before it goes on with its next page.
const COURTESY: Duration = Duration::from_secs(5);
/// How long it takes at most to have all looked at whom a list concerns while hard requests come in: those need passes, too.
const SETTLING: Duration = Duration::from_secs(3);
/// Nodes of a page while somebody may be waiting for Ironic, which answers little else while it tells of one: a quarter of
/// a second for a thousand.
const SMALL_PAGE: u32 = 250;
/// How often it is looked whether many hosts wait.
const GLANCE: Duration = Duration::from_millis(500);

/// How each node was listed, by its UUID and by its name.
pub struct Nodes {
    began: Instant,
    nodes: HashMap<NodeKey, Shown>,
}

/// A node as a list showed it.
#[derive(Clone, Copy)]
struct Shown {
    digest: Digest,
    plain: bool,
    /// When its page was asked for, in milliseconds since the list began.
    after: u32,
    also: Option<NodeKey>,
}

impl Nodes {
    /// A list that begins now, with room for so many nodes.
    pub(crate) fn new(began: Instant, nodes: usize) -> Self {
        Self { began, nodes: HashMap::with_capacity(nodes * 2) }
    }

    /// Takes in a node that stands on a page which was asked for then.
    pub(crate) fn add(&mut self, node: &ironic::Node, asked: Instant) {
        let seen = Node::of(node);
        let digest = Digest::of(&seen);
        let plain = is_plain(&seen);
        let after = asked.duration_since(self.began).as_millis();
        let after = u32::try_from(after).unwrap_or(0);
        let keys = [Some(node.uuid.as_str()), node.name.as_deref()].map(|it| NodeKey::of(it?));
        for (key, also) in [(keys[0], keys[1]), (keys[1], keys[0])] {
            if let Some(key) = key {
                let shown = Shown { digest, plain, after, also };
                self.nodes.insert(key, shown);
            }
        }
    }

    /// What a change of a node is recognised by, if it was there.
    pub(crate) fn digest(&self, node: NodeKey) -> Option<Digest> {
        self.nodes.get(&node).map(|it| it.digest)
    }

    /// The node as a reading. One that was not there is to be looked at alone.
    pub(crate) fn reading(&self, node: NodeKey) -> Reading {
        let Some(it) = self.nodes.get(&node) else {
            let (began, power) = (self.began, Power::Unknown);
            let (plain, registration) = (false, Registration::Done);
            return Reading { began, power, target: None, plain, registration, also: None };
        };
        let Digest { power, target, registration, .. } = it.digest;
        let began = self.began + Duration::from_millis(it.after.into());
        let Shown { plain, also, .. } = *it;
        Reading { began, power, target, plain, registration, also }
    }
}

/// What a change of a node is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    power: Power,
    target: Option<Target>,
    stays_on: bool,
    maintenance: bool,
    registration: Registration,
    error: u64,
}

impl Digest {
    /// Of a node as it was read.
    pub fn of(node: &Node) -> Self {
        Self {
            power: node.power,
            target: node.target,
            stays_on: node.disable_power_off,
            maintenance: node.maintenance,
            registration: node.registration,
            error: number(node.last_error.as_deref()),
        }
    }

    /// Whether the power is like this, and is not being changed.
    pub fn rests_at(&self, power: Power) -> bool {
        self.power == power && self.target.is_none()
    }

    /// Whether Ironic refuses to switch the machine off.
    pub fn stays_on(&self) -> bool {
        self.stays_on
    }

    /// Whether Ironic leaves the machine alone.
    pub fn is_in_maintenance(&self) -> bool {
        self.maintenance
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
        let mut changed = Vec::new();
        let mut result = if checked { Ok(()) } else { check(context).await };
        if result.is_ok() && acts {
            result = look(context, page, &mut last).await.map(|hosts| changed = hosts);
        } else if checked {
            result = check(context).await;
        }
        context.ironic.breaker.note(None, result.as_ref().err());
        context.metrics.ironic_answers(result.is_ok());
        match &result {
            Ok(()) => readiness.ready(CONDITION),
            Err(error) => {
                context.metrics.ironic_failed(error.class());
                readiness.not_ready(CONDITION, &error.to_string());
            }
        }
        checked = result.is_ok();
        let interval = if checked { context.policy.poll_interval } else { AGAIN };
        let next = wait(context, interval, last.took, (acts, checked));
        tokio::join!(next, wake(context, &changed));
    }
}

/// What a list was like.
#[derive(Default)]
struct Listed {
    /// How long Ironic worked for it.
    took: Duration,
    nodes: usize,
}

/// How many nodes to ask for at once. At rest one page is to be all (one that is just full is followed by an empty one); a
/// list of many pages is under way for so long that hard requests will meet it.
fn page(watching: usize, nodes: usize) -> u32 {
    let one_is_enough = usize::try_from(MAX_PAGE).is_ok_and(|full| nodes <= full);
    if watching == 0 && one_is_enough { MAX_PAGE } else { SMALL_PAGE }
}

/// How long after a list the next one begins.
fn due(interval: Duration, took: Duration, crowded: bool, stormy: bool) -> Duration {
    let soon = match (crowded, stormy) {
        (false, _) => interval,
        (true, false) => CROWDED.max(took * LEISURE),
        (true, true) => STORMY.max((took * RESPECT).min(STORMY_AT_LEAST)),
    };
    soon.min(interval)
}

/// Waits for the next list. It comes sooner while many hosts wait for Ironic, but takes little time from hard requests; and
/// at once where those wait for it, or where this process may act for the first time.
async fn wait(
    context: &Context,
    interval: Duration,
    took: Duration,
    (acted, answered): (bool, bool),
) {
    let start = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(GLANCE) => {}
            () = context.list_wanted.notified() => {}
        }
        let acts = context.kit.may_act();
        if acts && (!acted || (answered && context.is_list_awaited())) {
            return;
        }
        let (crowded, stormy) = (context.is_told_by_lists(), context.ironic.urgent.are_many());
        if start.elapsed() >= due(interval, took, crowded, stormy) {
            return;
        }
    }
}

async fn check(context: &Context) -> Result<(), Error> {
    context.ironic.client.check().await.map(drop)
}

/// Lists all nodes. Gives the hosts that are to be looked at.
async fn look(context: &Context, page: u32, listed: &mut Listed) -> Result<Vec<Name>, Error> {
    let query = NodeQuery { detail: FIELDS, page, ..NodeQuery::default() };
    let mut pages = context.ironic.client.nodes(query);
    let mut nodes = Nodes::new(Instant::now(), listed.nodes);
    listed.nodes = 0;
    // Once all is read, those whom the list concerns wait for nobody.
    while !pages.is_done() {
        // Who waits for the list would otherwise ask alone, which takes more of Ironic's time.
        if !context.is_told_by_lists() && !context.is_list_awaited() {
            context.ironic.urgent.make_way(COURTESY).await;
        }
        let began = Instant::now();
        let page = pages.next().await;
        listed.took += began.elapsed();
        let page = page?.unwrap_or_default();
        listed.nodes += page.len();
        for node in &page {
            nodes.add(node, began);
        }
    }
    Ok(context.changed(&nodes))
}

/// Has them looked at: all at once, or a few at a time while hard requests come in. Whoever is woken goes before those that
/// wait in the queue already, and hundreds that write what became of them would take all passes for a second or more. Those for
/// which another look is no use by then are left out.
async fn wake(context: &Context, hosts: &[Name]) {
    let listed = Instant::now();
    for host in hosts {
        let apart = apart(hosts.len(), context.ironic.urgent.are_many());
        if !apart.is_zero() {
            tokio::time::sleep(apart).await;
        }
        if !context.needs_no_look(host, listed) {
            context.look_at(host);
        }
    }
}

/// From one host that is woken to the next: few are not made to wait as long as many.
fn apart(hosts: usize, stormy: bool) -> Duration {
    let most = u32::try_from(hosts.max(100)).unwrap_or(u32::MAX);
    if stormy { SETTLING / most } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_soon_while_many_wait_and_leaves_ironic_to_hard_requests() {
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        assert_eq!(due(minute, second, false, false), minute);
        assert_eq!(due(minute, second, false, true), minute, "nobody waits for it");
        assert_eq!(due(minute, second / 10, true, false), CROWDED);
        assert_eq!(due(minute, second, true, false), second * LEISURE);
        assert_eq!(due(minute, second / 10, true, true), STORMY);
        assert_eq!(due(minute, second, true, true), STORMY_AT_LEAST, "before they ask alone");
        assert_eq!(due(second, second, true, true), second);
    }

    #[test]
    fn a_list_tells_of_a_node_by_either_name_when_its_page_was_asked_for() {
        let began = Instant::now();
        let mut nodes = Nodes::new(began, 2);
        let node = |fields: serde_json::Value| serde_json::from_value(fields).unwrap();
        let on = serde_json::json!({ "uuid": "u", "name": "rack-7", "power_state": "power on" });
        nodes.add(&node(on), began);
        let asked = began + Duration::from_millis(1500);
        let failed: ironic::Node = node(serde_json::json!({
            "uuid": "v", "power_state": "power off", "target_power_state": "power on", "last_error": "it broke",
        }));
        nodes.add(&failed, asked);
        let key = |name| NodeKey::of(name).unwrap();
        let reading = Reading {
            began,
            power: Power::On,
            target: None,
            plain: true,
            registration: Registration::Done,
            also: NodeKey::of("rack-7"),
        };
        assert_eq!(nodes.reading(key("u")), reading);
        assert_eq!(nodes.reading(key("rack-7")), Reading { also: NodeKey::of("u"), ..reading });
        let (power, target) = (Power::Off, Some(Target::On));
        let (plain, registration) = (false, Registration::Done);
        let shown = Reading { began: asked, power, target, plain, registration, also: None };
        assert_eq!(nodes.reading(key("v")), shown);
        let gone = nodes.reading(key("gone"));
        assert_eq!(
            (gone.power, gone.plain, nodes.digest(key("gone"))),
            (Power::Unknown, false, None)
        );
        assert_eq!(nodes.digest(key("v")), Some(Digest::of(&Node::of(&failed))));
        let waits = serde_json::json!({ "uuid": "w", "power_state": "power on", "provision_state": "enroll" });
        nodes.add(&node(waits), began);
        let waits = nodes.reading(key("w"));
        assert!(waits.registration == Registration::Enrolled && waits.plain);
    }

    #[test]
    fn those_whom_a_list_concerns_are_woken_within_seconds_and_one_by_one_while_hard_requests_come_in()
     {
        for hosts in [1, 100, 1000, 10_000] {
            assert_eq!(apart(hosts, false), Duration::ZERO);
            let apart = apart(hosts, true);
            assert!(!apart.is_zero() && apart <= Duration::from_millis(30), "{hosts}");
            assert!(apart * u32::try_from(hosts).unwrap() <= SETTLING, "{hosts}");
        }
    }

    #[test]
    fn one_page_tells_of_all_at_rest_and_small_ones_let_hard_requests_pass() {
        assert_eq!(page(0, 999), 1000);
        assert_eq!(page(0, 1000), 1000, "what follows a page that is just full is empty");
        assert_eq!(page(0, 1001), SMALL_PAGE);
        assert_eq!(page(1, 10), SMALL_PAGE);
    }
}

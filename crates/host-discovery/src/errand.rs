//! When what is to be written to Ironic is written: the mark of a node that had a host, and the driver of one whose host got
//! a BMC.
//!
//! Nobody waits for them, so they are done beside the passes, and again where Ironic was busy. What a process leaves
//! undone, the next one finds in its first list of all nodes.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use api_types::metal3::BareMetalHost;
use api_types::names::{ferrite, metal3};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use ironic::{Class, Error};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::act;
use crate::controller::Context;
use crate::driver::drivers_of;
use crate::node_id::NodeId;
use crate::nodes::Unmarked;
use crate::observe;
use crate::reason::Told;

/// How soon something that did not work is tried again.
const AGAIN: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);
/// A mark is tried more often: until it is written, a host that is deleted could come back after the next start.
const MARKED: Duration = Duration::from_secs(30);
/// After so many tries a node that is still not at rest is no longer on its way somewhere, but in use.
const SOON: u32 = 4;
/// Writes that are under way at once: a host is safe from being made again only when its node bears the mark.
const AT_ONCE: usize = 4;
/// So long they wait for hosts that are being made, since Ironic and the API server may share a machine: a person who
/// deletes a host in that time is remembered by this process. After it, one at a time.
const HELD: Duration = Duration::from_secs(30);
/// How soon it is looked whether hosts are still being made.
const GLANCE: Duration = Duration::from_millis(200);
/// States in which nothing runs on a node, so that another driver disturbs nobody.
const AT_REST: [&str; 5] = ["enroll", "manageable", "available", "inspect failed", "clean failed"];

/// What the driver that a node keeps means for its host.
const SIMULATED: &str =
    "this driver may only simulate power, so the host's power state cannot be trusted";

/// The node, and whether it is about its driver.
type Key = (NodeId, bool);

/// Something to be written to Ironic.
#[derive(Clone, Debug)]
pub enum Errand {
    /// The node had a host.
    Mark(Unmarked),
    /// The node's host got a BMC.
    Adopt {
        /// The node.
        node: NodeId,
        /// The BMC's address.
        address: String,
        /// The host, for events.
        host: Box<ObjectReference>,
    },
}

impl Errand {
    /// The driver of this host's node has to follow, if a discovery made the host. Its node is the one that the operator
    /// works with: where Ironic lost the one that the host was made for, it is another. A host that somebody paused is left
    /// alone until it is not; the pause of `bmo-reboot` is about power alone.
    pub fn adopt(host: &BareMetalHost) -> Option<Self> {
        let status = host.status.as_ref();
        let node = status.and_then(|it| NodeId::parse(&it.provisioning.id));
        let node = node.or_else(|| host.annotation(ferrite::NODE_ID).and_then(NodeId::parse))?;
        host.label(ferrite::DISCOVERED_BY)?;
        let address = host.spec.bmc.as_ref().map(|bmc| bmc.address.clone())?;
        let leaves = host.metadata.deletion_timestamp.is_some();
        let pause = host.annotation(metal3::PAUSED);
        let paused = pause.is_some_and(|by| by != ferrite::PAUSED_BY_BMO_REBOOT);
        let adopt = Self::Adopt { node, address, host: Box::new(host.object_ref(&())) };
        Some(adopt).filter(|_| !leaves && !paused)
    }

    /// Whether a host, as it is now, still asks for it: the node of one that somebody paused meanwhile keeps its driver.
    fn is_asked_by(&self, host: Option<&BareMetalHost>) -> bool {
        host.and_then(Self::adopt).is_some_and(|it| it.key() == self.key() && it.is_for(self))
    }

    /// Whether it is the same as another, which may be older.
    fn is_for(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Adopt { address, .. }, Self::Adopt { address: other, .. }) => address == other,
            (Self::Mark(one), Self::Mark(other)) => one == other,
            _ => false,
        }
    }

    fn key(&self) -> Key {
        match self {
            Self::Mark(unmarked) => (unmarked.node, false),
            Self::Adopt { node, .. } => (*node, true),
        }
    }
}

/// A host, for events.
fn reference(namespace: &str, name: &str) -> ObjectReference {
    ObjectRef::<BareMetalHost>::new(name).within(namespace).into()
}

/// What the owner of the host is told where Ironic does not do what it was asked, and will not unless somebody changes
/// something: the object, why, and a sentence.
fn complaint(
    errand: &Errand,
    class: Class,
    error: &str,
) -> Option<(ObjectReference, Told, String)> {
    if class.is_transient() || class == Class::NotFound {
        return None;
    }
    Some(match errand {
        Errand::Mark(Unmarked { node, host }) => {
            let text = format!(
                "It cannot be written down in Ironic that the node {node} had this host, so the host comes back if you delete it: {error}"
            );
            (reference(host.namespace(), host.name()), Told::MarkRefused, text)
        }
        Errand::Adopt { node, host, .. } => {
            let text = format!(
                "The node {node} keeps its driver; {SIMULATED}. Ironic refuses the driver of this host's BMC: {error}"
            );
            ((**host).clone(), Told::DriverRefused, text)
        }
    })
}

/// An errand that is not done yet.
struct Waiting {
    due: Instant,
    /// How often it was tried.
    tries: u32,
    /// Whether it was told why it is not done.
    told: bool,
    errand: Errand,
}

impl Waiting {
    /// An errand that is sent, perhaps once more: one that was tried stays so. A mark keeps its turn, too, since every list of
    /// nodes sends it that does not show it yet; a host asks for its driver when something changed.
    fn sent(errand: Errand, before: Option<&Self>, now: Instant) -> Self {
        let same = before.filter(|it| it.errand.is_for(&errand));
        let (tries, told) = same.map_or((0, false), |it| (it.tries, it.told));
        let turn = same.filter(|_| matches!(errand, Errand::Mark(_))).map(|it| it.due);
        Self { due: turn.unwrap_or(now), tries, told, errand }
    }
}

/// What came of an errand.
enum Outcome {
    Done,
    /// Nothing can be done now.
    Later,
    /// It needs a person, who was told.
    Told,
    /// It is not to be done any more. When the host asks for it again, the watch tells of that.
    Dropped,
}

/// Runs errands for as long as the process lives.
pub async fn run(context: &Context, mut errands: UnboundedReceiver<Errand>) -> Infallible {
    let mut waiting: HashMap<Key, Waiting> = HashMap::new();
    let mut adopted: HashMap<NodeId, String> = HashMap::new();
    let mut busy: HashSet<Key> = HashSet::new();
    let mut running = FuturesUnordered::new();
    let mut making = None;
    loop {
        let now = Instant::now();
        making = context.is_making().then_some(making.unwrap_or(now));
        let most = at_once(making, now);
        // A process that may not act looks some time later whether it may.
        let mut next = (!context.kit.may_act()).then(|| now + AGAIN);
        if next.is_none() && running.len() >= most && most < AT_ONCE {
            // More may be done at a time as soon as the hosts are made.
            next = Some(now + GLANCE);
        } else if next.is_none() && running.len() < most {
            let free = waiting.iter().filter(|(key, _)| !busy.contains(key));
            let first = free.min_by_key(|(_, it)| it.due).map(|(key, it)| (*key, it.due));
            next = first.map(|(_, due)| due);
            if let Some((key, _)) = first.filter(|(_, due)| *due <= now)
                && let Some(it) = waiting.remove(&key)
            {
                busy.insert(key);
                running.push(async move { (attempt(context, &it).await, it) });
                continue;
            }
        }
        let pause = async {
            match next {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            errand = errands.recv() => match errand {
                Some(errand) => {
                    let done = matches!(&errand, Errand::Adopt { node, address, .. }
                        if adopted.get(node) == Some(address));
                    if !done {
                        let (now, key) = (Instant::now(), errand.key());
                        let sent = Waiting::sent(errand, waiting.get(&key), now);
                        waiting.insert(key, sent);
                    }
                }
                None => std::future::pending().await,
            },
            Some((outcome, it)) = running.next(), if !running.is_empty() => {
                let key = it.errand.key();
                busy.remove(&key);
                let tries = it.tries + 1;
                if let Err(error) = &outcome {
                    observe::count(context, error);
                }
                let told = match outcome {
                    Ok(Outcome::Done) => {
                        match it.errand {
                            Errand::Mark(unmarked) => context.marked(unmarked.node),
                            Errand::Adopt { node, address, .. } => {
                                adopted.insert(node, address);
                            }
                        }
                        continue;
                    }
                    Ok(Outcome::Dropped) => continue,
                    Ok(Outcome::Later) => it.told,
                    Ok(Outcome::Told) => true,
                    Err(error) if error.class() == Class::NotFound => continue,
                    Err(error) => {
                        let text = error.to_string();
                        tracing::debug!(node.id = %key.0, error = text, "Could not write to a node yet");
                        let complaint = complaint(&it.errand, error.class(), &text);
                        if let Some((mut host, reason, about)) = complaint.filter(|_| !it.told) {
                            if let Errand::Mark(unmarked) = &it.errand {
                                // Without it the event is not shown with its host.
                                host.uid = context.index().uid(&unmarked.host).map(str::to_owned);
                            }
                            tracing::warn!(node.id = %key.0, error = text, "Ironic refuses a write to a node");
                            context.tell(host, true, reason.as_str(), "Write", about);
                            true
                        } else {
                            it.told
                        }
                    }
                };
                let due = Instant::now() + wait_after(&it.errand, it.tries);
                // What was sent meanwhile is newer.
                waiting.entry(key).or_insert(Waiting { due, tries, told, errand: it.errand });
            }
            () = pause => {}
        }
    }
}

/// How many may be under way. `making`: since when hosts are being made.
fn at_once(making: Option<Instant>, now: Instant) -> usize {
    match making {
        Some(since) if now.duration_since(since) < HELD => 0,
        Some(_) => 1,
        None => AT_ONCE,
    }
}

/// How long to wait after `tries` tries: twice as long each time.
fn wait_after(errand: &Errand, tries: u32) -> Duration {
    let longest = match errand {
        Errand::Mark(_) => MARKED,
        Errand::Adopt { .. } => LONGEST,
    };
    (AGAIN * 2_u32.pow(tries.min(10))).min(longest)
}

/// Does one errand.
async fn attempt(context: &Context, it: &Waiting) -> Result<Outcome, Error> {
    match &it.errand {
        Errand::Mark(unmarked) => act::mark(context, unmarked).await.map(|()| Outcome::Done),
        Errand::Adopt { node, address, host } => adopt(context, *node, address, host, it).await,
    }
}

async fn adopt(
    context: &Context,
    id: NodeId,
    address: &str,
    host: &ObjectReference,
    waiting: &Waiting,
) -> Result<Outcome, Error> {
    let node = observe::node_at_work(context, id).await?;
    let wanted = drivers_of(address);
    let driver = node.driver.unwrap_or_default();
    if wanted.contains(&driver.as_str()) {
        return Ok(Outcome::Done);
    }
    let events = &context.kit.events;
    let state = node.provision_state.unwrap_or_default();
    if !AT_REST.contains(&state.as_str()) {
        // On its way from one state to the next; in use it stays as it is until it is free.
        if waiting.told || waiting.tries < SOON {
            return Ok(Outcome::Later);
        }
        let text =
            format!("The node {id} keeps the driver {driver} while it is {state}; {SIMULATED}");
        let reason = Told::DriverAdoptionWaits.as_str();
        events.warning(host, reason, "Adopt", &text).await;
        return Ok(Outcome::Told);
    }
    let offered = observe::drivers(context).await?;
    let chosen = wanted.iter().find(|name| offered.iter().any(|it| it == **name));
    let Some(chosen) = chosen else {
        // Somebody may enable it.
        if waiting.told {
            return Ok(Outcome::Later);
        }
        let text = format!(
            "The node {id} keeps the driver {driver}; {SIMULATED}. No driver for this BMC address is enabled in Ironic ({})",
            if wanted.is_empty() {
                "unknown kind of address".to_owned()
            } else {
                wanted.join(" or ")
            },
        );
        events.warning(host, Told::DriverNotEnabled.as_str(), "Adopt", &text).await;
        return Ok(Outcome::Told);
    };
    // The watch told of it some time ago, and what was paused since is left alone.
    match observe::host(context, host).await {
        Ok(now) if waiting.errand.is_asked_by(now.as_ref()) => {}
        Ok(_) => return Ok(Outcome::Dropped),
        Err(error) => {
            tracing::debug!(node.id = %id, error = %error, "Could not look at a host once more");
            return Ok(Outcome::Later);
        }
    }
    act::set_driver(context, id, chosen).await?;
    context.metrics.adopted();
    tracing::info!(
        node.id = %id,
        object.namespace = host.namespace,
        object.name = host.name,
        driver = chosen,
        "Gave a node the driver of its host's BMC"
    );
    let text = format!("The node {id} has the driver {chosen} now, instead of {driver}");
    events.normal(host, Told::DriverAdopted.as_str(), "Adopt", &text).await;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use api_types::metal3::{BareMetalHostSpec, BareMetalHostStatus, Bmc, Provisioning};

    use super::*;
    use crate::index::HostKey;

    fn errands() -> [Errand; 2] {
        let (node, host) = (NodeId::from(1), HostKey::new("metal", "n1"));
        let address = "redfish://192.0.2.1/x".to_owned();
        let of = Box::new(reference("metal", "n1"));
        [Errand::Mark(Unmarked { node, host }), Errand::Adopt { node, address, host: of }]
    }

    #[test]
    fn what_ironic_refuses_is_told_of_the_host_and_what_it_may_do_later_is_not() {
        for (errand, word) in errands().iter().zip([Told::MarkRefused, Told::DriverRefused]) {
            for class in Class::ALL {
                let told = complaint(errand, class, "not now");
                let quiet = class.is_transient() || class == Class::NotFound;
                assert_eq!(told.is_none(), quiet, "{class:?}");
                let Some((host, reason, text)) = told else { continue };
                assert_eq!((host.name.as_deref(), reason), (Some("n1"), word));
                assert!(text.ends_with(": not now"), "{text}");
            }
        }
    }

    #[test]
    fn the_driver_follows_on_the_node_that_the_operator_works_with() {
        let node_of = |id: &str| {
            let mut host = BareMetalHost::new("metal", "n1", BareMetalHostSpec::default());
            let (label, annotation) = (ferrite::DISCOVERED_BY, ferrite::NODE_ID);
            host.metadata.labels = Some([(label.to_owned(), "racks".to_owned())].into());
            let made_for = NodeId::from(1).to_string();
            host.metadata.annotations = Some([(annotation.to_owned(), made_for)].into());
            host.spec.bmc = Some(Bmc { address: "192.0.2.1".to_owned(), ..Bmc::default() });
            let provisioning = Provisioning { id: id.to_owned(), ..Provisioning::default() };
            host.status =
                Some(BareMetalHostStatus { provisioning, ..BareMetalHostStatus::default() });
            Errand::adopt(&host).map(|errand| errand.key())
        };
        assert_eq!(node_of(""), Some((NodeId::from(1), true)));
        let other = NodeId::from(2);
        assert_eq!(node_of(&other.to_string()), Some((other, true)));
    }

    /// A host of node 1 that a discovery made, with its BMC.
    fn discovered(address: &str, pause: Option<&str>) -> BareMetalHost {
        let mut host = BareMetalHost::new("metal", "n1", BareMetalHostSpec::default());
        let label = (ferrite::DISCOVERED_BY.to_owned(), "racks".to_owned());
        host.metadata.labels = Some([label].into());
        let node = (ferrite::NODE_ID.to_owned(), NodeId::from(1).to_string());
        let pause = pause.map(|by| (metal3::PAUSED.to_owned(), by.to_owned()));
        host.metadata.annotations = Some(std::iter::once(node).chain(pause).collect());
        host.spec.bmc = Some(Bmc { address: address.to_owned(), ..Bmc::default() });
        host
    }

    #[test]
    fn the_node_of_a_host_that_somebody_paused_keeps_its_driver_until_it_is_not() {
        let adopts = |pause| Errand::adopt(&discovered("192.0.2.1", pause)).is_some();
        let pauses = [None, Some(""), Some("metal3.io/capm3"), Some(ferrite::PAUSED_BY_BMO_REBOOT)];
        assert_eq!(pauses.map(adopts), [true, false, false, true]);
    }

    #[test]
    fn a_driver_that_waited_is_given_only_while_the_host_as_it_is_now_asks_for_it() {
        let errand = Errand::adopt(&discovered("192.0.2.1", None)).unwrap();
        let asks = |address, pause| errand.is_asked_by(Some(&discovered(address, pause)));
        assert!(asks("192.0.2.1", None));
        // Paused, or given another BMC, since the watch told of it.
        assert!(!asks("192.0.2.1", Some("")));
        assert!(!asks("192.0.2.2", None));
        let mut other = discovered("192.0.2.1", None);
        let id = NodeId::from(2).to_string();
        let provisioning = Provisioning { id, ..Provisioning::default() };
        other.status = Some(BareMetalHostStatus { provisioning, ..BareMetalHostStatus::default() });
        assert!(!errand.is_asked_by(Some(&other)) && !errand.is_asked_by(None));
    }

    #[test]
    fn the_same_errand_sent_once_more_is_still_the_one_that_was_told() {
        let (one, other) = (errands(), errands());
        assert!(one.iter().zip(&other).all(|(it, same)| it.is_for(same)));
        assert!(!one[0].is_for(&one[1]));
    }

    #[test]
    fn a_mark_that_every_list_sends_once_more_keeps_its_turn() {
        let now = Instant::now();
        let later = now + Duration::from_secs(80);
        let again = |errand: Errand| {
            let before = Waiting { due: later, tries: 4, told: true, errand: errand.clone() };
            let sent = Waiting::sent(errand, Some(&before), now);
            (sent.due, sent.tries, sent.told)
        };
        let [mark, adopt] = errands();
        assert_eq!(again(mark.clone()), (later, 4, true));
        assert_eq!(again(adopt), (now, 4, true));
        let new = Waiting::sent(mark, None, now);
        assert_eq!((new.due, new.tries, new.told), (now, 0, false));
    }

    #[test]
    fn nodes_wait_for_hosts_that_are_being_made_but_not_for_ever() {
        let since = Instant::now();
        let after = |seconds| at_once(Some(since), since + Duration::from_secs(seconds));
        assert_eq!([after(0), after(29), after(30), after(9999)], [0, 0, 1, 1]);
        assert_eq!(at_once(None, since), AT_ONCE);
    }

    #[test]
    fn what_cannot_be_done_is_tried_less_and_less_often_and_a_mark_each_half_minute() {
        let waits =
            errands().map(|it| [0, 1, 2, 5, 6, 99].map(|tries| wait_after(&it, tries).as_secs()));
        assert_eq!(waits, [[5, 10, 20, 30, 30, 30], [5, 10, 20, 160, 300, 300]]);
    }
}

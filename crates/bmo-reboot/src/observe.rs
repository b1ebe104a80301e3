//! All reads: a host and its node as they are now, or as a list has shown the node since.

use std::time::{Duration, Instant};

use api_types::metal3::CachedHost;
use controller_kit::api_error::unless_gone;
use controller_kit::engine::links::ThingName;
use controller_kit::engine::{Class as Urgency, Error, ObjectKey, asked};
use ironic::{Class, Detail, Power, Reading};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};

use crate::context::Context;
use crate::decide::{decide, is_at_rest};
use crate::model::{
    Host, Memory, Node, NodeSeen, OFF_CONFIRM_DELAY, Observed, OffProof, OffTaken, Pause,
    registered_as,
};
use crate::settings::Policy;

/// How long a node is not answered for until its host says so, though others may be.
const NODE_SILENCE_MAX: Duration = Duration::from_secs(10);

/// What decisions depend on, of one node and in a list.
pub const FIELDS: Detail = Detail::Fields(&[
    "uuid",
    "name",
    "power_state",
    "target_power_state",
    "provision_state",
    "last_error",
    "maintenance",
    "disable_power_off",
]);

/// What Ironic says of a node, or how it is seen without that.
type Looked = Result<Reading, NodeSeen>;

/// Reads what a decision about this host needs; nothing, if it is gone or was never ours.
pub async fn observe(
    context: &Context,
    key: &ObjectKey,
    memory: &mut Memory,
) -> Result<Option<Observed>, Error> {
    let (policy, nodes) = (&context.policy, &context.nodes);
    let cached = context.hosts.get(&key.in_store()).filter(|host| !policy.is_anothers(host));
    let Some(cached) = cached.map(|host| context.view(&host)) else { return Ok(None) };
    let was_ours = cached.managed().is_some() || cached.paused == Pause::ByUs;
    if !cached.selected && !was_ours {
        return Ok(None);
    }
    if memory.uid != cached.uid {
        *memory = Memory { uid: cached.uid.clone(), ..Memory::default() };
    }
    if is_anothers(&cached, memory) {
        return Ok(Some(Observed::default()));
    }
    let needed = cached.needs_node(policy);
    let soft_free = context.soft_free(key);
    if needed && cached.progress().is_some_and(|it| it.reason.is_phase()) {
        nodes.waits(&cached.node);
    }
    let listed = if needed { nodes.awaited(&cached.node).await } else { None };
    let is_news = listed.is_some();
    let listed = listed.filter(|it| !cached.disable_power_off && is_plain(&Node::of(&it.node)));
    if !is_news
        && !memory.differs
        && let Some(seen) = at_rest(context, &cached, soft_free)
    {
        return Ok(Some(seen));
    }
    let mut is_read = false;
    let (mut host, mut looked) = if let Some(reading) = listed {
        // It began after this version of the host was there; a write insists on that, and a call on a write or another look.
        (cached, Some(Ok(reading)))
    } else if cached.waits_for_room() && !soft_free {
        // Thousands of looks at hosts that can only wait would take Ironic's time from those that need it.
        (cached, Some(Err(NodeSeen::NotAsked)))
    } else if let Some(silent) = silent(context).filter(|_| needed) {
        // Nor does the API server tell anything of thousands that only wait for Ironic.
        (cached, Some(Err(silent)))
    } else {
        // Both at once: somebody waits.
        let reads =
            async { if needed { Some(look(context, &cached, &cached.node).await) } else { None } };
        let (host, looked) = tokio::join!(host(&context.kit.client, key), reads);
        is_read = true;
        let host = host?.filter(|host| !policy.is_anothers(host));
        let Some(host) = host.map(|host| context.view(&host)) else { return Ok(None) };
        // One that must stay on is read in another way.
        let alike = host.node == cached.node && host.disable_power_off == cached.disable_power_off;
        (host, looked.filter(|_| alike))
    };
    if host.uid != memory.uid || is_anothers(&host, memory) {
        return Ok(Some(Observed::default()));
    }
    if looked.is_none() && host.needs_node(policy) {
        looked = Some(look(context, &host, &host.node).await);
    }
    let (asked_for, by_name) = (host.node.clone(), registered_as(key));
    let is_missing = |looked: &Option<Looked>| matches!(looked, Some(Err(NodeSeen::Missing)));
    if is_missing(&looked) && host.node != by_name {
        looked = Some(look(context, &host, &by_name).await);
        if !is_missing(&looked) {
            host.node.clone_from(&by_name);
        }
    }
    let looked = looked.unwrap_or(Err(NodeSeen::NotAsked));
    let names = match &looked {
        Ok(Reading { node, .. }) => Some([Some(node.uuid.as_str()), node.name.as_deref()]),
        // It may come back under that name.
        Err(NodeSeen::Missing) => Some([Some(by_name.as_str()), None]),
        Err(_) => None,
    };
    if let Some(names) = names {
        let names: Vec<_> = names.into_iter().flatten().filter_map(ThingName::of).collect();
        // Another host may name the same node differently.
        for other in context.links.learn(key, &asked_for, &names) {
            context.lookout.enqueue(other, Urgency::Normal);
        }
    }
    host.shared_with = context.shared_with(&host);
    if is_read {
        host.other_writer |= is_written_by_others(memory, &host, policy);
    }
    let node = remember(memory, &host, looked, Instant::now());
    let pace = Some(nodes.pace(&host.node));
    Ok(Some(Observed { host: Some(host), node, soft_free, pace }))
}

/// What is decided about a host where Ironic shows its node as its status says, if there is nothing to do then. No more is
/// read: the poll compares all nodes in one list, and tells of each that is not so.
fn at_rest(context: &Context, host: &Host, soft_free: bool) -> Option<Observed> {
    let power = if host.powered_on { Power::On } else { Power::Off };
    let node = NodeSeen::Seen(Node { off_for: Some(Duration::MAX), ..Node::resting(power) });
    let pace = Some(Duration::ZERO);
    let seen = Observed { host: Some(host.clone()), node, soft_free, pace };
    is_at_rest(&decide(&seen, &context.policy, Timestamp::now())).then_some(seen)
}

/// Whether another instance, with another selector, has made a host its own that was let go here: who undid that would do so
/// for ever.
fn is_anothers(host: &Host, memory: &mut Memory) -> bool {
    let managed = host.managed().is_some_and(|it| it.managed);
    let claimed = host.paused == Pause::ByUs || managed;
    // Its status says so by now.
    memory.let_go = !host.selected && (memory.let_go || !claimed);
    memory.let_go && claimed
}

/// Whether somebody else has changed what the status of a host says of its power, as only who switches it does. One that keeps its
/// power from us, or that was kept from it, may. It is remembered until we have written the status.
fn is_written_by_others(memory: &mut Memory, host: &Host, policy: &Policy) -> bool {
    let managed = host.managed().is_some_and(|it| it.managed);
    let ours = managed && !policy.takeover && host.selected && host.paused == Pause::No;
    let changed = ours && memory.powered_on.is_some_and(|before| before != host.powered_on);
    if !changed {
        memory.powered_on = Some(host.powered_on);
    }
    changed
}

/// Remembers how the node is, and adds to it what earlier readings showed.
fn remember(memory: &mut Memory, host: &Host, looked: Looked, ended: Instant) -> NodeSeen {
    let (mut seen, began) = match looked {
        Ok(Reading { node, began }) => (NodeSeen::Seen(Node::of(&node)), began),
        Err(seen) => (seen, ended),
    };
    lasts(&mut memory.silent_since, &mut seen, ended);
    compare(memory, host, &seen);
    if let NodeSeen::Seen(node) = &mut seen {
        node.off_for = off_for(&mut memory.off_since, node.shows_off(), (began, ended));
        node.off_proof = proof(&mut memory.off_taken, host, node, ended);
        node.spared = spared(&mut memory.blind_calls, node.power, ended);
    } else {
        (memory.off_since, memory.off_taken) = (None, None);
    }
    seen
}

/// Remembers what the status of a host says, as it was read or as we wrote it, beside what its node showed.
pub(crate) fn compare(memory: &mut Memory, host: &Host, node: &NodeSeen) {
    memory.differs = differs(host, node);
    let holds: Vec<&str> = host.requests.holds().collect();
    if host.progress().is_some_and(|it| it.is_held_for(&holds)) {
        // Its status says so by now.
        memory.off_taken = None;
    }
}

/// For how long a machine of unknown power is not asked for off again: after three calls in a row, five seconds. Each has its
/// management controller looked for, by a worker of Ironic that others need.
fn spared(calls: &mut (u32, Option<Instant>), power: Power, now: Instant) -> Option<Duration> {
    if power != Power::Unknown {
        *calls = (0, None);
    }
    let passed = now.saturating_duration_since(calls.1.filter(|_| calls.0 >= 3)?);
    Duration::from_secs(5).checked_sub(passed).filter(|left| !left.is_zero())
}

/// Whether a node is not as the status of its host says, or nobody could see how it is.
fn differs(host: &Host, node: &NodeSeen) -> bool {
    let NodeSeen::Seen(node) = node else { return matches!(node, NodeSeen::Unanswered { .. }) };
    let power = if host.powered_on { Power::On } else { Power::Off };
    // Its spec allows again that a host which we keep from the operator is switched off, and Ironic does not know yet.
    let banned = host.paused == Pause::ByUs && !host.disable_power_off && node.disable_power_off;
    node.power != power || node.target.is_some() || node.maintenance || banned
}

/// What the off that Ironic has taken shows for all who hold the host, by what the node shows now.
fn proof(taken: &mut Option<OffTaken>, host: &Host, node: &Node, now: Instant) -> OffProof {
    let holders = || host.requests.holders_of(&host.node);
    let Some(mut known) = taken.take().filter(|it| it.holders == holders()) else {
        return OffProof::None;
    };
    match (node.target, node.power) {
        (Some(Power::Off), _) => known.seen = None,
        (None, Power::Off) if node.last_error.is_some() => return OffProof::Failed,
        (None, Power::Off) => known.seen = known.seen.or(Some(now)),
        _ => return OffProof::None,
    }
    *taken = Some(known);
    if known.again {
        return OffProof::Twice;
    }
    let passed = known.seen.map_or(Duration::ZERO, |seen| now.saturating_duration_since(seen));
    OffProof::Once(OFF_CONFIRM_DELAY.saturating_sub(passed))
}

/// Silence about one node is also lasting when Ironic answers others.
fn lasts(silent_since: &mut Option<Instant>, node: &mut NodeSeen, now: Instant) {
    let NodeSeen::Unanswered { lasting, .. } = node else {
        *silent_since = None;
        return;
    };
    *lasting |= now.duration_since(*silent_since.get_or_insert(now)) >= NODE_SILENCE_MAX;
}

/// For how long every reading has shown the machine off: from the end of the first one to the beginning of this one.
fn off_for(
    first: &mut Option<Instant>,
    off: bool,
    (began, ended): (Instant, Instant),
) -> Option<Duration> {
    *first = off.then(|| first.unwrap_or(ended));
    first.map(|first| began.saturating_duration_since(first))
}

/// Reads the host, without what makes it large.
async fn host(client: &Client, key: &ObjectKey) -> Result<Option<CachedHost>, Error> {
    let api: Api<CachedHost> = Api::namespaced(client.clone(), &key.namespace);
    asked("read the host", async { unless_gone(api.get(&key.name).await) }).await
}

/// Reads a node of a host. Of one that must stay on it is also read when it last changed, which costs Ironic more.
async fn look(context: &Context, host: &Host, id: &str) -> Looked {
    let nodes = &context.nodes;
    if !ironic::is_node_id(id) {
        // There is none with another, so nobody has to be asked.
        return Err(NodeSeen::Missing);
    }
    if let Some(silent) = silent(context) {
        return Err(silent);
    }
    let urgency = if host.is_urgent(&context.policy) { Urgency::Urgent } else { Urgency::Normal };
    let full = host.disable_power_off.then_some(Detail::Full);
    let mut answer = nodes.read(id, full, urgency).await;
    let stays_on = |it: &Reading| it.node.disable_power_off == Some(true);
    if full.is_none() && answer.as_ref().is_ok_and(stays_on) {
        answer = nodes.read(id, Some(Detail::Full), urgency).await;
    }
    answer.map_err(|error| {
        if error.class() == Class::NotFound {
            return NodeSeen::Missing;
        }
        let lasting = nodes.silence().is_some();
        NodeSeen::Unanswered { lasting, problem: error.to_string() }
    })
}

/// What is known of any node while Ironic answers nobody.
fn silent(context: &Context) -> Option<NodeSeen> {
    let problem = context.nodes.silence()?;
    Some(NodeSeen::Unanswered { lasting: true, problem })
}

/// Whether a node shows nothing but its power. All else is read anew, with all its details.
fn is_plain(node: &Node) -> bool {
    let calm = node.last_error.is_none() && node.engaged.is_none() && !node.maintenance;
    calm && !node.disable_power_off && !node.is_being_registered()
}

#[cfg(test)]
mod tests {
    use api_types::metal3::{BareMetalHost, KeySet};
    use serde_json::json;

    use super::*;
    use crate::model::Change;
    use crate::reason::Reason;
    use crate::record::{Managed, RebootProgress};
    use crate::requests::Requests;

    fn host() -> Host {
        let host = json!({
            "metadata": { "name": "h", "namespace": "n", "uid": "u", "resourceVersion": "7" },
            "spec": { "online": true },
            "status": {
                "poweredOn": true, "provisioning": { "state": "provisioned", "ID": "node" },
            },
        });
        let host: BareMetalHost = serde_json::from_value(host).unwrap();
        Host::of(&host, &Policy::default())
    }

    #[test]
    fn a_node_that_is_not_as_its_host_says_is_remembered() {
        let on = || Node::resting(Power::On);
        let seen = |node| differs(&host(), &NodeSeen::Seen(node));
        assert!(!seen(on()));
        for node in [
            Node::resting(Power::Off),
            Node::resting(Power::Unknown),
            Node { target: Some(Power::Off), ..on() },
            Node { maintenance: true, ..on() },
        ] {
            assert!(seen(node.clone()), "{node:?}");
        }
        let banned = || NodeSeen::Seen(Node { disable_power_off: true, ..on() });
        let ours = Host { paused: Pause::ByUs, ..host() };
        assert!(!differs(&host(), &banned()) && differs(&ours, &banned()));
        assert!(!differs(&Host { disable_power_off: true, ..ours }, &banned()));
        let silent = NodeSeen::Unanswered { lasting: false, problem: String::new() };
        assert!(differs(&host(), &silent));
    }

    #[test]
    fn what_a_host_says_by_now_is_compared_with_what_its_node_showed() {
        let key = "reboot.metal3.io/a";
        let held = Host { requests: Requests::of([(key, "")].into_iter()), ..host() };
        let progress = Some(RebootProgress {
            held: KeySet::of([key]),
            ..RebootProgress::new(Reason::HeldOff, Timestamp::UNIX_EPOCH)
        });
        let change = Change { progress, ..Change::default() };
        let conditions = change.conditions(&held, Timestamp::UNIX_EPOCH);
        let told = Host { powered_on: false, conditions, ..held.clone() };
        let off = NodeSeen::Seen(Node::resting(Power::Off));
        let holders = held.requests.holders_of("node");
        let taken = Some(OffTaken { holders, seen: None, again: true });
        let mut memory = Memory { off_taken: taken, ..Memory::default() };
        compare(&mut memory, &held, &off);
        assert!(memory.differs && memory.off_taken == taken);
        compare(&mut memory, &told, &off);
        assert!(!memory.differs && memory.off_taken.is_none(), "as it was written");
    }

    #[test]
    fn whoever_else_changes_what_a_status_says_of_power_is_noticed_unless_the_power_is_theirs() {
        let mut ours = Host { selected: true, ..host() };
        let managed =
            Some(Managed { managed: true, reason: Reason::Managed, message: String::new() });
        let change = Change { managed, ..Change::default() };
        ours.conditions = change.conditions(&ours, Timestamp::UNIX_EPOCH);
        let off = Host { powered_on: false, ..ours.clone() };
        let noticed = |before, host: &Host, policy: &Policy| {
            let mut memory = Memory { powered_on: before, ..Memory::default() };
            let noticed = is_written_by_others(&mut memory, host, policy);
            // What could not be written down is noticed again.
            assert_eq!(is_written_by_others(&mut memory, host, policy), noticed);
            noticed
        };
        let policy = Policy::default();
        assert!(noticed(Some(true), &off, &policy) && noticed(Some(false), &ours, &policy));
        assert!(!noticed(Some(true), &ours, &policy), "as it was");
        assert!(!noticed(None, &off, &policy), "nobody knows who wrote that");
        let takeover = Policy { takeover: true, ..Policy::default() };
        assert!(!noticed(Some(true), &off, &takeover), "the operator had begun before its pause");
        let paused = Host { paused: Pause::ByUs, ..off.clone() };
        let theirs = Host { conditions: Vec::new(), ..off };
        assert!(!noticed(Some(true), &paused, &policy) && !noticed(Some(true), &theirs, &policy));
    }

    #[test]
    fn between_two_readings_is_what_lies_between_the_end_of_one_and_the_beginning_of_the_other() {
        let (start, mut first) = (Instant::now(), None);
        let seconds = Duration::from_secs;
        let mut at = |off, began, ended| {
            off_for(&mut first, off, (start + seconds(began), start + seconds(ended)))
        };
        assert_eq!(at(true, 0, 2), Some(Duration::ZERO));
        assert_eq!(at(true, 1, 9), Some(Duration::ZERO));
        // A list that began just after the first reading, and was long.
        assert_eq!(at(true, 3, 9), Some(seconds(1)));
        assert_eq!((at(false, 10, 10), at(true, 11, 12)), (None, Some(Duration::ZERO)), "anew");
    }

    #[test]
    fn one_node_that_is_not_answered_for_is_told_after_a_while() {
        let (mut since, began) = (None, Instant::now());
        let at = |second| began + Duration::from_secs(second);
        let silent = || NodeSeen::Unanswered { lasting: false, problem: "no".to_owned() };
        let mut lasting = |mut node, second| {
            lasts(&mut since, &mut node, at(second));
            matches!(node, NodeSeen::Unanswered { lasting: true, .. })
        };
        assert!(!lasting(silent(), 0) && !lasting(silent(), 9) && lasting(silent(), 10));
        assert!(lasting(silent(), 60));
        assert!(!lasting(NodeSeen::Missing, 61) && !lasting(silent(), 62), "an answer counts anew");
    }

    #[test]
    fn an_off_that_ironic_has_taken_shows_something_to_those_who_held_the_host_then_until_it_shows_another_power()
     {
        let held = |keys: &[&str]| {
            let requests = Requests::of(keys.iter().map(|key| (*key, "")));
            Host { requests, ..host() }
        };
        let (a, b) = ("reboot.metal3.io/a", "reboot.metal3.io/b");
        let node = |node| Node::of(&serde_json::from_value(node).unwrap());
        let off = node(json!({ "power_state": "power off" }));
        let going = json!({ "power_state": "power on", "target_power_state": "power off" });
        let (began, failed) =
            (Instant::now(), json!({ "power_state": "power off", "last_error": "no" }));
        let at = |second| began + Duration::from_secs(second);
        let holders = held(&[a]).requests.holders_of("node");
        let taken = Some(OffTaken { holders, seen: None, again: false });
        let mut known = taken;
        for (second, seen, left) in
            [(0, &node(going), 3), (9, &off, 3), (10, &off, 2), (13, &off, 0)]
        {
            let left = Duration::from_secs(left);
            assert_eq!(proof(&mut known, &held(&[a]), seen, at(second)), OffProof::Once(left));
        }
        let mut twice = known.map(|it| OffTaken { again: true, ..it });
        assert_eq!(proof(&mut twice, &held(&[a]), &off, at(14)), OffProof::Twice);
        let mut broken = known;
        assert_eq!(proof(&mut broken, &held(&[a]), &node(failed), at(14)), OffProof::Failed);
        assert_eq!(broken, None);
        for (host, seen) in [
            (held(&[a, b]), off.clone()),
            (held(&[b]), off.clone()),
            (held(&[]), off.clone()),
            (Host { node: "other".to_owned(), ..held(&[a]) }, off.clone()),
            (held(&[a]), node(json!({ "power_state": "power on" }))),
            (held(&[a]), node(json!({ "power_state": null }))),
            (
                held(&[a]),
                node(json!({ "power_state": "power off", "target_power_state": "power on" })),
            ),
        ] {
            let mut known = taken;
            assert_eq!(proof(&mut known, &host, &seen, began), OffProof::None, "{seen:?}");
            let later = proof(&mut known, &held(&[a]), &off, began);
            assert_eq!(later, OffProof::None, "nor does it count again: {seen:?}");
        }
    }

    #[test]
    fn a_host_that_was_let_go_and_is_made_somebody_elses_is_left_to_them() {
        let managed = |managed, reason| {
            let managed = Some(Managed { managed, reason, message: String::new() });
            let change = Change { managed, ..Change::default() };
            change.conditions(&host(), Timestamp::UNIX_EPOCH)
        };
        let claimed = Host { conditions: managed(true, Reason::Managed), ..host() };
        let free = Host { conditions: managed(false, Reason::NotSelected), ..host() };
        let mut memory = Memory::default();
        assert!(!is_anothers(&claimed, &mut memory), "it was ours, and has to be let go once");
        assert!(!is_anothers(&free, &mut memory), "nobody claims it");
        assert!(is_anothers(&claimed, &mut memory) && memory.let_go);
        let paused = Host { paused: Pause::ByUs, ..free.clone() };
        assert!(is_anothers(&paused, &mut memory), "that pause is another's");
        // Handed to us again it is ours, and so it is when it is let go after that.
        assert!(!is_anothers(&Host { selected: true, ..claimed.clone() }, &mut memory));
        assert!(!is_anothers(&claimed, &mut memory));
    }

    #[test]
    fn a_machine_of_unknown_power_is_asked_thrice_and_then_each_five_seconds() {
        let (began, mut calls) = (Instant::now(), (0, None));
        let at = |second| began + Duration::from_secs(second);
        for call in 1..=3 {
            assert_eq!(spared(&mut calls, Power::Unknown, at(0)), None, "{call}");
            calls = (call, Some(at(0)));
        }
        assert_eq!(spared(&mut calls, Power::Unknown, at(1)), Some(Duration::from_secs(4)));
        assert_eq!(spared(&mut calls, Power::Unknown, at(5)), None);
        calls = (4, Some(at(5)));
        assert!(spared(&mut calls, Power::Unknown, at(9)).is_some());
        assert_eq!(spared(&mut calls, Power::On, at(9)), None);
        assert_eq!(calls, (0, None), "it is known now");
    }
}

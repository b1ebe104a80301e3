//! What this process remembers of a host between two passes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::Action;

use crate::decision::Again;
use crate::index::NodeKey;
use crate::poll::{Digest, Nodes};
use crate::readings::{Reading, Readings};
use crate::reason::Reason;
use crate::seen::{Host, Node, NodeSeen, Pause, Target};

/// How long a node is not answered for until its host says so, though others may be.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a host waits at most for a crowd of hard requests of others, in all, however many passes it needs. Those that were
/// first in the crowd come back after all of it where a thousand are asked at once.
const COURTESY: Duration = Duration::from_secs(60);
/// How long a host that waits for room among the soft attempts is not looked at. What waits to be off is tried every half
/// minute, also with one more wait for a busy Ironic after that.
const OVERLOOKED: Duration = Duration::from_secs(24);

/// What this process remembers of a host. All of it can be forgotten: it saves work, or has to be waited for again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) uid: String,
    /// The version after our last write and when the next pass is due: the echo of that write needs none.
    pub(crate) rests: Option<(String, Option<Instant>)>,
    pub(crate) off_since: Option<Instant>,
    /// For which holds, and of which node, Ironic has taken an off of ours, until it shows anything else or the status of the
    /// host says so.
    pub(crate) off_taken: Option<u64>,
    pub(crate) silent_since: Option<Instant>,
    /// The keys whose value is not understood, and that value; without a key what was told of the host itself.
    pub(crate) told: BTreeSet<(String, u64)>,
    /// Somebody wants it looked at, whatever the cache says.
    pub(crate) asked: bool,
    pub(crate) watching: Watching,
    pub(crate) node: Option<NodeKey>,
    /// The operator's name for a node that Ironic does not have: it may come back under this one.
    pub(crate) also: Option<NodeKey>,
    pub(crate) seen: Option<Digest>,
    pub(crate) readings: Readings,
    /// Whether it was sent away because too many waited for a turn.
    pub(crate) turned_away: bool,
    /// Since when it lets hard requests of others pass.
    pub(crate) waits_since: Option<Instant>,
    pub(crate) let_go: LetGo,
}

/// Whether the next step is Ironic's, and who notices it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Watching {
    #[default]
    No,
    /// The host itself, which is looked at soon.
    Alone,
    /// The lists of all nodes: one of many that wait. They come soon until the last of them was told.
    ByLists,
}

/// Whether the host is not to be ours, and its status has said so already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LetGo {
    #[default]
    No,
    Yes,
    /// And that another instance wants it was told.
    Warned,
}

impl Memory {
    /// Of a host for which nothing was done yet.
    pub(crate) fn new(uid: &str, now: Instant) -> Self {
        Self { uid: uid.to_owned(), readings: Readings::new(now), ..Self::default() }
    }

    /// The same of a version of the host that is known now. So the first list stands for the look at a node that is not quite
    /// as its host says.
    pub(crate) fn of(host: &Host, now: Instant) -> Self {
        let mut known = Self::new(&host.uid, now);
        known.readings.host_seen(&host.version, now);
        known
    }

    /// Whether the node of this very host was read, and did not rest at this power or was in maintenance, or said that a host
    /// must stay on which says so no more and which we keep from the operator.
    pub(crate) fn knows_better(&self, host: &Host, power: ironic::Power) -> bool {
        let same = self.uid == host.uid && self.node == NodeKey::of(&host.node);
        let kept = host.paused == Pause::ByUs && !host.disable_power_off;
        let other = |seen: Digest| {
            !seen.rests_at(power) || seen.is_in_maintenance() || (kept && seen.stays_on())
        };
        same && self.seen.is_some_and(other)
    }

    /// Takes notice of what a list has shown. Gives whether the node is not as a pass last saw it: not so if the list read it
    /// before our last call was answered, which another list will tell of, or a look of our own.
    pub(crate) fn is_outdated(&mut self, nodes: &Nodes) -> bool {
        let Some(node) = self.node else { return false };
        let reading = nodes.reading(node);
        self.readings.listed(reading);
        let mut names = std::iter::once(node).chain(self.also);
        self.readings.counts(reading.began) && names.any(|it| nodes.digest(it) != self.seen)
    }

    /// Whether the host lets a crowd of hard requests pass first. Not if it is on its way to off, or if it is on and
    /// everybody takes it for off.
    pub(crate) fn makes_way(&mut self, host: &Host, is_crowd: bool, now: Instant) -> bool {
        if !is_crowd {
            self.waits_since = None;
            return false;
        }
        let on = self.seen.is_some_and(|seen| seen.rests_at(ironic::Power::On));
        if host.is_on_its_way() || (on && !host.powered_on) {
            return false;
        }
        now.duration_since(*self.waits_since.get_or_insert(now)) < COURTESY
    }

    /// The rest that our last pass over this very version decided on, if it is not over and nobody wants another look.
    pub(crate) fn rest(&self, version: &str, now: Instant) -> Option<Action> {
        let (known, due) = self.rests.as_ref()?;
        if self.asked || known != version {
            return None;
        }
        match due {
            None => Some(Action::await_change()),
            Some(due) => {
                let left = due.checked_duration_since(now)?;
                (!left.is_zero()).then(|| Action::requeue(left))
            }
        }
    }

    /// Whether nothing has happened to the host since a pass found that it can only wait, not long ago. One that was seen
    /// off, or that waits for Ironic, is to be looked at again.
    pub(crate) fn may_be_overlooked(&self, version: &str, now: Instant) -> bool {
        let same = self.rests.as_ref().is_some_and(|(known, _)| known == version);
        let lately =
            self.readings.looked.is_some_and(|looked| now.duration_since(looked) < OVERLOOKED);
        same && lately && !self.asked && self.watching == Watching::No && self.off_since.is_none()
    }

    /// A request that is gone, or says something else now, is told of anew should it come back.
    pub(crate) fn forgets_told(&mut self, host: &Host) {
        let odd: BTreeSet<(&str, u64)> = host.requests.odd().collect();
        self.told.retain(|(key, value)| key.is_empty() || odd.contains(&(key.as_str(), *value)));
    }

    /// Ironic is about to be asked: what was read before says nothing any more, and a failure that looks like it is news.
    pub(crate) fn calls(&mut self) {
        (self.seen, self.off_since, self.off_taken) = (None, None, None);
        self.readings.call_begins();
    }

    /// Whether the off that Ironic has taken still counts for all who hold the host, by what the node shows now.
    pub(crate) fn still_taken(&mut self, host: &Host, node: &Node) -> bool {
        let off = match node.target {
            None => node.power == ironic::Power::Off && node.last_error.is_none(),
            Some(target) => target == Target::Off,
        };
        let holders = || host.requests.holders_of(&host.node);
        self.off_taken = self.off_taken.filter(|it| off && *it == holders());
        self.off_taken.is_some()
    }

    /// A pass begins: whoever asks for a look from here on may know more than what is read now. Gives what a list has shown
    /// of the node, where that is as good as a look.
    pub(crate) fn begins(&mut self, host: &Host, now: Instant) -> Option<Reading> {
        self.asked = false;
        self.readings.pass_begins(now);
        let same = self.uid == host.uid && self.node == NodeKey::of(&host.node);
        let reading = self.readings.for_pass(&host.version, now);
        reading.filter(|_| same && !host.disable_power_off)
    }

    /// A pass came to its end.
    pub(crate) fn ended(
        &mut self,
        again: Again,
        in_crowd: bool,
        rests: Option<(String, Option<Instant>)>,
    ) {
        self.watching = match again {
            Again::Watch if in_crowd => Watching::ByLists,
            Again::Watch => Watching::Alone,
            _ => Watching::No,
        };
        self.rests = rests;
        self.turned_away = again == Again::Turn;
    }

    /// Whether only the lists tell the host of what Ironic does, until its next pass is due.
    pub(crate) fn is_told_by_lists(&self, now: Instant) -> bool {
        let due = self.rests.as_ref().and_then(|(_, due)| *due);
        self.watching == Watching::ByLists && due.is_some_and(|due| now < due)
    }

    /// Whether nothing has happened to the host since it was sent away.
    pub(crate) fn waits_for_turn(&self, version: &str) -> bool {
        let same = self.rests.as_ref().is_some_and(|(known, _)| known == version);
        self.turned_away && same && !self.asked
    }

    /// Whether somebody else has made a host that we have let go their own since: who undid that would do so for ever.
    pub(crate) fn is_anothers(&self, host: &Host) -> bool {
        let claimed = host.paused == Pause::ByUs || host.managed().is_some_and(|it| it.managed);
        self.let_go != LetGo::No && self.uid == host.uid && !host.selected && claimed
    }

    /// Takes notice of whether the host is let go. Once it is ours again, it can be let go anew.
    pub(crate) fn lets_go(&mut self, host: &Host, reason: Reason) {
        if host.selected {
            self.let_go = LetGo::No;
        } else if self.let_go == LetGo::No && reason == Reason::NotSelected {
            self.let_go = LetGo::Yes;
        }
    }

    /// Whether that was not told before.
    pub(crate) fn is_to_be_warned(&mut self) -> bool {
        std::mem::replace(&mut self.let_go, LetGo::Warned) != LetGo::Warned
    }
}

/// Silence about one node is also lasting when Ironic answers others.
pub(crate) fn lasts(silent_since: &mut Option<Instant>, node: &mut NodeSeen, now: Instant) {
    let NodeSeen::Unanswered { lasting, .. } = node else {
        *silent_since = None;
        return;
    };
    *lasting |= now.duration_since(*silent_since.get_or_insert(now)) >= SILENCE;
}

/// Since when every reading has shown the machine off, by the clock as it is now: one that was set in between must neither
/// stand in for the second reading nor put it off. From the end of the first reading to the beginning of this one.
pub(crate) fn off_since(
    first: &mut Option<Instant>,
    off: bool,
    (began, ended, now): (Instant, Instant, Timestamp),
) -> Option<Timestamp> {
    *first = off.then(|| first.unwrap_or(ended));
    first.and_then(|first| now.checked_sub(began.saturating_duration_since(first)).ok())
}

#[cfg(test)]
mod tests {
    use api_types::metal3::BareMetalHost;
    use ironic::Power;
    use serde_json::json;

    use super::*;
    use crate::config::Policy;
    use crate::controller::spread;
    use crate::decide::BUSY;
    use crate::decision::Change;
    use crate::limits::Urgent;
    use crate::record::Managed;
    use crate::requests::Requests;
    use crate::seen::Registration;

    /// A host in a cycle or not, with what its status says about power.
    fn host(in_cycle: bool, powered_on: bool) -> Host {
        let pending = in_cycle.then_some("2026-01-01T00:00:00Z");
        let host = json!({
            "metadata": { "name": "h", "namespace": "n", "uid": "u", "resourceVersion": "7" },
            "spec": { "online": true },
            "status": {
                "poweredOn": powered_on,
                "provisioning": {
                    "state": "provisioned", "ID": "node", "pendingRebootSince": pending,
                },
            },
        });
        let host: BareMetalHost = serde_json::from_value(host).unwrap();
        Host::of(&host, &Policy::default())
    }

    #[test]
    fn a_host_makes_way_for_a_crowd_once_unless_it_should_be_off() {
        let (first, second) = (Instant::now(), Duration::from_secs(1));
        let mut known = Memory::default();
        assert!(!known.makes_way(&host(false, true), false, first));
        assert!(known.makes_way(&host(false, true), true, first));
        let late = first + COURTESY;
        assert!(known.makes_way(&host(false, true), true, first + COURTESY.saturating_sub(second)));
        known.ended(Again::OnChange, false, None);
        assert!(!known.makes_way(&host(false, true), true, late), "a pass gives no time anew");
        assert!(!known.makes_way(&host(false, true), false, late));
        assert!(known.makes_way(&host(false, true), true, late), "another crowd");
        let mut known = Memory::default();
        assert!(!known.makes_way(&host(true, true), true, first), "it is on its way to off");
        assert!(known.makes_way(&host(true, false), true, first));
        known.seen = Some(digest(json!({ "power_state": "power on" })));
        assert!(!known.makes_way(&host(true, false), true, first), "everybody takes it for off");
    }

    #[test]
    fn a_host_that_is_to_be_switched_on_lets_a_single_hard_request_pass_and_one_on_its_way_to_off_does_not()
     {
        let (urgent, now) = (Urgent::default(), Instant::now());
        let name = |name: &str| ("n".to_owned(), name.to_owned());
        urgent.note(&name("hard"), Some("1"));
        let waits = |host: &Host| {
            let is_crowd = !urgent.let_pass(&name("h"), host.is_patient());
            Memory::default().makes_way(host, is_crowd, now)
        };
        assert!(waits(&host(true, false)), "its hold has gone");
        assert!(waits(&host(false, true)) && !waits(&host(true, true)));
        urgent.looked_at(&name("hard"), "1");
        assert!(!waits(&host(true, false)));
    }

    #[test]
    fn a_host_that_can_only_wait_is_looked_at_every_half_minute_and_when_anything_happens() {
        let now = Instant::now();
        let rests = Some(("7".to_owned(), Some(now)));
        let mut waiting = Memory { rests, ..Memory::default() };
        waiting.readings.looked(None, now);
        assert!(waiting.may_be_overlooked("7", now));
        assert!(!waiting.may_be_overlooked("8", now), "somebody wrote");
        assert!(!waiting.may_be_overlooked("7", now + OVERLOOKED));
        assert!(OVERLOOKED + spread(BUSY, 1.0) <= Duration::from_secs(30));
        for change in [
            |known: &mut Memory| known.rests = None,
            |known: &mut Memory| known.asked = true,
            |known: &mut Memory| known.watching = Watching::Alone,
            |known: &mut Memory| known.off_since = Some(Instant::now()),
        ] {
            let mut known = waiting.clone();
            change(&mut known);
            assert!(!known.may_be_overlooked("7", now), "{known:?}");
        }
    }

    /// What a node of these fields is recognised by.
    fn digest(node: serde_json::Value) -> Digest {
        Digest::of(&Node::of(&serde_json::from_value(node).unwrap()))
    }

    #[test]
    fn that_a_node_alone_still_says_that_it_must_stay_on_is_noticed() {
        let shown = |stays_on| {
            let on = json!({ "uuid": "node", "power_state": "power on" });
            let mut node = on.clone();
            node["disable_power_off"] = json!(stays_on);
            node
        };
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut host = Host { paused: Pause::ByUs, ..host(false, true) };
        let mut known = Memory { node: NodeKey::of("node"), ..Memory::new("u", began) };
        known.seen = Some(digest(shown(true)));
        assert!(known.knows_better(&host, Power::On), "its spec has just allowed it");
        host.disable_power_off = true;
        assert!(!known.knows_better(&host, Power::On));
        (host.disable_power_off, host.paused) = (false, Pause::No);
        assert!(!known.knows_better(&host, Power::On), "the operator tells Ironic");
        assert!(!known.is_outdated(&list(began + second, &shown(true))));
        assert!(known.is_outdated(&list(began + second, &shown(false))), "now it has");
    }

    /// A list with one node, which began then.
    fn list(began: Instant, node: &serde_json::Value) -> Nodes {
        let mut nodes = Nodes::new(began, 1);
        nodes.add(&serde_json::from_value(node.clone()).unwrap(), began);
        nodes
    }

    #[test]
    fn after_a_call_a_failure_that_looks_like_the_one_before_is_noticed() {
        let shown = json!({ "uuid": "node", "power_state": "power on", "last_error": "it broke" });
        let failed = digest(shown.clone());
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut known = Memory::new("u", began);
        (known.node, known.seen) = (NodeKey::of("node"), Some(failed));
        known.ended(Again::Watch, false, None);
        assert!(!known.is_outdated(&list(began + second, &shown)));
        known.off_since = Some(began);
        known.calls();
        assert!(!known.is_outdated(&list(began + second * 2, &shown)), "the call is under way");
        known.readings.call_ended(began + second * 3);
        assert!(
            !known.is_outdated(&list(began + second * 2, &shown)),
            "it began before the answer"
        );
        let after = list(began + second * 4, &shown);
        assert!(known.is_outdated(&after) && known.off_since.is_none());
    }

    #[test]
    fn an_off_that_ironic_has_taken_counts_for_those_who_held_the_host_then_until_it_shows_anything_else()
     {
        let held = |keys: &[&str]| {
            let requests = Requests::of(keys.iter().map(|key| (*key, "")));
            Host { requests, ..host(true, true) }
        };
        let (a, b) = ("reboot.metal3.io/a", "reboot.metal3.io/b");
        let node = |node| Node::of(&serde_json::from_value(node).unwrap());
        let off = node(json!({ "power_state": "power off" }));
        let going = json!({ "power_state": "power on", "target_power_state": "power off" });
        let mut known =
            Memory { off_taken: Some(held(&[a]).requests.holders_of("node")), ..Memory::default() };
        for seen in [&node(going), &off, &off] {
            assert!(known.still_taken(&held(&[a]), seen));
        }
        for (host, seen) in [
            (held(&[a, b]), off.clone()),
            (held(&[b]), off.clone()),
            (held(&[]), off.clone()),
            (Host { node: "other".to_owned(), ..held(&[a]) }, off.clone()),
            (held(&[a]), node(json!({ "power_state": "power on" }))),
            (held(&[a]), node(json!({ "power_state": null }))),
            (held(&[a]), node(json!({ "power_state": "power off", "last_error": "it broke" }))),
            (
                held(&[a]),
                node(json!({ "power_state": "power off", "target_power_state": "power on" })),
            ),
        ] {
            let mut known = known.clone();
            assert!(!known.still_taken(&host, &seen), "{seen:?}");
            assert!(!known.still_taken(&held(&[a]), &off), "nor does it count again: {seen:?}");
        }
        known.calls();
        assert!(!known.still_taken(&held(&[a]), &off), "another call has its own answer");
    }

    #[test]
    fn that_the_node_of_a_held_host_comes_into_maintenance_is_noticed() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let shown = |maintenance| json!({ "uuid": "node", "power_state": "power off", "maintenance": maintenance });
        let host = host(true, false);
        let mut known = Memory { node: NodeKey::of("node"), ..Memory::new("u", began) };
        for (before, now) in [(false, true), (true, false)] {
            known.seen = Some(digest(shown(before)));
            assert_eq!(known.knows_better(&host, Power::Off), before, "its status does not say so");
            assert!(!known.is_outdated(&list(began + second, &shown(before))), "{before}");
            assert!(known.is_outdated(&list(began + second, &shown(now))), "{before}");
        }
    }

    #[test]
    fn how_far_a_node_is_registered_is_noticed_by_the_list() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let shown =
            |state| json!({ "uuid": "node", "power_state": "power on", "provision_state": state });
        let states = ["enroll", "verifying", "manageable", "adopting", "active"];
        for (before, now) in states.iter().zip(&states[1..]) {
            let mut known = Memory { node: NodeKey::of("node"), ..Memory::new("u", began) };
            known.seen = Some(digest(shown(before)));
            assert!(!known.is_outdated(&list(began + second, &shown(before))), "{before}");
            assert!(known.is_outdated(&list(began + second, &shown(now))), "{before} {now}");
        }
    }

    #[test]
    fn the_first_list_stands_for_the_look_at_a_node_that_is_not_as_its_host_says() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let host = host(false, true);
        let mut known = Memory { node: NodeKey::of("node"), ..Memory::of(&host, began) };
        known.seen = Some(digest(json!({ "power_state": "power on" })));
        let made =
            json!({ "uuid": "node", "power_state": "power on", "provision_state": "enroll" });
        assert!(known.is_outdated(&list(began + second, &made)));
        let reading = known.begins(&host, began + second * 2).expect("nobody has to be asked");
        assert_eq!(reading.registration, Registration::Enrolled);
    }

    #[test]
    fn a_node_that_was_gone_is_noticed_under_whichever_name_it_comes_back() {
        let (node, also) = (NodeKey::of("uuid"), NodeKey::of("n~h"));
        let began = Instant::now();
        let mut known = Memory { node, also, ..Memory::new("u", began) };
        let later = began + Duration::from_secs(1);
        assert!(!known.is_outdated(&Nodes::new(later, 0)));
        for back in ["uuid", "n~h"] {
            let shown = json!({ "uuid": back, "power_state": "power on" });
            assert!(known.is_outdated(&list(later, &shown)));
        }
    }

    #[test]
    fn the_last_of_a_crowd_are_told_by_lists_until_they_look_themselves() {
        let (now, wait) = (Instant::now(), Duration::from_secs(20));
        let ended = |again, in_crowd| {
            let mut known = Memory::default();
            known.ended(again, in_crowd, Some(("7".to_owned(), Some(now + wait))));
            known
        };
        let mut last = ended(Again::Watch, true);
        assert!(last.is_told_by_lists(now) && !last.is_told_by_lists(now + wait));
        last.rests = None;
        assert!(!last.is_told_by_lists(now), "it was told");
        for other in [ended(Again::Watch, false), ended(Again::After(wait), true)] {
            assert!(!other.is_told_by_lists(now), "{other:?}");
        }
    }

    #[test]
    fn a_look_that_somebody_wants_during_a_pass_is_not_lost_to_the_rest_that_it_ends_with() {
        let now = Instant::now();
        let mut known = Memory::default();
        known.ended(Again::OnChange, false, Some(("7".to_owned(), None)));
        assert_eq!(known.rest("7", now), Some(Action::await_change()));
        assert_eq!(known.rest("8", now), None, "somebody wrote");
        known.asked = true;
        known.ended(Again::OnChange, false, Some(("7".to_owned(), None)));
        assert_eq!(known.rest("7", now), None);
    }

    #[test]
    fn a_clock_that_is_set_neither_stands_in_for_the_second_reading_nor_puts_it_off() {
        let (began, clock) = (Instant::now(), Timestamp::from_second(1_000_000).unwrap());
        let later = |seconds| began + Duration::from_secs(seconds);
        for set in [999_000, 1_000_000, 1_001_000].map(|it| Timestamp::from_second(it).unwrap()) {
            let mut first = None;
            let mut at =
                |off, second, set| off_since(&mut first, off, (later(second), later(second), set));
            assert_eq!(at(true, 0, clock), Some(clock));
            let since = at(true, 5, set).unwrap();
            assert_eq!(set.duration_since(since).as_secs(), 5);
            assert_eq!(at(false, 6, set), None);
            assert_eq!(at(true, 7, set), Some(set), "anew");
        }
    }

    #[test]
    fn between_two_readings_is_what_lies_between_the_end_of_one_and_the_beginning_of_the_other() {
        let (began, clock) = (Instant::now(), Timestamp::from_second(1_000_000).unwrap());
        let later = |seconds| began + Duration::from_secs(seconds);
        let mut first = None;
        assert_eq!(off_since(&mut first, true, (began, later(2), clock)), Some(clock));
        // A list that began just after the first reading, and was long.
        let since = off_since(&mut first, true, (later(3), later(9), clock)).unwrap();
        assert_eq!(clock.duration_since(since).as_secs(), 1);
        let mut same = first;
        assert_eq!(off_since(&mut same, true, (later(1), later(9), clock)), Some(clock));
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
    fn what_was_told_of_a_host_itself_is_not_forgotten_with_its_requests() {
        let mut asked = host(false, true);
        asked.requests = Requests::of([("reboot.metal3.io/a", "nonsense")].into_iter());
        let odd = asked.requests.odd().next().map(|(key, value)| (key.to_owned(), value)).unwrap();
        let told = [odd.clone(), (odd.0.clone(), 1), (String::new(), 0)].into();
        let mut known = Memory { told, ..Memory::default() };
        known.forgets_told(&asked);
        assert_eq!(known.told, [odd, (String::new(), 0)].into());
        known.forgets_told(&host(false, true));
        assert_eq!(known.told, [(String::new(), 0)].into());
    }

    #[test]
    fn a_host_that_was_let_go_and_is_made_somebody_elses_is_left_to_them() {
        let mut other = host(false, true);
        let managed = |managed, reason| {
            let managed = Some(Managed { managed, reason, message: String::new() });
            let change = Change { managed, ..Change::default() };
            change.conditions(&host(false, true), Timestamp::UNIX_EPOCH)
        };
        other.conditions = managed(true, Reason::Managed);
        let mut known = Memory { uid: other.uid.clone(), ..Memory::default() };
        assert!(!known.is_anothers(&other), "it was ours, and has to be let go once");
        known.lets_go(&other, Reason::NotSelected);
        assert!(known.is_anothers(&other));
        assert!(known.is_to_be_warned() && !known.is_to_be_warned(), "told once");
        other.conditions = managed(false, Reason::NotSelected);
        assert!(!known.is_anothers(&other), "nobody claims it");
        other.paused = Pause::ByUs;
        assert!(known.is_anothers(&other), "that pause is another's");
        // Handed to us again it is ours, and so it is when it is let go after that.
        known.lets_go(&Host { selected: true, ..other.clone() }, Reason::AtRest);
        assert!(!known.is_anothers(&other));
        // A pause alone is lifted before the status tells.
        known.lets_go(&other, Reason::HandedBack);
        assert!(!known.is_anothers(&other));
    }
}

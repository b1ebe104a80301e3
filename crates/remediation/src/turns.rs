//! Which member of each control plane may begin. Exclusive within this process: a member looks at the hosts of the others before its
//! key is on its own, and two that look at the same moment would both find nobody.

use std::collections::HashMap;

use api_types::time::until;
use controller_kit::engine::{ObjectKey, Shared};
use k8s_openapi::jiff::Timestamp;

use crate::decision::Decision;
use crate::history::History;
use crate::model::Observed;
use crate::reason::Reason;
use crate::request::{Request, Strategy};

/// How far the try of a member is, for the others of its control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    /// Its host is being power-cycled, or its node has time left.
    UnderWay,
    /// Its host has been on for all of its time, and nobody can see its node, or reach its host. Where etcd lacks another member, no
    /// node can be seen before that one is back; and a host may be lost to Ironic for ever.
    Unseen,
    /// Its host has been on for all of its time: another try is due, or the end.
    Due,
}

impl Try {
    /// The try that is under way on a host, of one of these requests. `well`: the health check says that the member is.
    pub fn of(history: &History, requests: &[Request], well: bool, now: Timestamp) -> Option<Self> {
        let Some(entry) = history.0.iter().find(|it| it.ended.is_none()) else {
            // One that was given up in its middle: its host may still be off, or booting.
            let last = history.0.last().filter(|it| it.was_given_up() && !well)?;
            let since = last.released.max(last.ended)?;
            return (until(since, now) < Strategy::default().timeout).then_some(Self::UnderWay);
        };
        let request = requests.iter().find(|it| it.uid == entry.remediation);
        let (Some(request), Some(_)) = (request, entry.released) else {
            return Some(Self::UnderWay);
        };
        let standing = &request.standing;
        // What is said of the try before says nothing of this one.
        let said = standing.awaits_node().filter(|_| standing.retries == entry.number);
        let Some(since) = said else { return Some(Self::UnderWay) };
        let since = entry.resumed.map_or(since, |it| since.max(it));
        let timeout = request.strategy.as_ref().copied().unwrap_or_default().timeout;
        let is_lost = |reason| matches!(reason, Reason::NodeUnseen | Reason::HostUnreachable);
        let is_unseen = standing.said.as_ref().is_some_and(|it| is_lost(it.reason));
        Some(match until(since, now) < timeout {
            true => Self::UnderWay,
            false if is_unseen => Self::Unseen,
            false => Self::Due,
        })
    }
}

/// A member that asks whether it has to wait for another one.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Whether a try is under way on its own host.
    pub is_begun: bool,
    /// Whether it has the turn: a write of its own that had no answer may still come, and it goes on, whoever else has come.
    pub has_turn: bool,
    /// Whether its name comes before the other one's.
    pub comes_first: bool,
}

impl Asking {
    /// Whether it has to wait for another member, with this try or none, which may be about to begin one.
    pub fn waits_for(self, other: Option<Try>, begins: impl FnOnce() -> bool) -> bool {
        match other {
            Some(Try::UnderWay) => true,
            Some(Try::Unseen) => false,
            // Of two whose next tries are due, one goes first.
            Some(Try::Due) => !(self.is_begun && self.comes_first),
            None => !self.is_begun && !self.has_turn && !self.comes_first && begins(),
        }
    }
}

/// Whether a request would have its host switched off now, or looks whether it is to.
pub fn is_about_to_begin(seen: &Observed, decision: &Decision) -> bool {
    let standing = &seen.request.standing;
    let is_ready = standing.said.as_ref().is_some_and(|it| it.reason == Reason::NodeReady);
    // One that has succeeded is looked at for as long as its health check complains, and nobody would have a turn meanwhile.
    let is_done = is_ready || standing.has_succeeded();
    // Other looks end without a try, and some are repeated for as long as a person does nothing.
    let begins = matches!(decision.reason, Reason::NodeReady | Reason::PowerOff);
    (decision.needs_node && begins && !is_done) || decision.sets_key()
}

/// The turns, by Cluster.
#[derive(Default)]
pub struct Turns(Shared<HashMap<ObjectKey, Turn>>);

/// A request has the turn from before it looks at the hosts of the others until its first writes are answered: from then on the
/// record on its host says it to everybody.
struct Turn {
    uid: String,
    machine: String,
}

impl Turns {
    /// Takes the turn of a Cluster for a request. Where another one has it: the Machine of that.
    pub fn take(&self, cluster: &ObjectKey, uid: &str, machine: &str) -> Option<String> {
        self.0.with(|all| {
            let turn = all
                .entry(cluster.clone())
                .or_insert_with(|| Turn { uid: uid.to_owned(), machine: machine.to_owned() });
            (turn.uid != uid).then(|| turn.machine.clone())
        })
    }

    /// Whether a request has a turn.
    pub fn has(&self, uid: &str) -> bool {
        self.0.with(|all| all.values().any(|it| it.uid == uid))
    }

    /// The turn of a request ends, if it has one.
    pub fn end(&self, uid: &str) {
        self.0.with(|all| all.retain(|_, it| it.uid != uid));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api_types::remediation::{Phase, Step};
    use controller_kit::engine::Reason as _;

    use super::*;
    use crate::decide::tests::{at, fresh, request};
    use crate::history::Entry;
    use crate::request::Standing;

    /// A member whose host is on since 10, with five minutes for its node.
    fn on(change: impl FnOnce(&mut Entry, &mut Request)) -> Option<Try> {
        let mut request = request();
        request.strategy =
            Ok(Strategy { timeout: Duration::from_secs(300), ..Strategy::default() });
        request.standing = Standing {
            phase: Some(Phase::Waiting),
            step: Some(Step::Recover),
            since: Some(at(10)),
            ..Standing::default()
        };
        let mut entry =
            Entry { released: Some(at(5)), ..Entry::begin(&request.uid, "m", 0, at(0)) };
        change(&mut entry, &mut request);
        Try::of(&History(vec![entry]), &[request], false, at(310))
    }

    /// A person may delete a request while its host is off.
    #[test]
    fn a_member_whose_try_was_given_up_keeps_the_others_for_a_while() {
        let ended = |result: Reason, well, now| {
            let entry = Entry {
                ended: Some(at(100)),
                result: Some(result.as_str().to_owned()),
                ..Entry::begin("uid", "m", 0, at(0))
            };
            Try::of(&History(vec![entry]), &[], well, at(now))
        };
        let time = i64::try_from(Strategy::default().timeout.as_secs()).unwrap();
        for result in [Reason::Withdrawn, Reason::HostUnmanaged] {
            assert_eq!(ended(result, false, 99 + time), Some(Try::UnderWay));
            assert_eq!(ended(result, false, 100 + time), None);
            assert_eq!(ended(result, true, 101), None, "well by its health check");
        }
        for result in [Reason::Recovered, Reason::NotRecovered, Reason::Exhausted] {
            assert_eq!(ended(result, false, 101), None, "{result:?}");
        }
    }

    #[test]
    fn a_member_keeps_the_others_until_its_host_was_on_for_all_its_time() {
        let says = |request: &mut Request, reason| {
            request.standing = request.standing.saying(None, reason, "");
        };
        let unseen = |request: &mut Request| says(request, Reason::NodeUnseen);
        assert_eq!(on(|_, _| ()), Some(Try::Due));
        assert_eq!(on(|_, request| unseen(request)), Some(Try::Unseen));
        assert_eq!(on(|_, it| says(it, Reason::HostUnreachable)), Some(Try::Unseen));
        for reason in [Reason::HostHeld, Reason::HostServicing] {
            assert_eq!(on(|_, it| says(it, reason)), Some(Try::Due), "it may be off");
        }
        assert_eq!(on(|_, request| request.standing.since = Some(at(11))), Some(Try::UnderWay));
        let early = |_: &mut Entry, request: &mut Request| {
            unseen(request);
            request.standing.since = Some(at(11));
        };
        assert_eq!(on(early), Some(Try::UnderWay));
        assert_eq!(on(|entry, _| entry.resumed = Some(at(20))), Some(Try::UnderWay), "a pause");
        let off = |entry: &mut Entry, request: &mut Request| {
            unseen(request);
            entry.released = None;
        };
        assert_eq!(on(off), Some(Try::UnderWay));
        let step = |step| move |_: &mut Entry, it: &mut Request| it.standing.step = Some(step);
        assert_eq!(on(step(Step::PowerOn)), Some(Try::UnderWay));
        let unsaid = |entry: &mut Entry, _: &mut Request| entry.number = 1;
        assert_eq!(on(unsaid), Some(Try::UnderWay), "it is said of the try before");
        assert_eq!(on(|_, request| request.uid = "another".to_owned()), Some(Try::UnderWay));
        let recovered = |entry: &mut Entry, _: &mut Request| {
            entry.ended = Some(at(300));
            entry.result = Some(Reason::Recovered.as_str().to_owned());
        };
        assert_eq!(on(recovered), None);
    }

    #[test]
    fn of_two_members_whose_next_tries_are_due_one_goes_first() {
        for (is_begun, comes_first) in [(true, true), (true, false), (false, true)] {
            let asking = Asking { is_begun, has_turn: false, comes_first };
            let waits = |it| asking.waits_for(Some(it), || false);
            assert!(waits(Try::UnderWay) && !waits(Try::Unseen));
            assert_eq!(waits(Try::Due), !(is_begun && comes_first));
        }
    }

    /// A machine that came up is looked at for as long as its health check complains.
    #[test]
    fn who_only_looks_at_its_node_is_not_about_to_begin() {
        let looks = |reason| is_about_to_begin(&fresh(), &Decision::look_at_node(reason));
        assert!(looks(Reason::PowerOff) && looks(Reason::NodeReady));
        assert!(!looks(Reason::HostBooting) && !looks(Reason::Withdrawn));
    }

    #[test]
    fn one_request_has_the_turn_of_a_cluster_until_it_ends() {
        let turns = Turns::default();
        let [a, b] =
            ["a", "b"].map(|it| ObjectKey { namespace: "ns".to_owned(), name: it.to_owned() });
        assert_eq!(turns.take(&a, "uid-2", "cp-2"), None);
        assert_eq!(turns.take(&a, "uid-0", "cp-0").as_deref(), Some("cp-2"));
        assert_eq!(turns.take(&a, "uid-2", "cp-2"), None, "its own, once more");
        assert_eq!(turns.take(&b, "uid-0", "cp-0"), None, "of another Cluster");
        turns.end("uid-1");
        assert!(turns.has("uid-2") && turns.has("uid-0") && !turns.has("uid-1"));
        turns.end("uid-2");
        assert_eq!(turns.take(&a, "uid-1", "cp-1"), None);
    }
}

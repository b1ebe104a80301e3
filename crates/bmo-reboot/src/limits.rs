//! Ironic and what protects it: one breaker for all hosts, turns by urgency for power calls, room for soft attempts, and
//! a way past all others for a crowd of hard requests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironic::{Class, Client, Error};
use tokio::sync::oneshot;

use crate::config::Policy;
use crate::decision::Call;
use crate::index::Name;
use crate::seen::Target;

/// Ironic, as passes speak to it.
pub struct Ironic {
    /// The client.
    pub client: Client,
    /// Open while Ironic does not answer anybody.
    pub breaker: Breaker,
    /// Turns for power calls.
    pub turns: Turns,
    /// Room for soft attempts.
    pub soft: SoftRoom,
    /// Whom everybody else lets pass.
    pub urgent: Urgent,
}

impl Ironic {
    /// Ironic within the limits of the policy.
    /// `passes` are under way at the same time.
    pub fn new(client: Client, policy: &Policy, passes: usize) -> Self {
        Self {
            client,
            breaker: Breaker::default(),
            // Little more than the client sends at once: while some write to their host, the others call. With more,
            // a call would come late after the write that justifies it.
            turns: Turns::new(policy.power_calls.min(TURNS), passes),
            soft: SoftRoom::new(policy.soft_attempts),
            urgent: Urgent::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Failures in a row after which nobody asks for a while. One node's hanging requests are not Ironic's end.
const PATIENT: u32 = 3;
/// Longest time without asking: hosts that wait to be off are tried at least every half minute.
const LONGEST: Duration = Duration::from_secs(8);

/// Keeps a thousand hosts from asking an Ironic that is not there.
#[derive(Default)]
pub struct Breaker(Mutex<Broken>);

#[derive(Default)]
struct Broken {
    failures: u32,
    /// The node that was asked about when the last failure was counted; none if it was a list.
    node: Option<String>,
    until: Option<Instant>,
    problem: String,
}

impl Breaker {
    /// Why Ironic is not asked now; nothing if it may be.
    pub fn is_open(&self) -> Option<String> {
        let broken = lock(&self.0);
        broken.until.is_some_and(|until| Instant::now() < until).then(|| broken.problem.clone())
    }

    /// Takes notice of an answer about a node, or to a question about no single one, or of its absence.
    pub fn note(&self, node: Option<&str>, error: Option<&Error>) {
        let silent = error.filter(|error| {
            matches!(
                error.class(),
                Class::Unreachable | Class::Timeout | Class::Busy | Class::Unauthorized
            )
        });
        let mut broken = lock(&self.0);
        let Some(error) = silent else {
            *broken = Broken::default();
            return;
        };
        // Requests that were under way together count once.
        if broken.until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        // That it fails again for the same node says nothing about the others, and nor do lists about the nodes.
        if broken.failures > 0 && broken.node.as_deref() == node {
            return;
        }
        broken.failures += 1;
        broken.node = node.map(str::to_owned);
        if let Some(beyond) = broken.failures.checked_sub(PATIENT) {
            let pause = Duration::from_secs(1 << beyond.min(6)).min(LONGEST);
            broken.until = Some(Instant::now() + pause);
            broken.problem = error.to_string();
        }
    }
}

/// How urgent a call is. Somebody may wait with lost data for a hard power-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Hard,
    Soft,
    On,
}

impl Urgency {
    fn of(call: Call) -> Self {
        match call {
            Call::HardOff | Call::Reset => Self::Hard,
            Call::SoftOff(_) | Call::SoftReset(_) => Self::Soft,
            Call::On => Self::On,
        }
    }
}

/// Calls that change power at the same time: a little more than Ironic's client sends.
const TURNS: usize = 8;

/// So many turns are kept for hard calls: one that comes after a wave of others finds one.
const KEPT: usize = 2;

/// So many calls at the same time; the most urgent of those that wait goes first.
pub struct Turns(Arc<Mutex<Waiting>>);

struct Waiting {
    free: usize,
    kept: usize,
    /// How many calls that are not hard may wait: each does so in the middle of its pass.
    most: usize,
    lines: [VecDeque<oneshot::Sender<Turn>>; 3],
}

impl Waiting {
    /// Who goes next, if one of the free turns is for anybody that waits.
    fn next_in_line(&mut self) -> Option<oneshot::Sender<Turn>> {
        let lines = if self.free > self.kept { 3 } else { 1 };
        self.lines.iter_mut().take(lines).find_map(VecDeque::pop_front)
    }

    /// Whether no more of those that are not hard may wait.
    fn is_full(&mut self) -> bool {
        let lesser = &mut self.lines[1..];
        for line in lesser.iter_mut() {
            line.retain(|it| !it.is_closed());
        }
        lesser.iter().map(VecDeque::len).sum::<usize>() >= self.most
    }
}

/// The right to make a call, until it is dropped.
pub struct Turn(Option<Arc<Mutex<Waiting>>>);

impl Turns {
    /// A quarter of all passes is kept from calls that are not hard, however long Ironic takes for those: a turn that is
    /// free is of no use to a hard request for which no pass is.
    fn new(most: usize, passes: usize) -> Self {
        let lesser = passes.saturating_sub((passes / 4).max(1)).max(1);
        let kept = KEPT.min(most.saturating_sub(1)).max(most.saturating_sub(lesser));
        let wait = lesser.saturating_sub(most - kept);
        let waiting = Waiting { free: most, kept, most: wait, lines: Default::default() };
        Self(Arc::new(Mutex::new(waiting)))
    }

    /// Whether a call that is not hard has to come back later.
    pub fn are_full(&self) -> bool {
        let mut waiting = lock(&self.0);
        waiting.free <= waiting.kept && waiting.is_full()
    }

    /// Waits for a turn. A call that is not hard gets none where too many wait, unless it `insists`; a soft one takes the place
    /// of the last power-on.
    pub async fn take(&self, call: Call, insists: bool) -> Option<Turn> {
        let urgency = Urgency::of(call);
        loop {
            let line = {
                let mut waiting = lock(&self.0);
                let kept = if urgency == Urgency::Hard { 0 } else { waiting.kept };
                if waiting.free > kept {
                    waiting.free -= 1;
                    return Some(Turn(Some(self.0.clone())));
                }
                if urgency != Urgency::Hard && !insists && waiting.is_full() {
                    let sent_away = match urgency {
                        Urgency::Soft => waiting.lines[Urgency::On as usize].pop_back(),
                        _ => None,
                    };
                    // Whoever waits there finds that out, and that there are too many.
                    sent_away?;
                }
                let (sender, receiver) = oneshot::channel();
                waiting.lines[urgency as usize].push_back(sender);
                receiver
            };
            if let Ok(turn) = line.await {
                return Some(turn);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(waiting) = self.0.take() else { return };
        loop {
            let next = {
                let mut waiting = lock(&waiting);
                waiting.free += 1;
                let next = waiting.next_in_line();
                waiting.free -= usize::from(next.is_some());
                next
            };
            let Some(line) = next else { return };
            match line.send(Turn(Some(waiting.clone()))) {
                Ok(()) => return,
                // Whoever does not wait any more gives it back.
                Err(mut back) => back.0 = None,
            }
        }
    }
}

/// Up to so many hard requests need the patience only of hosts whose power nobody wants cut: turns are enough for the others.
const FEW: usize = 8;

/// Up to so many hosts that wait for Ironic ask for themselves; more are looked at by one list for all.
const ALONE: usize = 8;

/// Hosts with a hard request at which no pass has looked yet, each with the version that shows it. A rack that is lost is
/// many at once, and each look at a host that waits for its power anyway would take Ironic's time from them.
#[derive(Default)]
pub struct Urgent(Mutex<HashMap<Name, String>>);

impl Urgent {
    /// Takes notice of the version in which a host is one of them, or that it is none.
    pub fn note(&self, host: &Name, version: Option<&str>) {
        let mut urgent = lock(&self.0);
        match version {
            Some(version) => urgent.insert(host.clone(), version.to_owned()),
            None => urgent.remove(host),
        };
    }

    /// This version of a host was looked at, whatever came of it: others do not wait for a host that cannot be served.
    /// A request that came meanwhile is still to be looked at.
    pub fn looked_at(&self, host: &Name, version: &str) {
        let mut urgent = lock(&self.0);
        if urgent.get(host).is_some_and(|noted| noted == version) {
            urgent.remove(host);
        }
    }

    /// Whether this host is one of them.
    pub fn has(&self, host: &Name) -> bool {
        lock(&self.0).contains_key(host)
    }

    /// Whether there are any.
    pub fn are_there(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    /// Whether there are so many that what is not urgent should wait.
    pub fn are_many(&self) -> bool {
        lock(&self.0).len() > FEW
    }

    /// Whether so many hosts wait for Ironic that one list should tell all of them: also few, while so many more are about to
    /// that the last list may just have told those who waited for it.
    pub fn are_looked_at_together(&self, watching: usize) -> bool {
        watching > ALONE || self.are_many()
    }

    /// Whether this host need not wait for them. One that is `patient` lets also a single one pass.
    pub fn let_pass(&self, host: &Name, patient: bool) -> bool {
        let urgent = lock(&self.0);
        let few = if patient { 0 } else { FEW };
        urgent.len() <= few || urgent.contains_key(host)
    }

    /// Waits until there are few, but not for long.
    pub async fn make_way(&self, patience: Duration) {
        let began = Instant::now();
        while self.are_many() && began.elapsed() < patience {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Soft attempts that are under way, each with the time at which it is over at the latest.
pub struct SoftRoom {
    most: usize,
    taken: Mutex<HashMap<String, Instant>>,
}

impl SoftRoom {
    fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    /// Whether this host may begin, or go on.
    pub fn has_room(&self, uid: &str, now: Instant) -> bool {
        let mut taken = lock(&self.taken);
        taken.retain(|_, until| *until > now);
        taken.len() < self.most || taken.contains_key(uid)
    }

    /// Takes a place for a host that begins, or goes on, where there is one.
    pub fn take(&self, uid: &str, time: Duration, now: Instant) -> bool {
        let room = self.has_room(uid, now);
        if room {
            lock(&self.taken).insert(uid.to_owned(), now + time);
        }
        room
    }

    /// Takes notice of what a node shows: an attempt of a host that was softly asked goes on while there is a target,
    /// also when another process began it.
    pub fn notice(
        &self,
        uid: &str,
        (softly, target): (bool, Option<Target>),
        slice: Duration,
        now: Instant,
    ) {
        match target {
            None => self.free(uid),
            Some(Target::Off) if softly => {
                lock(&self.taken).entry(uid.to_owned()).or_insert(now + slice);
            }
            Some(_) => {}
        }
    }

    /// The host's attempt is over.
    pub fn free(&self, uid: &str) {
        lock(&self.taken).remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: usize = 32;

    fn ironic(policy: &Policy) -> Ironic {
        let lookup =
            |name: &str| (name == "METAL3_AUTH_ROOT_DIR").then(|| "/nonexistent".to_owned());
        let settings = ironic::Settings::from_lookup(Some("http://localhost:1/"), lookup).unwrap();
        Ironic::new(Client::new(settings).unwrap(), policy, PASSES)
    }

    #[tokio::test]
    async fn the_most_urgent_call_has_the_next_connection() {
        let turns = ironic(&Policy::default()).turns;
        let mut taken = Vec::new();
        for _ in 0..TURNS {
            taken.push(turns.take(Call::HardOff, false).await);
        }
        let done = Mutex::new(Vec::new());
        let wait = async |call| {
            let turn = turns.take(call, false).await;
            lock(&done).push(call);
            drop(turn);
        };
        let soft = Call::SoftOff(Duration::from_secs(1));
        let waiting = async { tokio::join!(wait(Call::On), wait(soft), wait(Call::HardOff)) };
        let free = async {
            tokio::task::yield_now().await;
            assert!(lock(&done).is_empty(), "there are no more turns than connections");
            taken.truncate(TURNS - KEPT - 1);
        };
        tokio::join!(waiting, free);
        assert_eq!(*lock(&done), [Call::HardOff, soft, Call::On]);
    }

    #[tokio::test]
    async fn a_hard_call_finds_a_turn_behind_a_wave_of_others() {
        let turns = ironic(&Policy::default()).turns;
        let soon = async |call| {
            tokio::time::timeout(Duration::from_millis(20), turns.take(call, false)).await
        };
        let mut taken = Vec::new();
        while let Ok(turn) = soon(Call::On).await {
            taken.push(turn);
        }
        assert_eq!(taken.len(), TURNS - KEPT);
        let hard = soon(Call::HardOff).await;
        assert!(hard.is_ok() && soon(Call::On).await.is_err());
        drop((hard, taken.pop()));
        assert!(soon(Call::On).await.is_ok(), "and the others go on");
        let single = ironic(&Policy { power_calls: 1, ..Policy::default() }).turns;
        let turn =
            tokio::time::timeout(Duration::from_millis(20), single.take(Call::On, false)).await;
        assert!(turn.is_ok(), "one turn is for everybody");
    }

    #[test]
    fn calls_that_are_not_hard_leave_a_quarter_of_all_passes_to_hard_requests() {
        use futures_util::FutureExt as _;
        let on = |turns: &Turns| turns.take(Call::On, false).now_or_never();
        for (passes, lesser) in [(1, 1), (2, 1), (4, 3), (8, 6), (32, 24), (100, 75)] {
            let turns = Turns::new(TURNS, passes);
            let mut taken = Vec::new();
            while let Some(Some(turn)) = on(&turns) {
                taken.push(turn);
            }
            let mut waiting: Vec<_> = (taken.len()..lesser)
                .map(|_| {
                    let mut waits = Box::pin(turns.take(Call::On, false));
                    assert!(!turns.are_full() && waits.as_mut().now_or_never().is_none());
                    waits
                })
                .collect();
            assert!(turns.are_full() && matches!(on(&turns), Some(None)), "{passes} {lesser}");
            assert!(
                matches!(turns.take(Call::HardOff, false).now_or_never(), Some(Some(_))),
                "{passes}"
            );
            if waiting.pop().is_some() {
                assert!(on(&turns).is_none(), "{passes}: who went away leaves its place");
            }
            assert!(turns.take(Call::On, true).now_or_never().is_none(), "{passes}: it waits");
        }
    }

    #[tokio::test]
    async fn a_soft_call_is_not_behind_a_crowd_of_power_ons() {
        let turns = Turns::new(2, 4);
        let first = turns.take(Call::On, false).await.unwrap();
        let soft = Call::SoftOff(Duration::from_secs(1));
        let order = Mutex::new(Vec::new());
        let wait = async |call| {
            let turn = turns.take(call, false).await;
            lock(&order).push((call, turn.is_some()));
        };
        let later = async {
            assert!(turns.are_full());
            tokio::task::yield_now().await;
            drop(first);
        };
        // Two wait where there is room for two, and the soft one comes third.
        tokio::join!(wait(Call::On), wait(Call::On), wait(soft), later);
        assert_eq!(*lock(&order), [(Call::On, false), (soft, true), (Call::On, true)]);
    }

    #[test]
    fn one_node_that_ironic_does_not_answer_for_keeps_nobody_else_from_asking() {
        let silence = Error::too_slow("the node", Duration::from_secs(10));
        let after = |nodes: &[Option<&str>]| {
            let breaker = Breaker::default();
            for node in nodes {
                breaker.note(*node, Some(&silence));
            }
            breaker
        };
        let (one, other) = (Some("one"), Some("other"));
        assert_eq!(after(&[one; 20]).is_open(), None);
        assert_eq!(after(&[one, one, other, other]).is_open(), None, "each of two once");
        assert!(after(&[one, other, one]).is_open().is_some(), "not one node's failure any more");
        assert_eq!(after(&[None; 20]).is_open(), None, "nodes may be answered for all the same");
        assert!(after(&[None, one, None]).is_open().is_some());
        for answered in [None, one, other] {
            let breaker = after(&[one, other, one]);
            breaker.note(answered, None);
            assert_eq!(breaker.is_open(), None, "{answered:?}");
            breaker.note(one, Some(&silence));
            assert_eq!(breaker.is_open(), None, "and counts anew: {answered:?}");
        }
    }

    #[test]
    fn many_hard_requests_go_before_all_else_until_each_was_looked_at() {
        let urgent = Urgent::default();
        let host = |number: usize| ("metal".to_owned(), format!("h-{number}"));
        (0..FEW).for_each(|number| urgent.note(&host(number), Some("1")));
        assert!(urgent.let_pass(&host(100), false) && !urgent.are_many(), "few disturb nobody");
        urgent.note(&host(FEW), Some("1"));
        assert!(!urgent.let_pass(&host(100), false) && urgent.let_pass(&host(0), false));
        urgent.note(&host(FEW), Some("1"));
        urgent.note(&host(0), None);
        assert!(urgent.let_pass(&host(100), false), "one that was told of twice is one");
    }

    #[test]
    fn a_soft_request_lets_a_single_hard_one_pass() {
        let urgent = Urgent::default();
        let (soft, hard) =
            (("metal".to_owned(), "soft".to_owned()), ("metal".to_owned(), "hard".to_owned()));
        assert!(urgent.let_pass(&soft, true), "there is none");
        urgent.note(&hard, Some("1"));
        assert!(!urgent.let_pass(&soft, true) && urgent.let_pass(&soft, false));
        urgent.looked_at(&hard, "1");
        assert!(urgent.let_pass(&soft, true));
    }

    #[test]
    fn a_hard_request_that_comes_during_a_pass_is_still_to_be_looked_at() {
        let urgent = Urgent::default();
        let host = ("metal".to_owned(), "h".to_owned());
        urgent.note(&host, Some("2"));
        urgent.looked_at(&host, "1");
        assert!(urgent.are_there(), "the pass began before it");
        urgent.looked_at(&host, "2");
        assert!(!urgent.are_there());
    }

    #[test]
    fn hosts_are_looked_at_together_where_many_wait_or_are_about_to() {
        let urgent = Urgent::default();
        assert!(!urgent.are_looked_at_together(ALONE) && urgent.are_looked_at_together(ALONE + 1));
        let host = |n: usize| ("metal".to_owned(), n.to_string());
        (0..=FEW).for_each(|n| urgent.note(&host(n), Some("1")));
        assert!(urgent.are_looked_at_together(0), "a list has just told all who waited");
        assert!(urgent.has(&host(FEW)) && !urgent.has(&host(FEW + 1)));
        urgent.looked_at(&host(FEW), "1");
        assert!(!urgent.has(&host(FEW)) && !urgent.are_looked_at_together(0));
    }

    #[tokio::test]
    async fn nobody_makes_way_for_ever() {
        let urgent = Urgent::default();
        (0..=FEW).for_each(|n| urgent.note(&(String::new(), n.to_string()), Some("1")));
        let began = Instant::now();
        urgent.make_way(Duration::from_millis(120)).await;
        assert!(urgent.are_many() && began.elapsed() >= Duration::from_millis(120));
    }

    #[test]
    fn a_soft_attempt_that_another_process_began_takes_a_place() {
        let policy = Policy { soft_attempts: 1, ..Policy::default() };
        let room = ironic(&policy).soft;
        let (now, slice) = (Instant::now(), Duration::from_secs(60));
        room.notice("a", (true, Some(Target::Off)), slice, now);
        assert!(!room.has_room("b", now) && room.has_room("a", now));
        room.notice("a", (true, None), slice, now);
        assert!(room.has_room("b", now), "it is over");
        room.notice("a", (false, Some(Target::Off)), slice, now);
        room.notice("a", (true, Some(Target::On)), slice, now);
        assert!(room.has_room("b", now), "the power is cut, or returns");
    }
}

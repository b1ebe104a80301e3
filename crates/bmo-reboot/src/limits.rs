//! Ironic and what protects it: one breaker for all hosts, turns by urgency for power calls, room for soft attempts.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironic::{Class, Client, Error, PowerTarget};
use tokio::sync::oneshot;

use crate::config::Policy;
use crate::decision::{Answer, Call};
use crate::observe::Target;

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
}

impl Ironic {
    /// Ironic within the limits of the policy.
    pub fn new(client: Client, policy: &Policy) -> Self {
        Self {
            client,
            breaker: Breaker::default(),
            // Whoever has a turn must not queue for a connection behind calls that are less urgent, so late after the
            // write that justifies the call.
            turns: Turns::new(policy.power_calls.min(ironic::CONNECTIONS)),
            soft: SoftRoom::new(policy.soft_attempts),
        }
    }

    /// Asks for a change of power, once.
    pub async fn change(&self, uid: &str, node: &str, call: Call) -> Answer {
        if let Call::SoftOff(time) | Call::SoftReset(time) = call
            && !self.soft.take(uid, time, Instant::now())
        {
            return Answer::NoRoom;
        }
        let target = match call {
            Call::HardOff => PowerTarget::Off,
            Call::SoftOff(time) => PowerTarget::SoftOff(time),
            Call::On => PowerTarget::On,
            Call::Reset => PowerTarget::Reboot,
            Call::SoftReset(time) => PowerTarget::SoftReboot(time),
        };
        let result = self.client.set_power(node, target).await;
        self.breaker.note(result.as_ref().err());
        let answer = result.map_or_else(|error| meaning(&error), |()| Answer::Accepted);
        if !matches!(answer, Answer::Accepted | Answer::Unknown) {
            self.soft.free(uid);
        }
        answer
    }
}

/// What an error of Ironic says about the host. Only a refusal is the host's own.
fn meaning(error: &Error) -> Answer {
    if error.maybe_done() {
        return Answer::Unknown;
    }
    // Whatever its words: a conflict is one with the moment, and the next pass reads what it is about.
    if error.status() == Some(409) {
        return Answer::Busy(error.text().to_owned());
    }
    match error.class() {
        Class::Locked | Class::WrongState => Answer::Busy(error.text().to_owned()),
        Class::Unsupported => Answer::Unsupported,
        Class::Refused => Answer::Refused(error.text().to_owned()),
        // The next pass reads that the node is gone.
        Class::NotFound => Answer::Unknown,
        _ => Answer::Unreachable(error.to_string()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Failures in a row after which nobody asks for a while. One host's hanging request is not Ironic's end.
const PATIENT: u32 = 3;
/// Longest time without asking: hosts that wait to be off are tried at least every half minute.
const LONGEST: Duration = Duration::from_secs(8);

/// Keeps a thousand hosts from asking an Ironic that is not there.
#[derive(Default)]
pub struct Breaker(Mutex<Broken>);

#[derive(Default)]
struct Broken {
    failures: u32,
    until: Option<Instant>,
    problem: String,
}

impl Breaker {
    /// Why Ironic is not asked now; nothing if it may be.
    pub fn is_open(&self) -> Option<String> {
        let broken = lock(&self.0);
        broken.until.is_some_and(|until| Instant::now() < until).then(|| broken.problem.clone())
    }

    /// Takes notice of an answer, or of its absence.
    pub fn note(&self, error: Option<&Error>) {
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
        broken.failures += 1;
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

/// So many calls at the same time; the most urgent of those that wait goes first.
pub struct Turns(Arc<Mutex<Waiting>>);

struct Waiting {
    free: usize,
    lines: [VecDeque<oneshot::Sender<Turn>>; 3],
}

/// The right to make a call, until it is dropped.
pub struct Turn(Option<Arc<Mutex<Waiting>>>);

impl Turns {
    fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Waiting { free: most, lines: Default::default() })))
    }

    /// Waits for a turn.
    pub async fn take(&self, call: Call) -> Turn {
        loop {
            let line = {
                let mut waiting = lock(&self.0);
                if waiting.free > 0 {
                    waiting.free -= 1;
                    return Turn(Some(self.0.clone()));
                }
                let (sender, receiver) = oneshot::channel();
                waiting.lines[Urgency::of(call) as usize].push_back(sender);
                receiver
            };
            if let Ok(turn) = line.await {
                return turn;
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
                let next = waiting.lines.iter_mut().find_map(VecDeque::pop_front);
                if next.is_none() {
                    waiting.free += 1;
                }
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

    fn take(&self, uid: &str, time: Duration, now: Instant) -> bool {
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

    fn ironic(policy: &Policy) -> Ironic {
        let lookup =
            |name: &str| (name == "METAL3_AUTH_ROOT_DIR").then(|| "/nonexistent".to_owned());
        let settings = ironic::Settings::from_lookup(Some("http://localhost:1/"), lookup).unwrap();
        Ironic::new(Client::new(settings).unwrap(), policy)
    }

    #[tokio::test]
    async fn the_most_urgent_call_has_the_next_connection() {
        let turns = ironic(&Policy::default()).turns;
        let mut taken = Vec::new();
        for _ in 0..ironic::CONNECTIONS {
            taken.push(turns.take(Call::On).await);
        }
        let done = Mutex::new(Vec::new());
        let wait = async |call| {
            let turn = turns.take(call).await;
            lock(&done).push(call);
            drop(turn);
        };
        let soft = Call::SoftOff(Duration::from_secs(1));
        let waiting = async { tokio::join!(wait(Call::On), wait(soft), wait(Call::HardOff)) };
        let free = async {
            tokio::task::yield_now().await;
            assert!(lock(&done).is_empty(), "there are no more turns than connections");
            taken.pop();
        };
        tokio::join!(waiting, free);
        assert_eq!(*lock(&done), [Call::HardOff, soft, Call::On]);
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

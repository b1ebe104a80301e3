//! The world of `remediation`: a request, its Machine, host and node; an operator that switches the host some time; people
//! who withdraw, delete, take away and pause at any moment; and replicas that act on what they read some time ago.
//!
//! Times are told apart only as far as decisions do: a moment is just now, or longer ago than any deadline. Versions are
//! not counted: a replica remembers which objects others wrote since it read them.

mod beginning;
mod members;
mod worlds;

use api_types::remediation::Phase;
use k8s_openapi::jiff::Timestamp;
use remediation::decide::decide;
use remediation::decision::Act;
use remediation::history::History;
use remediation::model::{Ahead, ClusterSeen, Metal, Observed};
use remediation::reason::Reason;
use remediation::request::{Backup, Request, Standing};
use remediation::seen::{Host, Machine, Node, NodeSeen, Taint};
use remediation::settings::Policy;
use stateright::{Model, Property};

use beginning::{LABELS, host, machine, node, request};

pub use worlds::{beside, large, small, world};

const NOW: i64 = 1_800_000_000;
const LONG: i64 = 1_000_000;
const LIMIT: u32 = 1;

/// How large a world is, and how much may go wrong in it.
#[derive(Clone, Copy)]
pub struct Size {
    /// Replicas without a lease.
    pub replicas: usize,
    /// Stops of a replica, and things that people do, in all.
    pub mishaps: u8,
    /// Whether the node comes back when its host is on.
    pub returns: bool,
    /// Whether the node is deleted while its host is off, and not tainted.
    pub deletes: bool,
    /// Whether the host is off before it is asked for, and nobody writes down that its power was read, but for taking the plain
    /// key away.
    pub unread: bool,
}

#[derive(Clone)]
struct Site {
    size: Size,
    policy: Policy,
}

/// Objects that a write can be too late for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Request,
    Host,
    Node,
    Machine,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Replica {
    /// What is still to be written of the last decision.
    acts: Vec<Act>,
    /// What others wrote since it read.
    old: [bool; 4],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "so many independent facts")]
struct State {
    request: Option<Request>,
    machine: Machine,
    paused: bool,
    host: Host,
    /// Whether the machine really runs; the host's status says what it was when the operator last looked.
    runs: bool,
    node: Node,
    /// Whether there is no node of this name: it was deleted, and no kubelet has made another.
    gone: bool,
    /// Whether the request let go when its successor had not come in time.
    given_up: bool,
    boots: u8,
    away: bool,
    was_away: bool,
    replicas: Vec<Replica>,
    mishaps: u8,
    /// Whether another member of its control plane goes first.
    member: bool,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read(usize),
    Go(usize),
    Stop(usize),
    Switch,
    Report,
    Release,
    Boot,
    Age,
    Withdraw,
    DeleteMachine,
    TakeHost,
    Pause,
    Resume,
    Away,
    Back,
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap_or_default()
}

fn long_ago() -> Timestamp {
    Timestamp::from_second(NOW - LONG).unwrap_or_default()
}

/// Whether a phase may come after another one. A pass that is cut off between the key and the phase may be followed by one
/// that finds the host back.
fn may_follow(from: Option<&Phase>, to: Option<&Phase>, tried: bool) -> bool {
    let Some(to) = to else { return false };
    match from {
        None => *to == Phase::Running || (*to == Phase::Waiting && tried),
        Some(Phase::Running) => [Phase::Waiting, Phase::DeletingMachine].contains(to),
        Some(Phase::Waiting) => [Phase::Running, Phase::DeletingMachine].contains(to),
        Some(_) => false,
    }
}

impl State {
    fn observed(&self, request: &Request, look: bool) -> Observed {
        let node = match (look, self.away) {
            (false, _) => NodeSeen::NotAsked,
            (true, true) => NodeSeen::NoAccess("away".to_owned()),
            (true, false) if self.gone => NodeSeen::Gone,
            (true, false) => NodeSeen::Here(self.node.clone()),
        };
        Observed {
            request: request.clone(),
            rival: false,
            member: self.member.then(|| Ahead::Trying("another".to_owned())),
            only_member: false,
            machine: Some(self.machine.clone()),
            cluster: ClusterSeen::Here { paused: self.paused },
            metal: Some(Metal { paused: false, host: Some("h".to_owned()) }),
            host: Some(self.host.clone()),
            stray: None,
            node,
            is_watched: false,
            resumed: None,
            started: None,
        }
    }

    fn wrote(&mut self, object: Object, by: Option<usize>) {
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            if Some(index) != by && !replica.acts.is_empty() {
                replica.old[object as usize] = true;
            }
        }
    }

    fn breaks(&mut self, rule: &'static str, is_broken: bool) {
        if is_broken {
            self.broken = self.broken.or(Some(rule));
        }
    }

    fn read(&mut self, site: &Site, index: usize) {
        let Some(request) = self.request.clone() else { return };
        let mut decision = decide(&self.observed(&request, false), &site.policy, now());
        if decision.needs_node {
            decision = decide(&self.observed(&request, true), &site.policy, now());
        }
        self.breaks("nothing is decided while paused", self.paused && !decision.acts.is_empty());
        let blamed = decision.reason == Reason::PowerOffTimedOut && !self.host.powered_on;
        self.breaks("no try fails for a host that is not off while it shows off", blamed);
        let is_awaited = request.standing.awaits_node().is_some() && !self.host.held;
        let is_judged = decision.acts.iter().any(|it| match it {
            Act::Host(write) => write.key == Some(true) || write.mark,
            act => matches!(act, Act::TellOwner(_)),
        });
        let is_given_up = self.host.history.is_exhausted("uid");
        let blindly = self.away && is_awaited && is_judged && !is_given_up;
        self.breaks("a node that cannot be seen is no verdict", blindly);
        if decision.acts.contains(&Act::RemoveFinalizer) {
            self.lets_go(&request);
        }
        self.replicas[index] = Replica { acts: decision.acts, old: [false; 4] };
    }

    /// A successor that does not come is waited for, unless its machine goes as well.
    fn lets_go(&mut self, request: &Request) {
        if request.backup.is_none() || !self.gone || self.away {
            return;
        }
        let since = request.standing.since.max(request.deleting);
        let early = self.machine.deleting.is_none() && since != Some(long_ago());
        self.breaks("the successor of a deleted node is waited for", early);
        self.given_up = true;
    }

    /// The next write of a replica. One that is too late ends the pass.
    fn go(&mut self, index: usize) {
        let act = self.replicas[index].acts.remove(0);
        let object = match &act {
            Act::Host(_) => Object::Host,
            Act::Taint | Act::Untaint | Act::DeleteNode | Act::Restore(_) => Object::Node,
            Act::TellOwner(_) | Act::Settled | Act::Complain(..) | Act::DeleteMachine => {
                Object::Machine
            }
            _ => Object::Request,
        };
        let late = self.replicas[index].old[object as usize];
        let unreachable = object == Object::Node && self.away;
        if late || unreachable || !self.write(act) {
            self.replicas[index].acts.clear();
            return;
        }
        self.wrote(object, Some(index));
    }

    /// Whether the write was taken.
    fn write(&mut self, act: Act) -> bool {
        match act {
            Act::Host(write) => {
                let host = &mut self.host;
                host.held = write.key.unwrap_or(host.held);
                if write.key.is_some() {
                    host.read_off = false;
                }
                host.marked |= write.mark;
                host.online &= !write.offline;
                if let Some(mut history) = write.history {
                    // What ended decides nothing any more, but for how the last one did.
                    let mut last = history.0.split_off(history.0.len().saturating_sub(1));
                    for entry in &mut last {
                        entry.ended = entry.ended.map(|_| long_ago());
                        entry.off = None;
                        entry.fenced = None;
                        entry.cause = None;
                    }
                    host.history = History(last);
                }
                let foreign = !self.host.ours && (write.key == Some(true) || write.mark);
                self.breaks("nobody else's host is touched", foreign);
            }
            Act::Taint => {
                // No version of the node says whether its host is still off: a second process without a lease can be
                // late, and then the taint goes when the node is ready.
                let late = self.runs && self.replicas.len() == 1;
                self.breaks("a node is taken out of service only while its host is off", late);
                self.breaks("an off that nobody has read is no fence", self.is_unread());
                self.node.taint = Taint::Ours;
            }
            Act::Untaint => self.node.taint = Taint::None,
            Act::TellOwner(_) => {
                let marked = self.host.marked || !self.host.ours;
                self.breaks("a host is marked before its owner is told", !marked);
                self.machine.told = true;
            }
            Act::Say(standing) => {
                let Some(request) = &mut self.request else { return false };
                let tried = self.host.history.last(&request.uid).is_some();
                let (from, to) = (request.standing.phase.as_ref(), standing.phase.as_ref());
                let strays = from != to && !may_follow(from, to, tried);
                // When a try began is for people.
                let last = standing.last.map(|_| long_ago());
                request.standing = Standing { last, ..standing };
                self.breaks("phases move only along the diagram", strays);
            }
            Act::BackUp(backup) => {
                let Some(request) = &mut self.request else { return false };
                let twice = request.backup.replace(backup).is_some();
                self.breaks("what a node had is kept once", twice);
            }
            Act::DeleteNode => {
                let kept = self.request.as_ref().is_some_and(|it| it.backup.is_some());
                self.breaks("a node is deleted when what it had is kept", !kept);
                let late = self.runs && self.replicas.len() == 1;
                self.breaks("a node is deleted only while its host is off", late);
                self.breaks("an off that nobody has read is no fence", self.is_unread());
                self.gone = true;
                self.node.ready = false;
                self.node.backup = Backup::default();
            }
            Act::Restore(_) if self.gone => return false,
            Act::Restore(backup) => self.node.backup = backup,
            Act::AddFinalizer => {
                let Some(request) = &mut self.request else { return false };
                if request.deleting.is_some() {
                    return false;
                }
                request.finalizer = true;
            }
            Act::RemoveFinalizer => {
                let Some(request) = &mut self.request else { return false };
                request.finalizer = false;
                request.backup = None;
                if request.deleting.is_some() {
                    self.request = None;
                }
            }
            // Of a Machine that a health check looks at, or that nobody owns.
            Act::Settled | Act::Await | Act::Complain(..) | Act::DeleteMachine => {
                self.breaks("nothing is written for which there is no reason here", true);
            }
        }
        true
    }

    /// Whether the host may have been off before it was asked for, and nobody has looked since. A second process without a
    /// lease may be late.
    fn is_unread(&self) -> bool {
        let was_on = self.host.history.open("uid").is_some_and(|it| it.was_on);
        !self.host.looked_at && !self.host.read_off && !was_on && self.replicas.len() == 1
    }

    /// Everything that is remembered was long ago.
    fn age(&mut self) {
        let old = |stamp: &mut Option<Timestamp>| *stamp = stamp.map(|_| long_ago());
        if let Some(request) = &mut self.request {
            old(&mut request.deleting);
            old(&mut request.standing.since);
        }
        for entry in &mut self.host.history.0 {
            entry.asked = long_ago();
            old(&mut entry.released);
        }
    }

    fn wanted(&self) -> bool {
        self.host.online && !self.host.held
    }

    fn says(&self, reason: Reason) -> bool {
        let standing = self.request.as_ref().map(|it| &it.standing);
        standing.and_then(|it| it.said.as_ref()).is_some_and(|it| it.reason == reason)
    }

    fn is_at_rest(&self) -> bool {
        let done = self.request.as_ref().is_none_or(|it| {
            let standing = &it.standing;
            let ended = standing.has_succeeded()
                || standing.is_over()
                || !self.host.ours
                || self.machine.deleting.is_some();
            !it.finalizer && ended
        });
        let node = self.node.taint == Taint::None || self.was_away || self.replicas.len() > 1;
        done && node && !self.host.held && self.runs == self.host.online
    }

    /// Whether a node that is there has what it had before it was deleted, or the request could not see to it.
    fn is_given_back(&self) -> bool {
        let excused = self.given_up || self.was_away || self.machine.deleting.is_some();
        self.gone || excused || self.node.backup.labels == LABELS
    }
}

impl Model for Site {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // The status may be old: the host runs and is said to be off.
        let each =
            if self.size.unread { vec![(false, false)] } else { vec![(true, true), (true, false)] };
        each.into_iter()
            .map(|(runs, shown)| State {
                request: Some(request()),
                machine: machine(),
                paused: false,
                host: Host {
                    looked_at: !self.size.unread,
                    has_room: self.size.unread,
                    ..host(shown)
                },
                runs,
                node: node(),
                gone: false,
                given_up: false,
                boots: 0,
                away: false,
                was_away: false,
                replicas: vec![Replica::default(); self.size.replicas],
                mishaps: 0,
                member: false,
                broken: None,
            })
            .collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mishap = state.mishaps < self.size.mishaps;
        for (index, replica) in state.replicas.iter().enumerate() {
            if replica.acts.is_empty() {
                actions.push(Action::Read(index));
            } else {
                actions.push(Action::Go(index));
                if mishap {
                    actions.push(Action::Stop(index));
                }
            }
        }
        let always = [Action::Switch, Action::Report, Action::Release, Action::Boot, Action::Age];
        actions.extend(always);
        if state.paused {
            actions.push(Action::Resume);
        }
        if state.away {
            actions.push(Action::Back);
        }
        if mishap {
            actions.extend([
                Action::Withdraw,
                Action::DeleteMachine,
                Action::TakeHost,
                Action::Pause,
                Action::Away,
            ]);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let mishap = matches!(
            action,
            Action::Stop(_)
                | Action::Withdraw
                | Action::DeleteMachine
                | Action::TakeHost
                | Action::Pause
                | Action::Away
        );
        match action {
            Action::Read(index) => state.read(self, index),
            Action::Go(index) => state.go(index),
            Action::Stop(index) => state.replicas[index] = Replica::default(),
            Action::Switch => {
                state.runs = state.wanted();
                if !state.runs {
                    state.node.ready = false;
                }
            }
            Action::Report => {
                state.host.powered_on = state.runs;
                let tries = &state.host.history;
                let is_asked =
                    tries.open("uid").is_some_and(|it| it.beside && it.released.is_none());
                state.host.read_off = is_asked && state.host.held && !state.runs;
                if state.host != before.host {
                    state.wrote(Object::Host, None);
                }
            }
            Action::Release => {
                // What every process looks for: a key whose record names a request that is gone.
                if state.request.is_some() || !state.host.held {
                    return None;
                }
                state.host.history.open("uid")?;
                state.host.held = false;
                state.host.history = state.host.history.ended("uid", Reason::Withdrawn, long_ago());
                state.wrote(Object::Host, None);
            }
            Action::Boot => {
                // Once for each time that it was off.
                let silent = !state.node.ready;
                if !state.runs || !self.size.returns || !silent || state.boots >= 3 {
                    return None;
                }
                state.boots += 1;
                // One that was deleted is made anew, and has nothing of its administrator's.
                state.gone = false;
                state.node.kubelet = state.boots.to_string();
                state.node.ready = true;
                state.wrote(Object::Node, None);
            }
            // Longer than the operator takes to look at the power, and to switch it.
            Action::Age if state.runs != state.host.powered_on => return None,
            Action::Age => state.age(),
            Action::Withdraw => {
                let request = state.request.as_mut()?;
                if request.finalizer {
                    request.deleting.get_or_insert(now());
                } else {
                    state.request = None;
                }
                state.wrote(Object::Request, None);
            }
            Action::DeleteMachine => {
                state.machine.deleting.get_or_insert(long_ago());
                state.wrote(Object::Machine, None);
            }
            Action::TakeHost => {
                state.host.ours = false;
                state.wrote(Object::Host, None);
            }
            Action::Pause => state.paused = true,
            Action::Resume => state.paused = false,
            Action::Away => (state.away, state.was_away) = (true, true),
            Action::Back => state.away = false,
        }
        if state == *before {
            return None;
        }
        state.mishaps += u8::from(mishap);
        Some(state)
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Read(replica) => format!("replica-{replica}  reads and decides"),
            Action::Go(replica) => format!("replica-{replica}  goes on"),
            Action::Stop(replica) => format!("replica-{replica}  is stopped and started"),
            Action::Switch => "operator   switches the machine".to_owned(),
            Action::Report => "operator   says whether it is on".to_owned(),
            Action::Release => "somebody   releases a host whose request is gone".to_owned(),
            Action::Boot => "kubelet    starts".to_owned(),
            Action::Age => "time       passes".to_owned(),
            other => format!("people     {other:?}"),
        }
    }

    fn format_step(&self, before: &State, action: Action) -> Option<String> {
        let after = self.next_state(before, action)?;
        let standing = after.request.as_ref().map(|it| {
            let said = it.standing.said.as_ref().map(|said| said.reason);
            (it.finalizer, it.standing.retries, it.standing.step.clone(), said)
        });
        let acts: Vec<&Vec<Act>> = after.replicas.iter().map(|it| &it.acts).collect();
        Some(format!(
            "request {standing:?}, held {}, shown on {}, runs {}, node gone {}, taint {:?}; to write {acts:?}",
            after.host.held, after.host.powered_on, after.runs, after.gone, after.node.taint
        ))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("no rule of the moment is broken", |_, state: &State| {
                state.broken.is_none()
            }),
            Property::always(
                "a host is held only for a request that lets go",
                |_, state: &State| {
                    let kept = state.request.as_ref().is_some_and(|it| it.finalizer);
                    !state.host.held || kept
                },
            ),
            Property::always("retries stay within the limit", |_, state: &State| {
                state.request.as_ref().is_none_or(|it| it.standing.retries <= LIMIT)
            }),
            Property::always("no taint outlives its request", |_, state: &State| {
                let kept = state.request.as_ref().is_some_and(|it| it.finalizer);
                let alone = state.replicas.len() == 1;
                kept || !alone || state.node.taint == Taint::None || state.was_away
            }),
            Property::always("no backup is left", |_, state: &State| {
                state.request.as_ref().is_none_or(|it| it.finalizer || it.backup.is_none())
            }),
            Property::always("a deleted node is restored", |_, state: &State| {
                state.request.as_ref().is_some_and(|it| it.finalizer) || state.is_given_back()
            }),
        ];
        if self.size.deletes {
            all.push(Property::sometimes("a node is deleted", |_, state: &State| state.gone));
        }
        if self.size.returns {
            all.push(Property::sometimes("a node comes back", |_, state: &State| {
                state.says(Reason::Recovered)
            }));
        } else {
            all.push(Property::sometimes("a machine is handed over", |_, state: &State| {
                state.says(Reason::Exhausted)
            }));
        }
        all
    }
}

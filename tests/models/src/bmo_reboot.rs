//! `bmo-reboot`'s world: a host, its machine behind Ironic, clients that add, change and remove requests, and replicas
//! that act on what they read some time ago.
//!
//! A replica looks at the node itself, or rests on a list of all nodes that began after all that it knows.
//!
//! Times are told apart only as far as decisions do: which stamp is later, and whether a step is fresh, old, or older
//! than all patience. Versions are not counted: a replica remembers whether the host changed since its last write.

mod machine;
mod reading;

use std::time::Duration;

use bench::model::{Progress, explore};
use bmo_reboot::decide::decide;
use bmo_reboot::model::{Answer, Call, Change, Decision, OffProof, Write};
use bmo_reboot::reason::Reason;
use bmo_reboot::record::RebootProgress;
use bmo_reboot::settings::Policy;
use bmo_reboot::settle::settle;
use controller_kit::engine::{Next, Reason as _};
use ironic::Power;
use stateright::{Model, Property};

use crate::World;
use machine::{Hidden, Machine, Taken, is_more, proof};
use reading::{Known, at, seen};

const NOW: i64 = 1_000_000;
const KEYS: [&str; 3] = ["reboot.metal3.io", "reboot.metal3.io/a", "reboot.metal3.io/b"];
/// Seconds for which a step has lasted: just now, longer than a slice, longer than all slices.
const AGES: [i64; 3] = [0, 61, 400];

/// How large a world is, and how much may go wrong in it.
#[derive(Clone, Copy)]
pub struct Size {
    /// Replicas without a lease.
    pub replicas: u8,
    /// Clients: the first makes the plain request, the others hold.
    pub clients: u8,
    /// Requests made, changed or withdrawn in all.
    pub changes: u8,
    /// Stops, refusals of the machine, and calls of which the answer is lost, in all.
    pub mishaps: u8,
}

#[derive(Clone)]
struct Rack {
    size: Size,
    policy: Policy,
}

/// A request: not there, soft or hard.
type Ask = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stamps {
    None,
    Accepted,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Told {
    rebooting: bool,
    reason: Reason,
    hard: bool,
    age: u8,
    /// Who is told to hold the host off.
    held: Holds,
}

/// Which of the clients hold the host.
type Holds = [bool; 2];

/// What the API server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stored {
    asks: [Ask; 3],
    stamps: Stamps,
    powered_on: bool,
    told: Option<Told>,
    failed: bool,
}

/// What a replica is about to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Idle,
    Annotate(Box<Plan>),
    Write(Box<Plan>),
    Call(Box<Plan>),
    Settle(Box<Plan>, Answer),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Plan {
    removes: Vec<usize>,
    status: Change,
    call: Option<Call>,
    /// The host as this replica knows it, its own writes included.
    host: Stored,
    node: Machine,
    proof: OffProof,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Replica {
    stage: Stage,
    /// Whether somebody else wrote since.
    old: bool,
    /// Whether it has read the machine as off before, and long enough ago.
    off_before: bool,
    taken: Option<Taken>,
    known: Known,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    host: Stored,
    machine: Machine,
    replicas: Vec<Replica>,
    changes: u8,
    mishaps: u8,
    /// Whether somebody has used the machine's button.
    pressed: bool,
    /// Whether the power was cut, or asked to be, for the request that was accepted last.
    cut: bool,
    /// How often the machine went off since a request was accepted last; only of one replica, and more than twice is twice.
    offs: u8,
    /// Rules that were seen broken, where the moment counts.
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ask(u8, Ask),
    Read(u8),
    List(u8),
    ReadListed(u8),
    Go(u8),
    Lose(u8),
    Stop(u8),
    Obey,
    Refuse,
    Press,
    Linger,
    Close,
    Age,
}

/// Who holds a host that is asked so.
fn holds(asks: [Ask; 3]) -> Holds {
    [asks[1] > 0, asks[2] > 0]
}

/// For whom a host is told to be held off.
fn held(stored: &Stored) -> Holds {
    stored.told.filter(|told| told.reason == Reason::HeldOff).map_or([false; 2], |told| told.held)
}

fn apply(stored: &mut Stored, change: &Change) {
    if let Some(on) = change.powered_on {
        stored.powered_on = on;
    }
    if change.pending.is_some() {
        stored.stamps = Stamps::Accepted;
    }
    if change.last.is_some() {
        stored.stamps = Stamps::Done;
    }
    if let Some(RebootProgress { rebooting, reason, since, hard, held, .. }) = &change.progress {
        let (rebooting, reason, hard) = (*rebooting, *reason, *hard);
        let held = [held.names(KEYS[1]), held.names(KEYS[2])];
        let known = stored.told.filter(|told| told.reason == reason);
        let age = known.filter(|told| *since == at(-AGES[usize::from(told.age)]));
        let age = age.map_or(0, |told| told.age);
        stored.told = Some(Told { rebooting, reason, hard, age, held });
    }
    if let Some(trouble) = &change.trouble {
        stored.failed = trouble.is_some();
    }
}

/// The first thing that a plan has to do.
fn staged(plan: Plan) -> Stage {
    if !plan.removes.is_empty() {
        Stage::Annotate(Box::new(plan))
    } else if !plan.status.is_empty() {
        Stage::Write(Box::new(plan))
    } else if plan.call.is_some() {
        Stage::Call(Box::new(plan))
    } else {
        Stage::Idle
    }
}

impl Rack {
    fn plan(decision: Decision, host: Stored, (node, proof): (Machine, OffProof)) -> Stage {
        let write = decision.writes.into_iter().next().unwrap_or_default();
        let Write { annotations, mut status, call, .. } = *write;
        let removes = KEYS.iter().enumerate().filter(|(_, key)| annotations.contains_key(**key));
        // Texts are of no consequence, and the other facts of the record would only make states differ.
        if let Some(progress) = &mut status.progress {
            let RebootProgress { rebooting, reason, since, hard, ref held, .. } = *progress;
            let held = held.clone();
            let step = RebootProgress::new(reason, since);
            *progress = RebootProgress { rebooting, hard, held, ..step };
        }
        (status.managed, status.was_provisioned, status.told) = (None, None, String::new());
        if let Some(Some(trouble)) = &mut status.trouble {
            trouble.count = 1;
        }
        staged(Plan {
            removes: removes.map(|(index, _)| index).collect(),
            status,
            call,
            host,
            node,
            proof,
        })
    }
}

impl State {
    fn stored(&mut self, by: Option<u8>, change: impl FnOnce(&mut Stored)) {
        let before = self.host;
        change(&mut self.host);
        if self.host == before {
            return;
        }
        for (index, replica) in (0..).zip(&mut self.replicas) {
            replica.known = Known::default();
            replica.old |= Some(index) != by && replica.stage != Stage::Idle;
        }
    }

    /// A replica decides on what it has read of the node.
    fn decides(&mut self, rack: &Rack, index: u8, machine: Machine) {
        let host = self.host;
        let replica = &mut self.replicas[usize::from(index)];
        let proof = proof(&mut replica.taken, &host, machine);
        let observed = seen(&host, machine, replica.off_before, proof);
        let decision = decide(&observed, &rack.policy, at(0));
        let waits = matches!(decision.next, Next::After(_)) && !machine.is_closing();
        replica.off_before = machine.shows_off() && (replica.off_before || waits);
        replica.known = Known::default();
        replica.stage = Rack::plan(decision, host, (machine, proof));
        replica.old = false;
    }

    fn breaks(&mut self, rule: &'static str, is_broken: bool) {
        if is_broken {
            self.broken = self.broken.or(Some(rule));
        }
    }

    /// Ironic takes a call, or does not.
    fn call(&mut self, call: Call) -> Answer {
        if self.machine.target.is_some() {
            return Answer::Busy(String::new());
        }
        let (target, soft) = match call {
            Call::On => (Power::On, false),
            Call::SoftOff(_) | Call::SoftReboot(_) => (Power::Off, true),
            Call::Off | Call::Reboot => (Power::Off, false),
        };
        // It looks at the machine, which it takes for off while that shuts down.
        self.machine.error = false;
        self.machine.hidden = self.machine.hidden.filter(|it| *it == Hidden::Closing);
        if !(self.machine.is_closing() && target == Power::Off)
            && self.machine.on != (target == Power::On)
        {
            self.machine.target = Some((target, soft));
        }
        Answer::Accepted
    }

    /// The next step of a replica's pass; nothing if it cannot be made.
    fn go(&mut self, rack: &Rack, index: u8, lose: bool) {
        let replica = &mut self.replicas[usize::from(index)];
        let old = replica.old;
        // What Ironic said is as old as the reading. One that acts alone changes nothing in between.
        let alone = rack.size.replicas == 1;
        let stage = std::mem::replace(&mut replica.stage, Stage::Idle);
        let next = match stage {
            Stage::Idle => Stage::Idle,
            Stage::Annotate(_) | Stage::Write(_) | Stage::Settle(..) if old => Stage::Idle,
            Stage::Annotate(mut plan) => {
                // A second replica may have switched it on since, which then answers the request.
                let machine = if alone { self.machine } else { plan.node };
                let on = machine.on && machine.hidden != Some(Hidden::Started);
                self.breaks("a request goes only when the machine is off", on);
                for remove in std::mem::take(&mut plan.removes) {
                    self.breaks("nobody's hold is removed", remove != 0);
                    plan.host.asks[remove] = 0;
                    self.stored(Some(index), |host| host.asks[remove] = 0);
                }
                staged(*plan)
            }
            Stage::Write(mut plan) => {
                let status = std::mem::take(&mut plan.status);
                let asked = self.host.asks.iter().any(|ask| *ask > 0);
                self.breaks(
                    "power returns to a host that nobody holds",
                    status.last.is_some() && asked,
                );
                let off = status.powered_on == Some(false);
                self.breaks(
                    "off is said only of a machine that is off",
                    off && self.machine.on && alone,
                );
                let told = status.progress.as_ref().filter(|it| it.reason == Reason::HeldOff);
                let news = told.is_some_and(|told| {
                    let told = [told.held.names(KEYS[1]), told.held.names(KEYS[2])];
                    is_more(told, held(&self.host))
                });
                self.breaks(
                    "nobody is told to hold a machine off that runs",
                    news && self.machine.on && alone,
                );
                if status.pending.is_some() {
                    let again = self.host.stamps == Stamps::Accepted;
                    self.breaks("no request is accepted in the cycle of another one", again);
                    (self.cut, self.offs) = (false, 0);
                }
                apply(&mut plan.host, &status);
                self.stored(Some(index), |host| apply(host, &status));
                staged(*plan)
            }
            Stage::Call(plan) => {
                let Some(call) = plan.call else { return };
                self.replicas[usize::from(index)].known = Known::default();
                if matches!(call, Call::SoftOff(_)) && self.machine.target.is_none() {
                    let cycle = self.host.stamps == Stamps::Accepted && !self.pressed;
                    let cut = self.cut && cycle && self.machine.on;
                    self.breaks("soft never follows hard", cut && alone);
                }
                let answer = self.call(call);
                self.cut |= call == Call::Off && answer == Answer::Accepted;
                let taken = &mut self.replicas[usize::from(index)].taken;
                let off = matches!(call, Call::Off | Call::SoftOff(_));
                let holds = holds(plan.host.asks);
                let before = taken.take().filter(|it| off && it.holds == holds);
                *taken = if off && answer == Answer::Accepted && !lose {
                    let seen = before.map_or((false, false), |it| it.seen);
                    Some(Taken { holds, seen, again: seen.1 })
                } else {
                    before
                };
                Stage::Settle(plan, if lose { Answer::Unknown } else { answer })
            }
            Stage::Settle(plan, answer) => {
                let Some(call) = plan.call else { return };
                let observed = seen(&plan.host, plan.node, false, plan.proof);
                let done = settle(&observed, (call, &answer), &rack.policy, at(0));
                let Stage::Write(after) = Rack::plan(done, plan.host, (plan.node, plan.proof))
                else {
                    return;
                };
                self.stored(Some(index), |host| apply(host, &after.status));
                Stage::Idle
            }
        };
        let replica = &mut self.replicas[usize::from(index)];
        if next == Stage::Idle {
            replica.old = false;
        }
        replica.stage = next;
    }
}

impl Model for Rack {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            host: Stored {
                asks: [0; 3],
                stamps: Stamps::None,
                powered_on: true,
                told: None,
                failed: false,
            },
            machine: Machine { on: true, hidden: None, target: None, error: false },
            replicas: vec![Replica::default(); usize::from(self.size.replicas)],
            changes: 0,
            mishaps: 0,
            pressed: false,
            cut: false,
            offs: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let machine = state.machine;
        if machine.is_closing() {
            // Nobody lets go in these seconds.
            actions.push(Action::Close);
        } else if state.changes < self.size.changes {
            for client in 0..self.size.clients {
                let now = state.host.asks[usize::from(client)];
                actions
                    .extend((0..=2).filter(|ask| *ask != now).map(|ask| Action::Ask(client, ask)));
            }
        } else {
            // In the end everybody lets go.
            let held = (1..self.size.clients).filter(|it| state.host.asks[usize::from(*it)] > 0);
            actions.extend(held.map(|client| Action::Ask(client, 0)));
        }
        let mishap = state.mishaps < self.size.mishaps;
        for (index, replica) in (0..).zip(&state.replicas) {
            if replica.stage == Stage::Idle {
                actions.extend([Action::Read(index), Action::List(index)]);
                actions.extend(replica.known.for_pass().map(|_| Action::ReadListed(index)));
                continue;
            }
            actions.push(Action::Go(index));
            if mishap {
                actions.push(Action::Stop(index));
            }
            if mishap && matches!(replica.stage, Stage::Call(_)) {
                actions.push(Action::Lose(index));
            }
        }
        if state.machine.target.is_some() {
            actions.push(Action::Obey);
            if mishap {
                actions.push(Action::Refuse);
            }
            let off = matches!(machine.target, Some((Power::Off, _))) && machine.on;
            if mishap && off && holds(state.host.asks) != [false; 2] {
                actions.push(Action::Linger);
            }
        }
        // While somebody waits for off, nobody uses the button: between the last look and the word that it is off there is
        // always a moment.
        let waits = is_more(holds(state.host.asks), held(&state.host));
        let idle = state.replicas.iter().all(|replica| replica.stage == Stage::Idle);
        let off = !machine.on && machine.target.is_none() && !state.host.powered_on;
        if mishap && off && idle && !waits {
            actions.push(Action::Press);
        }
        actions.push(Action::Age);
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Ask(client, ask) => {
                state.stored(None, |host| host.asks[usize::from(client)] = ask);
                state.changes = (state.changes + 1).min(self.size.changes);
            }
            Action::Read(index) => state.decides(self, index, before.machine),
            Action::List(index) => {
                state.replicas[usize::from(index)].known = Known::listed(before.machine);
            }
            Action::ReadListed(index) => {
                let machine = before.replicas[usize::from(index)].known.for_pass()?;
                state.decides(self, index, machine);
            }
            Action::Go(index) => state.go(self, index, false),
            Action::Lose(index) => {
                state.mishaps += 1;
                state.go(self, index, true);
            }
            Action::Stop(index) => {
                state.mishaps += 1;
                state.replicas[usize::from(index)] = Replica::default();
            }
            Action::Obey => {
                let (target, _) = before.machine.target?;
                let on = target == Power::On;
                if before.machine.on && !on && self.size.replicas == 1 {
                    state.offs = (state.offs + 1).min(2);
                }
                state.machine = Machine { on, hidden: None, target: None, error: false };
            }
            Action::Press => {
                (state.mishaps, state.pressed) = (state.mishaps + 1, true);
                (state.machine.on, state.machine.hidden) = (true, Some(Hidden::Started));
            }
            Action::Linger => {
                state.mishaps += 1;
                (state.machine.hidden, state.machine.target) = (Some(Hidden::Closing), None);
            }
            Action::Close => {
                if self.size.replicas == 1 {
                    state.offs = (state.offs + 1).min(2);
                }
                (state.machine.on, state.machine.hidden) = (false, None);
            }
            Action::Refuse => {
                state.mishaps += 1;
                state.machine = Machine { target: None, error: true, ..before.machine };
            }
            Action::Age => {
                let told = state.host.told.as_mut()?;
                told.age = (told.age + 1).min(2);
                // Time passes for whoever read it, too: only the age of what is stored moves.
            }
        }
        (state != *before).then_some(state)
    }

    fn format_action(&self, action: &Action) -> String {
        let mode = |ask: &u8| ["nothing", "soft", "hard"][usize::from(*ask)];
        match action {
            Action::Ask(client, ask) => {
                format!("client     {}: {}", KEYS[usize::from(*client)], mode(ask))
            }
            Action::Read(replica) => format!("replica-{replica}  reads and decides"),
            Action::List(replica) => format!("replica-{replica}  lists all nodes"),
            Action::ReadListed(replica) => format!("replica-{replica}  decides on that list"),
            Action::Go(replica) => format!("replica-{replica}  goes on"),
            Action::Lose(replica) => format!("replica-{replica}  calls, and the answer is lost"),
            Action::Stop(replica) => format!("replica-{replica}  is stopped and started"),
            Action::Obey => "machine    obeys".to_owned(),
            Action::Refuse => "machine    refuses".to_owned(),
            Action::Press => "machine    is started by its button".to_owned(),
            Action::Linger => "machine    says off while it shuts down".to_owned(),
            Action::Close => "machine    is off".to_owned(),
            Action::Age => "time       passes".to_owned(),
        }
    }

    fn format_step(&self, before: &State, action: Action) -> Option<String> {
        let after = self.next_state(before, action)?;
        let told = after.host.told.map_or("nothing", |told| told.reason.as_str());
        let stage = |replica: &Replica| match &replica.stage {
            Stage::Idle => "idle".to_owned(),
            Stage::Annotate(_) => "to annotate".to_owned(),
            Stage::Write(plan) => format!("to write, {:?}", plan.call),
            Stage::Call(plan) => format!("to call {:?}", plan.call),
            Stage::Settle(_, answer) => format!("to settle {answer:?}"),
        };
        let stages: Vec<String> = after.replicas.iter().map(stage).collect();
        Some(format!(
            "asks {:?}, {:?}, {told}, shown on {}, on {}, target {:?}; {}",
            after.host.asks,
            after.host.stamps,
            after.host.powered_on,
            after.machine.on,
            after.machine.target,
            stages.join("; ")
        ))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no rule of the moment is broken", |_, state: &State| {
                state.broken.is_none()
            }),
            Property::always(
                "a host that is shown off in a cycle is off",
                |rack: &Rack, state: &State| {
                    // A second replica that was held for a while can switch a host on once more than was asked for.
                    rack.size.replicas > 1
                        || state.host.powered_on
                        || state.host.stamps != Stamps::Accepted
                        || !state.machine.on
                        // Nobody tells of a button.
                        || state.pressed
                },
            ),
            // A second replica may cost another one.
            Property::always(
                "an accepted request is exactly one power-off, and there is no other",
                |rack: &Rack, state: &State| {
                    let as_accepted = match state.host.stamps {
                        Stamps::None => state.offs == 0,
                        Stamps::Accepted => state.offs <= 1,
                        Stamps::Done => state.offs == 1,
                    };
                    // Whoever holds a machine that was started by its button has it off without a cycle.
                    as_accepted || rack.size.replicas > 1 || state.pressed
                },
            ),
            Property::sometimes("a host is held off", |_, state: &State| is_held_off(state)),
            Property::sometimes(
                "a host is held off while all clients ask for something",
                |rack: &Rack, state: &State| {
                    let Size { clients, changes, .. } = rack.size;
                    let asks = &state.host.asks[..usize::from(clients)];
                    // With fewer changes they never come together.
                    changes < clients || (is_held_off(state) && asks.iter().all(|ask| *ask > 0))
                },
            ),
            Property::sometimes("a reboot is completed", |_, state: &State| {
                state.host.told.is_some_and(|told| told.reason == Reason::Completed)
            }),
        ]
    }
}

fn is_held_off(state: &State) -> bool {
    state.host.told.is_some_and(|told| told.reason == Reason::HeldOff)
}

/// On, nobody asks for anything, and no reboot is under way.
fn in_order(_: &Rack, state: &State) -> bool {
    let held = state.host.asks[1..].iter().any(|ask| *ask > 0);
    let ended = state.host.asks[0] == 0
        && state.host.stamps != Stamps::Accepted
        && state.host.powered_on
        && state.machine.on;
    held || ended
}

/// A world of this size.
pub fn world(size: Size) -> World {
    let explored = move |bounds| {
        let own = |action: &Action| {
            use Action::{Age, Close, Go, Obey, Read};
            matches!(action, Read(_) | Go(_) | Obey | Close | Age)
        };
        let name = "power returns once nobody holds the host";
        let progress = [Progress { name, goal: in_order, own }];
        let soft = Duration::from_secs(60);
        let policy = Policy { soft_slice: soft, soft_timeout: soft * 3, ..Policy::default() };
        explore(&Rack { size, policy }, &progress, bounds)
    };
    let Size { replicas, clients, changes, mishaps } = size;
    let name =
        format!("{replicas} replicas, {clients} clients, {changes} changes, {mishaps} mishaps");
    World { name, explore: Box::new(explored) }
}

/// What a test has time for.
pub fn small() -> Vec<World> {
    let size = |replicas, clients, changes, mishaps| Size { replicas, clients, changes, mishaps };
    [size(1, 2, 3, 1), size(1, 3, 3, 1), size(2, 2, 1, 0)].map(world).into()
}

/// More than a test has time for.
pub fn large() -> Vec<World> {
    let size = |replicas, clients, changes, mishaps| Size { replicas, clients, changes, mishaps };
    [size(1, 3, 4, 2), size(2, 3, 2, 1), size(2, 3, 3, 2)].map(world).into()
}

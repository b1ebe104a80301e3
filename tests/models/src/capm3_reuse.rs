//! The world of capm3-reuse: machines of two owners, hosts, an operator that installs and clears when it likes, a person
//! who takes hosts, owners that go, and two replicas that act on what they read some time ago and may stop between any two
//! steps.
//!
//! Versions are not counted: a replica remembers of each object whether somebody else changed it since it was read, which
//! is all that a precondition asks.

mod reading;
mod state;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use bench::model::{Bounds, Progress, Report, explore};
use stateright::{Model, Property};

use crate::World;
use state::{
    Action, Consumer, FOREIGN, Host, Move, NOT_CLAIMANT, OTHER_OWNER, Person, Phase, Replica,
    State, Subject, TOO_EARLY, UNFIT, Visit, at,
};

/// Processes where it is not said otherwise.
const REPLICAS: usize = 2;

type Memory = HashMap<(Subject, Vec<Host>, Option<Person>, bool, Vec<Visit>, Vec<bool>), Vec<Move>>;
#[derive(Clone)]
struct Hall {
    /// The owner of each machine.
    owner_of: Vec<u8>,
    hosts: u8,
    mischief: u8,
    replicas: usize,
    memory: Arc<Mutex<Memory>>,
}
fn name(replica: u8) -> char {
    char::from(b'a' + replica)
}
impl Model for Hall {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let owners = usize::from(self.owner_of.iter().max().map_or(0, |it| it + 1));
        vec![State {
            machines: vec![Visit::Outside; self.owner_of.len()],
            hosts: vec![Host::default(); usize::from(self.hosts)],
            owners: vec![true; owners],
            mischief: self.mischief,
            fouls: 0,
            replicas: vec![Replica::default(); self.replicas],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, visit) in (0_u8..).zip(&state.machines) {
            match visit {
                // A machine comes only of an owner that is there.
                Visit::Outside if at(&state.owners, self.owner(index)) => {
                    actions.push(Action::Arrive(index));
                }
                Visit::Here(person) if !person.deleting => actions.push(Action::Delete(index)),
                Visit::Outside | Visit::Here(_) | Visit::Gone => {}
            }
        }
        if state.mischief > 0 {
            for (index, there) in (0_u8..).zip(&state.owners) {
                if *there {
                    actions.push(Action::OwnerGoes(index));
                }
            }
        }
        for (index, host) in (0_u8..).zip(&state.hosts) {
            if state.mischief > 0 {
                match host.consumer {
                    Consumer::Nobody | Consumer::Owner(_) if host.phase == Phase::Available => {
                        actions.push(Action::TakesHost(index));
                    }
                    _ => {}
                }
                if !host.unhealthy {
                    actions.push(Action::MarksHost(index));
                }
            }
            if host.consumer == Consumer::Person {
                actions.push(Action::LeavesHost(index));
            }
            let due = match host.phase {
                Phase::Available => host.told.is_some(),
                Phase::Provisioned => host.told.is_none(),
                Phase::Deprovisioning => true,
            };
            if due {
                actions.push(Action::Operator(index));
            }
        }
        for (index, replica) in (0_u8..).zip(&state.replicas) {
            if !replica.steps.is_empty() {
                actions.extend([Action::Write(index), Action::Crash(index)]);
            } else if replica.read.is_some() {
                actions.push(Action::Decide(index));
            } else {
                for (machine, visit) in (0_u8..).zip(&state.machines) {
                    if matches!(visit, Visit::Here(_)) {
                        actions.push(Action::Read(index, Subject::Machine(machine)));
                    }
                }
                for (host, it) in (0_u8..).zip(&state.hosts) {
                    if matches!(it.consumer, Consumer::Owner(_)) {
                        actions.push(Action::Read(index, Subject::Host(host)));
                    }
                }
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Arrive(it) => state.machines[usize::from(it)] = Visit::Here(Person::default()),
            Action::Delete(it) => state.change_machine(None, it, |person| {
                if person.kept {
                    Visit::Here(Person { deleting: true, ..person })
                } else {
                    Visit::Gone
                }
            }),
            Action::OwnerGoes(it) => {
                state.owners[usize::from(it)] = false;
                state.mischief -= 1;
            }
            Action::TakesHost(it) => {
                state.change_host(None, it, |host| host.consumer = Consumer::Person);
                state.mischief -= 1;
            }
            Action::LeavesHost(it) => {
                state.change_host(None, it, |host| host.consumer = Consumer::Nobody);
            }
            Action::MarksHost(it) => {
                state.change_host(None, it, |host| host.unhealthy = true);
                state.mischief -= 1;
            }
            Action::Operator(it) => state.change_host(None, it, |host| {
                host.phase = match host.phase {
                    Phase::Available => Phase::Provisioned,
                    Phase::Provisioned => Phase::Deprovisioning,
                    Phase::Deprovisioning => Phase::Available,
                };
            }),
            Action::Read(replica, subject) => {
                let person = match subject {
                    Subject::Machine(it) => match at(&before.machines, it) {
                        Visit::Here(person) => Some(person),
                        Visit::Outside | Visit::Gone => None,
                    },
                    Subject::Host(_) => None,
                };
                let about = match subject {
                    Subject::Machine(it) | Subject::Host(it) => it,
                };
                let read = Some((subject, before.hosts.clone(), person));
                state.replicas[usize::from(replica)] =
                    Replica { read, about, ..Replica::default() };
            }
            Action::Decide(replica) => {
                let steps = self.decided(before, replica);
                let live = match &before.replicas[usize::from(replica)].read {
                    Some((Subject::Machine(it), hosts, cached)) => {
                        let (_, live) = Self::second_read(before, *it, hosts, *cached);
                        live
                    }
                    _ => false,
                };
                let again = Self::read_again(before, replica);
                let it = &mut state.replicas[usize::from(replica)];
                if let Some(host) = again {
                    it.old_hosts &= !(1 << host);
                }
                if steps.is_empty() {
                    *it = Replica::default();
                } else {
                    it.read = None;
                    it.steps = steps;
                    // The machine was read just now.
                    it.old_machine &= !live;
                }
            }
            Action::Write(replica) => {
                let mut steps = before.replicas[usize::from(replica)].steps.clone();
                let done = state.write(self, replica, steps.remove(0));
                let it = &mut state.replicas[usize::from(replica)];
                it.steps = steps;
                if !done || it.steps.is_empty() {
                    *it = Replica::default();
                }
            }
            Action::Crash(replica) => state.replicas[usize::from(replica)] = Replica::default(),
        }
        (state != *before).then_some(state)
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Arrive(it) => format!("client     creates m{it} of o{}", self.owner(*it)),
            Action::Delete(it) => format!("client     deletes m{it}"),
            Action::OwnerGoes(it) => format!("client     deletes o{it}"),
            Action::TakesHost(it) => format!("person     takes h{it}"),
            Action::LeavesHost(it) => format!("person     leaves h{it}"),
            Action::MarksHost(it) => format!("person     marks h{it} as unhealthy"),
            Action::Operator(it) => format!("operator   goes on with h{it}"),
            Action::Read(replica, Subject::Machine(it)) => {
                format!("replica-{}  reads hosts and m{it}", name(*replica))
            }
            Action::Read(replica, Subject::Host(it)) => {
                format!("replica-{}  reads h{it}", name(*replica))
            }
            Action::Decide(replica) => format!("replica-{}  decides", name(*replica)),
            Action::Write(replica) => format!("replica-{}  writes", name(*replica)),
            Action::Crash(replica) => format!("replica-{}  is stopped and started", name(*replica)),
        }
    }

    fn format_step(&self, before: &State, action: Action) -> Option<String> {
        match action {
            Action::Decide(replica) => {
                let mut text = "to write:".to_owned();
                for step in self.decided(before, replica) {
                    let _ = write!(text, " {step:?}");
                }
                Some(text)
            }
            Action::Write(replica) => {
                let it = &before.replicas[usize::from(replica)];
                let step = *it.steps.first()?;
                let done = before.clone().write(self, replica, step);
                let done = if done { "done" } else { "refused, it changed since" };
                Some(format!("m{} {step:?}: {done}", it.about))
            }
            _ => None,
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a machine has at most one host", |hall: &Self, state: &State| {
                (0_u8..).zip(&hall.owner_of).all(|(it, _)| {
                    let has = |host: &&Host| host.consumer == Consumer::Machine(it);
                    state.hosts.iter().filter(has).count() <= 1
                })
            }),
            Property::always(
                "a machine that was told that it has a host has it",
                |_, state: &State| {
                    (0_u8..).zip(&state.machines).all(|(index, visit)| match visit {
                        Visit::Here(Person {
                            deleting: false,
                            associated: true,
                            names,
                            intends,
                            ..
                        }) => intends.or(*names).is_none_or(|it| {
                            at(&state.hosts, it).consumer == Consumer::Machine(index)
                        }),
                        _ => true,
                    })
                },
            ),
            Property::always(
                "a machine names a host to CAPM3 only if it has that host, or came up on it",
                |_, state: &State| {
                    (0_u8..).zip(&state.machines).all(|(index, visit)| match visit {
                        Visit::Here(Person {
                            names: Some(it),
                            deleting: false,
                            identified: false,
                            ..
                        }) => at(&state.hosts, *it).consumer == Consumer::Machine(index),
                        _ => true,
                    })
                },
            ),
            Property::always(
                "nobody's host is overwritten or freed by others",
                |_, state: &State| state.fouls & FOREIGN == 0,
            ),
            Property::always(
                "a kept host goes to a machine of its owner only",
                |_, state: &State| state.fouls & OTHER_OWNER == 0,
            ),
            Property::always("what to install is the claimant's business", |_, state: &State| {
                let own =
                    |host: &Host| host.told.is_none_or(|it| host.consumer == Consumer::Machine(it));
                state.fouls & NOT_CLAIMANT == 0 && state.hosts.iter().all(own)
            }),
            Property::always(
                "a host is given back only when its image is off it",
                |_, state: &State| state.fouls & TOO_EARLY == 0,
            ),
            Property::always("an unhealthy host is not newly claimed", |_, state: &State| {
                state.fouls & UNFIT == 0
            }),
            Property::sometimes(
                "a host comes back to a machine of its owner",
                |_, state: &State| {
                    let came = |host: &Host| host.consumer == Consumer::Machine(1);
                    state.machines.len() < 2
                        || (state.machines[0] == Visit::Gone && state.hosts.iter().any(came))
                },
            ),
            Property::sometimes(
                "a host is kept and ready while a machine of another owner looks for one",
                |hall: &Self, state: &State| {
                    let looks = |owner: u8| {
                        (0_u8..).zip(&state.machines).any(|(it, visit)| {
                            let free = |it: &Person| !it.deleting && it.host().is_none();
                            hall.owner(it) != owner
                                && matches!(visit, Visit::Here(person) if free(person))
                        })
                    };
                    let kept = |host: &Host| match host.consumer {
                        Consumer::Owner(it) => host.phase == Phase::Available && looks(it),
                        _ => false,
                    };
                    state.owners.len() < 2 || state.hosts.iter().any(kept)
                },
            ),
            Property::sometimes("two machines have a host each", |_, state: &State| {
                let taken = |host: &&Host| matches!(host.consumer, Consumer::Machine(_));
                let both = state.machines.len() > 1 && state.hosts.len() > 1;
                !both || state.hosts.iter().filter(taken).count() > 1
            }),
        ]
    }
}

/// Every machine is up, or gone, or there is no host for it; nobody has or keeps a host that should not.
fn in_order(hall: &Hall, state: &State) -> bool {
    let here = |it: u8| matches!(at(&state.machines, it), Visit::Here(_));
    let hosts = state.hosts.iter().all(|host| match host.consumer {
        Consumer::Machine(it) => here(it),
        Consumer::Owner(it) => at(&state.owners, it),
        Consumer::Nobody | Consumer::Person => true,
    });
    let machines = (0_u8..).zip(&state.machines).all(|(index, visit)| {
        let Visit::Here(person) = visit else { return true };
        let own = hall.owner(index);
        let for_it = |host: &Host| {
            let free = host.consumer == Consumer::Nobody || host.consumer == Consumer::Owner(own);
            free && !host.unhealthy
        };
        !person.deleting && (person.provisioned || !state.hosts.iter().any(for_it))
    });
    hosts && machines
}

/// A world of this size: the owner of each machine, hosts, and how often people meddle.
pub fn world(owner_of: &[u8], hosts: u8, mischief: u8) -> World {
    of_processes(REPLICAS, owner_of, hosts, mischief)
}

/// The same with one process, which may stop at any step: so much smaller that more of everything else goes into it.
pub fn alone(owner_of: &[u8], hosts: u8, mischief: u8) -> World {
    of_processes(1, owner_of, hosts, mischief)
}

fn of_processes(replicas: usize, owner_of: &[u8], hosts: u8, mischief: u8) -> World {
    let owners = owner_of.iter().max().map_or(0, |it| it + 1);
    let name = format!(
        "{} machines of {owners} owners, {hosts} hosts, {mischief} meddlings, {replicas} processes",
        owner_of.len()
    );
    let owner_of = owner_of.to_vec();
    let explored = move |bounds: Bounds| -> Report {
        let own = |action: &Action| {
            matches!(
                action,
                Action::Read(..) | Action::Decide(_) | Action::Write(_) | Action::Operator(_)
            )
        };
        let name = "every machine is up, gone or without any host to have";
        let progress = [Progress { name, goal: in_order, own }];
        let hall =
            Hall { owner_of: owner_of.clone(), hosts, mischief, replicas, memory: Arc::default() };
        explore(&hall, &progress, bounds)
    };
    World { name, explore: Box::new(explored) }
}

/// More than a test has time for.
pub fn large() -> Vec<World> {
    vec![world(&[0, 0], 2, 1), world(&[0, 0, 1], 2, 1), world(&[0, 0, 1], 3, 1)]
}

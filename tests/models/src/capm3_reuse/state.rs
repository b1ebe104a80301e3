//! What the world is made of, and what a write does to it.

use super::Hall;

/// Who has a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Consumer {
    #[default]
    Nobody,
    Machine(u8),
    Owner(u8),
    Person,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Available,
    Provisioned,
    Deprovisioning,
}

/// A verdict that stands on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Pending {
    #[default]
    Undecided,
    ForNobody,
    For(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Host {
    pub(super) consumer: Consumer,
    pub(super) pending: Pending,
    /// The machine whose image it is told to install.
    pub(super) told: Option<u8>,
    pub(super) phase: Phase,
    pub(super) unhealthy: bool,
}

/// A machine.
#[allow(clippy::struct_excessive_bools, reason = "each is a mark of its own on the object")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Person {
    pub(super) deleting: bool,
    pub(super) kept: bool,
    /// Under the key that CAPM3 reads, too.
    pub(super) names: Option<u8>,
    pub(super) intends: Option<u8>,
    pub(super) gives_up: Option<u8>,
    pub(super) associated: bool,
    pub(super) identified: bool,
    pub(super) provisioned: bool,
}

impl Person {
    /// The host that it has or is about to claim.
    pub(super) fn host(&self) -> Option<u8> {
        self.intends.or(self.names)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Visit {
    Outside,
    Here(Person),
    Gone,
}

/// What a replica is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Machine(u8),
    Host(u8),
}

/// A step, as far as this world knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Move {
    Intend(u8),
    Name(u8),
    Claim(u8),
    GiveUp(u8),
    PassOver(u8),
    Forget,
    Identify(u8),
    Told { associated: bool, provisioned: bool },
    Clear(u8, Option<u8>),
    Release(u8, Option<u8>),
    LetGo,
    Free(u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    /// What it read first: the hosts, and the machine that it is about.
    pub(super) read: Option<(Subject, Vec<Host>, Option<Person>)>,
    /// What it will do then.
    pub(super) steps: Vec<Move>,
    pub(super) about: u8,
    /// Whether somebody else changed this since it was read.
    pub(super) old_hosts: u8,
    pub(super) old_machine: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) machines: Vec<Visit>,
    pub(super) hosts: Vec<Host>,
    pub(super) owners: Vec<bool>,
    /// What a person may still do.
    pub(super) mischief: u8,
    /// Rules that a write broke.
    pub(super) fouls: u8,
    pub(super) replicas: Vec<Replica>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Arrive(u8),
    Delete(u8),
    OwnerGoes(u8),
    TakesHost(u8),
    LeavesHost(u8),
    MarksHost(u8),
    Operator(u8),
    Read(u8, Subject),
    Decide(u8),
    Write(u8),
    Crash(u8),
}
pub(super) const FOREIGN: u8 = 1;
pub(super) const NOT_CLAIMANT: u8 = 2;
pub(super) const TOO_EARLY: u8 = 4;
pub(super) const UNFIT: u8 = 8;
pub(super) const OTHER_OWNER: u8 = 16;
pub(super) fn number(text: &str) -> u8 {
    text[1..].bytes().fold(0, |sum, digit| sum * 10 + (digit - b'0'))
}

pub(super) fn at<T: Copy>(all: &[T], index: u8) -> T {
    all[usize::from(index)]
}
impl Move {
    pub(super) fn host(self) -> Option<u8> {
        match self {
            Self::Claim(host)
            | Self::PassOver(host)
            | Self::Clear(host, _)
            | Self::Release(host, _)
            | Self::Free(host) => Some(host),
            Self::Intend(_)
            | Self::Name(_)
            | Self::GiveUp(_)
            | Self::Forget
            | Self::Identify(_)
            | Self::Told { .. }
            | Self::LetGo => None,
        }
    }
}
impl State {
    pub(super) fn change_host(&mut self, by: Option<u8>, host: u8, change: impl FnOnce(&mut Host)) {
        change(&mut self.hosts[usize::from(host)]);
        for (index, replica) in (0_u8..).zip(&mut self.replicas) {
            let busy = replica.read.is_some() || !replica.steps.is_empty();
            if busy && by != Some(index) {
                replica.old_hosts |= 1 << host;
            }
        }
    }

    pub(super) fn change_machine(
        &mut self,
        by: Option<u8>,
        machine: u8,
        change: impl FnOnce(Person) -> Visit,
    ) {
        let visit = &mut self.machines[usize::from(machine)];
        if let Visit::Here(person) = *visit {
            *visit = change(person);
        }
        for (index, replica) in (0_u8..).zip(&mut self.replicas) {
            let about = match replica.read {
                Some((Subject::Machine(it), ..)) => it == machine,
                _ => !replica.steps.is_empty() && replica.about == machine,
            };
            if about && by != Some(index) {
                replica.old_machine = true;
            }
        }
    }

    /// The write, if its precondition holds; whether it did.
    pub(super) fn write(&mut self, hall: &Hall, by: u8, step: Move) -> bool {
        let replica = &self.replicas[usize::from(by)];
        let machine = replica.about;
        let refused = match step.host() {
            Some(host) => replica.old_hosts & (1 << host) != 0,
            None => replica.old_machine || !matches!(at(&self.machines, machine), Visit::Here(_)),
        };
        if refused {
            return false;
        }
        if let Some(host) = step.host() {
            self.fouls |= Self::foul(hall, machine, at(&self.hosts, host), step);
        }
        let by = Some(by);
        match step {
            Move::Intend(host) => self.change_machine(by, machine, |person| {
                let (names, intends) = (None, Some(host));
                Visit::Here(Person { names, intends, gives_up: None, kept: true, ..person })
            }),
            Move::Name(host) => self.change_machine(by, machine, |person| {
                let (names, intends) = (Some(host), None);
                Visit::Here(Person { names, intends, gives_up: None, kept: true, ..person })
            }),
            Move::GiveUp(host) => self.change_machine(by, machine, |person| {
                let (names, intends) = (None, None);
                Visit::Here(Person { names, intends, gives_up: Some(host), ..person })
            }),
            Move::Forget => self.change_machine(by, machine, |person| {
                Visit::Here(Person { gives_up: None, ..person })
            }),
            Move::Identify(host) => self.change_machine(by, machine, |person| {
                let (names, intends) = (Some(host), None);
                Visit::Here(Person { names, intends, identified: true, ..person })
            }),
            Move::Told { associated, provisioned } => self.change_machine(by, machine, |person| {
                Visit::Here(Person { associated, provisioned, ..person })
            }),
            Move::LetGo => self.change_machine(by, machine, |person| {
                if person.deleting {
                    Visit::Gone
                } else {
                    Visit::Here(Person { kept: false, ..person })
                }
            }),
            Move::Claim(host) => self.change_host(by, host, |it| {
                it.consumer = Consumer::Machine(machine);
                it.told = Some(machine);
                it.pending = Pending::Undecided;
            }),
            Move::PassOver(host) => self.change_host(by, host, |_| ()),
            Move::Clear(host, verdict) => self.change_host(by, host, |it| {
                it.told = None;
                it.pending = verdict.map_or(Pending::ForNobody, Pending::For);
            }),
            Move::Release(host, keep) => self.change_host(by, host, |it| {
                it.consumer = keep.map_or(Consumer::Nobody, Consumer::Owner);
                it.pending = Pending::Undecided;
            }),
            Move::Free(host) => self.change_host(by, host, |it| it.consumer = Consumer::Nobody),
        }
        true
    }

    /// Which rules this write on a host breaks.
    fn foul(hall: &Hall, machine: u8, host: Host, step: Move) -> u8 {
        let mine = Consumer::Machine(machine);
        let mut fouls = 0;
        match step {
            Move::Claim(_) => {
                match host.consumer {
                    Consumer::Nobody => {}
                    Consumer::Machine(it) if it == machine => {}
                    Consumer::Owner(it) if it == hall.owner(machine) => {}
                    Consumer::Owner(_) => fouls |= OTHER_OWNER,
                    Consumer::Machine(_) | Consumer::Person => fouls |= FOREIGN,
                }
                if host.unhealthy && host.consumer != mine {
                    fouls |= UNFIT;
                }
            }
            Move::Clear(..) if host.consumer != mine => fouls |= NOT_CLAIMANT,
            Move::Release(_, keep) => {
                if host.consumer != mine {
                    fouls |= FOREIGN;
                }
                let early = host.phase == Phase::Provisioned
                    || (keep.is_none() && host.phase == Phase::Deprovisioning);
                if host.told.is_some() || early {
                    fouls |= TOO_EARLY;
                }
            }
            Move::Free(_) if !matches!(host.consumer, Consumer::Owner(_)) => fouls |= FOREIGN,
            _ => {}
        }
        fouls
    }
}

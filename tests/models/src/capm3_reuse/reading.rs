//! The world as the controller reads it, and what it decides then.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api_types::capi::{Cluster, Machine};
use api_types::capm3::{MachineImage, Metal3Machine, Metal3MachineSpec};
use api_types::metal3::{
    BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, CachedHost, Image, ProvisioningState,
};
use api_types::names;
use capm3_reuse::decide::decide;
use capm3_reuse::index::{Index, Wish};
use capm3_reuse::model::{KeptSeen, MachineSeen, Observed, Write};
use capm3_reuse::reservation::{self, Kept, Owner};
use capm3_reuse::seen::{HostSeen, OwnerSeen, Parent, Reuse, Verdict};
use capm3_reuse::settings::Policy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::Hall;
use super::state::{
    Consumer, Host, Move, Pending, Person, Phase, State, Subject, Visit, at, number,
};

fn owner(index: u8) -> Owner {
    Owner {
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: "MachineDeployment".to_owned(),
        name: format!("o{index}"),
        uid: format!("o{index}"),
    }
}

fn owner_number(owner: Option<&Owner>) -> Option<u8> {
    owner.map(|owner| number(&owner.name))
}

/// A host as the controller reads it.
fn as_host(index: u8, host: Host) -> BareMetalHost {
    let mut read = BareMetalHost::new("ns", &format!("h{index}"), BareMetalHostSpec::default());
    read.metadata.uid = Some(format!("h{index}"));
    read.metadata.resource_version = Some("1".to_owned());
    let mut annotations = std::collections::BTreeMap::new();
    let verdict = match host.pending {
        Pending::Undecided => None,
        Pending::ForNobody => Some(None),
        Pending::For(index) => Some(Some(owner(index))),
    };
    if let Some(verdict) = verdict {
        let text = reservation::as_pending(verdict.as_ref(), "ns");
        annotations.insert(names::ferrite::PENDING_RESERVATION.to_owned(), text);
    }
    if host.unhealthy {
        annotations.insert(names::capm3::UNHEALTHY.to_owned(), String::new());
    }
    read.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    let consumer = match host.consumer {
        Consumer::Nobody => None,
        Consumer::Machine(index) => {
            let machine = as_machine(index, Person::default()).metadata;
            Some(api_types::reference::ObjectRef {
                api_version: Some(format!("{}/v1beta2", names::capm3::GROUP)),
                kind: Some("Metal3Machine".to_owned()),
                name: machine.name,
                namespace: machine.namespace,
                uid: machine.uid,
                ..Default::default()
            })
        }
        Consumer::Owner(index) => Some(owner(index).reference("ns")),
        Consumer::Person => Some(api_types::reference::ObjectRef {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            name: Some("mine".to_owned()),
            ..Default::default()
        }),
    };
    read.spec.consumer_ref = consumer.map(Box::new);
    let image = |_| Box::new(Image { url: "http://a/b".to_owned(), ..Image::default() });
    read.spec.image = host.told.map(image);
    let mut status = BareMetalHostStatus::default();
    status.provisioning.state = match host.phase {
        Phase::Available => ProvisioningState::Available,
        Phase::Provisioned => ProvisioningState::Provisioned,
        Phase::Deprovisioning => ProvisioningState::Deprovisioning,
    };
    read.status = Some(status);
    read
}

/// A machine as the controller reads it.
fn as_machine(index: u8, person: Person) -> Metal3Machine {
    let mut read = Metal3Machine::new("ns", &format!("m{index}"), Metal3MachineSpec::default());
    read.metadata.uid = Some(format!("m{index}"));
    read.metadata.resource_version = Some("1".to_owned());
    read.spec.image = Some(MachineImage {
        url: "http://a/b".to_owned(),
        checksum: Some("c".to_owned()),
        ..MachineImage::default()
    });
    read.spec.provider_id = person.identified.then(|| "metal3://ns/h/m".to_owned());
    let mut annotations = std::collections::BTreeMap::new();
    if let Some(host) = person.names {
        annotations.insert(names::metal3::HOST.to_owned(), format!("ns/h{host}"));
    }
    if let Some(host) = person.intends {
        annotations.insert(names::ferrite::INTENDS_HOST.to_owned(), format!("h{host}"));
    }
    if let Some(host) = person.gives_up {
        annotations.insert(names::ferrite::GIVES_UP_HOST.to_owned(), format!("h{host}"));
    }
    if let Some(host) = person.host().or(person.gives_up) {
        annotations.insert(names::ferrite::HOST_UID.to_owned(), format!("h{host}"));
    }
    read.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    read.metadata.finalizers =
        person.kept.then(|| vec![names::capm3::MACHINE_FINALIZER.to_owned()]);
    read.metadata.deletion_timestamp = person.deleting.then_some(Time(Timestamp::UNIX_EPOCH));
    let status = if person.associated { "True" } else { "False" };
    let mut told = json!({"conditions": [
        {"type": "AssociateBareMetalHost", "status": status},
    ]});
    if person.provisioned {
        told["initialization"] = json!({"provisioned": true});
    }
    read.status = serde_json::from_value(told).ok();
    read
}
impl Hall {
    pub(super) fn owner(&self, machine: u8) -> u8 {
        at(&self.owner_of, machine)
    }

    /// The decision about what was read, as moves.
    pub(super) fn decided(&self, state: &State, replica: u8) -> Vec<Move> {
        let Some((subject, read, cached)) = &state.replicas[usize::from(replica)].read else {
            return Vec::new();
        };
        let mut hosts = read.clone();
        if let Some(again) = Self::read_again(state, replica) {
            hosts[usize::from(again)] = at(&state.hosts, again);
        }
        let hosts = &hosts;
        let (person, live) = match subject {
            Subject::Host(_) => (None, false),
            Subject::Machine(index) => Self::second_read(state, *index, hosts, *cached),
        };
        let key =
            (*subject, hosts.clone(), person, live, state.machines.clone(), state.owners.clone());
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = memory.get(&key) {
            return known.clone();
        }
        let moves = match (subject, person) {
            (Subject::Machine(index), Some(person)) => {
                self.about_machine(state, *index, hosts, person, live)
            }
            (Subject::Machine(_), None) => Vec::new(),
            (Subject::Host(index), _) => self.about_host(state, *index, hosts),
        };
        memory.insert(key, moves.clone());
        moves
    }

    /// The machine that is decided about, and whether it was read live after its host.
    pub(super) fn second_read(
        state: &State,
        index: u8,
        hosts: &[Host],
        cached: Option<Person>,
    ) -> (Option<Person>, bool) {
        let Some(cached) = cached else { return (None, false) };
        let names = |person: &Person| person.gives_up.or(person.host());
        let by_host = || {
            let is_its = |host: &Host| host.consumer == Consumer::Machine(index);
            hosts.iter().position(is_its).and_then(|it| u8::try_from(it).ok())
        };
        let host = names(&cached).or_else(by_host);
        let needs_live = if cached.deleting {
            cached.kept
        } else {
            host.is_some_and(|it| {
                let host = at(hosts, it);
                host.consumer != Consumer::Machine(index)
                    || (host.phase == Phase::Provisioned && !cached.provisioned)
            })
        };
        if !needs_live {
            return (Some(cached), false);
        }
        match at(&state.machines, index) {
            Visit::Here(now) => {
                let same = names(&now).is_none_or(|it| Some(it) == host);
                (Some(now), same)
            }
            Visit::Outside | Visit::Gone => (None, false),
        }
    }

    /// The host that is read once more after its machine, which says that it had it or that it goes.
    pub(super) fn read_again(state: &State, replica: u8) -> Option<u8> {
        let (subject, hosts, cached) = state.replicas[usize::from(replica)].read.as_ref()?;
        let Subject::Machine(index) = subject else { return None };
        let (person, live) = Self::second_read(state, *index, hosts, *cached);
        let person = person.filter(|_| live)?;
        let again = person.deleting || (person.associated && person.gives_up.is_none());
        person.gives_up.or(person.host()).filter(|_| again)
    }

    pub(super) fn about_machine(
        &self,
        state: &State,
        index: u8,
        hosts: &[Host],
        person: Person,
        live: bool,
    ) -> Vec<Move> {
        let machine = as_machine(index, person);
        let own = self.owner(index);
        let its = |it: &(u8, &Host)| {
            let named = person.gives_up.or(person.host());
            named.map_or(it.1.consumer == Consumer::Machine(index), |name| name == it.0)
        };
        let host = (0_u8..).zip(hosts).find(its);
        let mut parent = Machine::default();
        parent.spec.bootstrap.data_secret_name = Some("boot".to_owned());
        let status =
            serde_json::from_value(json!({"initialization": {"infrastructureProvisioned": true}}))
                .ok();
        let cluster = Cluster { status, ..Cluster::default() };
        let mut index_of_hosts = Index::default();
        for (number, host) in (0_u8..).zip(hosts) {
            let read = Arc::new(CachedHost::from(as_host(number, *host)));
            index_of_hosts.update("ns", &format!("h{number}"), Some(read));
        }
        let wish = Wish {
            namespace: "ns".to_owned(),
            machine: format!("m{index}"),
            owner: Some(owner(own)),
            except: person.gives_up.map(|host| format!("h{host}")),
            ..Wish::default()
        };
        let verdict = if at(&state.owners, own) {
            Verdict::For { owner: owner(own), cleaning: None }
        } else {
            Verdict::Nobody("its owner is gone".to_owned())
        };
        let seen = MachineSeen {
            machine,
            parent: Parent::Here(Box::new(parent)),
            cluster: Some(cluster),
            owner: Some(owner(own)),
            reuse: Reuse::On,
            host: host
                .map_or(HostSeen::None, |(it, host)| HostSeen::Here(Box::new(as_host(it, *host)))),
            live,
            choice: index_of_hosts.choose(&wish, 0),
            verdict,
            ..MachineSeen::default()
        };
        let decision = decide(&Observed::Machine(Box::new(seen)), &policy(), Timestamp::UNIX_EPOCH);
        decision.writes.iter().filter_map(|write| as_move(write, person)).collect()
    }

    pub(super) fn about_host(&self, state: &State, index: u8, hosts: &[Host]) -> Vec<Move> {
        let host = as_host(index, at(hosts, index));
        let Some(kept) = Kept::of(&host) else { return Vec::new() };
        let Consumer::Owner(own) = at(hosts, index).consumer else { return Vec::new() };
        let its = (0_u8..).zip(&state.machines).filter(|(it, _)| self.owner(*it) == own);
        let (mut machines, mut to_come) = (0, 0);
        let mut waits = false;
        for (_, visit) in its {
            match visit {
                Visit::Outside => to_come += 1,
                Visit::Here(person) if !person.deleting => {
                    machines += 1;
                    waits |= person.host().is_none();
                }
                Visit::Here(_) | Visit::Gone => {}
            }
        }
        let owner = at(&state.owners, own).then(|| OwnerSeen {
            replicas: i32::try_from(machines + to_come).unwrap_or(0),
            machines,
            waits,
            ..OwnerSeen::default()
        });
        let seen = KeptSeen { host, kept, owner, settled_for: None };
        let decision = decide(&Observed::Kept(Box::new(seen)), &policy(), Timestamp::UNIX_EPOCH);
        decision.writes.iter().filter_map(|write| as_move(write, Person::default())).collect()
    }
}
/// Reservations that nobody will come for end at once.
fn policy() -> Policy {
    Policy { reservation_grace: Duration::ZERO, ..Policy::default() }
}
fn as_move(write: &Write, person: Person) -> Option<Move> {
    Some(match write {
        Write::Intend { host, .. } => Move::Intend(number(host)),
        Write::Claim { host, .. } => Move::Claim(number(host)),
        Write::Name { host, .. } => Move::Name(number(host)),
        Write::GiveUp { host } => Move::GiveUp(number(host)),
        Write::PassOver { host, .. } => Move::PassOver(number(host)),
        Write::Forget => Move::Forget,
        Write::Identify { host, .. } => Move::Identify(number(host)),
        Write::Report(status) => {
            let conditions = status["conditions"].as_array();
            let said = conditions
                .and_then(|all| all.iter().find(|it| it["type"] == "AssociateBareMetalHost"));
            let associated = said.map_or(person.associated, |it| it["status"] == "True");
            let provisioned = person.provisioned || status["initialization"]["provisioned"] == true;
            if (associated, provisioned) == (person.associated, person.provisioned) {
                return None;
            }
            Move::Told { associated, provisioned }
        }
        Write::Clear { host, verdict, .. } => {
            Move::Clear(number(host), owner_number(verdict.as_ref()))
        }
        Write::Release { host, keep_for, .. } => {
            Move::Release(number(host), owner_number(keep_for.as_ref()))
        }
        Write::LetGo => Move::LetGo,
        Write::Free { host, .. } => Move::Free(number(host)),
        // Nothing in this world asks for these.
        Write::Install { .. }
        | Write::Unpause { .. }
        | Write::AskForData
        | Write::WithdrawData
        | Write::NameNode(_)
        | Write::Scale { .. }
        | Write::Wait(_) => return None,
    })
}

//! What the passes are about: what one sees, what it writes, and what it tells the next. The page to read first.
//!
//! [`observe`](mod@crate::observe) reads [`Seen`], [`decide`](mod@crate::decide) makes a [`Decision`] of what is
//! [`Observed`], [`write`](mod@crate::write) carries out each [`Write`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::capi::{self, Cluster};
use api_types::capm3::Metal3Machine;
use api_types::metal3::BareMetalHost;
use api_types::reference::NamedRef;
use controller_kit::engine::{self, Class, Echoes, Error, Lookout, ObjectKey, Shared};
use k8s_openapi::api::core;
use kube::Api;
use serde_json::{Map, Value};

use crate::host;
use crate::index::{Index, Wants};
use crate::machine::is_same;
use crate::reason::Reason;
use crate::reservation::{Kept, Owner};
use crate::scale::Bounds;
use crate::seen::{
    Choice, Data, HostSeen, Hosts, Node, NodeSeen, OwnerSeen, Parent, Reuse, Sought, Verdict,
};

/// How long one and the same host is tried before another is better: so long that who refuses everything makes few writes,
/// and several times as long as any claim is on its way that an earlier pass sent.
const REFUSED_FOR_LONG: Duration = Duration::from_secs(300);

/// What is decided.
pub type Decision = engine::Decision<Write, Reason>;

/// What one pass is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A `Metal3Machine`.
    Machine(ObjectKey),
    /// A host that is kept for somebody, or that its machine left.
    Host(ObjectKey),
    /// A deployment whose replicas follow hosts.
    Deployment(ObjectKey),
    /// The same of a set of machines that no deployment owns.
    Set(ObjectKey),
}

impl Key {
    /// Namespace and name.
    pub fn object(&self) -> &ObjectKey {
        let (Self::Machine(it) | Self::Host(it) | Self::Deployment(it) | Self::Set(it)) = self;
        it
    }
}

/// One write. Each insists on the version of the object that was observed, or that the write before it left.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// On the machine: which host it is going to take, and the finalizer. Before the host is touched, and under a key of our own:
    /// CAPM3 would take the host for the machine's, whoever has it by then.
    Intend {
        /// The host.
        host: String,
        /// Its uid.
        uid: String,
    },
    /// On the machine: the host that it has, as CAPM3 names it, and the finalizer.
    Name {
        /// The host.
        host: String,
        /// Its uid.
        uid: String,
    },
    /// On the host: the machine that has it, and what to install if that is known.
    Claim {
        /// The host.
        host: String,
        /// What to install.
        install: Option<Map<String, Value>>,
        /// How the machine came to it; nothing where the host named the machine already.
        claimed: Option<Claimed>,
    },
    /// On the host that the machine has: what to install.
    Install {
        /// The host.
        host: String,
        /// What to install, as fields of its spec. What the user left out is left out.
        install: Map<String, Value>,
    },
    /// On the host: CAPM3's pause of a paused cluster is lifted.
    Unpause {
        /// The host.
        host: String,
    },
    /// On the machine: it will not have the host that it was going to take.
    GiveUp {
        /// The host.
        host: String,
    },
    /// On the machine: the host that it gave up was read since, and no claim of it can succeed any more.
    Forget,
    /// On a host that will not be taken: only its version is moved, so that no claim of it is left on its way.
    PassOver {
        /// The host.
        host: String,
        /// Whether the pass ends where that is refused.
        insists: bool,
    },
    /// Asks for rendered secrets.
    AskForData,
    /// Withdraws what was asked for.
    WithdrawData,
    /// On the machine: its provider ID, the host that it has, as CAPM3 names it, and where it stands.
    Identify {
        /// The host.
        host: String,
        /// The provider ID.
        provider_id: String,
        /// The host's failure domain.
        failure_domain: Option<String>,
    },
    /// On the machine's status.
    Report(Value),
    /// On the host: nothing to install any more, and for whom it will be kept.
    Clear {
        /// The host.
        host: String,
        /// Fields of the spec that are taken away.
        fields: Vec<&'static str>,
        /// Whether it is switched off.
        switch_off: bool,
        /// Whether its disks are wiped, if that has changed.
        cleaning: Option<String>,
        /// For whom it will be kept.
        verdict: Option<Owner>,
        /// The host's uid, if it will be kept: by it a move to another cluster is known.
        uid: Option<String>,
    },
    /// On the host: the machine has it no longer; it is kept for an owner, or free.
    Release {
        /// The host.
        host: String,
        /// For whom it is kept.
        keep_for: Option<Owner>,
        /// The host's uid, if it was decided just now for whom it is kept. What stands there since an earlier verdict stays.
        uid: Option<String>,
        /// Annotations of ours that go with it.
        annotations: Vec<String>,
    },
    /// On the machine: the finalizer goes.
    LetGo,
    /// On a kept host: it is free.
    Free {
        /// The host.
        host: String,
        /// Why its reservation ends.
        why: Reason,
    },
    /// On a Node of a workload cluster that says no provider ID: it gets that of its machine, if nobody wrote to it since.
    NameNode(Node),
    /// On a deployment or a set of machines: how many it is to have.
    Scale {
        /// So many.
        replicas: i32,
    },
    /// Nowhere: the machine waits its turn for a host.
    Wait(Wants),
}

/// How a machine came to its host. It is remembered until it is reported: the report that follows a claim may be superseded, and
/// neither machine nor host say it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The host.
    pub host: String,
    /// Whether it was kept for the machine's owner.
    pub reason: Reason,
    /// Why that one, for a person.
    pub message: String,
    /// Whether that is an event, too.
    pub is_news: bool,
}

/// A refusal that a machine tells. In this order a later one is told as well: what was corrected may be refused for something
/// else, and a webhook that was away and is back may have something to say for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToldRefusal {
    /// The generation of the machine.
    pub generation: Option<i64>,
    /// Whether somebody had something against the write, and not only could not be asked.
    pub is_final: bool,
}

/// What this process remembers of a machine or a host between two passes. All of it can be forgotten: it saves work, or is
/// waited for or told once more.
#[derive(Debug, Default, PartialEq)]
pub struct Memory {
    /// Of which object: another one of the same name has another identity.
    uid: String,
    /// Writes that the caches do not show yet.
    pub echoes: Echoes<Key>,
    /// The host that was refused to the machine last, and since when. A webhook may have something against that one only.
    refused: Option<(String, Instant)>,
    /// What was told last that the API server refused to the machine.
    pub told: Option<ToldRefusal>,
    /// The claim of its host that is not reported yet.
    pub claimed: Option<Claimed>,
    /// Since when the owner of a kept host needs no host more than it has, or since when replicas are to be of this number. No
    /// clock that is set changes that.
    settled: Option<(i32, Instant)>,
}

impl Memory {
    /// Forgets what it knows of another object.
    pub fn about(&mut self, uid: &str) {
        if self.uid != uid {
            *self = Self { uid: uid.to_owned(), ..Self::default() };
        }
    }

    /// Somebody wrote after this version: nothing is decided on it again.
    pub fn superseded(&mut self, object: Key, version: &str) {
        if let Ok(version) = version.parse::<u64>() {
            self.echoes.wrote(object, &(version + 1).to_string(), true);
        }
    }

    /// A write of this host goes out; since when it was refused before. That counts no more until there is an answer: a write
    /// without one may still be carried out.
    pub fn tries(&mut self, host: &str) -> Option<Instant> {
        self.refused.take_if(|(refused, _)| refused == host).map(|(_, since)| since)
    }

    /// The write ended, and this is why if it failed.
    pub fn tried(
        &mut self,
        host: &str,
        before: Option<Instant>,
        failure: Option<&Error>,
        now: Instant,
    ) {
        let since = match failure {
            Some(error) if error.is_refusal() => Some(before.unwrap_or(now)),
            // Nothing was answered that says anything of this host.
            Some(Error::Superseded) | None => before,
            Some(_) => None,
        };
        if let Some(since) = since {
            self.refused = Some((host.to_owned(), since));
        }
    }

    /// The host that is refused for long.
    pub fn refused_for_long(&self, now: Instant) -> Option<String> {
        let (host, since) = self.refused.as_ref()?;
        (now.duration_since(*since) >= REFUSED_FOR_LONG).then(|| host.clone())
    }

    /// Whether what is waited for is so, and of what number.
    pub fn settles(&mut self, on: Option<i32>, now: Instant) {
        self.settled = on.map(|on| self.settled.filter(|it| it.0 == on).unwrap_or((on, now)));
    }

    /// For how long that has been so.
    pub fn settled_for(&self, now: Instant) -> Option<Duration> {
        self.settled.map(|(_, since)| now.saturating_duration_since(since))
    }

    /// The machine has a host.
    pub fn has_host(&mut self) {
        (self.refused, self.told) = (None, None);
    }
}

/// What one pass sees, with what its writes need.
pub struct Seen {
    /// What decisions are made of.
    pub observed: Observed,
    /// The version of the key's object that the cache had.
    pub version: Option<String>,
    /// The hosts that are held back for the machine.
    pub held_back: Option<HeldBack>,
    /// The Nodes of the workload cluster, if that answered.
    pub nodes: Option<Api<core::v1::Node>>,
    /// When the pass has to be over. Who stood still for longer, as while a process is stopped, goes by what it read before.
    pub until: Instant,
    /// The versions on which writes insist: as they were observed, or as a write of this pass left them.
    pub versions: Shared<BTreeMap<Key, String>>,
}

impl Seen {
    /// Nothing is written yet.
    pub fn of(observed: Observed, version: Option<String>, until: Instant) -> Self {
        let versions = Shared::default();
        versions.with(|all| *all = observed.versions());
        Self { observed, version, held_back: None, nodes: None, until, versions }
    }
}

/// The hosts that are held back for a machine during one pass. Whatever comes of the pass, those that it did not take go to
/// others.
pub struct HeldBack {
    index: Arc<Shared<Index>>,
    lookout: Lookout<Key>,
    machine: ObjectKey,
}

impl HeldBack {
    /// The machine waits no longer.
    pub fn begin(index: &Arc<Shared<Index>>, lookout: &Lookout<Key>, machine: &ObjectKey) -> Self {
        index.with(|index| index.leave(&machine.namespace, &machine.name));
        Self { index: index.clone(), lookout: lookout.clone(), machine: machine.clone() }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        let ObjectKey { namespace, name } = &self.machine;
        for machine in self.index.with(|index| index.settle(namespace, name)) {
            let key = Key::Machine(ObjectKey::new(namespace, &machine));
            self.lookout.enqueue(key, Class::Normal);
        }
    }
}

/// What is decided upon.
#[derive(Clone, Debug)]
pub enum Observed {
    /// A machine.
    Machine(Box<MachineSeen>),
    /// A host that is kept for somebody.
    Kept(Box<KeptSeen>),
    /// A host that was to be given back, and whose machine may be gone.
    Left(Box<LeftSeen>),
    /// A deployment or a set of machines whose replicas follow hosts.
    Scaled(Box<ScaledSeen>),
}

impl Observed {
    /// The version of each object that may be written.
    fn versions(&self) -> BTreeMap<Key, String> {
        let of = |host: &BareMetalHost| {
            Some((Key::Host(ObjectKey::of(host)), host.metadata.resource_version.clone()?))
        };
        match self {
            Self::Machine(seen) => {
                let key = Key::Machine(ObjectKey::of(&seen.machine));
                let machine = seen.machine.metadata.resource_version.clone();
                let chosen = seen.choice.kept.iter().chain(&seen.choice.free);
                // The one that is named was read later than what was chosen from.
                let hosts = chosen.filter_map(|it| of(it)).chain(seen.host.here().and_then(of));
                hosts.chain(machine.map(|version| (key, version))).collect()
            }
            Self::Kept(seen) => of(&seen.host).into_iter().collect(),
            Self::Left(seen) => of(&seen.host).into_iter().collect(),
            Self::Scaled(seen) => [(seen.key.clone(), seen.version.clone())].into(),
        }
    }
}

/// A machine and what has to do with it.
#[derive(Clone, Debug, Default)]
pub struct MachineSeen {
    /// The machine.
    pub machine: Metal3Machine,
    /// Its Machine.
    pub parent: Parent,
    /// Its Cluster.
    pub cluster: Option<Cluster>,
    /// Who owns its Machine, if that is somebody that hosts are kept for.
    pub owner: Option<Owner>,
    /// Whether the template that it was cloned from asks for reuse.
    pub reuse: Reuse,
    /// The host that it names, gives up, or that names it.
    pub host: HostSeen,
    /// Whether another installation looks after that host, by the host's label.
    pub host_of_others: bool,
    /// Another host that names it as well, for a machine that is being deleted.
    pub another: Option<String>,
    /// Whether machine and host were read live, the host first. What must not be done on old news is done only then.
    pub live: bool,
    /// What there is for it.
    pub choice: Choice,
    /// A host whose claim the API server refused to it for so long that another is better.
    pub refused: Option<String>,
    /// What this process told last that the API server refused to it.
    pub told: Option<ToldRefusal>,
    /// The claim of its host, if that could not be reported yet.
    pub claimed: Option<Claimed>,
    /// What its installation needs and what is not there: the field that names it, and the name. Not looked for where nothing
    /// hangs on it.
    pub missing: Option<(&'static str, String)>,
    /// Its rendered secrets.
    pub data: Data,
    /// The uid of the claim that asked for them, if there is one: a later claim of its name is nobody's to withdraw here.
    pub claim: Option<String>,
    /// Whether disks are wiped, as the template says that it was cloned from, or itself where that says nothing. Nothing if
    /// that template is gone: its last word stands on the host.
    pub cleaning: Option<String>,
    /// For whom its host is to be kept, as owner and template say now; for a machine that is being deleted.
    pub verdict: Verdict,
    /// What to change before its owner can be read, for a machine that is up and asks for reuse: told while that helps.
    pub unreadable_owner: Option<String>,
    /// Its Node, if that is looked for.
    pub node: NodeSeen,
}

impl MachineSeen {
    /// The host that the machine has.
    pub fn own_host(&self) -> Option<&BareMetalHost> {
        self.host.here().filter(|host| host::is_of(host, &self.machine))
    }

    /// Whether it or its Cluster is paused.
    pub fn is_paused(&self) -> bool {
        capi::is_paused(&self.machine.metadata)
            || self.cluster.as_ref().is_some_and(Cluster::is_paused)
    }

    /// Whether it has a host that is not told yet what to install.
    pub fn is_to_be_installed(&self) -> bool {
        let is_untold = |host| !host::is_told_what_to_install(host);
        self.own_host().is_some_and(is_untold) && !self.machine.is_provisioned()
    }

    /// The owner whose hosts this machine may have.
    pub fn keeps_for(&self) -> Option<&Owner> {
        self.owner.as_ref().filter(|_| matches!(self.reuse, Reuse::On | Reuse::Unknown))
    }

    /// Its secrets, by the field of a host that names them: first boot, facts, network. As long as something may still be rendered
    /// only the first is known.
    pub fn secrets(&self) -> Vec<(&'static str, String)> {
        let (spec, data) = (&self.machine.spec, &self.data);
        let boot = self.parent.here().and_then(|it| it.spec.bootstrap.data_secret_name.clone());
        let is_known = matches!(data, Data::NotWanted | Data::Rendered { .. });
        let named = |field: &str, own: &Option<NamedRef>| {
            let own = own.as_ref().and_then(|it| it.name.clone());
            let own = own.filter(|name| is_known && !name.is_empty());
            data.rendered(field).cloned().or(own)
        };
        let all = [
            ("userData", boot),
            ("metaData", named("metaData", &spec.meta_data)),
            ("networkData", named("networkData", &spec.network_data)),
        ];
        all.into_iter().filter_map(|(field, name)| Some((field, name?))).collect()
    }

    /// Those of them that CAPM3 did not render.
    pub fn own_secrets(&self) -> Vec<(&'static str, String)> {
        let all = self.secrets().into_iter();
        all.filter(|(field, _)| self.data.rendered(field).is_none()).collect()
    }

    /// The data template that has to be there before anybody is asked for rendered secrets.
    pub fn data_template(&self) -> Option<&str> {
        let template = self.machine.spec.data_template.as_ref()?;
        (self.data == Data::NotAskedFor).then(|| template.name.as_deref().unwrap_or_default())
    }

    /// Whose Node is to be looked for: that of a machine that is up and for which Cluster API has not found one.
    pub fn sought(&self) -> Option<Sought<'_>> {
        let machine = &self.machine;
        let (parent, cluster) = (self.parent.here()?, self.cluster.as_ref()?);
        let host = self.own_host().filter(|host| is_same(machine, host))?;
        let goes = [&machine.metadata, &parent.metadata, &cluster.metadata]
            .iter()
            .any(|it| it.deletion_timestamp.is_some());
        let is_found = parent.node_name().is_some();
        if goes || self.is_paused() || !machine.is_provisioned() || is_found {
            return None;
        }
        // Another form of ID is a cloud provider's.
        let id = machine.spec.provider_id.as_deref().filter(|it| it.starts_with("metal3://"));
        let host_uid = host.metadata.uid.as_deref().filter(|it| !it.is_empty());
        Some(Sought { cluster, host_uid: host_uid?, provider_id: id? })
    }
}

/// A kept host and what has to do with it.
#[derive(Clone, Debug)]
pub struct KeptSeen {
    /// The host.
    pub host: BareMetalHost,
    /// For whom it is kept.
    pub kept: Kept,
    /// Its owner; nothing if there is none of that name.
    pub owner: Option<OwnerSeen>,
    /// For how long its owner has needed no host more than it has.
    pub settled_for: Option<Duration>,
}

/// A host that its machine left. Everything is as it was read live, the host first.
#[derive(Clone, Debug)]
pub struct LeftSeen {
    /// The host.
    pub host: BareMetalHost,
    /// Whether no machine has it: the one that it names is gone.
    pub is_gone: bool,
    /// Whether another installation looks after it.
    pub of_others: bool,
    /// Whether its Cluster is paused.
    pub paused: bool,
}

/// A deployment, or a set of machines that none owns, whose replicas follow hosts.
#[derive(Clone, Debug)]
pub struct ScaledSeen {
    /// Which.
    pub key: Key,
    /// The version of it that the cache had.
    pub version: String,
    /// How many machines it is to have now.
    pub replicas: i32,
    /// What its annotation asks for, or what to change in it.
    pub bounds: Result<Bounds, String>,
    /// Whether it or its Cluster is paused, being deleted or gone.
    pub is_halted: bool,
    /// The annotation or label by which another program sets its replicas.
    pub scaled_by: Option<&'static str>,
    /// The hosts of its machines, or what to change before anybody knows which they are.
    pub hosts: Result<Hosts, String>,
    /// A free host that another one like it counts as well, and that other one.
    pub contested: Option<(String, Owner)>,
    /// For how long the same number of replicas has been wanted.
    pub settled_for: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn key(name: &str) -> Key {
        Key::Host(ObjectKey { namespace: "ns".to_owned(), name: name.to_owned() })
    }

    fn failure(code: u16) -> Error {
        let status = Status::failure("why", "").with_code(code);
        let source = Box::new(kube::Error::Api(Box::new(status)));
        Error::Api { what: "patch a BareMetalHost", source }
    }

    fn answer(memory: &mut Memory, host: &str, failed: Option<u16>, now: Instant) {
        let before = memory.tries(host);
        memory.tried(host, before, failed.map(failure).as_ref(), now);
    }

    #[test]
    fn a_version_after_which_somebody_wrote_is_decided_on_no_more() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        memory.superseded(key("a"), "7");
        assert!(memory.echoes.are_awaited(now, |_| Some(7)));
        assert!(!memory.echoes.are_awaited(now, |_| Some(9)));
        assert!(memory == Memory::default(), "nothing is left of it");
    }

    #[test]
    fn a_host_is_refused_for_long_by_the_time_since_its_own_first_refusal() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let long = REFUSED_FOR_LONG;
        answer(&mut memory, "a", Some(403), start);
        answer(&mut memory, "a", Some(403), start + long / 2);
        assert_eq!(memory.refused_for_long(start + long / 2), None);
        assert_eq!(memory.refused_for_long(start + long).as_deref(), Some("a"));
        answer(&mut memory, "b", Some(403), start + long);
        assert_eq!(memory.refused_for_long(start + long), None);
        assert_eq!(memory.refused_for_long(start + long * 2).as_deref(), Some("b"));
        memory.has_host();
        assert_eq!(memory.refused_for_long(start + long * 2), None);
    }

    #[test]
    fn a_host_is_refused_for_long_only_if_every_write_of_it_was_answered_meanwhile() {
        for (host, failed, is_known) in [
            ("a", Some(403), true),
            ("a", None, true),
            ("a", Some(504), false),
            ("b", Some(504), true),
        ] {
            let (mut memory, start) = (Memory::default(), Instant::now());
            let long = REFUSED_FOR_LONG;
            let known = |memory: &Memory| memory.refused_for_long(start + long).is_some();
            answer(&mut memory, "a", Some(403), start);
            let before = memory.tries(host);
            // Nobody knows what became of it if the pass ends here.
            assert_eq!(known(&memory), host == "b");
            memory.tried(host, before, failed.map(failure).as_ref(), start + long / 2);
            assert_eq!(known(&memory), is_known, "{host} {failed:?}");
            // From then on it is refused anew.
            answer(&mut memory, "a", Some(403), start + long / 2);
            assert_eq!(known(&memory), is_known, "{host} {failed:?}");
        }
    }

    #[test]
    fn what_is_remembered_of_a_machine_ends_with_it_and_what_was_refused_when_it_has_a_host() {
        let mut memory = Memory::default();
        memory.about("one");
        let refusal = Some(ToldRefusal { generation: Some(2), is_final: true });
        memory.told = refusal;
        memory.about("one");
        assert_eq!(memory.told, refusal);
        memory.has_host();
        assert_eq!(memory.told, None);
        memory.told = refusal;
        memory.about("another");
        assert_eq!(memory.told, None);
    }

    #[test]
    fn a_clock_that_jumps_neither_ends_a_reservation_nor_keeps_it() {
        // No clock that can be set is asked.
        let (mut memory, start) = (Memory::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(memory.settled_for(start), None);
        memory.settles(Some(0), start);
        memory.settles(Some(0), after(5));
        assert_eq!(memory.settled_for(after(7)), Some(Duration::from_secs(7)));
        memory.settles(None, after(8));
        assert_eq!(memory.settled_for(after(8)), None);
        memory.settles(Some(0), after(9));
        assert_eq!(memory.settled_for(after(9)), Some(Duration::ZERO));
        memory.settles(Some(3), after(12));
        assert_eq!(memory.settled_for(after(12)), Some(Duration::ZERO), "another number");
    }
}

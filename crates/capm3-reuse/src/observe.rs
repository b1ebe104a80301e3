//! All reads. Caches are hints: what contested writes rest on is read live, the host first and its machine second.
//!
//! The order is part of the safety. A machine that names a host when it is read last named it when the host was read, so
//! whatever changes the machine's mind afterwards, and moves the host's version for that, stops a claim that is on its way.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api_types::ContractVersion;
use api_types::capi::{
    Cluster, KubeadmControlPlane, Machine, MachineDeployment, MachineSet, is_watched,
};
use api_types::capm3::{Metal3Data, Metal3DataClaim, Metal3Machine, Metal3MachineTemplate};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::name::is_name;
use api_types::names;
use controller_kit::api_error::unless_gone;
use controller_kit::watch::Undecodable;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject};
use kube::runtime::reflector::{self, ObjectRef, Store};
use tokio::sync::Semaphore;

use self::node::Looks;
use crate::claims::Claims;
use crate::error::Error;
use crate::host;
use crate::index::{Index, Wish};
use crate::machine::{host_name_bytes, was_associated, was_up};
use crate::refusals::Refusals;
use crate::reservation;
use crate::seen::{Data, HostSeen, MachineSeen, Observed, Parent, Reuse, Verdict};
use crate::selector::Selector;
use crate::served::Served;

pub mod cluster;
pub mod data;
pub mod left;
pub mod node;
pub mod owner;
pub mod word;

const TEMPLATE: &str = "Metal3MachineTemplate.infrastructure.cluster.x-k8s.io";
/// How long an answer about a machine's owner may take: longer than a webhook that converts it may.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long it takes where nothing hangs.
const PROMPT: Duration = Duration::from_secs(5);
/// One pass in so many may wait longer than `PROMPT`.
pub(crate) const WAITING: usize = 8;

/// Where to read from.
pub struct Sources {
    /// Live reads.
    pub client: Client,
    /// In which versions.
    pub served: Served,
    /// Cluster API's watch label, if only objects with it are ours.
    pub watch_filter: Option<String>,
    /// Hosts by what they are good for.
    pub index: Mutex<Index>,
    /// What was last seen of each kind.
    pub stores: Stores,
    /// Claims that were refused.
    pub refusals: Refusals,
    /// Claims that were made and are not reported yet.
    pub claims: Claims,
    /// Places for machines that wait for an answer that takes long.
    pub waiting: Semaphore,
    /// Places for looks at workload clusters.
    pub looks: Looks,
}

/// What was last seen of each kind.
pub struct Stores {
    /// Hosts.
    pub hosts: Store<CachedHost>,
    /// Metal3's part of a machine.
    pub machines: Store<Metal3Machine>,
    /// What machines were cloned from.
    pub templates: Store<Metal3MachineTemplate>,
    /// Templates that cannot be decoded.
    pub broken_templates: Undecodable,
    /// Cluster API's part of a machine.
    pub parents: Store<Machine>,
    /// Clusters.
    pub clusters: Store<Cluster>,
    /// Machine sets.
    pub sets: Store<MachineSet>,
    /// Machine deployments.
    pub deployments: Store<MachineDeployment>,
    /// Kubeadm control planes, where the API server has them.
    pub control_planes: Option<Store<KubeadmControlPlane>>,
    /// What was asked of CAPM3's data controllers, where the API server has it.
    pub claims: Option<Store<Metal3DataClaim>>,
    /// And what they answered.
    pub data: Option<Store<Metal3Data>>,
}

impl Sources {
    /// The index. A panic elsewhere leaves it usable: every entry is only a hint.
    pub fn index(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an object is not left to another installation.
    pub fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        is_watched(metadata, self.watch_filter.as_deref())
    }
}

/// An object as it was last seen.
pub(crate) fn last_seen<K>(
    store: &Store<K>,
    version: K::DynamicType,
    namespace: &str,
    name: &str,
) -> Option<Arc<K>>
where
    K: reflector::Lookup + Clone + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    store.get(&ObjectRef::new_with(name, version).within(namespace))
}

/// Reads what a decision about a machine needs. `chance` says where to begin among free hosts.
pub async fn observe_machine(
    from: &Sources,
    machine: &Metal3Machine,
    chance: u64,
) -> Result<Observed, Error> {
    if !from.is_ours(&machine.metadata) {
        return Ok(Observed::Nothing);
    }
    let namespace = machine.namespace().unwrap_or_default();
    let mut seen = MachineSeen { machine: machine.clone(), ..MachineSeen::default() };
    seen.host = named_host(from, machine);
    if needs_live(&seen) && !read_live(from, &namespace, &mut seen).await? {
        return Ok(Observed::Nothing);
    }
    seen.host_of_others = matches!(&seen.host, HostSeen::Here(host)
        if host::is_of_others(host, from.watch_filter.as_deref()));
    let key = (namespace.clone(), machine.name_any());
    seen.refused = from.refusals.of(&key, Instant::now());
    seen.told = from.refusals.told(&key);
    seen.claimed = from.claims.of(&key);
    let template = template(from, &namespace, &seen.machine);
    set_cleaning_mode(&mut seen, template.as_deref());
    let machine = seen.machine.clone();
    seen.parent = parent(from, &namespace, &machine);
    let cluster = cluster_name(&seen);
    seen.cluster = if machine.metadata.deletion_timestamp.is_some() {
        // Something is about to be taken away: that no cluster was seen must not mean that it is not paused.
        cluster::look(from, &namespace, cluster.as_deref()).await?
    } else {
        let (clusters, core) = (&from.stores.clusters, from.served.core);
        let found = cluster.and_then(|name| last_seen(clusters, core, &namespace, &name));
        found.map(|it| (*it).clone())
    };
    seen.owner = owner::of_machine(from, &namespace, &machine, &seen.parent);
    seen.data = data::cached(from, &namespace, &machine);
    if machine.metadata.deletion_timestamp.is_some() {
        let all = from.index().hosts_of(&namespace, &machine.name_any());
        seen.another = another_host(&machine, &seen.host, &all);
        let own = matches!(&seen.host, HostSeen::Here(host)
            if host::is_of(host, &machine) && reservation::pending(host).is_none());
        if own && seen.live {
            // Whoever waits for the machine to go is told why it does not: an error would only be in a log.
            let found = {
                let answer = std::pin::pin!(verdict(from, &namespace, &seen));
                patiently(&from.waiting, [PROMPT, PATIENCE], answer).await
            };
            seen.verdict = match found {
                Some(Ok(verdict)) => verdict,
                Some(Err(error)) => Verdict::Unanswered(error.to_string()),
                None => Verdict::Unanswered("the API server did not answer in time".to_owned()),
            };
        }
        return Ok(Observed::Machine(Box::new(seen)));
    }
    if may_have_a_host(&seen) {
        seen.reuse = reuse(from, &namespace, &machine).await?;
        look_for_host(from, &namespace, &mut seen, chance).await?;
    } else if is_to_be_installed(&seen) {
        match seen.data {
            Data::NotWanted => look_for_secret(from, &namespace, &mut seen).await?,
            Data::NotAskedFor => look_for_template(from, &namespace, &mut seen).await?,
            Data::Rendered { .. } => {
                seen.data = data::live(from, &namespace, &machine).await?;
                look_for_secret(from, &namespace, &mut seen).await?;
            }
            Data::Awaited | Data::Failed(_) | Data::Unserved => {}
        }
    }
    Ok(Observed::Machine(Box::new(seen)))
}

/// Waits shortly for an answer, and for long only where few others do: what hangs must not take the place of all other work.
async fn patiently<T>(
    places: &Semaphore,
    [prompt, patience]: [Duration; 2],
    mut answer: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    if let Ok(found) = tokio::time::timeout(prompt, answer.as_mut()).await {
        return Some(found);
    }
    let _place = places.try_acquire().ok()?;
    tokio::time::timeout(patience, answer).await.ok()
}

fn cluster_name(seen: &MachineSeen) -> Option<String> {
    match &seen.parent {
        Parent::Here(parent) => Some(parent.spec.cluster_name.clone()),
        Parent::None | Parent::Missing(_) => {
            seen.machine.label(names::capi::CLUSTER_NAME).map(str::to_owned)
        }
    }
}

/// The host that the machine has, or else the one that it names or gives up.
fn named_host(from: &Sources, machine: &Metal3Machine) -> HostSeen {
    let namespace = machine.namespace().unwrap_or_default();
    let named =
        host_name(machine).map(|name| (last_seen(&from.stores.hosts, (), &namespace, &name), name));
    let own = from.index().hosts_of(&namespace, &machine.name_any());
    own_or_named(machine, named, own)
}

/// What a machine names is only a word, which anybody may change; a host that names the machine is the machine's.
fn own_or_named(
    machine: &Metal3Machine,
    named: Option<(Option<Arc<CachedHost>>, String)>,
    own: Vec<Arc<CachedHost>>,
) -> HostSeen {
    let here = |host: &CachedHost| HostSeen::Here(Box::new((**host).clone()));
    let is_its = |host: &Arc<CachedHost>| host::is_of(host, machine);
    match named {
        Some((Some(host), _)) if is_its(&host) => here(&host),
        named => match (own.into_iter().find(is_its), named) {
            (Some(own), _) => here(&own),
            (None, Some((Some(host), _))) => here(&host),
            (None, Some((None, name))) => HostSeen::Gone(name),
            (None, None) => HostSeen::None,
        },
    }
}

/// A host that names the machine beside the one that was seen.
fn another_host(
    machine: &Metal3Machine,
    seen: &HostSeen,
    own: &[Arc<CachedHost>],
) -> Option<String> {
    let own = own.iter().filter(|host| host::is_of(host, machine));
    own.map(|host| host.name_any()).find(|name| seen.name().as_ref() != Some(name))
}

fn host_name(machine: &Metal3Machine) -> Option<String> {
    let given_up = machine.annotation(names::ferrite::GIVES_UP_HOST);
    given_up.or_else(|| machine.host_name()).map(str::to_owned)
}

/// Whether caches are not good enough: something is taken away, or a claim is neither made nor excluded.
fn needs_live(seen: &MachineSeen) -> bool {
    let machine = &seen.machine;
    let finalizer = names::capm3::MACHINE_FINALIZER;
    if machine.metadata.deletion_timestamp.is_some() {
        return machine.metadata.finalizers.iter().flatten().any(|it| it == finalizer);
    }
    match &seen.host {
        HostSeen::None => false,
        HostSeen::Here(host) if host::is_of(host, machine) => {
            // The cache keeps no addresses. And one that is not named may have been given up since.
            let is_named = host_name(machine).is_none_or(|name| name == host.name_any());
            !is_named || (host.provisioning_state().is_provisioned() && !machine.is_provisioned())
        }
        HostSeen::Here(_) | HostSeen::Gone(_) => true,
    }
}

/// Reads the host and then the machine, and where the machine says that it had the host, the host once more. False if
/// the machine is gone.
async fn read_live(from: &Sources, namespace: &str, seen: &mut MachineSeen) -> Result<bool, Error> {
    let version = &from.served.infrastructure;
    let machines: Api<Metal3Machine> =
        Api::namespaced_with(from.client.clone(), namespace, version);
    let name = seen.host.name();
    let mut host = live_named(&from.client, namespace, name.as_deref()).await?;
    let machine = unless_gone(machines.get(&seen.machine.name_any()).await)
        .map_err(Error::api("get a Metal3Machine"))?;
    let Some(machine) = machine.filter(|it| it.uid() == seen.machine.uid()) else {
        return Ok(false);
    };
    // Whoever says that a machine has lost its host, or goes without one, must have looked at the host last: what was
    // read before the machine may be from before its claim.
    if machine.metadata.deletion_timestamp.is_some() || was_associated(&machine) {
        host = live_named(&from.client, namespace, name.as_deref()).await?;
    }
    // It names another host by now: the cache will show that in a moment. What it names does not matter where it has one.
    let has = matches!(&host, HostSeen::Here(host) if host::is_of(host, &machine));
    seen.live = has || host_name(&machine).is_none_or(|now| Some(now) == name);
    seen.machine = machine;
    seen.host = host;
    Ok(true)
}

/// A host as it is now; nothing if it is gone.
pub async fn live_host(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<BareMetalHost>, Error> {
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), namespace);
    unless_gone(hosts.get(name).await).map_err(Error::api("get a BareMetalHost"))
}

async fn live_named(
    client: &Client,
    namespace: &str,
    name: Option<&str>,
) -> Result<HostSeen, Error> {
    let Some(name) = name else { return Ok(HostSeen::None) };
    if !is_name(name) {
        return Ok(HostSeen::Gone(name.to_owned()));
    }
    let host = live_host(client, namespace, name).await?;
    Ok(host.map_or_else(|| HostSeen::Gone(name.to_owned()), |it| HostSeen::Here(Box::new(it))))
}

/// The Machine behind it.
pub fn parent(from: &Sources, namespace: &str, machine: &Metal3Machine) -> Parent {
    let owners = machine.metadata.owner_references.iter().flatten();
    let is_machine = |kind: &str, api_version: &str| {
        kind == "Machine" && api_version.split('/').next() == Some(names::capi::GROUP)
    };
    let mut machines = owners.filter(|it| is_machine(&it.kind, &it.api_version));
    let Some(reference) = machines.next() else { return Parent::None };
    match last_seen(&from.stores.parents, from.served.core, namespace, &reference.name) {
        Some(parent) => Parent::Here(Box::new((*parent).clone())),
        None => Parent::Missing(reference.name.clone()),
    }
}

/// The template that a machine was cloned from.
fn template_name(machine: &Metal3Machine) -> Option<&str> {
    let kind = machine.annotation(names::capi::CLONED_FROM_GROUP_KIND);
    let name = machine.annotation(names::capi::CLONED_FROM_NAME);
    name.filter(|_| kind.is_none_or(|kind| kind == TEMPLATE))
}

/// Whether the template that a machine was cloned from asks for reuse. A cache that does not have the template proves
/// nothing.
async fn reuse(from: &Sources, namespace: &str, machine: &Metal3Machine) -> Result<Reuse, Error> {
    let Some(name) = template_name(machine) else { return Ok(Reuse::Off) };
    if let Some(broken) = from.stores.broken_templates.get(Some(namespace), name) {
        let why = format!("Metal3MachineTemplate {name} cannot be decoded: {}", broken.problem);
        return Ok(Reuse::Unreadable(why));
    }
    let version = from.served.infrastructure;
    if let Some(template) = last_seen(&from.stores.templates, version, namespace, name) {
        let wanted = template.spec.node_reuse.unwrap_or(false);
        return Ok(if wanted { Reuse::On } else { Reuse::Off });
    }
    Ok(match owner::live_reuse(from, namespace, name).await? {
        None => Reuse::Unknown,
        Some(Ok(true)) => Reuse::On,
        Some(Ok(false)) => Reuse::Off,
        Some(Err(why)) => Reuse::Unreadable(why),
    })
}

/// The template that a machine was cloned from, as it is now.
fn template(
    from: &Sources,
    namespace: &str,
    machine: &Metal3Machine,
) -> Option<Arc<Metal3MachineTemplate>> {
    let version = from.served.infrastructure;
    last_seen(&from.stores.templates, version, namespace, template_name(machine)?)
}

/// Whether disks are wiped, by the template that a machine was cloned from. As with CAPM3 the template has the last word
/// for all of its machines, so that it can be changed just before a rollout. One that is gone has said it: what the
/// machine was cloned with is older.
fn set_cleaning_mode(seen: &mut MachineSeen, template: Option<&Metal3MachineTemplate>) {
    let said = template.and_then(|it| it.spec.template.spec.automated_cleaning_mode.clone());
    if said.is_some() {
        seen.machine.spec.automated_cleaning_mode = said;
    }
    if template.is_some() || template_name(&seen.machine).is_none() {
        seen.cleaning.clone_from(&seen.machine.spec.automated_cleaning_mode);
    }
}

/// Whether all is there that a machine needs before it gets a host. What is missing is told by the rules; here it only
/// saves looking for a host.
fn may_have_a_host(seen: &MachineSeen) -> bool {
    let Parent::Here(parent) = &seen.parent else { return false };
    let homeless = match &seen.host {
        HostSeen::Here(host) => !host::is_of(host, &seen.machine),
        HostSeen::None | HostSeen::Gone(_) => true,
    };
    homeless
        && parent.metadata.deletion_timestamp.is_none()
        && parent.spec.bootstrap.data_secret_name.is_some()
        && !was_up(&seen.machine)
        && seen
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.infrastructure_provisioned() && !cluster.is_paused())
        && !api_types::capi::is_paused(&seen.machine.metadata)
}

/// Since when there is this machine.
pub fn created(machine: &Metal3Machine) -> Timestamp {
    machine.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |born| born.0)
}

/// What the machine wants, as far as that can be understood.
pub fn wish(seen: &MachineSeen) -> Option<Wish> {
    let machine = &seen.machine;
    let Parent::Here(parent) = &seen.parent else { return None };
    let selector = machine.spec.host_selector.clone().unwrap_or_default();
    let domain = parent.spec.failure_domain.clone().or(machine.spec.failure_domain.clone());
    Some(Wish {
        namespace: machine.namespace().unwrap_or_default(),
        machine: machine.name_any(),
        selector: Selector::read(&selector).ok()?,
        failure_domain: domain.filter(|domain| !domain.is_empty()),
        owner: seen.keeps_for().cloned(),
        except: machine
            .annotation(names::ferrite::GIVES_UP_HOST)
            .or(machine.host_name().filter(|name| seen.refused.as_deref() == Some(*name)))
            .map(str::to_owned),
        // No name of an object is longer than this.
        name_bytes: Some(host_name_bytes(machine)).filter(|bytes| *bytes < 253),
        since: created(machine),
    })
}

async fn look_for_host(
    from: &Sources,
    namespace: &str,
    seen: &mut MachineSeen,
    chance: u64,
) -> Result<(), Error> {
    let given_up = seen.machine.annotation(names::ferrite::GIVES_UP_HOST);
    let named = seen.machine.host_name().filter(|_| given_up.is_none());
    let (intends, is_refused) = (named.is_some(), named == seen.refused.as_deref());
    if (!intends || is_refused)
        && let Some(wish) = wish(seen)
    {
        seen.choice = from.index().choose(&wish, chance, Instant::now());
    }
    if !intends && seen.choice.kept.is_none() && seen.choice.free.is_none() {
        return Ok(());
    }
    look_for_template(from, namespace, seen).await?;
    look_for_secret(from, namespace, seen).await
}

/// Whether the data template is there that a machine names. Who renders secrets never says that it is not, and by then the
/// machine would have its host.
async fn look_for_template(
    from: &Sources,
    namespace: &str,
    seen: &mut MachineSeen,
) -> Result<(), Error> {
    let Some(name) = seen.data_template().map(str::to_owned) else { return Ok(()) };
    let version = from.served.infrastructure.as_str();
    let kind = owner::resource(names::capm3::GROUP, version, "Metal3DataTemplate");
    let templates: Api<DynamicObject> = Api::namespaced_with(from.client.clone(), namespace, &kind);
    let asked = templates.get_metadata(&name);
    if is_there(&name, asked, "look for a Metal3DataTemplate").await? == Some(false) {
        seen.missing_template = Some(name);
    }
    Ok(())
}

/// Whether the machine has a host that is not told yet what to install.
fn is_to_be_installed(seen: &MachineSeen) -> bool {
    matches!(&seen.host, HostSeen::Here(host) if host::is_of(host, &seen.machine)
        && !host::is_told_what_to_install(host))
        && !seen.machine.is_provisioned()
}

async fn look_for_secret(
    from: &Sources,
    namespace: &str,
    seen: &mut MachineSeen,
) -> Result<(), Error> {
    let Parent::Here(parent) = &seen.parent else { return Ok(()) };
    let Some(name) = &parent.spec.bootstrap.data_secret_name else { return Ok(()) };
    let secrets: Api<Secret> = Api::namespaced(from.client.clone(), namespace);
    let look =
        async |name: &str| is_there(name, secrets.get_metadata(name), "look for a secret").await;
    seen.bootstrap_secret = look(name).await?;
    for (field, name) in seen.own_secrets() {
        if look(&name).await? == Some(false) {
            seen.missing_secret = Some((field, name));
            break;
        }
    }
    Ok(())
}

/// Whether there is an object of this name, as far as that may be asked.
async fn is_there<T>(
    name: &str,
    asked: impl Future<Output = kube::Result<T>>,
    what: &'static str,
) -> Result<Option<bool>, Error> {
    if !is_name(name) {
        return Ok(Some(false));
    }
    match unless_gone(asked.await) {
        Ok(found) => Ok(Some(found.is_some())),
        // Without that right the operator is the first who notices, or nobody.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        Err(error) => Err(Error::api(what)(error)),
    }
}

/// For whom the host is to be kept, as owner and template say now.
async fn verdict(from: &Sources, namespace: &str, seen: &MachineSeen) -> Result<Verdict, Error> {
    let owner = owner::live_of_machine(from, namespace, &seen.machine, &seen.parent).await?;
    let Some(wanted) = owner else {
        return Ok(Verdict::Nobody("no control plane and no MachineDeployment owns its Machine"));
    };
    if cluster::is_going(cluster_name(seen).as_deref(), seen.cluster.as_ref()) {
        return Ok(Verdict::Nobody("its cluster is being deleted"));
    }
    owner::verdict(from, namespace, &wanted, &seen.parent).await
}

/// The version of a kind's objects here.
pub fn version_of(from: &Sources, group: &str) -> ContractVersion {
    match group {
        names::capm3::GROUP => from.served.infrastructure,
        names::capi::CONTROL_PLANE_GROUP => from.served.control_plane.unwrap_or_default(),
        _ => from.served.core,
    }
}

#[cfg(test)]
mod tests;

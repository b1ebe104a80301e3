//! All reads. Caches are hints: what contested writes rest on is read live, the host first and its machine second.
//!
//! The order is part of the safety. A machine that names a host when it is read last named it when the host was read, so
//! whatever changes the machine's mind afterwards, and moves the host's version for that, stops a claim that is on its way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::capm3::{Metal3Machine, Metal3MachineTemplate};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::name::is_name;
use api_types::names;
use controller_kit::api_error::unless_gone;
use controller_kit::backoff;
use controller_kit::engine::{Error, ObjectKey, asked, found};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::Api;

use crate::context::Context;
use crate::decide::{decide, is_settled, looks_for_host};
use crate::host;
use crate::index::Wish;
use crate::machine::{created, given_up, host_name_bytes, intended, is_held, was_associated};
use crate::model::{HeldBack, MachineSeen, Memory, Observed, Seen};
use crate::outline::owner_of_kind;
use crate::reason::Reason;
use crate::reservation;
use crate::seen::{Data, HostSeen, Parent, Reuse, Verdict};
use crate::selector::Selector;
use crate::text;

pub mod cluster;
pub mod data;
pub mod left;
pub mod node;
pub mod owner;
pub mod scale;

/// A pass is a few requests; one that takes longer hangs.
pub const PASS_DEADLINE: Duration = Duration::from_secs(60);
const TEMPLATE: &str = "Metal3MachineTemplate.infrastructure.cluster.x-k8s.io";

/// One namespace, in which all that belongs together stands, and what can be read there.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// What every pass shares.
    pub context: &'a Context,
    /// The namespace.
    pub namespace: &'a str,
}

/// Reads what a decision about a machine needs; nothing, if it is gone or belongs to another installation.
pub async fn machine(
    context: &Context,
    key: &ObjectKey,
    memory: &mut Memory,
) -> Result<Option<Seen>, Error> {
    // Also one that is gone by now, or was given to another installation: a host would be held back for nobody.
    let held_back = HeldBack::begin(&context.index, &context.lookout, key);
    let Some(machine) = context.caches.machines.get(key) else { return Ok(None) };
    if !context.is_ours(&machine.metadata) {
        return Ok(None);
    }
    let (until, version) = (Instant::now() + PASS_DEADLINE, machine.resource_version());
    memory.about(&machine.uid().unwrap_or_default());
    let scope = Scope { context, namespace: &key.namespace };
    let seen = Box::pin(scope.machine_seen(&machine, memory)).await?;
    let Some(mut seen) = seen else { return Ok(None) };
    let (node, nodes) = scope.node(&seen).await;
    seen.node = node;
    let observed = Observed::Machine(Box::new(seen));
    Ok(Some(Seen { held_back: Some(held_back), nodes, ..Seen::of(observed, version, until) }))
}

/// Reads what a decision about a host needs; nothing, if it is neither kept nor left.
pub async fn host(
    context: &Context,
    key: &ObjectKey,
    memory: &mut Memory,
) -> Result<Option<Seen>, Error> {
    let Some(host) = context.caches.hosts.get(key) else { return Ok(None) };
    let (until, version) = (Instant::now() + PASS_DEADLINE, host.metadata.resource_version.clone());
    memory.about(host.metadata.uid.as_deref().unwrap_or_default());
    let scope = Scope { context, namespace: &key.namespace };
    let observed = if context.seems_left(&host) {
        scope.left(&key.name).await?.map(|it| Observed::Left(Box::new(it)))
    } else {
        scope.kept(&host, memory).await?
    };
    Ok(observed.map(|observed| Seen::of(observed, version, until)))
}

impl Scope<'_> {
    /// Reads what a decision about a kept host needs. What is not kept any longer may be another's a moment later, so before
    /// that the host and its owner are read live: a cache that does not have an owner proves nothing.
    async fn kept(
        &self,
        host: &BareMetalHost,
        memory: &mut Memory,
    ) -> Result<Option<Observed>, Error> {
        let policy = &self.context.policy;
        let Some(cached) = self.kept_seen(host, memory, false).await? else { return Ok(None) };
        memory.settles(is_settled(&cached, policy).then_some(0), Instant::now());
        let seen = Observed::Kept(Box::new(cached));
        if decide(&seen, policy, Timestamp::now()).writes.is_empty() {
            return Ok(Some(seen));
        }
        let Some(live) = self.live_host(&host.name_any()).await? else { return Ok(None) };
        let seen = self.kept_seen(&live, memory, true).await?;
        Ok(seen.map(|it| Observed::Kept(Box::new(it))))
    }

    /// Reads what a decision about a machine needs but its Node.
    async fn machine_seen(
        &self,
        machine: &Metal3Machine,
        memory: &mut Memory,
    ) -> Result<Option<MachineSeen>, Error> {
        let mut seen = MachineSeen { machine: machine.clone(), ..MachineSeen::default() };
        seen.host = self.named_host(machine);
        if needs_live(&seen) && !self.read_live(&mut seen).await? {
            return Ok(None);
        }
        let is_of_others = |host| host::is_of_others(host, self.context.watch_filter());
        seen.host_of_others = seen.host.here().is_some_and(is_of_others);
        seen.refused = memory.refused_for_long(Instant::now());
        seen.told = memory.told;
        seen.claimed = memory.claimed.clone();
        let template = template_name(&seen.machine)
            .and_then(|name| self.context.caches.templates.named(self.namespace, name));
        seen.cleaning = cleaning_mode(&seen.machine, template.as_deref());
        let machine = seen.machine.clone();
        seen.parent = self.parent(&machine);
        let cluster = cluster_name(&seen).map(str::to_owned);
        seen.cluster = if machine.metadata.deletion_timestamp.is_some() {
            // Something is about to be taken away: that no cluster was seen must not mean that it is not paused.
            self.cluster(cluster.as_deref()).await?
        } else {
            let clusters = &self.context.caches.clusters;
            let found = cluster.and_then(|name| clusters.named(self.namespace, &name));
            found.map(|it| (*it).clone())
        };
        seen.owner = self.owner_of(&machine, seen.cluster.as_ref());
        seen.claim = self.data_claim(&machine).and_then(|it| it.uid());
        seen.data = self.cached_data(&machine);
        if machine.metadata.deletion_timestamp.is_some() {
            seen.another = another_host(&machine, &seen.host, &self.own_hosts(&machine));
            let is_undecided = |host| reservation::pending(host).is_none();
            if seen.live && seen.own_host().is_some_and(is_undecided) {
                // Whoever waits for the machine to go is told why it does not: an error would only be in a log.
                let asked = tokio::time::timeout(owner::PATIENCE, self.verdict(&seen)).await;
                let asked = asked.unwrap_or(Err(Error::Silent("ask for whom the host is kept")));
                seen.verdict = asked.unwrap_or_else(|it| {
                    Verdict::Undecided(Reason::OwnerUnanswered, it.to_string())
                });
            }
            return Ok(Some(seen));
        }
        if looks_for_host(&seen) {
            seen.reuse = self.reuse(&machine).await?;
            self.look_for_host(&mut seen).await?;
        } else if seen.is_to_be_installed() {
            if matches!(seen.data, Data::Rendered { .. }) {
                seen.data = self.live_data(&machine).await?;
            }
            seen.missing = self.missing(&seen).await?;
            if seen.data == Data::NotAskedFor
                && let Some(what) = self.data_left_over(&machine).await?
            {
                seen.data = Data::Withdrawn(what);
            }
        } else if machine.is_provisioned()
            && let Some(owner) = &seen.owner
            && matches!(self.reuse(&machine).await, Ok(Reuse::On))
        {
            seen.unreadable_owner = self.why_unreadable(owner).await;
        }
        Ok(Some(seen))
    }

    /// The host that the machine has, or else the one that it names or gives up.
    fn named_host(&self, machine: &Metal3Machine) -> HostSeen {
        let named = host_name(machine).map_or(HostSeen::None, |name| {
            let found = self.context.caches.hosts.named(self.namespace, &name);
            HostSeen::of(&name, found.map(|it| (**it).clone()))
        });
        own_or_named(machine, named, &self.own_hosts(machine))
    }

    /// The hosts that name the machine, as far as was seen.
    fn own_hosts(&self, machine: &Metal3Machine) -> Vec<Arc<CachedHost>> {
        self.context.index.with(|index| index.hosts_of(self.namespace, &machine.name_any()))
    }

    /// Reads the host and then the machine, and where the machine says that it had the host, the host once more. False if
    /// the machine is gone.
    async fn read_live(&self, seen: &mut MachineSeen) -> Result<bool, Error> {
        let name = seen.host.name();
        let mut host = self.live_named(name.as_deref()).await?;
        let machines: Api<Metal3Machine> = self.context.metal3(self.namespace);
        let machine = found("get a Metal3Machine", machines.get(&seen.machine.name_any())).await?;
        let Some(machine) = machine.filter(|it| it.uid() == seen.machine.uid()) else {
            return Ok(false);
        };
        // Whoever says that a machine has lost its host, or goes without one, must have looked at the host last: what was
        // read before the machine may be from before its claim.
        if machine.metadata.deletion_timestamp.is_some() || was_associated(&machine) {
            host = self.live_named(name.as_deref()).await?;
        }
        // It names another host by now: the cache will show that in a moment. What it names does not matter where it has one.
        let has = host.here().is_some_and(|host| host::is_of(host, &machine));
        seen.live = has || host_name(&machine).is_none_or(|now| Some(now) == name);
        seen.machine = machine;
        seen.host = host;
        Ok(true)
    }

    /// A host as it is now; nothing if it is gone, or has a name that no host can have.
    async fn live_host(&self, name: &str) -> Result<Option<BareMetalHost>, Error> {
        if !is_name(name) {
            return Ok(None);
        }
        found("get a BareMetalHost", self.context.hosts(self.namespace).get(name)).await
    }

    async fn live_named(&self, name: Option<&str>) -> Result<HostSeen, Error> {
        let Some(name) = name else { return Ok(HostSeen::None) };
        Ok(HostSeen::of(name, self.live_host(name).await?))
    }

    /// Secrets.
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.context.kit.client.clone(), self.namespace)
    }

    /// The Machine behind it.
    pub fn parent(&self, machine: &Metal3Machine) -> Parent {
        let Some(name) = owner_of_kind(&machine.metadata, "Machine") else { return Parent::None };
        let found = self.context.caches.parents.named(self.namespace, name);
        Parent::of(name, found.map(|it| (*it).clone()))
    }

    /// Whether the template that a machine was cloned from asks for reuse.
    async fn reuse(&self, machine: &Metal3Machine) -> Result<Reuse, Error> {
        match (self.cached_reuse(machine), template_name(machine)) {
            // A cache that does not have the template proves nothing.
            (Reuse::Unknown, Some(name)) => self.live_reuse(name).await,
            (known, _) => Ok(known),
        }
    }

    /// The same as far as the caches know.
    fn cached_reuse(&self, machine: &Metal3Machine) -> Reuse {
        let Some(name) = template_name(machine) else { return Reuse::Off };
        let templates = &self.context.caches.templates;
        if let Some(broken) = templates.broken.get(Some(self.namespace), name) {
            return Reuse::Unreadable(text::template_undecodable(name, &broken.problem));
        }
        match templates.named(self.namespace, name) {
            Some(it) if it.spec.node_reuse == Some(true) => Reuse::On,
            Some(_) => Reuse::Off,
            None => Reuse::Unknown,
        }
    }

    async fn look_for_host(&self, seen: &mut MachineSeen) -> Result<(), Error> {
        let named = intended(&seen.machine);
        let (intends, is_refused) = (named.is_some(), named == seen.refused.as_deref());
        if (!intends || is_refused)
            && let Some(wish) = wish(seen)
        {
            // Beginning anywhere among free hosts, so that not all try the same one.
            let chance = backoff::random();
            seen.choice = self.context.index.with(|index| index.choose(&wish, chance));
        }
        if !intends && seen.choice.kept.is_none() && seen.choice.free.is_none() {
            return Ok(());
        }
        seen.missing = self.missing(seen).await?;
        Ok(())
    }

    /// The first of what an installation needs that is not there. Who renders secrets never says that the template is not, and by
    /// then the machine would have its host.
    async fn missing(&self, seen: &MachineSeen) -> Result<Option<(&'static str, String)>, Error> {
        let secrets = self.secrets();
        for (field, name) in seen.own_secrets() {
            let request = secrets.get_metadata(&name);
            if is_missing(&name, request, "look for a secret").await? {
                return Ok(Some((field, name)));
            }
        }
        let Some(name) = seen.data_template() else { return Ok(None) };
        let templates = self.untyped(names::capm3::GROUP, "Metal3DataTemplate");
        let request = templates.get_metadata(name);
        let is_missing = is_missing(name, request, "look for a Metal3DataTemplate").await?;
        Ok(is_missing.then(|| ("dataTemplate", name.to_owned())))
    }

    /// For whom the host is to be kept, as owner and template say now.
    async fn verdict(&self, seen: &MachineSeen) -> Result<Verdict, Error> {
        let Some(wanted) = &seen.owner else {
            return Ok(Verdict::Nobody(text::NO_OWNER.to_owned()));
        };
        if cluster::is_going(cluster_name(seen), seen.cluster.as_ref()) {
            return Ok(Verdict::Nobody(text::CLUSTER_DELETING.to_owned()));
        }
        let cloned_from = template_name(&seen.machine);
        self.verdict_of(wanted, cloned_from).await
    }
}

fn cluster_name(seen: &MachineSeen) -> Option<&str> {
    let named = seen.parent.here().map(|it| it.spec.cluster_name.as_str());
    named.or_else(|| seen.machine.label(names::capi::CLUSTER_NAME))
}

/// What a machine names is only a word, which anybody may change; a host that names the machine is the machine's.
fn own_or_named(machine: &Metal3Machine, named: HostSeen, own: &[Arc<CachedHost>]) -> HostSeen {
    if named.here().is_some_and(|host| host::is_of(host, machine)) {
        return named;
    }
    let own = own.iter().find(|host| host::is_of(host, machine));
    own.map_or(named, |host| HostSeen::Here(Box::new((***host).clone())))
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
    given_up(machine).or_else(|| machine.host_name()).map(str::to_owned)
}

/// Whether caches are not good enough: something is taken away, or a claim is neither made nor excluded.
fn needs_live(seen: &MachineSeen) -> bool {
    let machine = &seen.machine;
    if machine.metadata.deletion_timestamp.is_some() {
        return is_held(machine);
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

/// The template that a machine was cloned from.
fn template_name(machine: &Metal3Machine) -> Option<&str> {
    let kind = machine.annotation(names::capi::CLONED_FROM_GROUP_KIND);
    let name = machine.annotation(names::capi::CLONED_FROM_NAME);
    name.filter(|_| kind.is_none_or(|kind| kind == TEMPLATE))
}

/// Whether disks are wiped, by the template that a machine was cloned from. As with CAPM3 the template has the last word
/// for all of its machines, so that it can be changed just before a rollout. One that is gone has said it: what the
/// machine was cloned with is older.
fn cleaning_mode(
    machine: &Metal3Machine,
    template: Option<&Metal3MachineTemplate>,
) -> Option<String> {
    let said = template.and_then(|it| it.spec.template.spec.automated_cleaning_mode.clone());
    let is_gone = template.is_none() && template_name(machine).is_some();
    said.or_else(|| machine.spec.automated_cleaning_mode.clone().filter(|_| !is_gone))
}

/// What the machine wants, as far as that can be understood.
pub fn wish(seen: &MachineSeen) -> Option<Wish> {
    let machine = &seen.machine;
    let Parent::Here(parent) = &seen.parent else { return None };
    let domain = parent.spec.failure_domain.clone().or(machine.spec.failure_domain.clone());
    Some(Wish {
        namespace: machine.namespace().unwrap_or_default(),
        machine: machine.name_any(),
        selector: Selector::of(machine.spec.host_selector.as_ref()).ok()?,
        failure_domain: domain.filter(|domain| !domain.is_empty()),
        owner: seen.keeps_for().cloned(),
        except: given_up(machine)
            .or(machine.host_name().filter(|name| seen.refused.as_deref() == Some(*name)))
            .map(str::to_owned),
        name_bytes: host_name_bytes(machine),
        since: created(machine),
    })
}

/// Whether there is no object of this name, as far as that may be asked.
async fn is_missing<T>(
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
    what: &'static str,
) -> Result<bool, Error> {
    let found = get_if_allowed(name, request, what).await?;
    Ok(found.is_some_and(|found| found.is_none()))
}

/// An object that need not be there; nothing at all if it may not be asked for.
#[allow(clippy::option_option, reason = "not there and not known are two things")]
async fn get_if_allowed<T>(
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
    what: &'static str,
) -> Result<Option<Option<T>>, Error> {
    if !is_name(name) {
        return Ok(Some(None));
    }
    let answer = async {
        match unless_gone(request.await) {
            Ok(found) => Ok(Some(found)),
            // Without that right the operator is the first who notices, or nobody.
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
            Err(error) => Err(error),
        }
    };
    asked(what, answer).await
}

#[cfg(test)]
mod tests;

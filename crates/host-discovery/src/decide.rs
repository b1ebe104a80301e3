//! The rules, in the order in which they apply. Pure: no client, no clock.
//!
//! They are applied to one machine after the other, oldest first. What one of them takes (a name,
//! an address, room under a limit) is taken for those after it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use api_types::metal3::Approval;
use controller_kit::engine::ObjectKey;
use ironic::Class;

use crate::index::Known;
use crate::inventory::Facts;
use crate::mac::Mac;
use crate::machine::{Machine, Reading};
use crate::model::{Approvals, HostPlan, Observed, Verdict};
use crate::naming::Named;
use crate::node_id::NodeId;
use crate::reason::{Reason, Sort};
use crate::refusals::{Cause, Refusal};
use crate::resource::Resource;
use crate::settings::Policy;
use crate::text::{self, NONE_WITHOUT_IRONIC};
use crate::waits::{FIRST_RETRY, READING_MAX};

/// Decides about every machine.
pub fn decide(seen: &Observed<'_>, policy: &Policy) -> HostPlan {
    let mut taken = Taken::new(seen, policy);
    // What failed before takes its turn after all else: hosts that cannot be made must not take the place of others.
    let (last, first): (Vec<usize>, Vec<usize>) =
        (0..seen.machines.len()).partition(|at| taken.gives_way(seen.machines[*at]));
    let mut judged: Vec<(usize, Verdict)> = Vec::with_capacity(seen.machines.len());
    judged.extend(first.into_iter().map(|at| (at, taken.judge(seen.machines[at]))));
    for (at, verdict) in &mut judged {
        taken.try_again(seen.machines[*at], verdict);
    }
    judged.extend(last.into_iter().map(|at| (at, taken.judge(seen.machines[at]))));
    judged.sort_unstable_by_key(|(at, _)| *at);
    let verdicts: Vec<Verdict> = judged.into_iter().map(|(_, verdict)| verdict).collect();
    let approvals = approvals(seen, &verdicts);
    let again = verdicts.iter().filter_map(|verdict| verdict.again).min();
    HostPlan { verdicts, approvals, again, behind: None }
}

/// What the machines so far have taken.
struct Taken<'a> {
    seen: &'a Observed<'a>,
    policy: &'a Policy,
    /// Resources that are there to stay, oldest first.
    oldest_first: Vec<usize>,
    allowance: u32,
    made: Vec<u32>,
    /// Names, and the nodes of those hosts that only may be there.
    names: BTreeMap<(&'a str, String), Option<NodeId>>,
    /// Names that a dry run told.
    told: BTreeSet<(&'a str, String)>,
    boot_macs: BTreeSet<Mac>,
    macs: BTreeSet<Mac>,
    /// BMCs and the machines that name them, where a resource gives its hosts one.
    bmcs: BTreeSet<(IpAddr, NodeId)>,
    /// A machine of which nobody knows what it names; one for which Ironic fails before any other.
    unread: Option<&'a Machine>,
}

/// A complete machine, and the resource that takes it, by its place.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    at: usize,
    resource: &'a Resource,
    machine: &'a Machine,
    facts: &'a Facts,
}

impl<'a> Taken<'a> {
    fn new(seen: &'a Observed<'a>, policy: &'a Policy) -> Self {
        let resources = seen.resources;
        let mut oldest_first: Vec<_> =
            (0..resources.len()).filter(|at| !resources[*at].deleting).collect();
        oldest_first.sort_by(|a, b| resources[*a].age().cmp(&resources[*b].age()));
        let made = resources.iter().map(|it| it.made(seen.hosts));
        let names = |it: &&'a Machine| {
            let node = it.node;
            it.inventory.bmc().iter().map(move |ip| (ip.to_canonical(), node))
        };
        let gives_bmcs = resources.iter().any(|it| it.bmc.is_some());
        let naming = seen.machines.iter().filter(|_| gives_bmcs);
        let unread = seen.machines.iter().copied().filter(|it| may_name_any_bmc(it, seen));
        Self {
            seen,
            policy,
            oldest_first,
            allowance: seen.allowance,
            made: made.collect(),
            names: BTreeMap::new(),
            told: BTreeSet::new(),
            boot_macs: BTreeSet::new(),
            macs: BTreeSet::new(),
            bmcs: naming.flat_map(names).collect(),
            unread: unread.min_by_key(|it| it.unanswered.is_none()),
        }
    }

    fn judge(&mut self, machine: &'a Machine) -> Verdict {
        let facts = machine.inventory.facts();
        let name = machine.name.as_deref();

        // It is somebody's already.
        let shows = |node| self.seen.nodes.shows(node);
        let known = self.seen.hosts.known(machine.node, name, &machine.ports, facts, shows);
        if let Some(mut verdict) = settled(machine, &known) {
            if verdict.reason == Reason::KnownTwice {
                verdict.doubtful = self.only_its_word(&known);
                verdict.resource = self.whose(machine, facts, &known);
            }
            return verdict;
        }
        if machine.name.is_some() || !machine.enrolled {
            return Verdict::new(machine, Reason::Registered);
        }

        // Too little is known of it.
        if let Some(verdict) = self.incomplete(machine) {
            return verdict;
        }
        let (Some(facts), Some(boot_mac)) = (facts, facts.and_then(|facts| facts.boot_mac)) else {
            return Verdict::new(machine, Reason::NoUsablePort);
        };

        // Whose it is, and whether its resource may do anything at all.
        let Some(at) = self.taker(machine, facts) else {
            let discovered = facts.auto_discovered;
            let reason = if discovered { Reason::NotSelected } else { Reason::NotDiscovered };
            return Verdict::new(machine, reason);
        };
        let resource = &self.seen.resources[at];
        let of = Candidate { at, resource, machine, facts };
        let named = resource.name_of(machine.node, facts, boot_mac);
        let mut verdict = Verdict::new(machine, Reason::Suspended);
        verdict.resource = Some(at);
        // A person who has to approve it, or suspended its resource, wants to know.
        verdict.name =
            named.iter().flat_map(Named::both).find(|it| self.is_free(resource, it)).cloned();
        verdict.named = named.as_ref().ok().cloned();
        verdict.bmc = resource.bmc.as_ref().and_then(|it| it.proposed(facts)).map(|it| it.address);
        if resource.spec.suspend || resource.behind.is_some() {
            verdict.note.clone_from(&resource.behind);
            return verdict;
        }
        if let Err((reason, note)) = named {
            verdict.note = note;
            return verdict.because(reason);
        }
        let guard = self.name_guard(of, &mut verdict).or_else(|| self.bmc_guard(of, &mut verdict));
        let reason = guard.unwrap_or_else(|| self.progress(of, &mut verdict));
        verdict.because(reason)
    }

    /// Whether no host has a name, and no dry run told it.
    fn is_free(&self, resource: &'a Resource, name: &str) -> bool {
        let namespace = resource.namespace.as_str();
        let is_told = resource.spec.dry_run && self.told.contains(&(namespace, name.to_owned()));
        !is_told && !self.seen.hosts.has_name(namespace, name)
    }

    /// Why its host must not get the name: it would be one that a person does not want, or a second one of a machine.
    fn name_guard(&self, of: Candidate<'a>, verdict: &mut Verdict) -> Option<Reason> {
        let Candidate { resource, machine, facts, .. } = of;
        let approved = resource.approved.contains(&machine.node);
        let alike = self.alike(machine, facts).filter(|_| !approved);
        let shares =
            alike.as_ref().is_some_and(|(reason, _)| *reason == Reason::InterfaceOfAnotherHost);
        // The mark may be about a host that is there and only shares an interface: nobody deleted that one.
        if machine.had_host && !resource.spec.rediscover && !approved && !shares {
            return Some(Reason::HostDeleted);
        }
        if let Some((reason, others)) = alike {
            verdict.hosts = others;
            return Some(reason);
        }
        let namespace = resource.namespace.as_str();
        let Some(name) = verdict.name.clone() else {
            let both = verdict.named.iter().flat_map(Named::both);
            verdict.hosts = both.map(|name| ObjectKey::new(namespace, name)).collect();
            return Some(Reason::NameConflict);
        };
        let holder = self.names.get(&(namespace, name.clone()));
        if holder.is_none() && !self.is_taken(machine, facts) {
            return None;
        }
        // The second name is taken only where a host has the first. That a machine is about to
        // get the first is not enough: another replica may have given it to this one.
        verdict.again = Some(FIRST_RETRY);
        verdict.note = holder.copied().flatten().map(|it| text::after_doubted(it, &name));
        Some(Reason::AfterAnother)
    }

    /// Why its host must not get the BMC: it is not known to be its own, and others share the credentials.
    fn bmc_guard(&self, of: Candidate<'a>, verdict: &mut Verdict) -> Option<Reason> {
        let Candidate { resource, machine, facts, .. } = of;
        let policy = resource.bmc.as_ref()?;
        let Some(bmc) = policy.proposed(facts) else { return Some(Reason::BmcAddressMissing) };
        if !bmc.is_inside {
            return Some(Reason::BmcOutsideSubnets);
        }
        verdict.hosts = self.seen.hosts.claiming(facts);
        verdict.note = self.rival(machine, facts).map(text::bmc_of_node);
        let is_shared = verdict.note.is_some() || !verdict.hosts.is_empty();
        is_shared.then_some(Reason::BmcAddressShared)
    }

    /// Whether its host is made now, as far as it is allowed.
    fn progress(&mut self, of: Candidate<'a>, verdict: &mut Verdict) -> Reason {
        let Candidate { at, resource, machine, facts } = of;
        let Some(name) = verdict.name.clone() else { return Reason::NameConflict };
        let namespace = resource.namespace.as_str();
        if resource.spec.approval == Approval::Manual && !resource.approved.contains(&machine.node)
        {
            return Reason::AwaitsApproval;
        }
        let refusal = self.seen.refused.get(&machine.node);
        let refusal = refusal.filter(|it| !resource.spec.dry_run && it.is_of(namespace, &name));
        let is_full = resource.is_full(self.made[at]);
        // The API server is not asked for more than the resource may have, so that it refused one says nothing any more. Only a
        // host that may be there all the same waits.
        if is_full && refusal.is_none_or(|it| it.cause != Cause::Unknown || !it.waits) {
            return Reason::MaxHosts;
        }
        // One that may be there comes after all others.
        let waits = |it: &&Refusal| it.waits || self.allowance == 0 || it.cause == Cause::Unknown;
        if let Some(refusal) = refusal.filter(waits) {
            // One that may be there all the same keeps what it would have taken; any other must not be in others' way.
            if refusal.cause == Cause::Unknown {
                self.take(at, name, facts, Some(machine.node));
            }
            verdict.fail(&refusal.cause, &refusal.text);
            return verdict.reason;
        }
        if !resource.spec.dry_run && self.allowance == 0 {
            verdict.note = (!self.seen.answers).then(|| NONE_WITHOUT_IRONIC.to_owned());
            verdict.again = Some(Duration::from_secs(1) / self.policy.create_rate.get());
            return Reason::RateLimited;
        }
        if resource.spec.dry_run {
            self.made[at] += 1;
            self.told.insert((namespace, name));
            return Reason::DryRun;
        }
        if self.waits_for_others(resource) {
            let failing = self.unread.filter(|it| it.unanswered.is_some());
            verdict.note = Some(text::none_before_all_are_read(failing.map(|it| it.node)));
            // When a machine is read, it is decided anew.
            verdict.again = (!self.seen.complete).then_some(FIRST_RETRY);
            // To be read takes moments, of which no event tells; what Ironic fails for may last until a person acts.
            return failing.map_or(Reason::RateLimited, |_| Reason::BmcAddressUncompared);
        }
        self.take(at, name, facts, None);
        self.allowance -= 1;
        Reason::Created
    }

    /// Whether its hosts get a BMC and a machine may still name the same. However long Ironic fails for that machine, its silence
    /// does not say that it names another: a stranger who names the BMC of that machine would get its credentials.
    fn waits_for_others(&self, resource: &Resource) -> bool {
        resource.bmc.is_some() && (!self.seen.complete || self.unread.is_some())
    }

    /// Whether a machine is judged after the others: its host was not made, and it is time to try again.
    fn gives_way(&self, machine: &Machine) -> bool {
        let refusal = self.seen.refused.get(&machine.node);
        refusal.is_some_and(|it| !it.waits && it.cause != Cause::Unknown)
    }

    /// Tries once more to make a host that may be there all the same, when it is time and all others had their turn. What it
    /// takes is kept for it already.
    fn try_again(&mut self, machine: &Machine, verdict: &mut Verdict) {
        let refusal = self.seen.refused.get(&machine.node);
        let is_due = refusal.is_some_and(|it| !it.waits && it.cause == Cause::Unknown);
        if !is_due || verdict.reason != Reason::HostFailed || self.allowance == 0 {
            return;
        }
        let resource = verdict.resource.map(|at| &self.seen.resources[at]);
        if resource.is_some_and(|it| self.waits_for_others(it)) {
            return;
        }
        self.allowance -= 1;
        verdict.reason = Reason::Created;
        verdict.note = None;
    }

    /// A host takes its name, its addresses and a place under its resource's limit; also the host of this node, which only may
    /// be there.
    fn take(&mut self, at: usize, name: String, facts: &Facts, doubted: Option<NodeId>) {
        self.made[at] += 1;
        self.names.insert((self.seen.resources[at].namespace.as_str(), name), doubted);
        self.boot_macs.extend(facts.boot_mac);
        self.macs.extend(facts.macs.iter().chain(&facts.boot_mac));
    }

    /// Says of a machine without facts or ports what it waits for, and when that has lasted too
    /// long. An error of Ironic's ends the waiting: such a node stays as it is for ever, and each
    /// new attempt of the machine makes another one. So does an Ironic that fails each time.
    fn incomplete(&self, machine: &Machine) -> Option<Verdict> {
        let asked = machine.known_for;
        let late = asked >= self.policy.give_up;
        let failed = machine.last_error.is_some();
        let unanswered = machine.unanswered.as_ref().map(|(class, _)| match class {
            Class::Invalid => Reason::InventoryUnreadable,
            _ => Reason::IronicFails,
        });
        let reason = match (&machine.inventory, unanswered) {
            _ if machine.is_whole() => return None,
            (Reading::TooLarge(_), _) => Reason::InventoryTooLarge,
            _ if failed => Reason::InspectionFailed,
            (_, Some(unanswered)) => unanswered,
            (Reading::Unread | Reading::None, None) if late => Reason::NoInventory,
            (Reading::Unread | Reading::None, None) => Reason::AwaitsInventory,
            (Reading::Facts(_), None) if late => Reason::NoUsablePort,
            (Reading::Facts(_), None) => Reason::AwaitsPorts,
        };
        let mut verdict = Verdict::new(machine, reason);
        // Only the inventory says it. An error mostly is that of an inspection; without one nothing speaks for it.
        let discovered = machine
            .inventory
            .facts()
            .map_or(reason != Reason::NoInventory, |facts| facts.auto_discovered);
        verdict.resource = self.complained_to(discovered);
        if verdict.resource.is_none() && !discovered && reason.sort() == Sort::Failed {
            return Some(verdict.because(Reason::NotDiscovered));
        }
        if matches!(reason, Reason::AwaitsInventory | Reason::AwaitsPorts) {
            // As long as it has waited already: twice as late each time. In the first minute, in which most complete, not
            // later than another new machine would be seen.
            let poll = self.policy.poll_interval.min(READING_MAX);
            let longest = if asked < READING_MAX { poll } else { READING_MAX };
            verdict.again = Some(asked.clamp(FIRST_RETRY.min(poll), longest));
        } else {
            let unanswered = machine.unanswered.as_ref().filter(|_| Some(reason) == unanswered);
            let words = unanswered.map(|(_, words)| words).or(machine.last_error.as_ref());
            verdict.note = words.cloned();
        }
        Some(verdict)
    }

    /// The oldest resource of which this is so.
    fn oldest(&self, is_so: impl Fn(&Resource) -> bool) -> Option<usize> {
        self.oldest_first.iter().copied().find(|at| is_so(&self.seen.resources[*at]))
    }

    /// Whose status shows a machine of which nobody knows whose it is: one place, so that it is
    /// counted once. The oldest resource that takes everything, else the oldest; of a machine that
    /// Ironic did not discover by itself, of those that take such.
    fn complained_to(&self, discovered: bool) -> Option<usize> {
        let hears = |it: &Resource| discovered || it.spec.include_all_nodes;
        let takes_all = self.oldest(|it| hears(it) && it.selector.is_empty());
        takes_all.or_else(|| self.oldest(hears))
    }

    /// Whose a machine is.
    fn taker(&self, machine: &Machine, facts: &Facts) -> Option<usize> {
        self.oldest(|it| it.takes(facts, &machine.ports))
    }

    /// Whose status shows a machine with several hosts: that of the discovery that made one of them, else that of the one
    /// that would take the machine. Nobody's is one that Ironic did not discover, where nobody takes such.
    fn whose(&self, machine: &Machine, facts: Option<&Facts>, known: &[Known]) -> Option<usize> {
        self.oldest(|it| known.iter().any(|host| it.has_made(host)))
            .or_else(|| facts.and_then(|facts| self.taker(machine, facts)))
            .or_else(|| self.complained_to(facts.is_none_or(|it| it.auto_discovered)))
    }

    /// Whether some of the hosts that a machine is have nothing in common but what the machine says of itself: it may be one
    /// of them, or a stranger who names the addresses of both.
    fn only_its_word(&self, known: &[Known]) -> bool {
        let shows = |node| self.seen.nodes.shows(node);
        let are_one = |a: &Known, b: &Known| self.seen.hosts.are_one(&a.host, &b.host, shows);
        let pairs =
            known.iter().enumerate().flat_map(|(at, a)| known[..at].iter().map(move |b| (a, b)));
        !pairs.into_iter().all(|(a, b)| are_one(a, b))
    }

    /// Hosts that share something with a machine which two machines may share: nobody but a person knows whether they are
    /// the same.
    fn alike(&self, machine: &Machine, facts: &Facts) -> Option<(Reason, Vec<ObjectKey>)> {
        let hosts = self.seen.hosts;
        let sharing = hosts.sharing(&machine.ports);
        if !sharing.is_empty() {
            return Some((Reason::InterfaceOfAnotherHost, sharing));
        }
        let has = |mac| facts.macs.contains(&mac) || machine.ports.iter().any(|it| it.mac == mac);
        let behind = facts.bmc.iter().find_map(|bmc| hosts.with_bmc(*bmc, has))?;
        Some((Reason::BmcOfAnotherHost, vec![behind.clone()]))
    }

    /// Another machine that names the same management controller.
    fn rival(&self, machine: &Machine, facts: &Facts) -> Option<NodeId> {
        let all = |ip| (ip, NodeId::from(u128::MIN))..=(ip, NodeId::from(u128::MAX));
        let named = facts.bmc.iter().flat_map(|ip| self.bmcs.range(all(ip.to_canonical())));
        named.map(|(_, node)| *node).find(|node| *node != machine.node)
    }

    /// Whether a machine before it becomes a host by which this one will be known. The same
    /// comparison as the index makes.
    fn is_taken(&self, machine: &Machine, facts: &Facts) -> bool {
        machine.ports.iter().any(|port| self.macs.contains(&port.mac))
            || facts.macs.iter().any(|mac| self.boot_macs.contains(mac))
    }
}

/// Whether a machine may become a host, and Ironic has not said what it is.
fn may_name_any_bmc(machine: &Machine, seen: &Observed<'_>) -> bool {
    machine.inventory == Reading::Unread
        && machine.name.is_none()
        && machine.enrolled
        && !seen.hosts.has_node(machine.node)
}

/// What is said of a machine that is a host, whoever made the host.
fn settled(machine: &Machine, known: &[Known]) -> Option<Verdict> {
    known.first()?;
    let reason = if known.len() > 1 { Reason::KnownTwice } else { Reason::Known };
    let mut verdict = Verdict::new(machine, reason);
    verdict.hosts = known.iter().map(|it| it.host.clone()).collect();
    let ours = known.iter().filter(|it| it.marks(machine.node) && !machine.had_host);
    let ours = ours.min_by_key(|it| it.made_for != Some(machine.node));
    verdict.mark = ours.map(|it| it.host.clone());
    Some(verdict)
}

/// Which approvals are settled. One that names a machine that cannot be this resource's would stay
/// for ever and mean something else the day the machine changes: it is taken away and told.
fn approvals(seen: &Observed<'_>, verdicts: &[Verdict]) -> Vec<Approvals> {
    let named = |it: &Resource| !(it.approved.is_empty() && it.strange_approvals.is_empty());
    if !seen.resources.iter().any(named) {
        return Vec::new();
    }
    let judged = verdicts.iter().zip(&seen.machines);
    let by_node: BTreeMap<_, _> = judged.map(|it| (it.0.node, it)).collect();
    let mut changed = Vec::new();
    for (at, resource) in seen.resources.iter().enumerate() {
        let mut list = Approvals {
            resource: at,
            keep: BTreeSet::new(),
            unknown: resource.strange_approvals.clone(),
        };
        for node in &resource.approved {
            let judged = by_node.get(node);
            let is_host = seen.hosts.has_node(*node)
                || judged
                    .is_some_and(|it| matches!(it.0.reason, Reason::Known | Reason::KnownTwice));
            // Whose a machine is that does not say all of itself yet, nobody knows; one that is nobody's is left out.
            let may_come = judged.map_or(!seen.complete, |(verdict, machine)| {
                verdict.resource == Some(at) || (verdict.resource.is_some() && !machine.is_whole())
            });
            if is_host {
                continue;
            }
            if may_come {
                list.keep.insert(*node);
            } else {
                list.unknown.push(node.to_string());
            }
        }
        if list.keep.len() < resource.approved.len() || !list.unknown.is_empty() {
            changed.push(list);
        }
    }
    changed
}

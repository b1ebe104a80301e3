//! Which machines are hosts already.
//!
//! Every `BareMetalHost` of every namespace is in it, but only what identifies a machine: about a
//! kilobyte instead of tens. It follows the watch, and a look-up costs hardly more with ten thousand hosts
//! than with ten.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use api_types::names;
use controller_kit::engine::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::driver::ip_of;
use crate::inventory::{Facts, Port};
use crate::mac::Mac;
use crate::node_id::NodeId;
use crate::sighting::{HardwareRead, Sighting, StatusRead};

/// Something by which a host's machine is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Mark {
    /// The interface that it boots from.
    BootMac(Mac),
    /// Its identifier in Ironic.
    Node(NodeId),
    /// Its management controller.
    Bmc(IpAddr),
    /// The same, where nobody but the machine says it.
    SaidBmc(IpAddr),
}

impl Mark {
    /// Whether two hosts that have it are one machine.
    fn is_proof(self) -> bool {
        matches!(self, Self::BootMac(_) | Self::Node(_))
    }
}

/// A host, as far as it identifies a machine.
#[derive(Clone, Debug)]
struct Entry {
    /// Tells it from a later host of the same name.
    uid: Option<Box<str>>,
    is: Identity,
    /// Which listing last held it.
    listing: u32,
}

impl Entry {
    /// Whether it is not the machine that `has` these addresses: it was inspected, boots by an address of its own, and has none
    /// of them.
    fn is_another(&self, has: impl Fn(Mac) -> bool) -> bool {
        let is_known = self.is.inspected && self.is.boot.is_some();
        is_known && !self.is.nics.iter().any(|nic| has(*nic))
    }

    fn key(&self) -> &ObjectKey {
        &self.is.known.host
    }
}

/// What of a host goes into the index.
#[derive(Clone, Debug, PartialEq)]
struct Identity {
    known: Known,
    /// The address that it boots by.
    boot: Option<Mac>,
    marks: Box<[Mark]>,
    /// Any interface that an inspection found: dozens in one machine. Some of them, such as that of a management
    /// controller's internal network, have the same address in many machines.
    nics: Box<[Mac]>,
    /// Whether an inspection found any.
    inspected: bool,
    /// When it was registered.
    created: Option<Timestamp>,
}

impl Identity {
    /// Its nodes in Ironic: the one that it was made for, and the one that the operator works with.
    fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.marks.iter().filter_map(|mark| match mark {
            Mark::Node(node) => Some(*node),
            Mark::BootMac(_) | Mark::Bmc(_) | Mark::SaidBmc(_) => None,
        })
    }

    /// Whether it is only known by more than before. One that got the address that it boots by is known by its other
    /// interfaces no longer.
    fn grows_to(&self, new: &Self) -> bool {
        self.boot == new.boot
            && self.marks.iter().all(|mark| new.marks.contains(mark))
            && self.nics.iter().all(|nic| new.nics.contains(nic))
    }
}

/// What a host that was taken notice of means for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// A machine may be a host now.
    More,
    /// A machine may no longer be this host.
    Less(ObjectKey),
    /// This host went.
    Gone(Known),
}

/// How many hosts that went are remembered: hardly more go while one request is under way.
const MOST_BURIED: usize = 1024;

/// How many hosts are told of one machine, by each of its marks and in all. A thousand that share a mark are a mistake, which
/// ten of them tell as well.
const MOST_TOLD: usize = 10;

/// The hosts that have a mark, as pairs: that takes little for each of many, and nearly always there is one.
type Holders<M> = BTreeSet<(M, u32)>;

fn holders<M: Copy + Ord>(of: &Holders<M>, mark: M) -> impl Iterator<Item = u32> {
    of.range((mark, 0)..=(mark, u32::MAX)).map(|(_, holder)| *holder)
}

/// Who is who.
#[derive(Clone, Debug, Default)]
pub struct Index {
    hosts: HashMap<u32, Entry>,
    by_key: HashMap<ObjectKey, u32>,
    by_mark: Holders<Mark>,
    by_nic: Holders<Mac>,
    made: BTreeMap<(Box<str>, Box<str>), u32>,
    /// The uids of the last hosts that went.
    buried: VecDeque<Box<str>>,
    next: u32,
    listing: u32,
}

/// A host that is a machine's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    /// The host.
    pub host: ObjectKey,
    /// The node that a discovery made it for; none if a person made it.
    pub made_for: Option<NodeId>,
    /// The label's value of the discovery that made it.
    pub made_by: Option<Box<str>>,
    /// Whether it is being deleted.
    pub leaves: bool,
}

impl Known {
    /// Whether it is written down with this node of its machine that the node had a host: where a discovery made the host,
    /// be it for a node that Ironic lost since. A node that comes while such a host is being deleted is a new discovery.
    pub fn marks(&self, node: NodeId) -> bool {
        self.made_for.is_some_and(|made_for| made_for == node || !self.leaves)
    }
}

impl Index {
    /// Takes a host as it is now.
    pub fn apply(&mut self, host: &Sighting) -> Change {
        let key = ObjectKey::of(host);
        let id = self.by_key.get(&key).copied().unwrap_or_else(|| self.next_id());
        let new = Identity::read(host, key.clone());
        let uid: Option<Box<str>> = host.metadata.uid.as_deref().map(Into::into);
        let change = match self.hosts.get_mut(&id) {
            None => Change::More,
            Some(entry) if entry.is == new => {
                (entry.uid, entry.listing) = (uid, self.listing);
                return Change::None;
            }
            Some(entry) if entry.is.grows_to(&new) => Change::More,
            Some(_) => Change::Less(key.clone()),
        };
        self.forget(id);
        for mark in &new.marks {
            self.by_mark.insert((*mark, id));
        }
        for nic in &new.nics {
            self.by_nic.insert((*nic, id));
        }
        if let Some(discovery) = &new.known.made_by {
            let made = (key.namespace.as_str().into(), discovery.clone());
            *self.made.entry(made).or_default() += 1;
        }
        self.by_key.insert(key, id);
        self.hosts.insert(id, Entry { uid, is: new, listing: self.listing });
        change
    }

    /// The same for one that the watch tells of. Gives the hosts, too, that were one machine's only ones before.
    pub fn take(&mut self, host: &Sighting) -> (Change, Vec<ObjectKey>) {
        let change = self.apply(host);
        let is_news = change != Change::None;
        let rivals = if is_news { self.rivals(&ObjectKey::of(host)) } else { Vec::new() };
        (change, rivals)
    }

    /// The same for one that a request was answered with, since the watch may tell of it later than the next look at its
    /// machine is. It may as well have told already that the host went: then that stays so, or nobody would tell it again.
    pub fn answer(&mut self, host: &Sighting) -> Change {
        let uid = host.metadata.uid.as_deref();
        if uid.is_some_and(|uid| self.buried.iter().any(|it| **it == *uid)) {
            return Change::None;
        }
        self.apply(host)
    }

    /// Takes notice that a host is gone. A later host of the same name stays.
    pub fn remove(&mut self, host: &ObjectMeta) -> Change {
        self.bury(host.uid.as_deref().map(Into::into));
        let Some((id, entry)) = self.entry(&ObjectKey::of_meta(host)) else { return Change::None };
        if entry.uid.is_some() && entry.uid.as_deref() != host.uid.as_deref() {
            return Change::None;
        }
        self.forget(id).map_or(Change::None, Change::Gone)
    }

    fn bury(&mut self, uid: Option<Box<str>>) {
        self.buried.extend(uid);
        if self.buried.len() > MOST_BURIED {
            self.buried.pop_front();
        }
    }

    /// A watch begins anew: what is not applied from here to [`Index::listed`] is gone. Until then
    /// everything stays known, since a host that is forgotten for a moment would be made twice.
    pub fn listing(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    /// The listing is complete. What it no longer shows is told.
    pub fn listed(&mut self) -> Vec<Known> {
        let gone = self.hosts.iter().filter(|(_, entry)| entry.listing != self.listing);
        let gone: Vec<_> = gone.map(|(id, entry)| (*id, entry.uid.clone())).collect();
        let mut known = Vec::new();
        for (id, uid) in gone {
            self.bury(uid);
            known.extend(self.forget(id));
        }
        known
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Whether a host is there.
    pub fn has(&self, host: &ObjectKey) -> bool {
        self.by_key.contains_key(host)
    }

    /// Whether a name is taken.
    pub fn has_name(&self, namespace: &str, name: &str) -> bool {
        self.has(&ObjectKey::new(namespace, name))
    }

    /// What tells a host from others of its name.
    pub fn uid(&self, host: &ObjectKey) -> Option<&str> {
        self.entry(host)?.1.uid.as_deref()
    }

    fn entry(&self, host: &ObjectKey) -> Option<(u32, &Entry)> {
        let id = self.by_key.get(host)?;
        Some((*id, self.hosts.get(id)?))
    }

    /// As many of the hosts that have a mark as are told.
    fn marked(&self, mark: Mark) -> impl Iterator<Item = u32> {
        holders(&self.by_mark, mark).take(MOST_TOLD)
    }

    /// As many of the hosts that have an interface as are told.
    fn with_nic(&self, mac: Mac) -> impl Iterator<Item = u32> {
        holders(&self.by_nic, mac).take(MOST_TOLD)
    }

    /// How many hosts a discovery made that are still there. `label` is the label's value.
    pub fn made_by(&self, namespace: &str, label: &str) -> u32 {
        self.made.get(&(namespace.into(), label.into())).copied().unwrap_or_default()
    }

    /// Whether a node is a host by its identifier alone.
    pub fn has_node(&self, node: NodeId) -> bool {
        self.marked(Mark::Node(node)).next().is_some()
    }

    /// The hosts that a machine is, ten at most, in the order of their names: by its identifier, by its name in
    /// Ironic, by an address, or by its BMC where the host was registered after the machine's own.
    ///
    /// An address by which one of both boots is compared with all of the other's. Two others say nothing where both boot by
    /// addresses of their own: they may be the same in many machines, or stand on a card that was moved. Nor does an interface
    /// of a host that has another node, as long as Ironic `shows` that: those of a discovered host are a stranger's word.
    pub fn known(
        &self,
        node: NodeId,
        node_name: Option<&str>,
        ports: &[Port],
        facts: Option<&Facts>,
        shows: impl Fn(NodeId) -> bool,
    ) -> Vec<Known> {
        let of_ports = ports.iter().map(|port| Mark::BootMac(port.mac));
        let claimed = facts.into_iter().flat_map(|facts| &facts.macs);
        let marks = std::iter::once(Mark::Node(node))
            .chain(of_ports)
            .chain(claimed.map(|mac| Mark::BootMac(*mac)));
        let boots = facts.and_then(|facts| facts.boot_mac);
        let is_meant = |id: &u32, is_boot: bool| {
            let host = self.hosts.get(id).map(|it| &it.is);
            host.is_some_and(|it| (is_boot || it.boot.is_none()) && !it.nodes().any(&shows))
        };
        let of_nics = ports.iter().flat_map(|port| {
            let is_boot = boots == Some(port.mac);
            let holders = holders(&self.by_nic, port.mac).filter(move |id| is_meant(id, is_boot));
            holders.take(MOST_TOLD)
        });
        // The operator calls the nodes of its hosts `namespace~name`.
        let named = node_name.and_then(|name| name.split_once('~'));
        let named = named.map(|(namespace, name)| ObjectKey::new(namespace, name));
        let by_name = named.and_then(|key| self.by_key.get(&key));
        let ids = marks.flat_map(|mark| self.marked(mark));
        let own = self.marked(Mark::Node(node)).filter_map(|id| self.hosts.get(&id));
        let of_bmc = own.flat_map(|host| self.registered_later(host));
        let found = self.in_order(ids.chain(of_nics).chain(by_name.copied()).chain(of_bmc));
        found.into_iter().take(MOST_TOLD).map(|it| it.is.known.clone()).collect()
    }

    /// Hosts that have one of a machine's ports among their interfaces, ten at most, in the order of their names. Where it
    /// is none of those that are known to be the machine, both boot by addresses of their own, or are two nodes of Ironic.
    pub fn sharing(&self, ports: &[Port]) -> Vec<ObjectKey> {
        let found = self.in_order(ports.iter().flat_map(|port| self.with_nic(port.mac)));
        found.into_iter().take(MOST_TOLD).map(|it| it.key().clone()).collect()
    }

    /// Hosts with the management controller that the machine of this one named when it was discovered. An administrator may
    /// register it by that, without an address of an interface. One that was there before did not keep the machine from
    /// becoming a host: it is another one, or a person said so.
    fn registered_later<'a>(&'a self, host: &'a Entry) -> impl Iterator<Item = u32> + 'a {
        let said = host.is.marks.iter().filter_map(|mark| match mark {
            Mark::SaidBmc(ip) => Some(*ip),
            _ => None,
        });
        let holders = said.flat_map(|ip| self.marked(Mark::Bmc(ip)));
        holders.filter(move |id| {
            self.hosts.get(id).is_some_and(|other| {
                let is_later = host.is.created.is_some() && other.is.created > host.is.created;
                is_later && !other.is_another(|mac| host.is.nics.contains(&mac))
            })
        })
    }

    /// Other hosts that claim to be the same machine as this one: an address that one of them boots from is the other's,
    /// both have one identifier, or one was registered by the BMC that the other's machine named before. Of many that share an
    /// address as many as are told; the others that boot from it heard of each other before.
    pub fn rivals(&self, host: &ObjectKey) -> Vec<ObjectKey> {
        let Some((id, entry)) = self.entry(host) else { return Vec::new() };
        let said = entry.is.marks.iter().filter_map(|mark| match mark {
            Mark::Bmc(ip) => Some(Mark::SaidBmc(*ip)),
            _ => None,
        });
        let named = said.flat_map(|mark| self.marked(mark)).filter(|it| {
            self.hosts.get(it).is_some_and(|it| self.registered_later(it).any(|it| it == id))
        });
        let marks = entry.is.marks.iter().filter(|it| it.is_proof());
        let of_marks = marks.flat_map(|mark| self.marked(*mark));
        let of_boots = entry.is.boot.iter().flat_map(|mac| self.with_nic(*mac));
        let claimed = entry.is.nics.iter().map(|mac| Mark::BootMac(*mac));
        let of_nics = claimed.flat_map(|mark| self.marked(mark));
        let of_bmc = self.registered_later(entry).chain(named);
        let ids = of_marks.chain(of_boots).chain(of_nics).chain(of_bmc).filter(|it| *it != id);
        self.in_order(ids).into_iter().map(|it| it.key().clone()).collect()
    }

    /// Whether two hosts say themselves that they are one machine. The interfaces of a host say nothing of another one where
    /// Ironic `shows` the nodes of both.
    pub fn are_one(
        &self,
        one: &ObjectKey,
        other: &ObjectKey,
        shows: impl Fn(NodeId) -> bool,
    ) -> bool {
        let (Some((_, one)), Some((_, other))) = (self.entry(one), self.entry(other)) else {
            return false;
        };
        let shares = |mark: &Mark| mark.is_proof() && other.is.marks.contains(mark);
        if one.is.marks.iter().any(shares) {
            return true;
        }
        let claims =
            |it: &Entry, boots: &Entry| boots.is.boot.is_some_and(|mac| it.is.nics.contains(&mac));
        let are_two = one.is.nodes().any(&shows) && other.is.nodes().any(&shows);
        !are_two && (claims(one, other) || claims(other, one))
    }

    /// Hosts in the order of their names, each once.
    fn in_order(&self, ids: impl Iterator<Item = u32>) -> Vec<&Entry> {
        let ids: BTreeSet<u32> = ids.collect();
        let mut found: Vec<_> = ids.iter().filter_map(|id| self.hosts.get(id)).collect();
        found.sort_by(|a, b| a.key().cmp(b.key()));
        found
    }

    /// A host whose management controller has this address, which may be the machine that `has` its addresses. One that was
    /// inspected, boots by an address of its own and has none of the machine's is another machine in the same place.
    pub fn with_bmc(&self, bmc: IpAddr, has: impl Fn(Mac) -> bool) -> Option<&ObjectKey> {
        let holders = holders(&self.by_mark, Mark::Bmc(bmc.to_canonical()));
        let hosts = holders.filter_map(|id| self.hosts.get(&id));
        hosts.filter(|it| !it.is_another(&has)).map(Entry::key).min()
    }

    /// Hosts that have one of a machine's management controllers, or whose machines named it, ten of each at most.
    pub fn claiming(&self, facts: &Facts) -> Vec<ObjectKey> {
        let ips = facts.bmc.iter().map(IpAddr::to_canonical);
        let marks = ips.flat_map(|ip| [Mark::Bmc(ip), Mark::SaidBmc(ip)]);
        let found = self.in_order(marks.flat_map(|mark| self.marked(mark)));
        found.into_iter().take(MOST_TOLD).map(|it| it.key().clone()).collect()
    }

    /// Numbers come round after four thousand million hosts.
    fn next_id(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    fn forget(&mut self, id: u32) -> Option<Known> {
        let Identity { known, marks, nics, .. } = self.hosts.remove(&id)?.is;
        for mark in marks {
            self.by_mark.remove(&(mark, id));
        }
        for nic in nics {
            self.by_nic.remove(&(nic, id));
        }
        if let Some(discovery) = &known.made_by {
            let made = (known.host.namespace.as_str().into(), discovery.clone());
            if let Some(count) = self.made.get_mut(&made) {
                *count -= 1;
                if *count == 0 {
                    self.made.remove(&made);
                }
            }
        }
        self.by_key.remove(&known.host);
        Some(known)
    }
}

impl Identity {
    fn read(host: &Sighting, key: ObjectKey) -> Self {
        // A status that waits in an annotation until the operator takes it over, as after a move between clusters. Whoever wrote
        // it, the operator reads `null` as what is absent.
        let waiting: Option<StatusRead> =
            host.annotation(names::metal3::STATUS).and_then(|text| serde_json::from_str(text).ok());
        let details: Option<HardwareRead> = host
            .annotation(names::metal3::HARDWARE_DETAILS)
            .and_then(|text| serde_json::from_str(text).ok());
        let statuses = || host.status.iter().chain(&waiting);
        let made_for = host.annotation(names::ferrite::NODE_ID).and_then(NodeId::parse);
        let ids = statuses().filter_map(StatusRead::node).chain(made_for);
        let hardware = statuses().filter_map(|it| it.hardware.as_ref()).chain(&details);
        let nics = hardware.flat_map(|it| it.nics.iter().flatten());
        let nics = nics.filter_map(|nic| Mac::parse_usable(nic.mac.as_deref()?));
        let boot = host.boot_mac_address().and_then(Mac::parse_usable);
        let bmc = host.bmc_address().and_then(ip_of).map(Mark::Bmc);

        let said = host.annotation(names::ferrite::BMC_ADDRESS).unwrap_or_default();
        let said = said.split(',').filter_map(|it| it.parse::<IpAddr>().ok());
        let said = said.map(|ip| Mark::SaidBmc(ip.to_canonical()));

        let boot_mark = boot.map(Mark::BootMac);
        let mut marks: Vec<_> =
            boot_mark.into_iter().chain(ids.map(Mark::Node)).chain(bmc).chain(said).collect();
        marks.sort_unstable();
        marks.dedup();
        let mut nics: Vec<_> = nics.collect();
        let inspected = !nics.is_empty();
        nics.extend(boot);
        nics.sort_unstable();
        nics.dedup();
        let made_by = host.labels().get(names::ferrite::DISCOVERED_BY).map(|it| it.as_str().into());
        let leaves = host.metadata.deletion_timestamp.is_some();
        let known = Known { host: key, made_for, made_by, leaves };
        let created = host.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self { known, boot, marks: marks.into(), nics: nics.into(), inspected, created }
    }
}

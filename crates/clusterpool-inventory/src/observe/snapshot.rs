//! A snapshot of one pool from the caches.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use api_types::condition::{Condition, find};
use api_types::hive::{ClusterDeployment, ClusterDeploymentCustomization, ClusterPoolSpec};
use api_types::names;
use api_types::time::until;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::entries::{lease, retry, version};
use super::unread::{broken_claims, broken_clusters, strangers, unread};
use super::views::{
    claim, cluster, created, has_begun, hives_words, resume_timeout, resuming_since, view,
};
use crate::context::Caches;
use crate::index::{
    Index, all_in, has_finalizer, hives_finalizer, is_one, key_in, named, owner_of, pool_key,
};
use crate::make::Materials;
use crate::model::{Efforts, Key, LOOK_COUNTS, Learned, Trial};
use crate::naming::trial_name;
use crate::patch::{self, Target};
use crate::seen::{Cluster, Customization, Lease, Namespace, Observed, Pool};
use crate::settings::Policy;
use crate::text;

/// What a snapshot is made of.
pub struct Known<'a> {
    /// What the watches have shown.
    pub caches: &'a Caches,
    /// What belongs to what.
    pub index: &'a Index,
    /// The pool.
    pub key: &'a Key,
    /// How to decide.
    pub policy: &'a Policy,
    /// What the pool refers to.
    pub materials: &'a Materials,
    /// Why another controller is known to work on the pool.
    pub rival: Option<String>,
    /// What this process tried for its clusters.
    pub efforts: &'a Efforts,
    /// The time.
    pub now: Timestamp,
    /// The same as it passes for this process.
    pub moment: Instant,
}

/// A snapshot of a pool, which may be gone, and when it has to be looked at again although nothing changes.
pub fn observe(known: &Known<'_>, learned: &mut Learned) -> (Observed, Option<Duration>) {
    let Known { caches, index, key, .. } = *known;
    let found = caches.pools.get(key);
    let mut pool = match &found {
        Some(found) => view(found, known),
        None => Pool {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            deleting: true,
            absent: true,
            ..Pool::default()
        },
    };
    let spec = found.as_ref().map(|it| &it.spec);
    let timeout = spec.and_then(resume_timeout);
    let mut resuming = std::mem::take(&mut learned.resuming);
    let all = index.clusters.kept(key).map(|it| {
        let resumes = timeout.zip(resuming_since(it)).map(|(timeout, since)| {
            let before = resuming.remove(&it.name_any()).filter(|(known, _)| *known == since);
            let (_, watched) = before.unwrap_or((since, known.moment));
            learned.resuming.insert(it.name_any(), (since, watched));
            timeout.saturating_sub(known.moment.saturating_duration_since(watched))
        });
        let (mut cluster, late) = cluster(it, &pool, resumes, known.now);
        let begins = wait_for_hive(known, it, &mut cluster);
        (cluster, late.into_iter().chain(begins).min())
    });
    let (clusters, late): (Vec<Cluster>, Vec<Option<Duration>>) = all.unzip();
    // Where the pool is there, only those namespaces matter that have no cluster.
    let own: HashSet<&str> =
        clusters.iter().filter(|_| !pool.absent).map(|it| it.name.as_str()).collect();
    let (namespaces, vacant) = namespaces(known, &own, &mut learned.met);
    let template = format!("{} {}", pool.version.own, known.materials.versions);
    let about = About { known, pool: &pool, spec, own: &own, template };
    let mut customizations = customizations(&about, &mut learned.trials);
    customizations.extend(broken_customizations(&about, &clusters));
    let (remarks, retried) = retries(known, &pool);
    pool.remarks.extend(remarks);
    let claims = index.claims.of(key).filter_map(|it| caches.claims.get(it));
    let seen = Observed {
        claims: claims.map(|it| claim(&it)).collect(),
        unread: unread(broken_clusters(caches), index, key),
        unread_claims: broken_claims(caches, &key.namespace),
        taken: known.efforts.taken.clone(),
        turned_down: known.efforts.turned_down.clone(),
        refused: known.efforts.refused.clone(),
        materials: known.materials.versions.clone(),
        missing: known.materials.missing.clone(),
        pool,
        clusters,
        customizations,
        namespaces,
    };
    (seen, late.into_iter().chain([vacant, retried]).flatten().min())
}

/// Notes of a cluster that Hive has not begun to install what Hive says of that, once it lasts, and whether the cluster is to be
/// looked after; and when it is, if it is not yet.
fn wait_for_hive(
    known: &Known<'_>,
    it: &ClusterDeployment,
    cluster: &mut Cluster,
) -> Option<Duration> {
    if !cluster.is_installing() || cluster.unverified || has_begun(it) {
        return None;
    }
    let grace = grace(known);
    // Told as long as it lasts, however often it is looked after.
    let lasts = until(cluster.created, known.now) >= grace;
    cluster.not_begun = lasts.then(|| hives_words(it));
    let since = known.efforts.tended.get(&cluster.name).copied().unwrap_or(cluster.created);
    let left = grace.saturating_sub(until(since, known.now));
    cluster.idle = left.is_zero();
    (!cluster.idle).then_some(left)
}

/// The namespaces that were made for the pool and have no cluster; and when to look again at one that somebody else's
/// cluster lives in. Of those that had a cluster it is noted until they are gone.
fn namespaces(
    known: &Known<'_>,
    own: &HashSet<&str>,
    met: &mut BTreeSet<String>,
) -> (Vec<Namespace>, Option<Duration>) {
    let Known { caches, index, key, .. } = *known;
    met.retain(|name| {
        own.contains(name.as_str()) || index.namespaces.is_in(&key_in("", name), key)
    });
    met.extend(own.iter().map(|it| (*it).to_owned()));
    let empty: Vec<&Key> =
        index.namespaces.of(key).filter(|it| !own.contains(it.name.as_str())).collect();
    let strangers = if empty.is_empty() { HashSet::new() } else { strangers(caches, index, key) };
    let (lived_in, empty): (Vec<&Key>, Vec<&Key>) =
        empty.into_iter().partition(|it| strangers.contains(&it.name));
    let namespaces = empty.into_iter().filter_map(|it| caches.namespaces.get(it));
    let namespaces = namespaces.map(|it| Namespace {
        name: it.name_any(),
        uid: it.uid().unwrap_or_default(),
        pool_uid: owner_of(&it).map(|(_, _, uid)| uid.to_owned()).unwrap_or_default(),
        made_from: it.annotations().get(names::ferrite::MADE_FROM).cloned().unwrap_or_default(),
        created: created(&*it),
        deleting: it.metadata.deletion_timestamp.is_some(),
        begun: known.efforts.begun.contains(&it.name_any()),
        vacated: met.contains(&it.name_any()),
    });
    // Nothing of the pool changes when a stranger's cluster goes.
    (namespaces.collect(), lived_in.first().map(|_| grace(known)))
}

/// The customizations of the pool's namespace that can be read.
fn customizations(about: &About<'_>, trials: &mut BTreeMap<String, Trial>) -> Vec<Customization> {
    let listed: HashSet<&str> = about.pool.listed.names().iter().map(String::as_str).collect();
    trials.retain(|name, _| listed.contains(name.as_str()));
    let all = about.known.index.customizations.kept(&all_in(&about.known.key.namespace));
    all.map(|found| {
        let it = about.customization(found);
        let is_wanted = listed.contains(it.name.as_str()) && !it.deleting;
        let refused = is_wanted.then(|| about.tried(found, &it.version, trials)).flatten();
        Customization { refused, ..it }
    })
    .collect()
}

/// What the listed customizations say of another try and is no time of now, in words for the pool's condition; and when the
/// first time has come that is still ahead: a person's clock may be some seconds before this one.
fn retries(known: &Known<'_>, pool: &Pool) -> (Vec<String>, Option<Duration>) {
    let all = known.index.customizations.kept(&all_in(&known.key.namespace));
    let said = all.filter_map(|it| Some((it.name_any(), retry(it)?)));
    let (mut remarks, mut due) = (Vec::new(), None);
    for (name, said) in said.filter(|(name, _)| pool.listed.names().contains(name)) {
        match said {
            Ok(time) if time <= known.now => {}
            Ok(time) => {
                remarks.push(text::early_retry(&name, time));
                due = due.into_iter().chain([until(known.now, time)]).min();
            }
            Err(said) => remarks.push(text::wrong_retry(&name, said)),
        }
    }
    (remarks, due)
}

/// The listed customizations that cannot be read, by name.
fn broken_customizations(about: &About<'_>, clusters: &[Cluster]) -> Vec<Customization> {
    let mut all = Vec::new();
    let mut broken = about.known.caches.customizations.broken.all();
    broken.retain(|it| it.object.namespace.as_ref() == Some(&about.known.key.namespace));
    broken.sort_by(|one, other| one.object.name.cmp(&other.object.name));
    for broken in broken {
        let name = broken.object.name.clone().unwrap_or_default();
        if !about.pool.listed.names().contains(&name) {
            continue;
        }
        let user = clusters.iter().find(|it| it.entry.as_ref() == Some(&name));
        let refused = format!("it cannot be read: {}; correct it", broken.problem);
        // What is in it cannot be told, so it counts as what it was.
        let known = about.pool.status.inventory.get(&name).and_then(|it| it.version.clone());
        let version = user.and_then(|it| it.entry_version.clone()).or(known);
        all.push(Customization {
            at: broken.object.resource_version.unwrap_or_default(),
            version: version.or(broken.object.uid).unwrap_or_default(),
            kept: true,
            // Who has it cannot be read. It is not used, and not taken away either.
            lease: user.map(|it| Lease {
                cluster: Some(it.name.clone()),
                pool: Some(about.known.key.name.clone()),
                pool_exists: true,
                releasing: false,
                whole: true,
            }),
            others: about.others(&key_in(&about.known.key.namespace, &name)),
            listed_elsewhere: true,
            refused: Some(refused),
            unread: true,
            name,
            ..Customization::default()
        });
    }
    all
}

/// For how long a cluster is left alone. Nobody looks after it more often than at what it is made from.
fn grace(known: &Known<'_>) -> Duration {
    known.policy.namespace_grace.max(LOOK_COUNTS)
}

/// Whether a cluster may occupy what its entry stands for.
fn is_live(it: &ClusterDeployment) -> bool {
    it.metadata.deletion_timestamp.is_none()
        || it.finalizers().iter().any(|it| it != names::hive::INVENTORY_FINALIZER)
}

struct About<'a> {
    known: &'a Known<'a>,
    pool: &'a Pool,
    /// Of the pool, where it is there.
    spec: Option<&'a ClusterPoolSpec>,
    /// Names of its clusters, where it is there.
    own: &'a HashSet<&'a str>,
    /// What the patches are applied to.
    template: String,
}

impl About<'_> {
    fn pool_exists(&self, name: &str) -> bool {
        let key = key_in(&self.known.key.namespace, name);
        self.known.caches.pools.get(&key).is_some() || self.known.caches.pools.is_broken(&key)
    }

    /// Live clusters that were made from the entry and are not this pool's.
    fn others(&self, entry: &Key) -> Vec<String> {
        let users = self.known.index.users.of(entry);
        users
            .filter(|it| !self.known.index.clusters.is_in(it, self.known.key))
            .filter_map(|it| self.known.caches.clusters.get(it))
            .filter(|it| is_live(it))
            .map(|it| it.name_any())
            .collect()
    }

    /// A customization; whether its patches can be used is not tried here.
    fn customization(&self, it: &ClusterDeploymentCustomization) -> Customization {
        let entry = key_in(&self.known.key.namespace, &it.name_any());
        let mut others = self.others(&entry);
        let stranger = self.stranger(it).filter(|it| !others.contains(it));
        others.extend(stranger);
        Customization {
            at: it.resource_version().unwrap_or_default(),
            version: version(it),
            retry: retry(it).and_then(Result::ok),
            deleting: it.metadata.deletion_timestamp.is_some(),
            kept: has_finalizer(it, names::hive::LEASE_FINALIZER),
            kept_by_hive: hives_finalizer(&self.known.key.name)
                .is_some_and(|hives| has_finalizer(it, &hives)),
            failed_by_hive: it.status.as_ref().is_some_and(|it| {
                let said = find(&it.conditions, names::hive::CONDITION_APPLY_SUCCEEDED);
                said.is_some_and(Condition::is_false)
            }),
            lease: lease(it, |pool| self.pool_exists(pool)),
            others,
            listed_elsewhere: self.is_listed_elsewhere(&entry),
            refused: None,
            unread: false,
            name: entry.name,
        }
    }

    /// The cluster that the lease names, where that is there and not this pool's, whoever made it and from what.
    fn stranger(&self, it: &ClusterDeploymentCustomization) -> Option<String> {
        let reference = it.status.as_ref()?.cluster_deployment_ref.as_ref()?;
        let name = it.leased_by()?;
        if self.own.contains(name) && reference.namespace.as_deref().is_none_or(|it| it == name) {
            return None;
        }
        named(it).into_iter().find(|place| self.is_strange(place)).map(|place| place.name)
    }

    fn is_strange(&self, place: &Key) -> bool {
        if place.namespace == place.name && self.own.contains(place.name.as_str()) {
            return false;
        }
        let Some(found) = self.known.caches.clusters.get(place) else {
            // One that cannot be read, in a namespace of the pool, may be its own.
            let is_here =
                self.known.index.namespaces.is_in(&key_in("", &place.namespace), self.known.key);
            return !is_here && self.known.caches.clusters.is_broken(place);
        };
        // One that is new may be in the cache, and not yet among the pool's.
        let is_own = is_one(&found) && pool_key(&found).as_ref() == Some(self.known.key);
        !is_own && is_live(&found)
    }

    fn is_listed_elsewhere(&self, entry: &Key) -> bool {
        let mut lists = self.known.index.lists.of(entry).filter(|pool| *pool != self.known.key);
        lists.any(|pool| {
            let pool = self.known.caches.pools.get(pool);
            pool.is_some_and(|it| it.metadata.deletion_timestamp.is_none())
        })
    }

    /// Why the patches cannot be used, tried once for each version of them and of the template.
    fn tried(
        &self,
        it: &ClusterDeploymentCustomization,
        version: &str,
        trials: &mut BTreeMap<String, Trial>,
    ) -> Option<String> {
        let config = self.known.materials.config.as_ref()?;
        let is_same = |it: &&Trial| it.version == version && it.template == self.template;
        if let Some(same) = trials.get(&it.name_any()).filter(is_same) {
            return same.refused.clone();
        }
        let like_a_cluster = trial_name(&self.pool.name);
        let target = Target::of(self.spec?, &like_a_cluster);
        let (patches, rules) = (&it.spec.install_config_patches, self.known.policy.rules);
        let tried = patch::install_config(config, target, patches, rules);
        let refused = tried.err().map(|it| it.to_string());
        let (version, template) = (version.to_owned(), self.template.clone());
        trials.insert(it.name_any(), Trial { version, template, refused: refused.clone() });
        refused
    }
}

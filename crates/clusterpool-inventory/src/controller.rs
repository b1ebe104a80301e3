//! Watches, and who is concerned by a change.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool,
};
use api_types::names;
use controller_kit::wakes::{Wakes, woken};
use controller_kit::watch::{self, Complaints, Undecodable, Watched};
use controller_kit::{Kit, run};
use futures_util::stream;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Controller;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use tokio::sync::mpsc;

use crate::access;
use crate::context::{Context, Warning, key_of};
use crate::echo::Echo;
use crate::error::Error;
use crate::index::{Key, all_in, holders, named, owner_of, pool_key};
use crate::metrics::Metrics;
use crate::observe::{Stores, cached};
use crate::pass::reconcile;
use crate::seen::Listed;
use crate::settings::Policy;

/// A pass makes a handful of clusters; one that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often objects that cannot be decoded are told.
const TICK: Duration = Duration::from_secs(10);

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let config = watcher::Config::default();
    let of_pools = watcher::Config::default().labels(names::hive::POOL_NAME);
    let pools: Watched<ClusterPool> = watch::namespaced(&kit, &config);
    let customizations: Watched<ClusterDeploymentCustomization> = watch::namespaced(&kit, &config);
    let claims: Watched<ClusterClaim> = watch::namespaced(&kit, &config);
    // Each cluster stands in a namespace of its own.
    let clusters: Watched<ClusterDeployment> = watch::everywhere(&kit, &config);
    let namespaces: Watched<Namespace> = watch::cluster(&kit, &of_pools);
    let bindings: Watched<RoleBinding> = watch::everywhere(&kit, &config);
    let broken = [
        pools.undecodable.clone(),
        customizations.undecodable.clone(),
        claims.undecodable,
        clusters.undecodable.clone(),
    ];
    let mut known = Writer::new(());
    for start in [watcher::Event::Init, watcher::Event::InitDone] {
        known.apply_watcher_event(&start);
    }
    let (wakes, to_wake) = Wakes::new();
    let (warnings, mut told) = mpsc::unbounded_channel();
    let context = Arc::new(Context {
        kit: kit.clone(),
        policy,
        metrics,
        stores: Stores {
            pools: pools.store,
            broken_pools: pools.undecodable,
            customizations: customizations.store,
            broken_customizations: customizations.undecodable,
            clusters: clusters.store,
            broken_clusters: clusters.undecodable,
            claims: claims.store,
            namespaces: namespaces.store,
            bindings: bindings.store,
        },
        index: Mutex::default(),
        pools: known.as_reader(),
        known: Mutex::new(known),
        wakes,
        warnings,
        echo: Echo::default(),
        memory: Mutex::default(),
        started: Timestamp::now(),
    });
    let controller = Controller::for_stream(stream::pending(), context.pools.clone())
        .reconcile_on(woken(to_wake, ()))
        .reconcile_all_on(kit.allowed());
    let feed = async {
        tokio::join!(
            watch::feed(pools.changes, |it| context.pool_changed(it)),
            watch::feed(customizations.changes, |it| context.entry_changed(it)),
            watch::feed(clusters.changes, |it| context.cluster_changed(it)),
            watch::feed(claims.changes, |it| context.claim_changed(it)),
            watch::feed(namespaces.changes, |it| context.namespace_changed(it)),
            watch::feed(bindings.changes, |it| context.binding_changed(it)),
        )
    };
    let drive = run::drive(&kit, controller, context.clone(), DEADLINE, reconcile, Error::class);
    let publish = async {
        while let Some(Warning { about, reason, action, note }) = told.recv().await {
            kit.events.warning(&about, reason, &action, &note).await;
        }
    };
    tokio::select! {
        () = drive => Ok(()),
        () = publish => Err("Nobody has anything to tell any more".to_owned()),
        _ = feed => Err("A watch ended".to_owned()),
        never = tell(&context, &broken) => match never {},
    }
}

/// Tells the owners of objects that cannot be decoded.
async fn tell(context: &Context, broken: &[Undecodable]) -> std::convert::Infallible {
    let mut complaints = Complaints::default();
    loop {
        tokio::time::sleep(TICK).await;
        for it in complaints.tell(&context.kit, broken).await {
            // A customization that never could be decoded was never a change for its pools.
            let named =
                (it.object.namespace.unwrap_or_default(), it.object.name.unwrap_or_default());
            let listing: Vec<Key> = context.index().lists.of(&named).cloned().collect();
            context.wake(listing);
        }
    }
}

impl Context {
    fn pool_changed(&self, changed: &ClusterPool) {
        let key = key_of(changed);
        let now = cached(&self.stores.pools, &key);
        let mut index = self.index();
        let was_there = index.pools.of(&all_in(&key.0)).any(|it| *it == key);
        index.pools.put(&key, now.iter().map(|_| all_in(&key.0)));
        let listed = now.as_ref().map(|it| Listed::of(&it.spec)).unwrap_or_default();
        let entries = listed.names().iter().map(|name| (key.0.clone(), name.clone()));
        let touched = index.lists.put(&key, entries);
        let mut concerned: BTreeSet<Key> =
            touched.iter().flat_map(|entry| index.lists.of(entry)).cloned().collect();
        // Whether a pool is there decides about the leases that name it.
        if was_there != now.is_some() {
            concerned.extend(index.pools.of(&all_in(&key.0)).cloned());
        }
        // What it listed may be nobody's now.
        if was_there && now.is_none() {
            concerned.insert(all_in(&key.0));
        }
        concerned.insert(key);
        drop(index);
        self.wake(concerned);
    }

    fn entry_changed(&self, changed: &ClusterDeploymentCustomization) {
        let key = key_of(changed);
        let now = cached(&self.stores.customizations, &key);
        let mut index = self.index();
        index.customizations.keep(&key, now.iter().map(|it| (all_in(&key.0), it.clone())));
        let pools = now.iter().flat_map(|it| holders(it));
        let pools = pools.map(|it| (key.0.clone(), it.to_owned()));
        let holders = index.leases.put(&key, pools);
        index.named.put(&key, now.iter().flat_map(|it| named(it)));
        let mut concerned: BTreeSet<Key> = index.lists.of(&key).cloned().collect();
        concerned.extend(holders);
        let users = index.users.of(&key).filter_map(|it| cached(&self.stores.clusters, it));
        concerned.extend(users.filter_map(|it| pool_key(&it)).filter(|it| it.0 == key.0));
        // One that nobody needs and that has our finalizer is let go in the name of no pool.
        let kept = now
            .is_some_and(|it| it.finalizers().iter().any(|it| it == names::hive::LEASE_FINALIZER));
        if concerned.is_empty() && kept {
            concerned.insert(all_in(&key.0));
        }
        drop(index);
        self.wake(concerned);
    }

    fn cluster_changed(&self, changed: &ClusterDeployment) {
        let key = key_of(changed);
        let now = cached(&self.stores.clusters, &key);
        let concerned = self.index().put_cluster(&key, now);
        self.wake(concerned);
    }

    fn claim_changed(&self, changed: &ClusterClaim) {
        let key = key_of(changed);
        let now = cached(&self.stores.claims, &key);
        let pool = now.map(|it| (key.0.clone(), it.spec.cluster_pool_name.clone()));
        // Also for a pool that never was: the claim says so.
        let concerned = self.index().claims.put(&key, pool);
        self.wake(concerned);
    }

    fn namespace_changed(&self, changed: &Namespace) {
        let key = key_of(changed);
        let now = cached(&self.stores.namespaces, &key);
        let pool = now.and_then(|it| {
            owner_of(&it).map(|(namespace, name, _)| (namespace.to_owned(), name.to_owned()))
        });
        let concerned = self.index().namespaces.put(&key, pool);
        self.wake(concerned);
    }

    fn binding_changed(&self, changed: &RoleBinding) {
        let key = key_of(changed);
        let now = cached(&self.stores.bindings, &key);
        let is_admins = now.is_some_and(|it| access::is_admins(&it));
        let mut index = self.index();
        let touched = index.admins.put(&key, is_admins.then(|| all_in(&key.0)));
        let mut concerned: Vec<Key> = Vec::new();
        for namespace in touched {
            concerned.extend(index.pools.of(&namespace).cloned());
        }
        drop(index);
        self.wake(concerned);
    }
}

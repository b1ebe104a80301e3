//! Pools as the tests begin with.

use api_types::condition::find;
use api_types::hive::EntryState;
use clusterpool_inventory::decide::decide;
use clusterpool_inventory::decision::{Decision, Step};
use clusterpool_inventory::make::made_from;
use clusterpool_inventory::pool_version::PoolVersion;
use clusterpool_inventory::reason::Reason;
use clusterpool_inventory::seen::{
    Claim, Cluster, Customization, Lease, Listed, Namespace, Observed, Pool,
};
use clusterpool_inventory::settings::Policy;
use k8s_openapi::jiff::Timestamp;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn now() -> Timestamp {
    at(1_000_000)
}

pub(crate) fn pool(size: usize, entries: &[&str]) -> Observed {
    let names: Vec<String> = entries.iter().map(|it| (*it).to_owned()).collect();
    Observed {
        pool: Pool {
            namespace: "ns".to_owned(),
            name: "pool".to_owned(),
            uid: "uid".to_owned(),
            at: "1".to_owned(),
            kept: true,
            listed: if names.is_empty() { Listed::Nothing } else { Listed::Entries(names) },
            size,
            version: PoolVersion { own: "v".to_owned(), ..PoolVersion::default() },
            ..Pool::default()
        },
        customizations: entries.iter().map(|it| customization(it)).collect(),
        ..Observed::default()
    }
}

pub(crate) fn customization(name: &str) -> Customization {
    Customization {
        name: name.to_owned(),
        at: "5".to_owned(),
        version: "1-u".to_owned(),
        kept: true,
        ..Customization::default()
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as the field wants it")]
pub(crate) fn lease(cluster: &str) -> Option<Lease> {
    Some(Lease {
        cluster: Some(cluster.to_owned()),
        pool: Some("pool".to_owned()),
        pool_exists: true,
        releasing: false,
        whole: true,
    })
}

/// An installed cluster that runs, made at `second`.
pub(crate) fn cluster(name: &str, entry: Option<&str>, second: i64) -> Cluster {
    Cluster {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        at: "7".to_owned(),
        created: at(second),
        deleting: false,
        hangs: false,
        kept: entry.is_some(),
        kept_by_others: true,
        entry: entry.map(str::to_owned),
        entry_version: entry.map(|_| "1-u".to_owned()),
        pool_version: Some("v".to_owned()),
        claim: None,
        claim_uid: None,
        claimed: None,
        marked: false,
        protected: false,
        unverified: false,
        installed: true,
        stopped: None,
        not_begun: None,
        idle: false,
        slow: false,
        stuck: false,
        running: true,
        asked_to_run: None,
    }
}

pub(crate) fn installing(name: &str, entry: Option<&str>, second: i64) -> Cluster {
    Cluster { installed: false, running: false, ..cluster(name, entry, second) }
}

pub(crate) fn failed(name: &str, entry: Option<&str>) -> Cluster {
    Cluster { stopped: Some("no quota".to_owned()), ..installing(name, entry, 1) }
}

/// A pool whose entries are leased by a cluster each, of the entry's name with a `c` before it.
pub(crate) fn full(size: usize, entries: &[&str]) -> Observed {
    let mut seen = pool(size, entries);
    for (second, entry) in (0..).zip(&mut seen.customizations) {
        let name = format!("c{}", entry.name);
        entry.lease = lease(&name);
        seen.clusters.push(cluster(&name, Some(&entry.name), second));
    }
    seen
}

pub(crate) fn claim(name: &str, second: i64) -> Claim {
    Claim {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        at: "3".to_owned(),
        created: at(second),
        deleting: false,
        cluster: None,
        pending: None,
    }
}

/// One in which a cluster without an entry was begun.
pub(crate) fn namespace(name: &str) -> Namespace {
    Namespace {
        name: name.to_owned(),
        uid: "u".to_owned(),
        pool_uid: "uid".to_owned(),
        made_from: made_from(&pool(1, &[]), None),
        created: now(),
        deleting: false,
        begun: true,
        vacated: false,
    }
}

/// One in which a cluster of an entry was begun.
pub(crate) fn half_made(name: &str) -> Namespace {
    let made_from = made_from(&pool(1, &["a"]), Some("1-u"));
    Namespace { made_from, begun: false, ..namespace(name) }
}

pub(crate) fn decided(seen: &Observed) -> Decision {
    decide(seen, &Policy::default(), now())
}

pub(crate) fn reasons(seen: &Observed) -> Vec<Reason> {
    decided(seen).work.iter().map(|it| it.reason).collect()
}

pub(crate) fn deleted(seen: &Observed) -> Vec<String> {
    let work = decided(seen).work;
    let names = work.into_iter().flat_map(|it| it.steps).filter_map(|it| match it {
        Step::Delete(cluster) => Some(cluster),
        _ => None,
    });
    names.collect()
}

pub(crate) fn leased(seen: &Observed) -> Vec<String> {
    let work = decided(seen).work;
    let names = work.into_iter().flat_map(|it| it.steps).filter_map(|it| match it {
        Step::Lease { entry, .. } => Some(entry),
        _ => None,
    });
    names.collect()
}

/// The entries once the status was stored.
pub(crate) fn stored(seen: &Observed) -> Observed {
    let mut seen = seen.clone();
    if let Some(status) = decided(&seen).status {
        seen.pool.status = status;
    }
    seen
}

pub(crate) fn status_of(seen: &Observed, entry: &str) -> String {
    let seen = stored(seen);
    seen.pool.status.inventory.get(entry).map_or("absent", |it| it.status.as_str()).to_owned()
}

pub(crate) fn entry(seen: &Observed, name: &str) -> EntryState {
    stored(seen).pool.status.inventory[name].clone()
}

/// A condition of the pool without its times.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// As the next decision stores it.
pub(crate) fn condition(seen: &Observed, kind: &str) -> Told {
    stored_condition(&stored(seen), kind)
}

pub(crate) fn stored_condition(seen: &Observed, kind: &str) -> Told {
    let found = find(&seen.pool.status.conditions, kind).cloned().unwrap();
    let (reason, message) = (found.reason.unwrap(), found.message.unwrap());
    Told { status: found.status, reason, message }
}

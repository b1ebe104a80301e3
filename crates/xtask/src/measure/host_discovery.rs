//! host-discovery: many machines become hosts, one that was switched on does, and nothing happens for a while.
//!
//! Ironic holds the installation's hosts and half as many new machines. They are put into its database beside one that
//! was discovered, since it takes Ironic a good part of a second to take in an inventory.

mod hung;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery};
use bench::agent::Agent;
use bench::ironic::{Ironic, Options};
use bench::proxy::{Proxy, Recorded, writes};
use bench::steps::step_async;
use bench::{bmo, crds};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::json;

use super::apart::Apart;
use super::fleet::{self, fleet};
use super::program::{Account, Running};
use super::{
    AT_ONCE, Environment, Figure, Ground, Limits, Program, Work, account, requests, rest, watch,
};

/// Ironic with its database is slower than the API server: what it takes to read the machines is told apart from what it
/// takes to make hosts of them.
pub(super) const WORK: Work = Work {
    controller: "host-discovery",
    build: &["--package=host-discovery", "--bin=host-discovery"],
    program: "host-discovery",
    chart: Some("host-discovery"),
    values: r#"{"ironic": {"endpoint": "http://ironic:6385"}}"#,
    neighbours: |ground| Box::pin(neighbours(ground)),
    limits: Limits { megabytes: 15.0, ready_ms: 300.0, resident_megabytes: 15.0, share: 0.0 },
    operation: None,
    further: Some(|ground, program| Box::pin(further(ground, program))),
};

/// An Ironic of its own, since every machine that is there becomes a host.
pub(super) struct Machines {
    ironic: Ironic,
    proxy: Proxy,
}

/// The machine that all others are like. No other has its number.
const FIRST: u32 = 0xf0_0000;
/// Machines that are switched on one by one.
const ONE_BY_ONE: u32 = 10;
const POLL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(1800);
const DISCOVERY: &str = "racks";
const NODE_ID: &str = api_types::names::ferrite::NODE_ID;
const POLLS: &str = "ferrite_host_discovery_poll_seconds_count";
const FULLS: &str = "ferrite_host_discovery_poll_seconds_count{nodes=\"all\"}";

async fn neighbours(ground: &Ground) -> anyhow::Result<Environment> {
    crds::install(&ground.admin, &[crds::Group::Metal3]).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(ground.admin.clone());
    let crd = BareMetalHostDiscovery::crd();
    match crds.create(&PostParams::default(), &crd).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    await_condition(crds, &crd.name_any(), conditions::is_crd_established()).await?;
    let start = || async {
        let ironic = Ironic::start(Options::default()).await?;
        let proxy = Proxy::start(&ironic).await?;
        anyhow::Ok(Machines { ironic, proxy })
    };
    let machines = ground.machines.get_or_try_init(start).await?;
    Ok(vec![
        ("IRONIC_ENDPOINT", machines.proxy.endpoint.clone()),
        // How fast is what is measured.
        ("FERRITE_CREATE_RATE", "10000".to_owned()),
        ("FERRITE_POLL_INTERVAL", format!("{}s", POLL.as_secs())),
        // At rest only what is new is asked for.
        ("FERRITE_FULL_SYNC_INTERVAL", "1h".to_owned()),
    ])
}

async fn further(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Vec<Figure>> {
    // Its machines are hosts after the first program's turn.
    if program.is_peer {
        return Ok(Vec::new());
    }
    let machines = ground.machines.get().context("there is no Ironic")?;
    let account = account(ground, program).await?;
    fleet(ground).await?;
    let (new, nodes) = (ground.hosts / 2, ground.hosts + ground.hosts / 2);
    let node = populate(ground, machines, new).await?;
    let site = ground.plane.namespace("discovered").await;
    discovery(ground, &site).await?;

    let running = Running::start(ground, program, &account).await?;
    let began = Instant::now();
    all_pending(ground, &site, new).await?;
    let read = began.elapsed();
    // It is asked once more about each machine, on processors that are not the API server's.
    let apart = Apart::begin(machines.ironic.group())?;
    let made = approved(ground, &site, new).await?;
    drop(apart);
    let memory = running.resident_megabytes()?;
    marked(machines, new).await?;
    rest(ground, &account).await?;
    let quiet = at_rest(ground, machines, &running, &account.user).await?;
    let latest = switched_on(ground, machines, &site).await?;
    let slower = hung::slower(ground, machines, &node, &site).await?;
    running.stop().await?;
    let sync = full_sync(ground, program, &account).await?;
    let apart = Apart::begin(machines.ironic.group())?;
    let (posted, bare) = bare(ground, &account, &site).await?;
    drop(apart);

    let each = |time: Duration, count: u32| time.as_secs_f64() / f64::from(count);
    let plain = |what: String, value| Figure { what, value, at_most: None };
    let figure = |what: String, value, limit| Figure { what, value, at_most: Some(limit) };
    Ok(vec![
        plain(format!("machines a second, {new} read from Ironic"), 1.0 / each(read, new)),
        plain(format!("hosts a second, {new} approved at once"), 1.0 / each(made, new)),
        plain(format!("bare POSTs a second of {posted} of them"), 1.0 / each(bare, posted)),
        // Four fifths of their rate.
        figure(
            "times the time of bare POSTs".to_owned(),
            each(made, new) / each(bare, posted),
            1.25,
        ),
        figure(
            "ms from an inventory in Ironic to its host, longest of ten".to_owned(),
            latest.as_secs_f64() * 1000.0,
            POLL.as_secs_f64() * 1000.0 + 100.0,
        ),
        figure(
            "times as long for 160 machines while the inventories of 40 more hang".to_owned(),
            slower,
            1.2,
        ),
        figure("requests to Ironic for a poll at rest".to_owned(), quiet.each_poll, 1.0),
        figure("bytes of an answer to it".to_owned(), quiet.bytes, 100.0),
        figure("requests to Kubernetes at rest".to_owned(), quiet.kubernetes, 0.0),
        figure(format!("ms of processor time of a full sync of {nodes} nodes"), sync, 2000.0),
        figure(format!("megabytes resident with {nodes} hosts"), memory, 64.0),
    ])
}

/// The installation's hosts, and so many new machines. Gives the node that all are like.
async fn populate(ground: &Ground, machines: &Machines, new: u32) -> anyhow::Result<String> {
    let first = Agent::new(FIRST);
    let (status, body) = first.post(&machines.ironic).await?;
    let node = body["uuid"].as_str().with_context(|| format!("{status} {body}"))?;
    machines.ironic.inventoried(node).await?;
    let hosts = (0..ground.hosts).map(|n| (fleet::node(n), Agent::new(n + 1)));
    let new = (1..new).map(|n| {
        let node = format!("00000000-0000-0000-0001-{n:012}");
        (node, Agent::new(ground.hosts + n))
    });
    let all: Vec<_> = hosts.chain(new).collect();
    let what = format!("{} machines in Ironic", all.len() + 1);
    step_async(&what, machines.ironic.multiply(node, &first, &all)).await?;
    Ok(node.to_owned())
}

fn discoveries(ground: &Ground, site: &str) -> Api<BareMetalHostDiscovery> {
    Api::namespaced(ground.admin.clone(), site)
}

async fn discovery(ground: &Ground, site: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHostDiscovery",
        "metadata": { "name": DISCOVERY },
        "spec": {
            "resourceNameTemplate": { "hardwareDetails": "hostname" },
            "approval": "Manual",
        },
    });
    let object = serde_json::from_value(object)?;
    discoveries(ground, site).create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Every new machine was read and waits.
async fn all_pending(ground: &Ground, site: &str, new: u32) -> anyhow::Result<()> {
    let api = discoveries(ground, site);
    let began = Instant::now();
    loop {
        let counts = api.get(DISCOVERY).await?.status.and_then(|it| it.counts);
        if counts.as_ref().is_some_and(|it| i64::from(it.pending) == i64::from(new)) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "not every machine was read: {counts:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Hosts as they come, without what is in them.
fn hosts(
    ground: &Ground,
    site: &str,
) -> impl Stream<Item = watcher::Result<watcher::Event<PartialObjectMeta<BareMetalHost>>>> {
    let api: Api<PartialObjectMeta<BareMetalHost>> = Api::namespaced(ground.admin.clone(), site);
    watch::events(api, watcher::Config::default())
}

/// From the beginning of something by which so many hosts are made in a namespace without any, to the last of them.
async fn seen(
    ground: &Ground,
    site: &str,
    new: u32,
    making: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Duration> {
    let mut seen = pin!(hosts(ground, site));
    // What it begins with is nothing.
    while !matches!(seen.try_next().await?, Some(watcher::Event::InitDone)) {}
    let all = async {
        let mut names = BTreeSet::new();
        while names.len() < usize::try_from(new)? {
            let change = seen.try_next().await?.context("the watch on the hosts ended")?;
            if let watcher::Event::Apply(host) | watcher::Event::InitApply(host) = change {
                names.insert(host.name_any());
            }
        }
        anyhow::Ok(())
    };
    let began = Instant::now();
    let both = async { tokio::try_join!(making, all) };
    tokio::time::timeout(PATIENCE, both).await.context("not every machine becomes a host")??;
    Ok(began.elapsed())
}

/// From one word of a person to the last host.
async fn approved(ground: &Ground, site: &str, new: u32) -> anyhow::Result<Duration> {
    let word = async {
        let patch = Patch::Merge(json!({ "spec": { "approval": "Automatic" } }));
        discoveries(ground, site).patch(DISCOVERY, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    seen(ground, site, new, word).await
}

/// Each of their nodes bears its mark.
async fn marked(machines: &Machines, new: u32) -> anyhow::Result<()> {
    let began = Instant::now();
    let mark = |it: &Recorded| {
        writes(&it.method, &it.path) && it.status.is_some_and(|status| status.is_success())
    };
    while machines.proxy.count(mark) < usize::try_from(new)? {
        ensure!(began.elapsed() < PATIENCE, "not every node is marked");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

struct Rest {
    each_poll: f64,
    bytes: f64,
    kubernetes: f64,
}

async fn at_rest(
    ground: &Ground,
    machines: &Machines,
    running: &Running,
    user: &str,
) -> anyhow::Result<Rest> {
    let polls = running.metric(POLLS).await?;
    let (before, mark) = (machines.proxy.requests().len(), ground.audit.mark().await?);
    tokio::time::sleep(POLL * 4).await;
    let counts = ground.audit.since(mark).await?;
    let asked = machines.proxy.requests().split_off(before);
    let polls = running.metric(POLLS).await? - polls;
    ensure!(polls > 0.0, "Ironic was not asked at all");
    Ok(Rest {
        each_poll: asked.len() as f64 / polls,
        bytes: asked.iter().map(|it| it.response_bytes).max().unwrap_or_default() as f64,
        kubernetes: requests(&counts, user).values().sum::<u64>() as f64,
    })
}

/// Machines that are switched on one after the other, at all moments between two polls: the longest time from an
/// inventory that is there to its host.
async fn switched_on(ground: &Ground, machines: &Machines, site: &str) -> anyhow::Result<Duration> {
    let mut seen = pin!(hosts(ground, site));
    let mut longest = Duration::ZERO;
    for number in 1..=ONE_BY_ONE {
        tokio::time::sleep(POLL * number / ONE_BY_ONE).await;
        let agent = Agent::new(FIRST + number);
        let (status, body) = agent.post(&machines.ironic).await?;
        let node = body["uuid"].as_str().with_context(|| format!("{status} {body}"))?;
        machines.ironic.inventoried(node).await?;
        let there = Instant::now();
        let made = async {
            loop {
                let change = seen.try_next().await?.context("the watch on the hosts ended")?;
                if let watcher::Event::Apply(host) | watcher::Event::InitApply(host) = change
                    && host.annotations().get(NODE_ID).is_some_and(|it| it == node)
                {
                    return anyhow::Ok(Instant::now());
                }
            }
        };
        let made = tokio::time::timeout(PATIENCE, made).await.context("it becomes no host")??;
        longest = longest.max(made.saturating_duration_since(there));
    }
    Ok(longest)
}

/// What a list of all nodes costs the program itself, in milliseconds, the polls between two of them included.
async fn full_sync(
    ground: &Ground,
    program: &Program<'_>,
    account: &Account,
) -> anyhow::Result<f64> {
    let often = program.told(vec![("FERRITE_FULL_SYNC_INTERVAL", "20s".to_owned())]);
    let running = Running::start(ground, &often, account).await?;
    // It takes the lease, lists the hosts, and sees every node for the first time.
    fulls(&running, 2.0).await?;
    let before = running.cpu_ms()?;
    fulls(&running, 4.0).await?;
    let cost = (running.cpu_ms()? - before) / 2.0;
    running.stop().await?;
    Ok(cost)
}

async fn fulls(running: &Running, wanted: f64) -> anyhow::Result<()> {
    let began = Instant::now();
    while running.metric(FULLS).await? < wanted {
        ensure!(began.elapsed() < PATIENCE, "the nodes are not listed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Makes the same hosts in another namespace, as many at a time as the controller does and under its account, whose rights
/// have to be looked up. How many, and how long it took until somebody who watches, as with the controller's, has seen them.
/// All of them: the API server collects its garbage each few seconds, and a shorter run falls between.
async fn bare(ground: &Ground, account: &Account, site: &str) -> anyhow::Result<(u32, Duration)> {
    let made = bmo::api(&ground.admin, site).list(&ListParams::default()).await?.items;
    let same = made.into_iter().map(|host| {
        let mut object = DynamicObject::new(&host.name_any(), &bmo::hosts()).data(host.data);
        object.metadata.labels = host.metadata.labels;
        object.metadata.annotations = host.metadata.annotations;
        object
    });
    let same: Vec<DynamicObject> = same.collect();
    let count = u32::try_from(same.len())?;
    let namespace = ground.plane.namespace("bare").await;
    let api = bmo::api(&account.client().await?, &namespace);
    let post = async |host: &DynamicObject| {
        api.create(&PostParams::default(), host).await?;
        anyhow::Ok(())
    };
    let posts = stream::iter(&same).map(post).buffer_unordered(AT_ONCE).try_collect::<()>();
    let took = seen(ground, &namespace, count, posts).await?;
    // Each of them is a second host of its machine.
    let api = bmo::api(&ground.admin, &namespace);
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok((count, took))
}

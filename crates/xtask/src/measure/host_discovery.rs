//! host-discovery: many machines become hosts, one that was switched on does, and nothing happens for a while.
//!
//! Ironic holds the installation's hosts and half as many new machines. They are put into its database beside one that
//! was discovered, since it takes Ironic a good part of a second to take in an inventory.

mod hung;

use std::time::{Duration, Instant};

use anyhow::ensure;
use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery};
use api_types::names::ferrite::NODE_ID;
use bench::agent::Agent;
use bench::bmo;
use bench::controller::Running;
use bench::load::millis;
use bench::objects::{DISCOVERY, apply, merge, until};
use bench::proxy::{Recorded, writes};
use bench::steps::step_async;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::apart::Apart;
use super::fleet::{self, fleet};
use super::own_ironic::{FIRST, OwnIronic};
use super::row::CACHED_MEGABYTES;
use super::watch::{self, Objects};
use super::{Figures, Ground, PATIENCE, Program, Trial, each};

/// Machines that are switched on one by one.
const ONE_BY_ONE: u32 = 10;
const POLL: Duration = Duration::from_secs(5);
/// What the controller is told.
pub(super) const ENVIRONMENT: &[(&str, &str)] = &[
    // How fast is what is measured.
    ("FERRITE_CREATE_RATE", "10000"),
    ("FERRITE_POLL_INTERVAL", "5s"),
    // At rest only what is new is asked for.
    ("FERRITE_FULL_SYNC_INTERVAL", "1h"),
];
const RACKS: &str = "racks";
const POLLS: &str = "ferrite_host_discovery_poll_seconds_count";
const FULLS: &str = "ferrite_host_discovery_poll_seconds_count{nodes=\"all\"}";

/// Hosts without what is in them.
type Hosts = Objects<PartialObjectMeta<BareMetalHost>>;

pub(super) async fn work(trial: Trial<'_>) -> anyhow::Result<()> {
    let Trial { ground, program, mut figures } = trial;
    let own = program.ironic()?;
    fleet(ground).await?;
    let (new, nodes) = (ground.hosts / 2, ground.hosts + ground.hosts / 2);
    let node = populate(ground, own, new).await?;
    let site = ground.plane.namespace("discovered").await;
    let discoveries = Api::namespaced(ground.admin.clone(), &site);
    let by_hand = json!({
        "resourceNameTemplate": { "hardwareDetails": "hostname" },
        "approval": "Manual",
    });
    apply(&ground.admin, Some(&site), &DISCOVERY.object(RACKS, &by_hand)).await?;
    let each = |time: Duration, count: u32| time.as_secs_f64() / f64::from(count);

    let running = program.start().await?;
    let began = Instant::now();
    all_pending(&discoveries, new).await?;
    let read = each(began.elapsed(), new);
    figures.add(format!("machines a second, {new} read from Ironic"), 1.0 / read)?;
    // It is asked once more about each machine, on processors that are not the API server's.
    let apart = Apart::begin(own.ironic.group())?;
    // From one word of a person to the last host.
    let word = json!({ "spec": { "approval": "Automatic" } });
    let made = each(seen(ground, &site, new, merge(&discoveries, RACKS, &word)).await?, new);
    drop(apart);
    figures.add(format!("hosts a second, {new} approved at once"), 1.0 / made)?;
    let memory = running.resident_megabytes()?;
    marked(own, new).await?;
    program.rest().await?;
    at_rest(program, &running, &mut figures).await?;
    let latest = switched_on(ground, own, &site).await?;
    let slower = hung::slower(ground, own, &node, &site).await?;
    running.stop().await?;
    let sync = full_sync(program).await?;
    let apart = Apart::begin(own.ironic.group())?;
    let (posted, bare) = bare(program, &site).await?;
    drop(apart);

    let bare = each(bare, posted);
    figures.add(format!("bare POSTs a second of {posted} of them"), 1.0 / bare)?;
    // Four fifths of their rate.
    figures.limited("times the time of bare POSTs", made / bare, 1.25)?;
    let what = "ms from an inventory in Ironic to its host, longest of ten";
    figures.limited(what, millis(latest), millis(POLL) + 100.0)?;
    let what = "times as long for 160 machines while the inventories of 40 more hang";
    figures.limited(what, slower, 1.2)?;
    let what = format!("ms of processor time of a full sync of {nodes} nodes");
    figures.limited(what, sync, 2000.0)?;
    let what = format!("megabytes resident with {nodes} hosts");
    figures.limited(what, memory, CACHED_MEGABYTES)
}

/// The installation's hosts, and so many new machines. Gives the node that all are like.
async fn populate(ground: &Ground, own: &OwnIronic, new: u32) -> anyhow::Result<String> {
    let hosts = (0..ground.hosts).map(|n| (fleet::node(n), Agent::new(n + 1)));
    let new = (1..new).map(|n| {
        let node = format!("00000000-0000-0000-0001-{n:012}");
        (node, Agent::new(ground.hosts + n))
    });
    let all: Vec<_> = hosts.chain(new).collect();
    step_async(&format!("{} machines in Ironic", all.len() + 1), own.multiply(&all)).await
}

/// Every new machine was read and waits.
async fn all_pending(api: &Api<BareMetalHostDiscovery>, new: u32) -> anyhow::Result<()> {
    until("every machine is read", PATIENCE, async || {
        let counts = api.get(RACKS).await?.status.and_then(|it| it.counts);
        Ok(counts.filter(|it| i64::from(it.pending) == i64::from(new)).map(drop))
    })
    .await
}

/// Hosts as they come from now on, which are all in a namespace without any.
async fn hosts(ground: &Ground, site: &str) -> anyhow::Result<Hosts> {
    watch::from_now(Api::namespaced(ground.admin.clone(), site)).await
}

/// From the beginning of something by which so many hosts are made in a namespace without any, to the last of them.
async fn seen(
    ground: &Ground,
    site: &str,
    new: u32,
    making: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Duration> {
    let mut seen = hosts(ground, site).await?;
    let began = Instant::now();
    let all = watch::seen(&mut seen, new, "every machine becomes a host", |_| true);
    tokio::try_join!(making, all)?;
    Ok(began.elapsed())
}

/// Each of their nodes bears its mark.
async fn marked(own: &OwnIronic, new: u32) -> anyhow::Result<()> {
    let is_mark = |it: &Recorded| {
        writes(&it.method, &it.path) && it.status.is_some_and(|status| status.is_success())
    };
    until("every node is marked", PATIENCE, async || {
        Ok((own.proxy.count(is_mark) >= usize::try_from(new)?).then_some(()))
    })
    .await
}

async fn at_rest(
    program: &Program<'_>,
    running: &Running,
    figures: &mut Figures<'_>,
) -> anyhow::Result<()> {
    let proxy = &program.ironic()?.proxy;
    let polls = running.metric(POLLS).await?;
    let before = proxy.requests().len();
    let counts = program.ground.during(POLL * 4).await?;
    let asked = proxy.requests().split_off(before);
    let polls = running.metric(POLLS).await? - polls;
    ensure!(polls > 0.0, "Ironic was not asked at all");
    let bytes = asked.iter().map(|it| it.response_bytes).max().unwrap_or_default() as f64;
    let kubernetes = program.requests(&counts).values().sum::<u64>() as f64;
    figures.limited("requests to Ironic for a poll at rest", asked.len() as f64 / polls, 1.0)?;
    figures.limited("bytes of an answer to it", bytes, 100.0)?;
    figures.limited("requests to Kubernetes at rest", kubernetes, 0.0)
}

/// Machines that are switched on one after the other, at all moments between two polls: the longest time from an
/// inventory that is there to its host.
async fn switched_on(ground: &Ground, own: &OwnIronic, site: &str) -> anyhow::Result<Duration> {
    let mut seen = hosts(ground, site).await?;
    let mut longest = Duration::ZERO;
    for number in 1..=ONE_BY_ONE {
        tokio::time::sleep(POLL * number / ONE_BY_ONE).await;
        let node = own.discovered(&Agent::new(FIRST + number)).await?;
        let there = Instant::now();
        watch::next(&mut seen, "the machine becomes a host", |it| is_of(it, &node)).await?;
        longest = longest.max(there.elapsed());
    }
    Ok(longest)
}

fn is_of(host: &PartialObjectMeta<BareMetalHost>, node: &str) -> bool {
    host.annotations().get(NODE_ID).is_some_and(|it| it == node)
}

/// What a list of all nodes costs the program itself, in milliseconds, the polls between two of them included.
async fn full_sync(program: &Program<'_>) -> anyhow::Result<f64> {
    let often = vec![("FERRITE_FULL_SYNC_INTERVAL", "20s".to_owned())];
    let running = program.told(often).await?.start().await?;
    // It takes the lease, lists the hosts, and sees every node for the first time.
    fulls(&running, 2.0).await?;
    let before = running.cpu_ms()?;
    fulls(&running, 4.0).await?;
    let cost = (running.cpu_ms()? - before) / 2.0;
    running.stop().await?;
    Ok(cost)
}

async fn fulls(running: &Running, wanted: f64) -> anyhow::Result<()> {
    until("the nodes are listed", PATIENCE, async || {
        // Each answer takes the program some of the time that is measured.
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok((running.metric(FULLS).await? >= wanted).then_some(()))
    })
    .await
}

/// Makes the same hosts in another namespace, as many at a time as the controller does and under its account, whose rights
/// have to be looked up. How many, and how long it took until somebody who watches, as with the controller's, has seen them.
/// All of them: the API server collects its garbage each few seconds, and a shorter run falls between.
async fn bare(program: &Program<'_>, site: &str) -> anyhow::Result<(u32, Duration)> {
    let ground = program.ground;
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
    let api = bmo::api(&program.client().await?, &namespace);
    let post = async |host: &DynamicObject| {
        api.create(&PostParams::default(), host).await?;
        anyhow::Ok(())
    };
    let took = seen(ground, &namespace, count, each(&same, post)).await?;
    // Each of them is a second host of its machine.
    let api = bmo::api(&ground.admin, &namespace);
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok((count, took))
}

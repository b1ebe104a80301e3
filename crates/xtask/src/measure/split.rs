//! `--split`: an installation that is larger than one instance is meant for. What one instance would need for all of it,
//! what each of many needs that have their own namespace, or their own label, and what API server and Ironic need.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api_types::metal3::BareMetalHost;
use bench::agent::Agent;
use bench::control_plane::ControlPlane;
use bench::ironic::{Ironic, Options};
use bench::steps::step_async;
use futures_util::future::try_join_all;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::{Value, json};

use super::fleet::{self, RACKS};
use super::program::{Account, Running};
use super::{Environment, Ground, Program, Work, account};

/// Who reads every host.
pub(super) const CONTROLLERS: [&str; 4] =
    ["bmo-reboot", "capm3-reuse", "host-discovery", "remediation"];

/// A machine that is a host anywhere must not become one twice.
const READS_ALL: &str = "host-discovery";
const FILTER: &str = "cluster.x-k8s.io/watch-filter";
/// Found like all machines, and then like them in the database.
const FIRST: u32 = 0xf0_0000;
/// Buffers of the list go back to the system.
const SETTLED: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(1800);
const ALL: &str = "ferrite_host_discovery_poll_seconds";

/// What was measured of a large installation.
#[derive(Debug, Serialize)]
pub(super) struct Split {
    hosts: u32,
    /// How much an inspection has written about each.
    bytes_each: usize,
    parts: u32,
    /// What the API server has in use, and has stored, before anybody reads it.
    live_megabytes: f64,
    stored_megabytes: f64,
    controllers: Vec<Instances>,
    /// Seconds that a list of all nodes takes host-discovery, and one of the nodes of one conductor group.
    list_of_all: f64,
    list_of_one: f64,
}

/// What instances of one controller need.
#[derive(Debug, Serialize)]
struct Instances {
    controller: String,
    whole: Instance,
    by_namespace: Instance,
    by_label: Instance,
    /// One for each part, started at the same time as after a restart of the API server: the last one, and all their memory.
    /// Not of one that reads all hosts whatever its part is: it is not meant to be split so.
    all_parts: Option<Instance>,
}

#[derive(Debug, Serialize)]
struct Instance {
    ready_ms: f64,
    resident_megabytes: f64,
}

pub(super) async fn measure(
    works: &[&Work],
    folder: &std::path::Path,
    hosts: u32,
    nics: u32,
    parts: u32,
) -> anyhow::Result<Split> {
    let plane = ControlPlane::start_with_gos_own_limits("split");
    let plane = step_async("an API server of its own", plane).await?;
    let ground = Ground::on(plane, hosts).await;
    let mut programs = Vec::new();
    for work in works {
        let path = folder.join(work.program);
        let environment = (work.neighbours)(&ground).await?;
        programs.push(Program { work, path, is_peer: false, environment });
    }
    let bytes_each = fleet::status(0, nics).to_string().len();
    let what = format!("{hosts} hosts of {bytes_each} bytes in {parts} namespaces");
    step_async(&what, all_hosts(&ground, nics, parts)).await?;
    // It has collected the garbage of all that it was told.
    tokio::time::sleep(SETTLED).await;
    let live_megabytes = ground.plane.live_bytes().await? / 1e6;
    let stored_megabytes = stored(&ground.plane).await?;
    let mut controllers = Vec::new();
    for program in &programs {
        let what = format!("{}: whole, by namespace, by label, all parts", program.shown());
        controllers.push(step_async(&what, instances(&ground, program, parts)).await?);
    }
    let discovery = programs.iter().find(|it| it.work.controller == READS_ALL);
    let discovery = discovery.context("host-discovery is not measured")?;
    let ironic = Ironic::start(Options::default()).await?;
    step_async(&format!("{hosts} nodes in Ironic"), nodes(&ironic, hosts, parts)).await?;
    let list = async |more: Environment| {
        let environment = [vec![("IRONIC_ENDPOINT", ironic.endpoint.clone())], more].concat();
        listed(&ground, discovery, environment).await
    };
    let list_of_all = step_async("a list of all of them", list(Vec::new())).await?;
    let group =
        vec![("IRONIC_CONDUCTOR_GROUP", "group-0".to_owned()), ("FERRITE_NAMESPACES", part(0))];
    let list_of_one = step_async("a list of one conductor group", list(group)).await?;
    Ok(Split {
        hosts,
        bytes_each,
        parts,
        live_megabytes,
        stored_megabytes,
        controllers,
        list_of_all,
        list_of_one,
    })
}

fn part(number: u32) -> String {
    format!("part-{number}")
}

async fn all_hosts(ground: &Ground, nics: u32, parts: u32) -> anyhow::Result<()> {
    for number in 0..parts {
        fleet::namespace(ground, &part(number)).await?;
    }
    let labels = |part: &str, n: u32| json!({ "rack": format!("r{}", n % RACKS), FILTER: part });
    let first = part(0);
    fleet::host(ground, &first, "host-0", &labels(&first, 0), json!({}), fleet::status(0, nics))
        .await?;
    let another = |like: &Value, n: u32| {
        let part = part(n % parts);
        let mut host = like.clone();
        host["metadata"]["name"] = json!(format!("host-{n}"));
        host["metadata"]["labels"] = labels(&part, n);
        host["metadata"]["namespace"] = json!(part);
        host["metadata"]["uid"] = json!(fleet::node(n));
        host["status"] = fleet::status(n, nics);
        host
    };
    let kind = "metal3.io/baremetalhosts";
    ground.plane.multiply(kind, &format!("{first}/host-0"), 1..ground.hosts, another).await?;
    // The API server's cache follows.
    let all: kube::Api<BareMetalHost> = kube::Api::all(ground.admin.clone());
    let began = Instant::now();
    loop {
        let page = all.list_metadata(&ListParams::default().limit(1)).await?;
        let others = page.metadata.remaining_item_count.unwrap_or_default();
        if others + 1 == i64::from(ground.hosts) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "{others} and one of {} hosts are there", ground.hosts);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn stored(plane: &ControlPlane) -> anyhow::Result<f64> {
    Ok(plane.metric("apiserver_storage_size_bytes").await? / 1e6)
}

async fn instances(
    ground: &Ground,
    program: &Program<'_>,
    parts: u32,
) -> anyhow::Result<Instances> {
    let namespace = |number| program.told(vec![("FERRITE_NAMESPACES", part(number))]);
    let label = program.told(vec![("FERRITE_WATCH_FILTER", part(0))]);
    let all: Vec<Program<'_>> = (0..parts).map(namespace).collect();
    let all_parts = if program.work.controller == READS_ALL {
        None
    } else {
        Some(at_once(ground, &all).await?)
    };
    Ok(Instances {
        controller: program.work.controller.to_owned(),
        whole: at_once(ground, &[program.told(Vec::new())]).await?,
        by_namespace: at_once(ground, &all[..1]).await?,
        by_label: at_once(ground, &[label]).await?,
        all_parts,
    })
}

/// The slowest of them, and the memory of all.
async fn at_once(ground: &Ground, programs: &[Program<'_>]) -> anyhow::Result<Instance> {
    let mut accounts: Vec<(&Program<'_>, Account)> = Vec::new();
    for program in programs {
        accounts.push((program, account(ground, program).await?));
    }
    let starts = accounts.iter().map(|(program, account)| Running::start(ground, program, account));
    let running = try_join_all(starts).await?;
    tokio::time::sleep(SETTLED).await;
    let mut sum = Instance { ready_ms: 0.0, resident_megabytes: 0.0 };
    for one in &running {
        sum.ready_ms = sum.ready_ms.max(one.ready_ms);
        sum.resident_megabytes += one.resident_megabytes()?;
    }
    try_join_all(running.into_iter().map(Running::stop)).await?;
    Ok(sum)
}

/// The nodes of all hosts, dealt out as the hosts are.
async fn nodes(ironic: &Ironic, hosts: u32, parts: u32) -> anyhow::Result<()> {
    let first = Agent::new(FIRST);
    let (status, body) = first.post(ironic).await?;
    let node = body["uuid"].as_str().with_context(|| format!("{status} {body}"))?;
    ironic.inventoried(node).await?;
    let all: Vec<_> = (0..hosts).map(|n| (fleet::node(n), Agent::new(n + 1))).collect();
    ironic.multiply(node, &first, &all).await?;
    ironic.deal_out(parts).await
}

/// How long it takes to read all nodes that it is told of.
async fn listed(ground: &Ground, program: &Program<'_>, more: Environment) -> anyhow::Result<f64> {
    let program = program.told(more);
    let running = Running::start(ground, &program, &account(ground, &program).await?).await?;
    let began = Instant::now();
    while running.metric(&format!("{ALL}_count{{nodes=\"all\"}}")).await? < 1.0 {
        ensure!(began.elapsed() < PATIENCE, "the nodes are not listed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (seconds, lists) = (
        running.metric(&format!("{ALL}_sum{{nodes=\"all\"}}")).await?,
        running.metric(&format!("{ALL}_count{{nodes=\"all\"}}")).await?,
    );
    running.stop().await?;
    Ok(seconds / lists)
}

pub(super) fn table(split: &Split) {
    let Split { hosts, bytes_each, parts, live_megabytes, stored_megabytes, .. } = split;
    println!(
        "\n{hosts} hosts of {bytes_each} bytes take the API server {live_megabytes:.0} MB in use, {stored_megabytes:.0} MB are stored"
    );
    println!(
        "\n{:<16} {:>18} {:>18} {:>18} {:>24}",
        "ready s, MB",
        "one instance",
        "1 namespace",
        "1 label",
        format!("{parts} namespaces at once")
    );
    for it in &split.controllers {
        let shown = |instance: &Instance| {
            format!("{:.1} s {:.0} MB", instance.ready_ms / 1000.0, instance.resident_megabytes)
        };
        println!(
            "{:<16} {:>18} {:>18} {:>18} {:>24}",
            it.controller,
            shown(&it.whole),
            shown(&it.by_namespace),
            shown(&it.by_label),
            it.all_parts.as_ref().map_or_else(|| "-".to_owned(), shown)
        );
    }
    println!(
        "\na list of Ironic's nodes takes host-discovery {:.1} s, of one of {parts} conductor groups {:.1} s",
        split.list_of_all, split.list_of_one
    );
}

//! `--split`: an installation that is larger than one instance is meant for. What one instance would need for all of it,
//! what each of many needs that have their own namespace, or their own label, and what API server and Ironic need.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use bench::agent::Agent;
use bench::bmo;
use bench::control_plane::ControlPlane;
use bench::controller::{Environment, Running};
use bench::objects::{self, HOST, until};
use bench::steps::step_async;
use futures_util::future::try_join_all;
use serde::Serialize;
use serde_json::{Value, json};

use super::own_ironic::OwnIronic;
use super::table::{Column, Table};
use super::{Ground, Options, PATIENCE, Program, Work, fleet, row};

/// A machine that is a host anywhere must not become one twice.
const READS_ALL: &str = "host-discovery";
const FILTER: &str = "cluster.x-k8s.io/watch-filter";
/// Buffers of the list go back to the system.
const SETTLED: Duration = Duration::from_secs(5);
const ALL: &str = "ferrite_host_discovery_poll_seconds";

/// Whether it reads all hosts whatever its part is.
pub(super) fn reads_all(work: &Work) -> bool {
    work.controller == READS_ALL
}

/// What was measured of a large installation.
#[derive(Debug, Default, Serialize)]
struct Split {
    hosts: u32,
    /// How much an inspection has written about each.
    bytes_each: usize,
    parts: u32,
    /// What the API server has in use, and has stored, before anybody reads it.
    live_megabytes: f64,
    stored_megabytes: f64,
    controllers: Vec<Instances>,
    /// What was not measured, and why.
    failed: Vec<String>,
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

/// Measures what a very large installation needs, whole and in parts, and prints that.
pub(super) async fn run(
    works: &[&Work],
    folder: &Path,
    options: &Options,
    parts: u32,
) -> anyhow::Result<()> {
    ensure!(parts > 0, "--split 0: expected a number of parts");
    let Options { hosts, nics, .. } = *options;
    let files = row::files(options.json.as_deref())?;
    let plane = ControlPlane::start_with_gos_own_limits("split");
    let plane = step_async("an API server of its own", plane).await?;
    let ground = Ground::on(plane, hosts).await;
    let mut programs = Vec::new();
    for work in works {
        programs.push(Program::on(&ground, 0, work, work.program(folder), false).await?);
    }
    let bytes_each = fleet::status(0, nics).to_string().len();
    let mut split = Split { hosts, bytes_each, parts, ..Split::default() };
    let what = format!("{hosts} hosts of {bytes_each} bytes in {parts} namespaces");
    step_async(&what, all_hosts(&ground, nics, parts)).await?;
    // It has collected the garbage of all that it was told.
    tokio::time::sleep(SETTLED).await;
    split.live_megabytes = ground.plane.live_bytes().await? / 1e6;
    split.stored_megabytes = ground.plane.metric("apiserver_storage_size_bytes").await? / 1e6;
    for program in &programs {
        let name = program.work.controller;
        let what = format!("{name}: whole, by namespace, by label, all parts");
        match step_async(&what, instances(program, parts)).await {
            Ok(measured) => split.controllers.push(measured),
            Err(error) => split.failed.push(format!("{name}: {error:#}")),
        }
        row::save(&files, &split)?;
    }
    let listed = lists(&programs, &files, &mut split).await;
    split.failed.extend(listed.err().map(|error| format!("lists of nodes: {error:#}")));
    row::save(&files, &split)?;
    split.print();
    ensure!(split.failed.is_empty(), "not measured:\n  {}", split.failed.join("\n  "));
    Ok(())
}

/// How long Ironic's lists take, of all nodes and of one conductor group.
async fn lists(
    programs: &[Program<'_>],
    files: &[PathBuf],
    split: &mut Split,
) -> anyhow::Result<()> {
    let discovery = programs.iter().find(|it| reads_all(it.work));
    let discovery = discovery.context("host-discovery is not measured")?;
    let own = discovery.ironic()?;
    let what = format!("{} nodes in Ironic", split.hosts);
    step_async(&what, nodes(own, split.hosts, split.parts)).await?;
    let list = async |more: Environment| {
        // Past the proxy, which would take some of the time.
        let direct = vec![("IRONIC_ENDPOINT", own.ironic.endpoint.clone())];
        listed(&discovery.told([direct, more].concat()).await?).await
    };
    split.list_of_all = step_async("a list of all of them", list(Vec::new())).await?;
    row::save(files, split)?;
    let group =
        vec![("IRONIC_CONDUCTOR_GROUP", "group-0".to_owned()), ("FERRITE_NAMESPACES", part(0))];
    split.list_of_one = step_async("a list of one conductor group", list(group)).await?;
    Ok(())
}

fn part(number: u32) -> String {
    format!("part-{number}")
}

async fn all_hosts(ground: &Ground, nics: u32, parts: u32) -> anyhow::Result<()> {
    for number in 0..parts {
        objects::namespace(&ground.admin, &part(number)).await?;
    }
    let labels = |part: &str, n: u32| {
        let mut labels = fleet::in_rack(n);
        labels[FILTER] = json!(part);
        labels
    };
    let first = part(0);
    let host = bmo::host("host-0", &labels(&first, 0), &json!({}));
    bmo::create(&ground.admin, &first, host, &fleet::status(0, nics)).await?;
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
    until("the API server tells of every host", PATIENCE, async || {
        Ok((ground.count(HOST).await? == u64::from(ground.hosts)).then_some(()))
    })
    .await
}

async fn instances(program: &Program<'_>, parts: u32) -> anyhow::Result<Instances> {
    let mut all = Vec::new();
    for number in 0..parts {
        all.push(program.told(vec![("FERRITE_NAMESPACES", part(number))]).await?);
    }
    let label = program.told(vec![("FERRITE_WATCH_FILTER", part(0))]).await?;
    let all_parts = if reads_all(program.work) { None } else { Some(at_once(&all).await?) };
    Ok(Instances {
        controller: program.work.controller.to_owned(),
        whole: at_once(std::slice::from_ref(program)).await?,
        by_namespace: at_once(&all[..1]).await?,
        by_label: at_once(&[label]).await?,
        all_parts,
    })
}

/// The slowest of them, and the memory of all.
async fn at_once(programs: &[Program<'_>]) -> anyhow::Result<Instance> {
    let running = try_join_all(programs.iter().map(Program::start)).await?;
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
async fn nodes(own: &OwnIronic, hosts: u32, parts: u32) -> anyhow::Result<()> {
    let all: Vec<_> = (0..hosts).map(|n| (fleet::node(n), Agent::new(n + 1))).collect();
    own.multiply(&all).await?;
    own.ironic.deal_out(parts).await
}

/// How long it takes to read all nodes that it is told of.
async fn listed(program: &Program<'_>) -> anyhow::Result<f64> {
    let running = program.start().await?;
    let (sum, count) =
        (format!("{ALL}_sum{{nodes=\"all\"}}"), format!("{ALL}_count{{nodes=\"all\"}}"));
    until("the nodes are listed", PATIENCE, async || {
        Ok((running.metric(&count).await? >= 1.0).then_some(()))
    })
    .await?;
    let (seconds, lists) = (running.metric(&sum).await?, running.metric(&count).await?);
    running.stop().await?;
    Ok(seconds / lists)
}

impl Instance {
    fn shown(&self) -> String {
        format!("{:.1} s {:.0} MB", self.ready_ms / 1000.0, self.resident_megabytes)
    }
}

impl Split {
    fn print(&self) {
        let Self { hosts, bytes_each, parts, live_megabytes, stored_megabytes, .. } = self;
        println!(
            "\n{hosts} hosts of {bytes_each} bytes take the API server {live_megabytes:.0} MB in use, {stored_megabytes:.0} MB are stored"
        );
        let at_once = format!("{parts} namespaces at once");
        let columns: &[Column<'_, Instances>] = &[
            ("one instance", |it| it.whole.shown()),
            ("1 namespace", |it| it.by_namespace.shown()),
            ("1 label", |it| it.by_label.shown()),
            (&at_once, |it| it.all_parts.as_ref().map_or_else(|| "-".to_owned(), Instance::shown)),
        ];
        let rows = self.controllers.iter().map(|it| (it.controller.clone(), it));
        Table::new(1, "ready s, MB", rows, columns).print();
        println!(
            "\na list of Ironic's nodes takes host-discovery {:.1} s, of one of {parts} conductor groups {:.1} s",
            self.list_of_all, self.list_of_one
        );
    }
}

//! `--split`: an installation that is larger than one instance is meant for. What one instance would need for all of it,
//! what each of many needs that have their own namespace, or their own label, and what API server and Ironic need.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bench::agent::Agent;
use bench::bmo;
use bench::control_plane::ControlPlane;
use bench::controller::Running;
use bench::objects::{self, HOST, until};
use bench::steps::step_async;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::row::{Figures, Report};
use super::{Ground, Options, PATIENCE, Program, Work, fleet};

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

/// Measures what a very large installation needs, whole and in parts.
pub(super) async fn measure(
    works: &[&Work],
    folder: &Path,
    options: &Options,
    parts: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let Options { hosts, nics, .. } = *options;
    let plane = ControlPlane::start_with_gos_own_limits("split");
    let plane = step_async("an API server of its own", plane).await?;
    let ground = Ground::on(plane, hosts).await;
    let mut programs = Vec::new();
    for work in works {
        let row = report.begin(work.controller, None);
        programs.push(Program::on(&ground, row, work, work.program(folder), false).await?);
    }
    let bytes = fleet::status(0, nics).to_string().len();
    let what = format!("{hosts} hosts of {bytes} bytes in {parts} namespaces");
    step_async(&what, all_hosts(&ground, nics, parts)).await?;
    // It has collected the garbage of all that it was told.
    tokio::time::sleep(SETTLED).await;
    let live = ground.plane.live_bytes().await?;
    let stored = ground.plane.metric("apiserver_storage_size_bytes").await?;
    let mut figures = Figures { row: report.begin("kube-apiserver", None), report };
    figures.add(format!("megabytes in use, {what}"), live / 1e6)?;
    figures.add(format!("megabytes stored, {what}"), stored / 1e6)?;
    for program in &programs {
        let name = program.work.controller;
        let figures = Figures { row: program.row, report };
        let what = format!("{name}: whole, by namespace, by label, all parts");
        let measured = step_async(&what, instances(program, parts, figures)).await;
        report.unless_failed(name, measured);
    }
    let discovery = programs.iter().find(|it| reads_all(it.work));
    let discovery = discovery.context("host-discovery is not measured")?;
    let figures = Figures { row: discovery.row, report };
    let listed = lists(discovery, hosts, parts, figures).await;
    report.unless_failed("lists of nodes", listed);
    report.save()
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

/// The slowest of each set of instances that are started at once, and the memory of all of them: one for everything, one for
/// one part, and one for each part, as after a restart of the API server.
async fn instances(
    program: &Program<'_>,
    parts: u32,
    mut figures: Figures<'_>,
) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for number in 0..parts {
        all.push(program.told(vec![("FERRITE_NAMESPACES", part(number))]).await?);
    }
    let label = program.told(vec![("FERRITE_WATCH_FILTER", part(0))]).await?;
    let at_once = format!("{parts} namespaces at once");
    let mut sets = vec![
        ("one instance", std::slice::from_ref(program)),
        ("one namespace", &all[..1]),
        ("one label", std::slice::from_ref(&label)),
    ];
    // One that reads all hosts whatever its part is, is not meant to be split so.
    if !reads_all(program.work) {
        sets.push((&at_once, &all));
    }
    for (which, programs) in sets {
        let running = try_join_all(programs.iter().map(Program::start)).await?;
        tokio::time::sleep(SETTLED).await;
        let (mut ready_ms, mut megabytes) = (0.0_f64, 0.0);
        for one in &running {
            ready_ms = ready_ms.max(one.ready_ms);
            megabytes += one.resident_megabytes()?;
        }
        try_join_all(running.into_iter().map(Running::stop)).await?;
        figures.add(format!("seconds until ready, {which}"), ready_ms / 1000.0)?;
        figures.add(format!("megabytes resident, {which}"), megabytes)?;
    }
    Ok(())
}

/// How long Ironic's lists take, of all nodes and of one conductor group. The nodes are dealt out as their hosts are.
async fn lists(
    discovery: &Program<'_>,
    hosts: u32,
    parts: u32,
    mut figures: Figures<'_>,
) -> anyhow::Result<()> {
    let own = discovery.ironic()?;
    let nodes: Vec<_> = (0..hosts).map(|n| (fleet::node(n), Agent::new(n + 1))).collect();
    step_async(&format!("{hosts} nodes in Ironic"), own.multiply(&nodes)).await?;
    own.ironic.deal_out(parts).await?;
    // Past the proxy, which would take some of the time.
    let direct = ("IRONIC_ENDPOINT", own.ironic.endpoint.clone());
    let group = ("IRONIC_CONDUCTOR_GROUP", "group-0".to_owned());
    for (of, told) in [
        ("all nodes".to_owned(), vec![direct.clone()]),
        (
            format!("the nodes of one of {parts} conductor groups"),
            vec![direct, group, ("FERRITE_NAMESPACES", part(0))],
        ),
    ] {
        let seconds = listed(&discovery.told(told).await?).await?;
        figures.add(format!("seconds for a list of {of}"), seconds)?;
    }
    Ok(())
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

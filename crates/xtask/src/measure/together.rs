//! All controllers on one API server: the others while one is measured, and all of them at rest on what was made before.

use anyhow::Context;
use bench::steps::step_async;
use futures_util::future::try_join_all;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};

use super::row::{Report, Together};
use super::{Ground, Program, REST, at_work};
use crate::program::Running;

/// What an installation is told to have.
const KINDS: [(&str, &str, &str); 3] = [
    ("metal3.io", "v1alpha1", "BareMetalHost"),
    ("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3Machine"),
    ("hive.openshift.io", "v1", "ClusterDeployment"),
];

/// One after the other while the rest of them run, and all of them at rest in between, on what was made until then. Each
/// program stands beside the number of its row.
pub(super) async fn measure(
    ground: &Ground,
    programs: &[(usize, Program<'_>)],
    only: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let made = programs.iter().position(|it| it.1.work.operation.is_none());
    for (number, (row, program)) in programs.iter().enumerate() {
        if made == Some(number) {
            at_rest(ground, programs, report).await?;
        }
        if program.work.controller.contains(only) {
            let others = programs.iter().filter(|it| it.0 != *row);
            let others = start(others).await?;
            let measured = at_work(ground, program, report, *row).await;
            report.unless_failed(*row, measured);
            stop(others).await?;
        }
    }
    Ok(())
}

/// Starts them, all at the same time.
async fn start<'a>(
    programs: impl Iterator<Item = &'a (usize, Program<'a>)>,
) -> anyhow::Result<Vec<Running>> {
    try_join_all(programs.map(|(_, program)| program.start())).await
}

async fn stop(all: Vec<Running>) -> anyhow::Result<()> {
    try_join_all(all.into_iter().map(Running::stop)).await.map(drop)
}

/// What each has in memory and asks for when all is done.
async fn at_rest(
    ground: &Ground,
    programs: &[(usize, Program<'_>)],
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut there = Vec::new();
    for (group, version, kind) in KINDS {
        there.push(format!("{} {kind}s", count(ground, group, version, kind).await?));
    }
    step_async(&format!("all together at rest: {}", there.join(", ")), async {
        let all = start(programs.iter()).await?;
        for (_, program) in programs {
            program.rest(ground).await?;
        }
        let counts = ground.during(REST).await?;
        for (running, (row, program)) in all.iter().zip(programs) {
            report.rows[*row].together = Some(Together {
                ready_ms: running.ready_ms,
                resident_megabytes: running.resident_megabytes()?,
                writes_at_rest: program.writes(&counts),
                requests_at_rest: program.requests(&counts),
            });
        }
        report.save()?;
        stop(all).await
    })
    .await
}

async fn count(ground: &Ground, group: &str, version: &str, kind: &str) -> anyhow::Result<i64> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let all: Api<DynamicObject> = Api::all_with(ground.admin.clone(), &kind);
    let page = all.list_metadata(&ListParams::default().limit(1)).await?;
    let more = page.metadata.remaining_item_count.unwrap_or_default();
    Ok(more + i64::try_from(page.items.len()).context("a page is short")?)
}

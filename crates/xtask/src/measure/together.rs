//! All controllers on one API server: the others while one is measured, and all of them at rest on what was made before.

use anyhow::Context;
use bench::steps::step_async;
use futures_util::future::try_join_all;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};

use super::program::{Account, Running};
use super::{Ground, Program, REST, Row, Together, account, requests, rest};

/// What an installation is told to have.
const KINDS: [(&str, &str, &str); 3] = [
    ("metal3.io", "v1alpha1", "BareMetalHost"),
    ("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3Machine"),
    ("hive.openshift.io", "v1", "ClusterDeployment"),
];

/// Starts them, all at the same time.
pub(super) async fn start<'a>(
    ground: &Ground,
    programs: impl Iterator<Item = &'a Program<'a>>,
) -> anyhow::Result<Vec<(Account, Running)>> {
    let mut accounts = Vec::new();
    for program in programs {
        accounts.push((program, account(ground, program).await?));
    }
    try_join_all(accounts.into_iter().map(async |(program, account)| {
        let running = Running::start(ground, program, &account).await?;
        anyhow::Ok((account, running))
    }))
    .await
}

pub(super) async fn stop(all: Vec<(Account, Running)>) -> anyhow::Result<()> {
    try_join_all(all.into_iter().map(|(_, running)| running.stop())).await.map(drop)
}

/// What each has in memory and asks for when all is done.
pub(super) async fn at_rest(
    ground: &Ground,
    programs: &[Program<'_>],
    rows: &mut [Row],
) -> anyhow::Result<()> {
    let mut there = Vec::new();
    for (group, version, kind) in KINDS {
        there.push(format!("{} {kind}s", count(ground, group, version, kind).await?));
    }
    step_async(&format!("all together at rest: {}", there.join(", ")), async {
        let all = start(ground, programs.iter()).await?;
        for (account, _) in &all {
            rest(ground, account).await?;
        }
        let mark = ground.audit.mark().await?;
        tokio::time::sleep(REST).await;
        let counts = ground.audit.since(mark).await?;
        for ((account, running), row) in all.iter().zip(rows) {
            row.together = Some(Together {
                ready_ms: running.ready_ms,
                resident_megabytes: running.resident_megabytes()?,
                writes_at_rest: counts.writes(&account.user, &["leases"]),
                requests_at_rest: requests(&counts, &account.user),
            });
        }
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

//! The sample: pairs of a guest and a seat, each in a namespace of its own, so that nobody waits for anybody.

use std::collections::BTreeSet;
use std::time::Duration;

use ::sample::{GUEST, RESULT, ROLE, SEAT};
use anyhow::{Context, bail};
use bench::load;
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};

use super::{AT_ONCE, Ground, Limits, Operation, Round, Work, none, watch};

/// It lists and reads before each write, for the sake of an example: there is no share that it has to reach.
pub(super) const WORK: Work = Work {
    controller: "sample",
    build: &["--package=sample", "--bin=sample"],
    program: "sample",
    chart: Some("sample"),
    values: "{}",
    neighbours: none,
    limits: Limits { megabytes: 15.0, ready_ms: 300.0, resident_megabytes: 15.0, share: 0.0 },
    operation: Some(Operation {
        name: "guests seated",
        count: |_| 200,
        rounds: 1,
        bare: |ground, _, _| Box::pin(bare(ground)),
        prepare: |ground, round| Box::pin(prepare(ground, round)),
        done: |ground, round| Box::pin(done(ground, round)),
    }),
    further: None,
};

const BARE_REQUESTS: u64 = 1_000;

/// Small objects of the kind that it writes to.
async fn bare(ground: &Ground) -> anyhow::Result<f64> {
    let namespace = ground.plane.namespace("bare").await;
    load::posts(&ground.admin, &namespace, 500, AT_ONCE, BARE_REQUESTS).await?;
    let rate = load::patches(&ground.admin, &namespace, 500, AT_ONCE, BARE_REQUESTS).await?;
    Ok(rate.per_second)
}

/// In which round a pair was made.
const ROUND: &str = "ferrite.test/round";

async fn prepare(ground: &Ground, round: Round) -> anyhow::Result<()> {
    let pair = async |_| {
        let namespace = ground.plane.namespace("pair").await;
        let api: Api<ConfigMap> = Api::namespaced(ground.admin.clone(), &namespace);
        for (name, role) in [("s", SEAT), ("g", GUEST)] {
            let object = serde_json::json!({
                "metadata": {"name": name, "labels": {ROLE: role, ROUND: round.number.to_string()}},
            });
            api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        }
        anyhow::Ok(())
    };
    stream::iter(0..round.count).map(pair).buffer_unordered(AT_ONCE).try_collect().await
}

/// All guests of the round are seated.
async fn done(ground: &Ground, round: Round) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::all(ground.admin.clone());
    let guests =
        watcher::Config::default().labels(&format!("{ROLE}={GUEST},{ROUND}={}", round.number));
    let waiting = async {
        let mut seated = BTreeSet::new();
        let mut seen = std::pin::pin!(watch::objects(api, guests));
        while let Some(guest) = seen.try_next().await? {
            if guest.annotations().contains_key(RESULT) {
                seated.extend(guest.uid());
            }
            if seated.len() >= usize::try_from(round.count)? {
                return Ok(());
            }
        }
        bail!("the watch on the guests ended")
    };
    let patience = Duration::from_secs(300);
    tokio::time::timeout(patience, waiting)
        .await
        .context("the guests are not seated after 300 s")?
}

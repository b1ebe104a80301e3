//! The sample: pairs of a guest and a seat, each in a namespace of its own, so that nobody waits for anybody.

use ::sample::{GUEST, RESULT, ROLE, SEAT};
use bench::load;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};

use super::{AT_ONCE, Ground, Operation, Round, Work, each, watch};

/// It lists and reads before each write, for the sake of an example: there is no share that it has to reach.
pub(super) const WORK: Work = Work {
    controller: "sample",
    operation: Some(Operation {
        name: "guests seated",
        count: |_| 200,
        rounds: 1,
        bare: |ground, _, _| Box::pin(bare(ground)),
        prepare: |ground, round| Box::pin(prepare(ground, round)),
        done: |ground, round| Box::pin(done(ground, round)),
    }),
    ..Work::SMALL
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
    each(0..round.count, pair).await
}

/// All guests of the round are seated.
async fn done(ground: &Ground, round: Round) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::all(ground.admin.clone());
    let guests =
        watcher::Config::default().labels(&format!("{ROLE}={GUEST},{ROUND}={}", round.number));
    let is_seated = |guest: &ConfigMap| guest.annotations().contains_key(RESULT);
    watch::seen(&mut watch::objects(api, guests), round.count, "all guests are seated", is_seated)
        .await
}

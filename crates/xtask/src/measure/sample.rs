//! The sample: pairs of a guest and a seat, each in a namespace of its own, so that nobody waits for anybody.

use ::sample::{GUEST, RESULT, ROLE, SEAT};
use bench::load;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};

use super::{AT_ONCE, Ground, Operation, Round, Trial, each, watch};

const BARE_REQUESTS: u64 = 1_000;
/// In which round a pair was made.
const ROUND: &str = "ferrite.test/round";

/// How fast it seats guests.
pub(super) async fn work(mut trial: Trial<'_>) -> anyhow::Result<()> {
    trial.operate::<GuestsSeated>(200).await
}

struct GuestsSeated;

impl Operation for GuestsSeated {
    const NAME: &str = "guests seated";

    /// Small objects of the kind that it writes to.
    async fn bare(ground: &Ground, _: Client, _: u32) -> anyhow::Result<f64> {
        let namespace = ground.plane.namespace("bare").await;
        load::posts(&ground.admin, &namespace, 500, AT_ONCE, BARE_REQUESTS).await?;
        let rate = load::patches(&ground.admin, &namespace, 500, AT_ONCE, BARE_REQUESTS).await?;
        Ok(rate.per_second)
    }

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
        watch::seen(
            &mut watch::objects(api, guests),
            round.count,
            "all guests are seated",
            is_seated,
        )
        .await
    }
}

//! capm3-reuse: machines that come all at once to a large installation, and hosts that become free one by one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api_types::names::ferrite::INTENDS_HOST;
use api_types::names::metal3::HOST;
use bench::bmo;
use bench::cluster_api::objects::{METAL3_MACHINE, OF_CLUSTER, image, metal3_machine};
use bench::objects::{make_machine, merge_status};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::fleet::{self, NAMESPACE, fleet};
use super::machines::{CLUSTER_NAME, cluster};
use super::plugin;
use super::{Ground, Operation, Program, Round, Trial, each, watch};

/// In which round a machine was made.
const ROUND: &str = "ferrite.test/round";
/// Hosts that become free one after the other.
const FREED: u32 = 100;
/// A peer is met at all moments of the half minute in which it does not look.
const APART: Duration = Duration::from_secs(3);

struct GivenHosts;

impl Operation for GivenHosts {
    const NAME: &str = "machines given a host";
    const ROUNDS: usize = 3;

    /// The three writes that a machine takes until its host is told its image, by somebody who need not think. For as many
    /// machines: the API server collects its garbage each few seconds, and a shorter run falls between.
    async fn bare(ground: &Ground, client: Client, count: u32) -> anyhow::Result<f64> {
        fleet(ground).await?;
        let namespace = ground.plane.namespace("bare").await;
        let machine = async |n: u32| {
            let object = metal3_machine(&format!("m-{n}"), CLUSTER_NAME);
            METAL3_MACHINE.create(&ground.admin, &namespace, object).await.map(drop)
        };
        each(0..count, machine).await?;
        let began = Instant::now();
        each(0..count, async |n: u32| bare_machine(&client, ground.hosts, &namespace, n).await)
            .await?;
        let rate = f64::from(3 * count) / began.elapsed().as_secs_f64();
        // Nobody's machines would be told that they are.
        let machines = METAL3_MACHINE.api(&ground.admin, &namespace);
        machines.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(rate)
    }

    async fn prepare(ground: &Ground, round: Round) -> anyhow::Result<()> {
        cluster(ground, NAMESPACE).await?;
        let mark = round.number.to_string();
        let machine = async |n: u32| {
            machine(ground, NAMESPACE, &format!("machine-{mark}-{n}"), &mark, Some(n)).await
        };
        each(0..round.count, machine).await
    }

    /// Every machine of the round names its host, which the controller writes after it has claimed the host and told it
    /// its image.
    async fn done(ground: &Ground, round: Round) -> anyhow::Result<()> {
        let api = METAL3_MACHINE.api(&ground.admin, NAMESPACE);
        let which = watcher::Config::default().labels(&format!("{ROUND}={}", round.number));
        let mut machines = watch::objects(api, which);
        let mut hosts = BTreeSet::new();
        let has_host = |machine: &DynamicObject| {
            let host = [INTENDS_HOST, HOST].iter().find_map(|key| machine.annotations().get(*key));
            hosts.extend(host.map(|it| it.rsplit('/').next().unwrap_or_default().to_owned()));
            host.is_some()
        };
        watch::seen(&mut machines, round.count, "every machine has a host", has_host).await?;
        ensure!(hosts.len() == usize::try_from(round.count)?, "two machines got one host");
        Ok(())
    }
}

async fn bare_machine(
    client: &Client,
    hosts: u32,
    namespace: &str,
    number: u32,
) -> anyhow::Result<()> {
    let (name, params) = (format!("m-{number}"), PatchParams::default());
    // One of the last of the fleet, which the machines hardly come to.
    let host = format!("host-{}", hosts - 1 - number);
    let machines = METAL3_MACHINE.api(client, namespace);
    // No finalizer of the controller's: nobody would take it away again.
    let chosen = json!({ "metadata": { "annotations": {
        "ferrite.test/host": format!("{namespace}/{host}"),
        "ferrite.test/host-uid": fleet::node(number),
    } } });
    machines.patch_metadata(&name, &params, &Patch::Merge(chosen)).await?;
    // Of a kind that the controller leaves alone.
    let claim = json!({
        "metadata": { "labels": { OF_CLUSTER: CLUSTER_NAME } },
        "spec": {
            "consumerRef": {
                "apiVersion": "ferrite.test/v1", "kind": "Bare", "name": name, "namespace": namespace,
                "uid": fleet::node(number),
            },
            "image": image("format"),
            "userData": { "name": "boot", "namespace": namespace },
            "online": true,
        },
    });
    let hosts = bmo::api(client, NAMESPACE);
    hosts.patch_metadata(&host, &params, &Patch::Merge(claim)).await?;
    let said = |kind: &str, field: &str, value: Value| {
        let mut condition = json!({
            "type": kind, "status": "False", "reason": "Provisioning", "message": format!("{host} is being provisioned"),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        condition[field] = value;
        condition
    };
    let kinds = ["Ready", "AssociateBareMetalHost", "Metal3DataReady", "Paused"];
    let new: Vec<Value> = kinds.iter().map(|it| said(it, "observedGeneration", json!(1))).collect();
    let old: Vec<Value> = kinds[..3].iter().map(|it| said(it, "severity", json!("Info"))).collect();
    let report = json!({ "status": {
        "conditions": new,
        "deprecated": { "v1beta1": { "conditions": old } },
        "userData": { "name": "boot", "namespace": namespace },
    } });
    machines.patch_status(&name, &params, &Patch::Merge(report)).await?;
    Ok(())
}

/// A machine of a round, for a host of a rack or for any.
async fn machine(
    ground: &Ground,
    namespace: &str,
    name: &str,
    round: &str,
    rack: Option<u32>,
) -> anyhow::Result<()> {
    let mut object = metal3_machine(name, CLUSTER_NAME);
    object["metadata"]["labels"][ROUND] = json!(round);
    if let Some(rack) = rack {
        object["spec"]["hostSelector"] = json!({ "matchLabels": fleet::in_rack(rack) });
    }
    make_machine(&ground.admin, namespace, object).await.map(drop)
}

pub(super) async fn work(mut trial: Trial<'_>) -> anyhow::Result<()> {
    trial.operate::<GivenHosts>(trial.ground.hosts / 10).await?;
    let Trial { ground, program, mut figures } = trial;
    let took = freed(program).await?;
    figures.percentiles("ms from a host that is free to its claim", took, Some(50.0))?;
    if program.is_peer {
        return Ok(());
    }
    let hosts = ground.hosts;
    let (few, many) = (selection(&program.path, hosts / 10)?, selection(&program.path, hosts)?);
    figures.limited(format!("µs to choose a host among {hosts}"), many, 50.0)?;
    figures.limited(format!("times the cost among {}", hosts / 10), many / few, 1.2)?;
    // Its machines and hosts are what a person asks about.
    plugin::asked(ground, &mut figures).await
}

/// How long a host that became free waits for the machine that waits for it.
async fn freed(program: &Program<'_>) -> anyhow::Result<Vec<Duration>> {
    let ground = program.ground;
    let namespace = ground.plane.namespace("freed").await;
    cluster(ground, &namespace).await?;
    let busy = bmo::well(false, &json!({ "state": "deprovisioning", "ID": "freed" }));
    // Some peers look again only each half minute.
    let count = if program.is_peer { FREED / 10 } else { FREED };
    let names: Vec<String> = (0..count).map(|n| format!("freed-{n}")).collect();
    for name in &names {
        let host = bmo::host(name, &json!({}), &json!({}));
        bmo::create(&ground.admin, &namespace, host, &busy).await?;
        machine(ground, &namespace, name, "freed", None).await?;
    }
    let running = program.start().await?;
    let machines = METAL3_MACHINE.api(&ground.admin, &namespace);
    let mut machines = watch::objects(machines, watcher::Config::default());
    let waits = |machine: &DynamicObject| machine.data["status"]["conditions"].is_array();
    watch::seen(&mut machines, count, "every machine says that it waits", waits).await?;
    let hosts = bmo::api(&ground.admin, &namespace);
    let mut seen = watch::from_now(hosts.clone()).await?;
    let mut took = Vec::new();
    for (number, name) in (0..).zip(&names) {
        if program.is_peer {
            tokio::time::sleep(APART * number).await;
        }
        merge_status(&hosts, name, &json!({ "provisioning": { "state": "available" } })).await?;
        let freed = Instant::now();
        let is_claimed = |host: &DynamicObject| {
            host.name_any() == *name && !host.data["spec"]["consumerRef"].is_null()
        };
        watch::next(&mut seen, "a free host is taken", is_claimed).await?;
        took.push(freed.elapsed());
    }
    running.stop().await?;
    Ok(took)
}

/// What choosing a host costs by itself, by the release build of an example.
fn selection(program: &Path, hosts: u32) -> anyhow::Result<f64> {
    let folder = program.parent().context("the program is in a folder")?;
    let mut command = Command::new(folder.join("examples/selection"));
    Ok(bench::cache::run(command.arg(hosts.to_string()))?.trim().parse()?)
}

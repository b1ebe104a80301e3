//! capm3-reuse: machines that come all at once to a large installation, and hosts that become free one by one.

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bench::cluster_api::objects::{
    CLUSTER, Kind, MACHINE, METAL3_CLUSTER, METAL3_MACHINE, VERSION,
};
use bench::{bmo, cluster_api, crds, load};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::fleet::{self, NAMESPACE, RACKS, fleet};
use super::program::Running;
use super::{
    AT_ONCE, Environment, Figure, Ground, Limits, Operation, Program, Round, Work, account, watch,
};

pub(super) const WORK: Work = Work {
    controller: "capm3-reuse",
    build: &["--package=capm3-reuse", "--bin=capm3-reuse", "--example=selection"],
    program: "capm3-reuse",
    chart: Some("capm3-reuse"),
    values: "{}",
    neighbours: |ground| Box::pin(neighbours(ground)),
    limits: Limits { megabytes: 15.0, ready_ms: 300.0, resident_megabytes: 15.0, share: 0.8 },
    operation: Some(Operation {
        name: "machines given a host",
        count: |hosts| hosts / 10,
        rounds: 3,
        bare: |ground, client, round| Box::pin(bare(ground, client, round)),
        prepare: |ground, round| Box::pin(prepare(ground, round)),
        done: |ground, round| Box::pin(done(ground, round)),
    }),
    further: Some(|ground, program| Box::pin(further(ground, program))),
};

const CLUSTER_NAME: &str = "metal";
/// In which round a machine was made.
const ROUND: &str = "ferrite.test/round";
/// Hosts that become free one after the other.
const FREED: usize = 100;
/// A peer is met at all moments of the half minute in which it does not look.
const APART: Duration = Duration::from_secs(3);

async fn neighbours(ground: &Ground) -> anyhow::Result<Environment> {
    crds::install(&ground.admin, &[crds::Group::Metal3, crds::Group::Capm3]).await?;
    cluster_api::install_crds(&ground.admin).await?;
    Ok(Environment::new())
}

/// The three writes that a machine takes until its host is told its image, by somebody who need not think. For as many
/// machines: the API server collects its garbage each few seconds, and a shorter run falls between.
async fn bare(ground: &Ground, client: Client, round: Round) -> anyhow::Result<f64> {
    fleet(ground).await?;
    let namespace = format!("bare-{}", round.number);
    fleet::namespace(ground, &namespace).await?;
    let count = round.count;
    let machine = async |n: u32| {
        let object = METAL3_MACHINE.object(&format!("m-{n}"), &metal3_machine(None));
        METAL3_MACHINE.create(&ground.admin, &namespace, object).await.map(drop)
    };
    stream::iter(0..count).map(machine).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let began = Instant::now();
    let writes = async |n: u32| bare_machine(&client, ground.hosts, &namespace, n).await;
    stream::iter(0..count).map(writes).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let rate = f64::from(3 * count) / began.elapsed().as_secs_f64();
    // Nobody's machines would be told that they are.
    let machines = METAL3_MACHINE.api(&ground.admin, &namespace);
    machines.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(rate)
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
        "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": CLUSTER_NAME } },
        "spec": {
            "consumerRef": {
                "apiVersion": "ferrite.test/v1", "kind": "Bare", "name": name, "namespace": namespace,
                "uid": fleet::node(number),
            },
            "image": {
                "url": "http://127.0.0.1/image.qcow2",
                "checksum": "http://127.0.0.1/image.qcow2.sha256sum",
                "checksumType": "sha256",
                "format": "qcow2",
            },
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

fn metal3_machine(rack: Option<u32>) -> Value {
    let mut spec = json!({ "image": {
        "url": "http://127.0.0.1/image.qcow2",
        "checksum": "http://127.0.0.1/image.qcow2.sha256sum",
        "checksumType": "sha256",
        "diskFormat": "qcow2",
    } });
    if let Some(rack) = rack {
        spec["hostSelector"] = json!({ "matchLabels": { "rack": format!("r{rack}") } });
    }
    spec
}

/// A cluster whose infrastructure is ready, the bootstrap data of its machines, and the credentials of the hosts beside it.
async fn cluster(ground: &Ground, namespace: &str) -> anyhow::Result<()> {
    fleet::namespace(ground, namespace).await?;
    let object = cluster_api::objects::cluster(CLUSTER_NAME, "127.0.0.1", 6443, false);
    if let Err(error) = CLUSTER.create(&ground.admin, namespace, object).await {
        let exists = matches!(
            error.downcast_ref::<kube::Error>(),
            Some(kube::Error::Api(status)) if status.is_already_exists()
        );
        return if exists { Ok(()) } else { Err(error) };
    }
    // CAPM3 looks for Metal3's part of it, and at the condition that Cluster API calls deprecated.
    let infrastructure = cluster_api::objects::metal3_cluster(CLUSTER_NAME, "127.0.0.1", 6443);
    METAL3_CLUSTER.create(&ground.admin, namespace, infrastructure).await?;
    let condition = json!({
        "type": "InfrastructureReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let ready = Patch::Merge(json!({ "status": {
        "initialization": { "infrastructureProvisioned": true },
        "deprecated": { "v1beta1": { "conditions": [condition] } },
    } }));
    let api = CLUSTER.api(&ground.admin, namespace);
    api.patch_status(CLUSTER_NAME, &PatchParams::default(), &ready).await?;
    let secret = json!({ "metadata": { "name": "boot" }, "stringData": { "value": "x" } });
    let secrets: Api<Secret> = Api::namespaced(ground.admin.clone(), namespace);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    fleet::credentials(ground, namespace).await
}

/// A Machine and its `Metal3Machine`.
async fn machine(
    ground: &Ground,
    namespace: &str,
    name: &str,
    round: &str,
    rack: Option<u32>,
) -> anyhow::Result<()> {
    let labels = json!({ "cluster.x-k8s.io/cluster-name": CLUSTER_NAME, ROUND: round });
    let labelled = |kind: Kind, spec: &Value| {
        let mut object = kind.object(name, spec);
        object["metadata"]["labels"] = labels.clone();
        object
    };
    let spec = json!({
        "clusterName": CLUSTER_NAME,
        "version": VERSION,
        "bootstrap": { "dataSecretName": "boot" },
        "infrastructureRef": METAL3_MACHINE.reference(name),
    });
    let made = MACHINE.create(&ground.admin, namespace, labelled(MACHINE, &spec)).await?;
    let mut metal = labelled(METAL3_MACHINE, &metal3_machine(rack));
    metal["metadata"]["ownerReferences"] = json!([{
        "apiVersion": MACHINE.api_version, "kind": MACHINE.kind, "name": name, "uid": made.uid(), "controller": true,
    }]);
    METAL3_MACHINE.create(&ground.admin, namespace, metal).await.map(drop)
}

async fn prepare(ground: &Ground, round: Round) -> anyhow::Result<()> {
    cluster(ground, NAMESPACE).await?;
    let mark = round.number.to_string();
    let machine = async |n: u32| {
        let name = format!("machine-{mark}-{n}");
        machine(ground, NAMESPACE, &name, &mark, Some(n % RACKS)).await
    };
    stream::iter(0..round.count).map(machine).buffer_unordered(AT_ONCE).try_collect().await
}

/// Every machine of the round names its host, which the controller writes after it has claimed the host and told it
/// its image.
async fn done(ground: &Ground, round: Round) -> anyhow::Result<()> {
    let api = METAL3_MACHINE.api(&ground.admin, NAMESPACE);
    let which = watcher::Config::default().labels(&format!("{ROUND}={}", round.number));
    let waiting = async {
        let mut hosts = std::collections::BTreeMap::new();
        let mut seen = pin!(watch::objects(api, which));
        while let Some(machine) = seen.try_next().await? {
            if let Some(host) = machine.annotations().get("metal3.io/BareMetalHost") {
                hosts.insert(machine.name_any(), host.clone());
            }
            if hosts.len() >= usize::try_from(round.count)? {
                return Ok(hosts);
            }
        }
        bail!("the watch on the machines ended")
    };
    let patience = Duration::from_secs(1800);
    let hosts = tokio::time::timeout(patience, waiting)
        .await
        .context("the machines have no hosts after half an hour")??;
    let different: std::collections::BTreeSet<&String> = hosts.values().collect();
    ensure!(different.len() == hosts.len(), "two machines got one host");
    Ok(())
}

async fn further(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Vec<Figure>> {
    let mut figures = freed(ground, program).await?;
    if !program.is_peer {
        figures.extend(selection(&program.path, ground.hosts).await?);
    }
    Ok(figures)
}

/// How long a host that became free waits for the machine that waits for it.
async fn freed(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Vec<Figure>> {
    let account = account(ground, program).await?;
    let namespace = ground.plane.namespace("freed").await;
    cluster(ground, &namespace).await?;
    let busy = json!({
        "poweredOn": false, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
        "provisioningFailCount": 0, "provisioning": { "state": "deprovisioning", "ID": "freed" },
    });
    let count = program.few(FREED);
    let names: Vec<String> = (0..count).map(|n| format!("freed-{n}")).collect();
    for name in &names {
        fleet::host(ground, &namespace, name, &json!({}), json!({}), busy.clone()).await?;
        machine(ground, &namespace, name, "freed", None).await?;
    }
    let running = Running::start(ground, program, &account).await?;
    let machines = METAL3_MACHINE.api(&ground.admin, &namespace);
    let mut waiting = pin!(watch::objects(machines, watcher::Config::default()));
    let mut told = std::collections::BTreeSet::new();
    let patience = Duration::from_secs(300);
    let all_wait = async {
        while told.len() < names.len() {
            let machine = waiting.try_next().await?.context("the watch on the machines ended")?;
            if machine.data["status"]["conditions"].is_array() {
                told.insert(machine.name_any());
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(patience, all_wait)
        .await
        .context("the machines do not say that they wait")??;
    let hosts = bmo::api(&ground.admin, &namespace);
    let mut seen = pin!(watch::objects(hosts.clone(), watcher::Config::default()));
    let mut took = Vec::new();
    for (number, name) in names.iter().enumerate() {
        if program.is_peer {
            tokio::time::sleep(APART * u32::try_from(number)?).await;
        }
        let patch = Patch::Merge(json!({ "status": { "provisioning": { "state": "available" } } }));
        hosts.patch_status(name, &PatchParams::default(), &patch).await?;
        let freed = Instant::now();
        let claimed = |host: &DynamicObject| {
            host.name_any() == *name && !host.data["spec"]["consumerRef"].is_null()
        };
        let claim = async {
            while let Some(host) = seen.try_next().await? {
                if claimed(&host) {
                    return anyhow::Ok(());
                }
            }
            bail!("the watch on the hosts ended")
        };
        tokio::time::timeout(patience, claim).await.context("a free host is not taken")??;
        took.push(freed.elapsed());
    }
    running.stop().await?;
    took.sort_unstable();
    let figure = |percent: usize, at_most| Figure {
        what: format!("ms from a host that is free to its claim, p{percent}"),
        value: load::millis(load::quantile(&took, percent)),
        at_most,
    };
    Ok(vec![figure(50, None), figure(99, Some(50.0))])
}

/// What choosing a host costs by itself, by the release build of an example.
async fn selection(program: &Path, hosts: u32) -> anyhow::Result<Vec<Figure>> {
    let folder = program.parent().context("the program is in a folder")?.join("examples/selection");
    let measure = move |hosts: u32| -> anyhow::Result<f64> {
        let output = Command::new(&folder).arg(hosts.to_string()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    let (few, many) =
        tokio::task::spawn_blocking(move || anyhow::Ok((measure(hosts / 10)?, measure(hosts)?)))
            .await??;
    let figure = |what: String, value, limit| Figure { what, value, at_most: Some(limit) };
    Ok(vec![
        figure(format!("µs to choose a host among {hosts}"), many, 50.0),
        figure(format!("times the cost among {}", hosts / 10), many / few, 1.2),
    ])
}

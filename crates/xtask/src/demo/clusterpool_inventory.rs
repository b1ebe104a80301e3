//! The chapter of pools: four clusters out of five entries, one of them broken, one claimed, one edited, one removed.

use std::collections::BTreeMap;

use bench::hive::{PLAYED_BY, api, kind};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use super::stage::Stage;
use super::table::{PATIENCE, Table};
use crate::objects::{self, namespace, secret, until};

const NAMESPACE: &str = "demo-pools";
const POOL: &str = "lab";
const CLAIM: &str = "team-a";
const RELEASE: &str = "demo-release";
const ENTRIES: [&str; 5] = ["alpha", "beta", "gamma", "delta", "epsilon"];
const CUSTOMIZATION: &str = "ClusterDeploymentCustomization";
/// The value of the label by which Hive's stand-in knows what to play.
pub(crate) const PLAYER: &str = "demo";

/// Plays it.
///
/// # Errors
/// When the pool does not do what the chapter says.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\nclusterpool-inventory: clusters whose names and addresses exist once");
    let client = stage.admin().await?;
    prepare(&client).await?;
    let mut table = Table::new(&["ENTRY", "STATUS", "CLUSTER", "IS", "CLAIM", "WHY"]);

    table.say(
        "A pool of four with five entries. A patch of gamma replaces a key that is not there:",
    );
    let list: Vec<Value> = ENTRIES.iter().map(|it| json!({ "name": it })).collect();
    apply(&client, "ClusterPool", POOL, &pool(&list)).await?;
    watch(&mut table, &client, "four clusters run and gamma is broken", |rows| {
        running(rows) == 4 && rows["gamma"].status == "Broken by configuration"
    })
    .await?;

    table.say("A team claims a cluster. The pool wants a fourth again, and has no entry for it:");
    let claim = json!({
        "metadata": { "labels": { PLAYED_BY: PLAYER } },
        "spec": { "clusterPoolName": POOL },
    });
    apply(&client, "ClusterClaim", CLAIM, &claim).await?;
    watch(&mut table, &client, "the claim has a cluster", |rows| {
        rows.values().any(|row| row.claim == CLAIM)
    })
    .await?;

    table.say("The patch of gamma is corrected:");
    entry(&client, "gamma", "gamma", false).await?;
    watch(&mut table, &client, "gamma has a cluster", |rows| running(rows) == 5).await?;

    // Which cluster the team got is chance: what was made in one second is told apart by its name.
    let now = rows(&client).await?;
    let mut free = ["beta", "alpha", "delta"].into_iter().filter(|it| now[*it].claim.is_empty());
    let (edited, removed) = (free.next().unwrap_or("beta"), free.next().unwrap_or("delta"));

    table.say(&format!(
        "The patch of {edited} is edited. Nobody has claimed its cluster, so it is replaced:"
    ));
    let before = now[edited].cluster.clone();
    entry(&client, edited, &format!("{edited}-2"), false).await?;
    watch(&mut table, &client, "it has another cluster", |rows| {
        running(rows) == 5 && rows[edited].cluster != before && rows[edited].status == "Reserved"
    })
    .await?;

    table.say(&format!("{removed} is taken off the list. Its cluster goes, and then the entry:"));
    let left: Vec<Value> =
        ENTRIES.iter().filter(|it| **it != removed).map(|it| json!({ "name": it })).collect();
    apply(&client, "ClusterPool", POOL, &pool(&left)).await?;
    watch(&mut table, &client, "it is gone", |rows| {
        !rows.contains_key(removed) && running(rows) == 4
    })
    .await
}

fn pool(entries: &[Value]) -> Value {
    json!({ "spec": {
        "platform": { "none": {} },
        "baseDomain": "example.com",
        "imageSetRef": { "name": RELEASE },
        "installConfigSecretTemplateRef": { "name": "install-config" },
        "skipMachinePools": true,
        "installAttemptsLimit": 1,
        "size": 4,
        "labels": { PLAYED_BY: PLAYER },
        "inventory": { "ClusterDeploymentCustomizations": entries },
    }})
}

/// An entry that names its cluster; a broken one replaces something that the install config does not have.
async fn entry(client: &Client, name: &str, host: &str, broken: bool) -> anyhow::Result<()> {
    let mut patches = vec![json!({ "op": "replace", "path": "/metadata/name", "value": host })];
    if broken {
        patches.push(json!({ "op": "replace", "path": "/vip", "value": "192.0.2.9" }));
    }
    let object = json!({ "spec": { "installConfigPatches": patches } });
    apply(client, CUSTOMIZATION, name, &object).await
}

/// Everything but the pool, as if the chapter had never been played.
async fn prepare(client: &Client) -> anyhow::Result<()> {
    namespace(client, NAMESPACE).await?;
    for (of, name) in [("ClusterClaim", CLAIM), ("ClusterPool", POOL)] {
        let api = api(client, NAMESPACE, of);
        if api.get_opt(name).await?.is_some() {
            api.delete(name, &DeleteParams::default()).await?;
            until("the pool of before is gone", PATIENCE, async || {
                Ok(api.get_opt(name).await?.is_none().then_some(()))
            })
            .await?;
        }
    }
    let config = "apiVersion: v1\nmetadata: {name: x}\nbaseDomain: x\nplatform: {none: {}}\n";
    let config = json!({ "install-config.yaml": config });
    secret(client, NAMESPACE, "install-config", &config).await?;
    let release = json!({ "spec": { "releaseImage": "registry.example.com/release:1" } });
    put(client, None, ("ClusterImageSet", RELEASE), &release).await?;
    for name in ENTRIES {
        entry(client, name, name, name == "gamma").await?;
    }
    Ok(())
}

async fn apply(client: &Client, of: &str, name: &str, object: &Value) -> anyhow::Result<()> {
    put(client, Some(NAMESPACE), (of, name), object).await
}

async fn put(
    client: &Client,
    namespace: Option<&str>,
    (of, name): (&str, &str),
    object: &Value,
) -> anyhow::Result<()> {
    let mut object = object.clone();
    object["apiVersion"] = json!("hive.openshift.io/v1");
    object["kind"] = json!(of);
    object["metadata"]["name"] = json!(name);
    objects::apply(client, namespace, &object).await.map(drop)
}

/// How one entry is.
#[derive(Clone, Debug, Default)]
struct Row {
    status: String,
    cluster: String,
    is: String,
    claim: String,
    why: String,
}

fn running(rows: &BTreeMap<String, Row>) -> usize {
    rows.values().filter(|row| row.is == "running").count()
}

async fn rows(client: &Client) -> anyhow::Result<BTreeMap<String, Row>> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind("ClusterDeployment"));
    let which = ListParams::default().labels(&format!("{PLAYED_BY}={PLAYER}"));
    let clusters = all.list(&which).await?.items;
    let pool = api(client, NAMESPACE, "ClusterPool").get(POOL).await?;
    let mut rows = BTreeMap::new();
    for (name, state) in pool.data["status"]["inventory"].as_object().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut row = Row {
            status: text(&state["status"]),
            cluster: text(&state["clusterDeploymentRef"]["name"]),
            why: text(&state["lastFailure"]["message"]),
            ..Row::default()
        };
        let found = clusters.iter().find(|it| it.metadata.name.as_deref() == Some(&row.cluster));
        if let Some(cluster) = found {
            row.claim = text(&cluster.data["spec"]["clusterPoolRef"]["claimName"]);
            let word = if cluster.metadata.deletion_timestamp.is_some() {
                "going"
            } else if cluster.data["status"]["powerState"] == "Running" {
                "running"
            } else {
                "coming"
            };
            word.clone_into(&mut row.is);
        }
        rows.insert(name.clone(), row);
    }
    Ok(rows)
}

async fn watch(
    table: &mut Table,
    client: &Client,
    what: &str,
    is_so: impl Fn(&BTreeMap<String, Row>) -> bool,
) -> anyhow::Result<()> {
    let look = async || {
        let rows = rows(client).await?;
        let cells = |(name, row): (&String, &Row)| {
            let cells = [name, &row.status, &row.cluster, &row.is, &row.claim, &row.why];
            cells.into_iter().cloned().collect()
        };
        let is_so = ENTRIES.iter().any(|it| rows.contains_key(*it)) && is_so(&rows);
        anyhow::Ok((rows.iter().map(cells).collect(), is_so))
    };
    table.until(what, look).await
}

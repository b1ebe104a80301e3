//! The chapter of pools: four clusters out of five entries, one of them broken, one claimed, one edited, one removed.

use std::collections::BTreeMap;

use bench::hive::PLAYED_BY;
use bench::objects::{apply, hive, secret, until};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::stage::{Place, Stage};
use super::table::{PATIENCE, Table};

const NAMESPACE: &str = "demo-pools";
const POOL: &str = "lab";
const CLAIM: &str = "team-a";
const RELEASE: &str = "demo-release";
const ENTRIES: [&str; 5] = ["alpha", "beta", "gamma", "delta", "epsilon"];
/// The value of the label by which Hive's stand-in knows what to play.
pub(crate) const PLAYER: &str = "demo";

/// Plays it.
///
/// # Errors
/// When the pool does not do what the chapter says.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\nclusterpool-inventory: clusters whose names and addresses exist once");
    let place = stage.place(NAMESPACE).await?;
    prepare(&place).await?;
    let table = Table::new(&["ENTRY", "STATUS", "CLUSTER", "IS", "CLAIM", "WHY"]);
    let mut scene = Scene { place: &place, table };

    scene.table.say(
        "A pool of four with five entries. A patch of gamma replaces a key that is not there:",
    );
    place.apply(&pool(&ENTRIES)).await?;
    let gamma_is_broken =
        |rows: &Entries| running(rows) == 4 && rows["gamma"].status == "Broken by configuration";
    scene.watch("four clusters run and gamma is broken", gamma_is_broken).await?;

    scene
        .table
        .say("A team claims a cluster. The pool wants a fourth again, and has no entry for it:");
    let mut claim = hive("ClusterClaim").object(CLAIM, &json!({ "clusterPoolName": POOL }));
    claim["metadata"]["labels"] = json!({ PLAYED_BY: PLAYER });
    place.apply(&claim).await?;
    let is_claimed = |rows: &Entries| rows.values().any(|row| row.claim == CLAIM);
    scene.watch("the claim has a cluster", is_claimed).await?;

    scene.table.say("The patch of gamma is corrected:");
    place.apply(&entry("gamma", "gamma", false)).await?;
    scene.watch("gamma has a cluster", |rows| running(rows) == 5).await?;

    // Which cluster the team got is chance: what was made in one second is told apart by its name.
    let now = entries(&place).await?;
    let mut free = ["beta", "alpha", "delta"].into_iter().filter(|it| now[*it].claim.is_empty());
    let (edited, removed) = (free.next().unwrap_or("beta"), free.next().unwrap_or("delta"));

    scene.table.say(&format!(
        "The patch of {edited} is edited. Nobody has claimed its cluster, so it is replaced:"
    ));
    let before = &now[edited].cluster;
    place.apply(&entry(edited, &format!("{edited}-2"), false)).await?;
    let is_replaced = |rows: &Entries| {
        let row = &rows[edited];
        running(rows) == 5 && row.cluster != *before && row.status == "Reserved"
    };
    scene.watch("it has another cluster", is_replaced).await?;

    scene
        .table
        .say(&format!("{removed} is taken off the list. Its cluster goes, and then the entry:"));
    let left: Vec<&str> = ENTRIES.into_iter().filter(|it| *it != removed).collect();
    place.apply(&pool(&left)).await?;
    let is_gone = |rows: &Entries| !rows.contains_key(removed) && running(rows) == 4;
    scene.watch("it is gone", is_gone).await
}

fn pool(entries: &[&str]) -> Value {
    let entries: Vec<Value> = entries.iter().map(|it| json!({ "name": it })).collect();
    let spec = json!({
        "platform": { "none": {} },
        "baseDomain": "example.com",
        "imageSetRef": { "name": RELEASE },
        "installConfigSecretTemplateRef": { "name": "install-config" },
        "skipMachinePools": true,
        "installAttemptsLimit": 1,
        "size": 4,
        "labels": { PLAYED_BY: PLAYER },
        "inventory": { "ClusterDeploymentCustomizations": entries },
    });
    hive("ClusterPool").object(POOL, &spec)
}

/// An entry that names its cluster; a broken one replaces something that the install config does not have.
fn entry(name: &str, host: &str, broken: bool) -> Value {
    let mut patches = vec![json!({ "op": "replace", "path": "/metadata/name", "value": host })];
    if broken {
        patches.push(json!({ "op": "replace", "path": "/vip", "value": "192.0.2.9" }));
    }
    let spec = json!({ "installConfigPatches": patches });
    hive("ClusterDeploymentCustomization").object(name, &spec)
}

/// Everything but the pool, as if the chapter had never been played.
async fn prepare(place: &Place) -> anyhow::Result<()> {
    for (of, name) in [("ClusterClaim", CLAIM), ("ClusterPool", POOL)] {
        let api = place.api(hive(of));
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
    secret(&place.client, NAMESPACE, "install-config", &config).await?;
    let release = json!({ "releaseImage": "registry.example.com/release:1" });
    apply(&place.client, None, &hive("ClusterImageSet").object(RELEASE, &release)).await?;
    for name in ENTRIES {
        place.apply(&entry(name, name, name == "gamma")).await?;
    }
    Ok(())
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

/// The entries of the pool, by their names.
type Entries = BTreeMap<String, Row>;

fn running(entries: &Entries) -> usize {
    entries.values().filter(|row| row.is == "running").count()
}

async fn entries(place: &Place) -> anyhow::Result<Entries> {
    let which = ListParams::default().labels(&format!("{PLAYED_BY}={PLAYER}"));
    let clusters = hive("ClusterDeployment").all(&place.client).list(&which).await?.items;
    let pool = place.get(hive("ClusterPool"), POOL).await?;
    let mut entries = Entries::new();
    for (name, state) in pool["status"]["inventory"].as_object().into_iter().flatten() {
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
        entries.insert(name.clone(), row);
    }
    Ok(entries)
}

struct Scene<'a> {
    place: &'a Place,
    table: Table,
}

impl Scene<'_> {
    /// Shows the entries until they are so.
    async fn watch(&mut self, what: &str, are_so: impl Fn(&Entries) -> bool) -> anyhow::Result<()> {
        let look = async || {
            let entries = entries(self.place).await?;
            let cells = |(name, row): (&String, &Row)| {
                let cells = [name, &row.status, &row.cluster, &row.is, &row.claim, &row.why];
                cells.map(String::clone).to_vec()
            };
            let are_so = ENTRIES.iter().any(|it| entries.contains_key(*it)) && are_so(&entries);
            anyhow::Ok((entries.iter().map(cells).collect(), are_so))
        };
        self.table.until(what, look).await
    }
}

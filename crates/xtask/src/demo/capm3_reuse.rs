//! The chapter of reuse: a deployment of three machines rolls over, and each new machine gets a server of the old ones.

use std::collections::BTreeMap;

use api_types::names;
use api_types::names::capi::{CLONED_FROM_NAME, DEPLOYMENT_NAME};
use api_types::names::ferrite::{INTENDS_HOST, POWER, POWER_MANAGED};
use bench::bmo;
use bench::cluster_api::objects::{
    MACHINE_DEPLOYMENT, METAL3_MACHINE, kubeadm_config_template, machine_deployment,
    metal3_machine_template,
};
use bench::objects::{HOST, merge_status};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::stage::{Place, Server, Stage};
use super::table::{Table, text};

const MACHINES: u32 = 3;
pub(super) const DEPLOYMENT: &str = "workers";
/// The label of hosts by which deployments find theirs.
pub(super) const RACK: &str = "rack";
/// The deployment goes from one to the other, and back if the chapter is played again.
const TEMPLATES: [&str; 2] = ["image-1", "image-2"];

/// Plays it.
///
/// # Errors
/// When a machine does not come up, or comes up on another server.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\ncapm3-reuse: the right host for every machine, and the same host again");
    let place = stage.in_cluster().await?;
    prepare(&place, servers(stage)).await?;
    let (before, after) = turn(&place).await?;
    let mut table = new_table();

    table.say(&format!(
        "{MACHINES} machines of one MachineDeployment come up on four servers (Cluster API's own managers drive them):"
    ));
    let first = bring_up(&mut table, stage, &place, before).await?;

    table.say(&format!(
        "The deployment gets another template, {after}, so every machine is replaced. While a host is cleared it is kept for the deployment:"
    ));
    let second = bring_up(&mut table, stage, &place, after).await?;

    println!("\n  {:<10}  {:<28}  NEW MACHINE", "HOST", "OLD MACHINE");
    for (host, old) in &first {
        let new = second.get(host).map_or("none", String::as_str);
        println!("  {host:<10}  {old:<28}  {new}");
    }
    anyhow::ensure!(
        first.keys().eq(second.keys()),
        "the new machines are on other servers than the old ones"
    );
    Ok(())
}

/// Three are needed, the fourth could be taken instead.
pub(super) fn servers(stage: &Stage) -> &[Server] {
    &stage.servers[1..5]
}

/// Sees to it that the machines are up, for a chapter that needs them.
///
/// # Errors
/// When one does not come up.
pub(super) async fn come_up(stage: &Stage) -> anyhow::Result<()> {
    let place = stage.in_cluster().await?;
    prepare(&place, servers(stage)).await?;
    let (template, _) = turn(&place).await?;
    bring_up(&mut new_table(), stage, &place, template).await.map(drop)
}

fn new_table() -> Table {
    Table::new(&["HOST", "BMC", "STATE      ", "CONSUMER                         ", "IMAGE"])
}

/// Hosts and templates.
async fn prepare(place: &Place, servers: &[Server]) -> anyhow::Result<()> {
    for server in servers {
        host(place, server).await?;
    }
    for template in TEMPLATES {
        let mut object = metal3_machine_template(template);
        object["spec"]["nodeReuse"] = json!(true);
        object["spec"]["template"]["spec"]["hostSelector"] =
            json!({ "matchLabels": { RACK: "a" } });
        place.apply(&object).await?;
    }
    place.apply(&kubeadm_config_template("join")).await
}

/// An available host whose power is bmo-reboot's; a stand-in plays the operator that installs it.
async fn host(place: &Place, server: &Server) -> anyhow::Result<()> {
    let (namespace, name) = (&place.namespace, &server.name);
    if !place.get(HOST, name).await?.is_null() {
        return Ok(());
    }
    let labels = json!({ POWER: POWER_MANAGED, RACK: "a" });
    bmo::make_host(&place.client, namespace, name, namespace, &labels).await?;
    let status = json!({ "provisioning": { "ID": server.node } });
    merge_status(&place.api(HOST), name, &status).await
}

/// The template that the deployment has or will begin with, and the other one.
async fn turn(place: &Place) -> anyhow::Result<(&'static str, &'static str)> {
    let deployment = place.get(MACHINE_DEPLOYMENT, DEPLOYMENT).await?;
    let [first, second] = TEMPLATES;
    let has_second = deployment["spec"]["template"]["spec"]["infrastructureRef"]["name"] == second;
    Ok(if has_second { (second, first) } else { (first, second) })
}

/// Gives the deployment this template, and shows the hosts until there are only machines of it, all up; gives the machine of
/// each host.
async fn bring_up(
    table: &mut Table,
    stage: &Stage,
    place: &Place,
    template: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let cluster = &stage.cluster;
    place.apply(&machine_deployment(DEPLOYMENT, cluster, MACHINES, template, "join")).await?;
    let mut up = BTreeMap::new();
    let look = async || {
        let all = place.list(METAL3_MACHINE, &of_deployment()).await?;
        let mut rows = Vec::new();
        for server in servers(stage) {
            let host = place.get(HOST, &server.name).await?;
            let image = all.iter().find(|it| host_of(it) == server.name).map(cloned_from);
            rows.push(vec![
                server.name.clone(),
                server.bmc.state().await?,
                text(&host["status"]["provisioning"]["state"]),
                consumer(&host),
                image.unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        let is_up = |it: &&Value| {
            cloned_from(it) == template && it["status"]["initialization"]["provisioned"] == true
        };
        let name = |it: &Value| (host_of(it).to_owned(), text(&it["metadata"]["name"]));
        up = all.iter().filter(is_up).map(name).collect();
        anyhow::Ok((rows, all.len() == MACHINES as usize && up.len() == all.len()))
    };
    table.until(&format!("{MACHINES} machines of {template} are up"), look).await?;
    Ok(up)
}

/// Machines of the chapter. There may be those of others.
pub(super) fn of_deployment() -> ListParams {
    ListParams::default().labels(&format!("{DEPLOYMENT_NAME}={DEPLOYMENT}"))
}

fn cloned_from(machine: &Value) -> String {
    text(&machine["metadata"]["annotations"][CLONED_FROM_NAME])
}

fn host_of(machine: &Value) -> &str {
    let annotations = &machine["metadata"]["annotations"];
    let named =
        [INTENDS_HOST, names::metal3::HOST].iter().find_map(|key| annotations[*key].as_str());
    named.and_then(|it| it.rsplit('/').next()).unwrap_or_default()
}

fn consumer(host: &Value) -> String {
    let consumer = &host["spec"]["consumerRef"];
    match (consumer["kind"].as_str(), consumer["name"].as_str()) {
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        _ => "-".to_owned(),
    }
}

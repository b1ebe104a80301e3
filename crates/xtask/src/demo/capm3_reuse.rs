//! The chapter of reuse: a deployment of three machines rolls over, and each new machine gets a server of the old ones.

use std::collections::BTreeMap;

use api_types::names::capi::{CLONED_FROM_NAME, DEPLOYMENT_NAME};
use api_types::names::ferrite::INTENDS_HOST;
use api_types::names::ferrite::{POWER, POWER_MANAGED};
use api_types::names::metal3::HOST;
use bench::bmo;
use bench::cluster_api::objects::{
    MACHINE_DEPLOYMENT, METAL3_MACHINE, kubeadm_config_template, machine_deployment,
    metal3_machine_template,
};
use kube::api::{DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::stage::{Server, Stage};
use super::table::{Table, text};
use crate::objects::{apply, merge_status};

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
    let client = stage.admin().await?;
    let place = Place { client: &client, namespace: &stage.cluster.namespace };
    let servers = servers(stage);
    place.prepare(servers).await?;
    let (before, after) = place.turn().await?;
    let mut table = new_table();

    table.say(&format!(
        "{MACHINES} machines of one MachineDeployment come up on four servers (Cluster API's own managers drive them):"
    ));
    place.deploy(&stage.cluster.name, before).await?;
    let first = place.come_up(&mut table, servers, before).await?;

    table.say(&format!(
        "The deployment gets another template, {after}, so every machine is replaced. While a host is cleared it is kept for the deployment:"
    ));
    place.deploy(&stage.cluster.name, after).await?;
    let second = place.come_up(&mut table, servers, after).await?;

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
    let client = stage.admin().await?;
    let place = Place { client: &client, namespace: &stage.cluster.namespace };
    place.prepare(servers(stage)).await?;
    let (template, _) = place.turn().await?;
    place.deploy(&stage.cluster.name, template).await?;
    place.come_up(&mut new_table(), servers(stage), template).await.map(drop)
}

fn new_table() -> Table {
    Table::new(&["HOST", "BMC", "STATE      ", "CONSUMER                         ", "IMAGE"])
}

struct Place<'a> {
    client: &'a Client,
    namespace: &'a str,
}

impl Place<'_> {
    /// Hosts and templates.
    async fn prepare(&self, servers: &[Server]) -> anyhow::Result<()> {
        for server in servers {
            self.host(server).await?;
        }
        for template in TEMPLATES {
            let mut object = metal3_machine_template(template);
            object["spec"]["nodeReuse"] = json!(true);
            object["spec"]["template"]["spec"]["hostSelector"] =
                json!({ "matchLabels": { RACK: "a" } });
            apply(self.client, Some(self.namespace), &object).await?;
        }
        let join = kubeadm_config_template("join");
        apply(self.client, Some(self.namespace), &join).await.map(drop)
    }

    /// An available host whose power is bmo-reboot's; a stand-in plays the operator that installs it.
    async fn host(&self, server: &Server) -> anyhow::Result<()> {
        let hosts = bmo::api(self.client, self.namespace);
        if hosts.get_opt(&server.name).await?.is_some() {
            return Ok(());
        }
        let labels = json!({ (POWER): POWER_MANAGED, (RACK): "a" });
        bmo::make_host(self.client, self.namespace, &server.name, self.namespace, &labels).await?;
        merge_status(&hosts, &server.name, &json!({ "provisioning": { "ID": server.node } })).await
    }

    /// The template that the deployment has or will begin with, and the other one.
    async fn turn(&self) -> anyhow::Result<(&'static str, &'static str)> {
        let deployment =
            MACHINE_DEPLOYMENT.api(self.client, self.namespace).get_opt(DEPLOYMENT).await?;
        let [first, second] = TEMPLATES;
        let has_second = deployment.is_some_and(|it| {
            it.data["spec"]["template"]["spec"]["infrastructureRef"]["name"] == second
        });
        Ok(if has_second { (second, first) } else { (first, second) })
    }

    async fn deploy(&self, cluster: &str, template: &str) -> anyhow::Result<()> {
        let object = machine_deployment(DEPLOYMENT, cluster, MACHINES, template, "join");
        apply(self.client, Some(self.namespace), &object).await.map(drop)
    }

    /// Shows the hosts until there are only machines of this template, all up; gives the machine of each host.
    async fn come_up(
        &self,
        table: &mut Table,
        servers: &[Server],
        template: &str,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let machines = METAL3_MACHINE.api(self.client, self.namespace);
        let hosts = bmo::api(self.client, self.namespace);
        let mut up = BTreeMap::new();
        let look = async || {
            let all = machines.list(&of_deployment()).await?.items;
            let mut rows = Vec::new();
            for server in servers {
                let host = hosts.get(&server.name).await?;
                let image = all.iter().find(|it| host_of(it) == server.name).map(cloned_from);
                rows.push(vec![
                    server.name.clone(),
                    server.bmc.power().await?,
                    text(&host.data["status"]["provisioning"]["state"]),
                    consumer(&host),
                    image.unwrap_or_else(|| "-".to_owned()),
                ]);
            }
            let is_up = |it: &&DynamicObject| {
                cloned_from(it) == template
                    && it.data["status"]["initialization"]["provisioned"] == true
            };
            up = all.iter().filter(is_up).map(|it| (host_of(it), it.name_any())).collect();
            anyhow::Ok((rows, all.len() == MACHINES as usize && up.len() == all.len()))
        };
        table.until(&format!("{MACHINES} machines of {template} are up"), look).await?;
        Ok(up)
    }
}

/// Machines of the chapter. There may be those of others.
pub(super) fn of_deployment() -> ListParams {
    ListParams::default().labels(&format!("{DEPLOYMENT_NAME}={DEPLOYMENT}"))
}

fn cloned_from(machine: &DynamicObject) -> String {
    machine.annotations().get(CLONED_FROM_NAME).cloned().unwrap_or_default()
}

fn host_of(machine: &DynamicObject) -> String {
    let named = [INTENDS_HOST, HOST].iter().find_map(|key| machine.annotations().get(*key));
    named.map_or("", |it| it.rsplit('/').next().unwrap_or_default()).to_owned()
}

fn consumer(host: &DynamicObject) -> String {
    let consumer = &host.data["spec"]["consumerRef"];
    match (consumer["kind"].as_str(), consumer["name"].as_str()) {
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        _ => "-".to_owned(),
    }
}

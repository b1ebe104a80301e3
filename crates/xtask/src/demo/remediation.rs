//! The chapter of healing: a node that falls silent comes back after a power cycle; a second one does not, and its Machine
//! is replaced on another server.

use std::collections::BTreeMap;

use api_types::names::capm3::{UNHEALTHY, UNHEALTHY_DEPRECATED};
use api_types::names::ferrite::REMEDIATION_HISTORY;
use api_types::names::metal3::HOST;
use bench::bmo;
use bench::cluster_api::objects::{
    Kind, MACHINE, MACHINE_HEALTH_CHECK, METAL3_MACHINE, machine_health_check,
};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt as _};
use remediation::history::{Entry, History};
use serde_json::{Value, json};

use super::capm3_reuse;
use super::stage::{Server, Stage};
use super::table::{Table, text};
use crate::objects::{apply, config, merge};

const REMEDIATION: Kind =
    Kind { api_version: "remediation.metal3.io/v1alpha1", kind: "Metal3Remediation" };
const TEMPLATE: Kind =
    Kind { api_version: REMEDIATION.api_version, kind: "Metal3RemediationTemplate" };
const NAME: &str = "heal";

/// Plays it.
///
/// # Errors
/// When a machine does not come back, or is not replaced.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!(
        "\nremediation: a node comes back, or its machine is replaced, and somebody can tell why"
    );
    let client = stage.admin().await?;
    let workload = workload(&client, stage).await?;
    let place = Place { client, workload, stage };
    let mut table =
        Table::new(&["HOST", "BMC", "MACHINE", "NODE", "REMEDIATION              ", "UNHEALTHY"]);

    table.say("Three machines run, and a MachineHealthCheck looks after them:");
    capm3_reuse::come_up(stage).await?;
    place.check().await?;
    let look = async || {
        let api = MACHINE_HEALTH_CHECK.api(&place.client, place.namespace());
        let status = &api.get(NAME).await?.data["status"];
        let are_healthy = status["expectedMachines"] == 3 && status["currentHealthy"] == 3;
        anyhow::Ok((place.rows().await?, are_healthy))
    };
    table.until("all machines are healthy", look).await?;
    let machines = place.machines().await?;
    let mut sick = machines.iter();
    let (first, second) = (sick.next(), sick.next());
    let (Some((returns, first)), Some((stays, second))) = (first, second) else {
        anyhow::bail!("there are no two machines");
    };

    table.say(&format!(
        "The kubelet on {returns} falls silent. Its server is cut off, its node fenced, and it is switched on again:"
    ));
    let node = place.node_of(first).await?;
    place.silence(&node).await?;
    place.healed(&mut table, returns, first, &node).await?;
    place.timeline(returns).await?;

    table.say(&format!(
        "The kubelet on {stays} falls silent, too, and no reboot helps. After two tries its Machine is replaced on another server:"
    ));
    place.silence(&place.node_of(second).await?).await?;
    place.replaced(&mut table, second).await?;
    place.timeline(stays).await?;

    println!(
        "\n  Nobody uses {stays} until a person says that it is repaired, which is done here:"
    );
    let hosts = bmo::api(&place.client, place.namespace());
    let repaired =
        json!({"metadata": {"annotations": {UNHEALTHY: null, UNHEALTHY_DEPRECATED: null}}});
    merge(&hosts, stays, &repaired).await?;
    println!("  kubectl annotate baremetalhost {stays} {UNHEALTHY}- {UNHEALTHY_DEPRECATED}-");
    Ok(())
}

/// A client of the cluster whose machines these are.
async fn workload(client: &Client, stage: &Stage) -> anyhow::Result<Client> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &stage.cluster.namespace);
    let secret = secrets.get(&format!("{}-kubeconfig", stage.cluster.name)).await?;
    let value = secret.data.and_then(|mut it| it.remove("value"));
    let text = value.ok_or_else(|| anyhow::anyhow!("the cluster has no kubeconfig"))?;
    let file = Kubeconfig::from_yaml(std::str::from_utf8(&text.0)?)?;
    Ok(Client::try_from(config(file).await?)?)
}

struct Place<'a> {
    client: Client,
    workload: Client,
    stage: &'a Stage,
}

impl Place<'_> {
    fn namespace(&self) -> &str {
        &self.stage.cluster.namespace
    }

    fn servers(&self) -> &[Server] {
        capm3_reuse::servers(self.stage)
    }

    async fn check(&self) -> anyhow::Result<()> {
        let strategy = json!({"type": "reboot", "retryLimit": 1, "timeout": "15s"});
        let template =
            TEMPLATE.object(NAME, &json!({"template": {"spec": {"strategy": strategy}}}));
        let pool = capm3_reuse::DEPLOYMENT;
        let check = machine_health_check(NAME, &self.stage.cluster.name, pool, TEMPLATE, NAME);
        for object in [template, check] {
            apply(&self.client, Some(self.namespace()), &object).await?;
        }
        Ok(())
    }

    /// The Machine of each host.
    async fn machines(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let metals = METAL3_MACHINE.api(&self.client, self.namespace());
        let mut machines = BTreeMap::new();
        for metal in metals.list(&capm3_reuse::of_deployment()).await? {
            let named = metal.annotations().get(HOST).and_then(|it| it.split_once('/'));
            let owners = metal.metadata.owner_references.iter().flatten();
            let owner = owners.clone().find(|it| it.kind == MACHINE.kind);
            if let (Some((_, host)), Some(owner)) = (named, owner) {
                machines.insert(host.to_owned(), owner.name.clone());
            }
        }
        Ok(machines)
    }

    async fn node_of(&self, machine: &str) -> anyhow::Result<String> {
        let machine = MACHINE.api(&self.client, self.namespace()).get(machine).await?;
        Ok(text(&machine.data["status"]["nodeRef"]["name"]))
    }

    async fn rows(&self) -> anyhow::Result<Vec<Vec<String>>> {
        let (hosts, machines) = (bmo::api(&self.client, self.namespace()), self.machines().await?);
        let requests = REMEDIATION.api(&self.client, self.namespace());
        let nodes: Api<Node> = Api::all(self.workload.clone());
        let mut rows = Vec::new();
        for server in self.servers() {
            let host = hosts.get(&server.name).await?;
            let machine = machines.get(&server.name);
            let (mut ready, mut request) = ("-".to_owned(), None);
            if let Some(machine) = machine {
                request = requests.get_opt(machine).await?;
                let api = MACHINE.api(&self.client, self.namespace());
                let machine = api.get_opt(machine).await?;
                let node = machine.map(|it| text(&it.data["status"]["nodeRef"]["name"]));
                if let Some(node) = node.filter(|it| it != "-") {
                    ready = nodes.get_opt(&node).await?.map_or_else(|| "-".to_owned(), state);
                }
            }
            let request = request.map_or_else(|| "-".to_owned(), |it| step(&it));
            let marked = if host.annotations().contains_key(UNHEALTHY) { "yes" } else { "-" };
            rows.push(vec![
                server.name.clone(),
                server.bmc.power().await?,
                machine.cloned().unwrap_or_else(|| "-".to_owned()),
                ready,
                request,
                marked.to_owned(),
            ]);
        }
        Ok(rows)
    }

    /// There is no kubelet here: what is said of one that has fallen silent.
    async fn silence(&self, node: &str) -> anyhow::Result<()> {
        let silent = json!({"status": {"conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "",
            "lastTransitionTime": now(),
        }]}});
        self.patch_node(node, silent).await
    }

    /// And what one says that has just started.
    async fn boot(&self, node: &str) -> anyhow::Result<()> {
        let started = json!({"status": {
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": now(), "lastTransitionTime": now(),
            }],
            "nodeInfo": {"bootID": Timestamp::now().as_nanosecond().to_string()},
        }});
        self.patch_node(node, started).await
    }

    async fn patch_node(&self, node: &str, patch: Value) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.workload.clone());
        nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }

    /// The last try on a host.
    async fn last(&self, host: &str) -> anyhow::Result<Option<Entry>> {
        let host = bmo::api(&self.client, self.namespace()).get(host).await?;
        Ok(history(&host).0.pop())
    }

    /// Shows how a machine is power-cycled. Its kubelet starts when its server is on again.
    async fn healed(
        &self,
        table: &mut Table,
        host: &str,
        machine: &str,
        node: &str,
    ) -> anyhow::Result<()> {
        let server = self.servers().iter().find(|it| it.name == host);
        let server = server.ok_or_else(|| anyhow::anyhow!("{host} is no server"))?;
        let requests = REMEDIATION.api(&self.client, self.namespace());
        let (mut asked, mut booted) = (false, false);
        let look = async || {
            let rows = self.rows().await?;
            let request = requests.get_opt(machine).await?;
            asked |= request.is_some();
            let waits = request.is_some_and(|it| it.data["status"]["step"] == "recover");
            if waits && !booted && server.bmc.power().await? == "On" {
                self.boot(node).await?;
                booted = true;
            }
            let last = self.last(host).await?.filter(|it| it.machine == machine);
            let recovered = last.is_some_and(|it| it.result.as_deref() == Some("Recovered"));
            let is_over = asked && recovered && requests.get_opt(machine).await?.is_none();
            anyhow::Ok((rows, is_over))
        };
        table.until(&format!("{machine} is healthy again"), look).await
    }

    /// Shows how a machine is given up.
    async fn replaced(&self, table: &mut Table, machine: &str) -> anyhow::Result<()> {
        let machines = MACHINE.api(&self.client, self.namespace());
        let look = async || {
            let all = machines.list(&capm3_reuse::of_deployment()).await?.items;
            let up = all.iter().filter(|it| it.data["status"]["nodeRef"]["name"].is_string());
            let is_replaced = up.count() == 3 && all.iter().all(|it| it.name_any() != machine);
            anyhow::Ok((self.rows().await?, is_replaced))
        };
        table.until(&format!("{machine} is replaced"), look).await
    }

    /// What the host remembers.
    async fn timeline(&self, host: &str) -> anyhow::Result<()> {
        let object = bmo::api(&self.client, self.namespace()).get(host).await?;
        println!("\n  What {host} remembers ({REMEDIATION_HISTORY}):");
        for entry in history(&object).0 {
            let node = entry.node.unwrap_or_else(|| "none".to_owned());
            println!("    try {} for {}, node {node}", entry.number + 1, entry.machine);
            println!("      {}  asked to be switched off", entry.asked);
            if let (Some(off), Some(fenced)) = (entry.off, entry.fenced) {
                println!("      {off}  was off; {fenced}");
            }
            if let Some(released) = entry.released {
                println!("      {released}  may be switched on");
            }
            if let (Some(ended), Some(result)) = (entry.ended, entry.result) {
                println!("      {ended}  {result}");
            }
        }
        Ok(())
    }
}

fn history(host: &DynamicObject) -> History {
    let text = host.annotations().get(REMEDIATION_HISTORY).map_or("[]", String::as_str);
    History(serde_json::from_str(text).unwrap_or_default())
}

/// Whether a node is ready, and whether it is out of service.
fn state(node: Node) -> String {
    let conditions = node.status.and_then(|it| it.conditions).unwrap_or_default();
    let ready = conditions.into_iter().find(|it| it.type_ == "Ready");
    let ready = match ready.as_ref().map(|it| it.status.as_str()) {
        Some("True") => "Ready",
        Some("Unknown") => "silent",
        _ => "NotReady",
    };
    let taints = node.spec.and_then(|it| it.taints).unwrap_or_default();
    let out = taints.iter().any(|it| it.key == "node.kubernetes.io/out-of-service");
    if out { format!("{ready}, out of service") } else { ready.to_owned() }
}

fn step(request: &DynamicObject) -> String {
    let status = &request.data["status"];
    let retries = status["retryCount"].as_u64().unwrap_or(0);
    format!("{}, {}, try {}", text(&status["phase"]), text(&status["step"]), retries + 1)
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

//! The chapter of healing: a node that falls silent comes back after a power cycle; a second one does not, and its Machine
//! is replaced on another server.

use std::collections::BTreeMap;

use anyhow::Context;
use api_types::names;
use api_types::names::capm3::{UNHEALTHY, UNHEALTHY_DEPRECATED};
use api_types::names::ferrite::REMEDIATION_HISTORY;
use bench::cluster_api::objects::{
    Kind, MACHINE, MACHINE_HEALTH_CHECK, METAL3_MACHINE, machine_health_check,
};
use bench::kubelet;
use bench::objects::{HOST, REMEDIATION, annotate, client};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use remediation::history::Entry;
use serde_json::{Value, json};

use super::capm3_reuse;
use super::stage::{Place, Server, Stage};
use super::table::{Rows, Table, text};

const TEMPLATE: Kind = Kind { kind: "Metal3RemediationTemplate", ..REMEDIATION };
const NAME: &str = "heal";

/// Plays it.
///
/// # Errors
/// When a machine does not come back, or is not replaced.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!(
        "\nremediation: a node comes back, or its machine is replaced, and somebody can tell why"
    );
    let place = stage.in_cluster().await?;
    let workload = client(&stage.workload).await?;
    let scene = Scene { place, workload, stage };
    let mut table =
        Table::new(&["HOST", "BMC", "MACHINE", "NODE", "REMEDIATION              ", "UNHEALTHY"]);

    table.say("Three machines run, and a MachineHealthCheck looks after them:");
    capm3_reuse::come_up(stage).await?;
    scene.check().await?;
    let look = async || {
        let check = scene.place.get(MACHINE_HEALTH_CHECK, NAME).await?;
        let status = &check["status"];
        let are_healthy = status["expectedMachines"] == 3 && status["currentHealthy"] == 3;
        anyhow::Ok((scene.rows().await?, are_healthy))
    };
    table.until("all machines are healthy", look).await?;
    let machines = scene.machines().await?;
    let mut sick = machines.iter();
    let (first, second) = (sick.next(), sick.next());
    let (Some((returns, first)), Some((stays, second))) = (first, second) else {
        anyhow::bail!("there are no two machines");
    };

    table.say(&format!(
        "The kubelet on {returns} falls silent. Its server is cut off, its node fenced, and it is switched on again:"
    ));
    let node = scene.node_of(first).await?;
    kubelet::silence(&scene.workload, &node).await?;
    scene.healed(&mut table, returns, first).await?;
    scene.timeline(returns).await?;

    table.say(&format!(
        "The kubelet on {stays} falls silent, too, and no reboot helps. After two tries its Machine is replaced on another server:"
    ));
    kubelet::silence(&scene.workload, &scene.node_of(second).await?).await?;
    scene.replaced(&mut table, second).await?;
    scene.timeline(stays).await?;

    println!(
        "\n  Nobody uses {stays} until a person says that it is repaired, which is done here:"
    );
    for mark in [UNHEALTHY, UNHEALTHY_DEPRECATED] {
        annotate(&scene.place.api(HOST), stays, mark, None).await?;
    }
    println!("  kubectl annotate baremetalhost {stays} {UNHEALTHY}- {UNHEALTHY_DEPRECATED}-");
    Ok(())
}

struct Scene<'a> {
    place: Place,
    workload: Client,
    stage: &'a Stage,
}

impl Scene<'_> {
    fn servers(&self) -> &[Server] {
        capm3_reuse::servers(self.stage)
    }

    async fn check(&self) -> anyhow::Result<()> {
        let strategy = json!({"type": "reboot", "retryLimit": 1, "timeout": "15s"});
        let template =
            TEMPLATE.object(NAME, &json!({"template": {"spec": {"strategy": strategy}}}));
        let (cluster, pool) = (&self.stage.cluster, capm3_reuse::DEPLOYMENT);
        self.place.apply(&template).await?;
        self.place.apply(&machine_health_check(NAME, cluster, pool, TEMPLATE, NAME)).await
    }

    /// The Machine of each host.
    async fn machines(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut machines = BTreeMap::new();
        for metal in self.place.api(METAL3_MACHINE).list(&capm3_reuse::of_deployment()).await? {
            let named = metal.annotations().get(names::metal3::HOST);
            let mut owners = metal.owner_references().iter();
            let owner = owners.find(|it| it.kind == MACHINE.kind);
            if let (Some((_, host)), Some(owner)) = (named.and_then(|it| it.split_once('/')), owner)
            {
                machines.insert(host.to_owned(), owner.name.clone());
            }
        }
        Ok(machines)
    }

    /// The node of a Machine, `-` where it has none.
    async fn node_of(&self, machine: &str) -> anyhow::Result<String> {
        let machine = self.place.get(MACHINE, machine).await?;
        Ok(text(&machine["status"]["nodeRef"]["name"]))
    }

    async fn rows(&self) -> anyhow::Result<Rows> {
        let machines = self.machines().await?;
        let nodes: Api<Node> = Api::all(self.workload.clone());
        let mut rows = Vec::new();
        for server in self.servers() {
            let host = self.place.get(HOST, &server.name).await?;
            let machine = machines.get(&server.name);
            let (mut ready, mut request) = ("-".to_owned(), Value::Null);
            if let Some(machine) = machine {
                request = self.place.get(REMEDIATION, machine).await?;
                let node = self.node_of(machine).await?;
                if node != "-" {
                    ready = nodes.get_opt(&node).await?.map_or(ready, state);
                }
            }
            let is_marked = host["metadata"]["annotations"][UNHEALTHY].is_string();
            rows.push(vec![
                server.name.clone(),
                server.bmc.state().await?,
                machine.cloned().unwrap_or_else(|| "-".to_owned()),
                ready,
                step(&request),
                if is_marked { "yes" } else { "-" }.to_owned(),
            ]);
        }
        Ok(rows)
    }

    /// What a host remembers.
    async fn history(&self, host: &str) -> anyhow::Result<Vec<Entry>> {
        let host = self.place.get(HOST, host).await?;
        let text = host["metadata"]["annotations"][REMEDIATION_HISTORY].as_str().unwrap_or("[]");
        Ok(serde_json::from_str(text).unwrap_or_default())
    }

    /// Shows how a machine is power-cycled. Its kubelet starts when its server is on again.
    async fn healed(&self, table: &mut Table, host: &str, machine: &str) -> anyhow::Result<()> {
        let server = self.servers().iter().find(|it| it.name == host);
        let server = server.with_context(|| format!("{host} is no server"))?;
        let node = self.node_of(machine).await?;
        let (mut asked, mut booted) = (false, false);
        let look = async || {
            let rows = self.rows().await?;
            let request = self.place.get(REMEDIATION, machine).await?;
            asked |= !request.is_null();
            let waits = request["status"]["step"] == "recover";
            if waits && !booted && server.bmc.state().await? == "On" {
                kubelet::boot(&self.workload, &node).await?;
                booted = true;
            }
            let last = self.history(host).await?.pop().filter(|it| it.machine == machine);
            let recovered = last.is_some_and(|it| it.result.as_deref() == Some("Recovered"));
            let is_over =
                asked && recovered && self.place.get(REMEDIATION, machine).await?.is_null();
            anyhow::Ok((rows, is_over))
        };
        table.until(&format!("{machine} is healthy again"), look).await
    }

    /// Shows how a machine is given up.
    async fn replaced(&self, table: &mut Table, machine: &str) -> anyhow::Result<()> {
        let look = async || {
            let all = self.place.list(MACHINE, &capm3_reuse::of_deployment()).await?;
            let up = all.iter().filter(|it| it["status"]["nodeRef"]["name"].is_string());
            let is_replaced =
                up.count() == 3 && all.iter().all(|it| it["metadata"]["name"] != machine);
            anyhow::Ok((self.rows().await?, is_replaced))
        };
        table.until(&format!("{machine} is replaced"), look).await
    }

    async fn timeline(&self, host: &str) -> anyhow::Result<()> {
        println!("\n  What {host} remembers ({REMEDIATION_HISTORY}):");
        for entry in self.history(host).await? {
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

fn step(request: &Value) -> String {
    if request.is_null() {
        return "-".to_owned();
    }
    let status = &request["status"];
    let retries = status["retryCount"].as_u64().unwrap_or(0);
    format!("{}, {}, try {}", text(&status["phase"]), text(&status["step"]), retries + 1)
}

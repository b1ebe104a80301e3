//! The chapter of discovery: five machines are switched on. Three become hosts at once, one is a host already, and one
//! waits until somebody approves it.

use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery};
use api_types::names::ferrite::APPROVE;
use bench::agent::Agent;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::stage::Stage;
use super::table::Table;
use crate::objects::{annotate, apply, namespace};

const NAMESPACE: &str = "demo-discovery";
const BY_HAND: &str = "typed-by-hand";
const STRANGER: &str = "Unheard-of Works";

/// A machine of the chapter.
struct Machine {
    agent: Agent,
    node: String,
}

/// Plays it.
///
/// # Errors
/// When a machine does not come to what the chapter says.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\nhost-discovery: plug it in, power it on, and it is a BareMetalHost");
    let client = stage.admin().await?;
    namespace(&client, NAMESPACE).await?;
    let place = Place {
        hosts: Api::namespaced(client.clone(), NAMESPACE),
        discoveries: Api::namespaced(client.clone(), NAMESPACE),
        client,
    };
    // What is left of an earlier play would be known already.
    place.hosts.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    place.discovery("racks", json!({ "prefix": "rack-" }), "Ferrous Works", "Automatic").await?;
    place.discovery("strangers", json!({ "prefix": "guest-" }), STRANGER, "Manual").await?;
    // Addresses that no earlier play used.
    let first = u32::try_from(Timestamp::now().as_second() % 1_000_000)? * 8;
    let agents: Vec<Agent> = (1..=5).map(|number| agent(first, number)).collect();
    place.by_hand(&agents[3]).await?;
    let mut table = Table::new(&["MACHINE", "MAC", "MAKER", "HOST                 ", "WHY"]);

    table.say(
        "Five machines boot the agent, which tells Ironic about them. Nobody has typed anything but one address:",
    );
    let mut machines = Vec::new();
    for agent in agents {
        let mut report = agent.report();
        if agent.index == first + 5 {
            report["inventory"]["system_vendor"]["manufacturer"] = json!(STRANGER);
        }
        let node = Agent::post_to(&stage.ironic, &report).await?;
        machines.push(Machine { agent, node });
    }
    place
        .watch(&mut table, &machines, "three are hosts, and one waits", |rows| {
            rows.iter().filter(|row| row[3].starts_with("rack-")).count() == 3
                && rows[3][3] == BY_HAND
                && rows[4][4] == "AwaitsApproval"
        })
        .await?;

    table.say("The fourth was a host already, so nothing was made of it. The fifth is of a maker that has to be approved, by one annotation:");
    annotate(&place.discoveries, "strangers", APPROVE, Some(&machines[4].node)).await?;
    place
        .watch(&mut table, &machines, "the fifth is a host", |rows| {
            rows[4][3].starts_with("guest-")
        })
        .await?;
    println!(
        "\n  They have no credentials: their power is left alone until somebody adds spec.bmc."
    );
    Ok(())
}

fn agent(first: u32, number: u32) -> Agent {
    let mut agent = Agent::new(first + number);
    agent.hostname = format!("machine-{}", first + number);
    agent
}

struct Place {
    client: Client,
    hosts: Api<BareMetalHost>,
    discoveries: Api<BareMetalHostDiscovery>,
}

impl Place {
    async fn discovery(
        &self,
        name: &str,
        template: Value,
        maker: &str,
        approval: &str,
    ) -> anyhow::Result<()> {
        let mut template = template;
        template["hardwareDetails"] = json!("hostname");
        let object = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery",
            "metadata": { "name": name },
            "spec": {
                "resourceNameTemplate": template,
                "selector": { "manufacturers": [maker] },
                "approval": approval,
            },
        });
        apply(&self.client, Some(NAMESPACE), &object).await.map(drop)
    }

    /// The host of a machine that somebody registered in the old way.
    async fn by_hand(&self, agent: &Agent) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": { "name": BY_HAND },
            "spec": { "online": true, "bootMACAddress": agent.mac(0) },
        });
        apply(&self.client, Some(NAMESPACE), &object).await.map(drop)
    }

    async fn watch(
        &self,
        table: &mut Table,
        machines: &[Machine],
        what: &str,
        is_so: impl Fn(&[Vec<String>]) -> bool,
    ) -> anyhow::Result<()> {
        let look = async || {
            let hosts = self.hosts.list(&ListParams::default()).await?;
            let discoveries = self.discoveries.list(&ListParams::default()).await?;
            let mut rows = Vec::new();
            for machine in machines {
                let mac = machine.agent.mac(0);
                let of_it = |host: &&BareMetalHost| {
                    host.spec.boot_mac_address.as_deref() == Some(mac.as_str())
                };
                let host = hosts.iter().find(of_it).and_then(|it| it.metadata.name.clone());
                let why = discoveries
                    .iter()
                    .filter_map(|it| it.status.as_ref())
                    .flat_map(|status| &status.pending)
                    .find(|entry| entry.node_id == machine.node)
                    .and_then(|entry| entry.reason.clone());
                let stranger = machine.agent.index == machines[4].agent.index;
                let maker = if stranger { STRANGER } else { "Ferrous Works" };
                rows.push(vec![
                    machine.agent.hostname.clone(),
                    mac.clone(),
                    maker.to_owned(),
                    host.unwrap_or_else(|| "-".to_owned()),
                    why.unwrap_or_default(),
                ]);
            }
            let is_so = is_so(&rows);
            anyhow::Ok((rows, is_so))
        };
        table.until(what, look).await
    }
}

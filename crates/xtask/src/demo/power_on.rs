//! The second half of the chapter of discovery: machines that nobody has typed anything about are switched on and become nodes.

use api_types::names::ferrite::{POWER, POWER_MANAGED, SCALE_TO_HOSTS};
use bench::agent::Agent;
use bench::bmc::{Machine, Rack};
use bench::bmo;
use bench::cluster_api::objects::{
    MACHINE, MACHINE_DEPLOYMENT, kubeadm_config_template, machine_deployment,
    metal3_machine_template,
};
use bench::objects::{DISCOVERY, HOST};
use serde_json::{Value, json};

use super::capm3_reuse::RACK;
use super::stage::{Place, Stage};
use super::table::{Table, text};

const DEPLOYMENT: &str = "from-the-rack";
const MAKER: &str = "Anvil Brothers";

/// Plays it, unless the machines are nodes since an earlier play.
///
/// # Errors
/// When one of them does not become a node.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\nhost-discovery and capm3-reuse: from power-on to node");
    let place = stage.in_cluster().await?;
    if !place.get(MACHINE_DEPLOYMENT, DEPLOYMENT).await?.is_null() {
        println!(
            "\n  The machines are nodes already. `cargo xtask demo --down`, and the next demo plays it again."
        );
        return Ok(());
    }
    prepare(&place, &stage.cluster).await?;
    let mut table = Table::new(&[
        "MACHINE       ",
        "BMC         ",
        "IS ",
        "HOST        ",
        "CONSUMER                                ",
        "NODE",
    ]);

    table.say(
        "Somebody has said, once, how to reach the BMCs of this rack, and that a MachineDeployment follows its hosts. Three machines are switched on:",
    );
    let mut agents = Stage::agents(stage.unknown.len(), "anvil")?;
    for ((number, agent), bmc) in (stage.servers.len()..).zip(&mut agents).zip(&stage.unknown) {
        // Somebody presses the button; the machine boots the agent from the network.
        bmc.press("On").await?;
        agent.bmc_address = Some(Rack::ip(u32::try_from(number)?).to_string());
        stage.boots(agent, MAKER).await?;
    }
    let look = async || {
        let mut rows = Vec::new();
        for (agent, bmc) in agents.iter().zip(&stage.unknown) {
            rows.push(row(&place, agent, bmc).await?);
        }
        let is_so = rows.iter().all(|row| row[2] == "On" && row[5] != "-");
        anyhow::Ok((rows, is_so))
    };
    table.until("three machines are nodes", look).await?;
    let deployment = place.get(MACHINE_DEPLOYMENT, DEPLOYMENT).await?;
    let replicas = &deployment["spec"]["replicas"];
    println!("\n  {DEPLOYMENT} has {replicas} replicas, and nobody has typed that.");
    Ok(())
}

/// All that is typed.
async fn prepare(place: &Place, cluster: &str) -> anyhow::Result<()> {
    let discovery = json!({
        "resourceNameTemplate": { "hardwareDetails": "hostname" },
        "selector": { "manufacturers": [MAKER] },
        "labels": { RACK: "b", POWER: POWER_MANAGED, (bmo::PLAYED_BY): place.namespace },
        "hostDefaults": { "automatedCleaningMode": "disabled" },
        "bmc": {
            "addressTemplate": "redfish-virtualmedia+http://{bmcAddress}/redfish/v1/Systems/1",
            "credentialsName": "rack-b",
            "subnets": ["198.18.0.0/24"],
        },
    });
    let mut template = metal3_machine_template(DEPLOYMENT);
    template["spec"]["template"]["spec"]["hostSelector"] = json!({ "matchLabels": { RACK: "b" } });
    let mut deployment = machine_deployment(DEPLOYMENT, cluster, 0, DEPLOYMENT, DEPLOYMENT);
    deployment["metadata"]["annotations"] = json!({ SCALE_TO_HOSTS: "min=0,max=9" });
    let discovery = DISCOVERY.object("rack-b", &discovery);
    let join = kubeadm_config_template(DEPLOYMENT);
    for object in [discovery, template, join, deployment] {
        place.apply(&object).await?;
    }
    Ok(())
}

async fn row(place: &Place, agent: &Agent, bmc: &Machine) -> anyhow::Result<Vec<String>> {
    let name = &agent.hostname;
    let host = place.get(HOST, name).await?;
    let consumer = &host["spec"]["consumerRef"]["name"];
    let state = &host["status"]["provisioning"]["state"];
    let state = if host.is_null() || state.is_string() { text(state) } else { "made".to_owned() };
    let machine = match consumer.as_str() {
        // A Machine and its Metal3Machine have one name.
        Some(machine) => place.get(MACHINE, machine).await?,
        None => Value::Null,
    };
    Ok(vec![
        name.clone(),
        agent.bmc_address.clone().unwrap_or_default(),
        bmc.state().await?,
        state,
        text(consumer),
        text(&machine["status"]["nodeRef"]["name"]),
    ])
}

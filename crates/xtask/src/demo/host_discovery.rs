//! The chapter of discovery: five machines are switched on. Three become hosts at once, one is a host already, and one
//! waits until somebody approves it.

use api_types::names::ferrite::APPROVE;
use bench::agent::Agent;
use bench::objects::{DISCOVERY, HOST, annotate};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::stage::{Place, Stage};
use super::table::{Rows, Table, text};

const NAMESPACE: &str = "demo-discovery";
const BY_HAND: &str = "typed-by-hand";
const MAKER: &str = "Ferrous Works";
const STRANGER: &str = "Unheard-of Works";

/// A machine of the chapter.
struct Machine {
    agent: Agent,
    maker: &'static str,
    node: String,
}

/// Plays it.
///
/// # Errors
/// When a machine does not come to what the chapter says.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\nhost-discovery: plug it in, power it on, and it is a BareMetalHost");
    let place = stage.place(NAMESPACE).await?;
    // What is left of an earlier play would be known already.
    place.api(HOST).delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    for (name, prefix, maker, approval) in
        [("racks", "rack-", MAKER, "Automatic"), ("strangers", "guest-", STRANGER, "Manual")]
    {
        let spec = json!({
            "resourceNameTemplate": { "prefix": prefix, "hardwareDetails": "hostname" },
            "selector": { "manufacturers": [maker] },
            "approval": approval,
        });
        place.apply(&DISCOVERY.object(name, &spec)).await?;
    }
    let agents = Stage::agents(5, "machine")?;
    // Somebody registered the fourth in the old way.
    let known = json!({ "online": true, "bootMACAddress": agents[3].mac(0) });
    place.apply(&HOST.object(BY_HAND, &known)).await?;
    let mut table = Table::new(&["MACHINE", "MAC", "MAKER", "HOST                 ", "WHY"]);

    table.say(
        "Five machines boot the agent, which tells Ironic about them. Nobody has typed anything but one address:",
    );
    let mut machines = Vec::new();
    for (agent, maker) in agents.into_iter().zip([MAKER, MAKER, MAKER, MAKER, STRANGER]) {
        let node = stage.boots(&agent, maker).await?;
        machines.push(Machine { agent, maker, node });
    }
    let look = async || {
        let rows = rows(&place, &machines).await?;
        let is_so = rows.iter().filter(|row| row[3].starts_with("rack-")).count() == 3
            && rows[3][3] == BY_HAND
            && rows[4][4] == "AwaitsApproval";
        anyhow::Ok((rows, is_so))
    };
    table.until("three are hosts, and one waits", look).await?;

    table.say("The fourth was a host already, so nothing was made of it. The fifth is of a maker that has to be approved, by one annotation:");
    annotate(&place.api(DISCOVERY), "strangers", APPROVE, Some(&machines[4].node)).await?;
    let look = async || {
        let rows = rows(&place, &machines).await?;
        let is_so = rows[4][3].starts_with("guest-");
        anyhow::Ok((rows, is_so))
    };
    table.until("the fifth is a host", look).await?;
    println!(
        "\n  They have no credentials: their power is left alone until somebody adds spec.bmc."
    );
    Ok(())
}

async fn rows(place: &Place, machines: &[Machine]) -> anyhow::Result<Rows> {
    let hosts = place.list(HOST, &ListParams::default()).await?;
    let discoveries = place.list(DISCOVERY, &ListParams::default()).await?;
    let pending = discoveries.iter().filter_map(|it| it["status"]["pending"].as_array());
    let pending: Vec<&Value> = pending.flatten().collect();
    let row = |machine: &Machine| {
        let mac = machine.agent.mac(0);
        let host = hosts.iter().find(|it| it["spec"]["bootMACAddress"] == *mac);
        let waits = pending.iter().find(|it| it["nodeID"] == *machine.node);
        let why = waits.and_then(|it| it["reason"].as_str()).unwrap_or_default();
        vec![
            machine.agent.hostname.clone(),
            mac,
            machine.maker.to_owned(),
            host.map_or_else(|| "-".to_owned(), |it| text(&it["metadata"]["name"])),
            why.to_owned(),
        ]
    };
    Ok(machines.iter().map(row).collect())
}

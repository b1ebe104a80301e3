//! The chapter of power: two clients hold a server off, and it comes back when the second lets go.

use api_types::metal3::{BareMetalHost, PowerRecord};
use api_types::names::ferrite::{POWER, POWER_MANAGED};
use api_types::names::metal3::REBOOT;
use bench::objects::{HOST, annotate, merge_status};
use serde_json::{Value, json};

use super::stage::{Place, Server, Stage};
use super::table::{Table, text};

const NAMESPACE: &str = "demo-power";

/// Plays it.
///
/// # Errors
/// When a server does not do what the chapter says.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\nbmo-reboot: power, for many clients, exactly once");
    let place = stage.place(NAMESPACE).await?;
    let server = &stage.servers[0];
    let image = json!({ "url": "https://images.example.com/one.qcow2", "checksum": "sha256:0" });
    let spec = json!({
        "online": true,
        "bmc": { "address": format!("redfish+{}", server.bmc.url()), "credentialsName": "bmc" },
        "image": image,
    });
    let mut host = HOST.object(&server.name, &spec);
    host["metadata"]["labels"] = json!({ POWER: POWER_MANAGED });
    place.apply(&host).await?;
    let hosts = place.api(HOST);
    // As it is once the operator has installed it: that part is not shown here.
    let status = json!({
        "poweredOn": false, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
        "provisioning": { "state": "provisioned", "ID": server.node, "image": { "url": image["url"] } },
    });
    merge_status(&hosts, &server.name, &status).await?;
    let request = async |client: &str, value: Option<&str>| {
        annotate(&hosts, &server.name, &format!("{REBOOT}/{client}"), value).await
    };
    let table = Table::new(&["HOST", "BMC", "POWERED ON", "REBOOTING    ", "HELD BY"]);
    let mut scene = Scene { place: &place, server, table };

    scene.table.say("A host that is to be online is switched on:");
    scene.watch("the server is on", |host, power| power == "On" && powered_on(host)).await?;

    scene.table.say(
        "Two clients want to work on it while it is off. A backup asks softly, a remediation hard:",
    );
    request("backup", Some("")).await?;
    request("remediation", Some(r#"{"mode": "hard"}"#)).await?;
    scene.watch("the server is off", |host, power| power == "Off" && !powered_on(host)).await?;

    scene
        .table
        .say("The remediation is done and lets go. The backup is not: the server stays off.");
    request("remediation", None).await?;
    let is_the_backups = |host: &Value, power: &str| {
        let held = held(host);
        let is_by = |key: &str| held.iter().any(|held| held.ends_with(key));
        power == "Off" && is_by("/backup") && !is_by("/remediation")
    };
    scene.watch("the hold of the backup alone is shown", is_the_backups).await?;

    scene.table.say("The backup lets go, too, and power returns:");
    request("backup", None).await?;
    scene.watch("the server is on again", |host, power| power == "On" && powered_on(host)).await?;
    let host = place.get(HOST, &server.name).await?;
    let provisioning = &host["status"]["provisioning"];
    println!(
        "\n  Asked for at {}; what ran before {} is gone.",
        text(&provisioning["pendingRebootSince"]),
        text(&provisioning["lastPoweredOn"])
    );
    Ok(())
}

struct Scene<'a> {
    place: &'a Place,
    server: &'a Server,
    table: Table,
}

impl Scene<'_> {
    /// Shows the host until it, and what its BMC says of its power, are so.
    async fn watch(
        &mut self,
        what: &str,
        is_so: impl Fn(&Value, &str) -> bool,
    ) -> anyhow::Result<()> {
        let look = async || {
            let host = self.place.get(HOST, &self.server.name).await?;
            let power = self.server.bmc.state().await?;
            let is_so = is_so(&host, &power);
            let (name, on) = (self.server.name.clone(), powered_on(&host).to_string());
            anyhow::Ok((vec![vec![name, power, on, rebooting(&host), keys(&host)]], is_so))
        };
        self.table.until(what, look).await
    }
}

fn powered_on(host: &Value) -> bool {
    host["status"]["poweredOn"] == true
}

/// Reason of the condition that tells how far a reboot is.
fn rebooting(host: &Value) -> String {
    let conditions = host["status"]["conditions"].as_array();
    let condition = conditions.into_iter().flatten().find(|it| it["type"] == "Rebooting");
    text(condition.map_or(&Value::Null, |it| &it["reason"]))
}

/// The holds for which the host is off, by its record.
fn held(host: &Value) -> Vec<String> {
    let host = serde_json::from_value::<BareMetalHost>(host.clone()).unwrap_or_default();
    let conditions = host.status.unwrap_or_default().conditions;
    PowerRecord::of(&conditions).known().map(|it| it.held.keys.clone()).unwrap_or_default()
}

/// The clients that hold the host off, by the keys of their annotations.
fn keys(host: &Value) -> String {
    let annotations = host["metadata"]["annotations"].as_object();
    let keys = annotations
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix(REBOOT)?.strip_prefix('/'));
    keys.collect::<Vec<_>>().join(", ")
}

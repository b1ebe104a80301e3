//! The chapter of power: two clients hold a server off, and it comes back when the second lets go.

use api_types::metal3::{BareMetalHost, PowerRecord};
use api_types::names::ferrite::{POWER, POWER_MANAGED};
use api_types::names::metal3::REBOOT;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::stage::{Server, Stage, namespace, until};
use super::table::Table;

const NAMESPACE: &str = "demo-power";

/// Plays it.
///
/// # Errors
/// When a server does not do what the chapter says.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\nbmo-reboot: power, for many clients, exactly once");
    let client = stage.admin().await?;
    namespace(&client, NAMESPACE).await?;
    let hosts: Api<BareMetalHost> = Api::namespaced(client, NAMESPACE);
    let servers = &stage.servers[..1];
    for server in servers {
        add(&hosts, server).await?;
    }
    let mut table = Table::new(&["HOST", "BMC", "POWERED ON", "REBOOTING    ", "HELD BY"]);
    let name = &servers[0].name;

    table.say("A host that is to be online is switched on:");
    watch(&mut table, &hosts, servers, "the server is on", |host, power| {
        power == "On" && powered_on(host)
    })
    .await?;

    table.say(
        "Two clients want to work on it while it is off. A backup asks softly, a remediation hard:",
    );
    request(&hosts, name, "backup", Some("")).await?;
    request(&hosts, name, "remediation", Some(r#"{"mode": "hard"}"#)).await?;
    watch(&mut table, &hosts, servers, "the server is off", |host, power| {
        power == "Off" && !powered_on(host)
    })
    .await?;

    table.say("The remediation is done and lets go. The backup is not: the server stays off.");
    request(&hosts, name, "remediation", None).await?;
    watch(&mut table, &hosts, servers, "the hold of the backup alone is shown", |host, power| {
        let held = held(host);
        let is_by = |key: &str| held.iter().any(|held| held.ends_with(key));
        power == "Off" && is_by("/backup") && !is_by("/remediation")
    })
    .await?;

    table.say("The backup lets go, too, and power returns:");
    request(&hosts, name, "backup", None).await?;
    watch(&mut table, &hosts, servers, "the server is on again", |host, power| {
        power == "On" && powered_on(host)
    })
    .await?;
    let host = hosts.get(name).await?;
    let host = serde_json::to_value(&host)?;
    let stamp =
        |field: &str| host["status"]["provisioning"][field].as_str().unwrap_or("-").to_owned();
    println!(
        "\n  Asked for at {}; what ran before {} is gone.",
        stamp("pendingRebootSince"),
        stamp("lastPoweredOn")
    );
    Ok(())
}

/// Makes the host of a server as it is once the operator has installed it: that part is not shown here.
async fn add(hosts: &Api<BareMetalHost>, server: &Server) -> anyhow::Result<()> {
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": server.name, "labels": { (POWER): POWER_MANAGED } },
        "spec": {
            "online": true,
            "bmc": { "address": format!("redfish+{}", server.url()), "credentialsName": "bmc" },
            "image": { "url": "https://images.example.com/one.qcow2", "checksum": "sha256:0" },
        },
    });
    let apply = PatchParams::apply("demo").force();
    hosts.patch(&server.name, &apply, &Patch::Apply(host)).await?;
    let status = json!({ "status": {
        "poweredOn": false, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
        "provisioning": { "state": "provisioned", "ID": server.node, "image": { "url": "https://images.example.com/one.qcow2" } },
    }});
    hosts.patch_status(&server.name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

async fn request(
    hosts: &Api<BareMetalHost>,
    name: &str,
    client: &str,
    value: Option<&str>,
) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "annotations": { format!("{REBOOT}/{client}"): value } } });
    hosts.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn watch(
    table: &mut Table,
    hosts: &Api<BareMetalHost>,
    servers: &[Server],
    what: &str,
    is_so: impl Fn(&Value, &str) -> bool,
) -> anyhow::Result<()> {
    until(what, async || {
        let mut rows = Vec::new();
        let mut all = true;
        for server in servers {
            let host = serde_json::to_value(hosts.get(&server.name).await?)?;
            let power = server.power().await?;
            all &= is_so(&host, &power);
            let reason = rebooting(&host);
            let on = if powered_on(&host) { "true" } else { "false" };
            rows.push(vec![server.name.clone(), power, on.to_owned(), reason, keys(&host)]);
        }
        table.show(rows);
        Ok(all)
    })
    .await
}

fn powered_on(host: &Value) -> bool {
    host["status"]["poweredOn"] == true
}

/// Reason of the condition that tells how far a reboot is.
fn rebooting(host: &Value) -> String {
    let conditions = host["status"]["conditions"].as_array();
    let condition = conditions.into_iter().flatten().find(|it| it["type"] == "Rebooting");
    condition.and_then(|it| it["reason"].as_str()).unwrap_or("-").to_owned()
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

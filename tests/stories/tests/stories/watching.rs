//! What watches the controllers: each alert of each chart fires for the trouble that it names and is silent without it,
//! and each panel asks for what the program tells.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use bench::cache::RunDir;
use bench::chart;
use serde_json::{Value, json};

const CONTROLLERS: [&str; 5] =
    ["bmo-reboot", "capm3-reuse", "clusterpool-inventory", "host-discovery", "remediation"];

/// An alert, a series, how it runs minute by minute in trouble, and how where all is well.
const TROUBLE: [(&str, &str, &str, &str); 25] = [
    (
        "FerriteBmoRebootIronicUnreachable",
        "ferrite_bmo_reboot_ironic_reachable{}",
        "0x200",
        "1x200",
    ),
    ("FerriteBmoRebootHoldOld", "ferrite_bmo_reboot_oldest_hold_seconds{}", "4000x200", "60x200"),
    ("FerriteBmoRebootPowerFailing", "ferrite_bmo_reboot_hosts_failing{}", "2x200", "0x169 1x30"),
    (
        "FerriteBmoRebootRequestsWait",
        "ferrite_bmo_reboot_oldest_pending_seconds{}",
        "0+60x200",
        "180x200",
    ),
    ("FerriteBmoRebootHostsDisputed", "ferrite_bmo_reboot_hosts_disputed{}", "1x200", "0x200"),
    ("FerriteBmoRebootHostsUnserved", "ferrite_bmo_reboot_hosts_unserved{}", "1x200", "1x5 0x190"),
    (
        "FerriteBmoRebootHostsWait",
        "ferrite_bmo_reboot_waiting_overdue{reason=\"NodeBusy\"}",
        "1x200",
        "0x200",
    ),
    (
        "FerriteCapm3ReuseMachinesWait",
        "ferrite_capm3_reuse_waiting_oldest_seconds{reason=\"NoHostAvailable\"}",
        "0+60x200",
        "600x200",
    ),
    (
        "FerriteClusterpoolInventoryEntriesBroken",
        "ferrite_clusterpool_inventory_entries{status=\"Broken by cloud\"}",
        "1x200",
        "0x200",
    ),
    (
        "FerriteClusterpoolInventoryEntriesBroken",
        "ferrite_clusterpool_inventory_pool_entries_unfit{exported_namespace=\"team\",pool=\"pool\"}",
        "1x200",
        "0x200",
    ),
    (
        "FerriteClusterpoolInventoryClaimsWait",
        "ferrite_clusterpool_inventory_claims_oldest_seconds{exported_namespace=\"team\",pool=\"pool\"}",
        "0+60x200",
        "600x200",
    ),
    (
        "FerriteClusterpoolInventoryPoolShort",
        "ferrite_clusterpool_inventory_pool_lacking{exported_namespace=\"team\",pool=\"pool\"}",
        "2x200",
        "2x25 0x170",
    ),
    (
        "FerriteClusterpoolInventoryPoolLacks",
        "ferrite_clusterpool_inventory_pools_lacking{}",
        "1x200",
        "0x200",
    ),
    (
        "FerriteClusterpoolInventoryContested",
        "ferrite_clusterpool_inventory_pools_contested{}",
        "1x200",
        "0x200",
    ),
    (
        "FerriteHostDiscoveryIronicUnreachable",
        "ferrite_host_discovery_ironic_reachable{}",
        "0x200",
        "1x200",
    ),
    (
        "FerriteHostDiscoveryHostsRefused",
        "ferrite_host_discovery_hosts_refused_total{}",
        "0+1x200",
        "2x200",
    ),
    ("FerriteHostDiscoveryFlood", "ferrite_host_discovery_machines_left_out{}", "9x200", "0x200"),
    (
        "FerriteHostDiscoveryMachinesFail",
        "ferrite_host_discovery_machines_failed_total{reason=\"InspectionFailed\"}",
        "0+1x200",
        "2x200",
    ),
    (
        "FerriteHostDiscoveryWorkWaits",
        "ferrite_host_discovery_waiting_overdue{reason=\"IronicBusy\"}",
        "1x200",
        "0x200",
    ),
    ("FerriteRemediationStuck", "ferrite_remediation_oldest_try_seconds{}", "9000x200", "600x200"),
    (
        "FerriteRemediationExhausted",
        "ferrite_remediation_remediations_total{result=\"exhausted\"}",
        "0+1x200",
        "1x200",
    ),
    (
        "FerriteCapm3ReuseMachinesStuck",
        "ferrite_capm3_reuse_waiting_overdue{reason=\"HostLost\"}",
        "1x200",
        "0x200",
    ),
    (
        "FerriteClusterpoolInventoryPoolsStuck",
        "ferrite_clusterpool_inventory_waiting_overdue{reason=\"Worked\"}",
        "1x200",
        "0x200",
    ),
    (
        "FerriteRemediationRequestsWait",
        "ferrite_remediation_waiting_overdue{reason=\"MemberInTry\"}",
        "1x200",
        "0x200",
    ),
    (
        "FerriteRemediationWorkloadUnreachable",
        "ferrite_remediation_workload_unreachable{}",
        "1x200",
        "0x200",
    ),
];

#[test]
fn each_alert_fires_for_its_trouble_and_is_silent_without_it() {
    let mut left: BTreeSet<&str> = TROUBLE.iter().map(|(alert, ..)| *alert).collect();
    for controller in CONTROLLERS {
        let folder = RunDir::new("watching").unwrap();
        let spec = rules(controller);
        let own = file(controller, "alerts.yaml");
        // Written as the alerts select them: the chart's release in its namespace.
        let series = |series: &str, pod: &str, values: &str| {
            let labels = format!("namespace=\"test\",job=\"test-{controller}\",pod=\"{pod}\"");
            let series = series.replace('{', &format!("{{{labels},")).replace(",}", "}");
            json!({"series": series, "values": values})
        };
        let fires = |alert: &str, count: u32| {
            json!({
                "expr": format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}) or vector(0)"),
                "eval_time": "3h",
                "exp_samples": [{"labels": "{}", "value": count}],
            })
        };
        let leads =
            |pod: &str, values: &str| series("leader_election_master_status{}", pod, values);
        let mut tests = Vec::new();
        for line in own.lines().filter_map(|it| it.strip_prefix("- alert: ")) {
            assert!(left.remove(line), "{line} has no trouble here that must set it off");
            for (alert, bad, trouble, well) in TROUBLE.iter().filter(|it| it.0 == line) {
                for (values, count) in [(trouble, 1), (well, 0)] {
                    // A standby to which nothing happens hides no trouble of the pod that leads.
                    let all = [
                        leads("a", "1x200"),
                        leads("b", "0x200"),
                        series(bad, "a", values),
                        series(bad, "b", well),
                    ];
                    tests.push(json!({
                        "interval": "1m",
                        "input_series": all,
                        "promql_expr_test": [fires(alert, count)],
                    }));
                }
            }
            let runbook = bench::checkout().join(format!("docs/runbooks/{line}.md"));
            assert!(runbook.exists(), "{line} has no runbook");
        }
        let suite = json!({
            "rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests,
        });
        write(folder.path(), "rules.json", &spec);
        write(folder.path(), "suite.json", &suite);
        promtool(folder.path(), &["check", "rules", "rules.json"]);
        promtool(folder.path(), &["test", "rules", "suite.json"]);
    }
    assert!(left.is_empty(), "no chart has {left:?}");
}

#[test]
fn what_an_alert_says_of_its_labels_its_expression_keeps() {
    for controller in CONTROLLERS {
        for rule in rules(controller)["groups"][0]["rules"].as_array().unwrap() {
            let (alert, expression) = (&rule["alert"], rule["expr"].as_str().unwrap());
            let said = rule["annotations"]["description"].as_str().unwrap_or_default();
            for label in said.split("$labels.").skip(1) {
                let label: String =
                    label.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
                let by = expression.split("by (").nth(1).and_then(|it| it.split(')').next());
                let kept = match by {
                    Some(by) => by.split(',').any(|it| it.trim() == label),
                    // What is not added up keeps all its labels.
                    None => !["max(", "sum(", "min(", "count("]
                        .iter()
                        .any(|it| expression.starts_with(it)),
                };
                assert!(kept, "{alert} tells {label}, which `{expression}` drops");
            }
        }
    }
}

#[test]
fn each_panel_asks_for_metrics_that_the_program_has() {
    for controller in CONTROLLERS {
        let dashboard: Value = serde_json::from_str(&file(controller, "dashboard.json")).unwrap();
        let reference = bench::checkout().join(format!("docs/reference/{controller}.md"));
        let reference = std::fs::read_to_string(reference).unwrap();
        let mut rules = Vec::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                for name in expression.split(|it: char| !it.is_alphanumeric() && it != '_') {
                    if !name.starts_with("ferrite_") {
                        continue;
                    }
                    let told = ["_bucket", "_count", "_sum", ""].iter().any(|end| {
                        name.strip_suffix(end)
                            .is_some_and(|it| reference.contains(&format!("`{it}`")))
                    });
                    assert!(told, "{controller}: {} asks for {name}", panel["title"]);
                }
                let asked = expression.replace("$__rate_interval", "5m").replace("$__range", "1h");
                rules.push(json!({"record": format!("panel:{}", rules.len()), "expr": asked}));
            }
        }
        assert!(rules.len() > 3, "{controller} has {} queries", rules.len());
        let folder = RunDir::new("watching").unwrap();
        let groups = json!({"groups": [{"name": "panels", "rules": rules}]});
        write(folder.path(), "rules.json", &groups);
        promtool(folder.path(), &["check", "rules", "rules.json"]);
    }
}

/// The alerts of a chart as Prometheus gets them.
fn rules(controller: &str) -> Value {
    let values =
        json!({"prometheusRule": {"enabled": true}, "ironic": {"endpoint": "http://ironic:6385"}});
    let values = match controller {
        "bmo-reboot" | "host-discovery" => values,
        _ => json!({"prometheusRule": {"enabled": true}}),
    };
    let objects = chart::render(&chart::dir(controller), "test", "test", &values).unwrap();
    chart::find(&objects, "PrometheusRule").unwrap()["spec"].clone()
}

fn file(controller: &str, name: &str) -> String {
    std::fs::read_to_string(chart::dir(controller).join("files").join(name)).unwrap()
}

fn write(folder: &Path, name: &str, value: &Value) {
    std::fs::write(folder.join(name), value.to_string()).unwrap();
}

fn promtool(folder: &Path, arguments: &[&str]) {
    let program = bench::go::program("promtool").unwrap();
    let output = Command::new(program).current_dir(folder).args(arguments).output().unwrap();
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    let _ = write!(said, "{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
}

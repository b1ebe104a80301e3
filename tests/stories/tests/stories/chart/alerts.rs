//! The alerts of a controller's chart: valid, told with their runbook where there is one, set off by what they name.

use std::process::Command;

use bench::cache::RunDir;
use bench::chart;
use serde_json::{Value, json};

use super::{render, with_all_files};

#[test]
fn the_alerts_are_valid_and_fire_when_they_should() {
    let folder = RunDir::new("chart").unwrap();
    let runbooks = "https://example.org/runbooks/";
    let values = json!({"prometheusRule": {"enabled": true, "runbookUrl": runbooks}});
    let objects = chart::render(&with_all_files(folder.path()), "test", "test", &values).unwrap();
    let spec = &chart::find(&objects, "PrometheusRule").unwrap()["spec"];
    let alerts = spec["groups"][0]["rules"].as_array().unwrap();
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap();
        let runbook = &alert["annotations"]["runbook_url"];
        assert_eq!(runbook, &format!("{runbooks}{name}.md"), "{name}");
        // Most expressions drop what tells two releases apart.
        let release = ["controller", "namespace", "service"].map(|it| &alert["labels"][it]);
        assert_eq!(release, ["sample", "test", "test-sample"], "{name}");
    }

    // Every alert of the library, by the series that must set it off, and by those of a healthy controller.
    let of = |name: &str, more: &str, values: &str| json!({"series": format!("{name}{{namespace=\"test\",job=\"test-sample\"{more}}}"), "values": values});
    let reconciles = |errors: &str, bucket: &str| {
        vec![
            of("controller_runtime_reconcile_errors_total", ",controller=\"sample\"", errors),
            of(
                "controller_runtime_reconcile_total",
                ",controller=\"sample\",result=\"success\"",
                "0+60x60",
            ),
            of(
                "controller_runtime_reconcile_time_seconds_bucket",
                ",controller=\"sample\",le=\"1\"",
                bucket,
            ),
            of(
                "controller_runtime_reconcile_time_seconds_bucket",
                ",controller=\"sample\",le=\"60\"",
                "0+60x60",
            ),
            of(
                "controller_runtime_reconcile_time_seconds_bucket",
                ",controller=\"sample\",le=\"+Inf\"",
                "0+60x60",
            ),
        ]
    };
    let up = |values: &str| of("up", "", values);
    let leads = |pod: &str, values: &str| {
        of("leader_election_master_status", &format!(",name=\"l\",pod=\"{pod}\""), values)
    };
    let ready = |pod: &str, values: &str| of("ferrite_ready", &format!(",pod=\"{pod}\""), values);
    let healthy = || {
        let mut series = reconciles("0+1x60", "0+60x60");
        series.extend([up("1x60"), leads("a", "1x60"), leads("b", "0x60")]);
        series.extend([ready("a", "1x60"), ready("b", "0x60")]);
        series
    };
    let failing = {
        let mut series = reconciles("0+30x60", "0+0x60");
        series.extend([up("0x60"), leads("a", "0x60"), ready("a", "0x60")]);
        series.push(of("ferrite_sample_stuck", "", "1x60"));
        series
    };
    // A standby that is ready does not hide that the pod which leads is not.
    let unfit = [
        up("1x60"),
        leads("a", "1x60"),
        leads("b", "0x60"),
        ready("a", "0x60"),
        ready("b", "1x60"),
    ];
    let two = [up("1x60"), leads("a", "1x60"), leads("b", "1x60")];
    let check = |series: &[Value], expected: &[&str]| {
        let tests: Vec<Value> = alerts
            .iter()
            .map(|alert| {
                let name = alert["alert"].as_str().unwrap();
                let fires = u32::from(expected.contains(&name));
                json!({"expr": format!("count(ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}) or vector(0)"),
                    "eval_time": "50m", "exp_samples": [{"labels": "{}", "value": fires}]})
            })
            .collect();
        json!({"interval": "1m", "input_series": series, "promql_expr_test": tests})
    };
    let failures = [
        "FerriteTargetDown",
        "FerriteNotReady",
        "FerriteReconcileErrors",
        "FerriteReconcileSlow",
        "FerriteNoLeader",
        "SampleStuck",
    ];
    let suite = json!({
        "rule_files": ["rules.json"],
        "evaluation_interval": "1m",
        "tests": [
            check(&healthy(), &[]),
            check(&failing, &failures),
            check(&unfit, &["FerriteNotReady"]),
            check(&two, &["FerriteTwoLeaders"]),
        ],
    });
    std::fs::write(folder.path().join("rules.json"), spec.to_string()).unwrap();
    std::fs::write(folder.path().join("suite.json"), suite.to_string()).unwrap();
    for (what, file) in [("check", "rules.json"), ("test", "suite.json")] {
        let output = Command::new(bench::go::program("promtool").unwrap())
            .current_dir(folder.path())
            .args([what, "rules", file])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout)
        );
    }
}

#[test]
fn an_alert_without_runbooks_has_no_link_to_one() {
    let objects = render(&json!({"prometheusRule": {"enabled": true}})).unwrap();
    let alerts = &chart::find(&objects, "PrometheusRule").unwrap()["spec"]["groups"][0]["rules"];
    for alert in alerts.as_array().unwrap() {
        assert!(alert["annotations"]["summary"].is_string(), "{alert}");
        assert!(alert["annotations"].get("runbook_url").is_none(), "{alert}");
    }
}

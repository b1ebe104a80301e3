//! The alerts of a controller's chart: valid, told with their runbook where there is one, set off by what they name.

use std::path::Path;
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
    proven(folder.path(), spec, &suite);
}

/// Has promtool check the rules, and play the suite on them.
fn proven(folder: &Path, spec: &Value, suite: &Value) {
    std::fs::write(folder.join("rules.json"), spec.to_string()).unwrap();
    std::fs::write(folder.join("suite.json"), suite.to_string()).unwrap();
    for (what, file) in [("check", "rules.json"), ("test", "suite.json")] {
        let output = Command::new(bench::go::program("promtool").unwrap())
            .current_dir(folder)
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

/// Reconciles minute by minute for seven hours, in time and late; which alert fires then: the critical one for a fast burn,
/// the warning for a slow one.
const BURNS: [(&str, &str, [u32; 2]); 10] = [
    // All is well; nothing is asked of the controller; a twentieth is late, which both alerts let pass.
    ("0+10x420", "0x420", [0, 0]),
    ("0x420", "0x420", [0, 0]),
    ("0+95x420", "0+5x420", [0, 0]),
    // A tenth, and a fifth, for hours.
    ("0+90x420", "0+10x420", [0, 1]),
    ("0+8x420", "0+2x420", [1, 1]),
    // A fifth for one hour after six good ones; and for a few minutes.
    ("0+10x360 3608+8x59", "0x360 2+2x59", [1, 0]),
    ("0+10x414 4148+8x5", "0x414 2+2x5", [0, 0]),
    // It is over since 10 minutes, and since 40.
    ("0+8x410 3290+10x9", "0+2x410 820x9", [0, 1]),
    ("0+8x380 3050+10x39", "0+2x380 760x39", [0, 0]),
    // All of very few are late.
    ("0x420", "0x414 1 2 3 4x2", [0, 0]),
];

#[test]
fn the_budget_alert_fires_for_a_burn_and_not_for_a_few_late() {
    let folder = RunDir::new("chart").unwrap();
    let objects = render(&json!({"prometheusRule": {"enabled": true}})).unwrap();
    let tests = BURNS.map(|(kept, late, fire)| {
        let of = |pod: &str, result: &str, values: &str| {
            let labels = format!("namespace=\"test\",job=\"test-sample\",pod=\"{pod}\"");
            let labels = format!("{labels},reason=\"Found\",result=\"{result}\"");
            json!({"series": format!("ferrite_sample_promises_total{{{labels}}}"), "values": values})
        };
        // A standby promises nothing, and another release keeps nothing.
        let mut series = vec![of("a", "kept", kept), of("a", "late", late)];
        series.extend(["kept", "late"].map(|it| of("b", it, "0x420")));
        let other = of("c", "late", "0+9x420").to_string().replace("test-sample", "other-sample");
        series.push(serde_json::from_str(&other).unwrap());
        let fires = ["critical", "warning"].into_iter().zip(fire).map(|(severity, fires)| {
            json!({
                "expr": format!("count(ALERTS{{alertname=\"FerriteBudgetBurns\",severity=\"{severity}\",alertstate=\"firing\"}}) or vector(0)"),
                "eval_time": "7h", "exp_samples": [{"labels": "{}", "value": fires}],
            })
        });
        json!({"interval": "1m", "input_series": series, "promql_expr_test": fires.collect::<Vec<_>>()})
    });
    let suite = json!({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests});
    proven(folder.path(), &chart::find(&objects, "PrometheusRule").unwrap()["spec"], &suite);
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

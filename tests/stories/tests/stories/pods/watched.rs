//! A real Prometheus in the network of the pods: it scrapes all five, evaluates each alert, and has something to show for
//! each panel of each dashboard.

use std::time::{Duration, Instant};

use bench::chart;
use bench::prometheus::{Prometheus, Target};
use serde_json::{Value, json};

use super::{CONTROLLERS, Cluster, NAMESPACE, OF_IRONIC};

impl Cluster {
    pub(super) async fn is_watched(&self) {
        let (mut targets, mut rules) = (Vec::new(), Vec::new());
        for controller in CONTROLLERS {
            let pod = self.pods(controller).await.remove(0);
            let ports = pod.spec.unwrap().containers.remove(0).ports.unwrap_or_default();
            let address = pod.status.unwrap().pod_ip.unwrap();
            targets.push(Target {
                address: format!("{address}:{}", ports[0].container_port),
                namespace: NAMESPACE.to_owned(),
                job: controller.to_owned(),
            });
            let mut values = json!({ "prometheusRule": { "enabled": true } });
            if OF_IRONIC.contains(&controller) {
                values["ironic"] = json!({ "endpoint": "http://ironic:6385" });
            }
            let objects =
                chart::render(&chart::dir(controller), controller, NAMESPACE, &values).unwrap();
            rules.push(chart::find(&objects, "PrometheusRule").unwrap()["spec"].clone());
        }
        let prometheus = Prometheus::start(&targets, &rules, Some(&self.node)).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let up = prometheus.query("up == 1").await.unwrap();
            // A rate needs two scrapes.
            let twice = prometheus.query("count_over_time(up[1m]) > 2").await.unwrap();
            let rules = prometheus.rules().await.unwrap();
            let judged = !rules.is_empty() && rules.iter().all(|it| it["health"] == "ok");
            if up.len() == CONTROLLERS.len() && twice.len() == CONTROLLERS.len() && judged {
                break;
            }
            assert!(Instant::now() < deadline, "scraped: {up:#?}, rules: {rules:#?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for controller in CONTROLLERS {
            let file = chart::dir(controller).join("files/dashboard.json");
            let dashboard: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
            for panel in dashboard["panels"].as_array().unwrap() {
                for target in panel["targets"].as_array().unwrap() {
                    let asked = target["expr"].as_str().unwrap();
                    let asked = asked.replace("$namespace", NAMESPACE).replace("$job", controller);
                    let asked = asked.replace("$__rate_interval", "1m");
                    let shown = prometheus.query(&asked).await.unwrap();
                    // Those that hide what is 0 have nothing to show where nothing has happened.
                    assert!(
                        !shown.is_empty() || asked.ends_with("> 0"),
                        "{controller}: {} has nothing to show for {asked}",
                        panel["title"]
                    );
                }
            }
        }
    }
}

//! A real Prometheus, which scrapes what it is told to and answers queries.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::cache::RunDir;
use crate::go;
use crate::node::Node;
use crate::process::{Service, answers, free_port};

/// Who is scraped, and the labels that a `ServiceMonitor` would give it.
#[derive(Clone, Debug)]
pub struct Target {
    /// `host:port`.
    pub address: String,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its service, by which the alerts select.
    pub job: String,
}

/// A Prometheus that runs. It ends when it is dropped.
#[derive(Debug)]
pub struct Prometheus {
    /// `http://127.0.0.1:<port>`.
    pub endpoint: String,
    client: reqwest::Client,
    service: Service,
    _carried: Option<[Service; 2]>,
    _dir: RunDir,
}

/// One line of a graph: its labels and its points, seconds since 1970 and value.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: serde_json::Map<String, Value>,
    /// Its points, the oldest first.
    pub points: Vec<(f64, f64)>,
}

impl Prometheus {
    /// Starts one that scrapes each target once a second, and evaluates these rules as often: `rules` are the `spec` of
    /// `PrometheusRule` objects. With a node it runs in that node's network, where it can reach pods.
    ///
    /// # Errors
    /// When the program cannot be built or does not become ready.
    pub async fn start(
        targets: &[Target],
        rules: &[Value],
        node: Option<&Node>,
    ) -> anyhow::Result<Self> {
        let program: PathBuf = tokio::task::spawn_blocking(|| go::program("prometheus")).await??;
        let dir = RunDir::new("prometheus")?;
        let jobs: Vec<Value> = targets
            .iter()
            .map(|Target { address, namespace, job }| {
                json!({
                    "job_name": job,
                    "static_configs": [{"targets": [address], "labels": {"namespace": namespace}}],
                })
            })
            .collect();
        let mut files = Vec::new();
        for (number, spec) in rules.iter().enumerate() {
            let file = dir.path().join(format!("rules-{number}.json"));
            std::fs::write(&file, spec.to_string())?;
            files.push(file);
        }
        // Prometheus reads YAML, of which JSON is a part.
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": files,
            "scrape_configs": jobs,
        });
        let file = dir.path().join("prometheus.json");
        std::fs::write(&file, config.to_string())?;
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let (mut command, carried) = match node {
            Some(node) => (node.inside(program)?, Some(node.open(port, port)?)),
            None => (Command::new(program), None),
        };
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn");
        let mut service = Service::start("prometheus", command, dir.path())?;
        let endpoint = format!("http://{address}");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !answers(&format!("{endpoint}/-/ready")).await {
            if !service.alive() || Instant::now() > deadline {
                bail!("Prometheus did not become ready:\n{}", service.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30));
        Ok(Self { endpoint, client: client.build()?, service, _carried: carried, _dir: dir })
    }

    /// What an expression is now: labels and value of each of its series.
    ///
    /// # Errors
    /// When Prometheus refuses it.
    pub async fn query(&self, expression: &str) -> anyhow::Result<Vec<Series>> {
        self.ask("query", &[("query", expression)]).await
    }

    /// What an expression was over the last while, a point each second.
    ///
    /// # Errors
    /// When Prometheus refuses it.
    pub async fn over(&self, expression: &str, last: Duration) -> anyhow::Result<Vec<Series>> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let (start, end) =
            (now.saturating_sub(last).as_secs().to_string(), now.as_secs().to_string());
        let asked = [("query", expression), ("start", &start), ("end", &end), ("step", "1")];
        self.ask("query_range", &asked).await
    }

    /// The rules that it evaluates, with the `health` of each.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn rules(&self) -> anyhow::Result<Vec<Value>> {
        let data = self.read("rules", &[]).await?;
        let groups = data["groups"].as_array().context("groups")?;
        let rules = groups.iter().filter_map(|it| it["rules"].as_array());
        Ok(rules.flatten().cloned().collect())
    }

    async fn ask(&self, path: &str, asked: &[(&str, &str)]) -> anyhow::Result<Vec<Series>> {
        let data = self.read(path, asked).await?;
        data["result"].as_array().context("a result")?.iter().map(Series::read).collect()
    }

    async fn read(&self, path: &str, asked: &[(&str, &str)]) -> anyhow::Result<Value> {
        let url = format!("{}/api/v1/{path}", self.endpoint);
        let url = reqwest::Url::parse_with_params(&url, asked)?;
        let mut answer: Value = match self.client.get(url).send().await {
            Ok(answer) => answer.json().await?,
            Err(error) => bail!("{error}:\n{}", self.service.log_tail()),
        };
        ensure!(answer["status"] == "success", "{asked:?}: {answer}");
        Ok(answer["data"].take())
    }
}

impl Series {
    fn read(series: &Value) -> anyhow::Result<Self> {
        let labels = series["metric"].as_object().cloned().unwrap_or_default();
        let points = series["values"].as_array().cloned();
        let points = points.unwrap_or_else(|| vec![series["value"].clone()]);
        let number = |point: &Value| {
            let value = point[1].as_str().and_then(|it| it.parse().ok()).context("a number")?;
            Ok((point[0].as_f64().context("a time")?, value))
        };
        Ok(Self { labels, points: points.iter().map(number).collect::<anyhow::Result<_>>()? })
    }
}

/// The sum of all series of a metric in what a program answers at `/metrics`. With labels behind its name, in the order
/// in which the program writes them, of that one series.
#[must_use]
pub fn sum(text: &str, name: &str) -> f64 {
    let series = text
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    // The sum of no floats is -0.
    values.fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_series_of_a_metric_are_summed_and_none_of_another_whose_name_begins_so() {
        let text = "# TYPE polls counter\npolls{of=\"all\"} 2\npolls{of=\"new\"} 1.5e1\npolls_total 100\nbytes 7\n";
        let names = ["polls", "bytes", "poll", "polls{of=\"all\"}"];
        assert_eq!(names.map(|name| sum(text, name).to_string()), ["17", "7", "0", "2"]);
    }
}

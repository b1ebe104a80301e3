//! Many machines at once.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use reqwest::Method;
use serde_json::json;

use super::Ironic;
use crate::agent::Agent;

/// For failures only.
const PATIENCE: Duration = Duration::from_secs(600);
const PROGRAM: &str = include_str!("../../python/multiply.py");
const GROUPS: &str = "
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60)
number = 'CAST(substr(uuid, -12) AS INTEGER)'
database.execute(f\"UPDATE nodes SET conductor_group = 'group-' || ({number} % ?)\", (int(sys.argv[2]),))
database.commit()
";

impl Ironic {
    /// Puts machines, each with the UUID of its node, beside one that was discovered as `node`: in the database, since
    /// thousands of inventories take the API many minutes. What they say of themselves is what `like` said, but for what
    /// tells machines apart. Lists show them as soon as this returns.
    ///
    /// # Errors
    /// When that machine is not there, or one of the others is.
    pub async fn multiply(
        &self,
        node: &str,
        like: &Agent,
        machines: &[(String, Agent)],
    ) -> anyhow::Result<()> {
        let machines: Vec<_> = machines
            .iter()
            .map(|(node, agent)| json!({ "node": node, "words": agent.words() }))
            .collect();
        let order = json!({ "words": like.words(), "machines": machines }).to_string();
        let mut command = crate::python::of(&self.environment, "python");
        let database = self.dir.path().join("ironic.sqlite");
        command.args(["-c", PROGRAM]).arg(database).arg(node);
        given(command, order).await.context("no more machines")
    }

    /// Deals its nodes out to so many conductor groups, by the end of their UUIDs: `group-0` and so on.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn deal_out(&self, groups: u32) -> anyhow::Result<()> {
        let mut command = crate::python::of(&self.environment, "python");
        let database = self.dir.path().join("ironic.sqlite");
        command.args(["-c", GROUPS]).arg(database).arg(groups.to_string());
        given(command, String::new()).await.context("no groups")
    }

    /// Waits until it has the inventory of a node: it takes it in some time after it has answered the machine.
    ///
    /// # Errors
    /// When there is no answer, or it never has it.
    pub async fn inventoried(&self, node: &str) -> anyhow::Result<()> {
        let path = format!("/v1/nodes/{node}/inventory");
        let began = Instant::now();
        while !self.call(Method::GET, &path, None).await?.0.is_success() {
            ensure!(began.elapsed() < PATIENCE, "{node} gets no inventory");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

/// Runs it, with that as its input.
async fn given(mut command: Command, order: String) -> anyhow::Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().context("cannot start Ironic's Python")?;
        let mut input = child.stdin.take().context("it has an input")?;
        input.write_all(order.as_bytes())?;
        // It reads to the end.
        drop(input);
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    })
    .await?
}

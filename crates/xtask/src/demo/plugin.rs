//! The end of the tour: the questions of an engineer on call, asked with the plugin.

use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::stage::Stage;

/// Asks what waits, and why the oldest of it does.
///
/// # Errors
/// When kubectl does not run.
pub(crate) fn play(stage: &Stage) -> anyhow::Result<()> {
    println!("\nkubectl ferrite: why something waits, and what to do");
    ask(stage, &["waiting", "-A"])?;
    let waiting: Value = serde_json::from_str(&answer(stage, &["waiting", "-A", "-o", "json"])?)?;
    let object = &waiting["items"][0]["object"];
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    if object.is_object() {
        let name = format!("{}/{}", text("kind").to_lowercase(), text("name"));
        ask(stage, &["why", "-n", text("namespace"), &name])?;
    }
    Ok(())
}

/// Shows a question with its answer.
fn ask(stage: &Stage, words: &[&str]) -> anyhow::Result<()> {
    println!("\n  $ kubectl ferrite {}", words.join(" "));
    for line in answer(stage, words)?.lines() {
        println!("{}", format!("  {line}").trim_end());
    }
    Ok(())
}

/// What the plugin says. Its exit code is part of the answer: that something is wrong is no failure of the demo.
fn answer(stage: &Stage, words: &[&str]) -> anyhow::Result<String> {
    let mut kubectl = Command::new(&stage.kubectl);
    kubectl.arg("ferrite").args(words).env("KUBECONFIG", &stage.kubeconfig);
    // kubectl looks for its plugins there.
    let output = kubectl.env("PATH", super::folder()?).output().context("cannot start kubectl")?;
    let [said, warned] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    Ok(said + &warned)
}

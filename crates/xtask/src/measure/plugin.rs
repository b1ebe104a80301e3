//! kubectl-ferrite in a large installation: how long a person waits, and what that takes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::plugin::PROGRAM;
use bench::programs::{self, Profile};
use bench::{controller, load};

use super::Ground;
use super::fleet::NAMESPACE;
use super::row::Figures;

/// How often a question is asked.
const TIMES: usize = 5;

/// Asks why one host waits, and what waits at all.
pub(super) async fn asked(ground: &Ground, figures: &mut Figures<'_>) -> anyhow::Result<()> {
    let build = || programs::build(Profile::Plugin, &["--package", PROGRAM]);
    let program = tokio::task::spawn_blocking(build).await??.join(PROGRAM);
    let kubeconfig = ground.plane.kubeconfig(PROGRAM, &["system:masters"])?;
    let host = format!("host/host-{}", ground.hosts / 2);
    let questions: [(&[&str], _, _); 2] = [
        (&["why", &host, "--namespace", NAMESPACE], 300.0, Some(9.0)),
        (&["waiting", "--all-namespaces"], 3_000.0, None),
    ];
    for (words, most_ms, most_requests) in questions {
        let mark = ground.audit.mark().await?;
        let (mut took, mut megabytes) = (Vec::new(), 0.0_f64);
        for _ in 0..TIMES {
            let answer = answer(&program, &kubeconfig, words).await?;
            took.push(answer.0);
            megabytes = megabytes.max(answer.1);
        }
        took.sort_unstable();
        let counts = ground.audit.since(mark).await?;
        let requests = counts.requests(PROGRAM) as f64 / TIMES as f64;
        let what = |what: &str| format!("{what} of `kubectl ferrite {}`", words[0]);
        let slowest = load::millis(took[TIMES - 1]);
        figures.limited(what(&format!("ms, the longest of {TIMES},")), slowest, most_ms)?;
        figures.limited(what("megabytes at most"), megabytes, 60.0)?;
        match most_requests {
            Some(most) => figures.limited(what("requests"), requests, most)?,
            None => figures.add(what("requests"), requests)?,
        }
    }
    Ok(())
}

/// How long an answer takes, and the most memory in megabytes.
async fn answer(
    program: &Path,
    kubeconfig: &Path,
    words: &[&str],
) -> anyhow::Result<(Duration, f64)> {
    let mut command = Command::new(program);
    command.args(words).env("KUBECONFIG", kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
    let (began, mut kilobytes) = (Instant::now(), 0);
    let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
    let status = format!("/proc/{}/status", child.id());
    loop {
        if let Some(code) = child.try_wait()? {
            ensure!(code.success(), "{words:?}: {code}");
            return Ok((began.elapsed(), kilobytes as f64 / 1000.0));
        }
        // It has none any more in the moment of its end.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        kilobytes = controller::kilobytes(&text, "VmHWM").unwrap_or(kilobytes);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

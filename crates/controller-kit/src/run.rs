//! From the command line to the end of the process.

use std::path::Path;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use kube::client::ClientBuilder;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::api_error;
use crate::check::{self, Check};
use crate::config::{CheckOutput, Command, Mistakes, Settings};
use crate::connection::{self, Connections};
use crate::crd::{self, Needed, gitops, keep};
use crate::kit::Kit;
use crate::kubeconfig;
use crate::lease;
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;
use crate::{http, telemetry};

/// How long work under way may go on after the process was asked to end.
const LAST_WORK: Duration = Duration::from_millis(300);
/// How long after that request the lease may still be given back. What the work left of it is for the lease, as an API
/// server with much to do answers late, and a lease that is not given back stands for its whole duration.
const LAST_WORD: Duration = Duration::from_millis(800);
/// How long `extend-crd` tries.
const EXTENDING: Duration = Duration::from_secs(60);
/// The condition that holds once the work has named its own: between the CRDs and those, nobody is ready.
const STARTED: &str = "start";

/// What a controller needs from outside, as plain data.
#[derive(Default)]
pub struct Needs {
    /// Its own CRDs as YAML; empty when it has none.
    pub crds: &'static str,
    /// CRDs and fields that must be installed before it acts.
    pub fields: Vec<Needed>,
    /// The chart's `files/rules.json`, which `check` asks the API server about; the lease and events are added.
    pub rules: &'static str,
    /// Which of its rules with a `when` hold.
    pub switches: Vec<&'static str>,
    /// Further checks.
    pub checks: Vec<Check>,
}

/// Does what the command line says; `work` is the controller's own future and runs until the
/// process ends. Everything that a `main` does after parsing.
pub fn main(
    command: Option<Command>,
    config: Settings,
    mistakes: Mistakes,
    needs: Needs,
    work: impl AsyncFnOnce(Kit) -> Result<(), String>,
) -> ExitCode {
    if let Err(code) = mistakes.finish() {
        return code;
    }
    let command = command.unwrap_or_default();
    if command == Command::Crds {
        print!("{}", needs.crds);
        return ExitCode::SUCCESS;
    }
    // Two providers may be compiled in by others; the first word decides.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // One thread: the work is to wait for others, and each further thread would keep holes in a heap of its own.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("Cannot start: {error}")),
    };
    let outcome = runtime.block_on(async {
        if command == Command::Run {
            telemetry::init(&config);
            return run(config, needs, work).await;
        }
        once(command, &config, needs).await
    });
    // Whatever still runs is abandoned: every write stands on its own precondition.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|problem| fail(&problem))
}

fn fail(problem: &str) -> ExitCode {
    eprintln!("{problem}");
    ExitCode::FAILURE
}

async fn run(
    config: Settings,
    needs: Needs,
    work: impl AsyncFnOnce(Kit) -> Result<(), String>,
) -> Result<ExitCode, String> {
    let shutdown = Shutdown::on_signals()?;
    let listener = http::bind(config.listen).await?;
    let metrics = Metrics::new(config.controller)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let client = connect(&config).await?.with_layer(&metrics).build();
    let kit = Kit::new(config, client, metrics, shutdown);
    tracing::info!(identity = &*kit.identity, version = env!("CARGO_PKG_VERSION"), "Started");
    start(kit, listener, &needs.fields, work).await
}

/// Runs a controller with handles and a listener that the caller made; tests give their own client.
/// Returns when the process is to end: work first, then the lease.
pub async fn start(
    kit: Kit,
    listener: TcpListener,
    needed: &[Needed],
    work: impl AsyncFnOnce(Kit) -> Result<(), String>,
) -> Result<ExitCode, String> {
    crd::require(&kit, needed);
    kit.readiness.not_ready(STARTED, "see the other conditions of this list");
    let working = async {
        // A process that cannot act must not take the lease from one that can.
        let mut conditions = kit.readiness.subscribe();
        while !kit.readiness.may_act() {
            tokio::select! {
                _ = conditions.changed() => {}
                () = kit.shutdown.requested() => return Ok(()),
            }
        }
        // Its first turn names what it waits for.
        let mut work = Box::pin(work(kit.clone()));
        if let Poll::Ready(result) = futures_util::poll!(work.as_mut()) {
            return result;
        }
        kit.readiness.ready(STARTED);
        let lost = "The lease ended; the process ends so that nothing acts without it";
        let mut result = Err(lost.to_owned());
        let patience = async {
            kit.shutdown.requested().await;
            tokio::time::sleep(LAST_WORK).await;
        };
        let worked = async {
            result = tokio::select! {
                result = &mut work => result,
                () = patience => Ok(()),
            };
            // Only then may somebody else take over.
            drop(work);
            kit.shutdown.since().unwrap_or_else(Instant::now) + LAST_WORD
        };
        if kit.config.leader_elect {
            lease::keep(&kit, worked).await;
        } else {
            worked.await;
        }
        result
    };
    let result = tokio::select! {
        result = working => result,
        result = http::serve(listener, kit.clone()) => Err(format!("Probes and metrics ended: {result:?}")),
        never = crd::keep_checking(&kit, needed) => match never {},
    };
    if result.is_ok() && !kit.shutdown.is_requested() {
        return Err("The controller ended by itself".to_owned());
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// Does what needs no controller that runs.
async fn once(command: Command, config: &Settings, needs: Needs) -> Result<ExitCode, String> {
    let client = connect(config).await?.build();
    let fields = &needs.fields;
    match command {
        Command::Check { output } => {
            let rules = (needs.rules, &needs.switches[..]);
            let rows = check::run(&client, config, fields, rules, needs.checks).await;
            match output {
                CheckOutput::Table => print!("{}", check::table(&rows)),
                CheckOutput::Json => println!("{}", check::json(config.controller, &rows)),
            }
            if rows.iter().any(|row| row.result.is_err()) {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::ExtendCrd { keep: true, .. } => {
            let shutdown = Shutdown::on_signals()?;
            tokio::select! {
                never = keep::fields(&client, fields) => match never {},
                () = shutdown.requested() => {}
            }
        }
        Command::ExtendCrd { print: Some(tool), .. } => {
            print!("{}", in_time(gitops::print(&client, fields, tool)).await?);
        }
        Command::ExtendCrd { dry_run, .. } => {
            let lines = in_time(crd::extend(&client, fields, dry_run)).await?;
            if lines.is_empty() {
                println!("{} needs no field that CRDs of others lack", config.controller);
            }
            for line in lines {
                println!("{line}");
            }
        }
        Command::Run | Command::Crds => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// A hook that hangs holds up a whole installation.
async fn in_time<T>(extending: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(EXTENDING, extending)
        .await
        .map_err(|_| format!("The API server did not answer within {} s", EXTENDING.as_secs()))?
}

/// Makes the client of a controller: with a short way to say that a server is not there, and without the library's retries,
/// which are silent and go on for minutes. The API server is our own: nothing bounds its answers.
async fn connect(config: &Settings) -> Result<ClientBuilder<Connections>, String> {
    let mut connection =
        kubeconfig::of_user(config.kubeconfig.as_deref().map(Path::new), None).await?;
    tracing::info!(address = %connection.cluster_url, "The API server");
    connection.connect_timeout = Some(Duration::from_secs(5));
    connection::builder(connection, config.controller).map_err(|error| {
        format!("The kubeconfig does not make a client: {}", api_error::chain(&error))
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use kube::Client;
    use tokio::sync::Notify;

    use super::start;
    use crate::config::{Settings, defaults};
    use crate::http;
    use crate::kit::Kit;
    use crate::metrics::Metrics;
    use crate::shutdown::Shutdown;

    #[tokio::test]
    async fn nobody_is_ready_before_the_work_has_said_what_it_waits_for() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Settings { controller: "some", listen, leader_elect: false, ..defaults() };
        // Nothing is asked of it.
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(nowhere).unwrap();
        let kit = Kit::new(config, client, Metrics::new("some").unwrap(), Shutdown::default());
        let listener = http::bind(listen).await.unwrap();
        kit.readiness.require("CRD", "not looked at yet");
        let (named, may_begin) = (Arc::new(Notify::new()), kit.clone());
        let tell = named.clone();
        let work = |kit: Kit| async move {
            kit.readiness.require("watch", "not listed yet");
            tell.notify_one();
            std::future::pending().await
        };
        let process = tokio::spawn(async move { start(may_begin, listener, &[], work).await });
        tokio::task::yield_now().await;

        kit.readiness.ready("CRD");
        assert!(!kit.readiness.is_ready(), "the work has not begun");
        named.notified().await;
        assert!(!kit.readiness.is_ready(), "the work waits");
        kit.readiness.ready("watch");
        while !kit.readiness.is_ready() {
            tokio::task::yield_now().await;
        }
        process.abort();
    }
}

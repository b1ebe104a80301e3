//! `cargo xtask demo`: the bench as a playground. A process of its own keeps it, so that the terminal is free.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bench::bmc::Rack;
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::ironic::{Ironic, Options, Release};
use bench::steps::{step, step_async};
use bench::{cache, go};
use serde::{Deserialize, Serialize};

/// How long the start may take once everything is built.
const PATIENCE: Duration = Duration::from_secs(300);

/// What runs, for `demo` to print and for `demo --down` to end.
#[derive(Debug, Deserialize, Serialize)]
struct Running {
    pid: u32,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    ironic: String,
    servers: Vec<Server>,
}

/// A virtual server.
#[derive(Debug, Deserialize, Serialize)]
struct Server {
    name: String,
    node: String,
    redfish: String,
}

/// Builds what is missing, starts the bench behind its own back, and says what to try.
///
/// # Errors
/// When a demo runs already, or a part does not start.
pub(crate) fn up() -> anyhow::Result<()> {
    if let Some(running) = running() {
        eprintln!("The demo is running already.");
        explain(&running);
        return Ok(());
    }
    eprintln!("real parts (kept in {})", cache::root().display());
    for program in ["etcd", "kube-apiserver", "kubectl"] {
        go::program(program)?;
    }
    tokio::runtime::Runtime::new()?.block_on(bench::ironic::environment(Release::Current))?;
    let log = cache::root().join("demo.log");
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut keeper = Command::new(std::env::current_exe()?)
        .args(["demo", "--serve"])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Ctrl-C in this terminal is not for it.
        .process_group(0)
        .spawn()?;
    let running = step("starting them", || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(running) = running() {
                return Ok(running);
            }
            if keeper.try_wait()?.is_some() || Instant::now() > deadline {
                let _ = keeper.kill();
                bail!("the demo did not start:\n{}", fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    })?;
    explain(&running);
    Ok(())
}

/// Ends the demo and waits until it is gone.
///
/// # Errors
/// When it does not end.
pub(crate) fn down() -> anyhow::Result<()> {
    let Some(running) = running() else {
        eprintln!("No demo is running.");
        return Ok(());
    };
    step("ending the demo", || {
        cache::run(Command::new("sh").args(["-c", &format!("kill -s TERM {}", running.pid)]))?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while alive(running.pid) {
            if Instant::now() > deadline {
                bail!(
                    "process {} does not end; `kill -9 {0}` ends it and all its parts",
                    running.pid
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = fs::remove_file(state_file());
        cache::sweep();
        Ok(())
    })
}

/// Keeps the bench until it is told to end. `demo` starts this in the background.
///
/// # Errors
/// When a part does not start.
pub(crate) fn serve() -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut terminated =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let plane = step_async("kube-apiserver and etcd", ControlPlane::start("demo")).await?;
        step_async(
            "CRDs of Metal3, CAPM3 and Hive",
            crds::install(&plane.admin().await, &Group::ALL),
        )
        .await?;
        let ironic = step_async("Ironic", Ironic::start(Options::default())).await?;
        let rack = step_async("two virtual servers", Rack::start(2)).await?;
        let mut servers = Vec::new();
        for (number, machine) in rack.machines.iter().enumerate() {
            let name = format!("server-{number}");
            let node =
                step_async(&format!("{name} in Ironic"), ironic.enroll(&name, machine)).await?;
            servers.push(Server {
                name,
                node,
                redfish: format!("{}{}", machine.address(), machine.system_path()),
            });
        }
        let running = Running {
            pid: std::process::id(),
            kubeconfig: plane.kubeconfig("admin", &["system:masters"])?,
            kubectl: go::program("kubectl")?,
            ironic: ironic.endpoint.clone(),
            servers,
        };
        // Written beside and renamed: whoever waits for the file reads it whole.
        let new = state_file().with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(&running)?)?;
        fs::rename(new, state_file())?;
        terminated.recv().await;
        let _ = fs::remove_file(state_file());
        Ok(())
    })
}

fn state_file() -> PathBuf {
    cache::root().join("demo.json")
}

/// The demo that runs, if one does.
fn running() -> Option<Running> {
    let running: Running = serde_json::from_slice(&fs::read(state_file()).ok()?).ok()?;
    alive(running.pid).then_some(running)
}

fn alive(pid: u32) -> bool {
    // A process that has ended and was not waited for is a zombie: gone for our purposes.
    fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
        .is_ok_and(|stat| !stat.contains(") Z "))
}

fn explain(running: &Running) {
    println!("\nIt runs until `cargo xtask demo --down`.\n");
    println!("  Kubernetes  export KUBECONFIG={}", running.kubeconfig.display());
    println!("  kubectl     {}", running.kubectl.display());
    println!("  Ironic      {}", running.ironic);
    for server in &running.servers {
        println!("  {}    node {}, BMC {}", server.name, server.node, server.redfish);
    }
    println!("\nTry:");
    println!("  {} get crds", running.kubectl.display());
    println!("  curl {}/v1/nodes", running.ironic);
    if let Some(server) = running.servers.first() {
        println!(
            "  curl -X PUT -H 'Content-Type: application/json' -H 'X-OpenStack-Ironic-API-Version: 1.81' \\\n    \
             -d '{{\"target\": \"power on\"}}' {}/v1/nodes/{}/states/power",
            running.ironic, server.node
        );
        println!("  curl {}", server.redfish);
    }
}

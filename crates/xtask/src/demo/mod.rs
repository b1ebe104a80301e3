//! `cargo xtask demo`: the bench as a playground. A process of its own keeps it, so that the terminal is free.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bench::bmc::Rack;
use bench::bmo;
use bench::cluster_api::{ClusterApi, Masters, Provider, Workload};
use bench::control_plane::ControlPlane;
use bench::controller::Environment;
use bench::crds::{self, Group};
use bench::hive::StandIn;
use bench::ironic::{Ironic, Options, Release};
use bench::plugin::PROGRAM;
use bench::registrar::Registrar;
use bench::steps::{step, step_async};
use bench::{cache, go};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use self::pictures::Watching;
use self::stage::{Controller, Server, Stage};
use crate::controllers::PODS;

mod bmo_reboot;
mod capm3_reuse;
mod clusterpool_inventory;
mod host_discovery;
mod pictures;
mod plugin;
mod power_on;
mod remediation;
mod stage;
mod table;

const PROGRAMS: [&str; 8] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "capi-core",
    "capi-bootstrap",
    "capi-kcp",
    "helm",
    "kubectl",
];
/// The first is for the chapter of power, the others for machines.
const SERVERS: usize = 5;
/// Those that are switched on in the chapter of discovery.
const UNKNOWN: usize = 3;
/// How long the start may take once everything is built.
const PATIENCE: Duration = Duration::from_secs(300);

/// A part of the tour: one mission, played on the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Chapter {
    /// One server is held off by two clients and comes back when the second lets go.
    BmoReboot,
    /// A deployment of three machines rolls over, and each new machine gets a server of the old ones.
    Capm3Reuse,
    /// A pool of four clusters out of five entries: one broken, one claimed, one edited, one removed.
    ClusterpoolInventory,
    /// Five machines are switched on: three become hosts, one is a host already, and one waits to be approved. Three more
    /// become nodes.
    HostDiscovery,
    /// A node dies, is power-cycled and returns; a second one does not, and its Machine is replaced on another server.
    Remediation,
}

/// Starts the bench with the controllers unless it runs, plays one chapter or all, and says what to try. With a folder for
/// pictures, the dashboards are drawn there as they look at the end.
///
/// # Errors
/// When a part does not start, or a chapter does not come to its end.
pub(crate) fn up(chapter: Option<Chapter>, pictures: Option<&Path>) -> anyhow::Result<()> {
    let stage = match kept(&file()) {
        Some(KeptDemo { stage: Some(stage), .. }) => stage,
        Some(_) => {
            bail!("a demo is being started; wait for it, or end it with `cargo xtask demo --down`")
        }
        None => start()?,
    };
    let chapters = chapter.as_ref().map_or(Chapter::value_variants(), std::slice::from_ref);
    tokio::runtime::Runtime::new()?.block_on(async {
        let watching = match pictures {
            Some(_) => Some(Watching::start(&stage).await?),
            None => None,
        };
        for chapter in chapters {
            match chapter {
                Chapter::BmoReboot => bmo_reboot::play(&stage).await?,
                Chapter::Capm3Reuse => capm3_reuse::play(&stage).await?,
                Chapter::ClusterpoolInventory => clusterpool_inventory::play(&stage).await?,
                Chapter::HostDiscovery => {
                    host_discovery::play(&stage).await?;
                    power_on::play(&stage).await?;
                }
                Chapter::Remediation => remediation::play(&stage).await?,
            }
        }
        if let (Some(watching), Some(folder)) = (watching, pictures) {
            watching.draw(&stage, folder).await?;
        }
        anyhow::Ok(())
    })?;
    plugin::play(&stage)?;
    explain(&stage, &folder()?);
    Ok(())
}

fn start() -> anyhow::Result<Stage> {
    eprintln!("real parts (kept in {})", cache::root().display());
    for program in PROGRAMS {
        go::program(program)?;
    }
    tokio::runtime::Runtime::new()?.block_on(bench::ironic::environment(Release::Current))?;
    // Known before anything is built: a file that is replaced meanwhile has no name any more.
    let myself = std::env::current_exe()?;
    step("the controllers and the plugin", || {
        let mut build = crate::cargo();
        // Together with what runs here already: alone they would want other features of what both need, and all of it
        // would be compiled a second time.
        build.args(["build", "--locked", "--quiet", "-p", "xtask", "-p", PROGRAM]);
        build.args(PODS.iter().flat_map(|name| ["-p", name]));
        anyhow::ensure!(build.status()?.success(), "`{}` failed", cache::shown(&build));
        Ok(())
    })?;
    let log = cache::root().join("demo.log");
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut keeper = Command::new(myself)
        .args(["demo", "--serve"])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Ctrl-C in this terminal is not for it.
        .process_group(0)
        .spawn()?;
    step("starting them", || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(KeptDemo { stage: Some(stage), .. }) = kept(&file()) {
                return Ok(stage);
            }
            if keeper.try_wait()?.is_some() || Instant::now() > deadline {
                let _ = keeper.kill();
                bail!("the demo did not start:\n{}", fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    })
}

/// Ends the demo and waits until it is gone.
///
/// # Errors
/// When it does not end.
pub(crate) fn down() -> anyhow::Result<()> {
    let Some(KeptDemo { pid, .. }) = kept(&file()) else {
        eprintln!("No demo is running.");
        return Ok(());
    };
    step("ending the demo", || {
        cache::run(Command::new("sh").args(["-c", &format!("kill -s TERM {pid}")]))?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while kept(&file()).is_some() {
            if Instant::now() > deadline {
                bail!("process {pid} does not end; `kill -9 {pid}` ends it and all its parts");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        cache::sweep();
        Ok(())
    })
}

/// Keeps the bench until it is told to end, also while it starts. `demo` starts this in the background.
///
/// # Errors
/// When a part does not start.
pub(crate) fn serve() -> anyhow::Result<()> {
    // Before anything is started, so that it can be ended.
    let mut held = hold(&file())?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut terminated =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            ended = keep(&mut held) => ended,
            _ = terminated.recv() => Ok(()),
        }
    })
}

/// Starts all parts, says where they are, and keeps them for as long as this is waited for.
async fn keep(held: &mut File) -> anyhow::Result<()> {
    let plane = step_async("kube-apiserver and etcd", ControlPlane::start("demo")).await?;
    step_async("CRDs of Metal3, CAPM3 and Hive", crds::install(&plane.admin().await, &Group::ALL))
        .await?;
    let own: Vec<_> = api_types::own_crds().into_iter().map(|it| it.1).collect();
    step_async("our own CRDs", crds::create(&plane.admin().await, &own)).await?;
    // What is deleted takes its own with it, as in a cluster.
    plane.start_controllers(&["garbage-collector-controller", "namespace-controller"]).await?;
    let _hive = StandIn::for_all(&plane.admin().await, clusterpool_inventory::PLAYER);
    // Whoever plays with a server's power at its BMC is to see that it is noticed.
    let rack = step_async("virtual servers", Rack::start(SERVERS + UNKNOWN)).await?;
    let options = Options { power_sync: 30, bmc_proxy: rack.proxy(), ..Options::default() };
    let ironic = Arc::new(step_async("Ironic", Ironic::start(options)).await?);
    let (known, unknown) = rack.machines.split_at(SERVERS);
    let servers = step_async("the servers in Ironic", async {
        let enrolled = known.iter().enumerate().map(async |(number, machine)| {
            let name = format!("server-{number}");
            let node = ironic.enroll(&name, machine).await?;
            Ok::<_, anyhow::Error>(Server { name, node, bmc: machine.clone() })
        });
        futures_util::future::try_join_all(enrolled).await
    })
    .await?;
    // Its managers come first: they look for their CRDs when they start.
    let _managers = ClusterApi::start(&plane).await?;
    let workload = Workload::start(&plane, "metal", Masters::Given, Provider::Runs).await?;
    let _operator = bmo::StandIn::start(&plane.admin().await, &workload.namespace);
    let hosts = bmo::api(&plane.admin().await, &workload.namespace);
    let _registrar = Registrar::start(hosts, Arc::clone(&ironic));
    let mut services = Vec::new();
    let mut controllers = Vec::new();
    let folder = folder()?;
    // Each takes what it knows.
    let environment: Environment = vec![
        ("FERRITE_LOG_FORMAT", "text".to_owned()),
        ("IRONIC_ENDPOINT", ironic.endpoint.clone()),
        ("FERRITE_SCALE_TO_HOSTS", "true".to_owned()),
    ];
    for name in PODS {
        let program = folder.join(name);
        let starting = stage::start_controller(&plane, &program, name, &environment);
        let running = step_async(name, starting).await?;
        let (address, log) = (running.address.clone(), running.service.log().to_owned());
        controllers.push(Controller { name: name.to_owned(), address, log });
        services.push(running);
    }
    let stage = Stage {
        kubeconfig: plane.kubeconfig("admin", &["system:masters"])?,
        kubectl: go::program("kubectl")?,
        ironic: ironic.endpoint.clone(),
        servers,
        unknown: unknown.to_vec(),
        cluster: workload.cluster.clone(),
        namespace: workload.namespace.clone(),
        workload: workload.control_plane.kubeconfig("admin", &["system:masters"])?,
        controllers,
    };
    tell(held, Some(stage))?;
    std::future::pending().await
}

/// A demo, as it stands in the file that its keeper holds for as long as that lives.
#[derive(Deserialize, Serialize)]
struct KeptDemo {
    pid: u32,
    /// None while it starts.
    stage: Option<Stage>,
}

fn file() -> PathBuf {
    cache::root().join("demo.json")
}

/// Locks the file for this process until what is returned is dropped.
fn hold(file: &Path) -> anyhow::Result<File> {
    // Whoever has it tells of itself in it until it lets go.
    let mut held = File::options().create(true).truncate(false).write(true).open(file)?;
    held.lock()?;
    tell(&mut held, None)?;
    Ok(held)
}

/// Whoever reads half of it finds no demo, and looks again.
fn tell(held: &mut File, stage: Option<Stage>) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(&KeptDemo { pid: std::process::id(), stage })?;
    held.rewind()?;
    held.write_all(&text)?;
    Ok(held.set_len(u64::try_from(text.len())?)?)
}

/// The demo that is kept, if one is.
fn kept(file: &Path) -> Option<KeptDemo> {
    let is_held = File::open(file).ok()?.try_lock_shared().is_err();
    serde_json::from_slice(&fs::read(file).ok()?).ok().filter(|_| is_held)
}

/// Where the controllers and the plugin are: beside this program.
fn folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("xtask runs from no folder")?.to_owned())
}

fn explain(stage: &Stage, folder: &Path) {
    println!("\nEverything runs until `cargo xtask demo --down`.\n");
    println!("  Kubernetes  export KUBECONFIG={}", stage.kubeconfig.display());
    println!("  kubectl     {}", stage.kubectl.display());
    println!("  Ironic      {}", stage.ironic);
    for server in &stage.servers {
        println!("  {}    node {}, BMC {}", server.name, server.node, server.bmc.url());
    }
    for controller in &stage.controllers {
        let Controller { name, address, log } = controller;
        println!("  {name}  http://{address}/metrics, log {}", log.display());
    }
    let kubectl = stage.kubectl.display();
    println!("\nTry:");
    println!("  {kubectl} get baremetalhosts --all-namespaces");
    println!("  {kubectl} -n demo-power annotate baremetalhost server-0 reboot.metal3.io=");
    println!("  {kubectl} -n demo-power describe baremetalhost server-0");
    let namespace = &stage.namespace;
    println!("  {kubectl} -n {namespace} get machines,metal3machines,baremetalhosts");
    println!("  {kubectl} -n {namespace} delete machine <one of them>");
    println!("  {kubectl} -n {namespace} get metal3remediations.remediation.metal3.io");
    println!("  {kubectl} -n demo-pools get clusterpool lab -o yaml");
    println!("  {kubectl} -n demo-pools delete clusterclaim team-a");
    println!("  {kubectl} -n demo-discovery get bmhd,baremetalhosts");
    println!("\nGo on with the plugin (docs/kubectl-ferrite.md):");
    println!("  export PATH={}:$PATH", folder.display());
    println!("  {kubectl} ferrite waiting -A -w");
    println!("  {kubectl} ferrite -n {namespace} why machine/<one of them>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_runs_for_as_long_as_its_keeper_holds_the_file() {
        let folder = cache::RunDir::new("keeper").unwrap();
        let file = folder.path().join("keeper");
        assert!(kept(&file).is_none());
        let held = hold(&file).unwrap();
        let demo = kept(&file).unwrap();
        assert!(demo.pid == std::process::id() && demo.stage.is_none());
        drop(held);
        assert!(kept(&file).is_none(), "its number is still there, and may be another one's");
    }
}

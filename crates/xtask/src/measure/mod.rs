//! `cargo xtask bench`: what the API server takes by itself, what a controller reaches on the same server in the same
//! run, and what the controller costs. Rates of machines differ and drift; their ratios are what can be compared.
//!
//! A controller adds one file with its [`Work`], and one line to [`WORKS`].

mod apart;
mod api_server;
mod bmo_reboot;
mod capm3_reuse;
mod clusterpool_inventory;
mod fleet;
mod host_discovery;
mod minimal;
mod program;
mod remediation;
mod row;
mod sample;
mod split;
mod table;
mod together;
mod watch;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bench::audit::{Audit, Counts};
use bench::chart;
use bench::control_plane::ControlPlane;
use bench::crds;
use bench::load::Rate;
use bench::programs::{self, Profile};
use bench::proxy::Proxy;
use bench::steps::{step, step_async};
use tokio::sync::OnceCell;

use crate::controllers::PODS;
use program::{Account, Running};
use row::{Figure, Limits, Reached, Requests, Row, Together, exceeded};

/// What is measured, one line for each controller.
const WORKS: &[Work] = &[
    minimal::WORK,
    sample::WORK,
    bmo_reboot::WORK,
    capm3_reuse::WORK,
    clusterpool_inventory::WORK,
    host_discovery::WORK,
    remediation::WORK,
];

/// How often a start is measured.
const STARTS: usize = 5;
/// How long a controller that has nothing to do is watched.
const REST: Duration = Duration::from_secs(10);
/// Rounds of bare writes are counted from here.
const BARE: usize = 1_000;
/// So many rounds has one program at most.
const ROUNDS: usize = 10;
/// Requests at a time: the controllers' own default.
const AT_ONCE: usize = 32;

/// Something that a step of the work does, some time.
type Later<'a, T> = Pin<Box<dyn Future<Output = anyhow::Result<T>> + Send + 'a>>;

/// What a program is told beside what all are told, as environment.
type Environment = Vec<(&'static str, String)>;

/// Measures what only one controller is asked for.
type Further = for<'a> fn(&'a Ground, &'a Program<'a>) -> Later<'a, Vec<Figure>>;

/// What is measured of one controller.
struct Work {
    controller: &'static str,
    /// What cargo is told to build.
    build: &'static [&'static str],
    /// Its program below the folder of release builds.
    program: &'static str,
    /// Folder of its chart, whose account it runs under; without one it runs as admin.
    chart: Option<&'static str>,
    /// What the chart must be told, as JSON.
    values: &'static str,
    /// Makes what it needs to be ready, and gives what names it.
    neighbours: for<'a> fn(&'a Ground) -> Later<'a, Environment>,
    limits: Limits,
    operation: Option<Operation>,
    /// What nobody else is asked for.
    further: Option<Further>,
}

/// Nothing is needed.
fn none(_: &Ground) -> Later<'_, Environment> {
    Box::pin(async { Ok(Environment::new()) })
}

/// A program that is put to a controller's work.
struct Program<'a> {
    work: &'a Work,
    path: PathBuf,
    /// It is not the project's own.
    is_peer: bool,
    environment: Environment,
}

impl Program<'_> {
    fn peer(&self) -> Option<PathBuf> {
        self.is_peer.then(|| self.path.clone())
    }

    /// A tenth of so many where it is a peer: some look again only each half minute.
    fn few(&self, many: usize) -> usize {
        if self.is_peer { many / 10 } else { many }
    }

    /// The same, told something more.
    fn told(&self, more: Environment) -> Self {
        let environment = [self.environment.clone(), more].concat();
        Self { path: self.path.clone(), environment, ..*self }
    }

    fn shown(&self) -> String {
        let name = self.work.controller.to_owned();
        self.peer().map_or(name, |path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            format!("{} ({file})", self.work.controller)
        })
    }
}

/// Something that a controller does many times.
struct Operation {
    /// In a few words.
    name: &'static str,
    /// How many times in an installation of so many hosts.
    count: fn(u32) -> u32,
    /// How often, with bare writes between. What is told is the round in the middle. A peer has one.
    rounds: usize,
    /// How many such writes a second the server takes when nobody thinks about them, 32 at a time, from a client with the
    /// program's rights that has no connection yet.
    bare: for<'a> fn(&'a Ground, kube::Client, Round) -> Later<'a, f64>,
    /// Makes the objects, before the controller is started.
    prepare: for<'a> fn(&'a Ground, Round) -> Later<'a, ()>,
    /// Returns when all of this round is done.
    done: for<'a> fn(&'a Ground, Round) -> Later<'a, ()>,
}

/// Once at an operation, by a program or bare. What was made in the rounds before it is still there, and done.
#[derive(Clone, Copy)]
struct Round {
    number: usize,
    count: u32,
}

/// Where it takes place.
struct Ground {
    plane: ControlPlane,
    admin: kube::Client,
    audit: Audit,
    /// How large a large installation is.
    hosts: u32,
    /// Whether the other controllers run as well.
    together: bool,
    fleet: OnceCell<()>,
    ironic: OnceCell<Proxy>,
    machines: OnceCell<host_discovery::Machines>,
}

impl Ground {
    async fn new(name: &str, hosts: u32) -> anyhow::Result<Self> {
        let plane = step_async("an API server of its own", ControlPlane::start(name)).await?;
        Ok(Self::on(plane, hosts).await)
    }

    async fn on(plane: ControlPlane, hosts: u32) -> Self {
        let admin = plane.admin().await;
        let audit = Audit::new(plane.audit_log(), admin.clone());
        let (fleet, ironic, machines) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { plane, admin, audit, hosts, together: false, fleet, ironic, machines }
    }
}

/// Measures, prints two tables, and writes the figures as JSON where asked to. A peer is `controller=path`: a program
/// that is put to that controller's work.
///
/// # Errors
/// When the bench cannot be started, the API server refuses a request, or a controller exceeds a limit.
pub(crate) fn run(
    json: Option<&Path>,
    peers: &[String],
    only: &str,
    hosts: u32,
    programs: Option<PathBuf>,
    together: bool,
) -> anyhow::Result<()> {
    let is_wanted = |it: &&Work| {
        if together { PODS.contains(&it.controller) } else { it.controller.contains(only) }
    };
    let mut works: Vec<&Work> = WORKS.iter().filter(is_wanted).collect();
    let is_named = works.iter().any(|it| it.controller.contains(only));
    ensure!(is_named, "no controller's name contains {only:?}");
    if together {
        // They make the machines and clusters that all are then measured with.
        works.sort_by_key(|it| it.operation.is_none());
    }
    let peers = peers.iter().map(|text| peer(text, &works)).collect::<anyhow::Result<Vec<_>>>()?;
    let folder = releases(&works, programs)?;
    let (rates, rows) = tokio::runtime::Runtime::new()?.block_on(measure(
        &works,
        &folder,
        &peers,
        hosts,
        together.then_some(only),
    ))?;
    table::rates(&rates);
    table::rows(&rows);
    if let Some(path) = json {
        write(path, &serde_json::json!({ "api_server": rates, "controllers": rows }))?;
    }
    let exceeded = exceeded(&works, &rows);
    if !exceeded.is_empty() {
        bail!("over the limit:\n  {}", exceeded.join("\n  "));
    }
    Ok(())
}

/// Measures what a very large installation needs, whole and in parts, and prints that.
///
/// # Errors
/// When the bench cannot be started, or a controller does not become ready.
pub(crate) fn split(
    json: Option<&Path>,
    only: &str,
    hosts: u32,
    nics: u32,
    parts: u32,
    programs: Option<PathBuf>,
) -> anyhow::Result<()> {
    ensure!(parts > 0, "--split 0: expected a number of parts");
    let is_wanted = |it: &&Work| {
        split::CONTROLLERS.contains(&it.controller)
            && (it.controller.contains(only) || it.controller == "host-discovery")
    };
    let works: Vec<&Work> = WORKS.iter().filter(is_wanted).collect();
    let folder = releases(&works, programs)?;
    let measuring = split::measure(&works, &folder, hosts, nics, parts);
    let measured = tokio::runtime::Runtime::new()?.block_on(measuring)?;
    split::table(&measured);
    if let Some(path) = json {
        write(path, &serde_json::json!(measured))?;
    }
    Ok(())
}

/// Where the programs are, after the servers that they need.
fn releases(works: &[&Work], programs: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    step("the programs", || {
        for name in ["etcd", "kube-apiserver", "helm"] {
            bench::go::program(name)?;
        }
        Ok(())
    })?;
    match programs {
        Some(folder) => Ok(std::path::absolute(folder)?),
        None => step("static release builds (minutes, the first time)", || {
            let builds: Vec<&str> = works.iter().flat_map(|it| it.build).copied().collect();
            programs::build(Profile::Release, &builds)
        }),
    }
}

fn write(path: &Path, figures: &serde_json::Value) -> anyhow::Result<()> {
    std::fs::write(path, format!("{figures:#}\n"))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn peer<'a>(text: &str, works: &[&'a Work]) -> anyhow::Result<(&'a Work, PathBuf)> {
    let names: Vec<&str> = works.iter().map(|it| it.controller).collect();
    let wanted = || {
        let names = names.join(", ");
        format!(
            "--peer {text}: expected <controller>=<path of a program>, the controller one of {names}"
        )
    };
    let (name, path) = text.split_once('=').with_context(wanted)?;
    let work = works.iter().find(|it| it.controller == name).with_context(wanted)?;
    let path = std::path::absolute(path)?;
    ensure!(path.is_file(), "--peer {text}: {} is no file", path.display());
    Ok((work, path))
}

async fn measure(
    works: &[&Work],
    folder: &Path,
    peers: &[(&Work, PathBuf)],
    hosts: u32,
    together: Option<&str>,
) -> anyhow::Result<(Vec<Rate>, Vec<Row>)> {
    let mut rows = Vec::new();
    let ground = Ground { together: together.is_some(), ..Ground::new("load", hosts).await? };
    let mut programs = Vec::new();
    // While the server is empty: what others have left there would be in a cache.
    for work in works {
        let path = folder.join(work.program);
        let program = Program { work, path, is_peer: false, environment: Environment::new() };
        let (program, row) = at_rest(&ground, program).await?;
        programs.push(program);
        rows.push(row);
    }
    let rates = api_server::measure(&ground).await?;
    if let Some(only) = together {
        beside_the_others(&ground, &programs, only, &mut rows).await?;
    }
    drop(ground);
    // Each with a server of its own: what another has made would be its work too.
    let alone = programs.into_iter().filter(|_| together.is_none());
    for (number, mut program) in alone.enumerate() {
        let ground = Ground::new("work", hosts).await?;
        program.environment = (program.work.neighbours)(&ground).await?;
        at_work(&ground, &program, number, &mut rows[number]).await?;
    }
    for (number, (work, path)) in peers.iter().enumerate() {
        let ground = Ground::new("peer", hosts).await?;
        let path = path.clone();
        let program = Program { work, path, is_peer: true, environment: Environment::new() };
        let (program, mut row) = at_rest(&ground, program).await?;
        at_work(&ground, &program, number, &mut row).await?;
        rows.push(row);
    }
    Ok((rates, rows))
}

/// One after the other while the rest of them run, and all of them at rest in between, on what was made until then.
async fn beside_the_others(
    ground: &Ground,
    programs: &[Program<'_>],
    only: &str,
    rows: &mut [Row],
) -> anyhow::Result<()> {
    let made = programs.iter().position(|it| it.work.operation.is_none());
    for (number, program) in programs.iter().enumerate() {
        if made == Some(number) {
            together::at_rest(ground, programs, rows).await?;
        }
        if !program.work.controller.contains(only) {
            continue;
        }
        let others = programs.iter().filter(|it| it.work.controller != program.work.controller);
        let others = together::start(ground, others).await?;
        at_work(ground, program, number, &mut rows[number]).await?;
        together::stop(others).await?;
    }
    Ok(())
}

/// What it costs when nothing is there.
async fn at_rest<'a>(
    ground: &Ground,
    mut program: Program<'a>,
) -> anyhow::Result<(Program<'a>, Row)> {
    program.environment = (program.work.neighbours)(ground).await?;
    if program.is_peer {
        crds::install_folder(&ground.admin).await?;
    }
    let what = format!("{}: starts, memory, {} s at rest", program.shown(), REST.as_secs());
    let row = step_async(&what, idle(ground, &program)).await?;
    Ok((program, row))
}

/// What it reaches, and what only it is asked for.
async fn at_work(
    ground: &Ground,
    program: &Program<'_>,
    number: usize,
    row: &mut Row,
) -> anyhow::Result<()> {
    if let Some(operation) = &program.work.operation {
        let round = Round { number, count: (operation.count)(ground.hosts) };
        let what = format!("{}: {} {}", program.shown(), round.count, operation.name);
        let reached = step_async(&what, busy(ground, program, operation, round));
        row.operation = Some(reached.await?);
    }
    if let Some(further) = program.work.further {
        let what = format!("{}: its own figures", program.shown());
        row.figures = step_async(&what, further(ground, program)).await?;
    }
    Ok(())
}

/// Under the account of its chart; a peer's rights are its own business.
async fn account(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Account> {
    let namespace = ground.plane.namespace("bench").await;
    let Some(chart) = program.work.chart.filter(|_| !program.is_peer) else {
        let kubeconfig = ground.plane.kubeconfig(&namespace, &["system:masters"])?;
        return Ok(Account { user: namespace.clone(), namespace, kubeconfig });
    };
    let values = serde_json::from_str(program.work.values)?;
    let objects = chart::render(&chart::dir(chart), chart, &namespace, &values)?;
    chart::install_permissions(&ground.admin, &objects, &namespace).await?;
    let name = chart::find(&objects, "ServiceAccount")?["metadata"]["name"].as_str();
    let name = name.context("the account has a name")?;
    let kubeconfig = chart::service_account_kubeconfig(&ground.plane, &namespace, name).await?;
    Ok(Account { user: format!("system:serviceaccount:{namespace}:{name}"), namespace, kubeconfig })
}

async fn idle(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Row> {
    let account = account(ground, program).await?;
    let mut ready = Vec::new();
    for _ in 1..STARTS {
        let running = Running::start(ground, program, &account).await?;
        ready.push(running.ready_ms);
        running.stop().await?;
    }
    let running = Running::start(ground, program, &account).await?;
    ready.push(running.ready_ms);
    ready.sort_by(f64::total_cmp);
    // It takes the lease and looks at everything once.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mark = ground.audit.mark().await?;
    tokio::time::sleep(REST).await;
    let counts = ground.audit.since(mark).await?;
    let row = Row {
        controller: program.work.controller.to_owned(),
        peer: program.peer(),
        megabytes: running.program_megabytes()?,
        ready_ms: ready[ready.len() / 2],
        slowest_ready_ms: ready[ready.len() - 1],
        resident_megabytes: running.resident_megabytes()?,
        writes_at_rest: counts.writes(&account.user, &["leases"]),
        requests_at_rest: requests(&counts, &account.user),
        operation: None,
        figures: Vec::new(),
        together: None,
    };
    running.stop().await?;
    Ok(row)
}

/// What was asked for, renewals of the lease left out.
fn requests(counts: &Counts, user: &str) -> Requests {
    let asked = counts.of_user(user).filter(|(_, resource, _)| *resource != "leases");
    asked.map(|(verb, resource, count)| (format!("{verb} {resource}"), count)).collect()
}

/// The machine is shared with others and has better and worse minutes: each round is compared with the bare writes
/// right before and right after it.
async fn busy(
    ground: &Ground,
    program: &Program<'_>,
    operation: &Operation,
    round: Round,
) -> anyhow::Result<Reached> {
    let account = account(ground, program).await?;
    // Beside the others an installation has as many machines as one round makes.
    let rounds = if program.is_peer || ground.together { 1 } else { operation.rounds };
    let numbered = |number| Round { number: ROUNDS * round.number + number, ..round };
    let bare = async |number| {
        let round = numbered(BARE + number);
        (operation.bare)(ground, account.client().await?, round).await
    };
    let mut before = bare(0).await?;
    let mut all = Vec::new();
    for number in 0..rounds {
        let mut reached = once(ground, program, operation, numbered(number), &account).await?;
        let after = bare(number + 1).await?;
        reached.bare_writes_per_second = f64::midpoint(before, after);
        reached.share = reached.per_second * reached.writes_each / reached.bare_writes_per_second;
        before = after;
        all.push(reached);
    }
    // With each round there is more to remember.
    let resident_megabytes = all[0].resident_megabytes;
    all.sort_by(|one, other| one.share.total_cmp(&other.share));
    let shares = all.iter().map(|it| it.share).collect();
    let middle = all.swap_remove(rounds / 2);
    Ok(Reached { shares, resident_megabytes, ..middle })
}

/// One round, not compared with anything yet.
async fn once(
    ground: &Ground,
    program: &Program<'_>,
    operation: &Operation,
    round: Round,
    account: &Account,
) -> anyhow::Result<Reached> {
    let Operation { name, prepare, done, .. } = operation;
    prepare(ground, round).await?;
    let mark = ground.audit.mark().await?;
    let running = Running::start(ground, program, account).await?;
    done(ground, round).await?;
    // Until it has read everything it writes nothing; how long that takes is told apart.
    let seconds = running.ready_at.elapsed().as_secs_f64();
    let counts = ground.audit.since(mark).await?;
    let each = |requests: u64| requests as f64 / f64::from(round.count);
    let reached = Reached {
        name: (*name).to_owned(),
        count: round.count,
        ready_ms: running.ready_ms,
        per_second: f64::from(round.count) / seconds,
        writes_each: each(counts.writes(&account.user, &["leases"])),
        requests_each: each(counts.requests(&account.user)),
        bare_writes_per_second: 0.0,
        share: 0.0,
        shares: Vec::new(),
        resident_megabytes: running.resident_megabytes()?,
    };
    running.stop().await?;
    Ok(reached)
}

/// Waits until a program lets some seconds pass without a write, renewals of its lease left out.
async fn rest(ground: &Ground, account: &Account) -> anyhow::Result<()> {
    for _ in 0..30 {
        let mark = ground.audit.mark().await?;
        tokio::time::sleep(REST / 2).await;
        if ground.audit.since(mark).await?.writes(&account.user, &["leases"]) == 0 {
            return Ok(());
        }
    }
    bail!("{} does not come to rest", account.user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_controller_and_a_program_that_is_there() {
        let works = [&sample::WORK];
        let (work, path) = peer("sample=/bin/sh", &works).unwrap();
        assert_eq!((work.controller, path.as_path()), ("sample", Path::new("/bin/sh")));
        for wrong in ["sample", "other=/bin/sh", "sample=/bin/none"] {
            let error = peer(wrong, &works).err().unwrap().to_string();
            assert!(error.starts_with(&format!("--peer {wrong}: ")), "{error}");
        }
    }
}

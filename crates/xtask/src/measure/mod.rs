//! `cargo xtask bench`: what the API server takes by itself, what a controller reaches on the same server in the same
//! run, and what the controller costs. Rates of machines differ and drift; their ratios are what can be compared.
//!
//! A controller adds one file, and one entry to [`WORKS`].

mod apart;
mod api_server;
mod bmo_reboot;
mod capm3_reuse;
mod clusterpool_inventory;
mod compare;
mod fleet;
mod host_discovery;
mod machines;
mod own_ironic;
mod plugin;
pub(crate) mod published;
mod remediation;
mod row;
mod sample;
mod split;
mod table;
mod together;
mod watch;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bench::audit::{Audit, Counts};
use bench::cluster_api::{self, objects::Kind};
use bench::control_plane::ControlPlane;
use bench::controller::{Account, Environment, Running};
use bench::crds::{self, Group};
use bench::objects;
use bench::programs::{self, Profile};
use bench::steps::{step, step_async};
use controller_kit::{connection, crd};
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::api::ListParams;
use kube::config::Kubeconfig;
use tokio::sync::OnceCell;

use crate::controllers::{self, PODS};
use own_ironic::OwnIronic;
use row::{Cost, Figures, Idle, Reached, Report, Requests};

/// What is measured, one entry for each controller.
const WORKS: &[Work] = &[
    // The smallest one, which is nothing but the kit: what every other has to pay at least.
    Work { controller: "minimal", is_example: true, megabytes: 12.0, ..Work::SMALL },
    // It lists and reads before each write, for the sake of an example: there is no share that it has to reach.
    Work { controller: "sample", figures: Some(|it| Box::pin(sample::work(it))), ..Work::SMALL },
    // Ironic with its database is slower than the API server, so there is no share of that to reach.
    Work {
        controller: "bmo-reboot",
        crds: &[Group::Metal3],
        figures: Some(|it| Box::pin(bmo_reboot::work(it))),
        ..Work::SMALL
    },
    Work {
        controller: "capm3-reuse",
        also: &["--example=selection"],
        crds: &[Group::Metal3, Group::Capm3],
        share: 0.8,
        figures: Some(|it| Box::pin(capm3_reuse::work(it))),
        ..Work::SMALL
    },
    Work {
        controller: "clusterpool-inventory",
        crds: &[Group::Hive],
        share: 0.8,
        figures: Some(|it| Box::pin(clusterpool_inventory::work(it))),
        ..Work::SMALL
    },
    // What it takes to read the machines from Ironic is told apart from what it takes to make hosts of them.
    Work {
        controller: "host-discovery",
        crds: &[Group::Metal3],
        takes_peers: false,
        environment: host_discovery::ENVIRONMENT,
        figures: Some(|it| Box::pin(host_discovery::work(it))),
        ..Work::SMALL
    },
    // What it reaches is compared with bare requests among its own figures: most of its writes can wait, and do.
    Work {
        controller: "remediation",
        crds: &[Group::Metal3, Group::Capm3],
        takes_peers: false,
        figures: Some(|it| Box::pin(remediation::work(it))),
        ..Work::SMALL
    },
];

/// How often a start is measured.
const STARTS: usize = 5;
/// How long a controller that has nothing to do is watched.
const REST: Duration = Duration::from_secs(10);
/// Requests at a time: the controllers' own default.
const AT_ONCE: usize = 32;
/// For whatever a program is waited for; only a failure takes so long.
const PATIENCE: Duration = Duration::from_secs(1800);

// What is asked for on the command line. A comment for readers of the documentation would be printed as help.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only controllers whose name contains this.
    #[arg(default_value = "")]
    controller: String,
    /// Writes the figures to this file as well.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Puts another program to a controller's work: `<controller>=<path>`. It is told by its environment where the
    /// API server is (`KUBECONFIG`), where to serve /readyz (`FERRITE_LISTEN`) and in which namespace to keep a
    /// lease (`FERRITE_LEASE_NAMESPACE`); a script of two lines can turn that into flags.
    #[arg(long = "peer", value_name = "CONTROLLER=PATH")]
    peers: Vec<String>,
    /// How many hosts a large installation has. Making them is most of the time that this takes.
    #[arg(long, default_value = "10000")]
    hosts: u32,
    /// Measures the programs in this folder as they are, instead of building them: those of a release, or of a quick
    /// look at the bench itself.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// Keeps the other four running on the same API server while one is measured, and measures all five at rest on
    /// the machines and clusters that were made. The name says which are measured beside that.
    #[arg(long, conflicts_with = "peers")]
    together: bool,
    /// Measures instead what an installation needs whose hosts are split over so many instances: start and memory of
    /// the controllers that read hosts, and what API server and Ironic need.
    #[arg(long, value_name = "PARTS", conflicts_with_all = ["peers", "together"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    split: Option<u32>,
    /// Measures nothing: shows the figures of two earlier runs side by side, and marks those that are worse in the second by
    /// more than a tenth.
    #[arg(long, num_args = 2, value_names = ["FILE", "FILE"], exclusive = true)]
    compare: Vec<PathBuf>,
    /// How many network interfaces each of these hosts has, and three disks for each four of them: that is most of what
    /// is stored of a host.
    #[arg(long, default_value = "48", requires = "split")]
    nics: u32,
}

/// Puts a program to its work.
type AtWork = for<'a> fn(Trial<'a>) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// A program at its work, and where its figures go.
struct Trial<'a> {
    ground: &'a Ground,
    program: &'a Program<'a>,
    figures: Figures<'a>,
}

/// What is measured of one controller.
struct Work {
    controller: &'static str,
    /// It is an example of the kit, without a chart: it runs as admin.
    is_example: bool,
    /// What is built beside its program.
    also: &'static [&'static str],
    /// The foreign kinds that it needs.
    crds: &'static [Group],
    /// What it is told beside what all are told.
    environment: &'static [(&'static str, &'static str)],
    /// Whether others have a program that does the same.
    takes_peers: bool,
    /// What its program may have, on the disk and idle in memory.
    megabytes: f64,
    /// Share of what the API server takes that it has to reach, where it makes many objects.
    share: f64,
    /// What it reaches, and what nobody else is asked for.
    figures: Option<AtWork>,
}

impl Work {
    /// One of which nothing is asked but that it is small.
    const SMALL: Self = Self {
        controller: "",
        is_example: false,
        also: &[],
        crds: &[],
        environment: &[],
        takes_peers: true,
        megabytes: 15.0,
        share: 0.0,
        figures: None,
    };

    /// What cargo is told to build.
    fn build(&self) -> Vec<String> {
        let (package, kind) =
            if self.is_example { ("controller-kit", "example") } else { (self.controller, "bin") };
        let own = [format!("--package={package}"), format!("--{kind}={}", self.controller)];
        own.into_iter().chain(self.also.iter().map(|it| (*it).to_owned())).collect()
    }

    /// Its program in the folder of what was built.
    fn program(&self, folder: &Path) -> PathBuf {
        let folder = if self.is_example { folder.join("examples") } else { folder.to_owned() };
        folder.join(self.controller)
    }
}

/// A program that is put to a controller's work.
#[derive(Clone)]
struct Program<'a> {
    ground: &'a Ground,
    /// Of its figures, in the report.
    row: usize,
    work: &'a Work,
    path: PathBuf,
    /// It is not the project's own.
    is_peer: bool,
    account: Account,
    environment: Environment,
    ironic: Option<Rc<OwnIronic>>,
}

impl<'a> Program<'a> {
    /// Makes what it needs to be ready.
    async fn on(
        ground: &'a Ground,
        row: usize,
        work: &'a Work,
        path: PathBuf,
        is_peer: bool,
    ) -> anyhow::Result<Self> {
        crds::install(&ground.admin, work.crds).await?;
        if work.crds.contains(&Group::Capm3) {
            cluster_api::install_crds(&ground.admin).await?;
        }
        if let Some(controller) = controllers::find(work.controller) {
            let own = api_types::own_crds().into_iter().filter(|it| it.0 == controller.name);
            crds::create(&ground.admin, &own.map(|it| it.1).collect::<Vec<_>>()).await?;
            let needed = (controller.needed)();
            crd::extend(&ground.admin, &needed, false).await.map_err(anyhow::Error::msg)?;
        }
        if is_peer {
            crds::install_folder(&ground.admin).await?;
        }
        let mut environment: Environment =
            work.environment.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut ironic = None;
        if controllers::speaks_to_ironic(work.controller) {
            let own = OwnIronic::start().await?;
            environment.push(("IRONIC_ENDPOINT", own.proxy.endpoint.clone()));
            ironic = Some(Rc::new(own));
        }
        let account = account(ground, work, is_peer).await?;
        Ok(Self { ground, row, work, path, is_peer, account, environment, ironic })
    }

    /// Another instance, with an account of its own and told something more.
    async fn told(&self, more: Environment) -> anyhow::Result<Self> {
        let account = account(self.ground, self.work, self.is_peer).await?;
        let environment = [self.environment.clone(), more].concat();
        Ok(Self { account, environment, ..self.clone() })
    }

    async fn start(&self) -> anyhow::Result<Running> {
        let name = format!("measured-{}", self.account.namespace);
        Running::start(&name, &self.path, &self.account, &self.environment).await
    }

    /// A client that has its rights, and no connection yet: as its own.
    async fn client(&self) -> anyhow::Result<kube::Client> {
        let config = Kubeconfig::read_from(&self.account.kubeconfig)?;
        Ok(connection::builder(objects::config(config).await?, "measure")?.build())
    }

    fn ironic(&self) -> anyhow::Result<&OwnIronic> {
        self.ironic.as_deref().with_context(|| format!("{} has no Ironic", self.work.controller))
    }

    /// What it wrote, renewals of its lease left out.
    fn writes(&self, counts: &Counts) -> u64 {
        counts.writes(&self.account.user, &["leases"])
    }

    /// The same without what it said in events.
    fn changes(&self, counts: &Counts) -> f64 {
        counts.writes(&self.account.user, &["leases", "events"]) as f64
    }

    /// What it asked for, renewals of the lease left out.
    fn requests(&self, counts: &Counts) -> Requests {
        let asked = counts.of_user(&self.account.user).filter(|it| it.1 != "leases");
        asked.map(|(verb, resource, count)| (format!("{verb} {resource}"), count)).collect()
    }

    /// What it takes while nothing happens.
    fn at_rest(&self, running: &Running, counts: &Counts) -> anyhow::Result<Cost> {
        Ok(Cost {
            ready_ms: running.ready_ms,
            resident_megabytes: running.resident_megabytes()?,
            writes_at_rest: self.writes(counts),
            requests_at_rest: self.requests(counts),
        })
    }

    /// Waits until it lets some seconds pass without a write.
    async fn rest(&self) -> anyhow::Result<()> {
        for _ in 0..30 {
            if self.writes(&self.ground.during(REST / 2).await?) == 0 {
                return Ok(());
            }
        }
        bail!("{} does not come to rest", self.account.user)
    }
}

/// That of its chart; a peer's rights are its own business.
async fn account(ground: &Ground, work: &Work, is_peer: bool) -> anyhow::Result<Account> {
    let namespace = ground.plane.namespace("bench").await;
    if is_peer || work.is_example {
        Account::of_admin(&ground.plane, &namespace)
    } else {
        Account::of_chart(&ground.plane, &namespace, work.controller, serde_json::json!({})).await
    }
}

/// Something that a controller does many times.
trait Operation {
    /// In a few words.
    const NAME: &str;
    /// How often, with bare writes between. What is told is the round in the middle. A peer has one.
    const ROUNDS: usize = 1;

    /// How many such writes a second the server takes when nobody thinks about them, 32 at a time and in a namespace of their
    /// own, from a client with the program's rights that has no connection yet.
    async fn bare(ground: &Ground, client: kube::Client, count: u32) -> anyhow::Result<f64>;

    /// Makes the objects, before the controller is started.
    async fn prepare(ground: &Ground, round: Round) -> anyhow::Result<()>;

    /// Returns when all of this round is done.
    async fn done(ground: &Ground, round: Round) -> anyhow::Result<()>;
}

/// Once at an operation. What was made in the rounds before it is still there, and done.
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
}

impl Ground {
    async fn new(name: &str, hosts: u32) -> anyhow::Result<Self> {
        let plane = step_async("an API server of its own", ControlPlane::start(name)).await?;
        Ok(Self::on(plane, hosts).await)
    }

    async fn on(plane: ControlPlane, hosts: u32) -> Self {
        let admin = plane.admin().await;
        let audit = Audit::new(plane.audit_log(), admin.clone());
        Self { plane, admin, audit, hosts, together: false, fleet: OnceCell::new() }
    }

    /// How many objects of a kind there are.
    async fn count(&self, kind: Kind) -> anyhow::Result<u64> {
        let page = kind.all(&self.admin).list_metadata(&ListParams::default().limit(1)).await?;
        let more = page.metadata.remaining_item_count.unwrap_or_default();
        Ok(page.items.len() as u64 + u64::try_from(more)?)
    }

    /// What was answered in so long a time from now on.
    async fn during(&self, time: Duration) -> anyhow::Result<Counts> {
        let mark = self.audit.mark().await?;
        tokio::time::sleep(time).await;
        self.audit.since(mark).await
    }
}

/// Does this for all of them, as many at a time as a controller does.
async fn each<T, F>(
    items: impl IntoIterator<Item = T>,
    work: impl FnMut(T) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    stream::iter(items).map(work).buffer_unordered(AT_ONCE).try_collect().await
}

/// Measures, prints tables, and writes the figures as JSON. A peer is `controller=path`: a program that is put to that
/// controller's work.
///
/// # Errors
/// When the bench cannot be started, or a controller cannot be measured or exceeds a limit.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if let [before, after] = options.compare.as_slice() {
        return compare::run(before, after);
    }
    let only = options.controller.as_str();
    let reads_hosts = |it: &Work| it.crds.contains(&Group::Metal3);
    let is_wanted = |it: &&Work| match options.split {
        Some(_) => reads_hosts(it) && (it.controller.contains(only) || split::reads_all(it)),
        None if options.together => PODS.contains(&it.controller),
        None => it.controller.contains(only),
    };
    let works: Vec<&Work> = WORKS.iter().filter(is_wanted).collect();
    let is_named = works.iter().any(|it| it.controller.contains(only));
    ensure!(is_named, "no controller's name contains {only:?}");
    let peers = options.peers.iter().map(|text| peer(text, &works));
    let peers = peers.collect::<anyhow::Result<Vec<_>>>()?;
    let folder = releases(&works, options.programs.as_deref())?;
    let mut report = Report::new(options.hosts, row::files(options.json.as_deref())?);
    let measured = tokio::runtime::Runtime::new()?.block_on(async {
        match options.split {
            Some(parts) => split::measure(&works, &folder, options, parts, &mut report).await,
            None if options.together => {
                together::measure(&works, &folder, options, &mut report).await
            }
            None => alone(&works, &folder, &peers, options, &mut report).await,
        }
    });
    for (_, table) in table::of(&report) {
        table.print();
    }
    measured?;
    let wrong = report.wrong(&works);
    ensure!(wrong.is_empty(), "not as it should be:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Where the programs are, after the servers that they need.
fn releases(works: &[&Work], programs: Option<&Path>) -> anyhow::Result<PathBuf> {
    step("the programs", || {
        for name in ["etcd", "kube-apiserver", "helm"] {
            bench::go::program(name)?;
        }
        Ok(())
    })?;
    match programs {
        Some(folder) => Ok(std::path::absolute(folder)?),
        None => step("static release builds (minutes, the first time)", || {
            let builds: Vec<String> = works.iter().flat_map(|it| it.build()).collect();
            programs::build(
                Profile::Release,
                &builds.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        }),
    }
}

fn peer<'a>(text: &str, works: &[&'a Work]) -> anyhow::Result<(&'a Work, PathBuf)> {
    let works = || works.iter().filter(|it| it.takes_peers);
    let wanted = || {
        let names = works().map(|it| it.controller).collect::<Vec<_>>().join(", ");
        format!(
            "--peer {text}: expected <controller>=<path of a program>, the controller one of {names}"
        )
    };
    let (name, path) = text.split_once('=').with_context(wanted)?;
    let work = works().find(|it| it.controller == name).with_context(wanted)?;
    let path = std::path::absolute(path)?;
    ensure!(path.is_file(), "--peer {text}: {} is no file", path.display());
    Ok((work, path))
}

/// Each with a server of its own: what another has made would be its work too.
async fn alone(
    works: &[&Work],
    folder: &Path,
    peers: &[(&Work, PathBuf)],
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<()> {
    let bare =
        async { api_server::measure(&Ground::new("load", options.hosts).await?, report).await };
    let bare = bare.await;
    report.unless_failed("the API server by itself", bare);
    let own = works.iter().map(|it| (*it, it.program(folder), false));
    let peers = peers.iter().map(|it| (it.0, it.1.clone(), true));
    for (work, path, is_peer) in own.chain(peers) {
        let row = report.begin(work.controller, is_peer.then_some(path.as_path()));
        let measured = async {
            let ground = Ground::new("work", options.hosts).await?;
            let program = Program::on(&ground, row, work, path, is_peer).await?;
            at_rest(&program, report).await?;
            at_work(&program, report).await
        };
        let measured = measured.await;
        let name = report.rows[row].name();
        report.unless_failed(&name, measured);
    }
    report.save()
}

/// What it costs when nothing is there.
async fn at_rest(program: &Program<'_>, report: &mut Report) -> anyhow::Result<()> {
    let name = report.rows[program.row].name();
    let what = format!("{name}: starts, memory, {} s at rest", REST.as_secs());
    report.rows[program.row].idle = Some(step_async(&what, idle(program)).await?);
    report.save()
}

/// What it reaches, and what only it is asked for.
async fn at_work(program: &Program<'_>, report: &mut Report) -> anyhow::Result<()> {
    let Some(work) = program.work.figures else { return Ok(()) };
    let what = format!("{}: its work", report.rows[program.row].name());
    let figures = Figures { row: program.row, report };
    step_async(&what, work(Trial { ground: program.ground, program, figures })).await
}

async fn idle(program: &Program<'_>) -> anyhow::Result<Idle> {
    let mut ready = Vec::new();
    for _ in 1..STARTS {
        let running = program.start().await?;
        ready.push(running.ready_ms);
        running.stop().await?;
    }
    let running = program.start().await?;
    ready.push(running.ready_ms);
    ready.sort_by(f64::total_cmp);
    // It takes the lease and looks at everything once.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let counts = program.ground.during(REST).await?;
    let rest = program.at_rest(&running, &counts)?;
    let idle = Idle {
        megabytes: running.program_megabytes()?,
        slowest_ready_ms: ready[ready.len() - 1],
        rest: Cost { ready_ms: ready[ready.len() / 2], ..rest },
    };
    running.stop().await?;
    Ok(idle)
}

impl Trial<'_> {
    /// Measures an operation. The machine is shared with others and has better and worse minutes: each round is compared with
    /// the bare writes right before and right after it.
    async fn operate<O: Operation>(&mut self, count: u32) -> anyhow::Result<()> {
        let Self { ground, program, figures } = self;
        // Beside the others an installation has as many machines as one round makes.
        let rounds = if program.is_peer || ground.together { 1 } else { O::ROUNDS };
        let bare = async || O::bare(ground, program.client().await?, count).await;
        step_async(&format!("{count} {}", O::NAME), async {
            let mut before = bare().await?;
            let mut all = Vec::new();
            for number in 0..rounds {
                let mut reached = once::<O>(program, Round { number, count }).await?;
                let after = bare().await?;
                let bare = f64::midpoint(before, after);
                reached.share = reached.per_second * reached.writes_each / bare;
                reached.bare_writes_per_second = bare;
                before = after;
                all.push(reached);
                figures.reached(&all)?;
            }
            Ok(())
        })
        .await
    }
}

/// One round, not compared with anything yet.
async fn once<O: Operation>(program: &Program<'_>, round: Round) -> anyhow::Result<Reached> {
    let ground = program.ground;
    O::prepare(ground, round).await?;
    let mark = ground.audit.mark().await?;
    let running = program.start().await?;
    O::done(ground, round).await?;
    // Until it has read everything it writes nothing; how long that takes is told apart.
    let seconds = running.ready_at.elapsed().as_secs_f64();
    let counts = ground.audit.since(mark).await?;
    let count = f64::from(round.count);
    let reached = Reached {
        name: O::NAME.to_owned(),
        count: round.count,
        ready_ms: running.ready_ms,
        per_second: count / seconds,
        writes_each: program.writes(&counts) as f64 / count,
        requests_each: counts.requests(&program.account.user) as f64 / count,
        bare_writes_per_second: 0.0,
        share: 0.0,
        shares: Vec::new(),
        resident_megabytes: running.resident_megabytes()?,
    };
    running.stop().await?;
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn work(controller: &str) -> &'static Work {
        WORKS.iter().find(|it| it.controller == controller).unwrap()
    }

    #[test]
    fn a_peer_is_a_controller_and_a_program_that_is_there() {
        let works = [work("sample"), work("host-discovery")];
        let (work, path) = peer("sample=/bin/sh", &works).unwrap();
        assert_eq!((work.controller, path.as_path()), ("sample", Path::new("/bin/sh")));
        for wrong in ["sample", "other=/bin/sh", "host-discovery=/bin/sh", "sample=/bin/none"] {
            let error = peer(wrong, &works).err().unwrap().to_string();
            assert!(error.starts_with(&format!("--peer {wrong}: ")), "{error}");
        }
    }
}

//! Stops a controller before and after each of its writes, and sets a second one beside it at each.
//!
//! Every point is a run of its own in a fresh namespace, with the controller in this process; the
//! invariants are checked after every write of every actor, and each run must still reach its goals.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;

use crate::faults::{self, At, Fault, Handle, Plan};
use crate::observer::{Invariant, Observer, Violation, World};

/// Runs at once: more only makes each wait for the same two cores.
const AT_ONCE: usize = 4;
/// A controller that does nothing for this long after its goal will do nothing more.
const QUIET: Duration = Duration::from_millis(80);

type Acting = dyn Fn(Client, String) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync;
type Running = dyn Fn(Client, String) -> BoxFuture<'static, ()> + Send + Sync;
type Goal = dyn Fn(&World) -> bool + Send + Sync;

/// Where the runs take place: who sets up, and as whom the controller runs.
#[derive(Clone)]
pub struct Ground {
    /// May create namespaces, does what the client does, and observes.
    pub admin: kube::Config,
    /// The controller's account with the rights of its chart.
    pub controller: kube::Config,
}

/// Something that the client does, and what is to come of it.
#[derive(Clone)]
pub struct Phase {
    name: String,
    act: Arc<Acting>,
    goal: Arc<Goal>,
}

impl Phase {
    /// The client's act is given a client and the namespace.
    pub fn new(
        name: impl Into<String>,
        act: impl Fn(Client, String) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync + 'static,
        goal: impl Fn(&World) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), act: Arc::new(act), goal: Arc::new(goal) }
    }
}

/// A controller and a course of events.
#[derive(Clone)]
pub struct Scenario {
    /// The controller's name in reports and, in front, of the namespaces.
    pub name: String,
    /// Namespaced kinds to observe.
    pub kinds: Vec<ApiResource>,
    /// Kinds to observe everywhere: of those, objects whose name or namespace begins with that of the run's namespace.
    pub beyond: Vec<ApiResource>,
    /// In this order, each when the goal of the one before is reached.
    pub phases: Vec<Phase>,
    /// The process: given a client and the namespace, runs until it is dropped.
    pub run: Arc<Running>,
    /// What must hold after every write.
    pub invariants: Vec<Invariant>,
    /// How long a phase may take to reach its goal.
    pub patience: Duration,
}

/// What a sweep found.
pub struct Report {
    /// Which sweep of which controller.
    pub name: String,
    /// Writes of the undisturbed run.
    pub writes: u32,
    /// Points at which a run was disturbed.
    pub points: usize,
    /// Points that a run did not come to, because it needed fewer writes that time.
    pub missed: usize,
    /// How long all of it took.
    pub time: Duration,
    /// What went wrong, in the order of the points.
    pub findings: Vec<Finding>,
}

/// What went wrong at a point.
pub struct Finding {
    /// The point, as a sentence.
    pub point: String,
    /// What went wrong there.
    pub problem: Problem,
}

/// A way to go wrong.
pub enum Problem {
    /// A write broke an invariant.
    Violation(Violation),
    /// A goal was not reached in time.
    Stuck {
        /// The phase.
        phase: String,
        /// All writes up to then.
        timeline: String,
    },
}

impl Report {
    /// Whether nothing went wrong and something was tried.
    pub fn passed(&self) -> bool {
        self.findings.is_empty() && self.points > 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}: {} points ({} writes undisturbed, {} points not met), {:.1} s: ",
            self.name,
            self.points,
            self.writes,
            self.missed,
            self.time.as_secs_f64()
        )?;
        // A broken rule says more than a goal that was missed, which may be for want of time alone.
        let broken = |it: &Finding| matches!(it.problem, Problem::Violation(_));
        let told = self.findings.iter().position(broken).unwrap_or(0);
        let Some(first) = self.findings.get(told) else {
            return writeln!(out, "nothing broken");
        };
        writeln!(out, "{} points went wrong", self.findings.len())?;
        for (_, finding) in self.findings.iter().enumerate().filter(|(at, _)| *at != told) {
            writeln!(out, "also:   {}", finding.point)?;
        }
        writeln!(out, "point:  {}", first.point)?;
        match &first.problem {
            Problem::Violation(violation) => write!(out, "{violation}"),
            Problem::Stuck { phase, timeline } => {
                writeln!(out, "stuck:  {phase} was not reached")?;
                write!(out, "{timeline}")
            }
        }
    }
}

/// What disturbs one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Nothing,
    Crash { write: u32, after: bool },
    Beside,
    Hold { write: u32, until: Until },
}

/// How far the second replica gets while the first is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    ThisGoal,
    LastGoal,
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(out, "undisturbed"),
            Self::Crash { write, after } => {
                let when = if *after { "after" } else { "before" };
                write!(out, "stopped {when} write {write}, a fresh one started")
            }
            Self::Beside => write!(out, "two replicas from the start"),
            Self::Hold { write, until } => {
                let until = match until {
                    Until::ThisGoal => "its next goal",
                    Until::LastGoal => "its last goal",
                };
                write!(out, "replica-a held at write {write} until replica-b reached {until}")
            }
        }
    }
}

/// Runs the scenario with the process stopped before and after each write.
///
/// # Errors
///
/// If the bench itself fails.
pub async fn crash_sweep(ground: &Ground, scenario: &Scenario) -> anyhow::Result<Report> {
    let points = |write: u32| [false, true].map(|after| Point::Crash { write, after }).to_vec();
    sweep("crash sweep", ground, scenario, Vec::new(), points).await
}

/// Runs the scenario with a first replica held at each write while a second does everything.
///
/// # Errors
///
/// If the bench itself fails.
pub async fn two_replica_sweep(ground: &Ground, scenario: &Scenario) -> anyhow::Result<Report> {
    let points = |write: u32| {
        [Until::ThisGoal, Until::LastGoal].map(|until| Point::Hold { write, until }).to_vec()
    };
    let beside = vec![Point::Beside];
    sweep("two-replica sweep", ground, scenario, beside, points).await
}

async fn sweep(
    kind: &str,
    ground: &Ground,
    scenario: &Scenario,
    mut first: Vec<Point>,
    points: impl Fn(u32) -> Vec<Point>,
) -> anyhow::Result<Report> {
    let began = Instant::now();
    let plain = run(ground, scenario, Point::Nothing).await?;
    let mut report = Report {
        name: format!("{kind} of {}", scenario.name),
        writes: plain.writes,
        points: 0,
        missed: 0,
        time: Duration::ZERO,
        findings: Vec::new(),
    };
    if let Some(problem) = plain.problem {
        report.findings.push(Finding { point: Point::Nothing.to_string(), problem });
    }
    // A few more than the undisturbed run needed: chance may make another run need more.
    first.extend((1..=plain.writes + 2).flat_map(points));
    let runs =
        first.into_iter().map(|point| async move { (point, run(ground, scenario, point).await) });
    let mut runs = futures_util::stream::iter(runs).buffered(AT_ONCE);
    while let Some((point, outcome)) = runs.next().await {
        let outcome = outcome.with_context(|| format!("at the point: {point}"))?;
        let within = match point {
            Point::Crash { write, .. } | Point::Hold { write, .. } => write <= plain.writes,
            Point::Nothing | Point::Beside => true,
        };
        if outcome.met {
            report.points += 1;
        } else if within {
            report.missed += 1;
        }
        if let Some(problem) = outcome.problem {
            report.findings.push(Finding { point: point.to_string(), problem });
        }
    }
    report.time = began.elapsed();
    Ok(report)
}

struct Outcome {
    met: bool,
    writes: u32,
    problem: Option<Problem>,
}

struct Process {
    handle: Handle,
    task: JoinHandle<()>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One run's parts; processes stay in the list after their end, for the history.
struct Stage<'a> {
    scenario: &'a Scenario,
    controller: &'a kube::Config,
    namespace: String,
    client: Client,
    observer: Observer,
    handles: Vec<Handle>,
}

impl Stage<'_> {
    fn process(&mut self, plan: Plan) -> anyhow::Result<Process> {
        let (client, handle) = faults::client(self.controller.clone(), plan)?;
        self.handles.push(handle.clone());
        let task = tokio::spawn((self.scenario.run)(client, self.namespace.clone()));
        Ok(Process { handle, task })
    }

    /// Lets the client act and waits for each goal; gives the name of the phase that got stuck.
    async fn play(
        client: Client,
        namespace: &str,
        scenario: &Scenario,
        observer: &Observer,
        reached: impl Fn(),
    ) -> anyhow::Result<Option<String>> {
        for phase in &scenario.phases {
            (phase.act)(client.clone(), namespace.to_owned())
                .await
                .with_context(|| format!("the client: {}", phase.name))?;
            let goal = |world: &World| (phase.goal)(world);
            if !observer.reaches(goal, scenario.patience).await? {
                return Ok(Some(phase.name.clone()));
            }
            reached();
        }
        Ok(None)
    }

    /// The last goal once more, and then rest.
    async fn settle(&self) -> anyhow::Result<Option<String>> {
        let patience = self.scenario.patience;
        self.observer.quiet(QUIET, patience).await;
        let Some(last) = self.scenario.phases.last() else {
            bail!("{} has no phase: nothing to run for", self.scenario.name);
        };
        let goal = |world: &World| (last.goal)(world);
        let reached = self.observer.reaches(goal, patience).await?;
        Ok((!reached).then(|| last.name.clone()))
    }
}

async fn run(ground: &Ground, scenario: &Scenario, point: Point) -> anyhow::Result<Outcome> {
    let (client, by_client) = faults::client(ground.admin.clone(), Plan::none("client"))?;
    let namespace = fresh_namespace(&client, &scenario.name).await?;
    let (kinds, beyond) = (&scenario.kinds, &scenario.beyond);
    let observer = Observer::start_beyond(&client, Some(&namespace), kinds, beyond).await?;
    let mut stage = Stage {
        scenario,
        controller: &ground.controller,
        namespace,
        client,
        observer,
        handles: vec![by_client],
    };
    let name = &scenario.name;
    let (met, writes, stuck) = match point {
        Point::Nothing => alone(&mut stage, Plan::none(name)).await?,
        Point::Crash { write, after } => {
            let fault = if after { Fault::CrashAfter } else { Fault::CrashBefore };
            alone(&mut stage, Plan::one(name, At::Write(write), fault)).await?
        }
        Point::Beside => beside(&mut stage, Plan::none("replica-a"), Until::LastGoal).await?,
        Point::Hold { write, until } => {
            let plan = Plan::one("replica-a", At::Write(write), Fault::Hold);
            beside(&mut stage, plan, until).await?
        }
    };
    let history = stage.observer.history(&stage.handles).await?;
    let violation = history.check(&scenario.invariants).map(Problem::Violation);
    let stuck = stuck.map(|phase| Problem::Stuck { phase, timeline: history.timeline(None) });
    Ok(Outcome { met, writes, problem: violation.or(stuck) })
}

/// One process, and a fresh one in its place if it crashes.
async fn alone(stage: &mut Stage<'_>, plan: Plan) -> anyhow::Result<(bool, u32, Option<String>)> {
    let process = stage.process(plan)?;
    let handle = process.handle.clone();
    let (fresh, by_fresh) = faults::client(
        stage.controller.clone(),
        Plan::none(format!("{} restarted", handle.actor())),
    )?;
    stage.handles.push(by_fresh);
    let start = (stage.scenario.run)(fresh, stage.namespace.clone());
    let crash = async {
        handle.crashed().await;
        process.task.abort();
        start.await;
    };
    let course = async {
        let (client, namespace) = (stage.client.clone(), &stage.namespace);
        let stuck = Stage::play(client, namespace, stage.scenario, &stage.observer, || ()).await?;
        match stuck {
            None => stage.settle().await,
            stuck => Ok(stuck),
        }
    };
    let stuck = tokio::select! {
        stuck = course => stuck?,
        () = crash => bail!("the fresh process ended by itself"),
    };
    let met = handle.fired();
    if !met && process.task.is_finished() {
        bail!("the process ended by itself");
    }
    Ok((met, handle.writes(), stuck))
}

/// Two processes; the second comes when the first is held, or at once when nothing is planned.
async fn beside(
    stage: &mut Stage<'_>,
    plan: Plan,
    until: Until,
) -> anyhow::Result<(bool, u32, Option<String>)> {
    let holds = plan.is_disturbing();
    let first = stage.process(plan)?;
    let handle = first.handle.clone();
    let (second, by_second) = faults::client(stage.controller.clone(), Plan::none("replica-b"))?;
    stage.handles.push(by_second);
    let start = (stage.scenario.run)(second, stage.namespace.clone());
    let second = async {
        if holds {
            handle.held().await;
        }
        start.await;
    };
    let course = async {
        let (client, namespace) = (stage.client.clone(), &stage.namespace);
        let reached = || {
            if until == Until::ThisGoal && handle.fired() {
                handle.release();
            }
        };
        let (scenario, observer) = (stage.scenario, &stage.observer);
        let stuck = Stage::play(client, namespace, scenario, observer, reached).await?;
        if stuck.is_some() {
            return Ok(stuck);
        }
        if handle.fired() {
            handle.release();
            handle.answered().await;
        }
        stage.settle().await
    };
    let stuck = tokio::select! {
        stuck = course => stuck?,
        () = second => bail!("replica-b ended by itself"),
    };
    if first.task.is_finished() {
        bail!("replica-a ended by itself");
    }
    Ok((handle.fired() || !holds, handle.writes(), stuck))
}

async fn fresh_namespace(client: &Client, name: &str) -> anyhow::Result<String> {
    let namespace = Namespace {
        metadata: ObjectMeta { generate_name: Some(format!("{name}-")), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let api: Api<Namespace> = Api::all(client.clone());
    let made = api.create(&PostParams::default(), &namespace).await;
    Ok(made.context("make a namespace for a run")?.name_any())
}

//! The controller's own metrics; the kit counts reconciles, requests and the rest. Names of objects are never labels.

use api_types::metal3::DiscoveryCounts;
use controller_kit::engine::Reason as _;
use controller_kit::metrics::register;
use k8s_openapi::jiff::Timestamp;
use prometheus::{
    Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::model::Strays;
use crate::reason::{Reason, Sort};

/// From an answer out of memory to a list of many thousand nodes on a busy machine.
const SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

const SORTS: [&str; 6] =
    ["known", "pending", "failed", "conflicting", "unselected", "undiscovered"];
const KINDS: [&str; 2] = ["new", "all"];

/// Counters and gauges of this controller; clones share them.
#[derive(Clone)]
pub struct Metrics {
    /// Hosts that were made.
    pub(crate) created: IntCounter,
    /// Attempts that made no host.
    pub(crate) refused: IntCounter,
    /// Nodes whose driver was set.
    pub(crate) adopted: IntCounter,
    /// Machines that are not looked at because too many wait before them.
    pub(crate) left_out: IntGauge,
    /// Whether Ironic answers.
    pub(crate) ironic_reachable: IntGauge,
    /// Machines by what became of them.
    machines: IntGaugeVec,
    /// Machines that failed or were held back by other hosts, by reason.
    failed: IntCounterVec,
    /// How long questions for nodes took, by what was asked for.
    polls: HistogramVec,
    /// Failures of Ironic by class.
    ironic_errors: IntCounterVec,
    /// When Ironic was last asked for new nodes and answered.
    last_poll: Gauge,
}

impl Metrics {
    /// Registers them, with every series from the start: a rate over one that appears late misses its first step.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let named =
            |name: &str, help: &str| Opts::new(format!("ferrite_host_discovery_{name}"), help);
        let counter = |opts: Opts| register(registry, IntCounter::with_opts(opts)?);
        let counters =
            |opts: Opts, label: &str| register(registry, IntCounterVec::new(opts, &[label])?);
        let gauge = |opts: Opts| register(registry, IntGauge::with_opts(opts)?);
        let refused = "Attempts to make a host that the API server refused or could not answer";
        let adopted = "Nodes that were given the driver of their host's BMC";
        let left_out = "Machines that are not looked at because too many wait before them";
        let reachable = "1 while Ironic answers and takes our credentials";
        let machines = named("machines", "Machines that Ironic shows, by what became of them");
        let failed = "Machines that were listed as failed or conflicting, by reason";
        let polls = "Time of a question for nodes, by what was asked for: new ones or all";
        let polls = HistogramOpts::from(named("poll_seconds", polls)).buckets(SECONDS.to_vec());
        let errors = "Questions that Ironic did not answer, by class";
        let last_poll = "When Ironic last answered the question for new nodes";
        let last_poll = Gauge::with_opts(named("last_poll_timestamp_seconds", last_poll))?;
        let metrics = Self {
            created: counter(named("hosts_created_total", "Hosts that were made"))?,
            refused: counter(named("hosts_refused_total", refused))?,
            adopted: counter(named("drivers_adopted_total", adopted))?,
            left_out: gauge(named("machines_left_out", left_out))?,
            ironic_reachable: gauge(named("ironic_reachable", reachable))?,
            machines: register(registry, IntGaugeVec::new(machines, &["sort"])?)?,
            failed: counters(named("machines_failed_total", failed), "reason")?,
            polls: register(registry, HistogramVec::new(polls, &["nodes"])?)?,
            ironic_errors: counters(named("ironic_errors_total", errors), "class")?,
            last_poll: register(registry, last_poll)?,
        };
        metrics.show(0, Strays::default(), &[]);
        let is_failure = |it: &&Reason| matches!(it.sort(), Sort::Failed | Sort::Conflicting);
        for reason in Reason::ALL.iter().filter(is_failure) {
            metrics.failed.with_label_values(&[reason.as_str()]);
        }
        for kind in KINDS {
            metrics.polls.with_label_values(&[kind]);
        }
        for class in ironic::Class::ALL {
            metrics.ironic_errors.with_label_values(&[class.as_str()]);
        }
        Ok(metrics)
    }

    /// A machine was listed as failed or conflicting for this reason.
    pub fn failed(&self, reason: &str) {
        self.failed.with_label_values(&[reason]).inc();
    }

    /// Ironic did not answer a question.
    pub fn ironic_failed(&self, error: &ironic::Error) {
        self.ironic_errors.with_label_values(&[error.class().as_str()]).inc();
    }

    /// Shows what is counted of all resources together.
    pub fn show(&self, known: u32, strays: Strays, of_resources: &[DiscoveryCounts]) {
        let sum = |part: fn(&DiscoveryCounts) -> i32| {
            of_resources.iter().map(|it| i64::from(part(it))).sum()
        };
        let values = [
            i64::from(known),
            sum(|it| it.pending),
            sum(|it| it.failed),
            sum(|it| it.conflicting),
            i64::from(strays.unselected),
            i64::from(strays.undiscovered),
        ];
        for (sort, value) in SORTS.iter().zip(values) {
            self.machines.with_label_values(&[sort]).set(value);
        }
    }

    /// Ironic answered the question for nodes.
    pub fn polled(&self, all: bool, seconds: f64) {
        let kind = KINDS[usize::from(all)];
        self.polls.with_label_values(&[kind]).observe(seconds);
        self.last_poll.set(Timestamp::now().as_duration().as_secs_f64());
    }
}

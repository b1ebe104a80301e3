//! The controller's own metrics; the kit counts reconciles, requests and the rest. Names of objects are never labels.

use api_types::metal3::DiscoveryCounts;
use k8s_openapi::jiff::Timestamp;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::model::Strays;

/// From an answer out of memory to a list of many thousand nodes on a busy machine.
const SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

const SORTS: [&str; 6] =
    ["known", "pending", "failed", "conflicting", "unselected", "undiscovered"];
const KINDS: [&str; 2] = ["new", "all"];

/// Counters and gauges of this controller; clones share them.
#[derive(Clone)]
pub struct Metrics {
    /// Hosts that were made.
    created: IntCounter,
    /// Attempts that made no host.
    refused: IntCounter,
    /// Machines by what became of them.
    machines: IntGaugeVec,
    /// Machines that are not looked at because too many wait before them.
    left_out: IntGauge,
    /// How long questions for nodes took, by what was asked for.
    polls: Vec<Histogram>,
    /// Failures of Ironic by class.
    ironic_errors: IntCounterVec,
    /// Whether Ironic answers.
    ironic_reachable: IntGauge,
    /// When Ironic was last asked for new nodes and answered.
    last_poll: Gauge,
    /// Nodes whose driver was set.
    adopted: IntCounter,
}

impl Metrics {
    /// Registers them, with every series from the start: a rate over one that appears late misses its first step.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| {
            let metric = IntCounter::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let machines = IntGaugeVec::new(
            Opts::new(
                "ferrite_host_discovery_machines",
                "Machines that Ironic shows, by what became of them",
            ),
            &["sort"],
        )?;
        for sort in SORTS {
            machines.with_label_values(&[sort]);
        }
        registry.register(Box::new(machines.clone()))?;
        let ironic_errors = IntCounterVec::new(
            Opts::new(
                "ferrite_host_discovery_ironic_errors_total",
                "Questions that Ironic did not answer, by class",
            ),
            &["class"],
        )?;
        for class in ironic::Class::ALL {
            ironic_errors.with_label_values(&[class.as_str()]);
        }
        registry.register(Box::new(ironic_errors.clone()))?;
        let last_poll = Gauge::new(
            "ferrite_host_discovery_last_poll_timestamp_seconds",
            "When Ironic last answered the question for new nodes",
        )?;
        registry.register(Box::new(last_poll.clone()))?;
        let mut polls = Vec::new();
        let seconds = prometheus::HistogramVec::new(
            HistogramOpts::new(
                "ferrite_host_discovery_poll_seconds",
                "Time of a question for nodes, by what was asked for: new ones or all",
            )
            .buckets(SECONDS.to_vec()),
            &["nodes"],
        )?;
        for kind in KINDS {
            polls.push(seconds.with_label_values(&[kind]));
        }
        registry.register(Box::new(seconds))?;
        Ok(Self {
            created: counter("ferrite_host_discovery_hosts_created_total", "Hosts that were made")?,
            refused: counter(
                "ferrite_host_discovery_hosts_refused_total",
                "Attempts to make a host that the API server refused or could not answer",
            )?,
            machines,
            left_out: gauge(
                "ferrite_host_discovery_machines_left_out",
                "Machines that are not looked at because too many wait before them",
            )?,
            polls,
            ironic_errors,
            ironic_reachable: gauge(
                "ferrite_host_discovery_ironic_reachable",
                "1 while Ironic answers and takes our credentials",
            )?,
            last_poll,
            adopted: counter(
                "ferrite_host_discovery_drivers_adopted_total",
                "Nodes that were given the driver of their host's BMC",
            )?,
        })
    }

    /// A host was made.
    pub fn created(&self) {
        self.created.inc();
    }

    /// The API server refused a host, or could not answer.
    pub fn refused(&self) {
        self.refused.inc();
    }

    /// A node was given the driver of its host's BMC.
    pub fn adopted(&self) {
        self.adopted.inc();
    }

    /// So many machines are not looked at.
    pub fn left_out(&self, machines: usize) {
        self.left_out.set(i64::try_from(machines).unwrap_or(i64::MAX));
    }

    /// Ironic did not answer a question.
    pub fn ironic_failed(&self, class: ironic::Class) {
        self.ironic_errors.with_label_values(&[class.as_str()]).inc();
    }

    /// Ironic answers, or does not.
    pub fn ironic_answers(&self, answers: bool) {
        self.ironic_reachable.set(i64::from(answers));
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
        if let Some(histogram) = self.polls.get(usize::from(all)) {
            histogram.observe(seconds);
        }
        self.last_poll.set(Timestamp::now().as_duration().as_secs_f64());
    }
}

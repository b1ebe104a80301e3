//! The controller's own metrics; the kit counts reconciles, requests and the rest. Names of objects are never labels.

use api_types::remediation::Phase;
use api_types::time::until;
use controller_kit::engine::Reason as _;
use controller_kit::metrics::register;
use k8s_openapi::jiff::Timestamp;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

use crate::decision::{Act, Decision, Note};
use crate::model::Observed;
use crate::reason::Reason;
use crate::request::Request;
use crate::settings::Policy;

/// From a machine that is reset at once to one that is waited for until the next day.
const SECONDS: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 86400.0,
];
const PHASES: [&str; 5] = ["none", "running", "waiting", "deleting machine", "failed"];
/// How a try can fail.
const FAILURES: [Reason; 4] = [
    Reason::PowerOffTimedOut,
    Reason::PowerOnTimedOut,
    Reason::NotRecovered,
    Reason::StillUnhealthy,
];
/// How a remediation can end.
const RESULTS: [(Reason, &str); 3] = [
    (Reason::Recovered, "recovered"),
    (Reason::Exhausted, "exhausted"),
    (Reason::Withdrawn, "withdrawn"),
];

/// Counters and gauges of this controller; clones share them.
#[derive(Clone)]
pub struct Metrics {
    tries: IntCounterVec,
    results: IntCounterVec,
    seconds: HistogramVec,
    off: Histogram,
    on: Histogram,
    conflicts: IntCounter,
    orphans: IntCounter,
    requests: IntGaugeVec,
    oldest: Gauge,
    clusters: IntGauge,
    unreachable: IntGauge,
}

impl Metrics {
    /// Registers them, with every series from the start: a rate over one that appears late misses its first step.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts =
            |name: &str, help: &str| HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        let histogram =
            |name: &str, help: &str| register(registry, Histogram::with_opts(opts(name, help))?);
        let counters = |name: &str, help: &str| {
            register(registry, IntCounterVec::new(Opts::new(name, help), &["result"])?)
        };
        let counter = |name: &str, help: &str| register(registry, IntCounter::new(name, help)?);
        let gauge = |name: &str, help: &str| register(registry, IntGauge::new(name, help)?);
        let seconds = opts(
            "ferrite_remediation_duration_seconds",
            "Time from the first request to the host to the end of a remediation",
        );
        let requests = Opts::new("ferrite_remediation_requests", "Requests by phase");
        let oldest = Gauge::new(
            "ferrite_remediation_oldest_try_seconds",
            "Age of the oldest try that is under way, 0 without any",
        );
        let metrics = Self {
            tries: counters(
                "ferrite_remediation_tries_total",
                "Tries that ended, by how they ended",
            )?,
            results: counters(
                "ferrite_remediation_remediations_total",
                "Remediations that ended, by how they ended",
            )?,
            seconds: register(registry, HistogramVec::new(seconds, &["result"])?)?,
            off: histogram(
                "ferrite_remediation_power_off_seconds",
                "Time from the request to the host until it was off and its node fenced",
            )?,
            on: histogram(
                "ferrite_remediation_power_on_seconds",
                "Time from the release of the host until it was on",
            )?,
            conflicts: counter(
                "ferrite_remediation_conflicts_total",
                "Passes that began anew because somebody else wrote first",
            )?,
            orphans: counter(
                "ferrite_remediation_orphans_released_total",
                "Hosts that were held by a request which was gone, and were released",
            )?,
            requests: register(registry, IntGaugeVec::new(requests, &["phase"])?)?,
            oldest: register(registry, oldest?)?,
            clusters: gauge(
                "ferrite_remediation_workload_clients",
                "Workload clusters that a client is open for",
            )?,
            unreachable: gauge(
                "ferrite_remediation_workload_unreachable",
                "Workload clusters that did not answer when they were last asked",
            )?,
        };
        for result in FAILURES.into_iter().chain([Reason::Recovered, Reason::Exhausted]) {
            metrics.tries.with_label_values(&[result.as_str()]);
        }
        for (_, result) in RESULTS {
            metrics.results.with_label_values(&[result]);
            metrics.seconds.with_label_values(&[result]);
        }
        metrics.shown(&[0; 5], 0.0, (0, 0));
        Ok(metrics)
    }

    /// Somebody else wrote first.
    pub(crate) fn superseded(&self) {
        self.conflicts.inc();
    }

    /// A decision was carried out.
    pub(crate) fn done(&self, seen: &Observed, decision: &Decision, now: Timestamp) {
        let uid = &seen.request.uid;
        let history = seen.host.as_ref().map(|it| &it.history);
        let open = history.and_then(|it| it.open(uid));
        // A host that was never seen off is let go of as well.
        let released = |act: &Act| {
            let Act::Host(write) = act else { return false };
            let open = write.history.as_ref().and_then(|it| it.open(uid));
            write.key == Some(false) && open.is_some_and(|it| it.off.is_some())
        };
        if decision.acts.iter().any(released)
            && let Some(entry) = open.filter(|it| it.released.is_none())
        {
            self.off.observe(seconds(entry.asked, now));
        }
        // What is said of the node later on has nothing to do with that.
        if decision.reason == Reason::Recovering
            && seen.request.standing.awaits_node().is_none()
            && !decision.acts.is_empty()
            && let Some(at) = open.and_then(|it| it.released)
        {
            self.on.observe(seconds(at, now));
        }
        let failed = decision.notes.iter().map(|it| it.reason).find(|it| FAILURES.contains(it));
        // The last try ends with its machine. One that was given up for another request was not tried for this one.
        let is_last = |it: &Note| it.warning && it.reason == Reason::Exhausted;
        let tried = history.is_some_and(|it| it.last(uid).is_some());
        let ended = match decision.reason {
            Reason::Recovered if open.is_some() => Some(Reason::Recovered),
            Reason::Exhausted if tried && decision.notes.iter().any(is_last) => {
                Some(Reason::Exhausted)
            }
            _ => None,
        };
        if let Some(reason) = failed.or(ended) {
            self.tries.with_label_values(&[reason.as_str()]).inc();
        }
        let first = history.and_then(|it| it.0.iter().find(|it| it.remediation == *uid));
        for (reason, result) in RESULTS {
            let told = decision.notes.iter().any(|it| it.reason == reason);
            if decision.reason == reason && told {
                self.results.with_label_values(&[result]).inc();
                if let Some(first) = first {
                    self.seconds.with_label_values(&[result]).observe(seconds(first.asked, now));
                }
            }
        }
    }

    /// A host whose request was gone was released.
    pub(crate) fn released(&self) {
        self.orphans.inc();
    }

    /// How many there are just now: requests by phase, the age of the oldest try, clients of workload clusters.
    pub(crate) fn shown(&self, phases: &[i64; 5], oldest: f64, clusters: (usize, usize)) {
        for (phase, count) in PHASES.iter().zip(phases) {
            self.requests.with_label_values(&[phase]).set(*count);
        }
        self.oldest.set(oldest);
        self.clusters.set(i64::try_from(clusters.0).unwrap_or(i64::MAX));
        self.unreachable.set(i64::try_from(clusters.1).unwrap_or(i64::MAX));
    }
}

/// How many requests are in each phase, and the age of the oldest try that is under way. What only the watch filter of another
/// installation selects is shown there: here nobody can do anything about it.
pub(crate) fn tally(
    requests: impl Iterator<Item = Request>,
    policy: &Policy,
    now: Timestamp,
) -> ([i64; 5], f64) {
    let (mut phases, mut oldest) = ([0; 5], 0.0_f64);
    for Request { standing, .. } in requests.filter(|it| policy.selects(it)) {
        let phase = standing.phase.as_ref().map_or("none", Phase::as_str);
        phases[PHASES.iter().position(|it| *it == phase).unwrap_or(0)] += 1;
        if standing.is_under_way() {
            oldest = oldest.max(standing.last.map_or(0.0, |last| seconds(last, now)));
        }
    }
    (phases, oldest)
}

/// Seconds that passed; none if the clock went back.
pub(crate) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    until(from, to).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api_types::capm3::UpstreamRemediation;
    use api_types::names::capi::WATCH_FILTER;
    use api_types::remediation::{
        Metal3Remediation, Metal3RemediationSpec, Metal3RemediationStatus, Step,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn requests_of_an_installation_with_another_watch_filter_are_shown_there() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let labels = |filter: &str| Some([(WATCH_FILTER.to_owned(), filter.to_owned())].into());
        let under_way = |filter: &str, since| {
            let mut object = Metal3Remediation::new("m", Metal3RemediationSpec::default());
            object.metadata.labels = labels(filter);
            object.status = Some(Metal3RemediationStatus {
                phase: Some(Phase::Running),
                step: Some(Step::PowerOff),
                last_remediated: Some(Time(at(since))),
                ..Metal3RemediationStatus::default()
            });
            Request::of_ours(&object)
        };
        let mut of_capm3 = UpstreamRemediation::default();
        of_capm3.metadata.labels = labels("b");
        let of_capm3 = Request::of_upstream(&of_capm3);
        let all = [under_way("a", 90), under_way("b", 10), of_capm3];
        let shown = |filter: Option<&str>| {
            let policy = Policy { watch_filter: filter.map(str::to_owned), ..Policy::default() };
            let (phases, oldest) = tally(all.iter().cloned(), &policy, at(100));
            (phases, Duration::from_secs_f64(oldest).as_secs())
        };
        assert_eq!(shown(Some("a")), ([0, 1, 0, 0, 0], 10));
        assert_eq!(shown(Some("b")), ([1, 1, 0, 0, 0], 90));
        assert_eq!(shown(None), ([1, 2, 0, 0, 0], 90));
    }
}

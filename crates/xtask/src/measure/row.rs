//! What was measured, kept in a file from the first figure on, and what must not be exceeded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use bench::load::{self, Rate};
use bench::programs;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Work;

/// What each may have in memory in a large installation.
pub(super) const CACHED_MEGABYTES: f64 = 64.0;
/// How long a start may take while nothing is there.
const READY_MS: f64 = 300.0;

/// What was asked for, and how often: verb and resource.
pub(super) type Requests = BTreeMap<String, u64>;

/// All that was measured so far. Written after each figure: a run of hours that breaks off keeps what it has measured.
#[derive(Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) begun: Timestamp,
    /// How large a large installation is.
    pub(super) hosts: u32,
    pub(super) api_server: Vec<Rate>,
    #[serde(rename = "controllers")]
    pub(super) rows: Vec<Row>,
    /// What was not measured, and why.
    pub(super) failed: Vec<String>,
    #[serde(skip)]
    files: Vec<PathBuf>,
}

impl Report {
    /// One that begins now, to be kept in these files.
    pub(super) fn new(hosts: u32, files: Vec<PathBuf>) -> Self {
        let (begun, api_server) = (Timestamp::now(), Vec::new());
        Self { begun, hosts, api_server, rows: Vec::new(), failed: Vec::new(), files }
    }

    /// A run of earlier.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let read = || anyhow::Ok(serde_json::from_slice(&std::fs::read(file)?)?);
        read().with_context(|| file.display().to_string())
    }

    pub(super) fn save(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        for file in &self.files {
            std::fs::write(file, &text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    /// Begins the row of a program. Gives its number.
    pub(super) fn begin(&mut self, name: &str, peer: Option<&Path>) -> usize {
        self.rows.push(Row {
            controller: name.to_owned(),
            peer: peer.map(Path::to_owned),
            ..Row::default()
        });
        self.rows.len() - 1
    }

    /// What was measured, unless that failed, which is noted: the next one is measured all the same.
    pub(super) fn unless_failed<T>(
        &mut self,
        what: &str,
        measured: anyhow::Result<T>,
    ) -> Option<T> {
        let noted = measured.inspect_err(|error| {
            eprintln!("{what} cannot be measured: {error:#}");
            self.failed.push(format!("{what}: not measured: {error:#}"));
        });
        noted.ok()
    }

    /// One line for each thing that was not measured, and for each limit that one of our own does not keep.
    pub(super) fn wrong(&self, works: &[&Work]) -> Vec<String> {
        self.failed.iter().cloned().chain(exceeded(works, &self.rows)).collect()
    }
}

/// A new file in the target folder, named by the time, and the one that was asked for.
pub(super) fn files(json: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let folder = programs::target_folder()?.join("bench");
    std::fs::create_dir_all(&folder)?;
    let name = Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ.json").to_string();
    let file = folder.join(name);
    eprintln!("figures go to {}", file.display());
    Ok(json.map(Path::to_owned).into_iter().chain([file]).collect())
}

/// The figures of one program, each written as soon as it is there.
pub(super) struct Figures<'a> {
    pub(super) report: &'a mut Report,
    pub(super) row: usize,
}

impl Figures<'_> {
    /// A figure without a limit.
    pub(super) fn add(&mut self, what: impl Into<String>, value: f64) -> anyhow::Result<()> {
        self.push(Figure { what: what.into(), value, at_most: None })
    }

    /// A figure with a limit.
    pub(super) fn limited(
        &mut self,
        what: impl Into<String>,
        value: f64,
        at_most: f64,
    ) -> anyhow::Result<()> {
        self.push(Figure { what: what.into(), value, at_most: Some(at_most) })
    }

    /// Milliseconds that half of the times stayed within, and 99 of 100, which is the one with a limit, and is given back.
    pub(super) fn percentiles(
        &mut self,
        what: &str,
        mut took: Vec<Duration>,
        at_most: Option<f64>,
    ) -> anyhow::Result<f64> {
        took.sort_unstable();
        let [half, most] = [50, 99].map(|percent| load::millis(load::quantile(&took, percent)));
        self.push(Figure { what: format!("{what}, p50"), value: half, at_most: None })?;
        self.push(Figure { what: format!("{what}, p99"), value: most, at_most })?;
        Ok(most)
    }

    /// The rounds of an operation so far: the one in the middle is told. With each round there is more to remember, so the
    /// memory is that of the first.
    pub(super) fn reached(&mut self, rounds: &[Reached]) -> anyhow::Result<()> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(|one, other| one.share.total_cmp(&other.share));
        let shares = sorted.iter().map(|it| it.share).collect();
        let resident_megabytes = rounds[0].resident_megabytes;
        let middle = sorted.swap_remove(rounds.len() / 2);
        self.report.rows[self.row].operation =
            Some(Reached { shares, resident_megabytes, ..middle });
        self.report.save()
    }

    fn push(&mut self, figure: Figure) -> anyhow::Result<()> {
        self.report.rows[self.row].figures.push(figure);
        self.report.save()
    }
}

/// One measured figure.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Figure {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) at_most: Option<f64>,
}

impl Figure {
    pub(super) fn is_exceeded(&self) -> bool {
        self.at_most.is_some_and(|it| self.value > it)
    }
}

/// What was measured of one program.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) controller: String,
    /// The file, where it is not the project's own.
    pub(super) peer: Option<PathBuf>,
    /// While nothing is there.
    #[serde(flatten)]
    pub(super) idle: Option<Idle>,
    pub(super) operation: Option<Reached>,
    pub(super) figures: Vec<Figure>,
    /// Beside the others, on all that they have made.
    pub(super) together: Option<Cost>,
}

impl Row {
    /// As people read it.
    pub(super) fn name(&self) -> String {
        let peer = self.peer.as_ref().and_then(|path| path.file_name());
        peer.map_or(self.controller.clone(), |file| {
            format!("{} ({})", self.controller, file.to_string_lossy())
        })
    }
}

/// What a program costs that has nothing to do.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Idle {
    pub(super) megabytes: f64,
    pub(super) slowest_ready_ms: f64,
    /// With the middle one of a few starts.
    #[serde(flatten)]
    pub(super) rest: Cost,
}

/// What a program takes at rest.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Cost {
    /// From its start until it has read what is there.
    pub(super) ready_ms: f64,
    pub(super) resident_megabytes: f64,
    /// By the API server's audit log, renewals of the lease left out.
    pub(super) writes_at_rest: u64,
    pub(super) requests_at_rest: Requests,
}

/// What an operation reached.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Reached {
    pub(super) name: String,
    pub(super) count: u32,
    /// From its start until it has read what is there.
    pub(super) ready_ms: f64,
    pub(super) per_second: f64,
    pub(super) writes_each: f64,
    pub(super) requests_each: f64,
    pub(super) bare_writes_per_second: f64,
    /// Writes per second, as a share of the bare ones.
    pub(super) share: f64,
    /// That of each round, the least first.
    pub(super) shares: Vec<f64>,
    pub(super) resident_megabytes: f64,
}

/// A figure that has a limit.
pub(super) struct Held {
    pub(super) what: String,
    value: f64,
    limit: f64,
    /// Of most figures less is better.
    at_least: bool,
}

impl Held {
    /// How near to its limit: what is above one does not keep it.
    pub(super) fn strain(&self) -> f64 {
        if self.at_least { self.limit / self.value } else { self.value / self.limit }
    }

    fn is_kept(&self) -> bool {
        if self.at_least { self.value >= self.limit } else { self.value <= self.limit }
    }
}

/// All figures of a controller that have a limit.
pub(super) fn held(work: &Work, row: &Row) -> Vec<Held> {
    let mut all = Vec::new();
    let mut hold = |what: &str, value, limit| {
        all.push(Held { what: what.to_owned(), value, limit, at_least: false });
    };
    if let Some(idle) = &row.idle {
        hold("megabytes of the program", idle.megabytes, work.megabytes);
        hold("milliseconds to ready", idle.rest.ready_ms, READY_MS);
        hold("megabytes resident", idle.rest.resident_megabytes, work.megabytes);
        hold("writes at rest", idle.rest.writes_at_rest as f64, 0.0);
    }
    if let Some(together) = &row.together {
        hold("megabytes beside the others", together.resident_megabytes, CACHED_MEGABYTES);
        hold("writes at rest beside the others", together.writes_at_rest as f64, 0.0);
    }
    for figure in &row.figures {
        if let Some(limit) = figure.at_most {
            hold(&figure.what, figure.value, limit);
        }
    }
    if let Some(reached) = row.operation.as_ref().filter(|_| work.share > 0.0) {
        all.push(Held {
            what: "% of what the API server takes".to_owned(),
            value: reached.share * 100.0,
            limit: work.share * 100.0,
            at_least: true,
        });
    }
    all
}

/// One line for each limit that one of our own does not keep.
fn exceeded(works: &[&Work], rows: &[Row]) -> Vec<String> {
    let own = rows.iter().filter(|row| row.peer.is_none());
    let work = |row: &Row| works.iter().find(|work| work.controller == row.controller);
    let held = own.filter_map(|row| Some((row, held(work(row)?, row))));
    let wrong = held.flat_map(|(row, held)| held.into_iter().map(move |it| (row, it)));
    wrong
        .filter(|(_, held)| !held.is_kept())
        .map(|(row, Held { what, value, limit, at_least })| {
            let bound = if at_least { "least" } else { "most" };
            format!("{}: {what} {value:.1}, at {bound} {limit:.1}", row.controller)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use bench::cache::RunDir;

    use super::super::tests::work;
    use super::*;

    fn rest(ready_ms: f64, resident_megabytes: f64, writes_at_rest: u64) -> Cost {
        Cost { ready_ms, resident_megabytes, writes_at_rest, requests_at_rest: Requests::new() }
    }

    fn row(resident_megabytes: f64, writes_at_rest: u64) -> Row {
        let rest = rest(1.0, resident_megabytes, writes_at_rest);
        let idle = Idle { megabytes: 1.0, slowest_ready_ms: 1_000.0, rest };
        Row { controller: "minimal".to_owned(), idle: Some(idle), ..Row::default() }
    }

    #[test]
    fn a_controller_that_writes_at_rest_or_takes_too_much_memory_is_named_and_a_peer_is_not() {
        let works = [work("minimal")];
        assert_eq!(exceeded(&works, &[row(1.0, 0)]), Vec::<String>::new());
        let lines = exceeded(&works, &[row(50.0, 2)]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("minimal: megabytes resident 50.0, at most"), "{lines:?}");
        let peer = Row { peer: Some("/bin/true".into()), ..row(50.0, 2) };
        assert_eq!(exceeded(&works, &[peer]), Vec::<String>::new());
    }

    #[test]
    fn what_is_too_much_beside_the_others_is_named_so() {
        let together = |resident_megabytes, writes_at_rest| Row {
            together: Some(rest(60_000.0, resident_megabytes, writes_at_rest)),
            ..row(1.0, 0)
        };
        let works = [work("minimal")];
        assert_eq!(exceeded(&works, &[together(64.0, 0)]), Vec::<String>::new());
        assert_eq!(
            exceeded(&works, &[together(70.0, 1)]),
            [
                "minimal: megabytes beside the others 70.0, at most 64.0",
                "minimal: writes at rest beside the others 1.0, at most 0.0"
            ]
        );
    }

    #[test]
    fn a_part_of_the_bare_writes_that_is_too_small_is_named() {
        let row = |share: f64| Row {
            controller: "capm3-reuse".to_owned(),
            operation: Some(Reached {
                name: "machines".to_owned(),
                count: 1,
                ready_ms: 1.0,
                per_second: 1.0,
                writes_each: 3.0,
                requests_each: 4.0,
                bare_writes_per_second: 1.0,
                share,
                shares: vec![share],
                resident_megabytes: 1.0,
            }),
            ..Row::default()
        };
        let works = [work("capm3-reuse")];
        assert_eq!(exceeded(&works, &[row(0.9)]), Vec::<String>::new());
        assert_eq!(
            exceeded(&works, &[row(0.5)]),
            ["capm3-reuse: % of what the API server takes 50.0, at least 80.0"]
        );
    }

    /// A run that broke off in its last minute once left nothing of hours.
    #[test]
    fn a_figure_is_in_the_file_before_the_next_and_a_failure_is_told() {
        let folder = RunDir::new("report").unwrap();
        let file = folder.path().join("figures.json");
        let files = vec![file.clone()];
        let mut report = Report::new(1, files);
        let written = || -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
        };
        let first = report.begin("minimal", None);
        Figures { report: &mut report, row: first }.limited("ms", 2.0, 1.0).unwrap();
        assert_eq!(written()["controllers"][0]["figures"][0]["value"], 2.0);
        assert_eq!(report.unless_failed::<()>("minimal", Err(anyhow!("it ended"))), None);
        assert_eq!(report.unless_failed("minimal", Ok(7)), Some(7));
        report.save().unwrap();
        assert_eq!(written()["failed"][0], "minimal: not measured: it ended");
        let wrong = ["minimal: not measured: it ended", "minimal: ms 2.0, at most 1.0"];
        assert_eq!(report.wrong(&[work("minimal")]), wrong);
    }
}

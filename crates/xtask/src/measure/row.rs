//! What was measured of a program, and what must not be exceeded.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::Work;

/// What each may have in memory in a large installation.
const CACHED_MEGABYTES: f64 = 64.0;

/// What was asked for, and how often: verb and resource.
pub(super) type Requests = BTreeMap<String, u64>;

/// One measured figure.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) at_most: Option<f64>,
}

/// What must not be exceeded.
pub(super) struct Limits {
    pub(super) megabytes: f64,
    pub(super) ready_ms: f64,
    pub(super) resident_megabytes: f64,
    /// Share of what the API server takes.
    pub(super) share: f64,
}

/// What was measured of one program.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) controller: String,
    /// The file, where it is not the project's own.
    pub(super) peer: Option<PathBuf>,
    pub(super) megabytes: f64,
    /// The middle one and the slowest of a few starts.
    pub(super) ready_ms: f64,
    pub(super) slowest_ready_ms: f64,
    pub(super) resident_megabytes: f64,
    /// By the API server's audit log, renewals of the lease left out.
    pub(super) writes_at_rest: u64,
    pub(super) requests_at_rest: Requests,
    pub(super) operation: Option<Reached>,
    pub(super) figures: Vec<Figure>,
    /// Beside the others, on all that they have made.
    pub(super) together: Option<Together>,
}

/// What was measured of one program while all of them run.
#[derive(Debug, Serialize)]
pub(super) struct Together {
    /// From the start of all at once until it has read what is there.
    pub(super) ready_ms: f64,
    pub(super) resident_megabytes: f64,
    pub(super) writes_at_rest: u64,
    pub(super) requests_at_rest: Requests,
}

/// What an operation reached.
#[derive(Debug, Serialize)]
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

/// One line for each limit that one of our own does not keep.
pub(super) fn exceeded(works: &[&Work], rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows.iter().filter(|row| row.peer.is_none()) {
        let Some(work) = works.iter().find(|work| work.controller == row.controller) else {
            continue;
        };
        let Limits { megabytes, ready_ms, resident_megabytes, share } = work.limits;
        let mut hold = |what: &str, value: f64, limit: f64| {
            if value > limit {
                lines.push(format!("{}: {what} {value:.1}, at most {limit:.1}", row.controller));
            }
        };
        hold("megabytes of the program", row.megabytes, megabytes);
        hold("milliseconds to ready", row.ready_ms, ready_ms);
        hold("megabytes resident", row.resident_megabytes, resident_megabytes);
        hold("writes at rest", row.writes_at_rest as f64, 0.0);
        if let Some(together) = &row.together {
            hold("megabytes beside the others", together.resident_megabytes, CACHED_MEGABYTES);
            hold("writes at rest beside the others", together.writes_at_rest as f64, 0.0);
        }
        for figure in &row.figures {
            if let Some(limit) = figure.at_most {
                hold(&figure.what, figure.value, limit);
            }
        }
        if let Some(reached) = row.operation.as_ref().filter(|reached| reached.share < share) {
            lines.push(format!(
                "{}: {:.0} % of what the API server takes, at least {:.0} %",
                row.controller,
                reached.share * 100.0,
                share * 100.0
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::minimal;
    use super::*;

    fn row(resident_megabytes: f64, writes_at_rest: u64) -> Row {
        Row {
            controller: "minimal".to_owned(),
            peer: None,
            megabytes: 1.0,
            ready_ms: 1.0,
            slowest_ready_ms: 1_000.0,
            resident_megabytes,
            writes_at_rest,
            requests_at_rest: Requests::new(),
            operation: None,
            figures: Vec::new(),
            together: None,
        }
    }

    #[test]
    fn a_controller_that_writes_at_rest_or_takes_too_much_memory_is_named_and_a_peer_is_not() {
        let works = [&minimal::WORK];
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
            together: Some(Together {
                ready_ms: 60_000.0,
                resident_megabytes,
                writes_at_rest,
                requests_at_rest: Requests::new(),
            }),
            ..row(1.0, 0)
        };
        let works = [&minimal::WORK];
        assert_eq!(exceeded(&works, &[together(64.0, 0)]), Vec::<String>::new());
        assert_eq!(
            exceeded(&works, &[together(70.0, 1)]),
            [
                "minimal: megabytes beside the others 70.0, at most 64.0",
                "minimal: writes at rest beside the others 1.0, at most 0.0"
            ]
        );
    }
}

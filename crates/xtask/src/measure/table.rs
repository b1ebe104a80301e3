//! The tables for people.

use bench::load::Rate;

use super::row::{Requests, Row};

/// Prints a table whose first columns hold words, and the others numbers. Without rows there is none.
pub(super) fn print(words: usize, head: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let head: Vec<String> = head.iter().map(|it| (*it).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    println!();
    for row in all() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if column < words {
                print!("{cell:<width$}  ");
            } else {
                print!("{cell:>width$}  ");
            }
        }
        println!();
    }
}

pub(super) fn rates(rates: &[Rate]) {
    let row = |rate: &Rate| {
        vec![
            rate.verb.to_owned(),
            rate.bytes.to_string(),
            rate.concurrency.to_string(),
            format!("{:.0}", rate.per_second),
            format!("{:.1}", rate.p50_ms),
            format!("{:.1}", rate.p99_ms),
        ]
    };
    let head = ["verb", "bytes", "concurrency", "per second", "p50 ms", "p99 ms"];
    print(1, &head, &rates.iter().map(row).collect::<Vec<_>>());
}

pub(super) fn rows(rows: &[Row]) {
    let idle = rows.iter().filter_map(|row| {
        let idle = row.idle.as_ref()?;
        Some(vec![
            row.name(),
            format!("{:.1}", idle.megabytes),
            format!("{:.0}", idle.ready_ms),
            format!("{:.0}", idle.slowest_ready_ms),
            format!("{:.1}", idle.resident_megabytes),
            idle.writes_at_rest.to_string(),
            shown(&idle.requests_at_rest),
        ])
    });
    let head =
        ["controller", "MB", "ready ms", "slowest ms", "idle MB", "rest writes", "rest requests"];
    print(1, &head, &idle.collect::<Vec<_>>());

    let reached = rows.iter().filter_map(|row| {
        let reached = row.operation.as_ref()?;
        let shares = reached.shares.iter().map(|it| format!("{:.0}%", it * 100.0));
        Some(vec![
            row.name(),
            format!("{} {}", reached.count, reached.name),
            format!("{:.0}", reached.ready_ms),
            format!("{:.1}", reached.per_second),
            format!("{:.2}", reached.writes_each),
            format!("{:.2}", reached.requests_each),
            format!("{:.0}/s", reached.bare_writes_per_second),
            format!("{:.0}%", reached.share * 100.0),
            format!("{:.1}", reached.resident_megabytes),
            shares.collect::<Vec<_>>().join(" "),
        ])
    });
    let head = [
        "controller",
        "operation",
        "ready ms",
        "per second",
        "writes each",
        "requests each",
        "bare",
        "share",
        "busy MB",
        "share of each round",
    ];
    print(2, &head, &reached.collect::<Vec<_>>());

    let figures = rows.iter().flat_map(|row| {
        row.figures.iter().map(|figure| {
            let limit = figure.at_most.map_or_else(String::new, |it| format!("{it:.2}"));
            vec![row.name(), figure.what.clone(), format!("{:.2}", figure.value), limit]
        })
    });
    let head = ["controller", "figure", "measured", "at most"];
    print(2, &head, &figures.collect::<Vec<_>>());

    let together = rows.iter().filter_map(|row| {
        let together = row.together.as_ref()?;
        Some(vec![
            row.name(),
            format!("{:.0}", together.ready_ms),
            format!("{:.1}", together.resident_megabytes),
            together.writes_at_rest.to_string(),
            shown(&together.requests_at_rest),
        ])
    });
    let head = ["all together", "ready ms", "rest MB", "rest writes", "rest requests"];
    print(1, &head, &together.collect::<Vec<_>>());
}

/// How many they are, and which.
fn shown(requests: &Requests) -> String {
    let which = requests.iter().map(|(what, count)| format!("{count} {what}"));
    let sum = requests.values().sum::<u64>().to_string();
    std::iter::once(sum).chain(which).collect::<Vec<_>>().join("  ")
}

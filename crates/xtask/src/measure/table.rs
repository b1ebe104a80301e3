//! The tables for people.

use bench::load::Rate;

use super::{Requests, Row};

pub(super) fn rates(rates: &[Rate]) {
    println!(
        "\n{:<6} {:>8} {:>12} {:>12} {:>9} {:>9}",
        "verb", "bytes", "concurrency", "per second", "p50 ms", "p99 ms"
    );
    for rate in rates {
        println!(
            "{:<6} {:>8} {:>12} {:>12.0} {:>9.1} {:>9.1}",
            rate.verb, rate.bytes, rate.concurrency, rate.per_second, rate.p50_ms, rate.p99_ms
        );
    }
}

pub(super) fn rows(rows: &[Row]) {
    println!(
        "\n{:<28} {:>6} {:>9} {:>11} {:>8} {:>12} {:>14}",
        "controller", "MB", "ready ms", "slowest ms", "idle MB", "rest writes", "rest requests"
    );
    for row in rows {
        println!(
            "{:<28} {:>6.1} {:>9.0} {:>11.0} {:>8.1} {:>12} {:>14}",
            name(row),
            row.megabytes,
            row.ready_ms,
            row.slowest_ready_ms,
            row.resident_megabytes,
            row.writes_at_rest,
            shown(&row.requests_at_rest)
        );
    }
    operations(rows);
    figures(rows);
    together(rows);
}

fn together(rows: &[Row]) {
    if rows.iter().all(|row| row.together.is_none()) {
        return;
    }
    println!(
        "\n{:<28} {:>9} {:>8} {:>12} {:>14}",
        "all together", "ready ms", "rest MB", "rest writes", "rest requests"
    );
    for row in rows {
        let Some(together) = &row.together else { continue };
        println!(
            "{:<28} {:>9.0} {:>8.1} {:>12} {:>14}",
            name(row),
            together.ready_ms,
            together.resident_megabytes,
            together.writes_at_rest,
            shown(&together.requests_at_rest)
        );
    }
}

fn operations(rows: &[Row]) {
    if rows.iter().all(|row| row.operation.is_none()) {
        return;
    }
    println!(
        "\n{:<28} {:<30} {:>9} {:>10} {:>12} {:>14} {:>11} {:>7} {:>8}  share of each round",
        "controller",
        "operation",
        "ready ms",
        "per second",
        "writes each",
        "requests each",
        "bare",
        "share",
        "busy MB"
    );
    for row in rows {
        let Some(reached) = &row.operation else { continue };
        let shares: Vec<String> =
            reached.shares.iter().map(|it| format!("{:.0}%", it * 100.0)).collect();
        println!(
            "{:<28} {:<30} {:>9.0} {:>10.1} {:>12.2} {:>14.2} {:>9.0}/s {:>6.0}% {:>8.1}  {}",
            name(row),
            format!("{} {}", reached.count, reached.name),
            reached.ready_ms,
            reached.per_second,
            reached.writes_each,
            reached.requests_each,
            reached.bare_writes_per_second,
            reached.share * 100.0,
            reached.resident_megabytes,
            shares.join(" ")
        );
    }
}

fn figures(rows: &[Row]) {
    if rows.iter().all(|row| row.figures.is_empty()) {
        return;
    }
    println!("\n{:<28} {:<62} {:>9} {:>9}", "controller", "figure", "measured", "at most");
    for row in rows {
        for figure in &row.figures {
            let limit = figure.at_most.map_or_else(String::new, |it| format!("{it:.2}"));
            println!("{:<28} {:<62} {:>9.2} {:>9}", name(row), figure.what, figure.value, limit);
        }
    }
}

/// How many they are, and which.
fn shown(requests: &Requests) -> String {
    let which: Vec<String> =
        requests.iter().map(|(what, count)| format!("{count} {what}")).collect();
    [vec![requests.values().sum::<u64>().to_string()], which].concat().join("  ")
}

fn name(row: &Row) -> String {
    let peer = row.peer.as_ref().and_then(|path| path.file_name());
    peer.map_or(row.controller.clone(), |file| {
        format!("{} ({})", row.controller, file.to_string_lossy())
    })
}

//! The tables for people.

use std::iter::once;

use bench::load::Rate;

use super::row::{Cost, Figure, Idle, Reached, Requests, Row};

/// The head of a column, and what stands in it.
pub(super) type Column<'a, T> = (&'a str, fn(&T) -> String);

/// Prints a table of named rows. Its first `words` columns hold words, the others numbers. Without rows there is none.
pub(super) fn print<'a, T: 'a>(
    words: usize,
    name: &str,
    rows: impl IntoIterator<Item = (String, &'a T)>,
    columns: &[Column<'_, T>],
) {
    let head = once(name).chain(columns.iter().map(|it| it.0)).map(str::to_owned).collect();
    let line = |(name, row)| once(name).chain(columns.iter().map(|it| it.1(row))).collect();
    let lines: Vec<Vec<String>> = once(head).chain(rows.into_iter().map(line)).collect();
    if lines.len() == 1 {
        return;
    }
    let width = |column: usize| lines.iter().map(|it| it[column].chars().count()).max();
    let widths: Vec<usize> = (0..=columns.len()).filter_map(width).collect();
    println!();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
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
    let rates = rates.iter().map(|it| (it.verb.to_owned(), it));
    let columns: &[Column<'_, Rate>] = &[
        ("bytes", |it| it.bytes.to_string()),
        ("concurrency", |it| it.concurrency.to_string()),
        ("per second", |it| format!("{:.0}", it.per_second)),
        ("p50 ms", |it| format!("{:.1}", it.p50_ms)),
        ("p99 ms", |it| format!("{:.1}", it.p99_ms)),
    ];
    print(1, "verb", rates, columns);
}

pub(super) fn rows(rows: &[Row]) {
    let idle = rows.iter().filter_map(|row| Some((row.name(), row.idle.as_ref()?)));
    let columns: &[Column<'_, Idle>] = &[
        ("MB", |it| format!("{:.1}", it.megabytes)),
        ("ready ms", |it| format!("{:.0}", it.rest.ready_ms)),
        ("slowest ms", |it| format!("{:.0}", it.slowest_ready_ms)),
        ("idle MB", |it| format!("{:.1}", it.rest.resident_megabytes)),
        ("rest writes", |it| it.rest.writes_at_rest.to_string()),
        ("rest requests", |it| shown(&it.rest.requests_at_rest)),
    ];
    print(1, "controller", idle, columns);
    let reached = rows.iter().filter_map(|row| Some((row.name(), row.operation.as_ref()?)));
    let columns: &[Column<'_, Reached>] = &[
        ("operation", |it| format!("{} {}", it.count, it.name)),
        ("ready ms", |it| format!("{:.0}", it.ready_ms)),
        ("per second", |it| format!("{:.1}", it.per_second)),
        ("writes each", |it| format!("{:.2}", it.writes_each)),
        ("requests each", |it| format!("{:.2}", it.requests_each)),
        ("bare", |it| format!("{:.0}/s", it.bare_writes_per_second)),
        ("share", |it| percents(&[it.share])),
        ("busy MB", |it| format!("{:.1}", it.resident_megabytes)),
        ("share of each round", |it| percents(&it.shares)),
    ];
    print(2, "controller", reached, columns);
    let figures = rows.iter().flat_map(|row| row.figures.iter().map(|it| (row.name(), it)));
    let columns: &[Column<'_, Figure>] = &[
        ("figure", |it| it.what.clone()),
        ("measured", |it| format!("{:.2}", it.value)),
        ("at most", |it| it.at_most.map_or_else(String::new, |it| format!("{it:.2}"))),
    ];
    print(2, "controller", figures, columns);
    let together = rows.iter().filter_map(|row| Some((row.name(), row.together.as_ref()?)));
    let columns: &[Column<'_, Cost>] = &[
        ("ready ms", |it| format!("{:.0}", it.ready_ms)),
        ("rest MB", |it| format!("{:.1}", it.resident_megabytes)),
        ("rest writes", |it| it.writes_at_rest.to_string()),
        ("rest requests", |it| shown(&it.requests_at_rest)),
    ];
    print(1, "all together", together, columns);
}

fn percents(shares: &[f64]) -> String {
    shares.iter().map(|it| format!("{:.0}%", it * 100.0)).collect::<Vec<_>>().join(" ")
}

/// How many they are, and which.
fn shown(requests: &Requests) -> String {
    let which = requests.iter().map(|(what, count)| format!("{count} {what}"));
    let sum = requests.values().sum::<u64>().to_string();
    once(sum).chain(which).collect::<Vec<_>>().join("  ")
}

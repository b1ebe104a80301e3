//! The tables for people.

use std::iter::once;

use bench::load::Rate;

use super::row::{Cost, Figure, Idle, Reached, Report, Requests, Row};

/// The head of a column, and what stands in it.
pub(super) type Column<'a, T> = (&'a str, fn(&T) -> String);

/// A table of named rows. Its first `words` columns hold words, the others numbers.
pub(super) struct Table {
    words: usize,
    /// The head is the first.
    lines: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<'a, T: 'a>(
        words: usize,
        name: &str,
        rows: impl IntoIterator<Item = (String, &'a T)>,
        columns: &[Column<'_, T>],
    ) -> Self {
        let head = once(name).chain(columns.iter().map(|it| it.0)).map(str::to_owned).collect();
        let line = |(name, row)| once(name).chain(columns.iter().map(|it| it.1(row))).collect();
        Self { words, lines: once(head).chain(rows.into_iter().map(line)).collect() }
    }

    /// On a terminal. Without rows nothing is printed.
    pub(super) fn print(&self) {
        let [head, _, ..] = self.lines.as_slice() else { return };
        let width = |column: usize| self.lines.iter().map(|it| it[column].chars().count()).max();
        let widths: Vec<usize> = (0..head.len()).filter_map(width).collect();
        println!();
        for line in &self.lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if column < self.words {
                    print!("{cell:<width$}  ");
                } else {
                    print!("{cell:>width$}  ");
                }
            }
            println!();
        }
    }

    /// On a page. Without rows there is none.
    pub(super) fn markdown(&self) -> Option<String> {
        let [head, rows @ ..] = self.lines.as_slice() else { return None };
        let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
        let under = format!("|{}\n", "---|".repeat(head.len()));
        let text = once(line(head)).chain(once(under)).chain(rows.iter().map(line)).collect();
        (!rows.is_empty()).then_some(text)
    }
}

/// All tables of a run, each with what it shows.
pub(super) fn of(report: &Report) -> [(&'static str, Table); 5] {
    let rows = &report.rows;
    [
        ("The API server by itself", rates(&report.api_server)),
        ("With nothing to do", idle(rows)),
        ("At work", reached(rows)),
        ("What only one is asked for", figures(rows)),
        ("Beside the other four, at rest", together(rows)),
    ]
}

fn rates(rates: &[Rate]) -> Table {
    let rates = rates.iter().map(|it| (it.verb.clone(), it));
    let columns: &[Column<'_, Rate>] = &[
        ("bytes", |it| it.bytes.to_string()),
        ("concurrency", |it| it.concurrency.to_string()),
        ("per second", |it| format!("{:.0}", it.per_second)),
        ("p50 ms", |it| format!("{:.1}", it.p50_ms)),
        ("p99 ms", |it| format!("{:.1}", it.p99_ms)),
    ];
    Table::new(1, "verb", rates, columns)
}

fn idle(rows: &[Row]) -> Table {
    let idle = rows.iter().filter_map(|row| Some((row.name(), row.idle.as_ref()?)));
    let columns: &[Column<'_, Idle>] = &[
        ("MB", |it| format!("{:.1}", it.megabytes)),
        ("ready ms", |it| format!("{:.0}", it.rest.ready_ms)),
        ("slowest ms", |it| format!("{:.0}", it.slowest_ready_ms)),
        ("idle MB", |it| format!("{:.1}", it.rest.resident_megabytes)),
        ("rest writes", |it| it.rest.writes_at_rest.to_string()),
        ("rest requests", |it| shown(&it.rest.requests_at_rest)),
    ];
    Table::new(1, "controller", idle, columns)
}

fn reached(rows: &[Row]) -> Table {
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
    Table::new(2, "controller", reached, columns)
}

fn figures(rows: &[Row]) -> Table {
    let figures = rows.iter().flat_map(|row| row.figures.iter().map(|it| (row.name(), it)));
    let columns: &[Column<'_, Figure>] = &[
        ("figure", |it| it.what.clone()),
        ("measured", |it| format!("{:.2}", it.value)),
        ("at most", |it| it.at_most.map_or_else(String::new, |it| format!("{it:.2}"))),
        ("", |it| if it.is_exceeded() { "more than wanted".to_owned() } else { String::new() }),
    ];
    Table::new(2, "controller", figures, columns)
}

fn together(rows: &[Row]) -> Table {
    let together = rows.iter().filter_map(|row| Some((row.name(), row.together.as_ref()?)));
    let columns: &[Column<'_, Cost>] = &[
        ("ready ms", |it| format!("{:.0}", it.ready_ms)),
        ("rest MB", |it| format!("{:.1}", it.resident_megabytes)),
        ("rest writes", |it| it.writes_at_rest.to_string()),
        ("rest requests", |it| shown(&it.requests_at_rest)),
    ];
    Table::new(1, "all together", together, columns)
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

//! `cargo xtask bench --compare`: the figures of two runs side by side.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::table::{Column, Table};

/// What the parts of a file are named by, and numbers that tell what was asked for.
const NAMES: [&str; 6] = ["controller", "peer", "verb", "bytes", "concurrency", "what"];
const ASKED: [&str; 6] = ["at_most", "bytes_each", "count", "hosts", "parts", "requests"];
/// Of these figures more is better, of all others less.
const MORE_IS_BETTER: [&str; 3] = ["per_second", "share", " a second"];
/// By how much a figure may be worse until it is marked: two runs of the same program differ by as much.
const TOLERATED: f64 = 0.1;

/// Prints the figures of two files that the bench has written, and marks which are worse in the second.
pub(super) fn run(before: &Path, after: &Path) -> anyhow::Result<()> {
    let mut pairs = BTreeMap::<String, Pair>::new();
    for (place, file) in [before, after].into_iter().enumerate() {
        let read = || anyhow::Ok(serde_json::from_slice(&std::fs::read(file)?)?);
        let value = read().with_context(|| file.display().to_string())?;
        for (name, figure) in figures(&value, "") {
            let more_is_better = MORE_IS_BETTER.iter().any(|it| name.contains(it));
            let pair = pairs.entry(name).or_default();
            (pair.more_is_better, pair.values[place]) = (more_is_better, Some(figure));
        }
    }
    let worse = pairs.values().filter(|it| it.is_worse()).count();
    let columns: &[Column<'_, Pair>] = &[
        ("before", |it| shown(it.values[0])),
        ("after", |it| shown(it.values[1])),
        ("ratio", |it| shown(it.ratio())),
        ("", |it| if it.is_worse() { "worse".to_owned() } else { String::new() }),
    ];
    Table::new(1, "figure", pairs.iter().map(|(name, it)| (name.clone(), it)), columns).print();
    println!("\n{worse} of {} figures are worse by more than a tenth", pairs.len());
    Ok(())
}

/// A figure before and after, where it was measured.
#[derive(Debug, Default)]
struct Pair {
    more_is_better: bool,
    values: [Option<f64>; 2],
}

impl Pair {
    fn ratio(&self) -> Option<f64> {
        let (before, after) = (self.values[0]?, self.values[1]?);
        // Nothing is as much as nothing.
        Some(if before.total_cmp(&after).is_eq() { 1.0 } else { after / before })
    }

    fn is_worse(&self) -> bool {
        let (least, most) = (1.0 - TOLERATED, 1.0 + TOLERATED);
        let is_off = |it: f64| if self.more_is_better { it < least } else { it > most };
        self.ratio().is_some_and(is_off)
    }
}

fn shown(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"))
}

/// All numbers of a file that were measured, by the names of the parts that they stand in.
fn figures(value: &Value, name: &str) -> Vec<(String, f64)> {
    match value {
        Value::Number(number) => {
            number.as_f64().map(|it| (name.trim().to_owned(), it)).into_iter().collect()
        }
        Value::Object(fields) => {
            let named = |key: &&str| fields.get(*key).filter(|it| !it.is_null());
            let own = NAMES.iter().filter_map(named).map(|it| it.to_string().replace('"', ""));
            let name: String = own.fold(name.to_owned(), |name, it| format!("{name} {it}"));
            let is_figure = |key: &str| !NAMES.contains(&key) && !ASKED.contains(&key);
            let figures_of = |(key, value): (&String, &Value)| match key.as_str() {
                // Its name says it.
                "api_server" | "controllers" | "figures" | "value" => figures(value, &name),
                key => figures(value, &format!("{name} {key}")),
            };
            fields.iter().filter(|it| is_figure(it.0)).flat_map(figures_of).collect()
        }
        // Numbers in a row are rounds, whose middle is told beside them.
        Value::Array(items) => {
            items.iter().filter(|it| it.is_object()).flat_map(|it| figures(it, name)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_found_by_their_names_and_what_was_asked_for_is_none() {
        let file = json!({
            "api_server": [{ "verb": "POST", "bytes": 2500, "concurrency": 8, "requests": 9, "per_second": 7.0 }],
            "controllers": [{
                "controller": "one", "peer": null, "ready_ms": 5.0, "requests_at_rest": { "get nodes": 2 },
                "operation": { "name": "made", "count": 3, "share": 0.5, "shares": [0.5, 0.6] },
                "figures": [{ "what": "ms of it", "value": 1.5, "at_most": 2.0 }],
            }],
            "failed": ["it ended"],
        });
        let wanted = [
            ("POST 2500 8 per_second", 7.0),
            ("one ms of it", 1.5),
            ("one operation share", 0.5),
            ("one ready_ms", 5.0),
            ("one requests_at_rest get nodes", 2.0),
        ];
        let mut found = figures(&file, "");
        found.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(found, wanted.map(|(name, it)| (name.to_owned(), it)));
    }

    #[test]
    fn a_figure_is_worse_when_it_is_more_than_a_tenth_off_in_the_wrong_direction() {
        let is_worse = |more_is_better, before, after| {
            Pair { more_is_better, values: [Some(before), Some(after)] }.is_worse()
        };
        assert!(is_worse(false, 10.0, 11.1) && !is_worse(false, 10.0, 10.9));
        assert!(is_worse(true, 1.0, 0.8) && !is_worse(true, 1.0, 2.0));
        assert!(is_worse(false, 0.0, 1.0) && !is_worse(false, 0.0, 0.0));
        assert!(!Pair { more_is_better: false, values: [Some(1.0), None] }.is_worse());
    }
}

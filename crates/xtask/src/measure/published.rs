//! What the docs show of the runs whose files lie in `docs/bench`: a page of the last one, and a picture of all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::root;

use super::row::{Report, held};
use super::{WORKS, table};

const FOLDER: &str = "docs/bench";
const PAGE: &str = "docs/reference/measured.md";
const PICTURE: &str = "docs/pictures/bench.svg";

/// Page and picture. The runs are in the order of their files' names.
///
/// # Errors
/// When a run cannot be read.
pub(crate) fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root().join(FOLDER))? {
        paths.push(entry?.path());
    }
    paths.sort();
    let runs = paths.iter().map(|it| Report::read(it)).collect::<anyhow::Result<Vec<_>>>()?;
    let Some(last) = runs.last() else { return Ok(BTreeMap::new()) };
    Ok([(PAGE, page(last)), (PICTURE, picture(&runs))].map(|(path, it)| (path.into(), it)).into())
}

fn page(run: &Report) -> String {
    let mut text = format!(
        "# Measured\n\nMade by `cargo xtask crdgen` from the last run in `{FOLDER}`: \
         `cargo xtask bench --hosts {}` of {}. [What the figures mean](../scale.md).\n\n\
         ![How near each figure is to its limit, in each run](../pictures/bench.svg)\n",
        run.hosts,
        run.begun.strftime("%-d %B %Y"),
    );
    for (title, table) in table::of(run) {
        if let Some(table) = table.markdown() {
            let _ = write!(text, "\n## {title}\n\n{table}");
        }
    }
    if !run.failed.is_empty() {
        let _ = writeln!(text, "\n## Not measured\n\n* {}", run.failed.join("\n* "));
    }
    text
}

/// Room for what a figure is called, for its dots, and for a row, in pixels.
const NAMES: f64 = 520.0;
const DOTS: f64 = 240.0;
const ROW: f64 = 22.0;

/// Each figure of the last run that has a limit, one below the other: the line is the limit, and what lies above it does
/// not keep it. From left to right, the runs.
fn picture(runs: &[Report]) -> String {
    let mut lines = BTreeMap::<String, Vec<(usize, f64)>>::new();
    for (number, run) in runs.iter().enumerate() {
        for row in run.rows.iter().filter(|it| it.peer.is_none()) {
            let Some(work) = WORKS.iter().find(|it| it.controller == row.controller) else {
                continue;
            };
            for figure in held(work, row) {
                // Where nothing is allowed there is no scale.
                if figure.strain().is_finite() {
                    let name = format!("{}: {}", row.controller, figure.what);
                    lines.entry(name).or_default().push((number, figure.strain()));
                }
            }
        }
    }
    lines.retain(|_, dots| dots.last().is_some_and(|it| it.0 + 1 == runs.len()));
    let (wide, high) = (NAMES + DOTS, ROW * (lines.len() + 1) as f64);
    let step = DOTS / (runs.len() + 1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Figures beside their limits</title>\n\
         <rect width=\"{wide}\" height=\"{high}\" fill=\"#fff\"/>\n"
    );
    for (row, (name, dots)) in (1..).zip(&lines) {
        let limit = ROW * f64::from(row);
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\" fill=\"#24292e\">{}</text>\
             <path d=\"M{NAMES} {limit}h{DOTS}\" stroke=\"#d8d9da\"/>",
            NAMES - 10.0,
            limit + 4.0,
            name.replace('&', "&amp;").replace('<', "&lt;"),
        );
        for (number, strain) in dots {
            let colour = if *strain > 1.0 { "#c4162a" } else { "#37872d" };
            let x = NAMES + step * (number + 1) as f64;
            // Twice the limit, and no more, reaches the next row.
            let y = limit - (strain - 1.0).clamp(-1.0, 1.0) * ROW / 2.0;
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(milliseconds: f64) -> Report {
        let value = json!({
            "begun": "2026-11-30T12:00:00Z", "hosts": 2000, "api_server": [], "failed": [],
            "controllers": [{
                "controller": "bmo-reboot", "peer": null, "operation": null, "together": null,
                "figures": [
                    { "what": "ms of it", "value": milliseconds, "at_most": 50.0 },
                    { "what": "ms of the rest", "value": 3.0, "at_most": null },
                ],
            }],
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_page_shows_what_was_measured_and_what_is_more_than_wanted() {
        let page = page(&run(60.0));
        assert!(page.contains("`cargo xtask bench --hosts 2000` of 30 November 2026"), "{page}");
        assert!(
            page.contains("| bmo-reboot | ms of it | 60.00 | 50.00 | more than wanted |"),
            "{page}"
        );
        assert!(page.contains("| bmo-reboot | ms of the rest | 3.00 |  |  |"), "{page}");
        assert!(!page.contains("## At work"), "{page}");
    }

    #[test]
    fn a_picture_has_a_dot_for_each_run_of_a_figure_with_a_limit() {
        let picture = picture(&[run(60.0), run(40.0)]);
        assert_eq!(picture.matches("<text ").count(), 1, "{picture}");
        let dots: Vec<_> = picture.lines().filter(|it| it.starts_with("<circle")).collect();
        let is = |number: usize, colour| dots[number].contains(colour);
        assert!(dots.len() == 2 && is(0, "#c4162a") && is(1, "#37872d"), "{picture}");
    }
}

//! Pictures of the charts' dashboards, drawn from what a real Prometheus saw while the tour was played.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench::objects::until;
use bench::prometheus::{Prometheus, Series, Target};
use bench::steps::step_async;
use serde_json::Value;

use super::stage::Stage;

/// Pixels of one unit of a dashboard's grid, which is 24 wide.
const UNIT: (f64, f64) = (48.0, 26.0);
/// What stays free around a graph: left, top, right, and below it for the times and the legend.
const MARGIN: (f64, f64, f64, f64) = (46.0, 30.0, 14.0, 44.0);
/// As many names of lines have room below a graph, in rows of this height.
const NAMES: usize = 7;
const ROW: f64 = 14.0;
const COLOURS: [&str; 8] =
    ["#3274d9", "#e0752d", "#56a64b", "#e02f44", "#8f3bb8", "#f2cc0c", "#37872d", "#7c7c84"];

/// A Prometheus that watches the controllers of a stage.
pub(crate) struct Watching {
    prometheus: Prometheus,
    began: Instant,
}

impl Watching {
    /// Starts to watch.
    pub(crate) async fn start(stage: &Stage) -> anyhow::Result<Self> {
        let targets: Vec<Target> = stage
            .controllers
            .iter()
            .map(|controller| Target {
                address: controller.address.clone(),
                namespace: "ferrite-system".to_owned(),
                job: controller.name.clone(),
            })
            .collect();
        let prometheus = step_async("Prometheus", watched(&targets)).await?;
        Ok(Self { prometheus, began: Instant::now() })
    }

    /// Draws the dashboard of each controller into `<folder>/<controller>.svg`.
    pub(crate) async fn draw(&self, stage: &Stage, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        // The last second has to be scraped as well.
        tokio::time::sleep(Duration::from_secs(2)).await;
        for controller in &stage.controllers {
            let file = bench::chart::dir(&controller.name).join("files/dashboard.json");
            let dashboard: Value = serde_json::from_slice(&std::fs::read(file)?)?;
            let span = self.began.elapsed();
            let mut panels = Vec::new();
            for panel in dashboard["panels"].as_array().context("panels")? {
                panels.push(self.panel(panel, span).await?);
            }
            let file = folder.join(format!("{}.svg", controller.name));
            std::fs::write(&file, picture(&controller.name, &panels, span))?;
            eprintln!("  {}", file.display());
        }
        Ok(())
    }

    async fn panel(&self, panel: &Value, span: Duration) -> anyhow::Result<Panel> {
        let mut lines = Vec::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let asked = target["expr"].as_str().context("an expression")?;
            let asked = asked.replace("$namespace", ".*").replace("$job", ".*");
            let asked = asked.replace("$__rate_interval", "15s");
            for series in self.prometheus.over(&asked, span).await? {
                let name = legend(target["legendFormat"].as_str().unwrap_or_default(), &series);
                lines.push((name, series.points));
            }
        }
        // Where there is no room for all names, those to which nothing happened are left out.
        if lines.len() > NAMES {
            lines.retain(|(_, points): &(_, Vec<(f64, f64)>)| points.iter().any(|it| it.1 != 0.0));
        }
        let grid = |side: &str| panel["gridPos"][side].as_f64().unwrap_or_default();
        Ok(Panel {
            title: panel["title"].as_str().unwrap_or_default().to_owned(),
            unit: match panel["fieldConfig"]["defaults"]["unit"].as_str() {
                Some("s") => " s",
                _ => "",
            },
            at: (grid("x") * UNIT.0, grid("y") * UNIT.1),
            size: (grid("w") * UNIT.0, grid("h") * UNIT.1),
            lines,
        })
    }
}

/// How long a Prometheus may take to see every controller.
const SEEN: Duration = Duration::from_secs(60);

/// One that has seen every target twice: the first chapter is over in seconds, and a rate needs two points.
async fn watched(targets: &[Target]) -> anyhow::Result<Prometheus> {
    let prometheus = Prometheus::start(targets, &[], None).await?;
    let seen = "count_over_time(up[1m]) > 1 and up == 1";
    until("Prometheus sees every controller", SEEN, async || {
        Ok((prometheus.query(seen).await?.len() == targets.len()).then_some(()))
    })
    .await?;
    Ok(prometheus)
}

/// Seconds without a point that make a gap.
const GAP: f64 = 2.5;

struct Panel {
    title: String,
    unit: &'static str,
    at: (f64, f64),
    size: (f64, f64),
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// `{{label}}` stands for the value of a label.
fn legend(format: &str, series: &Series) -> String {
    let mut text = format.to_owned();
    for (label, value) in &series.labels {
        text = text.replace(&format!("{{{{{label}}}}}"), value.as_str().unwrap_or_default());
    }
    text
}

fn picture(name: &str, panels: &[Panel], span: Duration) -> String {
    let far = |side: fn(&Panel) -> f64| panels.iter().map(side).fold(0.0, f64::max);
    let (width, height) = (far(|it| it.at.0 + it.size.0), far(|it| it.at.1 + it.size.1));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>The dashboard of {name}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#f4f5f5\"/>\n"
    );
    let ends = panels.iter().flat_map(|it| &it.lines).flat_map(|(_, points)| points);
    let end = ends.map(|point| point.0).fold(0.0, f64::max);
    for panel in panels {
        panel.draw(&mut svg, end, span.as_secs_f64());
    }
    svg + "</svg>\n"
}

impl Panel {
    fn draw(&self, svg: &mut String, end: f64, span: f64) {
        let (left, top, right, below) = MARGIN;
        let wide = self.size.0 - 8.0 - left - right;
        let legend = places(self.lines.iter().map(|(name, _)| name.as_str()), wide);
        let rows = legend.last().map_or(0.0, |it| it.1);
        let high = self.size.1 - 8.0 - top - below - ROW * rows;
        let points = self.lines.iter().flat_map(|(_, points)| points);
        let most = points.map(|point| point.1).filter(|it| it.is_finite()).fold(0.0, f64::max);
        let most = round_up(most);
        let x = |time: f64| left + wide * (1.0 - (end - time) / span).clamp(0.0, 1.0);
        let y = |value: f64| top + high * (1.0 - value / most);
        let _ = writeln!(
            svg,
            "<g transform=\"translate({} {})\">\n<rect width=\"{}\" height=\"{}\" rx=\"3\" fill=\"#fff\" stroke=\"#d8d9da\"/>\n\
             <text x=\"12\" y=\"19\" font-weight=\"bold\" fill=\"#24292e\">{}</text>",
            self.at.0 + 4.0,
            self.at.1 + 4.0,
            self.size.0 - 8.0,
            self.size.1 - 8.0,
            escaped(&self.title),
        );
        for part in [0.0, 0.5, 1.0] {
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {at:.1}h{wide:.1}\" stroke=\"#e7e8e9\"/><text x=\"{label}\" y=\"{below:.1}\" text-anchor=\"end\" fill=\"#6a6f76\" font-size=\"11\">{value}{unit}</text>\n\
                 <text x=\"{time:.1}\" y=\"{foot:.1}\" text-anchor=\"middle\" fill=\"#6a6f76\" font-size=\"11\">{seconds:.0} s</text>",
                at = y(most * part),
                label = left - 6.0,
                below = y(most * part) + 4.0,
                value = number(most * part),
                unit = self.unit,
                time = left + wide * part,
                foot = top + high + 15.0,
                seconds = span * part,
            );
        }
        for ((number, (name, points)), (column, row)) in self.lines.iter().enumerate().zip(legend) {
            let colour = COLOURS[number % COLOURS.len()];
            let mut path = String::new();
            let mut last = f64::NEG_INFINITY;
            let points: Vec<_> = points.iter().filter(|it| it.1.is_finite()).collect();
            for (number, (time, value)) in points.iter().enumerate() {
                // Where nothing was told for a while there is a gap.
                let verb = if time - last > GAP { 'M' } else { 'L' };
                last = *time;
                // What is on a level line between two others does not show.
                let level = |other: Option<&&(f64, f64)>| {
                    other.is_some_and(|it| {
                        it.1.total_cmp(value).is_eq() && (it.0 - time).abs() <= GAP
                    })
                };
                let before = number.checked_sub(1).and_then(|it| points.get(it));
                if !(level(before) && level(points.get(number + 1))) {
                    let _ = write!(path, "{verb}{:.1} {:.1}", x(*time), y(*value));
                }
            }
            let (legend, foot) = (left + column, top + high + 32.0 + ROW * row);
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-linecap=\"round\"/>\n\
                 <rect x=\"{legend:.1}\" y=\"{:.1}\" width=\"9\" height=\"3\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{foot:.1}\" fill=\"#24292e\" font-size=\"11\">{}</text>",
                foot - 6.0,
                legend + 13.0,
                escaped(name),
            );
        }
        svg.push_str("</g>\n");
    }
}

/// Where each name of a legend stands, in rows that are so wide: how far to the right, and in which row.
fn places<'a>(names: impl Iterator<Item = &'a str>, wide: f64) -> Vec<(f64, f64)> {
    let (mut column, mut row) = (0.0, 0.0);
    let place = |name: &str| {
        let width = 30.0 + 6.2 * name.chars().count() as f64;
        if column > 0.0 && column + width > wide {
            (column, row) = (0.0, row + 1.0);
        }
        let place = (column, row);
        column += width;
        place
    };
    names.map(place).collect()
}

/// The next number with one digit, so that a scale reads well.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let size = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    steps.map(|it| it * size).into_iter().find(|it| *it >= value).unwrap_or(value)
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_beside_each_other_stand_below_each_other() {
        let places = places(["one", "two", "three"].into_iter(), 100.0);
        assert_eq!(places.iter().map(|it| it.1).collect::<Vec<_>>(), [0.0, 0.0, 1.0]);
        assert_eq!((places[0].0, places[2].0), (0.0, 0.0));
        assert!(places[1].0 > 40.0);
    }

    #[test]
    fn a_scale_ends_at_a_number_that_reads_well() {
        let ends = [0.0, 0.3, 1.0, 3.0, 17.0, 950.0].map(round_up).map(number);
        assert_eq!(ends, ["1", "0.4", "1", "4", "20", "1000"]);
        assert_eq!(
            ["2", "0.5", "0.025"],
            [number(2.0), number(0.5), number(0.025)].each_ref().map(String::as_str)
        );
    }

    #[test]
    fn a_line_is_named_by_its_labels_and_breaks_where_nothing_was_told() {
        let labels = serde_json::json!({ "target": "on", "result": "ok" });
        let points = vec![(1.0, 0.0), (2.0, 2.0), (9.0, 1.0), (10.0, f64::NAN)];
        let series = Series { labels: labels.as_object().unwrap().clone(), points };
        assert_eq!(legend("{{target}} {{result}}", &series), "on ok");
        let panel = Panel {
            title: "a < b".to_owned(),
            unit: "",
            at: (0.0, 0.0),
            size: (400.0, 200.0),
            lines: vec![("on ok".to_owned(), series.points)],
        };
        let level = vec![(1.0, 3.0), (2.0, 3.0), (3.0, 3.0), (4.0, 3.0)];
        let level = Panel {
            title: String::new(),
            unit: "",
            at: (0.0, 0.0),
            size: (400.0, 200.0),
            lines: vec![(String::new(), level)],
        };
        let svg = picture("x", &[level], Duration::from_secs(10));
        let path = svg.lines().find(|it| it.contains("stroke-linecap")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (1, 1), "{path}");
        let svg = picture("x", &[panel], Duration::from_secs(10));
        assert!(svg.contains("a &lt; b") && svg.contains(">on ok<"), "{svg}");
        let path = svg.lines().find(|it| it.contains("stroke-linecap")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1), "{path}");
        assert!(!svg.contains("NaN"), "{svg}");
    }
}

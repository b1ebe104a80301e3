//! How answers look: aligned text, JSON or YAML. Pure.

use std::fmt::Write as _;

use api_types::time::until;
use clap::builder::styling::{AnsiColor, Style};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::adoption::Adoption;
use crate::follow::Change;
use crate::health::{Finding, Installed};
use crate::model::{API_VERSION, Link};
use crate::report::{Attempt, Hold, HostReport, PoolEntry, PoolReport};
use crate::settings::Output;
use crate::terminal::clean;
use crate::text;

/// What a program reads.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    content: T,
}

/// An answer as one document.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn document(
    output: Output,
    kind: &'static str,
    content: impl Serialize,
) -> Result<String, String> {
    let document = Document { api_version: API_VERSION, kind, content };
    if output == Output::Yaml {
        // By way of JSON, so that both have the same members in every case.
        let value = serde_json::to_value(document).map_err(|it| it.to_string())?;
        return serde_saphyr::to_string(&value).map_err(|it| it.to_string());
    }
    let text = serde_json::to_string_pretty(&document).map_err(|it| it.to_string())?;
    Ok(text + "\n")
}

/// One of several documents: YAML needs a line between them.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn next(
    output: Output,
    kind: &'static str,
    content: impl Serialize,
) -> Result<String, String> {
    let line = if output == Output::Yaml { "---\n" } else { "" };
    Ok(line.to_owned() + &document(output, kind, content)?)
}

/// How text is written: at what time, and whether with colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) now: Timestamp,
    pub(crate) has_colours: bool,
}

impl Page {
    fn age(self, since: Option<Timestamp>) -> String {
        since.map(|it| text::age(until(it, self.now))).unwrap_or_default()
    }

    fn styled(self, style: Style, line: &str) -> String {
        if self.has_colours { format!("{style}{line}{style:#}") } else { line.to_owned() }
    }

    /// A chain: a line for each link, and below one that waits the facts and what to do.
    pub(crate) fn chain(self, links: &[Link]) -> String {
        let row = |link: &Link| {
            let mark = if link.waits { "!" } else { " " };
            let object = format!("{mark} {} {}", link.object.kind, link.object.name);
            let state = match link.part.as_str() {
                "" | "status.provisioning.state" | "metadata.deletionTimestamp" => {
                    link.state.clone()
                }
                part => format!("{part}={}", link.state),
            };
            let reason = link.reason.clone().unwrap_or_default();
            vec![object, state, reason, self.age(link.since)]
        };
        let rows: Vec<Vec<String>> = links.iter().map(row).collect();
        let drawn = aligned(&["  OBJECT", "STATE", "REASON", "SINCE"], &rows);
        let mut text = String::new();
        let (head, rest) =
            drawn.split_first().map_or(("", [].as_slice()), |(head, rest)| (head.as_str(), rest));
        _ = writeln!(text, "{}", self.styled(Style::new().bold(), head));
        for (link, line) in links.iter().zip(rest) {
            let style = if link.waits {
                Style::new().fg_color(Some(AnsiColor::Yellow.into()))
            } else {
                Style::new()
            };
            _ = writeln!(text, "{}", self.styled(style, line));
            if !link.message.is_empty() {
                _ = writeln!(text, "    {}", clean(&link.message));
            }
            if let Some(action) = &link.action {
                let page = link.page.as_ref().map(|it| format!(" See {it}.")).unwrap_or_default();
                _ = writeln!(text, "    Do: {}{page}", clean(action));
            }
        }
        text
    }

    /// Everything that waits, one line each.
    pub(crate) fn waiting(self, links: &[Link], has_namespaces: bool) -> String {
        if links.is_empty() {
            return format!("{}\n", text::NOTHING_WAITS);
        }
        let rows: Vec<_> = links.iter().map(|it| self.row(it, has_namespaces)).collect();
        Self::rows(has_namespaces, &rows).join("\n") + "\n"
    }

    /// What has changed of an object, in the columns of the list.
    pub(crate) fn change(self, change: &Change, has_namespaces: bool) -> String {
        let ended = |it: &Link| {
            let action = Some(text::ENDED.to_owned());
            Link { since: None, action, ..it.clone() }
        };
        let ended: Vec<Link> = change.ended.iter().map(ended).collect();
        let links = change.items.iter().chain(&ended);
        let rows: Vec<_> = links.map(|it| self.row(it, has_namespaces)).collect();
        let drawn = Self::rows(has_namespaces, &rows);
        drawn[1..].iter().map(|it| it.clone() + "\n").collect()
    }

    fn row(self, link: &Link, has_namespaces: bool) -> Vec<String> {
        let object = format!("{} {}", link.object.kind, link.object.name);
        let state = || {
            let is_word = link.part.starts_with("status.");
            if is_word { link.state.clone() } else { format!("{}={}", link.part, link.state) }
        };
        let reason = link.reason.clone().unwrap_or_else(state);
        let action = link.action.clone().unwrap_or_default();
        let mut row = vec![object, reason, self.age(link.since), action];
        if has_namespaces {
            row.insert(0, link.object.namespace.clone());
        }
        row
    }

    fn rows(has_namespaces: bool, rows: &[Vec<String>]) -> Vec<String> {
        let mut head = vec!["OBJECT", "REASON", "SINCE", "DO"];
        if has_namespaces {
            head.insert(0, "NAMESPACE");
        }
        aligned(&head, rows)
    }

    pub(crate) fn host(self, report: &HostReport) -> String {
        let yes = |it: bool| if it { "yes" } else { "no" }.to_owned();
        let ago = |it| self.age(it);
        let mut facts = vec![
            vec!["Host".to_owned(), report.object.name.clone()],
            vec!["State".to_owned(), report.state.clone()],
            vec!["Power".to_owned(), text::power(report.online, report.powered_on)],
            vec!["User".to_owned(), text::sentence(&report.user)],
            vec!["Handed to bmo-reboot".to_owned(), yes(report.handed_over)],
        ];
        for (name, time) in [
            ("Last switched on", report.last_powered_on),
            ("Last reboot requested", report.pending_reboot_since),
        ] {
            if time.is_some() {
                facts.push(vec![name.to_owned(), text::ago(&ago(time))]);
            }
        }
        let mut text = plain(&facts);
        if !report.holds.is_empty() {
            let row = |it: &Hold| {
                let mode = if it.hard { "hard" } else { "soft" };
                vec![it.key.clone(), mode.to_owned(), yes(it.proven)]
            };
            let rows: Vec<Vec<String>> = report.holds.iter().map(row).collect();
            text.push_str(&table(&["REBOOT REQUEST", "MODE", "HELD OFF"], &rows));
        }
        if !report.attempts.is_empty() {
            let row = |it: &Attempt| {
                let after = |time: Option<Timestamp>| {
                    time.map(|time| text::age(until(it.asked, time))).unwrap_or_default()
                };
                let result = it.result.clone().unwrap_or_default();
                let asked = text::ago(&ago(Some(it.asked)));
                let number = it.number.to_string();
                let (off, released, ended) = (after(it.off), after(it.released), after(it.ended));
                vec![it.machine.clone(), number, asked, off, released, ended, result]
            };
            let rows: Vec<Vec<String>> = report.attempts.iter().map(row).collect();
            let head =
                ["MACHINE", "ATTEMPT", "ASKED", "OFF AFTER", "ON AFTER", "ENDED AFTER", "RESULT"];
            text.push_str(&table(&head, &rows));
        }
        text
    }
}

/// The installed controllers, then what is to be said of them.
pub(crate) fn doctor(installed: &[Installed], findings: &[Finding]) -> String {
    let row = |it: &Installed| {
        let ready = format!("{}/{}", it.ready, it.replicas);
        let leader = match (&it.lease, &it.leader) {
            (None, _) => text::NO_ELECTION.to_owned(),
            (_, leader) => leader.clone().unwrap_or_default(),
        };
        let controller = it.controller.to_owned();
        vec![controller, it.namespace.clone(), it.version.clone(), ready, leader]
    };
    let rows: Vec<Vec<String>> = installed.iter().map(row).collect();
    let head = ["CONTROLLER", "NAMESPACE", "VERSION", "READY", "LEADER"];
    let mut text = aligned(&head, &rows).join("\n") + "\n\n";
    if findings.is_empty() {
        text.push_str(text::ALL_WELL);
        text.push('\n');
    }
    for it in findings {
        let mark = if it.wrong { "!" } else { " " };
        _ = writeln!(text, "{mark} {}", clean(&text::finding(&it.deployment, &it.message)));
    }
    text
}

/// What hosts get, with the warning that belongs to it.
pub(crate) fn adoptions(plan: &[Adoption]) -> String {
    let row = |it: &Adoption| {
        let disks = text::disks(it.erases_disks).to_owned();
        vec![it.host.clone(), it.address.clone(), it.credentials_name.clone(), disks]
    };
    let rows: Vec<Vec<String>> = plan.iter().map(row).collect();
    let lines = aligned(&["HOST", "ADDRESS", "CREDENTIALS", "DISKS"], &rows);
    format!("{}\n\n{}\n", lines.join("\n"), text::WARNING)
}

/// A pool: facts, then its entries.
pub(crate) fn pool(report: &PoolReport) -> String {
    let claims = match (report.claims, report.waiting_claims) {
        (Some(all), Some(waiting)) => text::claims(all, waiting),
        _ => text::UNKNOWN.to_owned(),
    };
    let most = report.max_size.map_or_else(|| text::NO_LIMIT.to_owned(), |it| it.to_string());
    let facts = [
        ("Pool", report.object.name.clone()),
        ("Unclaimed clusters", text::of_wanted(report.size, report.wanted_size)),
        ("Running", report.ready.to_string()),
        ("Most clusters", most),
        ("Claims", claims),
    ];
    let facts: Vec<Vec<String>> =
        facts.into_iter().map(|(name, fact)| vec![name.to_owned(), fact]).collect();
    let mut text = plain(&facts);
    if !report.entries.is_empty() {
        let row = |it: &PoolEntry| {
            let attempts = it.attempts.map(|it| it.to_string()).unwrap_or_default();
            let cluster = it.cluster.clone().unwrap_or_default();
            let failure = it.last_failure.clone().unwrap_or_default();
            vec![it.name.clone(), it.status.clone(), attempts, cluster, failure]
        };
        let rows: Vec<Vec<String>> = report.entries.iter().map(row).collect();
        let head = ["ENTRY", "STATUS", "ATTEMPTS LEFT", "CLUSTER", "LAST FAILURE"];
        text.push_str(&table(&head, &rows));
    }
    text
}

fn plain(facts: &[Vec<String>]) -> String {
    let lines = aligned(&[], facts);
    lines.join("\n") + "\n"
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    format!("\n{}\n", aligned(head, rows).join("\n"))
}

/// Columns as wide as their widest cell, without blanks at the end of a line.
fn aligned(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let head: Vec<String> = head.iter().map(|it| (*it).to_owned()).collect();
    let head = Some(head).filter(|it| !it.is_empty());
    let rows: Vec<Vec<String>> =
        head.iter().chain(rows).map(|row| row.iter().map(|it| clean(it)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|it| it.chars().count()).max().unwrap_or(0);
        // A wider one ends the program: no format can have it.
        widest.min(u16::MAX.into())
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

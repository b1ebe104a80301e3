//! The pages of `docs/reference`, made from the code that they describe.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::fs;

use anyhow::{Context, anyhow};
use bench::chart;
use controller_kit::engine::reasons::About;
use controller_kit::metrics::Metrics;
use kube::ResourceExt;
use prometheus::proto::{LabelPair, Metric};
use serde::Deserialize;
use serde_json::Value;

use crate::controllers::{self, Controller};

const NOTE: &str = "Made from the code by `cargo xtask crdgen`.\n";

/// What a controller may do: `files/rules.json` of its chart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rules {
    namespaced: Vec<Rule>,
    cluster: Vec<Rule>,
    #[serde(default)]
    pub(crate) extend_crd: Vec<String>,
    #[serde(default)]
    aggregated: Vec<Aggregated>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    why: String,
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
    /// The block of the chart's values without which there is no such rule.
    #[serde(default)]
    when: Option<String>,
}

/// Rules of whoever aggregates a label.
#[derive(Deserialize)]
struct Aggregated {
    labels: BTreeMap<String, String>,
    rules: Vec<Rule>,
}

/// Names of the pages and their text.
///
/// # Errors
/// When a controller's metrics cannot be registered, or its rules or a CRD cannot be read.
pub(crate) fn pages() -> anyhow::Result<BTreeMap<String, String>> {
    let mut pages = BTreeMap::new();
    let mut index = format!("# Reference\n\n{NOTE}\n");
    for controller in controllers::pods() {
        let page = format!("{}.md", controller.name);
        let _ = writeln!(
            index,
            "* [{0}]({page}): commands, flags, metrics, permissions; [reasons](reasons/{page})",
            controller.name
        );
        pages.insert(page, controller_page(controller)?);
    }
    index.push_str("* [CRDs](crds.md): the kinds that are ours\n");
    index.push_str("* [Measured](measured.md): all figures of the bench\n");
    pages.insert("crds.md".to_owned(), crds()?);
    pages.insert("README.md".to_owned(), index);
    Ok(pages)
}

fn controller_page(controller: &Controller) -> anyhow::Result<String> {
    let command = (controller.command)();
    let mut text = format!("# {}\n\n{NOTE}\n", controller.name);
    if let Some(about) = command.get_about() {
        let _ = writeln!(text, "{about}.\n");
    }
    text.push_str("## Commands\n\n| command | does |\n|---|---|\n");
    for command in command.get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "| `{}` | {} |", command.get_name(), cell(&about));
    }
    text.push_str("\n## Flags\n\n| flag | variable | default | |\n|---|---|---|---|\n");
    for flag in command.get_arguments() {
        let Some(name) = flag.get_long() else { continue };
        let default: Vec<_> =
            flag.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
        let default = default.join(",");
        let default = if default.is_empty() { default } else { format!("`{default}`") };
        let help = flag.get_long_help().or(flag.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let variable = flag.get_env().map(|it| format!("`{}`", it.to_string_lossy()));
        let variable = variable.unwrap_or_default();
        let _ = writeln!(text, "| `--{name}` | {variable} | {default} | {} |", cell(&help));
    }
    text.push_str("\n## Metrics\n\n| metric | type | labels | |\n|---|---|---|---|\n");
    for (name, row) in metrics(controller)? {
        let _ =
            writeln!(text, "| `{name}` | {} | {} | {} |", row.kind, row.labels, cell(&row.help));
    }
    text.push_str(&promises(&(controller.reasons)()));
    if let Some((deciding, rules)) = controller.rules {
        let _ = writeln!(
            text,
            "\n## Rules\n\n{deciding}\n\n| | rule | why it stands there |\n|---|---|---|"
        );
        for (number, (name, why)) in (1..).zip(rules()) {
            let _ = writeln!(text, "| {number} | `{name}` | {} |", cell(why));
        }
    }
    text.push_str(&permissions(&rules_of(controller.name)?));
    Ok(text)
}

/// Of which reasons the error budget counts how soon a look begins.
fn promises(all: &[&About]) -> String {
    let mut text = "\n## Promises\n\nOf the reconciles that decide one of these, 99 % begin so soon after their cause. The time of a \
                    reconcile, in which other programs are waited for, does not count.\n\n\
                    | decided | | begins within |\n|---|---|---|\n"
        .to_owned();
    for About { word, meaning, promise, .. } in all {
        if let Some(promise) = promise {
            let _ = writeln!(text, "| `{word}` | {} | {} s |", cell(meaning), promise.as_secs());
        }
    }
    text
}

/// What the chart of a controller allows it.
pub(crate) fn rules_of(controller: &str) -> anyhow::Result<Rules> {
    let file = chart::dir(controller).join("files/rules.json");
    let rules =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&rules).with_context(|| file.display().to_string())
}

/// What the chart allows, and why.
fn permissions(rules: &Rules) -> String {
    let mut text = "\n## Permissions\n\nThe controller's account:\n\n\
                    | where | group | resources | verbs | why |\n|---|---|---|---|---|\n"
        .to_owned();
    let all = |rules: &[Rule], place: &str| -> String {
        rules.iter().map(|rule| permission(rule, place)).collect()
    };
    text.push_str(&all(&rules.namespaced, "watched namespaces"));
    text.push_str("| watched namespaces | events.k8s.io | `events` | create, patch | what was decided is told in events |\n");
    text.push_str(&all(&rules.cluster, "cluster"));
    text.push_str(
        "| the release's namespace | coordination.k8s.io | `leases` | create | the lease of leader election |\n\
         | the release's namespace | coordination.k8s.io | `leases`: its own | get, list, watch, patch | the same |\n\
         | the release's namespace | events.k8s.io | `events` | create, patch | events about the lease |\n\n\
         Watched namespaces are those of `watchNamespaces`, else the whole cluster.\n",
    );
    if !rules.extend_crd.is_empty() {
        let crds = quoted(&rules.extend_crd);
        let _ = writeln!(
            text,
            "\nThe account of the hook that adds fields, while it runs: get and patch the CRDs {crds}."
        );
    }
    for others in &rules.aggregated {
        let labels: Vec<String> =
            others.labels.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let _ = writeln!(
            text,
            "\nAccounts of others, whose ClusterRole aggregates those with the label {}:\n\n\
             | where | group | resources | verbs | why |\n|---|---|---|---|---|",
            quoted(&labels)
        );
        text.push_str(&all(&others.rules, "cluster"));
    }
    text
}

fn permission(rule: &Rule, place: &str) -> String {
    let group = |it: &String| if it.is_empty() { "core".to_owned() } else { it.clone() };
    let groups: Vec<String> = rule.api_groups.iter().map(group).collect();
    let mut resources = quoted(&rule.resources);
    if !rule.resource_names.is_empty() {
        let _ = write!(resources, ": {}", quoted(&rule.resource_names));
    }
    let (groups, verbs, mut why) = (groups.join(", "), rule.verbs.join(", "), cell(&rule.why));
    if let Some(block) = &rule.when {
        let _ = write!(why, "; only with `{block}.enabled`");
    }
    format!("| {place} | {groups} | {resources} | {verbs} | {why} |\n")
}

fn quoted(words: &[impl Display]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

struct Row {
    kind: String,
    labels: String,
    help: String,
}

/// What the registry shows, and those of the kit's own metrics that have no series before something happens.
fn metrics(controller: &Controller) -> anyhow::Result<BTreeMap<String, Row>> {
    let wrong = |error| anyhow!("the metrics of {}: {error}", controller.name);
    let metrics = Metrics::new(controller.name).map_err(wrong)?;
    (controller.metrics)(&metrics.registry).map_err(wrong)?;
    (controller.engine_metrics)(controller.name, &metrics.registry).map_err(wrong)?;
    let mut rows = BTreeMap::new();
    for described in metrics.described() {
        let kind = if described.fq_name.ends_with("_total") { "counter" } else { "gauge" };
        let labels = quoted(&described.variable_labels);
        let row = Row { kind: kind.to_owned(), labels, help: described.help };
        rows.insert(described.fq_name, row);
    }
    for family in metrics.registry.gather() {
        let series = family.get_metric().iter().take(1);
        let labels: Vec<&str> = series.flat_map(Metric::get_label).map(LabelPair::name).collect();
        let row = Row {
            kind: format!("{:?}", family.get_field_type()).to_lowercase(),
            labels: quoted(&labels),
            help: family.help().to_owned(),
        };
        rows.insert(family.name().to_owned(), row);
    }
    Ok(rows)
}

fn crds() -> anyhow::Result<String> {
    let mut text = format!("# The kinds that are ours\n\n{NOTE}");
    for (controller, crd) in api_types::own_crds() {
        let version = crd.spec.versions.first().with_context(|| crd.name_any())?;
        let kind = &crd.spec.names.kind;
        let scope = crd.spec.scope.to_lowercase();
        let _ = write!(
            text,
            "\n## {kind}\n\n`{}/{}`, {scope}, shipped by the chart of {controller}.\n\n| field | type | |\n|---|---|---|\n",
            crd.spec.group, version.name
        );
        let schema = serde_json::to_value(&version.schema)?;
        let schema = &schema["openAPIV3Schema"];
        for part in ["spec", "status"] {
            fields(&schema["properties"][part], part, &mut text);
        }
    }
    Ok(text)
}

/// One row for each property below, in the order of their names.
fn fields(schema: &Value, path: &str, text: &mut String) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let mut kind = kind(field);
        if required.contains(&name.as_str()) {
            kind.push_str(", required");
        }
        let about = field["description"].as_str().unwrap_or_default();
        let _ = writeln!(text, "| `{path}` | {kind} | {} |", cell(about));
        fields(field, &path, text);
        fields(&field["items"], &format!("{path}[]"), text);
        fields(&field["additionalProperties"], &format!("{path}.*"), text);
    }
}

fn kind(field: &Value) -> String {
    if let Some(words) = field["enum"].as_array() {
        let word = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
        let words: Vec<String> = words.iter().map(word).collect();
        return format!("one of {}", quoted(&words));
    }
    match field["type"].as_str() {
        Some("array") => format!("list of {}", kind(&field["items"])),
        Some("object") if field["additionalProperties"].is_object() => {
            format!("map of {}", kind(&field["additionalProperties"]))
        }
        Some(name) => {
            field["format"].as_str().map_or(name.to_owned(), |it| format!("{name} ({it})"))
        }
        None if field["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        None => "anything".to_owned(),
    }
}

/// Text that fits into a cell of a table. Between backquotes nothing is a tag.
pub(crate) fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let parts = line.split('`').enumerate().map(|(number, part)| {
        if number % 2 == 0 { part.replace('<', "\\<") } else { part.to_owned() }
    });
    parts.collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::PODS;

    #[test]
    fn every_flag_has_its_variable_and_every_metric_its_help() {
        let sample = controllers::find("sample").unwrap();
        let page = controller_page(sample).unwrap();
        let promise = "| `Found` | A free seat was found. | 1 s |";
        for word in ["`--listen`", "`FERRITE_LISTEN`", "`--flaw`", "`none`", promise] {
            assert!(page.contains(word), "{word} is not in:\n{page}");
        }
        let rows = metrics(sample).unwrap();
        for (name, kind, labels) in [
            ("controller_runtime_reconcile_time_seconds", "histogram", "`controller`"),
            ("ferrite_sample_decisions_total", "counter", "`reason`"),
            ("ferrite_sample_promises_total", "counter", "`reason`, `result`"),
            ("ferrite_sample_waited_seconds", "histogram", "`reason`"),
            ("rest_client_requests_total", "counter", "`code`, `method`"),
            ("leader_election_master_status", "gauge", "`name`"),
        ] {
            let row = &rows[name];
            assert_eq!((row.kind.as_str(), row.labels.as_str()), (kind, labels), "{name}");
        }
        assert!(rows.values().all(|row| !row.help.is_empty()));
    }

    #[test]
    fn a_permission_says_where_and_why() {
        let rules = serde_json::json!({
            "namespaced": [{"why": "a | b", "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}, {
                "why": "e", "apiGroups": ["x.io"], "resources": ["ws/scale"], "verbs": ["patch"], "when": "wide",
            }],
            "cluster": [{"why": "c", "apiGroups": ["x.io"], "resources": ["xs"], "resourceNames": ["y"], "verbs": ["get"]}],
            "extendCrd": ["xs.x.io"],
            "aggregated": [{"name": "n", "labels": {"l": "true"}, "rules": [
                {"why": "d", "apiGroups": ["x.io"], "resources": ["zs"], "verbs": ["create"]},
            ]}],
        });
        let text = permissions(&serde_json::from_value(rules).unwrap());
        for row in [
            "\n| watched namespaces | core | `secrets` | get, list | a \\| b |\n",
            "\n| watched namespaces | x.io | `ws/scale` | patch | e; only with `wide.enabled` |\n",
            "\n| cluster | x.io | `xs`: `y` | get | c |\n",
            "get and patch the CRDs `xs.x.io`.",
            "with the label `l: true`:\n",
            "\n| cluster | x.io | `zs` | create | d |\n",
        ] {
            assert!(text.contains(row), "{row} is not in:\n{text}");
        }
    }

    #[test]
    fn the_sample_has_no_page() {
        let pages = pages().unwrap();
        assert!(!pages.contains_key("sample.md") && !pages["README.md"].contains("sample"));
        assert_eq!(pages.len(), PODS.len() + 2);
    }

    #[test]
    fn a_field_says_its_type_and_whether_it_is_required() {
        let schema = serde_json::json!({"required": ["a"], "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {
                "b": {"enum": ["x", "y"], "description": "One | two"},
            }}},
        }});
        let mut text = String::new();
        fields(&schema, "spec", &mut text);
        let wanted = "| `spec.a` | list of object, required |  |\n\
                      | `spec.a[].b` | one of `x`, `y` | One \\| two |\n";
        assert_eq!(text, wanted);
        assert_eq!(cell("<a> or `<b>`"), "\\<a> or `<b>`");
    }
}

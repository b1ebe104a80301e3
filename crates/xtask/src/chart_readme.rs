//! `README.md` of a controller's chart: what it installs, how, and every value that it has.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, ensure};
use kube::ResourceExt;
use serde::Deserialize;

use crate::reference::{cell, rules_of};
use crate::root;
use crate::values::{self, Value};

const NOTE: &str = "Made from the chart by `cargo xtask crdgen`.\n";

/// The values that all charts have in common.
pub(crate) const LIBRARY: &str = "charts/ferrite-library/values.yaml";

/// What is read of `Chart.yaml`.
#[derive(Deserialize)]
struct Chart {
    description: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Dependency {
    /// Names of blocks below `exports` of its values.
    import_values: Vec<String>,
}

/// The README of a controller's chart.
///
/// # Errors
/// When a file of the chart cannot be read, or a line of its values is not understood.
pub(crate) fn page(controller: &str) -> anyhow::Result<String> {
    let imports = imports(controller)?;
    let mut text = format!("# {controller}\n\n{NOTE}\n{}\n\n", chart(controller)?.description);
    let _ = writeln!(
        text,
        "With [an image of yours](../../docs/ops/install.md#images):\n\n```console\n{}\n```\n",
        install(controller, &imports)
    );
    text.push_str(&crds(controller)?);
    let _ = writeln!(
        text,
        "* [What it does](../../docs/controllers/{controller}.md), what it needs, and what has to be done first\n\
         * [Its flags, metrics and permissions](../../docs/reference/{controller}.md)\n\
         * [Its reasons](../../docs/reference/reasons/{controller}.md): what a condition or an event means, and what to do\n\
         * [Operating](../../docs/ops/README.md): install, health, why something waits, upgrade\n"
    );
    text.push_str("## Values\n\n| value | default | |\n|---|---|---|\n");
    for value in values_of(controller, &imports)? {
        text.push_str(&row(&value));
    }
    Ok(text)
}

fn chart(controller: &str) -> anyhow::Result<Chart> {
    let file = format!("charts/{controller}/Chart.yaml");
    serde_saphyr::from_str(&text_of(&file)?).context(file)
}

/// Names of the library's blocks that are values of this chart.
///
/// # Errors
/// When `Chart.yaml` cannot be read.
pub(crate) fn imports(controller: &str) -> anyhow::Result<Vec<String>> {
    Ok(chart(controller)?.dependencies.into_iter().flat_map(|it| it.import_values).collect())
}

/// A file of the checkout.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn text_of(file: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {file}"))
}

/// The commands, with those values without which the chart refuses to be installed.
fn install(controller: &str, imports: &[String]) -> String {
    let needed = if imports.iter().any(|block| block == "ironic") {
        " \\\n  --set ironic.endpoint=https://ironic.example.org:6385/"
    } else {
        ""
    };
    format!(
        "helm upgrade --install {controller} charts/{controller} --namespace ferrite-system --create-namespace \\\n\
         \x20 --set image.repository=<registry>/{controller}{needed}\n\
         helm test {controller} --namespace ferrite-system --logs"
    )
}

/// What happens to CRDs when the chart is installed.
fn crds(controller: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let own: Vec<String> = api_types::own_crds()
        .into_iter()
        .filter(|(owner, _)| *owner == controller)
        .map(|(_, crd)| format!("`{}`", crd.name_any()))
        .collect();
    if !own.is_empty() {
        let _ = writeln!(
            text,
            "CRDs that the chart installs (`crds.enabled`), and that stay when the release is uninstalled (`crds.keep`):\n{}.\n",
            own.join(", ")
        );
    }
    if !rules_of(controller)?.extend_crd.is_empty() {
        text.push_str(
            "Before an install or upgrade, a hook adds the fields that the controller needs to other projects' CRDs\n\
             (`extendCrd.enabled`, [why](../../docs/adr/0004-extend-crd.md)).\n\n",
        );
    }
    Ok(text)
}

/// The chart's own values, then those that it imports.
fn values_of(controller: &str, imports: &[String]) -> anyhow::Result<Vec<Value>> {
    let file = format!("charts/{controller}/values.yaml");
    let mut all = values::read(&file, &text_of(&file)?)?;
    let library = values::read(LIBRARY, &text_of(LIBRARY)?)?;
    for block in imports {
        let imported = exported(&library, block);
        ensure!(!imported.is_empty(), "{LIBRARY} exports no {block}, which {controller} imports");
        add(&mut all, imported);
    }
    Ok(all)
}

/// The values of a block that the library exports, as a chart has them that imports it.
fn exported(library: &[Value], block: &str) -> Vec<Value> {
    let prefix = format!("exports.{block}.");
    let below = |value: &Value| {
        let key = value.key.strip_prefix(prefix.as_str())?.to_owned();
        Some(Value { key, ..value.clone() })
    };
    library.iter().filter_map(below).collect()
}

/// Adds what the chart does not set itself. Where it does so without a word, the library's words are about it, too.
fn add(all: &mut Vec<Value>, imported: Vec<Value>) {
    for value in imported {
        match all.iter_mut().find(|own| own.key == value.key) {
            Some(own) if own.about.is_empty() => own.about = value.about,
            Some(_) => {}
            None => all.push(value),
        }
    }
}

/// A block of which nothing is said needs no row: the values in it have theirs.
fn row(value: &Value) -> String {
    let default = value.default.as_ref().map(|it| format!("`{it}`"));
    if default.is_none() && value.about.is_empty() {
        return String::new();
    }
    let default = cell(&default.unwrap_or_default());
    format!("| `{}` | {default} | {} |\n", value.key, cell(&value.about))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value as Json;

    use super::*;
    use crate::controllers::PODS;

    /// What a YAML parser finds, by its path, without the blocks.
    fn leaves(values: &Json, path: &str, found: &mut BTreeMap<String, Json>) {
        for (name, value) in values.as_object().unwrap() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if value.as_object().is_some_and(|it| !it.is_empty()) {
                leaves(value, &path, found);
            } else {
                found.insert(path, value.clone());
            }
        }
    }

    fn parsed(file: &str) -> Json {
        serde_saphyr::from_str(&text_of(file).unwrap()).unwrap()
    }

    #[test]
    fn every_value_that_a_yaml_parser_finds_has_its_row_and_its_default() {
        let exports = &parsed(LIBRARY)["exports"];
        for controller in PODS {
            let chart = parsed(&format!("charts/{controller}/Chart.yaml"));
            let mut wanted = BTreeMap::new();
            for block in chart["dependencies"][0]["import-values"].as_array().unwrap() {
                leaves(&exports[block.as_str().unwrap()], "", &mut wanted);
            }
            wanted.remove("settings");
            leaves(&parsed(&format!("charts/{controller}/values.yaml")), "", &mut wanted);

            let page = page(controller).unwrap();
            let mut found = BTreeMap::new();
            for row in page.lines().filter(|it| it.starts_with("| `")) {
                let cells: Vec<&str> = row.split(" | ").collect();
                let key = cells[0].trim_start_matches("| ").trim_matches('`');
                let default = cells[1].trim_matches('`').replace("\\|", "|");
                if !default.is_empty() {
                    let default: Json = serde_saphyr::from_str(&default).unwrap();
                    assert_eq!(found.insert(key.to_owned(), default), None, "{controller}: {key}");
                }
            }
            assert_eq!(found, wanted, "{controller}");
        }
    }

    #[test]
    fn the_command_is_the_one_of_the_controllers_page_and_links_lead_somewhere() {
        for controller in PODS {
            let page = page(controller).unwrap();
            let documented = text_of(&format!("docs/controllers/{controller}.md")).unwrap();
            let at = page.lines().position(|it| it.starts_with("helm upgrade --install")).unwrap();
            for command in page.lines().skip(at).take(2) {
                let command = command.trim_end_matches(" \\");
                assert!(
                    documented.lines().any(|it| it.trim_end_matches(" \\") == command),
                    "{controller}: {command}"
                );
            }
            for link in page.split("](../../").skip(1) {
                let (link, _) = link.split_once(')').unwrap();
                let path = link.split('#').next().unwrap();
                assert!(root().join(path).exists(), "{controller}: {path}");
            }
        }
    }

    #[test]
    fn what_the_chart_sets_itself_stands_once_with_the_librarys_words_where_it_has_none() {
        let value = |key: &str, default: &str, about: &str| Value {
            key: key.to_owned(),
            default: Some(default.to_owned()),
            about: about.to_owned(),
        };
        let mut all = vec![value("a", "1", ""), value("b", "1", "ours")];
        add(&mut all, vec![value("a", "0", "theirs"), value("b", "0", "x"), value("c", "0", "")]);
        let wanted = [value("a", "1", "theirs"), value("b", "1", "ours"), value("c", "0", "")];
        assert_eq!(all, wanted);
    }

    #[test]
    fn a_row_has_no_more_cells_than_the_table() {
        let mut value =
            Value { key: "a".to_owned(), default: None, about: "x | <y> or `z`".to_owned() };
        assert_eq!(row(&value), "| `a` |  | x \\| \\<y> or `z` |\n");
        value.about.clear();
        assert_eq!(row(&value), "");
        value.default = Some("\"\"".to_owned());
        assert_eq!(row(&value), "| `a` | `\"\"` |  |\n");
    }
}

//! The list of the site's pages, from the folders and the pages' first headings.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;

use crate::{files, root};

/// The parts of the list, in the order of what a reader comes for. A folder stands for its pages, and a page also for
/// those of the folder with its name.
const PARTS: &[(&str, &[&str])] = &[
    ("Start", &["README.md", "docs/demo.md", "docs/pictures"]),
    ("Do", &["docs/ops", "deploy"]),
    (
        "Understand",
        &[
            "docs/controllers",
            "docs/architecture.md",
            "docs/compared.md",
            "docs/splitting.md",
            "docs/scale.md",
        ],
    ),
    (
        "Look up",
        &[
            "docs/reference",
            "charts",
            "docs/runbooks",
            "docs/kubectl-ferrite.md",
            "docs/glossary.md",
            "docs/adr",
            "CHANGELOG.md",
        ],
    ),
    ("Change", &["CONTRIBUTING.md", "docs/testing.md", "SECURITY.md"]),
];

/// A page of the site, at the path that it has in the checkout.
pub(super) struct Chapter {
    pub(super) path: PathBuf,
    pub(super) text: String,
    depth: usize,
}

impl Chapter {
    /// The page's first heading.
    fn title(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
    }
}

/// Names of the parts, and their chapters.
pub(super) type List = Vec<(&'static str, Vec<Chapter>)>;

/// All chapters in their order.
///
/// # Errors
/// When a page of the checkout is not among them, or is there twice.
pub(super) fn list() -> anyhow::Result<List> {
    let of = |entries: &[&str]| entries.iter().flat_map(|it| chapters(Path::new(it), 0)).collect();
    let list: List = PARTS.iter().map(|(part, entries)| (*part, of(entries))).collect();
    check(&list)?;
    Ok(list)
}

/// What mdBook reads the list from.
pub(super) fn summary(list: &List) -> String {
    let mut text = String::new();
    for (part, chapters) in list {
        let _ = writeln!(text, "\n# {part}\n");
        for chapter in chapters {
            let (indent, path) = (chapter.depth * 2, chapter.path.display());
            let _ = writeln!(text, "{:indent$}- [{}]({path})", "", chapter.title());
        }
    }
    text
}

/// A page, or the README of a folder, and the pages below it. A folder without a README gets a list of its pages.
fn chapters(entry: &Path, depth: usize) -> Vec<Chapter> {
    let folder = entry.with_extension("");
    let path = if folder == entry { folder.join("README.md") } else { entry.to_owned() };
    let text = fs::read_to_string(root().join(&path));
    let mut entries = entries(&folder);
    // In the order in which the page leads to them, folders last.
    entries.sort_by_key(|entry| {
        let name = entry.file_name().and_then(|it| it.to_str());
        let place = text.as_ref().ok().zip(name).and_then(|(text, name)| text.find(name));
        (entry.extension().is_none(), place.unwrap_or(usize::MAX), entry.clone())
    });
    let below: Vec<Chapter> = entries.iter().flat_map(|it| chapters(it, depth + 1)).collect();
    let text =
        text.unwrap_or_else(|_| index(&folder, below.iter().filter(|it| it.depth == depth + 1)));
    std::iter::once(Chapter { path, text, depth }).chain(below).collect()
}

/// What stands in a folder beside its README: pages, and folders with pages but without a page of their name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let there = fs::read_dir(root().join(folder)).into_iter().flatten().flatten();
    let paths = there.map(|it| folder.join(it.file_name()));
    paths
        .filter(|path| match path.extension() {
            Some(extension) => extension == "md" && !path.ends_with("README.md"),
            None => {
                !root().join(path.with_extension("md")).exists()
                    && !files(&root().join(path), "md").is_empty()
            }
        })
        .collect()
}

/// The page of a folder without a README.
fn index<'a>(folder: &Path, chapters: impl Iterator<Item = &'a Chapter>) -> String {
    let title = match folder.file_name().and_then(|it| it.to_str()) {
        Some("adr") => "Decisions".to_owned(),
        name => {
            let name = name.unwrap_or_default();
            format!("{}{}", name[..1].to_uppercase(), &name[1..])
        }
    };
    let mut text = format!("# {title}\n\n");
    for chapter in chapters {
        let path = chapter.path.strip_prefix(folder).unwrap_or(&chapter.path).display();
        let _ = writeln!(text, "* [{}]({path})", chapter.title());
    }
    text
}

/// Whether each page of the checkout stands in the list once.
fn check(list: &List) -> anyhow::Result<()> {
    let mut missing: BTreeSet<PathBuf> = files(root(), "md")
        .iter()
        .filter_map(|page| Some(page.strip_prefix(root()).ok()?.to_owned()))
        .filter(|page| !page.starts_with(".github"))
        .collect();
    let mut listed = BTreeSet::new();
    for chapter in list.iter().flat_map(|(_, chapters)| chapters) {
        missing.remove(&chapter.path);
        let path = chapter.path.display();
        ensure!(listed.insert(&chapter.path), "the list of the site has {path} twice");
        ensure!(
            !chapter.title().is_empty(),
            "{path} has no heading to stand in the list of the site"
        );
    }
    ensure!(missing.is_empty(), "PARTS of crates/xtask/src/site/list.rs lacks {missing:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_stands_in_the_list_once() {
        let mut list = list().unwrap();
        let page = list[1].1.pop().unwrap();
        let shown = page.path.display().to_string();
        assert!(check(&list).unwrap_err().to_string().contains(&shown));
        list[0].1.push(Chapter { text: page.text.clone(), path: page.path.clone(), depth: 0 });
        check(&list).unwrap();
        list[2].1.push(page);
        assert!(check(&list).unwrap_err().to_string().contains(&format!("{shown} twice")));
    }

    #[test]
    fn a_folder_comes_before_its_pages_in_the_order_of_its_readme() {
        let summary = summary(&list().unwrap());
        let place =
            |line: &str| summary.find(line).unwrap_or_else(|| panic!("no {line} in {summary}"));
        let lines = [
            "\n- [Operating](docs/ops/README.md)\n",
            "\n  - [Install](docs/ops/install.md)\n",
            "\n  - [Check the health](docs/ops/health.md)\n",
            "\n- [Controllers](docs/controllers/README.md)\n",
            "\n  - [remediation](docs/controllers/remediation.md)\n",
            "\n    - [How an attempt runs](docs/controllers/remediation/how-an-attempt-runs.md)\n",
        ];
        assert!(lines.map(place).is_sorted(), "{summary}");
    }
}

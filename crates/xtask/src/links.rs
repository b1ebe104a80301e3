//! Links between the project's pages: each leads to a file that is there, and to a heading that the file has.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use anyhow::bail;

use crate::{files, root};

/// Follows every link of every Markdown file but those to other sites.
///
/// # Errors
/// With one line for each link that leads nowhere.
pub(crate) fn run() -> anyhow::Result<()> {
    let broken: Vec<String> = files(root(), "md").iter().flat_map(|page| broken(page)).collect();
    if !broken.is_empty() {
        bail!("{} links lead nowhere:\n  {}", broken.len(), broken.join("\n  "));
    }
    Ok(())
}

/// One line for each link of a page that leads nowhere.
fn broken(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let mut broken = Vec::new();
    for (number, line) in prose(&text) {
        for link in links(line).filter(|link| !leads_somewhere(page, link)) {
            let shown = page.strip_prefix(root()).unwrap_or(page).display();
            broken.push(format!("{shown}:{number}: {link}"));
        }
    }
    broken
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    if link.contains("://") {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = match file {
        "" => page.to_owned(),
        file => page.with_file_name(file),
    };
    if anchor.is_empty() {
        return file.exists();
    }
    fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(anchor))
}

/// The lines outside of blocks of code, with their numbers.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((number + 1, line))
    })
}

/// Where the links of a line lead. Between backquotes there are none.
pub(crate) fn links(line: &str) -> impl Iterator<Item = String> {
    let plain: String = line.split('`').step_by(2).collect();
    let ends: Vec<String> = plain
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next().map(str::to_owned))
        .collect();
    ends.into_iter()
}

/// The names of a page's headings in links, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: HashMap<String, u32> = HashMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let named = headings.map(|title| {
        let kept = title.trim().chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        let name = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let before = times.entry(name.clone()).or_default();
        *before += 1;
        if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use bench::cache::RunDir;

    use super::*;

    #[test]
    fn a_heading_is_called_as_github_calls_it() {
        let text = "# What's `it`, then?\n## Twice\n```\n# no heading\n```\n## Twice\n#neither\n";
        let wanted = ["twice", "twice-1", "whats-it-then"].map(str::to_owned);
        assert_eq!(anchors(text), BTreeSet::from(wanted));
    }

    #[test]
    fn a_link_that_leads_nowhere_is_told_with_its_line() {
        let folder = RunDir::new("links").unwrap();
        let (one, two) = (folder.path().join("one.md"), folder.path().join("two.md"));
        fs::write(&two, "# Two\n").unwrap();
        let text = "# One\n\
                    [a](two.md) [b](two.md#two) ![c](#one) [`d`](.) [e](https://example.org/none#x)\n\
                    `[f](none)`\n\
                    ```\n[g](none)\n```\n\
                    [h](none.md)\n\
                    [i](two.md#three \"title\"), [j\n\
                    k](#two)\n";
        fs::write(&one, text).unwrap();
        let told: Vec<String> = broken(&one)
            .iter()
            .map(|line| line.rsplit_once("one.md:").unwrap().1.to_owned())
            .collect();
        assert_eq!(told, ["7: none.md", "8: two.md#three", "9: #two"]);
        assert_eq!(files(folder.path(), "md"), [one, two]);
    }
}

//! Links of the built site: each leads to a file that is there, and to an anchor that the file has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::files;

/// A page of HTML: its anchors, and the files and anchors that it needs.
struct Page {
    anchors: BTreeSet<String>,
    targets: Vec<String>,
}

/// Follows every link, picture and script of every page but those of other sites. Gives how many there are.
///
/// # Errors
/// With one line for each that leads nowhere.
pub(super) fn check(site: &Path) -> anyhow::Result<usize> {
    let site = site.canonicalize()?;
    let mut pages = BTreeMap::new();
    for path in files(&site, "html") {
        let text = fs::read_to_string(&path)?;
        let anchors = values(&text, "id").collect();
        let targets = values(&text, "href").chain(values(&text, "src"));
        let targets = targets.filter(|it| !is_elsewhere(it)).collect();
        pages.insert(path, Page { anchors, targets });
    }
    let (mut count, mut broken) = (0, Vec::new());
    for (path, page) in &pages {
        for target in &page.targets {
            count += 1;
            let found = file_of(&site, path, target).is_some_and(|file| {
                let anchor = target.split_once('#').map_or("", |(_, anchor)| anchor);
                anchor.is_empty() || pages.get(&file).is_some_and(|it| it.anchors.contains(anchor))
            });
            if !found {
                broken.push(format!("{}: {target}", path.strip_prefix(&site)?.display()));
            }
        }
    }
    if !broken.is_empty() {
        bail!("{} links of the site lead nowhere:\n  {}", broken.len(), broken.join("\n  "));
    }
    Ok(count)
}

/// The file of the site that a target of a page names. A folder is none: only a server shows its index.
fn file_of(site: &Path, page: &Path, target: &str) -> Option<PathBuf> {
    let file = match target.split(['#', '?']).next().unwrap_or_default() {
        "" => page.to_owned(),
        file => page.with_file_name(file).canonicalize().ok()?,
    };
    (file.starts_with(site) && file.is_file()).then_some(file)
}

/// Whether a target begins with a protocol: another site, or data in place of a file.
fn is_elsewhere(target: &str) -> bool {
    let name = target.split([':', '/', '#', '?']).next().unwrap_or_default();
    target[name.len()..].starts_with(':')
}

/// What the tags of a page have as this attribute.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = String> + use<'a> {
    let begin = format!(" {attribute}=\"");
    let tags = text.split('<').skip(1).filter_map(|tag| tag.split('>').next());
    tags.filter_map(move |tag| {
        let value = tag.split_once(&begin)?.1.split('"').next()?;
        Some(value.replace("&amp;", "&"))
    })
}

#[cfg(test)]
mod tests {
    use bench::cache::RunDir;

    use super::*;

    #[test]
    fn a_link_of_the_site_that_leads_nowhere_is_shown() {
        let folder = RunDir::new("site").unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("ops")).unwrap();
        write(
            "ops/index.html",
            "<h1 id=\"two\">Two</h1><a class=\"up\" href=\"../index.html#one\">",
        );
        write("site.css", "");
        let fine = "<h1 id=\"one\">a href=\"none\"</h1><link rel=\"stylesheet\" href=\"site.css\">\
                    <a href=\"https://example.org/none#x\"><a href=\"#one\"><a href=\"ops/index.html#two\">";
        write("index.html", fine);
        assert_eq!(check(folder.path()).unwrap(), 4);
        let broken = "<a href=\"ops/index.html#three\"><a href=\"none.html\"><a href=\"ops/\">\
                      <img src=\"none.svg\"><a href=\"../run\"><a href=\"/index.html\"><a href=\"#two\">";
        write("index.html", &format!("{fine}{broken}"));
        let error = check(folder.path()).unwrap_err().to_string();
        let shown: Vec<&str> =
            error.lines().skip(1).map(|it| it.rsplit_once(' ').unwrap().1).collect();
        let wanted = [
            "ops/index.html#three",
            "none.html",
            "ops/",
            "../run",
            "/index.html",
            "#two",
            "none.svg",
        ];
        assert_eq!(shown, wanted);
    }
}

//! `cargo xtask docs`: the pages as a site with a search, made by mdBook.

mod list;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::cache;
use bench::programs::{cargo, target_folder};
use bench::steps::step;

use crate::links::{links, prose};
use crate::root;

/// The crates whose programs make the site, their versions and features. The second one draws the diagrams.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("mdbook", "0.5.4", &["--no-default-features", "--features", "search"]),
    ("mdbook-mermaid", "0.17.1", &[]),
];

/// Builds the site into the folder `site` of the target folder and follows each of its links.
///
/// # Errors
/// When a page is missing in the list, mdBook fails, or a link leads nowhere.
pub(crate) fn run() -> anyhow::Result<()> {
    let target = target_folder()?;
    let (source, site) = (target.join("site-source"), target.join("site"));
    let programs = programs()?;
    step("the site", || {
        clear(&source)?;
        lay_out(&source.join("src"))?;
        for file in ["book.toml", "site.css"] {
            fs::copy(root().join("docs").join(file), source.join(file))?;
        }
        // Writes the scripts that book.toml names.
        cache::run(Command::new(programs.join("mdbook-mermaid")).arg("install").arg(&source))?;
        clear(&site)?;
        let mut mdbook = Command::new(programs.join("mdbook"));
        mdbook.env("PATH", with_first(&programs)?).arg("build").arg(&source);
        cache::run(mdbook.arg("--dest-dir").arg(&site))
    })?;
    let count = step("links of the site", || targets::check(&site))?;
    println!("{count} links lead somewhere: {}", site.join("index.html").display());
    Ok(())
}

/// The folder of mdBook's programs, compiled the first time.
fn programs() -> anyhow::Result<PathBuf> {
    let dir = cache::entry("site", &format!("{PROGRAMS:?}"), |dir| {
        for (name, version, features) in PROGRAMS {
            step(&format!("building {name} (minutes, the first time)"), || {
                let mut install = cargo();
                install
                    .env("CARGO_TARGET_DIR", dir.join("target"))
                    .args(["install", "--locked", "--version", version, "--root"])
                    .arg(dir);
                cache::run(install.args(*features).arg(name))
            })?;
        }
        Ok(fs::remove_dir_all(dir.join("target"))?)
    })?;
    Ok(dir.join("bin"))
}

/// The search path with this folder first: mdBook looks there for what draws the diagrams.
fn with_first(folder: &Path) -> anyhow::Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}

/// Removes a folder with what an earlier run left there.
fn clear(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}

/// Writes the list, the pages, and the files that they show or link to, in the folders that they have in the checkout.
fn lay_out(folder: &Path) -> anyhow::Result<()> {
    let list = list::list()?;
    let write = |path: &Path, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)
    };
    write(Path::new("SUMMARY.md"), &list::summary(&list))?;
    for chapter in list.iter().flat_map(|(_, chapters)| chapters) {
        let page = root().join(&chapter.path);
        write(&chapter.path, &relinked(&page, &chapter.text))?;
        for (_, file, _) in local_links(&chapter.text) {
            let file = page.with_file_name(file);
            if file.is_file() && file.extension().is_none_or(|it| it != "md") {
                let file = file.canonicalize()?;
                let path = file.strip_prefix(root().canonicalize()?)?;
                write(path, &fs::read_to_string(&file)?)?;
            }
        }
    }
    Ok(())
}

/// The text of a page whose links to a folder, or to its README, lead to the folder's index. mdBook makes an index of a
/// README, and does not change the links to it.
fn relinked(page: &Path, text: &str) -> String {
    let mut relinked = text.to_owned();
    for (link, file, anchor) in local_links(text) {
        let folder = if page.with_file_name(&file).is_dir() {
            file.trim_end_matches('/').to_owned() + "/"
        } else if let Some(folder) = file.strip_suffix("README.md") {
            folder.to_owned()
        } else {
            continue;
        };
        relinked = relinked.replace(&format!("]({link})"), &format!("]({folder}index.md{anchor})"));
    }
    relinked
}

/// The links of a text to other files of the checkout: whole, the file, and the rest with the anchor.
fn local_links(text: &str) -> impl Iterator<Item = (String, String, String)> {
    prose(text).flat_map(|(_, line)| links(line)).filter_map(|link| {
        let (file, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
        let is_local = !file.is_empty() && !file.contains("://");
        is_local.then(|| (link.clone(), file.to_owned(), anchor.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_folder_or_its_readme_leads_to_the_index() {
        let text = "[a](docs/runbooks/) [b](deploy/README.md#image) [c](SECURITY.md)\n\
                    [d](https://example.org/README.md) [e](#f)\n";
        let wanted = "[a](docs/runbooks/index.md) [b](deploy/index.md#image) [c](SECURITY.md)\n\
                      [d](https://example.org/README.md) [e](#f)\n";
        assert_eq!(relinked(&root().join("README.md"), text), wanted);
    }
}

//! Modules of a crate import downwards only: where two need each other, neither can be read alone.
//!
//! A module here is a file or folder directly below `src`: what stands below `decide/` belongs to `decide`. Tests do not
//! count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which modules of a crate each module names.
#[derive(Debug, Default)]
pub(crate) struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    /// Takes in a file, by its path below `src`.
    pub(crate) fn add(&mut self, path: &str, code: &str) {
        let module = path.split(['/', '.']).next().unwrap_or(path).to_owned();
        // Below a folder, `super` may be any of its own modules, which are one.
        let prefixes: &[&str] =
            if path.contains('/') { &["crate::"] } else { &["crate::", "super::"] };
        let named = self.0.entry(module).or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for prefix in prefixes {
                for (at, _) in line.match_indices(prefix) {
                    let part_of_a_word =
                        line[..at].ends_with(|it: char| it.is_alphanumeric() || it == '_');
                    if !part_of_a_word {
                        named.extend(names(&line[at + prefix.len()..]));
                    }
                }
            }
        }
    }

    /// The circles, each as a chain of names; of several through the same modules, one.
    pub(crate) fn circles(&self) -> Vec<String> {
        let mut found = BTreeMap::new();
        for circle in self.0.keys().filter_map(|module| self.circle(module)) {
            let members: BTreeSet<&str> = circle.iter().copied().collect();
            found.entry(members).or_insert_with(|| circle.join(" -> "));
        }
        found.into_values().collect()
    }

    /// The shortest way from a module over what it names back to it.
    fn circle<'a>(&'a self, start: &'a str) -> Option<Vec<&'a str>> {
        let mut ways = VecDeque::from([vec![start]]);
        let mut met = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            let last = way[way.len() - 1];
            for next in self.0[last].iter().map(String::as_str) {
                // What is no module of the crate is a function, a type or a constant.
                if next == last || !self.0.contains_key(next) {
                    continue;
                }
                let longer = [way.as_slice(), &[next]].concat();
                if next == start {
                    return Some(longer);
                }
                if met.insert(next) {
                    ways.push_back(longer);
                }
            }
        }
        None
    }
}

/// The names that follow `crate::`: one, or those of a list in braces.
fn names(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect()
    };
    let list = rest.strip_prefix('{').map(|list| list.split('}').next().unwrap_or(list));
    match list {
        Some(list) => list.split(',').map(name).collect(),
        None => vec![name(rest)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let mut imports = Imports::default();
        for (path, code) in files {
            imports.add(path, code);
        }
        imports.circles()
    }

    #[test]
    fn two_modules_that_name_each_other_are_a_circle() {
        let found = circles(&[
            ("act.rs", "use crate::controller::Context;"),
            ("controller.rs", "fn run() { crate::act::act(); }"),
            ("seen.rs", "use crate::{act, reason};"),
        ]);
        assert_eq!(found, ["act -> controller -> act"]);
    }

    #[test]
    fn a_longer_circle_is_found_once() {
        let found = circles(&[
            ("a.rs", "use crate::{b, x};"),
            ("b.rs", "use super::c::C;"),
            ("c.rs", "use crate::a;"),
        ]);
        assert_eq!(found, ["a -> b -> c -> a"]);
    }

    #[test]
    fn imports_downwards_and_those_within_a_folder_are_none() {
        let found = circles(&[
            ("decide.rs", "use crate::case::Case;\nmod rules;"),
            ("decide/rules.rs", "use super::Rule;\nuse crate::decide::helper;\nuse crate::case;"),
            ("case.rs", "//! See [`crate::decide`].\nuse crate::CONSTANT;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}

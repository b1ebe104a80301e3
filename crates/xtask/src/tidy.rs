//! Holds the house to its own rules. They are about text, so they are checked on text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::bail;

use crate::circles::Imports;
use crate::controllers::ALL;
use crate::{files, root, words};

/// A controller's files: the same in each, so that who has read one knows where to look in the next.
const CONTROLLER_FILES: &[&str] = &[
    "main.rs",
    "lib.rs",
    "settings.rs",
    "controller.rs",
    "observe.rs",
    "decide.rs",
    "reason.rs",
    "context.rs",
    "model.rs",
    "write.rs",
];

/// The kubectl plugin, and its modules that are as pure as a decide: no answer depends on more than what was read.
const PLUGIN: &str = "crates/kubectl-ferrite/src/";
const PURE_IN_PLUGIN: &[&str] = &["/explain.rs", "/links.rs", "/report.rs"];

/// Words of the domain, which the kit must not know.
const DOMAIN_WORDS: &[&str] =
    &["baremetal", "metal3machine", "ironic", "clusterpool", "remediation", "redfish"];

/// What makes a decision impure: a client, a clock, a log, waiting.
const IMPURE: &[&str] =
    &["kube::Client", "Api<", "tokio", "tracing", "::now(", "async fn", ".await", "Result<"];

/// What writes to the API server or to Ironic.
const WRITES: &[&str] = &[
    ".patch(",
    ".patch_metadata(",
    ".patch_scale(",
    ".patch_status(",
    ".create(",
    ".delete(",
    ".replace(",
    ".replace_status(",
    ".patch_node(",
    ".ready_for_power(",
];

/// Where names of ours stand, and the page that says what they are once their controller is gone.
const OWN_NAMES: &str = "crates/api-types/src/names/ferrite.rs";
const WHAT_STAYS: &str = "docs/ops/uninstall.md";

/// Prefixes of labels and annotations: their names stand once, in api-types.
const NAME_PREFIXES: &[&str] = &["metal3.io/", "cluster.x-k8s.io/", "hive.openshift.io/"];

/// Checks every file of the project.
///
/// # Errors
/// With one line for each rule that is broken, and where.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut broken = Vec::new();
    let mut imports = BTreeMap::<String, Imports>::new();
    for path in files(root(), "rs") {
        let shown = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        check(&shown, &text, &mut broken);
        broken.extend(unlisted(&shown));
        if let Some((name, below)) = module(&shown) {
            imports.entry(name.to_owned()).or_default().add(below, without_tests(&text));
        }
    }
    broken.extend(ALL.iter().flat_map(|it| missing_files(&it.folder())));
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_default();
    broken.extend(unexplained(&read(OWN_NAMES), &read(WHAT_STAYS)));
    broken.extend(words::long_pages());
    broken.extend(words::odd_subjects());
    for (name, imports) in imports {
        let told = |chain: String| format!("{name}: modules go in a circle: {chain}");
        broken.extend(imports.circles().into_iter().map(told));
    }
    if !broken.is_empty() {
        bail!("{} of the house's rules are broken:\n  {}", broken.len(), broken.join("\n  "));
    }
    Ok(())
}

/// The folders of which an image may be made, as the Dockerfile's builder is sent them.
fn sent() -> impl Iterator<Item = &'static str> {
    include_str!("../../../deploy/Dockerfile.dockerignore")
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
}

/// The rules of one Rust file.
fn check(path: &str, text: &str, broken: &mut Vec<String>) {
    let (lines, code_lines) = (text.lines().count(), code_lines(text));
    if code_lines > 600 {
        broken.push(format!(
            "{path}: {code_lines} lines of code; cut it where the domain cuts it (600 at most)"
        ));
    }
    if path.ends_with("src/main.rs") && is_controller(path) && lines > 60 {
        broken.push(format!("{path}: {lines} lines; main.rs only starts (60 at most)"));
    }
    let code = without_tests(text);
    let in_controller = is_controller(path);
    let decides = path.ends_with("/decide.rs") || path.contains("/src/decide/");
    // A write waits for its answer: where nothing is awaited, `replace` is about a text and `delete` about a plan.
    let is_writer = path.ends_with("/write.rs") || path.contains("/src/write/");
    let in_crate = path.starts_with("crates/") && path.contains("/src/");
    let in_kit = path.starts_with("crates/controller-kit/src/");
    let in_plugin = path.starts_with(PLUGIN) && !path.ends_with("/tests.rs");
    let explains = in_plugin && PURE_IN_PLUGIN.iter().any(|it| path.ends_with(it));
    // The sample's names are nobody's API and stand in its lib.rs. The lease is the kit's own object.
    let has_no_names = path.starts_with("crates/") && in_controller
        || in_plugin
        || in_kit && !path.ends_with("/src/lease.rs");
    let bans: [Ban; 5] = [
        (
            in_controller && decides || explains,
            |line| word_of(IMPURE, line),
            "decide is pure and total: no client, no clock, no log, no waiting, no Result",
        ),
        (
            (in_controller || in_plugin) && !is_writer && names(code, ".await"),
            |line| word_of(WRITES, line),
            "write.rs and its parts are the only writers",
        ),
        (
            in_crate && !path.starts_with("crates/xtask/"),
            |line| line.split('"').skip(1).step_by(2).find(|it| is_left_out(it)),
            "the image is made without that folder; see deploy/Dockerfile.dockerignore",
        ),
        (
            has_no_names,
            |line| without_comment(line).split('"').skip(1).step_by(2).find(|it| is_name(it)),
            "names of labels and annotations stand in api-types",
        ),
        (
            in_kit,
            |line| DOMAIN_WORDS.iter().copied().find(|it| line.to_lowercase().contains(it)),
            "the kit knows no word of the domain",
        ),
    ];
    for (number, line) in code.lines().enumerate() {
        for (_, found, why) in bans.iter().filter(|it| it.0) {
            broken
                .extend(found(line).map(|what| format!("{path}:{}: `{what}`: {why}", number + 1)));
        }
    }
}

/// Whether a file is held to it, what a line holds against it, and why it must not.
type Ban = (bool, fn(&str) -> Option<&str>, &'static str);

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// The first of these words that the code of a line holds.
fn word_of(words: &'static [&'static str], line: &str) -> Option<&'static str> {
    words.iter().copied().find(|word| names(without_comment(line), word))
}

/// Whether a literal is a path to what the builder of images is not sent.
fn is_left_out(literal: &str) -> bool {
    let folder = literal.strip_prefix("../../../").and_then(|it| it.split('/').next());
    folder.is_some_and(|folder| sent().all(|it| it != folder))
}

/// Whether a word stands in a text, and is not the beginning of a longer one: `.awaits_node()` awaits nothing.
fn names(text: &str, word: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|it: char| it.is_ascii_alphabetic());
    let is_open = word.ends_with(|it: char| it.is_ascii_alphabetic());
    text.match_indices(word).any(|(at, _)| !(is_open && goes_on(&text[at + word.len()..])))
}

/// Whether a literal is the name of a label or an annotation, and neither a sentence nor an apiVersion.
fn is_name(literal: &str) -> bool {
    let name = NAME_PREFIXES.iter().find_map(|prefix| literal.split_once(prefix)).map(|(_, it)| it);
    let is_version = |name: &str| {
        let digit = name.strip_prefix('v').and_then(|rest| rest.chars().next());
        name.starts_with("{version") || digit.is_some_and(|it| it.is_ascii_digit())
    };
    name.is_some_and(|name| !is_version(name)) && !literal.contains(' ')
}

/// Whoever decides is a controller, and is held to the rules of one by standing in the list.
fn unlisted(path: &str) -> Option<String> {
    let folder = path.strip_suffix("/src/decide.rs")?;
    let is_listed = ALL.iter().any(|it| it.folder() == folder);
    (!is_listed).then(|| format!("{folder}: a controller that controllers::ALL does not list"))
}

/// Lines without blank ones, comments and the tests at the end; of a file of tests, all of its code.
fn code_lines(text: &str) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    without_tests(text).lines().filter(is_code).count()
}

/// The crate of a file and its path below `src`, where that is a module of which imports count.
fn module(path: &str) -> Option<(&str, &str)> {
    let (folder, below) = path.split_once("/src/")?;
    let name = folder.strip_prefix("crates/").or((folder == "tests/sample").then_some("sample"))?;
    let is_test = below.contains("tests") || below.contains("properties");
    (!is_test && !matches!(below, "lib.rs" | "main.rs")).then_some((name, below))
}

/// Tests are held to other rules: they stand last in a file.
fn without_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]").map_or(text, |at| &text[..at])
}

/// Whether a file belongs to a controller and is no test. The sample is one of them: it is the one to read first, and to copy.
fn is_controller(path: &str) -> bool {
    let of_controller = |(folder, _): (&str, &str)| ALL.iter().any(|it| it.folder() == folder);
    let is_test =
        path.ends_with("/tests.rs") || path.ends_with("/properties.rs") || path.contains("/tests/");
    !is_test && path.split_once("/src/").is_some_and(of_controller)
}

/// One line for each file that every controller has and this folder has not.
fn missing_files(folder: &str) -> Vec<String> {
    let source = root().join(folder).join("src");
    let missing = CONTROLLER_FILES.iter().filter(|it| !source.join(it).exists());
    missing.map(|file| format!("{folder}: has no src/{file}, as every controller has")).collect()
}

/// One line for each name of ours that the page about uninstalling does not have: whoever finds it on an object then, does not
/// know whether it may go.
fn unexplained(names: &str, page: &str) -> Vec<String> {
    let in_name = |it: char| it.is_ascii_alphanumeric() || it == '-';
    let words: BTreeSet<&str> = page.split(|it| !in_name(it)).collect();
    let own = names.lines().filter_map(|line| line.split_once("= \"ferrite.metal3.io/"));
    let own = own.filter_map(|(_, rest)| rest.split_once('"')).map(|(name, _)| name);
    let is_whole = |name: &&str| !name.is_empty() && name.chars().all(in_name);
    let missing = own.filter(is_whole).filter(|name| !words.contains(name));
    missing.map(|name| format!("{WHAT_STAYS}: does not name ferrite.metal3.io/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<String> {
        let mut broken = Vec::new();
        check(path, text, &mut broken);
        broken
    }

    #[test]
    fn a_decide_that_looks_at_the_clock_is_refused() {
        let text = "pub fn decide() { let now = Timestamp::now(); }";
        for path in ["decide.rs", "decide/rules.rs", "decide/rules/first.rs"] {
            assert_eq!(broken(&format!("crates/bmo-reboot/src/{path}"), text).len(), 1, "{path}");
        }
        for path in
            ["observe.rs", "decide/tests.rs", "decide/tests/rules.rs", "decide/properties.rs"]
        {
            assert!(broken(&format!("crates/bmo-reboot/src/{path}"), text).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_controller_that_is_not_listed_is_refused() {
        assert!(unlisted("crates/remediation/src/decide.rs").is_none());
        assert!(unlisted("tests/sample/src/decide.rs").is_none());
        assert!(unlisted("crates/new/src/write.rs").is_none());
        assert!(unlisted("crates/new/src/decide.rs").is_some());
    }

    #[test]
    fn a_word_that_begins_like_a_forbidden_one_is_none() {
        let path = "crates/remediation/src/decide/node.rs";
        assert!(broken(path, "let since = case.awaits_node(); text.replace(a, b);").is_empty());
        for text in
            ["it.await?", "it.awaits(other.await)", "tokio_util::sync", "fn f() -> Result<u8, E>"]
        {
            assert_eq!(broken(path, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_write_outside_write_rs_is_refused() {
        let text = "api.patch(name, &params, &patch).await?;";
        assert_eq!(broken("crates/bmo-reboot/src/observe.rs", text).len(), 1);
        assert!(broken("crates/bmo-reboot/src/write.rs", text).is_empty());
    }

    #[test]
    fn a_label_outside_api_types_is_refused_and_a_comment_about_it_is_not() {
        let text = "let key = \"reboot.metal3.io/key\";";
        assert_eq!(broken("crates/remediation/src/observe.rs", text).len(), 1);
        assert!(broken("crates/api-types/src/names.rs", text).is_empty());
        assert!(
            broken("crates/remediation/src/observe.rs", "// \"reboot.metal3.io/key\" is BMO's")
                .is_empty()
        );
    }

    #[test]
    fn a_sentence_and_an_apiversion_are_no_names_and_a_file_of_tests_may_spell_them() {
        for fine in [
            "infrastructure.cluster.x-k8s.io/{version}",
            "metal3.io/v1alpha1",
            "remove metal3.io/x",
        ] {
            assert!(
                broken("crates/remediation/src/observe.rs", &format!("\"{fine}\"")).is_empty(),
                "{fine}"
            );
        }
        let name = "\"reboot.metal3.io/key\"";
        assert!(broken("crates/remediation/src/decide/tests.rs", name).is_empty());
        assert!(broken("crates/remediation/src/decide/tests/rules.rs", name).is_empty());
        assert_eq!(broken("crates/remediation/src/decide/rules.rs", name).len(), 1);
    }

    #[test]
    fn a_program_that_includes_what_its_image_is_made_without_is_refused() {
        let text = |folder| format!("include_str!(\"../../../{folder}/x.yaml\")");
        assert_eq!(broken("crates/remediation/src/settings.rs", &text("deploy")).len(), 1);
        assert!(broken("crates/remediation/src/settings.rs", &text("charts")).is_empty());
        assert!(broken("crates/xtask/src/generate.rs", &text("deploy")).is_empty());
    }

    #[test]
    fn the_plugin_is_held_to_purity_names_and_writers_and_is_no_controller() {
        let path = |file| format!("crates/kubectl-ferrite/src/{file}");
        let clock = "pub fn explain() { let now = Timestamp::now(); }";
        assert_eq!(broken(&path("explain.rs"), clock).len(), 1);
        assert!(broken(&path("main.rs"), clock).is_empty());
        assert_eq!(broken(&path("observe.rs"), "api.patch(name, &params).await?;").len(), 1);
        assert!(broken(&path("write.rs"), "api.patch(name, &params).await?;").is_empty());
        assert_eq!(broken(&path("links.rs"), "\"reboot.metal3.io/key\"").len(), 1);
        assert!(broken(&path("tests.rs"), "\"reboot.metal3.io/key\"").is_empty());
        assert!(!is_controller(&path("write.rs")));
    }

    #[test]
    fn replacing_in_a_text_is_no_write() {
        let text = "let plain = text.replace('_', \"\");";
        assert!(broken("crates/bmo-reboot/src/requests.rs", text).is_empty());
    }

    #[test]
    fn the_kit_knows_no_word_of_the_domain() {
        assert_eq!(broken("crates/controller-kit/src/run.rs", "/// Waits for Ironic.").len(), 1);
    }

    #[test]
    fn a_file_over_600_lines_of_code_is_refused() {
        let lines = |count: usize| "fn f() {}\n// Why.\n\n".repeat(count);
        assert_eq!(broken("crates/ironic/src/client.rs", &lines(601)).len(), 1);
        assert!(broken("crates/ironic/src/client.rs", &lines(600)).is_empty());
    }

    #[test]
    fn the_sample_has_every_file_and_a_crate_without_them_is_told_each() {
        assert!(is_controller("tests/sample/src/main.rs"));
        assert_eq!(missing_files("tests/sample"), Vec::<String>::new());
        let missing = missing_files("crates/api-types");
        assert_eq!(missing.len(), CONTROLLER_FILES.len() - 1, "{missing:?}");
        assert!(missing[0].starts_with("crates/api-types: has no src/main.rs"), "{missing:?}");
    }

    #[test]
    fn a_name_of_ours_that_uninstalling_does_not_explain_is_told() {
        let names = "a = \"ferrite.metal3.io/\";\nb = \"ferrite.metal3.io/one\";\n\
                     c = \"ferrite.metal3.io/one=two\";\nd = \"ferrite.metal3.io/on-it\";\n";
        assert_eq!(unexplained(names, "one, on-it;"), Vec::<String>::new());
        assert_eq!(unexplained(names, "one-more, on-it").len(), 1);
        assert!(unexplained(names, "one").concat().ends_with("ferrite.metal3.io/on-it"));
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        assert_eq!(unexplained(&read(OWN_NAMES), &read(WHAT_STAYS)), Vec::<String>::new());
        assert!(unexplained(&read(OWN_NAMES), "").len() > 20, "names are read from the code");
    }

    #[test]
    fn a_main_that_does_more_than_start_is_refused() {
        for path in ["crates/bmo-reboot/src/main.rs", "tests/sample/src/main.rs"] {
            assert_eq!(broken(path, &"\n".repeat(61)).len(), 1, "{path}");
            assert!(broken(path, &"\n".repeat(60)).is_empty(), "{path}");
        }
        assert!(broken("crates/xtask/src/main.rs", &"\n".repeat(61)).is_empty());
    }

    #[test]
    fn tests_may_do_what_decide_may_not() {
        let text = "pub fn decide() {}\n#[cfg(test)]\nmod tests { fn t() { Timestamp::now(); } }";
        assert!(broken("crates/bmo-reboot/src/decide.rs", text).is_empty());
    }
}

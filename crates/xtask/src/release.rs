//! What has to hold of a release before it is pushed: of the workflow, and of the script that it calls.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use bench::cache::RunDir;
use serde_json::Value;

use crate::root;

const SCRIPT: &str = ".github/release";

fn jobs() -> Value {
    let text = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    let workflow: Value = serde_saphyr::from_str(&text).unwrap();
    workflow["jobs"].clone()
}

/// The jobs that a job waits for, whether it says so or one of them does.
fn before(jobs: &Value, job: &str) -> BTreeSet<String> {
    let needs = &jobs[job]["needs"];
    let named = needs.as_array().map_or(std::slice::from_ref(needs), Vec::as_slice);
    let named = named.iter().filter_map(Value::as_str);
    named.flat_map(|it| before(jobs, it).into_iter().chain([it.to_owned()])).collect()
}

/// Asks the script of a checkout about a tag: nothing, or why the tag is refused.
fn refusal(checkout: &Path, tag: &str) -> Option<String> {
    let output = Command::new(checkout.join(SCRIPT)).args(["check", tag]).output().unwrap();
    (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
}

#[test]
fn nothing_is_pushed_before_the_tag_fits_and_a_person_agrees() {
    let jobs = jobs();
    let may_push = |(_, job): &(&String, &Value)| job["permissions"]["packages"] == "write";
    let pushing: Vec<&String> =
        jobs.as_object().unwrap().iter().filter(may_push).map(|(name, _)| name).collect();
    assert_eq!(pushing, ["draft", "image"]);
    for job in pushing {
        let before = before(&jobs, job);
        let asks = |name: &String| jobs[name]["environment"] == "release";
        assert!(before.iter().any(asks), "{job} waits only for {before:?}");
    }
    for job in ["tests", "upstream"] {
        assert_eq!(jobs[job]["needs"], "what", "a wrong tag would fail after the tests");
    }
    let steps = jobs["what"]["steps"].to_string();
    assert!(steps.contains(".github/release check") && steps.contains("required_reviewers"));
}

#[test]
fn a_tag_that_does_not_fit_the_sources_is_refused() {
    let folder = RunDir::new("release").unwrap();
    let checkout = folder.path();
    for below in [".github", "crates/one", "charts/one", "crates/two", "crates/kubectl-ferrite"] {
        fs::create_dir_all(checkout.join(below)).unwrap();
    }
    fs::copy(root().join(SCRIPT), checkout.join(SCRIPT)).unwrap();
    fs::write(checkout.join("Cargo.toml"), "[a]\nversion = \"0.2.0\"\nb = { version = \"1\" }\n")
        .unwrap();
    // More than a pipe holds behind the line that is looked for.
    let long = "- more\n".repeat(20_000);
    let changes = format!(
        "# Changes\n\n## one-v0.2.0 2026-01-01\n\n**Upgrading**: nothing\n{long}\n\
         ## kubectl-ferrite-v0.2.0 2026-01-01\n\n**Upgrading**: nothing\n\n## one-v0.2.0-rc.1 2026-01-01\n\nText\n"
    );
    fs::write(checkout.join("CHANGELOG.md"), changes).unwrap();
    let refusal = |tag| refusal(checkout, tag).unwrap_or_default();
    assert_eq!(refusal("one-v0.2.0"), "");
    assert_eq!(refusal("kubectl-ferrite-v0.2.0"), "");
    assert!(refusal("one-v0.2.0-rc.1").contains("0.2.0-rc.1, and Cargo.toml says 0.2.0"));
    assert!(refusal("two-v0.2.0").contains("no chart two"));
    assert!(refusal("three-v0.2.0").contains("no crate three"));
    fs::write(checkout.join("Cargo.toml"), "[a]\nversion = \"0.2.0-rc.1\"\n").unwrap();
    assert!(refusal("one-v0.2.0-rc.1").contains("**Upgrading**"));
}

#[test]
fn the_version_of_a_tag_is_compared_with_that_of_the_workspace() {
    let version = env!("CARGO_PKG_VERSION");
    let refused = refusal(root(), "bmo-reboot-v999.0.0").unwrap();
    assert!(refused.contains(&format!("999.0.0, and Cargo.toml says {version}.")), "{refused}");
}

//! What has to hold of a release before it is pushed: of the workflow, and of the script that it calls.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bench::cache::{self, RunDir};
use bench::image::Image;
use bench::process::{Service, free_port};
use bench::{chart, go};
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

/// A registry on loopback: the address that stands in front of the names of what it keeps.
fn registry(logs: &Path) -> (String, Service) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut serve = Command::new(go::program("crane").unwrap());
    serve.args(["registry", "serve", "--address", &address]);
    let service = Service::start("registry", serve, logs).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < deadline, "no registry:\n{}", service.log_tail());
        std::thread::sleep(Duration::from_millis(20));
    }
    (address, service)
}

#[test]
fn a_rehearsed_release_installs_from_its_registry_the_image_that_was_pushed() {
    let folder = RunDir::new("rehearsal").unwrap();
    let (address, _service) = registry(folder.path());
    let (controller, version) = ("host-discovery", env!("CARGO_PKG_VERSION"));
    let (tag, name) = (format!("{controller}-v{version}"), format!("{address}/{controller}"));
    let crane = || Command::new(go::program("crane").unwrap());

    // Which program is in the image makes no difference here: this one is static, too.
    let program = go::program("crane").unwrap();
    let image = Image::of_controller(controller, &program, version, "none").unwrap();
    let written = image.write(&folder.path().join("image.tar")).unwrap();
    let layout = folder.path().join("image");
    fs::create_dir(&layout).unwrap();
    cache::run(Command::new("tar").arg("-xf").arg(&written.archive).arg("-C").arg(&layout))
        .unwrap();
    cache::run(crane().arg("push").arg(&layout).arg(format!("{name}:{version}"))).unwrap();

    let mut helm = chart::helm(folder.path()).unwrap();
    let own = Path::new(helm.get_program()).parent().unwrap().to_owned();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(own).chain(std::env::split_paths(&paths));
    let mut release = Command::new(root().join(SCRIPT));
    release.env("PATH", std::env::join_paths(paths).unwrap());
    release.envs(helm.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let source = "https://example.org/ferrite";
    release.args(["chart", &tag, &address, &written.digest, source]).arg(folder.path());
    let digest = cache::run(&release).unwrap();
    assert!(digest.starts_with("sha256:") && digest.lines().count() == 1, "{digest}");

    // As the notes of a release say it; the digest is what is signed.
    let chart = format!("oci://{address}/charts/{controller}@{}", digest.trim());
    let asset = |end: &str| folder.path().join(format!("{controller}-{version}.{end}"));
    let mut show = chart::helm(folder.path()).unwrap();
    let shown = cache::run(show.args(["show", "values"]).arg(asset("tgz"))).unwrap();
    assert!(shown.contains(&format!("\n  repository: {name}\n")), "{shown}");
    assert!(shown.contains("\nleaderElection:\n"), "{shown}");
    helm.args(["template", controller, &chart, "--plain-http", "--version", version]);
    helm.args(["--kube-version", "1.33.0", "--set", "ironic.endpoint=http://ironic:6385"]);
    helm.args(["--set", "prometheusRule.enabled=true"]);
    let objects = cache::run(&helm).unwrap();
    let image = format!("{name}@{}", written.digest);
    assert!(objects.contains(&format!("image: {image}\n")), "{objects}");
    let manifest = fs::read_to_string(asset("yaml")).unwrap();
    assert!(manifest.contains(&format!("image: {image}\n")), "{manifest}");
    assert!(!manifest.contains("helm.sh/hook: test"), "{manifest}");
    let crds = fs::read_to_string(asset("crds.yaml")).unwrap();
    let crd: Value = serde_saphyr::from_str(&crds).unwrap();
    assert_eq!(crd["metadata"]["name"], "baremetalhostdiscoveries.metal3.io");
    assert!(objects.contains(&format!("{source}/blob/{tag}/docs/runbooks/FerriteNotReady.md")));
    let pulled = cache::run(crane().args(["pull", &image]).arg(folder.path().join("pulled.tar")));
    pulled.unwrap();
}

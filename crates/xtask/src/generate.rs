//! `cargo xtask crdgen`: everything in the project that is made from something else in it. `lint` asks whether it was
//! made anew after the last change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bench::cache::{self, RunDir};
use bench::chart;
use kube::ResourceExt;

use crate::controllers::{self, PODS};
use crate::measure::published;
use crate::{chart_readme, reasons, reference, root, shared_values};

/// In these folders everything is generated: what nobody makes any more goes.
const FOLDERS: &[&str] =
    &["deploy/crds", "deploy/manifests", "docs/reference/reasons", "docs/reference"];

const HEADER: &str =
    "# Made by `cargo xtask crdgen`. Change what it is made from, not this file.\n";

/// Registry of the manifests' images: `.invalid` names no host, so nothing is pulled until a reader names a registry.
const NO_REGISTRY: &str = "image-not-set.invalid";

/// Paths below the checkout, and what is to stand there.
type Files = BTreeMap<PathBuf, String>;

/// Writes all of it.
///
/// # Errors
/// When a chart cannot be rendered or a file cannot be written.
pub(crate) fn run() -> anyhow::Result<()> {
    // Manifests are rendered from the charts as they stand on the disk, so those come first.
    let mut changed = write(&of_charts()?)?;
    let rest = of_everything_else()?;
    changed += write(&rest)?;
    for stray in strays(&rest) {
        fs::remove_file(root().join(&stray))?;
        println!("removed {}", stray.display());
        changed += 1;
    }
    println!("{changed} files changed");
    Ok(())
}

/// Whether all of it is up to date.
///
/// # Errors
/// With the files that are not.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut old = stale(&of_charts()?);
    let rest = of_everything_else()?;
    old.extend(stale(&rest));
    old.extend(strays(&rest));
    if old.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = old.iter().map(|path| path.display().to_string()).collect();
    bail!("not up to date, `cargo xtask crdgen` makes them anew:\n  {}", lines.join("\n  "))
}

fn write(files: &Files) -> anyhow::Result<usize> {
    let stale = stale(files);
    for path in &stale {
        let target = root().join(path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&target, &files[path])
            .with_context(|| format!("cannot write {}", target.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(stale.len())
}

fn stale(files: &Files) -> Vec<PathBuf> {
    let differs = |(path, text): &(&PathBuf, &String)| {
        fs::read_to_string(root().join(path)).ok().as_ref() != Some(*text)
    };
    files.iter().filter(differs).map(|(path, _)| path.clone()).collect()
}

/// Files in our folders that are not ours.
fn strays(files: &Files) -> Vec<PathBuf> {
    let there = FOLDERS.iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).into_iter().flatten().flatten();
        entries.map(move |entry| Path::new(folder).join(entry.file_name()))
    });
    there.filter(|path| root().join(path).is_file() && !files.contains_key(path)).collect()
}

/// The charts' parts: values, their schema and README of each, and our CRDs in the one chart that ships them.
fn of_charts() -> anyhow::Result<Files> {
    let mut files = Files::new();
    for controller in controllers::ALL {
        let folder = chart::dir(controller.name).strip_prefix(root())?.to_owned();
        let schema = chart::schema(&root().join(&folder))?;
        files.insert(folder.join("values.schema.json"), format!("{schema:#}\n"));
        if PODS.contains(&controller.name) {
            files.insert(folder.join("values.yaml"), shared_values::page(controller.name)?);
            files.insert(folder.join("README.md"), chart_readme::page(controller.name)?);
        }
    }
    for (controller, name, text) in crds()? {
        files.insert(Path::new("charts").join(controller).join("files/crds").join(name), text);
    }
    Ok(files)
}

fn of_everything_else() -> anyhow::Result<Files> {
    let mut files = Files::new();
    for (_, name, text) in crds()? {
        files.insert(Path::new("deploy/crds").join(name), text);
    }
    let manifests = Path::new("deploy/manifests");
    for name in PODS {
        files.insert(manifests.join(format!("{name}.yaml")), manifest(name)?);
    }
    files.insert(manifests.join("kustomization.yaml"), kustomization());
    for (folder, pages) in
        [("reference/reasons", reasons::pages()?), ("reference", reference::pages()?)]
    {
        let folder = Path::new("docs").join(folder);
        files.extend(pages.into_iter().map(|(name, text)| (folder.join(name), text)));
    }
    files.extend(published::files()?);
    Ok(files)
}

/// Our own CRDs: whose, the file's name, its text.
fn crds() -> anyhow::Result<Vec<(&'static str, String, String)>> {
    let crds = api_types::own_crds().into_iter();
    crds.map(|(controller, crd)| {
        let text = serde_saphyr::to_string(&crd).context("a CRD cannot be written as YAML")?;
        Ok((controller, format!("{}.yaml", crd.name_any()), format!("{HEADER}{text}")))
    })
    .collect()
}

/// What `kubectl apply` needs where there is no helm: the chart with the values of `deploy/values/<controller>.yaml`.
fn manifest(name: &str) -> anyhow::Result<String> {
    let home = RunDir::new("helm")?;
    let mut helm = chart::helm(home.path())?;
    helm.args(["template", name, "--namespace", "ferrite-system", "--skip-tests"]);
    helm.args(["--set", &format!("image.repository={NO_REGISTRY}/{name}")]);
    let values = root().join("deploy/values").join(format!("{name}.yaml"));
    if values.exists() {
        helm.arg("--values").arg(values);
    }
    Ok(format!("{HEADER}{}", cache::run(helm.arg(chart::dir(name)))?))
}

/// What `kubectl apply --kustomize` takes: every manifest, and where its image is to be named.
fn kustomization() -> String {
    let mut text = format!(
        "{HEADER}\
         # In a copy, leave out what you do not install, and set newName to the registry and the name of your image.\n\
         apiVersion: kustomize.config.k8s.io/v1beta1\n\
         kind: Kustomization\n\
         resources:\n"
    );
    for name in PODS {
        let _ = writeln!(text, "  - {name}.yaml");
    }
    text.push_str("images:\n");
    for name in PODS {
        let image = format!("{NO_REGISTRY}/{name}");
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(text, "  - name: {image}\n    newName: {image}\n    newTag: {version}");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_image_of_a_manifest_is_named_in_the_kustomization() {
        let kustomization: Value = serde_saphyr::from_str(&kustomization()).unwrap();
        let images = kustomization["images"].as_array().unwrap();
        for (controller, image) in PODS.iter().zip(images) {
            let file = format!("{controller}.yaml");
            assert!(kustomization["resources"].as_array().unwrap().contains(&file.into()));
            let named = format!(
                "image: {}:{}",
                image["name"].as_str().unwrap(),
                image["newTag"].as_str().unwrap()
            );
            let text = manifest(controller).unwrap();
            let mut found = text.lines().map(str::trim).filter(|it| it.starts_with("image: "));
            assert!(found.clone().count() > 0, "{controller} runs no image");
            assert!(found.all(|it| it == named), "{controller}: not all are {named}");
        }
    }

    #[test]
    fn a_manifest_holds_what_the_chart_makes() {
        let text = manifest("sample").unwrap();
        for kind in ["ServiceAccount", "ClusterRole", "Deployment"] {
            assert!(text.contains(&format!("\nkind: {kind}\n")), "no {kind} in:\n{text}");
        }
        assert!(!text.contains("helm.sh/hook: test"), "{text}");
    }

    #[test]
    fn a_crd_that_is_written_reads_as_it_was() {
        for ((_, name, text), (_, crd)) in crds().unwrap().iter().zip(api_types::own_crds()) {
            let read: serde_json::Value = serde_saphyr::from_str(text).unwrap();
            assert_eq!(read, serde_json::to_value(&crd).unwrap(), "{name}");
        }
    }

    #[test]
    fn a_file_that_was_changed_by_hand_is_stale() {
        let path = PathBuf::from("Cargo.toml");
        let there = fs::read_to_string(root().join(&path)).unwrap();
        let as_is = Files::from([(path.clone(), there.clone())]);
        assert!(stale(&as_is).is_empty());
        let changed = Files::from([(path.clone(), there + "#")]);
        assert_eq!(stale(&changed), [path]);
    }
}

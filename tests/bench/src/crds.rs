//! The CRDs of Metal3, CAPM3 and Hive, as far as the controllers touch them.
//!
//! The files in `crds/` are our own description: they prune what a stock CRD prunes, so that a test sees what a field
//! that is not there does. `cargo xtask check-upstream` holds them against the real files, and with
//! `FERRITE_CRDS=<folder>` the tests run on the real files instead.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube::api::{ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

/// A folder of CRD files that replace our description.
pub const FOLDER_VARIABLE: &str = "FERRITE_CRDS";

/// A family of foreign kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// `metal3.io`: `BareMetalHost`.
    Metal3,
    /// `infrastructure.cluster.x-k8s.io`: what CAPM3 brings.
    Capm3,
    /// `hive.openshift.io`: pools, clusters, claims.
    Hive,
}

impl Group {
    /// Every family.
    pub const ALL: [Self; 3] = [Self::Metal3, Self::Capm3, Self::Hive];
}

/// Our description of a family, never the files of `FERRITE_CRDS`.
pub fn described(group: Group) -> anyhow::Result<Vec<CustomResourceDefinition>> {
    let texts: &[(&str, &str)] = match group {
        Group::Metal3 => {
            &[("metal3-baremetalhost.yaml", include_str!("../crds/metal3-baremetalhost.yaml"))]
        }
        Group::Capm3 => &[
            ("capm3-metal3cluster.yaml", include_str!("../crds/capm3-metal3cluster.yaml")),
            ("capm3-metal3data.yaml", include_str!("../crds/capm3-metal3data.yaml")),
            ("capm3-metal3dataclaim.yaml", include_str!("../crds/capm3-metal3dataclaim.yaml")),
            (
                "capm3-metal3datatemplate.yaml",
                include_str!("../crds/capm3-metal3datatemplate.yaml"),
            ),
            ("capm3-metal3machine.yaml", include_str!("../crds/capm3-metal3machine.yaml")),
            (
                "capm3-metal3machinetemplate.yaml",
                include_str!("../crds/capm3-metal3machinetemplate.yaml"),
            ),
            ("capm3-metal3remediation.yaml", include_str!("../crds/capm3-metal3remediation.yaml")),
            (
                "capm3-metal3remediationtemplate.yaml",
                include_str!("../crds/capm3-metal3remediationtemplate.yaml"),
            ),
        ],
        Group::Hive => &[
            ("hive-clusterclaim.yaml", include_str!("../crds/hive-clusterclaim.yaml")),
            ("hive-clusterdeployment.yaml", include_str!("../crds/hive-clusterdeployment.yaml")),
            (
                "hive-clusterdeploymentcustomization.yaml",
                include_str!("../crds/hive-clusterdeploymentcustomization.yaml"),
            ),
            ("hive-clusterimageset.yaml", include_str!("../crds/hive-clusterimageset.yaml")),
            ("hive-clusterpool.yaml", include_str!("../crds/hive-clusterpool.yaml")),
            ("hive-machinepool.yaml", include_str!("../crds/hive-machinepool.yaml")),
        ],
    };
    texts
        .iter()
        .map(|(name, text)| {
            serde_saphyr::from_str(text)
                .with_context(|| format!("tests/bench/crds/{name} is not a CRD"))
        })
        .collect()
}

/// The CRDs that the tests run on: our description, or the files of `FERRITE_CRDS` for the same kinds.
///
/// Conversion webhooks are left out, since nobody on the bench serves them: then only the apiVersion is converted.
pub fn files(group: Group) -> anyhow::Result<Vec<CustomResourceDefinition>> {
    let ours = described(group)?;
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE) else {
        return Ok(ours);
    };
    let mut real = read_folder(Path::new(&folder))?;
    ours.iter()
        .map(|crd| {
            let name = crd.name_any();
            let mut crd = real.remove(&name).with_context(|| {
                format!(
                    "{FOLDER_VARIABLE}: no file in {} has the CRD {name}",
                    Path::new(&folder).display()
                )
            })?;
            crd.spec.conversion = None;
            Ok(crd)
        })
        .collect()
}

/// Every CRD in a folder's YAML files, by name. A file may hold several documents; those of other kinds are skipped.
pub fn read_folder(folder: &Path) -> anyhow::Result<BTreeMap<String, CustomResourceDefinition>> {
    let mut found = BTreeMap::new();
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if !path.extension().is_some_and(|end| end == "yaml" || end == "yml") {
            continue;
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("{} is not YAML", path.display()))?;
        for document in documents {
            if document["kind"] != "CustomResourceDefinition" {
                continue;
            }
            let crd: CustomResourceDefinition = serde_json::from_value(document)
                .with_context(|| format!("{} holds a broken CRD", path.display()))?;
            found.insert(crd.name_any(), crd);
        }
    }
    ensure!(!found.is_empty(), "{} holds no CRD in a .yaml file", folder.display());
    Ok(found)
}

/// Installs the CRDs of these families and waits until the API server serves them.
///
/// One that is there already is left as it is, so tests that share an API server may all call it, and fields that a
/// controller's `extend-crd` added stay: a CRD's versions are one atomic list, an apply would take them away again.
pub async fn install(client: &Client, groups: &[Group]) -> anyhow::Result<()> {
    let mut crds = Vec::new();
    for group in groups {
        crds.extend(files(*group)?);
    }
    create(client, &crds).await
}

/// Installs every CRD of the folder `FERRITE_CRDS` that is not there, for a program of somebody else: it does not start
/// without kinds that nobody here touches.
///
/// # Errors
/// When no folder is named, or the API server refuses one of its CRDs.
pub async fn install_folder(client: &Client) -> anyhow::Result<()> {
    let folder = std::env::var_os(FOLDER_VARIABLE).with_context(|| {
        format!("{FOLDER_VARIABLE} is not set: programs of others need the CRDs of their releases")
    })?;
    let mut crds: Vec<_> = read_folder(Path::new(&folder))?.into_values().collect();
    for crd in &mut crds {
        crd.spec.conversion = None;
    }
    create(client, &crds).await?;
    settled(client).await
}

/// Installs these CRDs as [`install`] does.
///
/// # Errors
/// When the API server refuses one of them.
pub async fn create(client: &Client, crds: &[CustomResourceDefinition]) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut names = BTreeSet::new();
    for crd in crds {
        let name = crd.name_any();
        match api.create(&PostParams::default(), crd).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("the API server refuses the CRD {name}"));
            }
        }
        names.insert(name);
    }
    established(api, names).await
}

/// Waits until the API server answers for the objects of every CRD. After a CRD was changed it refuses them for a moment,
/// which begins some time after it has taken the change.
///
/// # Errors
/// When it still refuses some after a minute.
pub async fn settled(client: &Client) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crds = api.list(&ListParams::default()).await?.items;
    try_join_all(crds.iter().map(|crd| answers(client, crd))).await.map(drop)
}

async fn answers(client: &Client, crd: &CustomResourceDefinition) -> anyhow::Result<()> {
    const TIMES: usize = 10;
    const APART: Duration = Duration::from_millis(100);
    let (spec, name) = (&crd.spec, crd.name_any());
    let version = spec.versions.iter().find(|it| it.served).with_context(|| name.clone())?;
    let kind = GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind);
    let kind = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut answered = 0;
    while answered < TIMES {
        match api.list(&ListParams::default().limit(1)).await {
            Ok(_) => answered += 1,
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("objects of {name} are refused"));
            }
            Err(_) => answered = 0,
        }
        tokio::time::sleep(APART).await;
    }
    Ok(())
}

/// Waits until all of these CRDs are served, and says why when one never will be.
async fn established(
    api: Api<CustomResourceDefinition>,
    mut missing: BTreeSet<String>,
) -> anyhow::Result<()> {
    let waiting = async {
        let mut seen = std::pin::pin!(
            watcher(api, watcher::Config::default()).default_backoff().applied_objects()
        );
        while !missing.is_empty() {
            let Some(crd) = seen.try_next().await? else {
                bail!("the watch on CRDs ended");
            };
            let name = crd.name_any();
            if !missing.contains(&name) {
                continue;
            }
            if let Some(why) = condition(&crd, "NonStructuralSchema").filter(|c| c.status == "True")
            {
                bail!("{name} is not structural: {}", why.message.as_deref().unwrap_or_default());
            }
            if let Some(why) = condition(&crd, "NamesAccepted").filter(|c| c.status == "False") {
                bail!(
                    "the names of {name} are taken: {}",
                    why.message.as_deref().unwrap_or_default()
                );
            }
            if condition(&crd, "Established").is_some_and(|c| c.status == "True") {
                missing.remove(&name);
            }
        }
        Ok(())
    };
    let outcome = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    outcome.unwrap_or_else(|_| bail!("not established after 30 s: {missing:?}"))
}

/// One condition of a CRD by its type.
pub fn condition<'a>(
    crd: &'a CustomResourceDefinition,
    kind: &str,
) -> Option<&'a CustomResourceDefinitionCondition> {
    crd.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

//! What can be set, and what has to be installed.

use std::time::Duration;

use api_types::extensions;
use clap::{Args, Parser};
use controller_kit::config::{Command, Settings, above_zero, defaults, reads, span, switch};
use controller_kit::crd::{Field, Needed};

use crate::patch::Rules;

/// Name of the binary.
pub const NAME: &str = "clusterpool-inventory";
/// What the chart allows, which is what `check` asks for.
pub const RULES: &str = include_str!("../../../charts/clusterpool-inventory/files/rules.json");

/// Pools of clusters whose names, addresses and hosts exist once: which entry the next cluster gets, and the pool's whole life
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
pub struct Cli {
    /// What all controllers share.
    #[command(flatten)]
    pub common: Settings,
    /// What is this controller's own.
    #[command(flatten)]
    pub own: Policy,
    /// What to do; without a word it runs.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Which pools are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pools {
    /// All of them.
    All,
    /// Those with an inventory.
    Inventory,
}

fn pools(word: &str) -> Result<Pools, String> {
    match word {
        "all" => Ok(Pools::All),
        "inventory" => Ok(Pools::Inventory),
        _ => Err("all or inventory".to_owned()),
    }
}

/// How to decide: this controller's own flags.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
// The common ones are a group of another name.
#[group(id = "clusterpool-inventory")]
#[command(next_help_heading = "Options of clusterpool-inventory")]
pub struct Policy {
    /// `all` pools, or only those with an `inventory`; the others are then ignored. Hive's own controller of pools must
    /// not run in either case: it writes to pools with an inventory, too
    #[arg(long, env = "FERRITE_POOLS", default_value = "all", value_parser = reads(pools))]
    pub pools: Pools,
    /// Failed provisions after which an entry is Broken by cloud; a pool's annotation overrides it
    #[arg(
        long, env = "FERRITE_PROVISION_ATTEMPTS", default_value = "3",
        value_parser = reads(|text| above_zero::<u32>(text, "a number from 1 to 4294967295"))
    )]
    pub provision_attempts: u32,
    /// Begin each cluster paused and look at its lease once more before Hive may install it
    #[arg(long, env = "FERRITE_VERIFY_LEASE", default_value = "true", value_parser = reads(switch))]
    pub verify_lease: bool,
    /// How strict patches are read.
    #[command(flatten)]
    pub rules: Rules,
    /// How long a namespace may stand without its cluster before it is removed
    #[arg(long, env = "FERRITE_NAMESPACE_GRACE", default_value = "5m", value_parser = reads(span))]
    pub namespace_grace: Duration,
    /// Show the metrics of each pool under the names of Hive's own pool controller, too
    #[arg(long, env = "FERRITE_HIVE_METRICS", default_value = "false", value_parser = reads(switch))]
    pub hive_metrics: bool,
}

impl Default for Policy {
    fn default() -> Self {
        defaults()
    }
}

/// The failed provisions that a pool's annotation allows.
pub fn allowed_attempts(annotation: &str) -> Option<u32> {
    annotation.trim().parse().ok().filter(|it| *it > 0)
}

/// CRDs and fields that must be installed before anything is done: without the fields an entry's attempts would be
/// forgotten with every write.
pub fn needed() -> Vec<Needed> {
    let of = |crd| Needed { crd, versions: &["v1"], field: None };
    let ours = extensions().into_iter().filter(|extension| extension.controller == NAME);
    let fields = ours.map(|extension| Needed {
        crd: extension.crd,
        versions: extension.versions,
        field: Some(Field {
            path: extension.path,
            property: extension.property,
            schema: serde_json::to_value(&extension.schema).unwrap_or_default(),
            replace: extension.replace,
            optional: false,
        }),
    });
    fields
        .chain([
            of("clusterdeployments.hive.openshift.io"),
            of("clusterclaims.hive.openshift.io"),
            of("clusterimagesets.hive.openshift.io"),
            of("machinepools.hive.openshift.io"),
        ])
        .collect()
}

#[cfg(test)]
mod tests {
    use controller_kit::config::parse_words;

    use super::*;

    #[test]
    fn without_a_word_it_is_as_documented() {
        let (cli, mistakes) = parse_words::<Cli>([NAME]).unwrap();
        assert!(mistakes.lines().is_empty(), "{mistakes:?}");
        let it = cli.own;
        assert_eq!(it, Policy::default());
        assert_eq!((it.pools, it.rules), (Pools::All, Rules::default()));
        assert_eq!((it.provision_attempts, it.namespace_grace.as_secs()), (3, 300));
        assert!(it.verify_lease && !it.hive_metrics);
    }

    #[test]
    fn every_wrong_value_is_told_with_its_flag() {
        let words = [
            NAME,
            "--pools=some",
            "--provision-attempts=0",
            "--verify-lease=maybe",
            "--strict-pointers=2",
            "--lenient-replace=2",
            "--namespace-grace=soon",
            "--hive-metrics=2",
        ];
        let (_, mistakes) = parse_words::<Cli>(words).unwrap();
        let told = mistakes.lines().join("\n");
        for flag in [
            "--pools",
            "--provision-attempts",
            "--verify-lease",
            "--strict-pointers",
            "--lenient-replace",
            "--namespace-grace",
            "--hive-metrics",
        ] {
            assert!(told.contains(flag), "{flag} is not in {told}");
        }
    }
}

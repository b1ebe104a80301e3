//! What can be set, and what has to be installed.

use std::time::Duration;

use api_types::extensions;
use clap::{Args, Parser};
use controller_kit::config::{Command, Mistakes, Settings as Common};
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
    pub common: Common,
    /// What is this controller's own.
    #[command(flatten)]
    pub own: Settings,
    /// What to do; without a word it runs.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// This controller's own flags, as text: [`Settings::check`] reads them, so that all mistakes are told at once.
#[derive(Args, Clone, Debug)]
// The common ones are a group of the same name already.
#[group(id = "clusterpool-inventory")]
#[command(next_help_heading = "Options of clusterpool-inventory")]
pub struct Settings {
    /// `all` pools, or only those with an `inventory`; the others are then ignored. Hive's own controller of pools must
    /// not run in either case: it writes to pools with an inventory, too
    #[arg(long, env = "FERRITE_POOLS", global = true, default_value = "all")]
    pub pools: String,
    /// Failed provisions after which an entry is Broken by cloud; a pool's annotation overrides it
    #[arg(long, env = "FERRITE_PROVISION_ATTEMPTS", global = true, default_value = "3")]
    pub provision_attempts: String,
    /// Begin each cluster paused and look at its lease once more before Hive may install it
    #[arg(
        long, env = "FERRITE_VERIFY_LEASE", global = true, default_value = "true",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub verify_lease: String,
    /// Refuse patches whose paths lack the leading slash
    #[arg(
        long, env = "FERRITE_STRICT_POINTERS", global = true, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub strict_pointers: String,
    /// Let `replace` add a key that is missing, as Hive does
    #[arg(
        long, env = "FERRITE_LENIENT_REPLACE", global = true, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub lenient_replace: String,
    /// How long a namespace may stand without its cluster before it is removed
    #[arg(long, env = "FERRITE_NAMESPACE_GRACE", global = true, default_value = "5m")]
    pub namespace_grace: String,
    /// Show the metrics of each pool under the names of Hive's own pool controller, too
    #[arg(
        long, env = "FERRITE_HIVE_METRICS", global = true, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub hive_metrics: String,
}

/// How to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether pools without an inventory are ours too.
    pub all_pools: bool,
    /// Failed provisions that an entry may have, unless its pool says otherwise.
    pub provision_attempts: u32,
    /// Whether a new cluster is paused until its lease was looked at once more.
    pub verify_lease: bool,
    /// How strict patches are read.
    pub rules: Rules,
    /// How long a namespace may stand without its cluster before it counts as left over.
    pub namespace_grace: Duration,
    /// Whether metrics have the names of Hive's own controller of pools, too.
    pub hive_metrics: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            all_pools: true,
            provision_attempts: 3,
            verify_lease: true,
            rules: Rules::default(),
            namespace_grace: Duration::from_secs(300),
            hive_metrics: false,
        }
    }
}

impl Settings {
    /// Reads all values; what is wrong goes to `mistakes`.
    pub fn check(&self, mistakes: &mut Mistakes) -> Policy {
        let default = Policy::default();
        let all_pools = match self.pools.trim() {
            "all" | "" => true,
            "inventory" => false,
            wrong => {
                mistakes.add("--pools", wrong, "all or inventory");
                true
            }
        };
        let attempts = mistakes.above_zero(
            "--provision-attempts",
            &self.provision_attempts,
            "a number from 1 to 4294967295",
            default.provision_attempts,
        );
        let mut switch = |flag, value, default| mistakes.switch(flag, value, default);
        let verify_lease = switch("--verify-lease", &self.verify_lease, default.verify_lease);
        let rules = Rules {
            strict_pointers: switch("--strict-pointers", &self.strict_pointers, false),
            lenient_replace: switch("--lenient-replace", &self.lenient_replace, false),
        };
        let hive_metrics = switch("--hive-metrics", &self.hive_metrics, default.hive_metrics);
        let namespace_grace =
            mistakes.duration("--namespace-grace", &self.namespace_grace, default.namespace_grace);
        Policy {
            all_pools,
            provision_attempts: attempts,
            verify_lease,
            rules,
            namespace_grace,
            hive_metrics,
        }
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
    use super::*;

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_policy() {
        let cli = Cli::parse_from([NAME]);
        let mut mistakes = Mistakes::default();
        assert_eq!(cli.own.check(&mut mistakes), Policy::default());
        assert!(mistakes.lines().is_empty(), "{mistakes:?}");
    }

    #[test]
    fn every_wrong_value_is_told_with_its_flag() {
        let cli = Cli::parse_from([
            NAME,
            "--pools=some",
            "--provision-attempts=0",
            "--verify-lease=maybe",
            "--strict-pointers=2",
            "--lenient-replace=2",
            "--namespace-grace=soon",
            "--hive-metrics=2",
        ]);
        let mut mistakes = Mistakes::default();
        cli.own.check(&mut mistakes);
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

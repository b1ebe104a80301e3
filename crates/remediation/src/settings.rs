//! What can be set, and what has to be installed.

use std::time::Duration;

use api_types::ContractVersion;
use clap::{Args, Parser};
use controller_kit::check::{Check, Row};
use controller_kit::config::{Command, Config, Mistakes, Settings as Common};
use controller_kit::crd::Needed;
use controller_kit::run::Needs;

use crate::request::Request;
use crate::served;

/// Name of the binary.
pub const NAME: &str = "remediation";
/// What the chart allows, which is what `check` asks for.
pub const RULES: &str = include_str!("../../../charts/remediation/files/rules.json");
/// What `crds` prints.
const CRDS: &str = concat!(
    include_str!(
        "../../../charts/remediation/files/crds/metal3remediations.remediation.metal3.io.yaml"
    ),
    "---\n",
    include_str!(
        "../../../charts/remediation/files/crds/metal3remediationtemplates.remediation.metal3.io.yaml"
    ),
);

const CONTRACTS: &[&str] = ContractVersion::NAMES;

/// Power-cycles the host of an unhealthy machine, and hands the machine to its owner when that does not help
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
#[group(id = "remediation")]
#[command(next_help_heading = "Options of remediation")]
pub struct Settings {
    /// Serve CAPM3's kind `Metal3Remediation` as well, so that an existing health check needs no change; CAPM3's own
    /// remediation must not do so, too, which the guard of the chart sees to
    #[arg(
        long, env = "FERRITE_UPSTREAM_GROUP", global = true, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub upstream_group: String,
    /// Ask for one reboot by the plain key `reboot.metal3.io` instead of holding the host off until its node is fenced:
    /// whoever switches it takes the key away, and nothing is done about the node
    #[arg(
        long, env = "FERRITE_PLAIN_REBOOT", global = true, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub plain_reboot: String,
    /// What is done about the node while its host is off: `taint` it as out of service, `delete` it and give its
    /// successor its labels and annotations, or `none`
    #[arg(long, env = "FERRITE_NODE_FENCING", global = true, default_value = "taint")]
    pub node_fencing: String,
    /// How long a host may take to be off; then the try has failed
    #[arg(long, env = "FERRITE_POWER_OFF_TIMEOUT", global = true, default_value = "10m")]
    pub power_off_timeout: String,
    /// How long a host may take to be on again; then the try has failed
    #[arg(long, env = "FERRITE_POWER_ON_TIMEOUT", global = true, default_value = "10m")]
    pub power_on_timeout: String,
    /// How long to wait for the workload cluster to answer and for the node's pods and volumes to be gone; after that the
    /// host is switched on again all the same
    #[arg(long, env = "FERRITE_FENCE_TIMEOUT", global = true, default_value = "2m")]
    pub fence_timeout: String,
    /// A host that already showed off when the reboot was requested is believed to be off only after this long; set it
    /// longer than the bare metal operator takes to read power again
    #[arg(long, env = "FERRITE_STALE_POWER", global = true, default_value = "150s")]
    pub stale_power: String,
    /// Switch a host off for good when all tries have failed, that of a control plane once its Machine is being deleted and
    /// no pre-terminate hook keeps it
    #[arg(
        long, env = "FERRITE_SWITCH_OFF_EXHAUSTED", global = true, default_value = "true",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub switch_off_exhausted: String,
    /// Delete a machine that has no owner when all tries have failed
    #[arg(
        long, env = "FERRITE_DELETE_UNOWNED", global = true, default_value = "true",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub delete_unowned: String,
}

/// What is done about the node while its host is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fencing {
    /// It is tainted as out of service.
    Taint,
    /// It is deleted, and its labels and annotations are given to its successor.
    Delete,
    /// Nothing.
    None,
}

impl std::str::FromStr for Fencing {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "taint" => Ok(Self::Taint),
            "delete" => Ok(Self::Delete),
            "none" => Ok(Self::None),
            _ => Err(()),
        }
    }
}

/// How to decide.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "so many independent settings")]
pub struct Policy {
    /// Whether CAPM3's kind is served as well.
    pub upstream_group: bool,
    /// Whether a reboot is asked for by the plain key, which holds nothing off.
    pub plain: bool,
    /// What is done about the node.
    pub fencing: Fencing,
    /// How long a host may take to be off.
    pub power_off: Duration,
    /// How long a host may take to be on.
    pub power_on: Duration,
    /// How long the node's part may take.
    pub fence: Duration,
    /// How long a host that was off already must be seen off.
    pub stale: Duration,
    /// Whether an exhausted host is switched off for good.
    pub switch_off: bool,
    /// Whether a machine without owner is deleted.
    pub delete_unowned: bool,
    /// Value of Cluster API's watch label, if only objects with it count; it stands in the record of a try.
    pub watch_filter: Option<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            upstream_group: false,
            plain: false,
            fencing: Fencing::Taint,
            power_off: Duration::from_secs(600),
            power_on: Duration::from_secs(600),
            fence: Duration::from_secs(120),
            stale: Duration::from_secs(150),
            switch_off: true,
            delete_unowned: true,
            watch_filter: None,
        }
    }
}

impl Settings {
    /// Reads all values; what is wrong goes to `mistakes`.
    pub fn check(&self, config: &Config, mistakes: &mut Mistakes) -> Policy {
        let default = Policy::default();
        let fencing = "taint, delete or none";
        let policy = Policy {
            upstream_group: mistakes.switch("--upstream-group", &self.upstream_group, false),
            plain: mistakes.switch("--plain-reboot", &self.plain_reboot, false),
            fencing: mistakes.parse("--node-fencing", &self.node_fencing, fencing, default.fencing),
            power_off: mistakes.duration(
                "--power-off-timeout",
                &self.power_off_timeout,
                default.power_off,
            ),
            power_on: mistakes.duration(
                "--power-on-timeout",
                &self.power_on_timeout,
                default.power_on,
            ),
            fence: mistakes.duration("--fence-timeout", &self.fence_timeout, default.fence),
            stale: mistakes.duration("--stale-power", &self.stale_power, default.stale),
            switch_off: mistakes.switch("--switch-off-exhausted", &self.switch_off_exhausted, true),
            delete_unowned: mistakes.switch("--delete-unowned", &self.delete_unowned, true),
            watch_filter: config.watch_filter.clone(),
        };
        if policy.stale >= policy.power_off {
            let expected =
                format!("less than --power-off-timeout, which is {:?}", policy.power_off);
            mistakes.add("--stale-power", &self.stale_power, expected);
        }
        policy
    }
}

impl Policy {
    /// Whether the watch filter lets a request pass. Without a filter all do.
    pub fn selects(&self, request: &Request) -> bool {
        self.watch_filter.is_none() || request.label == self.watch_filter
    }
}

/// What the controller needs from outside.
pub fn needs(policy: &Policy) -> Needs {
    let (fields, checks) = (needed(), checks(policy));
    Needs { crds: CRDS, fields, rules: RULES, checks, ..Needs::default() }
}

/// CRDs that must be installed before anything is done. CAPM3's own kind is not among them: it is asked for by a flag.
pub fn needed() -> Vec<Needed> {
    let of = |crd, versions| Needed { crd, versions, field: None };
    vec![
        of("metal3remediations.remediation.metal3.io", &["v1alpha1"]),
        of("baremetalhosts.metal3.io", &["v1alpha1"]),
        of("metal3machines.infrastructure.cluster.x-k8s.io", CONTRACTS),
        of("clusters.cluster.x-k8s.io", CONTRACTS),
        of("machines.cluster.x-k8s.io", CONTRACTS),
    ]
}

/// What `check` looks at beside those: that kind, where it is asked for.
fn checks(policy: &Policy) -> Vec<Check> {
    let check: Check = Box::new(|client| {
        Box::pin(async move {
            let subject = "CAPM3's metal3remediations".to_owned();
            let found = served::find(&client, true).await;
            let version =
                found.and_then(|it| it.upstream.ok_or_else(|| served::NOTHING.to_owned()));
            vec![Row { subject, result: version.map(|it| it.as_str().to_owned()) }]
        })
    });
    policy.upstream_group.then_some(check).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cli: &Cli, mistakes: &mut Mistakes) -> Policy {
        let config = cli.common.check(NAME, mistakes);
        cli.own.check(&config, mistakes)
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_policy() {
        let cli = Cli::parse_from([NAME]);
        let mut mistakes = Mistakes::default();
        assert_eq!(check(&cli, &mut mistakes), Policy::default());
        assert!(mistakes.lines().is_empty(), "{mistakes:?}");
    }

    #[test]
    fn capm3s_kind_is_looked_for_only_where_it_is_to_be_served() {
        assert!(checks(&Policy::default()).is_empty());
        assert_eq!(checks(&Policy { upstream_group: true, ..Policy::default() }).len(), 1);
    }

    #[test]
    fn every_wrong_value_is_told_with_its_flag_and_its_variable() {
        let wrong = [
            "--upstream-group=maybe",
            "--plain-reboot=often",
            "--node-fencing=shoot",
            "--power-off-timeout=soon",
            "--power-on-timeout=0s",
            "--fence-timeout=-1s",
            "--stale-power=20m",
            "--switch-off-exhausted=2",
            "--delete-unowned=no",
        ];
        let cli = Cli::parse_from([NAME].into_iter().chain(wrong));
        let mut mistakes = Mistakes::default();
        check(&cli, &mut mistakes);
        let told = mistakes.lines().join("\n");
        for flag in wrong {
            let flag = flag.split_once('=').unwrap().0;
            let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
            assert!(told.contains(&format!("{flag} (FERRITE_{variable})")), "{flag}: {told}");
        }
    }
}

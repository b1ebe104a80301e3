//! What can be set, and what has to be installed.

use std::time::Duration;

use api_types::ContractVersion;
use clap::{Args, Parser};
use controller_kit::check::Check;
use controller_kit::config::{Command, Mistakes, Settings, defaults, reads, span, switch};
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
    pub common: Settings,
    /// What is this controller's own.
    #[command(flatten)]
    pub own: Policy,
    /// What to do; without a word it runs.
    #[command(subcommand)]
    pub command: Option<Command>,
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

fn fencing(word: &str) -> Result<Fencing, String> {
    match word {
        "taint" => Ok(Fencing::Taint),
        "delete" => Ok(Fencing::Delete),
        "none" => Ok(Fencing::None),
        _ => Err("taint, delete or none".to_owned()),
    }
}

/// How to decide: this controller's own flags.
#[derive(Args, Clone, Debug, PartialEq, Eq, Hash)]
// The common ones are a group of another name.
#[group(id = "remediation")]
#[command(next_help_heading = "Options of remediation")]
#[expect(clippy::struct_excessive_bools, reason = "so many independent settings")]
pub struct Policy {
    /// Serve CAPM3's kind `Metal3Remediation` as well, so that an existing health check needs no change; CAPM3's own
    /// remediation must not do so, too, which the guard of the chart sees to
    #[arg(long, env = "FERRITE_UPSTREAM_GROUP", default_value = "false", value_parser = reads(switch))]
    pub upstream_group: bool,
    /// Ask for one reboot by the plain key `reboot.metal3.io` instead of holding the host off until its node is fenced:
    /// whoever switches it takes the key away, and nothing is done about the node
    #[arg(
        long = "plain-reboot", env = "FERRITE_PLAIN_REBOOT",
        default_value = "false", value_parser = reads(switch)
    )]
    pub plain: bool,
    /// What is done about the node while its host is off: `taint` it as out of service, `delete` it and give its
    /// successor its labels and annotations, or `none`
    #[arg(
        long = "node-fencing", env = "FERRITE_NODE_FENCING",
        default_value = "taint", value_parser = reads(fencing)
    )]
    pub fencing: Fencing,
    /// How long a host may take to be off; then the try has failed
    #[arg(
        long = "power-off-timeout", env = "FERRITE_POWER_OFF_TIMEOUT",
        default_value = "10m", value_parser = reads(span)
    )]
    pub power_off: Duration,
    /// How long a host may take to be on again; then the try has failed
    #[arg(
        long = "power-on-timeout", env = "FERRITE_POWER_ON_TIMEOUT",
        default_value = "10m", value_parser = reads(span)
    )]
    pub power_on: Duration,
    /// How long to wait for the workload cluster to answer and for the node's pods and volumes to be gone; after that the
    /// host is switched on again all the same
    #[arg(
        long = "fence-timeout", env = "FERRITE_FENCE_TIMEOUT",
        default_value = "2m", value_parser = reads(span)
    )]
    pub fence: Duration,
    /// A host that already showed off when the reboot was requested is believed to be off only after this long; set it
    /// longer than the bare metal operator takes to read power again
    #[arg(
        long = "stale-power", env = "FERRITE_STALE_POWER",
        default_value = "150s", value_parser = reads(span)
    )]
    pub stale: Duration,
    /// Switch a host off for good when all tries have failed, that of a control plane once its Machine is being deleted and
    /// no pre-terminate hook keeps it
    #[arg(
        long = "switch-off-exhausted", env = "FERRITE_SWITCH_OFF_EXHAUSTED",
        default_value = "true", value_parser = reads(switch)
    )]
    pub switch_off: bool,
    /// Delete a machine that has no owner when all tries have failed
    #[arg(long, env = "FERRITE_DELETE_UNOWNED", default_value = "true", value_parser = reads(switch))]
    pub delete_unowned: bool,
    /// Value of Cluster API's watch label, if only objects with it count; it stands in the record of a try.
    #[arg(skip)]
    pub watch_filter: Option<String>,
}

impl Default for Policy {
    fn default() -> Self {
        defaults()
    }
}

impl Policy {
    /// The policy under the common settings; what does not fit together goes to `mistakes`.
    #[must_use]
    pub fn check(self, config: &Settings, mistakes: &mut Mistakes) -> Self {
        let power_off = ("--power-off-timeout", self.power_off);
        if self.stale >= self.power_off {
            mistakes.add(("--stale-power", self.stale), "less than", power_off);
        }
        Self { watch_filter: config.watch_filter.clone(), ..self }
    }

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
    let check = Check::of_api_server("CAPM3's metal3remediations", |client| async move {
        let found = served::find(&client, true).await?;
        let version = found.upstream.ok_or_else(|| served::NOTHING.to_owned())?;
        Ok(version.as_str().to_owned())
    });
    policy.upstream_group.then_some(check).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use controller_kit::config::parse_words;

    use super::*;

    fn read(words: &[&str]) -> (Policy, Mistakes) {
        let words = std::iter::once(&NAME).chain(words);
        let (cli, mut mistakes) = parse_words::<Cli>(words).unwrap();
        let config = cli.common.check(NAME, &mut mistakes);
        (cli.own.check(&config, &mut mistakes), mistakes)
    }

    #[test]
    fn without_a_word_it_is_as_documented() {
        let (policy, mistakes) = read(&[]);
        assert!(mistakes.lines().is_empty(), "{mistakes:?}");
        assert_eq!(policy, Policy::default());
        assert_eq!(policy.fencing, Fencing::Taint);
        let times = [policy.power_off, policy.power_on, policy.fence, policy.stale];
        assert_eq!(times.map(|it| it.as_secs()), [600, 600, 120, 150]);
        assert!(policy.switch_off && policy.delete_unowned);
        assert!(!policy.plain && !policy.upstream_group && policy.watch_filter.is_none());
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
            "--stale-power=often",
            "--switch-off-exhausted=2",
            "--delete-unowned=no",
        ];
        let (_, mistakes) = read(&wrong);
        let told = mistakes.lines().join("\n");
        for flag in wrong {
            let flag = flag.split_once('=').unwrap().0;
            let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
            assert!(told.contains(&format!("{flag} (FERRITE_{variable})")), "{flag}: {told}");
        }
        let told = read(&["--stale-power=20m"]).1;
        assert!(told.lines()[0].starts_with("--stale-power "), "{told:?}");
    }
}

//! What can be set, and what has to be installed.

use std::time::Duration;

use api_types::ContractVersion;
use clap::{Args, Parser};
use controller_kit::check::Check;
use controller_kit::config::{Command, Settings, defaults, reads, span, switch};
use controller_kit::crd::{Field, Needed};
use controller_kit::run::Needs;
use serde_json::json;

use crate::text;

/// Name of the binary.
pub const NAME: &str = "capm3-reuse";

/// What the chart allows, which is what `check` asks for.
pub const RULES: &str = include_str!("../../../charts/capm3-reuse/files/rules.json");

/// The block of the chart's values that goes with the flag.
const SCALE_VALUES: &str = "scaleToHosts";

const HOSTS: &str = "baremetalhosts.metal3.io";
const MACHINES: &str = "metal3machines.infrastructure.cluster.x-k8s.io";
const TEMPLATES: &str = "metal3machinetemplates.infrastructure.cluster.x-k8s.io";
const CONTRACTS: &[&str] = ContractVersion::NAMES;

/// Gives every `Metal3Machine` its host, and the hosts of an owner back to its next machines
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

/// How to decide: this controller's own flags.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
// The common ones are a group of another name.
#[group(id = "capm3-reuse")]
#[command(next_help_heading = "Options of capm3-reuse")]
pub struct Policy {
    /// With nodeReuse a machine gets only hosts that its owner had before, however long that takes: a first machine
    /// waits until somebody reserves a host for its owner
    #[arg(long, env = "FERRITE_STRICT_REUSE", default_value = "false", value_parser = reads(switch))]
    pub strict_reuse: bool,
    /// How long a host stays reserved for an owner whose machines all have a host
    #[arg(long, env = "FERRITE_RESERVATION_GRACE", default_value = "2m", value_parser = reads(span))]
    pub reservation_grace: Duration,
    /// End the reservations that CAPM3 left behind as well; only where CAPM3 gives no hosts to machines any more
    #[arg(
        long = "collect-capm3-reservations", env = "FERRITE_COLLECT_CAPM3_RESERVATIONS",
        default_value = "false", value_parser = reads(switch)
    )]
    pub collect_capm3: bool,
    /// Let replicas follow free hosts where the annotation ferrite.metal3.io/scale-to-hosts asks for it
    #[arg(long, env = "FERRITE_SCALE_TO_HOSTS", default_value = "false", value_parser = reads(switch))]
    pub scale_to_hosts: bool,
    /// For how long a number of hosts has to stay before replicas follow it: a rack that is plugged in is one write.
    #[arg(skip = Duration::from_secs(30))]
    pub scale_settle: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        defaults()
    }
}

/// What the controller needs from outside, and what nobody does for it with a watch filter.
pub fn needs(watch_filter: Option<&str>, policy: &Policy) -> Needs {
    let undone = watch_filter.map(|filter| {
        Check::of_others("watch filter", std::future::ready(Ok(text::left_to_others(filter))))
    });
    let checks = undone.into_iter().collect();
    let switches = policy.scale_to_hosts.then_some(SCALE_VALUES).into_iter().collect();
    Needs { fields: needed(), rules: RULES, switches, checks, ..Needs::default() }
}

/// CRDs and fields that must be installed before anything is done. Kinds that are needed by some machines only, as the
/// kubeadm control plane and CAPM3's data, are not among them.
pub fn needed() -> Vec<Needed> {
    let of = |crd, versions| Needed { crd, versions, field: None };
    let field = |crd, versions, path, property, schema| Needed {
        field: Some(Field { path, property, schema, replace: false, optional: false }),
        ..of(crd, versions)
    };
    let text = || json!({ "type": "string" });
    let reuse = json!({
        "type": "boolean",
        "description": "Machines of the same owner get back the hosts that it freed.",
    });
    vec![
        field(HOSTS, &["v1alpha1"], &["spec", "consumerRef"], "uid", text()),
        field(HOSTS, &["v1alpha1"], &["spec"], "automatedCleaningMode", text()),
        of(MACHINES, CONTRACTS),
        field(TEMPLATES, CONTRACTS, &["spec"], "nodeReuse", reuse),
        of("clusters.cluster.x-k8s.io", CONTRACTS),
        of("machines.cluster.x-k8s.io", CONTRACTS),
        of("machinesets.cluster.x-k8s.io", CONTRACTS),
        of("machinedeployments.cluster.x-k8s.io", CONTRACTS),
    ]
}

#[cfg(test)]
mod tests {
    use controller_kit::config::parse_words;

    use super::*;

    #[test]
    fn without_a_word_it_is_as_documented() {
        let (cli, mistakes) = parse_words::<Cli>([NAME]).unwrap();
        assert_eq!(cli.own, Policy::default());
        assert!(mistakes.lines().is_empty(), "{mistakes:?}");
        let it = cli.own;
        assert_eq!((it.reservation_grace.as_secs(), it.scale_settle.as_secs()), (120, 30));
        assert!(!it.strict_reuse && !it.collect_capm3 && !it.scale_to_hosts);
    }

    #[tokio::test]
    async fn with_a_watch_filter_check_says_what_nobody_does() {
        let policy = Policy::default();
        assert!(needs(None, &policy).checks.is_empty());
        let nobody = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(nobody).unwrap();
        let (cli, mut mistakes) = parse_words::<Cli>([NAME]).unwrap();
        let config = cli.common.check(NAME, &mut mistakes);
        let own = needs(Some("ours"), &policy).checks;
        let rows = controller_kit::check::run(&client, &config, &[], ("", &[]), own).await;
        let told = rows.last().map(|it| &it.result);
        assert!(matches!(told, Some(Ok(text)) if text.contains("ours")), "{rows:?}");
    }

    #[test]
    fn a_switch_needs_no_value() {
        let (cli, _) = parse_words::<Cli>([NAME, "--strict-reuse", "run"]).unwrap();
        assert!(cli.own.strict_reuse);
    }

    #[test]
    fn every_wrong_value_is_told_with_its_flag_and_its_variable() {
        let words = [
            NAME,
            "--strict-reuse=maybe",
            "--reservation-grace=soon",
            "--collect-capm3-reservations=2",
            "--scale-to-hosts=all",
        ];
        let (_, mistakes) = parse_words::<Cli>(words).unwrap();
        let told = mistakes.lines().join("\n");
        for name in [
            "FERRITE_STRICT_REUSE",
            "FERRITE_RESERVATION_GRACE",
            "FERRITE_COLLECT_CAPM3_RESERVATIONS",
            "FERRITE_SCALE_TO_HOSTS",
        ] {
            assert!(told.contains(name), "{told}");
        }
    }
}

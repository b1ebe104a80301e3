//! What can be set, and what has to be installed.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Parser};
use controller_kit::config::{Command, Mistakes, Settings, defaults, reads, span, switch};
use controller_kit::crd::Needed;
use controller_kit::run::Needs;

/// Name of the binary.
pub const NAME: &str = "host-discovery";
/// What the chart allows, which is what `check` asks for.
pub const RULES: &str = include_str!("../../../charts/host-discovery/files/rules.json");

/// The CRD of the hosts.
pub const HOSTS: &str = "baremetalhosts.metal3.io";

/// Makes a BareMetalHost of each machine that Ironic discovered and that nobody registered
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
pub struct Cli {
    /// What all controllers share.
    #[command(flatten)]
    pub common: Settings,
    /// What is this controller's own.
    #[command(flatten)]
    pub own: Policy,
    /// How to reach Ironic.
    #[command(flatten)]
    pub ironic: ironic::Flags,
    /// What to do; without a word it runs.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How to decide: this controller's own flags.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Hash)]
// The common ones are a group of another name.
#[group(id = "host-discovery")]
#[command(next_help_heading = "Options of host-discovery")]
pub struct Policy {
    /// How often Ironic is asked for new nodes: one small request when there are none
    #[arg(long, env = "FERRITE_POLL_INTERVAL", default_value = "5s", value_parser = reads(span))]
    pub poll_interval: Duration,
    /// How often Ironic is asked for all nodes, to find those that changed or went
    #[arg(long, env = "FERRITE_FULL_SYNC_INTERVAL", default_value = "5m", value_parser = reads(span))]
    pub full_sync_interval: Duration,
    /// Most hosts that are made in a second
    // Anybody on the provisioning network can post machines; nobody racks them that fast.
    #[arg(long, env = "FERRITE_CREATE_RATE", default_value = "500", value_parser = reads(rate))]
    pub create_rate: NonZeroU32,
    /// When a host that was discovered gets a BMC, give its node the driver that the BMC's address calls for
    #[arg(long, env = "FERRITE_ADOPT_DRIVER", default_value = "false", value_parser = reads(switch))]
    pub adopt_driver: bool,
    /// How long a machine may have no inventory or no ports before that counts as a failure. Ironic
    /// shows a node some milliseconds before both, and minutes before both when it is busy.
    #[arg(skip = Duration::from_secs(600))]
    pub give_up: Duration,
    /// Time between two writes of one status while much happens.
    #[arg(skip = Duration::from_secs(1))]
    pub status_interval: Duration,
    /// Machines of which something may be made that are remembered at the same time. A flood has to end somewhere.
    #[arg(skip = 10_000_usize)]
    pub most_machines: usize,
}

impl Default for Policy {
    fn default() -> Self {
        defaults()
    }
}

impl Policy {
    /// Notes what does not fit together.
    pub fn check(&self, mistakes: &mut Mistakes) {
        let poll = ("--poll-interval", self.poll_interval);
        if self.full_sync_interval < self.poll_interval {
            mistakes.add(("--full-sync-interval", self.full_sync_interval), "at least", poll);
        }
    }
}

fn rate(text: &str) -> Result<NonZeroU32, String> {
    let read = text.trim_end_matches("/s").parse::<NonZeroU32>().ok();
    let expected = || "hosts in a second, from 1 to 10000, such as 500".to_owned();
    read.filter(|it| it.get() <= 10_000).ok_or_else(expected)
}

/// What the controller needs from outside.
pub fn needs(settings: Option<ironic::Settings>) -> Needs {
    Needs {
        crds: include_str!(
            "../../../charts/host-discovery/files/crds/baremetalhostdiscoveries.metal3.io.yaml"
        ),
        fields: needed(),
        rules: RULES,
        checks: ironic::checks(settings),
        ..Needs::default()
    }
}

/// CRDs that must be installed before anything is done. Nothing is added to them.
pub fn needed() -> Vec<Needed> {
    [HOSTS, "baremetalhostdiscoveries.metal3.io"]
        .map(|crd| Needed { crd, versions: &["v1alpha1"], field: None })
        .into()
}

#[cfg(test)]
mod tests {
    use controller_kit::config::parse_words;

    use super::*;

    fn check(words: &[&str]) -> (Policy, Vec<String>) {
        let words = std::iter::once(&NAME).chain(words);
        let (cli, mut mistakes) = parse_words::<Cli>(words).unwrap();
        cli.own.check(&mut mistakes);
        (cli.own, mistakes.lines().to_vec())
    }

    #[test]
    fn the_flags_say_what_the_policy_is() {
        assert_eq!(check(&[]), (Policy::default(), Vec::new()));
        let words = ["--create-rate=7/s", "--poll-interval=1s", "--adopt-driver"];
        let (policy, mistakes) = check(&words);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        assert_eq!((policy.create_rate.get(), policy.poll_interval.as_secs()), (7, 1));
        assert!(policy.adopt_driver);
    }

    #[test]
    fn two_wrong_settings_of_ironic_are_both_told() {
        let words = [NAME, "--ironic-endpoint=ftp:x", "--conductor-group=a b"];
        let (cli, mut mistakes) = parse_words::<Cli>(words).unwrap();
        assert_eq!(cli.ironic.settings(None, &mut mistakes), None);
        let lines = mistakes.lines().join("\n");
        for source in ["--ironic-endpoint", "--conductor-group"] {
            assert!(lines.contains(source), "{source}: {lines}");
        }
    }

    #[test]
    fn both_kinds_have_to_be_there() {
        let crds: Vec<&str> = needed().iter().map(|it| it.crd).collect();
        assert_eq!(crds, ["baremetalhosts.metal3.io", "baremetalhostdiscoveries.metal3.io"]);
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let words = ["--create-rate=0", "--poll-interval=10m", "--adopt-driver=perhaps"];
        let (_, mistakes) = check(&words);
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        for flag in ["--create-rate", "--full-sync-interval", "--adopt-driver"] {
            assert!(mistakes.iter().any(|line| line.starts_with(flag)), "{flag}: {mistakes:?}");
        }
    }
}

//! What can be set, and what has to be installed.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Parser};
use controller_kit::config::{Command, Mistakes, Settings as Common, given};
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
#[group(id = "host-discovery")]
#[command(next_help_heading = "Options of host-discovery")]
pub struct Settings {
    /// How often Ironic is asked for new nodes: one small request when there are none
    #[arg(long, env = "FERRITE_POLL_INTERVAL", global = true, default_value = "5s")]
    pub poll_interval: String,
    /// How often Ironic is asked for all nodes, to find those that changed or went
    #[arg(long, env = "FERRITE_FULL_SYNC_INTERVAL", global = true, default_value = "5m")]
    pub full_sync_interval: String,
    /// Most hosts that are made in a second
    #[arg(long, env = "FERRITE_CREATE_RATE", global = true, default_value = "500")]
    pub create_rate: String,
    /// When a host that was discovered gets a BMC, give its node the driver that the BMC's address calls for
    #[arg(
        long, env = "FERRITE_ADOPT_DRIVER", global = true, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub adopt_driver: String,
    /// URL of the Ironic API; the other variables of the operator's Ironic client are read too
    #[arg(long, env = "IRONIC_ENDPOINT", global = true, default_value = "")]
    pub ironic_endpoint: String,
    /// Look only at nodes of this conductor group of Ironic, where each group has an instance of its own
    #[arg(long, env = "IRONIC_CONDUCTOR_GROUP", global = true, default_value = "")]
    pub conductor_group: String,
}

/// How to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Time between two questions for new nodes.
    pub poll_interval: Duration,
    /// Time between two lists of all nodes.
    pub full_sync_interval: Duration,
    /// Hosts that are made in a second at most. Anybody on the provisioning network can post
    /// machines; nobody racks them that fast.
    pub create_rate: NonZeroU32,
    /// Whether the driver of a node follows the BMC that its host got.
    pub adopt_driver: bool,
    /// How long a machine may have no inventory or no ports before that counts as a failure. Ironic
    /// shows a node some milliseconds before both, and minutes before both when it is busy.
    pub give_up: Duration,
    /// How long one pass reads a list of nodes, however many pages it has: a pass that ended with it would neither say so nor
    /// make hosts of the machines that it did show. The next one goes on with it.
    pub longest_list: Duration,
    /// Time between two writes of one status while much happens.
    pub status_interval: Duration,
    /// Machines of which something may be made that are remembered at the same time. A flood has to end somewhere.
    pub most_machines: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(5),
            full_sync_interval: Duration::from_secs(300),
            create_rate: NonZeroU32::MIN.saturating_add(499),
            adopt_driver: false,
            give_up: Duration::from_secs(600),
            longest_list: Duration::from_secs(90),
            status_interval: Duration::from_secs(1),
            most_machines: 10_000,
        }
    }
}

impl Settings {
    /// Reads all values; what is wrong goes to `mistakes`.
    pub fn check(&self, mistakes: &mut Mistakes) -> Policy {
        let default = Policy::default();
        let poll_interval =
            mistakes.duration("--poll-interval", &self.poll_interval, default.poll_interval);
        let interval = &self.full_sync_interval;
        let full_sync_interval =
            mistakes.duration("--full-sync-interval", interval, default.full_sync_interval);
        if full_sync_interval < poll_interval {
            let expected = format!("at least --poll-interval, which is {}", self.poll_interval);
            mistakes.add("--full-sync-interval", &self.full_sync_interval, expected);
        }
        let expected = "hosts in a second, from 1 to 10000, such as 500";
        let rate = self.create_rate.trim().trim_end_matches("/s");
        let create_rate = mistakes.parse("--create-rate", rate, expected, default.create_rate);
        if create_rate.get() > 10_000 {
            mistakes.add("--create-rate", &self.create_rate, expected);
        }
        let adopt_driver =
            mistakes.switch("--adopt-driver", &self.adopt_driver, default.adopt_driver);
        Policy { poll_interval, full_sync_interval, create_rate, adopt_driver, ..default }
    }

    /// How to reach Ironic. Commands that do not speak to it do not ask for its address.
    pub fn ironic(
        &self,
        command: Option<&Command>,
        mistakes: &mut Mistakes,
    ) -> Option<ironic::Settings> {
        if matches!(command, Some(Command::Crds | Command::ExtendCrd { .. })) {
            return None;
        }
        let endpoint = given(&self.ironic_endpoint);
        ironic::Settings::from_env_in_group(endpoint.as_deref(), given(&self.conductor_group))
            .map_err(|lines| lines.into_iter().for_each(|line| mistakes.note(line)))
            .ok()
    }
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
    use super::*;

    fn check(words: &[&str]) -> (Policy, Vec<String>) {
        let mut mistakes = Mistakes::default();
        let cli = Cli::parse_from(std::iter::once(&NAME).chain(words));
        let policy = cli.own.check(&mut mistakes);
        (policy, mistakes.lines().to_vec())
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
        let mut mistakes = Mistakes::default();
        assert_eq!(Cli::parse_from(words).own.ironic(None, &mut mistakes), None);
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

//! What can be set, and what has to be installed.

use std::time::Duration;

use api_types::capi::is_watched;
use api_types::extensions;
use api_types::metal3::BareMetalHost;
use api_types::names::capi::WATCH_FILTER;
use clap::{Args, Parser};
use controller_kit::config::{Command, Config, Mistakes, Settings as Common};
use controller_kit::crd::{Field, Needed};
use controller_kit::run::Needs;
use kube::core::{Expression, Selector, SelectorExt as _};
use serde_json::json;

/// Name of the binary.
pub const NAME: &str = "bmo-reboot";
/// What the chart allows, which is what `check` asks for.
pub const RULES: &str = include_str!("../../../charts/bmo-reboot/files/rules.json");
const SELECTOR_VARIABLE: &str = "FERRITE_HOST_SELECTOR";
const SELECTOR_HELP: &str = "Label selector of the hosts that bmo-reboot switches; --host-selector= (empty) means all hosts. \
    Instances with different selectors also need different namespaces or watch filters \
    [env: FERRITE_HOST_SELECTOR, where empty counts as not given] [default: ferrite.metal3.io/power=managed]";

/// Switches hosts off and on: spec.online and reboot requests of many clients, through Ironic
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
#[group(id = "bmo-reboot")]
#[command(next_help_heading = "Options of bmo-reboot")]
pub struct Settings {
    /// Label selector of the hosts that bmo-reboot switches
    #[arg(long, global = true, help = SELECTOR_HELP)]
    pub host_selector: Option<String>,
    /// Pause the bare metal operator on provisioned hosts that bmo-reboot switches, so that only one of them changes power
    #[arg(
        long, env = "FERRITE_TAKEOVER", global = true, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub takeover: String,
    /// Also maintain spec.online of hosts that are available; their reboot requests are not honoured
    #[arg(
        long, env = "FERRITE_MANAGE_AVAILABLE", global = true, default_value = "false",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub manage_available: String,
    /// How long one soft attempt lasts, never longer than --soft-timeout: a hard request waits at most this long for it
    #[arg(long, env = "FERRITE_SOFT_SLICE", global = true, default_value = "60s")]
    pub soft_slice: String,
    /// How long a machine may take to shut down before its power is cut
    #[arg(long, env = "FERRITE_SOFT_TIMEOUT", global = true, default_value = "180s")]
    pub soft_timeout: String,
    /// Most calls to Ironic at the same time, of those that it answers within a second: from 1 to 8
    #[arg(long, env = "FERRITE_POWER_CALLS", global = true, default_value = "6")]
    pub power_calls: String,
    /// Most soft attempts under way; each takes one of Ironic's workers for as long as it lasts
    #[arg(long, env = "FERRITE_SOFT_ATTEMPTS", global = true, default_value = "100")]
    pub soft_attempts: String,
    /// How often Ironic is asked for the power of all nodes
    #[arg(long, env = "FERRITE_POLL_INTERVAL", global = true, default_value = "60s")]
    pub poll_interval: String,
    /// URL of the Ironic API; the other variables of the operator's Ironic client are read too
    #[arg(long, env = "IRONIC_ENDPOINT", global = true, default_value = "")]
    pub ironic_endpoint: String,
    /// Look only at nodes of this conductor group of Ironic, where each group has an instance of its own
    #[arg(long, env = "IRONIC_CONDUCTOR_GROUP", global = true, default_value = "")]
    pub conductor_group: String,
}

/// How to decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Labels of the hosts that were handed to us; empty: all.
    pub selector: Selector,
    /// Value of Cluster API's watch label, if only hosts with it count.
    pub watch_filter: Option<String>,
    /// Whether the operator is asked to leave our hosts alone.
    pub takeover: bool,
    /// Whether `spec.online` of available hosts is maintained.
    pub manage_available: bool,
    /// Length of one soft attempt.
    pub soft_slice: Duration,
    /// Length of all soft attempts together.
    pub soft_timeout: Duration,
    /// Soft attempts at the same time.
    pub soft_attempts: usize,
    /// Time between two lists of all nodes.
    pub poll_interval: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            selector: Expression::Equal(
                api_types::names::ferrite::POWER.to_owned(),
                api_types::names::ferrite::POWER_MANAGED.to_owned(),
            )
            .into(),
            watch_filter: None,
            takeover: false,
            manage_available: false,
            soft_slice: Duration::from_secs(60),
            soft_timeout: Duration::from_secs(180),
            soft_attempts: 100,
            poll_interval: Duration::from_secs(60),
        }
    }
}

impl Policy {
    /// Whether the host was handed to us.
    pub fn selects(&self, host: &BareMetalHost) -> bool {
        let none = std::collections::BTreeMap::new();
        is_watched(&host.metadata, self.watch_filter.as_deref())
            && self.selector.matches(host.metadata.labels.as_ref().unwrap_or(&none))
    }

    /// Whether the host is another instance's, whose conditions and whose pause are not ours to change.
    pub fn is_anothers(&self, host: &BareMetalHost) -> bool {
        let label = host.label(WATCH_FILTER);
        self.watch_filter.as_deref().is_some_and(|ours| label.is_some_and(|value| value != ours))
    }
}

impl Settings {
    /// Reads all values; what is wrong goes to `mistakes`.
    pub fn check(&self, config: &Config, mistakes: &mut Mistakes) -> Policy {
        let default = Policy::default();
        let selector = match &self.host_selector {
            Some(text) => Some(text.clone()),
            // A chart sets variables to nothing; "all hosts" has to be said, so nothing cannot mean it here.
            None => std::env::var(SELECTOR_VARIABLE).ok().filter(|text| !text.trim().is_empty()),
        };
        let selector = selector.map_or(default.selector, |text| {
            selector_of(&text).unwrap_or_else(|part| {
                let expected = format!(
                    "labels such as a=b, a!=b, a in (b, c), a notin (b), a or !a, separated by commas; {part:?} is none"
                );
                mistakes.add("--host-selector", &text, expected);
                Selector::default()
            })
        });
        let (attempts, expected) = (&self.soft_attempts, "a number above zero");
        let soft_attempts =
            mistakes.above_zero("--soft-attempts", attempts, expected, default.soft_attempts);
        let [soft_slice, soft_timeout] = [
            ("--soft-slice", &self.soft_slice, default.soft_slice),
            ("--soft-timeout", &self.soft_timeout, default.soft_timeout),
        ]
        .map(|(flag, text, default)| {
            let value = mistakes.duration(flag, text, default);
            if value.subsec_nanos() != 0 || value.as_secs() > 3600 {
                mistakes.add(flag, text, "whole seconds up to an hour: Ironic counts in seconds");
            }
            value
        });
        let poll_interval =
            mistakes.duration("--poll-interval", &self.poll_interval, default.poll_interval);
        let mut switch = |flag, text, default| mistakes.switch(flag, text, default);
        let takeover = switch("--takeover", &self.takeover, default.takeover);
        let available = &self.manage_available;
        Policy {
            selector,
            watch_filter: config.watch_filter.clone(),
            takeover,
            manage_available: switch("--manage-available", available, default.manage_available),
            soft_slice: soft_slice.min(soft_timeout),
            soft_timeout,
            soft_attempts,
            poll_interval,
        }
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
        let endpoint = controller_kit::config::given(&self.ironic_endpoint);
        let group = controller_kit::config::given(&self.conductor_group);
        let expected = "a number from 1 to 8: Ironic refuses connections beyond some 25";
        let calls =
            mistakes.above_zero("--power-calls", &self.power_calls, expected, ironic::CALLS);
        if calls > ironic::MOST_CALLS {
            mistakes.add("--power-calls", &self.power_calls, expected);
        }
        let mut settings = ironic::Settings::from_env_in_group(endpoint.as_deref(), group)
            .map_err(|lines| lines.into_iter().for_each(|line| mistakes.note(line)))
            .ok()?;
        settings.calls = calls;
        Some(settings)
    }
}

/// Reads a label selector; the error is the part that is none. Only an empty text means all hosts, a stray comma does not.
fn selector_of(text: &str) -> Result<Selector, String> {
    if text.trim().is_empty() {
        return Ok(Selector::default());
    }
    let parts = parts(text).into_iter().map(str::trim);
    parts.map(|part| expression(part).ok_or_else(|| part.to_owned())).collect()
}

/// Splits at commas that are not between parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn expression(part: &str) -> Option<Expression> {
    let set = part.strip_suffix(')').and_then(|set| set.split_once('('));
    Some(if let Some((name, values)) = set {
        let values = values.split(',').map(value).collect::<Option<_>>()?;
        match name.trim().rsplit_once(char::is_whitespace)? {
            (name, "in") => Expression::In(key(name)?, values),
            (name, "notin") => Expression::NotIn(key(name)?, values),
            _ => return None,
        }
    } else if let Some((name, text)) = part.split_once("!=") {
        Expression::NotEqual(key(name)?, value(text)?)
    } else if let Some((name, text)) = part.split_once("==").or_else(|| part.split_once('=')) {
        Expression::Equal(key(name)?, value(text)?)
    } else if let Some(name) = part.strip_prefix('!') {
        Expression::DoesNotExist(key(name)?)
    } else {
        Expression::Exists(key(part)?)
    })
}

fn value(text: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    text.trim().chars().all(allowed).then(|| text.trim().to_owned())
}

fn key(text: &str) -> Option<String> {
    value(text).filter(|it| !it.is_empty())
}

/// What the controller needs from outside.
pub fn needs(settings: Option<ironic::Settings>) -> Needs {
    Needs { fields: needed(), rules: RULES, checks: ironic::checks(settings), ..Needs::default() }
}

/// The conditions of hosts, without which nothing is switched: they are the memory of what was promised. The fields of the
/// stamps show others what the record says, where they are there.
pub fn needed() -> Vec<Needed> {
    let ours = extensions().into_iter().filter(|extension| extension.controller == NAME);
    let ours = ours.map(|extension| Needed {
        crd: extension.crd,
        versions: extension.versions,
        field: Some(Field {
            path: extension.path,
            property: extension.property,
            schema: serde_json::to_value(&extension.schema).unwrap_or_default(),
            replace: extension.replace,
            optional: true,
        }),
    });
    ours.chain([conditions()]).collect()
}

/// Upstream's own, which its CRD has since release 0.13.
fn conditions() -> Needed {
    let text = json!({ "type": "string" });
    let condition = json!({
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": { "type": "string", "format": "date-time" },
            "message": text,
            "observedGeneration": { "type": "integer", "format": "int64" },
            "reason": text,
            "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
            "type": text,
        },
    });
    let schema = json!({
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    });
    Needed {
        crd: "baremetalhosts.metal3.io",
        versions: &["v1alpha1"],
        field: Some(Field {
            path: &["status"],
            property: "conditions",
            schema,
            replace: false,
            optional: false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_read_as_kubectl_reads_it() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        let matches =
            |text: &str, pairs: &[(&str, &str)]| selector_of(text).unwrap().matches(&labels(pairs));
        assert!(matches("a=b", &[("a", "b")]) && !matches("a=b", &[("a", "c")]));
        assert!(matches("a==b,c", &[("a", "b"), ("c", "")]) && !matches("a=b,c", &[("a", "b")]));
        assert!(matches("a!=b", &[]) && !matches("a!=b", &[("a", "b")]));
        assert!(matches("!a", &[]) && !matches("!a", &[("a", "")]));
        assert!(matches("", &[]) && matches("", &[("x", "y")]));
        assert!(matches("a in (b, c),d", &[("a", "c"), ("d", "")]));
        assert!(!matches("a in (b,c)", &[("a", "d")]) && !matches("a in (b)", &[]));
        assert!(matches("a notin (b)", &[]) && !matches("a notin (b)", &[("a", "b")]));
        for wrong in [
            "a=b c", "=b", "a b", "!", "a=(b)", "a in b", "a on (b)", "in (b)", "a in (b", ",",
            "a=b,",
        ] {
            assert!(selector_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_slice_is_no_longer_than_all_soft_attempts_together() {
        let read = |flags: &[&str]| {
            let cli =
                Cli::try_parse_from(std::iter::once(NAME).chain(flags.iter().copied())).unwrap();
            let mut mistakes = Mistakes::default();
            let config = cli.common.check(NAME, &mut mistakes);
            let policy = cli.own.check(&config, &mut mistakes);
            let refused = mistakes.lines().iter().any(|line| line.starts_with("--soft"));
            assert!(!refused, "{flags:?}");
            policy.soft_slice.as_secs()
        };
        assert_eq!(read(&[]), 60);
        assert_eq!(read(&["--soft-timeout=20s"]), 20);
        assert_eq!(read(&["--soft-timeout=20s", "--soft-slice=60s"]), 20);
        assert_eq!(read(&["--soft-timeout=10m"]), 60);
    }

    #[test]
    fn a_host_with_another_watch_filter_is_another_instances_and_one_without_is_nobodys() {
        let ours = Policy { watch_filter: Some("a".to_owned()), ..Policy::default() };
        let mut host =
            BareMetalHost::new("n", "h", api_types::metal3::BareMetalHostSpec::default());
        assert!(!ours.is_anothers(&host));
        for (value, is_anothers) in [("a", false), ("b", true)] {
            host.metadata.labels = Some([(WATCH_FILTER.to_owned(), value.to_owned())].into());
            assert_eq!(ours.is_anothers(&host), is_anothers, "{value}");
            assert!(!Policy::default().is_anothers(&host), "who has no filter has all");
        }
    }

    #[test]
    fn without_a_word_only_hosts_that_were_handed_over_are_ours() {
        let mut host =
            BareMetalHost::new("n", "h", api_types::metal3::BareMetalHostSpec::default());
        let policy = Policy::default();
        assert!(!policy.selects(&host));
        host.metadata.labels =
            Some([("ferrite.metal3.io/power".to_owned(), "managed".to_owned())].into());
        assert!(policy.selects(&host));
    }

    #[test]
    fn conditions_are_needed_and_the_fields_of_the_stamps_are_not() {
        let needed = needed();
        let fields = needed.iter().filter_map(|it| it.field.as_ref());
        let fields: Vec<_> = fields.map(|it| (it.property, it.optional)).collect();
        let stamps = [("lastPoweredOn", true), ("pendingRebootSince", true)];
        assert_eq!(fields, [stamps[0], stamps[1], ("conditions", false)]);
    }
}

//! What can be set, and what has to be installed.

use std::time::Duration;

use api_types::capi::is_watched;
use api_types::extensions;
use api_types::metal3::BareMetalHost;
use api_types::names::capi::WATCH_FILTER;
use api_types::names::ferrite::POWER_SELECTOR;
use clap::{Args, Parser};
use controller_kit::config::{Command, Settings, above_zero, defaults, reads, span, switch};
use controller_kit::crd::{Field, Needed};
use controller_kit::run::Needs;
use kube::core::{Expression, Selector, SelectorExt as _};
use serde_json::json;

/// Name of the binary.
pub const NAME: &str = "bmo-reboot";
/// What the chart allows, which is what `check` asks for.
pub const RULES: &str = include_str!("../../../charts/bmo-reboot/files/rules.json");
/// Switches hosts off and on: spec.online and reboot requests of many clients, through Ironic
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
#[derive(Args, Clone, Debug, PartialEq)]
// The common ones are a group of another name.
#[group(id = "bmo-reboot")]
#[command(next_help_heading = "Options of bmo-reboot")]
pub struct Policy {
    /// Label selector of the hosts that bmo-reboot switches; --host-selector= (empty) means all hosts, an empty variable counts
    /// as not given. Instances with different selectors also need different namespaces or watch filters
    #[arg(
        long = "host-selector", env = "FERRITE_HOST_SELECTOR",
        default_value = POWER_SELECTOR, value_parser = reads(selector_of).even_nothing()
    )]
    pub selector: Selector,
    /// Value of Cluster API's watch label, if only hosts with it count.
    #[arg(skip)]
    pub watch_filter: Option<String>,
    /// Pause the bare metal operator on provisioned hosts that bmo-reboot switches, so that only one of them changes power
    #[arg(long, env = "FERRITE_TAKEOVER", default_value = "false", value_parser = reads(switch))]
    pub takeover: bool,
    /// Also maintain spec.online of hosts that are available; their reboot requests are not honoured
    #[arg(long, env = "FERRITE_MANAGE_AVAILABLE", default_value = "false", value_parser = reads(switch))]
    pub manage_available: bool,
    /// How long one soft attempt lasts, never longer than --soft-timeout: a hard request waits at most this long for it
    #[arg(long, env = "FERRITE_SOFT_SLICE", default_value = "60s", value_parser = reads(soft))]
    pub soft_slice: Duration,
    /// How long a machine may take to shut down before its power is cut
    #[arg(long, env = "FERRITE_SOFT_TIMEOUT", default_value = "180s", value_parser = reads(soft))]
    pub soft_timeout: Duration,
    /// Most calls to Ironic at the same time, of those that it answers within a second: from 1 to 8
    #[arg(long, env = "FERRITE_POWER_CALLS", default_value = "6", value_parser = reads(calls))]
    pub power_calls: usize,
    /// Most soft attempts under way; each takes one of Ironic's workers for as long as it lasts
    #[arg(
        long, env = "FERRITE_SOFT_ATTEMPTS", default_value = "100",
        value_parser = reads(|text| above_zero::<usize>(text, "a number above zero"))
    )]
    pub soft_attempts: usize,
    /// How often Ironic is asked for the power of all nodes
    #[arg(long, env = "FERRITE_POLL_INTERVAL", default_value = "60s", value_parser = reads(span))]
    pub poll_interval: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        defaults()
    }
}

impl Policy {
    /// The policy under the common settings.
    #[must_use]
    pub fn check(self, config: &Settings) -> Self {
        let soft_slice = self.soft_slice.min(self.soft_timeout);
        Self { soft_slice, watch_filter: config.watch_filter.clone(), ..self }
    }

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

fn soft(text: &str) -> Result<Duration, String> {
    let fits = |it: &Duration| it.subsec_nanos() == 0 && it.as_secs() <= 3600;
    let expected = || "whole seconds up to an hour: Ironic counts in seconds".to_owned();
    Some(span(text)?).filter(fits).ok_or_else(expected)
}

fn calls(text: &str) -> Result<usize, String> {
    let expected = "a number from 1 to 8: Ironic refuses connections beyond some 25";
    let read = above_zero::<usize>(text, expected)?;
    if read > ironic::MOST_CALLS { Err(expected.to_owned()) } else { Ok(read) }
}

/// Reads a label selector. Only an empty text means all hosts, a stray comma does not.
fn selector_of(text: &str) -> Result<Selector, String> {
    if text.is_empty() {
        return Ok(Selector::default());
    }
    let wrong = |part: &str| {
        format!(
            "labels such as a=b, a!=b, a in (b, c), a notin (b), a or !a, separated by commas; {part:?} is none"
        )
    };
    // A comma between parentheses separates values.
    let mut depth = 0;
    let parts = text.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(str::trim).map(|part| expression(part).ok_or_else(|| wrong(part))).collect()
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

/// Upstream's own, which its CRD has since release 0.13. In an older one it is added without the names of its fields: the release
/// that brings it names them.
fn conditions() -> Needed {
    let condition = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    Needed {
        crd: "baremetalhosts.metal3.io",
        versions: &["v1alpha1"],
        field: Some(Field {
            path: &["status"],
            property: "conditions",
            schema: json!({ "type": "array", "items": condition }),
            replace: false,
            optional: false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use controller_kit::config::parse_words;

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
            let words = std::iter::once(&NAME).chain(flags);
            let (cli, mut mistakes) = parse_words::<Cli>(words).unwrap();
            let config = cli.common.check(NAME, &mut mistakes);
            assert!(mistakes.lines().is_empty(), "{mistakes:?}");
            cli.own.check(&config).soft_slice.as_secs()
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

//! The command line that all controllers share. Every mistake is collected before any is reported,
//! so that a person corrects their values file once and not once per mistake.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// What the process is asked to do; without a word it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Run the controller (what happens without a command)
    #[default]
    Run,
    /// Look once at everything the controller needs and say what to do about each failure
    Check {
        /// For people, or for programs
        #[arg(short, long, default_value = "table")]
        output: CheckOutput,
    },
    /// Print the controller's own CRDs
    Crds,
    /// Add the fields that the controller needs to CRDs of others that are installed
    ExtendCrd {
        /// Print the difference and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Stay, and add the fields again when somebody takes them away
        #[arg(long, conflicts_with = "dry_run")]
        keep: bool,
        /// Print what this tool needs to keep the fields, and change nothing
        #[arg(long, value_name = "TOOL", conflicts_with_all = ["dry_run", "keep"])]
        print: Option<GitOps>,
    },
}

/// How `check` says what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckOutput {
    /// A line for each look
    Table,
    /// One object, with the same lines as `checks`
    Json,
}

/// A tool that applies CRDs from git, and takes away what git does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GitOps {
    /// Patches for a kustomization.yaml, or for a Kustomization of Flux
    Kustomize,
    /// Differences that an Application of Argo CD is to ignore
    Argocd,
}

/// Reads the command line. A value may begin with a minus: clap would stop at it, and nobody learned of the other mistakes.
#[must_use]
pub fn parse<C: Parser>() -> C {
    let words = command::<C>().get_matches();
    C::from_arg_matches(&words).unwrap_or_else(|error| error.exit())
}

fn command<C: Parser>() -> clap::Command {
    C::command().mut_args(|arg| {
        let takes = arg.get_action().takes_values() && !arg.is_require_equals_set();
        if takes { arg.allow_hyphen_values(true) } else { arg }
    })
}

/// The flags of every controller, to be flattened into its own parser.
///
/// All values are text here: clap would stop at the first bad one. [`Settings::check`] reads them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Common options")]
pub struct Settings {
    /// Address of probes and metrics
    #[arg(long, env = "FERRITE_LISTEN", global = true, default_value = "0.0.0.0:8080")]
    pub listen: String,
    /// Namespaces to work in, separated by commas; all when empty
    #[arg(long, env = "FERRITE_NAMESPACES", global = true, default_value = "")]
    pub namespaces: String,
    /// Work only on objects whose cluster.x-k8s.io/watch-filter label has this value
    #[arg(long, env = "FERRITE_WATCH_FILTER", global = true, default_value = "")]
    pub watch_filter: String,
    /// Act only while holding the lease; `false` for a single process
    #[arg(
        long, env = "FERRITE_LEADER_ELECT", global = true, default_value = "true",
        num_args = 0..=1, require_equals = true, default_missing_value = "true"
    )]
    pub leader_elect: String,
    /// Namespace of the lease; the pod's own when empty
    #[arg(long, env = "FERRITE_LEASE_NAMESPACE", global = true, default_value = "")]
    pub lease_namespace: String,
    /// Name of the lease; `ferrite-<controller>` when empty
    #[arg(long, env = "FERRITE_LEASE_NAME", global = true, default_value = "")]
    pub lease_name: String,
    /// How long others wait for a holder that is silent
    #[arg(long, env = "FERRITE_LEASE_DURATION", global = true, default_value = "15s")]
    pub lease_duration: String,
    /// How long the holder goes on without a renewal that succeeded
    #[arg(long, env = "FERRITE_RENEW_DEADLINE", global = true, default_value = "10s")]
    pub renew_deadline: String,
    /// How often the holder renews
    #[arg(long, env = "FERRITE_RETRY_PERIOD", global = true, default_value = "2s")]
    pub retry_period: String,
    /// How many objects are worked on at the same time
    #[arg(long, env = "FERRITE_CONCURRENCY", global = true, default_value = "32")]
    pub concurrency: String,
    /// `text`, `json`, or empty: text on a terminal, json otherwise
    #[arg(long, env = "FERRITE_LOG_FORMAT", global = true, default_value = "")]
    pub log_format: String,
    /// Log filter, such as `info` or `info,kube=debug`
    #[arg(long = "log", env = "RUST_LOG", global = true, default_value = "info")]
    pub log: String,
    /// Kubeconfig, or several as for kubectl; the pod's own account when neither this nor a default file is there
    #[arg(long, env = "KUBECONFIG", global = true, default_value = "")]
    pub kubeconfig: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// The common settings, read and found to fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The binary's name; also the label of its metrics and the reporter of its events.
    pub controller: &'static str,
    /// Where probes and metrics are served.
    pub listen: SocketAddr,
    /// Empty: all.
    pub namespaces: Vec<String>,
    /// Value of Cluster API's watch label, if any.
    pub watch_filter: Option<String>,
    /// `None`: no election, this process always acts.
    pub lease: Option<LeaseConfig>,
    /// Upper bound of reconciles at the same time.
    pub concurrency: u16,
    /// Log format.
    pub log_format: LogFormat,
    /// Log filter.
    pub log: String,
    /// Explicit kubeconfig, or several separated as in `PATH`, if any.
    pub kubeconfig: Option<PathBuf>,
}

/// Where the lease is and how it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// `None`: the client's default namespace, which in a pod is the pod's own.
    pub namespace: Option<String>,
    /// Name of the Lease object.
    pub name: String,
    /// How long others wait for a silent holder.
    pub duration: Duration,
    /// How long the holder believes in itself without a renewal.
    pub renew_deadline: Duration,
    /// How often it renews.
    pub retry_period: Duration,
}

/// Mistakes in flags and environment variables; a controller adds its own to the same list.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<String>);

impl Mistakes {
    /// Notes that `value` of `flag` is not what is expected.
    pub fn add(&mut self, flag: &str, value: &str, expected: impl Display) {
        let variable = variable(flag);
        self.0.push(format!("{flag} ({variable}): {value:?} is wrong, expected {expected}"));
    }

    /// Notes a mistake that is no flag's, as a sentence of its own.
    pub fn note(&mut self, line: String) {
        self.0.push(line);
    }

    /// Reads a value. An empty one counts as not given, since charts set variables to nothing. A wrong one is
    /// noted, and what is returned is never used because nothing starts while there are mistakes.
    pub fn parse<T: FromStr>(&mut self, flag: &str, value: &str, expected: &str, default: T) -> T {
        let Some(text) = given(value) else { return default };
        text.parse().unwrap_or_else(|_| {
            self.add(flag, value, expected);
            default
        })
    }

    /// Reads `true` or `false`.
    pub fn switch(&mut self, flag: &str, value: &str, default: bool) -> bool {
        self.parse(flag, value, "true or false", default)
    }

    /// Reads a number of which there must be one at least.
    pub fn above_zero<T: FromStr + Default + PartialEq>(
        &mut self,
        flag: &str,
        value: &str,
        expected: &str,
        default: T,
    ) -> T {
        let read = self.parse(flag, value, expected, default);
        if read == T::default() {
            self.add(flag, value, expected);
        }
        read
    }

    /// Reads a duration above zero as Go writes it (`90s`, `1m30s`).
    pub fn duration(&mut self, flag: &str, value: &str, default: Duration) -> Duration {
        let Some(text) = given(value) else { return default };
        match duration(&text) {
            Some(read) if read > Duration::ZERO => read,
            _ => {
                self.add(flag, value, "a duration above zero such as 15s or 1m30s");
                default
            }
        }
    }

    /// The mistakes so far, one line each.
    pub fn lines(&self) -> &[String] {
        &self.0
    }

    /// Prints all mistakes; the error is the exit code 2.
    pub fn finish(self) -> Result<(), ExitCode> {
        for line in &self.0 {
            eprintln!("{line}");
        }
        if self.0.is_empty() { Ok(()) } else { Err(ExitCode::from(2)) }
    }
}

/// A duration as Go writes it; nothing if it is not one, or negative, or far beyond any use.
pub fn duration(text: &str) -> Option<Duration> {
    // kube's type panics on a number that does not fit, and on a sign in the middle.
    let digits = |run: &str| run.len() <= 12;
    let fits = text.len() <= 64 && text.split(|it: char| !it.is_ascii_digit()).all(digits);
    if !fits || text.contains('-') {
        return None;
    }
    text.parse::<kube::core::Duration>().ok().map(Duration::from)
}

/// The environment variable of a flag. Two have a name that others made known.
fn variable(flag: &str) -> String {
    match flag {
        "--log" => "RUST_LOG".to_owned(),
        "--kubeconfig" => "KUBECONFIG".to_owned(),
        _ => format!("FERRITE_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase()),
    }
}

impl Settings {
    /// Reads all values; what is wrong goes to `mistakes`.
    pub fn check(&self, controller: &'static str, mistakes: &mut Mistakes) -> Config {
        let listen = mistakes.parse(
            "--listen",
            &self.listen,
            "an address and port such as 0.0.0.0:8080",
            SocketAddr::from(([0, 0, 0, 0], 8080)),
        );
        let mut namespaces: Vec<String> = Vec::new();
        for name in self.namespaces.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !is_label(name) {
                let expected = format!("names of namespaces separated by commas; {name:?} is none");
                mistakes.add("--namespaces", &self.namespaces, expected);
            } else if !namespaces.iter().any(|known| known == name) {
                namespaces.push(name.to_owned());
            }
        }
        let watch_filter = given(&self.watch_filter);
        if watch_filter.as_deref().is_some_and(|value| !is_label_value(value)) {
            let expected = "a value that a label can have: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends";
            mistakes.add("--watch-filter", &self.watch_filter, expected);
        }
        let elect = mistakes.switch("--leader-elect", &self.leader_elect, true);
        let lease = self.lease(controller, mistakes);
        let expected = "a number from 1 to 65535";
        let concurrency = mistakes.above_zero("--concurrency", &self.concurrency, expected, 32);
        let log_format = match self.log_format.trim() {
            "" if std::io::stdout().is_terminal() => LogFormat::Text,
            "" | "json" => LogFormat::Json,
            "text" => LogFormat::Text,
            _ => {
                mistakes.add("--log-format", &self.log_format, "text or json");
                LogFormat::Json
            }
        };
        if let Err(why) = log_filter(&self.log) {
            mistakes.add("--log", &self.log, why);
        }
        Config {
            controller,
            listen,
            namespaces,
            watch_filter,
            lease: elect.then_some(lease),
            concurrency,
            log_format,
            // A chart leaves it empty, which as a filter would mean errors only.
            log: given(&self.log).unwrap_or_else(|| "info".to_owned()),
            kubeconfig: given(&self.kubeconfig).map(PathBuf::from),
        }
    }

    fn lease(&self, controller: &str, mistakes: &mut Mistakes) -> LeaseConfig {
        let namespace = given(&self.lease_namespace);
        if namespace.as_deref().is_some_and(|name| !is_label(name)) {
            let expected = "the name of a namespace";
            mistakes.add("--lease-namespace", &self.lease_namespace, expected);
        }
        let name = given(&self.lease_name).unwrap_or_else(|| format!("ferrite-{controller}"));
        if name.len() > 253 || !name.split('.').all(is_label) {
            let expected = "an object name: lower case letters, digits, '-' and '.'";
            mistakes.add("--lease-name", &self.lease_name, expected);
        }
        let before = mistakes.0.len();
        let duration =
            mistakes.duration("--lease-duration", &self.lease_duration, Duration::from_secs(15));
        let renew_deadline =
            mistakes.duration("--renew-deadline", &self.renew_deadline, Duration::from_secs(10));
        let retry_period =
            mistakes.duration("--retry-period", &self.retry_period, Duration::from_secs(2));
        // Comparing with a value that could not be read would report the same mistake twice.
        if before == mistakes.0.len() {
            if duration.subsec_nanos() != 0 {
                let expected = "whole seconds, as the Lease object stores them";
                mistakes.add("--lease-duration", &self.lease_duration, expected);
            }
            if renew_deadline >= duration {
                let expected =
                    format!("less than --lease-duration, which is {}", self.lease_duration);
                mistakes.add("--renew-deadline", &self.renew_deadline, expected);
            }
            if retry_period * 2 > renew_deadline {
                let expected =
                    format!("at most half of --renew-deadline, which is {}", self.renew_deadline);
                mistakes.add("--retry-period", &self.retry_period, expected);
            }
        }
        LeaseConfig { namespace, name, duration, renew_deadline, retry_period }
    }
}

/// An empty value counts as not given: charts set variables to nothing.
pub fn given(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// What is expected instead of a log filter that is wrong.
fn log_filter(text: &str) -> Result<(), String> {
    let expected =
        "off, error, warn, info, debug or trace, or a log filter such as info,kube=debug";
    text.parse::<Targets>().map_err(|why| format!("{expected}: {why}"))?;
    let mut parts = text.trim().split(',').filter(|part| !part.is_empty());
    // It would be taken for a part of the program, of which alone everything or this is told.
    let is_wrong = |part: &&str| {
        let is_level = part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok();
        !is_level || part.contains(char::is_whitespace)
    };
    parts.find(is_wrong).map_or(Ok(()), |part| Err(format!("{expected}; {part:?} is neither")))
}

fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    is_label_value(name) && name.bytes().all(inner)
}

/// Whether the value of a label, or the name in its key, can be this.
pub fn is_label_value(text: &str) -> bool {
    let outer = |byte: Option<u8>| byte.is_some_and(|it| it.is_ascii_alphanumeric());
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 63
        && text.bytes().all(inner)
        && outer(text.bytes().next())
        && outer(text.bytes().last())
}

#[cfg(test)]
mod tests;

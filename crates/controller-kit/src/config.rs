//! The command line that all controllers share. Every mistake is collected before any is reported,
//! so that a person corrects their values file once and not once per mistake.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{StringValueParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
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

thread_local! {
    /// What is wrong with the values that were read. clap stops at the first value that a reader refuses, so ours refuse none:
    /// they note it here and give the default, which nobody uses while there are mistakes.
    static NOTED: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
}

/// A value that cannot be read.
struct Noted {
    /// clap's name of its flag.
    id: String,
    flag: String,
    source: ValueSource,
    line: String,
}

/// Reads the command line and the environment, and what is wrong with their values.
#[must_use]
pub fn parse<C: Parser>() -> (C, Mistakes) {
    parse_words(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

/// The same of these words, of which the first is the program's name.
///
/// # Errors
/// A flag that there is not, or that a person asks for help.
pub fn parse_words<C: Parser>(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<(C, Mistakes), clap::Error> {
    NOTED.take();
    let matches = command::<C>().try_get_matches_from(words)?;
    let read = C::from_arg_matches(&matches)?;
    let mut mistakes = Mistakes::default();
    for Noted { id, flag, source, line } in NOTED.take() {
        // clap reads a variable once for each command on the line, also where a flag of another one overrides it.
        let is_known = matches.try_contains_id(&id).unwrap_or_default();
        let used = is_known.then(|| matches.value_source(&id)).flatten();
        if used.is_none_or(|it| it == source) && mistakes.unread.insert(flag) {
            mistakes.lines.push(line);
        }
    }
    Ok((read, mistakes))
}

/// What flags are without a word on the command line or in the environment.
///
/// # Panics
/// When a flag has no default that can be read.
#[must_use]
#[expect(clippy::expect_used, reason = "the tests of each controller read its defaults")]
pub fn defaults<A: Args>() -> A {
    let command =
        A::augment_args(clap::Command::new("")).mut_args(|arg| with_habits(arg).env(None));
    let read = command.try_get_matches_from([""]).and_then(|it| A::from_arg_matches(&it));
    read.expect("each flag has a default")
}

/// The command line of a program, with the habits of all flags.
#[must_use]
pub fn command<C: CommandFactory>() -> clap::Command {
    C::command().mut_args(with_habits)
}

/// A flag may follow the command. A switch needs no value; any other value may begin with a minus: clap would stop at it, and
/// nobody learned of the other mistakes.
fn with_habits(arg: Arg) -> Arg {
    if arg.get_long().is_none() {
        return arg;
    }
    let is_switch = arg.get_value_parser().type_id() == ValueParser::bool().type_id();
    let arg = arg.global(true).action(ArgAction::Set);
    if is_switch {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg.allow_hyphen_values(true)
    }
}

/// Reads the value of a flag, by a function whose error is what is expected instead. An empty value counts as not given: charts
/// set variables to nothing.
#[derive(Clone)]
pub struct Reads<T> {
    read: fn(&str) -> Result<T, String>,
    empty_says_something: bool,
}

/// A reader of values.
pub const fn reads<T>(read: fn(&str) -> Result<T, String>) -> Reads<T> {
    Reads { read, empty_says_something: false }
}

impl<T> Reads<T> {
    /// On the command line an empty value is one, too.
    #[must_use]
    pub const fn even_nothing(self) -> Self {
        Self { empty_says_something: true, ..self }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Reads<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        self.parse_ref_(command, arg, value, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<T, clap::Error> {
        let text = StringValueParser::new().parse_ref(command, arg, value)?;
        let default = arg.and_then(|arg| arg.get_default_values().first()?.to_str());
        let default = default.unwrap_or_default();
        let says = self.empty_says_something && source == ValueSource::CommandLine;
        let is_given = says || !text.trim().is_empty();
        (self.read)(if is_given { text.trim() } else { default })
            .or_else(|expected| {
                NOTED.with_borrow_mut(|noted| noted.push(wrong(arg, source, &text, &expected)));
                (self.read)(default)
            })
            .map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, why))
    }
}

/// What to say of a wrong value.
fn wrong(arg: Option<&Arg>, source: ValueSource, text: &str, expected: &str) -> Noted {
    let id = arg.map(|it| it.get_id().to_string()).unwrap_or_default();
    let flag = format!("--{}", arg.and_then(Arg::get_long).unwrap_or_default());
    let variable = arg.and_then(Arg::get_env).unwrap_or_default().to_string_lossy();
    let line = format!("{flag} ({variable}): {text:?} is wrong, expected {expected}");
    Noted { id, flag, source, line }
}

/// A value that may be missing. clap would take an `Option` for a flag that may be, and an empty value for one that is given.
pub type Given<T> = Option<T>;

/// Reads `true` or `false`.
pub fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false".to_owned())
}

/// Reads a duration above zero as Go writes it (`90s`, `1m30s`).
pub fn span(text: &str) -> Result<Duration, String> {
    let read = duration(text).filter(|it| *it > Duration::ZERO);
    read.ok_or_else(|| "a duration above zero such as 15s or 1m30s".to_owned())
}

/// Reads a number of which there must be one at least.
pub fn above_zero<T: FromStr + Default + PartialEq>(
    text: &str,
    expected: &str,
) -> Result<T, String> {
    let read = text.parse().ok().filter(|it| *it != T::default());
    read.ok_or_else(|| expected.to_owned())
}

/// Reads text; an empty one is none.
pub fn given(text: &str) -> Result<Given<String>, String> {
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// The flags of every controller, to be flattened into its own parser.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Common options")]
pub struct Settings {
    /// The binary's name; also the label of its metrics and the reporter of its events.
    #[arg(skip)]
    pub controller: &'static str,
    /// Address of probes and metrics
    #[arg(long, env = "FERRITE_LISTEN", default_value = "0.0.0.0:8080", value_parser = reads(address))]
    pub listen: SocketAddr,
    /// Namespaces to work in, separated by commas; all when empty
    #[arg(long, env = "FERRITE_NAMESPACES", default_value = "", value_parser = reads(names))]
    pub namespaces: Names,
    /// Work only on objects whose cluster.x-k8s.io/watch-filter label has this value
    #[arg(long, env = "FERRITE_WATCH_FILTER", default_value = "", value_parser = reads(label_value))]
    pub watch_filter: Given<String>,
    /// Act only while holding the lease; `false` for a single process
    #[arg(long, env = "FERRITE_LEADER_ELECT", default_value = "true", value_parser = reads(switch))]
    pub leader_elect: bool,
    /// Namespace of the lease; the pod's own when empty
    #[arg(long, env = "FERRITE_LEASE_NAMESPACE", default_value = "", value_parser = reads(namespace))]
    pub lease_namespace: Given<String>,
    /// Name of the lease; `ferrite-<controller>` when empty
    #[arg(long, env = "FERRITE_LEASE_NAME", default_value = "", value_parser = reads(object_name))]
    pub lease_name: String,
    /// How long others wait for a holder that is silent
    #[arg(long, env = "FERRITE_LEASE_DURATION", default_value = "15s", value_parser = reads(lease_duration))]
    pub lease_duration: Duration,
    /// How long the holder goes on without a renewal that succeeded
    #[arg(long, env = "FERRITE_RENEW_DEADLINE", default_value = "10s", value_parser = reads(span))]
    pub renew_deadline: Duration,
    /// How often the holder renews
    #[arg(long, env = "FERRITE_RETRY_PERIOD", default_value = "2s", value_parser = reads(span))]
    pub retry_period: Duration,
    /// How many objects are worked on at the same time
    #[arg(
        long, env = "FERRITE_CONCURRENCY", default_value = "32",
        value_parser = reads(|text| above_zero::<u16>(text, "a number from 1 to 65535"))
    )]
    pub concurrency: u16,
    /// `text`, `json`, or empty: text on a terminal, json otherwise
    #[arg(long, env = "FERRITE_LOG_FORMAT", default_value = "", value_parser = reads(log_format))]
    pub log_format: LogFormat,
    /// Log filter, such as `info` or `info,kube=debug`
    #[arg(long = "log", env = "RUST_LOG", default_value = "info", value_parser = reads(log_filter))]
    pub log: String,
    /// Kubeconfig, or several as for kubectl; the pod's own account when neither this nor a default file is there
    #[arg(long, env = "KUBECONFIG", default_value = "", value_parser = reads(given))]
    pub kubeconfig: Given<String>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Mistakes in flags and environment variables; a controller adds its own to the same list.
#[derive(Debug, Default)]
pub struct Mistakes {
    lines: Vec<String>,
    /// Flags whose values could not be read.
    unread: BTreeSet<String>,
}

impl Mistakes {
    /// Notes that the value of a flag does not fit the one of another flag: as it is expected to be, beside that. Nobody knows
    /// that of a value which could not be read.
    pub fn add(
        &mut self,
        (flag, value): (&str, Duration),
        expected: &str,
        (other, its): (&str, Duration),
    ) {
        if [flag, other].iter().any(|it| self.unread.contains(*it)) {
            return;
        }
        let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
        let line = format!(
            "{flag} (FERRITE_{variable}): {value:?} is wrong, expected {expected} {other}, which is {its:?}"
        );
        self.lines.push(line);
    }

    /// Notes a mistake that is no flag's, as a sentence of its own.
    pub fn note(&mut self, line: String) {
        self.lines.push(line);
    }

    /// The mistakes so far, one line each.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Prints all mistakes; the error is the exit code 2.
    pub fn finish(self) -> Result<(), ExitCode> {
        for line in &self.lines {
            eprintln!("{line}");
        }
        if self.lines.is_empty() { Ok(()) } else { Err(ExitCode::from(2)) }
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

impl Settings {
    /// The settings of this controller; what does not fit together goes to `mistakes`.
    #[must_use]
    pub fn check(mut self, controller: &'static str, mistakes: &mut Mistakes) -> Self {
        let renewing = ("--renew-deadline", self.renew_deadline);
        if self.renew_deadline >= self.lease_duration {
            mistakes.add(renewing, "less than", ("--lease-duration", self.lease_duration));
        }
        if self.retry_period * 2 > self.renew_deadline {
            mistakes.add(("--retry-period", self.retry_period), "at most half of", renewing);
        }
        if self.lease_name.is_empty() {
            self.lease_name = format!("ferrite-{controller}");
        }
        Self { controller, ..self }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address and port such as 0.0.0.0:8080".to_owned())
}

/// Names of namespaces, each once.
type Names = Vec<String>;

fn names(text: &str) -> Result<Names, String> {
    let mut names = Names::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if !is_label(name) {
            return Err(format!("names of namespaces separated by commas; {name:?} is none"));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn label_value(text: &str) -> Result<Given<String>, String> {
    if !text.is_empty() && !is_label_value(text) {
        return Err("a value that a label can have: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends".to_owned());
    }
    given(text)
}

fn namespace(text: &str) -> Result<Given<String>, String> {
    if !text.is_empty() && !is_label(text) {
        return Err("the name of a namespace".to_owned());
    }
    given(text)
}

fn object_name(text: &str) -> Result<String, String> {
    if text.len() > 253 || !text.is_empty() && !text.split('.').all(is_label) {
        return Err("an object name: lower case letters, digits, '-' and '.'".to_owned());
    }
    Ok(text.to_owned())
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let whole = |it: &Duration| it.subsec_nanos() == 0;
    let expected = || "whole seconds, as the Lease object stores them".to_owned();
    Some(span(text)?).filter(whole).ok_or_else(expected)
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "" if std::io::stdout().is_terminal() => Ok(LogFormat::Text),
        "" | "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err("text or json".to_owned()),
    }
}

fn log_filter(text: &str) -> Result<String, String> {
    let expected =
        "off, error, warn, info, debug or trace, or a log filter such as info,kube=debug";
    text.parse::<Targets>().map_err(|why| format!("{expected}: {why}"))?;
    let mut parts = text.split(',').filter(|part| !part.is_empty());
    // It would be taken for a part of the program, of which alone everything or this is told.
    let is_wrong = |part: &&str| {
        let is_level = part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok();
        !is_level || part.contains(char::is_whitespace)
    };
    let wrong = parts.find(is_wrong).map(|part| format!("{expected}; {part:?} is neither"));
    wrong.map_or(Ok(text.to_owned()), Err)
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

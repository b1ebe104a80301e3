//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use controller_kit::config::duration;

/// Say why something waits, and what to do
#[derive(Debug, Parser)]
#[command(name = "kubectl-ferrite", bin_name = "kubectl ferrite", version)]
pub(crate) struct Cli {
    /// Namespace (default: that of the context)
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig (default: the current one)
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    /// Kubeconfig, or several as for kubectl
    #[arg(long, env = "KUBECONFIG", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Output format
    #[arg(long, short, global = true, default_value = "text")]
    pub(crate) output: Output,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A shell whose completion is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
    /// Program `kubectl_complete-ferrite`, for the completion of kubectl
    Kubectl,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Aligned text, with colours on a terminal
    Text,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what an object waits for, down to the cause
    Why {
        /// Kind and name, such as machine/worker-1
        #[arg(value_name = "KIND/NAME")]
        object: String,
    },
    /// List everything that waits, oldest first
    Waiting(Waiting),
    /// Show who has a host, who holds its power, and its remediation attempts
    Host {
        /// Name of the `BareMetalHost`
        name: String,
    },
    /// Hold a host off with a reboot request, and wait until that is proven
    Hold(Hold),
    /// Remove the reboot request of a hold
    Release(Release),
    /// Give discovered hosts their BMC, from the address that each machine named
    Adopt(Adopt),
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Check the installed controllers, and exit with 1 if something is wrong
    Doctor,
    /// Show the entries of a `ClusterPool`, and why it is short
    Pool {
        /// Name of the `ClusterPool`
        name: String,
    },
}

/// Which of what waits is shown.
#[derive(Debug, Args)]
pub(crate) struct Waiting {
    /// Look in all namespaces
    #[arg(long, short = 'A')]
    pub(crate) all_namespaces: bool,
    /// List only what waits longer, such as 30m, and exit with 1 if there is any
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) older_than: Option<Duration>,
    /// List only what waits for this reason
    #[arg(long, value_name = "REASON")]
    pub(crate) reason: Option<String>,
    /// After the list, show each change until Ctrl-C
    #[arg(long, short, conflicts_with = "older_than")]
    pub(crate) watch: bool,
}

/// A hold to set.
#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// Name of the `BareMetalHost`
    pub(crate) host: String,
    /// Key of the annotation `reboot.metal3.io/<KEY>`
    #[arg(long)]
    pub(crate) key: String,
    /// Cut the power at once (default: ask the operating system first)
    #[arg(long)]
    pub(crate) hard: bool,
    /// Exit with 1 if the hold is not proven by then, such as 10m (default: wait until Ctrl-C)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
}

/// A hold to remove.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Name of the `BareMetalHost`
    pub(crate) host: String,
    /// Key of the annotation `reboot.metal3.io/<KEY>`
    #[arg(long)]
    pub(crate) key: String,
}

/// Hosts that get a BMC.
#[derive(Debug, Args)]
pub(crate) struct Adopt {
    /// Names of the `BareMetalHost` objects
    #[arg(required = true, value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// Secret with user name and password, in the namespace of the hosts
    #[arg(long, value_name = "SECRET")]
    pub(crate) credentials: String,
    /// Address with `{bmcAddress}`, such as `redfish+https://{bmcAddress}/redfish/v1/Systems/1`
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) address: String,
    /// Write it (default: show what would be written, and exit with 2)
    #[arg(long)]
    pub(crate) yes: bool,
    /// Show what would be written, and exit with 0
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| "expected a time such as 30m or 1h30m".to_owned())
}

//! What can be set, and the flaws that can be ordered.

use std::str::FromStr;

use clap::{Args, Parser};
use controller_kit::config::{Command, Mistakes, Settings as Common};

/// What the chart permits: `check` asks the API server whether it is so.
pub const RULES: &str = include_str!("../chart/files/rules.json");

/// Seats guests: a small controller that the bench is tried on
#[derive(Debug, Parser)]
#[command(name = "sample", version)]
pub struct Cli {
    /// What all controllers share.
    #[command(flatten)]
    pub common: Common,
    /// What is the sample's own.
    #[command(flatten)]
    pub own: Settings,
    /// What to do; without a word it runs.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The sample's own flags, as text: [`Settings::check`] reads them, so that all mistakes are told at once.
#[derive(Args, Clone, Debug)]
// The common ones are a group of the same name already.
#[group(id = "sample")]
#[command(next_help_heading = "Options of the sample")]
pub struct Settings {
    /// A flaw to have: `none`, `claim-without-precondition` or `forgets-after-crash`
    #[arg(long, env = "FERRITE_FLAW", global = true, default_value = "none")]
    pub flaw: String,
}

/// How to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A deliberate flaw, so that what should find it can be tried.
    pub flaw: Flaw,
}

/// Errors in design that a test of one process on its own does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// As it should be.
    #[default]
    None,
    /// A seat is claimed whatever became of it since it was read.
    ClaimWithoutPrecondition,
    /// Which seat a guest is to have is known to the process only, until all is done.
    ForgetsAfterCrash,
}

impl Default for Policy {
    fn default() -> Self {
        Self { flaw: Flaw::None }
    }
}

impl FromStr for Flaw {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "none" => Ok(Self::None),
            "claim-without-precondition" => Ok(Self::ClaimWithoutPrecondition),
            "forgets-after-crash" => Ok(Self::ForgetsAfterCrash),
            _ => Err(()),
        }
    }
}

impl Settings {
    /// Reads all values; what is wrong goes to `mistakes`.
    pub fn check(&self, mistakes: &mut Mistakes) -> Policy {
        let default = Policy::default();
        let flaws = "none, claim-without-precondition or forgets-after-crash";
        Policy { flaw: mistakes.parse("--flaw", &self.flaw, flaws, default.flaw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flaw: &str) -> (Policy, Vec<String>) {
        let mut mistakes = Mistakes::default();
        let settings = Settings { flaw: flaw.to_owned() };
        let policy = settings.check(&mut mistakes);
        (policy, mistakes.lines().to_vec())
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_policy() {
        let cli = Cli::parse_from(["sample"]);
        let mut mistakes = Mistakes::default();
        assert_eq!(cli.own.check(&mut mistakes), Policy::default());
        assert!(mistakes.lines().is_empty(), "{mistakes:?}");
    }

    #[test]
    fn a_wrong_value_is_reported_with_its_flag_and_its_variable() {
        let (_, told) = read("some");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("--flaw (FERRITE_FLAW): \"some\""), "{told:?}");
        let (policy, told) = read("forgets-after-crash");
        assert_eq!(policy.flaw, Flaw::ForgetsAfterCrash);
        assert!(told.is_empty(), "{told:?}");
    }
}

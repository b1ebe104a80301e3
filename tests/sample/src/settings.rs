//! What can be set, and the flaws that can be ordered.

use clap::{Args, Parser};
use controller_kit::config::{Command, Settings, defaults, reads};

/// What the chart permits: `check` asks the API server whether it is so.
pub const RULES: &str = include_str!("../chart/files/rules.json");

/// Seats guests: a small controller that the bench is tried on
#[derive(Debug, Parser)]
#[command(name = "sample", version)]
pub struct Cli {
    /// What all controllers share.
    #[command(flatten)]
    pub common: Settings,
    /// What is the sample's own.
    #[command(flatten)]
    pub own: Policy,
    /// What to do; without a word it runs.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How to decide: the sample's own flags.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
// The common ones are a group of another name.
#[group(id = "sample")]
#[command(next_help_heading = "Options of the sample")]
pub struct Policy {
    /// A flaw to have: `none`, `claim-without-precondition` or `forgets-after-crash`
    #[arg(long, env = "FERRITE_FLAW", default_value = "none", value_parser = reads(flaw))]
    pub flaw: Flaw,
}

impl Default for Policy {
    fn default() -> Self {
        defaults()
    }
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

fn flaw(word: &str) -> Result<Flaw, String> {
    match word {
        "none" => Ok(Flaw::None),
        "claim-without-precondition" => Ok(Flaw::ClaimWithoutPrecondition),
        "forgets-after-crash" => Ok(Flaw::ForgetsAfterCrash),
        _ => Err("none, claim-without-precondition or forgets-after-crash".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use controller_kit::config::parse_words;

    use super::*;

    fn read(words: &[&str]) -> (Policy, Vec<String>) {
        let words = std::iter::once(&"sample").chain(words);
        let (cli, mistakes) = parse_words::<Cli>(words).unwrap();
        (cli.own, mistakes.lines().to_vec())
    }

    #[test]
    fn without_a_word_it_has_no_flaw() {
        assert_eq!(read(&[]), (Policy { flaw: Flaw::None }, Vec::new()));
        assert_eq!(Policy::default().flaw, Flaw::None);
    }

    #[test]
    fn a_wrong_value_is_reported_with_its_flag_and_its_variable() {
        let (_, told) = read(&["--flaw=some"]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("--flaw (FERRITE_FLAW): \"some\""), "{told:?}");
        let (policy, told) = read(&["--flaw=forgets-after-crash"]);
        assert_eq!(policy.flaw, Flaw::ForgetsAfterCrash);
        assert!(told.is_empty(), "{told:?}");
    }
}

//! Words of a remediation. Ours are the design's, in lower case; CAPM3's begin with a capital.
//! Both are read in any case, and a word that we do not know is kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to do about an unhealthy machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(with = "String")]
pub enum StrategyType {
    /// Switch its host off and on.
    Reboot,
    /// A word that this version does not know; it is refused with a condition.
    Other(String),
}

impl From<String> for StrategyType {
    fn from(word: String) -> Self {
        if word.eq_ignore_ascii_case("reboot") { Self::Reboot } else { Self::Other(word) }
    }
}

impl From<StrategyType> for String {
    fn from(strategy: StrategyType) -> Self {
        match strategy {
            StrategyType::Reboot => "reboot".to_owned(),
            StrategyType::Other(word) => word,
        }
    }
}

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Phase {
    /// The host is being power-cycled.
    Running,
    /// The host is on again and the node has time to become healthy.
    Waiting,
    /// Tries are exhausted; the machine is to be replaced.
    DeletingMachine,
    /// Nothing more can be done.
    Failed,
    /// A word that this version does not know.
    Other(String),
}

impl Phase {
    /// The word in objects of our own group.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::DeletingMachine => "deleting machine",
            Self::Failed => "failed",
            Self::Other(word) => word,
        }
    }

    /// The word in objects of CAPM3's group, whose schema refuses ours.
    pub fn as_upstream_str(&self) -> &str {
        match self {
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::DeletingMachine => "Deleting machine",
            Self::Failed => "Failed",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for Phase {
    fn from(word: String) -> Self {
        [Self::Running, Self::Waiting, Self::DeletingMachine, Self::Failed]
            .into_iter()
            .find(|known| known.as_str().eq_ignore_ascii_case(&word))
            .unwrap_or(Self::Other(word))
    }
}

impl From<Phase> for String {
    fn from(phase: Phase) -> Self {
        phase.as_str().to_owned()
    }
}

/// How far a try is; finer than the phase.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Step {
    /// The host is being switched off.
    PowerOff,
    /// The host is off; what ran on the node is being moved away.
    Fence,
    /// The host may be on again, and is awaited.
    PowerOn,
    /// The host is on; the node is awaited.
    Recover,
    /// What was changed is being undone.
    Undo,
    /// There is nothing more to do.
    Done,
    /// A word that this version does not know.
    Other(String),
}

impl Step {
    /// The word in objects.
    pub fn as_str(&self) -> &str {
        match self {
            Self::PowerOff => "power off",
            Self::Fence => "fence",
            Self::PowerOn => "power on",
            Self::Recover => "recover",
            Self::Undo => "undo",
            Self::Done => "done",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for Step {
    fn from(word: String) -> Self {
        [Self::PowerOff, Self::Fence, Self::PowerOn, Self::Recover, Self::Undo, Self::Done]
            .into_iter()
            .find(|known| known.as_str() == word)
            .unwrap_or(Self::Other(word))
    }
}

impl From<Step> for String {
    fn from(step: Step) -> Self {
        step.as_str().to_owned()
    }
}

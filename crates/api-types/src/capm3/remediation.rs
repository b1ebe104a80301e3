//! `Metal3Remediation` of the infrastructure group, which CAPM3 defines. Ours is in
//! [`remediation`](crate::remediation).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::foreign::{ContractVersion, Foreign, ForeignKind, Unknown};

/// A request to remediate a machine, in CAPM3's group.
pub type UpstreamRemediation = Foreign<UpstreamRemediationKind>;

/// Names of CAPM3's kind `Metal3Remediation`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpstreamRemediationKind;

impl ForeignKind for UpstreamRemediationKind {
    type Spec = UpstreamRemediationSpec;
    type Status = UpstreamRemediationStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "infrastructure.cluster.x-k8s.io";
    const KIND: &'static str = "Metal3Remediation";
    const PLURAL: &'static str = "metal3remediations";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpstreamRemediationSpec {
    /// How to remediate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpstreamStrategy>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How to remediate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpstreamStrategy {
    /// What to do; read it as a [`StrategyType`](crate::remediation::StrategyType).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// How often to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_limit: Option<i32>,
    /// How long the node may take to become healthy; older contract, as a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// The same in seconds; newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How far it is. There are no conditions here: events and the Machine's conditions say the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpstreamRemediationStatus {
    /// What is being done; read it as a [`Phase`](crate::remediation::Phase).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Tries after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// When the last try began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_remediated: Option<Time>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl UpstreamStrategy {
    /// How long the node may take to become healthy, in either contract; the text or number that
    /// is no such time where it cannot be read.
    pub fn timeout(&self) -> Result<Option<Duration>, String> {
        if let Some(seconds) = self.timeout_seconds {
            let seconds = u64::try_from(seconds).map_err(|_| seconds.to_string())?;
            return Ok(Some(Duration::from_secs(seconds)));
        }
        let Some(text) = &self.timeout else {
            return Ok(None);
        };
        if !is_plain(text) {
            return Err(text.clone());
        }
        match text.parse::<kube::core::Duration>() {
            Ok(timeout) if !timeout.is_negative() => Ok(Some(timeout.into())),
            _ => Err(text.clone()),
        }
    }
}

/// Whether a text is short and made of numbers that are no longer than nine digits, with a sign only in front: the older
/// contract takes any text, and on others the parser ends the process.
fn is_plain(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let known = |it: char| it.is_ascii_digit() || it == '.' || it.is_alphabetic();
    let mut numbers = text.split(|it: char| !it.is_ascii_digit());
    text.len() <= 64 && text.chars().all(known) && numbers.all(|it| it.len() <= 9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_makes_no_sense_is_an_error_and_ends_nothing() {
        let timeout = |text: &str| {
            UpstreamStrategy { timeout: Some(text.to_owned()), ..UpstreamStrategy::default() }
                .timeout()
        };
        let long = "9".repeat(60) + "h";
        let many = "999999999h".repeat(8);
        for wrong in ["10000000000000000h", "5m-1s", "soon", "-5m", &long, &many, "1.h.s"] {
            assert_eq!(timeout(wrong), Err(wrong.to_owned()), "{wrong:?}");
        }
        assert_eq!(timeout("5m0s"), Ok(Some(Duration::from_secs(300))));
        assert_eq!(timeout("1h0.5s"), Ok(Some(Duration::from_millis(3_600_500))));
    }
}

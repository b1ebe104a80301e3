//! Which versions of Cluster API's kinds the API server serves.

use std::fmt;
use std::time::Duration;

use api_types::ContractVersion;
use controller_kit::Kit;
use controller_kit::served::{self, AGAIN, best, required};
use kube::Client;

const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const BEST_FIRST: &[ContractVersion] = &ContractVersion::BEST_FIRST;

/// What is wrong where CAPM3's kind is asked for and not there.
pub const NOTHING: &str = "--upstream-group has nothing to serve: install CAPM3's CRD metal3remediations with v1beta2 or v1beta1";

/// What the API server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Clusters and Machines.
    pub core: ContractVersion,
    /// `Metal3Machines`.
    pub infrastructure: ContractVersion,
    /// CAPM3's own `Metal3Remediations`, where they are to be served and are there. Our own do not wait for them.
    pub upstream: Option<ContractVersion>,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (core, machines) = (self.core.as_str(), self.infrastructure.as_str());
        write!(f, "{core} of Machines, {machines} of Metal3Machines")?;
        match self.upstream {
            Some(version) => write!(f, ", {} of CAPM3's Metal3Remediations", version.as_str()),
            None => Ok(()),
        }
    }
}

impl Served {
    /// How long it takes still until all kinds of requests that are asked for are seen, `age` after it was found. A CRD that was
    /// just being replaced then would have been found by the next look, which ends the process.
    pub fn complete_in(self, upstream: bool, age: Duration) -> Option<Duration> {
        let lacks = upstream && self.upstream.is_none();
        (2 * AGAIN).checked_sub(age).filter(|left| lacks && !left.is_zero())
    }
}

/// Asks until everything that is needed is served.
pub async fn wait(kit: &Kit, upstream: bool) -> Served {
    served::wait(kit, || look(&kit.client, upstream)).await
}

/// Ends when something else is served.
pub async fn changes(kit: &Kit, upstream: bool, before: Served) -> String {
    served::changes(before, || look(&kit.client, upstream)).await
}

/// What is served now; the error says what is missing.
pub async fn find(client: &Client, upstream: bool) -> Result<Served, String> {
    served::within_patience(look(client, upstream)).await
}

async fn look(client: &Client, upstream: bool) -> Result<Served, String> {
    let ask = |version| served::resources(client, version);
    let core = ["clusters", "machines"];
    let (core, _) = required(ask, CORE, BEST_FIRST, &core, "Cluster API").await?;
    let machines = ["metal3machines"];
    let (infrastructure, _) =
        required(ask, INFRASTRUCTURE, BEST_FIRST, &machines, "CAPM3's CRDs").await?;
    let upstream = if upstream {
        best(ask, INFRASTRUCTURE, BEST_FIRST, &["metal3remediations"]).await?
    } else {
        None
    };
    Ok(Served { core, infrastructure, upstream: upstream.map(|(version, _)| version) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_said_in_words() {
        let (core, infrastructure) = (ContractVersion::V1Beta2, ContractVersion::V1Beta1);
        let served = |upstream| Served { core, infrastructure, upstream }.to_string();
        assert_eq!(served(None), "v1beta2 of Machines, v1beta1 of Metal3Machines");
        assert!(served(Some(core)).ends_with(", v1beta2 of CAPM3's Metal3Remediations"));
    }

    #[test]
    fn a_kind_that_is_not_served_at_the_start_may_only_be_away_for_a_moment() {
        let core = ContractVersion::V1Beta2;
        let has_all = |upstream, served, age| {
            let served = Served { core, infrastructure: core, upstream: served };
            served.complete_in(upstream, Duration::from_secs(age)).is_none()
        };
        assert!(!has_all(true, None, 0) && !has_all(true, None, 90));
        assert!(has_all(true, None, 121), "it is not there");
        assert!(has_all(true, Some(core), 0) && has_all(false, None, 0));
    }
}

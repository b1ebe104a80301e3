//! Which versions of Cluster API's kinds the API server serves.

use std::fmt;
use std::time::Duration;

use api_types::ContractVersion;
use controller_kit::{Kit, api_error};
use kube::Client;

const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The newer shape is read where both are served.
const BEST_FIRST: [ContractVersion; 2] = [ContractVersion::V1Beta2, ContractVersion::V1Beta1];
const CONDITION: &str = "api";
/// All questions together.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether something else is served now.
const AGAIN: Duration = Duration::from_secs(60);

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
    /// Whether all kinds of requests that are asked for are seen, `age` after it was found. A CRD that was just being replaced
    /// then would have been found by the next look, which ends the process.
    pub fn has_all(self, upstream: bool, age: Duration) -> bool {
        !upstream || self.upstream.is_some() || age > 2 * AGAIN
    }
}

/// Asks until everything that is needed is served.
pub async fn wait(kit: &Kit, upstream: bool) -> Served {
    kit.readiness.require(CONDITION, "the API server was not asked yet what it serves");
    let mut pause = Duration::from_millis(250);
    loop {
        match find(&kit.client, upstream).await {
            Ok(served) => {
                kit.readiness.ready(CONDITION);
                return served;
            }
            Err(lacking) => kit.readiness.not_ready(CONDITION, &lacking),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

/// Ends when something else is served: watches are for one version, so the process has to start anew.
pub async fn changes(kit: &Kit, upstream: bool, served: Served) -> String {
    loop {
        tokio::time::sleep(AGAIN).await;
        // While the API server does not answer, or a CRD is just being replaced, nothing is known.
        if let Ok(now) = find(&kit.client, upstream).await
            && now != served
        {
            return format!(
                "The API server serves other versions now ({now} instead of {served}); the process ends to start on them"
            );
        }
    }
}

/// What is served now; the error says what is missing.
pub async fn find(client: &Client, upstream: bool) -> Result<Served, String> {
    let late =
        |_| format!("the API server does not say within {} s what it serves", PATIENCE.as_secs());
    tokio::time::timeout(PATIENCE, look(client, upstream)).await.map_err(late)?
}

async fn look(client: &Client, upstream: bool) -> Result<Served, String> {
    let core = required(client, CORE, &["clusters", "machines"], "Cluster API").await?;
    let machines = ["metal3machines"];
    let infrastructure = required(client, INFRASTRUCTURE, &machines, "CAPM3's CRDs").await?;
    let upstream =
        if upstream { best(client, INFRASTRUCTURE, &["metal3remediations"]).await? } else { None };
    Ok(Served { core, infrastructure, upstream })
}

async fn required(
    client: &Client,
    group: &str,
    resources: &[&str],
    what: &str,
) -> Result<ContractVersion, String> {
    best(client, group, resources).await?.ok_or_else(|| {
        format!(
            "no version of {group} has all of {}: install {what} with v1beta2 or v1beta1",
            resources.join(", ")
        )
    })
}

/// The best version that is served with all of these resources.
async fn best(
    client: &Client,
    group: &str,
    resources: &[&str],
) -> Result<Option<ContractVersion>, String> {
    for version in BEST_FIRST {
        if has(client, group, version, resources).await? {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

/// Whether a version of a group is served with all of these resources.
async fn has(
    client: &Client,
    group: &str,
    version: ContractVersion,
    resources: &[&str],
) -> Result<bool, String> {
    let version = format!("{group}/{}", version.as_str());
    match client.list_api_group_resources(&version).await {
        Ok(list) => {
            Ok(resources.iter().all(|wanted| list.resources.iter().any(|it| it.name == *wanted)))
        }
        // A version that is not served is answered in plain text, which has no reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(format!(
            "the API server does not say what it serves of {version}: {}",
            api_error::explain(&error)
        )),
    }
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
            served.has_all(upstream, Duration::from_secs(age))
        };
        assert!(!has_all(true, None, 0) && !has_all(true, None, 90));
        assert!(has_all(true, None, 121), "it is not there");
        assert!(has_all(true, Some(core), 0) && has_all(false, None, 0));
    }
}

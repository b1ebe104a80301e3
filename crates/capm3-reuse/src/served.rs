//! Which versions of Cluster API's kinds the API server serves.

use std::fmt;
use std::time::Duration;

use api_types::ContractVersion;
use controller_kit::{Kit, api_error};
use kube::Client;

const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
/// The newer shape is read where both are served.
const BEST_FIRST: [ContractVersion; 2] = [ContractVersion::V1Beta2, ContractVersion::V1Beta1];
const CONDITION: &str = "api";
/// All questions together.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether something else is served now.
const AGAIN: Duration = Duration::from_secs(60);

/// What a version of a group has, or why that is not known.
type Answer = Result<Vec<String>, String>;

/// What the API server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Clusters, Machines, their sets and deployments.
    pub core: ContractVersion,
    /// `Metal3Machines` and their templates.
    pub infrastructure: ContractVersion,
    /// Kubeadm control planes; not everybody has them.
    pub control_plane: Option<ContractVersion>,
    /// Whether there are `Metal3DataClaims` and `Metal3Datas` in the version of the `Metal3Machines`.
    pub data: bool,
}

impl fmt::Display for Served {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (core, infrastructure) = (self.core.as_str(), self.infrastructure.as_str());
        let data = if self.data { "with" } else { "without" };
        write!(into, "{CORE}/{core}, {INFRASTRUCTURE}/{infrastructure} {data} data, ")?;
        match self.control_plane {
            Some(version) => write!(into, "{CONTROL_PLANE}/{}", version.as_str()),
            None => write!(into, "no {CONTROL_PLANE}"),
        }
    }
}

/// Asks until everything that is needed is served.
pub async fn wait(kit: &Kit) -> Served {
    kit.readiness.require(CONDITION, "the API server was not asked yet what it serves");
    let mut pause = Duration::from_millis(250);
    loop {
        match find(&kit.client).await {
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
pub async fn changes(kit: &Kit, served: Served) -> String {
    loop {
        tokio::time::sleep(AGAIN).await;
        // While the API server does not answer, or a CRD is just being replaced, nothing is known.
        if let Ok(now) = find(&kit.client).await
            && now != served
        {
            return format!(
                "The API server serves other versions now ({now} instead of {served}); the process ends to start on them"
            );
        }
    }
}

/// What is served now; the error says what is missing.
pub async fn find(client: &Client) -> Result<Served, String> {
    let late =
        |_| format!("the API server does not say within {} s what it serves", PATIENCE.as_secs());
    let look = look(|version| resources(client, version));
    tokio::time::timeout(PATIENCE, look).await.map_err(late)?
}

/// By what each version of a group has. None is asked about twice.
async fn look<F: Future<Output = Answer>>(ask: impl Fn(String) -> F) -> Result<Served, String> {
    let core = ["clusters", "machines", "machinesets", "machinedeployments"];
    let (core, _) = required(&ask, CORE, &core, "Cluster API").await?;
    let machines = ["metal3machines", "metal3machinetemplates"];
    let (infrastructure, beside) =
        required(&ask, INFRASTRUCTURE, &machines, "CAPM3's CRDs").await?;
    let control_plane = best(&ask, CONTROL_PLANE, &["kubeadmcontrolplanes"]).await?;
    Ok(Served {
        core,
        infrastructure,
        control_plane: control_plane.map(|(version, _)| version),
        data: has(&beside, &["metal3dataclaims", "metal3datas"]),
    })
}

async fn required<F: Future<Output = Answer>>(
    ask: impl Fn(String) -> F,
    group: &str,
    resources: &[&str],
    what: &str,
) -> Result<(ContractVersion, Vec<String>), String> {
    best(ask, group, resources).await?.ok_or_else(|| {
        format!(
            "no version of {group} has all of {}: install {what} with v1beta2 or v1beta1",
            resources.join(", ")
        )
    })
}

/// The best version that is served with all of these resources, and all that it has.
async fn best<F: Future<Output = Answer>>(
    ask: impl Fn(String) -> F,
    group: &str,
    resources: &[&str],
) -> Result<Option<(ContractVersion, Vec<String>)>, String> {
    for version in BEST_FIRST {
        let all = ask(format!("{group}/{}", version.as_str())).await?;
        if has(&all, resources) {
            return Ok(Some((version, all)));
        }
    }
    Ok(None)
}

fn has(all: &[String], wanted: &[&str]) -> bool {
    wanted.iter().all(|wanted| all.iter().any(|it| it == wanted))
}

/// The resources that a version of a group is served with; none if it is not.
async fn resources(client: &Client, version: String) -> Answer {
    match client.list_api_group_resources(&version).await {
        Ok(list) => Ok(list.resources.into_iter().map(|it| it.name).collect()),
        // A version that is not served is answered in plain text, which has no reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(format!(
            "the API server does not say what it serves of {version}: {}",
            api_error::explain(&error)
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_is_served_is_said_in_words() {
        let (core, infrastructure) = (ContractVersion::V1Beta2, ContractVersion::V1Beta1);
        let served = |control_plane, data| Served { core, infrastructure, control_plane, data };
        for (served, wanted) in [
            (
                served(Some(core), true),
                "cluster.x-k8s.io/v1beta2, infrastructure.cluster.x-k8s.io/v1beta1 with data, \
                 controlplane.cluster.x-k8s.io/v1beta2",
            ),
            (
                served(None, false),
                "cluster.x-k8s.io/v1beta2, infrastructure.cluster.x-k8s.io/v1beta1 without data, \
                 no controlplane.cluster.x-k8s.io",
            ),
        ] {
            assert_eq!(served.to_string(), wanted);
        }
    }

    #[tokio::test]
    async fn each_version_is_asked_about_once_and_the_best_is_taken() {
        let core = "clusters machines machinesets machinedeployments";
        let machines = "metal3machines metal3machinetemplates";
        let data = "metal3machines metal3machinetemplates metal3dataclaims metal3datas";
        let (v1, v2) = (ContractVersion::V1Beta1, ContractVersion::V1Beta2);
        for (infrastructure, planes, wanted, asked) in [
            ([data, machines], ["kubeadmcontrolplanes", ""], (v2, Some(v2), true), 3),
            ([machines, data], ["", ""], (v2, None, false), 4),
            (["metal3dataclaims", data], ["", "kubeadmcontrolplanes"], (v1, Some(v1), true), 5),
        ] {
            let all = RefCell::new(Vec::new());
            let served = look(|version: String| {
                let list = match version.split_once('/').unwrap() {
                    (CORE, "v1beta2") => core,
                    (INFRASTRUCTURE, "v1beta2") => infrastructure[0],
                    (INFRASTRUCTURE, _) => infrastructure[1],
                    (CONTROL_PLANE, "v1beta2") => planes[0],
                    (CONTROL_PLANE, _) => planes[1],
                    _ => "",
                };
                all.borrow_mut().push(version);
                std::future::ready(Ok(list.split_whitespace().map(str::to_owned).collect()))
            });
            let served = served.await.unwrap();
            assert_eq!((served.infrastructure, served.control_plane, served.data), wanted);
            assert_eq!(all.borrow().len(), asked, "{all:?}");
        }
        let nothing = look(|_| std::future::ready(Ok(Vec::new()))).await;
        assert!(
            nothing.unwrap_err().contains("no version of cluster.x-k8s.io has all of clusters")
        );
    }
}

//! The reads behind one answer: few, and each by name, or a page by label. What a chain does not lead to is not read.

use api_types::ContractVersion;
use api_types::capi::Machine;
use api_types::capm3::{Metal3Machine, UpstreamRemediation, consumer_machine};
use api_types::condition::Condition;
use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool,
};
use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery, CachedHost};
use api_types::names::capi::CONDITION_HEALTH_CHECK_SUCCEEDED;
use api_types::names::capm3::NODE_REUSE;
use api_types::names::{capi, ferrite, metal3};
use api_types::reference::ObjectRef;
use controller_kit::engine::Reason as _;
use kube::ResourceExt as _;
use kube::api::ListParams;
use remediation::request::Request as Standing;

use crate::ask::{Asking, Failure};
use crate::explain::{kept, seeks_host, wanted_label};
use crate::links::{pending_label, plain, reservation_label};
use crate::model::{Kind, Look, OwnRequest, Request, Seen, Sketch};

const CONTRACTS: &[ContractVersion] = &ContractVersion::BEST_FIRST;
/// A host has tens of kilobytes, a claim and the metadata of a host two.
const PAGES: Pages = Pages { hosts: 500, sketches: 5_000, claims: 2_000 };

/// How many objects one request reads.
#[derive(Clone, Copy)]
struct Pages {
    hosts: u32,
    sketches: u32,
    claims: u32,
}

/// Reads all that the chain of an object is made of.
///
/// # Errors
/// When the object is not there or may not be read, or the API server does not answer.
pub(crate) async fn observe(
    asking: &Asking,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> Result<Seen, Failure> {
    Box::pin(read(asking, kind, (namespace, name), PAGES)).await
}

async fn read(
    asking: &Asking,
    kind: Kind,
    (namespace, name): (&str, &str),
    pages: Pages,
) -> Result<Seen, Failure> {
    let mut reading = Reading { asking, namespace, pages, seen: Seen::default() };
    match kind {
        Kind::Machine => reading.of_machine(name).await?,
        Kind::Metal3Machine => reading.of_metal(name).await?,
        Kind::Metal3Remediation => reading.of_request(name).await?,
        Kind::BareMetalHost => reading.of_host(name).await?,
        Kind::ClusterPool => reading.of_pool(name).await?,
        Kind::ClusterClaim => reading.of_claim(name).await?,
        Kind::Customization => reading.of_customization(name).await?,
        Kind::Discovery => {
            let found = asking.get::<BareMetalHostDiscovery>(&[()], namespace, name).await?;
            reading.seen.discovery =
                asking.must_be_here::<BareMetalHostDiscovery, _>(&[()], found).await?;
        }
    }
    Ok(reading.seen)
}

struct Reading<'a> {
    asking: &'a Asking,
    namespace: &'a str,
    pages: Pages,
    seen: Seen,
}

impl Reading<'_> {
    async fn of_machine(&mut self, name: &str) -> Result<(), Failure> {
        let found = self.machine(name).await?;
        self.seen.machine = self.asking.must_be_here::<Machine, _>(CONTRACTS, found).await?;
        let Some(machine) = self.seen.machine.here() else { return Ok(()) };
        let (metal, is_unhealthy) = (metal_of(machine), is_unhealthy(machine));
        if let Some(metal) = metal {
            self.seen.metal = self.metal(&metal).await?;
        }
        if is_unhealthy {
            // A Machine without a request waits for its health check to make one.
            let request = self.request(name).await?;
            self.seen.request = if let Look::Gone(_) = request { Look::Unasked } else { request };
        }
        self.behind_metal().await
    }

    async fn of_metal(&mut self, name: &str) -> Result<(), Failure> {
        let found = self.metal(name).await?;
        self.seen.metal = self.asking.must_be_here::<Metal3Machine, _>(CONTRACTS, found).await?;
        let owner = self.seen.metal.here().and_then(owner_of);
        if let Some(owner) = owner {
            self.seen.machine = self.machine(&owner).await?;
        }
        self.behind_metal().await
    }

    async fn of_request(&mut self, name: &str) -> Result<(), Failure> {
        // A request has the name of its Machine.
        self.seen.machine = self.machine(name).await?;
        if let Some(metal) = self.seen.machine.here().and_then(metal_of) {
            self.seen.metal = self.metal(&metal).await?;
        }
        let found = self.request(name).await?;
        self.seen.request = self.asking.must_be_here::<OwnRequest, _>(&[()], found).await?;
        self.behind_metal().await
    }

    async fn of_host(&mut self, name: &str) -> Result<(), Failure> {
        let found = self.host(name).await?;
        self.seen.host = self.asking.must_be_here::<BareMetalHost, _>(&[()], found).await?;
        let Some(host) = self.seen.host.here() else { return Ok(()) };
        let metal = consumer_machine(host).map(str::to_owned);
        let mut keys = host.reboot_requests();
        let is_remediated = keys.any(|(key, _)| key.starts_with(metal3::REBOOT_FOR_REMEDIATION));
        if let Some(metal) = metal {
            self.seen.metal = self.metal(&metal).await?;
        }
        let machine = self.seen.metal.here().and_then(owner_of);
        if let Some(machine) = machine.filter(|_| is_remediated) {
            self.seen.request = self.request(&machine).await?;
        }
        Ok(())
    }

    async fn of_pool(&mut self, name: &str) -> Result<(), Failure> {
        let found = self.asking.get::<ClusterPool>(&[()], self.namespace, name).await?;
        self.seen.pool = self.asking.must_be_here::<ClusterPool, _>(&[()], found).await?;
        let is_of_pool = |it: &ClusterClaim| it.spec.cluster_pool_name == name;
        let (page, namespace) = (self.pages.claims, self.namespace);
        self.seen.claims = self.asking.list(&(), namespace, page, is_of_pool).await?;
        Ok(())
    }

    async fn of_claim(&mut self, name: &str) -> Result<(), Failure> {
        let found = self.asking.get::<ClusterClaim>(&[()], self.namespace, name).await?;
        self.seen.claim = self.asking.must_be_here::<ClusterClaim, _>(&[()], found).await?;
        let Some(claim) = self.seen.claim.here() else { return Ok(()) };
        // The namespace of a cluster has its name.
        let cluster = claim.spec.namespace.clone().filter(|it| !it.is_empty());
        let pool = claim.spec.cluster_pool_name.clone();
        if let Some(cluster) = cluster {
            self.seen.cluster = self.cluster(&cluster).await?;
        } else {
            self.seen.pool = self.asking.get(&[()], self.namespace, &pool).await?;
        }
        Ok(())
    }

    async fn of_customization(&mut self, name: &str) -> Result<(), Failure> {
        type Entry = ClusterDeploymentCustomization;
        let found = self.asking.get::<Entry>(&[()], self.namespace, name).await?;
        self.seen.customization = self.asking.must_be_here::<Entry, _>(&[()], found).await?;
        let Some(entry) = self.seen.customization.here() else { return Ok(()) };
        let pool = entry.status.as_ref().and_then(|it| it.cluster_pool_ref.as_ref()?.name.clone());
        let cluster = entry.leased_by().map(str::to_owned);
        self.seen.pool = match pool.filter(|it| !it.is_empty()) {
            Some(pool) => self.asking.get(&[()], self.namespace, &pool).await?,
            None => self.pool_of(name).await?,
        };
        if let Some(cluster) = cluster {
            self.seen.cluster = self.cluster(&cluster).await?;
        }
        Ok(())
    }

    /// A pool that lists an entry which no cluster uses.
    async fn pool_of(&self, entry: &str) -> Result<Look<ClusterPool>, Failure> {
        let lists_it = |pool: &ClusterPool| {
            pool.spec.inventory.iter().any(|it| it.entries().any(|it| it.name == entry))
        };
        let pools = self.asking.list(&(), self.namespace, self.pages.hosts, lists_it).await?;
        Ok(match pools {
            Look::Here(pools) => pools.into_iter().next().map_or(Look::Unasked, Look::Here),
            absent => absent.map(|_| ClusterPool::default()),
        })
    }

    /// The host of a machine, or those that it may get.
    async fn behind_metal(&mut self) -> Result<(), Failure> {
        let Some(metal) = self.seen.metal.here() else { return Ok(()) };
        if let Some(host) = metal.host_name() {
            self.seen.host = self.host(host).await?;
            return Ok(());
        }
        if !seeks_host(metal) {
            return Ok(());
        }
        let label = wanted_label(self.seen.machine.here(), metal);
        let page = ListParams::default().limit(self.pages.hosts);
        // Reserved hosts have the label of their owner. Only where there is none are others read.
        if let Some(label) = &label {
            let reserved = page.clone().labels(&format!("{NODE_REUSE}={label}"));
            let first = self.asking.first::<CachedHost>(&(), self.namespace, &reserved).await?;
            self.seen.hosts = first.map(|it| it.items);
        }
        let mut rest = None;
        if self.seen.hosts.here().is_none_or(Vec::is_empty) {
            let mut first = self.asking.first::<CachedHost>(&(), self.namespace, &page).await?;
            if let Look::Here(list) = &mut first {
                let beyond = list.metadata.remaining_item_count.unwrap_or_default();
                self.seen.beyond = usize::try_from(beyond).unwrap_or_default();
                rest = list.metadata.continue_.take().filter(|it| !it.is_empty());
            }
            self.seen.hosts = first.map(|it| it.items);
        }
        let hosts = self.seen.hosts.here().map(Vec::as_slice).unwrap_or_default();
        let first = kept(hosts, label.as_deref()).first().map(|it| it.name_any());
        if let Some(first) = first {
            self.seen.host = self.host(&first).await?;
        } else if let (Some(rest), Some(label)) = (rest, &label) {
            self.search(rest, label).await?;
        }
        Ok(())
    }

    /// Searches the hosts beyond the first page for one that is to be reserved under a label. Of these only the metadata is
    /// read: a verdict that is still to come stands there.
    async fn search(&mut self, mut rest: String, label: &str) -> Result<(), Failure> {
        let mut params = ListParams::default().limit(self.pages.sketches);
        loop {
            params = params.continue_token(&rest);
            let page = self.asking.sketches::<BareMetalHost>(&(), self.namespace, &params).await?;
            let Some(page) = page else { return Ok(()) };
            let is_pending = |it: &&Sketch| pending_label(it).as_deref() == Some(label);
            for sketch in page.items.iter().filter(is_pending) {
                let found = self.host(&sketch.metadata.name).await?;
                // Whose machine has it by now stands in its spec.
                let is_kept = |it: &&BareMetalHost| reservation_label(it).as_deref() == Some(label);
                if let Some(host) = found.here().filter(is_kept) {
                    self.seen.hosts = Look::Here(vec![host.clone().into()]);
                    self.seen.host = found;
                    return Ok(());
                }
            }
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(next) => rest = next,
                None => break,
            }
        }
        self.seen.is_searched = true;
        Ok(())
    }

    async fn machine(&self, name: &str) -> Result<Look<Machine>, Failure> {
        self.asking.get(CONTRACTS, self.namespace, name).await
    }

    async fn metal(&self, name: &str) -> Result<Look<Metal3Machine>, Failure> {
        // Where Cluster API has the older contract alone, CAPM3 hardly has the newer one.
        let mut contracts = ContractVersion::BEST_FIRST;
        if self.seen.machine.here().is_some_and(|it| it.contract() == ContractVersion::V1Beta1) {
            contracts.reverse();
        }
        self.asking.get(&contracts, self.namespace, name).await
    }

    async fn host(&self, name: &str) -> Result<Look<BareMetalHost>, Failure> {
        self.asking.get(&[()], self.namespace, name).await
    }

    async fn cluster(&self, name: &str) -> Result<Look<ClusterDeployment>, Failure> {
        self.asking.get(&[()], name, name).await
    }

    /// A request of our group, else of CAPM3's.
    async fn request(&self, name: &str) -> Result<Look<Request>, Failure> {
        let ours = self.asking.get::<OwnRequest>(&[()], self.namespace, name).await?;
        if !matches!(ours, Look::Gone(_) | Look::Unserved(_)) {
            return Ok(ours.map(of_ours));
        }
        let contracts = contracts_of(&self.seen.metal);
        let theirs =
            self.asking.get::<UpstreamRemediation>(&contracts, self.namespace, name).await?;
        match theirs {
            Look::Unserved(_) => Ok(ours.map(of_ours)),
            theirs => Ok(theirs.map(of_upstream)),
        }
    }
}

/// The contracts in which CAPM3's kinds are asked for: that of a machine of its, which saves a request for each other one.
fn contracts_of(metal: &Look<Metal3Machine>) -> Vec<ContractVersion> {
    metal.here().map_or_else(|| CONTRACTS.to_vec(), |it| vec![it.contract()])
}

/// Name of the `Metal3Machine` of a Machine.
fn metal_of(machine: &Machine) -> Option<String> {
    let ObjectRef { kind, name, .. } = &machine.spec.infrastructure_ref;
    let is_metal = kind.as_deref() == Some(Kind::Metal3Machine.as_str());
    name.clone().filter(|it| is_metal && !it.is_empty())
}

/// Name of the Machine that owns a `Metal3Machine`.
fn owner_of(metal: &Metal3Machine) -> Option<String> {
    let mut owners = metal.metadata.owner_references.iter().flatten();
    let owner = owners.find(|it| it.kind == Kind::Machine.as_str())?;
    Some(owner.name.clone())
}

/// Whether a Machine may have a request.
fn is_unhealthy(machine: &Machine) -> bool {
    let conditions = [
        CONDITION_HEALTH_CHECK_SUCCEEDED,
        capi::CONDITION_EXTERNALLY_REMEDIATED,
        capi::CONDITION_OWNER_REMEDIATED,
    ];
    let is_false = |name: &str| {
        let both = [machine.condition(name), machine.deprecated_condition(name)];
        both.into_iter().flatten().any(Condition::is_false)
    };
    conditions.into_iter().any(is_false)
}

pub(crate) fn of_ours(request: OwnRequest) -> Request {
    let status = request.status.unwrap_or_default();
    Request {
        metadata: request.metadata,
        conditions: status.conditions.iter().map(plain).collect(),
        phase: None,
        since: status.since.map(|it| it.0),
    }
}

/// CAPM3's kind has no conditions: an annotation of ours has what they would be. CAPM3 itself writes a phase.
pub(crate) fn of_upstream(request: UpstreamRemediation) -> Request {
    let standing = Standing::of_upstream(&request).standing;
    let condition = standing.said.map(|said| Condition {
        r#type: ferrite::CONDITION_SUCCEEDED.to_owned(),
        status: match said.succeeded {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
        .to_owned(),
        reason: Some(said.reason.as_str().to_owned()),
        message: Some(said.message),
        ..Condition::default()
    });
    Request {
        metadata: request.metadata,
        conditions: condition.into_iter().collect(),
        phase: standing.phase,
        since: standing.since.or(standing.last),
    }
}

#[cfg(test)]
mod tests;

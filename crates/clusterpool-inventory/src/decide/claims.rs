//! Which claim gets which cluster.

use std::collections::HashMap;

use controller_kit::engine::Reason as _;

use crate::decision::Step;
use crate::plan::Plan;
use crate::reason::Reason;
use crate::seen::{Claim, Cluster};

/// The reason of a condition that Hive put there and knows nothing about yet.
const UNTOLD: &str = "Initialized";

pub(super) fn serve_claims(plan: &mut Plan<'_>) {
    let seen = plan.seen;
    if seen.pool.deleting || seen.claims.is_empty() {
        return;
    }
    let mut ready: Vec<&Cluster> = seen
        .clusters
        .iter()
        .filter(|it| it.is_ready() && !plan.gone.contains(it.name.as_str()))
        .filter(|it| plan.is_still_listed(it))
        .collect();
    ready.sort_by_key(|it| std::cmp::Reverse((it.created, it.name.as_str())));
    let mut claims: Vec<_> = seen.claims.iter().filter(|it| !it.deleting).collect();
    claims.sort_by_key(|it| (it.created, it.name.as_str()));
    // What was begun is ended first, so that nobody else gets the cluster.
    for claim in &claims {
        if let Some(name) = claim.cluster.as_deref() {
            plan.end_assignment(claim, name);
        }
    }
    let by_name: HashMap<&str, &Claim> = claims.iter().map(|it| (it.name.as_str(), *it)).collect();
    // A marked one goes for the claim that had this name before, and an older one may still be used by whoever had that.
    let mut of_claims: HashMap<&str, &Cluster> = HashMap::new();
    for cluster in seen.clusters.iter().filter(|it| !it.deleting && !it.marked) {
        let claim = cluster.claim.as_deref().and_then(|it| by_name.get(it));
        if let Some(claim) = claim.filter(|it| cluster.was_given_to(it)) {
            of_claims.entry(&claim.name).or_insert(cluster);
        }
    }
    for claim in claims {
        if let Some(name) = claim.cluster.as_deref() {
            plan.tell_assigned(claim, name);
            continue;
        }
        let assign = |cluster: &Cluster| Step::Assign {
            claim: claim.name.clone(),
            cluster: cluster.name.clone(),
        };
        if let Some(cluster) = of_claims.get(claim.name.as_str()) {
            plan.served += 1;
            plan.push(Reason::Claimed, [assign(cluster)]);
            continue;
        }
        let given = &plan.given;
        while ready.last().is_some_and(|it| given.contains(it.name.as_str())) {
            ready.pop();
        }
        if let Some(cluster) = ready.pop() {
            plan.served += 1;
            plan.given.insert(&cluster.name);
            let steps = claim_steps(cluster, claim);
            plan.push(Reason::Claimed, std::iter::once(assign(cluster)).chain(steps));
        } else if claim.pending.as_deref() != Some(Reason::NoClusters.as_str()) {
            plan.tell(claim, Reason::NoClusters);
        }
    }
}

impl Plan<'_> {
    /// A claim that names a cluster: that is given to it, unless it cannot have it.
    fn end_assignment(&mut self, claim: &Claim, name: &str) {
        match self.uses.cluster(name) {
            Some(it) if it.claim.as_ref() == Some(&claim.name) => {}
            Some(it)
                if it.is_unclaimed()
                    && !self.gone.contains(name)
                    && self.given.insert(&it.name) =>
            {
                self.push(Reason::Claimed, claim_steps(it, claim));
            }
            Some(_) => {
                self.push(Reason::AssignmentConflict, [Step::Unassign(claim.name.clone())]);
            }
            // It was the claim's and is gone: Hive says so on the claim, and its user has to know.
            None => {}
        }
    }

    /// A claim that has its cluster, and still says that it waits for one.
    fn tell_assigned(&mut self, claim: &Claim, name: &str) {
        let has = |it: &Cluster| it.claim.as_ref() == Some(&claim.name);
        let waits = [Reason::NoClusters, Reason::NoPool, Reason::PoolDeleted];
        let is_untold = claim
            .pending
            .as_deref()
            .is_none_or(|told| told == UNTOLD || waits.iter().any(|it| it.as_str() == told));
        if self.uses.cluster(name).is_some_and(has) && is_untold {
            self.tell(claim, Reason::ClusterAssigned);
        }
    }

    fn tell(&mut self, claim: &Claim, why: Reason) {
        self.push(why, [Step::Tell { claim: claim.name.clone(), pending: why }]);
    }

    /// Claims that get nothing of this pool. No end of a pool waits for that.
    pub(super) fn tell_waiting(&mut self, why: Reason) {
        let waiting = self.seen.claims.iter().filter(|it| it.waits());
        for claim in waiting.filter(|it| it.pending.as_deref() != Some(why.as_str())) {
            self.tell(claim, why);
        }
    }
}

fn claim_steps(cluster: &Cluster, claim: &Claim) -> [Step; 2] {
    let (claim, cluster) = (claim.name.clone(), cluster.name.clone());
    let given = Step::Claim { cluster: cluster.clone(), claim: claim.clone() };
    [given, Step::Confirm { cluster, claim }]
}

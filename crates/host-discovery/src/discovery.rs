//! The status of a discovery, and its approvals. The rules are pure; what they go by was decided about all machines.

use api_types::metal3::BareMetalHostDiscoveryStatus;
use controller_kit::engine::{Decision, Now, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::context::Context;
use crate::model::{DiscoveryView, Reach, StatusPlan, Write};
use crate::reason::Pass;
use crate::status;

/// A discovery, and what its status is to say; nothing while nobody has decided that yet.
pub fn observe(context: &Context, key: &ObjectKey) -> Option<DiscoveryView> {
    let object = context.discoveries.get(key);
    let object = object.filter(|it| context.is_ours(&it.metadata))?;
    let status_plan = context.status_plans.with(|all| all.get(key).cloned())?;
    Some(DiscoveryView { object, status_plan })
}

/// What to write.
pub fn decide(view: &DiscoveryView, now: Now) -> Decision<Write, Pass> {
    let DiscoveryView { object, status_plan } = view;
    let (now_is, decided) = (&object.metadata, &status_plan.resource);
    // It was decided upon another spec: this one is decided upon in a moment, and then comes another look.
    if (&now_is.uid, now_is.generation) != (&decided.uid, decided.generation) {
        return Decision::rest(Pass::DiscoveryChanged);
    }
    if let Some(approvals) = &status_plan.approvals
        && now_is.resource_version == decided.version
    {
        return Decision::write(Pass::ApprovalsSettled, Write::Approvals(approvals.clone()));
    }
    let before = object.status.clone().unwrap_or_default();
    let after = status(status_plan, &before, now);
    if status::same(&before, &after) {
        return Decision::rest(Pass::DiscoveryTold);
    }
    let events = status::notes(&before, &after, &status_plan.report);
    Decision { events, ..Decision::write(Pass::DiscoveryTold, Write::Status(Box::new(after))) }
}

/// What the status is to say.
fn status(
    status_plan: &StatusPlan,
    before: &BareMetalHostDiscoveryStatus,
    now: Now,
) -> BareMetalHostDiscoveryStatus {
    let StatusPlan { resource, reach, report, asked, .. } = status_plan;
    // Before all machines were read, fewer are no news.
    let mut status = match report.strays {
        Some(_) => report.status(before, now.wall),
        None => before.clone(),
    };
    status::conditions(resource, reach, report, &mut status, now.wall);
    if *reach == Reach::Answers && status_plan.ironic_version.is_some() {
        status.ironic_version.clone_from(&status_plan.ironic_version);
    }
    status.last_poll_time = asked.poll.map(Time).or(status.last_poll_time);
    status.last_full_sync_time = asked.full.map(Time).or(status.last_full_sync_time);
    status
}

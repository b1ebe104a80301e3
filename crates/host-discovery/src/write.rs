//! All writes: new hosts, approvals that are settled, and the status; in Ironic a node's mark and its driver.

use std::collections::BTreeMap;
use std::time::Duration;

use api_types::metal3::{
    BareMetalHost, BareMetalHostDiscovery, BareMetalHostDiscoveryStatus, HardwareDetail,
};
use api_types::names::ferrite;
use controller_kit::api_error::unless_gone;
use controller_kit::engine::{Error, Event, ObjectKey, Outcome, Reason as _, asked, sent};
use ironic::PatchOp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Client, Resource as _};
use serde_json::{Value, json};

use crate::adopt;
use crate::context::Context;
use crate::driver::NodeDriver;
use crate::hardware::HardwareDetails;
use crate::host::new_host;
use crate::index::Change;
use crate::inventory::printable;
use crate::model::{Adoption, Approvals, Made, Order, Unmarked, Verdict};
use crate::node_id::NodeId;
use crate::nodes::{ENROLL, HAD_HOST};
use crate::observe;
use crate::reason::Notice;
use crate::refusals::{Cause, LONGEST_TEXT};
use crate::sighting::Sighting;
use crate::status;
use crate::table::Table;
use crate::text;
use crate::waits::MAKING_MAX;

/// Makes a host. It is in the index before this returns, so that the next pass knows it.
pub async fn create(context: &Context, order: &Order) -> Made {
    let Order { resource, machine, verdict, name, .. } = order;
    let Some(facts) = machine.inventory.facts() else { return Made::Stale };
    let details = context.table.with(|table| table.nodes.details(machine.node).cloned());
    let Some(details) = details else { return Made::Stale };
    let host = new_host(resource, name, machine.node, facts, &details);
    let client = &context.kit.client;
    // What the watch told since the decision counts, too.
    let stands_in_the_way = |table: &mut Table| {
        let shows = |node| table.nodes.has(node);
        context.index.with(|index| {
            let known = index.known(machine.node, None, &machine.ports, Some(facts), shows);
            !known.is_empty() || (host.spec.bmc.is_some() && !index.claiming(facts).is_empty())
        })
    };
    if let Some(bmc) = &host.spec.bmc {
        if context.table.with(stands_in_the_way) || !context.kit.may_act() {
            return Made::Stale;
        }
        let fit = fit_driver(context, machine.node, &bmc.address);
        match observe::within(MAKING_MAX, "the driver of a node", fit).await {
            Ok(None) => {}
            Ok(Some(made)) => return made,
            Err(error) => {
                context.metrics.ironic_failed(&error);
                let text = text::no_bmc_driver(machine.node, &error.to_string());
                return Made::Failed(Cause::Unsaid, printable(&text, LONGEST_TEXT));
            }
        }
    }
    // What is there already may have any shape, as for the watch.
    let sightings: &Api<Sighting> = &Api::namespaced(client.clone(), &resource.namespace);
    let read_host =
        |name| asked("read a host", async move { unless_gone(sightings.get(name).await) });
    if let Some(other) = other_name(verdict, name) {
        // A process that sees hosts late may not know that the machine got its other name meanwhile.
        match read_host(other).await {
            Ok(Some(host)) if context.index.with(|index| index.answer(&host)) != Change::None => {
                return Made::Exists;
            }
            Ok(_) => {}
            // Nothing was made by a question.
            Err(error) => return failed(context, order, other, &error, false),
        }
    }
    if context.table.with(stands_in_the_way) {
        return Made::Exists;
    }
    if !context.kit.may_act() {
        return Made::Stale;
    }
    match sent("create a host", post(client, &resource.namespace, &host)).await {
        Ok(made) => {
            let key = ObjectKey::new(&resource.namespace, name);
            context.index.with(|index| index.answer(&made));
            context.metrics.created.inc();
            tracing::info!(
                object.namespace = resource.namespace,
                object.name = name,
                node.id = %machine.node,
                discovery = resource.name,
                mac = facts.boot_mac.map(tracing::field::display),
                "Made a host"
            );
            let told = (made.object_ref(&()), event_of(order, &details));
            Made::Created(key, Box::new(told))
        }
        // The answer to a name that is taken, as to a lost race.
        Err(Error::Superseded) => match read_host(name).await {
            Ok(Some(host)) => {
                context.index.with(|index| index.answer(&host));
                Made::Exists
            }
            // Gone again, or it was about something else, such as a quota that others change.
            Ok(None) => failed(context, order, name, &Error::Superseded, false),
            Err(error) => failed(context, order, name, &error, false),
        },
        Err(error) => failed(context, order, name, &error, true),
    }
}

/// Gives the node of a new host the driver and interfaces of its BMC before the host is there, or says why there is to be no host.
/// The operator changes neither of a node that Ironic has, and goes on at once: with the driver of discovery it would only
/// simulate power and cleaning.
async fn fit_driver(
    context: &Context,
    node: NodeId,
    address: &str,
) -> Result<Option<Made>, ironic::Error> {
    let adoption = Adoption { node, address: address.to_owned() };
    let fitting = adopt::read(context, adoption, true).await?;
    // Something runs on it, or it is gone: it is another machine than was decided about.
    let Some(fitting) = fitting.filter(|it| it.state == ENROLL) else {
        return Ok(Some(Made::Stale));
    };
    if fitting.fits() {
        return Ok(None);
    }
    let Some(chosen) = fitting.chosen() else {
        let text = text::no_driver(node, &fitting.driver, fitting.wanted());
        return Ok(Some(Made::Failed(Cause::Unsaid, text)));
    };
    set_driver(context, node, chosen, &fitting.driver).await.map(|()| None)
}

/// Posts a host. Of the answer as much is read as of any host, which is far less than was sent.
async fn post(client: &Client, namespace: &str, host: &BareMetalHost) -> kube::Result<Sighting> {
    let body = serde_json::to_vec(host).map_err(kube::Error::SerdeError)?;
    let hosts = Request::new(BareMetalHost::url_path(&(), Some(namespace)));
    let request = hosts.create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
    client.request(request).await
}

/// What is done about an error, which is about this name. `posted`: whether the host may be there in spite of it.
fn failed(context: &Context, order: &Order, name: &str, error: &Error, posted: bool) -> Made {
    let namespace = &order.resource.namespace;
    let (cause, why) = judged(error, &ObjectKey::new(namespace, &order.name), posted);
    context.metrics.refused.inc();
    Made::Failed(cause, printable(&format!("{namespace}/{name}: {why}"), LONGEST_TEXT))
}

/// What an error says of the host, for the next attempt and for a person.
fn judged(error: &Error, host: &ObjectKey, posted: bool) -> (Cause, String) {
    let unclear = if posted { Cause::Unknown } else { Cause::Failed(None) };
    match error {
        Error::Api { source, .. } => match &**source {
            kube::Error::Api(status) => {
                let after = status.details.as_ref().map(|it| it.retry_after_seconds);
                let after = after.filter(|it| *it > 0).map(|it| Duration::from_secs(it.into()));
                let cause = match status.code {
                    429 => Cause::Failed(after),
                    400..500 => Cause::Refused(host.clone()),
                    _ => unclear,
                };
                (cause, status.message.clone())
            }
            source => (unclear, controller_kit::api_error::explain(source)),
        },
        Error::Silent(_) | Error::Other(..) => (unclear, error.to_string()),
        // The name is free, or it would not come to this.
        Error::Superseded => (unclear, text::CHANGED_MEANWHILE.to_owned()),
    }
}

/// The one of a machine's two names that it does not get now; none where the first is no other machine's anyway.
fn other_name<'a>(verdict: &'a Verdict, name: &str) -> Option<&'a str> {
    let named = verdict.named.as_ref()?;
    let own = matches!(named.from, HardwareDetail::BootMac | HardwareDetail::ProvisioningId);
    let other = if named.name == name { named.beside.as_deref()? } else { named.name.as_str() };
    (!own).then_some(other)
}

/// What is told of a new host.
fn event_of(order: &Order, details: &HardwareDetails) -> Event {
    let Order { resource, machine, verdict, name, .. } = order;
    let passed_over = verdict.named.iter().flat_map(|named| &named.passed_over);
    let fell_back: Vec<String> = passed_over
        .map(|(detail, why)| format!("{}: {why}", json!(detail).as_str().unwrap_or_default()))
        .collect();
    let parts = [
        Some(text::made_host(name, machine.node)),
        (!fell_back.is_empty()).then(|| text::not_named_by(&fell_back)),
        details.cut.then(|| text::HARDWARE_LEFT_OUT.to_owned()),
        resource.erases().then(|| text::erased(resource.bmc.is_some()).to_owned()),
        Some(text::made_for(&resource.namespace, &resource.name)),
    ];
    let text: String = parts.into_iter().flatten().collect();
    let is_asked_for = fell_back.is_empty();
    let reason = if is_asked_for { Notice::HostCreated } else { Notice::HostNamedByFallback };
    Event::new(false, reason.as_str(), "Discover", &text)
}

/// Takes settled approvals off a resource.
pub async fn settle_approvals(
    context: &Context,
    object: &BareMetalHostDiscovery,
    approvals: &Approvals,
) -> Result<Outcome, Error> {
    let keep: Vec<String> = approvals.keep.iter().map(ToString::to_string).collect();
    let value = if keep.is_empty() { Value::Null } else { keep.join(",").into() };
    let annotations = BTreeMap::from([(ferrite::APPROVE, value)]);
    let version = &object.metadata.resource_version;
    let patch = json!({ "metadata": { "resourceVersion": version, "annotations": annotations } });
    let ((api, name), params) = (resource_api(context, object), PatchParams::default());
    let patch = Patch::Merge(patch);
    let after = sent("settle approvals", api.patch(&name, &params, &patch)).await?;
    let unknown = approvals.unknown.iter();
    let reason = Notice::ApprovalUnknown.as_str();
    let event = |it: &String| Event::new(true, reason, it, &text::unknown_approval(it));
    let events = unknown.map(event).collect();
    Ok(Outcome { version: after.metadata.resource_version, events, ..Outcome::default() })
}

/// Writes down on a node that it had a host. Whatever the node is by now, that stays true, and it is written on no other: one
/// that came back has another identifier.
pub async fn mark(context: &Context, unmarked: &Unmarked) -> Result<(), ironic::Error> {
    let value = json!(unmarked.host.to_string());
    let mark = PatchOp::Add { path: format!("/extra/{HAD_HOST}"), value };
    context.ironic.patch_node(&unmarked.node.to_string(), &[mark], false).await.map(drop)
}

/// Gives a node another driver and its interfaces. To be done only right after its host was read, which asks for it, and the
/// node, on which nothing runs: Ironic has no versions, but refuses it while it works with the node itself.
pub async fn set_driver(
    context: &Context,
    node: NodeId,
    chosen: NodeDriver,
    before: &str,
) -> Result<(), ironic::Error> {
    // Only with another driver Ironic resets the interfaces that are not named.
    let is_other = chosen.driver != before;
    let driver = PatchOp::Replace { path: "/driver".to_owned(), value: json!(chosen.driver) };
    let interface = |(kind, name): (&str, &str)| PatchOp::Add {
        path: format!("/{kind}_interface"),
        value: json!(name),
    };
    let interfaces = chosen.interfaces().map(interface);
    let patch: Vec<PatchOp> = is_other.then_some(driver).into_iter().chain(interfaces).collect();
    context.ironic.patch_node(&node.to_string(), &patch, is_other).await.map(drop)
}

/// Writes the status on the version that was decided upon.
pub async fn write_status(
    context: &Context,
    object: &BareMetalHostDiscovery,
    status: &BareMetalHostDiscoveryStatus,
) -> Result<Outcome, Error> {
    let ((api, name), params) = (resource_api(context, object), PatchParams::default());
    let patch = Patch::Merge(status::patch(object, status));
    let after = sent("write the status", api.patch_status(&name, &params, &patch)).await?;
    Ok(Outcome { version: after.metadata.resource_version, ..Outcome::default() })
}

fn resource_api(
    context: &Context,
    object: &BareMetalHostDiscovery,
) -> (Api<BareMetalHostDiscovery>, String) {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    (Api::namespaced(context.kit.client.clone(), namespace), name)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_an_answer_that_leaves_it_open_lets_a_host_be_there_all_the_same() {
        let refused = |code| {
            let source = kube::Error::Api(Status::failure("no", "").with_code(code).boxed());
            Error::Api { what: "create a host", source: Box::new(source) }
        };
        let host = ObjectKey::new("metal", "n1");
        for (error, posted, cause) in [
            (refused(403), true, Cause::Refused(host.clone())),
            (refused(422), true, Cause::Refused(host.clone())),
            (refused(429), true, Cause::Failed(None)),
            (refused(500), true, Cause::Unknown),
            (refused(500), false, Cause::Failed(None)),
            (Error::Silent("create a host"), true, Cause::Unknown),
            (Error::Superseded, false, Cause::Failed(None)),
        ] {
            assert_eq!(judged(&error, &host, posted).0, cause, "{error:?}");
        }
        assert!(judged(&Error::Superseded, &host, false).1.contains("quota"));
    }
}

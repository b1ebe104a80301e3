//! The only writes of the plugin, each with the version that was decided on: who writes first wins. And the one question that is
//! asked by a POST.

use api_types::metal3::BareMetalHost;
use controller_kit::api_error::{explain, is_refusal, unless_superseded};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::ask::{Answer, Asking, Failure};
use crate::health::Right;
use crate::text;

/// The field manager of what is written.
const MANAGER: &str = "kubectl-ferrite";
/// Groups that every account of a pod is in.
const SERVICE_ACCOUNTS: [&str; 2] = ["system:authenticated", "system:serviceaccounts"];

/// What became of a write.
pub(crate) enum Written {
    Done(Box<BareMetalHost>),
    /// Another wrote first: nothing was written.
    Superseded,
}

/// Sets an annotation of a host, or removes it.
///
/// # Errors
/// When it may not be written, or the API server does not answer.
pub(crate) async fn annotate(
    asking: &Asking,
    host: &BareMetalHost,
    annotation: &str,
    value: Option<&str>,
) -> Result<Written, Failure> {
    let change = json!({ "metadata": { "annotations": { annotation: value } } });
    patch(asking, host, change).await
}

/// Gives a host its BMC.
///
/// # Errors
/// When it may not be written, or the API server does not answer.
pub(crate) async fn set_bmc(
    asking: &Asking,
    host: &BareMetalHost,
    address: &str,
    credentials: &str,
) -> Result<Written, Failure> {
    let bmc = json!({ "address": address, "credentialsName": credentials });
    patch(asking, host, json!({ "spec": { "bmc": bmc } })).await
}

async fn patch(
    asking: &Asking,
    host: &BareMetalHost,
    mut change: Value,
) -> Result<Written, Failure> {
    change["metadata"]["resourceVersion"] = json!(host.metadata.resource_version);
    let (namespace, name) = (asking.namespace.as_str(), host.name_any());
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let answer = asking.ask(async |client| {
        let hosts: Api<BareMetalHost> = Api::namespaced(client, namespace);
        let written = hosts.patch(&name, &params, &Patch::Merge(&change)).await;
        match unless_superseded(written) {
            Err(error) if is_refusal(&error) => Ok(Err(explain(&error))),
            written => written.map(Ok),
        }
    });
    match answer.await? {
        Answer::Here(Ok(Some(host))) => Ok(Written::Done(Box::new(host))),
        Answer::Here(Err(why)) => Err(Failure::No(text::refused(&name, &why))),
        Answer::Forbidden => Err(Failure::No(text::refused(&name, "Forbidden"))),
        Answer::Here(Ok(None)) | Answer::Gone | Answer::Unserved => Ok(Written::Superseded),
        Answer::Unreadable(why) => {
            Err(Failure::Unanswered(text::undecodable("BareMetalHost", &why)))
        }
    }
}

/// Whether a user has a right; nothing where whoever asks may not ask that. The API server stores no review.
///
/// # Errors
/// When the API server does not answer.
pub(crate) async fn may(
    asking: &Asking,
    user: &str,
    right: &Right,
) -> Result<Option<bool>, Failure> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let attributes = ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(right.verb.clone()),
        name: right.name.clone(),
        namespace: right.namespace.clone(),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        groups: Some(SERVICE_ACCOUNTS.map(str::to_owned).into()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let asked = asking.ask(async |client| {
        Api::<SubjectAccessReview>::all(client).create(&PostParams::default(), &review).await
    });
    Ok(match asked.await? {
        Answer::Here(review) => Some(review.status.is_some_and(|it| it.allowed)),
        _ => None,
    })
}

#[cfg(test)]
mod tests;

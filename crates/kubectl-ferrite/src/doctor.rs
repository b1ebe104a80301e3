//! `doctor`: reads the installed controllers, and asks the API server what they may do.

use controller_kit::crd;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::core::ObjectList;

use crate::ask::{Answer, Asking, Failure, right};
use crate::deployment::Deployment;
use crate::health::{Finding, Installed, KNOWN, Known, Right, Weight, skew};
use crate::text;
use crate::write::may;

/// The label of all that the charts make.
const OURS: &str = "app.kubernetes.io/part-of=ferrite";
/// Questions about rights that are asked at the same time.
const AT_ONCE: usize = 8;

/// All controllers that are installed, and what is to be said of them.
///
/// # Errors
/// When there is none, they may not be listed, or the API server does not answer.
pub(crate) async fn doctor(
    asking: &Asking,
    namespace: Option<&str>,
) -> Result<(Vec<Installed>, Vec<Finding>), Failure> {
    type K = v1::Deployment;
    let params = ListParams::default().labels(OURS);
    let answer = asking.page::<K, ObjectList<Deployment>>(&(), namespace, &params).await?;
    let list = match answer {
        Answer::Here(list) => list.items,
        Answer::Forbidden => {
            let right = right::<K>("list", &(), namespace);
            return Err(Failure::Unanswered(text::not_found_out(&right)));
        }
        Answer::Unreadable(why) => {
            return Err(Failure::Unanswered(text::undecodable("Deployment", &why)));
        }
        Answer::Gone | Answer::Unserved => Vec::new(),
    };
    let mut installed: Vec<Installed> = list.iter().filter_map(Installed::of).collect();
    if installed.is_empty() {
        return Err(Failure::NotFound(text::not_installed(namespace)));
    }
    installed.sort_by_key(|it| (it.controller, it.namespace.clone(), it.deployment.clone()));
    let mut findings = Vec::new();
    let now = asking.clock().await?;
    for it in &mut installed {
        findings.extend(it.pods());
        if let Some(lease) = it.lease.clone() {
            let lease = asking.get::<Lease>(&[()], &it.namespace, &lease).await?;
            findings.extend(it.led(&lease, now));
        }
        let Some(known) = KNOWN.iter().find(|known| known.name == it.controller) else { continue };
        findings.extend(crds(asking, it, known).await?);
        findings.extend(rights(asking, it, known).await?);
    }
    findings.extend(skew(&installed, env!("CARGO_PKG_VERSION")));
    Ok((installed, findings))
}

async fn crds(asking: &Asking, it: &Installed, known: &Known) -> Result<Vec<Finding>, Failure> {
    let needed = (known.needed)();
    let answer = asking.ask(async |client| crd::check(&client, &needed, known.name).await).await?;
    Ok(match answer {
        Answer::Here(told) => {
            let finding = |told: &Result<String, String>| match told {
                Err(unmet) => it.finding(Weight::Wrong, text::whole(unmet)),
                Ok(spared) => it.finding(Weight::Note, text::whole(spared)),
            };
            told.iter().map(finding).collect()
        }
        Answer::Forbidden => {
            let right = right::<CustomResourceDefinition>("get", &(), None);
            vec![it.finding(Weight::Unread, text::not_checked(&right))]
        }
        Answer::Unreadable(why) => vec![it.finding(Weight::Unread, text::undecodable("CRD", &why))],
        Answer::Gone | Answer::Unserved => Vec::new(),
    })
}

/// The rights that the account lacks. The first is asked alone: who may not ask is told once.
async fn rights(asking: &Asking, it: &Installed, known: &Known) -> Result<Vec<Finding>, Failure> {
    let mut rights = known.rights(it).into_iter();
    let Some(first) = rights.next() else { return Ok(Vec::new()) };
    let user = format!("system:serviceaccount:{}:{}", it.namespace, it.account);
    let user = user.as_str();
    let Some(is_allowed) = may(asking, user, &first).await? else {
        let right = right::<SubjectAccessReview>("create", &(), None);
        return Ok(vec![it.finding(Weight::Unread, text::not_checked(&right))]);
    };
    let ask = async |right: Right| {
        let is_allowed = may(asking, user, &right).await?;
        Ok::<_, Failure>((is_allowed != Some(false), right))
    };
    let rest: Vec<(bool, Right)> =
        stream::iter(rights).map(ask).buffered(AT_ONCE).try_collect().await?;
    let all = [(is_allowed, first)].into_iter().chain(rest);
    let denied: Vec<String> =
        all.filter(|(is_allowed, _)| !is_allowed).map(|(_, right)| right.shown()).collect();
    Ok(match denied.split_first() {
        None => Vec::new(),
        Some((first, rest)) => {
            vec![it.finding(Weight::Wrong, text::account_lacks(&it.account, first, rest.len()))]
        }
    })
}

//! `adopt`: gives discovered hosts their BMC. All are judged before the first is written.

use std::collections::BTreeSet;

use api_types::metal3::BareMetalHost;
use api_types::name::is_name;
use host_discovery::sighting::Sighting;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::core::{ObjectList, PartialObjectMeta};

use crate::adoption::{Adoption, HostBmcs, Template, bmcs_of, is_unseen};
use crate::ask::{Answer, Asking, Failure, right};
use crate::hold;
use crate::model::Look;
use crate::settings::Adopt;
use crate::terminal::tell;
use crate::text;
use crate::write::{Written, set_bmc};

/// Hosts of one page.
const PAGE: u32 = 250;

/// What will be written, and the hosts as they were judged.
pub(crate) struct Plan {
    pub(crate) adoptions: Vec<Adoption>,
    hosts: Vec<BareMetalHost>,
}

/// Reads the hosts and judges them.
///
/// # Errors
/// When one of them cannot get its BMC.
pub(crate) async fn plan(asking: &Asking, args: &Adopt) -> Result<Plan, Failure> {
    let template = Template::read(&args.address, &args.credentials).map_err(Failure::Usage)?;
    secret(asking, &args.credentials).await?;
    let mut hosts = Vec::new();
    for name in args.hosts.iter().collect::<BTreeSet<_>>() {
        hosts.push(hold::read(asking, name).await?);
    }
    let others = others(asking).await?;
    let adoptions =
        template.plan(&hosts, &others).map_err(|mistakes| Failure::No(mistakes.join("\n")))?;
    Ok(Plan { adoptions, hosts })
}

/// Whether the secret exists. What stands in it is not read.
async fn secret(asking: &Asking, name: &str) -> Result<(), Failure> {
    if !is_name(name) {
        return Err(Failure::Usage(text::no_name(name)));
    }
    match asking.metadata::<Secret>(&(), &asking.namespace, name).await? {
        Look::Forbidden(_, right) => {
            tell(&text::not_checked(&right));
            Ok(())
        }
        look => asking.must_be_here::<Secret, PartialObjectMeta>(&[()], look).await.map(drop),
    }
}

/// The hosts that may have or name the same BMC: those of all namespaces, or of this one where the user may not list all.
async fn others(asking: &Asking) -> Result<Vec<HostBmcs>, Failure> {
    for namespace in [None, Some(asking.namespace.as_str())] {
        if let Some((others, unseen)) = listed(asking, namespace).await? {
            if unseen > 0 {
                tell(&text::not_comparable(unseen));
            }
            return Ok(others);
        }
        let right = right::<BareMetalHost>("list", &(), namespace);
        tell(&text::not_compared(&right));
    }
    Ok(Vec::new())
}

/// The hosts, and of how many the BMC cannot be compared. Nothing, if the user may not list them.
async fn listed(
    asking: &Asking,
    namespace: Option<&str>,
) -> Result<Option<(Vec<HostBmcs>, usize)>, Failure> {
    type Page = ObjectList<Sighting>;
    let mut params = ListParams::default().limit(PAGE);
    let (mut others, mut unseen) = (Vec::new(), 0);
    loop {
        let page = match asking.page::<BareMetalHost, Page>(&(), namespace, &params).await? {
            Answer::Here(page) => page,
            Answer::Forbidden => return Ok(None),
            Answer::Unreadable(why) => {
                return Err(Failure::Unanswered(text::undecodable("BareMetalHost", &why)));
            }
            Answer::Gone | Answer::Unserved => return Ok(Some((others, unseen))),
        };
        others.extend(page.items.iter().map(bmcs_of));
        unseen += page.items.iter().filter(|it| is_unseen(it)).count();
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(Some((others, unseen))),
        }
    }
}

/// Writes what was planned, and says how many hosts got their BMC.
///
/// # Errors
/// At the first host that changed since, or may not be written. Those before it have their BMC.
pub(crate) async fn adopt(asking: &Asking, plan: &Plan) -> Result<usize, Failure> {
    for (done, (host, it)) in plan.hosts.iter().zip(&plan.adoptions).enumerate() {
        let written = set_bmc(asking, host, &it.address, &it.credentials_name).await;
        let why = match written {
            Ok(Written::Done(_)) => continue,
            Ok(Written::Superseded) => text::superseded(&it.host),
            Err(failure) => failure.message().to_owned(),
        };
        return Err(Failure::No(text::adopted_until(&why, done, plan.adoptions.len())));
    }
    Ok(plan.adoptions.len())
}

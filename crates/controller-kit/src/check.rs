//! `check`: one look at everything the controller needs, with what to do about each failure.

use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};

use crate::api_error;
use crate::config::Config;
use crate::crd::{self, Needed};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was looked at.
    pub subject: String,
    /// `Ok`: what was found. `Err`: what is wrong and what to do about it.
    pub result: Result<String, String>,
}

/// Something the controller must be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// API group, empty for the core.
    pub group: &'static str,
    /// Plural, with `/subresource` where there is one.
    pub resource: &'static str,
    /// All verbs that are needed.
    pub verbs: &'static [&'static str],
    /// Where it is needed.
    pub place: Place,
}

/// Where a permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where `--namespaces` says.
    Watched,
    /// In the whole cluster.
    Cluster,
    /// In the lease's namespace, which is the pod's own unless it is set.
    Own,
}

/// A check of the controller's own.
pub type Check = Box<dyn FnOnce(Client) -> Pin<Box<dyn Future<Output = Vec<Row>> + Send>> + Send>;

const PATIENCE: Duration = Duration::from_secs(10);

/// Does all checks. After an API server that does not answer the rest would only repeat it.
pub async fn run(
    client: &Client,
    config: &Config,
    needed: &[Needed],
    permissions: &[Permission],
    own: Vec<Check>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let version = within(client.apiserver_version()).await;
    let reached = version.is_ok();
    rows.push(Row {
        subject: "API server".to_owned(),
        result: version
            .map(|version| version.git_version)
            .map_err(|why| format!("{why}; check the kubeconfig, the network and the certificate")),
    });
    if reached {
        for permission in permissions {
            rows.extend(permitted(client, config, permission).await);
        }
        let missing = within(crd::check(client, needed, config.controller)).await;
        let subject = "CRDs".to_owned();
        match missing {
            Ok(missing) if missing.is_empty() => {
                rows.push(Row { subject, result: Ok("all fields are there".to_owned()) });
            }
            Ok(missing) => {
                rows.extend(
                    missing
                        .into_iter()
                        .map(|line| Row { subject: "CRD".to_owned(), result: Err(line) }),
                );
            }
            Err(why) => rows.push(Row {
                subject,
                result: Err(format!("{why}; allow get on customresourcedefinitions")),
            }),
        }
    }
    for check in own {
        rows.extend(check(client.clone()).await);
    }
    rows
}

async fn permitted(client: &Client, config: &Config, permission: &Permission) -> Vec<Row> {
    let own = config.lease.as_ref().and_then(|lease| lease.namespace.as_deref());
    let namespaces: Vec<Option<&str>> = match permission.place {
        Place::Watched if !config.namespaces.is_empty() => {
            config.namespaces.iter().map(|name| Some(name.as_str())).collect()
        }
        Place::Watched | Place::Cluster => vec![None],
        Place::Own => vec![Some(own.unwrap_or_else(|| client.default_namespace()))],
    };
    let mut rows = Vec::new();
    for namespace in namespaces {
        let mut denied: Vec<String> = Vec::new();
        for verb in permission.verbs {
            match within(ask(client, permission, verb, namespace)).await {
                Ok(true) => {}
                Ok(false) => denied.push((*verb).to_owned()),
                Err(why) => denied.push(format!("{verb} ({why})")),
            }
        }
        let place =
            namespace.map_or("all namespaces".to_owned(), |name| format!("namespace {name}"));
        let what = if permission.group.is_empty() {
            permission.resource.to_owned()
        } else {
            format!("{}.{}", permission.resource, permission.group)
        };
        let verbs = permission.verbs.join(", ");
        rows.push(Row {
            subject: format!("permission on {what}"),
            result: if denied.is_empty() {
                Ok(format!("{verbs} in {place}"))
            } else {
                Err(format!(
                    "not allowed in {place}: {}; add it to the role of this account",
                    denied.join(", ")
                ))
            },
        });
    }
    rows
}

async fn ask(
    client: &Client,
    permission: &Permission,
    verb: &str,
    namespace: Option<&str>,
) -> Result<bool, kube::Error> {
    let (resource, subresource) = permission
        .resource
        .split_once('/')
        .map_or((permission.resource, None), |(resource, sub)| (resource, Some(sub)));
    let attributes = ResourceAttributes {
        group: Some(permission.group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        verb: Some(verb.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..Default::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn within<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(|error| api_error::explain(&error)),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

/// The table as text.
pub fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.subject.chars().count()).max().unwrap_or(0);
    let line = |row: &Row| {
        let (mark, text) = match &row.result {
            Ok(found) => ("ok    ", found),
            Err(wrong) => ("FAILED", wrong),
        };
        format!("{mark}  {:width$}  {text}\n", row.subject)
    };
    rows.iter().map(line).collect()
}

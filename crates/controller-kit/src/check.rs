//! `check`: one look at everything the controller needs, with what to do about each failure.

use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview as Review,
    SelfSubjectAccessReviewSpec as ReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_error::{PATIENCE, within};
use crate::config::Settings;
use crate::crd::{self, Needed};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was looked at.
    pub subject: String,
    /// `Ok`: what was found. `Err`: what is wrong and what to do about it.
    pub result: Result<String, String>,
}

/// What a controller may do, as its chart says it in `files/rules.json`: one file for the role that the chart makes
/// and for what `check` asks.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RoleRules {
    /// Where `--namespaces` says.
    pub namespaced: Vec<RoleRule>,
    /// On objects of the whole cluster.
    pub cluster: Vec<RoleRule>,
}

impl RoleRules {
    /// Reads those that the chart makes for a pod; `has` says whether the pod has a block of the chart's values.
    ///
    /// # Errors
    /// When the text is no such file.
    pub fn read(text: &str, has: impl Fn(&str) -> bool) -> serde_json::Result<Self> {
        let mut rules: Self = serde_json::from_str(text)?;
        for rules in [&mut rules.namespaced, &mut rules.cluster] {
            rules.retain(|it| it.when.is_empty() || has(&it.when));
        }
        Ok(rules)
    }
}

/// Verbs that are allowed on resources.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleRule {
    #[serde(default)]
    why: String,
    /// API groups of the resources.
    pub api_groups: Vec<String>,
    /// Resources, with a subresource behind a slash.
    pub resources: Vec<String>,
    /// Names of objects; none for all.
    #[serde(default)]
    pub resource_names: Vec<String>,
    /// What is allowed.
    pub verbs: Vec<String>,
    /// The block of the chart's values without which there is no such rule; empty for always.
    #[serde(default)]
    when: String,
}

impl RoleRule {
    fn new(why: &str, group: &str, resource: &str, names: &[String], verbs: &[&str]) -> Self {
        Self {
            why: why.to_owned(),
            api_groups: vec![group.to_owned()],
            resources: vec![resource.to_owned()],
            resource_names: names.to_vec(),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            when: String::new(),
        }
    }
}

/// A check of the controller's own, which makes one row.
pub struct Check {
    subject: String,
    /// Is given the client if the API server answers.
    ask: Box<dyn FnOnce(Option<Client>) -> Finding + Send>,
}

/// The result of a check, as in a row.
type Finding = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

impl Check {
    /// One that asks the API server. It is left out where that does not answer.
    pub fn of_api_server<F>(subject: &str, ask: impl FnOnce(Client) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        let ask = |client: Option<Client>| -> Finding {
            match client {
                Some(client) => Box::pin(ask(client)),
                None => Box::pin(std::future::ready(Err(UNCHECKED.to_owned()))),
            }
        };
        Self { subject: subject.to_owned(), ask: Box::new(ask) }
    }

    /// One that asks another neighbour, or nobody.
    pub fn of_others(
        subject: &str,
        found: impl Future<Output = Result<String, String>> + Send + 'static,
    ) -> Self {
        Self { subject: subject.to_owned(), ask: Box::new(|_| Box::pin(found)) }
    }

    async fn row(self, client: Option<Client>, patience: Duration) -> Row {
        let result = tokio::time::timeout(patience, (self.ask)(client)).await;
        let silence = |_| Err(format!("no answer within {} s", patience.as_secs()));
        Row { subject: self.subject, result: result.unwrap_or_else(silence) }
    }
}

/// How long a check of the controller's own may take: longer than two requests to a neighbour by default, whose errors say more.
const OWN_PATIENCE: Duration = Duration::from_secs(90);
/// The result of a check that was left out.
const UNCHECKED: &str = "not checked: the API server does not answer";

/// Does all checks. After an API server that does not answer the rest would only repeat it.
pub async fn run(
    client: &Client,
    config: &Settings,
    needed: &[Needed],
    rules: (&str, &[&str]),
    own: Vec<Check>,
) -> Vec<Row> {
    let result = match within(PATIENCE, client.apiserver_version()).await {
        Ok(version) => Ok(version.git_version),
        Err(why) => Err(format!("{why}; check the kubeconfig, the network and the certificate")),
    };
    let mut rows = vec![Row { subject: "API server".to_owned(), result }];
    let answers = rows[0].result.is_ok();
    if answers {
        rows.extend(permitted(client, config, rules).await);
        let found = within(PATIENCE, crd::check(client, needed, config.controller)).await;
        let mut found = found.unwrap_or_else(|why| {
            vec![Err(format!("{why}; allow get on customresourcedefinitions"))]
        });
        if found.is_empty() {
            found.push(Ok("all fields are there".to_owned()));
        }
        rows.extend(found.into_iter().map(|result| Row { subject: "CRDs".to_owned(), result }));
    }
    for check in own {
        rows.push(check.row(answers.then(|| client.clone()), OWN_PATIENCE).await);
    }
    rows
}

/// One row for each resource and namespace of the chart's rules, and of those that the kit itself needs.
async fn permitted(
    client: &Client,
    config: &Settings,
    (rules, switches): (&str, &[&str]),
) -> Vec<Row> {
    let rules = if rules.is_empty() { "{}" } else { rules };
    let Ok(mut rules) = RoleRules::read(rules, |it| switches.contains(&it)) else {
        let result = Err("the rules that were compiled in cannot be read: report this".to_owned());
        return vec![Row { subject: "permissions".to_owned(), result }];
    };
    let event =
        RoleRule::new("to say what was done", "events.k8s.io", "events", &[], &["create", "patch"]);
    rules.namespaced.push(event);
    let everywhere = vec![None];
    let watched: Vec<Option<&str>> = config.namespaces.iter().map(|name| Some(&**name)).collect();
    let watched = if watched.is_empty() { everywhere.clone() } else { watched };
    let mut asked = vec![(rules.namespaced, watched), (rules.cluster, everywhere)];
    if config.leader_elect {
        let own = config.lease_namespace.as_deref().unwrap_or_else(|| client.default_namespace());
        let verbs = &["get", "list", "watch", "patch"];
        let names = std::slice::from_ref(&config.lease_name);
        let why = "to be the one that acts";
        let group = "coordination.k8s.io";
        let rules = vec![
            RoleRule::new(why, group, "leases", &[], &["create"]),
            RoleRule::new(why, group, "leases", names, verbs),
        ];
        asked.push((rules, vec![Some(own)]));
    }
    let mut rows = Vec::new();
    for (rules, namespaces) in &asked {
        for (rule, namespace) in
            rules.iter().flat_map(|rule| namespaces.iter().map(move |it| (rule, *it)))
        {
            for (group, resource) in rule.api_groups.iter().flat_map(|group| {
                rule.resources.iter().map(move |resource| (group.as_str(), resource.as_str()))
            }) {
                rows.push(allowed(client, rule, group, resource, namespace).await);
            }
        }
    }
    rows
}

async fn allowed(
    client: &Client,
    rule: &RoleRule,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Row {
    let (kind, subresource) = resource.split_once('/').unzip();
    let names: Vec<Option<&String>> = rule.resource_names.iter().map(Some).collect();
    let names = if names.is_empty() { vec![None] } else { names };
    let mut denied: Vec<String> = Vec::new();
    for (verb, name) in
        rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, name)))
    {
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(kind.unwrap_or(resource).to_owned()),
            subresource: subresource.map(str::to_owned),
            verb: Some(verb.clone()),
            name: name.cloned(),
            namespace: namespace.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let spec = ReviewSpec { resource_attributes: Some(attributes), ..ReviewSpec::default() };
        let review = Review { spec, ..Review::default() };
        let reviews = Api::<Review>::all(client.clone());
        match within(PATIENCE, reviews.create(&PostParams::default(), &review)).await {
            Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => denied.push(name.map_or(verb.clone(), |name| format!("{verb} {name}"))),
            Err(why) => denied.push(format!("{verb} ({why})")),
        }
    }
    let place =
        namespace.map_or("the whole cluster".to_owned(), |name| format!("namespace {name}"));
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let (denied, why) = (denied.join(", "), &rule.why);
    let result = if denied.is_empty() {
        Ok(format!("{} in {place}", rule.verbs.join(", ")))
    } else {
        Err(format!("not allowed in {place}: {denied}; add it to the role of this account ({why})"))
    };
    Row { subject: format!("permission on {resource}{group}"), result }
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

/// The same for programs: a field may be added to it, none goes.
pub fn json(controller: &str, rows: &[Row]) -> Value {
    let line = |row: &Row| {
        let (Ok(message) | Err(message)) = &row.result;
        json!({ "subject": row.subject, "ok": row.result.is_ok(), "message": message })
    };
    json!({
        "controller": controller,
        "version": env!("CARGO_PKG_VERSION"),
        "ok": rows.iter().all(|row| row.result.is_ok()),
        "checks": rows.iter().map(line).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::config::{Mistakes, Settings, defaults};
    use crate::connection;

    fn nobody() -> Client {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        connection::builder(config, "sample").unwrap().build()
    }

    #[tokio::test]
    async fn a_check_of_the_controllers_own_ends_where_nobody_answers() {
        let client = nobody();
        for check in
            [Check::of_api_server("own", |_| pending()), Check::of_others("own", pending())]
        {
            let row = check.row(Some(client.clone()), Duration::ZERO).await;
            assert_eq!(row.result, Err("no answer within 0 s".to_owned()));
        }
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_is_asked_once() {
        let config = defaults::<Settings>().check("sample", &mut Mistakes::default());
        let own = vec![
            Check::of_api_server("asks", |_| ready(Ok("asked".to_owned()))),
            Check::of_others("does not", ready(Ok("fine".to_owned()))),
        ];
        let rows = run(&nobody(), &config, &[], ("", &[]), own).await;
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert!(rows[0].result.is_err());
        assert_eq!(rows[1].result, Err(UNCHECKED.to_owned()));
        assert_eq!(rows[2].result, Ok("fine".to_owned()));
    }
}

//! Which versions of a group the API server serves, where a kind comes in several and a watch is for one of them.

use std::fmt::Display;
use std::time::Duration;

use kube::Client;

use crate::Kit;
use crate::api_error::{self, PATIENCE};

/// How often it is looked whether something else is served now.
pub const AGAIN: Duration = Duration::from_secs(60);
const CONDITION: &str = "api";
/// Between two looks at an API server that lacks something: a few small requests for each.
const LACK_PAUSE: Duration = Duration::from_secs(1);

/// The names of the resources that a version of a group has, or why that is not known.
pub type Answer = Result<Vec<String>, String>;

/// A version of a group, and all that is served with it.
pub type Found<V> = (V, Vec<String>);

/// Asks until `find` has everything that is needed. The process is not ready before, and says what is missing.
pub async fn wait<S, F: Future<Output = Result<S, String>>>(kit: &Kit, find: impl Fn() -> F) -> S {
    kit.readiness.require(CONDITION, "the API server was not asked yet what it serves");
    loop {
        match within_patience(find()).await {
            Ok(served) => {
                kit.readiness.ready(CONDITION);
                return served;
            }
            Err(lacking) => kit.readiness.not_ready(CONDITION, &lacking),
        }
        tokio::time::sleep(LACK_PAUSE).await;
    }
}

/// Ends when something else is served than `before`: watches are for one version, so the process has to start anew.
pub async fn changes<S: Display + PartialEq, F: Future<Output = Result<S, String>>>(
    before: S,
    find: impl Fn() -> F,
) -> String {
    loop {
        tokio::time::sleep(AGAIN).await;
        if let Some(why) = news(&before, within_patience(find()).await) {
            return why;
        }
    }
}

/// Why the process ends. While the API server does not answer, or a CRD is just being replaced, nothing is known.
fn news<S: Display + PartialEq>(before: &S, now: Result<S, String>) -> Option<String> {
    let now = now.ok().filter(|now| now != before)?;
    Some(format!(
        "The API server serves other versions now ({now} instead of {before}); the process ends to start on them"
    ))
}

/// What comes of a look, all questions of it together, if it comes in time.
pub async fn within_patience<S>(
    look: impl Future<Output = Result<S, String>>,
) -> Result<S, String> {
    tokio::time::timeout(PATIENCE, look).await.map_err(|_| {
        format!("the API server does not say within {} s what it serves", PATIENCE.as_secs())
    })?
}

/// The first of `versions` that is served with all of these resources.
pub async fn best<V: Copy + Display, F: Future<Output = Answer>>(
    ask: impl Fn(String) -> F,
    group: &str,
    versions: &[V],
    resources: &[&str],
) -> Result<Option<Found<V>>, String> {
    for version in versions {
        let all = ask(format!("{group}/{version}")).await?;
        if has(&all, resources) {
            return Ok(Some((*version, all)));
        }
    }
    Ok(None)
}

/// The same; that there is none is an error, which says what to install.
pub async fn required<V: Copy + Display, F: Future<Output = Answer>>(
    ask: impl Fn(String) -> F,
    group: &str,
    versions: &[V],
    resources: &[&str],
    what: &str,
) -> Result<Found<V>, String> {
    best(ask, group, versions, resources).await?.ok_or_else(|| {
        let versions: Vec<String> = versions.iter().map(V::to_string).collect();
        format!(
            "no version of {group} has all of {}: install {what} with {}",
            resources.join(", "),
            versions.join(" or ")
        )
    })
}

/// Whether all of these are among them.
pub fn has(all: &[String], wanted: &[&str]) -> bool {
    wanted.iter().all(|wanted| all.iter().any(|it| it == wanted))
}

/// The resources that a version of a group (`group/version`) is served with; none if it is not.
pub async fn resources(client: &Client, version: String) -> Answer {
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
    use super::*;

    const VERSIONS: [&str; 2] = ["v2", "v1"];

    /// Both kinds in `v1`, one of them in `v2`.
    async fn ask(version: String) -> Answer {
        let all: &[&str] = match version.as_str() {
            "group/v2" => &["seats"],
            "group/v1" => &["seats", "guests"],
            _ => return Err(format!("nobody knows {version}")),
        };
        Ok(all.iter().map(|it| (*it).to_owned()).collect())
    }

    #[tokio::test]
    async fn the_first_version_that_has_everything_is_the_best() {
        let find = async |resources: &[&str]| {
            best(ask, "group", &VERSIONS, resources).await.unwrap().map(|(version, _)| version)
        };
        assert_eq!(find(&["seats"]).await, Some("v2"));
        assert_eq!(find(&["seats", "guests"]).await, Some("v1"));
        assert_eq!(find(&["tables"]).await, None);
        assert!(best(ask, "other", &VERSIONS, &[]).await.is_err(), "no answer is no word about it");
    }

    #[tokio::test]
    async fn what_is_lacking_is_said_with_what_to_install() {
        let lacking =
            required(ask, "group", &VERSIONS, &["seats", "tables"], "the furniture").await;
        assert_eq!(
            lacking.unwrap_err(),
            "no version of group has all of seats, tables: install the furniture with v2 or v1"
        );
    }

    #[test]
    fn only_something_else_ends_the_process_and_no_answer_is_nothing_else() {
        assert_eq!(news(&"old", Err("away".to_owned())), None);
        assert_eq!(news(&"old", Ok("old")), None);
        let why = news(&"old", Ok("new")).unwrap();
        assert!(why.contains("(new instead of old)"), "{why}");
    }
}

//! What the API server's own log says that an account asked for, request by request.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

/// A right as a role says it: one verb on one resource, with its subresource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    pub(super) verb: String,
    /// Empty for the core group.
    pub(super) group: String,
    pub(super) resource: String,
}

impl Right {
    pub(super) fn new(verb: &str, group: &str, resource: &str) -> Self {
        let [verb, group, resource] = [verb, group, resource].map(str::to_owned);
        Self { verb, group, resource }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.verb, self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(out, ".{}", self.group) }
    }
}

/// A request that the account was allowed to make.
pub(super) struct Request {
    pub(super) right: Right,
    /// The object's name; empty for a list, and where the API server finds the name.
    pub(super) name: String,
}

impl Request {
    /// One of a line of the log; nothing if it is somebody else's, was not allowed, or is about no resource.
    fn of(line: &str, user: &str) -> Option<Self> {
        let entry: Value = serde_json::from_str(line).ok()?;
        let reference = &entry["objectRef"];
        let text = |name: &str| reference[name].as_str().unwrap_or_default();
        let allowed = entry["annotations"]["authorization.k8s.io/decision"] == "allow";
        if entry["user"]["username"] != user || !allowed || text("resource").is_empty() {
            return None;
        }
        let mut resource = text("resource").to_owned();
        if !text("subresource").is_empty() {
            resource = format!("{resource}/{}", text("subresource"));
        }
        let right = Right::new(entry["verb"].as_str()?, text("apiGroup"), &resource);
        Some(Self { right, name: text("name").to_owned() })
    }

    pub(super) fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.right.verb.as_str())
    }
}

/// All that an account was allowed so far.
pub(super) fn requests(log: &Path, user: &str) -> Vec<Request> {
    let lines = BufReader::new(std::fs::File::open(log).unwrap()).lines();
    let of_user = lines.map_while(Result::ok).filter(|line| line.contains(user));
    of_user.filter_map(|line| Request::of(&line, user)).collect()
}

#[test]
fn a_request_counts_as_the_right_that_it_needed_and_only_where_it_was_allowed() {
    let line = |user: &str, decision: &str, reference: &Value| {
        let entry = serde_json::json!({
            "verb": "patch", "user": { "username": user }, "objectRef": reference,
            "annotations": { "authorization.k8s.io/decision": decision },
        });
        entry.to_string()
    };
    let status = serde_json::json!({
        "resource": "machines", "subresource": "status", "apiGroup": "cluster.x-k8s.io", "name": "m",
    });
    let found = Request::of(&line("me", "allow", &status), "me").unwrap();
    assert_eq!(found.right, Right::new("patch", "cluster.x-k8s.io", "machines/status"));
    assert!(found.is_write() && found.name == "m");
    assert!(Request::of(&line("me", "forbid", &status), "me").is_none());
    assert!(Request::of(&line("other", "allow", &status), "me").is_none());
    assert!(Request::of(&line("me", "allow", &Value::Null), "me").is_none());
    let core =
        Request::of(&line("me", "allow", &serde_json::json!({ "resource": "secrets" })), "me");
    assert_eq!(core.unwrap().right.to_string(), "patch secrets");
}

//! All reads: a host and its node as they are now.

use api_types::metal3::CachedHost;
use controller_kit::api_error::unless_gone;
use ironic::{Class, Detail};
use kube::{Api, Client};

use crate::error::{Error, asked};
use crate::index::NodeKey;
use crate::limits::Ironic;
use crate::seen::{Node, NodeSeen};

/// Whether a node can have this identity or name. There is none with another, so nobody has to be asked.
fn is_name(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    !id.is_empty() && id.len() <= 255 && !matches!(id, "." | "..") && id.chars().all(allowed)
}

/// What decisions depend on, of one node and in a list.
pub(crate) const FIELDS: Detail = Detail::Fields(&[
    "uuid",
    "name",
    "power_state",
    "target_power_state",
    "provision_state",
    "last_error",
    "maintenance",
    "disable_power_off",
]);

/// Reads the host, without what makes it large.
pub async fn host(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<CachedHost>, Error> {
    let api: Api<CachedHost> = Api::namespaced(client.clone(), namespace);
    asked("read the host", async { unless_gone(api.get(name).await) }).await
}

/// Reads the node, and under which names Ironic knows it. `with_time` also reads when it last changed, which costs Ironic
/// more.
pub async fn node(ironic: &Ironic, id: &str, with_time: bool) -> (NodeSeen, Vec<NodeKey>) {
    if !is_name(id) {
        return (NodeSeen::Missing, Vec::new());
    }
    if let Some(problem) = ironic.breaker.is_open() {
        return (NodeSeen::Unanswered { lasting: true, problem }, Vec::new());
    }
    let detail = |full: bool| if full { Detail::Full } else { FIELDS };
    let mut answer = ironic.client.node(id, detail(with_time)).await;
    if !with_time && answer.as_ref().is_ok_and(|node| node.disable_power_off == Some(true)) {
        answer = ironic.client.node(id, detail(true)).await;
    }
    ironic.breaker.note(Some(id), answer.as_ref().err());
    match answer {
        Ok(node) => {
            let seen = NodeSeen::Seen(Node::of(&node));
            let names = std::iter::once(node.uuid).chain(node.name);
            (seen, names.filter_map(|name| NodeKey::of(&name)).collect())
        }
        Err(error) if error.class() == Class::NotFound => (NodeSeen::Missing, Vec::new()),
        Err(error) => {
            let lasting = ironic.breaker.is_open().is_some();
            (NodeSeen::Unanswered { lasting, problem: error.to_string() }, Vec::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_node_is_none() {
        for id in ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "ns~a.b_c-1"] {
            assert!(is_name(id), "{id}");
        }
        for id in ["", ".", "..", "a/b", "a b", "a?b", "\u{e4}"] {
            assert!(!is_name(id), "{id:?}");
        }
    }
}

//! The Node of a machine that is up: what is done about what was found.
//!
//! Cluster API knows a Node by its provider ID, and a kubelet that was not told one says none. Whoever writes it says for
//! good whose Node that is: the API server lets nobody change it, and a wrong one would have a machine drained or switched
//! off for another's trouble. So it is written only on the one Node that has the uid of the machine's own host as a label
//! and that lives. The label alone is not enough: a Node that the host's machine before left behind has it, too. And the
//! same hostname is no proof at all: it is that of the inspection, and may be another host's by now.

use std::time::Duration;

use api_types::names::capi::CONDITION_READY;
use controller_kit::engine::Reason as _;
use k8s_openapi::jiff::Timestamp;

use crate::machine::up;
use crate::model::MachineSeen;
use crate::reason::Reason;
use crate::seen::{Node, NodeSeen};
use crate::status::{self, Said};
use crate::text;

/// How long a machine that is up may have no Node before that is told: a server takes its time to start.
const NODE_MISSING_AFTER: Duration = Duration::from_secs(1200);
/// How soon to look for a Node again, at first and at last: less often the longer its machine has been up.
const FIRST_NODE_LOOK: Duration = Duration::from_secs(20);
const LAST_NODE_LOOK: Duration = Duration::from_secs(60);

/// What follows for a machine.
#[derive(Default)]
pub(super) struct Found {
    /// The Node that gets the provider ID of its machine.
    pub(super) named: Option<Node>,
    /// What a person should know of it.
    pub(super) said: Option<Said>,
    pub(super) again: Option<Duration>,
}

/// What is done about what was found. What was said stays until a look shows something else.
pub(super) fn about_node(seen: &MachineSeen, now: Timestamp) -> Found {
    let Some(sought) = seen.sought() else { return Found::default() };
    let ready = status::reported(&seen.machine, CONDITION_READY).filter(|it| it.is_true());
    let up = up(&seen.machine, now);
    let told = [Reason::NodeForeign, Reason::NodeAmbiguous, Reason::NodeMissing];
    let told = told.into_iter().find_map(|reason| {
        let ready = ready.filter(|it| it.reason.as_deref() == Some(reason.as_str()))?;
        Some(Said::yes(reason, ready.message.as_deref().unwrap_or_default()))
    });
    let missing =
        |text: &str| (up >= NODE_MISSING_AFTER).then(|| Said::yes(Reason::NodeMissing, text));
    let mut named = None;
    let said = match &seen.node {
        NodeSeen::Unasked => told,
        NodeSeen::Unanswered(why) => told.or_else(|| missing(&text::node_unknown(why))),
        // Cluster API will find it.
        NodeSeen::Seen(nodes) if nodes.iter().any(|it| it.provider_id == sought.provider_id) => {
            None
        }
        NodeSeen::Seen(nodes) => match nodes.iter().filter(|it| it.lives).collect::<Vec<_>>()[..] {
            [] => told
                .filter(|it| it.reason != Reason::NodeMissing)
                .or_else(|| missing(&text::node_missing(&sought))),
            [one] if one.provider_id.is_empty() => {
                let provider_id = sought.provider_id.to_owned();
                named = Some(Node { provider_id, ..(*one).clone() });
                None
            }
            [one] => Some(Said::yes(Reason::NodeForeign, &text::node_foreign(one, &sought))),
            [one, other, ..] => {
                Some(Said::yes(Reason::NodeAmbiguous, &text::nodes_ambiguous(one, other, &sought)))
            }
        },
    };
    Found { named, said, again: Some(up.clamp(FIRST_NODE_LOOK, LAST_NODE_LOOK)) }
}

//! Which member of each control plane may begin. Exclusive within this process: a member looks at the hosts of the others before its
//! key is on its own, and two that look at the same moment would both find nobody.

use std::collections::HashMap;

use controller_kit::engine::{ObjectKey, Shared};

/// The turns, by Cluster.
#[derive(Default)]
pub struct Turns(Shared<HashMap<ObjectKey, Turn>>);

/// A request has the turn from before it looks at the hosts of the others until its first writes are answered: from then on the
/// record on its host says it to everybody.
struct Turn {
    uid: String,
    machine: String,
}

impl Turns {
    /// Takes the turn of a Cluster for a request. Where another one has it: the Machine of that.
    pub fn take(&self, cluster: &ObjectKey, uid: &str, machine: &str) -> Option<String> {
        self.0.with(|all| {
            let turn = all
                .entry(cluster.clone())
                .or_insert_with(|| Turn { uid: uid.to_owned(), machine: machine.to_owned() });
            (turn.uid != uid).then(|| turn.machine.clone())
        })
    }

    /// Whether a request has a turn.
    pub fn has(&self, uid: &str) -> bool {
        self.0.with(|all| all.values().any(|it| it.uid == uid))
    }

    /// The turn of a request ends, if it has one.
    pub fn end(&self, uid: &str) {
        self.0.with(|all| all.retain(|_, it| it.uid != uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_has_the_turn_of_a_cluster_until_it_ends() {
        let turns = Turns::default();
        let [a, b] =
            ["a", "b"].map(|it| ObjectKey { namespace: "ns".to_owned(), name: it.to_owned() });
        assert_eq!(turns.take(&a, "uid-2", "cp-2"), None);
        assert_eq!(turns.take(&a, "uid-0", "cp-0").as_deref(), Some("cp-2"));
        assert_eq!(turns.take(&a, "uid-2", "cp-2"), None, "its own, once more");
        assert_eq!(turns.take(&b, "uid-0", "cp-0"), None, "of another Cluster");
        turns.end("uid-1");
        assert!(turns.has("uid-2") && turns.has("uid-0") && !turns.has("uid-1"));
        turns.end("uid-2");
        assert_eq!(turns.take(&a, "uid-1", "cp-1"), None);
    }
}

//! One client per workload cluster, made from the secret `<cluster>-kubeconfig` and dropped when the cluster goes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use controller_kit::engine::{ObjectKey, Shared};
use controller_kit::{api_error, kubeconfig};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::settings::NAME;

/// One answer of a workload cluster.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long a kubeconfig is used before it is read again: certificates are renewed in it.
const FRESH: Duration = Duration::from_secs(60);
/// What nobody has used for so long is dropped: a client that is idle, and a trouble that nobody asks about any more.
const IDLE: Duration = Duration::from_secs(300);

/// Until when a cluster or a node that did not answer is left alone, so that hundreds of requests do not wait one by one: for as long
/// as one look may take, which reads a kubeconfig and then a node.
fn rested() -> Instant {
    Instant::now() + 2 * PATIENCE
}

/// The clients.
pub struct Clusters {
    management: Client,
    known: Shared<HashMap<ObjectKey, Known>>,
}

#[derive(Default)]
struct Known {
    client: Option<Client>,
    read: Option<Instant>,
    trouble: Option<(Instant, String)>,
    used: Option<Instant>,
    /// When it last answered.
    answered: Option<Instant>,
    /// Nodes that cannot be read or do not take a write, until when they are left alone, and why.
    refusing: HashMap<String, (Instant, String)>,
}

impl Clusters {
    /// No clients yet.
    pub fn new(management: Client) -> Self {
        Self { management, known: Shared::default() }
    }

    /// What is known of a cluster, or is to be known from now on.
    fn with<R>(&self, cluster: &ObjectKey, step: impl FnOnce(&mut Known) -> R) -> R {
        self.known.with(|known| step(known.entry(cluster.clone()).or_default()))
    }

    /// How many clients there are, and how many of their clusters do not answer.
    pub fn counts(&self) -> (usize, usize) {
        self.known.with(|known| {
            let troubled = known.values().filter(|it| it.trouble.is_some()).count();
            (known.values().filter(|it| it.client.is_some()).count(), troubled)
        })
    }

    /// The cluster is gone: its client is closed.
    pub fn forget(&self, cluster: &ObjectKey) {
        self.known.with(|known| known.remove(cluster));
    }

    /// Drops what nobody needs any more.
    pub fn tidy(&self, now: Instant) {
        let idle = |used: Instant| now.saturating_duration_since(used) > IDLE;
        self.known.with(|known| known.retain(|_, it| it.used.is_some_and(|used| !idle(used))));
    }

    /// Notes that a cluster did not answer: for a moment nobody asks it.
    pub fn failed(&self, cluster: &ObjectKey, why: &str) {
        self.with(cluster, |it| {
            it.trouble = Some((rested(), why.to_owned()));
            it.used = Some(Instant::now());
            // The next one who asks reads the kubeconfig again: it may be the reason.
            it.read = None;
        });
    }

    /// Notes that one node cannot be read or written: for a moment it counts as one that cannot be asked, which has a deadline.
    /// The other nodes of its cluster are looked at all the same.
    pub fn refused(&self, cluster: &ObjectKey, node: &str, why: &str) {
        self.with(cluster, |it| {
            it.refusing.insert(node.to_owned(), (rested(), why.to_owned()));
            it.used = Some(Instant::now());
        });
    }

    /// Notes that a node could not be read by a request that was sent then, with an error or without any answer. Its cluster is
    /// left alone for that, unless it has answered since or says something of this one node: a hundred others wait for theirs.
    pub fn unread(
        &self,
        (cluster, node): (&ObjectKey, &str),
        sent: Instant,
        error: Option<&kube::Error>,
        why: &str,
    ) {
        match error {
            Some(kube::Error::SerdeError(_)) => self.answered(cluster),
            Some(kube::Error::Api(status)) if status.code == 404 => self.answered(cluster),
            _ => {}
        }
        if self.with(cluster, |it| it.answered > Some(sent)) {
            self.refused(cluster, node, why);
        } else {
            self.failed(cluster, why);
        }
    }

    /// Why a node is left alone just now, if it is.
    pub fn refusal(&self, cluster: &ObjectKey, node: &str) -> Option<String> {
        self.known.with(|known| {
            let it = known.get_mut(cluster)?;
            it.refusing.retain(|_, (until, _)| *until > Instant::now());
            it.refusing.get(node).map(|(_, why)| why.clone())
        })
    }

    /// Notes that a cluster answered.
    pub fn answered(&self, cluster: &ObjectKey) {
        self.with(cluster, |it| (it.trouble, it.answered) = (None, Some(Instant::now())));
    }

    /// The client of a cluster; the error says why there is none, and what to do.
    pub async fn client(&self, cluster: &ObjectKey) -> Result<Client, String> {
        if let Some(known) = self.at_hand(cluster) {
            return known;
        }
        let made = self.make(cluster).await;
        if let Err(why) = &made {
            self.failed(cluster, why);
        }
        made
    }

    /// What is known without asking: a client, or why there is none.
    fn at_hand(&self, cluster: &ObjectKey) -> Option<Result<Client, String>> {
        let now = Instant::now();
        self.known.with(|known| {
            let it = known.get_mut(cluster)?;
            it.used = Some(now);
            if let Some((until, why)) = &mut it.trouble {
                if *until > now {
                    return Some(Err(why.clone()));
                }
                // One is enough to see whether it answers again. Would all of its requests wait for that side by side, those of
                // other clusters would have to wait for them.
                *until = rested();
            }
            let fresh = it.read.is_some_and(|read| now.saturating_duration_since(read) < FRESH);
            it.client.clone().filter(|_| fresh).map(Ok)
        })
    }

    async fn make(&self, cluster: &ObjectKey) -> Result<Client, String> {
        let secret_name = format!("{}-kubeconfig", cluster.name);
        let secrets: Api<Secret> = Api::namespaced(self.management.clone(), &cluster.namespace);
        let secret = tokio::time::timeout(PATIENCE, secrets.get(&secret_name))
            .await
            .map_err(|_| format!("the secret {secret_name} could not be read in time"))?
            .map_err(|error| {
                format!("the secret {secret_name} cannot be read: {}", api_error::explain(&error))
            })?;
        let client = kubeconfig::client(NAME, &secret, PATIENCE, None).await?;
        let now = Some(Instant::now());
        self.with(cluster, |it| (it.client, it.read, it.used) = (Some(client.clone()), now, now));
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use controller_kit::engine::ObjectKey;
    use kube::Client;
    use kube::core::Status;

    use super::{Clusters, IDLE, Known};

    fn cluster(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[tokio::test]
    async fn a_cluster_that_nobody_asks_any_more_is_not_called_unreachable_for_ever() {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let clusters = Clusters::new(Client::try_from(nowhere).unwrap());
        clusters.failed(&cluster("ns", "c"), "no answer");
        clusters.tidy(Instant::now());
        assert_eq!(clusters.counts(), (0, 1), "somebody may still be asking");
        clusters.tidy(Instant::now() + IDLE * 2);
        assert_eq!(clusters.counts(), (0, 0));
    }

    #[tokio::test]
    async fn of_a_cluster_that_is_gone_no_client_is_left_and_nothing_is_known() {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(nowhere).unwrap();
        let clusters = Clusters::new(client.clone());
        let all = [cluster("ns", "c"), cluster("ns", "d"), cluster("other", "c")];
        for it in all.clone() {
            let (client, read) = (Some(client.clone()), Some(Instant::now()));
            let known = Known { client, read, ..Known::default() };
            clusters.known.with(|all| all.insert(it, known));
        }
        clusters.refused(&all[0], "n", "forbidden");
        assert!(clusters.at_hand(&all[0]).is_some_and(|it| it.is_ok()));
        clusters.forget(&all[0]);
        assert!(
            clusters.at_hand(&all[0]).is_none(),
            "one that is made anew has its own kubeconfig"
        );
        assert_eq!(clusters.refusal(&all[0], "n"), None, "and nodes of its own");
        for it in &all[1..] {
            assert!(clusters.at_hand(it).is_some_and(|it| it.is_ok()), "{it:?}");
        }
        assert_eq!(clusters.counts(), (2, 0));
    }

    #[tokio::test]
    async fn one_who_asks_is_enough_to_see_whether_a_cluster_answers_again() {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let clusters = Clusters::new(Client::try_from(nowhere).unwrap());
        let name = cluster("ns", "c");
        clusters.failed(&name, "no answer");
        assert!(clusters.at_hand(&name).unwrap().is_err(), "it is left alone for a moment");
        let over = Some((Instant::now(), "no answer".to_owned()));
        clusters.with(&name, |it| it.trouble = over);
        assert!(clusters.at_hand(&name).is_none(), "who comes first asks");
        assert!(clusters.at_hand(&name).unwrap().is_err(), "the others do not wait beside it");
        clusters.answered(&name);
        assert!(clusters.at_hand(&name).is_none());
    }

    #[tokio::test]
    async fn a_node_that_takes_no_write_does_not_hide_the_others_of_its_cluster() {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let clusters = Clusters::new(Client::try_from(nowhere).unwrap());
        clusters.refused(&cluster("ns", "c"), "n", "forbidden");
        assert_eq!(clusters.refusal(&cluster("ns", "c"), "n").as_deref(), Some("forbidden"));
        for (name, node) in [("c", "other"), ("d", "n")] {
            assert_eq!(clusters.refusal(&cluster("ns", name), node), None);
        }
        assert_eq!(clusters.counts(), (0, 0), "the cluster answers");
    }

    /// One that cannot be decoded, that something on the way has lost, or whose answer alone did not come.
    #[tokio::test]
    async fn a_node_that_cannot_be_read_does_not_hide_the_others_of_its_cluster() {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(nowhere).unwrap();
        let name = cluster("ns", "c");
        let (sent, answered) = (Instant::now(), Instant::now() + IDLE);
        let is_hidden = |error: Option<kube::Error>, answered: Option<Instant>| {
            let clusters = Clusters::new(client.clone());
            clusters.with(&name, |it| it.answered = answered);
            clusters.unread((&name, "n"), sent, error.as_ref(), "why");
            let is_of_node = clusters.refusal(&name, "n").is_some();
            assert_eq!(clusters.counts().1, usize::from(!is_of_node), "either of the two");
            !is_of_node
        };
        let status =
            |code| Some(kube::Error::Api(Box::new(Status { code, ..Status::failure("no", "No") })));
        let undecodable =
            || serde_json::from_str::<u32>("{").map_err(kube::Error::SerdeError).err();
        assert!(!is_hidden(undecodable(), None) && !is_hidden(status(404), None));
        assert!(!is_hidden(None, Some(answered)), "it answers others");
        assert!(!is_hidden(status(500), Some(answered)), "one of its servers does not");
        for error in [None, status(401), status(403), status(500)] {
            assert!(is_hidden(error, Some(sent)), "nobody has an answer since");
        }
    }
}

//! Who came and went in which order, across kinds.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use futures_util::TryStreamExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::objects::Kind;
use super::until::PATIENCE;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was made.
    Made,
    /// Somebody asked for its deletion; finalizers still hold it.
    Going,
    /// It is gone.
    Gone,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// etcd's revision. All kinds of one API server count on the same clock, so entries of two watches can be compared.
    pub revision: u64,
    /// What happened.
    pub change: Change,
    /// To which kind.
    pub kind: &'static str,
    /// To which object.
    pub name: String,
}

/// Watches kinds in one namespace from the moment it is made, and keeps what happened.
#[derive(Debug)]
pub struct Timeline {
    entries: watch::Receiver<Vec<Seen>>,
    _watches: JoinSet<()>,
}

impl Timeline {
    /// Begins to watch. Objects that are there already count as made now.
    pub fn start(client: &kube::Client, namespace: &str, kinds: &[Kind]) -> Self {
        let (sender, entries) = watch::channel(Vec::new());
        let mut watches = JoinSet::new();
        for kind in kinds.iter().copied() {
            let (api, sender) = (kind.api(client, namespace), sender.clone());
            watches.spawn(async move {
                let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
                let (mut made, mut going) = (BTreeSet::new(), BTreeSet::new());
                loop {
                    // An error is followed by a new list; only the end of the stream is final.
                    match events.try_next().await {
                        Ok(None) => return,
                        Ok(Some(Event::Apply(object) | Event::InitApply(object))) => {
                            if made.insert(object.metadata.uid.clone()) {
                                record(&sender, Change::Made, kind, &object);
                            }
                            if object.metadata.deletion_timestamp.is_some()
                                && going.insert(object.metadata.uid.clone())
                            {
                                record(&sender, Change::Going, kind, &object);
                            }
                        }
                        Ok(Some(Event::Delete(object))) => {
                            record(&sender, Change::Gone, kind, &object);
                        }
                        Ok(Some(Event::Init | Event::InitDone)) | Err(_) => {}
                    }
                }
            });
        }
        Self { entries, _watches: watches }
    }

    /// Waits until the entries, in the order in which things happened, satisfy `holds`.
    ///
    /// # Errors
    /// When they do not within [`PATIENCE`]; the message lists them.
    pub async fn until(
        &self,
        what: &str,
        mut holds: impl FnMut(&[Seen]) -> bool,
    ) -> anyhow::Result<Vec<Seen>> {
        let mut entries = self.entries.clone();
        let reached = timeout(PATIENCE, entries.wait_for(|entries| holds(&ordered(entries)))).await;
        match reached {
            Ok(reached) => Ok(ordered(&reached.context("the watches ended")?)),
            Err(_) => bail!(
                "never seen within {PATIENCE:?}: {what}. Seen: {:#?}",
                ordered(&self.entries.borrow())
            ),
        }
    }
}

fn record(entries: &watch::Sender<Vec<Seen>>, change: Change, kind: Kind, object: &DynamicObject) {
    let revision =
        object.metadata.resource_version.as_deref().and_then(|revision| revision.parse().ok());
    let name = object.metadata.name.clone().unwrap_or_default();
    entries.send_modify(|entries| {
        entries.push(Seen {
            revision: revision.unwrap_or_default(),
            change,
            kind: kind.kind,
            name,
        });
    });
}

fn ordered(entries: &[Seen]) -> Vec<Seen> {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.revision);
    entries
}

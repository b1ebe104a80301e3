//! Waiting for what others do, by watching.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::TryStreamExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::{Instant, timeout_at};

/// How long a story waits for one thing. Cluster API looks again only every 15 s where it has nothing to watch, and
/// some things take several looks, so this is for failures only.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Watches objects until `holds` says yes, and returns those that it said yes to, by name.
///
/// # Errors
/// When it does not hold within [`PATIENCE`]: the message shows what was there instead.
pub async fn until(
    api: &Api<DynamicObject>,
    which: &watcher::Config,
    what: &str,
    mut holds: impl FnMut(&BTreeMap<String, DynamicObject>) -> bool,
) -> anyhow::Result<BTreeMap<String, DynamicObject>> {
    let deadline = Instant::now() + PATIENCE;
    let mut events = std::pin::pin!(watcher(api.clone(), which.clone()));
    let mut objects = BTreeMap::new();
    let mut listed = false;
    loop {
        let Ok(event) = timeout_at(deadline, events.try_next()).await else {
            bail!("never seen within {PATIENCE:?}: {what}. Last seen: {}", shown(&objects));
        };
        // A watch that breaks comes back by itself; the deadline is the judge.
        let Ok(event) = event else { continue };
        match event.with_context(|| format!("the watch ended while waiting for {what}"))? {
            Event::Init => {
                objects.clear();
                listed = false;
            }
            Event::InitApply(object) | Event::Apply(object) => {
                objects.insert(object.metadata.name.clone().unwrap_or_default(), object);
            }
            Event::InitDone => listed = true,
            Event::Delete(object) => {
                objects.remove(&object.metadata.name.unwrap_or_default());
            }
        }
        if listed && holds(&objects) {
            return Ok(objects);
        }
    }
}

/// [`until`] for one object by its name.
///
/// # Errors
/// Those of [`until`].
pub async fn until_one(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    mut holds: impl FnMut(&DynamicObject) -> bool,
) -> anyhow::Result<DynamicObject> {
    let which = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut found =
        until(api, &which, what, |objects| objects.get(name).is_some_and(&mut holds)).await?;
    found.remove(name).with_context(|| format!("{name} is gone"))
}

fn shown(objects: &BTreeMap<String, DynamicObject>) -> String {
    if objects.is_empty() {
        return "nothing".to_owned();
    }
    let each = objects.iter().map(|(name, object)| {
        let going =
            if object.metadata.deletion_timestamp.is_some() { " (being deleted)" } else { "" };
        format!("\n  {name}{going}: {}", object.data["status"])
    });
    each.collect()
}

//! Objects as whoever waits for a controller sees them.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::ready;

use anyhow::Context;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Error, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::PATIENCE;

/// Objects as they are and when they change.
pub(super) type Objects<K> = BoxStream<'static, watcher::Result<K>>;

/// Objects of one kind, as they are and when they change.
pub(super) fn objects<K>(api: Api<K>, which: watcher::Config) -> Objects<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    events(api, which).applied_objects().boxed()
}

/// The same from now on: the list with which a watch begins is left out.
pub(super) async fn from_now<K>(api: Api<K>) -> anyhow::Result<Objects<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = events(api, watcher::Config::default());
    while !matches!(events.try_next().await?, Some(watcher::Event::InitDone)) {}
    Ok(events.applied_objects().boxed())
}

/// Waits until so many different objects were seen of which that is so.
pub(super) async fn seen<K: Resource>(
    objects: &mut Objects<K>,
    count: u32,
    what: &str,
    mut is_so: impl FnMut(&K) -> bool,
) -> anyhow::Result<()> {
    let mut known = BTreeSet::new();
    while known.len() < usize::try_from(count)? {
        known.insert(next(objects, what, &mut is_so).await?.uid());
    }
    Ok(())
}

/// The next object of which that is so.
pub(super) async fn next<K>(
    objects: &mut Objects<K>,
    what: &str,
    mut is_so: impl FnMut(&K) -> bool,
) -> anyhow::Result<K> {
    let waiting = async {
        loop {
            let object = objects.try_next().await?.context("the watch ended")?;
            if is_so(&object) {
                return anyhow::Ok(object);
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("never: {what}"))?
}

fn events<K>(
    api: Api<K>,
    which: watcher::Config,
) -> BoxStream<'static, watcher::Result<watcher::Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(api, which).default_backoff().filter(|it| ready(!goes_on(it))).boxed()
}

/// Whether a watch comes again by itself. An API server that still fills its cache of a kind, as of one whose CRD just came,
/// sends it away for a moment. One that was not read while the controller worked has expired, and all is listed anew.
fn goes_on<T>(told: &watcher::Result<T>) -> bool {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    const GONE: u16 = 410;
    const TOO_MANY_REQUESTS: u16 = 429;
    let status = match told {
        Err(
            InitialListFailed(Error::Api(it))
            | WatchStartFailed(Error::Api(it))
            | WatchFailed(Error::Api(it))
            | WatchError(it),
        ) => Some(it),
        _ => None,
    };
    status.is_some_and(|it| [GONE, TOO_MANY_REQUESTS].contains(&it.code))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_watch_that_is_told_to_wait_or_has_expired_comes_again_and_no_other() {
        let refused = |code| -> Box<Status> {
            Status { code, ..Status::failure("refused", "Refused") }.boxed()
        };
        let all: [(watcher::Error, bool); 6] = [
            (watcher::Error::WatchError(refused(429)), true),
            (watcher::Error::WatchStartFailed(Error::Api(refused(429))), true),
            (watcher::Error::InitialListFailed(Error::Api(refused(429))), true),
            (watcher::Error::WatchStartFailed(Error::Api(refused(403))), false),
            (watcher::Error::WatchError(refused(500)), false),
            (watcher::Error::WatchError(refused(410)), true),
        ];
        for (error, wanted) in all {
            let shown = error.to_string();
            assert_eq!(goes_on::<()>(&Err(error)), wanted, "{shown}");
        }
        assert!(!goes_on(&Ok(())));
    }
}

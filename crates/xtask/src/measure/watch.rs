//! Objects as whoever waits for a controller sees them.

use std::fmt::Debug;
use std::future::ready;

use futures_util::{Stream, StreamExt};
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Error, Resource};
use serde::de::DeserializeOwned;

/// Objects of one kind, and what becomes of them.
pub(super) fn events<K>(
    api: Api<K>,
    which: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(api, which).default_backoff().filter(|it| ready(!is_told_to_wait(it)))
}

/// Each of them, as it is and when it changes.
pub(super) fn objects<K>(
    api: Api<K>,
    which: watcher::Config,
) -> impl Stream<Item = watcher::Result<K>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    events(api, which).applied_objects()
}

/// An API server that still fills its cache of a kind, as of one whose CRD just came, sends a watch away for a moment. It
/// comes again by itself.
fn is_told_to_wait<T>(told: &watcher::Result<T>) -> bool {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
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
    status.is_some_and(|it| it.code == TOO_MANY_REQUESTS)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_who_is_told_to_come_later_comes_again() {
        let refused = |code| -> Box<Status> {
            Status { code, ..Status::failure("refused", "Refused") }.boxed()
        };
        let all: [(watcher::Error, bool); 5] = [
            (watcher::Error::WatchError(refused(429)), true),
            (watcher::Error::WatchStartFailed(Error::Api(refused(429))), true),
            (watcher::Error::InitialListFailed(Error::Api(refused(429))), true),
            (watcher::Error::WatchStartFailed(Error::Api(refused(403))), false),
            (watcher::Error::WatchError(refused(410)), false),
        ];
        for (error, waits) in all {
            let shown = error.to_string();
            assert_eq!(is_told_to_wait::<()>(&Err(error)), waits, "{shown}");
        }
        assert!(!is_told_to_wait(&Ok(())));
    }
}

//! Whether this process leads: what the keeper of the lease found out, and everybody else asks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Whether this process leads. Clones share the answer.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Until when we hold it; `None` when we do not.
    fence: Mutex<Option<Instant>>,
    changed: watch::Sender<()>,
}

impl Leadership {
    /// Not held, until the lease is taken.
    pub(crate) fn none() -> Self {
        Self(Arc::new(Shared { fence: Mutex::new(None), changed: watch::Sender::new(()) }))
    }

    /// Held for good: there is no election.
    pub fn always() -> Self {
        let leadership = Self::none();
        // A century: there is no greatest instant.
        leadership.set(Some(Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600)));
        leadership
    }

    /// Whether we hold the lease at this moment, by our own clock and without asking anybody.
    pub fn is_held(&self) -> bool {
        self.fence().is_some_and(|fence| Instant::now() < fence)
    }

    /// Returns when the lease is not held any more, even if everything else is stuck.
    pub async fn until_lost(&self) {
        let mut changed = self.0.changed.subscribe();
        while let Some(fence) = self.fence().filter(|fence| Instant::now() < *fence) {
            tokio::select! {
                () = tokio::time::sleep_until(fence) => {}
                _ = changed.changed() => {}
            }
        }
    }

    pub(crate) async fn until_taken_and_lost(&self) {
        let mut changes = self.subscribe();
        while !self.is_held() {
            changes.next().await;
        }
        self.until_lost().await;
    }

    pub(crate) fn subscribe(&self) -> Changes {
        Changes(self.0.changed.subscribe())
    }

    fn fence(&self) -> Option<Instant> {
        *self.0.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, fence: Option<Instant>) {
        *self.0.fence.lock().unwrap_or_else(PoisonError::into_inner) = fence;
        self.0.changed.send_replace(());
    }
}

/// Waits for changes of leadership.
pub(crate) struct Changes(watch::Receiver<()>);

impl Changes {
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

//! Whether this process leads: what the keeper of the lease found out, and everybody else asks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Until when this process holds the lease; `None` until it is taken, and after it was lost. Clones share the answer.
#[derive(Clone, Debug, Default)]
pub struct Leadership(Arc<watch::Sender<Option<Instant>>>);

impl Leadership {
    /// Held for good: there is no election.
    pub fn always() -> Self {
        let leadership = Self::default();
        // A century: there is no greatest instant.
        leadership.set(Some(Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600)));
        leadership
    }

    /// Whether we hold the lease at this moment, by our own clock and without asking anybody.
    pub fn is_held(&self) -> bool {
        self.fence().is_some()
    }

    /// Returns when the lease was taken and is not held any more, even if everything else is stuck.
    pub(crate) async fn until_taken_and_lost(&self) {
        let mut changes = self.subscribe();
        // The sender is ours, so waiting cannot fail.
        while !self.is_held() {
            let _ = changes.changed().await;
        }
        while let Some(fence) = self.fence() {
            tokio::select! {
                () = tokio::time::sleep_until(fence) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Tells of each change from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Instant>> {
        self.0.subscribe()
    }

    /// Until when we hold the lease, if we do.
    fn fence(&self) -> Option<Instant> {
        let fence = *self.0.borrow();
        fence.filter(|fence| Instant::now() < *fence)
    }

    pub(crate) fn set(&self, fence: Option<Instant>) {
        self.0.send_replace(fence);
    }
}

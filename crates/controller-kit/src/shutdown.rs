//! One watcher of signals for the whole process; everything else holds a clone of its result.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// Says when the process is asked to end. Clones see the same request.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(Arc<watch::Sender<Option<Instant>>>);

impl Shutdown {
    /// Watches SIGTERM and SIGINT. Further signals change nothing: stopping takes under a second.
    pub fn on_signals() -> Result<Self, String> {
        let shutdown = Self::default();
        let watch = |kind| signal(kind).map_err(|error| format!("Cannot watch signals: {error}"));
        let mut term = watch(SignalKind::terminate())?;
        let mut int = watch(SignalKind::interrupt())?;
        let request = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => tracing::info!("Asked to end by SIGTERM"),
                _ = int.recv() => tracing::info!("Asked to end by SIGINT"),
            }
            request.request();
        });
        Ok(shutdown)
    }

    /// Asks everything to end.
    pub fn request(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    /// When the end was asked for.
    pub fn since(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Whether the end was asked for.
    pub fn is_requested(&self) -> bool {
        self.since().is_some()
    }

    /// Returns when the end is asked for. Owns what it needs, so it can be handed to other tasks.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        let sender = self.0.clone();
        async move {
            // The sender is ours, so waiting cannot fail.
            let _ = sender.subscribe().wait_for(Option::is_some).await;
        }
    }
}

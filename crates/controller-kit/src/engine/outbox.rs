//! Events on their way to the API server. Telling people never holds up a pass: a server that stores events apart may hang with
//! them while all else goes on.

use k8s_openapi::api::core::v1::ObjectReference;
use prometheus::IntCounter;
use tokio::sync::mpsc;

use crate::events::{Event, Events};

/// So many wait at most: when hundreds of machines fail at once, each of them is told of in several places and several times.
const MOST: usize = 10_000;

/// Events that are still to be told, in their order.
pub(super) type Untold = mpsc::Receiver<(ObjectReference, Event)>;

/// Where events are handed over; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    waiting: mpsc::Sender<(ObjectReference, Event)>,
    dropped: IntCounter,
}

impl Outbox {
    pub(super) fn new(dropped: IntCounter) -> (Self, Untold) {
        let (sender, waiting) = mpsc::channel(MOST);
        (Self { waiting: sender, dropped }, waiting)
    }

    /// Has an event told. Where too many wait it is dropped, and counted.
    pub(super) fn put(&self, object: ObjectReference, event: Event) {
        if self.waiting.try_send((object, event)).is_err() {
            self.dropped.inc();
        }
    }
}

/// Tells what waits, one after the other, until nobody is left who could hand anything over.
pub(super) async fn publish(mut waiting: Untold, events: &Events) {
    while let Some((object, event)) = waiting.recv().await {
        events.tell(&object, &event).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_dropped_and_counted_and_the_first_stays() {
        let dropped = IntCounter::new("dropped", "Dropped").unwrap();
        let (outbox, mut waiting) = Outbox::new(dropped.clone());
        for number in 0..MOST + 3 {
            let event = Event::new(false, "Some", "", &number.to_string());
            outbox.put(ObjectReference::default(), event);
        }
        assert_eq!((dropped.get(), waiting.len()), (3, MOST));
        assert_eq!(waiting.try_recv().unwrap().1.text, "0");
    }
}

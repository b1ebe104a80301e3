//! Events on their way to the API server. Telling people never holds up a pass: a server that stores events apart may hang with
//! them while all else goes on.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::ObjectReference;
use prometheus::IntCounter;
use tokio::sync::Notify;

use super::decision::Event;
use crate::events::Events;
use crate::shared::Shared;

/// So many wait at most: when hundreds of machines fail at once, each of them is told of in several places and several times.
const MOST: usize = 10_000;

/// What is still to be told, in its order.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: Shared<VecDeque<(ObjectReference, Event)>>,
    news: Notify,
    dropped: IntCounter,
}

impl Outbox {
    pub(super) fn new(dropped: IntCounter) -> Self {
        Self { waiting: Shared::default(), news: Notify::new(), dropped }
    }

    /// Has an event told. Where too many wait it is dropped, and counted.
    pub(super) fn put(&self, object: ObjectReference, event: Event) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MOST {
            self.dropped.inc();
            return;
        }
        waiting.push_back((object, event));
        drop(waiting);
        self.news.notify_one();
    }

    /// What waits, and on which objects it is to be told.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> Vec<(ObjectReference, Event)> {
        self.waiting.lock().iter().cloned().collect()
    }

    /// Tells what waits, one after the other.
    pub(super) async fn empty(&self, events: &Events) {
        while let Some((object, event)) = self.waiting.with(VecDeque::pop_front) {
            events.tell(&object, event.warning, &event.reason, &event.action, &event.text).await;
        }
    }

    /// The same for as long as the process works.
    pub(super) async fn publish(&self, events: &Events) {
        loop {
            self.empty(events).await;
            self.news.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_dropped_and_counted_and_the_first_stays() {
        let dropped = IntCounter::new("dropped", "Dropped").unwrap();
        let outbox = Outbox::new(dropped.clone());
        for number in 0..MOST + 3 {
            let event = Event::new(false, "Some", "", &number.to_string());
            outbox.put(ObjectReference::default(), event);
        }
        assert_eq!((dropped.get(), outbox.waiting.lock().len()), (3, MOST));
        assert_eq!(outbox.waiting.lock().front().unwrap().1.text, "0");
    }
}

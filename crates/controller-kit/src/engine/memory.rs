//! What a process remembers of each key between two passes. All of it can be forgotten: it saves work, or has to be
//! waited for once more.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use crate::events::Event;

/// How long it counts that something was told: an event lives as long.
const TOLD: Duration = Duration::from_secs(3600);

/// What is remembered of a key: what its controller needs, and what people were told.
#[derive(Debug, Default, PartialEq)]
pub struct Cell<M> {
    /// The controller's.
    pub own: M,
    told: BTreeMap<u64, Instant>,
}

impl<M> Cell<M> {
    /// Whether an event is to be told now.
    pub fn is_news(&mut self, event: &Event, now: Instant) -> bool {
        let Some(number) = event.hourly else { return true };
        let mut hasher = DefaultHasher::new();
        (&event.reason, &event.action, number).hash(&mut hasher);
        self.told.retain(|_, at| now.saturating_duration_since(*at) < TOLD);
        let fact = hasher.finish();
        let known = self.told.contains_key(&fact);
        self.told.entry(fact).or_insert(now);
        !known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_does_not_go_away_is_told_once_an_hour() {
        let (mut cell, now) = (Cell::<()>::default(), Instant::now());
        let fact =
            |number| Event { hourly: Some(number), ..Event::new(true, "Odd", "key", "It is odd") };
        assert!(cell.is_news(&fact(1), now) && !cell.is_news(&fact(1), now + TOLD / 2));
        assert!(cell.is_news(&fact(2), now), "another fact");
        assert!(cell.is_news(&Event { action: "other".to_owned(), ..fact(1) }, now));
        assert!(cell.is_news(&fact(1), now + TOLD) && !cell.is_news(&fact(1), now + TOLD));
        let plain = Event::new(false, "Done", "", "It is done");
        assert!(cell.is_news(&plain, now) && cell.is_news(&plain, now));
    }
}

//! Whether the caches show what a pass wrote beside the object of its key, whose own echo the engine waits for. A pass that
//! begins before would decide on the others as they were, and create once more what it cannot see yet. It is part of
//! what is remembered of a key.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the echo of a write is waited for. A cache shows our own writes long before; this is for a watch that broke just then.
pub(super) const ECHO: Duration = Duration::from_secs(2);

/// Objects that were written, and are not seen as they were left yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echoes<T: Ord>(BTreeMap<T, Wrote>);

/// What a write left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wrote {
    version: u64,
    may_go: bool,
    at: Instant,
}

impl<T: Ord> Default for Echoes<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Echoes<T> {
    /// An object was written and has this version now. `may_go`: it may be gone with that.
    pub fn wrote(&mut self, object: T, version: &str, may_go: bool) {
        // A server that does not number its versions is not waited for.
        if let Ok(version) = version.parse() {
            self.0.insert(object, Wrote { version, may_go, at: Instant::now() });
        }
    }

    /// Whether the caches are behind what was written. `shown` tells which version they have of an object.
    pub fn are_awaited(&mut self, now: Instant, shown: impl Fn(&T) -> Option<u64>) -> bool {
        self.0.retain(|object, wrote| {
            let is_shown = shown(object).map_or(wrote.may_go, |version| version >= wrote.version);
            !is_shown && now.saturating_duration_since(wrote.at) < ECHO
        });
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(version: &str, may_go: bool) -> (Echoes<u8>, Instant) {
        let mut echoes = Echoes::default();
        echoes.wrote(1, version, may_go);
        (echoes, Instant::now())
    }

    #[test]
    fn an_object_is_awaited_until_it_is_seen_as_it_was_left() {
        let (mut echoes, now) = wrote("7", false);
        assert!(echoes.are_awaited(now, |_| None) && echoes.are_awaited(now, |_| Some(6)));
        assert!(!echoes.are_awaited(now, |_| Some(7)));
        assert!(!echoes.are_awaited(now, |_| None), "it was seen once");
    }

    #[test]
    fn what_went_with_the_write_is_not_awaited() {
        let (mut echoes, now) = wrote("7", true);
        assert!(!echoes.are_awaited(now, |_| None));
    }

    #[test]
    fn a_watch_that_broke_is_not_awaited_for_ever() {
        let (mut echoes, now) = wrote("7", false);
        assert!(echoes.are_awaited(now, |_| Some(6)));
        assert!(!echoes.are_awaited(now + ECHO, |_| Some(6)));
        let (mut echoes, now) = wrote("x", false);
        assert!(!echoes.are_awaited(now, |_| None), "it is no number");
    }
}

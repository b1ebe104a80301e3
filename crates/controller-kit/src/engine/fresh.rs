//! Whether a change that a watch tells of is news: not so, if it is our own write, or what a pass has decided upon already. And
//! whether the cache shows our own write yet: a pass that begins before would decide on the object as it was. Pure.
//!
//! Versions of one object are compared by their number, which grows with every write. A server that numbers them otherwise
//! costs one more look for each write.

use std::collections::BTreeMap;

/// What was decided upon, by key.
#[derive(Debug)]
pub struct Fresh<K>(BTreeMap<K, Known>);

/// What is known of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The version that needs no look any more, nor any before it.
    settled: Option<u64>,
    /// The latest version that the watch has told of, while a pass is under way or its write is waited for.
    seen: Option<u64>,
    /// Since a pass began somebody wants a look whatever the version is.
    other: bool,
}

/// What follows from the end of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// All that was asked for meanwhile is answered.
    pub answered: bool,
    /// The cache does not show yet what was written.
    pub stale: bool,
}

impl<K> Default for Fresh<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Clone + Ord> Fresh<K> {
    /// The watch tells of a version of the key's object. Says whether it is to be looked at.
    pub fn is_news(&mut self, key: &K, version: &str) -> bool {
        let known = self.0.entry(key.clone()).or_default();
        let Ok(version) = version.parse() else {
            known.other = true;
            return true;
        };
        if known.seen > Some(version) {
            // A watch only goes on. The API server's database was restored, and what was known is of another history.
            *known = Known { other: true, ..Known::default() };
        }
        known.seen = Some(version);
        known.settled.is_none_or(|settled| version > settled)
    }

    /// Somebody wants a look for another reason.
    pub fn asked(&mut self, key: &K) {
        if let Some(known) = self.0.get_mut(key) {
            known.other = true;
        }
    }

    /// A pass begins.
    pub fn begins(&mut self, key: &K) {
        self.0.entry(key.clone()).or_default().other = false;
    }

    /// It has ended with a decision on this version of the object, or after writing it.
    pub fn ended(&mut self, key: &K, version: Option<&str>, wrote: bool) -> Ended {
        let Some(known) = self.0.get_mut(key) else { return Ended::default() };
        let Some(settled) = version.and_then(|it| it.parse().ok()) else {
            if known.settled.is_none() {
                self.0.remove(key);
            }
            return Ended::default();
        };
        known.settled = known.settled.max(Some(settled));
        Ended {
            answered: !known.other && known.seen <= Some(settled),
            stale: wrote && known.seen < Some(settled),
        }
    }

    /// Whether the watch has told of all that was decided upon.
    pub fn is_fresh(&self, key: &K) -> bool {
        self.0.get(key).is_none_or(|known| known.seen >= known.settled)
    }

    /// There is no such key any more.
    pub fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERED: Ended = Ended { answered: true, stale: false };
    const STALE: Ended = Ended { answered: true, stale: true };

    #[test]
    fn the_echo_of_a_write_is_no_news_whenever_it_comes() {
        let mut fresh = Fresh::default();
        assert!(fresh.is_news(&"a", "5"));
        fresh.begins(&"a");
        assert!(fresh.is_news(&"a", "6"), "it may be somebody else's");
        assert_eq!(fresh.ended(&"a", Some("7"), true), STALE, "it was ours");
        assert!(!fresh.is_fresh(&"a"), "the cache has not got the last one");
        assert!(!fresh.is_news(&"a", "6") && !fresh.is_news(&"a", "7"));
        assert!(fresh.is_fresh(&"a") && fresh.is_fresh(&"b"));
        assert!(fresh.is_news(&"a", "8") && fresh.is_news(&"b", "7"));
        fresh.begins(&"a");
        assert!(fresh.is_news(&"a", "9"));
        assert_eq!(fresh.ended(&"a", Some("9"), true), ANSWERED, "its echo came first");
    }

    #[test]
    fn what_others_do_while_a_key_is_worked_on_is_news() {
        let mut fresh = Fresh::default();
        fresh.begins(&"a");
        assert!(fresh.is_news(&"a", "9"));
        assert_eq!(fresh.ended(&"a", Some("7"), false), Ended::default(), "7 was decided upon");
        fresh.begins(&"a");
        fresh.asked(&"a");
        let ended = fresh.ended(&"a", Some("9"), false);
        assert_eq!(ended, Ended::default(), "somebody knows more than the object says");
        fresh.begins(&"a");
        assert_eq!(fresh.ended(&"a", Some("9"), false), ANSWERED);
    }

    /// Whoever asks for something then would wait until the versions are where they were.
    #[test]
    fn a_version_that_went_back_is_news_as_the_database_was_restored() {
        for wrote in [false, true] {
            let mut fresh = Fresh::default();
            assert!(fresh.is_news(&"a", "1000"));
            fresh.begins(&"a");
            fresh.ended(&"a", Some("1000"), wrote);
            assert!(!fresh.is_news(&"a", "1000"));
            assert!(fresh.is_news(&"a", "480") && fresh.is_fresh(&"a"), "wrote: {wrote}");
            assert!(fresh.is_news(&"a", "481"));
            fresh.begins(&"a");
            assert_eq!(fresh.ended(&"a", Some("481"), false), ANSWERED);
            assert!(!fresh.is_news(&"a", "481"));
        }
    }

    #[test]
    fn a_pass_that_failed_settles_nothing() {
        let mut fresh = Fresh::default();
        fresh.begins(&"a");
        assert_eq!(fresh.ended(&"a", None, false), Ended::default());
        assert!(fresh.is_news(&"a", "1"));
        fresh.begins(&"a");
        fresh.ended(&"a", Some("3"), true);
        fresh.begins(&"a");
        assert_eq!(fresh.ended(&"a", None, false), Ended::default());
        assert!(!fresh.is_news(&"a", "3"));
        fresh.forget(&"a");
        assert!(fresh.is_news(&"a", "3"), "another object may have been made under its name");
    }

    #[test]
    fn a_version_that_is_no_number_is_always_news_and_waited_for_by_nobody() {
        let mut fresh = Fresh::default();
        fresh.begins(&"a");
        assert!(fresh.is_news(&"a", "x"));
        assert_eq!(fresh.ended(&"a", Some("7"), false), Ended::default());
        fresh.begins(&"a");
        assert_eq!(fresh.ended(&"a", Some("y"), true), Ended::default());
        assert!(fresh.is_news(&"a", "y"));
    }
}

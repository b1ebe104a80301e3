//! Which keys are concerned by what: found by the thing that changed, without looking at all keys.
//!
//! A thing may have several names, of which each key knows one: a node its UUID and its name. Whoever has looked at the
//! thing tells the others, so that two keys which name one thing differently are found to share it.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher as _};
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::shared::Shared;

/// A name of a thing in eight bytes: ten thousand texts would be larger than all else that is remembered of their things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThingName(NonZeroU64);

impl ThingName {
    /// None where there is no name.
    pub fn of(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            Self(NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN))
        })
    }
}

/// Keys by thing; clones share them.
#[derive(Clone, Debug)]
pub struct Links<K>(Arc<Shared<Inner<K>>>);

/// Keys stand here once each: an index of ten thousand objects is to be small beside the objects.
#[derive(Debug)]
struct Inner<K> {
    things: HashMap<Arc<K>, Names>,
    keys: BTreeSet<(ThingName, Arc<K>)>,
    /// The key before all others.
    first: Arc<K>,
}

/// What a thing is called: first by the object of a key, and then by itself. Whoever gives it any of these names means the same
/// one.
type Names = [Option<ThingName>; 3];

/// Those of the first that are none of the second.
fn only(of: Names, without: Names) -> impl Iterator<Item = ThingName> {
    of.into_iter().filter(move |it| !without.contains(it)).flatten()
}

impl<K: Default> Default for Links<K> {
    fn default() -> Self {
        let (things, keys, first) = (HashMap::new(), BTreeSet::new(), Arc::default());
        Self(Arc::new(Shared::new(Inner { things, keys, first })))
    }
}

impl<K: Clone + Ord + Hash> Inner<K> {
    fn names(&self, key: &K) -> Names {
        self.things.get(key).copied().unwrap_or_default()
    }

    /// The keys that stand under a name of a thing.
    fn under(&self, thing: ThingName) -> impl Iterator<Item = &K> {
        let begin = (thing, self.first.clone());
        self.keys.range(begin..).take_while(move |(it, _)| *it == thing).map(|(_, key)| &**key)
    }

    /// Enters a key under these names of its thing, and under no other. Gives the keys whose neighbours changed by that.
    fn place(&mut self, key: &K, now: Names) -> Vec<K> {
        let known = self.things.remove_entry(key);
        let (key, before) = known.unwrap_or_else(|| (Arc::new(key.clone()), Names::default()));
        for gone in only(before, now) {
            self.keys.remove(&(gone, key.clone()));
        }
        let changed = only(before, now).chain(only(now, before));
        let others = changed.flat_map(|it| self.under(it)).cloned().collect();
        self.keys.extend(only(now, before).map(|new| (new, key.clone())));
        if now != Names::default() {
            self.things.insert(key, now);
        }
        others
    }
}

impl<K: Clone + Ord + Hash> Links<K> {
    /// Takes notice of a key that appeared, changed or went: what it calls its thing now, or nothing. Gives the keys whose
    /// neighbours changed by that.
    pub fn update(&self, key: &K, thing: Option<&str>) -> Vec<K> {
        let mut inner = self.0.lock();
        let named = thing.and_then(ThingName::of);
        if inner.names(key)[0] == named {
            Vec::new()
        } else {
            inner.place(key, [named, None, None])
        }
    }

    /// Takes notice of what else the thing is called that a key names so. Gives the keys whose neighbours changed by that.
    pub fn learn(&self, key: &K, thing: &str, names: &[ThingName]) -> Vec<K> {
        let mut inner = self.0.lock();
        let own = ThingName::of(thing);
        let mut others = names.iter().copied().filter(|it| Some(*it) != own);
        let (now, before) = ([own, others.next(), others.next()], inner.names(key));
        // One that has gone meanwhile is not entered again.
        let is_news = own.is_some() && before != Names::default() && before != now;
        if is_news { inner.place(key, now) } else { Vec::new() }
    }

    /// Another key with this thing, whichever of its names either of them gives.
    pub fn other(&self, key: &K, thing: &str) -> Option<K> {
        let inner = self.0.lock();
        let [_, also @ ..] = inner.names(key);
        let names = ThingName::of(thing).into_iter().chain(also.into_iter().flatten());
        let there = names.flat_map(|name| inner.under(name));
        // Always the same one, as its name is told.
        there.filter(|it| *it != key).min().cloned()
    }

    /// The keys whose thing is called so.
    pub fn keys(&self, thing: &str) -> Vec<K> {
        let inner = self.0.lock();
        ThingName::of(thing).into_iter().flat_map(|name| inner.under(name)).cloned().collect()
    }

    /// The keys whose things are none of these.
    pub fn without(&self, things: &HashSet<ThingName>) -> Vec<K> {
        let inner = self.0.lock();
        let is_gone = |names: &Names| !names.iter().flatten().any(|it| things.contains(it));
        let keys = inner.things.iter().filter(|(_, names)| is_gone(names));
        keys.map(|(key, _)| K::clone(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn keys_with_one_thing_know_of_each_other_until_one_goes() {
        let links = Links::default();
        let (a, b) = (name("a"), name("b"));
        assert!(links.update(&a, Some("1")).is_empty());
        assert_eq!(links.update(&b, Some("1")), vec![a.clone()]);
        assert_eq!(links.other(&a, "1"), Some(b.clone()));
        assert_eq!(links.update(&b, Some("2")), vec![a.clone()]);
        assert_eq!(links.other(&a, "1"), None);
        links.update(&b, Some("1"));
        assert_eq!(links.update(&b, None), vec![a.clone()]);
        assert_eq!(links.other(&a, "1"), None);
        assert!(links.update(&a, Some("1")).is_empty(), "nothing changed");
    }

    #[test]
    fn keys_that_name_one_thing_differently_know_of_each_other_once_either_was_read() {
        let links = Links::default();
        let (a, b, ironics) =
            (name("a"), name("b"), ["u", "rack-7"].map(|it| ThingName::of(it).unwrap()));
        links.update(&a, Some("rack-7"));
        links.update(&b, Some("u"));
        assert_eq!((links.other(&a, "rack-7"), links.other(&b, "u")), (None, None));
        assert_eq!(links.learn(&b, "u", &ironics), vec![a.clone()], "it is looked at");
        assert_eq!(links.other(&b, "u"), Some(a.clone()));
        assert_eq!(links.other(&a, "rack-7"), Some(b.clone()), "before it was read itself");
        assert!(links.learn(&b, "u", &ironics).is_empty(), "nothing changed");
        assert_eq!(links.learn(&a, "rack-7", &ironics), vec![b.clone()]);
        // One that appears later is known at once, and one that is corrected is not any more.
        let c = name("c");
        assert_eq!(links.update(&c, Some("rack-7")), vec![a.clone(), b.clone()]);
        let mut left = links.update(&a, Some("elsewhere"));
        left.sort();
        left.dedup();
        assert_eq!(left, vec![b.clone(), c.clone()]);
        assert_eq!(links.other(&a, "elsewhere"), None);
        assert_eq!(links.update(&c, None), vec![b.clone()]);
        assert_eq!(links.other(&b, "u"), None);
        // A thing that is gone has no names.
        links.update(&c, Some("rack-7"));
        assert_eq!(links.learn(&b, "u", &[]), vec![c.clone()]);
        assert_eq!(links.other(&b, "u"), None);
        // A key that was corrected already, but whose change was not heard of yet.
        assert_eq!(links.learn(&c, "u", &ironics), vec![b.clone()]);
        assert_eq!(links.other(&c, "u"), Some(b));
        assert!(
            links.learn(&name("gone"), "u", &ironics).is_empty(),
            "who is not there learns nothing"
        );
    }

    #[test]
    fn keys_are_found_by_the_names_of_their_things_and_by_their_absence() {
        let links = Links::default();
        let (a, b) = (name("a"), name("b"));
        links.update(&a, Some("rack-7"));
        links.update(&b, Some("2"));
        let names = |of: &[&str]| of.iter().filter_map(|it| ThingName::of(it)).collect::<Vec<_>>();
        links.learn(&a, "rack-7", &names(&["u", "rack-7"]));
        assert_eq!((links.keys("u"), links.keys("rack-7")), (vec![a.clone()], vec![a.clone()]));
        assert!(links.keys("3").is_empty() && links.keys("").is_empty());
        let there = |of: &[&str]| links.without(&names(of).into_iter().collect());
        assert_eq!((there(&["u"]), there(&["2"])), (vec![b.clone()], vec![a.clone()]));
        assert!(there(&["rack-7", "2"]).is_empty());
    }
}

//! A collection from which anything can be taken at once, beginning anywhere.

use std::collections::HashMap;
use std::sync::Arc;

/// Names in no order, each with what it stands for: who takes one need not look that up.
pub(super) struct Bag<T> {
    items: Vec<(Arc<str>, T)>,
    places: HashMap<Arc<str>, usize>,
}

impl<T> Default for Bag<T> {
    fn default() -> Self {
        Self { items: Vec::new(), places: HashMap::new() }
    }
}

impl<T> Bag<T> {
    /// Adds a name; one that is there already stands for this from now on.
    pub(super) fn insert(&mut self, name: Arc<str>, it: T) {
        self.remove(&name);
        self.places.insert(name.clone(), self.items.len());
        self.items.push((name, it));
    }

    /// Takes a name out.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(place) = self.places.remove(name) else { return };
        self.items.swap_remove(place);
        if let Some((moved, _)) = self.items.get(place) {
            self.places.insert(moved.clone(), place);
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All of them once, from a place that `chance` says.
    pub(super) fn from(&self, chance: u64) -> impl Iterator<Item = &(Arc<str>, T)> {
        let length = u64::try_from(self.items.len()).unwrap_or(u64::MAX).max(1);
        let start = usize::try_from(chance % length).unwrap_or(0);
        let (before, after) = self.items.split_at(start.min(self.items.len()));
        after.iter().chain(before)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_map_would_hold_from_wherever_one_begins(
            turns in prop::collection::vec((any::<bool>(), 0_u8..9), 0..60), chance: u64,
        ) {
            let (mut bag, mut map) = (Bag::default(), BTreeMap::new());
            for (turn, (add, number)) in turns.into_iter().enumerate() {
                let name = number.to_string();
                if add {
                    bag.insert(name.as_str().into(), turn);
                    map.insert(name, turn);
                } else {
                    bag.remove(&name);
                    map.remove(&name);
                }
            }
            let all: Vec<(String, usize)> =
                bag.from(chance).map(|(name, turn)| (name.to_string(), *turn)).collect();
            prop_assert_eq!(all.len(), bag.len());
            prop_assert_eq!(all.into_iter().collect::<BTreeMap<_, _>>(), map);
        }
    }
}

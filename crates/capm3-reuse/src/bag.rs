//! A set from which anything can be taken at once, beginning anywhere.

use std::collections::HashMap;
use std::sync::Arc;

/// Names in no order.
#[derive(Default)]
pub struct Bag {
    items: Vec<Arc<str>>,
    places: HashMap<Arc<str>, usize>,
}

impl Bag {
    /// Adds a name; once is enough.
    pub fn insert(&mut self, name: Arc<str>) {
        if !self.places.contains_key(&name) {
            self.places.insert(name.clone(), self.items.len());
            self.items.push(name);
        }
    }

    /// Takes a name out.
    pub fn remove(&mut self, name: &str) {
        let Some(place) = self.places.remove(name) else { return };
        self.items.swap_remove(place);
        if let Some(moved) = self.items.get(place) {
            self.places.insert(moved.clone(), place);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All of them once, from a place that `chance` says.
    pub fn from(&self, chance: u64) -> impl Iterator<Item = &Arc<str>> {
        let length = u64::try_from(self.items.len()).unwrap_or(u64::MAX).max(1);
        let start = usize::try_from(chance % length).unwrap_or(0);
        let (before, after) = self.items.split_at(start.min(self.items.len()));
        after.iter().chain(before)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_set_would_hold_from_wherever_one_begins(
            turns in prop::collection::vec((any::<bool>(), 0_u8..9), 0..60), chance: u64,
        ) {
            let (mut bag, mut set) = (Bag::default(), BTreeSet::new());
            for (add, number) in turns {
                let name = number.to_string();
                if add {
                    bag.insert(name.as_str().into());
                    set.insert(name);
                } else {
                    bag.remove(&name);
                    set.remove(&name);
                }
            }
            let all: Vec<String> = bag.from(chance).map(ToString::to_string).collect();
            prop_assert_eq!(all.len(), bag.len());
            prop_assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), set);
        }
    }
}

//! What a process remembers of each key between two passes. All of it can be forgotten: it saves work, or has to be
//! waited for once more.

use std::collections::BTreeMap;

/// One cell for each key. A pass takes the cell out and puts it back, so nobody else sees it meanwhile and no lock is held.
#[derive(Debug)]
pub struct Memory<K, M>(BTreeMap<K, M>);

impl<K, M> Default for Memory<K, M> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, M: Default + PartialEq> Memory<K, M> {
    /// The cell of a key, a new one if it has none.
    pub fn take(&mut self, key: &K) -> M {
        self.0.remove(key).unwrap_or_default()
    }

    /// Puts it back. One with nothing in it takes no room.
    pub fn put(&mut self, key: K, cell: M) {
        if cell != M::default() {
            self.0.insert(key, cell);
        }
    }
}

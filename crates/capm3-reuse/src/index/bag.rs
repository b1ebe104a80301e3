//! Free hosts in an order that has nothing to do with their names, so that whoever looks for one may begin anywhere.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use api_types::metal3::CachedHost;

/// Hosts by their place and name: who takes one need not look it up.
pub(super) type Bag = BTreeMap<Place, Arc<CachedHost>>;
/// Where a host stands among others.
pub(super) type Place = (u64, Arc<str>);

/// The place of a host of this name.
pub(super) fn place(name: &Arc<str>) -> Place {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (hasher.finish(), name.clone())
}

/// All of them once, from a place that `chance` says.
pub(super) fn all_from(
    bag: &Bag,
    chance: u64,
) -> impl Iterator<Item = (&Arc<str>, &Arc<CachedHost>)> {
    let start: Place = (chance, Arc::from(""));
    let (before, after) = (bag.range(..start.clone()), bag.range(start..));
    after.chain(before).map(|((_, name), host)| (name, host))
}

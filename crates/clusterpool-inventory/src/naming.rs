//! Names of clusters, and of what bears them.
//!
//! A name is derived from the state of what it is made for. Two replicas that decide on the same
//! state choose the same name, so that the second creation collides with the first instead of
//! making another cluster. A state that was left is never come back to, since it is told by a
//! resourceVersion: so no name returns either.

use sha2::{Digest, Sha256};

/// The server's limit for a namespace.
pub(crate) const LONGEST: usize = 63;
/// Letters that make no words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const LETTERS_IN_SUFFIX: usize = 5;
/// What a label may be long.
const LABEL: usize = 63;
/// The length of a hash and its hyphen.
const HASH: usize = 9;

/// The name of a cluster of `pool` that is made for the state `seed`.
pub fn cluster_name(pool: &str, seed: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in std::iter::once(&pool).chain(seed) {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part.as_bytes());
    }
    let digest = hasher.finalize();
    let suffix: String = digest
        .iter()
        .take(LETTERS_IN_SUFFIX)
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect();
    format!("{}-{suffix}", base(pool))
}

/// The name that patches are tried with: as long as those of the pool's clusters, and like them one that no person writes. What
/// is accepted with it is accepted with theirs.
pub(crate) fn trial_name(pool: &str) -> String {
    cluster_name(pool, &[])
}

/// The pool's name as far as it fits, told from that of another pool by its hash.
fn base(pool: &str) -> String {
    if pool.len() + 1 + LETTERS_IN_SUFFIX <= LONGEST && !pool.contains('.') {
        return pool.to_owned();
    }
    with_hash(pool, LONGEST - 1 - LETTERS_IN_SUFFIX).replace('.', "-")
}

/// A name as the value of a label: names may be longer.
pub fn label(name: &str) -> String {
    if name.len() <= LABEL { name.to_owned() } else { with_hash(name, LABEL) }
}

/// The beginning of a name that is too long, and a number that tells it from others: so many bytes in all.
fn with_hash(name: &str, most: usize) -> String {
    // What is told of an entry that cannot be there may be any text.
    let end = (0..=most - HASH).rev().find(|it| name.is_char_boundary(*it)).unwrap_or(0);
    format!("{}-{:08x}", name[..end].trim_end_matches(['-', '.']), hash(name))
}

/// The action of an event that is another one for each other note: of one reason and one action the first would stand for
/// all.
pub fn action(verb: &str, note: &str) -> String {
    format!("{verb}-{:08x}", hash(note))
}

/// A number that tells a text from another one.
pub fn hash(text: &str) -> u32 {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(4).fold(0, |hash, byte| hash << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::{action, cluster_name, label, trial_name};

    #[test]
    fn what_is_told_for_another_reason_is_an_event_of_its_own() {
        let long = "no".repeat(1_000);
        assert_eq!(action("Write", "no"), action("Write", "no"));
        assert_ne!(action("Write", "no"), action("Write", &long));
        // What an event holds.
        assert!(action("Write", &long).len() <= 128 && action("Write", "").starts_with("Write-"));
    }

    #[test]
    fn a_name_that_is_too_long_for_a_label_is_cut_and_stays_its_own() {
        let long = "a".repeat(253);
        let other = format!("{}b", "a".repeat(252));
        assert!(label(&long).len() <= 63 && label(&long) != label(&other));
        assert_eq!(label("short"), "short");
        assert!(label(&"ä語".repeat(40)).len() <= 63);
    }

    #[test]
    fn one_state_gives_one_name_and_another_state_another() {
        let name = cluster_name("pool", &["uid", "7"]);
        assert_eq!(name, cluster_name("pool", &["uid", "7"]));
        assert_ne!(name, cluster_name("pool", &["uid", "8"]));
        assert_ne!(name, cluster_name("pool", &["uid7", ""]));
        assert!(name.starts_with("pool-") && name.len() == 10);
    }

    #[test]
    fn patches_are_tried_with_a_name_as_long_as_a_clusters_and_not_the_pools() {
        for pool in ["pool".to_owned(), "p".repeat(60)] {
            let (tried, made) = (trial_name(&pool), cluster_name(&pool, &["uid", "7"]));
            assert!(tried.len() == made.len() && tried != made && tried != pool, "{tried}");
        }
    }

    #[test]
    fn a_name_is_one_for_a_namespace_however_long_the_pools_is() {
        for pool in ["p".repeat(253), "a.b.c".to_owned(), format!("{}-.x", "q".repeat(50))] {
            let name = cluster_name(&pool, &["1"]);
            let fits = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
            assert!(name.len() <= 63 && name.bytes().all(fits), "{name}");
        }
        assert_ne!(
            cluster_name(&format!("{}a", "p".repeat(60)), &["1"]),
            cluster_name(&format!("{}b", "p".repeat(60)), &["1"])
        );
    }
}

//! Names of clusters.
//!
//! A name is derived from the state of what it is made for. Two replicas that decide on the same
//! state choose the same name, so that the second creation collides with the first instead of
//! making another cluster. A state that was left is never come back to, since it is told by a
//! resourceVersion: so no name returns either.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The server's limit for a namespace.
pub(crate) const LONGEST: usize = 63;
/// Letters that make no words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const LETTERS_IN_SUFFIX: usize = 5;

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
    let mut hash = String::new();
    for byte in Sha256::digest(pool.as_bytes()).iter().take(4) {
        let _ = write!(hash, "{byte:02x}");
    }
    let room = LONGEST - 1 - LETTERS_IN_SUFFIX - 1 - hash.len();
    let start: String =
        pool.chars().take(room).map(|it| if it == '.' { '-' } else { it }).collect();
    format!("{}-{hash}", start.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::{cluster_name, trial_name};

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

//! Which version of the API is spoken.

use std::fmt;

use crate::error::{Class, Error};

/// Fields of nodes that not every version has, and the first one with them.
const NEWER_FIELDS: [(&str, Version); 2] =
    [("disable_power_off", Version(95)), ("health", Version(109))];

/// A version of the Ironic API. The major number has been 1 since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    /// Below this a machine's inventory cannot be read.
    pub const OLDEST: Self = Self(81);
    /// The newest one whose answers this client was written for. A newer server speaks it too.
    pub const NEWEST: Self = Self(109);

    /// Reads `1.N`.
    pub fn parse(text: &str) -> Option<Self> {
        text.trim().strip_prefix("1.")?.parse().ok().map(Self)
    }

    /// Whether nodes have this field in this version.
    pub(crate) fn has_field(self, field: &str) -> bool {
        NEWER_FIELDS.iter().all(|(newer, since)| *newer != field || self >= *since)
    }

    /// The highest version that a server offering `min` to `max` shares with this client.
    pub(crate) fn choose(min: Self, max: Self) -> Result<Self, Error> {
        if max < Self::OLDEST {
            return Err(Error::new(
                Class::TooOld,
                format!(
                    "this Ironic speaks API {max} at most, {} or newer is needed: upgrade Ironic \
                     to 2023.1 or later",
                    Self::OLDEST
                ),
            ));
        }
        if min > Self::NEWEST {
            return Err(Error::invalid(format!(
                "this Ironic speaks no API older than {min}, this program none newer than \
                 {}: upgrade this program",
                Self::NEWEST
            )));
        }
        Ok(max.min(Self::NEWEST))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_old_ironic_is_told_what_it_is_and_what_is_needed() {
        let error = Version::choose(Version(1), Version(80)).unwrap_err();
        assert_eq!(error.class(), Class::TooOld);
        let text = error.to_string();
        assert!(text.contains("1.80") && text.contains("1.81"), "{text}");
    }

    #[test]
    fn only_whole_versions_of_major_one_are_read() {
        assert_eq!(Version::parse(" 1.115"), Some(Version(115)));
        for text in ["", "1", "1.", "2.1", "1.1.1", "1.-1", "latest"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_choice_is_the_highest_that_both_sides_know(a in 1u32..200, b in 1u32..200) {
            let (min, max) = (Version(a.min(b)), Version(a.max(b)));
            let shared = (Version::OLDEST.0..=Version::NEWEST.0)
                .map(Version)
                .filter(|v| *v >= min && *v <= max)
                .max();
            prop_assert_eq!(Version::choose(min, max).ok(), shared);
        }

        #[test]
        fn what_is_shown_can_be_read(minor in any::<u32>()) {
            prop_assert_eq!(Version::parse(&Version(minor).to_string()), Some(Version(minor)));
        }
    }
}

//! Identities of nodes in Ironic.

use std::fmt;

/// The UUID of a node. Sixteen bytes instead of text, and no number, which would be aligned to as many: every host has
/// one in the index.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId([u8; 16]);

impl NodeId {
    /// Reads the form with hyphens, in any case. Ironic gives no other.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        if text.len() != 36 || !text.bytes().enumerate().all(fits) {
            return None;
        }
        u128::from_str_radix(&text.replace('-', ""), 16).ok().map(Self::from)
    }
}

impl From<u128> for NodeId {
    fn from(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_form_with_hyphens_is_read() {
        assert!(NodeId::parse("0F92160d-b665-4476-943a-f4dd47419207").is_some());
        for text in [
            "0f92160db6654476943af4dd47419207",
            "0f92160d-b665-4476-943a-f4dd4741920",
            "0f92160d-b665-4476-943af-4dd4741920",
            "{f92160d-b665-4476-943a-f4dd4741920}",
            "0f92160db665-4476-943a-f4dd-47419207",
            "ä92160d-b665-4476-943a-f4dd47419207",
        ] {
            assert_eq!(NodeId::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(number: u128) {
            let node = NodeId::from(number);
            prop_assert_eq!(NodeId::parse(&node.to_string()), Some(node));
        }
    }
}

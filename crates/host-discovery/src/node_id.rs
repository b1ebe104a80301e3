//! Identities of nodes in Ironic.

use std::fmt;

/// The UUID of a node. Sixteen bytes instead of text, and no number, which would be aligned to as many: every host has
/// one in the index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId([u8; 16]);

impl NodeId {
    /// Reads the form with hyphens, in any case. Ironic gives no other.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() != 36 {
            return None;
        }
        let mut digits = String::with_capacity(32);
        for (at, c) in text.char_indices() {
            match (at, c) {
                (8 | 13 | 18 | 23, '-') => {}
                (8 | 13 | 18 | 23, _) => return None,
                (_, c) if c.is_ascii_hexdigit() => digits.push(c),
                _ => return None,
            }
        }
        u128::from_str_radix(&digits, 16).ok().map(Self::from)
    }
}

impl From<u128> for NodeId {
    fn from(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", u128::from_be_bytes(self.0));
        let (first, rest) = digits.split_at(8);
        let (second, rest) = rest.split_at(4);
        let (third, rest) = rest.split_at(4);
        let (fourth, last) = rest.split_at(4);
        write!(f, "{first}-{second}-{third}-{fourth}-{last}")
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

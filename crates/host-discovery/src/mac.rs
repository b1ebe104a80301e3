//! Hardware addresses of network interfaces: by them a machine is recognised.

use std::fmt;

/// An address of six bytes. How it was spelled is forgotten, so that two spellings are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

impl Mac {
    /// Reads six bytes in any case, with `:` or `-` between or with nothing. Network boot loaders
    /// put the hardware type in front (`01-52-54-…`); it is taken away.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let separator = if text.contains(':') { ':' } else { '-' };
        // The length comes first: the text may be megabytes long.
        let bytes: Option<Vec<u8>> = match text.len() {
            12 => (0..12).step_by(2).map(|at| hex(text.get(at..at + 2)?)).collect(),
            17 => text.split(separator).map(hex).collect(),
            20 if separator == '-' => text.strip_prefix("01-")?.split('-').map(hex).collect(),
            _ => None,
        };
        bytes?.try_into().ok().map(Self)
    }

    /// Reads an address that one interface alone can have.
    pub fn parse_usable(text: &str) -> Option<Self> {
        Self::parse(text).filter(|mac| mac.is_usable())
    }

    /// Whether one interface alone can have it: not zero, and no address of a group of receivers.
    /// Zero stands in many broken inventories; taken for an identity, it would make one machine of
    /// them all.
    fn is_usable(self) -> bool {
        self.0 != [0; 6] && self.0[0] & 1 == 0
    }

    /// The bytes.
    pub fn octets(self) -> [u8; 6] {
        self.0
    }

    /// The last three bytes in hexadecimal: the part that differs between devices of one maker.
    pub fn tail(self) -> String {
        let [_, _, _, a, b, c] = self.0;
        format!("{a:02x}{b:02x}{c:02x}")
    }
}

/// The byte that two digits are.
pub(crate) fn hex(pair: &str) -> Option<u8> {
    let digits = pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u8::from_str_radix(pair, 16).ok()).flatten()
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(|byte| format!("{byte:02x}")).join(":"))
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_spelling_of_an_address_is_the_same_address() {
        let spellings =
            ["52:54:00:aa:bb:01", "52-54-00-AA-BB-01", "525400AABB01", " 01-52-54-00-aa-bb-01 "];
        for text in spellings {
            assert_eq!(Mac::parse(text).unwrap().to_string(), "52:54:00:aa:bb:01", "{text}");
        }
    }

    #[test]
    fn what_is_not_six_bytes_is_no_address() {
        for text in [
            "",
            "52:54:00:aa:bb",
            "52:54:00:aa:bb:01:02",
            "02-52-54-00-aa-bb-01",
            "01:52:54:00:aa:bb:01",
            "52:54:00:aa:bb:0g",
            "52:54:00:aa:bb:+1",
            "52:54-00:aa:bb:01",
            "5254:00:aa:bb:001",
            "ää:54:00:aa:bb:0",
            "ääääää",
        ] {
            assert_eq!(Mac::parse(text), None, "{text}");
        }
    }

    #[test]
    fn zero_and_groups_of_receivers_identify_nobody() {
        for text in ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"] {
            assert!(Mac::parse(text).is_some(), "{text}");
            assert_eq!(Mac::parse_usable(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes: [u8; 6]) {
            let mac = Mac(bytes);
            prop_assert_eq!(Mac::parse(&mac.to_string()), Some(mac));
        }

        #[test]
        fn no_text_stops_the_reader(text in ".{0,24}") {
            let _ = Mac::parse(&text);
        }
    }
}

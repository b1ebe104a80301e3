//! Names that an object can have.

/// What the API server takes.
const LONGEST: usize = 253;

/// Whether an object can have this name. People write others into annotations and references: nothing is there under them, and
/// to ask for one is no request at all, or one for something else.
pub(crate) fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    text.len() <= LONGEST
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_object_can_be_called_is_asked_for() {
        let long = "h".repeat(LONGEST);
        for name in ["h", "9", "rack-1.host-2", long.as_str()] {
            assert!(is_name(name), "{name}");
        }
        let longer = "h".repeat(LONGEST + 1);
        for name in ["", ".", "..", "-h", "../h", "h/status", "h?watch=true", "h#", "a b", "Host"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(!is_name("h\u{f6}st") && !is_name(&longer));
    }
}

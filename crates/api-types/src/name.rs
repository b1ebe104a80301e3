//! What an object can be called.

/// What the API server takes: a DNS subdomain of so many bytes.
const LONGEST: usize = 253;

/// Whether an object can have this name. People write others into annotations and references, and a client puts a name into
/// the URL as it is: with one that no object can have, no request is made, or one for something else.
pub fn is_name(text: &str) -> bool {
    let is_fit = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let is_label = |label: &str| {
        let is_whole = !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
        is_whole && label.bytes().all(is_fit)
    };
    text.len() <= LONGEST && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_api_server_takes_is_a_name() {
        let long = "h".repeat(LONGEST);
        for name in ["h", "9", "pull-secret", "rack-1.host-2", "4.14.1-x86", "a.b-c", &long] {
            assert!(is_name(name), "{name}");
        }
        let no_part = ["", ".", "..", "h.", "a..b", "-h", "h-", "a-.b", "Host", "h\u{f6}st"];
        let no_path = ["../h", "h/status", "h?watch=true", "h#", "h%zz", "a b", "h ", "h\n", "<x>"];
        for name in no_part.into_iter().chain(no_path) {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(!is_name(&"h".repeat(LONGEST + 1)));
    }
}

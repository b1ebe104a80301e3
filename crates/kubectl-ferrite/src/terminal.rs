//! What is written to the terminal of whoever reads it. Of both streams the reader may be gone: `head` reads some lines and ends.

use std::io::{ErrorKind, Write as _};

use crate::ask::Failure;
use crate::text;

/// Writes an answer.
///
/// # Errors
/// When nobody reads it, or it cannot be written.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::Unread),
        Err(error) => Err(Failure::Unanswered(text::unwritable(&error.to_string()))),
    }
}

/// Tells the person what is beside the answer. Of a failure to do so nobody could be told: `eprintln!` ends the program for it,
/// with a code that says nothing.
pub(crate) fn tell(lines: &str) {
    let lines: String = lines.lines().map(|it| clean(it) + "\n").collect();
    let _ = std::io::stderr().write_all(lines.as_bytes());
}

/// Whoever writes a message must not write on the terminal of whoever reads it: of control characters a blank is left.
pub(crate) fn clean(text: &str) -> String {
    text.split(char::is_control).filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ")
}

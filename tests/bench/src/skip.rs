//! Tests for which this machine is not fit. The test harness knows passed and failed only, so what was skipped is told
//! beside it: `cargo xtask test` does not count it as passed.

use std::fs::File;
use std::io::Write;

/// Names the file to which skipped tests are added.
pub const FILE_VARIABLE: &str = "FERRITE_SKIPPED_TESTS";

/// Says that a test has shown nothing, and why.
pub fn skipped(test: &str, why: &str) {
    let line = format!("skipped {test}: {}\n", why.replace('\n', " "));
    // Not by a macro: the harness keeps what those print to itself when a test does not fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(FILE_VARIABLE) {
        let file = File::options().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

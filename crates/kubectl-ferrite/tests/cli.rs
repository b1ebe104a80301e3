//! The program as its user starts it, where no API server is asked.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::io::pipe;
use std::process::{Command, Output};

fn ferrite(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ferrite"));
    command.env_clear().args(words);
    command
}

/// Without a kubeconfig that it names.
const ASKS: [&str; 3] = ["waiting", "--kubeconfig", "/nowhere/\u{1b}[2Jkubeconfig"];

#[test]
fn a_failure_that_nobody_reads_keeps_its_code() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let code = ferrite(&ASKS).stderr(writer).status().unwrap().code();
    assert_eq!(code, Some(2), "as with `2>&1 | head`");
}

#[test]
fn a_failure_does_not_write_on_the_terminal() {
    let Output { status, stderr, .. } = ferrite(&ASKS).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("/nowhere/ [2Jkubeconfig") && !said.contains('\u{1b}'), "{said:?}");
}

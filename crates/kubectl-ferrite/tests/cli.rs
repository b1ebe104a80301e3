//! The program as its user starts it, where no API server answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::io::{Read as _, pipe};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// The host may be switched off for a request whose answer does not come: the annotation has to be named.
#[test]
fn a_hold_that_is_interrupted_names_its_annotation_at_any_moment() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hung.kubeconfig");
    let port = server.local_addr().unwrap().port();
    let text = format!(
        "{{current-context: c, clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], \
         users: [{{name: u, user: {{token: t}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = ferrite(&["hold", "h", "--key", "me"]);
    let child = command.env("KUBECONFIG", &config).stderr(Stdio::piped()).spawn().unwrap();
    // It has asked, and hears nothing.
    let mut connection = server.accept().unwrap().0;
    connection.read_exact(&mut [0]).unwrap();
    let interrupts = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupts.success());
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("If the annotation reboot.metal3.io/me is still there"), "{said}");
}

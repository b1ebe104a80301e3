//! The command line, on the program itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::process::{Command, Output};

fn host_discovery(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_host-discovery"))
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_names_every_flag_of_the_page_and_its_variable() {
    let help = text(&host_discovery(&["--help"], &[]).stdout);
    for flag in [
        "--poll-interval",
        "--full-sync-interval",
        "--create-rate",
        "--adopt-driver",
        "--ironic-endpoint",
        "FERRITE_POLL_INTERVAL",
        "FERRITE_FULL_SYNC_INTERVAL",
        "FERRITE_CREATE_RATE",
        "FERRITE_ADOPT_DRIVER",
        "IRONIC_ENDPOINT",
        "check",
        "crds",
    ] {
        assert!(help.contains(flag), "{flag} is not in:\n{help}");
    }
}

#[test]
fn all_mistakes_are_listed_at_once_before_anything_starts() {
    let wrong = ["--create-rate=many", "--adopt-driver=perhaps", "--ironic-endpoint=ironic"];
    let output = host_discovery(&wrong, &[("FERRITE_POLL_INTERVAL", "soon")]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    for word in ["--create-rate", "--adopt-driver", "--ironic-endpoint", "FERRITE_POLL_INTERVAL"] {
        assert!(errors.contains(word), "{word} is not in:\n{errors}");
    }
}

#[test]
fn an_ironic_that_is_only_named_is_told_to_be_given_by_its_url() {
    let named = [("IRONIC_NAME", "metal"), ("IRONIC_NAMESPACE", "metal3")];
    let output = host_discovery(&["run"], &named);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("IRONIC_NAME") && errors.contains(".svc"), "{errors}");
    assert!(!errors.contains("is missing"), "{errors}");
}

#[test]
fn its_own_kind_is_printed_without_an_address_of_ironic() {
    let output = host_discovery(&["crds"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let crd = text(&output.stdout);
    assert!(crd.contains("kind: CustomResourceDefinition") && crd.contains("bmhd"), "{crd}");
    assert_eq!(host_discovery(&["run"], &[]).status.code(), Some(2));
}

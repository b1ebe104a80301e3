//! The command line, on the program itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::process::{Command, Output};

fn bmo_reboot(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bmo-reboot"))
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
    let help = text(&bmo_reboot(&["--help"], &[]).stdout);
    for flag in [
        "--host-selector",
        "--takeover",
        "--manage-available",
        "--soft-slice",
        "--soft-timeout",
        "--power-calls",
        "--soft-attempts",
        "--poll-interval",
        "--ironic-endpoint",
        "FERRITE_HOST_SELECTOR",
        "FERRITE_TAKEOVER",
        "FERRITE_SOFT_SLICE",
        "IRONIC_ENDPOINT",
        "check",
        "extend-crd",
    ] {
        assert!(help.contains(flag), "{flag} is not in:\n{help}");
    }
    let version = text(&bmo_reboot(&["--version"], &[]).stdout);
    assert_eq!(version.trim(), format!("bmo-reboot {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn all_mistakes_are_listed_at_once_before_anything_starts() {
    let wrong = [
        "--soft-slice=never",
        "--soft-timeout=1500ms",
        "--power-calls=0",
        "--takeover=perhaps",
        "--host-selector=a b",
        "--ironic-endpoint=ironic",
    ];
    let output = bmo_reboot(&wrong, &[("FERRITE_POLL_INTERVAL", "soon")]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    for word in [
        "--soft-slice",
        "--soft-timeout",
        "--power-calls",
        "--takeover",
        "--host-selector",
        "--ironic-endpoint",
        "FERRITE_POLL_INTERVAL",
    ] {
        assert!(errors.contains(word), "{word} is not in:\n{errors}");
    }
}

#[test]
fn an_address_of_ironic_is_needed_to_run_and_not_for_the_hook() {
    let output = bmo_reboot(&["run"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("IRONIC_ENDPOINT"));
    let output = bmo_reboot(&["crds"], &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "it has none of its own");
    let output = bmo_reboot(&["extend-crd"], &[("KUBECONFIG", "/nonexistent")]);
    assert!(text(&output.stderr).contains("/nonexistent"), "{}", text(&output.stderr));
}

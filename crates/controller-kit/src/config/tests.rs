use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Option<Command>,
}

fn read(flags: &[&str]) -> (Settings, Vec<String>) {
    let (cli, mut mistakes) = parse_words::<Cli>([&["it"], flags].concat()).unwrap();
    let config = cli.settings.check("it", &mut mistakes);
    (config, mistakes.lines().to_vec())
}

#[test]
fn without_flags_it_is_as_documented() {
    let (config, mistakes) = read(&[]);
    assert_eq!(mistakes, [""; 0]);
    assert_eq!(config.listen, SocketAddr::from(([0, 0, 0, 0], 8080)));
    assert_eq!(config.concurrency, 32);
    assert_eq!(config.namespaces, [""; 0]);
    assert!(config.leader_elect);
    assert_eq!(config.lease_name, "ferrite-it");
    let seconds = [config.lease_duration, config.renew_deadline, config.retry_period];
    let seconds = seconds.map(|one| one.as_secs());
    assert_eq!(seconds, [15, 10, 2]);
}

#[test]
fn a_negative_value_is_told_with_all_other_mistakes() {
    let (_, mistakes) = read(&["--retry-period", "-1s", "--concurrency", "-1", "--listen=x"]);
    assert_eq!(mistakes.len(), 3, "{mistakes:?}");
}

#[test]
fn a_watch_filter_that_no_label_can_have_is_refused() {
    let long = "x".repeat(64);
    for wrong in ["a b", "a/b", "-a", "a.", "$$$", &long] {
        assert_eq!(read(&["--watch-filter", wrong]).1.len(), 1, "{wrong}");
    }
    for right in ["", "a", "Rack_7.b-c"] {
        assert_eq!(read(&["--watch-filter", right]).1, [""; 0]);
    }
}

#[test]
fn an_empty_value_counts_as_not_given() {
    let (config, mistakes) =
        read(&["--listen=", "--concurrency=", "--lease-duration=", "--leader-elect=", "--log="]);
    assert_eq!(mistakes, [""; 0]);
    assert_eq!(config, read(&[]).0);
}

#[test]
fn a_mistake_that_is_told_later_names_the_variable_that_clap_reads() {
    for argument in command::<Cli>().get_arguments() {
        let (Some(flag), Some(env)) = (argument.get_long(), argument.get_env()) else { continue };
        let mut mistakes = Mistakes::default();
        let others = ("--other", Duration::ZERO);
        mistakes.add((&format!("--{flag}"), Duration::ZERO), "more than", others);
        let is_named = mistakes.lines()[0].contains(&*env.to_string_lossy());
        assert!(is_named || ["log", "kubeconfig"].contains(&flag), "{mistakes:?}");
    }
}

#[test]
fn all_mistakes_are_listed_at_once() {
    let (_, mistakes) = read(&[
        "--listen=8080",
        "--namespaces=a,B",
        "--leader-elect=maybe",
        "--lease-duration=15",
        "--concurrency=0",
        "--log-format=xml",
        "--log=a=b=c",
        "--lease-name=UPPER",
    ]);
    let flags: Vec<&str> = mistakes.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(
        flags,
        [
            "--listen",
            "--namespaces",
            "--leader-elect",
            "--lease-duration",
            "--concurrency",
            "--log-format",
            "--log",
            "--lease-name"
        ]
    );
    assert_eq!(
        mistakes[0],
        "--listen (FERRITE_LISTEN): \"8080\" is wrong, expected an address and port such as 0.0.0.0:8080"
    );
}

#[test]
fn a_word_that_is_no_level_would_silence_the_rest_and_is_refused() {
    for wrong in ["warning", "inof", "verbose", "info,kube", "info kube=debug", "info, kube=debug"]
    {
        let mistakes = read(&["--log", wrong]).1;
        assert_eq!(mistakes.len(), 1, "{wrong}");
        assert!(
            mistakes[0].contains("expected off, error, warn, info, debug or trace"),
            "{mistakes:?}"
        );
    }
    for right in ["", "info", "WARN", "off", "2", "info,kube=debug", "kube=off,debug"] {
        assert_eq!(read(&["--log", right]).1, [""; 0], "{right}");
    }
}

#[test]
fn durations_must_fit_together() {
    for flags in [
        &["--lease-duration=10s"][..],
        &["--renew-deadline=15s"],
        &["--retry-period=6s"],
        &["--retry-period=-2s"],
        &["--retry-period=0s"],
        &["--lease-duration=15500ms"],
    ] {
        assert_eq!(read(flags).1.len(), 1, "{flags:?}");
    }
}

#[test]
fn what_does_not_fit_together_is_told_beside_what_cannot_be_read() {
    let mistakes = read(&["--concurrency=0", "--lease-duration=5s"]).1;
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    assert!(mistakes[1].starts_with("--renew-deadline"), "{mistakes:?}");
}

#[test]
fn a_value_that_cannot_be_read_is_compared_with_no_other() {
    let mistakes = read(&["--lease-duration=60", "--renew-deadline=20s"]).1;
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(mistakes[0].starts_with("--lease-duration"), "{mistakes:?}");
}

/// Its flag has a variable that is set wherever tests run, to what is no number.
#[derive(Parser)]
struct Numbered {
    #[arg(
        long, env = "PATH", default_value = "1",
        value_parser = reads(|text| above_zero::<u16>(text, "a number"))
    )]
    number: u16,
    #[command(subcommand)]
    command: Option<Command>,
}

#[test]
fn a_wrong_variable_is_told_once_whatever_the_command_and_not_where_a_flag_overrides_it() {
    for (words, told) in [
        (&["it"][..], 1),
        (&["it", "check"], 1),
        (&["it", "extend-crd", "--dry-run"], 1),
        (&["it", "--number=5", "check"], 0),
        (&["it", "check", "--number=5"], 0),
        (&["it", "check", "--number=0"], 1),
    ] {
        let (read, mistakes) = parse_words::<Numbered>(words).unwrap();
        assert_eq!(mistakes.lines().len(), told, "{words:?}: {mistakes:?}");
        assert_eq!(read.command.is_some(), words.len() > 1);
        assert_eq!(read.number, if told == 0 { 5 } else { 1 }, "{words:?}");
    }
}

#[test]
fn election_is_switched_off_by_a_value_only() {
    assert!(read(&["--leader-elect"]).0.leader_elect);
    assert!(!read(&["--leader-elect=false"]).0.leader_elect);
}

#[test]
fn namespaces_are_cleaned_of_blanks_and_doubles() {
    assert_eq!(read(&["--namespaces", " a ,b,,a"]).0.namespaces, ["a", "b"]);
}

#[test]
fn common_flags_may_follow_the_command() {
    let words = ["it", "extend-crd", "--dry-run", "--kubeconfig=k"];
    let (cli, _) = parse_words::<Cli>(words).unwrap();
    assert_eq!(cli.command, Some(Command::ExtendCrd { dry_run: true, keep: false, print: None }));
    assert_eq!(cli.settings.kubeconfig.as_deref(), Some("k"));
}

#[test]
fn a_duration_that_no_clock_holds_is_refused_and_does_not_end_the_process() {
    for wrong in ["99999999999999999999h", "5m-1s", "-5s", "5", "s", &"999999999999h".repeat(100)] {
        assert_eq!(duration(wrong), None, "{wrong}");
    }
    assert_eq!(duration("1m30.5s"), Some(Duration::from_millis(90_500)));
    assert_eq!(duration("0s"), Some(Duration::ZERO));
}

//! Completion scripts. kubectl asks a program `kubectl_complete-ferrite` of the `PATH` for that of its plugin: it gives it the words
//! of the command line, and reads one word with its help a line, then `:4`, which means no file names.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::settings::{Cli, Shell};

/// The completion script of a shell.
pub(crate) fn completion(shell: Shell) -> String {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
        Shell::Kubectl => return of_kubectl(),
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kubectl-ferrite", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The script that kubectl runs. The last word is the one to complete.
fn of_kubectl() -> String {
    let mut cli = Cli::command();
    cli.build();
    let commands: Vec<&Command> = cli.get_subcommands().collect();
    let names: Vec<&str> = commands.iter().map(|it| it.get_name()).collect();
    let mut script = format!(
        "#!/bin/sh\n\
         command= last=\n\
         for word; do\n\
         \x20 case $last in {}) command=${{command:-$last}} ;; esac\n\
         \x20 last=$word\n\
         done\n\
         case \"$command $last\" in\n",
        names.join("|")
    );
    for command in commands {
        let name = command.get_name();
        _ = write!(script, "\"{name} \"-*) cat <<'END' ;;\n{}END\n", flags(command));
        let arguments = command.get_positionals().flat_map(clap::Arg::get_possible_values);
        let values: String = arguments.map(|it| line(it.get_name(), it.get_help())).collect();
        _ = write!(script, "\"{name} \"*) cat <<'END' ;;\n{values}END\n");
    }
    let names: String =
        cli.get_subcommands().map(|it| line(it.get_name(), it.get_about())).collect();
    _ = write!(script, "\" \"-*) cat <<'END' ;;\n{}END\n", flags(&cli));
    _ = write!(script, "*) cat <<'END' ;;\n{names}END\nesac\necho :4\n");
    script
}

fn flags(command: &Command) -> String {
    let long = |it: &clap::Arg| Some(line(&format!("--{}", it.get_long()?), it.get_help()));
    command.get_arguments().filter_map(long).collect()
}

fn line(word: &str, help: Option<&clap::builder::StyledStr>) -> String {
    format!("{word}\t{}\n", help.map(ToString::to_string).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn each_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let script = completion(*shell);
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell:?} {}", command.get_name());
            }
        }
    }

    /// Runs the script as kubectl does.
    fn completed(words: &[&str]) -> Vec<String> {
        let output = std::process::Command::new("sh")
            .args(["-c", &completion(Shell::Kubectl), "kubectl_complete-ferrite"])
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|it| it.split('\t').next().unwrap_or(it).to_owned()).collect()
    }

    #[test]
    fn kubectl_is_answered_commands_flags_and_values() {
        let commands = completed(&["wa"]);
        assert_eq!(commands.last().map(String::as_str), Some(":4"));
        assert!(commands.contains(&"waiting".to_owned()), "{commands:?}");
        let has = |words: &[&str], flag: &str| completed(words).contains(&flag.to_owned());
        assert!(has(&["-n", "rack", "waiting", "--"], "--older-than"));
        assert!(has(&["waiting", "--"], "--namespace"), "as each command has it");
        assert!(has(&["--"], "--context") && !has(&["--"], "--older-than"));
        assert!(has(&["completion", ""], "zsh"));
        assert_eq!(completed(&["host", ""]), [":4"], "the names of hosts are not asked for");
    }
}

//! `kubectl ferrite`: why something waits, and what to do, with the rights of whoever calls it. Only `write` writes.
//!
//! An answer goes one way: `observe` (or `waiting`) reads, `links` and `explain` make a chain of what was read, `show` writes it.
//! The reasons, with what to do about each, are the controllers' own tables.
//!
//! Exit codes: 0 answered, 1 something waits longer than `--older-than` or `doctor` finds something wrong, 2 wrong command line or kubeconfig, 3 the object or its
//! kind does not exist, 4 a right is missing or the API server does not answer within ten seconds. Of 1 and 4, 1 is given.

mod adopt;
mod adoption;
mod ask;
mod completion;
mod deployment;
mod doctor;
mod explain;
mod follow;
mod health;
mod hold;
mod holding;
mod links;
mod model;
mod observe;
mod reasons;
mod report;
mod settings;
mod show;
mod terminal;
mod text;
mod waiting;
mod write;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use api_types::name::is_name;
use clap::Parser as _;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::ask::{Asking, Failure, UNREAD};
use crate::follow::Change;
use crate::health::Finding;
use crate::model::{Kind, Object, Seen};
use crate::settings::{Cli, Command, Output};
use crate::show::{Page, document};
use crate::terminal::{tell, write};
use crate::waiting::Wanted;

/// Something waits longer than was asked, or something is wrong.
const WRONG: u8 = 1;

/// The exit code of what a script asks by it. What is wrong is known, whatever could not be read; else no answer is no.
fn verdict(wrong: usize, unread: usize) -> u8 {
    match (wrong, unread) {
        (0, 0) => 0,
        (0, _) => UNREAD,
        _ => WRONG,
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answered = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Unanswered(error.to_string()))
        .and_then(|runtime| runtime.block_on(answer(&cli)));
    let written = answered.and_then(|(text, code)| match write(&text) {
        Ok(()) | Err(Failure::Unread) => Ok(code),
        Err(failure) => Err(failure),
    });
    written.unwrap_or_else(|failure| {
        tell(failure.message());
        failure.code()
    })
}

async fn answer(cli: &Cli) -> Result<(String, ExitCode), Failure> {
    // A shell asks for it before there is a kubeconfig.
    if let Command::Completion { shell } = cli.command {
        return Ok((completion::completion(shell), ExitCode::SUCCESS));
    }
    let path = cli.kubeconfig.as_deref().filter(|it| !it.as_os_str().is_empty());
    let asking = Asking::new(path, cli.context.as_deref(), cli.namespace.as_deref()).await?;
    let has_colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let page = Page { now: Timestamp::now(), has_colours };
    let fail = Failure::Unanswered;
    let text = match &cli.command {
        Command::Why { object } => {
            let (kind, name) = parsed(object)?;
            let chain = explain::explain(kind, &observed(&asking, kind, name).await?);
            match cli.output {
                Output::Text => page.chain(&chain),
                output => document(output, "Why", json!({ "chain": chain })).map_err(fail)?,
            }
        }
        Command::Host { name } => {
            let kind = Kind::BareMetalHost;
            let seen = observed(&asking, kind, name).await?;
            let chain = explain::explain(kind, &seen);
            let report = seen.host.here().map(report::of_host);
            match (cli.output, report) {
                (Output::Text, Some(report)) => page.host(&report) + "\n" + &page.chain(&chain),
                (output, report) => {
                    let content = json!({ "host": report, "chain": chain });
                    document(output, "Host", content).map_err(fail)?
                }
            }
        }
        Command::Pool { name } => {
            let kind = Kind::ClusterPool;
            let seen = observed(&asking, kind, name).await?;
            let chain = explain::explain(kind, &seen);
            let report = seen.pool.here().map(|it| report::of_pool(it, &seen));
            match (cli.output, report) {
                (Output::Text, Some(report)) => show::pool(&report) + "\n" + &page.chain(&chain),
                (output, report) => {
                    let content = json!({ "pool": report, "chain": chain });
                    document(output, "Pool", content).map_err(fail)?
                }
            }
        }
        Command::Hold(args) => {
            let took = hold::hold(&asking, args).await?;
            let object = Object::new(Kind::BareMetalHost.as_str(), &asking.namespace, &args.host);
            match cli.output {
                Output::Text => text::held(&args.host, &text::age(took)),
                output => {
                    let content =
                        json!({ "object": object, "key": args.key, "seconds": took.as_secs() });
                    document(output, "Hold", content).map_err(fail)?
                }
            }
        }
        Command::Release(args) => {
            let others = hold::release(&asking, args).await?;
            let object = Object::new(Kind::BareMetalHost.as_str(), &asking.namespace, &args.host);
            match cli.output {
                Output::Text => text::released(&args.host, &args.key, &others),
                output => {
                    let content = json!({ "object": object, "key": args.key, "heldBy": others });
                    document(output, "Release", content).map_err(fail)?
                }
            }
        }
        Command::Adopt(args) => return adopt(cli, &asking, args).await,
        Command::Completion { shell } => completion::completion(*shell),
        Command::Doctor => return doctor(cli, &asking).await,
        Command::Waiting(wanted) => return waiting(cli, &asking, page, wanted).await,
    };
    Ok((text, ExitCode::SUCCESS))
}

async fn waiting(
    cli: &Cli,
    asking: &Asking,
    page: Page,
    args: &settings::Waiting,
) -> Result<(String, ExitCode), Failure> {
    let everywhere = args.all_namespaces;
    let namespace = Some(asking.namespace.as_str()).filter(|_| !everywhere);
    let wanted = Wanted { namespace, reason: args.reason.as_deref() };
    let found = waiting::waiting(asking, wanted).await?;
    if found.read.is_empty() {
        return Err(if found.unread.is_empty() {
            Failure::NotFound(text::NO_KINDS.to_owned())
        } else {
            Failure::Unanswered(found.unread.join("\n"))
        });
    }
    let mut links = found.links();
    let untimed = waiting::untimed(&links);
    if let Some(than) = args.older_than {
        waiting::older(&mut links, than, page.now);
    }
    let text = match cli.output {
        Output::Text => {
            for line in &found.unread {
                tell(line);
            }
            if args.older_than.is_some() && untimed > 0 {
                tell(&text::untimed(untimed));
            }
            if let Some(word) = wanted.reason.filter(|_| links.is_empty()) {
                let near = reasons::near(word);
                if !near.is_empty() {
                    tell(&text::no_reason(word, &near));
                }
            }
            page.waiting(&links, everywhere)
        }
        output => {
            let content = json!({ "items": links, "unread": found.unread, "untimed": untimed });
            document(output, "Waiting", content).map_err(Failure::Unanswered)?
        }
    };
    if args.watch {
        write(&text)?;
        let show = |change: &Change| {
            let page = Page { now: Timestamp::now(), ..page };
            write(&match cli.output {
                Output::Text => page.change(change, everywhere),
                output => {
                    let content = json!({ "items": change.items, "ended": change.ended });
                    show::next(output, "Waiting", content).map_err(Failure::Unanswered)?
                }
            })
        };
        follow::follow(asking, wanted, found.read, show).await?;
        return Ok((String::new(), ExitCode::SUCCESS));
    }
    // Only a time makes it a question of yes or no.
    let code = args.older_than.map_or(0, |_| verdict(links.len(), found.unread.len()));
    Ok((text, ExitCode::from(code)))
}

async fn adopt(
    cli: &Cli,
    asking: &Asking,
    args: &settings::Adopt,
) -> Result<(String, ExitCode), Failure> {
    let plan = adopt::plan(asking, args).await?;
    let mut text = match cli.output {
        Output::Text => show::adoptions(&plan.adoptions),
        output => {
            let content = json!({ "hosts": plan.adoptions, "written": args.yes });
            document(output, "Adopt", content).map_err(Failure::Unanswered)?
        }
    };
    if args.yes {
        // Shown before it is written: a failure in between must not hide what was planned.
        if cli.output == Output::Text {
            write(&text).map_err(|failure| match failure {
                Failure::Unread => Failure::No(text::UNREAD_PLAN.to_owned()),
                failure => failure,
            })?;
            text.clear();
        }
        let count = adopt::adopt(asking, &plan).await?;
        if cli.output == Output::Text {
            text = text::adopted(count);
        }
    } else if !args.dry_run {
        return match write(&text) {
            Ok(()) | Err(Failure::Unread) => Err(Failure::Usage(text::NOT_CONFIRMED.to_owned())),
            Err(failure) => Err(failure),
        };
    }
    Ok((text, ExitCode::SUCCESS))
}

async fn doctor(cli: &Cli, asking: &Asking) -> Result<(String, ExitCode), Failure> {
    // The controllers are seldom in the namespace of the context.
    let namespace = cli.namespace.as_deref();
    let (installed, findings) = doctor::doctor(asking, namespace).await?;
    let text = match cli.output {
        Output::Text => show::doctor(&installed, &findings),
        output => {
            let content = json!({ "controllers": installed, "findings": findings });
            document(output, "Doctor", content).map_err(Failure::Unanswered)?
        }
    };
    let count = |is: fn(&Finding) -> bool| findings.iter().filter(|it| is(it)).count();
    Ok((text, ExitCode::from(verdict(count(|it| it.wrong), count(|it| it.unread)))))
}

async fn observed(asking: &Asking, kind: Kind, name: &str) -> Result<Seen, Failure> {
    if !is_name(name) {
        return Err(Failure::Usage(text::no_name(name)));
    }
    observe::observe(asking, kind, &asking.namespace, name).await
}

fn parsed(object: &str) -> Result<(Kind, &str), Failure> {
    let parts = object.split_once('/').and_then(|(kind, name)| Some((Kind::parse(kind)?, name)));
    parts.ok_or_else(|| Failure::Usage(text::no_kind(object, &Kind::ALL.map(Kind::as_str))))
}

#[cfg(test)]
mod tests;

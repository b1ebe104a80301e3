//! `kubectl ferrite`: why something waits, and what to do. It only reads, with the rights of whoever calls it.
//!
//! An answer goes one way: `observe` (or `waiting`) reads, `links` and `explain` make a chain of what was read, `show` writes it.
//! The reasons, with what to do about each, are the controllers' own tables.
//!
//! Exit codes: 0 answered, 1 something waits longer than `--older-than`, 2 wrong command line or kubeconfig, 3 the object or its
//! kind does not exist, 4 a right is missing or the API server does not answer within ten seconds.

mod ask;
mod explain;
mod links;
mod model;
mod observe;
mod reasons;
mod report;
mod settings;
mod show;
mod text;
mod waiting;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use api_types::name::is_name;
use clap::Parser as _;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::ask::{Asking, Failure};
use crate::model::{Kind, Seen};
use crate::settings::{Cli, Command, Output};
use crate::show::{Page, document};

/// Something waits longer than was asked.
const OVERDUE: u8 = 1;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answered = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Unanswered(error.to_string()))
        .and_then(|runtime| runtime.block_on(answer(&cli)));
    let written = answered.and_then(|(text, code)| {
        // A reader that has enough, as `head` has, is no failure.
        match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Failure::Unanswered(text::unwritable(&error.to_string())))
            }
            _ => Ok(code),
        }
    });
    written.unwrap_or_else(|failure| {
        eprintln!("{}", failure.message());
        failure.code()
    })
}

async fn answer(cli: &Cli) -> Result<(String, ExitCode), Failure> {
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
        Command::Waiting { all_namespaces, older_than } => {
            return waiting(cli, &asking, page, *all_namespaces, *older_than).await;
        }
    };
    Ok((text, ExitCode::SUCCESS))
}

async fn waiting(
    cli: &Cli,
    asking: &Asking,
    page: Page,
    everywhere: bool,
    older_than: Option<std::time::Duration>,
) -> Result<(String, ExitCode), Failure> {
    let namespace = Some(asking.namespace.as_str()).filter(|_| !everywhere);
    let mut found = waiting::waiting(asking, namespace).await?;
    if !found.is_read && !found.unread.is_empty() {
        return Err(Failure::Unanswered(found.unread.join("\n")));
    }
    if let Some(than) = older_than {
        waiting::older(&mut found.links, than, page.now);
    }
    let text = match cli.output {
        Output::Text => {
            for line in &found.unread {
                eprintln!("{line}");
            }
            page.waiting(&found.links, everywhere)
        }
        output => {
            let content = json!({ "items": found.links, "unread": found.unread });
            document(output, "Waiting", content).map_err(Failure::Unanswered)?
        }
    };
    let is_overdue = older_than.is_some() && !found.links.is_empty();
    Ok((text, if is_overdue { ExitCode::from(OVERDUE) } else { ExitCode::SUCCESS }))
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

//! Adds fields to CRDs of others for as long as it runs.
//!
//! Whoever applies a CRD from git takes a field away that git does not have, and does so again each time. Until it is
//! back nothing is worked on, and what others write meanwhile loses the field.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::Client;
use kube::runtime::{WatchStreamExt as _, watcher};

use super::{Needed, api, extend, names};
use crate::api_error;

/// Between two tries after a refusal.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Adds what is missing whenever it is missing. Never ends.
pub async fn fields(client: &Client, needed: &[Needed]) -> Infallible {
    let fields = || needed.iter().filter(|needed| needed.field.is_some());
    let each = names(fields()).into_iter().map(|name| {
        let of_this = fields().filter(|needed| needed.crd == name).cloned().collect();
        fields_of(client, name, of_this)
    });
    futures_util::future::join_all(each).await;
    std::future::pending().await
}

async fn fields_of(client: &Client, name: &str, needed: Vec<Needed>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(api(client), config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_)) => {
                while let Err(problem) = add(client, &needed).await {
                    eprintln!("{problem}");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
            Ok(watcher::Event::Delete(_)) => eprintln!("CRD {name} was deleted"),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) => {
                eprintln!("CRD {name} cannot be read: {}", api_error::explain_watch(&error));
            }
        }
    }
}

/// Says only what was added: the answer to its own write comes here, too.
async fn add(client: &Client, needed: &[Needed]) -> Result<(), String> {
    for line in extend(client, needed, false).await?.iter().filter(|it| it.starts_with('+')) {
        println!("{line}");
    }
    Ok(())
}

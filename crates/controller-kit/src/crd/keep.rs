//! Adds fields to CRDs of others for as long as it runs.
//!
//! Whoever applies a CRD from git takes a field away that git does not have, and does so again each time. Until it is
//! back nothing is worked on, and what others write meanwhile loses the field.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::Client;

use super::{Needed, extend_one, for_each, watch};
use crate::api_error;

/// Between two tries after a refusal.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Adds what is missing whenever it is missing. Never ends.
pub async fn fields(client: &Client, needed: &[Needed]) -> Infallible {
    for_each(super::fields(needed), |name, needed| fields_of(client, name, needed)).await
}

async fn fields_of(client: &Client, name: &str, needed: Vec<&Needed>) {
    let mut looks = watch(client, name);
    while let Some(look) = looks.next().await {
        match look {
            Ok(Some(_)) => {
                while let Err(problem) = add(client, name, &needed).await {
                    eprintln!("{problem}");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
            Ok(None) => eprintln!("CRD {name} is not installed"),
            Err(error) => {
                eprintln!("CRD {name} cannot be read: {}", api_error::explain_watch(&error));
            }
        }
    }
}

/// Says only what was added: the answer to its own write comes here, too.
async fn add(client: &Client, name: &str, needed: &[&Needed]) -> Result<(), String> {
    let lines = extend_one(client, name, needed, false).await?;
    for line in lines.iter().filter(|line| line.starts_with('+')) {
        println!("{line}");
    }
    Ok(())
}

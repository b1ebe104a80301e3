//! Counts requests by the API server's own audit log, so that "it wrote nothing" is the server's word.

use std::collections::BTreeMap;
use std::fmt;
use std::io::SeekFrom;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// How long the log may lag behind an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The audit log of one API server.
#[derive(Clone)]
pub struct Audit {
    path: PathBuf,
    admin: kube::Client,
}

/// A place in the log.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    offset: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    object_ref: Option<Reference>,
}

#[derive(Deserialize)]
struct User {
    username: Option<String>,
}

#[derive(Deserialize)]
struct Reference {
    resource: Option<String>,
    subresource: Option<String>,
}

impl Audit {
    /// The log at this path; the client makes the marks and must be allowed to read namespaces.
    pub fn new(path: PathBuf, admin: kube::Client) -> Self {
        Self { path, admin }
    }

    /// The place behind everything that was answered so far.
    ///
    /// # Errors
    ///
    /// If the log cannot be read or the mark does not appear in it.
    pub async fn mark(&self) -> anyhow::Result<Mark> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let word = format!("ferrite-mark={process}-{count}.");
        // Whatever was answered before stands before this place or soon behind it.
        let from = tokio::fs::metadata(&self.path).await.map_or(0, |it| it.len());
        // A server ignores parameters that it does not know, and logs them.
        let uri = format!("/api/v1/namespaces/default?{word}");
        let request = http::Request::get(uri).body(Vec::new())?;
        self.admin.request_text(request).await.context("set a mark in the audit log")?;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let text = self.read(from).await?;
            let line = text.find(&word).and_then(|at| Some(at + text[at..].find('\n')? + 1));
            if let Some(end) = line {
                let offset = from + u64::try_from(end)?;
                return Ok(Mark { offset });
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "the audit log {} does not show a request that was answered: is this the right server's log?",
                    self.path.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What was answered between a mark and now.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub async fn since(&self, mark: Mark) -> anyhow::Result<Counts> {
        let end = self.mark().await?;
        self.between(mark, end).await
    }

    /// Waits until the user lets a whole window pass without a write, and tells what was answered in that window.
    /// An event that was still on its way when a test began to look is no unrest; a loop never rests.
    ///
    /// # Errors
    ///
    /// If the user writes in each of ten windows, or the log cannot be read.
    pub async fn rest(&self, user: &str, window: Duration) -> anyhow::Result<Counts> {
        let mut counts = Counts::default();
        for _ in 0..10 {
            let mark = self.mark().await?;
            tokio::time::sleep(window).await;
            counts = self.since(mark).await?;
            if counts.writes(user, &[]) == 0 {
                return Ok(counts);
            }
        }
        bail!(
            "{user} does not come to rest, it wrote in each of ten windows of {window:?}; in the last: {counts}"
        )
    }

    /// What was answered between two marks.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub async fn between(&self, from: Mark, to: Mark) -> anyhow::Result<Counts> {
        let text = self.read(from.offset).await?;
        let length = usize::try_from(to.offset.saturating_sub(from.offset))?;
        let text = text.get(..length).unwrap_or(&text);
        let mut counts = Counts::default();
        for line in text.lines() {
            let entry: Entry = serde_json::from_str(line)
                .with_context(|| format!("understand the audit log's line {line}"))?;
            counts.add(entry);
        }
        Ok(counts)
    }

    async fn read(&self, from: u64) -> anyhow::Result<String> {
        let what = || format!("read the audit log {}", self.path.display());
        let mut file = tokio::fs::File::open(&self.path).await.with_context(what)?;
        file.seek(SeekFrom::Start(from)).await.with_context(what)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await.with_context(what)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Requests by user, verb and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    by: BTreeMap<(String, String, String), u64>,
}

impl Counts {
    /// A watch counts when it begins, everything else when it is answered.
    fn add(&mut self, entry: Entry) {
        let counted = if entry.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        if entry.stage != counted || entry.uri.contains("ferrite-mark=") {
            return;
        }
        let resource = match entry.object_ref {
            Some(Reference { resource: Some(resource), subresource: Some(sub) }) => {
                format!("{resource}/{sub}")
            }
            Some(Reference { resource: Some(resource), .. }) => resource,
            _ => entry.uri,
        };
        let user = entry.user.username.unwrap_or_default();
        *self.by.entry((user, entry.verb, resource)).or_default() += 1;
    }

    /// How often this user did this to this resource.
    pub fn of(&self, user: &str, verb: &str, resource: &str) -> u64 {
        let key = (user.to_owned(), verb.to_owned(), resource.to_owned());
        self.by.get(&key).copied().unwrap_or_default()
    }

    /// All of this user's writes but those to the named resources, for instance `leases`.
    pub fn writes(&self, user: &str, except: &[&str]) -> u64 {
        const VERBS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
        let counted = |(who, verb, what): &(String, String, String)| {
            who == user && VERBS.contains(&verb.as_str()) && !except.contains(&what.as_str())
        };
        self.sum(counted)
    }

    /// All of this user's lists.
    pub fn lists(&self, user: &str) -> u64 {
        self.sum(|(who, verb, _)| who == user && verb == "list")
    }

    /// What this user asked for: verb, resource, how often.
    pub fn of_user(&self, user: &str) -> impl Iterator<Item = (&str, &str, u64)> {
        let of_user = self.by.iter().filter(move |((who, _, _), _)| who == user);
        of_user.map(|((_, verb, resource), count)| (verb.as_str(), resource.as_str(), *count))
    }

    /// Everything this user asked for.
    pub fn requests(&self, user: &str) -> u64 {
        self.sum(|(who, _, _)| who == user)
    }

    fn sum(&self, counted: impl Fn(&(String, String, String)) -> bool) -> u64 {
        let counted = self.by.iter().filter(|(key, _)| counted(key));
        counted.map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((user, verb, resource), count) in &self.by {
            writeln!(out, "{count:>6} {verb:<8} {resource:<40} {user}")?;
        }
        Ok(())
    }
}

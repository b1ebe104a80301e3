//! An Ironic for one test alone. Its start costs seconds of a processor, so the next test gets the one of a test that
//! has ended, without what was in it.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use reqwest::{Method, StatusCode};

use super::{Ironic, Options};

static FREE: Mutex<Vec<Ironic>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<Ironic>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody's own until it is dropped.
#[derive(Debug)]
pub struct Lent {
    ironic: Option<Ironic>,
    /// Whether anybody can use it afterwards.
    usual: bool,
}

impl Lent {
    /// A running Ironic without nodes.
    ///
    /// # Errors
    /// When a new one is needed and does not come up.
    pub async fn usual() -> anyhow::Result<Self> {
        loop {
            let Some(used) = free().pop() else {
                let new = Ironic::start(Options::default()).await?;
                return Ok(Self { ironic: Some(new), usual: true });
            };
            // One that was killed, or holds a node that does not go, is left to its end.
            if used.empty().await.is_ok() {
                return Ok(Self { ironic: Some(used), usual: true });
            }
        }
    }

    /// A new one that is set up in another way.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn special(options: Options) -> anyhow::Result<Self> {
        Ok(Self { ironic: Some(Ironic::start(options).await?), usual: false })
    }
}

impl Deref for Lent {
    type Target = Ironic;

    #[allow(clippy::expect_used, reason = "only its drop takes it out")]
    fn deref(&self) -> &Ironic {
        self.ironic.as_ref().expect("it is lent until it is dropped")
    }
}

impl Borrow<Ironic> for Lent {
    fn borrow(&self) -> &Ironic {
        self
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.usual {
            free().extend(self.ironic.take());
        }
    }
}

impl Ironic {
    async fn empty(&self) -> anyhow::Result<()> {
        let (_, body) = self.call(Method::GET, "/v1/nodes?fields=uuid", None).await?;
        let nodes = body["nodes"].as_array();
        ensure!(nodes.is_some(), "there is no list of nodes: {body}");
        for node in nodes.into_iter().flatten() {
            let path = format!("/v1/nodes/{}", node["uuid"].as_str().unwrap_or_default());
            let (status, body) = self.call(Method::DELETE, &path, None).await?;
            ensure!(status == StatusCode::NO_CONTENT, "a node does not go: {status} {body}");
        }
        Ok(())
    }
}

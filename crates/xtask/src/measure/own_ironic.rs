//! An Ironic for one program alone, whose requests to it are counted and disturbed on their way.

use anyhow::Context;
use bench::agent::Agent;
use bench::ironic::{Ironic, Options};
use bench::proxy::Proxy;

/// The machine that all others are like. No other has its number.
pub(super) const FIRST: u32 = 0xf0_0000;

pub(super) struct OwnIronic {
    pub(super) ironic: Ironic,
    pub(super) proxy: Proxy,
}

impl OwnIronic {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let ironic = Ironic::start(Options::default()).await?;
        let proxy = Proxy::start(&ironic).await?;
        Ok(Self { ironic, proxy })
    }

    /// A first machine is switched on, and all of these are like it. Gives the node of the first.
    pub(super) async fn multiply(&self, all: &[(String, Agent)]) -> anyhow::Result<String> {
        let first = Agent::new(FIRST);
        let node = self.discovered(&first).await?;
        self.ironic.multiply(&node, &first, all).await?;
        Ok(node)
    }

    /// A machine is switched on. Gives its node when Ironic has its inventory.
    pub(super) async fn discovered(&self, machine: &Agent) -> anyhow::Result<String> {
        let (status, body) = machine.post(&self.ironic).await?;
        let node = body["uuid"].as_str().with_context(|| format!("{status} {body}"))?;
        self.ironic.inventoried(node).await?;
        Ok(node.to_owned())
    }
}

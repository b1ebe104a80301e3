//! The operations.

use controller_kit::engine::Class as Urgency;
use reqwest::Method;
use serde::Deserialize;

use crate::Result;
use crate::client::{Call, Client, Ready};
use crate::error::{Class, Error};
use crate::inventory::Inventory;
use crate::node::{Driver, Node, PatchOp, PowerTarget, node_path};
use crate::paging::Detail;
use crate::version::Version;

impl Client {
    /// Whether Ironic can be worked with: it answers, in a version that is new enough, takes our
    /// credentials, and has a conductor. Asks anew each time. The error is the sentence to show.
    pub async fn check(&self) -> Result<Version> {
        let version = self.ping().await?;
        if self.drivers(None).await?.is_empty() {
            let text = "Ironic answers, but no conductor has registered a driver: wait until it \
                        has started, or look at its log";
            return Err(Error::new(Class::Busy, text).of("GET", "/v1/drivers"));
        }
        Ok(version)
    }

    /// Drivers that some living conductor offers. Whoever works on a node names it, and waits for its turn.
    pub async fn drivers(&self, node: Option<&str>) -> Result<Vec<Driver>> {
        #[derive(Deserialize)]
        struct Offered {
            drivers: Vec<Driver>,
        }
        let call = Call { node: node.map(str::to_owned), ..Call::get("drivers") };
        Ok(self.read::<Offered>(call).await?.drivers)
    }

    /// One node, by identity or name.
    pub async fn node(&self, id: &str, detail: Detail) -> Result<Node> {
        self.node_at(id, detail, Urgency::Background).await
    }

    /// The same for whoever waits with this urgency.
    pub async fn node_at(&self, id: &str, detail: Detail, urgency: Urgency) -> Result<Node> {
        let call = Call::get(node_path(id, "")?).of_node(id);
        let mut call = Call { urgency, ..call };
        if let Detail::Fields(fields) = detail {
            call.fields = fields;
        }
        self.read(call).await
    }

    /// What the machine told about itself. Anybody on the machines' network can write it, so the
    /// caller says how many bytes it is willing to read.
    ///
    /// [`Class::NotFound`] is also the first answer for a machine that is just being discovered.
    pub async fn inventory(&self, id: &str, max_bytes: usize) -> Result<Inventory> {
        let call = Call::get(node_path(id, "/inventory")?).of_node(id);
        // A machine waits for it.
        let mut call = Call { urgency: Urgency::Normal, ..call };
        call.max_answer = max_bytes;
        let path = format!("/v1/{}", call.path);
        self.read::<Inventory>(call).await?.of_machine().map_err(|error| error.of("GET", &path))
    }

    /// Waits until a power state can be asked for at once, for whoever has to look before that whether it is still wanted. That it
    /// is sent means accepted: the node shows the target at once, and the state only once it is reached. A hard one waits for
    /// nothing else that is under way.
    pub async fn ready_for_power(&self, id: &str, target: PowerTarget) -> Result<Ready<'_>> {
        let call = Call::new(Method::PUT, node_path(id, "/states/power")?).of_node(id);
        let urgency = if target.is_hard() { Urgency::Urgent } else { Urgency::Normal };
        self.ready(Call { urgency, ..call.body(target.body()) }).await
    }

    /// Asks for a step in the node's life, such as `manage`, `provide` or `abort`.
    pub async fn set_provision_state(&self, id: &str, target: &str) -> Result<()> {
        let path = node_path(id, "/states/provision")?;
        let body = serde_json::json!({ "target": target });
        self.send(Call::new(Method::PUT, path).of_node(id).body(body)).await
    }

    /// Changes a node. With `reset_interfaces` a change of the driver also picks that driver's own
    /// interfaces, without which Ironic mostly refuses it. No secret belongs into the patch: an error may repeat it.
    pub async fn patch_node(
        &self,
        id: &str,
        patch: &[PatchOp],
        reset_interfaces: bool,
    ) -> Result<Node> {
        let body =
            serde_json::to_value(patch).map_err(|error| Error::invalid(error.to_string()))?;
        let mut call = Call::new(Method::PATCH, node_path(id, "")?).of_node(id).body(body);
        if reset_interfaces {
            call.query.push(("reset_interfaces", "true".to_owned()));
        }
        self.read(call).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::Url;

    use super::*;

    proptest! {
        #[test]
        fn no_name_leads_out_of_the_nodes(id in "[a.~_/?#%-]{0,6}") {
            let Ok(path) = node_path(&id, "/states/power") else { return Ok(()) };
            let url = Call::get(path).url(&Url::parse("http://h/").unwrap(), Version::NEWEST);
            prop_assert_eq!(url.path(), format!("/v1/nodes/{id}/states/power"));
        }
    }
}

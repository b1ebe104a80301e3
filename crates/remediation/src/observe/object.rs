//! Reads of one object that may be gone.

use std::fmt::Debug;

use api_types::name::is_name;
use controller_kit::engine::{Error, found};
use kube::Api;
use serde::de::DeserializeOwned;

/// Reads the object of a name, where there is one, which may be gone. Names come from annotations and references, where anybody may write
/// anything: one that no object can have is not asked for, since a pass that cannot read does not undo either.
pub(crate) async fn by_name<'n, K>(
    what: &'static str,
    api: &Api<K>,
    name: impl Into<Option<&'n str>>,
) -> Result<Option<K>, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    match name.into().filter(|it| is_name(it)) {
        Some(name) => found(what, api.get(name)).await,
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn nobody_is_asked_for_a_name_that_no_object_can_have() {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(nowhere).unwrap();
        let hosts: Api<api_types::metal3::BareMetalHost> = Api::namespaced(client, "ns");
        let long = "h".repeat(254);
        for name in ["", "h ", "h\n", "h\u{e9}", "h%zz", "h?x", "h/status", "../h", "h.", &long] {
            let found = by_name("read the BareMetalHost", &hosts, name).await;
            assert!(matches!(found, Ok(None)), "{name:?}");
        }
    }

    #[tokio::test]
    async fn a_version_that_is_not_served_says_nothing_about_an_object() {
        let answered = |reason: &'static str| async move {
            let status = Status::failure("404 page not found", reason).with_code(404);
            let refused: kube::Result<()> = Err(kube::Error::Api(Box::new(status)));
            found("read the Machine", async { refused }).await
        };
        assert!(matches!(answered("NotFound").await, Ok(None)));
        assert!(answered("Failed to parse error data").await.is_err());
    }
}

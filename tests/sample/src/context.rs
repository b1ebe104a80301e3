//! What every pass shares.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::runtime::reflector::Store;

use crate::settings::Policy;

/// What every pass shares.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// How to decide.
    pub policy: Policy,
    /// What the watch has shown, which is a hint: passes read again.
    pub objects: Store<ConfigMap>,
}

//! What `doctor` reads of a Deployment. The library's own type would bring the decoders of all that a pod can have.

use kube::core::ObjectMeta;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) replicas: Option<i32>,
    pub(crate) template: Template,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Template {
    pub(crate) spec: Pod,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pod {
    pub(crate) service_account_name: Option<String>,
    pub(crate) containers: Vec<Container>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Container {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) image: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: Vec<Variable>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// None where it comes from elsewhere, such as a Secret.
    pub(crate) value: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) ready_replicas: i32,
    pub(crate) updated_replicas: i32,
}

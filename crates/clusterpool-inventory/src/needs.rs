//! What has to be there before the controller works, which `check` tells.

use controller_kit::check::Check;
use controller_kit::run::Needs;
use kube::Client;
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use crate::{settings, text};

/// What the controller needs from outside.
pub fn needs() -> Needs {
    let switched_off = Check::of_api_server(text::HIVES_CONTROLLER, hives_controller);
    Needs {
        fields: settings::needed(),
        rules: settings::RULES,
        checks: vec![switched_off],
        ..Needs::default()
    }
}

/// Whether Hive's own controller of pools is switched off: two must not run together, and the process itself only sees that
/// once the other one writes.
async fn hives_controller(client: Client) -> Result<String, String> {
    let kind = GroupVersionKind::gvk("hive.openshift.io", "v1", "HiveConfig");
    let api: Api<DynamicObject> =
        Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "hiveconfigs"));
    match api.get("hive").await {
        Ok(found) => hives_switch(Some(&found.data)),
        // Without Hive's operator the kind is not served either.
        Err(kube::Error::Api(status)) if status.code == 404 => hives_switch(None),
        Err(error) => Err(text::hive_config_unread(&error.to_string())),
    }
}

/// What a `HiveConfig` says of that controller.
fn hives_switch(config: Option<&Value>) -> Result<String, String> {
    let Some(config) = config else { return Ok(text::NO_HIVE_CONFIG.to_owned()) };
    let off = config["spec"]["disabledControllers"].as_array();
    let is_off = off.into_iter().flatten().any(|it| it == "clusterpool");
    if is_off { Ok(text::HIVES_IS_OFF.to_owned()) } else { Err(text::HIVES_IS_ON.to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hives_controller_is_off_where_hive_config_says_so() {
        let of = |spec: Value| hives_switch(Some(&json!({ "spec": spec })));
        assert!(of(json!({ "disabledControllers": ["hibernation", "clusterpool"] })).is_ok());
        assert!(of(json!({ "disabledControllers": ["clusterpoolnamespace"] })).is_err());
        assert!(of(json!({})).is_err());
        assert_eq!(hives_switch(None), Ok(text::NO_HIVE_CONFIG.to_owned()));
    }
}

//! An object that need not make sense.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::PartialObjectMeta;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::value::RawValue;

/// An object, or its metadata and what is wrong with the rest.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<K>(pub(crate) Result<K, (ObjectMeta, String)>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text, and no tree of values: of a large object most is skipped.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if let Ok(object) = serde_json::from_str(text.get()) {
            return Ok(Self(Ok(object)));
        }
        let text = without_managers(text.get()).map_err(D::Error::custom)?;
        Ok(Self(match serde_json::from_str(&text) {
            Ok(object) => Ok(object),
            Err(_) => Err(refused::<K>(&text).map_err(D::Error::custom)?),
        }))
    }
}

/// The object without its managed fields, which nobody reads here. Whoever may write an object may write there what the API
/// server keeps and our types do not know, such as a time after the last of their calendar. Were that an error, it would be one of
/// the whole list.
fn without_managers(text: &str) -> serde_json::Result<String> {
    let mut object: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)?;
    if let Some(metadata) = object.get_mut("metadata") {
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(metadata.get())?;
        fields.remove("managedFields");
        *metadata = serde_json::value::to_raw_value(&fields)?;
    }
    serde_json::to_string(&object)
}

/// The metadata of an object that cannot be decoded, and which field is wrong.
fn refused<K: DeserializeOwned>(text: &str) -> serde_json::Result<(ObjectMeta, String)> {
    let mut again = serde_json::Deserializer::from_str(text);
    let problem = serde_path_to_error::deserialize::<_, K>(&mut again).err();
    let problem = problem.map_or_else(String::new, |it| it.to_string());
    let partial: PartialObjectMeta<ConfigMap> = serde_json::from_str(text)?;
    Ok((partial.metadata, problem))
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|(meta, _)| meta, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|(meta, _)| meta, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt as _;
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_cannot_be_decoded_keeps_its_metadata_and_names_the_field() {
        let pod = json!({
            "metadata": { "name": "a", "namespace": "b", "resourceVersion": "7" },
            "spec": { "containers": [{ "name": "c", "ports": 5 }] },
        });
        let Guarded(pod) = serde_json::from_value::<Guarded<Pod>>(pod).unwrap();
        let (meta, problem) = pod.unwrap_err();
        assert_eq!(meta.resource_version.as_deref(), Some("7"));
        assert!(problem.starts_with("spec.containers[0].ports: "), "{problem}");
    }

    #[test]
    fn an_object_that_can_be_decoded_is_itself() {
        let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [] } });
        let Guarded(pod) = serde_json::from_value::<Guarded<Pod>>(pod).unwrap();
        assert_eq!(pod.unwrap().name_any(), "a");
    }

    #[test]
    fn managed_fields_that_make_no_sense_spoil_neither_the_object_nor_the_list() {
        let deep = "{\"f:a\":".repeat(130) + "{}" + &"}".repeat(130);
        for managed in [
            r#"{"manager": "a", "time": "9999-12-31T23:59:59Z"}"#.to_owned(),
            format!(r#"{{"manager": "a", "fieldsV1": {deep}}}"#),
        ] {
            let pod = |name: &str, spec: &str| {
                format!(
                    r#"{{"metadata": {{"name": "{name}", "namespace": "b", "annotations": {{"c": "d"}},
                        "managedFields": [{managed}]}}, "spec": {spec}}}"#
                )
            };
            let (good, bad) = (pod("good", r#"{"containers": []}"#), pod("bad", "5"));
            let list = format!(
                r#"{{"apiVersion": "v1", "kind": "PodList", "metadata": {{"resourceVersion": "9"}}, "items": [{good}, {bad}]}}"#
            );
            let list: ObjectList<Guarded<Pod>> = serde_json::from_str(&list).unwrap();
            let [Guarded(Ok(good)), Guarded(Err((bad, problem)))] = list.items.as_slice() else {
                panic!("{list:?}")
            };
            assert_eq!((good.name_any().as_str(), bad.name.as_deref()), ("good", Some("bad")));
            // What else is known of it is still known: an annotation may say whose it is.
            assert_eq!(good.annotations(), bad.annotations.as_ref().unwrap());
            assert!(problem.starts_with("spec: "), "{problem}");
        }
    }
}

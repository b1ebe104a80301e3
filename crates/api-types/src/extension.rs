//! What we need of CRDs that others ship, as data. Merging it into an installed CRD is the kit's.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use crate::hive::{EntryStatus, LISTS};

/// One property that a controller needs in a foreign CRD.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdExtension {
    /// The controller that needs it, and whose `extend-crd` adds it.
    pub controller: &'static str,
    /// Name of the CRD.
    pub crd: &'static str,
    /// The versions of the CRD that need it.
    pub versions: &'static [&'static str],
    /// Where the property belongs: names of properties from the root of the schema.
    pub path: &'static [&'static str],
    /// Name of the property.
    pub property: &'static str,
    /// Its schema.
    pub schema: JSONSchemaProps,
    /// What to do where the property is already there with another schema: replace that
    /// (`true`), or let it stand as the CRD's owner wants it (`false`).
    pub replace: bool,
}

/// Everything that we add to foreign CRDs.
pub fn extensions() -> Vec<CrdExtension> {
    vec![
        CrdExtension {
            controller: "bmo-reboot",
            crd: "baremetalhosts.metal3.io",
            versions: &["v1alpha1"],
            path: &["status", "provisioning"],
            property: "lastPoweredOn",
            schema: time(
                "A time after which the host was last booted with its current image. Processes \
                 that ran before it have been stopped.",
            ),
            replace: false,
        },
        CrdExtension {
            controller: "bmo-reboot",
            crd: "baremetalhosts.metal3.io",
            versions: &["v1alpha1"],
            path: &["status", "provisioning"],
            property: "pendingRebootSince",
            schema: time(
                "A time before which the host was last asked to reboot. Later than lastPoweredOn \
                 while the reboot is under way.",
            ),
            replace: false,
        },
        CrdExtension {
            controller: "clusterpool-inventory",
            crd: "clusterpools.hive.openshift.io",
            versions: &["v1"],
            path: &["spec"],
            property: "inventory",
            schema: either_form_of_inventory(),
            replace: true,
        },
        CrdExtension {
            controller: "clusterpool-inventory",
            crd: "clusterpools.hive.openshift.io",
            versions: &["v1"],
            path: &["status"],
            property: "inventory",
            schema: inventory_status(),
            replace: false,
        },
        CrdExtension {
            controller: "clusterpool-inventory",
            crd: "clusterdeploymentcustomizations.hive.openshift.io",
            versions: &["v1"],
            path: &["status", "clusterDeploymentRef"],
            property: "namespace",
            schema: string("Namespace of the cluster that uses this customization."),
            replace: false,
        },
    ]
}

fn string(description: &str) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("string".to_owned()),
        description: Some(description.to_owned()),
        ..JSONSchemaProps::default()
    }
}

fn time(description: &str) -> JSONSchemaProps {
    JSONSchemaProps {
        format: Some("date-time".to_owned()),
        nullable: Some(true),
        ..string(description)
    }
}

fn object<const N: usize>(
    description: &str,
    properties: [(&str, JSONSchemaProps); N],
) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("object".to_owned()),
        properties: Some(BTreeMap::from(
            properties.map(|(name, schema)| (name.to_owned(), schema)),
        )),
        ..string(description)
    }
}

/// A list or an object: a schema cannot say "one of two types" in any other way than by leaving the type open. What it
/// says of items holds for the one, what it says of properties for the other; the rest the controller says in a condition.
fn either_form_of_inventory() -> JSONSchemaProps {
    let name = JSONSchemaProps {
        min_length: Some(1),
        ..string("Name of a ClusterDeploymentCustomization of the pool's namespace.")
    };
    let kind = string("ClusterDeploymentCustomization, or nothing.");
    let entry = JSONSchemaProps {
        required: Some(vec!["name".to_owned()]),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..object("One customization.", [("name", name), ("kind", kind)])
    };
    let items = JSONSchemaPropsOrArray::Schema(Box::new(entry));
    let list = JSONSchemaProps {
        type_: Some("array".to_owned()),
        items: Some(items.clone()),
        min_items: Some(1),
        ..string("Customizations, the first of which is used first.")
    };
    let lists = LISTS.map(|spelling| (spelling, list.clone()));
    JSONSchemaProps {
        type_: None,
        x_kubernetes_preserve_unknown_fields: Some(true),
        items: Some(items),
        min_items: Some(1),
        min_properties: Some(1),
        ..object(
            "Customizations of which each cluster gets one: an object with the list \
             ClusterDeploymentCustomizations of {name}, or a plain list of {kind, name}.",
            lists,
        )
    }
}

fn inventory_status() -> JSONSchemaProps {
    let entry = object(
        "How one entry of the inventory is.",
        [
            ("version", string("Version of the customization that this was said about.")),
            (
                "status",
                string(&format!(
                    "How the entry is: {}.",
                    EntryStatus::KNOWN.each_ref().map(EntryStatus::as_str).join(", ")
                )),
            ),
            (
                "attempts",
                JSONSchemaProps {
                    type_: Some("integer".to_owned()),
                    format: Some("int32".to_owned()),
                    minimum: Some(0.0),
                    ..string("Failed provisions that the entry may still have.")
                },
            ),
            (
                "clusterDeploymentRef",
                object(
                    "The cluster that uses the entry.",
                    [
                        ("name", string("Name of the cluster.")),
                        ("namespace", string("Namespace of the cluster.")),
                    ],
                ),
            ),
            (
                "lastFailure",
                object(
                    "The last cluster that could not be made from the entry.",
                    [
                        ("clusterDeployment", string("Name of the cluster; each counts once.")),
                        ("reason", string("Why, as one word.")),
                        ("message", string("Why, for people.")),
                        ("time", time("When it was noticed.")),
                    ],
                ),
            ),
        ],
    );
    JSONSchemaProps {
        type_: Some("object".to_owned()),
        additional_properties: Some(JSONSchemaPropsOrBool::Schema(Box::new(entry))),
        ..string("How each entry of the inventory is, by name of the customization.")
    }
}

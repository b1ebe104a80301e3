//! A `BareMetalHostDiscovery`, read once per change.

use std::collections::{BTreeMap, BTreeSet};

use api_types::metal3::{BareMetalHostDiscovery, BareMetalHostDiscoverySpec, Bmc, CleaningMode};
use api_types::names::capi::WATCH_FILTER;
use api_types::names::ferrite;
use controller_kit::events::shorten;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::bmc::BmcPolicy;
use crate::index::{Index, Known};
use crate::inventory::{Facts, Port};
use crate::labels;
use crate::mac::Mac;
use crate::naming::{Named, Template, choose, quotable, value};
use crate::node_id::NodeId;
use crate::reason::Reason;
use crate::selector::Selector;
use crate::text;

/// Bytes of an approval that is no identifier: the event that tells of it is told from others by them, and the API server
/// refuses one with more.
const LONGEST_STRANGE: usize = 128;

/// What a user wants, in the form in which it is asked for each machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Namespace of the resource and of the hosts that it makes.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Tells it from a later one of the same name.
    pub uid: Option<String>,
    /// The version that was read.
    pub version: Option<String>,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// When it was made: the oldest takes a machine that several would take.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Which instances of the controllers look after it, and so after its hosts; none: all that have no such filter.
    pub watch_filter: Option<String>,
    /// Machines to which a person agreed.
    pub approved: BTreeSet<NodeId>,
    /// Entries of the approval that are no identifiers, as they can be shown.
    pub strange_approvals: Vec<String>,
    /// What the user wrote. Labels that no host can have are not in it, and all labels of new hosts are in `labels`.
    pub spec: BareMetalHostDiscoverySpec,
    /// Prefix and suffix; none if they make no name.
    pub template: Option<Template>,
    /// Which machines it takes.
    pub selector: Selector,
    /// Which BMC its hosts get.
    pub bmc: Option<BmcPolicy>,
    /// What is wrong with it, each with what to change.
    pub mistakes: Vec<String>,
    /// An older one that nobody can read, and that may want the same machines: none are made before that is corrected.
    pub behind: Option<String>,
}

impl Resource {
    /// What it calls the host of a machine, or why it cannot, and what is to be said about that.
    pub fn name_of(
        &self,
        node: NodeId,
        facts: &Facts,
        boot_mac: Mac,
    ) -> Result<Named, (Reason, Option<String>)> {
        let template = self.template.as_ref().filter(|_| self.makes_hosts());
        let template = template.ok_or((Reason::TemplateInvalid, None))?;
        let value_of = |detail| value(detail, facts, node);
        let named_by = self.spec.resource_name_template.hardware_details;
        choose(template, named_by, self.spec.fallback, boot_mac, value_of)
            .map_err(|why| (Reason::NoName, Some(why.to_string())))
    }

    /// Whether its templates make names and addresses. A host without the BMC that its discovery wants for it would be
    /// another one than was asked for.
    pub fn makes_hosts(&self) -> bool {
        self.template.is_some() && self.bmc.as_ref().is_none_or(BmcPolicy::is_valid)
    }

    /// The BMC of the host of a machine.
    pub fn bmc_of(&self, facts: &Facts) -> Option<Bmc> {
        let given = self.spec.bmc.as_ref()?;
        let proposed = self.bmc.as_ref()?.proposed(facts).filter(|it| it.is_inside)?;
        Some(Bmc {
            address: proposed.address,
            credentials_name: given.credentials_name.clone(),
            disable_certificate_verification: given
                .disable_certificate_verification
                .then_some(true),
            ..Bmc::default()
        })
    }

    /// Whether the operator erases its hosts on their way to `available`.
    pub fn erases(&self) -> bool {
        let mode = self.spec.host_defaults.as_ref().and_then(|it| it.automated_cleaning_mode);
        mode != Some(CleaningMode::Disabled)
    }

    /// Reads a resource. What its CRD would refuse may still be there in an object that is older
    /// than the CRD's rules.
    pub fn read(given: &BareMetalHostDiscovery) -> Self {
        let mut spec = given.spec.clone();
        let metadata = &given.metadata;
        let mut mistakes = Vec::new();
        let names = &spec.resource_name_template;
        let [prefix, suffix] = [&names.prefix, &names.suffix].map(Option::as_deref);
        let (prefix, suffix) = (prefix.unwrap_or_default(), suffix.unwrap_or_default());
        let template = Template::new(prefix, suffix);
        if template.is_none() {
            let given = format!("{prefix}<value>{suffix}");
            mistakes.push(text::wrong("resourceNameTemplate", &given, text::NO_NAME_TEMPLATE));
        }
        let (selector, unmatchable) =
            spec.selector.as_ref().map(Selector::read).unwrap_or_default();
        mistakes.extend(unmatchable);
        let bmc = spec.bmc.as_ref().map(|it| BmcPolicy::read(it, &mut mistakes));
        // The labels of this resource come after those that it starts its hosts with.
        let defaults = spec.host_defaults.iter().flat_map(|it| &it.labels);
        let mut fixed = legal("hostDefaults.labels", defaults, &mut mistakes);
        fixed.extend(legal("labels", &spec.labels, &mut mistakes));
        spec.labels = fixed;
        spec.labels_from_hardware
            .retain(|key, _| is_legal_key("labelsFromHardware", key, &mut mistakes));
        let (approved, strange_approvals) =
            approvals(metadata.annotations.as_ref().and_then(|all| all.get(ferrite::APPROVE)));
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: metadata.deletion_timestamp.is_some(),
            watch_filter: metadata.labels.as_ref().and_then(|all| all.get(WATCH_FILTER)).cloned(),
            approved,
            strange_approvals,
            spec,
            template,
            selector,
            bmc,
            mistakes,
            behind: None,
        }
    }

    /// Whether the object still says what was read, as far as that decides about hosts. Its status is written by us, and its
    /// version changes with it.
    pub fn is_still(&self, metadata: &ObjectMeta) -> bool {
        let annotations = metadata.annotations.as_ref();
        let labels = metadata.labels.as_ref();
        metadata.uid == self.uid
            && metadata.generation == self.generation
            && metadata.deletion_timestamp.is_some() == self.deleting
            && labels.and_then(|all| all.get(WATCH_FILTER)) == self.watch_filter.as_ref()
            && approvals(annotations.and_then(|all| all.get(ferrite::APPROVE))).0 == self.approved
    }

    /// Whether it has as many hosts as it may have.
    pub fn is_full(&self, made: impl Into<i64>) -> bool {
        self.spec.max_hosts.is_some_and(|most| made.into() >= i64::from(most))
    }

    /// The value of the label that its hosts bear. A name of a resource may be longer than a label: then its hash ends it.
    pub fn label(&self) -> String {
        labels::distinct_value_of(&self.name).unwrap_or_default()
    }

    /// How many hosts it made that are still there.
    pub fn made(&self, hosts: &Index) -> u32 {
        hosts.made_by(&self.namespace, &self.label())
    }

    /// Whether it made a host.
    pub fn has_made(&self, known: &Known) -> bool {
        known.host.namespace == self.namespace && known.made_by.as_deref() == Some(&self.label())
    }

    /// Whether a machine is one that it takes.
    pub fn takes(&self, facts: &Facts, ports: &[Port]) -> bool {
        !self.deleting
            && (self.spec.include_all_nodes || facts.auto_discovered)
            && self.selector.matches(facts, ports)
    }

    /// Takes notice of a resource of which only the metadata can be read.
    pub fn give_way(&mut self, unread: &ObjectMeta) {
        let created = unread.creation_timestamp.as_ref().map(|time| time.0);
        let [namespace, name] = [&unread.namespace, &unread.name].map(Option::as_deref);
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        if age(created, namespace, name) < age(self.created, &self.namespace, &self.name) {
            self.behind = Some(text::older_undecodable(unread));
        }
    }

    /// By what resources are ordered: the oldest first, and of the same second the first by name.
    pub fn age(&self) -> impl Ord + '_ {
        age(self.created, &self.namespace, &self.name)
    }
}

/// One that has no time yet was just made.
fn age<'a>(created: Option<Timestamp>, namespace: &'a str, name: &'a str) -> impl Ord + 'a {
    (created.is_none(), created, namespace, name)
}

fn legal<'a>(
    field: &str,
    given: impl IntoIterator<Item = (&'a String, &'a String)>,
    mistakes: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::new();
    for (key, value) in given {
        if !is_legal_key(field, key, mistakes) {
            continue;
        }
        if labels::is_value(value) {
            kept.insert(key.clone(), value.clone());
        } else {
            mistakes.push(text::label_value(field, key, value));
        }
    }
    kept
}

fn is_legal_key(field: &str, key: &str, mistakes: &mut Vec<String>) -> bool {
    let is_legal = labels::is_key(key);
    if !is_legal {
        mistakes.push(text::label_key(field, key));
    }
    is_legal
}

fn approvals(text: Option<&String>) -> (BTreeSet<NodeId>, Vec<String>) {
    let mut approved = BTreeSet::new();
    let mut strange = Vec::new();
    let entries = text.into_iter().flat_map(|text| text.split(','));
    for entry in entries.map(str::trim).filter(|entry| !entry.is_empty()) {
        match NodeId::parse(entry) {
            Some(node) => {
                approved.insert(node);
            }
            None => strange.push(shorten(&quotable(entry), LONGEST_STRANGE)),
        }
    }
    (approved, strange)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_discovery_is_decided_anew_when_a_person_changed_it_and_not_when_its_status_was_written() {
        let spec = serde_json::json!({"resourceNameTemplate": {"hardwareDetails": "hostname"}});
        let spec = serde_json::from_value(spec).unwrap();
        let mut object = BareMetalHostDiscovery::new("racks", spec);
        object.metadata.uid = Some("first".to_owned());
        object.metadata.generation = Some(1);
        let approved = NodeId::from(1).to_string();
        object.metadata.annotations = Some([(ferrite::APPROVE.to_owned(), approved)].into());
        let read = Resource::read(&object);
        let still = |change: fn(&mut ObjectMeta)| {
            let mut metadata = object.metadata.clone();
            change(&mut metadata);
            read.is_still(&metadata)
        };
        assert!(still(|it| it.resource_version = Some("9".to_owned())));
        let changes: [fn(&mut ObjectMeta); 5] = [
            |it| it.generation = Some(2),
            |it| it.annotations = None,
            |it| it.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
            |it| it.uid = Some("second".to_owned()),
            |it| it.labels = Some([(WATCH_FILTER.to_owned(), "others".to_owned())].into()),
        ];
        for change in changes {
            assert!(!still(change));
        }
    }

    #[test]
    fn an_approval_that_is_no_identifier_fits_into_an_event() {
        let (approved, strange) = approvals(Some(&format!("rack 7, {}", "超".repeat(60))));
        assert!(approved.is_empty());
        assert_eq!(strange[0], "rack 7");
        assert!(strange[1].starts_with('超') && strange[1].len() <= 128, "{strange:?}");
    }
}

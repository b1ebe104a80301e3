//! Every sentence that a person reads in a condition or an event. Nothing reads them but people.

use api_types::capm3::{HostSelector, Metal3Machine};
use api_types::metal3::{BareMetalHost, ProvisioningState};
use api_types::names;
use api_types::names::metal3::NODE_UUID;
use api_types::reference::ObjectRef;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::host::{self, Exclusion};
use crate::machine::is_same;
use crate::reservation::Owner;
use crate::seen::{Choice, HostSeen, Hosts, Node, Operator, Sought, Unfit};

pub(crate) const UNOWNED: &str = "No Machine owns this Metal3Machine";
pub(crate) const MACHINE_DELETING: &str =
    "The Machine is being deleted: nothing is installed for it any more";
pub(crate) const NO_INFRASTRUCTURE: &str = "The Cluster's infrastructure is not ready yet";
pub(crate) const NO_BOOTSTRAP_DATA: &str = "The Machine has no bootstrap data yet";
pub(crate) const DATA_UNSERVED: &str = "spec.dataTemplate is set and the API server serves no Metal3DataClaim, Metal3Data or Metal3DataTemplate: install CAPM3's CRDs and its data controllers";
pub(crate) const IMAGE_MISSING: &str =
    "spec.image is missing: name an image, or a method in spec.customDeploy";
pub(crate) const CHECKSUM_MISSING: &str =
    "spec.image.checksum is missing: give one, or use diskFormat live-iso";
pub(crate) const GAVE_ITS_PLACE: &str = "it did not answer before others needed its place";
pub(crate) const INSTALLED: &str = "The host is installed";
pub(crate) const INSTALLING: &str = "The host is being installed";
pub(crate) const RENDERED: &str = "The secrets are rendered";
pub(crate) const WIPED: &str =
    "; its disks are wiped before it is used again, as automatedCleaningMode is not disabled";
pub(crate) const UNWIPED: &str = "; its disks are not wiped, as automatedCleaningMode is disabled: see to it that nobody gets what is on them";
pub(crate) const UNANSWERED: &str = "the API server did not answer in time";

// Why a host is kept for nobody.
pub(crate) const NO_OWNER: &str = "no control plane and no MachineDeployment owns its Machine";
pub(crate) const REUSE_UNSET: &str = "the template of its owner does not set nodeReuse";
pub(crate) const OWN_REUSE_UNSET: &str =
    "the template that its machine was cloned from does not set nodeReuse";
pub(crate) const TEMPLATE_GONE: &str = "the template of its owner is gone";

// Why a host is kept no longer.
pub(crate) const OWNER_GONE: &str = "its owner is gone";
pub(crate) const OWNER_REPLACED: &str = "its owner is gone, and another one has its name";
pub(crate) const CLUSTER_DELETING: &str = "its cluster is being deleted";
pub(crate) const OWNER_DELETING: &str = "its owner is being deleted";
pub(crate) const REUSE_OFF: &str = "the template of its owner has nodeReuse no longer";
pub(crate) const NOT_NEEDED: &str = "every machine of its owner has a host or wants another one";

/// What keeps a host from being newly claimed.
pub(crate) fn exclusion(why: Exclusion) -> &'static str {
    match why {
        Exclusion::Deleting => "is being deleted",
        Exclusion::Unhealthy => "is marked as unhealthy",
        Exclusion::Failed => "reports an error",
        Exclusion::Paused => "is paused",
        Exclusion::Detached => "is detached",
    }
}

/// Why a host that is kept for its owner is no good for a machine.
fn unfit_why(why: Unfit) -> &'static str {
    match why {
        Unfit::NotSelected => "does not match hostSelector",
        Unfit::OfOthers => "is another instance's by its label cluster.x-k8s.io/watch-filter",
        Unfit::LongName => "its name is too long for a provider ID",
        Unfit::Excluded(why) => exclusion(why),
        Unfit::NeverReady => "is not going to be ready",
    }
}

/// A pause may begin a move, for which CAPM3 prepares hosts.
pub(crate) fn paused(filter: Option<&str>) -> String {
    let moves = filter.map_or_else(String::new, |filter| {
        format!("; only a CAPM3 whose --watch-filter is {filter}, or that has none, prepares its host for a move")
    });
    format!("The Metal3Machine or its Cluster is paused{moves}")
}

/// What nobody does for machines with this watch label.
pub(crate) fn left_to_others(filter: &str) -> String {
    format!(
        "a CAPM3 with another --watch-filter than {filter} renders no secrets for these machines and prepares no host for a move: run one with that value if data templates are used, and move with the script of the documentation"
    )
}

// What is missing.

pub(crate) fn machine_missing(name: &str) -> String {
    format!("Machine {name} owns this Metal3Machine and is not there")
}

pub(crate) fn cluster_missing(name: &str) -> String {
    format!("Cluster {name:?} is not there")
}

pub(crate) fn bootstrap_secret_missing(name: &str) -> String {
    format!("Secret {name} with the bootstrap data is not there")
}

/// An object that a field of the machine's spec names.
pub(crate) fn missing(kind: &str, name: &str, field: &str) -> String {
    format!("{kind} {name}, which spec.{field} names, is not there: make it, or correct the name")
}

pub(crate) fn no_url(url: &str) -> String {
    format!("spec.image.url {url:?} is no URL")
}

pub(crate) fn foreign(field: &str, other: &str, own: &str) -> String {
    format!(
        "spec.{field}.namespace is {other:?}: only the machine's own namespace {own:?} may be named"
    )
}

// On the way to a host.

pub(crate) fn host(name: &str) -> String {
    format!("Host {name}")
}

pub(crate) fn will_be_ready(host: &str, owner: &Owner) -> String {
    format!("Host {host} is kept for {owner} and will be ready")
}

pub(crate) fn none_kept(owner: &Owner, unfit: &str) -> String {
    format!(
        "No host is kept for {owner}{unfit}; with --strict-reuse this machine gets no other: free one for it, or set nodeReuse to false"
    )
}

pub(crate) fn name_too_long(most: usize, unfit: &str) -> String {
    format!(
        "No free host with a name of at most {most} bytes matches, and with a longer one the provider ID would be too long{unfit}: use shorter names, or add a host with a shorter one"
    )
}

pub(crate) fn none_free(
    selector: Option<&HostSelector>,
    unfit: &str,
    labelled: Option<&str>,
) -> String {
    let labels = match selector.map(wanted_labels).filter(|it| !it.is_empty()) {
        Some(labels) => format!("and has the labels of hostSelector ({labels})"),
        None => "whatever its labels, as there is no hostSelector".to_owned(),
    };
    let labelled = labelled.map_or_else(String::new, |host| {
        format!(
            "; host {host} would fit but is reserved by its label {}: remove the label if nobody needs the reservation, or set --collect-capm3-reservations",
            names::capm3::NODE_REUSE
        )
    });
    format!(
        "No free host matches: one that is available, healthy, not paused, {labels}{unfit}{labelled}"
    )
}

pub(crate) fn no_label_key(key: &str) -> String {
    format!("hostSelector: {key:?} is no label key")
}

pub(crate) fn no_label_value(value: &str, key: &str) -> String {
    format!("hostSelector: {value:?} of {key:?} is no label value")
}

pub(crate) fn operator_takes(operator: Operator, word: &str, key: &str) -> String {
    let takes = match operator {
        Operator::OneOf | Operator::NoneOf => "needs values",
        Operator::Has | Operator::Lacks => "takes no values: empty the list",
        Operator::Above | Operator::Below => "needs one whole number",
    };
    format!("hostSelector: operator {word} of {key:?} {takes}")
}

pub(crate) fn operator_unknown(word: &str, key: &str) -> String {
    format!(
        "hostSelector: operator {word:?} of {key:?} is not known: use In, NotIn, Exists or DoesNotExist, or Gt or Lt for numbers"
    )
}

/// A selector as people write it on a command line.
fn wanted_labels(selector: &HostSelector) -> String {
    let equal = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let rules = selector.match_expressions.iter().map(|it| {
        let values = it.values.join(", ");
        if values.is_empty() {
            format!("{} {}", it.key, it.operator)
        } else {
            format!("{} {} ({values})", it.key, it.operator)
        }
    });
    equal.chain(rules).collect::<Vec<_>>().join(", ")
}

/// A host that is kept for the machine's owner and no good, or for another machine, if one is known.
pub(crate) fn unfit(choice: &Choice, owner: &Owner) -> String {
    match (&choice.on_its_way, &choice.unfit) {
        (Some(host), _) => format!(
            "; host {host} is kept for {owner} and will be ready, but other machines wait before this one"
        ),
        (None, Some((host, why))) => {
            format!("; host {host} is kept for {owner} but {}", unfit_why(*why))
        }
        (None, None) => String::new(),
    }
}

/// Why a machine whose owner may have hosts kept got a free one, after the name of that.
pub(crate) fn why_free(choice: &Choice, owner: &Owner) -> String {
    let unfit = unfit(choice, owner);
    if unfit.is_empty() { format!("; none is kept for {owner}") } else { unfit }
}

pub(crate) fn not_to_be_had(host: &str) -> String {
    format!("Host {host} is not to be had any more")
}

// With a host.

pub(crate) fn names_machine(host: &str) -> String {
    format!("Host {host} names this machine")
}

pub(crate) fn takes_back(host: &str) -> String {
    format!(
        "Host {host} was taken from this machine while it was installed, is nobody's, and is still told to install it: this machine takes it back"
    )
}

pub(crate) fn lifts_pause(host: &str) -> String {
    format!("Host {host} names this machine, and the pause that CAPM3 set on it is lifted")
}

pub(crate) fn is_back(host: &str, now: &str) -> String {
    format!("Host {host} is this machine's again. {now}")
}

pub(crate) fn not_rendered(claim: &str, filter: Option<&str>) -> String {
    let by = filter.map_or_else(String::new, |filter| {
        format!("; only a CAPM3 whose --watch-filter is {filter}, or that has none, renders them")
    });
    format!("The secrets of Metal3DataClaim {claim} are not rendered yet{by}")
}

/// What was rendered before and is not gone yet.
pub(crate) fn not_gone(kind: &str, name: &str, finalizers: &[String]) -> String {
    let waits = match finalizers {
        [] => String::new(),
        all => format!(", and waits for its finalizers {}", all.join(", ")),
    };
    format!(
        "The secrets are not asked for before what was rendered for another host is gone: {kind} {name} is still being removed{waits}"
    )
}

pub(crate) fn host_failed(host: &str, why: &str) -> String {
    format!("Host {host}: {why}")
}

pub(crate) fn held_up(host: &str, why: Exclusion) -> String {
    format!("Host {host} is to be installed and {}", exclusion(why))
}

/// What a person does about a host that is lost.
pub(crate) fn lost(how: &str) -> String {
    format!("{how}; delete the Machine to have it replaced")
}

pub(crate) fn host_deleting(host: &str) -> String {
    format!("Host {host} is being deleted")
}

pub(crate) fn image_gone(host: &str) -> String {
    format!("Host {host} has no image any more: somebody took it away")
}

/// What became of the host that a machine had.
pub(crate) fn loss(machine: &Metal3Machine, host: &HostSeen) -> String {
    let host = match host {
        HostSeen::None => return "This machine was up and names no host any more".to_owned(),
        HostSeen::Gone(name) => return format!("Host {name} is gone"),
        HostSeen::Here(host) => host,
    };
    let name = host.name_any();
    if !is_same(machine, host) {
        return format!("Host {name} is gone, and the one that has its name now is another");
    }
    match &host.spec.consumer_ref {
        None if host::may_run(host) => format!(
            "Host {name} was taken from this machine and is nobody's, and what was installed on it still runs: take its image off, or name this machine in its consumerRef again"
        ),
        None => format!("Host {name} was taken from this machine and is free"),
        Some(other) => {
            format!("Host {name} was taken from this machine: {} has it", kind_and_name(other))
        }
    }
}

/// As people call what a reference names.
pub(crate) fn kind_and_name(it: &ObjectRef) -> String {
    let (kind, name) = (it.kind.as_deref(), it.name.as_deref());
    format!("{} {}", kind.unwrap_or_default(), name.unwrap_or_default())
}

/// A host that installs a machine which has it no longer.
pub(crate) fn still_installs(host: &BareMetalHost) -> String {
    let name = host.name_any();
    let now = host.spec.consumer_ref.as_ref().map_or_else(
        || "is being deleted".to_owned(),
        |it| format!("names {} as its consumer", kind_and_name(it)),
    );
    format!(
        "Host {name} {now} and is still told to install this machine. Remove spec.image, spec.customDeploy and spec.userData of the host, or delete the Machine"
    )
}

pub(crate) fn node_unknown(why: &str) -> String {
    format!("The host is installed; its Node is not known: {why}")
}

pub(crate) fn node_missing(sought: &Sought<'_>) -> String {
    format!(
        "The host is installed; in Cluster {} no Node that runs has the label {NODE_UUID}={} or the provider ID {}: have the kubelet set one of them, or look how far the host has started",
        sought.cluster.name_any(),
        sought.host_uid,
        sought.provider_id
    )
}

pub(crate) fn node_foreign(node: &Node, sought: &Sought<'_>) -> String {
    format!(
        "The host is installed; its Node {} has the provider ID {} instead of {}, which stays: delete the Node and start its kubelet anew, or correct what sets that ID",
        node.name, node.provider_id, sought.provider_id
    )
}

pub(crate) fn nodes_ambiguous(one: &Node, other: &Node, sought: &Sought<'_>) -> String {
    format!(
        "The host is installed; the Nodes {} and {} both have the label {NODE_UUID}={}: delete the one that does not run on this host",
        one.name, other.name, sought.host_uid
    )
}

pub(crate) const CLOUD_PROVIDER: &str =
    "its Metal3Cluster says that a cloud provider sets provider IDs";

/// Of whatever is read on the way to a Node.
pub(crate) fn cannot_be_read(what: &str, why: &str) -> String {
    format!("{what} cannot be read: {why}")
}

/// Of an answer of a stranger the code alone.
pub(crate) fn answers(code: u16) -> String {
    format!("its API server answers {code}")
}

// Where replicas follow hosts.

pub(crate) const SCALE_HALTED: &str = "Replicas are left as they are: this object or its Cluster is paused or being deleted, or the Cluster does not exist";

pub(crate) fn scale_word(word: &str) -> String {
    format!(
        "{word:?} in annotation {} cannot be read. Set it to min=<number>,max=<number>, and add ,down=true to let replicas shrink as well",
        names::ferrite::SCALE_TO_HOSTS
    )
}

pub(crate) fn scale_bounds(min: i32, max: i32) -> String {
    let annotation = names::ferrite::SCALE_TO_HOSTS;
    format!("Annotation {annotation} has min {min} above max {max}. Lower min or raise max")
}

pub(crate) fn scaled_elsewhere(key: &str) -> String {
    format!(
        "{key} says that another program sets these replicas. Remove it, or the annotation {}",
        names::ferrite::SCALE_TO_HOSTS
    )
}

pub(crate) fn scale_template_missing(name: &str) -> String {
    format!("Metal3MachineTemplate {name} does not exist. Create it, or correct infrastructureRef")
}

pub(crate) fn hosts_contested(host: &str, other: &Owner) -> String {
    format!(
        "Host {host} is free for {other} as well, whose replicas also follow hosts. Give both templates a hostSelector of their own, or remove the annotation {} from one",
        names::ferrite::SCALE_TO_HOSTS
    )
}

pub(crate) fn scaled(before: i32, replicas: i32, hosts: &Hosts) -> String {
    let Hosts { taken, free, unready } = hosts;
    format!(
        "Scaled from {before} to {replicas} replicas: {taken} hosts in use, {free} free, {unready} not ready"
    )
}

// On the way back.

pub(crate) fn template_undecodable(name: &str, why: &str) -> String {
    format!("Metal3MachineTemplate {name} cannot be decoded: {why}")
}

pub(crate) fn reuse_odd(template: &str, value: &Value) -> String {
    format!(
        "spec.nodeReuse of Metal3MachineTemplate {template} is {value}: set it to true or false"
    )
}

pub(crate) fn owner_forbidden(owner: &Owner, plural: &str) -> String {
    format!("{owner} may not be read: allow get on {plural} of {} to this account", owner.group())
}

pub(crate) fn owner_unserved(owner: &Owner) -> String {
    let (kind, group) = (&owner.kind, owner.group());
    format!("the API server serves no {kind} of {group}: install its CRD")
}

pub(crate) fn other_template(owner: &Owner, named: &ObjectRef) -> String {
    let named = kind_and_name(named);
    format!("{owner} points to {named}: only a Metal3MachineTemplate says whether hosts are kept")
}

pub(crate) fn no_template_named(owner: &Owner, places: &str) -> String {
    format!("{owner} names no template in any of {places}")
}

pub(crate) fn kept_for(owner: Option<&Owner>) -> String {
    match owner {
        Some(owner) => format!("it is kept for {owner}"),
        None => "it is kept for nobody".to_owned(),
    }
}

pub(crate) fn kept_for_nobody(why: &str) -> String {
    format!("it is kept for nobody: {why}")
}

pub(crate) fn clears(host: &str, kept: &str, wiped: &str) -> String {
    format!("Host {host} is being cleared; {kept}{wiped}")
}

/// Of which machine, if that is gone.
pub(crate) fn given_back(
    host: &str,
    gone: Option<&str>,
    owner: Option<&Owner>,
    wiped: &str,
) -> String {
    let of = gone.map_or_else(String::new, |it| format!(" for Metal3Machine {it}, which is gone"));
    format!("Host {host} is given back{of}; {}{wiped}", kept_for(owner))
}

pub(crate) fn consumer_missing(host: &str, machine: &str) -> String {
    format!(
        "Host {host} names Metal3Machine {machine}, which does not exist. Remove the image of the host and then its spec.consumerRef if nothing on it is needed"
    )
}

pub(crate) fn names_owner(host: &str, owner: &Owner) -> String {
    format!("Host {host} names {owner} from now on, while it is still cleared")
}

pub(crate) fn clearing(host: &BareMetalHost, held_up: Option<Exclusion>) -> String {
    let name = host.name_any();
    let mut text = match host.provisioning_state() {
        ProvisioningState::ExternallyProvisioned => {
            format!("Host {name} was installed by somebody else and is to be switched off first")
        }
        ProvisioningState::None
        | ProvisioningState::Registering
        | ProvisioningState::MatchProfile => {
            format!(
                "Host {name} has not been looked at by the bare metal operator yet (so what is installed on it is unknown)"
            )
        }
        _ => format!("Host {name} is being cleared"),
    };
    if let Some(why) = held_up {
        text = format!("{text} and {}", exclusion(why));
    }
    if let Some(error) = host::error(host) {
        text = format!("{text}: {error}");
    }
    text
}

pub(crate) fn unanswered(host: &str, why: &str) -> String {
    format!("Host {host} is not cleared before it is known for whom it is to be kept: {why}")
}

pub(crate) fn owner_unreadable(why: &str) -> String {
    format!(
        "The host is installed; it could not be given back, as it cannot be read for whom it is to be kept: {why}"
    )
}

pub(crate) fn stays_kept(host: &str, why: &str) -> String {
    format!(
        "Host {host} stays kept for an owner that cannot be read: {why}; or remove {}",
        both_marks()
    )
}

pub(crate) fn kept_by_capm3(host: &str) -> String {
    format!(
        "Host {host} is reserved by CAPM3. Remove {} if nobody needs the reservation, or set --collect-capm3-reservations",
        both_marks()
    )
}

/// What makes a host a reserved one. Whoever removes one of the two keeps it from everybody: the label alone is a reservation of
/// CAPM3, and a Cluster alone is another consumer.
fn both_marks() -> String {
    format!("its spec.consumerRef and its label {}", names::capm3::NODE_REUSE)
}

pub(crate) fn moved_along(host: &str, owner: &Owner) -> String {
    format!("Host {host} stays kept for {owner}, which was moved here with it")
}

pub(crate) fn freed(host: &str, why: &str, wiped: &str) -> String {
    format!("Host {host} is kept no longer: {why}{wiped}")
}

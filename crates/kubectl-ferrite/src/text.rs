//! Every sentence that a person reads, but for those of the controllers' reasons.

use std::time::Duration;

use api_types::hive::{ClusterDeploymentCustomization, EntryState};
use api_types::metal3::ProvisioningState;
use api_types::remediation::Phase;
use controller_kit::engine::ObjectKey;

use crate::model::Object;

pub(crate) const WAIT: &str = "Wait.";
pub(crate) const FREE: &str = "it is free";
pub(crate) const UNSEEN: &str = "not looked at";
pub(crate) const NO_CONDITION: &str = "No controller has written a condition yet.";
pub(crate) const ENDED: &str = "It waits no longer.";
pub(crate) const NOTHING_WAITS: &str = "Nothing waits.";
pub(crate) const NO_KINDS: &str = "No kind of Metal3, Cluster API or Hive is installed on this API server. Check the context of the kubeconfig.";
pub(crate) const HOST_ERROR: &str =
    "Correct what the message names. The bare metal operator then retries by itself.";
pub(crate) const HOLD_ACTION: &str =
    "Wait for these clients. If a client no longer exists, remove its annotation.";
pub(crate) const SEE_FINALIZERS: &str =
    "Wait for the controllers of these finalizers. If it lasts, read their logs.";
pub(crate) const SKIPS_REMEDIATION: &str = "No remediation touches this Machine.";
pub(crate) const ANSWER: &str = "the API server did not answer within 10 seconds";

// Kinds, names, rights.

pub(crate) fn no_kind(word: &str, kinds: &[&str]) -> String {
    format!("{word:?} is no KIND/NAME that this program explains. Kinds: {}.", kinds.join(", "))
}

pub(crate) fn no_name(name: &str) -> String {
    format!("{name:?} is no name that an object can have.")
}

pub(crate) fn named(object: &Object) -> String {
    format!("{} {}", object.kind, object.name)
}

pub(crate) fn missing(object: &Object, near: &[String]) -> String {
    let hint = if near.is_empty() {
        String::new()
    } else {
        format!(" The nearest names: {}.", near.join(", "))
    };
    format!("{} does not exist in namespace {}.{hint}", named(object), object.namespace)
}

pub(crate) fn gone(object: &Object) -> String {
    format!("{} does not exist.", named(object))
}

pub(crate) fn unserved(kind: &str) -> String {
    format!("The kind {kind} is not installed.")
}

pub(crate) fn forbidden(object: &Object, right: &str) -> String {
    format!("You may not read {}. The missing right: {right}.", named(object))
}

pub(crate) fn unreadable(object: &Object, why: &str) -> String {
    format!("{} cannot be decoded: {why}.", named(object))
}

pub(crate) fn right(verb: &str, plural: &str, group: &str, namespace: Option<&str>) -> String {
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    right_on(verb, &format!("{plural}{group}"), namespace)
}

pub(crate) fn right_on(verb: &str, object: &str, namespace: Option<&str>) -> String {
    let place = namespace
        .map_or_else(|| " in all namespaces".to_owned(), |it| format!(" in namespace {it}"));
    format!("{verb} {object}{place}")
}

pub(crate) fn not_listed(right: &str) -> String {
    format!("Not shown: you lack the right to {right}.")
}

pub(crate) fn not_followed(right: &str) -> String {
    format!("Changes cannot be followed: you lack the right to {right}.")
}

pub(crate) fn interrupted(kind: &str) -> String {
    format!("Changes of {kind} are interrupted. The connection is made again by itself.")
}

pub(crate) fn no_reason(word: &str, near: &[String]) -> String {
    format!("No controller has a reason {word}. The nearest reasons: {}.", near.join(", "))
}

pub(crate) fn unanswered(why: &str) -> String {
    format!("No answer: {why}.")
}

pub(crate) fn no_credentials(why: &str) -> String {
    format!("The API server does not accept the credentials: {why}.")
}

pub(crate) fn unwritable(why: &str) -> String {
    format!("The answer cannot be written: {why}.")
}

pub(crate) fn untimed(count: usize) -> String {
    format!(
        "Without a time, and so never overdue: {count}. Leave --older-than out to see what waits."
    )
}

// Facts of a link.

pub(crate) fn annotation(name: &str) -> String {
    format!("annotation {name}")
}

pub(crate) fn remove_annotation(name: &str) -> String {
    format!("Remove the annotation {name} to continue.")
}

pub(crate) fn kept_by(finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        return "No finalizer keeps it.".to_owned();
    }
    format!("Kept by {}.", finalizers.join(", "))
}

pub(crate) fn sentence(fact: &str) -> String {
    let mut letters = fact.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(['.']).collect()
}

pub(crate) fn used_by(machine: &str) -> String {
    format!("Metal3Machine {machine} has it")
}

pub(crate) fn used_by_other(kind: Option<&str>, name: Option<&str>) -> String {
    format!("{} {} has it", kind.unwrap_or("an object"), name.unwrap_or("without a name"))
}

pub(crate) fn used_then_reserved(machine: &str, owner: &str) -> String {
    format!("Metal3Machine {machine} gives it back, then it is reserved for {owner}")
}

pub(crate) fn reserved_for(owner: &str) -> String {
    format!("it is reserved for {owner}")
}

pub(crate) fn by_label(label: &str) -> String {
    format!("the owner of the label {label}")
}

pub(crate) fn asked_by(keys: &[&str]) -> String {
    format!("The host should be off for {}.", keys.join(", "))
}

pub(crate) fn entry_of(pool: &str) -> String {
    format!("status.inventory of {pool}")
}

pub(crate) fn entry(entry: &EntryState) -> String {
    let mut facts = Vec::new();
    if let Some(failure) = &entry.last_failure {
        let said = [&failure.reason, &failure.message].into_iter().flatten();
        let said: Vec<&str> = said.map(String::as_str).collect();
        facts.push(format!("Last failure: {}.", said.join(": ").trim_end_matches('.')));
    }
    if let Some(attempts) = entry.attempts {
        facts.push(format!("Attempts left: {attempts}."));
    }
    facts.join(" ")
}

pub(crate) fn lease(customization: &ClusterDeploymentCustomization) -> String {
    let status = customization.status.as_ref();
    let pool = status.and_then(|it| it.cluster_pool_ref.as_ref()?.name.as_deref());
    match (customization.leased_by(), pool) {
        (Some(cluster), Some(pool)) => {
            format!("ClusterDeployment {cluster} of ClusterPool {pool} uses it.")
        }
        (Some(cluster), None) => format!("ClusterDeployment {cluster} uses it."),
        (None, _) => "No cluster uses it.".to_owned(),
    }
}

/// What a person can do about a host in a state that ends; nothing for a state that lasts.
pub(crate) fn state_action(state: &ProvisioningState) -> Option<&'static str> {
    match state {
        ProvisioningState::Unmanaged => {
            Some("Set spec.bmc to the address and credentials of the BMC.")
        }
        ProvisioningState::None => Some("Start the bare metal operator, or read its log."),
        ProvisioningState::Registering
        | ProvisioningState::Inspecting
        | ProvisioningState::MatchProfile
        | ProvisioningState::Preparing
        | ProvisioningState::Provisioning
        | ProvisioningState::Deprovisioning
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting => {
            Some("Wait. If it lasts, look at the host with kubectl describe baremetalhost.")
        }
        _ => None,
    }
}

/// What a person can do about a request that CAPM3 works on.
pub(crate) fn phase_action(phase: &Phase) -> &'static str {
    match phase {
        Phase::Running => "Wait until the host is off. If it lasts, look at the host.",
        Phase::Waiting => "Wait until the Node is healthy. If it lasts, look at the host.",
        Phase::DeletingMachine => {
            "Wait until the owner of the Machine replaces it. If it lasts, look at the owner."
        }
        Phase::Failed => {
            "Set spec.online of the host to true, then delete this request: CAPM3 does not go on with it."
        }
        Phase::Other(_) => WAIT,
    }
}

// A machine that has no host.

pub(crate) fn choice(
    read: usize,
    beyond: usize,
    is_searched: bool,
    counts: &[(String, usize)],
) -> String {
    let counts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let counts = counts.join(", ");
    if beyond == 0 {
        return format!("The {read} hosts of the namespace: {counts}.");
    }
    let rest = if is_searched { NONE_RESERVED } else { "" };
    format!("The first {read} of {} hosts of the namespace: {counts}.{rest}", read + beyond)
}

const NONE_RESERVED: &str = " None of the others is to be reserved for the owner of this machine.";
pub(crate) const NO_HOSTS: &str = "The namespace has no BareMetalHost.";
pub(crate) const IN_USE: &str = "in use";
pub(crate) const RESERVED: &str = "reserved";
pub(crate) const UNHEALTHY: &str = "marked unhealthy";
pub(crate) const AVAILABLE: &str = "available and free";

pub(crate) fn other_infrastructure(kind: &str) -> String {
    format!("The infrastructure of this Machine is a {kind}, which this program does not explain.")
}

pub(crate) fn more(count: usize) -> String {
    format!("(+{count} more)")
}

// Times.

/// As kubectl writes ages.
pub(crate) fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ ..7_200 => format!("{}m", seconds / 60),
        seconds @ ..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

// Reports.

pub(crate) const UNKNOWN: &str =
    "unknown: you may not list ClusterClaims, or they are not installed";
pub(crate) const NO_LIMIT: &str = "no limit";

pub(crate) fn power(online: bool, powered_on: bool) -> String {
    let word = |it: bool| if it { "on" } else { "off" };
    format!("{}, should be {}", word(powered_on), word(online))
}

pub(crate) fn ago(age: &str) -> String {
    format!("{age} ago")
}

pub(crate) fn of_wanted(size: i32, wanted: i32) -> String {
    format!("{size} of {wanted}")
}

pub(crate) fn claims(all: usize, waiting: usize) -> String {
    format!("{all}, of which {waiting} wait for a cluster")
}

pub(crate) fn undecodable(kind: &str, why: &str) -> String {
    format!("Not shown: a {kind} cannot be decoded: {why}.")
}

pub(crate) fn undecoded(kind: &str, name: &str, others: usize, why: &str) -> String {
    let more = if others == 0 { String::new() } else { format!(" (+{others} more)") };
    format!("Not shown: {kind} {name}{more} cannot be decoded: {why}.")
}

// Controllers.

pub(crate) const NO_ELECTION: &str = "no election";
pub(crate) const ALL_WELL: &str = "Everything is well.";

pub(crate) fn not_found_out(right: &str) -> String {
    format!(
        "You may not see the controllers. The missing right: {right}. Name their namespace with -n if you have it there."
    )
}

pub(crate) fn not_installed(namespace: Option<&str>) -> String {
    let place = namespace.map_or_else(String::new, |it| format!(" in namespace {it}"));
    format!(
        "No controller of Ferrite is installed{place}: no Deployment of theirs has the label app.kubernetes.io/part-of=ferrite."
    )
}

pub(crate) fn not_checked(right: &str) -> String {
    format!("Not checked: you lack the right to {right}.")
}

pub(crate) fn scaled_to_zero(deployment: &str) -> String {
    format!(
        "The Deployment is scaled to 0. Run kubectl scale deployment {deployment} --replicas 1."
    )
}

pub(crate) fn pods_not_ready(ready: i32, replicas: i32) -> String {
    format!("{ready} of {replicas} pods are ready. See docs/runbooks/FerriteNotReady.md.")
}

pub(crate) fn pods_not_updated(updated: i32, replicas: i32) -> String {
    format!("{updated} of {replicas} pods have the new version. Wait for the rollout.")
}

pub(crate) fn no_lease(name: &str) -> String {
    format!(
        "The Lease {name} does not exist: no pod has led yet. See docs/runbooks/FerriteNoLeader.md."
    )
}

pub(crate) fn nobody_leads(lease: &str, silent: Option<&str>) -> String {
    let last = silent.map(|it| format!(", which was last renewed {it} ago")).unwrap_or_default();
    format!("No pod holds the Lease {lease}{last}. See docs/runbooks/FerriteNoLeader.md.")
}

pub(crate) fn leader_lacks(what: &str) -> String {
    format!("The leader lacks {what}. See docs/runbooks/FerriteNotReady.md.")
}

pub(crate) fn account_lacks(account: &str, right: &str, others: usize) -> String {
    let more = if others == 0 { String::new() } else { format!(" (+{others} more)") };
    format!(
        "ServiceAccount {account} lacks the right to {right}{more}. Upgrade the release, which makes its roles, or add the right."
    )
}

pub(crate) fn other_version(own: &str, version: &str) -> String {
    format!("The controllers have version {version}, this program {own}: needs are those of {own}.")
}

pub(crate) fn mixed_versions(own: &str, versions: &[&str]) -> String {
    format!(
        "The controllers have the versions {}, which may be mixed. Needs are those of {own}.",
        versions.join(", ")
    )
}

pub(crate) fn finding(deployment: &str, message: &str) -> String {
    if deployment.is_empty() { message.to_owned() } else { format!("{deployment}: {message}") }
}

/// A text of the kit as a sentence.
pub(crate) fn whole(text: &str) -> String {
    let ended = text.trim_end_matches('.');
    sentence(ended)
}

// Holds.

pub(crate) fn no_key(key: &str) -> String {
    format!(
        "{key:?} is no key. Use up to 63 letters, digits, dots, dashes and underscores, with a letter or digit at both ends."
    )
}

pub(crate) fn key_of_remediation(annotation: &str) -> String {
    format!(
        "{annotation} is a key of a remediation, which sets and removes it by itself. Choose another key."
    )
}

pub(crate) fn hold_of_deleted(host: &str) -> String {
    format!("BareMetalHost {host} is being deleted: it cannot be held off.")
}

pub(crate) fn hold_of_unmanaged(host: &str, label: &str, value: &str) -> String {
    format!(
        "BareMetalHost {host} is not handed to bmo-reboot: no controller would prove the hold. Set the label {label}={value} first."
    )
}

pub(crate) fn hold_without(host: &str, why: &str) -> String {
    format!("bmo-reboot does not manage the power of BareMetalHost {host}. {why}")
}

pub(crate) fn hold_of_state(host: &str, state: &str) -> String {
    let state = if state.is_empty() { UNSEEN } else { state };
    format!(
        "BareMetalHost {host} is {state}, not installed: bmo-reboot serves no requests of such a host."
    )
}

pub(crate) fn hold_of_disabled(host: &str) -> String {
    format!(
        "The machine of BareMetalHost {host} must not be switched off: it would be reset, and not held off."
    )
}

pub(crate) fn unreadable_record(why: &str) -> String {
    format!("Its condition RebootRecord cannot be read: {why}.")
}

pub(crate) fn said_of(reason: &str, message: &str) -> String {
    format!("It says {reason}: {message}")
}

pub(crate) fn hold_unseen(host: &str) -> String {
    format!(
        "bmo-reboot has not looked at BareMetalHost {host}. Run kubectl ferrite doctor to see whether it works."
    )
}

pub(crate) fn hold_removed(host: &str, annotation: &str) -> String {
    format!("Another client removed the annotation {annotation} of BareMetalHost {host}.")
}

pub(crate) fn hold_lost(why: &str, annotation: &str) -> String {
    format!(
        "The hold is not proven. {why} If the annotation {annotation} is still there, remove it with kubectl ferrite release."
    )
}

pub(crate) const INTERRUPTED: &str = "It was interrupted.";

pub(crate) fn rebooting_says(reason: &str) -> String {
    let reason = if reason.is_empty() { "nothing yet" } else { reason };
    format!("The condition Rebooting says {reason}.")
}

pub(crate) fn hold_late(took: &str, annotation: &str, why: &str) -> String {
    format!(
        "The hold is not proven after {took}. {why} The annotation {annotation} stays. Remove it with kubectl ferrite release."
    )
}

pub(crate) fn hold_reason(reason: &str, message: &str) -> String {
    format!("{reason}: {message}")
}

pub(crate) fn hold_waits(took: &str, news: &str) -> String {
    format!("{took} {news}")
}

pub(crate) fn held(host: &str, took: &str) -> String {
    format!("BareMetalHost {host} is held off. It took {took}.\n")
}

pub(crate) fn no_hold(host: &str, annotation: &str, near: &[String]) -> String {
    let near = if near.is_empty() {
        String::new()
    } else {
        format!(" The nearest annotations: {}.", near.join(", "))
    };
    format!("BareMetalHost {host} has no annotation {annotation}.{near}")
}

pub(crate) fn released(host: &str, key: &str, others: &[String]) -> String {
    let rest = if others.is_empty() {
        "No other request holds the host.".to_owned()
    } else {
        format!("The host is still held by {}.", others.join(", "))
    };
    format!("The request {key} of BareMetalHost {host} is removed. {rest}\n")
}

pub(crate) fn refused(host: &str, why: &str) -> String {
    format!(
        "The API server refuses the change of BareMetalHost {host}: {}.",
        why.trim_end_matches('.')
    )
}

// Adoptions.

pub(crate) const WARNING: &str = "\
The addresses are only what the machines said. Compare them with your records: what answers there gets the credentials.
The operator begins at once, and has Ironic erase disks where the table says so.";
pub(crate) const NOT_CONFIRMED: &str =
    "Nothing was written. Repeat the command with --yes to write this.";
pub(crate) const UNREAD_PLAN: &str = "Nothing was written: the output ended before the plan was shown. Repeat the command, and keep its output open.";

pub(crate) fn no_template(template: &str) -> String {
    format!(
        "{template:?} makes no address of a BMC. Use one such as redfish-virtualmedia+https://{{bmcAddress}}/redfish/v1/Systems/1."
    )
}

pub(crate) fn has_bmc(host: &str, address: &str) -> String {
    format!(
        "BareMetalHost {host} has the BMC {address} already. Leave it out, or change spec.bmc by hand."
    )
}

pub(crate) fn adopts_deleted(host: &str) -> String {
    format!("BareMetalHost {host} is being deleted. Leave it out.")
}

pub(crate) fn no_bmc_address(host: &str, annotation: &str) -> String {
    format!(
        "BareMetalHost {host} has no address in the annotation {annotation}: its machine named none. Set spec.bmc by hand."
    )
}

pub(crate) fn same_address(host: &ObjectKey, other: &ObjectKey, address: &str) -> String {
    let is_beside = host.namespace == other.namespace;
    let (host, other) =
        (&host.name, if is_beside { other.name.clone() } else { other.to_string() });
    format!(
        "BareMetalHost {host} would get the BMC of BareMetalHost {other}, which has or names it: {address}. Find out which machine has it, and delete the host of the other."
    )
}

pub(crate) fn not_compared(right: &str) -> String {
    format!(
        "The addresses are not compared with those of all other hosts: you lack the right to {right}."
    )
}

pub(crate) fn not_comparable(count: usize) -> String {
    format!(
        "Not compared: {count} BMC addresses with DNS names. Machines name IP addresses. Compare them yourself."
    )
}

pub(crate) fn superseded(host: &str) -> String {
    format!(
        "BareMetalHost {host} changed meanwhile, and nothing was written to it. Repeat the command."
    )
}

pub(crate) fn adopted_until(why: &str, done: usize, all: usize) -> String {
    if done == 0 {
        why.to_owned()
    } else {
        format!("{why} {done} of {all} hosts have their BMC: leave them out.")
    }
}

pub(crate) fn disks(are_erased: bool) -> &'static str {
    if are_erased { "erased" } else { "kept until installed" }
}

pub(crate) fn adopted(count: usize) -> String {
    let hosts = if count == 1 { "host has its" } else { "hosts have their" };
    format!("{count} {hosts} BMC.\n")
}

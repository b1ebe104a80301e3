//! Every sentence of conditions, events and the record of a host. Nothing reads them.

use controller_kit::api_error;
use controller_kit::engine::Error;
use controller_kit::events::shorten;
use k8s_openapi::jiff::Timestamp;

/// So much is told of what somebody else says.
const LONGEST_CAUSE: usize = 200;

// A request.

/// It has no strategy.
pub const NO_STRATEGY: &str = "spec.strategy is missing: set its type to reboot";
/// Its strategy has no type.
pub const NO_STRATEGY_TYPE: &str = "spec.strategy.type is missing: set it to reboot";
/// Its timeout makes no sense.
pub const TIMEOUT_INVALID: &str =
    "spec.strategy.timeout must be longer than zero and at most 24h, such as 300s";

/// Its strategy has a type that is not known.
pub fn strategy_unknown(word: &str) -> String {
    format!("spec.strategy.type {word:?} is not known: set it to reboot")
}

/// Its limit makes no sense.
pub fn retry_limit_invalid(asked: i32) -> String {
    format!("spec.strategy.retryLimit is {asked}: it must be 0 or more")
}

/// Its timeout is no time.
pub fn timeout_unreadable(text: &str) -> String {
    format!("spec.strategy.timeout {text:?} is no time such as 300s")
}

/// Its name is not that of its owner.
pub fn named_otherwise(name: &str, machine: &str) -> String {
    format!(
        "the request is called {name:?} and its owner is the Machine {machine:?}: give it the Machine's name"
    )
}

/// Its label names another cluster.
pub fn of_another_cluster(label: &str, cluster: &str) -> String {
    format!(
        "the request's label names the cluster {label:?} and the Machine is of {cluster:?}: correct the label"
    )
}

/// A write that it needs is refused, and nothing was said of it before.
pub fn refused(error: &Error) -> String {
    format!(
        "A write that this remediation needs is refused; it is retried until it is allowed: {error}"
    )
}

/// How far it is cannot be said.
pub fn not_said(error: &Error) -> String {
    format!("{error}. The attempt goes on, and a host that it holds off is switched on in time")
}

/// Somebody else writes its status.
pub fn contested(writers: &str) -> String {
    format!(
        "Several controllers write the status of this request ({writers}): CAPM3's own remediation must not run beside this one"
    )
}

// Its Machine and its host.

/// Somebody forbade it.
pub const SKIPPED: &str =
    "the Machine has the annotation cluster.x-k8s.io/skip-remediation: remove it";
/// The Machine has no `Metal3Machine`.
pub const NO_METAL: &str = "the Machine has no Metal3Machine: only those can be power-cycled";
/// That names no host.
pub const NO_HOST: &str = "the Metal3Machine names no host yet";
/// The Cluster is gone.
pub const CLUSTER_MISSING: &str =
    "the Machine's Cluster is not there: correct its spec.clusterName, or restore the Cluster";
/// The Machine goes.
pub const MACHINE_GOES: &str = "the Machine is being deleted: nothing is done about it any more";

/// The Machine that was asked about is gone.
pub fn machine_gone(name: &str, uid: &str) -> String {
    format!(
        "the Machine {name:?} with the uid {uid} is gone: make a new request for another of its name"
    )
}

/// There never was one.
pub fn no_machine(name: &str) -> String {
    format!("there is no Machine {name:?} in this namespace: correct the request's name")
}

/// The host is gone.
pub fn host_missing(name: &str) -> String {
    format!("the BareMetalHost {name}, which the Metal3Machine names, is not there: restore it")
}

/// What is said of a host: one of those that follow.
pub fn host(name: &str, what: &str) -> String {
    format!("the BareMetalHost {name} {what}")
}

/// It is another machine's.
pub const NOT_CLAIMED: &str = "does not name the Metal3Machine as consumer";
/// Nobody can switch it.
pub const NO_CREDENTIALS: &str = "has no management controller: set its spec.bmc";
/// It is taken out of Ironic.
pub const DETACHED: &str = "is detached: remove baremetalhost.metal3.io/detached";
/// It goes.
pub const DELETING: &str = "is being deleted";
/// Nothing runs on it.
pub const NOT_PROVISIONED: &str = "is not provisioned";
/// It is to be off.
pub const OFFLINE: &str = "is to be off: set its spec.online to true";
/// It is never to be off.
pub const POWER_OFF_DISABLED: &str =
    "must not be switched off: set its spec.disablePowerOff to false";

/// The machine has another one.
pub fn strayed(name: &str) -> String {
    format!("Host {name} no longer belongs to the machine; its reboot request is removed")
}

/// A machine that loses power now may never start again.
pub const SERVICING: &str = "has its firmware changed: it is not switched off before that is done";

/// Another client holds it off.
pub fn held_by(keys: &[String]) -> String {
    let (first, more) = keys.split_first().map_or(("", 0), |(it, rest)| (it, rest.len()));
    let more = if more > 0 { format!(" (+{more} more)") } else { String::new() };
    format!("is held off by the annotation {first}{more}: remove it when the host may be on")
}

/// Ironic is away, or does not know it.
pub fn out_of_reach(word: &str) -> String {
    format!("is out of Ironic's reach, as its conditions say ({word})")
}

/// The host is on its own way back.
pub const READY_MEANWHILE: &str = "the node is ready again: nothing is done unless it fails anew";

/// Quorum: never two members of a control plane are off at a time.
pub fn member_first(machine: &str) -> String {
    format!("the control plane's Machine {machine} is power-cycled first: one member at a time")
}

/// Nobody knows whether another member is off.
pub fn member_unread(kind: &str, name: &str) -> String {
    format!(
        "the {kind} {name} of another member of the control plane cannot be read, and that member may be off: correct it"
    )
}

/// It is left the time of a boot.
pub fn booting(name: &str, until: Timestamp) -> String {
    format!(
        "the BareMetalHost {name} may be booting: until {until} its node is awaited, and after that the host is power-cycled unless the machine is well"
    )
}

// A try.

/// Which one of how many, after so many retries of this limit.
pub fn nth(retries: u32, limit: u32) -> String {
    format!("Try {} of {}", retries.min(limit) + 1, limit + 1)
}

/// What is said of it.
pub fn of_try(which: &str, what: &str) -> String {
    format!("{which}: {what}")
}

/// Its host is on.
pub const TO_BE_OFF: &str = "the host is asked to be switched off";
/// The host was off before we asked, and its power must be read again.
pub const OFF_ALREADY: &str = "the host already shows off; waiting until its power is read again (status.lastUpdated later than this request)";
/// A control plane that goes off.
pub const ONLY_MEMBER: &str = "this is the only member of its control plane: the cluster has no API while the host is off, and if these controllers run there, nobody may switch it on again";

/// The same of a host that is asked.
pub fn off_with(awaited: &str, what: &str) -> String {
    format!("{awaited}; {what}")
}

/// On the Machine, when what was complained of there is corrected.
pub const AWAITED: &str = "The host is asked to be switched off";
/// The node's part has begun.
pub const FENCING: &str = "the host is off; what ran on the node is moved away";

/// The same where something stands in its way.
pub fn off_but(trouble: &str) -> String {
    format!("the host is off, but {trouble}")
}

/// The plain key was taken.
pub fn accepted(fenced: &str) -> String {
    format!("the reboot was accepted ({fenced})")
}

/// The host is let go.
pub fn released(is_off: bool, fenced: &str) -> String {
    let was = if is_off { "was" } else { "shows" };
    format!("the host {was} off ({fenced}) and may be switched on")
}

/// The host is on.
pub fn awaiting(but: &str) -> String {
    format!("the host is on; the node is awaited{but}")
}

/// How it failed.
pub const NOT_OFF: &str = "the host was not off in time";
/// How it failed.
pub const NOT_ON: &str = "the host was not on in time";
/// How it failed, and the machine is well all the same.
pub fn runs(failed: &str) -> String {
    format!("{failed}, and the node is ready: nothing is done unless it fails anew")
}

/// How it failed, and nobody can see whether the machine is well.
pub fn unjudged(failed: &str, but: &str) -> String {
    format!("{failed}{but}")
}

/// How it failed.
pub const STILL_UNHEALTHY: &str = "the node was ready, and the machine is still called unhealthy";

/// How it failed.
pub fn not_ready(but: &str) -> String {
    format!("the node was not ready in time{but}")
}

// The node.

/// The workload cluster cannot be asked.
pub fn unseen(why: &str) -> String {
    format!("the node cannot be seen: {}", shorten(why, LONGEST_CAUSE))
}

/// It has the identity of another machine's.
pub fn foreign(id: &str) -> String {
    format!("the node of that name is another machine's ({})", shorten(id, LONGEST_CAUSE))
}

/// It goes, and its successor is awaited.
pub const LEAVING: &str =
    "the node is being deleted: whoever has a finalizer on it has to let it go";

/// A trouble after another sentence.
pub fn but(trouble: &str) -> String {
    format!(", but {trouble}")
}

/// Of a workload cluster.
pub const NO_ANSWER: &str = "no answer in time";

/// It could not be read: this was the answer, if there was one. Who may write secrets in a namespace says where the request leads: of
/// what is answered there the code alone is told, or whoever may read hosts would read the pages of whatever this pod reaches.
pub fn not_asked(cluster: &str, answer: Option<&kube::Error>) -> String {
    let why = match answer {
        None => NO_ANSWER.to_owned(),
        Some(kube::Error::Api(status)) => format!("its API server answers {}", status.code),
        Some(error) => api_error::explain(error),
    };
    format!("the workload cluster {cluster} cannot be asked: {why}")
}

/// A write to it was not taken.
pub fn not_let(cluster: &str, what: &str, why: &str) -> String {
    format!("the workload cluster {cluster} did not let us {what}: {why}")
}

/// It is back.
pub const READY_AGAIN: &str = "the node is ready again";
/// It is back, as far as we can know.
pub const WELL_AGAIN: &str = "the health check says that the node is well again";
/// What was done about it while its host was off.
pub const LEFT_ALONE: &str = "the node was left alone";
/// The same where nobody read the power of its host.
pub const UNREAD: &str = "the node was left alone: nobody read the host's power since it was asked";
/// Why it was left alone.
pub const ANOTHER_MACHINES: &str = "it is another machine's";
/// Why it was left alone.
pub const NOT_TAINTED: &str = "the taint could not be set in time";
/// What was done about it.
pub const NO_NODE: &str = "there is no node";
/// What was done about it.
pub const NODE_DELETED: &str = "the node is deleted";
/// What was done about it.
pub const NODE_STAYS: &str = "the node is still there";
/// What was done about it.
pub const OUT_OF_SERVICE: &str = "the node is out of service";
/// What was done about it.
pub const OUT_OF_SERVICE_UNLISTED: &str =
    "the node is out of service, and what runs on it could not be listed";

/// What was done about it.
pub fn out_of_service_with(busy: u32) -> String {
    format!("the node is out of service, with {busy} pods or volumes still on it")
}

/// What was done about it, and why.
pub fn left_alone(why: &str) -> String {
    format!("{LEFT_ALONE}: {}", shorten(why, LONGEST_CAUSE))
}

/// What was done about it before nobody read the power of its host.
pub fn unread_since(part: &str) -> String {
    format!("{part}, and nobody has read the host's power since")
}

// The end.

/// The request says so.
pub const READY_AND_WITHDRAWN: &str = "the node was ready again, and the request is withdrawn";
/// The request says so.
pub const WITHDRAWN: &str = "the request is withdrawn: nothing is done about it any more";
/// The request says so.
pub const DISOWNED: &str =
    "the label of the watch filter is gone: nothing is done about it any more";
/// The host knows it, and the request does not any more.
pub const REMEMBERED: &str =
    "the node was ready again, says the host: make a new request for another reboot";
/// Of a control plane's host, which was left on.
pub const SWITCHED_OFF: &str = "The Machine is being deleted, so its host is switched off";
/// Of a host that was held for a request which is gone, or cannot be decoded.
pub const RELEASED: &str =
    "The request that held the host off is gone or cannot be read: it may be switched on";
/// Of a node that could not be asked when its request went.
pub const UNTAINTED_LATER: &str = "The node is no longer out of service: it can be asked again";
/// How a machine is given up.
pub const ALL_FAILED: &str = "All tries have failed";
/// What becomes of it.
pub const UNOWNED_STAYS: &str = "Nobody owns the Machine: delete it";
/// What becomes of it.
pub const UNOWNED_GOES: &str = "Nobody owns the Machine, so it is deleted";
/// What becomes of it.
pub const OWNER_REPLACES: &str = "The Machine's owner is to replace it";

/// How a machine is given up, where it is known.
pub fn last_failed(which: &str, failed: &str) -> String {
    format!("{which}, the last: {failed}")
}

/// How a machine is given up, and what becomes of it.
pub fn handed_over(failed: &str, what: &str) -> String {
    format!("{failed}. {what}")
}

/// All is undone.
pub const UNDONE: &str = "What was changed is undone";
/// What may be left.
pub const NO_LABELS: &str = "the node did not get its labels and annotations back";
/// What may be left.
pub const MAYBE_TAINTED: &str = "the node may still be out of service: if it is, remove its taint";
/// What may be left.
pub const NOT_BACK: &str = "the node has not come back for its labels";

/// What may be left, and why.
pub fn because(what: &str, why: &str) -> String {
    format!("{what} ({})", shorten(why, LONGEST_CAUSE))
}

/// Something is waited for before all is undone.
pub fn undoing(reason: &str) -> String {
    format!("what was changed is being undone ({reason})")
}

/// Something is left.
pub fn not_undone(what: &str) -> String {
    format!("Not all could be undone: {what}")
}

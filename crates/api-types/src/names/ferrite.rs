//! Names of our own.

/// Prefix of every annotation, label and finalizer of ours.
pub const PREFIX: &str = "ferrite.metal3.io/";

/// Label on a host: its power is handed to `bmo-reboot`. Set by administrators with the value
/// [`POWER_MANAGED`], read by `bmo-reboot` as its default selector.
pub const POWER: &str = "ferrite.metal3.io/power";
/// Value of [`POWER`].
pub const POWER_MANAGED: &str = "managed";
/// Selector of hosts with that label.
pub const POWER_SELECTOR: &str = "ferrite.metal3.io/power=managed";

/// Value of the operator's pause annotation when `bmo-reboot` set it. Only a pause with exactly
/// this value is treated as ours and lifted again.
pub const PAUSED_BY_BMO_REBOOT: &str = "ferrite.metal3.io/bmo-reboot";

/// Annotation on a `BareMetalHostDiscovery`: comma-separated node IDs that a person approves.
/// Set by people, removed by `host-discovery` when done.
pub const APPROVE: &str = "ferrite.metal3.io/approve";

/// Label on a host: name of the `BareMetalHostDiscovery` of its namespace that made it, cut to a
/// label's length. Written by `host-discovery` when it makes the host; it counts by it.
pub const DISCOVERED_BY: &str = "ferrite.metal3.io/discovered-by";

/// Annotation on a host: identifier in Ironic of the machine that it was made for. Written by
/// `host-discovery` when it makes the host, and read by it until the operator has put the
/// identifier into the status.
pub const NODE_ID: &str = "ferrite.metal3.io/node-id";

/// Annotation on a host: IP addresses of its BMC, with commas between them, as the machine itself said them when it was
/// discovered. Anybody on the provisioning network can say any: no credentials are sent there because of it. Written by
/// `host-discovery` when it makes the host, and compared by it with the BMCs of hosts that are registered later.
pub const BMC_ADDRESS: &str = "ferrite.metal3.io/bmc-address";

/// Annotation on a host: the last remediation cycles, as bounded JSON that outlives the request.
/// Written by `remediation`, read by people.
pub const REMEDIATION_HISTORY: &str = "ferrite.metal3.io/remediation-history";

/// Annotation on a `Metal3Remediation` of CAPM3's group, whose status has no room for it: how far a
/// try is, since when, and what is to be said about it, as JSON. Written and read by `remediation`.
pub const REMEDIATION_STANDING: &str = "ferrite.metal3.io/remediation-standing";

/// Annotation on a node: uid of the remediation that set the taint
/// [`OUT_OF_SERVICE`](super::capm3::OUT_OF_SERVICE). Without it the taint is somebody else's and stays. Written and
/// removed by `remediation`.
pub const OUT_OF_SERVICE_BY: &str = "ferrite.metal3.io/out-of-service-by";

/// Annotation on a `ClusterPool`: failed provisions that an entry may have. Set by administrators,
/// read by `clusterpool-inventory`.
pub const PROVISION_ATTEMPTS: &str = "ferrite.metal3.io/provision-attempts";

/// Annotation on a `ClusterDeploymentCustomization`: a time, whose earlier failures count no longer. Set by administrators,
/// read by `clusterpool-inventory`.
pub const RETRY: &str = "ferrite.metal3.io/retry";

/// Annotation on a `ClusterPool` that Hive's own controller had before: the version of its spec when it was taken over, and
/// Hive's version of the same. Written once and read by `clusterpool-inventory`.
pub const ADOPTED_VERSION: &str = "ferrite.metal3.io/adopted-version";

/// Annotation on a `ClusterDeployment`: its lease was not verified yet, so that the pause beside it is ours and
/// nothing of the cluster exists. Written at creation and removed by `clusterpool-inventory`.
pub const LEASE_UNVERIFIED: &str = "ferrite.metal3.io/lease-unverified";
/// Annotation on a `ClusterDeployment`: generation and uid of the customization that it was made from. Written and
/// read by `clusterpool-inventory`.
pub const CUSTOMIZATION_VERSION: &str = "ferrite.metal3.io/customization-version";
/// Annotation on a `ClusterDeployment`: uid of the claim that it is given to. Written and read by `clusterpool-inventory`:
/// a claim that is made again under its name is another user's.
pub const CLAIM_UID: &str = "ferrite.metal3.io/claim-uid";
/// Annotation on a `ClusterDeployment`: name in its install config, where a customization gave it another one than
/// the object's. Written by `clusterpool-inventory`, read by people.
pub const INSTALLED_NAME: &str = "ferrite.metal3.io/installed-name";
/// Annotation on a cluster's namespace and on what is made in it: namespace, name and uid of the pool. Written and read
/// by `clusterpool-inventory`: what does not have it is somebody else's.
pub const POOL_OWNER: &str = "ferrite.metal3.io/pool";
/// Annotation on a cluster's namespace: versions of all that the parts in it are made from. Written and read by
/// `clusterpool-inventory`, which adds nothing to parts that were made from something else.
pub const MADE_FROM: &str = "ferrite.metal3.io/made-from";

/// Annotation on a host: for whom it stays reserved once it is cleared. Written by `capm3-reuse`
/// with the write that clears the image, so that the verdict outlives template and owner.
pub const PENDING_RESERVATION: &str = "ferrite.metal3.io/pending-reservation";

/// Annotation on a host, beside the one before: the machine that gives it back. A controller that knows neither may give the host
/// to another machine meanwhile.
pub const PENDING_RESERVATION_OF: &str = "ferrite.metal3.io/pending-reservation-of";

/// Annotation on a host: the uid that it had when it was decided for whom it is kept. Another one says that it was moved to
/// another cluster since. Written and read by `capm3-reuse`; gone with the next claim and with the end of the reservation.
pub const RESERVED_HOST_UID: &str = "ferrite.metal3.io/reserved-host-uid";

/// Annotation on a `Metal3Machine`: uid of the host that it is about to claim or has claimed.
/// Written and read by `capm3-reuse`: a host of the same name may be another one.
pub const HOST_UID: &str = "ferrite.metal3.io/host-uid";

/// Annotation on a `Metal3Machine`: the host that it is about to claim. A key of our own: for CAPM3 a machine that has its
/// annotation [`HOST`](super::metal3::HOST) has that host. Gone once the machine names the host that it has there. Written by
/// `capm3-reuse`, read by every controller that asks for the host of a machine.
pub const INTENDS_HOST: &str = "ferrite.metal3.io/intends-host";

/// Annotation on a `Metal3Machine`: the host that it was about to claim and will not have after all.
/// Until that host was looked at once more, a claim of it may still be on its way. Written and read
/// by `capm3-reuse`.
pub const GIVES_UP_HOST: &str = "ferrite.metal3.io/gives-up-host";

/// Annotation on a host: which machine changed its mind about it. Only there to move the host's
/// version, which stops claims that are on their way; gone with the next claim. Written by
/// `capm3-reuse`.
pub const PASSED_OVER_BY: &str = "ferrite.metal3.io/passed-over-by";

/// Annotation on a `MachineDeployment`, or on a `MachineSet` that none owns: its replicas follow the hosts that its machines may
/// have, as in `min=2,max=50,down=true`. Set by administrators, read by `capm3-reuse`.
pub const SCALE_TO_HOSTS: &str = "ferrite.metal3.io/scale-to-hosts";

/// Finalizer on a `Metal3Remediation`, of either group: the host may be held off, or the node tainted.
/// Written and removed by `remediation`.
pub const REMEDIATION_FINALIZER: &str = "ferrite.metal3.io/remediation";

/// Condition of a host: the record of `bmo-reboot`, as JSON in the message. Internal: written by `bmo-reboot` and read by it
/// and, as far as [`PowerRecord`](crate::metal3::PowerRecord) goes, by `remediation`. Not for people, and not to be edited.
pub const CONDITION_REBOOT_RECORD: &str = "RebootRecord";
/// Reason of [`CONDITION_REBOOT_RECORD`], always.
pub const REASON_RECORD: &str = "Record";
/// Condition of a host: a reboot is under way, and how far. Written by `bmo-reboot` for people; `remediation` reads the
/// reasons that follow.
pub const CONDITION_REBOOTING: &str = "Rebooting";
/// Reason of [`CONDITION_REBOOTING`]: keys hold the host off. Written by `bmo-reboot`, read by `remediation`.
pub const REASON_HELD_OFF: &str = "HeldOff";
/// Reason of [`CONDITION_REBOOTING`]: Ironic does not know whether the machine is on. Written by `bmo-reboot`, read by
/// `remediation`.
pub const REASON_POWER_UNKNOWN: &str = "PowerUnknown";
/// Reason of [`CONDITION_REBOOTING`]: Ironic does not answer. Written by `bmo-reboot`, read by `remediation`.
pub const REASON_IRONIC_UNREACHABLE: &str = "IronicUnreachable";
/// Reason of [`CONDITION_REBOOTING`]: Ironic has no node of the host. Written by `bmo-reboot`, read by `remediation`.
pub const REASON_NODE_NOT_FOUND: &str = "NodeNotFound";
/// Reason of [`CONDITION_REBOOTING`]: the node is being made known to Ironic. Written by `bmo-reboot`, read by
/// `remediation`.
pub const REASON_NODE_REGISTERING: &str = "NodeRegistering";
/// Reason of [`CONDITION_REBOOTING`]: Ironic is busy with the node. Written by `bmo-reboot`, read by `remediation`.
pub const REASON_NODE_BUSY: &str = "NodeBusy";
/// Reason of [`CONDITION_REBOOTING`]: Ironic could not change the power. Written by `bmo-reboot`, read by `remediation`.
pub const REASON_POWER_FAILED: &str = "PowerFailed";
/// Condition of a host: whether `bmo-reboot` maintains its power. Written by `bmo-reboot`.
pub const CONDITION_POWER_MANAGED: &str = "PowerManaged";
/// Condition of a `BareMetalHostDiscovery`: Ironic answers, in a version that is new enough.
/// Written by `host-discovery`.
pub const CONDITION_IRONIC_REACHABLE: &str = "IronicReachable";
/// Condition of a `Metal3Remediation`: the node is ready again. Written by `remediation`.
pub const CONDITION_SUCCEEDED: &str = "Succeeded";
/// Condition of a `ClusterPool`: whether another controller of pools works on it too. Written by
/// `clusterpool-inventory` while one does.
pub const CONDITION_SOLE_CONTROLLER: &str = "SoleController";

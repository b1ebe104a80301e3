//! Names that the bare metal operator defines.

/// Annotation on a host: reboot it. Alone it is one power cycle and is removed by whoever carries
/// it out; followed by `/` and a key it holds the host off until the client removes it. Written
/// by clients, `remediation` among them, whose keys go with the release by `capm3-reuse`; carried out by `bmo-reboot` or the
/// operator.
pub const REBOOT: &str = "reboot.metal3.io";

/// Start of the reboot key of one remediation request; its uid follows. Written and removed by
/// `remediation`.
pub const REBOOT_FOR_REMEDIATION: &str = "reboot.metal3.io/metal3-remediation-";

/// Annotation on a host: the operator leaves it alone. The value says who asked. Written by
/// people, CAPM3 and `bmo-reboot`; `capm3-reuse` only lifts CAPM3's; respected by everybody.
pub const PAUSED: &str = "baremetalhost.metal3.io/paused";

/// Annotation on a host: take it out of Ironic. Written by people, read by the operator;
/// `bmo-reboot` and `capm3-reuse` leave such a host alone.
pub const DETACHED: &str = "baremetalhost.metal3.io/detached";

/// Annotation on a new host: the status that it starts with. Written by `host-discovery`, and
/// before a move between clusters by CAPM3 or people; taken over and removed by the operator.
pub const STATUS: &str = "baremetalhost.metal3.io/status";

/// Annotation on a host: `disabled` skips inspection. Written by `host-discovery`, read by the
/// operator.
pub const INSPECT: &str = "inspect.metal3.io";

/// Annotation on a host: hardware details in the operator's own format, which it decodes
/// strictly. Written by `host-discovery`, taken over and removed by the operator.
pub const HARDWARE_DETAILS: &str = "inspect.metal3.io/hardwaredetails";

/// Condition on a host: false where Ironic cannot say whether it is on. Written by the operator, read by `remediation`.
pub const MANAGEABLE: &str = "Manageable";

/// Annotation on a `Metal3Machine`: `namespace/name` of its host. Written by `capm3-reuse`, read by
/// `remediation` and by CAPM3's data controllers.
pub const HOST: &str = "metal3.io/BareMetalHost";

/// Label on a node: uid of its host. Written by CAPM3's templates, read to find the node.
pub const NODE_UUID: &str = "metal3.io/uuid";

/// Whether an annotation key asks for a reboot. A key that only begins alike does not.
pub fn is_reboot_request(key: &str) -> bool {
    key.strip_prefix(REBOOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether an annotation key asks for a reboot and holds the host off until it is removed.
pub fn is_reboot_hold(key: &str) -> bool {
    key.strip_prefix(REBOOT).is_some_and(|rest| rest.starts_with('/'))
}

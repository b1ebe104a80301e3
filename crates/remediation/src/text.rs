//! Every sentence that a person reads, and nothing reads back.

use controller_kit::engine::Error;

/// Of a workload cluster.
pub const NO_ANSWER: &str = "no answer in time";
/// On a Machine whose remediation has begun after it was complained of.
pub const AWAITED: &str = "The host is asked to be switched off";
/// Of a host that was held for a request which is gone.
pub const RELEASED: &str = "The request that held the host off is gone: it may be switched on";

/// A write to a node was not taken.
pub fn not_let(cluster: &str, what: &str, why: &str) -> String {
    format!("the workload cluster {cluster} did not let us {what}: {why}")
}

/// The first write of a request is refused.
pub fn refused(error: &Error) -> String {
    format!(
        "A write that this remediation needs is refused; it is retried until it is allowed: {error}"
    )
}

/// Somebody else writes the status of a request.
pub fn contested(writers: &str) -> String {
    format!(
        "Several controllers write the status of this request ({writers}): CAPM3's own remediation must not run beside this one"
    )
}

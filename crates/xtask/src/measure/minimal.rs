//! The smallest controller, which is nothing but the kit: what every other has to pay at least.

use super::{Limits, Work, none};

/// It does nothing, so there is nothing to count.
pub(super) const WORK: Work = Work {
    controller: "minimal",
    build: &["--package=controller-kit", "--example=minimal"],
    program: "examples/minimal",
    chart: None,
    values: "{}",
    neighbours: none,
    limits: Limits { megabytes: 12.0, ready_ms: 300.0, resident_megabytes: 12.0, share: 0.0 },
    operation: None,
    further: None,
};

//! The smallest controller, which is nothing but the kit: what every other has to pay at least.

use super::Work;

/// It does nothing, so there is nothing to count.
pub(super) const WORK: Work =
    Work { controller: "minimal", is_example: true, megabytes: 12.0, ..Work::SMALL };

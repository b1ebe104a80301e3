//! How long is waited for what. Each time stands once, whoever waits.

use std::time::Duration;

/// What changes within this time is decided about together.
pub const DECISION_GATHER: Duration = Duration::from_millis(20);
/// The same while machines are read: to decide about thousands takes as long for one that was read as for a hundred.
pub const READING_GATHER: Duration = Duration::from_millis(250);
/// The shortest wait where a moment may change something: some hosts at once cost less than a pass for each, and an Ironic that
/// failed once may answer the next time.
pub const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// The first wait after a failure that may pass, and the first look at a machine that is not complete.
pub const FIRST_RETRY: Duration = Duration::from_secs(1);

/// How long it begins to make more hosts, so that a pass ends long before its deadline and what was decided is still so. To
/// decide, and to wait for the last host, takes as long for a few as for many. As long it waits before that for the watch on
/// hosts, where that is behind.
pub const MAKING_MAX: Duration = Duration::from_secs(2);
/// How long it counts that Ironic showed a machine: two polls unless they are set otherwise. One that it showed longer ago is
/// looked at once more before it becomes a host, since it may have been registered or gone.
pub const SEEN_MAX_AGE: Duration = Duration::from_secs(10);

/// How soon Ironic is asked again for what it did not say, or could not do.
pub const IRONIC_RETRY: Duration = Duration::from_secs(5);
/// The longest wait where it goes on failing, or a node goes on being in use.
pub const IRONIC_RETRY_MAX: Duration = Duration::from_secs(300);
/// How long a machine or a page of nodes is read at most: then that counts as failed, and others have its place. A machine
/// that is not complete is looked at again as late, and what is said of a silent Ironic stays as long in the same words.
pub const READING_MAX: Duration = Duration::from_secs(60);
/// How long others wait for what Ironic says of one machine, or of the ports of all: what takes longer hangs.
pub const HANGS_AFTER: Duration = Duration::from_secs(10);

/// How soon what was refused is tried again: somebody has to change something first. Until a mark is written, a host that is
/// deleted could come back after the next start. A node that is not at rest for as long is not on its way from one state to the
/// next, but in use, and that is told to somebody as well.
pub const REFUSED_RETRY: Duration = Duration::from_secs(30);
/// The longest time in which something is left alone that is likely to stay as it is: it may be one of thousands.
pub const REST_MAX: Duration = Duration::from_secs(3600);

//! Which worlds are explored, and what must always be reached in them.

use bench::model::{Progress, explore};
use remediation::settings::{Fencing, Policy};

use super::{Action, Site, Size, State, members};
use crate::World;

/// A world of this size.
pub fn world(size: Size) -> World {
    let explored = move |bounds| {
        let own = |action: &Action| {
            matches!(
                action,
                Action::Read(_)
                    | Action::Go(_)
                    | Action::Switch
                    | Action::Report
                    | Action::Release
                    | Action::Boot
                    | Action::Age
                    | Action::Resume
                    | Action::Back
            )
        };
        let goal = |_: &Site, state: &State| state.is_at_rest();
        let name = "the host is on again or handed over, and nothing of ours is left";
        let progress = [Progress { name, goal, own }];
        let fencing = if size.deletes { Fencing::Delete } else { Fencing::Taint };
        explore(&Site { size, policy: Policy { fencing, ..Policy::default() } }, &progress, bounds)
    };
    let Size { replicas, mishaps, returns, deletes, unread } = size;
    let node = if returns { "that comes back" } else { "that does not" };
    let end = if deletes { " and is deleted" } else { "" };
    let off = if unread { ", a host whose power nobody reads" } else { "" };
    let name = format!("{replicas} replicas, {mishaps} mishaps, a node {node}{end}{off}");
    World { name, explore: Box::new(explored) }
}

fn size(replicas: usize, mishaps: u8, returns: bool) -> Size {
    Size { replicas, mishaps, returns, deletes: false, unread: false }
}

/// What a test has time for, up to the last state.
pub fn small() -> Vec<World> {
    let [back, lost] = [true, false].map(|returns| size(1, 1, returns));
    let deleted = [back, lost].map(|it| Size { deletes: true, ..it });
    let unread = [back, lost].map(|it| Size { unread: true, ..it });
    let alone = [back, lost].into_iter().chain(deleted).chain(unread).map(world);
    alone.chain([true, false].map(|heals| members::world(heals, 0))).collect()
}

/// What a test looks at as far as it has time: two processes without a lease.
pub fn beside() -> Vec<World> {
    vec![world(size(2, 0, true))]
}

/// More than a test has time for.
pub fn large() -> Vec<World> {
    let calm = [size(1, 2, true), size(1, 3, false), size(2, 1, true), size(2, 1, false)];
    let deleted = [size(1, 2, true), size(1, 2, false)].map(|it| Size { deletes: true, ..it });
    let unread = [size(1, 2, true), size(2, 1, true)].map(|it| Size { unread: true, ..it });
    let alone = calm.into_iter().chain(deleted).chain(unread).map(world);
    alone.chain([true, false].map(|heals| members::world(heals, 1))).collect()
}

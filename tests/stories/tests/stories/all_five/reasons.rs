//! Each reason in a condition, or in a list of a status, has a heading on its controller's page of reasons.

use std::collections::BTreeSet;
use std::path::Path;

/// The reasons of one controller.
struct Reasons {
    controller: &'static str,
    /// The list of all words, in which each line has one.
    list: Option<&'static str>,
    /// Where a condition's reason is written beside its status.
    said: Option<&'static str>,
    /// Words that are written elsewhere.
    more: &'static [&'static str],
    /// Words of the list that nobody reads in a status: they are in events, logs and metrics only, or name what is not told
    /// at all.
    silent: &'static [&'static str],
}

const ALL: [Reasons; 5] = [
    Reasons {
        controller: "bmo-reboot",
        list: Some("reason.rs"),
        said: None,
        more: &[],
        silent: &[
            "AtRest",
            "Gone",
            "HandedBack",
            "InvalidRequest",
            "NotLookedAt",
            "PoweredOn",
            "Refused",
            "SoftPowerOffFailed",
            "TakenOver",
        ],
    },
    Reasons {
        controller: "capm3-reuse",
        list: Some("reason.rs"),
        said: None,
        more: &[],
        silent: &["FollowsHosts", "LetGo", "NotOurs", "ScalingSoon"],
    },
    Reasons {
        controller: "clusterpool-inventory",
        list: Some("reason.rs"),
        said: None,
        more: &[],
        // Steps of a pass.
        silent: &[
            "Added",
            "AssignmentConflict",
            "AtRest",
            "CachesBehind",
            "ClaimGone",
            "Claimed",
            "ClaimsWait",
            "ClusterAdopted",
            "Contested",
            "DependencyMissing",
            "EntryFreed",
            "EntryRemoved",
            "LeaseAbandoned",
            "LeaseRepaired",
            "LeftOver",
            "PartsChecked",
            "PoolAdopted",
            "PoolGone",
            "PoolLeaving",
            "Power",
            "Released",
            "RolledForward",
            "Stale",
            "StatusTold",
            "TooMany",
            "Worked",
        ],
    },
    Reasons {
        controller: "host-discovery",
        list: Some("reason.rs"),
        said: Some("status.rs"),
        more: &[
            "AuthFailed",
            "DryRun",
            "HostsFailed",
            "HostsRefused",
            "MaxHostsReached",
            "TooManyMachines",
        ],
        // Machines that stand in no list, and passes after which nothing waits.
        silent: &[
            "AllDecided",
            "ApprovalsSettled",
            "AwaitsInventory",
            "AwaitsPorts",
            "Created",
            "DiscoveryTold",
            "DriverUnasked",
            "Known",
            "MachineRead",
            "MachineUnread",
            "Marked",
            "NotDiscovered",
            "NotSelected",
            "Registered",
        ],
    },
    Reasons {
        controller: "remediation",
        list: Some("reason.rs"),
        said: None,
        more: &[],
        silent: &["AtRest", "Paused"],
    },
];

fn is_word(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_uppercase())
        && text.chars().all(|it| it.is_ascii_alphanumeric())
}

/// Each reason of a list: what stands between quotes in its line, or its name where the list is data.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    let words = text.lines().map(str::trim).filter_map(|line| match line.split_once(": Kind::") {
        Some((word, _)) => Some(word),
        None => line.strip_prefix("Self::")?.split('"').nth(1),
    });
    words.filter(|it| is_word(it))
}

/// What stands in quotes behind a condition's status.
fn said(text: &str) -> impl Iterator<Item = &str> {
    ["\"True\", \"", "\"False\", \"", "\"Unknown\", \""].into_iter().flat_map(move |status| {
        let behind = text.split(status).skip(1);
        behind.filter_map(|it| it.split('"').next()).filter(|it| is_word(it))
    })
}

/// A file without its tests.
fn text_of(folder: &Path, file: &str) -> String {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

#[test]
fn every_reason_in_a_status_has_a_heading_on_its_page() {
    let root = bench::checkout();
    let mut missing = Vec::new();
    for Reasons { controller, list, said: file, more, silent } in &ALL {
        let folder = root.join("crates").join(controller).join("src");
        let list = list.map(|it| text_of(&folder, it)).unwrap_or_default();
        let conditions = file.map(|it| text_of(&folder, it)).unwrap_or_default();
        let mut words: BTreeSet<&str> = listed(&list).collect();
        for word in *silent {
            assert!(words.remove(word), "{controller} has no reason {word} any more");
        }
        words.extend(said(&conditions).chain(more.iter().copied()));
        assert!(words.len() > 8, "{controller}: {words:?}");
        let page = root.join("docs/reference/reasons").join(format!("{controller}.md"));
        let page = std::fs::read_to_string(page).unwrap();
        let headings: BTreeSet<&str> =
            page.lines().filter_map(|it| it.strip_prefix("### ")).collect();
        let unknown = words.into_iter().filter(|it| !headings.contains(it));
        missing.extend(unknown.map(|it| format!("{controller}: {it}")));
    }
    assert!(
        missing.is_empty(),
        "give these a place in reason.rs, then run `cargo xtask crdgen`: {missing:#?}"
    );
}

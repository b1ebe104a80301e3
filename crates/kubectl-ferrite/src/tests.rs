//! What an answer says, from objects that are made up: a chain for each situation, and each reason of the five controllers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use controller_kit::engine::reasons::ObjectPart;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::explain::explain;
use crate::follow::Change;
use crate::model::{Kind, Look, Object, Seen};
use crate::observe::{of_ours, of_upstream};
use crate::reasons::{self, Known};
use crate::show::{Page, document};
use crate::waiting::Wanted;
use crate::{links, report};

const BEGAN: &str = "2026-01-01T00:00:00Z";

/// Fourteen minutes later.
fn page() -> Page {
    Page { now: "2026-01-01T00:14:00Z".parse().unwrap(), has_colours: false }
}

#[allow(clippy::needless_pass_by_value, reason = "each is made where it is used")]
fn object<T: DeserializeOwned>(name: &str, more: Value) -> T {
    let mut all = json!({"metadata": {"name": name, "namespace": "rack"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        match key.as_str() {
            "labels" | "annotations" | "deletionTimestamp" | "finalizers" | "ownerReferences" => {
                all["metadata"][key] = value.clone();
            }
            _ => all[key] = value.clone(),
        }
    }
    serde_json::from_value(all).unwrap()
}

fn condition(name: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": name, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": BEGAN,
    })
}

fn status(conditions: &[Value]) -> Value {
    json!({"conditions": conditions})
}

fn why(kind: Kind, seen: &Seen) -> String {
    page().chain(&explain(kind, seen))
}

/// A machine that waits for a host that is reserved for its owner, and that is being cleared.
fn waits_for_kept_host() -> Seen {
    let labels = json!({"cluster.x-k8s.io/deployment-name": "md"});
    let says = "Host h1 is kept for MachineDeployment md and will be ready";
    let machine = condition("InfrastructureReady", "False", "NotReady", "");
    let metal = status(&[
        condition("AssociateBareMetalHost", "False", "WaitingForKeptHost", says),
        condition("Ready", "False", "WaitingForKeptHost", says),
    ]);
    let host = json!({
        "annotations": {"ferrite.metal3.io/pending-reservation": json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "md",
        }).to_string()},
        "spec": {"online": true, "consumerRef": {"kind": "Metal3Machine", "name": "before"}},
        "status": {
            "provisioning": {"state": "deprovisioning", "ID": ""},
            "operationHistory": {"deprovision": {"start": "2026-01-01T00:01:00Z", "end": null}},
        },
    });
    Seen {
        machine: Look::Here(object("w1", json!({"labels": labels, "status": status(&[machine])}))),
        metal: Look::Here(object("w1-x", json!({"labels": labels, "status": metal}))),
        host: Look::Here(object("h1", host.clone())),
        hosts: Look::Here(vec![object("h1", host)]),
        ..Seen::default()
    }
}

#[test]
fn a_machine_without_a_host_leads_to_the_host_that_is_being_cleared() {
    let text = why(Kind::Machine, &waits_for_kept_host());
    let wanted = "\
\x20 OBJECT              STATE                         REASON              SINCE
! Machine w1          InfrastructureReady=False     NotReady            14m
! Metal3Machine w1-x  AssociateBareMetalHost=False  WaitingForKeptHost  14m
    Host h1 is kept for MachineDeployment md and will be ready
    Do: Wait if the host is being cleaned. If that makes no progress, look at it with kubectl describe baremetalhost. \
     See docs/runbooks/FerriteCapm3ReuseMachinesWait.md.
! BareMetalHost h1    deprovisioning                                    13m
    Metal3Machine before gives it back, then it is reserved for MachineDeployment md.
    Do: Wait. If it lasts, look at the host with kubectl describe baremetalhost.
";
    assert_eq!(text, wanted);
}

/// Every output shows the same links: none has the others.
#[test]
fn hosts_that_are_not_shown_are_counted() {
    let mut seen = waits_for_kept_host();
    let kept = |number: u32| {
        let host = json!({
            "labels": {"infrastructure.cluster.x-k8s.io/node-reuse": "md-md"},
            "status": {"provisioning": {"state": "available", "ID": ""}},
        });
        object(&format!("h{number}"), host)
    };
    seen.hosts = Look::Here((1..7).map(kept).collect());
    let chain = explain(Kind::Machine, &seen);
    let hosts = chain.iter().filter(|it| it.object.kind == "BareMetalHost");
    let last = &chain[chain.len() - 1].message;
    assert!(hosts.count() == 4 && last.ends_with(" (+2 more)"), "{last}");
}

#[test]
fn a_machine_for_which_no_host_is_reserved_counts_the_hosts() {
    let mut seen = waits_for_kept_host();
    seen.host = Look::Unasked;
    let free = |name: &str, state: &str| {
        object(name, json!({"status": {"provisioning": {"state": state, "ID": ""}}}))
    };
    seen.hosts = Look::Here(vec![
        free("a", "available"),
        free("b", "inspecting"),
        free("c", "inspecting"),
        object(
            "d",
            json!({"spec": {"online": true, "consumerRef": {"kind": "Metal3Machine", "name": "x"}}}),
        ),
    ]);
    let text = why(Kind::Metal3Machine, &seen);
    let counts = "The 4 hosts of the namespace: 2 inspecting, 1 available and free, 1 in use.";
    assert!(text.contains(counts), "{text}");
    // A reservation that is still to come stands in an annotation, by which no list can be cut.
    let others = "None of the others is to be reserved for the owner of this machine.";
    for (beyond, is_searched) in [(0, false), (9_996, false), (9_996, true)] {
        (seen.beyond, seen.is_searched) = (beyond, is_searched);
        let text = why(Kind::Metal3Machine, &seen);
        assert_eq!(text.contains("The first 4 of 10000 hosts"), beyond > 0, "{text}");
        assert_eq!(text.contains(others), is_searched, "{text}");
    }
    seen.hosts = Look::Here(Vec::new());
    assert!(why(Kind::Metal3Machine, &seen).contains("The namespace has no BareMetalHost."));
}

#[test]
fn a_remediation_leads_to_who_holds_the_host() {
    let request = json!({
        "spec": {}, "status": {
            "since": "2026-01-01T00:12:00Z", "retryCount": 1,
            "conditions": [condition("Succeeded", "Unknown", "PowerOff", "The host is being switched off")],
        },
    });
    let record = json!({
        "version": 1,
        "progress": {"reason": "HeldOff", "since": "2026-01-01T00:13:00Z"},
        "held": {"keys": ["reboot.metal3.io/other"]},
    });
    let host = json!({
        "annotations": {"reboot.metal3.io/other": "{\"mode\":\"hard\"}"},
        "status": {
            "provisioning": {"state": "provisioned", "ID": ""},
            "conditions": [
                condition("PowerManaged", "True", "Managed", ""),
                condition("Rebooting", "True", "HeldOff", "Held off for reboot.metal3.io/other"),
                {"type": "RebootRecord", "status": "True", "reason": "Record", "message": record.to_string()},
            ],
        },
    });
    let seen = Seen {
        request: Look::Here(of_ours(object("w1", request))),
        machine: Look::Here(object("w1", json!({}))),
        host: Look::Here(object("h1", host)),
        ..Seen::default()
    };
    let text = why(Kind::Metal3Remediation, &seen);
    let rows: Vec<Vec<&str>> = text.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["!", "Metal3Remediation", "w1", "Succeeded=Unknown", "PowerOff", "2m"]);
    assert!(
        rows.contains(&vec!["!", "BareMetalHost", "h1", "Rebooting=True", "HeldOff", "60s"]),
        "{text}"
    );
}

/// `hold` and `host` must not differ: who reads yes cuts the machine's storage off.
#[test]
fn a_host_is_told_to_be_held_off_where_hold_takes_it_for_proven() {
    let record = json!({"version": 1, "held": {"keys": ["reboot.metal3.io/other"]}});
    let made = |is_on: bool, managed: &str| {
        let host = json!({
            "labels": {"ferrite.metal3.io/power": managed},
            "annotations": {"reboot.metal3.io/other": "{\"mode\":\"hard\"}"},
            "status": {
                "poweredOn": is_on, "provisioning": {"state": "provisioned", "ID": ""},
                "conditions": [
                    condition("PowerManaged", "True", "Managed", ""),
                    condition("Rebooting", "True", "HeldOff", ""),
                    condition("RebootRecord", "True", "Record", &record.to_string()),
                ],
            },
        });
        report::of_host(&object("h1", host)).holds.remove(0)
    };
    let held = made(false, "managed");
    assert!(held.hard && held.proven);
    assert!(!made(true, "managed").proven, "the record names the key, and the host is on");
    assert!(!made(false, "").proven, "no controller manages its power");
}

#[test]
fn a_stock_host_that_is_asked_to_be_off_names_who_asked() {
    let host = json!({
        "annotations": {"reboot.metal3.io/backup": ""},
        "status": {"provisioning": {"state": "provisioned", "ID": ""}, "poweredOn": true},
    });
    let seen = Seen { host: Look::Here(object("h1", host)), ..Seen::default() };
    let text = why(Kind::BareMetalHost, &seen);
    assert!(text.contains("The host should be off for reboot.metal3.io/backup."), "{text}");
}

#[test]
fn a_request_of_capm3s_group_is_read_from_its_annotation() {
    let standing = json!({"since": BEGAN, "succeeded": false, "reason": "HostOffline", "message": "it is off"});
    let annotations = json!({"ferrite.metal3.io/remediation-standing": standing.to_string()});
    let request = of_upstream(object("w1", json!({"annotations": annotations})));
    let links = links::of_request(&request);
    assert_eq!(links[0].reason.as_deref(), Some("HostOffline"));
    assert!(links[0].waits && links[0].action.is_some());
}

#[test]
fn a_request_that_capm3_works_on_is_told_by_its_phase() {
    for (phase, action) in [
        ("Running", "Wait until the host is off"),
        ("Waiting", "Wait until the Node is healthy"),
        ("Deleting machine", "Wait until the owner of the Machine replaces it"),
        ("Failed", "Set spec.online of the host to true"),
    ] {
        let stock = json!({"status": {"phase": phase, "lastRemediated": BEGAN}});
        let links = links::of_request(&of_upstream(object("w1", stock)));
        assert_eq!((links.len(), links[0].part.as_str()), (1, "status.phase"));
        assert_eq!((links[0].state.as_str(), links[0].waits), (phase, true));
        assert!(links[0].since.is_some() && links[0].action.as_ref().unwrap().starts_with(action));
    }
    let new = links::of_request(&of_upstream(object("w1", json!({}))));
    assert_eq!((new[0].part.as_str(), new[0].waits), ("", false));
}

#[test]
fn an_object_that_is_not_there_or_may_not_be_read_becomes_a_sentence() {
    let host = || Object::new("BareMetalHost", "rack", "h1");
    for (look, wanted, waits) in [
        (Look::Gone(host()), "BareMetalHost h1 does not exist.", true),
        (Look::Unserved(host()), "The kind BareMetalHost is not installed.", false),
        (
            Look::Forbidden(host(), "get x".to_owned()),
            "You may not read BareMetalHost h1. The missing right: get x.",
            false,
        ),
        (
            Look::Unreadable(host(), "no".to_owned()),
            "BareMetalHost h1 cannot be decoded: no.",
            false,
        ),
    ] {
        let seen =
            Seen { host: look, metal: Look::Here(object("m", json!({}))), ..Seen::default() };
        let links = explain(Kind::Metal3Machine, &seen);
        let last = links.last().unwrap();
        assert_eq!((last.message.as_str(), last.waits), (wanted, waits));
    }
}

#[test]
fn what_is_being_deleted_names_what_keeps_it() {
    let pool = json!({"deletionTimestamp": BEGAN, "finalizers": ["a/b"]});
    let seen = Seen { pool: Look::Here(object("p", pool)), ..Seen::default() };
    let text = why(Kind::ClusterPool, &seen);
    assert!(text.contains("deleting") && text.contains("Kept by a/b."), "{text}");
}

/// As Hive writes them without a controller of ours: what it has not judged yet stays so while all is well.
#[test]
fn a_healthy_pool_and_cluster_of_hive_wait_for_nothing() {
    let initialized =
        |name: &str| condition(name, "Unknown", "Initialized", "Condition Initialized");
    let pool = status(&[
        condition("MissingDependencies", "False", "Verified", "Dependencies verified"),
        condition("CapacityAvailable", "True", "Available", "There is capacity"),
        condition("AllClustersCurrent", "True", "ClusterDeploymentsCurrent", "All are current"),
        initialized("InventoryValid"),
        initialized("DeletionPossible"),
    ]);
    let mut pool = json!({"spec": {"size": 1}, "status": pool});
    (pool["status"]["size"], pool["status"]["ready"]) = (json!(1), json!(1));
    let claim = status(&[
        condition("Pending", "False", "ClusterClaimed", "Cluster claimed"),
        condition("ClusterRunning", "True", "Running", "Cluster is running"),
    ]);
    let cluster = status(&[
        initialized("ProvisionStopped"),
        initialized("DeprovisionLaunchError"),
        condition("Provisioned", "True", "Provisioned", "Cluster is provisioned"),
    ]);
    let seen = Seen {
        pool: Look::Here(object("p", pool)),
        claim: Look::Here(object("c", json!({"status": claim}))),
        cluster: Look::Here(object("d", json!({"status": cluster}))),
        ..Seen::default()
    };
    for kind in [Kind::ClusterPool, Kind::ClusterClaim] {
        let links = explain(kind, &seen);
        assert!(links.iter().all(|it| !it.waits), "{links:#?}");
    }
    let failed = condition("DeprovisionLaunchError", "True", "AuthenticationFailure", "no");
    let failed = object("d", json!({"status": status(&[failed])}));
    assert!(links::of_cluster(&failed)[0].waits);
}

#[test]
fn a_broken_entry_tells_its_failure_and_the_attempts_that_are_left() {
    let pool = json!({"spec": {"size": 2}, "status": {
        "size": 1, "ready": 1,
        "conditions": [condition("CapacityAvailable", "False", "NoFreeEntry", "none is free")],
        "inventory": {
            "a": {"status": "Broken by cloud", "attempts": 0, "lastFailure": {"reason": "Quota", "time": BEGAN}},
            "b": {"status": "Reserved", "clusterDeploymentRef": {"name": "c"}},
        },
    }});
    let claims = ["x", "y"].map(|name| object(name, json!({"spec": {"clusterPoolName": "p"}})));
    let seen = Seen {
        pool: Look::Here(object("p", pool)),
        claims: Look::Here(claims.into()),
        ..Seen::default()
    };
    let text = why(Kind::ClusterPool, &seen);
    assert!(text.contains("Last failure: Quota. Attempts left: 0."), "{text}");
    assert!(text.contains("BrokenByCloud") && !text.contains("Reserved"), "{text}");
    let report = report::of_pool(seen.pool.here().unwrap(), &seen);
    assert_eq!((report.claims, report.waiting_claims, report.entries.len()), (Some(2), Some(2), 2));
    let text = crate::show::pool(&report);
    assert!(text.contains("1 of 2") && text.contains("2, of which 2 wait for a cluster"), "{text}");
}

#[test]
fn a_message_does_not_write_on_the_terminal() {
    let says = "a\u{1b}[2Jb\nc";
    let metal = status(&[condition("Ready", "False", "Refused", says)]);
    let seen = Seen { metal: Look::Here(object("m", json!({"status": metal}))), ..Seen::default() };
    let text = why(Kind::Metal3Machine, &seen);
    assert!(text.contains("a [2Jb c") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn only_a_terminal_gets_colours() {
    let links = explain(Kind::Machine, &waits_for_kept_host());
    assert!(!page().chain(&links).contains('\u{1b}'));
    assert!(Page { has_colours: true, ..page() }.chain(&links).contains('\u{1b}'));
}

#[test]
fn json_and_yaml_have_the_same_members() {
    let links = explain(Kind::Machine, &waits_for_kept_host());
    let of = |output| document(output, "Why", json!({ "chain": links })).unwrap();
    let json: Value = serde_json::from_str(&of(crate::settings::Output::Json)).unwrap();
    let yaml: Value = serde_saphyr::from_str(&of(crate::settings::Output::Yaml)).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(json["apiVersion"], "cli.ferrite.metal3.io/v1");
    let members: BTreeSet<&str> =
        json["chain"][1].as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = [
        "action",
        "controller",
        "meaning",
        "message",
        "object",
        "page",
        "part",
        "reason",
        "since",
        "state",
        "waits",
    ];
    assert_eq!(members, wanted.into());
}

#[test]
fn a_kind_has_the_names_that_kubectl_takes() {
    for (word, kind) in [
        ("machine", Kind::Machine),
        ("Machines.cluster.x-k8s.io", Kind::Machine),
        ("m3m", Kind::Metal3Machine),
        ("bmh", Kind::BareMetalHost),
        ("baremetalhosts", Kind::BareMetalHost),
        ("m3rem", Kind::Metal3Remediation),
        ("clusterpool", Kind::ClusterPool),
        ("cdc", Kind::Customization),
        ("bmhd", Kind::Discovery),
    ] {
        assert_eq!(Kind::parse(word), Some(kind), "{word}");
    }
    assert_eq!(Kind::parse("pods"), None);
}

/// The parts of objects that `why` reads: conditions, and lists of a status.
fn parts(known: &Known) -> Vec<(&'static str, &'static str)> {
    let places = known.about.places.iter();
    places.filter_map(|it| Some((it.object, reasons::path(it)?))).collect()
}

/// An object that has a reason in one of its parts.
fn example(kind: &str, part: &str, word: &str, waits: bool) -> (Kind, Seen) {
    let kind = Kind::ALL.into_iter().find(|it| it.as_str() == kind).unwrap();
    let is_bad_when_true =
        ["MissingDependencies", "Pending", "Paused", "Rebooting"].contains(&part);
    let says = if waits == is_bad_when_true { "True" } else { "False" };
    let status = match part.strip_prefix("status.") {
        Some(list) => {
            json!({list: [{"nodeID": "node-1", "reason": format!("{word}: facts"), "since": BEGAN}]})
        }
        None => status(&[condition(part, says, word, "facts")]),
    };
    let mut seen = Seen::default();
    match kind {
        Kind::BareMetalHost => seen.host = Look::Here(object("x", json!({"status": status}))),
        Kind::Metal3Machine => seen.metal = Look::Here(object("x", json!({"status": status}))),
        Kind::Metal3Remediation => {
            let request = object("x", json!({"spec": {}, "status": status}));
            seen.request = Look::Here(of_ours(request));
        }
        Kind::ClusterPool => {
            let mut status = status;
            (status["size"], status["ready"]) = (json!(0), json!(0));
            seen.pool = Look::Here(object("x", json!({"status": status})));
        }
        Kind::ClusterClaim => seen.claim = Look::Here(object("x", json!({"status": status}))),
        Kind::Discovery => {
            let spec = json!({"resourceNameTemplate": {"hardwareDetails": "boot-mac"}});
            seen.discovery = Look::Here(object("x", json!({"spec": spec, "status": status})));
        }
        other => panic!("no controller has a reason on {other:?}"),
    }
    (kind, seen)
}

/// Fields with a reason that another command shows: `pool`, and `host`.
const SHOWN_ELSEWHERE: [&str; 2] = [
    "`lastFailure` of an entry in `status.inventory`",
    "annotation `ferrite.metal3.io/remediation-history`, field `result`",
];

/// What `why` prints for each reason that a person reads on an object. The others are not on objects, each for one of these
/// causes: an event, which `why` does not read (`kubectl events` does); the history of attempts, which `host` shows; the last
/// failure of an entry, which `pool` shows; a metric; or a word of the log alone, that of a pass after which nothing is to be read.
#[test]
fn each_reason_of_the_five_controllers_is_explained() {
    let mut text = String::new();
    for known in reasons::all() {
        let word = known.about.word;
        for place in known.about.places {
            if let ObjectPart::Field(field) = place.part {
                assert!(SHOWN_ELSEWHERE.contains(&field), "{word} is in {field}: nobody reads it");
            }
        }
        for (kind, part) in parts(&known) {
            let (kind, seen) = example(kind, part, word, known.waits());
            let links = explain(kind, &seen);
            let link = links.iter().find(|it| it.reason.as_deref() == Some(word));
            // A host that waits for nothing is told by its state.
            if kind == Kind::BareMetalHost && !known.waits() {
                continue;
            }
            let link = link.unwrap_or_else(|| panic!("{word} of {kind:?} {part} is not told"));
            assert_eq!(link.waits, known.waits(), "{word} of {kind:?} {part}");
            assert_eq!(link.controller, Some(known.controller), "{word}");
            assert!(!link.waits || link.action.is_some(), "{word} says nothing to do");
            _ = writeln!(
                text,
                "# {} {part} {word}\n{}",
                known.controller,
                page().chain(std::slice::from_ref(link))
            );
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/explained.txt");
    if std::env::var_os("FERRITE_WRITE_SNAPSHOTS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let reviewed = std::fs::read_to_string(&file).unwrap_or_default();
    let changed = text.lines().zip(reviewed.lines()).find(|(new, old)| new != old);
    assert!(
        text == reviewed,
        "{changed:?} differs; review it, then set FERRITE_WRITE_SNAPSHOTS=1 once"
    );
}

#[test]
fn what_has_no_time_waits_last_and_is_never_overdue() {
    let now: Timestamp = "2026-01-01T00:14:00Z".parse().unwrap();
    let mut links = explain(Kind::Machine, &waits_for_kept_host());
    links[0].since = None;
    assert_eq!(crate::waiting::untimed(&links), 1, "it is told of");
    crate::waiting::older(&mut links, std::time::Duration::from_secs(13 * 60 + 30), now);
    let names: Vec<&str> = links.iter().map(|it| it.object.name.as_str()).collect();
    assert_eq!(names, ["w1-x"]);
}

#[test]
fn what_could_not_be_read_gives_a_code_unless_something_is_wrong() {
    assert_eq!([(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| crate::verdict(a, b)), [0, 4, 1, 1]);
}

#[test]
fn a_reason_is_found_behind_the_first_that_an_object_waits_for() {
    let host = json!({
        "annotations": {"baremetalhost.metal3.io/paused": "me"},
        "status": {"provisioning": {"state": "inspecting", "ID": ""}},
    });
    let links = || links::of_host(&object("h1", host.clone()), None);
    let of = |reason| {
        let wanted = Wanted { namespace: None, reason };
        wanted.of(links()).into_iter().map(|it| it.state).collect::<Vec<_>>()
    };
    assert_eq!(of(None), ["paused"], "an object appears once");
    assert_eq!(of(Some("Inspecting")), ["inspecting"], "in any case");
    assert!(of(Some("available")).is_empty());
    assert_eq!(reasons::near("NodeShard"), ["NodeShared"]);
    assert!(reasons::near("NodeShared").is_empty(), "it exists, and nothing waits for it");
}

#[test]
fn a_change_is_shown_in_the_columns_of_the_list() {
    let links = explain(Kind::Machine, &waits_for_kept_host());
    let change = Change { items: vec![links[0].clone()], ended: vec![links[1].clone()] };
    let wanted = "\
Machine w1          NotReady            14m
Metal3Machine w1-x  WaitingForKeptHost         It waits no longer.
";
    assert_eq!(page().change(&change, false), wanted);
}

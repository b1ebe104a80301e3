//! Every rule and every refusal, on objects as they are read.

use std::sync::Arc;

use api_types::capi::{Cluster, Machine};
use api_types::capm3::{HostSelector, Metal3Machine, Requirement};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::names;
use api_types::reference::{NamedRef, ObjectRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use super::*;
use crate::index::Wants;
use crate::reservation::Owner;
use crate::seen::{Data, HostSeen, Node, Reuse};
use crate::settings::Policy;

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

pub(crate) fn owner() -> Owner {
    Owner {
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: "MachineDeployment".to_owned(),
        name: "md".to_owned(),
        uid: "md-uid".to_owned(),
    }
}

pub(crate) fn host(name: &str, state: &str) -> BareMetalHost {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": "5"},
        "spec": {"online": false},
        "status": {"provisioning": {"state": state}, "operationalStatus": "OK"},
    }))
    .unwrap()
}

pub(crate) fn with(host: &BareMetalHost, patch: &Value) -> BareMetalHost {
    let mut value = serde_json::to_value(host).unwrap();
    merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

pub(crate) fn merge(into: &mut Value, patch: &Value) {
    match patch.as_object() {
        Some(fields) => {
            if !into.is_object() {
                *into = json!({});
            }
            for (name, value) in fields {
                merge(&mut into[name], value);
            }
        }
        None => *into = patch.clone(),
    }
}

pub(crate) fn consumer(name: &str, uid: &str) -> Value {
    json!({"spec": {"consumerRef": {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Machine",
        "name": name, "namespace": "ns", "uid": uid,
    }}})
}

pub(crate) fn kept_for(owner: &Owner) -> Value {
    json!({"spec": {"consumerRef": owner.reference("ns")}})
}

pub(crate) fn cached(host: &BareMetalHost) -> Arc<CachedHost> {
    Arc::new(CachedHost::from(host.clone()))
}

/// A machine that lacks nothing but a host.
pub(crate) fn seen() -> MachineSeen {
    let machine: Metal3Machine = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
        "metadata": {"name": "m", "namespace": "ns", "uid": "m-uid", "resourceVersion": "7"},
        "spec": {"image": {"url": "http://a/b", "checksum": "c"}},
    }))
    .unwrap();
    let parent: Machine = serde_json::from_value(json!({
        "metadata": {"name": "m", "namespace": "ns"},
        "spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "boot"}},
    }))
    .unwrap();
    let cluster: Cluster = serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "ns"},
        "status": {"initialization": {"infrastructureProvisioned": true}},
    }))
    .unwrap();
    MachineSeen {
        machine,
        parent: Parent::Here(Box::new(parent)),
        cluster: Some(cluster),
        owner: Some(owner()),
        live: true,
        ..MachineSeen::default()
    }
}

pub(crate) fn annotate(machine: &mut Metal3Machine, key: &str, value: &str) {
    machine.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

/// What the host is told to install for the machine.
pub(crate) fn installed(seen: &MachineSeen, host: &BareMetalHost) -> Map<String, Value> {
    obtain::install(seen, host)
}

/// The machine names this host and was seen to have it.
fn having(host: &BareMetalHost) -> MachineSeen {
    let mut seen = seen();
    let name = host.metadata.name.clone().unwrap();
    annotate(&mut seen.machine, names::metal3::HOST, &format!("ns/{name}"));
    annotate(&mut seen.machine, names::ferrite::HOST_UID, &format!("{name}-uid"));
    seen.machine.metadata.finalizers = Some(vec![names::capm3::MACHINE_FINALIZER.to_owned()]);
    seen.machine.status = Some(
        serde_json::from_value(json!({"conditions": [
            {"type": CONDITION_ASSOCIATED, "status": "True", "reason": "HostClaimed", "message": format!("Host {name}")},
        ]}))
        .unwrap(),
    );
    seen.host = HostSeen::Here(Box::new(host.clone()));
    seen
}

/// The machine is about to claim this host.
fn intending(host: &BareMetalHost) -> MachineSeen {
    let mut seen = having(host);
    seen.machine.status = None;
    let annotations = seen.machine.metadata.annotations.as_mut().unwrap();
    annotations.remove(names::metal3::HOST);
    annotate(&mut seen.machine, names::ferrite::INTENDS_HOST, host.metadata.name.as_ref().unwrap());
    seen
}

fn leaving(mut seen: MachineSeen) -> MachineSeen {
    seen.machine.metadata.deletion_timestamp = Some(Time(now()));
    seen
}

fn decided(seen: &MachineSeen) -> Decision {
    decided_by(seen, &Policy::default())
}

fn decided_by(seen: &MachineSeen, policy: &Policy) -> Decision {
    decide(&Observed::Machine(Box::new(seen.clone())), policy, now())
}

/// What tests ask of a decision.
pub(crate) trait Told {
    fn news(&self) -> bool;
    fn message(&self) -> String;
    fn again(&self) -> Option<Duration>;
    fn wants(&self) -> Option<Wants>;
    fn named(&self) -> Option<Node>;
}

impl Told for Decision {
    fn news(&self) -> bool {
        let claims = |it: &Write| matches!(it, Write::Claim { claimed: Some(claimed), .. } if claimed.is_news);
        !self.events.is_empty() || self.writes.iter().any(claims)
    }

    /// As the event says it, the claim, or else the condition.
    fn message(&self) -> String {
        let event = self.events.first().map(|it| it.text.clone());
        let claim = self.writes.iter().find_map(|it| match it {
            Write::Claim { claimed, .. } => claimed.as_ref().map(|it| it.message.clone()),
            _ => None,
        });
        let ready = self.writes.iter().find_map(|it| match it {
            Write::Report(status) => {
                let all = status["conditions"].as_array()?;
                let ready = all.iter().find(|it| it["type"] == "Ready")?;
                ready["message"].as_str().map(str::to_owned)
            }
            _ => None,
        });
        event.or(claim).or(ready).unwrap_or_default()
    }

    /// A machine that is written is looked at once more in any case.
    fn again(&self) -> Option<Duration> {
        match self.next {
            Next::After(wait) => Some(wait),
            Next::OnChange | Next::Now => None,
        }
    }

    fn wants(&self) -> Option<Wants> {
        self.writes.iter().find_map(|it| match it {
            Write::Wait(wants) => Some(*wants),
            _ => None,
        })
    }

    fn named(&self) -> Option<Node> {
        self.writes.iter().find_map(|it| match it {
            Write::NameNode(node) => Some(node.clone()),
            _ => None,
        })
    }
}

/// The kinds of writes, for short, but for what is asked for apart.
fn kinds(decision: &Decision) -> Vec<&'static str> {
    let kind = |step: &Write| match step {
        Write::Intend { .. } => "intend",
        Write::Name { .. } => "name host",
        Write::Claim { .. } => "claim",
        Write::Install { .. } => "install",
        Write::Unpause { .. } => "unpause",
        Write::GiveUp { .. } => "give up",
        Write::PassOver { .. } => "pass over",
        Write::Forget => "forget",
        Write::AskForData => "ask",
        Write::WithdrawData => "withdraw",
        Write::Identify { .. } => "identify",
        Write::Report(_) => "report",
        Write::Clear { .. } => "clear",
        Write::Release { .. } => "release",
        Write::LetGo => "let go",
        Write::Free { .. } => "free",
        Write::NameNode(_) => "name",
        Write::Scale { .. } => "scale",
        Write::Wait(_) => "wait",
    };
    let kinds = decision.writes.iter().map(kind);
    kinds.filter(|it| !["name", "wait"].contains(it)).collect()
}

mod intents;
mod kept;
mod leaving;
mod left;
mod nodes;
mod properties;
mod refusing;
mod scale;
mod waiting;

type Change = fn(&mut MachineSeen);

/// What an installation needs and is not there, whoever has the host.
const MISSING: [(Change, Reason); 7] = [
    (|it| it.cluster.as_mut().unwrap().status = None, Reason::WaitingForInfrastructure),
    (
        |it| {
            if let Parent::Here(parent) = &mut it.parent {
                parent.metadata.deletion_timestamp = Some(Time(now()));
            }
        },
        Reason::MachineDeleting,
    ),
    (
        |it| {
            if let Parent::Here(parent) = &mut it.parent {
                parent.spec.bootstrap.data_secret_name = None;
            }
        },
        Reason::WaitingForBootstrapData,
    ),
    (|it| it.missing = Some(("userData", "boot".to_owned())), Reason::BootstrapSecretMissing),
    (|it| it.missing = Some(("metaData", "facts".to_owned())), Reason::SecretMissing),
    (|it| it.missing = Some(("dataTemplate", "facts".to_owned())), Reason::DataTemplateMissing),
    (|it| it.machine.spec.image = None, Reason::ImageInvalid),
];

#[test]
fn a_refusal_writes_nothing_but_its_condition() {
    let changes: [(Change, Reason); 7] = [
        (|it| annotate(&mut it.machine, names::capi::PAUSED, ""), Reason::Paused),
        (|it| it.cluster.as_mut().unwrap().spec.paused = Some(true), Reason::Paused),
        (|it| it.parent = Parent::None, Reason::WaitingForOwner),
        (|it| it.parent = Parent::Gone("m".to_owned()), Reason::MachineMissing),
        (|it| it.cluster = None, Reason::ClusterMissing),
        (|it| it.reuse = Reuse::Unreadable("t".to_owned()), Reason::TemplateInvalid),
        (
            |it| {
                it.machine.spec.host_selector = Some(HostSelector {
                    match_expressions: vec![Requirement {
                        key: "a".to_owned(),
                        operator: "Near".to_owned(),
                        ..Requirement::default()
                    }],
                    ..HostSelector::default()
                });
            },
            Reason::SelectorInvalid,
        ),
    ];
    for (change, reason) in changes.into_iter().chain(MISSING) {
        let mut seen = seen();
        seen.choice.free = Some(cached(&host("h", "available")));
        change(&mut seen);
        let decision = decided(&seen);
        assert_eq!(decision.reason, reason);
        assert_eq!(kinds(&decision), ["report"], "{reason:?}");
    }
}

#[test]
fn a_pause_of_a_machine_with_a_watch_filter_says_who_prepares_its_host_for_a_move() {
    for filter in [None, Some("ours")] {
        let mut seen = seen();
        annotate(&mut seen.machine, names::capi::PAUSED, "");
        let label = filter.map(|it| (names::capi::WATCH_FILTER.to_owned(), it.to_owned()));
        seen.machine.metadata.labels = Some(label.into_iter().collect());
        assert_eq!(decided(&seen).message().contains("--watch-filter is ours"), filter.is_some());
    }
}

#[test]
fn what_is_told_already_is_not_told_again() {
    let mut seen = seen();
    let first = decided(&seen);
    let [Write::Report(status), Write::Wait(_)] = &first.writes[..] else { panic!("{first:?}") };
    assert!(first.news());
    seen.machine.status = Some(serde_json::from_value(status.clone()).unwrap());
    let second = decided(&seen);
    assert_eq!((second.reason, kinds(&second), second.news()), (first.reason, vec![], false));
}

#[test]
fn a_wait_that_is_young_is_not_told_yet() {
    let mut seen = seen();
    seen.parent = Parent::None;
    seen.machine.metadata.creation_timestamp = Some(Time(now()));
    let decision = decided(&seen);
    assert_eq!((decision.writes.len(), decision.again()), (0, Some(YOUNG)));
    // And later it is a condition, as for every machine, and no event; also by a clock that is an hour behind.
    for born in [Timestamp::UNIX_EPOCH, Timestamp::from_second(1_003_600).unwrap()] {
        seen.machine.metadata.creation_timestamp = Some(Time(born));
        let decision = decided(&seen);
        assert_eq!((kinds(&decision), decision.news()), (vec!["report"], false));
    }
}

#[test]
fn what_a_slower_watch_may_still_bring_is_not_missing_yet() {
    let changes: [fn(&mut MachineSeen); 2] =
        [|it| it.parent = Parent::Gone("m".to_owned()), |it| it.cluster = None];
    for change in changes {
        let mut seen = seen();
        change(&mut seen);
        seen.machine.metadata.creation_timestamp = Some(Time(now()));
        let young = decided(&seen);
        assert_eq!((kinds(&young), young.news(), young.again()), (vec![], false, Some(YOUNG)));
        seen.machine.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let older = decided(&seen);
        assert_eq!((kinds(&older), older.news()), (vec!["report"], true), "{:?}", older.reason);
    }
}

#[test]
fn the_choice_is_written_on_the_machine_before_the_host_is_claimed_with_all_that_it_needs() {
    let mut seen = seen();
    seen.choice.free = Some(cached(&host("h", "available")));
    let decision = decided(&seen);
    assert_eq!(kinds(&decision), ["intend", "claim", "report"]);
    let Write::Claim { install: Some(install), .. } = &decision.writes[1] else { panic!() };
    let told = json!({
        "image": {"url": "http://a/b", "checksum": "c"},
        "userData": {"name": "boot", "namespace": "ns"},
        "online": true,
    });
    assert_eq!(Value::Object(install.clone()), told);
    assert!(!decision.news(), "a claim that nobody wondered about is no event");
}

#[test]
fn which_host_it_gets_depends_on_reuse_and_on_what_there_is() {
    let kept = with(&host("kept", "available"), &kept_for(&owner()));
    let free = host("free", "available");
    let all = |reuse: Reuse, kept_ready: bool, on_its_way: bool, is_free: bool, strict: bool| {
        let mut seen = seen();
        seen.reuse = reuse;
        seen.choice.kept = kept_ready.then(|| cached(&kept));
        seen.choice.on_its_way = on_its_way.then(|| "late".to_owned());
        seen.choice.free = is_free.then(|| cached(&free));
        let policy = Policy { strict_reuse: strict, ..Policy::default() };
        let decision = decided_by(&seen, &policy);
        let took = decision.writes.iter().find_map(|step| match step {
            Write::Claim { host, .. } => Some(host.clone()),
            _ => None,
        });
        (decision.reason, took.unwrap_or_default(), decision.wants())
    };
    let kept_one = (Reason::HostReused, "kept".to_owned(), None);
    let free_one = (Reason::HostClaimed, "free".to_owned(), None);
    let none = String::new();
    assert_eq!(all(Reuse::On, true, true, true, false), kept_one);
    assert_eq!(
        all(Reuse::On, false, true, true, false),
        (Reason::WaitingForKeptHost, none.clone(), Some(Wants::Kept))
    );
    assert_eq!(all(Reuse::On, false, false, true, false), free_one);
    assert_eq!(
        all(Reuse::On, false, false, true, true),
        (Reason::NoKeptHost, none.clone(), Some(Wants::OnlyKept))
    );
    assert_eq!(all(Reuse::On, true, false, true, true), kept_one);
    assert_eq!(all(Reuse::Off, false, true, true, true), free_one);
    assert_eq!(
        all(Reuse::Off, false, false, false, false),
        (Reason::NoHostAvailable, none, Some(Wants::Any))
    );
}

#[test]
fn a_host_with_the_watch_label_of_others_is_not_claimed_and_one_that_is_its_machine_s_stays() {
    let free = host("h", "available");
    let kept = with(&free, &kept_for(&owner()));
    for host in [&free, &kept] {
        let mut intends = intending(host);
        intends.reuse = Reuse::On;
        assert_eq!(kinds(&decided(&intends)), ["claim", "report"]);
        intends.host_of_others = true;
        assert_eq!(kinds(&decided(&intends)), ["give up"]);
        // And then another is taken. Who had the host before has seen it as it was: no claim of it gets through.
        let mut given_up = intends;
        given_up.machine.metadata.annotations = None;
        annotate(&mut given_up.machine, names::ferrite::GIVES_UP_HOST, "h");
        given_up.choice.free = Some(cached(&self::host("other", "available")));
        let steps = decided(&given_up).writes;
        assert!(matches!(&steps[0], Write::PassOver { host, .. } if host == "h"), "{steps:?}");
        assert!(matches!(&steps[2], Write::Claim { host, .. } if host == "other"), "{steps:?}");
    }
    let installed = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let own = with(&with(&host("h", "provisioned"), &consumer("m", "m-uid")), &installed);
    let mut has = having(&own);
    has.host_of_others = true;
    assert_eq!(decided(&has).reason, Reason::Provisioned);
}

#[test]
fn a_machine_is_up_when_its_host_is_provisioned_and_its_image_is_on_it() {
    let installed = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let mut ours = with(&host("h", "provisioned"), &consumer("m", "m-uid"));
    assert_eq!(decided(&having(&ours)).reason, Reason::Provisioning);
    ours = with(&ours, &installed);
    let mut seen = having(&ours);
    let decision = decided(&seen);
    assert_eq!(decision.reason, Reason::Provisioned);
    assert_eq!(kinds(&decision), ["identify", "report"]);
    assert!(
        matches!(&decision.writes[0], Write::Identify { provider_id, .. } if provider_id == "metal3://ns/h/m")
    );
    // Addresses are only in what is read live.
    seen.live = false;
    assert_eq!(kinds(&decided(&seen)), [""; 0]);
}

#[test]
fn a_machine_that_is_up_says_that_its_owner_cannot_be_read_until_it_can() {
    let installed = json!({"spec": {"image": {"url": "http://a/b"}, "online": true}});
    let ours = with(&with(&host("h", "provisioned"), &consumer("m", "m-uid")), &installed);
    let mut seen = having(&ours);
    seen.machine.spec.provider_id = Some("metal3://ns/h/m".to_owned());
    let up = json!({"initialization": {"provisioned": true}});
    let before = serde_json::to_value(&seen.machine.status).unwrap();
    let mut status = before;
    merge(&mut status, &up);
    seen.machine.status = serde_json::from_value(status).ok();
    seen.unreadable_owner = Some("allow get on it".to_owned());
    let decision = decided(&seen);
    assert_eq!((decision.reason, kinds(&decision)), (Reason::OwnerUnreadable, vec!["report"]));
    assert!(decision.news() && decision.message().ends_with("allow get on it"));
    let mut later = leaving::reporting(seen, &decision);
    let ready = status::reported(&later.machine, CONDITION_READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("True", Some("OwnerUnreadable")));
    let again = decided(&later);
    assert_eq!((kinds(&again), again.news()), (vec![], false));
    assert!(again.again() <= Some(Duration::from_secs(300)), "nobody tells when it can");
    later.unreadable_owner = None;
    assert_eq!(decided(&later).reason, Reason::Provisioned);
}

#[test]
fn a_host_that_was_taken_away_is_never_taken_back_and_an_unborn_machine_looks_for_another() {
    let theirs = with(&host("h", "available"), &consumer("other", "x"));
    let mut seen = having(&theirs);
    assert_eq!(kinds(&decided(&seen)), ["give up", "report"]);
    seen.machine.spec.provider_id = Some("metal3://ns/h/m".to_owned());
    let lost = decided(&seen);
    assert_eq!((lost.reason, kinds(&lost)), (Reason::HostLost, vec!["report"]));
    seen.host = HostSeen::Gone("h".to_owned());
    assert_eq!(decided(&seen).reason, Reason::HostLost);
    // Up once, and nothing that it names: no second life on another host.
    let mut seen = self::seen();
    seen.machine.status =
        Some(serde_json::from_value(json!({"initialization": {"provisioned": true}})).unwrap());
    seen.choice.free = Some(cached(&host("free", "available")));
    assert_eq!((decided(&seen).reason, kinds(&decided(&seen))), (Reason::HostLost, vec!["report"]));
}

#[test]
fn a_host_that_still_installs_a_machine_is_taken_back_before_it_boots_beside_another() {
    let told =
        |boot: &str| json!({"spec": {"image": {"url": "http://a/b"}, "userData": {"name": boot}}});
    let orphan = with(&host("h", "provisioning"), &told("boot"));
    let mut seen = having(&orphan);
    seen.choice.free = Some(cached(&host("free", "available")));
    let decision = decided(&seen);
    let claim = Write::Claim { host: "h".to_owned(), install: None, claimed: None };
    assert_eq!((&decision.writes[..], decision.news()), (&[claim][..], true));
    seen.live = false;
    assert!(decided(&seen).writes.is_empty(), "not on old news");
    seen.live = true;
    let given_up = ["give up", "report"];
    for host in [
        // Another boot secret, nothing to install, another host.
        with(&host("h", "provisioning"), &told("other")),
        host("h", "available"),
        with(&host("h", "available"), &consumer("other", "x")),
        with(&orphan, &json!({"metadata": {"uid": "later"}})),
    ] {
        seen.host = HostSeen::Here(Box::new(host));
        assert_eq!(kinds(&decided(&seen)), given_up, "{:?}", seen.host);
    }
}

#[test]
fn no_second_host_boots_a_machine_whose_first_one_is_another_s_and_still_installs_it() {
    let told = json!({"spec": {"image": {"url": "http://a/b"}, "userData": {"name": "boot"}}});
    let orphan = with(&host("h", "provisioning"), &told);
    let goes = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (patch, names) in [(consumer("other", "x"), "Metal3Machine other"), (goes, "deleted")] {
        let mut seen = having(&with(&orphan, &patch));
        seen.choice.free = Some(cached(&host("free", "available")));
        let decision = decided(&seen);
        assert_eq!((decision.reason, kinds(&decision)), (Reason::HostLost, vec!["report"]));
        assert!(decision.message().contains(names), "{}", decision.message());
        // Nor in any later pass.
        let mut later = leaving::reporting(seen, &decision);
        assert_eq!((decided(&later).reason, kinds(&decided(&later))), (Reason::HostLost, vec![]));
        let off = json!({"spec": {"image": null, "userData": null}});
        later.host = HostSeen::Here(Box::new(with(&with(&orphan, &patch), &off)));
        assert_eq!(kinds(&decided(&later))[0], "give up", "{:?}", later.host);
    }
}

#[test]
fn what_was_rendered_for_a_host_that_is_lost_is_taken_back_before_another_is_looked_for() {
    let named = |name: &str| json!({"name": name});
    let rendered = Data::Rendered {
        name: "facts-0".to_owned(),
        meta_data: Some("m-facts".to_owned()),
        network_data: None,
    };
    for (data, steps) in [
        (Data::NotWanted, vec!["give up", "report"]),
        // As far as the cache knows, and it had its host.
        (Data::NotAskedFor, vec!["withdraw", "give up", "report"]),
        (Data::Awaited, vec!["withdraw", "give up", "report"]),
        (Data::Failed("no index".to_owned()), vec!["withdraw", "give up", "report"]),
        (rendered, vec!["withdraw", "give up", "report"]),
    ] {
        let mut seen = having(&host("h", "available"));
        seen.host = HostSeen::Gone("h".to_owned());
        let mut status = serde_json::to_value(&seen.machine.status).unwrap();
        for (field, name) in [("renderedData", "facts-0"), ("metaData", "m-facts")] {
            status[field] = named(name);
        }
        status["userData"] = named("boot");
        seen.machine.status = serde_json::from_value(status).unwrap();
        seen.data = data;
        let decision = decided(&seen);
        assert_eq!(kinds(&decision), steps);
        let Some(Write::Report(told)) = decision.writes.last() else { panic!("{decision:?}") };
        for (field, gone) in [("renderedData", true), ("metaData", true), ("userData", false)] {
            assert_eq!(told.get(field).is_some_and(Value::is_null), gone, "{field}");
        }
    }
}

#[test]
fn a_host_that_is_told_what_to_install_gets_the_cleaning_mode_of_a_template_that_is_there() {
    let spec =
        json!({"spec": {"image": {"url": "http://a/b"}, "automatedCleaningMode": "disabled"}});
    let ours = with(&with(&host("h", "provisioning"), &consumer("m", "m-uid")), &spec);
    for (cleaning, steps) in [
        (Some("metadata"), vec!["install", "report"]),
        (Some("disabled"), vec!["report"]),
        (None, vec!["report"]),
    ] {
        let mut seen = having(&ours);
        // What it was cloned with is older than what stands on the host.
        seen.machine.spec.automated_cleaning_mode = Some("metadata".to_owned());
        seen.cleaning = cleaning.map(str::to_owned);
        assert_eq!(kinds(&decided(&seen)), steps, "{cleaning:?}");
    }
}

#[test]
fn after_a_move_to_another_cluster_machine_and_host_know_each_other_by_name() {
    let moved = with(&host("h", "provisioned"), &consumer("m", "uid-of-before"));
    let mut seen = having(&moved);
    assert_eq!(kinds(&decided(&seen)), ["claim"]);
    // A later machine of the same name that does not name the host has nothing to do with it.
    seen.machine.metadata.annotations = None;
    seen.machine.status = None;
    assert_ne!(decided(&seen).reason, Reason::HostAdopted);
}

#[test]
fn rendered_secrets_are_asked_for_awaited_and_written_with_the_image() {
    let ours = with(&host("h", "available"), &consumer("m", "m-uid"));
    let mut seen = having(&ours);
    seen.machine.spec.data_template = Some(ObjectRef::default());
    for (data, reason, steps) in [
        (Data::NotAskedFor, Reason::WaitingForData, vec!["ask", "report"]),
        (Data::Awaited, Reason::WaitingForData, vec!["report"]),
        (Data::Withdrawn("it goes".to_owned()), Reason::WaitingForData, vec!["report"]),
        (Data::Failed("no index".to_owned()), Reason::DataFailed, vec!["report"]),
        (Data::Unserved, Reason::DataFailed, vec!["report"]),
    ] {
        seen.data = data;
        let decision = decided(&seen);
        assert_eq!((decision.reason, kinds(&decision)), (reason, steps));
        // Nobody tells when a secret is gone.
        assert_eq!(decision.again().is_some(), matches!(seen.data, Data::Withdrawn(_)));
    }
    // Where a filter is set it is said who has to render.
    seen.data = Data::Awaited;
    let filter = [(names::capi::WATCH_FILTER.to_owned(), "ours".to_owned())];
    seen.machine.metadata.labels = Some(filter.into());
    assert!(decided(&seen).message().contains("--watch-filter is ours"));
    let name = |text: &str| Some(text.to_owned());
    seen.data = Data::Rendered {
        name: "facts-0".to_owned(),
        meta_data: name("meta"),
        network_data: name("net"),
    };
    let decision = decided(&seen);
    let Write::Install { install, .. } = &decision.writes[0] else { panic!("{decision:?}") };
    assert_eq!(install["metaData"]["name"], "meta");
    assert_eq!(install["networkData"]["name"], "net");
    assert_eq!(install["image"]["url"], "http://a/b");
}

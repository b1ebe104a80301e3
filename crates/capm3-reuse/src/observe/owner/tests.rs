//! Whose a machine is, and whether its owner replaces machines.

use serde_json::json;

use api_types::capi::{KubeadmControlPlane, MachineDeployment, OwnerStatus};
use controller_kit::unread::Broken;
use k8s_openapi::api::core::v1::ObjectReference;

use super::*;
use crate::context::tests::{VERSION, no_caches, nowhere, store};
use crate::context::{Caches, Context};
use crate::decide::tests::{host, owner, with};
use crate::outline::{cluster_of, is_halted, is_paused, rolls_out, template_in};
use crate::served::Served;
use api_types::ContractVersion;

#[test]
fn a_rollout_is_under_way_only_where_its_controller_says_so() {
    for (status, wanted) in [
        (json!({}), false),
        (json!({"observedGeneration": 2}), false),
        (json!({"observedGeneration": 1}), true),
        (json!({"observedGeneration": 2, "upToDateReplicas": 3}), false),
        (json!({"observedGeneration": 2, "upToDateReplicas": 2}), true),
        (json!({"observedGeneration": 2, "updatedReplicas": 2}), true),
        (json!({"upToDateReplicas": 3}), false),
    ] {
        let seen: OwnerStatus = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(rolls_out(&seen, Some(2), 3), wanted, "{status}");
    }
}

#[test]
fn a_deployment_that_waits_for_people_rolls_nothing_out() {
    for (spec, wanted) in [
        (json!({}), false),
        (json!({"strategy": {"type": "OnDelete"}}), true),
        (json!({"rollout": {"strategy": {"type": "OnDelete"}}}), true),
        (json!({"rollout": {"strategy": {"type": "RollingUpdate"}}}), false),
    ] {
        let it: MachineDeployment = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(is_halted(&it.spec.other), wanted, "{spec}");
    }
}

#[test]
fn a_deployment_is_paused_by_its_annotation_and_by_its_field() {
    for (it, wanted) in [
        (json!({}), false),
        (json!({"spec": {"paused": false}}), false),
        (json!({"spec": {"paused": true}}), true),
        (json!({"metadata": {"annotations": {names::capi::PAUSED: ""}}}), true),
    ] {
        let deployment: MachineDeployment = serde_json::from_value(it.clone()).unwrap();
        let found = is_paused(&deployment.metadata, &deployment.spec.other);
        assert_eq!(found, wanted, "{it}");
    }
}

#[test]
fn a_right_that_the_chart_gives_and_that_is_away_is_no_word_about_an_owner() {
    let refused = |code: u16| -> kube::Result<Option<DynamicObject>> {
        let reason = if code == 403 { "Forbidden" } else { "InternalError" };
        let status = kube::core::Status::failure("why", reason).with_code(code);
        Err(kube::Error::Api(Box::new(status)))
    };
    let of_kind = |kind: &str| Owner { kind: kind.to_owned(), ..owner() };
    for kind in ["MachineDeployment", "KubeadmControlPlane"] {
        assert!(as_found(&of_kind(kind), true, "x", refused(403)).is_err(), "{kind}");
    }
    let other = of_kind("RKE2ControlPlane");
    let told = as_found(&other, false, "rke2controlplanes", refused(403));
    let why = told.unwrap().unwrap().unreadable.unwrap();
    assert!(why.contains("rke2controlplanes"), "{why}");
    assert!(as_found(&other, false, "x", refused(500)).is_err());
    assert!(matches!(as_found(&other, false, "x", Ok(None)), Ok(None)));
}

#[test]
fn an_owner_that_cannot_be_read_keeps_its_hosts_and_is_not_watched() {
    let unknown = OfOwner::unknown(&owner(), "why".to_owned());
    assert_eq!((unknown.paused, unknown.is_unwatched), (true, true));
}

#[test]
fn a_control_plane_of_a_label_is_of_the_kind_that_the_cluster_names() {
    let served = Served {
        core: VERSION,
        infrastructure: VERSION,
        control_plane: Some(VERSION),
        data: false,
    };
    let (plane, deployment) = (names::capi::CONTROL_PLANE_NAME, names::capi::DEPLOYMENT_NAME);
    let rke = json!({
        "apiGroup": CONTROL_PLANE_GROUP, "kind": "RKE2ControlPlane", "name": "cp", "uid": "before",
    });
    let named = Some(("RKE2ControlPlane", "cp"));
    for (label, reference, wanted) in [
        (plane, rke.clone(), named),
        (plane, json!(null), Some(("KubeadmControlPlane", "cp"))),
        (deployment, rke.clone(), Some(("MachineDeployment", "cp"))),
        (names::capi::CLUSTER_NAME, rke, None),
    ] {
        let labels = [(label.to_owned(), "cp".to_owned())].into();
        let spec = json!({"spec": {"controlPlaneRef": reference}});
        let cluster: Cluster = serde_json::from_value(spec).unwrap();
        let found = named_by_labels(served, &labels, Some(&cluster));
        let found = found.inspect(|it| assert!(it.uid.is_empty()));
        let found = found.as_ref().map(|it| (it.kind.as_str(), it.name.as_str()));
        assert_eq!(found, wanted, "{label} {reference}");
    }
}

#[test]
fn templates_are_asked_from_the_owner_s_own_to_the_one_a_machine_came_from() {
    let template = |kind: &str, name: &str| -> ObjectRef {
        let it = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": kind, "name": name,
        });
        serde_json::from_value(it).unwrap()
    };
    let (now, other) = (template(TEMPLATE_KIND, "now"), template("OtherTemplate", "other"));
    for (named, wanted) in [
        (Some(&now), &["now", "first"][..]),
        // A provider may name it in a place that is not known here.
        (None, &["first"]),
        // Its next machines are of another provider.
        (Some(&other), &[]),
    ] {
        assert_eq!(asked_in_turn(named, Some("first")), wanted, "{named:?}");
    }
    assert!(asked_in_turn(None, None).is_empty());
}

#[test]
fn an_unreadable_owner_holds_only_a_host_whose_machine_asks_for_reuse() {
    let why = || "allow get on it".to_owned();
    for (own, held) in [
        (Reuse::On, true),
        (Reuse::Unreadable("it is odd".to_owned()), true),
        // That template is gone: it may have asked for it.
        (Reuse::Unknown, true),
        (Reuse::Off, false),
    ] {
        let verdict = of_unreadable(why(), &own);
        assert_eq!(verdict == Verdict::Undecided(Reason::OwnerUnreadable, why()), held, "{own:?}");
        assert_eq!(matches!(verdict, Verdict::Nobody(_)), !held, "{own:?}");
    }
}

#[test]
fn a_machine_is_its_owner_s_by_label_by_reference_and_through_a_machine_set() {
    let sets = ["set-uid".to_owned()].into();
    let reference = |kind: &str, uid: &str| json!({"ownerReferences": [{"apiVersion": "g/v", "kind": kind, "name": "x", "uid": uid}]});
    for (metadata, wanted) in [
        (json!({"labels": {names::capi::DEPLOYMENT_NAME: "md"}}), true),
        (json!({"labels": {names::capi::DEPLOYMENT_NAME: "other"}}), false),
        (json!({"labels": {names::capi::CONTROL_PLANE_NAME: "md"}}), false),
        (reference("MachineSet", "set-uid"), true),
        (reference("MachineSet", "another"), false),
        (reference("MachineDeployment", "md-uid"), true),
        (reference("MachineSet", ""), false),
    ] {
        let machine = serde_json::from_value(json!({"metadata": metadata.clone()})).unwrap();
        assert_eq!(is_machine_of(&machine, &owner(), &sets), wanted, "{metadata}");
    }
}

fn labelled(rack: &str) -> BareMetalHost {
    with(&host("h", "available"), &json!({"metadata": {"labels": {"rack": rack}}}))
}

fn selecting(rack: &str) -> Value {
    json!({"hostSelector": {"matchLabels": {"rack": rack}}})
}

#[test]
fn a_machine_may_come_for_a_kept_host_if_it_has_none_and_its_selector_matches() {
    let up = json!({"initialization": {"provisioned": true}});
    let names_one = json!({"annotations": {names::metal3::HOST: "ns/other"}});
    let goes = with_deletion(&names_one);
    let unreadable =
        json!({"hostSelector": {"matchExpressions": [{"key": "rack", "operator": "Near"}]}});
    for (spec, metadata, status, wanted) in [
        (json!({}), json!({}), json!({}), true),
        (selecting("a"), json!({}), json!({}), true),
        (selecting("b"), json!({}), json!({}), false),
        // It may be corrected to anything.
        (unreadable, json!({}), json!({}), true),
        (selecting("a"), names_one.clone(), json!({}), true),
        (selecting("a"), names_one.clone(), up.clone(), false),
        (selecting("a"), goes.clone(), up.clone(), true),
        (selecting("b"), goes, up, false),
    ] {
        let it = json!({"metadata": metadata, "spec": spec, "status": status});
        let machine: Metal3Machine = serde_json::from_value(it.clone()).unwrap();
        assert_eq!(may_come_for(&labelled("a"), &machine), wanted, "{it}");
    }
}

fn with_deletion(metadata: &Value) -> Value {
    let mut goes = metadata.clone();
    goes["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    goes
}

#[tokio::test]
async fn machines_that_select_other_hosts_keep_none_and_those_of_which_nothing_is_known_do() {
    let machine = |name: &str, spec: Value| -> Metal3Machine {
        let annotations = json!({names::capi::CLONED_FROM_NAME: "t"});
        let metadata = json!({"name": name, "namespace": "ns", "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    let template = |rack: &str| -> Metal3MachineTemplate {
        let spec = json!({"nodeReuse": true, "template": {"spec": selecting(rack)}});
        let it = json!({"metadata": {"name": "t", "namespace": "ns"}, "spec": spec});
        serde_json::from_value(it).unwrap()
    };
    let here = labelled("a");
    for (known, template, waits, wants_others) in [
        (vec![machine("m", selecting("b"))], Some(template("b")), false, true),
        (vec![machine("m", selecting("b"))], Some(template("a")), false, false),
        (vec![machine("m", selecting("a"))], Some(template("b")), true, true),
        (vec![], None, true, false),
        // Whether its template asks for reuse is not known.
        (vec![machine("m", selecting("a"))], None, true, false),
    ] {
        let context = seen(known, template, None);
        let kept = Kept::For(owner());
        let seen = scope(&context).owner_seen(&here, &kept, false).await.unwrap().unwrap();
        assert_eq!((seen.machines, seen.replicas, seen.waits), (1, 2, waits));
        assert_eq!(seen.wants_others, wants_others);
    }
    // One that may have no kept host does not come for it.
    let mut off = template("a");
    off.spec.node_reuse = Some(false);
    let context = seen(vec![machine("m", selecting("a"))], Some(off), None);
    assert_eq!(scope(&context).machines_of(&owner(), &here), (1, false));
    let mut others = labelled("a");
    others.labels_mut().insert(names::capi::WATCH_FILTER.to_owned(), "theirs".to_owned());
    for (filter, waits, wants_others) in [(None, true, false), (Some("ours"), false, true)] {
        let context = seen(vec![machine("m", selecting("a"))], Some(template("a")), filter);
        let kept = Kept::For(owner());
        let seen = scope(&context).owner_seen(&others, &kept, false).await.unwrap().unwrap();
        assert_eq!((seen.waits, seen.wants_others), (waits, wants_others));
    }
}

fn scope(context: &Context) -> Scope<'_> {
    Scope { context, namespace: "ns" }
}

/// A deployment that wants two machines and has one Machine, and what else was seen.
fn seen(
    machines: Vec<Metal3Machine>,
    template: Option<Metal3MachineTemplate>,
    watch_filter: Option<&str>,
) -> Context {
    let parent = json!({
        "metadata": {"name": "m", "namespace": "ns", "labels": {names::capi::DEPLOYMENT_NAME: "md"}},
        "spec": {"clusterName": "c", "infrastructureRef": {"kind": "Metal3Machine", "name": "m"}},
    });
    let infrastructure = json!({"infrastructureRef": {"kind": TEMPLATE_KIND, "name": "t"}});
    let deployment = json!({
        "metadata": {"name": "md", "namespace": "ns", "uid": "md-uid"},
        "spec": {"clusterName": "c", "replicas": 2, "template": {"spec": infrastructure}},
    });
    let cluster = json!({"metadata": {"name": "c", "namespace": "ns"}});
    let caches = Caches {
        machines: store(machines, VERSION),
        templates: store(template.into_iter().collect(), VERSION),
        parents: store(vec![serde_json::from_value(parent).unwrap()], VERSION),
        clusters: store(vec![serde_json::from_value(cluster).unwrap()], VERSION),
        deployments: store(vec![serde_json::from_value(deployment).unwrap()], VERSION),
        ..no_caches()
    };
    nowhere(caches, watch_filter)
}

/// Or a reservation would end for what only one of them says.
#[test]
fn an_owner_is_the_same_whether_it_is_decoded_or_read_live() {
    let served = Served {
        core: VERSION,
        infrastructure: VERSION,
        control_plane: Some(VERSION),
        data: false,
    };
    let template = json!({"spec": {"infrastructureRef": {"kind": TEMPLATE_KIND, "name": "t"}}});
    let plane = json!({"machineTemplate": template, "replicas": 3});
    for (kind, spec) in [
        ("MachineDeployment", json!({"clusterName": "c", "replicas": 3, "template": template})),
        ("MachineDeployment", json!({"clusterName": "c", "template": template, "paused": true})),
        (
            "MachineDeployment",
            json!({"clusterName": "c", "replicas": 3, "template": template, "strategy": {"type": "OnDelete"}}),
        ),
        ("KubeadmControlPlane", plane),
    ] {
        let metadata = json!({
            "name": "md", "namespace": "ns", "uid": "u", "generation": 2,
            "labels": {names::capi::CLUSTER_NAME: "c"},
        });
        let it = json!({"metadata": metadata, "spec": spec, "status": {"upToDateReplicas": 2}});
        let decoded = if kind == "MachineDeployment" {
            let typed: MachineDeployment = serde_json::from_value(it.clone()).unwrap();
            OfOwner::seen(served, &typed)
        } else {
            let typed: KubeadmControlPlane = serde_json::from_value(it.clone()).unwrap();
            OfOwner::seen(served, &typed)
        };
        let mut live = it;
        live["apiVersion"] = json!("g/v");
        live["kind"] = json!(kind);
        let live: DynamicObject = serde_json::from_value(live).unwrap();
        let named = Owner { uid: String::new(), ..decoded.owner.clone() };
        let read = as_found(&named, true, "x", Ok(Some(live))).unwrap().unwrap();
        assert_eq!(OfOwner { is_unwatched: false, ..read }, decoded, "{spec}");
    }
}

#[test]
fn an_owner_is_there_even_if_no_type_decodes_it_and_a_later_one_of_its_name_is_another() {
    let live = |uid: &str| -> DynamicObject {
        let it = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": "md", "uid": uid}, "spec": "odd",
        });
        serde_json::from_value(it).unwrap()
    };
    for (uid, is_the_one) in [("md-uid", true), ("later", false)] {
        let read = as_found(&owner(), true, "machinedeployments", Ok(Some(live(uid))));
        let read = read.unwrap().unwrap();
        assert_eq!((read.template.is_none(), read.unreadable.is_none()), (true, true));
        assert_eq!(owner().means(&read.owner), is_the_one);
        let without_uid = Owner { uid: String::new(), ..owner() };
        assert!(without_uid.means(&read.owner), "whichever it is");
        assert_eq!(Kept::For(owner()).is_for(&read.owner), is_the_one);
    }
}

/// One that cannot be decoded, by what can be read of it.
fn broken(metadata: Value) -> Broken {
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
    Broken { metadata, object: ObjectReference::default(), problem: "it is odd".to_owned() }
}

#[tokio::test]
async fn an_owner_that_no_cache_has_is_found_by_its_label_even_if_it_cannot_be_decoded() {
    let context = seen(vec![], None, None);
    let found = |label: &str| scope(&context).owner_by_label(label);
    assert_eq!(found("md-md"), Some(owner()));
    assert_eq!(found("md-odd"), None);
    let odd = json!({"name": "odd", "namespace": "ns", "uid": "odd-uid"});
    context.caches.deployments.broken.put(broken(odd));
    let elsewhere = json!({"name": "other", "namespace": "elsewhere"});
    context.caches.deployments.broken.put(broken(elsewhere));
    let odd = Owner { name: "odd".to_owned(), uid: "odd-uid".to_owned(), ..owner() };
    assert_eq!((found("md-odd"), found("md-other")), (Some(odd), None));
}

#[tokio::test]
async fn a_control_plane_that_a_cluster_names_in_words_that_cannot_be_read_may_be_there() {
    let context = seen(vec![], None, None);
    let (here, kept) = (labelled("a"), Kept::ByLabel("cp-a".to_owned()));
    let scope = scope(&context);
    assert_eq!(scope.owner_seen(&here, &kept, false).await.unwrap(), None);
    // Nobody answers here, and that a cache has no owner proves nothing.
    assert!(scope.owner_seen(&here, &kept, true).await.is_err());
    let odd = json!({"name": "odd", "namespace": "ns"});
    context.caches.clusters.broken.put(broken(odd));
    let seen = scope.owner_seen(&here, &kept, false).await.unwrap().unwrap();
    assert_eq!((seen.paused, seen.is_unwatched), (true, true), "it is looked at again");
}

/// As with any other control plane that is not served: somebody is told what to install, and nothing ends.
#[tokio::test]
async fn a_control_plane_of_kubeadm_that_is_not_served_is_one_that_is_not_watched() {
    let reference = json!({
        "apiGroup": CONTROL_PLANE_GROUP, "kind": "KubeadmControlPlane", "name": "cp", "uid": "u",
    });
    let plane = Owner::from_reference(&serde_json::from_value(reference.clone()).unwrap()).unwrap();
    let cluster = json!({
        "metadata": {"name": "c", "namespace": "ns"}, "spec": {"controlPlaneRef": reference},
    });
    let clusters = store(vec![serde_json::from_value(cluster).unwrap()], VERSION);
    let unserved = nowhere(Caches { clusters, ..no_caches() }, None);
    let served = Served { control_plane: Some(VERSION), ..unserved.served };
    for (served, wanted) in [(unserved.served, false), (served, true)] {
        assert_eq!((served.watches(&plane), served.watches(&owner())), (wanted, true));
    }
    assert_eq!(scope(&unserved).owner_by_label("cp-cp"), Some(plane.clone()));
    // A cache that is empty for ever does not say that it is gone. It is asked for live, where nobody answers here.
    assert!(scope(&unserved).owner_by_name(&plane, false).await.is_err());
}

#[tokio::test]
async fn a_machine_has_its_owner_whether_its_machine_or_set_can_be_decoded_or_not() {
    let context = seen(vec![], None, None);
    let reference = |kind: &str, name: &str| json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": "md-uid"}]);
    let metal: Metal3Machine = serde_json::from_value(json!({"metadata": {
        "name": "m", "namespace": "ns", "ownerReferences": reference("Machine", "odd"),
    }}))
    .unwrap();
    assert_eq!(scope(&context).owner_of(&metal, None), None);
    let machine = |owners: Value| {
        broken(json!({"name": "odd", "namespace": "ns", "ownerReferences": owners}))
    };
    context.caches.parents.broken.put(machine(reference("MachineDeployment", "md")));
    assert_eq!(scope(&context).owner_of(&metal, None), Some(owner()));
    context.caches.parents.broken.put(machine(reference("MachineSet", "set")));
    assert_eq!(scope(&context).owner_of(&metal, None), None);
    let owners = reference("MachineDeployment", "md");
    let set = json!({"name": "set", "namespace": "ns", "ownerReferences": owners});
    context.caches.sets.broken.put(broken(set));
    assert_eq!(scope(&context).owner_of(&metal, None), Some(owner()));
    // Labels name one that no cache has as well, without its uid.
    for (name, uid) in [("md", "md-uid"), ("later", "")] {
        let labels = json!({names::capi::DEPLOYMENT_NAME: name});
        let metadata = json!({"name": "m", "namespace": "ns", "labels": labels});
        let labelled = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let named = Owner { name: name.to_owned(), uid: uid.to_owned(), ..owner() };
        assert_eq!(scope(&context).owner_of(&labelled, None), Some(named));
    }
}

#[test]
fn the_cluster_of_a_control_plane_is_known_by_label_or_by_its_owner() {
    let owned = |group: &str| {
        json!({"ownerReferences": [{
            "apiVersion": format!("{group}/v1beta2"), "kind": "Cluster", "name": "c", "uid": "u",
        }]})
    };
    for (metadata, wanted) in [
        (json!({"labels": {names::capi::CLUSTER_NAME: "l"}}), Some("l")),
        (owned("cluster.x-k8s.io"), Some("c")),
        (owned("elsewhere"), None),
        (json!({}), None),
    ] {
        let metadata = serde_json::from_value(metadata).unwrap();
        assert_eq!(cluster_of(&metadata).as_deref(), wanted);
    }
}

/// Kubeadm's CRD has a version that those of other providers do not have.
#[tokio::test]
async fn a_kind_is_served_in_whichever_version_of_its_group_has_it() {
    let versions = ["v1beta2", "v1beta1", "v1alpha3"]
        .map(|it| json!({"groupVersion": format!("{CONTROL_PLANE_GROUP}/{it}"), "version": it}));
    let group = json!({
        "name": CONTROL_PLANE_GROUP, "preferredVersion": versions[0], "versions": versions,
    });
    let group: APIGroup = serde_json::from_value(group).unwrap();
    let found = async |kind: &str, broken: &str, code: u16| {
        let ask = |version: String| {
            if version.ends_with(broken) {
                let status = kube::core::Status { code, ..kube::core::Status::default() };
                return std::future::ready(Err(kube::Error::Api(Box::new(status))));
            }
            let all = match version.rsplit('/').next().unwrap() {
                "v1beta2" => vec![("KubeadmControlPlane", "kubeadmcontrolplanes")],
                "v1beta1" => vec![
                    ("RKE2ControlPlane", "rke2controlplanes/status"),
                    ("RKE2ControlPlane", "rke2controlplanes"),
                    ("KubeadmControlPlane", "kubeadmcontrolplanes"),
                ],
                _ => vec![("TalosControlPlane", "taloscontrolplanes")],
            };
            let all = all.iter().map(
                |(kind, name)| json!({"kind": kind, "name": name, "namespaced": true, "singularName": "", "verbs": []}),
            );
            let list = json!({"groupVersion": version, "resources": all.collect::<Vec<_>>()});
            std::future::ready(Ok(serde_json::from_value(list).unwrap()))
        };
        first_served(&group, kind, ask).await.map(|it| it.map(|it| (it.version, it.plural)))
    };
    let none = "no version";
    for (kind, wanted) in [
        ("KubeadmControlPlane", Some(("v1beta2", "kubeadmcontrolplanes"))),
        ("RKE2ControlPlane", Some(("v1beta1", "rke2controlplanes"))),
        ("TalosControlPlane", Some(("v1alpha3", "taloscontrolplanes"))),
        ("KThreesControlPlane", None),
    ] {
        let wanted = wanted.map(|(version, plural)| (version.to_owned(), plural.to_owned()));
        assert_eq!(found(kind, none, 0).await.unwrap(), wanted, "{kind}");
    }
    // A version that goes has nothing. That another failure hides it says nothing of the kind.
    let older = found("KubeadmControlPlane", "v1beta2", 404).await.unwrap();
    assert_eq!(older.unwrap().0, "v1beta1");
    for code in [403, 500] {
        assert!(found("TalosControlPlane", "v1beta1", code).await.is_err(), "{code}");
    }
}

#[test]
fn the_template_that_keeps_a_host_says_whether_its_disks_are_wiped() {
    let kept = |cleaning: Option<&str>| Verdict::For {
        owner: owner(),
        cleaning: cleaning.map(str::to_owned),
    };
    let nobody = |why: &str| Verdict::Nobody(why.to_owned());
    for (spec, wanted) in [
        (json!({"nodeReuse": true}), kept(None)),
        (
            json!({"nodeReuse": true, "template": {"spec": {"automatedCleaningMode": "disabled"}}}),
            kept(Some("disabled")),
        ),
        (json!({}), nobody("the template of its owner does not set nodeReuse")),
    ] {
        assert_eq!(by_template(owner(), "t", &json!({"spec": spec})), wanted);
    }
    let wrong = by_template(owner(), "t", &json!({"spec": {"nodeReuse": "yes"}}));
    assert!(matches!(wrong, Verdict::Undecided(Reason::OwnerUnreadable, _)), "{wrong:?}");
}

#[test]
fn labels_name_an_owner_that_no_cache_has() {
    let served = Served {
        core: ContractVersion::V1Beta2,
        infrastructure: ContractVersion::V1Beta2,
        control_plane: None,
        data: false,
    };
    let found = |served: Served, key: &str| {
        named_by_labels(served, &[(key.to_owned(), "md".to_owned())].into(), None)
    };
    let deployment = found(served, names::capi::DEPLOYMENT_NAME).unwrap();
    assert_eq!(deployment, Owner { uid: String::new(), ..owner() });
    assert_eq!(found(served, names::capi::CONTROL_PLANE_NAME), None);
    let served = Served { control_plane: Some(ContractVersion::V1Beta1), ..served };
    let plane = found(served, names::capi::CONTROL_PLANE_NAME).unwrap();
    assert_eq!(plane.api_version, "controlplane.cluster.x-k8s.io/v1beta1");
    assert_eq!(found(served, "cluster.x-k8s.io/set-name"), None);
}

#[test]
fn a_template_is_found_wherever_a_provider_names_it_and_what_is_not_found_is_told() {
    let reference = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3MachineTemplate",
        "name": "t",
    });
    for spec in [
        json!({"machineTemplate": {"infrastructureRef": reference}}),
        json!({"machineTemplate": {"spec": {"infrastructureRef": reference}}}),
        json!({"machineTemplate": {"infrastructureTemplate": reference}}),
        json!({"infrastructureTemplate": reference}),
        json!({"machineTemplate": {"infrastructureRef": null}, "infrastructureTemplate": reference}),
    ] {
        let found = template_in(&json!({"spec": spec}));
        assert!(found.as_ref().is_some_and(is_template), "{spec}");
    }
    assert_eq!(template_in(&json!({"spec": {"elsewhere": reference}})), None);
    let template: ObjectRef = serde_json::from_value(reference).unwrap();
    let other = ObjectRef { kind: Some("OtherTemplate".to_owned()), ..template.clone() };
    let plane = Owner { kind: "TalosControlPlane".to_owned(), ..owner() };
    let told = |owner: &Owner, named: Option<&ObjectRef>| {
        let is_watched = owner.kind == "MachineDeployment";
        match without_template(owner, named, is_watched) {
            Verdict::Undecided(Reason::OwnerUnreadable, why) => why,
            Verdict::Nobody(why) => format!("nobody: {why}"),
            verdict => panic!("{verdict:?}"),
        }
    };
    for owner in [&owner(), &plane] {
        assert!(told(owner, Some(&template)).contains("nobody: the template of its owner is gone"));
        assert!(told(owner, Some(&other)).contains("points to OtherTemplate t"));
    }
    assert!(told(&owner(), None).contains("nobody:"));
    let why = told(&plane, None);
    assert!(why.contains("TalosControlPlane md") && why.contains("spec.infrastructureTemplate"));
}

//! What the bench does to a client on purpose really happens, at the request that was chosen and at no other, and the
//! observer misses nothing. The sweeps of all controllers rest on this.

use std::time::{Duration, Instant};

use bench::audit::Audit;
use bench::control_plane::{ControlPlane, shared};
use bench::faults::{At, Fault, Handle, Plan, client};
use bench::observer::Observer;
use http::{Method, StatusCode};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(10);

/// A client under a user of its own, so that the server can be asked what it saw of it.
async fn disturbed(
    plane: &ControlPlane,
    namespace: &str,
    user: &str,
    plan: Plan,
) -> (Api<ConfigMap>, Handle) {
    let mut config = plane.config(user, &["system:masters"]).await.unwrap();
    // The library repeats what is answered with 503 by itself, and would hide it.
    config.default_retry = false;
    let (client, handle) = client(config, plan).unwrap();
    (Api::namespaced(client, namespace), handle)
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

async fn create(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    api.create(&PostParams::default(), &map(name)).await
}

/// What is there, as somebody undisturbed sees it.
async fn names(plane: &ControlPlane, namespace: &str) -> Vec<String> {
    let api: Api<ConfigMap> = Api::namespaced(plane.admin().await, namespace);
    api.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_strikes_the_write_that_was_chosen_and_nothing_else() {
    let plane = shared().await;
    let audit = Audit::new(plane.audit_log(), plane.admin().await);
    let delay = Duration::from_millis(300);
    for (number, (fault, succeeds, done)) in [
        (Fault::Fail(StatusCode::SERVICE_UNAVAILABLE), false, false),
        (Fault::Fail(StatusCode::CONFLICT), false, false),
        (Fault::DropRequest, false, false),
        (Fault::DropAnswer, false, true),
        (Fault::Delay(delay), true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let namespace = plane.namespace("faults").await;
        let user = format!("disturbed-{number}");
        let mark = audit.mark().await.unwrap();
        let plan = Plan::one(&user, At::Write(2), fault);
        let (api, handle) = disturbed(plane, &namespace, &user, plan).await;
        create(&api, "a").await.unwrap();
        // A read in between is no write, and is not counted as one.
        api.get("a").await.unwrap();
        assert!(!handle.fired(), "{fault:?}");
        let began = Instant::now();
        let answer = create(&api, "b").await;
        let took = began.elapsed();
        assert!(handle.fired(), "{fault:?}");
        assert_eq!(answer.is_ok(), succeeds, "{fault:?}: {answer:?}");
        assert_eq!(took >= delay, matches!(fault, Fault::Delay(_)), "{fault:?} took {took:?}");
        if let Fault::Fail(status) = fault {
            let refused = answer.unwrap_err();
            let code = status.as_u16();
            assert!(matches!(&refused, kube::Error::Api(it) if it.code == code), "{refused:?}");
        }
        create(&api, "c").await.unwrap();

        let there = names(plane, &namespace).await.contains(&"b".to_owned());
        assert_eq!(there, done, "{fault:?}");
        let counts = audit.since(mark).await.unwrap();
        assert_eq!(counts.writes(&user, &[]), 2 + u64::from(done), "{fault:?}: {counts}");
        assert_eq!((handle.requests(), handle.writes()), (4, 3), "{fault:?}");
        // The journal knows which version each write made, also where the client was not told.
        let calls = handle.calls();
        let made: Vec<bool> = calls.iter().map(|call| call.version.is_some()).collect();
        assert_eq!(made, [true, false, done, true], "{fault:?}");
        assert_eq!(calls[2].write, Some(2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_can_also_wait_for_a_read() {
    let plane = shared().await;
    let namespace = plane.namespace("faults").await;
    let plan = Plan::one("reader", At::Request(2), Fault::Fail(StatusCode::NOT_FOUND));
    let (api, handle) = disturbed(plane, &namespace, "reader", plan).await;
    create(&api, "a").await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none(), "it is hidden once");
    assert!(api.get_opt("a").await.unwrap().is_some());
    assert_eq!(handle.calls()[1].method, Method::GET);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_client_asks_for_nothing_and_hears_nothing_any_more() {
    let plane = shared().await;
    for (fault, done) in [(Fault::CrashBefore, false), (Fault::CrashAfter, true)] {
        let namespace = plane.namespace("faults").await;
        let plan = Plan::one("crashing", At::Write(2), fault);
        let (api, handle) = disturbed(plane, &namespace, "crashing", plan).await;
        create(&api, "a").await.unwrap();
        let working = tokio::spawn({
            let api = api.clone();
            async move { create(&api, "b").await }
        });
        tokio::time::timeout(PATIENCE, handle.crashed()).await.expect("it crashes");
        let after = tokio::time::timeout(Duration::from_millis(200), create(&api, "c")).await;
        assert!(after.is_err(), "{fault:?}: a process that is gone was answered {after:?}");
        assert!(!working.is_finished(), "{fault:?}: it heard how its last write ended");
        working.abort();
        let there = names(plane, &namespace).await;
        assert_eq!(there.contains(&"b".to_owned()), done, "{fault:?}");
        assert!(!there.contains(&"c".to_owned()), "{fault:?}");
        // What takes its place is not touched by what struck it.
        let (fresh, _) = disturbed(plane, &namespace, "fresh", Plan::none("fresh")).await;
        create(&fresh, "d").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_the_answer_to_a_held_write_that_was_given_up() {
    let plane = shared().await;
    let namespace = plane.namespace("faults").await;
    let plan = Plan::one("held", At::Write(1), Fault::Hold);
    let (api, handle) = disturbed(plane, &namespace, "held", plan).await;
    let patient = tokio::time::timeout(Duration::from_millis(200), create(&api, "a"));
    assert!(patient.await.is_err(), "it is held");
    tokio::time::timeout(PATIENCE, handle.answered()).await.expect("its end is seen");
    assert!(names(plane, &namespace).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_write_reaches_the_server_when_it_is_released_and_holds_up_nothing_else() {
    let plane = shared().await;
    let namespace = plane.namespace("faults").await;
    let plan = Plan::one("held", At::Write(1), Fault::Hold);
    let (api, handle) = disturbed(plane, &namespace, "held", plan).await;
    let held = tokio::spawn({
        let api = api.clone();
        async move { create(&api, "held").await }
    });
    tokio::time::timeout(PATIENCE, handle.held()).await.expect("it is held");
    create(&api, "other").await.unwrap();
    let there = names(plane, &namespace).await;
    assert!(there.contains(&"other".to_owned()) && !there.contains(&"held".to_owned()));
    assert!(!held.is_finished());
    handle.release();
    tokio::time::timeout(PATIENCE, handle.answered()).await.expect("it is answered");
    held.await.unwrap().unwrap();
    assert!(names(plane, &namespace).await.contains(&"held".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_by_the_clock_or_changes_nothing_moves_no_number() {
    let plane = shared().await;
    let namespace = plane.namespace("faults").await;
    let plan = Plan::one("numbers", At::Write(1), Fault::DropRequest);
    let (maps, handle) = disturbed(plane, &namespace, "numbers", plan).await;
    let client = maps.into_client();
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    let lease = serde_json::from_value(json!({ "metadata": { "name": "l" } })).unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let review: SelfSubjectAccessReview =
        serde_json::from_value(json!({ "spec": { "resourceAttributes": { "verb": "get" } } }))
            .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &review).await.unwrap();
    assert_eq!((handle.writes(), handle.requests(), handle.fired()), (0, 2, false));
    create(&Api::namespaced(client, &namespace), "first").await.unwrap_err();
    assert_eq!((handle.writes(), handle.fired()), (1, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_observer_sees_every_version_also_of_what_happens_while_its_watch_is_broken() {
    let plane = shared().await;
    let namespace = plane.namespace("observed").await;
    let (api, writer) = disturbed(plane, &namespace, "writer", Plan::none("writer")).await;
    create(&api, "before").await.unwrap();
    // The first two requests list, the third watches and breaks, the fourth is lost, the fifth comes late.
    let gap = Duration::from_millis(600);
    let plan = Plan::one("observer", At::Request(3), Fault::CutAnswer(Duration::from_millis(200)))
        .and(At::Request(4), Fault::DropRequest)
        .and(At::Request(5), Fault::Delay(gap));
    let (maps, watching) = disturbed(plane, &namespace, "observer", plan).await;
    let kinds = [ApiResource::erase::<ConfigMap>(&())];
    let observer = Observer::start(&maps.into_client(), Some(&namespace), &kinds).await.unwrap();
    let began = Instant::now();
    let mut step = 0;
    // Through the gap and beyond; what lives only briefly shows in no list.
    while watching.requests() < 5 || began.elapsed() < gap + Duration::from_millis(400) {
        step += 1;
        let name = format!("brief-{step}");
        create(&api, &name).await.unwrap();
        let patch = Patch::Merge(json!({ "data": { "step": step.to_string() } }));
        api.patch("before", &PatchParams::default(), &patch).await.unwrap();
        api.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "the watch is not made anew");
    }
    let history = observer.history(std::slice::from_ref(&writer)).await.unwrap();
    let written: Vec<u64> = writer.calls().iter().filter_map(|call| call.version).collect();
    let seen: Vec<u64> = history.writes.iter().map(|write| write.version).collect();
    for version in &written[1..] {
        assert!(seen.contains(version), "version {version} was not seen");
    }
    assert_eq!(seen.len(), 3 * step, "a creation, a change and a deletion each time");
    assert!(seen.is_sorted());
    for (index, write) in history.writes.iter().enumerate() {
        let by = format!("writer, write {}", index + 2);
        assert_eq!(write.by, by, "{write}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_the_server_no_longer_has_is_a_gap_and_not_silence() {
    let plane = shared().await;
    let namespace = plane.namespace("observed").await;
    let (api, _) = disturbed(plane, &namespace, "late", Plan::none("late")).await;
    // The third request watches.
    let plan = Plan::one("late-observer", At::Request(3), Fault::Fail(StatusCode::GONE));
    let (maps, _) = disturbed(plane, &namespace, "late-observer", plan).await;
    let kinds = [ApiResource::erase::<ConfigMap>(&())];
    let observer = Observer::start(&maps.into_client(), Some(&namespace), &kinds).await.unwrap();
    create(&api, "unseen").await.unwrap();
    let error = observer.reaches(|world| !world.is_empty(), PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("the observation has a gap: configmaps"), "{error}");
}

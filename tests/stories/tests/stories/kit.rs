//! What every controller promises by its kit, seen on a real process: how it takes and gives back the lease, how it
//! ends, what it says about a wrong start, and how little it asks for at rest.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code, also what stands outside of a test function"
)]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bench::audit::{Audit, Mark};
use bench::cache::RunDir;
use bench::control_plane::{ControlPlane, shared};
use bench::process::{Service, free_port};
use controller_kit::events::Events;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

use crate::kit_trial::example;

/// Starting on a busy machine takes a while; nothing that is promised is measured by this.
const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: [&str; 3] = ["--lease-duration=3s", "--renew-deadline=2s", "--retry-period=500ms"];
const LEASE: &str = "ferrite-minimal";

/// The smallest controller, which is nothing but the kit.
fn minimal() -> PathBuf {
    example("minimal")
}

/// One process of the controller, with a user of its own so that the audit log tells it from its neighbours.
struct Replica {
    user: String,
    port: u16,
    service: Service,
}

impl Replica {
    fn start(plane: &ControlPlane, namespace: &str, name: &str, flags: &[&str]) -> Self {
        let user = format!("{namespace}-{name}");
        let kubeconfig = plane.kubeconfig(&user, &["system:masters"]).unwrap();
        let port = free_port();
        let mut command = Command::new(minimal());
        command
            .arg(format!("--listen=127.0.0.1:{port}"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([format!("--namespaces={namespace}"), format!("--lease-namespace={namespace}")])
            .args(flags)
            .env("POD_NAME", &user);
        let service = Service::start(&user, command, plane.dir()).unwrap();
        Self { user, port, service }
    }

    /// The lease names a holder by its pod and a random suffix.
    fn holds(&self, spec: &LeaseSpec) -> bool {
        holder(spec).starts_with(&format!("{}_", self.user))
    }

    /// Waits until this process has asked for this, as the API server saw it.
    async fn asked(&self, audit: &Audit, from: Mark, verb: &str, resource: &str) {
        let deadline = Instant::now() + PATIENCE;
        while audit.since(from).await.unwrap().of(&self.user, verb, resource) == 0 {
            assert!(
                Instant::now() < deadline,
                "{} never asked to {verb} {resource}:\n{}",
                self.user,
                self.service.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a probe has this answer.
    async fn answers(&self, path: &str, wanted: reqwest::StatusCode) {
        let deadline = Instant::now() + PATIENCE;
        while probe(self.port, path).await.is_none_or(|(status, _)| status != wanted) {
            let log = self.service.log_tail();
            assert!(Instant::now() < deadline, "{path} of {} is never {wanted}:\n{log}", self.user);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks it to end and waits on a thread of its own, so that watches go on meanwhile.
    async fn stop(mut self) -> (i32, Duration) {
        let stopping = tokio::task::spawn_blocking(move || {
            let start = Instant::now();
            let code = self.service.stop(PATIENCE);
            let took = start.elapsed();
            let log = self.service.log_tail();
            (code.unwrap_or_else(|error| panic!("{error}:\n{log}")), took)
        });
        stopping.await.unwrap()
    }
}

fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

/// One version of the lease, and when it reached us.
struct Version {
    spec: LeaseSpec,
    seen: Instant,
    at: Timestamp,
}

/// Every version of the lease, in the order of the API server's own record.
struct Leases(BoxStream<'static, kube::Result<WatchEvent<Lease>>>);

impl Leases {
    async fn watch(plane: &ControlPlane, namespace: &str) -> Self {
        let api: Api<Lease> = Api::namespaced(plane.admin().await, namespace);
        let only = WatchParams::default().fields(&format!("metadata.name={LEASE}"));
        Self(api.watch(&only, "0").await.unwrap().boxed())
    }

    async fn next(&mut self) -> Version {
        loop {
            let event = tokio::time::timeout(PATIENCE, self.0.next()).await;
            let event = event.expect("the lease changes").expect("the watch goes on");
            match event.unwrap() {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                    return Version {
                        spec: lease.spec.unwrap_or_default(),
                        seen: Instant::now(),
                        at: Timestamp::now(),
                    };
                }
                WatchEvent::Bookmark(_) => {}
                other => panic!("the lease was not to see this: {other:?}"),
            }
        }
    }

    /// All versions up to the first that is as wanted.
    async fn until(&mut self, what: &str, wanted: impl Fn(&Version) -> bool) -> Vec<Version> {
        let deadline = Instant::now() + PATIENCE;
        let mut versions = Vec::new();
        loop {
            let version = self.next().await;
            let done = wanted(&version);
            versions.push(version);
            if done {
                return versions;
            }
            assert!(Instant::now() < deadline, "never: {what}");
        }
    }
}

async fn audit(plane: &ControlPlane) -> (Audit, Mark) {
    let audit = Audit::new(plane.audit_log(), plane.admin().await);
    let mark = audit.mark().await.unwrap();
    (audit, mark)
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_the_lease_over_and_ends_the_process_within_a_second() {
    let plane = shared().await;
    let namespace = plane.namespace("kit-handover").await;
    let (audit, start) = audit(plane).await;
    let mut leases = Leases::watch(plane, &namespace).await;
    // The default timing: nobody could take over within a second by waiting.
    let first = Replica::start(plane, &namespace, "first", &[]);
    leases.until("the first leads", |it| first.holds(&it.spec)).await;
    let second = Replica::start(plane, &namespace, "second", &[]);
    second.asked(&audit, start, "watch", "leases").await;

    let asked = Instant::now();
    let ending = tokio::spawn(first.stop());
    let versions = leases.until("the second leads", |it| second.holds(&it.spec)).await;
    let handed_over = versions[versions.len() - 1].seen - asked;
    let (code, ended) = ending.await.unwrap();
    println!("handed over in {handed_over:?}, ended in {ended:?}");
    assert_eq!(code, 0);
    assert!(ended < Duration::from_secs(1), "ending took {ended:?}");
    assert!(handed_over < Duration::from_secs(1), "the handover took {handed_over:?}");
    let freed = versions.iter().any(|it| holder(&it.spec).is_empty());
    assert!(freed, "the second took a lease that the first had not given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_the_lease_is_taken_when_it_has_run_out_and_not_before() {
    let plane = shared().await;
    let namespace = plane.namespace("kit-kill").await;
    let (audit, start) = audit(plane).await;
    let mut leases = Leases::watch(plane, &namespace).await;
    let mut first = Replica::start(plane, &namespace, "first", &SHORT);
    leases.until("the first leads", |it| first.holds(&it.spec)).await;
    let second = Replica::start(plane, &namespace, "second", &SHORT);
    second.asked(&audit, start, "watch", "leases").await;
    // A renewal just before the kill is the case in which the other has to wait longest.
    let renewed = Timestamp::now();
    let fresh = |it: &Version| it.spec.renew_time.as_ref().is_some_and(|at| at.0 > renewed);
    let mut versions = leases.until("the first renews", fresh).await;

    let killed = Instant::now();
    first.service.kill();
    versions.extend(leases.until("the second leads", |it| second.holds(&it.spec)).await);
    let [.., last, taken] = &versions[..] else {
        panic!("the takeover has a version before it");
    };
    assert!(first.holds(&last.spec), "nobody gave the lease back, but it says {:?}", last.spec);
    let silent_since = last.spec.renew_time.as_ref().unwrap().0;
    let taken_over = taken.seen - killed;
    let silence = Duration::try_from(taken.at.duration_since(silent_since)).unwrap();
    let written = taken.spec.acquire_time.as_ref().unwrap().0;
    let claimed = Duration::try_from(written.duration_since(silent_since)).unwrap();
    println!("taken over {taken_over:?} after the kill, {claimed:?} after the last renewal");
    let duration = Duration::from_secs(3);
    assert!(claimed >= duration, "taken {claimed:?} after the last renewal");
    assert!(silence >= duration, "seen taken {silence:?} after the last renewal");
    // The duration counts from when the other saw the last renewal; the rest is for one write.
    let late = duration + Duration::from_millis(500);
    assert!(taken_over < late, "taken over {taken_over:?} after the kill");
}

/// Asks a probe; an answer that takes longer than a second is none.
async fn probe(port: u16, path: &str) -> Option<(reqwest::StatusCode, Duration)> {
    let http =
        reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(1)).build().unwrap();
    let start = Instant::now();
    let answer = http.get(format!("http://127.0.0.1:{port}{path}")).send().await.ok()?;
    Some((answer.status(), start.elapsed()))
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_server_hangs_probes_answer_and_sigterm_ends_every_process_within_a_second() {
    let plane = ControlPlane::start("kit-hang").await.unwrap();
    let namespace = plane.namespace("kit-hang").await;
    let (audit, start) = audit(&plane).await;
    let mut leases = Leases::watch(&plane, &namespace).await;
    let leader = Replica::start(&plane, &namespace, "leader", &[]);
    leases.until("somebody leads", |it| leader.holds(&it.spec)).await;
    let standby = Replica::start(&plane, &namespace, "standby", &[]);
    standby.asked(&audit, start, "watch", "leases").await;
    // A standby is ready too: what it needs is there, only the lease is not its own.
    for replica in [&leader, &standby] {
        replica.answers("/readyz", reqwest::StatusCode::OK).await;
    }

    plane.freeze(true).unwrap();
    let api: Api<Lease> = Api::namespaced(plane.admin().await, &namespace);
    let deadline = Instant::now() + PATIENCE;
    while tokio::time::timeout(Duration::from_millis(500), api.get(LEASE)).await.is_ok() {
        assert!(Instant::now() < deadline, "the API server goes on");
    }
    // One that never got an answer has less to go by than one that was running.
    let newcomer = Replica::start(&plane, &namespace, "newcomer", &[]);
    newcomer.answers("/livez", reqwest::StatusCode::OK).await;

    for replica in [&leader, &standby, &newcomer] {
        for path in ["/livez", "/readyz"] {
            let answer = probe(replica.port, path).await;
            let (status, took) =
                answer.unwrap_or_else(|| panic!("{path} of {} hangs", replica.user));
            println!("{path} of {}: {status} in {took:?}", replica.user);
            // Killing a process does not mend the API server.
            if path == "/livez" {
                assert_eq!(status, reqwest::StatusCode::OK, "{}", replica.user);
            }
        }
    }
    for replica in [leader, standby, newcomer] {
        let user = replica.user.clone();
        let (code, took) = replica.stop().await;
        println!("{user} ended in {took:?}");
        assert_eq!(code, 0, "{user}");
        assert!(took < Duration::from_secs(1), "{user} took {took:?}");
    }
}

/// Runs it to its end, with no more of the environment than is given.
fn ended(flags: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = Command::new(minimal())
        .args(flags)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn wrong_flags_and_variables_are_listed_all_at_once() {
    let flags = ["--lease-duration=soon", "--namespaces=default,Upper"];
    let environment = [
        ("FERRITE_CONCURRENCY", "many"),
        ("FERRITE_LISTEN", "here"),
        ("RUST_LOG", "info,kube=loudly"),
    ];
    let (code, said) = ended(&flags, &environment);
    assert_eq!(code, Some(2), "{said}");
    let wrong = [
        ("--lease-duration (FERRITE_LEASE_DURATION)", "soon"),
        ("--namespaces (FERRITE_NAMESPACES)", "Upper"),
        ("--concurrency (FERRITE_CONCURRENCY)", "many"),
        ("--listen (FERRITE_LISTEN)", "here"),
        ("--log (RUST_LOG)", "loudly"),
    ];
    for (names, value) in wrong {
        let told = |line: &str| line.contains(names) && line.contains(value);
        let lines = said.lines().filter(|line| told(line)).count();
        assert_eq!(lines, 1, "{names} with {value:?} in:\n{said}");
    }
    assert_eq!(said.lines().count(), wrong.len(), "{said}");
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_one_message_that_names_the_file() {
    let dir = RunDir::new("kit-kubeconfig").unwrap();
    let broken = dir.path().join("broken.yaml");
    std::fs::write(&broken, "clusters: [").unwrap();
    let absent = dir.path().join("absent.yaml");
    for file in [broken, absent] {
        let file = file.to_str().unwrap();
        let listen = format!("--listen=127.0.0.1:{}", free_port());
        let flag = format!("--kubeconfig={file}");
        let by_flag = ended(&[&listen, &flag], &[]);
        let by_variable = ended(&[&listen], &[("KUBECONFIG", file)]);
        assert_eq!(by_flag, by_variable);
        let (code, said) = by_flag;
        assert_eq!(code, Some(1), "{said}");
        let start = format!("--kubeconfig (KUBECONFIG) {file}: ");
        assert!(said.starts_with(&start), "{said}");
        assert_eq!(said.matches("(KUBECONFIG)").count(), 1, "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_objects_come_as_one_stream_and_page_by_page_where_there_are_no_such_streams() {
    let plain = ControlPlane::start_without("WatchList", "kit-pages").await.unwrap();
    for (plane, pages) in [(shared().await, 0), (&plain, 1)] {
        let namespace = plane.namespace("kit-lists").await;
        let (audit, start) = audit(plane).await;
        let replica = Replica::start(plane, &namespace, "first", &SHORT);
        replica.answers("/readyz", reqwest::StatusCode::OK).await;
        replica.asked(&audit, start, "watch", "configmaps").await;
        let counts = audit.since(start).await.unwrap();
        assert_eq!(counts.of(&replica.user, "list", "configmaps"), pages, "{counts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_it_lists_nothing_and_writes_nothing_but_the_lease() {
    let plane = shared().await;
    let namespace = plane.namespace("kit-rest").await;
    let (audit, start) = audit(plane).await;
    let mut leases = Leases::watch(plane, &namespace).await;
    let leader = Replica::start(plane, &namespace, "leader", &SHORT);
    leases.until("somebody leads", |it| leader.holds(&it.spec)).await;
    let standby = Replica::start(plane, &namespace, "standby", &SHORT);
    for replica in [&leader, &standby] {
        replica.asked(&audit, start, "watch", "leases").await;
        replica.asked(&audit, start, "watch", "configmaps").await;
    }

    let rest = audit.mark().await.unwrap();
    let began = Instant::now();
    // The renewals are the clock: five seconds of them have to show in the counts.
    let five = |it: &Version| it.seen > began + Duration::from_secs(5);
    leases.until("five seconds of renewals", five).await;
    let counts = audit.since(rest).await.unwrap();
    let renewals = counts.of(&leader.user, "patch", "leases");
    println!("at rest for {:?}: {renewals} renewals", began.elapsed());
    assert!(renewals >= 5, "the leader renewed:\n{counts}");
    assert_eq!(counts.writes(&standby.user, &[]), 0, "{counts}");
    assert_eq!(counts.writes(&leader.user, &["leases"]), 0, "{counts}");
    for replica in [&leader, &standby] {
        assert_eq!(counts.lists(&replica.user), 0, "{counts}");
    }
    // Nor does it ask for anything else: no polling, no watch that begins again and again.
    assert_eq!(counts.requests(&leader.user), renewals, "{counts}");
    assert_eq!(counts.requests(&standby.user), 0, "{counts}");
}

#[tokio::test]
async fn what_happens_to_an_object_of_any_name_is_told() {
    let plane = shared().await;
    let namespace = plane.namespace("kit-events").await;
    let client = plane.admin().await;
    let events = Events::new(client.clone(), "sample", "here");
    let written: Api<Event> = Api::namespaced(client, &namespace);
    for length in [1, 236, 237, 253] {
        let name = "n".repeat(length);
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            ..ObjectReference::default()
        };
        events
            .tell(&object, &controller_kit::engine::Event::new(true, "Told", "Tell", "something"))
            .await;
        let all = written.list(&ListParams::default()).await.unwrap();
        let about =
            |it: &Event| it.regarding.as_ref().is_some_and(|it| it.name.as_ref() == Some(&name));
        let told: Vec<&Event> = all.iter().filter(|it| about(it)).collect();
        assert_eq!(told.len(), 1, "of a name of {length} characters");
        assert_eq!(told[0].type_.as_deref(), Some("Warning"));
        assert_eq!(told[0].note.as_deref(), Some("something"));
        assert_eq!(told[0].reporting_controller.as_deref(), Some("ferrite-sample"));
    }
}

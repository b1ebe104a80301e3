//! The API server of the bench is a real one: it authorizes, it audits, it can hang.

use std::time::{Duration, Instant};

use bench::cache::RunDir;
use bench::control_plane::{ControlPlane, shared};
use controller_kit::connection;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchParams};

#[tokio::test]
async fn a_user_without_a_role_is_refused_by_the_api_server() {
    let plane = shared().await;
    let namespace = plane.namespace("refused").await;
    let config = plane.config("nobody", &[]).await.unwrap();
    let api: Api<ConfigMap> = Api::namespaced(kube::Client::try_from(config).unwrap(), &namespace);
    let refused = api.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.is_forbidden()), "{refused}");
}

#[tokio::test]
async fn the_first_request_of_a_connection_does_not_wait_until_the_handshake_is_acknowledged() {
    let plane = shared().await;
    let config = plane.config("connecting", &["system:masters"]).await.unwrap();
    let client = connection::builder(config, "sample").unwrap().build();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    // What the first connection learns shortens the handshake of the others, and each watch keeps its own.
    let (mut watches, mut took) = (Vec::new(), Vec::new());
    for _ in 0..21 {
        let began = Instant::now();
        watches.push(api.watch(&WatchParams::default(), "0").await.unwrap().boxed());
        took.push(began.elapsed());
    }
    took.sort_unstable();
    // So long the kernel waits for an answer that would acknowledge it on the way.
    assert!(took[watches.len() / 2] < Duration::from_millis(40), "{took:?}");
}

#[tokio::test]
async fn the_audit_log_names_who_wrote_what() {
    let plane = shared().await;
    let namespace = plane.namespace("audited").await;
    let api: Api<ConfigMap> = Api::namespaced(plane.admin().await, &namespace);
    // The API server notes nobody on an object that was made without a field.
    let object = serde_json::json!({"metadata": {"name": "one"}, "data": {"made": "here"}});
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let log = std::fs::read_to_string(plane.audit_log()).unwrap();
    let seen = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .any(|entry| {
            entry["user"]["username"] == "admin"
                && entry["verb"] == "create"
                && entry["objectRef"]["resource"] == "configmaps"
                && entry["objectRef"]["namespace"] == namespace.as_str()
                && entry["responseStatus"]["code"] == 201
        });
    assert!(seen, "no line of the audit log says that admin made the object");
}

#[tokio::test]
async fn a_controllers_write_bears_its_name_in_the_object_and_in_the_audit_log() {
    let plane = shared().await;
    let namespace = plane.namespace("named").await;
    let config = plane.config("named", &["system:masters"]).await.unwrap();
    let client = connection::builder(config, "sample").unwrap().build();
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    // The API server notes nobody on an object that was made without a field.
    let object = serde_json::json!({"metadata": {"name": "one"}, "data": {"made": "here"}});
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let patch = Patch::Merge(serde_json::json!({"data": {"key": "value"}}));
    let written = api.patch("one", &PatchParams::default(), &patch).await.unwrap();
    for entry in written.metadata.managed_fields.unwrap() {
        assert_eq!(entry.manager.as_deref(), Some("ferrite-sample"));
    }
    let log = std::fs::read_to_string(plane.audit_log()).unwrap();
    let agent = format!("\"userAgent\":\"ferrite-sample/{}\"", env!("CARGO_PKG_VERSION"));
    let of_it = |line: &&str| {
        line.contains(&namespace) && line.contains("\"user\":{\"username\":\"named\"")
    };
    let own: Vec<&str> = log.lines().filter(of_it).collect();
    assert!(!own.is_empty(), "the audit log has nothing of {namespace}");
    for line in own {
        assert!(line.contains(&agent), "{line}");
    }
}

#[tokio::test]
async fn a_frozen_api_server_does_not_answer_and_goes_on_where_it_was() {
    let plane = ControlPlane::start("frozen").await.unwrap();
    let client = plane.admin().await;
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    api.list(&ListParams::default()).await.unwrap();
    plane.freeze(true).unwrap();
    // The signal travels through the guard; what is asked after it arrived is not answered.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let asked =
            tokio::time::timeout(Duration::from_millis(500), api.list(&ListParams::default()))
                .await;
        if asked.is_err() {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "it went on answering");
    }
    plane.freeze(false).unwrap();
    let answered =
        tokio::time::timeout(Duration::from_secs(20), api.list(&ListParams::default())).await;
    answered.expect("it answers again").unwrap();
}

#[tokio::test]
async fn where_no_go_is_installed_the_package_index_has_one_that_reads_the_pinned_modules() {
    let go = tokio::task::spawn_blocking(bench::go::fetched).await.unwrap().unwrap();
    let group = bench::checkout().join("tests/bench/go/kubernetes");
    let home = RunDir::new("go").unwrap();
    let mut command = bench::go::alone(&go);
    command.env("HOME", home.path()).current_dir(group).args(["list", "-m", "-mod=readonly"]);
    let listed = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&listed.stdout), String::from_utf8_lossy(&listed.stderr));
    assert!(listed.status.success(), "{err}");
    assert!(out.contains("ferrite"), "{out}");
    assert!(
        std::fs::read_dir(home.path()).unwrap().next().is_none(),
        "it wrote to its user's home"
    );
}

//! How little the smallest controller takes, as far as a test can say so without a clock and without minutes of
//! compiling: what it allocates. `cargo xtask bench` builds it as it is shipped and holds its size, its whole memory and
//! its time to readiness to their limits.

use std::process::Command;
use std::time::{Duration, Instant};

use bench::control_plane::shared;
use bench::process::{Service, free_port};

/// What the program allocates, which is the same however it was compiled: the rest of its memory is its own text.
const LIMIT_KILOBYTES: u64 = 6_000;

/// A line of the kernel's account of a process, in kilobytes.
fn kilobytes(pid: &str, what: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_controller_allocates_less_than_its_limit() {
    let plane = shared().await;
    let namespace = plane.namespace("small").await;
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    let program = profile.join("examples/minimal");
    assert!(program.exists(), "run `cargo build -p controller-kit --examples` first");
    let port = free_port();
    let pid_file = plane.dir().join(format!("{namespace}.pid"));
    let script = format!("echo $$ > {}; exec {} \"$@\"", pid_file.display(), program.display());
    let mut command = Command::new("sh");
    command
        .args(["-c", &script, "minimal"])
        .arg(format!("--listen=127.0.0.1:{port}"))
        .arg(format!(
            "--kubeconfig={}",
            plane.kubeconfig(&namespace, &["system:masters"]).unwrap().display()
        ))
        .args([format!("--namespaces={namespace}"), format!("--lease-namespace={namespace}")]);
    let service = Service::start(&namespace, command, plane.dir()).unwrap();

    let http =
        reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(1)).build().unwrap();
    let url = format!("http://127.0.0.1:{port}/readyz");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
        assert!(Instant::now() < deadline, "it is never ready:\n{}", service.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pid = std::fs::read_to_string(pid_file).unwrap();
    let taken = kilobytes(pid.trim(), "RssAnon:").unwrap();
    println!("{taken} kB allocated");
    assert!(taken > 0 && taken < LIMIT_KILOBYTES, "{taken} kB, at most {LIMIT_KILOBYTES}");
}

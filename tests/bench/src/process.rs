//! Programs that run beside the tests, and end with them.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// The guard between us and the program. It holds the read end of our pipe: a word on it is a signal for the program,
/// its end (we closed it, or died in whatever way) kills the whole process group. It needs no privilege and leaves
/// nothing behind even after `kill -9` of the tests. The program goes first, and the guard waits for it: once the guard is gone
/// nobody listens on the program's port any more.
const GUARD: &str = r#"
exec 3<&0 </dev/null
exit_file=$1; shift
"$@" 3<&- &
child=$!
(
    while read -r signal <&3; do kill -s "$signal" "$child"; done
    kill -s KILL "$child"
    sleep 5
    kill -s KILL 0
) >/dev/null 2>&1 &
exec 3<&-
wait "$child"
echo $? > "$exit_file"
kill -s KILL 0
"#;

/// The same for a command that is waited for: it ends with us, and its outcome is the command's.
const TIE: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
child=$!
( read -r _ <&3; kill -s KILL 0 ) >/dev/null 2>&1 &
watch=$!
exec 3<&-
wait "$child"
code=$?
kill -s KILL "$watch"
exit "$code"
"#;

/// The guard with the command that it guards, as that would be started: where and with which variables.
fn under<'a>(guard: &'a mut Command, command: &Command) -> &'a mut Command {
    guard.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => guard.env(key, value),
            None => guard.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        guard.current_dir(dir);
    }
    guard.process_group(0).stdin(Stdio::piped())
}

/// Starts a command that ends with this process, in whatever way that ends, together with all that it started. The second of
/// the two holds it: keep that until the command has ended.
///
/// # Errors
/// When it cannot be started.
pub fn tied(command: &Command, out: Stdio, err: Stdio) -> std::io::Result<(Child, ChildStdin)> {
    let mut tied = Command::new("sh");
    tied.args(["-c", TIE, "tie"]);
    let mut child = under(&mut tied, command).stdout(out).stderr(err).spawn()?;
    let held = child.stdin.take().ok_or_else(|| std::io::Error::other("it has no input"))?;
    Ok((child, held))
}

/// Variables that would make the programs talk through proxies or trust other certificates than ours.
const NOT_INHERITED: &[&str] = &[
    "ALL_PROXY",
    "CURL_CA_BUNDLE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "KUBECONFIG",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// A running program. Dropping it kills the program and everything that it started.
#[derive(Debug)]
pub struct Service {
    name: String,
    guard: Child,
    signals: Option<ChildStdin>,
    log: PathBuf,
    exit: PathBuf,
}

impl Service {
    /// Starts `command` in a process group of its own, with its output in `<log_dir>/<name>.log`.
    ///
    /// # Errors
    /// When the log cannot be written or the guard cannot be started. A program that does not exist shows as one that
    /// ended at once, with the reason in its log.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "reads as it is: the command is started and done with"
    )]
    pub fn start(name: &str, command: Command, log_dir: &Path) -> anyhow::Result<Self> {
        let log = log_dir.join(format!("{name}.log"));
        let exit = log_dir.join(format!("{name}.exit"));
        let _ = std::fs::remove_file(&exit);
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let mut guarded = Command::new("sh");
        guarded.args(["-c", GUARD, "guard"]).arg(&exit);
        // Before the command's own, which may set them again.
        for name in NOT_INHERITED {
            guarded.env_remove(name);
        }
        // What it leaves there goes with its folder, and is not another user's: the BMC emulator has a database of a fixed name.
        let scratch = log_dir.join("tmp");
        std::fs::create_dir_all(&scratch)?;
        guarded.env("TMPDIR", scratch);
        under(&mut guarded, &command).stdout(output.try_clone()?).stderr(output);
        let mut guard = guarded.spawn().with_context(|| format!("cannot start {name}"))?;
        let signals = guard.stdin.take();
        Ok(Self { name: name.to_owned(), guard, signals, log, exit })
    }

    /// The group of its processes.
    pub fn group(&self) -> u32 {
        self.guard.id()
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.guard.try_wait(), Ok(None)) && !self.exit.exists()
    }

    /// Sends a signal by its name without `SIG`: `TERM`, `STOP`, `CONT`.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn signal(&mut self, signal: &str) -> anyhow::Result<()> {
        let Some(signals) = self.signals.as_mut() else {
            bail!("{} has been stopped", self.name);
        };
        writeln!(signals, "{signal}").with_context(|| format!("{} has ended", self.name))
    }

    /// Asks it to end and waits; after `patience` it is killed. Returns its exit code, as a shell would show it.
    ///
    /// # Errors
    /// When it had to be killed.
    pub fn stop(&mut self, patience: Duration) -> anyhow::Result<i32> {
        let _ = self.signal("TERM");
        if let Some(code) = self.wait(patience) {
            return Ok(code);
        }
        self.kill();
        bail!("{} did not end within {patience:?} after SIGTERM and was killed", self.name)
    }

    /// Waits until it has ended by itself: its exit code, or nothing after `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<i32> {
        let deadline = Instant::now() + patience;
        loop {
            if let Ok(Some(_)) = self.guard.try_wait() {
                let code = std::fs::read_to_string(&self.exit).unwrap_or_default();
                return Some(code.trim().parse().unwrap_or(-1));
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it and all that it started, as a power failure would.
    pub fn kill(&mut self) {
        self.signals = None;
        let _ = self.guard.wait();
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output, for a failure message.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether something answers at this URL with success. No answer within two seconds is none.
pub async fn answers(url: &str) -> bool {
    crate::certs::install_provider();
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build();
    let Ok(client) = client else { return false };
    client.get(url).send().await.is_ok_and(|answer| answer.status().is_success())
}

/// A port of 127.0.0.1 that nobody listens on, given to nobody else while this process lives. It is none that the kernel gives
/// to connections: a process that is started again finds its port as it left it.
pub fn free_port() -> u16 {
    // What is listened on there goes and comes again while stories kill it. So the port is kept from other processes, too, for
    // as long as this one lives: by a socket of the protocol that nobody here speaks.
    static KEPT: std::sync::Mutex<Vec<UdpSocket>> = std::sync::Mutex::new(Vec::new());
    let ports = 12_000..first_of_connections().clamp(12_001, 30_000);
    loop {
        // Processes that run beside each other begin at different places.
        let chance = RandomState::new().hash_one(0) % u64::from(ports.end - ports.start);
        let port = ports.start + u16::try_from(chance).unwrap_or(0);
        let Ok(kept) = UdpSocket::bind(("127.0.0.1", port)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            KEPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(kept);
            return port;
        }
    }
}

/// The first of the ports that the kernel gives to connections.
fn first_of_connections() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|it| it.split_whitespace().next()?.parse().ok());
    first.unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_is_none_of_those_for_connections() {
        let ports: std::collections::BTreeSet<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|it| (12_000..first_of_connections()).contains(it)), "{ports:?}");
        // Others ask by the same means.
        assert!(ports.iter().all(|it| UdpSocket::bind(("127.0.0.1", *it)).is_err()));
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_that_is_tied_ends_with_who_holds_it_and_its_outcome_is_its_own() {
        let start = |script| tied(&shell(script), Stdio::null(), Stdio::null()).unwrap();
        let (mut child, _held) = start("exit 3");
        assert_eq!(child.wait().unwrap().code(), Some(3));
        let (mut child, held) = start("sleep 600 & wait");
        drop(held);
        assert!(!child.wait().unwrap().success());
    }

    fn gone(pid: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        status.map_or(true, |stat| stat.contains(") Z "))
    }

    fn eventually(what: &str, mut check: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !check() {
            assert!(Instant::now() < deadline, "never: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_a_service_leaves_for_a_moment_is_left_beside_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let script = "mktemp && sleep 600";
        let service = Service::start("untidy", shell(script), dir.path()).unwrap();
        eventually("told where", || !service.log_tail().is_empty());
        let told = service.log_tail();
        assert!(told.starts_with(&dir.path().join("tmp").display().to_string()), "{told}");
    }

    #[test]
    fn a_dropped_service_takes_its_children_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}.new; mv {0}.new {0}; wait", pids.display());
        let service = Service::start("parent", shell(&script), dir.path()).unwrap();
        eventually("child started", || pids.exists());
        let pid = std::fs::read_to_string(&pids).unwrap();
        assert!(!gone(&pid));
        drop(service);
        eventually("child ended", || gone(&pid));
    }

    #[test]
    fn a_service_that_was_killed_is_gone_before_another_is_started() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pid");
        let script = format!("echo $$ > {}.new; mv {0}.new {0}; exec sleep 600", pids.display());
        for _ in 0..20 {
            let mut service = Service::start("brief", shell(&script), dir.path()).unwrap();
            eventually("started", || pids.exists());
            let pid = std::fs::read_to_string(&pids).unwrap();
            std::fs::remove_file(&pids).unwrap();
            service.kill();
            assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
        }
    }

    #[test]
    fn a_service_ends_when_the_process_that_started_it_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pid");
        // A parent that holds the guard's pipe, as the tests do, and is killed without a chance to clean up.
        let guard = dir.path().join("guard");
        std::fs::write(&guard, GUARD).unwrap();
        let order = dir.path().join("order");
        let script = format!(
            "sleep 600 | setsid sh {} {}/exit sh -c 'echo $$ > {}.new; mv {2}.new {2}; sleep 600' &
            until [ -e {} ]; do sleep 0.01; done; kill -s KILL 0",
            guard.display(),
            dir.path().display(),
            pids.display(),
            order.display()
        );
        let mut parent = Command::new("sh").args(["-c", &script]).process_group(0).spawn().unwrap();
        eventually("program started", || pids.exists());
        let pid = std::fs::read_to_string(&pids).unwrap();
        assert!(!gone(&pid));
        std::fs::write(order, "").unwrap();
        parent.wait().unwrap();
        eventually("program ended", || gone(&pid));
    }

    #[test]
    fn stop_returns_the_exit_code_and_a_deaf_program_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let script =
            format!("trap 'exit 7' TERM; touch {}; while :; do sleep 0.01; done", ready.display());
        let mut polite = Service::start("polite", shell(&script), dir.path()).unwrap();
        eventually("trap set", || ready.exists());
        assert_eq!(polite.stop(Duration::from_secs(10)).unwrap(), 7);

        std::fs::remove_file(&ready).unwrap();
        let script =
            format!("trap '' TERM; touch {}; while :; do sleep 0.01; done", ready.display());
        let mut deaf = Service::start("deaf", shell(&script), dir.path()).unwrap();
        eventually("trap set", || ready.exists());
        assert!(deaf.alive());
        let refused = deaf.stop(Duration::from_millis(100)).unwrap_err();
        assert!(refused.to_string().contains("was killed"));
        assert!(!deaf.alive());
    }
}

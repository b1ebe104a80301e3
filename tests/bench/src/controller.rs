//! A controller as a process of its own: started under an account of its own, and looked at from outside.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::chart;
use crate::control_plane::ControlPlane;
use crate::process::{Service, free_port};

/// Ten instances of one controller that read a hundred thousand hosts each take minutes.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Variables that a program is started with.
pub type Environment = Vec<(&'static str, String)>;

/// As whom a program runs.
#[derive(Clone, Debug)]
pub struct Account {
    /// As the API server's audit log names it.
    pub user: String,
    /// Where it is, and where its programs keep their leases.
    pub namespace: String,
    /// The file.
    pub kubeconfig: PathBuf,
    /// Where a program's log goes.
    folder: PathBuf,
}

impl Account {
    /// The account of a controller's chart, with the rights that the chart gives it where it is installed with these values.
    pub async fn of_chart(
        plane: &ControlPlane,
        namespace: &str,
        controller: &str,
        values: Value,
    ) -> anyhow::Result<Self> {
        let name = chart::install_account(plane, controller, controller, namespace, values).await?;
        let kubeconfig = chart::service_account_kubeconfig(plane, namespace, &name).await?;
        Ok(Self {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            namespace: namespace.to_owned(),
            kubeconfig,
            folder: plane.dir().to_owned(),
        })
    }

    /// One that may do everything.
    pub fn of_admin(plane: &ControlPlane, namespace: &str) -> anyhow::Result<Self> {
        Ok(Self {
            user: namespace.to_owned(),
            namespace: namespace.to_owned(),
            kubeconfig: plane.kubeconfig(namespace, &["system:masters"])?,
            folder: plane.dir().to_owned(),
        })
    }
}

/// A program that is ready; it ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    /// How long it took from its start until it was ready.
    pub ready_ms: f64,
    /// When it was ready.
    pub ready_at: Instant,
    /// `127.0.0.1:<port>`, where it answers.
    pub address: String,
    /// The process.
    pub service: Service,
}

impl Running {
    /// Starts it and waits until it says that it is ready. All that it is told stands in its environment, so that a
    /// script of two lines can tell it to a foreign controller in that one's own words.
    pub async fn start(
        name: &str,
        program: &Path,
        account: &Account,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(program);
        command
            .env("FERRITE_LISTEN", &address)
            .env("FERRITE_LEASE_NAMESPACE", &account.namespace)
            .env("KUBECONFIG", &account.kubeconfig)
            .envs(environment.iter().map(|(name, value)| (name, value)));
        let (name, folder) = (name.to_owned(), account.folder.clone());
        let starting = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let mut service = Service::start(&name, command, &folder)?;
            while !ready(&address) {
                if !service.alive() || began.elapsed() > PATIENCE {
                    bail!("it is not ready:\n{}", service.log_tail());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let ready_at = Instant::now();
            let ready_ms = ready_at.duration_since(began).as_secs_f64() * 1000.0;
            Ok(Self { ready_ms, ready_at, address, service })
        });
        starting.await?.with_context(|| format!("cannot start {}", program.display()))
    }

    /// Ends it as a cluster would, so that it gives its lease back.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || self.service.stop(PATIENCE)).await??;
        Ok(())
    }

    /// What it has in memory.
    pub fn resident_megabytes(&self) -> anyhow::Result<f64> {
        Ok(megabytes(self.kilobytes("VmRSS")? * 1024))
    }

    /// A line of the kernel's account of its memory.
    pub fn kilobytes(&self, line: &str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(self.process()?.join("status"))?;
        kilobytes(&status, line).with_context(|| format!("the kernel does not tell {line}"))
    }

    /// How large the program is: behind a script that tells it its flags, the one that the script becomes.
    pub fn program_megabytes(&self) -> anyhow::Result<f64> {
        Ok(megabytes(fs::metadata(self.process()?.join("exe"))?.len()))
    }

    /// Processor time that it has used so far, in milliseconds. The kernel counts it in steps of ten.
    pub fn cpu_ms(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(self.process()?.join("stat"))?;
        let ticks = ticks(&stat).context("the kernel does not tell for how long it computed")?;
        Ok(ticks as f64 * 10.0)
    }

    /// The sum of all series of one of its metrics.
    pub async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let (address, name) = (self.address.clone(), name.to_owned());
        let text = tokio::task::spawn_blocking(move || ask(&address, "/metrics")).await??;
        Ok(crate::prometheus::sum(&text, &name))
    }

    /// Its folder below /proc. The largest of the processes that were started for it: beside it there are the shells that guard it
    /// or prepared its flags.
    fn process(&self) -> anyhow::Result<PathBuf> {
        let of = |process: u32| {
            let folder = Path::new("/proc").join(process.to_string());
            let status = fs::read_to_string(folder.join("status")).ok()?;
            Some((kilobytes(&status, "VmRSS")?, folder))
        };
        let most = family(self.service.group()).into_iter().filter_map(of).max();
        most.map(|(_, folder)| folder).context("the program has ended")
    }
}

/// A process and all that it started.
pub fn family(root: u32) -> BTreeSet<u32> {
    let mut family = BTreeSet::from([root]);
    for task in fs::read_dir(format!("/proc/{root}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|it| it.parse().ok()) {
            family.extend(self::family(child));
        }
    }
    family
}

/// Processor time of a process, by the kernel's word: the fields behind its name, which may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system) = (fields.next()?, fields.next()?);
    Some(user.parse::<u64>().ok()? + system.parse::<u64>().ok()?)
}

/// A line of what the kernel tells of a process in `/proc/<process>/status`.
pub fn told<'a>(status: &'a str, line: &str) -> Option<&'a str> {
    status.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(':')).map(str::trim)
}

/// The same for one about memory.
pub fn kilobytes(status: &str, line: &str) -> Option<u64> {
    told(status, line)?.strip_suffix(" kB")?.parse().ok()
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn ready(address: &str) -> bool {
    ask(address, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

fn ask(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_word_is_read_in_kilobytes() {
        let status = "Name:\tminimal\nVmHWM:\t   12000 kB\nVmRSS:\t   10240 kB\nThreads:\t3\n";
        assert_eq!(kilobytes(status, "VmRSS"), Some(10_240));
        assert_eq!(kilobytes("Name:\tkworker\n", "VmRSS"), None);
    }

    #[test]
    fn the_time_that_a_program_computed_stands_behind_its_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 90 0 0 0 12 30 0 0 20 0 4 0 100 2000 50";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (short) S 1"), None);
    }

    #[test]
    fn a_family_is_everybody_that_was_started_whoever_started_it() {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", "sh -c 'echo ready; sleep 60; true'; true"]);
        let mut shell = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut ready = [0];
        std::io::Read::read(shell.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let theirs = family(shell.id());
        assert!(theirs.len() >= 2 && family(std::process::id()).is_superset(&theirs), "{theirs:?}");
        for process in theirs {
            let _ = Command::new("kill").args(["-s", "KILL", &process.to_string()]).status();
        }
        shell.wait().unwrap();
    }
}

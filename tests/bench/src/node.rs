//! A real node: containerd and a kubelet, for pods that run as in a cluster.
//!
//! The whole node lives in a network, a mount table and a process table of its own, so that its bridges, mounts and
//! containers go with its first process, whichever way that ends. Of this machine it uses cgroups, which are removed when
//! the node is dropped (those of runs that were killed by the next node), and an empty folder `/var/lib/kubelet`.
//! Nothing is installed: containerd is unpacked from Debian's packages into the cache.
//!
//! Pods see one address of the outside, [`Node::ADDRESS`]: the API server's, as the Service `kubernetes` has it, and the
//! ports that were asked for. There is no kube-proxy and no name service.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use serde_json::json;

use crate::cache::{self, RunDir};
use crate::control_plane::ControlPlane;
use crate::image::Image;
use crate::process::Service;
use crate::steps::{step, step_async};
use crate::{go, python};

/// What is unpacked of Debian.
const PACKAGES: [&str; 3] = ["containerd", "runc", "containernetworking-plugins"];

const CGROUPS: &str = "/sys/fs/cgroup";
const PAUSE: &str = "ferrite.local/pause:1";
const NAME: &str = "bench";

/// Why this machine cannot have a node, in a sentence; nothing where it can. Tests ask before they start one, and are
/// skipped with this reason. It is found out once: two that tried at the same time would be in each other's way.
pub fn forbidden() -> Option<String> {
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    OBSTACLE.get_or_init(obstacle).clone()
}

fn obstacle() -> Option<String> {
    let user = Command::new("id").arg("-u").output();
    if !user.is_ok_and(|output| output.stdout.starts_with(b"0\n")) {
        return Some("a kubelet needs root. Run the tests as root to see pods".to_owned());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the pause image is made for Linux on x86-64 only".to_owned());
    }
    if !fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains("\toverlay\n")) {
        return Some("the kernel has no overlay file system (`modprobe overlay`)".to_owned());
    }
    let controllers = Path::new(CGROUPS).join("cgroup.controllers").exists()
        || Path::new(CGROUPS).join("memory").is_dir();
    let probe = cgroup_name("probe");
    if !controllers || make_cgroup(&probe).is_err() {
        return Some(format!("no cgroups can be made in {CGROUPS}"));
    }
    remove_cgroup(&probe);
    let mut namespaces = Command::new("unshare");
    namespaces.args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "ip", "link"]);
    namespaces.args(["add", "veth-probe", "type", "veth", "peer", "name", "veth-other"]);
    if let Err(error) = cache::run(&namespaces) {
        return Some(format!("no network of its own for the node: {error:#}"));
    }
    programs().err().map(|error| format!("no containerd: {error:#}"))
}

/// Folder with Debian's containerd, runc and network plugins.
fn programs() -> anyhow::Result<PathBuf> {
    cache::entry("node", &PACKAGES.join(" "), |dir| {
        step("unpacking containerd", || {
            cache::run(Command::new("apt-get").args(["update", "-qq"]))
                .context("containerd is taken from Debian's packages")?;
            let mut download = Command::new("apt-get");
            cache::run(download.current_dir(dir).args(["download", "-qq"]).args(PACKAGES))?;
            for package in fs::read_dir(dir)?.flatten() {
                cache::run(Command::new("dpkg").arg("-x").arg(package.path()).arg(dir))?;
                fs::remove_file(package.path())?;
            }
            Ok(())
        })
    })
}

/// A node with pods. Dropping it ends them all.
#[derive(Debug)]
pub struct Node {
    // Order matters: the processes end before their folder goes.
    service: Service,
    _forwarder: Service,
    cgroup: String,
    programs: PathBuf,
    dir: RunDir,
}

impl Node {
    /// The address under which pods reach the API server (port 443) and the forwarded ports.
    pub const ADDRESS: &str = "10.0.0.1";

    /// Starts a node of a control plane that was started with [`ControlPlane::start_for_pods`] and waits until it is
    /// ready. Pods reach each of `ports` of this machine's loopback under [`Node::ADDRESS`].
    ///
    /// # Errors
    /// When a part cannot be had or the node does not become ready: the message holds the last lines of its logs.
    pub async fn start(plane: &ControlPlane, ports: &[u16]) -> anyhow::Result<Self> {
        step_async("starting a node", async {
            let kubeconfig = plane.kubeconfig(&format!("system:node:{NAME}"), &["system:nodes"])?;
            let (authority, server) = (plane.dir().join("ca.crt"), port(&plane.url)?);
            let mut carried = vec![(server, 443)];
            carried.extend(ports.iter().map(|port| (*port, *port)));
            let mut node = tokio::task::spawn_blocking(move || {
                Self::launch(&kubeconfig, &authority, server, &carried)
            })
            .await??;
            node.wait_ready(plane).await?;
            Ok(node)
        })
        .await
    }

    fn launch(
        kubeconfig: &Path,
        authority: &Path,
        server: u16,
        carried: &[(u16, u16)],
    ) -> anyhow::Result<Self> {
        let (programs, kubelet) = (programs()?, go::program("kubelet")?);
        remove_old_cgroups();
        let dir = RunDir::new("node")?;
        let cgroup = cgroup_name(&dir.path().file_name().unwrap_or_default().to_string_lossy());
        make_cgroup(&cgroup)?;
        let at = |name: &str| dir.path().join(name);
        fs::write(at("init.sh"), include_str!("node/init.sh"))?;
        fs::write(at("forward.py"), include_str!("node/forward.py"))?;
        fs::write(at("containerd.toml"), containerd_config(dir.path(), &programs))?;
        fs::write(at("kubelet.json"), kubelet_config(dir.path(), &cgroup, authority))?;
        fs::create_dir(at("cni"))?;
        fs::write(at("cni/pods.conflist"), network_config(dir.path()))?;
        Image::pause(PAUSE).write(&at("pause.tar"))?;

        // Two halves of each way: out of the node's network to a socket in the run's folder, from there to loopback.
        let socket = |port: u16| at(&format!("{port}.sock"));
        let mut forwarder = python::command();
        forwarder.arg(at("forward.py"));
        for (outside, _) in carried {
            forwarder.arg(format!("{}=127.0.0.1:{outside}", socket(*outside).display()));
        }
        let forwarder = Service::start("forwarder", forwarder, dir.path())?;

        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"])
            .args(["sh".as_ref(), at("init.sh").as_os_str(), dir.path().as_os_str()])
            .args([&programs, &kubelet])
            .arg(kubeconfig)
            .args([NAME, Self::ADDRESS])
            // The kubelet's own way to the API server, as it stands in its kubeconfig.
            .arg(format!("127.0.0.1:{server}={}", socket(server).display()));
        for (outside, inside) in carried {
            let socket = socket(*outside);
            command.arg(format!("{}:{inside}={}", Self::ADDRESS, socket.display()));
        }
        let service = Service::start("node", command, dir.path())?;
        Ok(Self { service, _forwarder: forwarder, cgroup, programs, dir })
    }

    async fn wait_ready(&mut self, plane: &ControlPlane) -> anyhow::Result<()> {
        let nodes: Api<NodeObject> = Api::all(plane.admin().await);
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let node = nodes.get_opt(NAME).await?;
            let status = node.and_then(|node| node.status).and_then(|status| status.conditions);
            if status.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True") {
                return Ok(());
            }
            if !self.service.alive() || Instant::now() > deadline {
                bail!("the node did not become ready:\n{}", self.log_tails());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A program that runs in the node's network, where pods have their addresses. Its ports are not this machine's.
    ///
    /// # Errors
    /// When the node has ended.
    pub fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> anyhow::Result<Command> {
        let first = self.dir.path().join("init.sh");
        let first = first.as_os_str().as_encoded_bytes();
        let runs = |process: &fs::DirEntry| {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let mut words = line.split(|it| *it == 0);
            words.next() == Some(b"sh") && words.next() == Some(first)
        };
        let mut processes = fs::read_dir("/proc")?.flatten();
        let process = processes.find(runs).context("the node has ended")?;
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", process.path().join("ns/net").display())).arg(program);
        Ok(command)
    }

    /// Opens a port of the node's own loopback on this machine's, under another number. It is closed by dropping the two.
    ///
    /// # Errors
    /// When the node has ended.
    pub fn open(&self, inside: u16, outside: u16) -> anyhow::Result<[Service; 2]> {
        let (program, socket) =
            (self.dir.path().join("forward.py"), self.dir.path().join(format!("{outside}.in")));
        let socket = socket.display();
        let mut within = self.inside(python::command().get_program())?;
        within.arg(&program).arg(format!("{socket}=127.0.0.1:{inside}"));
        let mut without = python::command();
        without.arg(&program).arg(format!("127.0.0.1:{outside}={socket}"));
        Ok([
            Service::start(&format!("within-{outside}"), within, self.dir.path())?,
            Service::start(&format!("without-{outside}"), without, self.dir.path())?,
        ])
    }

    /// Gives the node an image, as a pull would.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn import(&self, archive: &Path) -> anyhow::Result<()> {
        cache::run(self.images().arg("import").arg(archive)).map(drop)
    }

    /// Gives an image that the node has a second name.
    ///
    /// # Errors
    /// When it has no such image.
    pub fn tag(&self, name: &str, other: &str) -> anyhow::Result<()> {
        cache::run(self.images().args(["tag", name, other])).map(drop)
    }

    fn images(&self) -> Command {
        let mut command = Command::new(self.programs.join("usr/bin/ctr"));
        command.arg("--address").arg(self.dir.path().join("containerd.sock"));
        command.args(["--namespace", "k8s.io", "images"]);
        command
    }

    /// What the containers of pods printed whose name contains `part`, since the API server has no way to the kubelet.
    pub fn pod_logs(&self, part: &str) -> String {
        let mut text = String::new();
        for pod in fs::read_dir(self.dir.path().join("logs")).into_iter().flatten().flatten() {
            if !pod.file_name().to_string_lossy().contains(part) {
                continue;
            }
            for container in fs::read_dir(pod.path()).into_iter().flatten().flatten() {
                for log in fs::read_dir(container.path()).into_iter().flatten().flatten() {
                    text.push_str(&fs::read_to_string(log.path()).unwrap_or_default());
                }
            }
        }
        text
    }

    /// The last lines of the node's own logs, for a failure message.
    pub fn log_tails(&self) -> String {
        let tail = |name: &str| {
            let text = fs::read(self.dir.path().join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            format!("{name}:\n{}\n", lines[lines.len().saturating_sub(20)..].join("\n"))
        };
        ["node.log", "containerd.log", "kubelet.log"].map(tail).concat()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.service.kill();
        remove_cgroup(&self.cgroup);
    }
}

fn port(url: &str) -> anyhow::Result<u16> {
    let port = url.rsplit(':').next().unwrap_or_default();
    port.parse().with_context(|| format!("no port in {url}"))
}

fn containerd_config(dir: &Path, programs: &Path) -> String {
    // Kept to what differs from the defaults. A process in a container may not lower its score below the node's own.
    format!(
        r#"version = 2
root = "{dir}/containerd"
state = "/run/containerd"
[grpc]
address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{PAUSE}"
disable_tcp_service = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{programs}/usr/lib/cni"
conf_dir = "{dir}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{programs}/usr/sbin/runc"
SystemdCgroup = false
"#,
        dir = dir.display(),
        programs = programs.display(),
    )
}

fn kubelet_config(dir: &Path, cgroup: &str, authority: &Path) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "failCgroupV1": false,
        "failSwapOn": false,
        "containerRuntimeEndpoint": format!("unix://{}/containerd.sock", dir.display()),
        "podLogsDir": dir.join("logs"),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": authority},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "address": "127.0.0.1",
        "healthzPort": 0,
        "resolvConf": "",
        // What the machine refuses, such as a lower OOM score, is no reason to stop.
        "featureGates": {"KubeletInUserNamespace": true},
        // The disk of a developer may be full to the brim; pods are not to go for it.
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
    })
    .to_string()
}

/// Each pod has a cable to the node and nothing else.
fn network_config(dir: &Path) -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": dir.join("addresses"),
                "ranges": [[{"subnet": "10.1.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
    .to_string()
}

/// By the process that made it, so that the next run knows whether it is still wanted.
fn cgroup_name(run: &str) -> String {
    format!("ferrite-{}-{run}", std::process::id())
}

/// One with cgroups v2, one for each controller with v1.
fn hierarchies() -> Vec<PathBuf> {
    let top = PathBuf::from(CGROUPS);
    if top.join("cgroup.controllers").exists() {
        return vec![top];
    }
    let folders = fs::read_dir(top).into_iter().flatten().flatten();
    folders.map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").exists()).collect()
}

fn make_cgroup(name: &str) -> anyhow::Result<()> {
    let hierarchies = hierarchies();
    ensure!(!hierarchies.is_empty(), "there are no cgroups in {CGROUPS}");
    for hierarchy in hierarchies {
        let path = hierarchy.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    Ok(())
}

/// A cgroup can go when its last process has, which is a moment after it was killed.
fn remove_cgroup(name: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    for hierarchy in hierarchies() {
        let path = hierarchy.join(name);
        while path.exists() && !remove_tree(&path) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The files in a cgroup are the kernel's: only folders are removed, from the leaves.
fn remove_tree(cgroup: &Path) -> bool {
    for inner in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&inner.path());
        }
    }
    fs::remove_dir(cgroup).is_ok()
}

/// Those of runs that were killed.
fn remove_old_cgroups() {
    for hierarchy in hierarchies() {
        for entry in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix("ferrite-").and_then(|rest| rest.split('-').next());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                remove_tree(&entry.path());
            }
        }
    }
}

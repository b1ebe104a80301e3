//! A controller looks a name up where it runs: on an empty base, with the `/etc/resolv.conf` that a kubelet writes. A C library that
//! is linked in may load modules for that, and no base has them: then only addresses would be reached.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use bench::cache::RunDir;
use bench::ironic;
use tokio::net::UdpSocket;

use super::{images, no_node};

/// Loopback too, and no other server of names listens there.
const SERVER: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 53);

/// The service as people write it, and as the cluster's server of names knows it.
const WRITTEN: &str = "ironic.metal3.svc";
const KNOWN: &str = "ironic.metal3.svc.cluster.local";

const ADDRESS_V4: u16 = 1;
const ADDRESS_V6: u16 = 28;

type Asked = Arc<Mutex<Vec<(String, u16)>>>;

/// Which name is asked for, of which type, and where the question ends.
fn question(query: &[u8]) -> Option<(String, u16, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).into_owned());
        at += length;
    }
    let kind = query.get(at..at + 2)?;
    Some((labels.join("."), u16::from_be_bytes([kind[0], kind[1]]), at + 4))
}

/// Answers as a cluster's server does: one name has an address, and no other name is there.
async fn serve(socket: UdpSocket, asked: Asked) {
    let mut buffer = [0_u8; 512];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let Some((name, kind, end)) = question(&buffer[..length]) else { continue };
        let (code, answers) = match (name == KNOWN, kind) {
            (true, ADDRESS_V4) => (0, 1),
            (true, _) => (0, 0),
            (false, _) => (3, 0),
        };
        asked.lock().unwrap().push((name, kind));
        let mut answer = buffer[..2].to_vec();
        answer.extend([0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0]);
        answer.extend(&buffer[12..end]);
        if answers == 1 {
            // The name of the question, an address, for five seconds, of four bytes.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1]);
        }
        let _ = socket.send_to(&answer, client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_on_an_empty_base_finds_ironic_by_the_name_of_its_service() {
    if no_node("pods::names::a_controller_on_an_empty_base_finds_ironic_by_the_name_of_its_service")
        .await
    {
        return;
    }
    let images = images().await;
    let ironic = ironic::shared().await;
    let port = ironic.endpoint.rsplit(':').next().unwrap();
    let home = RunDir::new("empty-base").unwrap();
    let root = home.path().join("root");
    fs::create_dir_all(root.join("etc/ssl/certs")).unwrap();
    fs::copy(&images[0].program, root.join("controller")).unwrap();
    let authorities = "etc/ssl/certs/ca-certificates.crt";
    fs::copy(format!("/{authorities}"), root.join(authorities)).unwrap();
    let resolver = format!(
        "search ferrite-system.svc.cluster.local svc.cluster.local cluster.local\nnameserver {SERVER}\noptions ndots:5\n"
    );
    fs::write(root.join("etc/resolv.conf"), resolver).unwrap();
    // No API server is needed for that.
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: a, user: {}}]\n\
                      contexts: [{name: a, context: {cluster: a, user: a}}]\n\
                      clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\n";
    fs::write(root.join("kubeconfig"), kubeconfig).unwrap();
    let (asked, socket) = (Asked::default(), UdpSocket::bind((SERVER, 53)).await.unwrap());
    let serving = tokio::spawn(serve(socket, asked.clone()));

    let mut check = Command::new("/usr/sbin/chroot");
    check.arg("--userspec=65532:65532").arg(&root).args(["/controller", "check"]);
    check.env_clear().env("KUBECONFIG", "/kubeconfig");
    check.env("IRONIC_ENDPOINT", format!("http://{WRITTEN}:{port}/"));
    let output = tokio::task::spawn_blocking(move || check.output()).await.unwrap().unwrap();
    serving.abort();
    let told = String::from_utf8_lossy(&output.stdout);
    let line = told.lines().find(|line| line.contains(WRITTEN)).unwrap_or_default();
    assert!(line.contains("it takes our credentials"), "{told}{output:?}");
    for kind in [ADDRESS_V4, ADDRESS_V6] {
        assert!(asked.lock().unwrap().contains(&(KNOWN.to_owned(), kind)), "{asked:?}");
    }
}

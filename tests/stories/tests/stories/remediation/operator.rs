//! The stand-ins for the bare metal operator's power management and for kubelets, as these stories call them.
//! `neighbours` has the stories with `bmo-reboot` and a real Ironic instead.

use bench::kubelet;
pub(super) use bench::power::{NODE, Operator, PLAYED};
use kube::Client;

/// A kubelet that has just started.
pub(crate) async fn boot(workload: &Client, node: &str) {
    kubelet::boot(workload, node).await.unwrap();
}

/// A kubelet that has fallen silent.
pub(super) async fn silence(workload: &Client, node: &str) {
    kubelet::silence(workload, node).await.unwrap();
}

//! Which bare-metal host a machine gets, keeps and gives back, and for whom a freed host is kept.
//!
//! It is the controller of `Metal3Machine`, driven by Cluster API through the contract for infrastructure machines, in
//! both versions of that contract. One controller of that kind only: where this runs, CAPM3's own does not.
//!
//! * Watches: `Metal3Machine` and its template, `BareMetalHost`, `Machine`, `MachineSet`, `MachineDeployment`, `Cluster`;
//!   `KubeadmControlPlane`, `Metal3DataClaim` and `Metal3Data` where the API server has them.
//! * Reads live: a machine and its host before anything is taken from either; a host that seems left by its machine, and
//!   whether that is gone; the owner and its present template when a machine is deleted, of any kind of control plane, and
//!   before a reservation ends for want of them; a Cluster that the cache does not have; rendered data before it is
//!   installed; whether the data template is there before a host is taken for it, and the secrets that are to be installed;
//!   and for a machine that is up and has no Node, the kubeconfig of its workload cluster and what is there of its Node.
//! * Writes: on a `Metal3Machine` the finalizer, the host that it takes, `providerID` and failure domain, and the status;
//!   on a `BareMetalHost` `consumerRef`, what to install, `online`, whether disks are wiped, the labels of cluster and
//!   reservation, and the verdict for whom it will be kept, and it takes away CAPM3's pause and what remediation and a move
//!   noted for the machine; a `Metal3DataClaim` where a data template is named; on the Node of a machine that is up
//!   `providerID`, if it says none; where an annotation asks for it, the replicas of a `MachineDeployment`, or of a
//!   `MachineSet` without one; events. Every write insists on the version of the object that it was decided on.
//! * Never: takes a host that somebody else has or that is kept for another owner; writes an image on a host that is not
//!   the machine's; frees a host before the machine's image is off it; claims a host that is unhealthy, failed, paused,
//!   detached or being deleted; switches a machine by any way but `online`; touches the host's status, anything else of a
//!   Node, or anything of a paused cluster but the condition that says so.
//!
//! The way to a host: the choice is written on the machine, then the host is claimed with what to install in one write.
//! A crash between the two leaves a machine that names a host, and the next pass goes on with that host. A machine changes
//! its mind in two steps, so that a claim that is still on its way in another process can never succeed afterwards: see
//! [`observe`].
//!
//! The way back: the image goes off the host in one write with the verdict for whom the host will be kept; while the host
//! is being cleared its consumer becomes that owner; when nothing is on it any more the machine goes. If somebody took the
//! machine's finalizer away in between, the same is done without the machine.

pub mod changes;
pub mod context;
pub mod controller;
pub mod decide;
pub mod host;
pub mod index;
pub mod looks;
pub mod machine;
pub mod metrics;
pub mod model;
pub mod observe;
mod outline;
pub mod reason;
pub mod reservation;
pub mod scale;
pub mod seen;
pub mod selector;
pub mod served;
pub mod settings;
pub mod status;
mod text;
pub mod write;

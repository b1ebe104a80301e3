//! Why something was decided: one word that condition, event and metric share.

use std::time::Duration;

use controller_kit::engine::Reason as _;
use controller_kit::engine::reasons::{Kind, Location, ObjectPart};
use controller_kit::reasons;

/// What the operator or a process of ours does by itself takes no longer, but for installing and clearing.
const STEP_DONE_WITHIN: Duration = Duration::from_secs(600);

/// What somebody has to look at who was told so, or what a neighbour does by itself.
const SEEN_TO_WITHIN: Duration = Duration::from_secs(3600);
/// Installing a host, or wiping its disks; a rack of which one host comes after the other.
const INSTALLED_WITHIN: Duration = Duration::from_secs(6 * 3600);

const ASSOCIATED: Location = Location::new(
    "Metal3Machine",
    ObjectPart::Condition("AssociateBareMetalHost"),
    "How the machine gets its host.",
);
const READY: Location = Location::new(
    "Metal3Machine",
    ObjectPart::Condition("Ready"),
    "The sum. It stays true with a reason about a Node, and with `Refused` or `OwnerUnreadable` of an installed machine.",
);
const PAUSED: Location = Location::new(
    "Metal3Machine",
    ObjectPart::Condition("Paused"),
    "Whether the controller leaves the machine alone.",
);
const DATA: Location = Location::new(
    "Metal3Machine",
    ObjectPart::Condition("Metal3DataReady"),
    "Whether the rendered secrets exist.",
);
const MACHINE_EVENT: Location = Location::new(
    "Metal3Machine",
    ObjectPart::Event,
    "A step, when it happens: also each reason of `AssociateBareMetalHost`.",
);
const HOST_EVENT: Location =
    Location::new("BareMetalHost", ObjectPart::Event, "A reservation begins, stays or ends.");

const WORKERS_EVENT: Location = Location::new(
    "MachineDeployment or MachineSet",
    ObjectPart::Event,
    "With the annotation `ferrite.metal3.io/scale-to-hosts`: whether replicas follow hosts.",
);

reasons! {
    /// Why a decision was taken.
    pub enum Reason {
        NotOurs: Kind::Rests, "The object belongs to another installation.";
        Paused: Kind::Waits,
            "The machine or its Cluster is paused.",
            "End the pause if the machine should go on.",
            on: [PAUSED];
        NotPaused: Kind::Rests, "Neither the machine nor its Cluster is paused.", on: [PAUSED];
        WaitingForOwner: Kind::Waits,
            "No Machine owns the Metal3Machine yet: Cluster API has not got that far.",
            on: [ASSOCIATED, READY];
        MachineMissing: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The Machine that owns it does not exist.",
            "Delete the Metal3Machine, or restore the Machine.",
            on: [ASSOCIATED, READY, HOST_EVENT],
            more: "If `kubectl get` shows the Machine, the controller cannot decode it. Then correct the field that an event on it names, and delete nothing. On a host: the Metal3Machine that it names was deleted without cleanup, and the controller does not know whether the contents of the host are still used. The runbook of FerriteCapm3ReuseMachinesWait says how to free it.";
        MachineDeleting: Kind::Waits,
            "The Machine is being deleted: it gets no host any more.",
            on: [ASSOCIATED, READY];
        ClusterMissing: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The Cluster does not exist.",
            "Delete the machine, or restore the Cluster.",
            on: [ASSOCIATED, READY],
            more: "If `kubectl get` shows the Cluster, the controller cannot decode it. Then correct the field that an event on it names, and delete nothing.";
        WaitingForInfrastructure: Kind::Waits,
            "The infrastructure of the Cluster is not ready: Cluster API has not got that far.",
            on: [ASSOCIATED, READY];
        WaitingForBootstrapData: Kind::Waits,
            "The Machine has no bootstrap data yet: Cluster API has not got that far.",
            on: [ASSOCIATED, READY];
        BootstrapSecretMissing: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The secret with the bootstrap data does not exist. The message names it.",
            "See the bootstrap provider.",
            on: [ASSOCIATED, READY];
        SecretMissing: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The secret that `spec.metaData` or `spec.networkData` names does not exist.",
            "Create the secret, or correct its name.",
            on: [ASSOCIATED, READY];
        DataTemplateMissing: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The Metal3DataTemplate that `spec.dataTemplate` names does not exist. The machine takes no host until then.",
            "Create the Metal3DataTemplate, or correct its name.",
            on: [ASSOCIATED, READY];
        Refused: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The API server or a webhook refuses a write, or a webhook does not answer.",
            "Allow or correct what the message names: a webhook, a quota, a field, a missing permission.",
            on: [ASSOCIATED, READY, MACHINE_EVENT, HOST_EVENT],
            more: "The controller retries with growing intervals, at least every five minutes. A host that is refused for five minutes is given up for another free one, a reserved host for another reserved one. On a host: a write that ends or renews its reservation, or gives it back, was refused. That event comes once an hour.";
        SelectorInvalid: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The host selector is invalid.",
            "Correct `spec.hostSelector`: the message names the field.",
            on: [ASSOCIATED, READY];
        ImageInvalid: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The image cannot be installed.",
            "Correct `spec.image`: the message names the field.",
            on: [ASSOCIATED, READY],
            more: "An image needs a checksum unless its format is `live-iso` or its URL begins with `oci://`. CAPM3's webhook and the operator decide whether an OCI image needs one, and releases differ.";
        ForeignNamespace: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The machine refers to a secret or template in another namespace.",
            "Refer to one in the machine's own namespace: the message names the field.",
            on: [ASSOCIATED, READY];
        TemplateInvalid: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The controller cannot decode the template of the machine.",
            "Correct the field of the template that the message names.",
            on: [ASSOCIATED, READY];
        NameTooLong: Kind::EndsWithin(SEEN_TO_WITHIN),
            "Namespace, host and machine make a provider ID that is too long, on every suitable host.",
            "Add another host, or use shorter names.",
            on: [ASSOCIATED, READY];
        HostClaimed: Kind::EndsWithin(STEP_DONE_WITHIN),
            "The machine has a free host.", promise: Duration::from_secs(1), on: [ASSOCIATED];
        HostReused: Kind::EndsWithin(STEP_DONE_WITHIN),
            "The machine has a host that its owner had before.", promise: Duration::from_secs(1), on: [ASSOCIATED];
        HostAdopted: Kind::EndsWithin(STEP_DONE_WITHIN),
            "A host already named the machine, as after a change from CAPM3, a move, or a restart.",
            "Nothing.",
            on: [ASSOCIATED],
            more: "Or another program removed the `consumerRef` of the host while it was installed, and the machine took it back.";
        WaitingForKeptHost: Kind::Waits,
            "A host that is reserved for the owner will be ready. The message names it.",
            "Wait if the host is being cleaned. If that makes no progress, look at it with kubectl describe baremetalhost.",
            on: [ASSOCIATED, READY],
            more: "An error that lasts through three attempts of the operator ends the wait. With the annotation `capi.metal3.io/unhealthy` the host is no longer waited for, and the machine takes a free host.",
            see: "runbooks/FerriteCapm3ReuseMachinesWait.md";
        NoKeptHost: Kind::Waits,
            "With `--strict-reuse`: no host is reserved for the owner, and the machine may take no other.",
            "Reserve a host for the owner, or disable the flag.",
            on: [ASSOCIATED, READY], see: "runbooks/FerriteCapm3ReuseMachinesWait.md";
        NoHostAvailable: Kind::Waits,
            "No suitable host is free. The message says what a host must be and which labels it needs.",
            "Add a host, or correct the selector.",
            on: [ASSOCIATED, READY],
            more: "With a `watchFilter`, also look for hosts whose label `cluster.x-k8s.io/watch-filter` has another value: the controller does not take them. The message also names a host that is reserved for the owner but unusable. It names a host that only a label of CAPM3 reserves, too. `kubectl label baremetalhost <name> infrastructure.cluster.x-k8s.io/node-reuse-` frees that host.",
            see: "runbooks/FerriteCapm3ReuseMachinesWait.md";
        HostGivenUp: Kind::EndsWithin(STEP_DONE_WITHIN),
            "The intended host went to another machine. This machine looks for the next host.",
            on: [ASSOCIATED];
        WaitingForData: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The secrets of the data template are not rendered yet.",
            "See the Metal3DataClaim with the machine's name, or what the message names.",
            on: [READY, DATA],
            more: "Data that was rendered for a host that the machine lost has to be deleted first. With a `watchFilter` the message says which CAPM3 has to render.";
        DataFailed: Kind::EndsWithin(SEEN_TO_WITHIN),
            "CAPM3 could not render the secrets of the data template.",
            "See the Metal3DataClaim with the machine's name, or what the message names.",
            on: [READY, DATA];
        Provisioning: Kind::EndsWithin(INSTALLED_WITHIN),
            "The host is being installed.",
            "Wait, unless the message names a cause: the host is paused, detached or being deleted.",
            on: [READY, DATA];
        HostFailed: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The host reports an error.",
            "Look at the host with kubectl describe baremetalhost.",
            on: [READY];
        HostLost: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The host is deleted or being deleted, has another consumer, or has lost its image.",
            "Delete the Machine to have it replaced.",
            on: [READY],
            more: "If the host has no consumer, the message says whether its installation still runs.";
        Provisioned: Kind::Rests, "The host is installed.", on: [READY];
        NodeForeign: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The machine is up, and its Node has another provider ID.",
            "Delete the Node and restart its kubelet, or correct what sets that ID.",
            on: [READY];
        NodeAmbiguous: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The machine is up, and two live Nodes claim to run on its host.",
            "Delete the wrong Node.",
            on: [READY];
        NodeMissing: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The machine has been up for 20 minutes and its Node is not known.",
            "Provide what the message names: the label, the provider ID, the kubeconfig, an answer.",
            on: [READY];
        Releasing: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The controller removes the image from the host of a deleted machine.",
            on: [MACHINE_EVENT];
        OwnerUnreadable: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The controller cannot read the owner for which the host is to be reserved. Until then the host of a deleted machine is not cleaned.",
            "Allow, install or correct what the message names.",
            on: [READY, HOST_EVENT],
            more: "An installed machine shows it in advance, with `Ready` true. On a host: the reservation does not end while the owner cannot be read. There you may also remove the host's `spec.consumerRef` and its label `infrastructure.cluster.x-k8s.io/node-reuse`: both, or CAPM3 counts as who reserves it.",
            see: "controllers/capm3-reuse.md#other-control-planes";
        OwnerUnanswered: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The owner or the template could not be read just now. The host is not cleaned before, so no reservation is lost.",
            "Wait: the controller retries every 10 s. If it lasts, correct the error in the message.",
            on: [READY],
            more: "The error often comes from a conversion webhook, or from a missing permission of the chart's own role.";
        Deprovisioning: Kind::EndsWithin(INSTALLED_WITHIN),
            "The host is being cleaned.",
            "Wait, unless the message names a cause: an error, a pause, a detached host.",
            on: [READY],
            more: "Other causes: another program installed the host and it is still on, or the operator has not reconciled it yet.";
        Reserved: Kind::Rests,
            "The host is reserved for the machine's owner, which it names.",
            "Nothing.",
            on: [MACHINE_EVENT, HOST_EVENT],
            more: "On a host: the machine was deleted without cleanup, and the controller reserved the host in its place.";
        Released: Kind::Rests,
            "The host is free.",
            "Nothing.",
            on: [MACHINE_EVENT, HOST_EVENT],
            more: "On a host: the machine was deleted without cleanup, and the controller freed the host in its place.";
        LetGo: Kind::Rests, "The machine has no host and no finalizer any more.";
        Kept: Kind::Rests,
            "The host came with its owner from another cluster, and stays reserved.",
            on: [HOST_EVENT];
        KeptByCapm3: Kind::Rests,
            "CAPM3 reserves the host; the controller leaves it alone.",
            "Nothing, or remove the consumerRef and the label that the message names if nobody needs the reservation.",
            on: [HOST_EVENT];
        OwnerGone: Kind::Rests, "The owner of the reservation does not exist: the host is free.", on: [HOST_EVENT];
        OwnerDeleting: Kind::Rests, "The owner of the reservation is being deleted: the host is free.", on: [HOST_EVENT];
        ClusterDeleting: Kind::Rests, "The Cluster of the owner is being deleted: the host is free.", on: [HOST_EVENT];
        ReuseOff: Kind::Rests, "The owner's template no longer asks for reuse: the host is free.", on: [HOST_EVENT];
        NotNeeded: Kind::Rests,
            "The owner does not need the host: the host is free.",
            "Nothing.",
            on: [HOST_EVENT],
            more: "Every machine of the owner has a host, or its `hostSelector` selects another one. Or the label `cluster.x-k8s.io/watch-filter` of the host gives it to another instance.";
        ScalingHalted: Kind::Waits,
            "Replicas are left as they are: the object or its Cluster is paused or being deleted, or the Cluster does not exist.",
            "End the pause if replicas should follow hosts again.",
            on: [WORKERS_EVENT];
        ScalingInvalid: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The annotation `ferrite.metal3.io/scale-to-hosts` cannot be read. Replicas are left as they are.",
            "Correct the annotation: the message names the part.",
            on: [WORKERS_EVENT], see: "controllers/capm3-reuse/scale-to-hosts.md";
        ScaledElsewhere: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The cluster autoscaler, a topology or another program sets the replicas. This controller does not.",
            "Remove the annotation or label that the message names, or `ferrite.metal3.io/scale-to-hosts`.",
            on: [WORKERS_EVENT], see: "controllers/capm3-reuse/scale-to-hosts.md";
        ScalingTemplateInvalid: Kind::EndsWithin(SEEN_TO_WITHIN),
            "The Metal3MachineTemplate of the machines does not exist, or its host selector is invalid. Nobody knows which hosts count.",
            "Create the template, or correct what the message names.",
            on: [WORKERS_EVENT];
        HostsContested: Kind::EndsWithin(SEEN_TO_WITHIN),
            "Two objects whose replicas follow hosts count the same free host. Both keep the replicas that they have.",
            "Give both templates a `hostSelector` of their own, or remove one annotation: the message names the other object.",
            on: [WORKERS_EVENT], see: "controllers/capm3-reuse/scale-to-hosts.md";
        ScalingSoon: Kind::EndsWithin(INSTALLED_WITHIN),
            "Another number of replicas is wanted, and has not been the same for 30 s yet.";
        Scaled: Kind::Rests,
            "The controller changed the replicas to what hosts and annotation allow.",
            "Nothing.",
            on: [WORKERS_EVENT];
        FollowsHosts: Kind::Rests, "The replicas are what hosts and annotation allow.";
    }
}

impl Reason {
    /// Whether a person should look at it.
    pub fn is_warning(self) -> bool {
        match self {
            // Nobody but people adds hosts.
            Self::NoKeptHost | Self::NoHostAvailable => true,
            // A neighbour does these by itself.
            Self::WaitingForData | Self::Releasing => false,
            _ => self.about().kind == Kind::EndsWithin(SEEN_TO_WITHIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What waits for hosts has an alert of its own, by its age.
    #[test]
    fn every_trouble_that_a_person_should_see_reaches_an_alert() {
        let for_hosts = [Reason::NoKeptHost, Reason::NoHostAvailable];
        for reason in Reason::ALL.iter().filter(|it| it.is_warning() && !for_hosts.contains(it)) {
            assert!(matches!(reason.about().kind, Kind::EndsWithin(_)), "{reason:?}");
        }
        let steps = [Reason::Releasing, Reason::Deprovisioning, Reason::Provisioning];
        for reason in steps.into_iter().chain([Reason::WaitingForData]) {
            assert!(matches!(reason.about().kind, Kind::EndsWithin(_)), "{reason:?}");
        }
    }
}

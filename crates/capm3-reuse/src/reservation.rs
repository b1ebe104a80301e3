//! For whom a freed host is kept, and how that is written on it.
//!
//! A host that is kept names its owner in `spec.consumerRef`; the label beside it is what CAPM3 goes by. CAPM3's own
//! form, the label with a consumer reference to the Cluster or with none, is understood as well.

use api_types::metal3::BareMetalHost;
use api_types::names;
use api_types::names::capi::{CONTROL_PLANE_GROUP, GROUP};
use api_types::reference::ObjectRef;

use crate::host;

/// What a label's value may have.
const LABEL_BYTES: usize = 63;
/// In the pending annotation: it was decided that the host is kept for nobody.
const NOBODY: &str = "none";

/// A control plane or a `MachineDeployment`: who makes machines and may have hosts kept for them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Group and version; the group alone where a reference of the newer contract named it.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid; empty where somebody wrote the reference by hand without one.
    pub uid: String,
}

impl Owner {
    /// The owner that a reference names, if it is one that hosts are kept for.
    pub fn from_reference(reference: &ObjectRef) -> Option<Self> {
        let (group, kind) = (group_of(reference), reference.kind.as_deref()?);
        let name = reference.name.clone().filter(|name| !name.is_empty())?;
        let owns = group == CONTROL_PLANE_GROUP || (group == GROUP && kind == "MachineDeployment");
        owns.then(|| Self {
            api_version: reference
                .api_version
                .clone()
                .or_else(|| reference.api_group.clone())
                .filter(|said| !said.is_empty())
                .unwrap_or_else(|| group.to_owned()),
            kind: kind.to_owned(),
            name,
            uid: reference.uid.clone().unwrap_or_default(),
        })
    }

    /// The reference that is written on a host.
    pub fn reference(&self, namespace: &str) -> ObjectRef {
        ObjectRef {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            name: Some(self.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: (!self.uid.is_empty()).then(|| self.uid.clone()),
            ..ObjectRef::default()
        }
    }

    /// Whether it is a control plane, of whatever provider.
    pub fn is_control_plane(&self) -> bool {
        self.group() == CONTROL_PLANE_GROUP
    }

    /// Whether both have one name, whatever version of it a reference or the cache names.
    pub fn is_named_as(&self, other: &Self) -> bool {
        (self.group(), &self.kind, &self.name) == (other.group(), &other.kind, &other.name)
    }

    /// Whether it means this very owner, and not a later one of its name. Without a uid it means whichever there is.
    pub fn means(&self, other: &Self) -> bool {
        self.is_named_as(other) && (self.uid.is_empty() || self.uid == other.uid)
    }

    /// Its API group.
    pub fn group(&self) -> &str {
        self.api_version.split('/').next().unwrap_or_default()
    }

    /// The value of the label on a host that is kept for it.
    pub fn label(&self) -> String {
        label_of(self.is_control_plane(), &self.name)
    }
}

/// The value of the label on a host that is kept for the control plane or the deployment of this name. A name that is too long
/// for a label keeps its beginning, and a hash tells it from others.
pub fn label_of(is_control_plane: bool, name: &str) -> String {
    let whole = format!("{}{name}", if is_control_plane { "cp-" } else { "md-" });
    if whole.len() <= LABEL_BYTES {
        return whole;
    }
    let end = format!("-{:016x}", fingerprint(name));
    let mut cut = LABEL_BYTES - end.len();
    while !whole.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{end}", &whole[..cut])
}

impl std::fmt::Display for Owner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.kind, self.name)
    }
}

/// The API group that a reference names. Where it names none, as people write it and CAPM3 may leave it, that in which
/// these kinds are everywhere.
fn group_of(reference: &ObjectRef) -> &str {
    let said = [&reference.api_version, &reference.api_group];
    let names_none = said.into_iter().flatten().all(String::is_empty);
    match reference.kind.as_deref() {
        Some("Cluster" | "MachineDeployment") if names_none => GROUP,
        Some("KubeadmControlPlane") if names_none => CONTROL_PLANE_GROUP,
        _ => reference.group(),
    }
}

/// FNV-1a: it has to stay the same for ever, which the standard library's hashes do not promise.
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// For whom a host is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// As we write it.
    For(Owner),
    /// As CAPM3 leaves it: the label alone says for whom.
    ByLabel(String),
}

impl Kept {
    /// For whom this host is kept; nothing if it is free or somebody has it.
    pub fn of(host: &BareMetalHost) -> Option<Self> {
        let label = || host.label(names::capm3::NODE_REUSE).map(str::to_owned).map(Self::ByLabel);
        let Some(consumer) = &host.spec.consumer_ref else {
            return label();
        };
        // Owners stand where their hosts stand: what names another namespace is somebody else's.
        if host::is_elsewhere(consumer, host) {
            return None;
        }
        if group_of(consumer) == GROUP && consumer.kind.as_deref() == Some("Cluster") {
            return label();
        }
        Owner::from_reference(consumer).map(Self::For)
    }

    /// The label that it has or should have: hosts kept for one owner share it.
    pub fn label(&self) -> String {
        match self {
            Self::For(owner) => owner.label(),
            Self::ByLabel(label) => label.clone(),
        }
    }

    /// Whether it is this owner.
    pub fn is_for(&self, owner: &Owner) -> bool {
        match self {
            Self::For(kept) => kept.means(owner),
            Self::ByLabel(label) => *label == owner.label(),
        }
    }
}

/// Whether a claim that is on its way could still succeed: the host is ready, and free or kept for somebody.
pub fn looks_claimable(host: &BareMetalHost) -> bool {
    host::is_ready(host) && (host.spec.consumer_ref.is_none() || Kept::of(host).is_some())
}

/// The verdict that stands on a host while it is cleared: `Some(None)` is "for nobody". It is written with the write that
/// takes the image off, so on a host that has one it is not ours, nor on one that is another machine's by now: while this
/// controller was not installed somebody else cleared it and gave it away. And what cannot be read is no verdict, for nobody
/// least.
#[allow(clippy::option_option, reason = "undecided and decided for nobody are two things")]
pub fn pending(host: &BareMetalHost) -> Option<Option<Owner>> {
    let text = host.annotation(names::ferrite::PENDING_RESERVATION)?;
    let of = host.annotation(names::ferrite::PENDING_RESERVATION_OF);
    let of_another = of.is_some_and(|of| host::consumer_machine(host) != Some(of));
    if of_another || host::is_told_what_to_install(host) {
        return None;
    }
    if text == NOBODY {
        return Some(None);
    }
    let reference: ObjectRef = serde_json::from_str(text).ok()?;
    Owner::from_reference(&reference).map(Some)
}

/// The verdict as it is written on a host.
pub fn as_pending(verdict: Option<&Owner>, namespace: &str) -> String {
    verdict
        .and_then(|owner| serde_json::to_string(&owner.reference(namespace)).ok())
        .unwrap_or_else(|| NOBODY.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(name: &str) -> Owner {
        Owner {
            api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
            kind: "MachineDeployment".to_owned(),
            name: name.to_owned(),
            uid: "u1".to_owned(),
        }
    }

    fn kept_for(reference: Option<ObjectRef>, label: Option<&str>) -> Option<Kept> {
        let mut host = BareMetalHost::default();
        host.metadata.namespace = Some("ns".to_owned());
        host.spec.consumer_ref = reference.map(Box::new);
        host.metadata.labels =
            label.map(|label| [(names::capm3::NODE_REUSE.to_owned(), label.to_owned())].into());
        Kept::of(&host)
    }

    #[test]
    fn a_reservation_is_read_as_it_was_written() {
        let kept = kept_for(Some(owner("a").reference("ns")), None).unwrap();
        assert!(kept.is_for(&owner("a")));
        assert!(!kept.is_for(&owner("b")));
    }

    #[test]
    fn a_reference_to_another_namespace_keeps_the_host_for_nobody_here() {
        assert_eq!(kept_for(Some(owner("a").reference("other")), Some("md-a")), None);
        for none in [None, Some(String::new())] {
            let here = ObjectRef { namespace: none, ..owner("a").reference("ns") };
            assert!(kept_for(Some(here), None).is_some());
        }
    }

    #[test]
    fn an_owner_is_read_from_references_of_either_contract() {
        let reference = ObjectRef {
            api_group: Some(CONTROL_PLANE_GROUP.to_owned()),
            kind: Some("RKE2ControlPlane".to_owned()),
            name: Some("a".to_owned()),
            ..ObjectRef::default()
        };
        let owner = Owner::from_reference(&reference).unwrap();
        assert!(owner.is_control_plane());
        assert_eq!(owner.label(), "cp-a");
    }

    #[test]
    fn a_reference_that_names_no_group_is_read_as_of_the_usual_one() {
        let reference = |api_version: Option<&str>, kind: &str, name: Option<&str>| ObjectRef {
            api_version: api_version.map(str::to_owned),
            kind: Some(kind.to_owned()),
            name: name.map(str::to_owned),
            ..ObjectRef::default()
        };
        for none in [None, Some("")] {
            let kept = kept_for(Some(reference(none, "MachineDeployment", Some("a"))), None);
            assert!(kept.as_ref().unwrap().is_for(&owner("a")));
            assert!(!kept.unwrap().is_for(&owner("b")));
            let plane = reference(none, "KubeadmControlPlane", Some("a"));
            let plane = Owner::from_reference(&plane).unwrap();
            assert_eq!((plane.group(), plane.label().as_str()), (CONTROL_PLANE_GROUP, "cp-a"));
            let cluster = reference(none, "Cluster", Some("c"));
            let kept = kept_for(Some(cluster.clone()), Some("md-a"));
            assert_eq!(kept, Some(Kept::ByLabel("md-a".to_owned())));
            assert_eq!(kept_for(Some(cluster), None), None);
            // Of which group another kind is nobody knows, and without a name it is nobody's.
            for (kind, name) in [
                ("RKE2ControlPlane", Some("a")),
                ("MachineDeployment", None),
                ("Secret", Some("a")),
            ] {
                let other = reference(none, kind, name);
                assert_eq!(kept_for(Some(other), Some("md-a")), None, "{kind}");
            }
        }
        for foreign in ["v1", "elsewhere/v1"] {
            for kind in ["Cluster", "MachineDeployment", "KubeadmControlPlane"] {
                let other = reference(Some(foreign), kind, Some("a"));
                assert_eq!(kept_for(Some(other), Some("md-a")), None, "{foreign} {kind}");
            }
        }
    }

    #[test]
    fn a_later_owner_of_the_same_name_is_another_one() {
        let kept = kept_for(Some(owner("a").reference("ns")), None).unwrap();
        assert!(!kept.is_for(&Owner { uid: "u2".to_owned(), ..owner("a") }));
    }

    #[test]
    fn the_version_of_an_owner_does_not_tell_it_from_itself() {
        let kept = kept_for(Some(owner("a").reference("ns")), None).unwrap();
        let served = Owner { api_version: "cluster.x-k8s.io/v1beta1".to_owned(), ..owner("a") };
        assert!(kept.is_for(&served));
    }

    #[test]
    fn a_reservation_of_capm3_is_read_with_and_without_its_reference_to_the_cluster() {
        let cluster = ObjectRef {
            api_version: Some("cluster.x-k8s.io/v1beta1".to_owned()),
            kind: Some("Cluster".to_owned()),
            name: Some("c".to_owned()),
            ..ObjectRef::default()
        };
        for consumer in [None, Some(cluster)] {
            assert!(kept_for(consumer.clone(), Some("md-a")).unwrap().is_for(&owner("a")));
            assert_eq!(kept_for(consumer, None), None);
        }
    }

    #[test]
    fn a_host_that_somebody_has_is_kept_for_nobody_whatever_its_label_says() {
        let machine = ObjectRef {
            api_version: Some("infrastructure.cluster.x-k8s.io/v1beta2".to_owned()),
            kind: Some("Metal3Machine".to_owned()),
            name: Some("m".to_owned()),
            ..ObjectRef::default()
        };
        assert_eq!(kept_for(Some(machine), Some("md-a")), None);
    }

    #[test]
    fn a_verdict_is_read_as_it_was_written() {
        for verdict in [None, Some(owner("a"))] {
            let mut host = BareMetalHost::default();
            assert_eq!(pending(&host), None);
            let text = as_pending(verdict.as_ref(), "ns");
            let key = names::ferrite::PENDING_RESERVATION.to_owned();
            host.metadata.annotations = Some([(key, text)].into());
            assert_eq!(pending(&host), Some(verdict));
        }
    }

    #[test]
    fn a_verdict_that_cannot_be_read_or_stands_beside_an_image_is_none() {
        let written = |text: &str| {
            let mut host = BareMetalHost::default();
            let key = names::ferrite::PENDING_RESERVATION.to_owned();
            host.metadata.annotations = Some([(key, text.to_owned())].into());
            host
        };
        let nameless = as_pending(Some(&owner("")), "ns");
        for text in ["", "{garbage", r#"{"kind":"MachineDeployment"}"#, nameless.as_str()] {
            assert_eq!(pending(&written(text)), None, "{text}");
        }
        for verdict in [None, Some(owner("a"))] {
            let mut host = written(&as_pending(verdict.as_ref(), "ns"));
            assert!(pending(&host).is_some());
            let mut image = api_types::metal3::Image::default();
            // Without a URL it is none.
            host.spec.image = Some(Box::new(image.clone()));
            assert!(pending(&host).is_some());
            image.url = "http://a/b".to_owned();
            host.spec.image = Some(Box::new(image));
            assert_eq!(pending(&host), None);
        }
    }

    #[test]
    fn a_verdict_about_a_machine_says_nothing_of_a_later_one() {
        for (consumer, believed) in [("m", true), ("later", false)] {
            let mut host = BareMetalHost::default();
            let notes = [
                (names::ferrite::PENDING_RESERVATION, as_pending(Some(&owner("a")), "ns")),
                (names::ferrite::PENDING_RESERVATION_OF, "m".to_owned()),
            ];
            host.metadata.annotations = Some(notes.map(|(key, it)| (key.to_owned(), it)).into());
            host.spec.consumer_ref = Some(Box::new(ObjectRef {
                api_version: Some("infrastructure.cluster.x-k8s.io/v1beta1".to_owned()),
                kind: Some("Metal3Machine".to_owned()),
                name: Some(consumer.to_owned()),
                ..ObjectRef::default()
            }));
            assert_eq!(pending(&host).is_some(), believed, "{consumer}");
        }
    }

    #[test]
    fn a_name_that_fits_is_written_as_capm3_writes_it() {
        assert_eq!(owner("a").label(), "md-a");
        let plane = "controlplane.cluster.x-k8s.io/v1beta2".to_owned();
        assert_eq!(Owner { api_version: plane, ..owner("a") }.label(), "cp-a");
    }

    proptest! {
        #[test]
        fn every_name_makes_a_label_that_fits_and_tells_it_from_others(
            a in "[a-z][a-z0-9-]{0,251}[a-z0-9]", b in "[a-z][a-z0-9-]{0,251}[a-z0-9]",
        ) {
            let (left, right) = (owner(&a).label(), owner(&b).label());
            prop_assert!(left.len() <= LABEL_BYTES);
            prop_assert_eq!(left == right, a == b);
        }
    }
}

//! Whether a live look bears out that a reservation is over.

use api_types::ContractVersion;
use api_types::names::capi::{CONTROL_PLANE_GROUP, GROUP};
use api_types::reference::ObjectRef;
use controller_kit::engine::Error;
use controller_kit::engine::error::asked;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use serde_json::Value;

use super::Scope;
use super::owner::{Found, is_it, template_in};
use crate::outline::named;
use crate::reason::Reason;
use crate::reservation::{Kept, Owner};
use crate::seen::Reuse;

impl Scope<'_> {
    /// Whether a live look says so as well when the caches say that an owner is gone or wants no reuse any more: what is not
    /// kept any longer may be another's a moment later.
    pub async fn confirms(&self, kept: &Kept, reason: Reason) -> Result<bool, Error> {
        if !matches!(reason, Reason::OwnerGone | Reason::ReuseOff) {
            return Ok(true);
        }
        let owners = match kept {
            Kept::For(owner) => Some(vec![owner.clone()]),
            Kept::ByLabel(label) => self.labelled_so(label).await?,
        };
        let Some(owners) = owners else { return Ok(false) };
        for owner in &owners {
            let says_so = match bears_out(&self.live_owner(owner).await?, owner, reason) {
                Word::Yes => true,
                Word::No => false,
                Word::Template(name) => self.live_reuse(&name).await? == Reuse::Off,
            };
            if !says_so {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All owners under whose label CAPM3 kept a host, whatever their uids; nothing if it cannot be said that these are all.
    async fn labelled_so(&self, label: &str) -> Result<Option<Vec<Owner>>, Error> {
        if label.starts_with("md-") {
            let deployments = (GROUP, "MachineDeployment");
            return self.named_so(label, deployments).await.map(Some);
        }
        let mut found = Vec::new();
        if self.context.served.control_plane.is_some() {
            let planes = (CONTROL_PLANE_GROUP, "KubeadmControlPlane");
            found = self.named_so(label, planes).await?;
        }
        let clusters = self.untyped(GROUP, "Cluster");
        let params = ListParams::default();
        for cluster in asked("list the owners of machines", clusters.list(&params)).await?.items {
            let Ok(plane) = plane_of(&cluster.data) else { return Ok(None) };
            found
                .extend(plane.filter(|it| it.kind != "KubeadmControlPlane" && it.label() == label));
        }
        Ok(Some(found))
    }

    /// Those of a kind that hosts are kept for under this label. There may be very many of the kind, and as many hosts that ask:
    /// their names say it.
    async fn named_so(
        &self,
        label: &str,
        (group, kind): (&str, &str),
    ) -> Result<Vec<Owner>, Error> {
        let version = self.context.served.version_of(group);
        let found = self.untyped(group, kind);
        let params = ListParams::default();
        let found = asked("list the owners of machines", found.list_metadata(&params)).await?.items;
        Ok(having(label, group, version, kind, found.into_iter().map(|it| it.metadata)))
    }
}

/// Those among all of a kind that hosts are kept for under this label, whatever their uids.
fn having(
    label: &str,
    group: &str,
    version: ContractVersion,
    kind: &str,
    all: impl Iterator<Item = ObjectMeta>,
) -> Vec<Owner> {
    let owners = all.map(|it| ObjectMeta { uid: None, ..it });
    let owners = owners.map(|it| named(group, version, kind, &it));
    owners.filter(|owner| owner.label() == label).collect()
}

/// The control plane that a Cluster names, whatever its uid; an error if that cannot be read.
fn plane_of(cluster: &Value) -> Result<Option<Owner>, serde_json::Error> {
    let reference = &cluster["spec"]["controlPlaneRef"];
    if reference.is_null() {
        return Ok(None);
    }
    let reference: ObjectRef = serde_json::from_value(reference.clone())?;
    let owner = Owner::from_reference(&reference);
    Ok(owner.map(|owner| Owner { uid: String::new(), ..owner }))
}

/// What an owner as it is now says about the end of a reservation.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Yes,
    No,
    /// The template of this name has to say it.
    Template(String),
}

fn bears_out(found: &Found, owner: &Owner, reason: Reason) -> Word {
    match found {
        Found::Unreadable(_) => Word::No,
        Found::Here(live) if is_it(live, owner) => template_in(&live.data)
            .and_then(|it| it.name)
            .filter(|_| reason == Reason::ReuseOff)
            .map_or(Word::No, Word::Template),
        Found::Here(_) | Found::Gone => Word::Yes,
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::decide::tests::owner;

    #[test]
    fn a_reservation_ends_for_want_of_its_owner_or_of_reuse_only_if_a_live_look_says_so_too() {
        let found = |uid: &str, template: Option<&str>| {
            let reference = json!({"kind": "Metal3MachineTemplate", "name": template});
            let spec = json!({"template": {"spec": {"infrastructureRef": reference}}});
            let it = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
                "metadata": {"name": "md", "uid": uid}, "spec": spec,
            });
            Found::Here(Box::new(serde_json::from_value(it).unwrap()))
        };
        let asks = || Word::Template("t".to_owned());
        for (found, gone, off) in [
            (Found::Gone, Word::Yes, Word::Yes),
            (found("later", Some("t")), Word::Yes, Word::Yes),
            (found("md-uid", Some("t")), Word::No, asks()),
            (found("md-uid", None), Word::No, Word::No),
            (Found::Unreadable("why".to_owned()), Word::No, Word::No),
        ] {
            assert_eq!(bears_out(&found, &owner(), Reason::OwnerGone), gone);
            assert_eq!(bears_out(&found, &owner(), Reason::ReuseOff), off);
        }
    }

    #[test]
    fn an_owner_that_no_cache_has_is_found_by_its_label_even_if_it_cannot_be_decoded() {
        let of = |name: &str, spec: Value| -> DynamicObject {
            let it = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
                "metadata": {"name": name, "uid": format!("{name}-uid")}, "spec": spec,
            });
            serde_json::from_value(it).unwrap()
        };
        let reference = json!({"kind": "Metal3MachineTemplate", "name": "t"});
        let whole = json!({"template": {"spec": {"infrastructureRef": reference}}});
        let version = ContractVersion::V1Beta2;
        let having = |label: &str, spec: &Value| {
            let all = [of("other", spec.clone()), of("md", spec.clone())];
            let all = all.into_iter().map(|it| it.metadata);
            having(label, GROUP, version, "MachineDeployment", all)
        };
        for (spec, off) in [(whole, Word::Template("t".to_owned())), (json!("odd"), Word::No)] {
            let found = having("md-md", &spec);
            let [it] = &found[..] else { panic!("{found:?}") };
            // One that was made anew under the name since then has the label, too.
            assert_eq!(*it, Owner { uid: String::new(), ..owner() });
            let live = Found::Here(Box::new(of("md", spec.clone())));
            assert_eq!(bears_out(&live, it, Reason::OwnerGone), Word::No);
            assert_eq!(bears_out(&live, it, Reason::ReuseOff), off);
            assert!(having("md-none", &spec).is_empty());
        }
    }

    #[test]
    fn a_control_plane_that_a_cluster_names_in_words_that_cannot_be_read_may_be_there() {
        let reference = json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "RKE2ControlPlane",
            "name": "a", "uid": "u",
        });
        let plane = plane_of(&json!({"spec": {"controlPlaneRef": reference}})).unwrap().unwrap();
        assert_eq!((plane.label().as_str(), plane.uid.as_str()), ("cp-a", ""));
        assert!(matches!(plane_of(&json!({"spec": {}})), Ok(None)));
        assert!(plane_of(&json!({"spec": {"controlPlaneRef": "odd"}})).is_err());
    }
}

//! The secrets that CAPM3's data controllers render for a machine, as far as they are there.
//!
//! CAPM3 names secrets after the machine, leaves one that is there as it is, and answers a claim with a `Metal3Data` that is being
//! deleted as well. So what was rendered for a host that the machine lost would be installed on the next one: its addresses, its
//! links, its identity.

use std::sync::Arc;

use api_types::capm3::{Metal3Data, Metal3DataClaim, Metal3Machine};
use controller_kit::engine::{Error, asked};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, ListParams};
use kube::{Resource as _, ResourceExt as _};

use super::{Scope, get_if_allowed};
use crate::seen::Data;
use crate::text;

const DATA_KIND: &str = "Metal3Data";
/// What CAPM3 appends to the machine's name.
const SECRETS: [&str; 2] = ["-metadata", "-networkdata"];

impl Scope<'_> {
    /// The claim of a machine, as it was last seen.
    pub fn data_claim(&self, machine: &Metal3Machine) -> Option<Arc<Metal3DataClaim>> {
        self.context.caches.claims.named(self.namespace, &machine.name_any())
    }

    /// As they were last seen.
    pub fn cached_data(&self, machine: &Metal3Machine) -> Data {
        if machine.spec.data_template.is_none() {
            return Data::NotWanted;
        }
        if !self.context.served.data {
            return Data::Unserved;
        }
        let datas = &self.context.caches.data;
        match answer(machine, self.data_claim(machine).as_deref()) {
            Ok(name) => rendered(machine, datas.named(self.namespace, &name).as_deref(), name),
            Err(lacking) => lacking,
        }
    }

    /// As they are now. What was rendered for a host that the machine has lost was asked to go, and a cache may still have it.
    pub async fn live_data(&self, machine: &Metal3Machine) -> Result<Data, Error> {
        let one = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
        let its = one(&machine.name_any());
        let claims: Api<Metal3DataClaim> = self.context.metal3(self.namespace);
        let claims = asked("look for a Metal3DataClaim", claims.list(&its)).await?.items;
        let name = match answer(machine, claims.first()) {
            Ok(name) => name,
            Err(lacking) => return Ok(lacking),
        };
        let datas: Api<Metal3Data> = self.context.metal3(self.namespace);
        let datas = asked("look for a Metal3Data", datas.list(&one(&name))).await?.items;
        let found = rendered(machine, datas.first(), name);
        let uid = datas.first().and_then(|it| it.meta().uid.clone());
        for secret in ["metaData", "networkData"].iter().filter_map(|it| found.rendered(it)) {
            if let Some(what) = self.secret_of_another(secret, uid.as_deref()).await? {
                return Ok(Data::Withdrawn(what));
            }
        }
        Ok(found)
    }

    /// What was rendered for a host that the machine has no longer and is still there. Before it is gone nobody is asked again.
    pub async fn data_left_over(&self, machine: &Metal3Machine) -> Result<Option<String>, Error> {
        let name = machine.name_any();
        let mut datas = self.context.caches.data.of_namespace(self.namespace);
        let is_its = |data: &Arc<Metal3Data>| {
            data.spec.claim.as_ref().and_then(|it| it.name.as_ref()) == Some(&name)
        };
        if let Some(data) = datas.find(is_its) {
            return Ok(Some(not_gone(DATA_KIND, &data.metadata)));
        }
        for end in SECRETS {
            let secret = format!("{name}{end}");
            if let Some(what) = self.secret_of_another(&secret, None).await? {
                return Ok(Some(what));
            }
        }
        Ok(None)
    }

    /// What is told of a secret that was rendered for another `Metal3Data` than the one of this uid.
    async fn secret_of_another(
        &self,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let secrets = self.secrets();
        let found = get_if_allowed(name, secrets.get_metadata(name), "look for a secret").await?;
        let found = found.flatten().map(|it| it.metadata);
        let found = found.filter(|it| is_of_another(it.owner_references.as_deref(), uid));
        Ok(found.map(|it| not_gone("Secret", &it)))
    }
}

/// A secret that no `Metal3Data` owns is somebody's own, which CAPM3 takes as it is.
fn is_of_another(owners: Option<&[OwnerReference]>, uid: Option<&str>) -> bool {
    let mut datas = owners.into_iter().flatten().filter(|it| it.kind == DATA_KIND);
    datas.any(|it| Some(it.uid.as_str()) != uid)
}

fn not_gone(kind: &str, it: &ObjectMeta) -> String {
    let name = it.name.as_deref().unwrap_or_default();
    text::not_gone(kind, name, it.finalizers.as_deref().unwrap_or_default())
}

/// The `Metal3Data` that answers a machine's claim, or what there is without one.
fn answer(machine: &Metal3Machine, claim: Option<&Metal3DataClaim>) -> Result<String, Data> {
    let Some(claim) = claim else { return Err(Data::NotAskedFor) };
    // What is on a host that goes back is known by its names, whatever becomes of the claim.
    let stays = machine.metadata.deletion_timestamp.is_none();
    if stays && claim.metadata.deletion_timestamp.is_some() {
        return Err(Data::Withdrawn(not_gone("Metal3DataClaim", &claim.metadata)));
    }
    if stays && !is_its(claim, machine) {
        return Err(Data::Awaited);
    }
    let status = claim.status.clone().unwrap_or_default();
    if let Some(why) = status.error_message.filter(|why| !why.is_empty()) {
        return Err(Data::Failed(why));
    }
    status.rendered_data.and_then(|it| it.name).ok_or(Data::Awaited)
}

fn rendered(machine: &Metal3Machine, data: Option<&Metal3Data>, name: String) -> Data {
    let Some(data) = data else { return Data::Awaited };
    let stays = machine.metadata.deletion_timestamp.is_none();
    if stays && data.metadata.deletion_timestamp.is_some() {
        return Data::Withdrawn(not_gone(DATA_KIND, &data.metadata));
    }
    let status = data.status.clone().unwrap_or_default();
    match status.error_message.filter(|why| !why.is_empty()) {
        Some(why) => Data::Failed(why),
        None if status.ready == Some(true) => Data::Rendered {
            name,
            meta_data: data.spec.meta_data.as_ref().and_then(|it| it.name.clone()),
            network_data: data.spec.network_data.as_ref().and_then(|it| it.name.clone()),
        },
        None => Data::Awaited,
    }
}

/// Whether a claim is answered for this very machine: not one of an earlier machine of its name. When such a one is gone the
/// machine is woken and makes its own.
fn is_its(claim: &Metal3DataClaim, machine: &Metal3Machine) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|it| Some(&it.uid) == machine.metadata.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;
    use crate::context::Caches;
    use crate::context::tests::{VERSION, no_caches, nowhere, store};
    use crate::decide::tests::{now, seen};

    fn claim(uid: &str, more: &Value) -> Metal3DataClaim {
        let owner = json!({"apiVersion": "g/v", "kind": "Metal3Machine", "name": "m", "uid": uid});
        let mut claim = json!({"metadata": {"ownerReferences": [owner]}, "status": more});
        if claim["status"]["going"] == true {
            claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            claim["metadata"]["finalizers"] = json!(["metal3machine"]);
        }
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn only_a_claim_of_this_very_machine_that_is_not_withdrawn_is_answered_for_it() {
        let named = json!({"renderedData": {"name": "facts-0"}});
        let going = json!({"renderedData": {"name": "facts-0"}, "going": true});
        let failed = json!({"renderedData": {"name": "facts-0"}, "errorMessage": "no index"});
        for (claim, wanted) in [
            (Some(claim("m-uid", &named)), Ok("facts-0".to_owned())),
            (Some(claim("of an earlier one", &named)), Err(Data::Awaited)),
            (Some(claim("m-uid", &failed)), Err(Data::Failed("no index".to_owned()))),
            (Some(claim("m-uid", &json!({}))), Err(Data::Awaited)),
            (None, Err(Data::NotAskedFor)),
        ] {
            assert_eq!(answer(&seen().machine, claim.as_ref()), wanted, "{claim:?}");
        }
        // One that was withdrawn and is still there says what it waits for.
        let waits = answer(&seen().machine, Some(&claim("m-uid", &going)));
        let Err(Data::Withdrawn(what)) = waits else { panic!("{waits:?}") };
        assert!(what.contains("Metal3DataClaim") && what.ends_with("finalizers metal3machine"));
        // What is on a host that goes back is known by its names all the same.
        let mut leaves = seen().machine;
        leaves.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(answer(&leaves, Some(&claim("m-uid", &going))), Ok("facts-0".to_owned()));
    }

    #[test]
    fn only_secrets_of_the_very_data_that_answers_are_installed() {
        let owned = |kind: &str, uid: &str| OwnerReference {
            kind: kind.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        for (owners, uid, of_another) in [
            (vec![owned(DATA_KIND, "now")], Some("now"), false),
            (vec![owned(DATA_KIND, "before")], Some("now"), true),
            // Before anybody is asked every one is of another.
            (vec![owned(DATA_KIND, "before")], None, true),
            (vec![owned("Metal3Machine", "m-uid")], None, false),
            (vec![], Some("now"), false),
        ] {
            assert_eq!(is_of_another(Some(&owners), uid), of_another, "{owners:?} {uid:?}");
        }
    }

    #[tokio::test]
    async fn nobody_is_asked_while_data_of_a_lost_host_is_there() {
        let data = |name: &str, claim: &str| -> Metal3Data {
            let spec = json!({"claim": {"name": claim}});
            let metadata = json!({"name": name, "namespace": "ns", "finalizers": ["metal3data"]});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let all = vec![data("facts-1", "other"), data("facts-0", "m")];
        let caches = Caches { data: store(all, VERSION), ..no_caches() };
        let context = nowhere(caches, None);
        let scope = Scope { context: &context, namespace: "ns" };
        let told = scope.data_left_over(&seen().machine).await.unwrap().unwrap();
        assert!(told.contains("Metal3Data facts-0") && told.ends_with("metal3data"), "{told}");
    }

    #[test]
    fn secrets_are_there_when_their_data_says_so_and_stays() {
        let data = |status: Value| -> Metal3Data {
            serde_json::from_value(
                json!({"spec": {"metaData": {"name": "facts"}}, "status": status}),
            )
            .unwrap()
        };
        let there = Data::Rendered {
            name: "d".to_owned(),
            meta_data: Some("facts".to_owned()),
            network_data: None,
        };
        for (data, wanted) in [
            (Some(data(json!({"ready": true}))), there),
            (Some(data(json!({"ready": false}))), Data::Awaited),
            (
                Some(data(json!({"ready": true, "errorMessage": "no pool"}))),
                Data::Failed("no pool".to_owned()),
            ),
            (None, Data::Awaited),
        ] {
            assert_eq!(rendered(&seen().machine, data.as_ref(), "d".to_owned()), wanted);
        }
        // CAPM3 answers a claim with what is still being removed for the one before, too.
        let mut going = data(json!({"ready": true}));
        going.metadata.deletion_timestamp = Some(Time(now()));
        let found = rendered(&seen().machine, Some(&going), "d".to_owned());
        assert!(matches!(found, Data::Withdrawn(_)), "{found:?}");
        let mut leaves = seen().machine;
        leaves.metadata.deletion_timestamp = Some(Time(now()));
        let found = rendered(&leaves, Some(&going), "d".to_owned());
        assert!(matches!(found, Data::Rendered { .. }), "{found:?}");
    }
}

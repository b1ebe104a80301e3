//! The secrets that CAPM3's data controllers render for a machine, as far as they are there.

use api_types::capm3::{Metal3Data, Metal3DataClaim, Metal3Machine};
use controller_kit::engine::{Error, asked};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use crate::context::{Context, last_seen};
use crate::seen::Data;

/// As they were last seen.
pub fn cached(context: &Context, namespace: &str, machine: &Metal3Machine) -> Data {
    if machine.spec.data_template.is_none() {
        return Data::NotWanted;
    }
    let (Some(claims), Some(datas)) = (&context.caches.claims, &context.caches.data) else {
        return Data::Unserved;
    };
    let version = context.served.infrastructure;
    let claim = last_seen(claims, version, namespace, &machine.name_any());
    match answer(machine, claim.as_deref()) {
        Ok(name) => rendered(last_seen(datas, version, namespace, &name).as_deref(), name),
        Err(lacking) => lacking,
    }
}

/// As they are now. What was rendered for a host that the machine has lost was asked to go, and a cache may still have it.
pub async fn live(
    context: &Context,
    namespace: &str,
    machine: &Metal3Machine,
) -> Result<Data, Error> {
    let (client, version) = (&context.kit.client, &context.served.infrastructure);
    let one = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let (claims, its) = (context.claims(namespace), one(&machine.name_any()));
    let claims = asked("look for a Metal3DataClaim", claims.list(&its)).await?.items;
    let name = match answer(machine, claims.first()) {
        Ok(name) => name,
        Err(lacking) => return Ok(lacking),
    };
    let datas: Api<Metal3Data> = Api::namespaced_with(client.clone(), namespace, version);
    let datas = asked("look for a Metal3Data", datas.list(&one(&name))).await?.items;
    Ok(rendered(datas.first(), name))
}

/// The `Metal3Data` that answers a machine's claim, or what there is without one.
fn answer(machine: &Metal3Machine, claim: Option<&Metal3DataClaim>) -> Result<String, Data> {
    let Some(claim) = claim else { return Err(Data::NotAskedFor) };
    // What is on a host that goes back is known by its names, whatever becomes of the claim.
    if machine.metadata.deletion_timestamp.is_none() && !is_its(claim, machine) {
        return Err(Data::Awaited);
    }
    let status = claim.status.clone().unwrap_or_default();
    if let Some(why) = status.error_message.filter(|why| !why.is_empty()) {
        return Err(Data::Failed(why));
    }
    status.rendered_data.and_then(|it| it.name).ok_or(Data::Awaited)
}

fn rendered(data: Option<&Metal3Data>, name: String) -> Data {
    let Some(data) = data else { return Data::Awaited };
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

/// Whether a claim is answered for this very machine as it is now: not one that was withdrawn and is still there, and not
/// one of an earlier machine of its name. When such a one is gone the machine is woken and makes its own.
fn is_its(claim: &Metal3DataClaim, machine: &Metal3Machine) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    claim.metadata.deletion_timestamp.is_none()
        && owners.any(|it| Some(&it.uid) == machine.metadata.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::tests::seen;

    fn claim(uid: &str, more: &Value) -> Metal3DataClaim {
        let owner = json!({"apiVersion": "g/v", "kind": "Metal3Machine", "name": "m", "uid": uid});
        let mut claim = json!({"metadata": {"ownerReferences": [owner]}, "status": more});
        if claim["status"]["going"] == true {
            claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
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
            (Some(claim("m-uid", &going)), Err(Data::Awaited)),
            (Some(claim("m-uid", &failed)), Err(Data::Failed("no index".to_owned()))),
            (Some(claim("m-uid", &json!({}))), Err(Data::Awaited)),
            (None, Err(Data::NotAskedFor)),
        ] {
            assert_eq!(answer(&seen().machine, claim.as_ref()), wanted, "{claim:?}");
        }
    }

    #[test]
    fn secrets_are_there_when_their_data_says_so() {
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
            assert_eq!(rendered(data.as_ref(), "d".to_owned()), wanted);
        }
    }
}

//! All reads. The contested object is read first, see the crate's documentation.

use controller_kit::api_error::unless_gone;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::error::Error;
use crate::seen::{Guest, Observed, Seat};
use crate::{GIVES_UP, GUEST, HOLDER, INTENT, RESULT, ROLE, SEAT};

/// Reads what a decision about this object needs.
pub async fn observe(api: &Api<ConfigMap>, hint: &ConfigMap) -> Result<Observed, Error> {
    let name = hint.name_any();
    let of = |role: &str| ListParams::default().labels(&format!("{ROLE}={role}"));
    match role(hint) {
        Some(GUEST) => {
            let seats = api.list(&of(SEAT)).await.map_err(Error::api("list seats"))?;
            let guest = unless_gone(api.get(&name).await);
            let guest = guest.map_err(Error::api("get the guest"))?;
            let Some(guest) = guest.filter(|it| role(it) == Some(GUEST)) else {
                return Ok(Observed::Nothing);
            };
            let mut seats: Vec<Seat> = seats.items.iter().map(seat).collect();
            seats.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(Observed::Guest { guest: as_guest(&guest), seats })
        }
        Some(SEAT) => {
            let found = unless_gone(api.get(&name).await);
            let found = found.map_err(Error::api("get the seat"))?;
            let Some(found) = found.filter(|it| role(it) == Some(SEAT)) else {
                return Ok(Observed::Nothing);
            };
            let guests = api.list(&of(GUEST)).await;
            let guests = guests.map_err(Error::api("list guests"))?;
            Ok(Observed::Seat {
                seat: seat(&found),
                guests: guests.items.iter().filter_map(ResourceExt::uid).collect(),
            })
        }
        _ => Ok(Observed::Nothing),
    }
}

/// Guest, seat or neither.
pub(crate) fn role(object: &ConfigMap) -> Option<&str> {
    object.labels().get(ROLE).map(String::as_str)
}

fn as_guest(object: &ConfigMap) -> Guest {
    Guest {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        version: object.resource_version().unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        finalizers: object.finalizers().to_vec(),
        intent: object.annotations().get(INTENT).cloned(),
        gives_up: object.annotations().get(GIVES_UP).cloned(),
        result: object.annotations().get(RESULT).cloned(),
    }
}

fn seat(object: &ConfigMap) -> Seat {
    Seat {
        name: object.name_any(),
        version: object.resource_version().unwrap_or_default(),
        holder: object.annotations().get(HOLDER).cloned(),
    }
}

//! All reads. The contested object is read first, see the crate's documentation.

use controller_kit::api_error::unless_gone;
use controller_kit::engine::{Error, asked};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::model::{Guest, Observed, Seat};
use crate::{GIVES_UP, GUEST, HOLDER, INTENT, RESULT, ROLE, SEAT};

/// Reads what a decision about this object needs; nothing, if it is gone or was never ours.
pub async fn observe(api: &Api<ConfigMap>, hint: &ConfigMap) -> Result<Option<Observed>, Error> {
    let name = hint.name_any();
    let of = |role: &str| ListParams::default().labels(&format!("{ROLE}={role}"));
    match role(hint) {
        Some(GUEST) => {
            let seats = asked("list seats", api.list(&of(SEAT))).await?;
            let guest = asked("get the guest", async { unless_gone(api.get(&name).await) }).await?;
            let guest = guest.filter(|it| role(it) == Some(GUEST));
            let mut seats: Vec<Seat> = seats.items.iter().map(seat).collect();
            seats.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(guest.map(|guest| Observed::Guest { guest: as_guest(&guest), seats }))
        }
        Some(SEAT) => {
            let found = asked("get the seat", async { unless_gone(api.get(&name).await) }).await?;
            let guests = asked("list guests", api.list(&of(GUEST))).await?;
            let guests = guests.items.iter().filter_map(ResourceExt::uid).collect();
            let found = found.filter(|it| role(it) == Some(SEAT));
            Ok(found.map(|found| Observed::Seat { seat: seat(&found), guests }))
        }
        _ => Ok(None),
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

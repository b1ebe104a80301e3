//! All reads. The contested object is read first, see the crate's documentation.

use std::collections::BTreeSet;

use controller_kit::api_error::unless_gone;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::error::Error;
use crate::{FINALIZER, GIVES_UP, GUEST, HOLDER, INTENT, RESULT, ROLE, SEAT};

/// A guest as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its uid, which no later guest of that name shares.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// All its finalizers.
    pub finalizers: Vec<String>,
    /// The seat that it is going to take.
    pub intent: Option<String>,
    /// The seat that it intended and somebody else got.
    pub gives_up: Option<String>,
    /// The seat that it has.
    pub result: Option<String>,
}

/// A seat as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    /// Its name.
    pub name: String,
    /// Its resourceVersion.
    pub version: String,
    /// The uid of its guest.
    pub holder: Option<String>,
}

/// What one reconcile knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Observed {
    /// It is gone, or was never ours.
    Nothing,
    /// A guest, and before it all seats.
    Guest {
        /// The guest.
        guest: Guest,
        /// All seats by name.
        seats: Vec<Seat>,
    },
    /// A seat, and after it the uids of all guests.
    Seat {
        /// The seat.
        seat: Seat,
        /// Who is there.
        guests: BTreeSet<String>,
    },
}

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

impl Guest {
    /// Whether it waits for us to free its seat.
    pub fn is_kept(&self) -> bool {
        self.finalizers.iter().any(|it| it == FINALIZER)
    }
}

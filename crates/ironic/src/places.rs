//! How many requests are under way at once, and for whom there is always room.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Result;
use crate::client::Call;
use crate::error::{Class, Error};

/// How many requests are under way at once. A connection whose answer was read needs a moment until it can be used
/// again; whoever asks in that moment gets a new one, and the two that are left over are for these.
pub const AT_ONCE: usize = 6;
/// How many of them may be reading, so that a power request always finds room soon.
const READING: usize = 4;
/// How many of them may be anything but a hard change of power, for which somebody may wait with lost data: one place is
/// always left for those.
const LESSER: usize = AT_ONCE - 1;
/// How many of those may be changes: for a node whose conductor is away each hangs until its timeout, and a look at another
/// node, which needs no conductor, finds room beside them.
const WRITING: usize = LESSER - 1;

/// The places.
#[derive(Debug)]
pub(crate) struct Places {
    all: Semaphore,
    lesser: Semaphore,
    reading: Semaphore,
    writing: Semaphore,
}

/// A place among the requests that are under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    _permits: [Option<SemaphorePermit<'a>>; 3],
}

impl Places {
    pub(crate) fn new() -> Self {
        Self {
            all: Semaphore::new(AT_ONCE),
            lesser: Semaphore::new(LESSER),
            reading: Semaphore::new(READING),
            writing: Semaphore::new(WRITING),
        }
    }

    /// Waits for a place.
    pub(crate) async fn take(&self, call: &Call) -> Result<Place<'_>> {
        let (kind, lesser) = if call.urgent {
            (None, None)
        } else {
            let kind = if call.reads() { &self.reading } else { &self.writing };
            (Some(permit(kind).await?), Some(permit(&self.lesser).await?))
        };
        Ok(Place { _permits: [kind, lesser, Some(permit(&self.all).await?)] })
    }
}

async fn permit(semaphore: &Semaphore) -> Result<SemaphorePermit<'_>> {
    let closed = |_| Error::new(Class::Invalid, "the client is shut down");
    semaphore.acquire().await.map_err(closed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::Method;

    use super::*;

    async fn soon<'a>(places: &'a Places, call: &Call) -> Option<Result<Place<'a>>> {
        tokio::time::timeout(Duration::from_millis(20), places.take(call)).await.ok()
    }

    #[tokio::test]
    async fn a_hard_change_of_power_finds_a_place_beside_all_else_and_no_more_are_under_way() {
        let places = Places::new();
        let (read, other) = (Call::get("nodes"), Call::new(Method::PUT, "x"));
        let hard = Call { urgent: true, ..Call::new(Method::PUT, "x") };
        let mut taken = Vec::new();
        for call in [&read, &other] {
            while let Some(place) = soon(&places, call).await {
                taken.push(place);
            }
        }
        assert_eq!(taken.len(), LESSER);
        let first = soon(&places, &hard).await;
        assert!(
            first.is_some() && soon(&places, &hard).await.is_none(),
            "one place is left for them"
        );
        drop((first, taken.pop()));
        assert!(soon(&places, &other).await.is_some(), "and the others go on");
        taken.clear();
        while let Some(place) = soon(&places, &hard).await {
            taken.push(place);
        }
        assert_eq!(taken.len(), AT_ONCE);
    }

    #[tokio::test]
    async fn a_look_finds_a_place_beside_changes_that_hang() {
        let places = Places::new();
        let (read, change) = (Call::get("nodes"), Call::new(Method::PUT, "x"));
        let mut taken = Vec::new();
        while let Some(place) = soon(&places, &change).await {
            taken.push(place);
        }
        assert_eq!(taken.len(), WRITING);
        assert!(soon(&places, &read).await.is_some());
    }
}

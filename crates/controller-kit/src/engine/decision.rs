//! What a pass decided, the same in all controllers: plain data that can be compared.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;

use super::error::Error;
use crate::events::Event;

/// What to do about a key: the writes in their order, then the events.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<W, R> {
    /// Why.
    pub reason: R,
    /// Each on the version that was decided upon.
    pub writes: Vec<W>,
    /// What to tell people, once everything is written.
    pub events: Vec<Event>,
    /// When to look again.
    pub next: Next,
}

/// When to look at a key again, should nothing change before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// When something changes.
    OnChange,
    /// At once: what was written is what another rule waits for.
    Now,
    /// After this long, and up to a quarter more.
    After(Duration),
}

/// What came of a write.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The object's version after it, if it was the object of the key that was written.
    pub version: Option<String>,
    /// What else to tell people, also where a later write of the pass fails.
    pub events: Vec<Event>,
    /// The same about other objects: what was made, say.
    pub others: Vec<(ObjectReference, Event)>,
    /// When to look again, in place of what was decided: an answer may say.
    pub next: Option<Next>,
    /// Why a part of the write failed that the others do not depend on. The events say so: the pass tells all of them, and then
    /// ends like one that failed.
    pub failed: Option<Error>,
}

/// The time of a pass. Decisions compare it with times that they are given, and ask no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// As people and other processes know it. It may be set, also back.
    pub wall: Timestamp,
    /// As it passes for this process.
    pub moment: Instant,
}

impl Now {
    /// It is now.
    pub fn read() -> Self {
        Self { wall: Timestamp::now(), moment: Instant::now() }
    }
}

impl<W, R> Decision<W, R> {
    /// Nothing to do until something changes.
    pub fn rest(reason: R) -> Self {
        Self { reason, writes: Vec::new(), events: Vec::new(), next: Next::OnChange }
    }

    /// One write, and another look after it.
    pub fn write(reason: R, write: W) -> Self {
        Self { writes: vec![write], next: Next::Now, ..Self::rest(reason) }
    }
}

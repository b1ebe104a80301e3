//! Events on objects. Publishing one never fails a reconcile and never holds it up for long.
//!
//! For six minutes a repeated event (same object, type, reason and action) keeps its first note, so the
//! fact that tells two events apart belongs into the reason or the action.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::api_error;

/// What the API server accepts as a note.
const NOTE_BYTES: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(5);

/// Publishes events in the name of the controller; clones share what was already said.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Events in the name of `controller`, from this pod.
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        let reporter = Reporter {
            controller: format!("ferrite-{controller}"),
            instance: Some(instance.to_owned()),
        };
        Self(Recorder::new(client, reporter))
    }

    /// Something went as it should.
    pub async fn normal(&self, object: &ObjectReference, reason: &str, action: &str, note: &str) {
        self.publish(EventType::Normal, object, reason, action, note).await;
    }

    /// Something a person should look at.
    pub async fn warning(&self, object: &ObjectReference, reason: &str, action: &str, note: &str) {
        self.publish(EventType::Warning, object, reason, action, note).await;
    }

    async fn publish(
        &self,
        type_: EventType,
        object: &ObjectReference,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(shorten(note, NOTE_BYTES)),
            action: action.to_owned(),
            secondary: None,
        };
        let why = match tokio::time::timeout(PATIENCE, self.0.publish(&event, object)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => api_error::explain(&error),
            Err(_) => "the API server did not answer in time".to_owned(),
        };
        tracing::warn!(object.name = object.name, reason, error = why, "Could not publish event");
    }
}

/// Cuts text to at most `bytes`, never inside a character, and shows that something is missing.
pub fn shorten(text: &str, bytes: usize) -> String {
    const MORE: &str = "...";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut cut = bytes.saturating_sub(MORE.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut short = text[..cut].to_owned();
    if bytes >= MORE.len() {
        short.push_str(MORE);
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::shorten;

    #[test]
    fn a_note_that_fits_is_not_touched() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcdefgh", 6), "abc...");
    }

    proptest! {
        #[test]
        fn a_note_is_never_too_long_and_never_cut_inside_a_character(text in "\\PC{0,40}", bytes in 0..60_usize) {
            let short = shorten(&text, bytes);
            prop_assert!(short.len() <= bytes);
            prop_assert!(text.starts_with(short.trim_end_matches("...")) || short == text);
        }
    }
}

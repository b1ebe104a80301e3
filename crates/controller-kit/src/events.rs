//! Events on objects. Publishing one never fails a reconcile and never holds it up for long.
//!
//! For six minutes a repeated event (same object, type, reason and action) keeps its first note, so the
//! fact that tells two events apart belongs into the reason or the action. Only objects with very long names have a new
//! event each time.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::api_error;

/// What the API server accepts as a note.
const NOTE_BYTES: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest name of an object whose events the library can name after it: it adds a dot and the time in hexadecimal digits,
/// and no name has more than 253 characters.
const LONGEST: usize = 253 - 17;
/// So much of a longer name begins the name of its events.
const BEGINNING: usize = 50;

/// Publishes events in the name of the controller; clones share what was already said.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    client: Client,
    reporter: Reporter,
}

impl Events {
    /// Events in the name of `controller`, from this pod.
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        let reporter = Reporter {
            controller: format!("ferrite-{controller}"),
            instance: Some(instance.to_owned()),
        };
        Self { recorder: Recorder::new(client.clone(), reporter.clone()), client, reporter }
    }

    /// Something went as it should.
    pub async fn normal(&self, object: &ObjectReference, reason: &str, action: &str, note: &str) {
        self.tell(object, false, reason, action, note).await;
    }

    /// Something a person should look at.
    pub async fn warning(&self, object: &ObjectReference, reason: &str, action: &str, note: &str) {
        self.tell(object, true, reason, action, note).await;
    }

    /// Either of the two, as `warning` says.
    pub async fn tell(
        &self,
        object: &ObjectReference,
        warning: bool,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(shorten(note, NOTE_BYTES)),
            action: action.to_owned(),
            secondary: None,
        };
        let publishing = async {
            if object.name.as_ref().is_some_and(|name| name.len() > LONGEST) {
                return self.publish_of_long_name(event, object).await;
            }
            self.recorder.publish(&event, object).await
        };
        let why = match tokio::time::timeout(PATIENCE, publishing).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => api_error::explain(&error),
            Err(_) => "the API server did not answer in time".to_owned(),
        };
        tracing::warn!(object.name = object.name, reason, error = why, "Could not publish event");
    }

    /// The API server finds the rest of the event's name.
    async fn publish_of_long_name(
        &self,
        event: Event,
        object: &ObjectReference,
    ) -> Result<(), kube::Error> {
        let namespace = object.namespace.as_deref().unwrap_or("default");
        let name = object.name.as_deref().unwrap_or_default();
        let beginning = name.get(..BEGINNING).unwrap_or(name).trim_end_matches(['.', '-']);
        let kind = match event.type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let written = Written {
            action: Some(event.action),
            event_time: Some(MicroTime(Timestamp::now())),
            metadata: ObjectMeta {
                // A dot at the end would be part of a name that is none.
                generate_name: Some(format!("{beginning}-")),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            note: event.note,
            reason: Some(event.reason),
            regarding: Some(object.clone()),
            reporting_controller: Some(self.reporter.controller.clone()),
            reporting_instance: self.reporter.instance.clone(),
            type_: Some(kind.to_owned()),
            ..Written::default()
        };
        let api: Api<Written> = Api::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &written).await.map(drop)
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

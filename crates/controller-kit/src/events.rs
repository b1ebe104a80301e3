//! Events on objects. Publishing one never fails a reconcile and never holds it up for long.
//!
//! For six minutes a repeated event (same object, type, reason and action) keeps its first note, so the
//! fact that tells two events apart belongs into the reason or the action.
//!
//! What was said is remembered as a few numbers. The library's own recorder keeps each event as a whole: where a thousand
//! objects were each told of five times, that is more than all else that a controller remembers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::api_error::{PATIENCE, within};
use crate::shared::Shared;

/// What the API server accepts as a note.
const NOTE_BYTES: usize = 1024;
/// For how long after it was last said an event is a repetition.
const REPEATED: Duration = Duration::from_secs(6 * 60);
/// So much of an object's name begins the name of its events: a dot and the time in hexadecimal digits are added, and no name
/// has more than 253 characters.
const BEGINNING: usize = 253 - 17;

/// What people are told of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// Whether a person should look at it.
    pub warning: bool,
    /// Its word.
    pub reason: Cow<'static, str>,
    /// What it is about, where several of one word may come together: the API server keeps one note for each.
    pub action: String,
    /// Its text.
    pub text: String,
    /// A number, where the fact does not go away and is told once an hour: an event lives no longer. Another number is
    /// another fact.
    pub hourly: Option<u64>,
}

impl Event {
    /// One that is told whenever it is decided.
    pub fn new(
        warning: bool,
        reason: impl Into<Cow<'static, str>>,
        action: &str,
        text: &str,
    ) -> Self {
        let reason = reason.into();
        Self { warning, reason, action: action.to_owned(), text: text.to_owned(), hourly: None }
    }
}

/// Publishes events in the name of the controller; clones share what was already said.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: Arc<str>,
    instance: Arc<str>,
    said: Arc<Shared<Said>>,
}

/// Events that were published lately, each by a number of what makes it one.
#[derive(Default)]
struct Said(HashMap<u64, One>);

/// An event that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct One {
    /// The end of its name: when it was first said, in nanoseconds.
    at: i64,
    /// How often it was said.
    count: i32,
    last: Instant,
}

impl Said {
    /// The event that this one repeats, with itself counted. What was said too long ago is forgotten.
    fn repeats(&mut self, event: u64, now: Instant) -> Option<One> {
        self.0.retain(|_, it| now.duration_since(it.last) < REPEATED);
        let known = self.0.get(&event)?;
        Some(One { count: known.count.saturating_add(1), last: now, ..*known })
    }
}

impl Events {
    /// Events in the name of `controller`, from this pod.
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        let controller = format!("ferrite-{controller}").into();
        Self { client, controller, instance: instance.into(), said: Arc::default() }
    }

    /// Tells people of an event on an object.
    pub async fn tell(&self, object: &ObjectReference, event: &Event) {
        let (name, reason) = (&object.name, &*event.reason);
        if let Err(error) = within(PATIENCE, self.publish(object, event)).await {
            tracing::warn!(object.name = name, reason, error, "Could not publish event");
        }
    }

    async fn publish(&self, object: &ObjectReference, event: &Event) -> Result<(), kube::Error> {
        // Events about what belongs to no namespace stand in this one.
        let namespace = object.namespace.as_deref().unwrap_or("default");
        let api: Api<Written> = Api::namespaced(self.client.clone(), namespace);
        let name = object.name.as_deref().unwrap_or(&self.controller);
        let (number, time, now) = (number(object, event), Timestamp::now(), Instant::now());
        let repeated = self.said.lock().repeats(number, now);
        if let Some(one) = repeated {
            let series = json!({ "count": one.count, "lastObservedTime": MicroTime(time) });
            let patch = Patch::Merge(json!({ "series": series }));
            api.patch(&named(name, one.at), &PatchParams::default(), &patch).await?;
            self.said.lock().0.insert(number, one);
            return Ok(());
        }
        let at = i64::try_from(time.as_nanosecond()).unwrap_or_default();
        let written = Written {
            action: Some(event.action.clone()),
            event_time: Some(MicroTime(time)),
            metadata: ObjectMeta {
                name: Some(named(name, at)),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            note: Some(shorten(&event.text, NOTE_BYTES)),
            reason: Some(event.reason.to_string()),
            regarding: Some(object.clone()),
            reporting_controller: Some(self.controller.to_string()),
            reporting_instance: Some(self.instance.to_string()),
            type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
            ..Written::default()
        };
        api.create(&PostParams::default(), &written).await?;
        self.said.lock().0.insert(number, One { at, count: 1, last: now });
        Ok(())
    }
}

/// The name of an event about an object with this name.
fn named(name: &str, at: i64) -> String {
    // A dot or a dash before the dot would make a name that is none.
    let beginning = name.get(..BEGINNING).unwrap_or(name).trim_end_matches(['.', '-']);
    format!("{beginning}.{at:x}")
}

/// A number of what makes an event another one.
fn number(object: &ObjectReference, event: &Event) -> u64 {
    // A version is only a moment of the object.
    let object = ObjectReference { resource_version: None, ..object.clone() };
    let mut hasher = DefaultHasher::new();
    (json!(object).to_string(), event.warning, &event.reason, &event.action).hash(&mut hasher);
    hasher.finish()
}

/// Cuts text to at most `bytes`, never inside a character, and shows that something is missing.
pub fn shorten(text: &str, bytes: usize) -> String {
    const MORE: &str = "...";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let Some(mut cut) = bytes.checked_sub(MORE.len()) else { return String::new() };
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{MORE}", &text[..cut])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_said_again_within_six_minutes_counts_and_after_that_is_new() {
        let (began, mut said) = (Instant::now(), Said::default());
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(said.repeats(7, began), None);
        said.0.insert(7, One { at: 1, count: 1, last: began });
        assert_eq!(said.repeats(8, began), None, "another one");
        let again = One { at: 1, count: 2, last: after(359) };
        assert_eq!(said.repeats(7, after(359)), Some(again));
        said.0.insert(7, again);
        assert_eq!(said.repeats(7, after(718)).map(|it| it.count), Some(3));
        assert_eq!(said.repeats(7, after(719)), None);
        assert!(said.0.is_empty(), "forgotten");
    }

    #[test]
    fn an_event_is_another_one_for_another_object_type_reason_or_action_and_not_for_another_version()
     {
        let object = |name: &str, version: &str| ObjectReference {
            name: Some(name.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectReference::default()
        };
        let event = |reason, action| Event::new(false, reason, action, "");
        let held = event("Held", "Reboot");
        let one = number(&object("a", "1"), &held);
        assert_eq!(number(&object("a", "2"), &held), one);
        for other in [
            number(&object("b", "1"), &held),
            number(&object("a", "1"), &Event { warning: true, ..held.clone() }),
            number(&object("a", "1"), &event("HeldReboot", "")),
            number(&object("a", "1"), &event("Held", "Look")),
        ] {
            assert_ne!(other, one);
        }
    }

    #[test]
    fn an_event_about_an_object_with_a_very_long_name_has_a_name_that_can_be() {
        assert_eq!(named("h.example", 255), "h.example.ff");
        let odd = format!("{}.-b", "a".repeat(BEGINNING - 2));
        for long in ["a".repeat(253), odd] {
            let name = named(&long, i64::MAX);
            assert!(name.len() <= 253 && !name.contains("-.") && !name.contains(".."), "{name}");
        }
    }

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

//! The pages of `docs/reference/reasons`: each reason that a person reads on an object, from the tables of the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use anyhow::ensure;
use controller_kit::engine::reasons::{About, Kind, Location, ObjectPart};

use crate::controllers::{self, Controller};

const NOTE: &str = "Made from the code by `cargo xtask crdgen`.\n\n\
    The message beside a reason names objects and facts. The event `Undecodable` is a warning about an object that the \
    controller cannot read: [correct the field that it names](../../runbooks/FerriteUndecodableObjects.md).\n";

/// Names of the pages and their text.
///
/// # Errors
/// When a controller has a word twice: one heading explains one reason.
pub(crate) fn pages() -> anyhow::Result<BTreeMap<String, String>> {
    let page_of =
        |it: &Controller| Ok((format!("{}.md", it.name), page(it.name, &(it.reasons)())?));
    controllers::pods().map(page_of).collect()
}

fn page(controller: &str, all: &[&About]) -> anyhow::Result<String> {
    let shown: Vec<&About> = all.iter().copied().filter(|it| !it.places.is_empty()).collect();
    let mut words = BTreeSet::new();
    for reason in &shown {
        ensure!(words.insert(reason.word), "{controller} has the reason {} twice", reason.word);
    }
    let mut text = format!("# Reasons of {controller}\n\n{NOTE}");
    for place in places(&shown) {
        let there = shown.iter().filter(|it| it.places.contains(&place));
        let links: Vec<String> = there.map(|it| link(it.word)).collect();
        let _ = write!(
            text,
            "\n## {}: {}\n\n{}\n\n{}\n",
            place.object,
            place.part,
            place.about,
            links.join(", ")
        );
    }
    text.push_str("\n## What each reason means\n");
    for reason in &shown {
        text.push_str(&section(reason));
    }
    Ok(text)
}

/// In the order in which the reasons name them, events last: a condition lasts, and is looked up more often.
fn places(shown: &[&About]) -> Vec<Location> {
    let mut places = Vec::new();
    for place in shown.iter().flat_map(|it| it.places) {
        if !places.contains(place) {
            places.push(*place);
        }
    }
    places.sort_by_key(|it| it.part == ObjectPart::Event);
    places
}

fn link(word: &str) -> String {
    format!("[{word}](#{})", word.to_lowercase())
}

fn section(reason: &About) -> String {
    let About { word, meaning, action, more, see, .. } = reason;
    let places: Vec<String> =
        reason.places.iter().map(|it| format!("{}, {}", it.object, it.part)).collect();
    let mut text =
        format!("\n### {word}\n\n{}.{}\n\n{meaning}\n", places.join("; "), lasts(reason));
    match (action.is_empty(), more.is_empty()) {
        (true, true) => text.push_str("\n**Do:** Nothing.\n"),
        (true, false) => _ = write!(text, "\n**Do:** {more}\n"),
        (false, true) => _ = write!(text, "\n**Do:** {}\n", sentence(action)),
        (false, false) => _ = write!(text, "\n**Do:** {}\n\n{more}\n", sentence(action)),
    }
    if !see.is_empty() {
        let _ = write!(text, "\nSee [{}](../../{see}).\n", title(see));
    }
    text
}

/// How long a reason stands on an object; an event has no time.
fn lasts(reason: &About) -> String {
    if reason.places.iter().all(|it| it.part == ObjectPart::Event) {
        return String::new();
    }
    match reason.kind {
        Kind::Rests => String::new(),
        Kind::Waits => " Stays until its cause ends.".to_owned(),
        Kind::EndsWithin(most) => format!(" Ends within {}, or is overdue.", time(most)),
    }
}

fn time(most: Duration) -> String {
    let (count, unit) = match most.as_secs() {
        seconds if seconds.is_multiple_of(3600) => (seconds / 3600, "hour"),
        seconds => (seconds / 60, "minute"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// An action begins small where the code appends it to a message.
fn sentence(action: &str) -> String {
    let mut letters = action.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let text: String = first.chain(letters).collect();
    if text.ends_with('.') { text } else { text + "." }
}

/// A runbook has the name of its alert; other pages are named by their heading.
fn title(see: &str) -> String {
    let (file, anchor) = see.split_once('#').unwrap_or((see, ""));
    let name = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".md");
    if anchor.is_empty() || file.starts_with("runbooks/") {
        return name.to_owned();
    }
    format!("{name}: {}", anchor.replace('-', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOOR: Location =
        Location::new("Door", ObjectPart::Condition("Open"), "Whether it is open.");
    const NEWS: Location = Location::new("Door", ObjectPart::Event, "News.");
    const JAMMED: About = About {
        word: "Jammed",
        meaning: "The door is jammed.",
        action: "oil it",
        kind: Kind::EndsWithin(Duration::from_secs(3600)),
        promise: None,
        places: &[DOOR, NEWS],
        more: "Push `hard`.",
        see: "controllers/door.md#old-doors",
    };

    #[test]
    fn a_reason_has_a_heading_its_places_and_what_to_do() {
        let opened =
            About { word: "Opened", places: &[NEWS], action: "", more: "", see: "", ..JAMMED };
        let hidden = About { word: "Hidden", places: &[], ..JAMMED };
        let text = page("house", &[&JAMMED, &opened, &hidden]).unwrap();
        for part in [
            "## Door: condition `Open`\n\nWhether it is open.\n\n[Jammed](#jammed)\n",
            "## Door: event\n\nNews.\n\n[Jammed](#jammed), [Opened](#opened)\n",
            "### Jammed\n\nDoor, condition `Open`; Door, event. Ends within 1 hour, or is overdue.\n\n\
             The door is jammed.\n\n**Do:** Oil it.\n\nPush `hard`.\n\n\
             See [door: old doors](../../controllers/door.md#old-doors).\n",
            "### Opened\n\nDoor, event.\n\nThe door is jammed.\n\n**Do:** Nothing.\n",
        ] {
            assert!(text.contains(part), "{part}\nis not in:\n{text}");
        }
        assert!(!text.contains("Hidden"), "{text}");
        let early = About { word: "Early", places: &[NEWS, DOOR], ..JAMMED };
        let places = places(&[&early]);
        assert_eq!(places, [DOOR, NEWS], "events are last");
    }

    #[test]
    fn a_word_with_two_meanings_on_one_page_is_refused() {
        assert!(page("house", &[&JAMMED, &JAMMED]).is_err());
    }
}

//! The reasons of the five controllers, as their own tables have them.

use std::collections::BTreeSet;

use controller_kit::engine::reasons::{About, Kind, Location, ObjectPart, Reason};

use crate::ask::nearest;
use crate::text;

/// A reason, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) controller: &'static str,
    pub(crate) about: &'static About,
}

fn of<R: Reason>(controller: &'static str) -> impl Iterator<Item = Known> {
    R::ALL.iter().map(move |it| Known { controller, about: it.about() })
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Known> {
    use clusterpool_inventory::reason as pool;
    use host_discovery::reason as discovery;
    of::<bmo_reboot::reason::Reason>("bmo-reboot")
        .chain(of::<capm3_reuse::reason::Reason>("capm3-reuse"))
        .chain(of::<pool::Notice>("clusterpool-inventory"))
        .chain(of::<pool::Reason>("clusterpool-inventory"))
        .chain(of::<pool::Pass>("clusterpool-inventory"))
        .chain(of::<discovery::Notice>("host-discovery"))
        .chain(of::<discovery::Reason>("host-discovery"))
        .chain(of::<discovery::Pass>("host-discovery"))
        .chain(of::<remediation::reason::Reason>("remediation"))
}

/// The words of the controllers that are nearest to one.
pub(crate) fn near(word: &str) -> Vec<String> {
    let words: BTreeSet<&str> = all().filter(|it| it.waits()).map(|it| it.about.word).collect();
    if words.contains(word) {
        return Vec::new();
    }
    nearest(word, words.into_iter().map(str::to_owned))
}

/// The reason of this word in this part of an object: the name of a condition, or the path of a list.
pub(crate) fn find(kind: &str, part: &str, word: &str) -> Option<Known> {
    all().find(|it| {
        let is_there = |place| names(kind, part, place);
        it.about.word == word && it.about.places.iter().any(is_there)
    })
}

/// Whether a place of the reference is this part.
fn names(kind: &str, part: &str, place: &Location) -> bool {
    place.object == kind && path(place) == Some(part)
}

/// The name of the condition, or the path of the list, at a place that `why` reads.
pub(crate) fn path(place: &Location) -> Option<&'static str> {
    match place.part {
        ObjectPart::Condition(name) => Some(name),
        ObjectPart::List(path) => Some(path),
        ObjectPart::Field(_) | ObjectPart::Event | ObjectPart::Metric(_) => None,
    }
}

impl Known {
    pub(crate) fn of_entry(reason: clusterpool_inventory::reason::Reason) -> Self {
        Self { controller: "clusterpool-inventory", about: reason.about() }
    }

    /// Whether what rests in it waits for something.
    pub(crate) fn waits(self) -> bool {
        self.about.kind != Kind::Rests
    }

    /// What a person can do, as one line.
    pub(crate) fn action(self) -> String {
        let About { action, more, .. } = *self.about;
        let said = if action.is_empty() { more } else { action };
        match said {
            "" if self.waits() => text::WAIT.to_owned(),
            "" => String::new(),
            said => sentence(said),
        }
    }

    /// The page that says how.
    pub(crate) fn page(self) -> Option<String> {
        let see = self.about.see;
        (!see.is_empty()).then(|| format!("docs/{see}"))
    }
}

/// An action begins small where a controller appends it to a message.
fn sentence(action: &str) -> String {
    let mut letters = action.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let text: String = first.chain(letters).collect();
    if text.ends_with('.') { text } else { text + "." }
}

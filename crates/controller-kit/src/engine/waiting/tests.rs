//! For what reason keys wait, and since when.

use std::time::Duration;

use super::*;
use crate::engine::reasons::{Location, ObjectPart};
use crate::reasons;

const DOOR: Location = Location::new("Door", ObjectPart::Condition("Open"), "Whether it is open.");

reasons! {
    /// Why somebody waits.
    enum Why {
        Fine: Kind::Rests, "Nothing is to be done.";
        Full: Kind::Waits, "There is no room.", "Make room.";
        Moving: Kind::EndsWithin(Duration::from_secs(60)), "It is being moved.", on: [DOOR], more: "Slowly.", see: "moving.md";
    }
}

#[test]
fn a_reason_knows_its_word_meaning_and_action() {
    let words: Vec<&str> = Why::ALL.iter().map(|it| it.as_str()).collect();
    assert_eq!(words, ["Fine", "Full", "Moving"]);
    let about = Why::Full.about();
    assert_eq!((about.meaning, about.action), ("There is no room.", "Make room."));
    assert_eq!((about.places, about.more, about.see), (&[][..], "", ""));
    assert_eq!(Why::Fine.about().action, "");
    let about = Why::Moving.about();
    assert_eq!((about.places, about.more, about.see), (&[DOOR][..], "Slowly.", "moving.md"));
}

#[test]
fn a_wait_begins_with_its_reason_and_ends_with_the_next() {
    let (waiting, began) = (Waiting::<u8>::default(), Instant::now());
    let at = |second: u64| began + Duration::from_secs(second);
    waiting.note(1, Why::Full.about(), at(0));
    waiting.note(1, Why::Full.about(), at(5));
    waiting.note(2, Why::Full.about(), at(8));
    assert_eq!(waiting.count(at(10))["Full"], (2.0, 10.0, 0.0));
    waiting.note(1, Why::Moving.about(), at(10));
    waiting.note(2, Why::Fine.about(), at(10));
    assert_eq!(waiting.count(at(70))["Moving"], (1.0, 60.0, 0.0));
    assert_eq!(waiting.count(at(71))["Moving"], (1.0, 61.0, 1.0), "it is overdue");
    waiting.failed(1, "Refused", at(80));
    assert_eq!(waiting.count(at(90))["Refused"], (1.0, 10.0, 0.0));
    assert_eq!(waiting.count(at(681))["Refused"], (1.0, 601.0, 1.0), "nobody else tells of it");
    waiting.forget(&1);
    assert!(waiting.count(at(90)).is_empty() && waiting.0.lock().is_empty());
}

#[test]
fn every_reason_that_waits_is_a_series_from_the_start() {
    let (waiting, registry) = (Waiting::<u8>::default(), Registry::new());
    waiting.register::<Why>("some-one", &registry).unwrap();
    let families = registry.gather();
    let names: Vec<&str> = families.iter().map(prometheus::proto::MetricFamily::name).collect();
    assert_eq!(
        names,
        [
            "ferrite_some_one_waiting",
            "ferrite_some_one_waiting_oldest_seconds",
            "ferrite_some_one_waiting_overdue"
        ]
    );
    let reasons = 2 + error::WORDS.len();
    assert!(families.iter().all(|it| it.get_metric().len() == reasons));
}

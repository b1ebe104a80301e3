//! For what reason keys wait, and since when.

use std::time::Duration;

use prometheus::core::Collector as _;

use super::*;
use crate::engine::reasons::{Location, ObjectPart};
use crate::reasons;

const DOOR: Location = Location::new("Door", ObjectPart::Condition("Open"), "Whether it is open.");

reasons! {
    /// Why somebody waits.
    enum Why {
        Fine: Kind::Rests, "Nothing is to be done.";
        Full: Kind::Waits, "There is no room.", "Make room.";
        Seated: Kind::Rests, "There is room.", promise: Duration::from_secs(1);
        Moving: Kind::EndsWithin(Duration::from_secs(60)),
            "It is being moved.", "Wait.", promise: Duration::from_secs(5), on: [DOOR], more: "Slowly.", see: "moving.md";
    }
}

#[test]
fn a_reason_knows_its_word_meaning_and_action() {
    let words: Vec<&str> = Why::ALL.iter().map(|it| it.as_str()).collect();
    assert_eq!(words, ["Fine", "Full", "Seated", "Moving"]);
    let about = Why::Full.about();
    assert_eq!((about.meaning, about.action), ("There is no room.", "Make room."));
    assert_eq!((about.places, about.more, about.see), (&[][..], "", ""));
    assert_eq!(Why::Fine.about().action, "");
    assert_eq!((about.promise, Why::Seated.about().promise), (None, Some(Duration::from_secs(1))));
    let about = Why::Moving.about();
    assert_eq!((about.action, about.promise), ("Wait.", Some(Duration::from_secs(5))));
    assert_eq!((about.places, about.more, about.see), (&[DOOR][..], "Slowly.", "moving.md"));
}

/// Since this process acts, nothing is due for long.
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn registered() -> (Waiting<u8>, Registry) {
    let registry = Registry::new();
    (Waiting::register::<Why>("some-one", &registry).unwrap(), registry)
}

#[test]
fn a_wait_begins_with_its_reason_and_ends_with_the_next() {
    let ((waiting, _), began) = (registered(), Instant::now());
    let at = |second: u64| began + Duration::from_secs(second);
    waiting.note(1, Why::Full.about(), AT_ONCE, at(0));
    waiting.note(1, Why::Full.about(), AT_ONCE, at(5));
    waiting.note(2, Why::Full.about(), AT_ONCE, at(8));
    assert_eq!(waiting.count(at(10))["Full"], (2.0, 10.0, 0.0));
    waiting.note(1, Why::Moving.about(), AT_ONCE, at(10));
    waiting.note(2, Why::Fine.about(), AT_ONCE, at(10));
    assert_eq!(waiting.count(at(70))["Moving"], (1.0, 60.0, 0.0));
    assert_eq!(waiting.count(at(71))["Moving"], (1.0, 61.0, 1.0), "it is overdue");
    waiting.note(1, Failing::Refused.about(), AT_ONCE, at(80));
    assert_eq!(waiting.count(at(90))["Refused"], (1.0, 10.0, 0.0));
    assert_eq!(waiting.count(at(681))["Refused"], (1.0, 601.0, 1.0), "nobody else tells of it");
    waiting.forget(&1, Some(at(90)));
    assert!(waiting.count(at(90)).is_empty() && waiting.rests.lock().is_empty());
}

/// How many waits for a reason have ended, and how many seconds they took together.
fn ended(waiting: &Waiting<u8>, word: &str) -> (u64, f64) {
    let of_word = waiting.waited.with_label_values(&[word]);
    (of_word.get_sample_count(), of_word.get_sample_sum())
}

#[test]
fn a_wait_is_counted_once_when_its_reason_or_its_key_goes() {
    let ((waiting, _), began) = (registered(), Instant::now());
    let at = |second: u64| began + Duration::from_secs(second);
    waiting.note(1, Why::Full.about(), AT_ONCE, at(0));
    waiting.note(1, Why::Full.about(), AT_ONCE, at(20));
    assert_eq!(ended(&waiting, "Full"), (0, 0.0), "it goes on");
    waiting.note(1, Failing::Refused.about(), AT_ONCE, at(30));
    assert_eq!(ended(&waiting, "Full"), (1, 30.0));
    waiting.note(1, Why::Moving.about(), AT_ONCE, at(32));
    assert_eq!(ended(&waiting, "Refused"), (1, 2.0));
    waiting.forget(&1, Some(at(40)));
    assert_eq!(ended(&waiting, "Moving"), (1, 8.0));
    waiting.note(2, Why::Full.about(), AT_ONCE, at(40));
    waiting.note(2, Why::Fine.about(), AT_ONCE, at(50));
    waiting.note(2, Why::Fine.about(), AT_ONCE, at(60));
    assert_eq!(ended(&waiting, "Full"), (2, 40.0));
}

#[test]
fn a_wait_whose_beginning_or_end_nobody_saw_is_not_counted() {
    let ((waiting, _), began) = (registered(), Instant::now());
    let at = |second: u64| began + Duration::from_secs(second);
    waiting.note(1, Why::Full.about(), None, at(0));
    waiting.note(1, Why::Full.about(), AT_ONCE, at(1));
    waiting.note(1, Why::Moving.about(), AT_ONCE, at(2));
    assert_eq!(ended(&waiting, "Full"), (0, 0.0), "it may have begun long before");
    waiting.forget(&1, None);
    assert_eq!(ended(&waiting, "Moving"), (0, 0.0), "another process goes on with it");
    waiting.note(1, Why::Moving.about(), AT_ONCE, at(3));
    waiting.note(1, Why::Fine.about(), AT_ONCE, at(5));
    assert_eq!(ended(&waiting, "Moving"), (1, 2.0));
}

#[test]
fn a_promise_counts_once_each_time_that_its_reason_comes() {
    let ((waiting, _), now) = (registered(), Instant::now());
    let counted =
        |word: &str| RESULTS.map(|it| waiting.promises.with_label_values(&[word, it]).get());
    let after = |seconds: u64| Some(Duration::from_secs(seconds));
    waiting.note(1, Why::Moving.about(), after(5), now);
    waiting.note(1, Why::Moving.about(), after(9), now);
    assert_eq!(counted("Moving"), [1, 0], "the later look found nothing new");
    waiting.note(1, Failing::Refused.about(), after(9), now);
    waiting.note(1, Why::Moving.about(), after(6), now);
    assert_eq!(counted("Moving"), [1, 1]);
    waiting.note(2, Why::Seated.about(), after(1), now);
    waiting.note(2, Why::Seated.about(), after(2), now);
    assert_eq!(counted("Seated"), [1, 1], "what rests is new each time");
    waiting.note(3, Why::Seated.about(), None, now);
    assert_eq!(counted("Seated"), [1, 1], "nobody knows how long it was due");
    waiting.note(3, Why::Full.about(), after(9), now);
    assert_eq!(waiting.promises.collect()[0].get_metric().len(), 4, "no other reason counts");
}

#[test]
fn every_reason_is_a_series_from_the_start() {
    let (_, registry) = registered();
    let families = registry.gather();
    let series: Vec<_> = families.iter().map(|it| (it.name(), it.get_metric().len())).collect();
    let waits = 2 + Failing::ALL.len();
    let wanted = [
        ("ferrite_some_one_decisions_total", 4),
        ("ferrite_some_one_events_dropped_total", 1),
        ("ferrite_some_one_promises_total", 4),
        ("ferrite_some_one_waited_seconds", waits),
        ("ferrite_some_one_waiting", waits),
        ("ferrite_some_one_waiting_oldest_seconds", waits),
        ("ferrite_some_one_waiting_overdue", waits),
    ];
    assert_eq!(series, wanted);
}

//! Which readings count for whom, and when many are told by one list. Nothing is asked of any Ironic.

use std::sync::Mutex;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::settings::Settings;

/// Tells what it is shown, and keeps what is named so.
#[derive(Default)]
struct Follower {
    keeps: &'static str,
    shown: Mutex<Vec<String>>,
}

impl Follow for Follower {
    fn acts(&self) -> bool {
        true
    }

    fn shown(&self, node: &Node) -> bool {
        self.shown.lock().unwrap().push(node.uuid.clone());
        node.uuid == self.keeps
    }

    fn listed(&self, _: &HashSet<ThingName>) {}

    fn asked(&self, _: &Result<()>) {}
}

fn nodes() -> Nodes {
    let settings = Settings::from_lookup(Some("http://127.0.0.1:9"), |_| None).unwrap();
    Nodes::new(Client::new(settings).unwrap(), Detail::Basic)
}

fn node(uuid: &str, name: &str) -> Node {
    serde_json::from_value(json!({ "uuid": uuid, "name": name })).unwrap()
}

fn after() -> Instant {
    Instant::now() + Duration::from_millis(1)
}

#[test]
fn only_what_a_list_read_after_the_call_counts_and_stands_for_one_look() {
    let (nodes, before, follower) =
        (nodes(), Instant::now(), Follower { keeps: "a", ..Follower::default() });
    nodes.renew("a", true);
    nodes.show(node("a", ""), before, &follower);
    assert!(nodes.ready("a").is_none() && follower.shown.lock().unwrap().is_empty());
    nodes.show(node("a", ""), after(), &follower);
    assert!(nodes.ready("a").is_some() && nodes.ready("a").is_none());
    let calling = nodes.calling("a");
    nodes.show(node("a", ""), after(), &follower);
    assert!(nodes.ready("a").is_none(), "a call is under way");
    drop(calling);
    nodes.show(node("a", ""), before, &follower);
    assert!(nodes.ready("a").is_none(), "it was read before the answer");
    nodes.show(node("a", ""), after(), &follower);
    nodes.renew("a", false);
    assert!(nodes.ready("a").is_none(), "whoever looks asks for something else now");
    assert_eq!(follower.shown.lock().unwrap().len(), 2);
}

#[test]
fn a_node_is_found_by_its_name_and_one_that_nobody_waits_for_is_shown_too() {
    let (nodes, follower) = (nodes(), Follower { keeps: "a", ..Follower::default() });
    nodes.renew("n~h", true);
    nodes.show(node("a", "n~h"), after(), &follower);
    assert!(nodes.ready("n~h").is_some_and(|it| it.node.uuid == "a"));
    nodes.show(node("b", "other"), after(), &follower);
    assert!(nodes.ready("b").is_none(), "nothing is to be done about it");
    let fresh = self::nodes();
    fresh.show(node("a", "n~h"), Instant::now(), &follower);
    assert!(fresh.ready("a").is_some(), "for who is woken by it");
    nodes.renew("c", false);
    assert!(!nodes.lock().wants.contains_key("c"), "nobody waits for that one");
}

#[test]
fn many_are_told_by_one_list_and_the_last_of_them_too() {
    let nodes = nodes();
    let crowd = || nodes.lock().is_crowd(Instant::now());
    let ids: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    for id in &ids[..FEW] {
        nodes.renew(id, true);
    }
    assert!(!crowd(), "a request for each is no more work");
    nodes.renew(&ids[FEW], true);
    assert!(crowd() && nodes.pace("0") == LISTED_PACE);
    for id in &ids[..FEW] {
        nodes.rests(id);
    }
    assert!(crowd(), "the last one was told to wait for a list");
    nodes.rests(&ids[FEW]);
    assert!(!crowd());
    nodes.lock().last.nodes = 100;
    ids[..10].iter().for_each(|id| nodes.renew(id, true));
    assert!(!crowd(), "the list is long");
    ids[10..].iter().for_each(|id| nodes.renew(id, true));
    assert!(crowd());
}

#[test]
fn a_crowd_that_calls_is_one_when_the_first_of_its_calls_ends() {
    let nodes = nodes();
    let crowd = || nodes.lock().is_crowd(Instant::now());
    let ids: Vec<String> = (0..=FEW).map(|number| number.to_string()).collect();
    for id in &ids {
        nodes.renew(id, true);
    }
    let mut calls: Vec<_> = ids.iter().map(|id| nodes.calling(id)).collect();
    assert!(!crowd(), "no list would tell anybody anything");
    calls.pop();
    assert!(crowd() && nodes.pace(&ids[FEW]) == LISTED_PACE);
    for id in &ids {
        nodes.rests(id);
    }
    drop(calls);
    assert!(!crowd());
    nodes.renew("a", true);
    assert!(!crowd(), "that one was over");
}

#[tokio::test]
async fn a_list_that_hangs_is_waited_for_no_longer_than_lists_take() {
    let nodes = nodes();
    let began = Instant::now();
    nodes.lock().last =
        Listed { nodes: 9, took: Duration::from_millis(50), ended: began.checked_sub(PATIENCE) };
    (0..=FEW).for_each(|number| nodes.renew(&format!("n{number}"), true));
    nodes.lock().listing = Some(began);
    let waits = |passed| nodes.lock().list_in(began + passed, nodes.patience());
    assert_eq!(waits(Duration::ZERO), nodes.patience());
    assert_eq!(nodes.pace("n0"), LISTED_PACE);
    nodes.lock().listing = began.checked_sub(nodes.patience());
    let looked = tokio::time::timeout(nodes.patience(), nodes.awaited("n0")).await;
    assert!(looked.is_ok_and(|it| it.is_none()), "all of them would wait");
    assert!(nodes.pace("n0") < LISTED_PACE, "no list tells of it");
    nodes.lock().last.took = Duration::from_secs(1);
    assert_eq!(waits(Duration::ZERO), 2 * Duration::from_secs(1), "of many nodes it takes longer");
}

#[test]
fn who_has_waited_for_long_brings_no_list_about_and_is_looked_at_ever_more_rarely() {
    let nodes = nodes();
    nodes.renew("a", true);
    assert!(nodes.pace("a") < Duration::from_secs(1));
    let old = Instant::now().checked_sub(YOUNG * 2).unwrap();
    nodes.lock().wants.get_mut("a").unwrap().since = old;
    assert!((YOUNG / 4..YOUNG / 3).contains(&nodes.pace("a")));
    assert!(!nodes.lock().wants["a"].is_open(Instant::now()));
    nodes.renew("a", true);
    assert_eq!(nodes.lock().wants["a"].since, old, "it waits for the same still");
    let mut shared = nodes.lock();
    shared.forget(Instant::now());
    assert_eq!(shared.wants.len(), 1);
    shared.forget(Instant::now() + YOUNG);
    assert!(shared.wants.is_empty(), "nobody came back for it");
}

proptest! {
    /// However it comes about: nobody is given a reading that began before the last call to the node was answered.
    #[test]
    fn no_reading_is_older_than_the_answer_to_the_last_call(steps in prop::collection::vec(0_u8..7, 1..40)) {
        let (nodes, follower) = (nodes(), Follower { keeps: "a", ..Follower::default() });
        let (mut calling, mut answered, mut old) = (None, None, Instant::now());
        for step in steps {
            match step {
                0 => nodes.renew("a", true),
                1 => nodes.rests("a"),
                // A node has one call at a time.
                2 => calling = calling.or_else(|| Some(nodes.calling("a"))),
                3 => if calling.take().is_some() {
                    answered = Some(Instant::now());
                },
                4 => nodes.show(node("a", ""), old, &follower),
                5 => nodes.show(node("a", ""), after(), &follower),
                _ => old = Instant::now(),
            }
            if let Some(reading) = nodes.ready("a") {
                prop_assert!(calling.is_none(), "a call is under way");
                prop_assert!(answered.is_none_or(|answered| answered <= reading.began));
            }
        }
    }
}

use proptest::prelude::*;

use super::*;

fn timing() -> LeaseConfig {
    LeaseConfig {
        namespace: None,
        name: "lease".to_owned(),
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn view(holder: Option<&str>, held_since: Option<u64>) -> View {
    View {
        record: holder.map(|holder| Record {
            holder: holder.to_owned(),
            duration: secs(15),
            version: "1".to_owned(),
        }),
        fresh: true,
        seen: secs(100),
        held_since: held_since.map(secs),
    }
}

#[test]
fn each_situation_has_its_next_step() {
    let table = [
        ("nobody looked yet", View::default(), 0, Next::Read),
        ("there is none", view(None, None), 100, Next::Create),
        ("free", view(Some(""), None), 100, Next::Take),
        (
            "ours after an unknown outcome",
            view(Some("me"), None),
            100,
            Next::Take,
        ),
        (
            "just seen alive",
            view(Some("other"), None),
            100,
            Next::WaitUntil(secs(115)),
        ),
        (
            "silent for almost long enough",
            view(Some("other"), None),
            114,
            Next::WaitUntil(secs(115)),
        ),
        (
            "silent for long enough",
            view(Some("other"), None),
            115,
            Next::Take,
        ),
        (
            "ours and fresh",
            view(Some("me"), Some(100)),
            101,
            Next::WaitUntil(secs(102)),
        ),
        (
            "ours and due",
            view(Some("me"), Some(100)),
            102,
            Next::Renew,
        ),
        (
            "ours for too long",
            view(Some("me"), Some(100)),
            110,
            Next::Lost,
        ),
        (
            "taken from us",
            view(Some("other"), Some(100)),
            101,
            Next::Lost,
        ),
        ("deleted under us", view(None, Some(100)), 101, Next::Lost),
    ];
    for (situation, view, now, expected) in table {
        assert_eq!(
            next("me", &timing(), &view, secs(now)),
            expected,
            "{situation}"
        );
    }
    let unsure = View {
        fresh: false,
        ..view(Some("me"), Some(100))
    };
    assert_eq!(next("me", &timing(), &unsure, secs(101)), Next::Read);
    assert_eq!(
        next("me", &timing(), &unsure, secs(110)),
        Next::Lost,
        "not even reading helps now"
    );
}

#[test]
fn a_holder_with_a_longer_lease_is_given_its_time() {
    let mut long = view(Some("other"), None);
    long.record.as_mut().unwrap().duration = secs(60);
    assert_eq!(
        next("me", &timing(), &long, secs(130)),
        Next::WaitUntil(secs(160))
    );
}

/// A process in the model: its clock runs at its own speed, from its own start.
#[derive(Clone, Debug)]
struct Node {
    name: &'static str,
    permille: u64,
    view: View,
    ended: bool,
    /// A request on its way: what it wants, on which version, when it was sent, and what came of it.
    pending: Option<(Next, Option<String>, Duration, Option<bool>)>,
}

impl Node {
    fn now(&self, millis: u64) -> Duration {
        Duration::from_millis(millis * self.permille / 1000)
    }

    fn see(&mut self, server: Option<&Record>, now: Duration) {
        self.view.fresh = true;
        if self.view.record.as_ref() != server {
            self.view.record = server.cloned();
            self.view.seen = now;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Step,
    Arrive,
    Answer,
    GiveUp,
    Watch,
    Release,
}

fn acts() -> impl Strategy<Value = Vec<(usize, u64, Act)>> {
    let act = prop_oneof![
        6 => Just(Act::Step),
        6 => Just(Act::Arrive),
        6 => Just(Act::Answer),
        1 => Just(Act::GiveUp),
        3 => Just(Act::Watch),
        1 => Just(Act::Release),
    ];
    prop::collection::vec((0..3_usize, 0..5_000_u64, act), 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn there_are_never_two_holders_while_clocks_differ_by_less_than_the_durations(
        speeds in prop::array::uniform3(850..1_150_u64),
        acts in acts(),
    ) {
        let mut nodes: Vec<Node> = ["a", "b", "c"].iter().zip(speeds).map(|(name, permille)| Node {
            name, permille, view: View::default(), ended: false, pending: None,
        }).collect();
        let mut server: Option<Record> = None;
        let (mut millis, mut writes) = (0, 0_u64);
        for (index, delay, act) in acts {
            millis += delay;
            let node = &mut nodes[index];
            let now = node.now(millis);
            match act {
                Act::Step if node.ended || node.pending.is_some() => {}
                Act::Step => match next(node.name, &timing(), &node.view, now) {
                    Next::Lost => (node.ended, node.view.held_since) = (true, None),
                    Next::WaitUntil(_) => {}
                    Next::Read => node.see(server.as_ref(), now),
                    step => {
                        let version = node.view.record.as_ref().map(|record| record.version.clone());
                        node.pending = Some((step, version, now, None));
                    }
                },
                Act::Arrive => if let Some((_, version, _, outcome @ None)) = &mut node.pending {
                    let fits = *version == server.as_ref().map(|record| record.version.clone());
                    *outcome = Some(fits);
                    if fits {
                        writes += 1;
                        let holder = node.name.to_owned();
                        server = Some(Record { holder, duration: secs(15), version: writes.to_string() });
                    }
                },
                Act::Answer => if let Some((_, _, sent, Some(fits))) = node.pending.clone() {
                    node.pending = None;
                    if fits {
                        node.view.held_since = Some(sent);
                        // What the answer shows is our own write, not what came after it.
                        node.view.fresh = false;
                    } else {
                        node.view.fresh = false;
                    }
                },
                // The request may still arrive: giving up loses the answer only.
                Act::GiveUp => if let Some((_, _, _, Some(_))) = &node.pending {
                    node.pending = None;
                    node.view.fresh = false;
                },
                Act::Watch => node.see(server.as_ref(), now),
                Act::Release => if is_valid(&timing(), &node.view, now)
                    && server.as_ref().is_some_and(|record| record.holder == node.name)
                {
                    (node.view.held_since, node.ended, node.pending) = (None, true, None);
                    writes += 1;
                    server = Some(Record { holder: String::new(), duration: secs(1), version: writes.to_string() });
                },
            }
            let holders: Vec<&str> = nodes.iter()
                .filter(|node| !node.ended && is_valid(&timing(), &node.view, node.now(millis)))
                .map(|node| node.name).collect();
            prop_assert!(holders.len() <= 1, "{holders:?} at {millis} ms");
        }
    }
}

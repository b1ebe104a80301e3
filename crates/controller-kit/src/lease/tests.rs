use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::config::defaults;

static SETTINGS: LazyLock<Settings> = LazyLock::new(defaults);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn view(holder: Option<&str>, held_since: Option<u64>) -> View {
    View {
        record: holder.map(|holder| Record {
            holder: holder.to_owned(),
            duration: secs(15),
            version: "1".to_owned(),
            ..Record::default()
        }),
        fresh: true,
        seen: secs(100),
        held_since: held_since.map(secs),
        lacks: None,
    }
}

/// The same of a process that has lacked something since then.
fn lacking(since: u64, view: View) -> View {
    View { lacks: Some(("a neighbour".to_owned(), secs(since))), ..view }
}

/// The same where the holder says that it lacks something, and who asked for the lease because of that.
fn offered(wanted_by: Option<&str>, mut view: View) -> View {
    let record = view.record.as_mut().unwrap();
    record.lacks = Some("a neighbour".to_owned());
    record.wanted_by = wanted_by.map(str::to_owned);
    view
}

#[test]
fn each_situation_has_its_next_step() {
    let table = [
        ("nobody looked yet", View::default(), 0, Next::Read),
        ("there is none", view(None, None), 100, Next::Create),
        ("free", view(Some(""), None), 100, Next::Take),
        ("ours after an unknown outcome", view(Some("me"), None), 100, Next::Take),
        ("just seen alive", view(Some("other"), None), 100, Next::WaitUntil(secs(115))),
        (
            "silent for almost long enough",
            view(Some("other"), None),
            114,
            Next::WaitUntil(secs(115)),
        ),
        ("silent for long enough", view(Some("other"), None), 115, Next::Take),
        ("ours and fresh", view(Some("me"), Some(100)), 101, Next::WaitUntil(secs(102))),
        ("ours and due", view(Some("me"), Some(100)), 102, Next::Renew),
        ("ours for too long", view(Some("me"), Some(100)), 110, Next::Lost),
        ("taken from us", view(Some("other"), Some(100)), 101, Next::Lost),
        ("deleted under us", view(None, Some(100)), 101, Next::Lost),
    ];
    for (situation, view, now, expected) in table {
        assert_eq!(next("me", &SETTINGS, &view, secs(now)), expected, "{situation}");
    }
    let unsure = View { fresh: false, ..view(Some("me"), Some(100)) };
    assert_eq!(next("me", &SETTINGS, &unsure, secs(101)), Next::Read);
    assert_eq!(next("me", &SETTINGS, &unsure, secs(110)), Next::Lost, "not even reading helps now");
}

#[test]
fn who_lacks_something_takes_a_free_lease_late_and_gives_its_own_to_who_asks() {
    let (ours, others) = (|| view(Some("me"), Some(129)), || view(Some("other"), None));
    let table = [
        ("there is none", lacking(0, view(None, None)), 100, Next::WaitUntil(secs(115))),
        ("nobody fit has come", lacking(0, view(None, None)), 115, Next::Create),
        ("free", lacking(0, view(Some(""), None)), 114, Next::WaitUntil(secs(115))),
        ("free for long", lacking(0, view(Some(""), None)), 115, Next::Take),
        ("silent", lacking(0, others()), 115, Next::WaitUntil(secs(130))),
        ("silent for longer", lacking(0, others()), 130, Next::Take),
        ("ours after an unknown outcome", lacking(0, view(Some("me"), None)), 100, Next::Take),
        ("lacks for a moment", lacking(101, ours()), 130, Next::WaitUntil(secs(131))),
        ("lacks for long", lacking(100, ours()), 130, Next::Renew),
        ("has said so", offered(None, lacking(100, ours())), 130, Next::WaitUntil(secs(131))),
        ("asked by one", offered(Some("other"), lacking(100, ours())), 130, Next::GiveAway),
        ("asked when all is well again", offered(Some("other"), ours()), 130, Next::Renew),
        ("fit beside it", offered(None, others()), 101, Next::Ask),
        ("has asked", offered(Some("me"), others()), 101, Next::WaitUntil(secs(115))),
        ("unfit beside it", offered(None, lacking(0, others())), 101, Next::WaitUntil(secs(130))),
    ];
    for (situation, view, now, expected) in table {
        assert_eq!(next("me", &SETTINGS, &view, secs(now)), expected, "{situation}");
    }
}

#[test]
fn a_holder_with_a_longer_lease_is_given_its_time() {
    let mut long = view(Some("other"), None);
    long.record.as_mut().unwrap().duration = secs(60);
    assert_eq!(next("me", &SETTINGS, &long, secs(130)), Next::WaitUntil(secs(160)));
}

/// Behind an API server whose database was restored nobody else would ever take the lease.
#[test]
fn a_version_that_went_back_is_believed_in_an_answer_and_not_in_the_watch() {
    let record = |version: &str| {
        Some(Record {
            holder: "other".to_owned(),
            version: version.to_owned(),
            ..Record::default()
        })
    };
    let mut view = View::default();
    let mut saw = |version, source, now| {
        view.saw(record(version), source, secs(now));
        (view.record.clone().unwrap().version, view.seen)
    };
    assert_eq!(saw("1000", Source::Watch, 1), ("1000".to_owned(), secs(1)));
    assert_eq!(saw("900", Source::Watch, 2), ("1000".to_owned(), secs(1)));
    assert_eq!(saw("1000", Source::Answer, 3), ("1000".to_owned(), secs(1)));
    assert_eq!(saw("900", Source::Answer, 4), ("900".to_owned(), secs(4)));
}

/// A process in the model: its clock runs at its own speed, from its own start.
#[derive(Clone, Debug, Default)]
struct Node {
    name: String,
    permille: u64,
    view: View,
    pending: Option<Request>,
}

/// A write on its way, conditional on `version`.
#[derive(Clone, Debug)]
struct Request {
    from: String,
    version: Option<String>,
    /// Whether it only asks for the lease.
    asks: bool,
    /// What it says that its sender lacks.
    lacks: Option<String>,
    sent: Duration,
    /// What the server said; `None` before it arrived.
    done: Option<bool>,
}

impl Node {
    fn now(&self, millis: u64) -> Duration {
        Duration::from_millis(millis * self.permille / 1000)
    }

    fn see(&mut self, server: &Server, now: Duration) {
        self.view.saw(server.record.clone(), Source::Answer, now);
    }

    /// The process ends and a new one with another name takes its place.
    fn restart(&mut self) {
        let name = format!("{}'", self.name);
        *self = Self { name, permille: self.permille, ..Self::default() };
    }
}

#[derive(Default)]
struct Server {
    record: Option<Record>,
    writes: u64,
    /// Requests whose senders do not wait any more.
    late: Vec<Request>,
}

impl Server {
    fn carry_out(&mut self, request: &Request) -> bool {
        let Request { from, version, asks, lacks, .. } = request;
        let known = self.record.clone().unwrap_or_default();
        if !self.write(version.as_deref(), if *asks { &known.holder } else { from }) {
            return false;
        }
        let record = self.record.as_mut().unwrap();
        if *asks {
            (record.lacks, record.wanted_by) = (known.lacks, Some(from.clone()));
        } else {
            record.lacks.clone_from(lacks);
        }
        true
    }

    fn write(&mut self, version: Option<&str>, holder: &str) -> bool {
        if version != self.record.as_ref().map(|record| record.version.as_str()) {
            return false;
        }
        self.writes += 1;
        let (holder, version) = (holder.to_owned(), self.writes.to_string());
        self.record = Some(Record { holder, duration: secs(15), version, ..Record::default() });
        true
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The process decides and sends.
    Step,
    /// Its request arrives and is carried out or refused.
    Arrive,
    /// The answer comes back.
    Answer,
    /// It waits no more; the request may still arrive.
    GiveUp,
    Late,
    Watch,
    Release,
    Crash,
    /// What it needs to lead goes, or comes back.
    Lacks,
}

fn acts() -> impl Strategy<Value = Vec<(usize, u64, Act)>> {
    let act = prop_oneof![
        8 => Just(Act::Step),
        8 => Just(Act::Arrive),
        8 => Just(Act::Answer),
        1 => Just(Act::GiveUp),
        1 => Just(Act::Late),
        3 => Just(Act::Watch),
        1 => Just(Act::Release),
        1 => Just(Act::Crash),
        1 => Just(Act::Lacks),
    ];
    let delay = prop_oneof![20 => 0..200_u64, 1 => 5_000..16_000_u64];
    prop::collection::vec((0..3_usize, delay, act), 1..400)
}

fn act(node: &mut Node, server: &mut Server, now: Duration, act: Act) {
    match act {
        Act::Step if node.pending.is_some() => {}
        Act::Step => match next(&node.name, &SETTINGS, &node.view, now) {
            Next::Lost => node.restart(),
            Next::GiveAway => self::act(node, server, now, Act::Release),
            Next::WaitUntil(_) => {}
            Next::Read => node.see(server, now),
            step @ (Next::Create | Next::Take | Next::Renew | Next::Ask) => {
                let version = node.view.record.as_ref().map(|record| record.version.clone());
                let lacks = lacks_for_long(&node.view, now).map(str::to_owned);
                let (from, asks) = (node.name.clone(), step == Next::Ask);
                node.pending = Some(Request { from, version, asks, lacks, sent: now, done: None });
            }
        },
        Act::Arrive => {
            if let Some(request) = node.pending.as_mut().filter(|request| request.done.is_none()) {
                request.done = Some(server.carry_out(request));
            }
        }
        Act::Answer => {
            if let Some(Request { sent, asks, done: Some(done), .. }) = node.pending.clone() {
                node.pending = None;
                node.view.fresh = false;
                if done && !asks {
                    node.view.held_since = Some(sent);
                }
            }
        }
        Act::GiveUp => {
            server.late.extend(node.pending.take().filter(|request| request.done.is_none()));
            node.view.fresh = false;
        }
        Act::Late => {
            if let Some(request) = server.late.pop() {
                server.carry_out(&request);
            }
        }
        Act::Watch => node.see(server, now),
        Act::Release => {
            if let Some(record) = server.record.clone().filter(|record| record.holder == node.name)
            {
                server.late.extend(node.pending.take().filter(|request| request.done.is_none()));
                node.restart();
                server.write(Some(&record.version), "");
            }
        }
        Act::Lacks => {
            let lacks = ("a neighbour".to_owned(), now);
            node.view.lacks = node.view.lacks.is_none().then_some(lacks);
        }
        Act::Crash => {
            server.late.extend(node.pending.take().filter(|request| request.done.is_none()));
            node.restart();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn there_are_never_two_holders_while_clocks_differ_by_less_than_the_durations(
        speeds in prop::array::uniform3(850..1_150_u64),
        acts in acts(),
    ) {
        let mut nodes = speeds.map(|permille| Node { permille, ..Node::default() });
        for (node, name) in nodes.iter_mut().zip(["a", "b", "c"]) {
            name.clone_into(&mut node.name);
        }
        let mut server = Server::default();
        let mut millis = 0;
        for (index, delay, what) in acts {
            millis += delay;
            let now = nodes[index].now(millis);
            act(&mut nodes[index], &mut server, now, what);
            let valid = |node: &&Node| is_valid(&SETTINGS, &node.view, node.now(millis));
            let holders: Vec<&str> = nodes.iter().filter(valid).map(|node| node.name.as_str()).collect();
            prop_assert!(holders.len() <= 1, "{holders:?} at {millis} ms");
        }
    }
}

/// Lets three processes turn by turn decide, send and hear, each half a second, and gives who holds the lease then.
fn after(nodes: &mut [Node], server: &mut Server, seconds: std::ops::Range<u64>) -> String {
    for half in seconds.start * 2..seconds.end * 2 {
        for node in nodes.iter_mut() {
            let now = Duration::from_millis(half * 500);
            for what in [Act::Watch, Act::Step, Act::Arrive, Act::Answer] {
                act(node, server, now, what);
            }
        }
    }
    server.record.as_ref().map(|it| it.holder.clone()).unwrap_or_default()
}

#[test]
fn a_leader_that_lacks_something_leads_on_until_a_fit_replica_is_there() {
    let named = |name: &str| Node { name: name.to_owned(), permille: 1000, ..Node::default() };
    let mut nodes = ["a", "b", "c"].map(named);
    let mut server = Server::default();
    for node in &mut nodes[1..] {
        act(node, &mut server, secs(0), Act::Lacks);
    }
    assert_eq!(after(&mut nodes, &mut server, 0..10), "a", "the fit one leads");
    act(&mut nodes[0], &mut server, secs(10), Act::Lacks);
    assert_eq!(after(&mut nodes, &mut server, 10..100), "a", "no other would do better");
    assert!(server.record.as_ref().unwrap().lacks.is_some(), "it says so");
    act(&mut nodes[1], &mut server, secs(100), Act::Lacks);
    assert_eq!(after(&mut nodes, &mut server, 100..103), "b", "the fit one has asked");
    assert_eq!(server.record.as_ref().unwrap().lacks, None);
}

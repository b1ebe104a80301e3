//! Single calls of Ironic: the process is stopped at each of them, or somebody asks for something while one is on its way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::ironic::{self, Ironic, Options};
use bench::observer::Observer;
use bench::proxy::{Fault, Moment, Proxy, Recorded, power_changes};
use bmo_reboot::settings::Policy;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::invariants::{MARK, invariants};
use super::{
    HARD, PATIENCE, PLAIN, Site, condition, keys, kind, machine, quick, record, stamps, switch,
};

const HOLD: &str = "reboot.metal3.io/a";
const LATE: &str = "reboot.metal3.io/late";

/// What a client asks for.
#[derive(Clone, Copy)]
struct Course {
    name: &'static str,
    key: &'static str,
    mode: &'static str,
    /// Whether the driver cannot ask the operating system.
    only_hard: bool,
    /// Whether a machine is behind the node, which takes its time.
    has_machine: bool,
    /// How often Ironic is asked for a change of power.
    calls: usize,
}

const HARD_ONE: Course =
    Course { name: "hard", key: PLAIN, mode: HARD, only_hard: false, has_machine: true, calls: 2 };
const SOFT_THEN_HARD: Course = Course {
    name: "soft, then hard",
    mode: "",
    only_hard: true,
    has_machine: false,
    calls: 3,
    ..HARD_ONE
};
const HELD: Course = Course { name: "held", key: HOLD, has_machine: false, ..HARD_ONE };

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_call_of_ironic_costs_no_request_and_adds_no_cycle() {
    let site = Site::new("stopped").await;
    let mut stops = Vec::new();
    for course in [HARD_ONE, SOFT_THEN_HARD, HELD] {
        for number in 1..=course.calls {
            for moment in [Moment::Before, Moment::After] {
                stops.push(stopped(&site, course, (number, moment)));
            }
        }
    }
    join_all(stops).await;
}

/// A course whose first process is stopped at this call, and whose second one does the rest.
async fn stopped(ground: &Site, course: Course, (number, moment): (usize, Moment)) {
    let point = format!("{}, call {number} {moment:?}", course.name);
    let site = Site { namespace: ground.plane.namespace("stopped").await, ..ground.like() };
    let ironic = ironic::shared().await;
    let (machine, node) = if course.has_machine {
        let (_, machine, node) = machine(&site.namespace).await;
        (Some(machine), node)
    } else {
        (None, imaginary(&site).await)
    };
    let proxy = Proxy::start(ironic).await.unwrap();
    let kinds = [kind()];
    let observer = Observer::start(&site.admin, Some(&site.namespace), &kinds).await.unwrap();
    site.host("h", &node, json!({})).await;
    let met = Arc::new(Notify::new());
    let meets = met.clone();
    proxy.crash(number, moment, power_changes, move || meets.notify_one());
    // Ironic cannot refuse what it did.
    let refuses = course.only_hard && (number, moment) != (1, Moment::After);
    if refuses {
        let why = "The driver bench does not support the power state, soft power off";
        let fault = Fault::Answer(StatusCode::BAD_REQUEST, why.to_owned());
        proxy.fault(fault, 1, power_changes);
    }
    let first = site.start(&proxy.endpoint, quick());
    let before = first.handle.clone();
    let relief = async {
        let in_time = tokio::time::timeout(PATIENCE, met.notified()).await;
        assert!(in_time.is_ok(), "{point}: never met");
        drop(first);
        site.start(&proxy.endpoint, quick())
    };
    let client = async {
        site.annotate("h", json!({ (course.key): course.mode, MARK: "asked" })).await;
        if course.key == HOLD {
            site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
            site.annotate("h", json!({ HOLD: null, MARK: "let go" })).await;
        }
        site.cycled("h").await;
    };
    let (second, ()) = tokio::join!(relief, client);
    let history = observer.history(&[before, second.handle.clone()]).await.unwrap();
    let broken = history.check(&invariants(false)).map(|it| it.to_string());
    assert!(broken.is_none(), "{point}: {}", broken.unwrap_or_default());
    let off = if course.only_hard && !refuses { "soft power off" } else { "power off" };
    assert_eq!(proxy.powered(&node), [off, "power on"], "{point}");
    if let Some(machine) = machine {
        let seen = machine.seen().await.unwrap();
        assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{point}: {seen:?}");
    }
}

/// A running node that has no machine behind it, and obeys at once.
async fn imaginary(site: &Site) -> String {
    let ironic = ironic::shared().await;
    let node = ironic.enroll_fake(&site.namespace).await.unwrap();
    switch(ironic, &node, "power on").await;
    node
}

/// The write before a power-on proves that nobody held the host then. What is left is the way of one call.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_comes_while_the_power_on_is_on_its_way_is_honoured_by_another_cycle() {
    let site = Site::new("on-its-way").await;
    let ironic = ironic::shared().await;
    let node = imaginary(&site).await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let kinds = [kind()];
    let observer = Observer::start(&site.admin, Some(&site.namespace), &kinds).await.unwrap();
    site.host("h", &node, json!({})).await;
    let running = site.start(&proxy.endpoint, quick());
    site.annotate("h", json!({ HOLD: HARD, MARK: "asked" })).await;
    site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    let mut power_on = proxy.hold(power_changes);
    site.annotate("h", json!({ HOLD: null, MARK: "let go" })).await;
    power_on.arrives(PATIENCE).await.unwrap();
    site.annotate("h", json!({ LATE: HARD, MARK: "late" })).await;
    let first = stamps(&site.get("h").await);
    assert!(first.1 > first.0, "the first cycle was over before the call: {first:?}");
    assert_eq!(proxy.powered(&node), ["power off"], "nothing was asked of Ironic yet");
    power_on.release();
    let held = |host: &Value| {
        let (reason, message) = record(host);
        reason == "HeldOff" && message.contains(LATE) && host["status"]["poweredOn"] == false
    };
    let host = site.wait("h", "held off again", held).await;
    assert!(stamps(&host).0 > first.1 && keys(&host) == [LATE], "{host:#}");
    assert_eq!(proxy.powered(&node), ["power off", "power on", "power off"]);
    assert_eq!(ironic.node(&node).await.unwrap()["power_state"], "power off");
    site.annotate("h", json!({ LATE: null, MARK: "late, let go" })).await;
    site.cycled("h").await;
    assert_eq!(proxy.powered(&node), ["power off", "power on", "power off", "power on"]);
    let history = observer.history(std::slice::from_ref(&running.handle)).await.unwrap();
    let broken = history.check(&invariants(false)).map(|it| it.to_string());
    assert!(broken.is_none(), "{}", broken.unwrap_or_default());
}

/// Six hosts that are held off, and let go while Ironic hangs: five slots are for calls that are not hard, so one power-on
/// waits behind the others after the write that justified it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_comes_while_a_power_on_waits_behind_others_that_hang_is_honoured_before_it() {
    for attempt in 0..5 {
        if Box::pin(honoured_before_the_call_that_waits(attempt)).await {
            return;
        }
    }
    panic!("no power-on ever waits");
}

/// Says whether one waited: of each eight calls one has its turn by its age, and takes the slot that is kept for hard ones.
async fn honoured_before_the_call_that_waits(attempt: u32) -> bool {
    let site = Site::new("behind").await;
    let ironic = ironic::shared().await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let mut hosts = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let node = ironic.enroll_fake(&format!("{}-{name}", site.namespace)).await.unwrap();
        switch(ironic, &node, "power on").await;
        site.host(name, &node, json!({})).await;
        site.annotate(name, json!({ HOLD: HARD })).await;
        hosts.push((name, node));
    }
    // None of those that hang leaves its slot meanwhile, which would make room for the one that waits. A look may leave it after
    // a twentieth of the patience.
    let mut settings = super::settings(&proxy.endpoint);
    (settings.timeout, settings.patience) = (PATIENCE, PATIENCE * 20);
    let _running = site.start_with(settings);
    for (name, _) in &hosts {
        site.wait(name, "held off", |host| record(host).0 == "HeldOff").await;
    }
    // Another number of requests before it, and another call is the eighth.
    for _ in 0..attempt {
        site.annotate("a", json!({ LATE: HARD })).await;
        site.wait("a", "held off by both", |host| record(host).1.contains(LATE)).await;
        site.annotate("a", json!({ LATE: null })).await;
    }
    // The last has looked at its node before the others take all places.
    let looks = hosts[5].1.clone();
    let mut look = proxy.hold(move |method, path| *method == Method::GET && path.contains(&looks));
    let mut calls = Vec::new();
    for (_, node) in &hosts {
        let node = node.clone();
        calls.push(Some(
            proxy.hold(move |method, path| power_changes(method, path) && path.contains(&node)),
        ));
    }
    site.annotate("f", json!({ HOLD: null })).await;
    // Where a list has just shown the node, there is no look.
    let looked = look.arrives(Duration::from_secs(3)).await;
    for (name, _) in &hosts[..5] {
        site.annotate(name, json!({ HOLD: null })).await;
    }
    let mut arrived = Vec::new();
    let began = Instant::now();
    let mut look = looked.is_ok().then_some(look);
    while arrived.len() < 5 {
        assert!(began.elapsed() < PATIENCE, "only {} hang", arrived.len());
        for (number, held) in calls.iter_mut().enumerate() {
            let Some(mut call) = held.take() else { continue };
            match call.arrives(Duration::from_millis(20)).await {
                Ok(()) => arrived.push((number, call)),
                Err(_) => *held = Some(call),
            }
        }
        if arrived.len() >= 4 {
            drop(look.take());
        }
    }
    // The sixth may have come in the same round.
    let waits = (0..6).find(|it| arrived.iter().all(|(number, _)| number != it));
    let Some(waits) = waits else { return false };
    let (name, node) = &hosts[waits];
    site.wait(name, "about to be on", |host| record(host).0 == "PoweringOn").await;
    let mut last = calls[waits].take().unwrap();
    if last.arrives(Duration::from_secs(1)).await.is_ok() {
        return false;
    }
    site.annotate(name, json!({ LATE: HARD })).await;
    // What was written a tenth of a second before a call proves that it is wanted; this was written before that.
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(last);
    for (_, call) in arrived {
        call.release();
    }
    let held = |host: &Value| {
        let (reason, message) = record(host);
        reason == "HeldOff" && message.contains(LATE) && host["status"]["poweredOn"] == false
    };
    site.wait(name, "held off again", held).await;
    assert_eq!(proxy.powered(node), ["power off"], "{name} was never on");
    site.annotate(name, json!({ LATE: null })).await;
    for (name, _) in &hosts {
        site.cycled(name).await;
    }
    assert_eq!(proxy.powered(node), ["power off", "power on"]);
    true
}

/// As many power-ons as there are passes, of which Ironic answers none: a hard request is not behind them.
#[tokio::test(flavor = "multi_thread")]
async fn a_hard_request_is_begun_and_seen_to_its_end_while_a_crowd_of_power_ons_hangs() {
    let site = Site::new("hanging").await;
    let proxy = Proxy::start(ironic::shared().await).await.unwrap();
    let crowd = crowd(&site, 40).await;
    join_all(crowd.iter().map(async |(name, _)| site.annotate(name, json!({ HOLD: HARD })).await))
        .await;
    let node = imaginary(&site).await;
    site.host("urgent", &node, json!({})).await;
    let hang = Duration::from_secs(100);
    let _running = site.start_impatient(&proxy.endpoint, hang);
    for (name, _) in &crowd {
        site.wait(name, "held off", |host| record(host).0 == "HeldOff").await;
    }
    // The places for calls that are not hard.
    let mut held: Vec<_> = (0..4).map(|_| proxy.hold(power_changes)).collect();
    join_all(crowd.iter().map(async |(name, _)| site.annotate(name, json!({ HOLD: null })).await))
        .await;
    for call in &mut held {
        call.arrives(PATIENCE).await.unwrap();
    }
    let asked = Instant::now();
    site.annotate("urgent", json!({ HOLD: HARD })).await;
    site.wait("urgent", "held off", |host| record(host).0 == "HeldOff").await;
    assert!(asked.elapsed() < hang.mul_f64(0.8), "{:?}", asked.elapsed());
    assert_eq!(proxy.powered(&node), ["power off"]);
    held.into_iter().for_each(bench::proxy::Held::release);
    for (name, _) in &crowd {
        site.cycled(name).await;
    }
}

/// Half of the nodes hang: no request about them is answered before the story ends. The others are cut, let go, asked softly and
/// switched on all the same, because nobody waits for an answer of another one's.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_hang_hold_up_no_other_whatever_is_asked() {
    const HALF: usize = 16;
    const HANGS: Duration = PATIENCE.saturating_mul(2);
    let site = Site::new("half").await;
    let proxy = Proxy::start(ironic::shared().await).await.unwrap();
    let all = crowd(&site, 2 * HALF).await;
    let (sound, sick) = all.split_at(HALF);
    let mut settings = super::settings(&proxy.endpoint);
    settings.timeout = HANGS;
    let _running = site.start_with(settings);
    for (name, _) in &all {
        site.wait(name, "looked at", |host| condition(host, "PowerManaged").0 == "Managed").await;
    }
    let hung: Vec<String> = sick.iter().map(|(_, node)| node.clone()).collect();
    let about = move |_: &Method, path: &str| hung.iter().any(|node| path.contains(node.as_str()));
    let mut table = Vec::new();
    for hangs in [false, true] {
        if hangs {
            proxy.fault(Fault::Delay(HANGS), usize::MAX, about.clone());
            join_all(
                sick.iter().map(async |(name, _)| site.annotate(name, json!({ HOLD: HARD })).await),
            )
            .await;
            // Each has hung for longer than the patience.
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        for mode in [HARD, ""] {
            let began = Instant::now();
            let held = |host: &Value| record(host).0 == "HeldOff";
            join_all(sound.iter().map(async |(name, _)| {
                site.annotate(name, json!({ HOLD: mode })).await;
                site.wait(name, "held off", held).await;
            }))
            .await;
            let off = began.elapsed();
            let began = Instant::now();
            join_all(sound.iter().map(async |(name, _)| {
                site.annotate(name, json!({ HOLD: null })).await;
                site.cycled(name).await;
            }))
            .await;
            table.push((hangs, mode, off, began.elapsed()));
        }
    }
    println!("hangs, mode, all held off after, all on again after: {table:#?}");
    for (name, _) in sick {
        let seen = site.get(name).await;
        assert_ne!(record(&seen).0, "HeldOff", "{name} was answered about: {seen:#}");
    }
}

/// So many hosts whose machines are on, each with its node in the Ironic that all stories share.
async fn crowd(site: &Site, count: usize) -> Vec<(String, String)> {
    let ironic = ironic::shared().await;
    let make = async |number: usize| {
        let name = format!("h{number}");
        let node = ironic.enroll_fake(&format!("{}-{name}", site.namespace)).await.unwrap();
        switch(ironic, &node, "power on").await;
        site.host(&name, &node, json!({})).await;
        (name, node)
    };
    stream::iter(0..count).map(make).buffer_unordered(8).collect().await
}

/// A rack that hangs, and all of it is asked for at once. Who is asked for right after it is not behind the patience with each of them.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_asked_for_after_a_rack_that_hangs_does_not_wait_until_all_of_it_was_tried() {
    const RACK: usize = 100;
    const SOUND: usize = 8;
    let site = Site::new("rack-hangs").await;
    let proxy = Proxy::start(ironic::shared().await).await.unwrap();
    let all = crowd(&site, RACK + SOUND).await;
    let (rack, sound) = all.split_at(RACK);
    let mut settings = super::settings(&proxy.endpoint);
    settings.timeout = PATIENCE.saturating_mul(2);
    // Six at a time: to try all of the rack takes more than a minute.
    settings.patience = Duration::from_secs(5);
    let _running = site.start_with(settings);
    for (name, _) in &all {
        site.wait(name, "looked at", |host| condition(host, "PowerManaged").0 == "Managed").await;
    }
    let is_off = |host: &Value| record(host).0 == "HeldOff";
    let hold =
        async |(name, _): &(String, String)| site.annotate(name, json!({ HOLD: HARD })).await;
    // What is usual is known by then.
    join_all(sound.iter().map(&hold)).await;
    for (name, _) in sound {
        site.wait(name, "held off", is_off).await;
        site.annotate(name, json!({ HOLD: null })).await;
        site.cycled(name).await;
    }
    let changes =
        |it: &Recorded, node: &str| power_changes(&it.method, &it.path) && it.path.contains(node);
    let hung: Vec<String> = rack.iter().map(|(_, node)| node.clone()).collect();
    proxy.fault(Fault::Delay(PATIENCE.saturating_mul(2)), usize::MAX, move |method, path| {
        power_changes(method, path) && hung.iter().any(|node| path.contains(node.as_str()))
    });
    join_all(rack.iter().map(&hold)).await;
    // Two rounds of the slots: all others of the rack are in line.
    let began = Instant::now();
    while proxy.count(|it| rack.iter().any(|(_, node)| changes(it, node))) < 2 * 6 {
        assert!(began.elapsed() < PATIENCE, "the rack is not tried");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asked = Instant::now();
    join_all(sound.iter().map(&hold)).await;
    for (name, _) in sound {
        site.wait(name, "held off", is_off).await;
    }
    let took = asked.elapsed();
    let since = proxy.requests().into_iter().filter(|it| it.at >= asked).collect::<Vec<_>>();
    let accepted = |(_, node): &(String, String)| {
        let first = since.iter().find(|it| changes(it, node)).expect("it is held off");
        first.at + first.took.expect("it was answered")
    };
    let last = sound.iter().map(accepted).max().unwrap();
    let is_tried =
        |(_, node): &&(String, String)| since.iter().any(|it| it.at < last && changes(it, node));
    let tried = rack.iter().filter(is_tried).count();
    let last = last - asked;
    println!("accepted after {last:?}, off after {took:?}; {tried} of {RACK} were tried before");
    assert!(tried < RACK / 2, "{tried} of the rack were tried before, in {last:?}");
}

/// Many that wait are told of what Ironic did by lists, which come soon. The last of them has nobody else to wait with, and its
/// own look is far away.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_of_a_crowd_is_told_as_soon_as_the_others() {
    let site = Site::new("last").await;
    let options = Options { fake_delay: "6".to_owned(), ..Options::default() };
    let ironic = Ironic::start(options).await.unwrap();
    let crowd: Vec<String> = (0..12).map(|number| format!("h{number}")).collect();
    let enrolled = crowd.iter().map(async |name| {
        let node = ironic.enroll_fake(name).await.unwrap();
        switch(&ironic, &node, "power on").await;
        site.host(name, &node, json!({})).await;
        site.annotate(name, json!({ HOLD: HARD })).await;
        node
    });
    let nodes = join_all(enrolled).await;
    let rarely = Duration::from_secs(600);
    let _running = site.start(&ironic.endpoint, Policy { poll_interval: rarely, ..quick() });
    for name in &crowd {
        site.wait(name, "held off", |host| record(host).0 == "HeldOff").await;
    }
    let let_go = async |name: &String| site.annotate(name, json!({ HOLD: null })).await;
    let (last, others) = crowd.split_last().unwrap();
    join_all(others.iter().map(let_go)).await;
    let is_asked = |node: &Value| node["target_power_state"] == "power on";
    for node in &nodes[..others.len()] {
        ironic.wait(node, "asked to be on", is_asked).await.unwrap();
    }
    // It comes to them while they wait, and waits when they have all been told.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let_go(last).await;
    let is_on = |node: &Value| node["power_state"] == "power on";
    ironic.wait(nodes.last().unwrap(), "power on", is_on).await.unwrap();
    let on = Instant::now();
    site.cycled(last).await;
    assert!(on.elapsed() < Duration::from_secs(10), "{:?}", on.elapsed());
    for name in others {
        site.cycled(name).await;
    }
}

/// A rack that is lost. Those that are off already are told of by lists, also right after one of them when hardly anybody waits
/// for the next: Ironic's time is for those whose power is still on.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_crowd_is_being_cut_off_hardly_any_node_is_asked_about_alone() {
    const CROWD: usize = 120;
    /// The last ones are few, who need no such courtesy.
    const FEW: usize = 20;
    let site = Site::new("rack").await;
    let proxy = Proxy::start(ironic::shared().await).await.unwrap();
    let crowd = crowd(&site, CROWD).await;
    stream::iter(&crowd)
        .for_each_concurrent(8, |(name, _)| site.annotate(name, json!({ PLAIN: HARD })))
        .await;
    let often = Duration::from_secs(2);
    let _running = site.start(&proxy.endpoint, Policy { poll_interval: often, ..quick() });
    for (name, node) in &crowd {
        site.cycled(name).await;
        assert_eq!(proxy.agreed(node), ["power off", "power on"], "{name}");
    }
    let requests = proxy.requests();
    let is_off = |it: &&Recorded| it.target().as_deref() == Some("power off");
    let mut offs: Vec<Instant> = requests.iter().filter(is_off).map(|it| it.at).collect();
    offs.sort_unstable();
    let (first, last) = (offs[0], offs[CROWD - FEW]);
    let meanwhile = || requests.iter().filter(|it| (first..last).contains(&it.at));
    let lists = meanwhile().filter(|it| it.path.starts_with("/v1/nodes?")).count();
    let alone =
        meanwhile().filter(|it| it.method == Method::GET && it.path.starts_with("/v1/nodes/"));
    let (alone, took) = (alone.count(), last - first);
    assert!(lists > 0, "no list came in {took:?}");
    // The first ones are asked about alone, before they are a crowd: on a busy machine once more each. Without the lists it is
    // every one of them, several times.
    assert!(alone <= CROWD / 10, "{alone} in {took:?} with {lists} lists");
}

/// Whoever asks may wait with lost data, and Ironic takes as long to tell of a node as a good part of the call itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_hard_request_begins_after_one_look_at_its_node() {
    let site = Site::new("at-once").await;
    let node = imaginary(&site).await;
    let proxy = Proxy::start(ironic::shared().await).await.unwrap();
    site.host("h", &node, json!({})).await;
    let _running = site.start(&proxy.endpoint, quick());
    site.wait("h", "looked at", |host| condition(host, "PowerManaged").0 == "Managed").await;
    for round in 1..=2 {
        let asked = Instant::now();
        site.annotate("h", json!({ HOLD: HARD })).await;
        site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
        let requests = proxy.requests();
        let since = || requests.iter().filter(|it| it.at > asked && it.path.contains(&node));
        let methods: Vec<&Method> = since().map(|it| &it.method).collect();
        assert_eq!(methods[..2], [&Method::GET, &Method::PUT], "{round}");
        let call = since().nth(1).unwrap();
        // Its own, or a list.
        let answered = call.at + call.took.unwrap();
        let looked = requests.iter().any(|it| it.at > answered && it.method == Method::GET);
        assert!(looked, "{round}: off is not believed without a look");
        site.annotate("h", json!({ HOLD: null })).await;
        site.cycled("h").await;
    }
    assert_eq!(proxy.powered(&node), ["power off", "power on", "power off", "power on"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_changed_past_us_is_looked_at_before_it_is_cut() {
    tokio::join!(misled(false), misled(true));
}

/// A host whose node is another than the controller has seen: the machine was switched off past it, or must stay on.
async fn misled(must_stay_on: bool) {
    let site = Site::new("misled").await;
    let (ironic, machine, node) = machine(&format!("misled-{must_stay_on}")).await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let kinds = [kind()];
    let observer = Observer::start(&site.admin, Some(&site.namespace), &kinds).await.unwrap();
    site.host("h", &node, json!({})).await;
    let running = site.start(&proxy.endpoint, quick());
    site.wait("h", "looked at", |host| condition(host, "PowerManaged").0 == "Managed").await;
    // The list that a process begins with is over, and the next one far away.
    let listed = |it: &Recorded| it.path.starts_with("/v1/nodes?") && it.took.is_some();
    let began = Instant::now();
    while proxy.first(listed).is_none() {
        assert!(began.elapsed() < PATIENCE, "the nodes are not listed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if must_stay_on {
        let ban = json!([{ "op": "replace", "path": "/disable_power_off", "value": true }]);
        let path = format!("/v1/nodes/{node}");
        let banned = ironic.call_version(Method::PATCH, &path, Some(&ban), "1.95").await.unwrap();
        assert!(banned.0.is_success(), "{banned:?}");
    } else {
        switch(ironic, &node, "power off").await;
    }
    site.annotate("h", json!({ PLAIN: HARD, MARK: "asked" })).await;
    let host = site.cycled("h").await;
    assert!(host["status"]["errorType"].is_null(), "{host:#}");
    let agreed = if must_stay_on { "rebooting" } else { "power on" };
    assert_eq!(proxy.agreed(&node), [agreed]);
    let seen = machine.seen().await.unwrap();
    if must_stay_on {
        assert_eq!(seen.requests("ForceRestart") + seen.requests("ForceOff"), 1, "{seen:?}");
    } else {
        assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
    }
    let history = observer.history(std::slice::from_ref(&running.handle)).await.unwrap();
    let broken = history.check(&invariants(must_stay_on)).map(|it| it.to_string());
    assert!(broken.is_none(), "{}", broken.unwrap_or_default());
}

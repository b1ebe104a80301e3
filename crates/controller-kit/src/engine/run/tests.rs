//! Passes over keys of a controller that asks nothing of anybody.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kube::Client;
use prometheus::{IntCounter, Opts};

use super::*;
use crate::config::{Settings, defaults};
use crate::engine::decision::Next;
use crate::engine::lanes::Lanes;
use crate::metrics::Metrics;
use crate::reasons;
use crate::shutdown::Shutdown;

reasons! {
    /// Why.
    enum Why {
        Done: Kind::Rests, "It was looked at.", promise: Duration::from_secs(1);
    }
}

fn kit(concurrency: u16) -> Kit {
    let config = Settings { controller: "some", leader_elect: false, concurrency, ..defaults() };
    // Nothing is asked of it.
    let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    let client = Client::try_from(nowhere).unwrap();
    Kit::new(config, client, Metrics::new("some").unwrap(), Shutdown::default())
}

/// Notes each look, and does in it what a test wants.
#[derive(Default)]
struct Watcher {
    keys: Vec<u8>,
    seen: Mutex<Vec<(u8, u32)>>,
    under_way: Mutex<Vec<u8>>,
    looked: Notify,
    hangs: Option<u8>,
    /// It does not hang, but waits for its turn there.
    behind: Option<Lanes<u8>>,
    urgent: Option<u8>,
    conflicts: AtomicUsize,
    again: AtomicBool,
    /// Of what it was asked how that is retried.
    retried: Mutex<Vec<String>>,
    /// The version after each write.
    version: Option<&'static str>,
    /// The version that is decided upon.
    observed: Option<&'static str>,
}

impl Controller for Watcher {
    type Key = u8;
    type Observed = u8;
    type Write = ();
    type Memory = u32;
    type Reason = Why;

    fn keys(&self) -> Vec<u8> {
        self.keys.clone()
    }

    fn class(&self, key: &u8) -> Class {
        if self.urgent == Some(*key) { Class::Urgent } else { Class::Normal }
    }

    fn retry(&self, error: &Error) -> RetryClass {
        self.retried.lock().unwrap().push(error.to_string());
        error.retry()
    }

    fn version<'s>(&self, _: &'s u8) -> Option<&'s str> {
        self.observed
    }

    fn object(&self, _: &u8) -> ObjectReference {
        ObjectReference::default()
    }

    async fn observe(&self, key: &u8, memory: &mut u32) -> Result<Option<u8>, Error> {
        {
            let mut under_way = self.under_way.lock().unwrap();
            assert!(!under_way.contains(key), "{key} is worked on twice at a time");
            under_way.push(*key);
        }
        *memory += 1;
        self.seen.lock().unwrap().push((*key, *memory));
        self.looked.notify_one();
        if self.hangs == Some(*key) {
            if let Some(lanes) = &self.behind {
                let _turn = lanes.enter(key, Class::Normal).await;
            }
            std::future::pending::<()>().await;
        }
        tokio::task::yield_now().await;
        self.under_way.lock().unwrap().retain(|it| it != key);
        Ok(Some(*key))
    }

    fn decide(&self, _: &u8, _: Now) -> Decision<(), Why> {
        let next =
            if self.again.swap(false, Ordering::Relaxed) { Next::Now } else { Next::OnChange };
        Decision { writes: vec![()], next, ..Decision::rest(Why::Done) }
    }

    async fn write(&self, _: &u8, _: &u8, (): (), _: &mut u32) -> Result<Outcome, Error> {
        let left = self.conflicts.load(Ordering::Relaxed);
        self.conflicts.store(left.saturating_sub(1), Ordering::Relaxed);
        let version = self.version.map(str::to_owned);
        if left > 0 {
            Err(Error::Superseded)
        } else {
            Ok(Outcome { version, ..Outcome::default() })
        }
    }
}

impl Watcher {
    fn seen(&self) -> Vec<(u8, u32)> {
        self.seen.lock().unwrap().clone()
    }

    /// Drives it until so many looks were taken.
    async fn driven(&self, kit: &Kit, lookout: &Lookout<u8>, looks: usize) {
        let enough = async {
            while self.seen().len() < looks {
                self.looked.notified().await;
            }
            // The last one ends as well.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        };
        let deadline = Duration::from_secs(60);
        let driving = run(kit, self, lookout, std::future::pending(), deadline);
        tokio::select! {
            ended = driving => panic!("it ended: {ended:?}"),
            () = enough => {}
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("only {:?}", self.seen()),
        }
    }
}

#[tokio::test]
async fn all_keys_are_looked_at_once_acting_is_possible() {
    let (kit, watcher) = (kit(4), Watcher { keys: vec![1, 2, 3], ..Watcher::default() });
    kit.readiness.require("CRD", "not looked at yet");
    let lookout = Lookout::default();
    lookout.enqueue(9, Class::Urgent);
    let allow = async {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(watcher.seen().is_empty(), "nobody may act");
        kit.readiness.ready("CRD");
    };
    tokio::join!(watcher.driven(&kit, &lookout, 3), allow);
    let mut keys: Vec<u8> = watcher.seen().iter().map(|(key, _)| *key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3]);
}

#[tokio::test]
async fn a_pass_that_hangs_holds_up_others_for_the_patience_only() {
    let watcher =
        Watcher { keys: vec![1, 2], hangs: Some(1), urgent: Some(1), ..Watcher::default() };
    let began = Instant::now();
    watcher.driven(&kit(1), &Lookout::default(), 2).await;
    assert_eq!(watcher.seen(), [(1, 1), (2, 1)]);
    assert!(began.elapsed() >= PASS_PATIENCE);
}

/// Where somebody waits, a controller has it tried again within half a minute.
#[tokio::test]
async fn a_pass_that_does_not_end_is_retried_as_its_controller_says() {
    let (kit, lookout) = (kit(1), Lookout::default());
    let watcher = Watcher { keys: vec![1], hangs: Some(1), ..Watcher::default() };
    let passes = run(&kit, &watcher, &lookout, std::future::pending(), Duration::from_millis(10));
    let retried = async {
        while watcher.retried.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        ended = passes => panic!("it ended: {ended:?}"),
        () = retried => {}
        () = tokio::time::sleep(Duration::from_secs(30)) => panic!("it was not asked"),
    }
    assert_eq!(*watcher.retried.lock().unwrap(), ["the pass did not end in time"]);
}

#[tokio::test]
async fn a_pass_that_waits_for_its_turn_at_a_neighbour_holds_up_no_other() {
    let lanes = Lanes::new(Limits { regular: 1, slow: 1, patience: PASS_PATIENCE });
    let _taken = lanes.enter(&0, Class::Normal).await;
    let watcher = Watcher {
        keys: vec![1, 2],
        hangs: Some(1),
        behind: Some(lanes),
        urgent: Some(1),
        ..Watcher::default()
    };
    let began = Instant::now();
    watcher.driven(&kit(1), &Lookout::default(), 2).await;
    assert_eq!(watcher.seen(), [(1, 1), (2, 1)]);
    assert!(began.elapsed() < PASS_PATIENCE / 2);
}

/// A pass that hangs keeps the next from its slot for longer than is promised.
#[tokio::test]
async fn a_look_counts_by_how_long_it_was_due_unless_nobody_knows() {
    let (kit, watcher) = (kit(1), Watcher { keys: vec![9], hangs: Some(1), ..Watcher::default() });
    let lookout = Lookout::default();
    let ask = async {
        for (after, keys) in [(1, &[3][..]), (2, &[1, 2])] {
            while watcher.seen().len() < after {
                tokio::task::yield_now().await;
            }
            for key in keys {
                lookout.enqueue(*key, Class::Normal);
            }
        }
    };
    tokio::join!(watcher.driven(&kit, &lookout, 4), ask);
    assert_eq!(watcher.seen(), [(9, 1), (3, 1), (1, 1), (2, 1)]);
    let families = kit.metrics.registry.gather();
    let promises = families.iter().find(|it| it.name() == "ferrite_some_promises_total").unwrap();
    let counted = promises.get_metric().iter().map(|it| it.get_counter().get_value());
    let counted: Vec<String> = counted.map(|it| it.to_string()).collect();
    assert_eq!(counted, ["1", "1"], "3 in time, 2 late, 9 was there before");
}

#[tokio::test]
async fn an_urgent_key_overtakes_the_others() {
    let watcher = Watcher { keys: vec![1, 2, 3], urgent: Some(3), ..Watcher::default() };
    watcher.driven(&kit(1), &Lookout::default(), 3).await;
    assert_eq!(watcher.seen()[0], (3, 1));
}

#[tokio::test]
async fn a_conflict_begins_afresh_at_once_and_then_backs_off() {
    let watcher = Watcher { keys: vec![1], conflicts: AtomicUsize::new(4), ..Watcher::default() };
    let looks = usize::try_from(FRESH_STARTS).unwrap() + 1;
    watcher.driven(&kit(1), &Lookout::default(), looks).await;
    assert_eq!(watcher.seen().len(), looks, "one more comes later");
    let watcher = Watcher { conflicts: AtomicUsize::new(4), ..watcher };
    watcher.seen.lock().unwrap().clear();
    let began = Instant::now();
    watcher.driven(&kit(1), &Lookout::default(), looks + 1).await;
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
}

#[tokio::test]
async fn memory_is_kept_from_pass_to_pass() {
    let watcher = Watcher { keys: vec![1], again: AtomicBool::new(true), ..Watcher::default() };
    watcher.driven(&kit(2), &Lookout::default(), 2).await;
    assert_eq!(watcher.seen(), [(1, 1), (1, 2)]);
}

#[tokio::test]
async fn a_pass_that_wrote_something_else_than_its_object_waits_for_no_echo() {
    let again = AtomicBool::new(true);
    let watcher = Watcher { keys: vec![1], again, observed: Some("7"), ..Watcher::default() };
    let began = Instant::now();
    watcher.driven(&kit(1), &Lookout::default(), 2).await;
    assert!(began.elapsed() < ECHO, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_wake_up_during_a_pass_is_followed_by_another() {
    let watcher = Watcher { keys: vec![1], ..Watcher::default() };
    let lookout = Lookout::default();
    let wake = async {
        while watcher.seen().is_empty() {
            tokio::task::yield_now().await;
        }
        lookout.enqueue(1, Class::Normal);
    };
    let kit = kit(2);
    tokio::join!(watcher.driven(&kit, &lookout, 2), wake);
    assert_eq!(watcher.seen().len(), 2);
}

#[tokio::test]
async fn a_process_that_is_to_end_begins_no_pass() {
    let (kit, watcher) = (kit(2), Watcher { keys: vec![1], ..Watcher::default() });
    kit.shutdown.request();
    let lookout = Lookout::default();
    run(&kit, &watcher, &lookout, std::future::pending(), Duration::from_secs(1)).await.unwrap();
    assert!(watcher.seen().is_empty());
}

#[tokio::test]
async fn a_key_is_looked_at_again_once_the_cache_shows_what_its_pass_wrote() {
    let watcher =
        Watcher { again: AtomicBool::new(true), version: Some("2"), ..Watcher::default() };
    let (kit, lookout) = (kit(4), Lookout::default());
    lookout.enqueue(1, Class::Normal);
    let echo = async {
        while watcher.seen().is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(watcher.seen().len(), 1, "the cache shows the object as it was");
        assert!(!lookout.changed(&1, "2", Class::Normal), "it is our own write");
    };
    tokio::join!(watcher.driven(&kit, &lookout, 2), echo);
}

async fn look<C: Controller<Key = u8>>(
    controller: &C,
    outbox: &Outbox,
    decisions: &IntCounterVec,
    cell: &mut Cell<C::Memory>,
) -> End<C::Reason> {
    Look { controller, outbox, decisions, key: &1, cell }.run().await
}

/// Writes twice, and is not allowed to write for the second time.
struct Forbidden;

impl Controller for Forbidden {
    type Key = u8;
    type Observed = u8;
    type Write = u8;
    type Memory = ();
    type Reason = Why;

    fn keys(&self) -> Vec<u8> {
        vec![1]
    }

    fn object(&self, _: &u8) -> ObjectReference {
        named("own")
    }

    fn told_on(&self, key: &u8, seen: Option<&u8>) -> Vec<ObjectReference> {
        std::iter::once(self.object(key)).chain(seen.map(|_| named("other"))).collect()
    }

    async fn observe(&self, key: &u8, (): &mut ()) -> Result<Option<u8>, Error> {
        Ok(Some(*key))
    }

    fn decide(&self, _: &u8, _: Now) -> Decision<u8, Why> {
        let events = vec![Event::new(false, "All", "", "All is written")];
        Decision { writes: vec![1, 2], events, ..Decision::rest(Why::Done) }
    }

    async fn write(&self, _: &u8, _: &u8, write: u8, (): &mut ()) -> Result<Outcome, Error> {
        if write == 1 {
            let events = vec![Event::new(false, "First", "", "The first is written")];
            return Ok(Outcome { events, ..Outcome::default() });
        }
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403);
        Err(Error::Api { what: "write", source: Box::new(kube::Error::Api(status.boxed())) })
    }
}

fn named(name: &str) -> ObjectReference {
    ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() }
}

#[tokio::test]
async fn what_a_write_brought_about_is_told_although_a_later_one_fails() {
    let (outbox, mut untold) = Outbox::new(IntCounter::new("dropped", "Dropped").unwrap());
    let decisions = IntCounterVec::new(Opts::new("decisions", "Decisions"), &["reason"]).unwrap();
    let mut cell = Cell::default();
    for _ in 0..2 {
        let end = look(&Forbidden, &outbox, &decisions, &mut cell).await;
        assert!(matches!(end, End::Failed(Error::Api { .. }, _)));
    }
    let told = std::iter::from_fn(|| untold.try_recv().ok());
    let told = told.map(|(object, it)| (object.name.unwrap(), it.reason));
    let told: Vec<_> = told.map(|(name, reason)| format!("{reason} on {name}")).collect();
    let once = ["First on own", "First on other"];
    let refused = ["Refused on own", "Refused on other"];
    assert_eq!(
        told,
        [&once[..], &refused[..], &once[..]].concat(),
        "what is refused, once an hour"
    );
}

/// Writes in one go what does not belong together, of which a part fails.
struct Parted;

impl Controller for Parted {
    type Key = u8;
    type Observed = u8;
    type Write = u8;
    type Memory = ();
    type Reason = Why;

    fn keys(&self) -> Vec<u8> {
        vec![1]
    }

    fn object(&self, _: &u8) -> ObjectReference {
        named("own")
    }

    async fn observe(&self, key: &u8, (): &mut ()) -> Result<Option<u8>, Error> {
        Ok(Some(*key))
    }

    fn decide(&self, _: &u8, _: Now) -> Decision<u8, Why> {
        let events = vec![Event::new(false, "All", "", "All is tried")];
        let next = Next::After(Duration::from_secs(5));
        Decision { writes: vec![1, 2], events, next, ..Decision::rest(Why::Done) }
    }

    async fn write(&self, _: &u8, _: &u8, write: u8, (): &mut ()) -> Result<Outcome, Error> {
        let events = vec![Event::new(false, "Wrote", "", &write.to_string())];
        let failed = (write == 1).then_some(Error::Silent("write the other part"));
        Ok(Outcome { events, failed, ..Outcome::default() })
    }
}

#[tokio::test]
async fn a_part_that_fails_keeps_nobody_from_the_rest_and_the_pass_fails_after_it() {
    let (outbox, mut untold) = Outbox::new(IntCounter::new("dropped", "Dropped").unwrap());
    let decisions = IntCounterVec::new(Opts::new("decisions", "Decisions"), &["reason"]).unwrap();
    let end = look(&Parted, &outbox, &decisions, &mut Cell::default()).await;
    // Nor does it stop the timers of the pass.
    let End::Failed(Error::Silent(_), due) = end else { panic!("it did not fail") };
    assert_eq!(due, Some(Duration::from_secs(5)));
    let told = std::iter::from_fn(|| untold.try_recv().ok());
    let told: Vec<_> = told.map(|(_, it)| it.text).collect();
    assert_eq!(told, ["All is tried", "1", "2"]);
}

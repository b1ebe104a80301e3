//! Calls of many callers to many targets, some of which hang.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{join_all, poll_immediate};

use super::*;

const PATIENCE: Duration = Duration::from_millis(40);
const LIMITS: Limits = Limits { regular: 2, slow: 2, patience: PATIENCE };

fn is_empty(lanes: &Lanes<u32>) -> bool {
    let inner = lanes.0.lock();
    inner.slots.taken() == (0, 0) && inner.callers.is_empty()
}

/// A target that answers at once.
async fn answers(lanes: &Lanes<u32>, target: u32, class: Class) {
    lanes.enter(&target, class).await.run(async {}, |()| true).await.unwrap();
}

#[tokio::test]
async fn calls_are_made_by_class_and_one_target_has_one_at_a_time() {
    let lanes = Lanes::new(Limits { regular: 1, ..LIMITS });
    let first = lanes.enter(&1, Class::Normal).await;
    let order = Mutex::new(Vec::new());
    let call = async |target: u32, class: Class, name: &'static str| {
        let lane = lanes.enter(&target, class).await;
        lane.run(async { order.lock().unwrap().push(name) }, |()| true).await.unwrap();
    };
    let calls = async {
        tokio::join!(
            call(1, Class::Background, "same, background"),
            call(1, Class::Urgent, "same, urgent"),
            call(2, Class::Normal, "other"),
        )
    };
    tokio::join!(calls, async {
        tokio::task::yield_now().await;
        assert!(order.lock().unwrap().is_empty(), "the slot is taken");
        drop(first);
    });
    assert_eq!(*order.lock().unwrap(), ["same, urgent", "other", "same, background"]);
    assert!(is_empty(&lanes));
}

#[tokio::test]
async fn a_target_that_hangs_frees_its_slot_after_the_patience() {
    let lanes = Lanes::new(Limits { regular: 1, ..LIMITS });
    let hangs = lanes.enter(&1, Class::Urgent).await;
    let hanging = hangs.run(std::future::pending::<()>(), |()| true);
    let began = Instant::now();
    tokio::select! {
        _ = hanging => panic!("it hangs"),
        () = answers(&lanes, 2, Class::Background) => {}
    }
    assert!(began.elapsed() >= PATIENCE);
    assert!(is_empty(&lanes), "a call that is dropped leaves");
    // It is known to be slow, so the next call to it holds up nobody for a moment.
    let _hangs = lanes.enter(&1, Class::Urgent).await;
    assert_eq!(lanes.taken(), (0, 1));
    answers(&lanes, 2, Class::Background).await;
}

#[tokio::test]
async fn who_finds_no_slot_is_not_queued() {
    let lanes = Lanes::new(Limits { regular: 1, ..LIMITS });
    let first = lanes.try_enter(&1, Class::Urgent).expect("one is free");
    assert!(
        lanes.try_enter(&1, Class::Urgent).is_none()
            && lanes.try_enter(&2, Class::Urgent).is_none()
    );
    drop(first);
    assert_eq!(lanes.taken(), (0, 0), "nobody waited for it");
    assert!(lanes.try_enter(&2, Class::Urgent).is_some());
    assert!(is_empty(&lanes));
}

#[tokio::test]
async fn calls_that_hang_are_given_up_where_there_are_too_many() {
    let lanes = Lanes::new(LIMITS);
    let call = async |target: u32| {
        let lane = lanes.enter(&target, Class::Normal).await;
        lane.run(std::future::pending::<()>(), |()| true).await
    };
    let all = join_all((0..6).map(call));
    tokio::select! {
        _ = all => panic!("some have a slot"),
        () = answers(&lanes, 9, Class::Normal) => {}
        () = tokio::time::sleep(PATIENCE * 100) => panic!("a target that answers waits for ever"),
    }
    assert!(is_empty(&lanes));
}

/// Too many hang, and the longest of them is given up. One that is only slow has its time before it is that one: also the first of
/// those that are alike, before anybody knows what is usual.
#[tokio::test]
async fn a_call_that_may_only_be_slow_is_not_given_up_at_once_where_too_many_hang() {
    for alike in [false, true] {
        let lanes = Lanes::new(Limits { regular: 2, slow: 1, patience: PATIENCE });
        let slow = lanes.wait(&1, Class::Urgent, alike).await;
        let slow = slow.run(tokio::time::sleep(PATIENCE * 7 / 4), |()| true);
        let hang = async |target: u32| -> Infallible {
            loop {
                let lane = lanes.enter(&target, Class::Urgent).await;
                let _ = lane.run(std::future::pending::<()>(), |()| true).await;
            }
        };
        tokio::select! {
            _ = join_all((2..6).map(hang)) => {}
            answered = slow => assert_eq!(answered, Ok(()), "alike: {alike}"),
        }
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let lanes = Lanes::new(Limits { regular: 1, ..LIMITS });
    let first = lanes.enter(&1, Class::Normal).await;
    // While it waits, beside a thousand others.
    let targets: Vec<u32> = (0..1_000).map(|number| number % 400).collect();
    let enter = |target| Box::pin(lanes.enter(target, Class::Normal));
    let mut waiting: Vec<_> = targets.iter().map(enter).collect();
    for it in &mut waiting {
        assert!(poll_immediate(it).await.is_none());
    }
    drop(waiting);
    // After it was given a slot, before it knows.
    let mut given = Box::pin(lanes.enter(&2, Class::Normal));
    assert!(poll_immediate(&mut given).await.is_none());
    drop(first);
    assert_eq!(lanes.taken(), (1, 0));
    drop(given);
    answers(&lanes, 3, Class::Normal).await;
    assert!(is_empty(&lanes), "{:?}", lanes.0.lock());
}

#[tokio::test]
async fn targets_that_answer_are_served_beside_as_many_that_hang() {
    let lanes = Lanes::new(Limits { regular: 6, slow: 12, patience: PATIENCE });
    let made = AtomicUsize::new(0);
    let hang = join_all((0..200_u32).map(async |target| {
        loop {
            let lane = lanes.enter(&target, Class::Urgent).await;
            let _ = lane.run(std::future::pending::<()>(), |()| true).await;
        }
    }));
    let answer = join_all((200..400).map(async |target| {
        for _ in 0..5 {
            answers(&lanes, target, Class::Urgent).await;
            made.fetch_add(1, Ordering::Relaxed);
        }
    }));
    tokio::select! {
        _ = hang => panic!("they hang"),
        _ = answer => {}
        () = tokio::time::sleep(PATIENCE * 500) => panic!("only {made:?} were answered"),
    }
    assert_eq!(made.into_inner(), 1_000);
}

/// Calls that take this long, one after the other.
async fn alike(lanes: &Lanes<u32>, target: u32, takes: Duration) {
    let lane = lanes.enter_alike(&target, Class::Normal).await;
    lane.run(tokio::time::sleep(takes), |()| true).await.unwrap();
}

#[tokio::test]
async fn a_call_that_takes_longer_than_those_like_it_frees_its_slot_before_the_patience() {
    let patience = Duration::from_secs(20);
    let lanes = Lanes::new(Limits { regular: 1, slow: 1, patience });
    alike(&lanes, 1, Duration::from_millis(1)).await;
    let began = Instant::now();
    let hangs = lanes.enter_alike(&2, Class::Normal).await;
    tokio::select! {
        _ = hangs.run(std::future::pending::<()>(), |()| true) => panic!("it hangs"),
        () = alike(&lanes, 3, Duration::ZERO) => {}
    }
    assert!(began.elapsed() >= patience / SHORTEST && began.elapsed() < patience / 2);
    // A call of another kind may take its time.
    let other = lanes.enter(&4, Class::Normal).await;
    assert_eq!(other.patience, patience);
}

/// A hundred that hang came first. Each of them keeps a slot for the patience.
#[tokio::test]
async fn who_comes_after_many_that_hang_does_not_wait_until_all_of_them_were_tried() {
    const RACK: u32 = 100;
    let lanes = Lanes::new(Limits { regular: 2, slow: 2, patience: PATIENCE });
    let hang = join_all((0..RACK).map(async |target| {
        let lane = lanes.enter(&target, Class::Urgent).await;
        let _ = lane.run(std::future::pending::<()>(), |()| true).await;
        std::future::pending::<()>().await;
    }));
    let come_after = async {
        tokio::task::yield_now().await;
        join_all((RACK..RACK + 8).map(|target| answers(&lanes, target, Class::Urgent))).await
    };
    let began = Instant::now();
    tokio::select! {
        _ = hang => panic!("they hang"),
        _ = come_after => {}
    }
    assert!(began.elapsed() < PATIENCE * 8, "{:?} of {:?}", began.elapsed(), PATIENCE * RACK / 2);
}

/// A moment in which the neighbour is busy, while what hangs has all slots that are for it, and keeps them for minutes.
#[tokio::test]
async fn who_is_given_up_in_a_busy_moment_does_not_wait_behind_all_that_hang() {
    const LATE_AFTER: Duration = Duration::from_millis(40);
    let patience = LATE_AFTER * SHORTEST;
    let lanes = Lanes::new(Limits { regular: 2, slow: 2, patience });
    alike(&lanes, 0, Duration::from_millis(1)).await;
    let hang = join_all((100..120_u32).map(async |target| -> Infallible {
        loop {
            let lane = lanes.enter_alike(&target, Class::Urgent).await;
            let _ = lane.run(std::future::pending::<()>(), |()| true).await;
        }
    }));
    let tries_of = async |target: u32| {
        for (tries, takes) in [LATE_AFTER * 3, Duration::ZERO, Duration::ZERO].iter().enumerate() {
            let lane = lanes.enter_alike(&target, Class::Urgent).await;
            if lane.run(tokio::time::sleep(*takes), |()| true).await.is_ok() {
                return tries + 1;
            }
        }
        0
    };
    let sound = async {
        // All but the oldest, which is left to its end.
        while (100..120).filter(|it| lanes.0.lock().slots.is_suspect(it)).count() < 19 {
            tokio::time::sleep(LATE_AFTER).await;
        }
        join_all((1..7).map(tries_of)).await
    };
    tokio::select! {
        _ = hang => panic!("they hang"),
        tries = sound => assert!(tries.contains(&2) && !tries.contains(&0), "{tries:?}"),
        () = tokio::time::sleep(patience * 20) => panic!("{:?}", lanes.0.lock().slots),
    }
}

#[tokio::test]
async fn where_all_calls_are_slow_none_of_them_hangs() {
    let lanes = Lanes::new(Limits { regular: 1, slow: 0, patience: Duration::from_millis(400) });
    // Each of them takes longer than the shortest time after which one can hang, and is not given up.
    for target in 0..4 {
        alike(&lanes, target, Duration::from_millis(60)).await;
    }
    assert!(lanes.0.lock().pace.late(true) >= LATE * Duration::from_millis(60));
}

#[tokio::test]
async fn where_all_calls_become_slow_most_of_them_are_answered() {
    const CALLS: u32 = 24;
    /// After what time one is late, as long as they are quick.
    const FIRST: Duration = Duration::from_millis(40);
    for (is_alike, patience) in [(true, FIRST * SHORTEST), (false, FIRST)] {
        let lanes = Lanes::new(Limits { regular: 1, slow: 1, patience });
        let call = async |target: u32, takes| {
            let lane = lanes.wait(&target, Class::Normal, is_alike).await;
            lane.run(tokio::time::sleep(takes), |()| true).await.is_ok()
        };
        assert!(call(0, Duration::from_millis(1)).await);
        assert_eq!(lanes.0.lock().pace.late(is_alike), FIRST);
        let slow = (1..=CALLS).map(|target| call(target, FIRST * 4));
        let answered = join_all(slow).await.into_iter().filter(|it| *it).count();
        assert!(answered > 12, "only {answered} of {CALLS} were answered, alike: {is_alike}");
        assert!(lanes.0.lock().pace.late(is_alike) > FIRST * 4);
    }
}

#[tokio::test]
async fn calls_that_hang_beside_others_do_not_change_what_is_usual() {
    let lanes = Lanes::new(Limits { regular: 1, slow: 1, patience: PATIENCE * 20 });
    alike(&lanes, 0, Duration::from_millis(1)).await;
    let usual = lanes.0.lock().pace.late(true);
    let hangs = async |target| {
        let lane = lanes.enter_alike(&target, Class::Normal).await;
        assert!(lane.run(std::future::pending::<()>(), |()| true).await.is_err());
    };
    let beside = async {
        for target in 10..14 {
            alike(&lanes, target, Duration::from_millis(1)).await;
        }
    };
    let all = async { tokio::join!(hangs(1), beside, hangs(2), hangs(3)) };
    // The last two stay, as there is room for them.
    let _ = tokio::time::timeout(PATIENCE * 20, all).await;
    assert_eq!(lanes.0.lock().pace.late(true), usual);
}

#[tokio::test]
async fn a_pass_that_waits_for_its_turn_or_calls_is_known_to() {
    let lanes = Lanes::new(Limits { regular: 1, slow: 1, patience: PATIENCE });
    let held = Arc::<Turns>::default();
    let count = || held.count.load(Ordering::Relaxed);
    let first = lanes.enter(&1, Class::Normal).await;
    assert_eq!(count(), 0, "nobody drives that one");
    let pass = watched(held.clone(), async { lanes.enter(&2, Class::Normal).await });
    let mut pass = Box::pin(pass);
    assert!(futures_util::poll!(pass.as_mut()).is_pending());
    assert_eq!(count(), 1, "it waits");
    drop(first);
    let second = pass.await;
    assert_eq!(count(), 1, "it calls");
    drop(second);
    assert_eq!(count(), 0);
    let pass = watched(held.clone(), async { lanes.enter(&1, Class::Normal).await });
    drop(pass.await);
    let _first = lanes.enter(&1, Class::Normal).await;
    let mut pass = Box::pin(watched(held.clone(), async { lanes.enter(&3, Class::Normal).await }));
    assert!(futures_util::poll!(pass.as_mut()).is_pending());
    drop(pass);
    assert_eq!(count(), 0, "it was given up");
}

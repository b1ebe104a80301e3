//! The queue's promises one by one, and any operations in any order against a plain list.

use proptest::prelude::*;

use super::*;

fn at(second: u64) -> Instant {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BEGAN.get_or_init(Instant::now) + Duration::from_secs(second)
}

fn oldest(queue: &mut Queue<u8>, second: u64, least: Class) -> Option<(u8, Class)> {
    queue.next(Order::Oldest, at(second), least).map(|(key, class, _)| (key, class))
}

fn next(queue: &mut Queue<u8>, second: u64) -> Option<u8> {
    oldest(queue, second, Class::Background).map(|(key, _)| key)
}

#[test]
fn keys_are_handed_out_by_class_and_then_by_age() {
    let mut queue = Queue::default();
    for (key, class, second) in [
        (1, Class::Background, 0),
        (2, Class::Normal, 2),
        (3, Class::Urgent, 3),
        (4, Class::Normal, 1),
    ] {
        queue.enqueue(key, class, at(second));
    }
    let order: Vec<_> = std::iter::from_fn(|| next(&mut queue, 5)).collect();
    assert_eq!(order, [3, 4, 2, 1]);
}

#[test]
fn a_key_waits_once_at_its_earliest_time_and_most_urgent_class() {
    let mut queue = Queue::default();
    queue.enqueue(1, Class::Normal, at(9));
    queue.enqueue(1, Class::Urgent, at(20));
    queue.enqueue(1, Class::Background, at(7));
    assert_eq!((queue.next_at(), next(&mut queue, 6)), (Some(at(7)), None));
    let given = queue.next(Order::Oldest, at(8), Class::Urgent);
    assert_eq!(given, Some((1, Class::Urgent, at(7))), "and says since when it was due");
    queue.done(&1);
    assert_eq!((next(&mut queue, 99), queue.next_at()), (None, None));
}

#[test]
fn a_key_that_is_worked_on_is_due_again_afterwards() {
    let mut queue = Queue::default();
    queue.enqueue(1, Class::Normal, at(0));
    assert_eq!(next(&mut queue, 0), Some(1));
    queue.enqueue(1, Class::Urgent, at(1));
    assert!(queue.wants(&1));
    assert_eq!(next(&mut queue, 5), None, "it is worked on");
    queue.done(&1);
    assert_eq!(next(&mut queue, 5), Some(1));
}

#[test]
fn a_held_key_waits_for_its_release_or_the_bound() {
    for released in [false, true] {
        let mut queue = Queue::default();
        queue.enqueue(1, Class::Urgent, at(0));
        queue.hold(&1, at(10));
        assert_eq!(next(&mut queue, 9), None);
        if released {
            queue.release(&1);
            assert_eq!(next(&mut queue, 9), Some(1));
        } else {
            assert_eq!(next(&mut queue, 10), Some(1));
        }
    }
}

#[test]
fn keys_at_rest_leave_nothing_behind() {
    let mut queue = Queue::default();
    queue.enqueue(1, Class::Normal, at(0));
    next(&mut queue, 0);
    queue.hold(&1, at(3));
    queue.done(&1);
    assert_eq!(next(&mut queue, 3), None);
    let Queue { handed_out, passed_over, .. } = queue;
    assert_eq!(queue, Queue { handed_out, passed_over, ..Queue::default() });
}

#[test]
fn a_background_key_is_handed_out_among_endless_urgent_ones() {
    let mut queue = Queue::default();
    queue.enqueue(0, Class::Background, at(0));
    for turn in 1..=u8::try_from(OLDEST_EVERY).unwrap() {
        queue.enqueue(turn, Class::Urgent, at(u64::from(turn)));
        // Also where all that is free is kept for urgent ones.
        if oldest(&mut queue, 100, Class::Urgent) == Some((0, Class::Background)) {
            return;
        }
    }
    panic!("it starves");
}

#[test]
fn hundreds_of_old_keys_do_not_pass_over_one_that_is_more_urgent_again_and_again() {
    let mut queue = Queue::default();
    for key in 0..100 {
        queue.enqueue(key, Class::Background, at(0));
    }
    queue.enqueue(100, Class::Normal, at(5));
    // Nothing is free but what is kept for urgent ones.
    let order: Vec<_> = (101..125)
        .map(|key| {
            queue.enqueue(key, Class::Urgent, at(6));
            oldest(&mut queue, 9, Class::Urgent).unwrap().1
        })
        .collect();
    let turns: Vec<_> = order.chunks(8).map(|it| it[7]).collect();
    assert_eq!(turns, [Class::Background, Class::Normal, Class::Background]);
    assert_eq!(order.iter().filter(|it| **it == Class::Urgent).count(), 21);
}

#[test]
fn keys_that_are_older_and_more_urgent_wait_for_none_of_the_others() {
    let mut queue = Queue::default();
    for key in 0..20 {
        queue.enqueue(key, Class::Normal, at(0));
        queue.enqueue(100 + key, Class::Background, at(1));
    }
    let order: Vec<_> = std::iter::from_fn(|| next(&mut queue, 9)).collect();
    assert_eq!(order[..20], (0..20).collect::<Vec<_>>());
}

#[test]
fn less_urgent_keys_wait_where_slots_are_kept() {
    let mut queue = Queue::default();
    queue.enqueue(1, Class::Background, at(0));
    assert_eq!(oldest(&mut queue, 1, Class::Normal), None);
    assert_eq!(oldest(&mut queue, 1, Class::Background), Some((1, Class::Background)));
}

#[test]
fn a_wait_is_spread_by_a_quarter_at_most() {
    let second = Duration::from_secs(1);
    assert_eq!(spread(second, 0.0), second);
    assert_eq!(spread(second, 7.0), second * 5 / 4);
}

#[derive(Clone, Debug)]
enum Operation {
    Enqueue(u8, usize, u64),
    Next(usize),
    Done(u8),
    Hold(u8, u64),
    Release(u8),
    Wait(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let key = || 0_u8..4;
    let one = prop_oneof![
        4 => (key(), 0_usize..3, 0_u64..6).prop_map(|(key, class, wait)| Operation::Enqueue(key, class, wait)),
        4 => (0_usize..3).prop_map(Operation::Next),
        3 => key().prop_map(Operation::Done),
        1 => (key(), 0_u64..6).prop_map(|(key, wait)| Operation::Hold(key, wait)),
        1 => key().prop_map(Operation::Release),
        2 => (0_u64..4).prop_map(Operation::Wait),
    ];
    prop::collection::vec(one, 0..60)
}

/// What is known of a key, written down without any order.
#[derive(Clone, Copy, Default)]
struct Plain {
    due: Option<(u64, Class)>,
    busy: bool,
    held: u64,
}

proptest! {
    #[test]
    fn no_key_is_lost_doubled_or_early(operations in operations()) {
        let (mut queue, mut plain, mut now) = (Queue::default(), [Plain::default(); 4], 0);
        for operation in operations {
            match operation {
                Operation::Enqueue(key, class, wait) => {
                    let (class, due) = (Class::ALL[class], now + wait);
                    queue.enqueue(key, class, at(due));
                    let it = &mut plain[usize::from(key)];
                    it.due = Some(it.due.map_or((due, class), |(old, before)| {
                        (old.min(due), before.min(class))
                    }));
                }
                Operation::Next(least) => {
                    let least = Class::ALL[least];
                    let given = oldest(&mut queue, now, least);
                    let ready = |it: &&Plain| {
                        !it.busy && it.held <= now && it.due.is_some_and(|(due, _)| due <= now)
                    };
                    let wanted = plain.iter().filter(ready).filter_map(|it| it.due);
                    let fits = wanted.filter(|(_, class)| *class <= least).count();
                    match given {
                        None => prop_assert_eq!(fits, 0, "somebody waits"),
                        Some((key, class)) => {
                            let it = &mut plain[usize::from(key)];
                            prop_assert!(ready(&&*it), "{key} is early or worked on");
                            prop_assert_eq!(it.due.unwrap().1, class);
                            *it = Plain { busy: true, ..Plain::default() };
                        }
                    }
                }
                Operation::Done(key) => {
                    queue.done(&key);
                    plain[usize::from(key)].busy = false;
                }
                Operation::Hold(key, wait) => {
                    queue.hold(&key, at(now + wait));
                    plain[usize::from(key)].held = now + wait;
                }
                Operation::Release(key) => {
                    queue.release(&key);
                    plain[usize::from(key)].held = 0;
                }
                Operation::Wait(seconds) => now += seconds,
            }
            for (key, it) in (0_u8..).zip(&plain) {
                prop_assert_eq!(queue.wants(&key), it.due.is_some(), "{}", key);
            }
        }
        // Whatever is still wanted is handed out once all work has ended.
        (0..4).for_each(|key| queue.done(&key));
        let mut rest: Vec<u8> = std::iter::from_fn(|| next(&mut queue, now + 100)).collect();
        rest.sort_unstable();
        let wanted = (0_u8..).zip(&plain).filter(|(_, it)| it.due.is_some());
        prop_assert_eq!(rest, wanted.map(|(key, _)| key).collect::<Vec<_>>());
    }
}

#[test]
fn the_latest_of_the_urgent_goes_first_and_the_next_class_has_its_turn() {
    let mut queue = Queue::default();
    let classes = [Class::Normal, Class::Urgent, Class::Urgent, Class::Normal];
    for (key, class) in (1..).zip(classes) {
        queue.enqueue(key, class, at(key));
    }
    let mut next = |least| queue.next(Order::Latest, at(9), least);
    assert_eq!(next(Class::Urgent), Some((3, Class::Urgent, at(3))));
    assert_eq!(next(Class::Urgent), Some((1, Class::Normal, at(1))), "it has its turn");
    assert_eq!(next(Class::Urgent), Some((2, Class::Urgent, at(2))));
    assert_eq!(next(Class::Urgent), Some((4, Class::Normal, at(4))));
    assert_eq!(next(Class::Urgent), None);
}

#[test]
fn who_came_first_is_not_forgotten_while_the_latest_go_first() {
    let mut queue = Queue::default();
    queue.enqueue(0, Class::Urgent, at(0));
    for key in 1..=8 {
        queue.enqueue(key, Class::Urgent, at(key));
        let given = queue.next(Order::Latest, at(key), Class::Urgent);
        if given == Some((0, Class::Urgent, at(0))) {
            return;
        }
    }
    panic!("it starves");
}

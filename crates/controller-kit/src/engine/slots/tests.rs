//! Who may work, whatever comes and goes.

use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_secs(2);

fn at(second: u64) -> Instant {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BEGAN.get_or_init(Instant::now) + Duration::from_secs(second)
}

fn slots(regular: usize, slow: usize) -> Slots<u8> {
    Slots::new(Limits { regular, slow, patience: PATIENCE })
}

/// Who has to go.
fn gone(slots: &mut Slots<u8>, second: u64, may_go: impl Fn(u8) -> bool) -> Vec<u8> {
    let gone = slots.make_room(at(second), |target, ()| may_go(*target));
    gone.into_iter().map(|(target, ())| target).collect()
}

#[test]
fn a_slow_target_leaves_its_regular_slot_after_the_patience() {
    let mut slots = slots(1, 1);
    assert!(slots.enter(&1, at(0), ()) && !slots.enter(&2, at(0), ()));
    assert_eq!(slots.next_at(), Some(at(2)));
    assert!(gone(&mut slots, 1, |_| true).is_empty() && !slots.enter(&2, at(1), ()));
    assert!(gone(&mut slots, 2, |_| true).is_empty(), "there is room for it");
    assert!(slots.enter(&2, at(2), ()) && !slots.enter(&1, at(2), ()), "it is still worked on");
    assert_eq!(slots.taken(), (1, 1));
}

#[test]
fn a_suspect_begins_slow_until_it_answers() {
    let mut slots = slots(2, 1);
    slots.enter(&1, at(0), ());
    gone(&mut slots, 2, |_| true);
    slots.leave(&1, false);
    assert!(slots.is_suspect(&1) && slots.enter(&1, at(3), ()));
    assert_eq!(slots.taken(), (0, 1));
    slots.leave(&1, true);
    assert!(!slots.is_suspect(&1) && slots.enter(&1, at(4), ()));
    assert_eq!(slots.taken(), (1, 0));
}

#[test]
fn who_was_late_before_the_patience_was_over_is_a_suspect_the_second_time() {
    let mut slots = slots(1, 1);
    for again in [false, true] {
        slots.enter_for(&1, at(0), PATIENCE / 2, ());
        gone(&mut slots, 1, |_| true);
        slots.leave(&1, false);
        assert_eq!(slots.is_suspect(&1), again);
    }
    slots.leave(&1, true);
    slots.enter_for(&1, at(2), PATIENCE / 2, ());
    gone(&mut slots, 3, |_| true);
    assert!(!slots.is_suspect(&1), "an answer counts anew");
}

#[test]
fn the_slowest_is_given_up_where_there_are_too_many() {
    let mut slots = slots(2, 1);
    slots.enter(&1, at(0), ());
    slots.enter(&2, at(1), ());
    assert!(gone(&mut slots, 2, |_| true).is_empty());
    assert_eq!(gone(&mut slots, 3, |_| true), [1]);
    assert!(!slots.has(&1) && slots.has(&2) && slots.is_suspect(&1));
}

#[test]
fn who_may_not_go_keeps_its_slot_and_the_next_one_goes() {
    let mut slots = slots(2, 1);
    slots.enter(&1, at(0), ());
    slots.enter(&2, at(1), ());
    assert!(gone(&mut slots, 2, |_| false).is_empty());
    assert!(gone(&mut slots, 3, |_| false).is_empty(), "neither may go");
    assert!(slots.has(&1) && slots.has(&2) && slots.taken() == (1, 1));
    assert_eq!(slots.next_at(), Some(at(5)), "it is looked at again");
    assert_eq!(gone(&mut slots, 5, |it| it == 2), [2], "it may, though it is not the longest");
    assert!(slots.has(&1) && !slots.has(&2) && slots.taken() == (0, 1));
}

#[test]
fn who_waits_for_somebody_else_leaves_its_slot_at_once_and_is_no_suspect() {
    let mut slots = Slots::new(Limits { regular: 1, slow: 1, patience: PATIENCE });
    slots.enter(&1, at(0), 1);
    slots.set_aside(|it| *it == 1);
    assert!(slots.enter(&2, at(0), 2) && !slots.is_suspect(&1));
    slots.set_aside(|it| *it == 2);
    assert_eq!(slots.taken(), (1, 1), "there is no room for another one");
    slots.leave(&1, false);
    assert!(!slots.enter(&3, at(0), 3), "2 has the only one");
}

#[test]
fn less_urgent_classes_leave_a_slot_each_to_the_others() {
    let free = |regular: usize, taken: u8| {
        let mut slots = slots(regular, 0);
        (0..taken).for_each(|target| assert!(slots.enter(&target, at(0), ())));
        slots.free_for()
    };
    assert_eq!(free(6, 3), Some(Class::Background));
    assert_eq!(free(6, 4), Some(Class::Normal));
    assert_eq!(free(6, 5), Some(Class::Urgent));
    assert_eq!(free(6, 6), None);
    assert_eq!(free(1, 0), Some(Class::Background), "one slot is for all");
    assert_eq!(free(2, 1), Some(Class::Urgent));
    assert_eq!(free(0, 0), None);
}

proptest! {
    #[test]
    fn no_slot_is_lost_doubled_or_kept_too_long(
        regular in 0_usize..4, slow in 0_usize..3,
        steps in prop::collection::vec((0_u8..4, 0_u8..6, 0_u64..3), 0..60),
    ) {
        let (mut slots, mut now, mut inside) = (slots(regular, slow), 0, Vec::new());
        for (operation, target, wait) in steps {
            now += wait;
            for gone in gone(&mut slots, now, |_| true) {
                let before = inside.len();
                inside.retain(|it| *it != gone);
                prop_assert_eq!(inside.len(), before - 1, "it was worked on");
            }
            match operation {
                0 | 1 => {
                    let (may, known) = (slots.enter(&target, at(now), ()), inside.contains(&target));
                    prop_assert!(!(may && known), "one target, one slot");
                    if may {
                        inside.push(target);
                    }
                }
                _ => {
                    slots.leave(&target, operation == 2);
                    inside.retain(|it| *it != target);
                }
            }
            let (regulars, slows) = slots.taken();
            prop_assert!(regulars <= regular && slows <= slow);
            prop_assert_eq!(regulars + slows, inside.len());
            prop_assert!(slots.next_at().is_none_or(|due| due > at(now)), "kept too long");
        }
    }
}

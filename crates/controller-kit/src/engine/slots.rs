//! Who may work now, so that a target that does not answer holds up nobody else. Pure: every method is given the time.
//!
//! There are a few regular slots. Whoever is not done within the patience leaves its regular slot for one of a second,
//! larger set of slots, so six targets that hang hold the others up for the patience at most, and not until their timeouts. A
//! target that was slow and has not answered since begins in the second set, so it costs the others that time only once, or twice
//! where it was late before the patience was over: a call that answers may be, too, while the neighbour is busy. Where the
//! second set is full, the one that has been in it longest has to go: its work is given up, as if the process had crashed
//! there, and is taken up again by the next pass.
//!
//! A target never has two slots. The less urgent classes leave a slot each to the more urgent ones.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::queue::Class;

/// How many slots there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// For targets that answer.
    pub regular: usize,
    /// For those that do not.
    pub slow: usize,
    /// How long a target may take in a regular slot.
    pub patience: Duration,
}

/// Which targets are worked on, and what that work is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slots<T: Ord, W = ()> {
    limits: Limits,
    taken: BTreeMap<T, Taken<W>>,
    /// Targets that were slow the last time that they were worked on, and whether that says that they hang.
    late: BTreeMap<T, Doubt>,
}

/// What being late says of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doubt {
    /// It was late before the patience was over, once. Behind all that hang it would wait for minutes.
    Slight,
    /// It is a suspect.
    Grave,
}

/// A slot that a target has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Taken<W> {
    since: Instant,
    /// From when on it is late.
    late: Instant,
    /// When to look whether it has to leave its regular slot; nothing, if it has a slow one.
    look: Option<Instant>,
    work: W,
}

impl<W> Taken<W> {
    fn is_slow(&self) -> bool {
        self.look.is_none()
    }
}

impl<T: Clone + Ord, W> Slots<T, W> {
    /// None is taken.
    pub fn new(limits: Limits) -> Self {
        Self { limits, taken: BTreeMap::new(), late: BTreeMap::new() }
    }

    /// The least urgent class for which a regular slot is free. The others are kept for those that are more urgent.
    pub fn free_for(&self) -> Option<Class> {
        let free = self.limits.regular.saturating_sub(self.taken().0);
        // Where there are very few, the classes share them.
        let kept = |class: Class| (class as usize).min(self.limits.regular.saturating_sub(1));
        Class::ALL.into_iter().rev().find(|class| free > kept(*class))
    }

    /// Whether a target has a slot.
    pub fn has(&self, target: &T) -> bool {
        self.taken.contains_key(target)
    }

    /// Takes a slot for work on a target, where there is one and the target has none yet.
    pub fn enter(&mut self, target: &T, now: Instant, work: W) -> bool {
        self.enter_for(target, now, self.limits.patience, work)
    }

    /// The same where the target may take no longer than this in a regular slot.
    pub fn enter_for(&mut self, target: &T, now: Instant, patience: Duration, work: W) -> bool {
        let is_suspect = self.is_suspect(target);
        let is_free =
            if is_suspect { self.has_slow() } else { self.taken().0 < self.limits.regular };
        if self.has(target) || !is_free {
            return false;
        }
        let late = now + patience;
        let look = (!is_suspect).then_some(late);
        self.taken.insert(target.clone(), Taken { since: now, late, look, work });
        true
    }

    /// Whether a target was slow, and has not answered since.
    pub fn is_suspect(&self, target: &T) -> bool {
        self.late.get(target) == Some(&Doubt::Grave)
    }

    /// Whether there is a slot for one of those.
    pub fn has_slow(&self) -> bool {
        self.taken().1 < self.limits.slow
    }

    /// Whether as many that do not answer are worked on as there are regular slots: more of them may come first.
    pub fn is_in_doubt(&self) -> bool {
        self.taken().1 >= self.limits.regular
    }

    /// The target that is worked on for the longest time.
    pub fn oldest(&self) -> Option<&T> {
        self.taken.iter().min_by_key(|(_, it)| it.since).map(|(target, _)| target)
    }

    /// Moves work that only waits for somebody else, who serves few at a time, out of the regular slots, where there is room for
    /// it. Its targets are no suspects.
    pub fn set_aside(&mut self, waits: impl Fn(&W) -> bool) {
        let room = self.limits.slow.saturating_sub(self.taken().1);
        let waiting = self.taken.values_mut().filter(|it| !it.is_slow() && waits(&it.work));
        waiting.take(room).for_each(|it| it.look = None);
    }

    /// Moves those that took too long out of the regular slots. Where there is no room for one, the longest of those that may go
    /// has to, and comes back from here; where none may, it stays for now.
    pub fn make_room(&mut self, now: Instant, may_go: impl Fn(&T, &W) -> bool) -> Vec<(T, W)> {
        let late = self.taken.iter().filter(|(_, it)| !it.is_slow() && it.late <= now);
        let late: Vec<T> = late.map(|(target, _)| target.clone()).collect();
        let mut given_up = Vec::new();
        for target in late {
            let (has_room, patience) = (self.has_slow(), self.limits.patience);
            let Some(taken) = self.taken.get_mut(&target) else { continue };
            let is_hasty = taken.late < taken.since + patience;
            taken.look = None;
            if !has_room {
                let slow = self.taken.iter().filter(|(_, it)| it.is_slow());
                let slow = slow.filter(|(target, it)| may_go(target, &it.work));
                let longest = slow.min_by_key(|(it, taken)| (taken.since, **it == target));
                let longest = longest.map(|(it, _)| it.clone());
                let Some((it, gone)) = longest.and_then(|it| self.taken.remove_entry(&it)) else {
                    if let Some(stays) = self.taken.get_mut(&target) {
                        stays.look = Some(now + patience);
                    }
                    continue;
                };
                given_up.push((it, gone.work));
            }
            let is_slight = is_hasty && !self.late.contains_key(&target);
            self.late.insert(target, if is_slight { Doubt::Slight } else { Doubt::Grave });
        }
        given_up
    }

    /// When [`Slots::make_room`] has something to do next.
    pub fn next_at(&self) -> Option<Instant> {
        self.taken.values().filter_map(|it| it.look).min()
    }

    /// The work for a target has ended. `answered`: the target took part in that, so it is not slow any more.
    pub fn leave(&mut self, target: &T, answered: bool) -> Option<W> {
        if answered {
            self.late.remove(target);
        }
        self.taken.remove(target).map(|it| it.work)
    }

    /// The target does not exist any more.
    pub fn forget(&mut self, target: &T) {
        self.late.remove(target);
    }

    /// How many have a regular slot, and how many a slow one.
    pub fn taken(&self) -> (usize, usize) {
        let slow = self.taken.values().filter(|it| it.is_slow()).count();
        (self.taken.len() - slow, slow)
    }
}

#[cfg(test)]
mod tests;

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

/// Which targets are worked on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slots<T: Ord> {
    limits: Limits,
    regular: BTreeMap<T, Taken>,
    slow: BTreeMap<T, Instant>,
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

/// A regular slot that a target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Taken {
    since: Instant,
    /// From when on it is late.
    late: Instant,
    /// When to look whether it has to leave.
    look: Instant,
}

impl<T: Clone + Ord> Slots<T> {
    /// None is taken.
    pub fn new(limits: Limits) -> Self {
        Self { limits, regular: BTreeMap::new(), slow: BTreeMap::new(), late: BTreeMap::new() }
    }

    /// The least urgent class for which a regular slot is free. The others are kept for those that are more urgent.
    pub fn free_for(&self) -> Option<Class> {
        let free = self.limits.regular.saturating_sub(self.regular.len());
        // Where there are very few, the classes share them.
        let kept = |class: Class| (class as usize).min(self.limits.regular.saturating_sub(1));
        Class::ALL.into_iter().rev().find(|class| free > kept(*class))
    }

    /// Whether a target has a slot.
    pub fn has(&self, target: &T) -> bool {
        self.regular.contains_key(target) || self.slow.contains_key(target)
    }

    /// Takes a slot for a target, where there is one and the target has none yet.
    pub fn enter(&mut self, target: &T, now: Instant) -> bool {
        self.enter_for(target, now, self.limits.patience)
    }

    /// The same where the target may take no longer than this in a regular slot.
    pub fn enter_for(&mut self, target: &T, now: Instant, patience: Duration) -> bool {
        let suspect = self.is_suspect(target);
        let is_free =
            if suspect { self.has_slow() } else { self.regular.len() < self.limits.regular };
        if self.has(target) || !is_free {
            return false;
        }
        if suspect {
            self.slow.insert(target.clone(), now);
        } else {
            let late = now + patience;
            self.regular.insert(target.clone(), Taken { since: now, late, look: late });
        }
        true
    }

    /// Whether a target was slow, and has not answered since.
    pub fn is_suspect(&self, target: &T) -> bool {
        self.late.get(target) == Some(&Doubt::Grave)
    }

    /// Whether there is a slot for one of those.
    pub fn has_slow(&self) -> bool {
        self.slow.len() < self.limits.slow
    }

    /// Whether as many that do not answer are worked on as there are regular slots: more of them may come first.
    pub fn is_in_doubt(&self) -> bool {
        self.slow.len() >= self.limits.regular
    }

    /// Moves those that only wait for somebody else, who serves few at a time, out of the regular slots, where there is room for
    /// them. They are no suspects.
    pub fn set_aside(&mut self, waits: impl Fn(&T) -> bool) {
        let Self { limits, regular, slow, .. } = self;
        regular.retain(|target, taken| {
            let goes = slow.len() < limits.slow && waits(target);
            if goes {
                slow.insert(target.clone(), taken.since);
            }
            !goes
        });
    }

    /// Moves those that took too long out of the regular slots. Where there is no room for one, the longest of those that may go
    /// has to, and comes back from here; where none may, it stays for now.
    pub fn make_room(&mut self, now: Instant, may_go: impl Fn(&T) -> bool) -> Vec<T> {
        let late = self.regular.iter().filter(|(_, taken)| taken.late <= now);
        let late: Vec<(T, Taken)> = late.map(|(it, taken)| (it.clone(), *taken)).collect();
        let mut given_up = Vec::new();
        for (target, taken) in late {
            let since = taken.since;
            if !self.has_slow() {
                let all = self.slow.iter().chain([(&target, &since)]);
                let longest = all.filter(|(it, _)| may_go(it)).min_by_key(|(_, since)| **since);
                let Some(longest) = longest.map(|(it, _)| it.clone()) else {
                    let look = now + self.limits.patience;
                    self.regular.insert(target, Taken { look, ..taken });
                    continue;
                };
                self.slow.remove(&longest);
                given_up.push(longest);
            }
            self.regular.remove(&target);
            if given_up.last() != Some(&target) {
                self.slow.insert(target.clone(), since);
            }
            let hasty = taken.late < since + self.limits.patience;
            let doubt = if hasty && !self.late.contains_key(&target) {
                Doubt::Slight
            } else {
                Doubt::Grave
            };
            self.late.insert(target, doubt);
        }
        given_up
    }

    /// When [`Slots::make_room`] has something to do next.
    pub fn next_at(&self) -> Option<Instant> {
        self.regular.values().map(|taken| taken.look).min()
    }

    /// The work for a target has ended. `answered`: the target took part in that, so it is not slow any more.
    pub fn leave(&mut self, target: &T, answered: bool) {
        self.regular.remove(target);
        self.slow.remove(target);
        if answered {
            self.late.remove(target);
        }
    }

    /// The target does not exist any more.
    pub fn forget(&mut self, target: &T) {
        self.late.remove(target);
    }

    /// How many have a regular slot, and how many a slow one.
    pub fn taken(&self) -> (usize, usize) {
        (self.regular.len(), self.slow.len())
    }
}

#[cfg(test)]
mod tests;

//! Who may look at a workload cluster when.
//!
//! Most of these clusters are just being made and do not answer yet. So a few looks are under way at a time, one of each
//! cluster, and one that did not answer is left alone for a moment: no pass waits for another's turn.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller_kit::engine::{ObjectKey, Shared};
use k8s_openapi::api::core::v1::Node;
use kube::Api;

/// Looks at a time: a cluster that does not answer takes a place for five seconds of every 37, so a hundred of them leave some free.
const LOOKS: usize = 16;
/// One pass in so many may look.
const OF_PASSES: usize = 2;
/// How long a cluster that did not answer is left alone.
const RESTS: Duration = Duration::from_secs(30);
/// How soon to try again where other clusters are looked at, more or less.
const TURN: Duration = Duration::from_secs(2);

/// Who is looking, and which clusters are left alone until when. What is over is forgotten. Clones share it.
#[derive(Clone)]
pub struct Looks {
    places: usize,
    taken: Arc<Shared<HashMap<ObjectKey, Option<Instant>>>>,
}

impl Looks {
    /// As many at a time as so many passes allow.
    pub fn among(passes: usize) -> Self {
        Self { places: (passes / OF_PASSES).clamp(1, LOOKS), taken: Arc::default() }
    }

    /// Takes a place; or says how soon to come again.
    pub fn begin(
        &self,
        cluster: &ObjectKey,
        pace: Duration,
        now: Instant,
    ) -> Result<Look, Duration> {
        self.taken.with(|taken| {
            taken.retain(|_, until| until.is_none_or(|until| until > now));
            match taken.get(cluster) {
                Some(Some(until)) => return Err(until.saturating_duration_since(now) + TURN),
                // With thousands of machines in it somebody always looks, and to come for one's turn would be most of the work.
                Some(None) => return Err(pace),
                None => {}
            }
            if taken.values().filter(|until| until.is_none()).count() >= self.places {
                return Err(TURN);
            }
            taken.insert(cluster.clone(), None);
            Ok(Look { of: self.clone(), cluster: cluster.clone(), answered: false })
        })
    }
}

/// A place, until it is dropped. A look that ends before its cluster answered, however it ends, leaves that alone.
pub struct Look {
    of: Looks,
    cluster: ObjectKey,
    answered: bool,
}

impl Look {
    /// The cluster answered: these are its Nodes, for as long as the look takes.
    pub fn answered(mut self, nodes: Api<Node>) -> Place {
        self.answered = true;
        Place { nodes, _look: self }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.of.taken.with(|taken| {
            if self.answered {
                taken.remove(&self.cluster);
            } else {
                taken.insert(self.cluster.clone(), Some(Instant::now() + RESTS));
            }
        });
    }
}

/// The Nodes of a cluster that answered, for as long as the look at it takes.
pub struct Place {
    /// The Nodes.
    pub nodes: Api<Node>,
    _look: Look,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(number: usize) -> ObjectKey {
        ObjectKey { namespace: "ns".to_owned(), name: format!("c{number}") }
    }

    #[test]
    fn a_cluster_is_asked_by_one_at_a_time_and_left_alone_when_it_does_not_answer() {
        let (looks, now, pace) = (Looks::among(1_000), Instant::now(), Duration::from_secs(40));
        let begin = |number: usize, now: Instant| looks.begin(&cluster(number), pace, now);
        let mut first = begin(0, now).ok().unwrap();
        assert_eq!(begin(0, now).err(), Some(pace), "one is looking");
        first.answered = true;
        drop(first);
        drop(begin(0, now).ok().unwrap());
        let rests = begin(0, now).err().unwrap();
        assert!(rests > TURN && rests <= RESTS + TURN * 2, "{rests:?}");
        // What it rests takes nobody's place, and is over some time.
        let mut others: Vec<Look> =
            (1..=LOOKS).map(|number| begin(number, now).ok().unwrap()).collect();
        assert_eq!(begin(LOOKS + 1, now).err(), Some(TURN), "all places are taken");
        others.pop();
        assert!(begin(LOOKS + 1, now).is_ok());
        assert!(begin(0, now + RESTS * 2).is_ok());
    }
}

//! Who may look at a workload cluster when.
//!
//! Most of these clusters are just being made and do not answer yet. So a few looks are under way at a time, one of each
//! cluster. One that did not answer is left alone for a moment, and then has a lane among its like: it takes no place of those
//! that answer. No pass waits for another's turn.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller_kit::engine::lanes::{Lane, Lanes};
use controller_kit::engine::slots::Limits;
use controller_kit::engine::{Class, ObjectKey, Shared};
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use crate::text;

/// Looks at a time at clusters that answer, and as many at those that did not the last time.
const LOOKS: usize = 16;
/// One pass in so many may look.
const OF_PASSES: usize = 2;
/// A cluster that answers does so long before.
const ANSWERS: Duration = Duration::from_secs(1);
/// How long a cluster that did not answer is left alone.
const RESTS: Duration = Duration::from_secs(30);
/// How soon to try again where other clusters are looked at, more or less.
const TURN: Duration = Duration::from_secs(2);

/// Who is looking, and which clusters are left alone until when. What is over is forgotten. Clones share it.
#[derive(Clone)]
pub struct Looks {
    lanes: Lanes<ObjectKey>,
    clusters: Arc<Shared<HashMap<ObjectKey, Option<Instant>>>>,
}

impl Looks {
    /// As many at a time as so many passes allow.
    pub fn among(passes: usize) -> Self {
        let places = (passes / OF_PASSES).clamp(1, LOOKS);
        Self::of(Limits { regular: places, slow: places, patience: ANSWERS })
    }

    fn of(limits: Limits) -> Self {
        Self { lanes: Lanes::new(limits), clusters: Arc::default() }
    }

    /// Takes a place; or says how soon to come again.
    pub fn begin(
        &self,
        cluster: &ObjectKey,
        pace: Duration,
        now: Instant,
    ) -> Result<Look, Duration> {
        self.clusters.with(|clusters| {
            clusters.retain(|_, until| until.is_none_or(|until| until > now));
            match clusters.get(cluster) {
                Some(Some(until)) => return Err(until.saturating_duration_since(now) + TURN),
                // With thousands of machines in it somebody always looks, and to come for one's turn would be most of the work.
                Some(None) => return Err(pace),
                None => {}
            }
            let lane = self.lanes.try_enter(cluster, Class::Urgent).ok_or(TURN)?;
            clusters.insert(cluster.clone(), None);
            let turn = Turn { of: self.clone(), cluster: cluster.clone(), answered: false };
            Ok(Look { lane, turn })
        })
    }
}

/// A place in a lane, and the turn of the cluster.
pub struct Look {
    lane: Lane<ObjectKey>,
    turn: Turn,
}

impl Look {
    /// Asks the cluster. What comes of that, and the turn if it answered, for as long as anything is done there.
    pub async fn ask<T>(
        self,
        asked: impl Future<Output = Result<T, String>>,
    ) -> Result<(T, Turn), String> {
        let Self { lane, mut turn } = self;
        let answer = lane.run(asked, Result::is_ok).await;
        let answer = answer.unwrap_or_else(|_| Err(text::GAVE_ITS_PLACE.to_owned()))?;
        turn.answered = true;
        Ok((answer, turn))
    }
}

/// The turn of a cluster, until it is dropped. One that ends before the cluster answered, however it ends, leaves that alone.
pub struct Turn {
    of: Looks,
    cluster: ObjectKey,
    answered: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of.clusters.with(|clusters| {
            if self.answered {
                clusters.remove(&self.cluster);
            } else {
                clusters.insert(self.cluster.clone(), Some(Instant::now() + RESTS));
            }
        });
    }
}

/// The Nodes of a cluster that answered, for as long as its turn takes.
pub struct Place {
    /// The Nodes.
    pub nodes: Api<Node>,
    /// The turn.
    pub turn: Turn,
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    const PACE: Duration = Duration::from_secs(40);
    const MOMENT: Duration = Duration::from_millis(20);

    fn cluster(number: usize) -> ObjectKey {
        ObjectKey { namespace: "ns".to_owned(), name: format!("c{number}") }
    }

    #[tokio::test]
    async fn a_cluster_is_asked_by_one_at_a_time_and_left_alone_when_it_does_not_answer() {
        let (looks, now) = (Looks::among(1_000), Instant::now());
        let begin = |number: usize, now: Instant| looks.begin(&cluster(number), PACE, now);
        let first = begin(0, now).ok().unwrap();
        assert_eq!(begin(0, now).err(), Some(PACE), "one is looking");
        let (said, turn) = first.ask(async { Ok("it is here") }).await.ok().unwrap();
        assert_eq!(
            (said, begin(0, now).err()),
            ("it is here", Some(PACE)),
            "something is done there"
        );
        drop(turn);
        let silent = begin(0, now).ok().unwrap().ask(async { Err::<(), _>("no".to_owned()) }).await;
        assert_eq!(silent.err().as_deref(), Some("no"));
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

    /// The silent ones never answer, so whoever had to wait for the end of a look at one would wait for ever.
    #[tokio::test]
    async fn forty_silent_clusters_of_eighty_delay_none_of_the_others() {
        let looks = Looks::of(Limits { regular: 4, slow: 4, patience: MOMENT });
        let look = async |looks: Looks, number: usize, answers: bool| {
            let look = loop {
                match looks.begin(&cluster(number), PACE, Instant::now()) {
                    Ok(look) => break look,
                    Err(_) => tokio::time::sleep(MOMENT / 4).await,
                }
            };
            let silence = std::future::pending::<()>();
            let answer = async {
                if !answers {
                    silence.await;
                }
                Ok(())
            };
            look.ask(answer).await.map(drop)
        };
        let (mut silent, mut others) = (JoinSet::new(), JoinSet::new());
        for number in 0..40 {
            silent.spawn(look(looks.clone(), number, false));
        }
        while looks.lanes.taken().0 < 4 {
            tokio::task::yield_now().await;
        }
        for number in 40..80 {
            others.spawn(look(looks.clone(), number, true));
        }
        let seen = tokio::time::timeout(MOMENT * 500, others.join_all()).await;
        let seen = seen.expect("clusters that answer do not wait for silent ones");
        assert!(seen.iter().all(Result::is_ok), "{seen:?}");
        // One that is known to be silent takes no place of the others, however often it is looked at.
        for _ in 0..36 {
            silent.join_next().await.unwrap().unwrap().unwrap_err();
        }
        looks.clusters.with(HashMap::clear);
        let again: Vec<_> =
            (0..40).map(|it| looks.begin(&cluster(it), PACE, Instant::now())).collect();
        assert!(
            again.iter().all(|it| it.as_ref().err() == Some(&TURN)),
            "all of their own lanes are taken"
        );
    }
}

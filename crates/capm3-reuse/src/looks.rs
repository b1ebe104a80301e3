//! How many workload clusters are looked at at a time.
//!
//! Most of these clusters are just being made and do not answer yet. So a few looks are under way at a time, one of each
//! cluster. One that did not answer has a lane among its like: it takes no place of those that answer. No pass waits for
//! another's turn.

use std::time::Duration;

use controller_kit::engine::ObjectKey;
use controller_kit::engine::lanes::Lanes;
use controller_kit::engine::slots::Limits;

/// Looks at a time at clusters that answer, and as many at those that did not the last time.
const LOOKS: usize = 16;
/// One pass in so many may look.
const OF_PASSES: usize = 2;
/// A cluster that answers does so long before.
const ANSWERS: Duration = Duration::from_secs(1);

/// As many at a time as so many passes allow.
pub fn among(passes: usize) -> Lanes<ObjectKey> {
    let places = (passes / OF_PASSES).clamp(1, LOOKS);
    Lanes::new(Limits { regular: places, slow: places, patience: ANSWERS })
}

#[cfg(test)]
mod tests {
    use controller_kit::engine::Class;
    use tokio::task::JoinSet;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(20);

    fn cluster(number: usize) -> ObjectKey {
        ObjectKey { namespace: "ns".to_owned(), name: format!("c{number}") }
    }

    #[tokio::test]
    async fn a_cluster_is_asked_by_one_at_a_time_and_so_many_clusters_at_once() {
        let looks = among(1_000);
        let begin = |number: usize| looks.try_enter(&cluster(number), Class::Urgent);
        let first = begin(0).unwrap();
        assert!(begin(0).is_none(), "one is looking");
        let refused = first.run(async { Err::<(), _>("no") }, Result::is_ok).await;
        assert_eq!(refused.ok(), Some(Err("no")));
        assert!(begin(0).is_some(), "it may answer the next time");
        let mut others: Vec<_> = (1..=LOOKS).map(|number| begin(number).unwrap()).collect();
        assert!(begin(LOOKS + 1).is_none(), "all places are taken");
        others.pop();
        assert!(begin(LOOKS + 1).is_some());
    }

    /// The silent ones never answer, so whoever had to wait for the end of a look at one would wait for ever.
    #[tokio::test]
    async fn forty_silent_clusters_of_eighty_delay_none_of_the_others() {
        let looks = Lanes::new(Limits { regular: 4, slow: 4, patience: MOMENT });
        let look = async |looks: Lanes<ObjectKey>, number: usize, answers: bool| {
            let lane = loop {
                match looks.try_enter(&cluster(number), Class::Urgent) {
                    Some(lane) => break lane,
                    None => tokio::time::sleep(MOMENT / 4).await,
                }
            };
            let silence = std::future::pending::<()>();
            let answer = async {
                if !answers {
                    silence.await;
                }
                Ok::<_, String>(())
            };
            lane.run(answer, Result::is_ok).await
        };
        let (mut silent, mut others) = (JoinSet::new(), JoinSet::new());
        for number in 0..40 {
            silent.spawn(look(looks.clone(), number, false));
        }
        while looks.taken().0 < 4 {
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
        let again = (0..40).map(|it| looks.try_enter(&cluster(it), Class::Urgent));
        assert!(again.into_iter().all(|it| it.is_none()), "all of their own lanes are taken");
    }
}

//! Hosts that could not be made, and machines that could not be looked at once more before: when each is tried again.
//! No I/O.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::inventory::printable;
use crate::node_id::NodeId;

/// How soon a host that the API server does not want is tried again: somebody has to change something first.
const REFUSED: Duration = Duration::from_secs(30);
/// How soon one is tried again about which it could not answer: twice as late each time, and never later than the other.
const FAILED: Duration = Duration::from_secs(1);
/// Bytes that are kept of what the API server said.
const LONGEST_TEXT: usize = 512;

/// Why a host could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The API server does not want it.
    Refused,
    /// The API server failed before it made the host, and may say when to come again; or Ironic did not say that the
    /// machine is still there.
    Failed(Option<Duration>),
    /// Nobody knows whether the host was made: no answer came, or one that leaves it open.
    Unknown,
}

/// A host that could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub cause: Cause,
    /// What the API server said, or Ironic.
    pub text: String,
    /// Whether it is to be left alone for now.
    pub waits: bool,
    failures: u32,
    until: Instant,
}

/// All of them, by their nodes.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    all: BTreeMap<NodeId, Refusal>,
}

impl Refusals {
    /// An attempt failed. `unit` is a number from 0 to 1, so that what failed together does not come back together. Tells
    /// whether that is news: thousands of hosts may be refused in the same words every half minute.
    pub fn failed(
        &mut self,
        node: NodeId,
        cause: Cause,
        text: &str,
        at: Instant,
        unit: f64,
    ) -> bool {
        let text = printable(text, LONGEST_TEXT);
        let known = self.all.get(&node);
        let is_news = known.is_none_or(|it| it.text != text);
        let failures = known.map_or(0, |it| it.failures);
        let least = match cause {
            Cause::Refused => REFUSED,
            Cause::Failed(after) => {
                backoff(failures).max(after.unwrap_or_default().min(10 * REFUSED))
            }
            Cause::Unknown => backoff(failures),
        };
        let refusal = Refusal {
            cause,
            text,
            waits: true,
            failures: failures + 1,
            until: at + least.mul_f64(1.0 + unit.clamp(0.0, 1.0) / 4.0),
        };
        self.all.insert(node, refusal);
        is_news
    }

    /// Ironic could not say whether a machine is still there, so no host is made of it: others have its place meanwhile.
    pub fn unconfirmed(&mut self, node: NodeId, error: &str, at: Instant, unit: f64) {
        let text = format!("Ironic does not say whether the node {node} is still there: {error}");
        // That Ironic failed is counted and logged where it was asked.
        self.failed(node, Cause::Failed(None), &text, at, unit);
    }

    /// The host is there.
    pub fn made(&mut self, node: NodeId) {
        self.all.remove(&node);
    }

    /// All as of now, of machines that are still there.
    pub fn now(&mut self, at: Instant, is_there: impl Fn(NodeId) -> bool) {
        self.all.retain(|node, _| is_there(*node));
        for refusal in self.all.values_mut() {
            refusal.waits = refusal.until > at;
        }
    }

    /// All of them.
    pub fn all(&self) -> &BTreeMap<NodeId, Refusal> {
        &self.all
    }

    /// When the next one is to be tried again.
    pub fn next(&self) -> Option<Instant> {
        self.all.values().filter(|it| it.waits).map(|it| it.until).min()
    }
}

fn backoff(failures: u32) -> Duration {
    (FAILED * 2_u32.pow(failures.min(8))).min(REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(refusals: &Refusals, at: Instant) -> Duration {
        refusals.next().unwrap().duration_since(at)
    }

    #[test]
    fn what_the_api_server_does_not_want_is_tried_every_half_minute() {
        let (mut refusals, at) = (Refusals::default(), Instant::now());
        for _ in 0..20 {
            refusals.failed(NodeId::from(1), Cause::Refused, "quota", at, 0.0);
            assert_eq!(waits(&refusals, at), Duration::from_secs(30));
        }
    }

    #[test]
    fn the_same_words_about_one_host_are_news_once() {
        let (mut refusals, at) = (Refusals::default(), Instant::now());
        let mut tell = |node: u128, text: &str| {
            refusals.failed(NodeId::from(node), Cause::Refused, text, at, 0.0)
        };
        let told = [tell(1, "quota"), tell(1, "quota"), tell(2, "quota"), tell(1, "a webhook")];
        assert_eq!(told, [true, false, true, true]);
        refusals.made(NodeId::from(1));
        assert!(refusals.failed(NodeId::from(1), Cause::Refused, "a webhook", at, 0.0));
    }

    #[test]
    fn what_it_could_not_answer_is_tried_later_each_time_and_not_before_it_said() {
        let (mut refusals, at) = (Refusals::default(), Instant::now());
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            refusals.failed(NodeId::from(1), Cause::Unknown, "", at, 0.0);
            assert_eq!(waits(&refusals, at), Duration::from_secs(seconds));
        }
        let busy = Cause::Failed(Some(Duration::from_secs(7)));
        refusals.failed(NodeId::from(2), busy, "too many requests", at, 0.0);
        assert_eq!(waits(&refusals, at), Duration::from_secs(7));
    }

    #[test]
    fn it_waits_until_its_time_and_is_forgotten_with_its_machine() {
        let (mut refusals, at) = (Refusals::default(), Instant::now());
        refusals.failed(NodeId::from(1), Cause::Unknown, "", at, 1.0);
        let waiting = |refusals: &Refusals| refusals.all()[&NodeId::from(1)].waits;
        refusals.now(at + Duration::from_millis(1200), |_| true);
        assert!(waiting(&refusals));
        refusals.now(at + Duration::from_millis(1300), |_| true);
        assert!(!waiting(&refusals) && refusals.next().is_none());
        refusals.now(at, |_| false);
        assert!(refusals.all().is_empty());
    }
}

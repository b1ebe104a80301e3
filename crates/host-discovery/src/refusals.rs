//! Hosts that could not be made, and machines that could not be looked at once more before: when each is tried again.
//! No I/O.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use controller_kit::engine::ObjectKey;

use crate::inventory::printable;
use crate::node_id::NodeId;
use crate::waits::{FIRST_RETRY, REFUSED_RETRY, REST_MAX};

/// So many that it refuses in the same words are tried in that time: most often one thing has to change for all of them.
const TOGETHER: usize = 10;
/// Bytes that are kept of what the API server said.
pub const LONGEST_TEXT: usize = 512;

/// Why a host could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The API server does not want this host.
    Refused(ObjectKey),
    /// The API server failed before it made the host, and may say when to come again.
    Failed(Option<Duration>),
    /// Ironic did not say that the machine is still there, or what hardware it has.
    Unsaid,
    /// Nobody knows whether the host was made: no answer came, or one that leaves it open.
    Unknown,
}

/// A host that could not be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Why.
    pub cause: Cause,
    /// What the API server said, or Ironic.
    pub text: String,
    /// Whether it is to be left alone for now.
    pub waits: bool,
    /// In which namespace it was refused, and in which words.
    kind: u64,
    failures: u32,
    /// How much longer than others of its kind it waits.
    spread: f64,
    until: Instant,
}

impl Refusal {
    /// Whether it says something of this host: what is refused under one name, or in one namespace, may be wanted in another.
    pub fn is_of(&self, namespace: &str, name: &str) -> bool {
        match &self.cause {
            Cause::Refused(host) => host.namespace == namespace && host.name == name,
            Cause::Failed(_) | Cause::Unsaid | Cause::Unknown => true,
        }
    }

    fn is_refused(&self) -> bool {
        matches!(self.cause, Cause::Refused(_))
    }

    fn is_like(&self, kind: u64) -> bool {
        self.is_refused() && self.kind == kind
    }
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
        let kind = kind_of(&text);
        let least = match &cause {
            Cause::Refused(_) => {
                let others = self.all.iter().filter(|(it, _)| **it != node);
                refused(others.filter(|(_, it)| it.is_like(kind)).count())
            }
            Cause::Failed(after) => {
                backoff(failures).max(after.unwrap_or_default().min(10 * REFUSED_RETRY))
            }
            Cause::Unsaid | Cause::Unknown => backoff(failures),
        };
        let spread = 1.0 + unit.clamp(0.0, 1.0) / 4.0;
        let (failures, until) = (failures + 1, at + least.mul_f64(spread));
        let refusal = Refusal { cause, text, waits: true, kind, failures, spread, until };
        self.all.insert(node, refusal);
        is_news
    }

    /// The API server took the host: some of those that it refused as it had refused this one are tried at once. That it
    /// takes the machine's host elsewhere says nothing of them.
    pub fn taken(&mut self, node: NodeId, host: &ObjectKey, at: Instant) {
        let known = self.all.remove(&node).filter(Refusal::is_refused);
        let known = known.filter(|it| it.is_of(&host.namespace, &host.name));
        let Some(it) = known else { return };
        let waits = |other: &&mut Refusal| other.is_like(it.kind) && other.until > at;
        for other in self.all.values_mut().filter(waits).take(TOGETHER) {
            other.until = at;
        }
    }

    /// The host is there.
    pub fn made(&mut self, node: NodeId) {
        self.all.remove(&node);
    }

    /// All as of now, of machines that are still there. Where some of those that were refused in the same words went, the
    /// others wait no longer than if they were refused now.
    pub fn now(&mut self, at: Instant, is_there: impl Fn(NodeId) -> bool) {
        self.all.retain(|node, _| is_there(*node));
        let mut alike: HashMap<u64, usize> = HashMap::new();
        for it in self.all.values().filter(|it| it.is_refused()) {
            *alike.entry(it.kind).or_default() += 1;
        }
        for refusal in self.all.values_mut() {
            if refusal.is_refused() {
                let others = alike.get(&refusal.kind).map_or(0, |all| all - 1);
                refusal.until = refusal.until.min(at + refused(others).mul_f64(refusal.spread));
            }
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

/// When one is tried again, beside so many that were refused in the same words.
fn refused(others: usize) -> Duration {
    let turns = u32::try_from(others / TOGETHER + 1).unwrap_or(u32::MAX);
    // With the spread, an hour at the longest: what has to change may be another thing for each.
    REFUSED_RETRY.saturating_mul(turns).min(REST_MAX * 4 / 5)
}

/// What tells one refusal from another: the namespace, and the words without names, which stand in quotes.
fn kind_of(text: &str) -> u64 {
    let (host, words) = text.split_once(": ").unwrap_or(("", text));
    let namespace = host.split('/').next().unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    namespace.hash(&mut hasher);
    words.split('"').step_by(2).for_each(|words| words.hash(&mut hasher));
    hasher.finish()
}

fn backoff(failures: u32) -> Duration {
    (FIRST_RETRY * 2_u32.pow(failures.min(8))).min(REFUSED_RETRY)
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
            refusals.failed(NodeId::from(1), refused_in("a", 1), "quota", at, 0.0);
            assert_eq!(waits(&refusals, at), Duration::from_secs(30));
        }
    }

    /// The API server does not want the host of a machine.
    fn refused_in(namespace: &str, number: u128) -> Cause {
        Cause::Refused(ObjectKey::new(namespace, &format!("n{number}")))
    }

    /// What the API server says where a quota is used up.
    fn over_quota(namespace: &str, number: u128) -> String {
        format!(
            "{namespace}/n{number}: hosts \"n{number}\" is forbidden: exceeded quota: few, limited: 1"
        )
    }

    #[test]
    fn of_many_that_are_refused_in_the_same_words_some_are_tried_every_half_minute() {
        let (mut refusals, at) = (Refusals::default(), Instant::now());
        let mut tries = |namespace: &str, from: u128| {
            for number in from..from + 1000 {
                let text = over_quota(namespace, number);
                let cause = refused_in(namespace, number);
                refusals.failed(NodeId::from(number), cause, &text, at, 0.0);
            }
            let within = |seconds| {
                refusals.now(at + Duration::from_secs(seconds), |it| it >= NodeId::from(from));
                refusals.all().values().filter(|it| !it.waits).count()
            };
            [29, 30, 60, 600, 3600].map(within)
        };
        assert_eq!(tries("a", 0), [0, 10, 20, 200, 1000]);
        // Those of another namespace are refused for something else.
        assert_eq!(tries("b", 1000), [0, 10, 20, 200, 1000]);
        assert_eq!(refused(100_000).mul_f64(1.25), Duration::from_secs(3600));
    }

    #[test]
    fn when_others_that_were_refused_like_them_are_gone_the_rest_waits_no_longer_for_them() {
        let (mut refusals, at) = (Refusals::default(), Instant::now());
        for number in 0..905 {
            let text = over_quota("a", number);
            refusals.failed(NodeId::from(number), refused_in("a", number), &text, at, 1.0);
        }
        let mut waiting = |seconds, left: u128| {
            let later = at + Duration::from_secs(seconds);
            refusals.now(later, |it| it < NodeId::from(left));
            refusals.all().values().filter(|it| it.waits).count()
        };
        // Nothing changes as long as all are there, however often that is looked at.
        assert_eq!([waiting(0, 905), waiting(37, 905), waiting(38, 905)], [905, 905, 895]);
        assert_eq!(waiting(60, 905), 895);
        // Those that were refused last, among hundreds.
        let mut waiting = |seconds| {
            let later = at + Duration::from_secs(seconds);
            refusals.now(later, |it| it >= NodeId::from(900));
            refusals.all().values().filter(|it| it.waits).count()
        };
        assert_eq!([waiting(60), waiting(97), waiting(98)], [5, 5, 0]);
    }

    #[test]
    fn when_one_is_taken_others_that_were_refused_like_it_are_tried_at_once() {
        let (mut refusals, at) = (Refusals::default(), Instant::now());
        for number in 0..100 {
            let text = over_quota("a", number);
            refusals.failed(NodeId::from(number), refused_in("a", number), &text, at, 0.0);
        }
        refusals.failed(NodeId::from(200), refused_in("a", 200), "a/x: a webhook", at, 0.0);
        let mut tried = |namespace: &str, number: u128| {
            let host = ObjectKey::new(namespace, &format!("n{number}"));
            refusals.taken(NodeId::from(number), &host, at);
            refusals.now(at, |_| true);
            refusals.all().values().filter(|it| !it.waits).count()
        };
        assert_eq!([tried("a", 200), tried("a", 0), tried("a", 99)], [0, 10, 20]);
        // That one is taken elsewhere says nothing of them.
        assert_eq!(tried("b", 98), 20);
    }

    #[test]
    fn the_same_words_about_one_host_are_news_once() {
        let (mut refusals, at) = (Refusals::default(), Instant::now());
        let mut tell = |node: u128, text: &str| {
            refusals.failed(NodeId::from(node), refused_in("a", node), text, at, 0.0)
        };
        let told = [tell(1, "quota"), tell(1, "quota"), tell(2, "quota"), tell(1, "a webhook")];
        assert_eq!(told, [true, false, true, true]);
        refusals.made(NodeId::from(1));
        assert!(refusals.failed(NodeId::from(1), refused_in("a", 1), "a webhook", at, 0.0));
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

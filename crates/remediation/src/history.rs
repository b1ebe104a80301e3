//! The last tries of a host, as a bounded record on the host. It outlives the requests, so that somebody can tell later
//! why a host was off; and the entry without an end is part of the memory of the try that is under way.

use api_types::metal3::BareMetalHost;
use api_types::names::ferrite::REMEDIATION_HISTORY;
use controller_kit::engine::Reason as _;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::reason::Reason;

/// Tries that are remembered.
pub const MOST: usize = 10;

/// One try.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "so many independent facts")]
pub struct Entry {
    /// Uid of the request.
    pub remediation: String,
    /// The Machine.
    pub machine: String,
    /// Its identity: one that is made anew under its name was not asked about.
    pub machine_uid: Option<String>,
    /// Its node.
    pub node: Option<String>,
    /// The cluster of that node, where the request's label does not say it.
    pub cluster: Option<String>,
    /// 0 for the first, then the number of the retry.
    #[serde(rename = "try")]
    pub number: u32,
    /// When the host was asked to be switched off.
    pub asked: Timestamp,
    /// Whether it was asked by the plain key, which holds nothing off. A setting that changes meanwhile is for the next try.
    #[serde(default)]
    pub plain: bool,
    /// Whether the plain key was set beside ours: the operator of Metal3 takes it away as soon as it has read that the host is off.
    #[serde(default)]
    pub beside: bool,
    /// Whether the host was on then, or was seen on since: only then an "off" later on is known to be news.
    #[serde(default)]
    pub was_on: bool,
    /// Of what time the word was that our key holds the host off, where that stood there before the key did: it is of the try
    /// before, and proves nothing of this one.
    pub held_off_before: Option<Timestamp>,
    /// Whether nodes were taken out of service when it began. A process with another setting could not look at the node, and would
    /// leave the taint on it.
    #[serde(default)]
    pub taints: bool,
    /// When the host was seen off, and known not to come back.
    pub off: Option<Timestamp>,
    /// What was done about the node meanwhile.
    pub fenced: Option<String>,
    /// What the kubelet last said while the host was off: the node is back when it says something else.
    pub kubelet: Option<String>,
    /// When the host was allowed to come back.
    pub released: Option<Timestamp>,
    /// CAPM3 had begun before us: an out-of-service taint that names nobody is the request's.
    #[serde(default)]
    pub adopted: bool,
    /// The watch filter of the installation whose try it is: another one must not take its request for gone.
    pub filter: Option<String>,
    /// When a pause ended: times that were running begin anew then.
    pub resumed: Option<Timestamp>,
    /// The host of a control plane whose machine was given up is left on until that machine is being deleted.
    #[serde(default)]
    pub stays_on: bool,
    /// What may be left on the node, since nobody could look at it in time.
    pub left: Option<String>,
    /// The cluster whose node may still have our taint. It is looked at until it has not, also when the request is long gone.
    pub tainted: Option<String>,
    /// When the try ended.
    pub ended: Option<Timestamp>,
    /// How it ended.
    pub result: Option<String>,
    /// When the owner of the machine was about to be told that it is given up.
    pub told: Option<Timestamp>,
    /// Why the machine was given up after it, in words.
    pub cause: Option<String>,
}

impl Entry {
    /// A try that begins.
    pub fn begin(remediation: &str, machine: &str, number: u32, asked: Timestamp) -> Self {
        Self {
            remediation: remediation.to_owned(),
            machine: machine.to_owned(),
            number,
            asked,
            ..Self::default()
        }
    }

    /// Whether it ended so.
    fn has_come_to(&self, result: Reason) -> bool {
        self.result.as_deref() == Some(result.as_str())
    }

    /// Whether it ended before it had come to anything.
    pub fn was_given_up(&self) -> bool {
        let came_to = [Reason::Recovered, Reason::NotRecovered, Reason::Exhausted];
        self.ended.is_some() && !came_to.into_iter().any(|it| self.has_come_to(it))
    }

    /// Whether its node was ready again.
    pub fn has_recovered(&self) -> bool {
        self.has_come_to(Reason::Recovered)
    }
}

/// The tries, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History(pub Vec<Entry>);

impl History {
    /// Reads what stands on a host. What cannot be read is nobody's memory: it starts anew.
    pub fn of(host: &BareMetalHost) -> Self {
        let text = host.annotation(REMEDIATION_HISTORY).unwrap_or_default();
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// As it stands on the host. What is not known, or not so, takes no room there.
    pub fn text(&self) -> String {
        let mut all = json!(self.0);
        for entry in all.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.retain(|_, it| !it.is_null() && *it != json!(false));
        }
        all.to_string()
    }

    /// The try of a request that has not ended: none begins before that.
    pub fn open(&self, remediation: &str) -> Option<&Entry> {
        self.last(remediation).filter(|it| it.ended.is_none())
    }

    /// The last try of a request, whether it has ended or not.
    pub fn last(&self, remediation: &str) -> Option<&Entry> {
        self.0.iter().rev().find(|it| it.remediation == remediation)
    }

    /// Whether a request has used up all its tries here.
    pub fn is_exhausted(&self, remediation: &str) -> bool {
        self.0.iter().any(|it| it.remediation == remediation && it.has_come_to(Reason::Exhausted))
    }

    /// When the owner of the machine of this uid was told that all tries were used up, if that is the last that happened to the
    /// host. A record of an earlier release knows when they were.
    pub fn gave_up(&self, machine: &str) -> Option<Timestamp> {
        let last = self.0.last().filter(|it| it.machine_uid.as_deref() == Some(machine))?;
        last.told.or(last.ended).filter(|_| last.has_come_to(Reason::Exhausted))
    }

    /// The same with every open try of a request ended.
    #[must_use]
    pub fn ended(&self, remediation: &str, result: Reason, now: Timestamp) -> Self {
        let mut all = self.clone();
        for entry in &mut all.0 {
            if entry.remediation == remediation && entry.ended.is_none() {
                entry.ended = Some(now);
                entry.result = Some(result.as_str().to_owned());
            }
        }
        all
    }

    /// The same with one more try. The oldest go.
    #[must_use]
    pub fn with(&self, entry: Entry) -> Self {
        let mut all = self.clone();
        all.0.push(entry);
        let surplus = all.0.len().saturating_sub(MOST);
        all.0.drain(..surplus);
        all
    }

    /// The same with the last try of a request changed, whether it has ended or not.
    #[must_use]
    pub fn changed(&self, remediation: &str, change: impl FnOnce(&mut Entry)) -> Self {
        let mut all = self.clone();
        if let Some(entry) = all.0.iter_mut().rev().find(|it| it.remediation == remediation) {
            change(entry);
        }
        all
    }

    /// The same with what may be left on the node said in the last try of a request; where that may be our taint, with its cluster.
    #[must_use]
    pub fn leaving(&self, remediation: &str, what: &str, tainted: Option<&str>) -> Self {
        self.changed(remediation, |it| {
            (it.left, it.tainted) = (Some(what.to_owned()), tainted.map(str::to_owned));
        })
    }

    /// A try that may have left our taint on its node. While another one is under way, that has to do with the node.
    pub fn tainted(&self) -> Option<&Entry> {
        let mut all = self.0.iter();
        let left = all.find(|it| it.tainted.is_some() && it.node.is_some());
        left.filter(|_| self.0.iter().all(|it| it.ended.is_some()))
    }

    /// The same with nothing left on the node of a request.
    #[must_use]
    pub fn untainted(&self, remediation: &str) -> Self {
        let mut all = self.clone();
        for entry in all.0.iter_mut().filter(|it| it.remediation == remediation) {
            if entry.tainted.take().is_some() {
                entry.left = None;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn only_the_last_tries_are_remembered() {
        let mut history = History::default();
        for number in 0..25 {
            let begun = Entry::begin("uid", "m", number, at(i64::from(number)));
            history = history.with(begun).ended("uid", Reason::NotRecovered, at(100));
        }
        let numbers: Vec<u32> = history.0.iter().map(|it| it.number).collect();
        assert_eq!(numbers, (15..25).collect::<Vec<_>>());
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let begun = History::default().with(Entry::begin("uid", "m", 1, at(5)));
        let history = begun.changed("uid", |it| it.released = Some(at(9)));
        let mut host = BareMetalHost::default();
        let texts = [(REMEDIATION_HISTORY.to_owned(), history.text())];
        host.metadata.annotations = Some(texts.into());
        assert_eq!(History::of(&host), history);
    }

    #[test]
    fn a_record_that_somebody_spoilt_starts_anew() {
        let mut host = BareMetalHost::default();
        host.metadata.annotations =
            Some([(REMEDIATION_HISTORY.to_owned(), "[{".to_owned())].into());
        assert_eq!(History::of(&host), History::default());
    }

    #[test]
    fn the_tries_of_another_request_are_left_as_they_are() {
        let history = History::default()
            .with(Entry::begin("a", "m", 0, at(1)))
            .with(Entry::begin("b", "m", 0, at(2)))
            .ended("b", Reason::Exhausted, at(3));
        assert_eq!(history.open("a").unwrap().asked, at(1));
        assert!(history.open("b").is_none());
        assert!(history.is_exhausted("b") && !history.is_exhausted("a"));
    }
}

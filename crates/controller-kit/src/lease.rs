//! One of several replicas acts: a `coordination.k8s.io` Lease.
//!
//! Nobody's wall clock is compared with anybody else's. The holder believes in itself for
//! `renew-deadline` from the moment it *sent* the last renewal that succeeded; others wait the lease's
//! duration from the moment they *saw* the last change. Both are measured on the local monotonic
//! clock, so two holders need clocks that run at speeds as different as the two durations.
//! Losing the lease ends the process: the simplest state to be sure about is a fresh one.
//!
//! Others watch the lease, so a release hands over at once. Every write is conditional on the
//! resourceVersion that was decided on.
//!
//! A process that lacks what it needs (a neighbour cannot be reached from its node, say) leads only where no other can. It takes
//! a free lease one lease duration late, and after [`UNFIT_LEADER`] writes on its lease what it lacks. A replica
//! that lacks nothing asks for the lease then, and the leader ends to give it away. Where nobody asks it leads on:
//! somebody has to tell the objects what they wait for.

use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api_error;
use crate::config::Settings;
use crate::kit::Kit;

/// Names what the holder of the lease has lacked for a while.
pub const LEADER_LACKS: &str = "ferrite.metal3.io/leader-lacks";
/// Names the replica that asks such a holder for the lease.
pub const LEASE_WANTED_BY: &str = "ferrite.metal3.io/lease-wanted-by";
/// How long a leader may lack something before it says so: most neighbours start anew in less.
pub const UNFIT_LEADER: Duration = Duration::from_secs(30);

/// What was last seen of the lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Empty: free.
    pub holder: String,
    /// How long its holder asked others to wait.
    pub duration: Duration,
    /// The resourceVersion that the next write is conditional on.
    pub version: String,
    /// What its holder says that it lacks.
    pub lacks: Option<String>,
    /// Which replica asked for it because of that.
    pub wanted_by: Option<String>,
}

/// What this process knows. Times are since the start of the process on its own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// `None`: there is no lease, or nobody looked yet.
    pub record: Option<Record>,
    /// Whether the record is worth a decision; false before the first look and after a write
    /// whose outcome is unknown.
    pub fresh: bool,
    /// When this version was first seen.
    pub seen: Duration,
    /// When the last of our writes that succeeded was sent; `None` when we do not hold the lease.
    pub held_since: Option<Duration>,
    /// What this process lacks, and since when; `None` when it is fit to lead.
    pub lacks: Option<(String, Duration)>,
}

/// Who says how the lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The watch, which may be behind our own writes.
    Watch,
    /// The API server's answer to a request of ours. After its database was restored versions are lower than before.
    Answer,
}

impl View {
    /// Takes notice of how the lease is.
    pub fn saw(&mut self, record: Option<Record>, source: Source, now: Duration) {
        self.fresh = true;
        if let (Some(old), Some(new)) = (&self.record, &record) {
            let is_older = match (old.version.parse::<u64>(), new.version.parse::<u64>()) {
                (Ok(old), Ok(new)) => new < old,
                _ => false,
            };
            if old.version == new.version || (is_older && source == Source::Watch) {
                return;
            }
        }
        (self.record, self.seen) = (record, now);
    }
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look at it first.
    Read,
    /// There is none: create it in our name.
    Create,
    /// It is free, or its holder fell silent: take it.
    Take,
    /// It is ours: renew it, and say what we lack.
    Renew,
    /// Its holder lacks something that we have: ask for it.
    Ask,
    /// It is ours and a fit replica asks for it: end, which gives it away.
    GiveAway,
    /// Nothing before this time, unless the lease changes.
    WaitUntil(Duration),
    /// It was ours and is no more, or we cannot be sure.
    Lost,
}

/// The whole decision. First match wins.
pub fn next(me: &str, settings: &Settings, view: &View, now: Duration) -> Next {
    if view.held_since.is_some() && !is_valid(settings, view, now) {
        return Next::Lost;
    }
    if !view.fresh {
        return Next::Read;
    }
    // A fit candidate gets a free lease before one that is not.
    let handicap = if view.lacks.is_some() { settings.lease_duration } else { Duration::ZERO };
    let take_at = |free: Duration, step| {
        let at = free + handicap;
        if now >= at { step } else { Next::WaitUntil(at) }
    };
    match (&view.record, view.held_since) {
        (Some(record), Some(sent)) if record.holder == me => {
            let lacks = lacks_for_long(view, now);
            let due = sent + settings.retry_period;
            if lacks.is_some() && record.wanted_by.as_deref().is_some_and(|by| by != me) {
                Next::GiveAway
            } else if now >= due || record.lacks.as_deref() != lacks {
                Next::Renew
            } else {
                Next::WaitUntil(due)
            }
        }
        (_, Some(_)) => Next::Lost,
        (None, None) => take_at(view.seen, Next::Create),
        // Ours without our knowing: a write that took effect after we stopped waiting for it.
        (Some(record), None) if record.holder == me => Next::Take,
        (Some(record), None) if record.holder.is_empty() => take_at(view.seen, Next::Take),
        (Some(record), None) => {
            let is_offered = record.lacks.is_some() && record.wanted_by.is_none();
            if is_offered && view.lacks.is_none() {
                return Next::Ask;
            }
            // The longer of both waits: a holder with other settings gets what it counts on.
            take_at(view.seen + record.duration.max(settings.lease_duration), Next::Take)
        }
    }
}

/// What this process has lacked for so long that another should lead.
fn lacks_for_long(view: &View, now: Duration) -> Option<&str> {
    let (lacks, since) = view.lacks.as_ref()?;
    (now >= *since + UNFIT_LEADER).then_some(lacks)
}

/// Whether a holder may act at `now`.
pub fn is_valid(settings: &Settings, view: &View, now: Duration) -> bool {
    view.held_since.is_some_and(|sent| now < sent + settings.renew_deadline)
}

/// Takes the lease when it is free and keeps it, until it is lost or released. Drop the work first, then ask for the release,
/// which says until when the API server is waited for.
pub async fn keep(kit: &Kit, release: impl Future<Output = Instant>) {
    let settings = &*kit.config;
    let namespace = settings.lease_namespace.as_deref();
    let namespace = namespace.unwrap_or_else(|| kit.client.default_namespace());
    let mut keeper = Keeper {
        kit,
        settings,
        me: &kit.identity,
        api: Api::namespaced(kit.client.clone(), namespace),
        start: Instant::now(),
        view: View::default(),
        failing: false,
        superseded: false,
    };
    let until = tokio::select! {
        until = release => Some(until),
        // A request that hangs must not hide that the time is over.
        () = kit.leadership.until_taken_and_lost() => None,
        () = keeper.turn() => None,
    };
    if let Some(until) = until {
        keeper.release(until).await;
    }
    kit.leadership.set(None);
    kit.liveness.done("lease");
}

struct Keeper<'a> {
    kit: &'a Kit,
    settings: &'a Settings,
    me: &'a str,
    api: Api<Lease>,
    start: Instant,
    view: View,
    failing: bool,
    /// Somebody else wrote first, as the API server says, and this was not waited since.
    superseded: bool,
}

impl Keeper<'_> {
    async fn turn(&mut self) {
        let kit = self.kit;
        let mut conditions = kit.readiness.subscribe();
        let only_this = watcher::Config::default()
            .fields(&format!("metadata.name={}", self.settings.lease_name));
        let mut changes = watcher(self.api.clone(), only_this).default_backoff().boxed();
        loop {
            kit.liveness.beat("lease", self.settings.lease_duration * 4);
            let now = self.start.elapsed();
            self.note_fitness(now);
            let until = match next(self.me, self.settings, &self.view, now) {
                Next::Lost => return,
                Next::WaitUntil(until) => {
                    self.superseded = false;
                    until
                }
                Next::GiveAway => {
                    tracing::warn!(
                        lease.name = self.settings.lease_name,
                        lease.wanted_by =
                            self.view.record.as_ref().and_then(|it| it.wanted_by.as_deref()),
                        lacks = self.view.lacks.as_ref().map(|(lacks, _)| lacks.as_str()),
                        "Ends to give the lease to a replica that lacks nothing"
                    );
                    // The work ends first. Whoever ends it asks for the release.
                    kit.shutdown.request();
                    return std::future::pending().await;
                }
                step => {
                    if self.request(step).await {
                        continue;
                    }
                    self.start.elapsed() + self.settings.retry_period
                }
            };
            // A waiting standby still turns often enough to be seen alive.
            let until = self.start + until.min(self.start.elapsed() + self.settings.lease_duration);
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                _ = conditions.changed() => {}
                event = changes.next() => match event {
                    Some(Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease))) => self.saw(Some(&lease), Source::Watch),
                    Some(Ok(watcher::Event::Delete(_))) => self.saw(None, Source::Watch),
                    // The watch is a way to be quick; without it the clock does the work.
                    Some(_) => {}
                    None => tokio::time::sleep_until(until).await,
                },
            }
        }
    }

    fn note_fitness(&mut self, now: Duration) {
        let since = self.view.lacks.as_ref().map_or(now, |(_, since)| *since);
        self.view.lacks = self.kit.readiness.lacks_to_lead().map(|lacks| (lacks, since));
    }

    /// Does one request; false when it failed and is to be tried again later.
    async fn request(&mut self, step: Next) -> bool {
        let (sent, name) = (self.start.elapsed(), &self.settings.lease_name);
        let patience = self.settings.renew_deadline / 2;
        let problem = match tokio::time::timeout(patience, self.send(step, sent)).await {
            Ok(Ok(lease)) => {
                self.saw(lease.as_ref(), Source::Answer);
                if matches!(step, Next::Create | Next::Take | Next::Renew) {
                    if self.view.held_since.is_none() {
                        tracing::info!(lease.name = name, lease.holder = self.me, "Took the lease");
                    }
                    self.view.held_since = Some(sent);
                    let fence = self.start + sent + self.settings.renew_deadline;
                    self.kit.leadership.set(Some(fence));
                }
                self.failing = false;
                return true;
            }
            // Somebody wrote first: look at what is there now. A proxy or a policy may say the same for ever, so not twice
            // without a pause.
            Ok(Err(kube::Error::Api(status)))
                if !self.superseded
                    && (status.code == 409 || (status.code == 404 && step != Next::Create)) =>
            {
                (self.superseded, self.view.fresh) = (true, false);
                return true;
            }
            Ok(Err(error)) => api_error::explain(&error),
            Err(_) => "the API server did not answer in time".to_owned(),
        };
        // A request without an answer may have been carried out.
        self.view.fresh = false;
        if !self.failing {
            tracing::warn!(lease.name = name, error = problem, "Could not read or write the lease");
        }
        self.failing = true;
        false
    }

    /// The request of a step, and the lease after it, if there is one.
    async fn send(&self, step: Next, sent: Duration) -> kube::Result<Option<Lease>> {
        let name = &self.settings.lease_name;
        let sent = match step {
            Next::Create => {
                let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.spec(step)) };
                self.api.create(&PostParams::default(), &lease).await
            }
            Next::Take | Next::Renew => {
                let lacks = lacks_for_long(&self.view, sent);
                let says = json!({ "annotations": { LEADER_LACKS: lacks, LEASE_WANTED_BY: null } });
                let renewed = json!({ "metadata": says, "spec": self.spec(step) });
                self.patch(renewed).await
            }
            Next::Ask => {
                tracing::info!(
                    lease.name = name,
                    "Asks for the lease of a leader that lacks something"
                );
                let asks = json!({ "annotations": { LEASE_WANTED_BY: self.me } });
                self.patch(json!({ "metadata": asks })).await
            }
            _ => return api_error::unless_gone(self.api.get(name).await),
        };
        sent.map(Some)
    }

    fn saw(&mut self, lease: Option<&Lease>, source: Source) {
        let record = lease.map(|lease| {
            let spec = lease.spec.as_ref();
            let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
            let says = |name| lease.annotations().get(name).cloned();
            Record {
                holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
                duration: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
                version: lease.metadata.resource_version.clone().unwrap_or_default(),
                lacks: says(LEADER_LACKS),
                wanted_by: says(LEASE_WANTED_BY),
            }
        });
        self.view.saw(record, source, self.start.elapsed());
    }

    fn spec(&self, step: Next) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.me.to_owned()),
            lease_duration_seconds: i32::try_from(self.settings.lease_duration.as_secs()).ok(),
            acquire_time: (step != Next::Renew).then(|| now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }

    /// Changes the lease if it is still as it was seen.
    async fn patch(&self, mut patch: Value) -> kube::Result<Lease> {
        let version = self.view.record.as_ref().map_or("", |it| it.version.as_str());
        patch["metadata"]["resourceVersion"] = json!(version);
        self.api
            .patch(&self.settings.lease_name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Leaves the lease free, so that the next one need not wait. What does not work until then is left to time.
    async fn release(&mut self, until: Instant) {
        if !is_valid(self.settings, &self.view, self.start.elapsed()) {
            return;
        }
        // From here on nothing may act, whatever becomes of the request.
        self.kit.leadership.set(None);
        let left = until.saturating_duration_since(Instant::now());
        match api_error::within(left, self.free()).await {
            Ok(()) => tracing::info!(lease.name = self.settings.lease_name, "Released the lease"),
            Err(error) => tracing::warn!(error, "Could not release the lease"),
        }
    }

    /// One write, as every request costs time that somebody waits for.
    async fn free(&mut self) -> kube::Result<()> {
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        };
        while self.view.record.as_ref().is_some_and(|it| it.holder == self.me) {
            match self.patch(json!({ "spec": spec })).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                done => return done.map(drop),
            }
            // A renewal that was cut off changed the version after all.
            let lease = self.api.get(&self.settings.lease_name).await?;
            self.saw(Some(&lease), Source::Answer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

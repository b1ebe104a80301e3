//! Watches, the loop, and one pass over all machines.
//!
//! There is one pass for all resources, not one for each: whose machine it is, and which of two machines gets a name, can
//! only be decided about all of them together.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use api_types::capi::is_watched;
use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery, BareMetalHostSpec};
use controller_kit::backoff::{self, Failures};
use controller_kit::watch::{self, Complaints, Told, Undecodable};
use controller_kit::{Kit, run};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, Sender, UnboundedSender};

use crate::config::Policy;
use crate::errand::{self, Errand};
use crate::error::Error;
use crate::hardware::LateFields;
use crate::index::{Change, HostKey, Index, Known};
use crate::metrics::Metrics;
use crate::node_id::NodeId;
use crate::nodes::Unmarked;
use crate::observe;
use crate::pass::State;
use crate::reason;
use crate::sighting::Sighting;

/// A pass begins to read machines for ten seconds at most, ends what it has begun, and writes for some more.
const DEADLINE: Duration = Duration::from_secs(120);
/// How soon the loop turns again at the earliest: what comes in between is looked at together.
const BREATH: Duration = Duration::from_millis(20);
/// The longest rest; a turn that finds nothing to do costs nothing.
const REST: Duration = Duration::from_secs(60);
/// How soon a pass that failed is repeated at first.
const FIRST: Duration = Duration::from_millis(500);
/// Events that wait to be sent. What has no room is not told: the status and the log have it.
const MOST_EVENTS: usize = 128;
/// Events in a row, and in a second after those.
const EVENTS_AT_ONCE: u32 = 50;
const EVENTS_PER_SECOND: u32 = 2;
/// How often objects that cannot be decoded are told.
const TICK: Duration = Duration::from_secs(10);

/// What the parts of the process share.
pub struct Context {
    /// Handles of the process.
    pub kit: Kit,
    /// How to decide.
    pub policy: Policy,
    /// Ironic.
    pub ironic: ironic::Client,
    /// What is counted.
    pub metrics: Metrics,
    /// Discoveries that cannot be decoded.
    pub undecodable: Undecodable,
    resources: Store<BareMetalHostDiscovery>,
    index: Mutex<Index>,
    news: Mutex<News>,
    wake: Notify,
    making: AtomicBool,
    late_fields: OnceLock<LateFields>,
    errands: UnboundedSender<Errand>,
    events: Sender<Event>,
}

/// What happened since the last pass.
#[derive(Debug, Default)]
pub struct News {
    /// Hosts that went, are no longer known by what they were known by, or are no longer the only ones: their machines
    /// have to be read again.
    pub gone: HashSet<HostKey>,
    /// Nodes whose host went.
    pub left: Vec<Unmarked>,
    /// Nodes that bear the mark now.
    pub marked: Vec<NodeId>,
}

impl News {
    fn went(&mut self, host: Known) {
        if let Some(node) = host.made_for {
            self.left.push(Unmarked { node, host: host.host.clone() });
        }
        self.gone.insert(host.host);
    }
}

struct Event {
    object: ObjectReference,
    warning: bool,
    reason: String,
    action: String,
    text: String,
}

impl Context {
    /// Which machines are hosts.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happened since this was last asked.
    pub fn take_news(&self) -> News {
        std::mem::take(&mut *self.news())
    }

    /// Every resource, in no order. The watch filter leaves out those of others.
    pub fn resources(&self) -> Vec<Arc<BareMetalHostDiscovery>> {
        let mut all = self.resources.state();
        all.retain(|it| self.is_ours(&it.metadata));
        all
    }

    /// Whether the watch filter lets a resource pass.
    pub fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        is_watched(metadata, self.kit.config.watch_filter.as_deref())
    }

    /// Something that decisions are made of changed.
    fn changed(&self) {
        self.wake.notify_one();
    }

    fn host_changed(&self, change: Change) {
        match change {
            Change::None => return,
            Change::More => {}
            Change::Less(host) => {
                self.news().gone.insert(host);
            }
            Change::Gone(host) => self.news().went(host),
        }
        self.changed();
    }

    /// A node bears the mark now.
    pub fn marked(&self, node: NodeId) {
        self.news().marked.push(node);
    }

    /// Whether the last pass made hosts.
    pub fn is_making(&self) -> bool {
        self.making.load(Ordering::Relaxed)
    }

    /// Takes notice of whether hosts are being made.
    pub fn set_making(&self, making: bool) {
        self.making.store(making, Ordering::Relaxed);
    }

    /// What the installed operator can read of a host's hardware.
    pub fn late_fields(&self) -> LateFields {
        self.late_fields.get().copied().unwrap_or_default()
    }

    /// Asks that once: another release of the operator is seen by the next process.
    async fn learn_fields(&self) -> Result<(), Error> {
        if self.late_fields.get().is_none() {
            let fields = observe::late_fields(self).await?;
            let _ = self.late_fields.set(fields);
        }
        Ok(())
    }

    /// Has something written to Ironic, some time.
    pub fn send(&self, errand: Errand) {
        // Nobody listens any more only when the process ends.
        let _ = self.errands.send(errand);
    }

    /// Has an event published, some time, unless too many wait already.
    pub fn tell(
        &self,
        object: ObjectReference,
        warning: bool,
        reason: &str,
        action: &str,
        text: String,
    ) {
        let (reason, action) = (reason.to_owned(), action.to_owned());
        let _ = self.events.try_send(Event { object, warning, reason, action, text });
    }
}

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy, settings: ironic::Settings) -> Result<(), String> {
    let client = ironic::Client::new(settings).map_err(|error| error.to_string())?;
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let hosts = watch::told_everywhere::<Sighting>(&kit);
    let watched = watch::namespaced::<BareMetalHostDiscovery>(&kit, &watcher::Config::default());
    let (errands, to_do) = mpsc::unbounded_channel();
    let (events, to_tell) = mpsc::channel(MOST_EVENTS);
    let context = Arc::new(Context {
        kit: kit.clone(),
        policy,
        ironic: client,
        metrics,
        undecodable: watched.undecodable,
        resources: watched.store,
        index: Mutex::default(),
        news: Mutex::default(),
        wake: Notify::new(),
        making: AtomicBool::new(false),
        late_fields: OnceLock::new(),
        errands,
        events,
    });
    let following = follow(&context, hosts);
    let resources = watch::feed(watched.changes, |_| context.changed());
    let awake = kit.allowed().for_each(|()| {
        context.changed();
        std::future::ready(())
    });
    tokio::select! {
        () = kit.shutdown.requested() => Ok(()),
        never = turn(&context) => match never {},
        never = errand::run(&context, to_do) => match never {},
        () = publish(&context, to_tell) => Ok(()),
        never = tell_undecodable(&context) => match never {},
        () = following => Err("The watch on hosts ended".to_owned()),
        () = resources => Err("The watch on discoveries ended".to_owned()),
        () = awake => Err("The readiness signal ended: this is a bug, please report it".to_owned()),
    }
}

/// Keeps the index as the hosts are.
async fn follow(context: &Context, hosts: impl futures_util::Stream<Item = Told<Sighting>>) {
    let mut hosts = std::pin::pin!(hosts);
    while let Some(told) = hosts.next().await {
        match told {
            Told::Listing => context.index().listing(),
            Told::Applied(Sighting(host)) => {
                let (change, rivals) = context.index().take(&host);
                // Their nodes have two hosts now.
                context.news().gone.extend(rivals);
                if context.policy.adopt_driver
                    && let Some(errand) = Errand::adopt(&host)
                {
                    context.send(errand);
                }
                context.host_changed(change);
            }
            Told::Undecodable(metadata) => {
                // Its name and its annotations still say whose machine it is.
                let host = BareMetalHost {
                    metadata,
                    ..BareMetalHost::new("", "", BareMetalHostSpec::default())
                };
                let change = context.index().apply(&host);
                context.host_changed(change);
            }
            Told::Gone(metadata) => {
                let change = context.index().remove(&metadata);
                context.host_changed(change);
            }
            Told::Listed => {
                let gone = context.index().listed();
                for host in gone {
                    context.news().went(host);
                }
                context.changed();
            }
        }
    }
}

/// The loop: a pass when something changed, when Ironic is to be asked, or when a decision says so.
async fn turn(context: &Context) -> Infallible {
    let kit = &context.kit;
    let failures = Failures::<()>::default();
    let mut state = State::new(context);
    let mut failed = 0_u32;
    loop {
        kit.liveness.beat("controller", DEADLINE + REST);
        if !kit.may_act() {
            state.stand_by(context).await;
            continue;
        }
        let (mut rest, mut is_fine) = (None, false);
        let work = async {
            context.learn_fields().await?;
            let (after, result) = state.pass(context).await;
            rest = Some(after);
            result?;
            is_fine = true;
            Ok::<_, Error>(Action::requeue(after))
        };
        run::once(kit, &failures, (), DEADLINE, work, Error::class).await;
        failed = if is_fine { 0 } else { failed + 1 };
        let wait = wait_after(failed, rest).clamp(BREATH, REST);
        let woken = async {
            context.wake.notified().await;
            tokio::time::sleep(BREATH).await;
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = woken => {}
        }
    }
}

/// How long to wait after so many passes in a row that failed. `rest`: for how long the last one found nothing to do, where
/// it came to its end.
fn wait_after(failed: u32, rest: Option<Duration>) -> Duration {
    let Some(doublings) = failed.checked_sub(1) else { return rest.unwrap_or(REST) };
    let longest = spread(FIRST * 2_u32.pow(doublings.min(5)));
    rest.map_or(longest, |rest| longest.min(rest.max(FIRST)))
}

/// Sends events one after the other, some at once and then slowly.
async fn publish(context: &Context, mut events: mpsc::Receiver<Event>) {
    let mut saved = f64::from(EVENTS_AT_ONCE);
    let mut last = Instant::now();
    while let Some(event) = events.recv().await {
        let gained = last.elapsed().as_secs_f64() * f64::from(EVENTS_PER_SECOND);
        (saved, last) = ((saved + gained).min(f64::from(EVENTS_AT_ONCE)), Instant::now());
        if saved < 1.0 {
            let wait = (1.0 - saved) / f64::from(EVENTS_PER_SECOND);
            tokio::time::sleep(Duration::from_secs_f64(wait)).await;
            (saved, last) = (1.0, Instant::now());
        }
        saved -= 1.0;
        let Event { object, warning, reason, action, text } = event;
        context.kit.events.tell(&object, warning, &reason, &action, &text).await;
    }
}

/// Tells the owners of resources that cannot be decoded.
async fn tell_undecodable(context: &Context) -> Infallible {
    let mut complaints = Complaints::default();
    loop {
        tokio::time::sleep(TICK).await;
        if !context.kit.may_act() {
            continue;
        }
        for it in complaints.news(std::slice::from_ref(&context.undecodable)) {
            let text = format!(
                "Until this is corrected, neither this discovery nor any younger one makes hosts: {}",
                it.problem
            );
            context.tell(it.object, true, reason::Told::Undecodable.as_str(), "Decode", text);
        }
    }
}

/// A quarter more at most, so that processes that failed together do not come back together.
pub(crate) fn spread(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + backoff::random_unit() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_of_one_resource_does_not_hold_up_the_machines_of_others() {
        let seconds = |failed, rest: Option<u64>| {
            wait_after(failed, rest.map(Duration::from_secs)).as_secs_f64()
        };
        // After each failure later, but not later than there is something to do, nor at once.
        assert!((0.5..0.7).contains(&seconds(1, Some(0))));
        assert!((0.5..0.7).contains(&seconds(99, Some(0))));
        assert!((5.0..5.1).contains(&seconds(99, Some(5))));
        // One that was given up says nothing about that.
        assert!((16.0..20.1).contains(&seconds(99, None)));
        assert!((0.0..0.1).contains(&seconds(0, Some(0))));
    }
}

//! What is looked after beside the passes: gauges, objects that cannot be decoded, and what requests that are gone have left on
//! hosts and Machines.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use api_types::capi::is_watched;
use api_types::metal3::BareMetalHost;
use api_types::time::whole;
use controller_kit::backoff::{self, Failures, Retry};
use controller_kit::engine::Reason as _;
use controller_kit::watch::{Complaints, Undecodable};
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::runtime::reflector::Store;

use super::Context;
use crate::act::{release_orphan, take_back};
use crate::error::Error;
use crate::history::{Entry, History};
use crate::leftover;
use crate::metrics::tally;
use crate::reason::Reason;
use crate::request::key_of;
use crate::seen::{has_plain, is_paused};
use crate::told::Told;

/// How often it is looked.
const TICK: Duration = Duration::from_secs(2);

/// What could not be done, and when it is tried again.
#[derive(Default)]
struct Later {
    failures: Failures<String>,
    at: HashMap<String, Instant>,
    told: Told,
}

impl Later {
    fn waits(&self, what: &str) -> bool {
        self.at.get(what).is_some_and(|at| *at > Instant::now())
    }

    /// Forgets what does not have to be done any more.
    fn keep(&mut self, wanted: &HashSet<String>) {
        self.at.retain(|it, _| wanted.contains(it));
        self.told.keep(wanted);
    }

    fn done(&mut self, what: &str) {
        self.failures.forget(&what.to_owned());
        self.at.remove(what);
    }

    fn failed(&mut self, what: String, error: &Error) {
        let retry = self.failures.failed(what.clone(), error.class(), backoff::random_unit());
        if let Retry::After(wait) = retry {
            self.at.insert(what, Instant::now() + wait);
        }
    }
}

/// Sets gauges, tells the owners of objects that cannot be decoded, releases hosts whose request was taken away by force, and
/// takes back what Machines say of requests that are gone.
pub(super) async fn tend(context: &Context, broken: &[Undecodable]) -> Infallible {
    // Each at its own pace: no host stays off because something of Cluster API is slow.
    tokio::select! {
        never = tell(context, broken) => never,
        never = tend_hosts(context) => never,
        never = tend_machines(context) => never,
    }
}

async fn tell(context: &Context, broken: &[Undecodable]) -> Infallible {
    let mut complaints = Complaints::default();
    loop {
        show(context);
        complaints.tell(&context.kit, broken).await;
        tokio::time::sleep(TICK).await;
    }
}

async fn tend_hosts(context: &Context) -> Infallible {
    let mut later = Later::default();
    loop {
        if may_tidy(context) {
            release_all(context, &mut later).await;
        }
        tokio::time::sleep(TICK).await;
    }
}

async fn tend_machines(context: &Context) -> Infallible {
    let mut later = Later::default();
    loop {
        if may_tidy(context) {
            take_back_all(context, &mut later).await;
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Whether a request that is not seen is gone.
fn may_tidy(context: &Context) -> bool {
    let upstream = context.policy.upstream_group;
    context.kit.may_act() && context.from.served.has_all(upstream, context.begun.elapsed())
}

async fn release_all(context: &Context, later: &mut Later) {
    let held = context.from.held.places();
    let known = if held.is_empty() { HashSet::new() } else { context.known() };
    let orphans: Vec<_> = held.into_iter().filter(|(uid, ..)| !known.contains(uid)).collect();
    later.keep(&orphans.iter().map(|(uid, ..)| uid.clone()).collect());
    for (uid, namespace, name) in orphans {
        if later.waits(&uid) || context.is_host_paused(&namespace, &name) {
            continue;
        }
        match release(context, &uid, &namespace, &name).await {
            Ok(()) => later.done(&uid),
            Err(error) => {
                tracing::warn!(object.namespace = namespace, object.name = name, %error, "Could not release a host");
                if error.is_refusal()
                    && later.told.is_news(&uid, &error.to_string(), Instant::now())
                {
                    tell_refused(context, &namespace, &name, &error).await;
                }
                later.failed(uid, &error);
            }
        }
    }
}

/// A host stays off for a request that is gone, and a person has to allow that it is released.
async fn tell_refused(context: &Context, namespace: &str, name: &str, error: &Error) {
    let Ok(Some(host)) = context.from.host(namespace, Some(name)).await else { return };
    let text = format!(
        "The request that held the host off is gone, and the write that releases the host is refused; it is retried \
         until it is allowed: {error}"
    );
    let object = host.object_ref(&());
    context.kit.events.warning(&object, Reason::Refused.as_str(), "Release", &text).await;
}

async fn take_back_all(context: &Context, later: &mut Later) {
    let mut left = context.leftovers.places();
    left.retain(|(namespace, name)| !context.from.asks_for(namespace, name));
    let place = |namespace: &str, name: &str| format!("{namespace}/{name}");
    later.keep(&left.iter().map(|(namespace, name)| place(namespace, name)).collect());
    for (namespace, name) in left {
        let what = place(&namespace, &name);
        if later.waits(&what) || context.is_machine_paused(&namespace, &name) {
            continue;
        }
        match take_back_from(context, &namespace, &name).await {
            Ok(()) => later.done(&what),
            Err(error) => {
                tracing::warn!(object.namespace = namespace, object.name = name, %error, "Could not take back what a Machine says");
                later.failed(what, &error);
            }
        }
    }
}

/// Takes back what a Machine says of a request that is gone: nobody else would, and its owner could replace it for that when
/// it is well again. Machines of another watch filter are left to that installation.
async fn take_back_from(context: &Context, namespace: &str, name: &str) -> Result<(), Error> {
    let Some(machine) = context.from.free_machine(namespace, name).await? else { return Ok(()) };
    let said = leftover::of(&machine);
    let is_ours = is_watched(&machine.metadata, context.policy.watch_filter.as_deref());
    if said.is_empty() || !is_ours || context.from.really_there(namespace, name, None).await? {
        return Ok(());
    }
    take_back(&context.kit.client, context.from.served, &machine, &said).await?;
    tracing::info!(
        object.namespace = namespace,
        object.name = name,
        conditions = said.join(", "),
        "Took back what a Machine said of a request that is gone"
    );
    Ok(())
}

/// Releases a host that is held by a request of ours which is gone. Whose key it is, the record on the host says: a key
/// without one is not ours.
pub(super) async fn release(
    context: &Context,
    uid: &str,
    namespace: &str,
    name: &str,
) -> Result<(), Error> {
    let Some(host) = context.from.host(namespace, Some(name)).await? else { return Ok(()) };
    let history = History::of(&host);
    let Some(entry) = left_open(&host, &history, uid) else { return Ok(()) };
    // The stores may be behind.
    if context.from.really_there(namespace, &entry.machine, Some(uid)).await? {
        return Ok(());
    }
    let is_held = host.annotation(&key_of(uid)).is_some() || has_plain(&host, uid);
    let ended = history.ended(uid, Reason::Withdrawn, whole(Timestamp::now()));
    release_orphan(&context.kit.client, &host, uid, &ended).await?;
    if !is_held {
        // It had let go of the host, and all that was missing is the end of its record.
        return Ok(());
    }
    context.metrics.released();
    let text = "The request that held the host off is gone: it may be switched on";
    let object = host.object_ref(&());
    context.kit.events.warning(&object, Reason::Withdrawn.as_str(), "Release", text).await;
    Ok(())
}

/// The try of a request on a host that may be ended there. To a host that somebody paused nothing is written: when the pause
/// ends, the record is still open.
fn left_open<'a>(host: &BareMetalHost, history: &'a History, uid: &str) -> Option<&'a Entry> {
    history.open(uid).filter(|_| !is_paused(host))
}

fn show(context: &Context) {
    let now = Timestamp::now();
    context.from.pauses.look(Instant::now(), now);
    let upstream = context.from.upstream.as_ref().map(Store::state).unwrap_or_default();
    let filter = context.policy.watch_filter.as_deref();
    let (phases, oldest) = tally(&context.from.ours.state(), &upstream, filter, now);
    context.from.workloads.tidy(Instant::now());
    let requests = context.from.ours.len() + context.from.upstream.as_ref().map_or(0, Store::len);
    if context.interest.count() > requests {
        context.interest.keep(|who| context.from.has(who));
    }
    if !(context.from.pauses.is_empty() && context.told.is_empty()) {
        let known = context.known();
        context.from.pauses.keep(&known);
        context.told.keep(&known);
    }
    context.metrics.shown(&phases, oldest, context.from.workloads.counts());
}

#[cfg(test)]
mod tests {
    use api_types::names::ferrite::PAUSED_BY_BMO_REBOOT;
    use api_types::names::metal3::PAUSED;

    use super::*;

    #[test]
    fn what_a_request_that_is_gone_left_on_a_host_stays_there_while_somebody_pauses_the_host() {
        let goes = |pause: Option<&str>| {
            let mut host = BareMetalHost::default();
            let pause = pause.map(|by| (PAUSED.to_owned(), by.to_owned()));
            host.metadata.annotations = Some(pause.into_iter().collect());
            let history = History(vec![Entry::begin("uid", "m", 0, Timestamp::UNIX_EPOCH)]);
            left_open(&host, &history, "uid").is_some()
        };
        let pauses = [None, Some(""), Some("somebody"), Some(PAUSED_BY_BMO_REBOOT)];
        assert_eq!(pauses.map(goes), [true, false, false, true]);
    }
}

//! Wiring: the watch, Ironic's lists, whom a change concerns, and the rule book as the engine drives it.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use api_types::metal3::CachedHost;
use controller_kit::Kit;
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::links::{Links, ThingName};
use controller_kit::engine::{self, Class, Controller, Error, Lookout, Now, ObjectKey, Outcome};
use controller_kit::watch;
use ironic::{Follow, Nodes};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::watcher;

use crate::context::{Context, SoftAttempts};
use crate::decide::{decide, needs_look};
use crate::metrics::Metrics;
use crate::model::{Decision, Host, Memory, Node, NodeSeen, Observed, Write};
use crate::observe::{FIELDS, observe};
use crate::reason::Reason;
use crate::settings::Policy;
use crate::write::write;

/// One pass, of which a soft reset takes longest.
const PASS_DEADLINE: Duration = Duration::from_secs(120);
/// The condition of readiness.
const IRONIC: &str = "ironic";
const IRONIC_LISTS: &str = "ironic-lists";

/// Works until the process is to end.
pub async fn run(kit: Kit, policy: Policy, settings: ironic::Settings) -> Result<(), String> {
    let client = ironic::Client::new(settings).map_err(|error| error.to_string())?;
    // All hosts, also those that are nobody's: a host that is taken away from us has to be given back.
    let watched = watch::namespaced::<CachedHost>(&kit, &watcher::Config::default());
    let metrics = Metrics::new(&kit.metrics.registry, watched.store.clone())
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let context = Context {
        nodes: Nodes::new(client, FIELDS),
        metrics,
        lookout: Lookout::default(),
        links: Links::default(),
        softly: SoftAttempts::default(),
        hosts: watched.store,
        policy,
        kit: kit.clone(),
    };
    kit.readiness.require_to_lead(IRONIC, "Ironic was not asked yet");
    let watching = Box::pin(async {
        tokio::select! {
            () = watch::feed(watched.changes, |host| changed(&context, host)) => {}
            never = context.nodes.follow(context.policy.poll_interval, &context) => match never {},
        }
    });
    Box::pin(engine::run(&kit, &context, &context.lookout, watching, PASS_DEADLINE)).await
}

/// A host appeared, changed or went.
fn changed(context: &Context, host: &CachedHost) {
    let key = ObjectKey::of(host);
    let is_there = context.hosts.get(&key.in_store()).is_some();
    let seen = Host::of(host, &context.policy);
    for other in context.links.update(&key, is_there.then_some(seen.node.as_str())) {
        context.lookout.enqueue(other, Class::Normal);
    }
    context.softly.note(&key, is_there && seen.has_soft_attempt());
    if !is_there {
        context.lookout.gone(key);
        return;
    }
    let urgent = !context.policy.is_anothers(host) && seen.is_urgent(&context.policy);
    let class = if urgent { Class::Urgent } else { Class::Normal };
    let version = host.resource_version().unwrap_or_default();
    if context.lookout.changed(&key, &version, class) {
        // Whatever was read of its node says nothing about what the host asks for now.
        context.nodes.renew(&seen.node, urgent);
    }
}

impl Controller for Context {
    type Key = ObjectKey;
    type Observed = Observed;
    type Write = Box<Write>;
    type Memory = Memory;
    type Reason = Reason;

    fn keys(&self) -> Vec<ObjectKey> {
        self.hosts.state().iter().map(|host| ObjectKey::of(&**host)).collect()
    }

    fn class(&self, key: &ObjectKey) -> Class {
        let urgent = self.served(key).is_some_and(|host| host.is_urgent(&self.policy));
        if urgent { Class::Urgent } else { Class::Normal }
    }

    /// Somebody waits for a machine to be off, so nothing here waits for minutes, nor for a change of the host: what is
    /// refused today by a webhook or a schema is corrected there.
    fn retry(&self, error: &Error) -> Retry {
        error.retry().urgent()
    }

    fn version<'s>(&self, seen: &'s Observed) -> Option<&'s str> {
        seen.host.as_ref().map(|host| host.version.as_str())
    }

    fn object(&self, key: &ObjectKey) -> ObjectReference {
        let uid = self.hosts.get(&key.in_store()).and_then(|host| host.uid());
        ObjectReference { uid, ..key.reference::<CachedHost>(&()) }
    }

    async fn observe(
        &self,
        key: &ObjectKey,
        memory: &mut Memory,
    ) -> Result<Option<Observed>, Error> {
        observe(self, key, memory).await
    }

    fn decide(&self, seen: &Observed, now: Now) -> Decision {
        decide(seen, &self.policy, now.wall)
    }

    async fn write(
        &self,
        _: &ObjectKey,
        seen: &Observed,
        it: Box<Write>,
        memory: &mut Memory,
    ) -> Result<Outcome, Error> {
        write(self, seen, &it, memory).await
    }
}

impl Context {
    /// Has a host of ours looked at if a list of nodes shows that something is to be done about it.
    fn compare(&self, key: ObjectKey, node: NodeSeen) -> bool {
        let Some(host) = self.served(&key) else { return false };
        let soft_free = self.soft_free(&key);
        let seen = Observed { host: Some(host), node, soft_free, pace: None };
        let is_news = needs_look(&decide(&seen, &self.policy, Timestamp::now()));
        if is_news {
            self.lookout.enqueue(key, Class::Background);
        }
        is_news
    }
}

impl Follow for Context {
    fn acts(&self) -> bool {
        self.kit.may_act()
    }

    fn shown(&self, node: &ironic::Node) -> bool {
        let names = [Some(node.uuid.as_str()), node.name.as_deref()];
        let keys: BTreeSet<_> =
            names.into_iter().flatten().flat_map(|name| self.links.keys(name)).collect();
        let mut kept = false;
        for key in keys {
            kept |= self.compare(key, NodeSeen::Seen(Node::of(node)));
        }
        kept
    }

    fn listed(&self, names: &HashSet<ThingName>) {
        for key in self.links.without(names) {
            self.compare(key, NodeSeen::Missing);
        }
    }

    fn asked(&self, result: &ironic::Result<()>) {
        self.metrics.polled(result);
        let readiness = &self.kit.readiness;
        match result {
            Ok(()) => [IRONIC, IRONIC_LISTS].into_iter().for_each(|it| readiness.ready(it)),
            // Single nodes are served all the same. Another replica would get no list either: it does not lead instead, or the
            // two would end each other for as long as that lasts.
            Err(error) if self.nodes.silence().is_none() => {
                readiness.ready(IRONIC);
                readiness.not_ready(IRONIC_LISTS, &error.to_string());
            }
            Err(error) => readiness.not_ready(IRONIC, &error.to_string()),
        }
    }
}
